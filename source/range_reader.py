"""Read a range of one segment and decode it, window by window, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reput.source import record_kernels as rk
from reput.source.batch_decoder import SMALLEST_RECORD, Bytes, RecordColumns, decode_records
from reput.source.errors import CorruptRecordError, DataLossError
from reput.source.mapped_file_queue import MappedFile, open_for_reading
from reput.source.message_decoder import Verdict
from reput.source.message_format import BLANK_SIZE
from reput.source.message_properties import DEFAULT_MESSAGE_DELAY_LEVEL, parse_delay_levels

# Large enough that the cost of a call is small beside its records, small enough to stay in the processor's cache.
WINDOW_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True)
class DecodeOptions:
    """How records are decoded: `check_crc` of every body; delays in milliseconds, level 1 first."""

    check_crc: bool = False
    delays_ms: tuple[int, ...] = parse_delay_levels(DEFAULT_MESSAGE_DELAY_LEVEL)


@dataclass(frozen=True)
class Window:
    """Consecutive records of a range: the columns of `[start, end)`, places in the log.

    The windows of a range follow each other without a gap, and the last one ends where the range ends, behind the
    blank if the range ends with the file.
    """

    start: int
    end: int
    columns: RecordColumns


def read_fully(descriptor: int, buffer: Bytes, size: int, offset: int) -> int:
    """Fill `buffer[:size]` from the file's byte `offset` on; returns how many bytes the file had."""
    view = memoryview(buffer)
    done = 0
    while done < size:
        got = os.preadv(descriptor, [view[done:size]], offset + done)
        if got == 0:
            break
        done += got
    return done


def read_windows(
    file: MappedFile, start: int, end: int, options: DecodeOptions, window_bytes: int = WINDOW_BYTES
) -> Iterator[Window]:
    """Decode the records of `[start, end)` of one segment; both are places where a record or the blank begins.

    The columns of a window are valid until the next one is asked for. Memory: one window and its columns, and never
    less than the largest record.

    Raises
    ------
    CorruptRecordError
        A record of the range fails its checks.
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    try:
        with open_for_reading(file.path) as descriptor:
            yield from _windows(descriptor, file, start, end, options, window_bytes)
    except FileNotFoundError:
        msg = f"{file.path} is gone: the log expired while [{start}, {end}) was still to be read"
        raise DataLossError(msg) from None


def _windows(
    descriptor: int, file: MappedFile, start: int, end: int, options: DecodeOptions, window_bytes: int
) -> Iterator[Window]:
    delays = np.array(options.delays_ms, np.int64)
    size = min(window_bytes, end - start)
    buffer = np.empty(size, np.uint8)
    parts = np.empty((size // SMALLEST_RECORD + 1, rk.PARTS), np.int64)
    while start < end:
        size = min(len(buffer), end - start)
        if read_fully(descriptor, buffer, size, start - file.file_from_offset) < size:
            msg = f"{file.path} is shorter than its {file.size} bytes: it was cut while [{start}, {end}) was read"
            raise DataLossError(msg)
        decoded = decode_records(
            buffer, 0, size, start, file.end, check_crc=options.check_crc, delays_ms=delays, parts=parts
        )
        stop = start + decoded.stop_at
        if decoded.verdict is Verdict.BLANK and end == file.end:
            stop = end
        elif decoded.verdict is Verdict.UNDERFLOW and stop == start and size < end - start:
            buffer = np.empty(_grown(buffer, end - start), np.uint8)
            continue
        elif decoded.verdict is not Verdict.UNDERFLOW and decoded.verdict is not Verdict.MESSAGE:
            raise corrupt_record(file, stop, decoded.verdict, buffer[decoded.stop_at : size])
        elif stop == start:
            raise corrupt_record(file, stop, decoded.verdict, buffer[decoded.stop_at : size])
        yield Window(start, stop, decoded.columns)
        start = stop


def _grown(buffer: Bytes, most: int) -> int:
    """The size of the buffer that holds the record at its start whole; the record's size was checked."""
    size = rk.load_i32(buffer, 0) if len(buffer) >= BLANK_SIZE else BLANK_SIZE
    return min(int(size) if size > len(buffer) else 2 * len(buffer) + BLANK_SIZE, most)


def corrupt_record(file: MappedFile, offset: int, verdict: Verdict, found: Bytes) -> CorruptRecordError:
    """The error for a place in the middle of the log that is not a good record."""
    msg = (
        f"{file.path}: no good record at offset {offset} (byte {offset - file.file_from_offset} of the file): "
        f"{verdict.name}, the bytes there are {found[:16].tobytes().hex(' ', 4)}; set startingOffset to a later "
        "record to go on behind it"
    )
    return CorruptRecordError(msg)
