"""Spark's Python daemon with the tasks' modules and kernels loaded: a worker is a fork of it and begins at once.

Everything loaded before the fork is hidden from the garbage collector, because pyspark collects all garbage after every
task: with pandas, pyarrow and numba loaded that costs 45 ms, more than most tasks of a micro-batch.
"""

from __future__ import annotations

import gc
import signal
import sys
import warnings
from importlib import import_module
from socket import socket

from pyspark import daemon

from reput.source.system import keep_freed_memory

_TASKS = "pyspark.worker"  # other worker modules only plan, and do not decode
_serve = daemon.worker
# The modules of a worker's first task: pyspark's serializers, the source's reader, and those that read a range.
_LOADED_BY_TASKS = (
    "pandas",
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "reput.source.data_source",
    "reput.streaming.tail.micro_batch",
)


def main() -> None:
    """Load, freeze, and serve Spark's requests for workers (``spark.python.daemon.module``).

    A service manager sends SIGTERM to every process of the service. Only the driver acts on it: daemon and workers
    end when the JVM closes the daemon's standard input, which it does when it ends or stops them.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    if sys.argv[1:2] == [_TASKS]:
        for module in _LOADED_BY_TASKS:
            import_module(module)
        keep_freed_memory()
        import_module("reput.streaming.spark.warm_up").compile_kernels()
    daemon.worker = _worker
    gc.collect()
    gc.freeze()
    daemon.manager()


def _worker(sock: socket, authenticated: bool) -> int:
    """Serve one task; print nothing about a worker that Spark no longer wants.

    Spark closes the connection of a worker that was idle for a minute, and of one whose task it ends. pyspark would
    print a traceback each time, a megabyte a day if a message comes every other minute. It also leaves its files of the
    connection to be closed by Python, which would warn about each if warnings are asked for.
    """
    warnings.simplefilter("ignore", ResourceWarning)
    try:
        return _serve(sock, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    main()
