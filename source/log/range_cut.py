"""Ranges of the log, cut without walking it: a cut is at any byte, and the tasks on both sides find the record there.

A record seems to begin where magic, own physical offset and lengths agree. A body may hold bytes that pass all these
tests, so a range counts only when the one before it was read from a proven offset to exactly where this one begins, and
so on from a segment's beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reput.source.kernels.own_offset import LOOKED_AT, NOT_FOUND, find_own_offset
from reput.source.log.boundaries import no_file_with
from reput.source.log.offset_range import OffsetRange
from reput.source.segments.mapped_file_queue import MappedFile, MappedFileQueue, cut_short, open_segment, read_fully
from reput.source.segments.range_reader import DecodeOptions, read_record

_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True)
class RangeCut:
    """`[start, end)` of one segment, where `start` and `end` may mean the first record at or behind them.

    Attributes
    ----------
    stop
        A proven offset at or behind `end`, in the same segment: no record crosses it.
    is_start_proven, is_end_proven
        Whether a record (or the blank) is known to begin at `start`, and at `end`.
    """

    file: MappedFile
    start: int
    end: int
    stop: int
    is_start_proven: bool
    is_end_proven: bool

    def settle(self, on_damage: str) -> OffsetRange:
        """The range with its ends where records seem to begin; both tasks at a cut find the same offset."""
        start = self.start if self.is_start_proven else next_record(self.file, self.start, self.stop, on_damage)
        end = self.end if self.is_end_proven else next_record(self.file, self.end, self.stop, on_damage)
        return OffsetRange(start, end, self.file)


def cut_ranges(queue: MappedFileQueue, start: int, end: int, bytes_a_range: int, bytes_max: int) -> list[RangeCut]:
    """Ranges from `start` on, until they have `bytes_max` bytes; `start` and `end` are proven offsets.

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
            raise no_file_with(start, end)
        stop = min(end, file.end)
        begin, is_proven = start, True
        first = (start - file.file_from_offset) // bytes_a_range + 1
        for number in range(first, -(-(stop - file.file_from_offset) // bytes_a_range)):
            cut = file.file_from_offset + number * bytes_a_range
            yield RangeCut(file, begin, cut, stop, is_proven, is_end_proven=False)
            begin, is_proven = cut, False
        yield RangeCut(file, begin, stop, stop, is_proven, is_end_proven=True)
        start = stop


def next_record(file: MappedFile, start: int, stop: int, on_damage: str) -> int:
    """The first offset in `[start, stop)` where a whole record seems to begin; `stop` without one.

    Under DLedger it is the offset of the record's entry. `on_damage` as in ``DecodeOptions``.

    Raises
    ------
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    for head in _heads(file, start, stop):
        if len(read_record(file, head, stop, DecodeOptions(on_damage=on_damage))):
            return head
    return stop


def _heads(file: MappedFile, start: int, stop: int) -> Iterator[int]:
    """The offsets in `[start, stop)` where a record with a magic code names its own offset."""
    head = file.frame + LOOKED_AT
    with open_segment(file, f"[{start}, {stop}) was still to be read") as descriptor:
        while start + head <= stop:
            data = np.empty(min(_WINDOW_BYTES, stop - start), np.uint8)
            if read_fully(descriptor, data, len(data), start - file.file_from_offset) < len(data):
                raise cut_short(file, start, "it")
            at = 0
            while (at := int(find_own_offset(data, at, len(data), start, file.frame))) != NOT_FOUND:
                yield start + at
                at += 1
            start += len(data) - head + 1
