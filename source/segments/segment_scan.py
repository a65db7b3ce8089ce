"""Scans of an open segment: window by window to the first record that is not a good one, or of a single record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from reput.source.arrays import Bytes, Int64s
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns, decode_columns, records_max
from reput.source.kernels.byte_kernels import load_i32
from reput.source.record.dledger_entry import ENTRY_POS_AT, ENTRY_SIZE_AT
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_format import BLANK_SIZE, PHYSICAL_OFFSET_AT, TOTAL_SIZE_AT
from reput.source.segments.damage import DamagedRange
from reput.source.segments.mapped_file_queue import MappedFile, cut_short, read_fully

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
        The verdict on what stands at `end`; UNDERFLOW also where only the bytes that were read ended, MESSAGE where
        only `parts` did. In a window that was passed over, the verdict on what stands at its `start`.
    frame
        The segment's.
    decoded
        The records as columns, None where the walk did not decode them; see `columns`.
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
        """The records as columns, of a walk that decodes them."""
        assert self.decoded is not None
        return self.decoded

    def offset_of(self, row: int) -> int:
        """The offset where one of the records begins, its frame first."""
        return self.start + int(self.parts[row, rk.AT]) - self.frame

    def decode(self, delays_ms: Int64s) -> Window:
        """The same window with columns; it ends before the first record with a property that is no good number."""
        columns, bad = decode_columns(self.data, self.start, self.parts, delays_ms)
        if bad is Verdict.MESSAGE:
            return replace(self, decoded=columns)
        return replace(self, parts=columns.parts, end=self.offset_of(len(columns)), verdict=bad, decoded=columns)

    def gap(self, end: int, damaged: DamagedRange | None) -> Window:
        """The window without records from the end of this one to `end`."""
        columns = None if self.decoded is None else self.decoded.first(0)
        return replace(self, start=self.end, parts=self.parts[:0], end=end, decoded=columns, damaged=damaged)


def scan_segment(
    descriptor: int, file: MappedFile, start: int, end: int, *, check_crc: bool, window_bytes: int = WINDOW_BYTES
) -> Iterator[Window]:
    """Follow the records of `[start, end)` of a segment that is open; one that crosses `end` ends it as UNDERFLOW.

    Raises
    ------
    DataLossError
        The segment is shorter than it was.
    """
    buffer = np.empty(max(0, min(window_bytes, end - start)), np.uint8)
    parts = np.empty((records_max(len(buffer)), rk.PARTS), np.int64)
    while start < end:
        size = min(len(buffer), end - start)
        _fill(descriptor, file, buffer, size, start, end)
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
    """The size of the buffer that holds the record at its start whole; the record's size was checked."""
    size = BLANK_SIZE
    if len(buffer) >= BLANK_SIZE:
        size = int(load_i32(buffer, ENTRY_SIZE_AT if frame else TOTAL_SIZE_AT))
    return min(max(size, 2 * len(buffer)), most)


def read_record_bytes(descriptor: int, file: MappedFile, start: int, end: int) -> Bytes:
    """The bytes of the record at `start`, as far as `end`; of what seems to be none, the first ones.

    A size is believed only of a record that names its own offset: anything else may be a gigabyte of nothing.

    Raises
    ------
    DataLossError
        The segment is shorter than it was.
    """
    available = max(0, end - start)
    data = np.empty(min(_HEAD_BYTES, available), np.uint8)
    _fill(descriptor, file, data, len(data), start, end)
    size_at, own_at = (ENTRY_SIZE_AT, ENTRY_POS_AT) if file.frame else (TOTAL_SIZE_AT, PHYSICAL_OFFSET_AT)
    size = int.from_bytes(data[size_at : size_at + 4].tobytes(), "big")
    own_offset = int.from_bytes(data[own_at : own_at + 8].tobytes(), "big")
    if own_offset == start and len(data) < min(size, available) and size <= file.end - start:
        data = np.empty(min(size, available), np.uint8)
        _fill(descriptor, file, data, len(data), start, end)
    return data


def scan_record(descriptor: int, file: MappedFile, start: int, end: int, *, check_crc: bool) -> Window:
    """The good record at `start` alone, or a window without records, whose verdict says what stands there.

    A record that crosses `end` is UNDERFLOW. See `read_record_bytes` for errors.
    """
    data, parts = read_record_bytes(descriptor, file, start, end), np.empty((1, rk.PARTS), np.int64)
    count, stop_at, verdict = rk.scan_records(data, 0, len(data), start, file.end, file.frame, check_crc, parts)
    if verdict == Verdict.UNDERFLOW and len(data) < end - start:  # it was not read on
        verdict = Verdict.BAD_PHYSICAL_OFFSET
    return Window(data, start, parts[:count], start + stop_at, Verdict(verdict), file.frame)


def _fill(descriptor: int, file: MappedFile, buffer: Bytes, size: int, start: int, end: int) -> None:
    """Fill `buffer[:size]` with the segment's bytes from `start` on, of the range that reaches to `end`."""
    if read_fully(descriptor, buffer, size, start - file.file_from_offset) < size:
        raise cut_short(file, start, f"[{start}, {end})")
