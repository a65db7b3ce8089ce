"""What a process that reads ranges of the log does once, before the first one."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from contextlib import suppress
from functools import lru_cache

# <sys/prctl.h>
_PR_SET_PDEATHSIG = 1
# Libraries that start threads when they are loaded, for what reput does not use.
_WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def load_without_threads() -> None:
    """Have numpy and pyarrow start no threads when they are loaded, here and in processes that are started later.

    Only a process with a single thread can be forked without danger.
    """
    for name, value in _WITHOUT_THREADS.items():
        os.environ.setdefault(name, value)


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the system send this process a signal when its parent dies: otherwise nothing would tell it.

    With other C libraries, nothing changes.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))


@lru_cache(maxsize=1)
def settle_worker() -> None:
    """Take what is loaded by now out of the garbage collector's sight; call it when the modules are imported.

    pyspark's daemon collects all garbage after every task, which costs 45 ms with pandas, pyarrow and numba loaded:
    more than most tasks.
    """
    gc.collect()
    gc.freeze()
