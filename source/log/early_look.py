"""A look at a log's end before the modules that judge it are loaded.

The last record counts when its bytes have stayed the same for ``tailGuardMs`` (``reput_end_offset``). A command needs
about that long to load numpy, numba and Arrow, so it looks at the end before loading them. Bytes that are still the
same when the end is judged have then been seen twice, and `rebuild` and `verify` save half a second of waiting. The
early look judges nothing: bytes that it did not see, or that have changed since, must still stay the same for
``tailGuardMs``.
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
# The early look reads no more than this; a longer last record gets no early look.
_LOOKED_AT_BYTES = 256 * 1024


@dataclass(frozen=True)
class EarlyLook:
    """The bytes of the file `path` from position `start` up to zeros or the file's end.

    `seen_at` is the time of the look, in seconds of ``time.monotonic``.
    """

    path: str
    start: int
    data: bytes
    seen_at: float

    def digest(self, begin: int, end: int) -> int | None:
        """The CRC-32 of the positions `[begin, end)` of the file; None unless the look covers all of them."""
        if not self.start <= begin <= end <= self.start + len(self.data):
            return None
        return zlib.crc32(self.data[begin - self.start : end - self.start])


# The last look of this process, if any: a command has one log.
_looks: list[EarlyLook] = []


def look_early(directory: Path) -> None:
    """Look at the end of the log in `directory`. Errors are ignored: the later look reports them."""
    _looks.clear()
    with suppress(OSError, ValueError):
        segments = sorted((path for path in directory.iterdir() if is_file_name(path.name)), reverse=True)
        for path in segments[:2]:  # a broker makes one segment ahead
            if (look := _look_at(str(path))) is not None:
                _looks.append(look)
                break


def seen_early(path: str, begin: int, end: int, digest: int) -> float | None:
    """The time since when the positions `[begin, end)` have had this CRC-32; None if the look did not see them."""
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
    """The number of pages before the zeros at the end; a binary search, which assumes no page of zeros among them."""
    low, high = 0, pages
    while low < high:
        middle = (low + high) // 2
        if any(os.pread(descriptor, _PAGE_BYTES, middle * _PAGE_BYTES)):
            low = middle + 1
        else:
            high = middle
    return low
