"""Running pieces of a rebuild side by side, as Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from reput.streaming.dispatch import run_job

_DDL = "number bigint, result string"
_SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("result", pa.string())])


class Tasks(Protocol):
    """Whatever runs pieces of work, each told its number, anywhere; `parallelism` is how many run at once."""

    parallelism: int

    def run(self, work: Callable[[int], str], count: int) -> list[str]:
        """The results of `work(0)` to `work(count - 1)`; a piece may run more than once."""


class SparkTasks:
    """A Spark job for all pieces, a task for each."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.parallelism = spark.sparkContext.defaultParallelism

    def run(self, work: Callable[[int], str], count: int) -> list[str]:
        """See `Tasks`; `work` is pickled."""

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield pa.RecordBatch.from_pylist([{"number": number, "result": work(number)}], _SCHEMA)

        rows: list[dict[str, Any]] = run_job(self._spark.range(0, count, 1, count), task, _DDL).to_pylist()
        return [str(row["result"]) for row in sorted(rows, key=lambda row: int(row["number"]))]

    def start_workers(self) -> None:
        """Let every core start its Python worker, which takes seconds."""
        self.run(str, self.parallelism)
