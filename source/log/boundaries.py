"""Physical offsets where records begin: to split `[start, end)` into ranges, to limit it, to find a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from reput.source.arrays import Bytes
from reput.source.errors import DataLossError, OptionError
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.byte_kernels import load_i32, load_i64
from reput.source.log.offset_range import OffsetRange
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_format import HOST_V6_EXTRA, STORE_TIMESTAMP_AT, SYS_FLAG_AT
from reput.source.record.message_sys_flag import BORNHOST_V6_FLAG
from reput.source.segments.damage import STOP
from reput.source.segments.mapped_file_queue import MappedFile, MappedFileQueue, read_head
from reput.source.segments.range_reader import DecodeOptions, read_record, scan_windows
from reput.source.segments.segment_head import HEAD_SIZE
from reput.source.segments.segment_head import first_store_timestamp as head_store_timestamp

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
