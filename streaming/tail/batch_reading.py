"""How the ranges of a micro-batch are read: by a job of Spark's, or here where they hold little."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from reput.source.log.offset_range import OffsetRange, ranges_of
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.effects.waves import OnRange
from reput.streaming.spark.announcements import announcements
from reput.streaming.spark.job import outcome, outcome_of, run_job
from reput.streaming.tail.small_batch import SmallBatches

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
