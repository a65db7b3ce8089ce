"""The part of a log in memory: held there, dropped, or counted."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def held_in_memory(directory: Path) -> Iterator[None]:
    """Read the files of `directory` and lock their pages in memory meanwhile.

    Machines that reclaim idle pages early would make a run read from the disk what another found in memory.
    """
    locked = []
    for path in sorted(directory.iterdir()):
        pages, address = _map(path)
        if _LIBC.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(pages))):
            print(f"cannot lock {path} in memory (ulimit -l): runs may read it from the disk", flush=True)
        locked.append((pages, address))
    try:
        yield
    finally:
        for pages, address in locked:
            _LIBC.munlock(ctypes.c_void_p(address), ctypes.c_size_t(len(pages)))


def drop(directory: Path) -> float:
    """Ask the kernel to forget the files of `directory`; return the share of their bytes that is still in memory."""
    for path in directory.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # only clean pages are dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return resident_share(directory)


def resident_share(directory: Path) -> float:
    """The share of the files' pages that is in memory, 0 to 1 (mincore)."""
    present = total = 0
    for path in directory.iterdir():
        pages, address = _map(path)
        count = -(-len(pages) // mmap.PAGESIZE)
        vector = np.zeros(count, np.uint8)
        failed = _LIBC.mincore(
            ctypes.c_void_p(address), ctypes.c_size_t(len(pages)), ctypes.c_void_p(vector.ctypes.data)
        )
        if failed:
            raise OSError(ctypes.get_errno(), "mincore", str(path))
        present += int(np.count_nonzero(vector & 1))
        total += count
    return present / total


def _map(path: Path) -> tuple[np.ndarray, int]:
    with path.open("rb") as file:
        pages = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    return pages, pages.ctypes.data
