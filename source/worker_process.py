"""What a process that reads ranges of the log does once, before the first one."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from contextlib import suppress
from functools import lru_cache

# <malloc.h>; the threshold is the greatest that glibc takes on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_THRESHOLD_MAX, _NEVER = 32 * 1024 * 1024, 2**31 - 1
# A little less than the largest that is taken from the heap, where it stays.
_BLOCK_BYTES = _MMAP_THRESHOLD_MAX - 1024 * 1024
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


@lru_cache(maxsize=1)
def take_memory(blocks: int) -> None:
    """Take so many blocks of 31 MiB from the system, once, for what is asked for next, after `keep_freed_memory`.

    A range that takes its memory bit by bit waits for the system as long as for all else.
    """
    # Written, or the system gives nothing; all at once, or the second would be the first again.
    taken = [b"\1" * _BLOCK_BYTES for _ in range(blocks)]
    del taken


def keep_freed_memory() -> None:
    """Have the C library keep memory that is freed for what is asked for next; forks inherit it.

    What one range takes, the next one takes again. In between, glibc would give it back to the system, which clears
    each page before it is given out once more: with rows for the table a fifth of all processor time, and more on a
    virtual machine whose host takes unused pages, too. With other C libraries nothing changes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_MAX)
    mallopt(_M_TRIM_THRESHOLD, _NEVER)
