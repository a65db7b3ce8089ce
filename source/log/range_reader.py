"""Walk over the records of a range of a segment in bounded memory, read one record, and find where records begin.

There is one walk, with two ways to end it. `scan_windows` searches for the end of the good records, so a bad record is
not an error. `read_windows` reads a planned range, whose ends are where a record or the blank begins: anything that
ends the walk before is an error.

Damage in the middle of the log is passed over if that is asked for. The bytes passed over are the same whatever the
range: they depend on the segment only (``segment_scan``, ``broker_goes_on_at``), and ranges are never cut inside a
damaged one.

`Boundaries` are offsets where records begin: to split `[start, end)` into ranges, to limit it, to find a time.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from reput.source.arrays import Bytes
from reput.source.errors import CorruptRecordError, DataLossError, OptionError
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.byte_kernels import load_i32, load_i64
from reput.source.kernels.record_kernels import LOOKED_AT, NOT_FOUND, find_own_offset
from reput.source.log.broker_check import BrokerRules, check_open
from reput.source.log.mapped_file_queue import (
    HEAD_SIZE,
    MappedFile,
    MappedFileQueue,
    OpenFile,
    cut_short,
    open_segment,
    read_fully,
    read_head,
)
from reput.source.log.mapped_file_queue import first_store_timestamp as head_store_timestamp
from reput.source.log.offset_range import OffsetRange
from reput.source.log.segment_scan import SOUND_VERDICTS, WINDOW_BYTES, OpenSegment, Window, scan_record, scan_segment
from reput.source.record import message_format as fmt
from reput.source.record.damage import BROKER, QUARANTINE, STOP, DamagedRange
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_format import BORNHOST_V6_FLAG, HOST_V6_EXTRA, STORE_TIMESTAMP_AT, SYS_FLAG_AT
from reput.source.record.message_properties import DEFAULT_MESSAGE_DELAY_LEVEL, parse_delay_levels
from reput.source.releases import V4, V5


@dataclass(frozen=True)
class DecodeOptions:
    """How records are read.

    Attributes
    ----------
    check_crc
        Whether every body is compared with its checksum.
    delays_ms
        Delay levels in milliseconds, level 1 first.
    on_damage
        The policy for bytes in the middle of the log that are not a good record; see ``damage``.
    """

    check_crc: bool = False
    delays_ms: tuple[int, ...] = parse_delay_levels(DEFAULT_MESSAGE_DELAY_LEVEL)
    on_damage: str = STOP


def scan_windows(
    file: MappedFile, start: int, end: int, options: DecodeOptions, window_bytes: int = WINDOW_BYTES
) -> Iterator[Window]:
    """Follow the records of `[start, end)` of one segment up to the first bad one.

    A record begins at `start`. The verdict of the last window says what ended the walk; a record that crosses `end` is
    UNDERFLOW. Unless `options.on_damage` is ``stop``, a damaged range is a window of its own and the walk continues
    after it. A damaged range that crosses `end` ends the walk.

    The parts of a window are valid until the next one is asked for. Memory: one window, and never less than the largest
    record.

    Raises
    ------
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    # A broker stops at a record whose properties it cannot parse; under other policies its lengths are enough.
    decodes = options.on_damage == BROKER
    return _walk(file, start, end, options, window_bytes, decodes=decodes, passes_over=True, is_planned=False)


def read_windows(
    file: MappedFile,
    start: int,
    end: int,
    options: DecodeOptions,
    window_bytes: int = WINDOW_BYTES,
    *,
    decodes: bool = True,
    passes_over: bool = True,
) -> Iterator[Window]:
    """Read the records of `[start, end)` of one segment; a record or the blank begins at both offsets.

    The windows follow each other without a gap. The last one ends where the range ends: after the blank if the range
    ends with the file. Damage is passed over as with `scan_windows`. Without `passes_over` it is an error, and
    `options.on_damage` only decides what counts as damage.

    The columns of a window are valid until the next one is asked for; without `decodes` there are none. Memory: one
    window and its columns.

    Raises
    ------
    CorruptRecordError
        A record of the range fails its checks, and `passes_over` is off or `options.on_damage` is ``stop``.
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    return _walk(file, start, end, options, window_bytes, decodes=decodes, passes_over=passes_over, is_planned=True)


def read_record(file: MappedFile, start: int, end: int, options: DecodeOptions, *, decodes: bool = False) -> Window:
    """The good record at `start` alone, or a window without records that has the verdict on the bytes there.

    `start` is where its frame begins; a record that crosses `end` is UNDERFLOW. Damage is never passed over.

    Raises
    ------
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    with open_segment(file, f"[{start}, {end}) was still to be read") as opened:
        found = scan_record(opened, file, start, end, check_crc=options.check_crc)
    return found.decode(np.array(options.delays_ms, np.int64)) if decodes or options.on_damage == BROKER else found


def _walk(
    file: MappedFile,
    start: int,
    end: int,
    options: DecodeOptions,
    window_bytes: int,
    *,
    decodes: bool,
    passes_over: bool,
    is_planned: bool,
) -> Iterator[Window]:
    """The walk of `scan_windows`, and of `read_windows` if the range `is_planned`."""
    delays = np.array(options.delays_ms, np.int64)
    with open_segment(file, f"[{start}, {end}) was still to be read") as opened:
        if isinstance(opened, int):
            # The system applies this to the whole file: it reads twice as far ahead if the log is not in memory.
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while start < end:
            scan = scan_segment(opened, file, start, end, check_crc=options.check_crc, window_bytes=window_bytes)
            for window in (found.decode(delays) if decodes else found for found in scan):
                start, verdict = window.end, window.verdict
                if start == end or (len(window) and verdict in (Verdict.UNDERFLOW, Verdict.MESSAGE)):
                    yield window
                    continue
                damaged = None
                if passes_over or verdict is Verdict.BLANK:
                    damaged = find_damage(opened, file, start, verdict, options.on_damage)
                is_end = damaged is None and verdict is Verdict.BLANK and end == file.end
                if is_planned and not is_end and (damaged is None or not passes_over):
                    raise corrupt_record(file, start, verdict)
                if len(window) or not is_planned:
                    yield window
                if not is_planned and (damaged is None or damaged.end > end):
                    return
                # A range that was planned under another policy may end inside the damaged one.
                start = end if damaged is None else min(damaged.end, end)
                yield window.gap(start, damaged and replace(damaged, end=start))
                break


def find_damage(
    opened: OpenFile, file: MappedFile, start: int, verdict: Verdict, on_damage: str
) -> DamagedRange | None:
    """The damaged range that begins at `start`, where a scan ended with `verdict`, by `on_damage`.

    None if the walk ends there: at a blank, at a record that crosses the end of what is read, and with ``stop``
    anywhere. If nothing in the segment shows where the log continues, the range is the rest of the segment.
    """
    if on_damage == STOP or verdict is Verdict.MESSAGE:
        return None
    segment = OpenSegment(opened, file)
    if verdict is Verdict.UNDERFLOW:  # judged by the whole segment: a wrong size also leads out of a range
        verdict = segment.judge(start)
        if verdict is Verdict.MESSAGE or verdict in SOUND_VERDICTS:
            return None
    if verdict is Verdict.BLANK:
        # No reader compares a blank's size, but a blank at a wrong offset has a wrong one.
        if on_damage == BROKER or segment.is_blank(start):
            return None
        end = segment.end_of_damage(start, verdict)
        return None if end is None else segment.damaged_range(start, end, Verdict.BAD_BLANK.name)
    if on_damage == QUARANTINE:
        end = segment.end_of_damage(start, verdict)
    else:
        end = broker_goes_on_at(segment, start, verdict)
    return segment.damaged_range(start, file.end if end is None else end, verdict.name)


def corrupt_record(file: MappedFile, offset: int, verdict: Verdict) -> CorruptRecordError:
    """The error for an offset in the middle of the log without a good record."""
    return CorruptRecordError(
        no_good_record(file, offset, verdict),
        advice="set onDamage=quarantine to leave out and record what is damaged, onDamage=broker to leave out what a "
        "broker's replay leaves out, or startingOffset to a later record to continue there",
        file=file.path,
        physical_offset=offset,
    )


def no_good_record(file: MappedFile, offset: int, verdict: Verdict) -> str:
    """The text for an offset with the verdict `verdict`: the file, the position in it, and the bytes there."""
    at = offset - file.file_from_offset
    found = read_head(file, 16, at).hex(" ", 4)
    return (
        f"{file.path}: no good record at offset {offset} (byte {at} of the file): {verdict.name}, the bytes there are "
        f"{found}"
    )


# ----------------------------------------------------------------------------------------------------------------------
# Where a broker's replay continues after a record that it does not dispatch, in a complete segment.
#
# ``DefaultMessageStore.ReputMessageService#doReput`` with ``CommitLog#checkMessageAndReturnSize`` of 4.9.3, of a
# master; ``DLedgerCommitLog#checkMessageAndReturnSize`` under DLedger. Two things are not copied:
# * The broker dispatches a record that names another physical offset, or that has no topic. Here this record is left
#   out. Both continue after it.
# * After a record whose sizes differ, the broker's own position is wrong by the difference, and by the record's size
#   for bytes that it skips later in the same read. So it also loses records of the next segments; how many depends on
#   how much was readable at that instant.

# 5.5.0 for the records that only 5.x writes. Delay levels change no record's end.
_V4 = BrokerRules(version=V4, check_crc=False, verifies_property_crc=False, delays_ms=())
_V5 = BrokerRules(version=V5, check_crc=False, verifies_property_crc=False, delays_ms=())


def broker_goes_on_at(segment: OpenSegment, offset: int, verdict: Verdict) -> int:
    """The offset where the replay parses its next record; the segment's end after a record that it refuses."""
    file, record = segment.file, offset + segment.file.frame
    if verdict is Verdict.BAD_INNER_BATCH:  # 5.x refuses it, whichever its magic code
        return file.end
    is_v2 = segment.i32(record + fmt.MAGIC_AT) == fmt.MESSAGE_MAGIC_CODE_V2
    check = check_open(segment.opened, file, record, file.end, _V5 if is_v2 else _V4)
    # A size of 0 that does not fit counts as a record that cannot be parsed.
    return check.position if check.size > 0 else file.end


_BOUNDARIES_MAX = 1 << 20


class Boundaries:
    """Known offsets where records begin. They only save walking the same bytes again."""

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

    A range has at most nine eighths of `bytes_max` bytes, or one record, or one damaged range. `on_damage` as in
    ``DecodeOptions``, here and below.

    Raises
    ------
    DataLossError
        A segment of the range has gone; with `over_holes` the ranges continue after it.
    """
    while start < end:
        file = queue.find(start)
        if file is None and over_holes and (further := queue.next_available(start)) > start:
            start = further
            continue
        if file is None:
            raise no_file_with(start, end)
        stop = min(end, file.end)
        # Each cut is less than an eighth before where it should be. The eighth keeps this from adding a range.
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
    """The error for an `offset` of which the log no longer has the segment, while `[offset, end)` was to be read."""
    unread = "" if end is None else f", [{offset}, {end}) was still to be read"
    return DataLossError(f"the log has no file with offset {offset} any more{unread}", physical_offset=offset)


def align_down(
    file: MappedFile, start: int, offset: int, on_damage: str = STOP, known: Boundaries | None = None
) -> int:
    """The last boundary up to `offset`, where a record begins or the file's records end, on a walk from `start`.

    `known` shortens the walk, and gets the boundaries that it finds.
    """
    known = known or Boundaries()
    boundary = known.before(start, offset)
    for window in scan_windows(file, boundary, min(offset, file.end), DecodeOptions(on_damage=on_damage)):
        boundary = window.end
        known.note(boundary)
    return boundary


def _after_first(file: MappedFile, start: int, on_damage: str) -> int:
    """The offset after the record or the damaged range at `start`, or after the file's blank."""
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
    """The last boundary up to `end` within `bytes_max` and `messages_max` of `start`; always after one record."""
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
    """The store time in milliseconds of a segment's first record; None if there is none."""
    return head_store_timestamp(read_head(file, HEAD_SIZE), file.frame)


def find_timestamp(queue: MappedFileQueue, end: int, timestamp_ms: int, on_damage: str = STOP) -> int:
    """The offset of the first record before `end` stored at or after `timestamp_ms`; `end` if there is none.

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
# tests. So a range counts only if the range before it counts and its last record ended exactly where this one begins;
# the first range begins at a proven offset, such as a segment's beginning.

_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True)
class RangeCut:
    """`[start, end)` of one segment; an end that is not proven means the first record at or after it.

    Attributes
    ----------
    stop
        A proven offset at or after `end`, in the same segment: no record crosses it.
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
    """Cut ranges from `start` on until they have `bytes_max` bytes; `start` and `end` are proven offsets.

    Cuts are at multiples of `bytes_a_range` from a segment's beginning, so that they do not depend on `start`. The last
    range's end is proven only if the ranges reach `end` or the end of a segment.

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
    """The first offset in `[start, stop)` where a whole record seems to begin; `stop` if there is none.

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
    with open_segment(file, f"[{start}, {stop}) was still to be read") as opened:
        while start + head <= stop:
            data = np.empty(min(_WINDOW_BYTES, stop - start), np.uint8)
            if read_fully(opened, data, len(data), start - file.file_from_offset) < len(data):
                raise cut_short(file, start, "it")
            at = 0
            while (at := int(find_own_offset(data, at, len(data), start, file.frame))) != NOT_FOUND:
                yield start + at
                at += 1
            start += len(data) - head + 1
