"""Where ``spark-submit`` started this process: how to reach its JVM, which is this process's parent.

It stands in environment variables, by which pyspark would use that JVM. reput takes them out at once: no process
that it starts later must take that JVM for its own.
"""

from __future__ import annotations

import os
import signal

from reput.source.system import end_with_parent

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_taken: list[tuple[int, str]] = []


def take_up() -> bool:
    """Have this process use the JVM of ``spark-submit``; False if none started it.

    When that JVM ends, this process is asked to stop: nobody else would tell it.
    """
    port, secret = os.environ.pop(_PORT, ""), os.environ.pop(_SECRET, "")
    if not (port.isdecimal() and secret):
        return False
    _taken[:] = [(int(port), secret)]
    end_with_parent(signal.SIGTERM)
    return True


def submit_gateway() -> tuple[int, str] | None:
    """The port and the secret of the JVM that ``spark-submit`` started; None without one."""
    return _taken[0] if _taken else None
