"""Workers that Spark wants no more end without a word."""

from __future__ import annotations

import os
import subprocess
import sys

#: Serves a connection that the JVM has closed, as it does with that of a worker that was idle for a minute.
CLOSED = """
import socket, sys
sys.argv = ["daemon", "pyspark.worker"]
from pyspark import daemon
from reput.streaming.tail import worker_daemon
here, there = socket.socketpair()
there.close()
print({call}(here, True))
"""


def serve(call: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}  # as Spark's JVM sets it
    environment["PYTHONWARNINGS"] = "default"
    command = [sys.executable, "-c", CLOSED.format(call=call)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_worker_whose_connection_is_closed_prints_nothing() -> None:
    """An exit code tells the daemon that it is over; pyspark's own way is a traceback in Spark's log.

    Nor is there a warning of the files that pyspark leaves open, not even where warnings are asked for.
    """
    done = serve("worker_daemon._worker")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert "BrokenPipeError" in serve("daemon.worker").stderr
