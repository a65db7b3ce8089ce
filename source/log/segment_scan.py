"""Scans of an open segment: window by window to the first record that is not a good one, or of a single record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from reput.source.arrays import Bytes, Int64s
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns, decode_columns, records_max
from reput.source.kernels.byte_kernels import load_i32
from reput.source.kernels.record_kernels import LOOKED_AT, NOT_FOUND, find_own_offset
from reput.source.log.mapped_file_queue import MappedFile, OpenFile, cut_short, read_at, read_fully
from reput.source.record import dledger_entry as dle
from reput.source.record import message_format as fmt
from reput.source.record.damage import HEAD_BYTES, DamagedRange
from reput.source.record.dledger_entry import ENTRY_POS_AT, ENTRY_SIZE_AT
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_format import (
    BLANK_SIZE,
    BORNHOST_V6_FLAG,
    PHYSICAL_OFFSET_AT,
    STOREHOSTADDRESS_V6_FLAG,
    TOTAL_SIZE_AT,
)

# Large enough that the cost of a call is small beside its records, small enough to stay in the processor's cache.
WINDOW_BYTES = 2 * 1024 * 1024
# Most records end within it, so that one read is enough for a single record.
_HEAD_BYTES = 4096


@dataclass(frozen=True)
class Window:
    """Consecutive good records of one segment, `[start, end)` of the log.

    Offsets are those of the records' frames.

    Attributes
    ----------
    data
        uint8, the buffer that the records were read into.
    parts
        int64[n, PARTS], where each record is in `data`. Both are valid until the next window is asked for.
    verdict
        The verdict on the bytes at `end`: UNDERFLOW also if only the bytes that were read ended, MESSAGE if only
        `parts` was full. In a window that was passed over, the verdict on the bytes at its `start`.
    frame
        The segment's.
    decoded
        The records as columns, None if the walk did not decode them; see `columns`.
    damaged
        The damaged range that the window is, if it was passed over; it holds no record.
    """

    data: Bytes
    start: int
    parts: Int64s
    end: int
    verdict: Verdict
    frame: int
    decoded: RecordColumns | None = None
    damaged: DamagedRange | None = None

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def columns(self) -> RecordColumns:
        """The records as columns; only for walks that decode them."""
        assert self.decoded is not None
        return self.decoded

    def offset_of(self, row: int) -> int:
        """The offset where the frame of a record begins, by its row."""
        return self.start + int(self.parts[row, rk.AT]) - self.frame

    def decode(self, delays_ms: Int64s) -> Window:
        """The same window with columns; it ends before the first record with a bad number in its properties."""
        columns, bad = decode_columns(self.data, self.start, self.parts, delays_ms)
        if bad is Verdict.MESSAGE:
            return replace(self, decoded=columns)
        return replace(self, parts=columns.parts, end=self.offset_of(len(columns)), verdict=bad, decoded=columns)

    def gap(self, end: int, damaged: DamagedRange | None) -> Window:
        """A window without records from the end of this one to `end`."""
        columns = None if self.decoded is None else self.decoded.first(0)
        return replace(self, start=self.end, parts=self.parts[:0], end=end, decoded=columns, damaged=damaged)


def scan_segment(
    opened: OpenFile, file: MappedFile, start: int, end: int, *, check_crc: bool, window_bytes: int = WINDOW_BYTES
) -> Iterator[Window]:
    """Follow the records of `[start, end)` of an open segment; one that crosses `end` ends it as UNDERFLOW.

    Raises
    ------
    DataLossError
        The segment is shorter than it was.
    """
    buffer = np.empty(max(0, min(window_bytes, end - start)), np.uint8)
    parts = np.empty((records_max(len(buffer)), rk.PARTS), np.int64)
    while start < end:
        size = min(len(buffer), end - start)
        _fill(opened, file, buffer, size, start, end)
        count, stop_at, verdict = rk.scan_records(buffer, 0, size, start, file.end, file.frame, check_crc, parts)
        if verdict == Verdict.UNDERFLOW and count == 0 and size < end - start:
            buffer = np.empty(_grown(buffer, end - start, file.frame), np.uint8)
            parts = np.empty((records_max(len(buffer)), rk.PARTS), np.int64)
            continue
        yield Window(buffer, start, parts[:count], start + stop_at, Verdict(verdict), file.frame)
        start += stop_at
        if count == 0 or verdict not in (Verdict.MESSAGE, Verdict.UNDERFLOW):
            return


def _grown(buffer: Bytes, most: int, frame: int) -> int:
    """The size of a buffer that holds the whole record at its start; the record's size has been checked."""
    size = BLANK_SIZE
    if len(buffer) >= BLANK_SIZE:
        size = int(load_i32(buffer, ENTRY_SIZE_AT if frame else TOTAL_SIZE_AT))
    return min(max(size, 2 * len(buffer)), most)


def read_record_bytes(opened: OpenFile, file: MappedFile, start: int, end: int) -> Bytes:
    """The bytes of the record at `start`, up to `end`; only the first bytes of anything else.

    A size is believed only of a record that names its own offset: anything else may be a gigabyte of nothing.

    Raises
    ------
    DataLossError
        The segment is shorter than it was.
    """
    available = max(0, end - start)
    data = np.empty(min(_HEAD_BYTES, available), np.uint8)
    _fill(opened, file, data, len(data), start, end)
    size_at, own_at = (ENTRY_SIZE_AT, ENTRY_POS_AT) if file.frame else (TOTAL_SIZE_AT, PHYSICAL_OFFSET_AT)
    size = int.from_bytes(data[size_at : size_at + 4].tobytes(), "big")
    own_offset = int.from_bytes(data[own_at : own_at + 8].tobytes(), "big")
    if own_offset == start and len(data) < min(size, available) and size <= file.end - start:
        data = np.empty(min(size, available), np.uint8)
        _fill(opened, file, data, len(data), start, end)
    return data


def scan_record(opened: OpenFile, file: MappedFile, start: int, end: int, *, check_crc: bool) -> Window:
    """The good record at `start` alone, or a window without records that has the verdict on the bytes there.

    A record that crosses `end` is UNDERFLOW. Raises the errors of `read_record_bytes`.
    """
    data, parts = read_record_bytes(opened, file, start, end), np.empty((1, rk.PARTS), np.int64)
    count, stop_at, verdict = rk.scan_records(data, 0, len(data), start, file.end, file.frame, check_crc, parts)
    if verdict == Verdict.UNDERFLOW and len(data) < end - start:  # `read_record_bytes` did not believe its size
        verdict = Verdict.BAD_PHYSICAL_OFFSET
    return Window(data, start, parts[:count], start + stop_at, Verdict(verdict), file.frame)


def _fill(opened: OpenFile, file: MappedFile, buffer: Bytes, size: int, start: int, end: int) -> None:
    """Fill `buffer[:size]` with the segment's bytes from `start`; `[start, end)` is for the error."""
    if read_fully(opened, buffer, size, start - file.file_from_offset) < size:
        raise cut_short(file, start, f"[{start}, {end})")


# ----------------------------------------------------------------------------------------------------------------------
# Where the log continues after a damaged record. This depends on the segment's bytes only.
#
# 1. A record whose physical offset and lengths are right (only its topic, a checksum or a number in its properties is
#    wrong) ends where its lengths say.
# 2. Any other record gives its end more than once: by its total size and by the sum of its lengths; under DLedger also
#    by the two sizes in its entry's header. An end is *proven* if a good record or the blank begins there; the
#    nearest proven one counts. Good records before it count more if they follow each other up to it without a gap:
#    then a wrong size led too far. Otherwise everything before the proven end that looks like a record belongs to the
#    body.
# 3. Without a proven end, the log continues at the next good record that is followed by something a log has after a
#    record: another good record, the blank, only zeros, or a damaged record that still has its magic code or its
#    physical offset. A record followed by anything else may belong to a damaged one's body.
# 4. Without such a record, nothing in this segment shows where the log continues. The next segment begins with a
#    record.
#
# A good record is one whose magic code, own physical offset, lengths and checksums are all right. The rules are wrong
# in two cases. A row of records inside a body, made for exactly their offsets, is taken for records of the log if it
# leads to the end of the body's record (2), or if another such record follows it (3). A sound record between two
# damaged ones is taken for part of a body if the first of these has no proven end, and the second has lost both its
# magic code and its physical offset.

#: Verdicts on records whose physical offset and lengths are right.
SOUND_VERDICTS = frozenset(
    {Verdict.BAD_TOPIC, Verdict.BAD_CRC, Verdict.BAD_DELAY, Verdict.BAD_PROPERTY_CRC, Verdict.BAD_INNER_BATCH}
)
_MAGIC_CODES = (fmt.MESSAGE_MAGIC_CODE, fmt.MESSAGE_MAGIC_CODE_V2)
_NO_LENGTH = -1


class OpenSegment:
    """Checks at single offsets of a segment that is open for reading."""

    def __init__(self, opened: OpenFile, file: MappedFile) -> None:
        self.opened = opened
        self.file = file
        self.smallest = file.frame + fmt.FIXED_LENGTH

    def end_of_damage(self, offset: int, verdict: Verdict) -> int | None:
        """The offset where the log continues after the damage at `offset`; None if this segment does not show it."""
        if verdict in SOUND_VERDICTS:
            return offset + self.file.frame + self.i32(offset + self.file.frame)
        proven = min(self._proven_ends(offset), default=None)
        for candidate in self._own_offsets(offset + 1, self.file.end if proven is None else proven):
            size = self.good_size(candidate)
            if size and (self._runs_to(candidate, proven) if proven is not None else self._goes_on(candidate + size)):
                return candidate
        return proven

    def judge(self, offset: int) -> Verdict:
        """The verdict on the bytes at `offset`, checksums included."""
        return self._record(offset).verdict

    def good_size(self, offset: int) -> int:
        """The size in bytes, frame included, of the good record at `offset`; 0 if there is none."""
        return self._record(offset).end - offset

    def is_blank(self, offset: int) -> bool:
        """Whether the blank begins at `offset`, with exactly the size that is left."""
        if offset + fmt.BLANK_SIZE > self.file.end:
            return False
        pair = self.i32(offset), self.i32(offset + 4)
        rest = self.file.end - offset
        return pair == ((dle.ENTRY_BLANK_MAGIC_CODE, rest) if self.file.frame else (rest, fmt.BLANK_MAGIC_CODE))

    def i32(self, offset: int) -> int:
        """The integer at `offset`, big-endian and signed; bytes after the segment's end count as zeros."""
        return self.integer(offset, 4)

    def store_timestamp(self, offset: int) -> int:
        """The store time of the record at `offset`, in milliseconds."""
        record = offset + self.file.frame
        shift = fmt.HOST_V6_EXTRA if self.i32(record + fmt.SYS_FLAG_AT) & BORNHOST_V6_FLAG else 0
        return self.integer(record + fmt.STORE_TIMESTAMP_AT + shift, 8)

    def damaged_range(self, start: int, end: int, cause: str) -> DamagedRange:
        """The description of a damaged range."""
        head = self._read(start, min(HEAD_BYTES, end - start)).tobytes()
        return DamagedRange(start, end, cause, self.file.path, start - self.file.file_from_offset, head)

    def integer(self, offset: int, size: int) -> int:
        """The integer of `size` bytes at `offset`, read like `i32`."""
        data = read_at(self.opened, size, offset - self.file.file_from_offset)
        return int.from_bytes(data.ljust(size, b"\0"), "big", signed=True)

    def _record(self, offset: int) -> Window:
        return scan_record(self.opened, self.file, offset, self.file.end, check_crc=True)

    def _read(self, offset: int, size: int) -> Bytes:
        data = np.empty(min(size, self.file.end - offset), np.uint8)
        done = read_fully(self.opened, data, len(data), offset - self.file.file_from_offset)
        return data[:done]

    def _proven_ends(self, offset: int) -> Iterator[int]:
        """The ends that the sizes of the record at `offset` give, if a good record or the blank begins there."""
        frame, rest = self.file.frame, self.file.end - offset
        claims = {frame + self.i32(offset + frame), frame + self._lengths(offset + frame)}
        if frame:
            claims |= {self.i32(offset + dle.ENTRY_SIZE_AT), frame + self.i32(offset + dle.ENTRY_BODY_SIZE_AT)}
        for size in claims:
            # A segment never ends with a record: the broker leaves room for the blank.
            if self.smallest <= size <= rest - fmt.BLANK_SIZE:
                end = offset + size
                if self.good_size(end) or self.is_blank(end):
                    yield end

    def _lengths(self, record: int) -> int:
        """The size of the record at `record` by its lengths; `_NO_LENGTH` if they lead out of the segment."""
        sys_flag = self.i32(record + fmt.SYS_FLAG_AT)
        hosts = fmt.HOST_V6_EXTRA * (bool(sys_flag & BORNHOST_V6_FLAG) + bool(sys_flag & STOREHOSTADDRESS_V6_FLAG))
        is_v2 = self.i32(record + fmt.MAGIC_AT) == fmt.MESSAGE_MAGIC_CODE_V2
        width = fmt.TOPIC_LENGTH_V2_SIZE if is_v2 else fmt.TOPIC_LENGTH_SIZE
        body_length = self.i32(record + fmt.BODY_LENGTH_AT + hosts)
        topic = record + fmt.BODY_AT + hosts + max(0, body_length)
        topic_length = self.integer(topic, width) if topic < self.file.end else _NO_LENGTH
        if topic_length < 0 or topic + width + topic_length >= self.file.end:
            return _NO_LENGTH
        properties_length = self.integer(topic + width + topic_length, fmt.PROPERTIES_LENGTH_SIZE)
        return fmt.calc_msg_length(hosts, body_length, topic_length, properties_length, width)

    def _own_offsets(self, start: int, end: int) -> Iterator[int]:
        """The offsets in `[start, end)` where a record names its own offset."""
        looked_at = self.file.frame + LOOKED_AT
        while start < end:
            data = self._read(start, min(WINDOW_BYTES, end - start + looked_at - 1))
            at = find_own_offset(data, 0, len(data), start, self.file.frame)
            while at != NOT_FOUND and start + at < end:
                yield start + at
                at = find_own_offset(data, at + 1, len(data), start, self.file.frame)
            if len(data) < looked_at:
                return
            start += len(data) - looked_at + 1

    def _runs_to(self, offset: int, end: int) -> bool:
        """Whether good records follow each other from `offset` to exactly `end`."""
        for window in scan_segment(self.opened, self.file, offset, end, check_crc=True):
            offset = window.end
        return offset == end

    def _goes_on(self, offset: int) -> bool:
        """Whether a log may have the bytes at `offset` after a record."""
        return (
            bool(self.good_size(offset)) or self.is_blank(offset) or self._is_known(offset) or self._is_unused(offset)
        )

    def _is_known(self, offset: int) -> bool:
        """Whether a record begins at `offset` that still has its magic code or its own offset."""
        frame = self.file.frame
        if offset + self.smallest > self.file.end:
            return False
        record = offset + frame
        own = self.integer(record + fmt.PHYSICAL_OFFSET_AT, 8) == record
        entry = bool(frame) and self.integer(offset + dle.ENTRY_POS_AT, 8) == offset
        return own or entry or self.i32(record + fmt.MAGIC_AT) in _MAGIC_CODES

    def _is_unused(self, offset: int) -> bool:
        """Whether the segment has only zeros from `offset` on."""
        while offset < self.file.end:
            data = self._read(offset, WINDOW_BYTES)
            if not len(data) or data.any():
                return False
            offset += len(data)
        return True
