"""A look at a log's end before the modules are loaded that judge it.

The last record counts when its bytes have stayed the same for ``tailGuardMs`` (``reput_end_offset``). A command needs
about that long to load numpy, numba and Arrow. So it looks at the end before, and bytes that are the same when the end
is judged have been seen twice already: `rebuild` and `verify` need not wait half a second more. It is no judgement:
what was not seen, or has changed since, is waited for.
"""

from __future__ import annotations

import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reput.source.log.store_layout import is_file_name
from reput.source.system import open_unnoticed

_PAGE_BYTES = 4096
# A longer last record is waited for.
_LOOKED_AT_BYTES = 256 * 1024


@dataclass(frozen=True)
class EarlyLook:
    """What stood in the file `path` from the position `start` on, up to zeros or the file's end, and when.

    `seen_at` is in seconds of ``time.monotonic``.
    """

    path: str
    start: int
    data: bytes
    seen_at: float

    def digest(self, begin: int, end: int) -> int | None:
        """The CRC-32 of the positions `[begin, end)` of the file; None if not all of them were looked at."""
        if not self.start <= begin <= end <= self.start + len(self.data):
            return None
        return zlib.crc32(self.data[begin - self.start : end - self.start])


# This process's last one: a command has one log.
_looks: list[EarlyLook] = []


def look_early(directory: Path) -> None:
    """Look at the end of the log in `directory`, if one is there; a later look says what is wrong with it."""
    _looks.clear()
    with suppress(OSError, ValueError):
        segments = sorted((path for path in directory.iterdir() if is_file_name(path.name)), reverse=True)
        for path in segments[:2]:  # a broker makes one segment ahead
            if (look := _look_at(str(path))) is not None:
                _looks.append(look)
                break


def seen_early(path: str, begin: int, end: int, digest: int) -> float | None:
    """Since when the positions `[begin, end)` of the file have had this CRC-32; None if they were not seen early."""
    for look in _looks:
        if look.path == path and look.digest(begin, end) == digest:
            return look.seen_at
    return None


def _look_at(path: str) -> EarlyLook | None:
    """Look at the end of a segment; None if it begins with zeros."""
    descriptor = open_unnoticed(path)
    try:
        written = _written_pages(descriptor, os.fstat(descriptor).st_size // _PAGE_BYTES + 1)
        if not written:
            return None
        end = written * _PAGE_BYTES
        start = max(0, end - _LOOKED_AT_BYTES)
        data = os.pread(descriptor, end - start, start)
        # The time after the read, which may take long: the bytes may have come while it ran.
        return EarlyLook(path, start, data, time.monotonic())
    finally:
        os.close(descriptor)


def _written_pages(descriptor: int, pages: int) -> int:
    """How many of the first pages are not zeros, as if none of them were zeros before one that is not."""
    low, high = 0, pages
    while low < high:
        middle = (low + high) // 2
        if any(os.pread(descriptor, _PAGE_BYTES, middle * _PAGE_BYTES)):
            low = middle + 1
        else:
            high = middle
    return low
