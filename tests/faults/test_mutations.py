"""G5, G10: any damage to a log is a verdict: no read outside the buffer, no hang, no record before it lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from faults import mutations
from support.proof_counts import Proof

COUNT_FULL = int(os.environ.get("REPUT_PROOF_MUTATIONS", "10000000"))


@pytest.mark.parametrize("count", [100_000, pytest.param(COUNT_FULL, marks=pytest.mark.slow)])
def test_random_mutations(count: int, proof: Proof) -> None:
    """In a process of its own, which a read outside the buffer would end."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, mutations.__file__, str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = re.match(r"\d+ mutations, (\d+) records found", done.stdout)
    assert found
    assert int(found[1]) > count // 2
    proof("G5 random mutations", count)
