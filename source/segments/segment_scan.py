"""Follow the records of an open segment, window by window, to the first that is not a good one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reput.source.arrays import Bytes, Int64s
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns, records_max
from reput.source.kernels.byte_kernels import load_i32
from reput.source.record.dledger_entry import ENTRY_SIZE_AT
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_format import BLANK_SIZE, TOTAL_SIZE_AT
from reput.source.segments.mapped_file_queue import MappedFile, cut_short, read_fully

# Large enough that the cost of a call is small beside its records, small enough to stay in the processor's cache.
WINDOW_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True)
class Scan:
    """Consecutive good records, `[start, stop)` of the log, and the verdict on what stands at `stop`.

    `parts` (int64[n, PARTS]) points into `data`; both are valid until the next scan is asked for. UNDERFLOW says
    that only the window ended. `frame` is the segment's: places of the log are those of the records' frames.

    A damaged range that is passed over is a scan without records, whose verdict is the one on its `start`. `columns`
    are those of the records, where somebody decoded them.
    """

    data: Bytes
    start: int
    parts: Int64s
    stop: int
    verdict: Verdict
    frame: int
    columns: RecordColumns | None = None

    def __len__(self) -> int:
        return len(self.parts)

    def place_of(self, row: int) -> int:
        """The place where one of the records begins, its frame first."""
        return self.start + int(self.parts[row, rk.AT]) - self.frame


def scan_segment(
    descriptor: int, file: MappedFile, start: int, end: int, *, check_crc: bool, window_bytes: int = WINDOW_BYTES
) -> Iterator[Scan]:
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
        if read_fully(descriptor, buffer, size, start - file.file_from_offset) < size:
            raise cut_short(file, start, f"[{start}, {end})")
        count, stop_at, verdict = rk.scan_records(buffer, 0, size, start, file.end, file.frame, check_crc, parts)
        if verdict == Verdict.UNDERFLOW and count == 0 and size < end - start:
            buffer = np.empty(_grown(buffer, end - start, file.frame), np.uint8)
            parts = np.empty((records_max(len(buffer)), rk.PARTS), np.int64)
            continue
        yield Scan(buffer, start, parts[:count], start + stop_at, Verdict(verdict), file.frame)
        start += stop_at
        if count == 0 or verdict not in (Verdict.MESSAGE, Verdict.UNDERFLOW):
            return


def _grown(buffer: Bytes, most: int, frame: int) -> int:
    """The size of the buffer that holds the record at its start whole; the record's size was checked."""
    size = BLANK_SIZE
    if len(buffer) >= BLANK_SIZE:
        size = int(load_i32(buffer, ENTRY_SIZE_AT if frame else TOTAL_SIZE_AT))
    return min(max(size, 2 * len(buffer)), most)
