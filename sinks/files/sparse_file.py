"""Where a sparse file has data; most of a queue's last file, and of an index file, is a hole."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator


def data_extents(descriptor: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """`[begin, end)` of each extent with data from byte `start` of the file on; holes read as zeros."""
    size = os.fstat(descriptor).st_size
    while start < size:
        try:
            begin = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data from here on
                return
            raise
        start = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, start


def filled_extents(descriptor: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """`[begin, end)` of each extent from byte `start` of the file on that is not all zero."""
    for begin, end in list(data_extents(descriptor, start)):
        if os.pread(descriptor, end - begin, begin).strip(b"\0"):
            yield begin, end
