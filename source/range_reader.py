"""Read a range of one segment, window by window, in bounded memory: scan it, or decode it to columns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reput.source import record_kernels as rk
from reput.source.batch_decoder import Bytes, Int64s, RecordColumns, decode_columns, records_max
from reput.source.dledger_entry import ENTRY_SIZE_AT
from reput.source.errors import CorruptRecordError, DataLossError
from reput.source.mapped_file_queue import MappedFile, open_for_reading
from reput.source.message_decoder import Verdict
from reput.source.message_format import BLANK_SIZE, TOTAL_SIZE_AT
from reput.source.message_properties import DEFAULT_MESSAGE_DELAY_LEVEL, parse_delay_levels

# Large enough that the cost of a call is small beside its records, small enough to stay in the processor's cache.
WINDOW_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True)
class DecodeOptions:
    """How records are decoded: `check_crc` of every body; delays in milliseconds, level 1 first."""

    check_crc: bool = False
    delays_ms: tuple[int, ...] = parse_delay_levels(DEFAULT_MESSAGE_DELAY_LEVEL)


@dataclass(frozen=True)
class Scan:
    """Consecutive good records, `[start, stop)` of the log, and the verdict on what stands at `stop`.

    `parts` (int64[n, PARTS]) points into `data`; both are valid until the next scan is asked for. UNDERFLOW says
    that only the window ended. `frame` is the segment's: places of the log are those of the records' frames.
    """

    data: Bytes
    start: int
    parts: Int64s
    stop: int
    verdict: Verdict
    frame: int

    def __len__(self) -> int:
        return len(self.parts)

    def place_of(self, row: int) -> int:
        """The place where one of the records begins, its frame first."""
        return self.start + int(self.parts[row, rk.AT]) - self.frame


@dataclass(frozen=True)
class Window:
    """Consecutive records of a range: the columns of `[start, end)`, places in the log.

    The windows of a range follow each other without a gap, and the last one ends where the range ends, behind the
    blank if the range ends with the file.
    """

    start: int
    end: int
    columns: RecordColumns


def scan_windows(
    file: MappedFile, start: int, end: int, *, check_crc: bool, window_bytes: int = WINDOW_BYTES
) -> Iterator[Scan]:
    """Follow the records of `[start, end)` of one segment to the first that is not a good one.

    `start` is where a record begins; one that crosses `end` ends the scan as UNDERFLOW. Memory: one window, and never
    less than the largest record.

    Raises
    ------
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    try:
        with open_for_reading(file.path) as descriptor:
            yield from _scans(descriptor, file, start, end, check_crc, window_bytes)
    except FileNotFoundError:
        msg = f"{file.path} is gone: the log expired while [{start}, {end}) was still to be read"
        raise DataLossError(msg) from None


def _scans(
    descriptor: int, file: MappedFile, start: int, end: int, check_crc: bool, window_bytes: int
) -> Iterator[Scan]:
    buffer = np.empty(max(0, min(window_bytes, end - start)), np.uint8)
    parts = np.empty((records_max(len(buffer)), rk.PARTS), np.int64)
    while start < end:
        size = min(len(buffer), end - start)
        if _read_fully(descriptor, buffer, size, start - file.file_from_offset) < size:
            msg = f"{file.path} is shorter than its {file.size} bytes: it was cut while [{start}, {end}) was read"
            raise DataLossError(msg)
        count, stop_at, verdict = rk.scan_records(buffer, 0, size, start, file.end, file.frame, check_crc, parts)
        if verdict == Verdict.UNDERFLOW and count == 0 and size < end - start:
            buffer = np.empty(_grown(buffer, end - start, file.frame), np.uint8)
            parts = np.empty((records_max(len(buffer)), rk.PARTS), np.int64)
            continue
        yield Scan(buffer, start, parts[:count], start + stop_at, Verdict(verdict), file.frame)
        start += stop_at
        if count == 0 or verdict not in (Verdict.MESSAGE, Verdict.UNDERFLOW):
            return


def _read_fully(descriptor: int, buffer: Bytes, size: int, offset: int) -> int:
    """Fill `buffer[:size]` from the file's byte `offset` on; returns how many bytes the file had."""
    view = buffer.data
    done = 0
    while done < size:
        got = os.preadv(descriptor, [view[done:size]], offset + done)
        if got == 0:
            break
        done += got
    return done


def _grown(buffer: Bytes, most: int, frame: int) -> int:
    """The size of the buffer that holds the record at its start whole; the record's size was checked."""
    size = BLANK_SIZE
    if len(buffer) >= BLANK_SIZE:
        size = int(rk.load_i32(buffer, ENTRY_SIZE_AT if frame else TOTAL_SIZE_AT))
    return min(max(size, 2 * len(buffer)), most)


def read_windows(
    file: MappedFile, start: int, end: int, options: DecodeOptions, window_bytes: int = WINDOW_BYTES
) -> Iterator[Window]:
    """Decode the records of `[start, end)` of one segment; both are places where a record or the blank begins.

    The columns of a window are valid until the next one is asked for. Memory: one window and its columns.

    Raises
    ------
    CorruptRecordError
        A record of the range fails its checks.
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    delays = np.array(options.delays_ms, np.int64)
    for scan in scan_windows(file, start, end, check_crc=options.check_crc, window_bytes=window_bytes):
        columns, bad = decode_columns(scan.data, scan.start, scan.parts, delays)
        stop, verdict = scan.stop, scan.verdict
        if bad is not Verdict.MESSAGE:
            stop, verdict = scan.place_of(len(columns)), bad
        if verdict is Verdict.BLANK and end == file.end:
            stop = end
        elif stop < end and (verdict is not Verdict.UNDERFLOW or not len(scan)):
            raise corrupt_record(file, stop, verdict)
        yield Window(scan.start, stop, columns)


def corrupt_record(file: MappedFile, offset: int, verdict: Verdict) -> CorruptRecordError:
    """The error for a place in the middle of the log that is not a good record."""
    at = offset - file.file_from_offset
    with open_for_reading(file.path) as descriptor:
        found = os.pread(descriptor, 16, at)
    msg = (
        f"{file.path}: no good record at offset {offset} (byte {at} of the file): {verdict.name}, the bytes there "
        f"are {found.hex(' ', 4)}; set startingOffset to a later record to go on behind it"
    )
    return CorruptRecordError(msg)
