"""The work of a task on one range of the log, in one read: entries and keys, and the range's file of the table."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.dispatch.piece import PieceRow, QueueFilter, make_pieces
from reput.sinks.files.durable_file import remove_scratch
from reput.sinks.table.comparison import StretchSums
from reput.sinks.table.forgotten_rows import NONE_FORGOTTEN, ForgottenRows
from reput.sinks.table.message_file import TABLE_FILE_SCHEMA, RangeFile, TableFileWriter
from reput.sinks.table.message_file import WINDOW_BYTES as TABLE_WINDOW_BYTES
from reput.sinks.table.retention import ExpiryLimits
from reput.source.errors import CorruptRecordError, SinkError
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import DecodeOptions, RangeCut, read_windows
from reput.source.log.segment_scan import Window
from reput.source.record.damage import STOP, DamagedRange

# A window's records are walked, then used: meanwhile they stay in the processor's second cache.
_WINDOW_BYTES = 512 * 1024


@dataclass(frozen=True)
class RangeEffects:
    """A range that was read: its ends, whether its records lead from one to the other, and their effects.

    `table_files` are rows of ``TABLE_FILE_SCHEMA``, `sums` those of the records that the table must have; `damaged` are
    ranges without a record.
    """

    start: int
    end: int
    is_whole: bool
    pieces: list[PieceRow] = field(default_factory=list)
    table_files: list[dict[str, Any]] = field(default_factory=list)
    sums: StretchSums = field(default_factory=StretchSums)
    damaged: list[DamagedRange] = field(default_factory=list)

    @classmethod
    def join(cls, ranges: Sequence[RangeEffects]) -> RangeEffects:
        """Join ranges that were read to their ends, given in log order.

        Raises
        ------
        SinkError
            The ranges do not follow each other.
        """
        for one, after in zip(ranges, ranges[1:], strict=False):
            if one.end != after.start:
                msg = f"ranges of the log do not follow each other: one ends at {one.end}, the next is {after.start}"
                raise SinkError(msg)
        sums = StretchSums()
        for each in ranges:
            sums.add_all(each.sums)
        return cls(
            ranges[0].start,
            ranges[-1].end,
            is_whole=True,
            sums=sums,
            pieces=[piece for each in ranges for piece in each.pieces],
            table_files=[row for each in ranges for row in each.table_files],
            damaged=[damaged for each in ranges for damaged in each.damaged],
        )

    @property
    def scratch_files(self) -> list[Path]:
        """The pieces' scratch files, in log order."""
        return _scratch_files(self.pieces)

    def batch(self) -> LogicBatch | None:
        """Return the effects on queues and index; None if neither is made."""
        return LogicBatch.merge(self.pieces) if self.pieces else None

    def table_file_rows(self) -> pa.Table:
        """Return the table's files, as rows of ``TABLE_FILE_SCHEMA``."""
        return pa.Table.from_pylist(self.table_files, TABLE_FILE_SCHEMA)


@dataclass(frozen=True)
class RangeTask:
    """Reads a range and makes its effects; made by the driver, called by tasks.

    Attributes
    ----------
    decode
        How records are decoded, and how damage is handled.
    needs
        The entries and keys to make of the range; None for no queues and no index.
    wanted
        The queues to make.
    scratch
        The directory for the arrays of pieces; None keeps them in memory.
    file_writer
        Writes the range's file of the table; None for no table.
    with_sums
        Whether to add up the digests by which a table is compared with the log.
    limits
        Which records have expired from the table: the sums leave them out.
    forgotten
        Which rows were forgotten: the sums leave them out.
    """

    decode: DecodeOptions
    needs: LogicNeeds | None
    wanted: QueueFilter = field(default_factory=QueueFilter)
    scratch: Path | None = None
    file_writer: TableFileWriter | None = None
    with_sums: bool = False
    limits: ExpiryLimits | None = None
    forgotten: ForgottenRows = NONE_FORGOTTEN

    def __call__(self, cut: RangeCut) -> RangeEffects:
        """Read a range; if that fails at an end that is not proven, return a result that is not whole.

        The end may be wrong.
        """
        span = cut.settle(self.decode.on_damage)
        if cut.is_start_proven and cut.is_end_proven:
            return self.read(span)
        try:
            return self._read(span, passes_over=False)
        except CorruptRecordError:
            return RangeEffects(span.start, span.end, is_whole=False)

    def read(self, span: OffsetRange) -> RangeEffects:
        """Read a range with proven ends as if nothing were damaged; if that fails, read it again by ``onDamage``."""
        try:
            return self._read(span, passes_over=False)
        except CorruptRecordError:
            if self.decode.on_damage == STOP:
                raise
        return self._read(span, passes_over=True)

    def _read(self, span: OffsetRange, *, passes_over: bool) -> RangeEffects:
        damaged: list[DamagedRange] = []
        sums = StretchSums()
        writer = self.file_writer
        # One read makes everything, unless the table has some of the range already.
        file = RangeFile(writer, span) if writer and writer.trim_from <= span.start else None
        pieces: list[PieceRow] = []
        try:
            if span.start < span.end:
                pieces.extend(self._pieces(span, passes_over, damaged, sums, file))
        except BaseException:
            remove_scratch(_scratch_files(pieces))
            raise
        rows = [file.finish()] if file else writer.write(span, passes_over=passes_over).to_pylist() if writer else []
        return RangeEffects(
            span.start, span.end, is_whole=True, pieces=pieces, table_files=rows, sums=sums, damaged=damaged
        )

    def _pieces(
        self,
        span: OffsetRange,
        passes_over: bool,
        damaged: list[DamagedRange],
        sums: StretchSums,
        table_file: RangeFile | None,
    ) -> Iterator[PieceRow]:
        """Yield the pieces of the range; add damage to `damaged`, and the records to `sums` and `table_file`."""
        file, needs, read = span.file, self.needs, (span.file, span.start, span.end, self.decode)
        decodes = not (needs and needs.is_plain) or bool(table_file) or self.with_sums or passes_over
        window_bytes = TABLE_WINDOW_BYTES if decodes else _WINDOW_BYTES
        windows = _noting(read_windows(*read, window_bytes, decodes=decodes, passes_over=passes_over), damaged)
        if table_file:
            windows = table_file.passing(windows)
        if self.with_sums:
            windows = sums.passing(windows, self.limits, self.forgotten)
        if needs is None:
            # Only the table is made: read the range for it, and for damage.
            deque(windows if table_file or passes_over else (), maxlen=0)
            return
        yield from make_pieces(windows, file, needs, self.decode.delays_ms, self.wanted, self.scratch)


def _noting(windows: Iterable[Window], damaged: list[DamagedRange]) -> Iterator[Window]:
    for window in windows:
        if window.damaged is not None:
            damaged.append(window.damaged)
        yield window


def _scratch_files(pieces: Iterable[PieceRow]) -> list[Path]:
    return [piece["arrays"] for piece in pieces if isinstance(piece["arrays"], Path)]
