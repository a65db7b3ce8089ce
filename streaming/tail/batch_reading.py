"""How the ranges of a micro-batch are read: by a job of Spark's, or here where they hold little."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from reput.source.errors import ReputError
from reput.source.log.log_reader import LogReader
from reput.source.log.offset_range import OffsetRange, ranges_of
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.effects.waves import OnRange
from reput.streaming.output.spark_checkpoint import end_of_batch
from reput.streaming.spark.job import announcements, outcome, outcome_of, run_job

_RESULT_DDL = "start bigint, effects binary"
_RESULT_SCHEMA = pa.schema([("start", pa.int64()), ("effects", pa.binary())])


def read_ranges(
    ranges: DataFrame,
    task: RangeTask,
    prepare: Callable[[], None] | None = None,
    announce: Callable[[OffsetRange, bytes], None] | None = None,
) -> list[RangeEffects]:
    """The effects that `task` reads from the batch's ranges, in log order; the first range's error is raised.

    Each of Spark's tasks calls `prepare` first, and `announce` with each range and its outcome (``outcome_of``).
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if prepare is not None:
            prepare()
        for span in ranges_of(batches):
            effects = outcome_of(partial(task.read, span))
            if announce is not None:
                announce(span, effects)
            yield pa.RecordBatch.from_pylist([{"start": span.start, "effects": effects}], _RESULT_SCHEMA)

    rows = run_job(ranges, read, _RESULT_DDL).sort_by("start")
    return [outcome(effects) for effects in rows["effects"].to_pylist()]


def read_announced(ranges: DataFrame, task: RangeTask, on_range: OnRange, least_bytes: int) -> list[RangeEffects]:
    """As `read_ranges`; `on_range` hears of ranges of `least_bytes` or more that are read while others still are."""

    def heard(words: bytes) -> None:
        read = pickle.loads(words)  # noqa: S301
        if isinstance(read, RangeEffects):  # the job's result has errors
            on_range(read)

    with announcements(ranges.sparkSession, heard) as announce:

        def announce_large(span: OffsetRange, effects: bytes) -> None:
            if span.end - span.start >= least_bytes:
                announce(effects)

        return read_ranges(ranges, task, None, announce_large)


def read_here(small: SmallBatches | None, batch_id: int, task: RangeTask) -> list[RangeEffects] | None:
    """What `task` reads from the batch's ranges in this process, in log order; None if a job is to read them.

    The arrays of pieces stay in memory.
    """
    ranges = None if small is None else small.ranges(batch_id)
    return None if ranges is None else [replace(task, scratch=None).read(span) for span in ranges]


# ----------------------------------------------------------------------------------------------------------------------
# Micro-batches that hold little: the driver reads them itself, since a job of Spark's takes longer than that.

# One core reads and decodes so much in less time than a job takes that has nothing to read.
SMALL_BYTES = 8 * 1024 * 1024
# And so much in less time than Spark takes to start its workers. Later batches of this size are better read by these:
# the driver's Python would keep the other query waiting.
SMALL_FIRST_BYTES = 32 * 1024 * 1024


def is_first_small(log: LogReader, start: int) -> bool:
    """Whether a start of a query that goes on at `start` finds so little in the log that it takes no job.

    Raises what ``LogReader.reaches_beyond`` raises.
    """
    return not log.reaches_beyond(start + SMALL_FIRST_BYTES)


class SmallBatches:
    """Knows which of a query's micro-batches are small, and their ranges.

    Attributes
    ----------
    begin
        Where Spark's first batch begins, which Spark does not note: what the source was told; None if unknown.
    """

    def __init__(self, checkpoint: Path, log: LogReader) -> None:
        """`checkpoint` is the query's Spark checkpoint; `log` is only asked for its options."""
        self.begin: int | None = None
        self._checkpoint = checkpoint
        self._log = LogReader(log.options)
        # The batch that was asked for last, and its end.
        self._last: tuple[int, int] | None = None
        # The batch that was asked for first; Spark numbers it on from its checkpoint.
        self._first_id: int | None = None

    def ranges(self, batch_id: int) -> list[OffsetRange] | None:
        """The ranges of one of Spark's batches, in log order; None if a job is to read them.

        Spark notes where a batch ends before it begins with it. Whatever is wrong with that, or with the log, the job
        meets as well, and says so.
        """
        if self._first_id is None:
            self._first_id = batch_id
        bytes_max = SMALL_FIRST_BYTES if batch_id == self._first_id else SMALL_BYTES
        try:
            start = self.begin if batch_id == 0 else self._end(batch_id - 1)
            end = self._end(batch_id)
            if start is None or not 0 < end - start <= bytes_max:
                return None
            return list(self._log.split(start, end))
        except ReputError:
            return None

    def _end(self, batch_id: int) -> int:
        if self._last is None or self._last[0] != batch_id:
            self._last = batch_id, end_of_batch(self._checkpoint, batch_id)
        return self._last[1]
