"""What the C library's allocator does with memory that is freed.

All of it is for glibc; with other C libraries nothing changes.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, Final

# <malloc.h>; the threshold is the greatest that glibc takes on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_THRESHOLD_MAX, _NEVER = 32 * 1024 * 1024, 2**31 - 1
# A little less than the largest that is taken from the heap, where it stays.
_BLOCK_BYTES = _MMAP_THRESHOLD_MAX - 1024 * 1024
# Larger than what Python and its libraries ask for all the time.
_APART_BYTES = 256 * 1024


def _function(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except OSError:
        return None


_mallopt, _malloc_trim = _function("mallopt"), _function("malloc_trim")
#: Whether `give_back_freed_memory` does anything.
GIVES_BACK: Final = _malloc_trim is not None


def keep_freed_memory() -> None:
    """Keep memory that is freed for what is asked for next; forks inherit it.

    What one range takes, the next one takes again. In between, glibc would give it back to the system, which clears
    each page before it is given out once more: with rows for the table a fifth of all processor time, and more on a
    virtual machine whose host takes unused pages, too.
    """
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_MAX)
        _mallopt(_M_TRIM_THRESHOLD, _NEVER)


@lru_cache(maxsize=1)
def take_memory(blocks: int) -> None:
    """Take so many blocks of 31 MiB from the system, once, for what is asked for next, after `keep_freed_memory`.

    A range that takes its memory bit by bit waits for the system as long as for all else.
    """
    # Written, or the system gives nothing; all at once, or the second would be the first again.
    taken = [b"\1" * _BLOCK_BYTES for _ in range(blocks)]
    del taken


def keep_large_buffers_apart() -> None:
    """Take each buffer of 256 KiB and more from the system by itself, to which it goes back as soon as it is freed.

    Left alone, glibc does so only with those that are larger than any that was freed before.
    """
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, _APART_BYTES)


def give_back_freed_memory() -> None:
    """Give all pages back to the system that hold only freed memory; it takes some milliseconds."""
    if _malloc_trim is not None:
        _malloc_trim(0)
