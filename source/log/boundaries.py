"""Physical offsets where records begin: to split `[start, end)` into ranges, to limit it, to find a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reput.source.arrays import Bytes
from reput.source.errors import DataLossError, OptionError
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.byte_kernels import load_i32, load_i64
from reput.source.kernels.record_kernels import LOOKED_AT, NOT_FOUND, find_own_offset
from reput.source.log.mapped_file_queue import (
    HEAD_SIZE,
    MappedFile,
    MappedFileQueue,
    cut_short,
    open_segment,
    read_fully,
    read_head,
)
from reput.source.log.mapped_file_queue import first_store_timestamp as head_store_timestamp
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import DecodeOptions, read_record, scan_windows
from reput.source.record.damage import STOP
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_format import BORNHOST_V6_FLAG, HOST_V6_EXTRA, STORE_TIMESTAMP_AT, SYS_FLAG_AT

_BOUNDARIES_MAX = 1 << 20


class Boundaries:
    """Offsets where records begin, noted on walks only to save walking the same bytes again."""

    def __init__(self) -> None:
        self._offsets: list[int] = []

    def note(self, offset: int) -> None:
        """Add an offset where a record begins, or where the records of its file end."""
        at = bisect_left(self._offsets, offset)
        if at == len(self._offsets) or self._offsets[at] != offset:
            if len(self._offsets) >= _BOUNDARIES_MAX:
                self._offsets.clear()
                at = 0
            self._offsets.insert(at, offset)

    def before(self, start: int, offset: int) -> int:
        """The last known boundary in `[start, offset]`; `start` itself is one."""
        at = bisect_right(self._offsets, offset)
        return max(start, self._offsets[at - 1]) if at else start


def split(
    queue: MappedFileQueue,
    start: int,
    end: int,
    bytes_max: int,
    on_damage: str = STOP,
    known: Boundaries | None = None,
    *,
    over_holes: bool = False,
) -> Iterator[OffsetRange]:
    """Cut `[start, end)` at segments, and each part into ranges of about the same size, never inside a record.

    A range has at most `bytes_max` bytes and an eighth, or one record, or one damaged range.

    `on_damage` as in ``DecodeOptions``, here and below.

    Raises
    ------
    DataLossError
        A segment of the range has gone; with `over_holes` the ranges go on behind it.
    """
    while start < end:
        file = queue.find(start)
        if file is None and over_holes and (further := queue.next_available(start)) > start:
            start = further
            continue
        if file is None:
            raise no_file_with(start, end)
        stop = min(end, file.end)
        # Each cut is a little before where it should be, by less than the eighth: so that adds no range.
        while (count := -(-(stop - start - bytes_max // 8) // bytes_max)) > 1:
            cut = align_down(file, start, start + (stop - start) // count, on_damage, known)
            if cut == start:  # one record is larger than a range
                cut = _after_first(file, start, on_damage)
            if cut >= stop:
                break
            yield OffsetRange(start, cut, file)
            start = cut
        yield OffsetRange(start, stop, file)
        start = stop


def no_file_with(offset: int, end: int | None = None) -> DataLossError:
    """The error for an `offset` that no segment has any more, where `[offset, end)` was to be read."""
    unread = "" if end is None else f", [{offset}, {end}) was still to be read"
    return DataLossError(f"the log has no file with offset {offset} any more{unread}", physical_offset=offset)


def align_down(
    file: MappedFile, start: int, offset: int, on_damage: str = STOP, known: Boundaries | None = None
) -> int:
    """The last boundary up to `offset`: where a record begins or the file's records end, on a walk from `start`.

    `known` shortens the walk, and takes note of it.
    """
    known = known or Boundaries()
    boundary = known.before(start, offset)
    for window in scan_windows(file, boundary, min(offset, file.end), DecodeOptions(on_damage=on_damage)):
        boundary = window.end
        known.note(boundary)
    return boundary


def _after_first(file: MappedFile, start: int, on_damage: str) -> int:
    """The offset behind the record or the damaged range at `start`, or behind the file's blank."""
    options = DecodeOptions(on_damage=on_damage)
    if len(record := read_record(file, start, file.end, options)):
        return record.end
    return next((found.end for found in scan_windows(file, start, file.end, options) if found.end > start), file.end)


def limit(
    queue: MappedFileQueue,
    start: int,
    end: int,
    bytes_max: int | None,
    messages_max: int | None,
    on_damage: str = STOP,
    known: Boundaries | None = None,
) -> int:
    """The boundary up to `end` that is at most so many bytes and messages from `start`; always past one record."""
    if bytes_max is not None and start + bytes_max < end:
        end = min(end, _limit_bytes(queue, start, start + bytes_max, on_damage, known))
    if messages_max is not None:
        end = _limit_messages(queue, start, end, messages_max, on_damage)
    return end


def _limit_bytes(queue: MappedFileQueue, start: int, offset: int, on_damage: str, known: Boundaries | None) -> int:
    file = queue.find(offset)
    first = queue.find(start)
    if file is None or first is None:
        return offset if first is not None else start
    end = align_down(file, max(start, file.file_from_offset), offset, on_damage, known)
    return end if end > start else _after_first(first, start, on_damage)


def _limit_messages(queue: MappedFileQueue, start: int, end: int, messages_max: int, on_damage: str) -> int:
    left = messages_max
    while start < end and (file := queue.find(start)) is not None:
        stop = min(end, file.end)
        for window in scan_windows(file, start, stop, DecodeOptions(on_damage=on_damage)):
            if len(window) >= left:
                after = int(window.parts[left - 1, rk.AT] + window.parts[left - 1, rk.SIZE])
                return window.start + after
            left -= len(window)
        start = stop
    return end


def check_begins_record(queue: MappedFileQueue, offset: int, on_damage: str = STOP) -> None:
    """Raise OptionError unless a record begins at `offset`, or nothing was written there yet."""
    file = queue.find(offset)
    if file is None or offset == file.file_from_offset:
        return
    verdict = read_record(file, offset, file.end, DecodeOptions(on_damage=on_damage)).verdict
    if verdict in (Verdict.MESSAGE, Verdict.BLANK):
        return
    before = align_down(file, file.file_from_offset, offset, on_damage)
    if before != offset:
        raise OptionError(
            f"startingOffset={offset} is not where a record begins ({verdict.name}); the nearest before it is {before}"
            f" in {file.path}",
            file=file.path,
            physical_offset=offset,
        )


def first_store_timestamp(file: MappedFile) -> int | None:
    """The store time in milliseconds of a segment's first record; None when there is none."""
    return head_store_timestamp(read_head(file, HEAD_SIZE), file.frame)


def find_timestamp(queue: MappedFileQueue, end: int, timestamp_ms: int, on_damage: str = STOP) -> int:
    """The offset of the first record before `end` stored at or after `timestamp_ms`; `end` when there is none.

    Store times are assumed to rise from segment to segment; within one, the first that reaches the time counts.
    """
    candidates = [
        file
        for file in queue.files
        if file.file_from_offset < end and (first := first_store_timestamp(file)) is not None and first < timestamp_ms
    ]
    start = candidates[-1].file_from_offset if candidates else queue.min_offset
    while start < end and (file := queue.find(start)) is not None:
        for window in scan_windows(file, start, min(end, file.end), DecodeOptions(on_damage=on_damage)):
            for row in range(len(window)):
                if store_timestamp_at(window.data, int(window.parts[row, rk.AT])) >= timestamp_ms:
                    return window.offset_of(row)
        start = file.end
    return end


def store_timestamp_at(data: Bytes, at: int) -> int:
    """The store time in milliseconds of the record that begins at `data[at]`."""
    shift = HOST_V6_EXTRA if load_i32(data, at + SYS_FLAG_AT) & BORNHOST_V6_FLAG else 0
    return int(load_i64(data, at + STORE_TIMESTAMP_AT + shift))


# ----------------------------------------------------------------------------------------------------------------------
# Ranges of the log, cut without walking it: a cut is at any byte, and the tasks on both sides find the record there.
#
# A record seems to begin where magic, own physical offset and lengths agree. A body may hold bytes that pass all these
# tests, so a range counts only when the one before it was read from a proven offset to exactly where this one begins,
# and so on from a segment's beginning.

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
