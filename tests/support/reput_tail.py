"""`reput tail --available-now` as a user runs it, on a store that does not change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 3600


def reput_tail(store: Path, broker_conf: Path, output: Path, *options: str) -> None:
    """Build everything from the log of `store` into `output`; `options` are more words of the command line.

    Raises
    ------
    AssertionError
        It ended with another exit code than 0; the message holds its errors.
    """
    command = [
        str(Path(sys.executable).with_name("reput")),
        *("tail", "--store", str(store), "--broker-conf", str(broker_conf), "--output", str(output)),
        *("--available-now", *options),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"reput tail ended with {done.returncode}:\n{done.stderr[-4000:]}"
