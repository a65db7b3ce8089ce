"""Spark's Python daemon with the tasks' modules and kernels loaded: a worker is a fork of it and begins at once.

What is loaded before the fork is hidden from the garbage collector, because pyspark collects all garbage after every
task: with pandas, pyarrow and numba loaded that costs 45 ms, more than most tasks of a micro-batch.
"""

from __future__ import annotations

import gc
import signal
import sys

from pyspark.daemon import manager

_TASKS = "pyspark.worker"  # other worker modules only plan, and do not decode


def main() -> None:
    """Load, freeze, and serve Spark's requests for workers (``spark.python.daemon.module``).

    A service manager sends SIGTERM to every process of the service. Only the driver acts on it: daemon and workers
    end when the JVM closes the daemon's standard input, which it does when it ends or stops them.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    if sys.argv[1:2] == [_TASKS]:
        import pandas as pd  # noqa: F401, PLC0415  pyspark's Arrow serializers load it in the first task
        import pyspark.worker  # noqa: F401, PLC0415

        from reput.source.worker_process import keep_freed_memory  # noqa: PLC0415
        from reput.streaming.spark.warm_up import compile_kernels  # noqa: PLC0415

        keep_freed_memory()
        compile_kernels()
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
