"""G15: a worker of a running `reput tail` dies: the run continues. ``spark/test_tail_survives.py`` has other faults."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults import tail_with_jobs
from faults.tail_process import LogWriter, Oracle, TailProcess
from support.proof_counts import Proof

pytestmark = pytest.mark.spark

LIMIT_SECONDS = 120
RATE = 150.0


@contextmanager
def under_load(root: Path) -> Iterator[TailProcess]:
    """A tail after its first batches, and a growing log; afterwards everything is brought up and compared."""
    writer = LogWriter(root / "store" / "commitlog", RATE)
    tail = TailProcess(root, program=(sys.executable, tail_with_jobs.__file__))
    try:
        tail.wait_beyond(0)
        yield tail
    finally:
        tail.end()
        messages = writer.end()
    last = TailProcess(root, "--available-now")
    try:
        assert last.process.wait(300) == 0, last.last_words()
    finally:
        last.end()
    Oracle(root).check_all(messages)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["daemon", "newest"])
def test_a_python_worker_dies(which: str, tmp_path: Path, proof: Proof) -> None:
    """The parent of all workers, or the youngest of them."""
    with under_load(tmp_path) as tail:
        workers = tail.children("-m reput.streaming.tail.worker_daemon")
        os.kill(workers[0 if which == "daemon" else -1], signal.SIGKILL)
        tail.wait_beyond(tail.end_offset(), LIMIT_SECONDS)
        proof("G15 dead workers got over")
