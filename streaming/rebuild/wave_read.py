"""One wave of a rebuild: its ranges of the log are read side by side, and their ends are proven.

A range is read as if nothing were damaged. One that fails is read again, by ``onDamage``, once its ends are proven: by
a walk that follows the records and passes over what is damaged, so that they are never inside of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from reput.sinks.dispatch.piece import PieceNeeds, PieceRow, QueueFilter, write_pieces
from reput.sinks.dispatch.window import WINDOW_SCHEMA, LogicNeeds, encode_window
from reput.sinks.files.scratch import hand_over
from reput.sinks.table.message_file import PART_SCHEMA, Part, PartWriter
from reput.sinks.table.message_file import WINDOW_BYTES as TABLE_WINDOW_BYTES
from reput.source.errors import CorruptRecordError, SinkError
from reput.source.log.offset_range import OffsetRange, limit, split
from reput.source.log.range_cut import RangeCut
from reput.source.record.message_decoder import Verdict
from reput.source.segments.damage import STOP, DamagedRange
from reput.source.segments.mapped_file_queue import MappedFile, MappedFileQueue
from reput.source.segments.range_reader import DecodeOptions, Window, read_scans, read_windows
from reput.source.segments.segment_scan import Scan
from reput.streaming.tasks.tasks import Tasks

# A window's records are walked, then taken: they stay in the processor's second cache meanwhile.
_WINDOW_BYTES = 512 * 1024


@dataclass(frozen=True)
class RangeResult:
    """A range as it was read: its ends, whether its records lead from one to the other, and what they make.

    `pieces` are each a ``PieceRow`` (only paths if by window), `parts` of ``PART_SCHEMA``; `damaged` are ranges
    without a record.
    """

    start: int
    end: int
    is_whole: bool
    pieces: list[Mapping[str, Any]] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[DamagedRange] = field(default_factory=list)


@dataclass(frozen=True)
class RangeTask:
    """What a task does with a range; made by the driver.

    Attributes
    ----------
    needs
        What queues and index need of it; None for neither.
    by_window
        Hand over the windows as `tail` does (``scratch``), instead of whole pieces (``piece``).
    part_writer
        Writes the range's file of the table; None for no table.
    """

    decode: DecodeOptions
    needs: LogicNeeds | None
    wanted: QueueFilter
    by_window: bool
    scratch: Path
    part_writer: PartWriter | None

    def __call__(self, cut: RangeCut) -> RangeResult:
        """Read a range; a failure at an end that is not proven is told, since it may be the end that is wrong."""
        span = cut.settle()
        try:
            return self._read(span, replace(self.decode, on_damage=STOP))
        except CorruptRecordError:
            if not (cut.is_start_proven and cut.is_end_proven):
                return RangeResult(span.start, span.end, is_whole=False)
            if self.decode.on_damage == STOP:
                raise
        return self._read(span, self.decode)

    def _read(self, span: OffsetRange, decode: DecodeOptions) -> RangeResult:
        damaged: list[DamagedRange] = []
        writer = self.part_writer and replace(self.part_writer, decode=decode)
        # One read for all, unless the table has a part of the range already.
        part = Part(writer, span) if writer and writer.trim_from <= span.start else None
        pieces = list(self._pieces(span, decode, damaged, part)) if span.start < span.end else []
        parts = [part.finish()] if part else writer.write(span).to_pylist() if writer else []
        return RangeResult(span.start, span.end, is_whole=True, pieces=pieces, parts=parts, damaged=damaged)

    def _pieces(
        self, span: OffsetRange, decode: DecodeOptions, damaged: list[DamagedRange], part: Part | None
    ) -> Iterator[Mapping[str, Any]]:
        """What the range makes; appends to `damaged` what was passed over, and adds the records to `part`."""
        file, needs = span.file, self.needs
        if needs and not self.by_window and not part and decode.on_damage == STOP:
            scans = read_scans(file, span.start, span.end, check_crc=decode.check_crc, window_bytes=_WINDOW_BYTES)
            yield from self._write_pieces(scans, file, needs)
            return
        windows = _noting(read_windows(file, span.start, span.end, decode, TABLE_WINDOW_BYTES), damaged)
        if part:
            windows = part.passing(windows)
        if needs is None:
            # Nothing is made but the table: the range is looked through for it, and for what is left out.
            deque(windows if part or decode.on_damage != STOP else (), maxlen=0)
        elif self.by_window:
            handed = hand_over(self.scratch, (encode_window(window, needs) for window in windows), WINDOW_SCHEMA)
            yield {"scratch": handed["path"][0].as_py()}
        else:
            yield from self._write_pieces((_scan(window, file.frame) for window in windows), file, needs)

    def _write_pieces(self, scans: Iterable[Scan], file: MappedFile, needs: LogicNeeds) -> Iterator[PieceRow]:
        plain = PieceNeeds(needs.consume_queue, needs.index, needs.index_tags, self.decode.delays_ms)
        return write_pieces(scans, file, plain, self.wanted, self.scratch)


def _noting(windows: Iterable[Window], damaged: list[DamagedRange]) -> Iterator[Window]:
    for window in windows:
        if window.damaged is not None:
            damaged.append(window.damaged)
        yield window


def _scan(window: Window, frame: int) -> Scan:
    columns = window.columns
    return Scan(columns.data, columns.place, columns.parts, window.end, Verdict.MESSAGE, frame, columns)


@dataclass(frozen=True)
class Wave:
    """`[start, end)` of the log, both proven: the pieces (``PieceRow``; only paths if by window), the parts.

    `damaged` is what was passed over, in log order.
    """

    start: int
    end: int
    pieces: tuple[Mapping[str, Any], ...]
    parts: tuple[dict[str, Any], ...]
    damaged: tuple[DamagedRange, ...]

    @property
    def scratch(self) -> list[Path]:
        """The pieces' scratch files, in log order."""
        return [Path(piece["scratch"]) for piece in self.pieces]

    def part_table(self) -> pa.Table:
        """The table's files."""
        return pa.Table.from_pylist(list(self.parts), PART_SCHEMA)


class WaveRead:
    """A wave that is being read: ranges that follow each other in the log, the first one's start proven.

    The last one's end is where a record ends, too, if it is not proven: as `result` says.
    """

    def __init__(
        self, tasks: Tasks, queue: MappedFileQueue, cuts: Sequence[RangeCut], task: RangeTask, bytes_a_range: int
    ) -> None:
        self._tasks = tasks
        self._queue = queue
        self._cuts = list(cuts)
        self._task = task
        self._bytes_a_range = bytes_a_range
        self._results = _begin(tasks, task, cuts)

    @property
    def end(self) -> int | None:
        """Where the wave ends; None where only its result says so."""
        return self._cuts[-1].end if self._cuts[-1].is_end_proven else None

    def result(self) -> Wave:
        """Wait for it; once.

        Raises
        ------
        CorruptRecordError
            A record in the middle of the log fails its checks, and ``onDamage`` is ``stop`` (as the text of Spark's
            exception).
        """
        cuts, results = self._cuts, self._results()
        while (bad := next((number for number, result in enumerate(results) if not result.is_whole), None)) is not None:
            # Each range before it was read to where the next begins, so this one's start is proven. To its segment's
            # last cut, the records are followed here.
            begin = results[bad].start
            last = max(number for number, cut in enumerate(cuts) if cut.file == cuts[bad].file)
            stop = cuts[last].end
            if not cuts[last].is_end_proven:
                stop = limit(self._queue, begin, cuts[last].stop, max(1, stop - begin), None)
            walked = [_proven(each) for each in split(self._queue, begin, stop, self._bytes_a_range)]
            results[bad : last + 1] = _begin(self._tasks, self._task, walked)()
            cuts[bad : last + 1] = walked
        for result, after in zip(results, results[1:], strict=False):
            if result.end != after.start:
                msg = f"ranges of the log do not follow each other: one ends at {result.end}, the next is {after.start}"
                raise SinkError(msg)
        pieces = tuple(piece for result in results for piece in result.pieces)
        parts = tuple(part for result in results for part in result.parts)
        damaged = tuple(each for result in results for each in result.damaged)
        return Wave(results[0].start, results[-1].end, pieces, parts, damaged)


def _proven(span: OffsetRange) -> RangeCut:
    return RangeCut(span.file, span.start, span.end, span.end, is_start_proven=True, is_end_proven=True)


def _begin(tasks: Tasks, task: RangeTask, cuts: Sequence[RangeCut]) -> Callable[[], list[RangeResult]]:
    return tasks.start(lambda number: task(cuts[number]), len(cuts))
