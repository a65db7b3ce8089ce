"""Ranges of the log cut without walking it: a cut is any byte, and the tasks on both sides find the record there.

A record seems to begin where magic, own physical offset and lengths agree. A body may hold bytes that pass all of it,
so a range counts only when the one before it was read from a proven place to exactly where this one begins: by chain,
from a segment's beginning on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from reput.source import record_kernels as rk
from reput.source.dispatch_request import OffsetRange
from reput.source.errors import DataLossError
from reput.source.mapped_file_queue import MappedFile, MappedFileQueue, open_for_reading
from reput.source.message_format import MAGIC_AT, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, PHYSICAL_OFFSET_AT
from reput.source.range_reader import scan_windows

_MAGIC_AT, _PLACE_AT, _HEAD_SIZE = MAGIC_AT, PHYSICAL_OFFSET_AT, PHYSICAL_OFFSET_AT + 8
_MAGIC, _MAGIC_V2 = MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2
_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True)
class RangeCut:
    """`[start, end)` of one segment, in which `start` and `end` may stand for the first record there or behind.

    Attributes
    ----------
    stop
        A proven place at or behind `end`, in the same segment: no record crosses it.
    is_start_proven, is_end_proven
        Whether a record (or the blank) is known to begin at `start`, and at `end`.
    """

    file: MappedFile
    start: int
    end: int
    stop: int
    is_start_proven: bool
    is_end_proven: bool

    def settle(self) -> OffsetRange:
        """The range with its ends where records seem to begin; both tasks at a cut find the same place."""
        start = self.start if self.is_start_proven else next_record(self.file, self.start, self.stop)
        end = self.end if self.is_end_proven else next_record(self.file, self.end, self.stop)
        return OffsetRange(start, end, self.file)


def cut_ranges(queue: MappedFileQueue, start: int, end: int, bytes_a_range: int, bytes_max: int) -> list[RangeCut]:
    """Ranges from `start` on, both it and `end` being proven places, until `bytes_max` bytes are in them.

    Cuts are at multiples of `bytes_a_range` from a segment's beginning, so that they do not depend on `start`. The
    last range's end is proven only when the ranges reach `end` or the end of a segment.

    Raises
    ------
    DataLossError
        A segment of the range has gone.
    """
    cuts: list[RangeCut] = []
    for cut in _cuts(queue, start, end, bytes_a_range):
        cuts.append(cut)
        if cut.end - start >= bytes_max:
            break
    return cuts


def _cuts(queue: MappedFileQueue, start: int, end: int, bytes_a_range: int) -> Iterator[RangeCut]:
    while start < end:
        file = queue.find(start)
        if file is None:
            msg = f"the log has no file with offset {start} any more, [{start}, {end}) was still to be read"
            raise DataLossError(msg)
        stop = min(end, file.end)
        place, is_proven = start, True
        first = (start - file.file_from_offset) // bytes_a_range + 1
        for number in range(first, -(-(stop - file.file_from_offset) // bytes_a_range)):
            cut = file.file_from_offset + number * bytes_a_range
            yield RangeCut(file, place, cut, stop, is_proven, is_end_proven=False)
            place, is_proven = cut, False
        yield RangeCut(file, place, stop, stop, is_proven, is_end_proven=True)
        start = stop


def next_record(file: MappedFile, place: int, stop: int) -> int:
    """The first place from `place` on, before `stop`, where a whole record seems to begin; `stop` without one.

    Under DLedger it is the place of the record's entry.

    Raises
    ------
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    for head in _heads(file, place, stop):
        for scan in scan_windows(file, head, stop, check_crc=False, window_bytes=rk.PARTS):
            if len(scan):
                return head
            break
    return stop


def _heads(file: MappedFile, place: int, stop: int) -> Iterator[int]:
    """Places where a magic code stands and says its own place."""
    head = file.frame + _HEAD_SIZE
    try:
        with open_for_reading(file.path) as descriptor:
            while place + head <= stop:
                size = min(_WINDOW_BYTES, stop - place)
                data = np.frombuffer(os.pread(descriptor, size, place - file.file_from_offset), np.uint8)
                if len(data) < head:
                    msg = f"{file.path} is shorter than its {file.size} bytes: it was cut while it was read"
                    raise DataLossError(msg)
                at = 0
                while (at := int(find_head(data, at, place, file.frame))) >= 0:
                    yield place + at
                    at += 1
                place += len(data) - head + 1
    except FileNotFoundError:
        msg = f"{file.path} is gone: the log expired while [{place}, {stop}) was still to be read"
        raise DataLossError(msg) from None


@njit(cache=True)
def find_head(data: Any, at: int, place: int, frame: int) -> int:
    """The first byte from `at` on whose record has a magic code and its own place; -1 without one.

    `data` begins at `place` of the log; the byte is where the record's frame (of `frame` bytes) begins.
    """
    for here in range(at, data.size - frame - _HEAD_SIZE + 1):
        record = here + frame
        if data[record + _MAGIC_AT] != 0xDA:  # both magic codes begin so
            continue
        magic = rk.load_i32(data, record + _MAGIC_AT)
        if magic in (_MAGIC, _MAGIC_V2) and rk.load_i64(data, record + _PLACE_AT) == place + record:
            return here
    return -1
