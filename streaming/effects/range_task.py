"""What a task makes of one range of the log, in one read: entries and keys, and the range's file of the table."""

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
from reput.sinks.table.message_file import PART_SCHEMA, Part, PartWriter
from reput.sinks.table.message_file import WINDOW_BYTES as TABLE_WINDOW_BYTES
from reput.sinks.table.record_digest import StretchSums
from reput.source.errors import CorruptRecordError, SinkError
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_cut import RangeCut
from reput.source.segments.damage import STOP, DamagedRange
from reput.source.segments.range_reader import DecodeOptions, read_windows
from reput.source.segments.segment_scan import Window

# A window's records are walked, then taken: they stay in the processor's second cache meanwhile.
_WINDOW_BYTES = 512 * 1024


@dataclass(frozen=True)
class RangeEffects:
    """A range as it was read: its ends, whether its records lead from one to the other, and what they make.

    `parts` are rows of ``PART_SCHEMA``, `sums` those of all records; `damaged` are ranges without a record.
    """

    start: int
    end: int
    is_whole: bool
    pieces: list[PieceRow] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    sums: StretchSums = field(default_factory=StretchSums)
    damaged: list[DamagedRange] = field(default_factory=list)

    @classmethod
    def join(cls, ranges: Sequence[RangeEffects]) -> RangeEffects:
        """Ranges that were read to their ends as one, given in log order.

        Raises
        ------
        SinkError
            They do not follow each other.
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
            parts=[part for each in ranges for part in each.parts],
            damaged=[damaged for each in ranges for damaged in each.damaged],
        )

    @property
    def scratch_files(self) -> list[Path]:
        """The pieces' scratch files, in log order."""
        return _scratch_files(self.pieces)

    def batch(self) -> LogicBatch | None:
        """What is done to queues and index; None where neither was asked for."""
        return LogicBatch.merge(self.pieces) if self.pieces else None

    def part_table(self) -> pa.Table:
        """The table's files."""
        return pa.Table.from_pylist(self.parts, PART_SCHEMA)


@dataclass(frozen=True)
class RangeTask:
    """What a task does with a range; made by the driver.

    Attributes
    ----------
    decode
        How records are decoded, and what is done with damage.
    needs
        What queues and index need of it; None for neither.
    wanted
        Which queues are made.
    scratch
        Where the arrays of pieces are left; None for in memory.
    part_writer
        Writes the range's file of the table; None for no table.
    with_sums
        Add up the digests by which a table is compared with the log.
    """

    decode: DecodeOptions
    needs: LogicNeeds | None
    wanted: QueueFilter = field(default_factory=QueueFilter)
    scratch: Path | None = None
    part_writer: PartWriter | None = None
    with_sums: bool = False

    def __call__(self, cut: RangeCut) -> RangeEffects:
        """Read a range; a failure at an end that is not proven is told, since it may be the end that is wrong."""
        span = cut.settle(self.decode.on_damage)
        if cut.is_start_proven and cut.is_end_proven:
            return self.read(span)
        try:
            return self._read(span, passes_over=False)
        except CorruptRecordError:
            return RangeEffects(span.start, span.end, is_whole=False)

    def read(self, span: OffsetRange) -> RangeEffects:
        """Read a range with proven ends: as if nothing were damaged, and where that fails once more by ``onDamage``."""
        try:
            return self._read(span, passes_over=False)
        except CorruptRecordError:
            if self.decode.on_damage == STOP:
                raise
        return self._read(span, passes_over=True)

    def _read(self, span: OffsetRange, *, passes_over: bool) -> RangeEffects:
        damaged: list[DamagedRange] = []
        sums = StretchSums()
        writer = self.part_writer
        # One read for all, unless the table has a part of the range already.
        part = Part(writer, span) if writer and writer.trim_from <= span.start else None
        pieces: list[PieceRow] = []
        try:
            if span.start < span.end:
                pieces.extend(self._pieces(span, passes_over, damaged, sums, part))
        except BaseException:
            remove_scratch(_scratch_files(pieces))
            raise
        parts = [part.finish()] if part else writer.write(span, passes_over=passes_over).to_pylist() if writer else []
        return RangeEffects(span.start, span.end, is_whole=True, pieces=pieces, parts=parts, sums=sums, damaged=damaged)

    def _pieces(
        self,
        span: OffsetRange,
        passes_over: bool,
        damaged: list[DamagedRange],
        sums: StretchSums,
        part: Part | None,
    ) -> Iterator[PieceRow]:
        """What the range makes; adds what was passed over to `damaged`, and the records to `sums` and `part`."""
        file, needs, read = span.file, self.needs, (span.file, span.start, span.end, self.decode)
        decodes = not (needs and needs.is_plain) or bool(part) or self.with_sums or passes_over
        window_bytes = TABLE_WINDOW_BYTES if decodes else _WINDOW_BYTES
        windows = _noting(read_windows(*read, window_bytes, decodes=decodes, passes_over=passes_over), damaged)
        if part:
            windows = part.passing(windows)
        if self.with_sums:
            windows = sums.passing(windows)
        if needs is None:
            # Nothing is made but the table: the range is looked through for it, and for what is left out.
            deque(windows if part or passes_over else (), maxlen=0)
            return
        yield from make_pieces(windows, file, needs, self.decode.delays_ms, self.wanted, self.scratch)


def _noting(windows: Iterable[Window], damaged: list[DamagedRange]) -> Iterator[Window]:
    for window in windows:
        if window.damaged is not None:
            damaged.append(window.damaged)
        yield window


def _scratch_files(pieces: Iterable[PieceRow]) -> list[Path]:
    return [piece["arrays"] for piece in pieces if isinstance(piece["arrays"], Path)]
