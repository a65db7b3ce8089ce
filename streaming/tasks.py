"""Running pieces of work side by side: here one after the other, or as Spark's tasks; see also ``process_tasks``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from reput.streaming.dispatch import run_job

_DDL = "number bigint, result string"
_SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("result", pa.string())])
# Each piece carries all of the work's description, so hundreds of thousands of things must not be as many pieces.
_PIECES = 64
_PIECES_A_CORE = 4

Thing = TypeVar("Thing")


class Tasks(Protocol):
    """Whatever runs pieces of work, each told its number, anywhere."""

    @property
    def parallelism(self) -> int:
        """How many pieces run at once."""

    def run(self, work: Callable[[int], str], count: int) -> list[str]:
        """The results of `work(0)` to `work(count - 1)`; a piece may run more than once."""


def run_over(tasks: Tasks, work: Callable[[Thing], Any], things: Sequence[Thing]) -> list[Any]:
    """What `work` gives for each of the things, in their order: plain values, as JSON leaves them."""
    if not things:
        return []
    count = min(len(things), max(_PIECES, _PIECES_A_CORE * tasks.parallelism))
    pieces = tasks.run(lambda number: json.dumps([work(thing) for thing in things[number::count]]), count)
    results: list[Any] = [None] * len(things)
    for number, piece in enumerate(pieces):
        results[number::count] = json.loads(piece)
    return results


class SerialTasks:
    """In this process, one after the other: for what is done before processes or Spark would have started."""

    parallelism = 1

    def run(self, work: Callable[[int], str], count: int) -> list[str]:
        """See `Tasks`."""
        return [work(number) for number in range(count)]


class SparkTasks:
    """A Spark job for all pieces, a task for each."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def parallelism(self) -> int:
        """The cores of the executors that have come by now: on a cluster none has when Spark is ready, at least 2."""
        return int(self._spark.sparkContext.defaultParallelism)

    def run(self, work: Callable[[int], str], count: int) -> list[str]:
        """See `Tasks`; `work` is pickled."""

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield pa.RecordBatch.from_pylist([{"number": number, "result": work(number)}], _SCHEMA)

        rows: list[dict[str, Any]] = run_job(self._spark.range(0, count, 1, count), task, _DDL).to_pylist()
        return [str(row["result"]) for row in sorted(rows, key=lambda row: int(row["number"]))]

    def start_workers(self) -> None:
        """Let every core start its Python worker, which takes seconds; executors that come later start theirs then."""
        started = 0
        while started < self.parallelism:
            started = self.parallelism
            self.run(str, started)
