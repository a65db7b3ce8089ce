"""Running results of work side by side: here one after the other, or as Spark's tasks; see also ``process_tasks``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from reput.streaming.spark.job import outcome, outcome_of, run_job

_DDL = "number bigint, result binary"
_SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("result", pa.binary())])
# Each piece carries all of the work's description, so hundreds of thousands of things must not be as many results.
_TASKS = 64
_TASKS_A_CORE = 4
_SIGNALS_SEEN_WITHIN_S = 1.0
# Jobs at once: waves that are read, and queues that are written meanwhile.
_JOBS = 4

Thing = TypeVar("Thing")
Result = TypeVar("Result")
Results = Callable[[], list[Result]]


class Tasks(ABC):
    """Whatever runs results of work, each told its number, anywhere."""

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """How many results run at once."""

    @abstractmethod
    def start(self, work: Callable[[int], Result], count: int) -> Results[Result]:
        """Begin with `work(0)` to `work(count - 1)`, behind what was begun before; a piece may run more than once.

        What is returned waits for them and gives their results, which are pickled on the way, or raises what one of
        them raised.
        """

    def run(self, work: Callable[[int], Result], count: int) -> list[Result]:
        """The results of `work(0)` to `work(count - 1)`."""
        return self.start(work, count)()


def run_over(tasks: Tasks, work: Callable[[Thing], Result], things: Sequence[Thing]) -> list[Result]:
    """What `work` gives for each of the things, in their order."""
    if not things:
        return []
    count = min(len(things), max(_TASKS, _TASKS_A_CORE * tasks.parallelism))
    results = tasks.run(lambda number: [work(thing) for thing in things[number::count]], count)
    return [results[number % count][number // count] for number in range(len(things))]


def result_of(future: Future[Thing]) -> Thing:
    """What a future gives; a Ctrl-C that comes just before the wait begins would else be seen only at its end."""
    while not future.done():
        wait([future], timeout=_SIGNALS_SEEN_WITHIN_S)
    return future.result()


class SerialTasks(Tasks):
    """In this process, one after the other, when they are waited for: where processes or Spark would not pay."""

    @property
    def parallelism(self) -> int:
        """See `Tasks`."""
        return 1

    def start(self, work: Callable[[int], Result], count: int) -> Results[Result]:
        """See `Tasks`."""
        return lambda: [work(number) for number in range(count)]


class SparkTasks(Tasks):
    """A Spark job for all results, a task for each."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._pool = ThreadPoolExecutor(_JOBS, "spark-job")

    @property
    def parallelism(self) -> int:
        """The cores of the executors that have come by now: on a cluster none has when Spark is ready, at least 2."""
        return int(self._spark.sparkContext.defaultParallelism)

    def start(self, work: Callable[[int], Result], count: int) -> Results[Result]:
        """See `Tasks`; `work` is pickled."""
        return partial(result_of, self._pool.submit(self._run, work, count))

    def _run(self, work: Callable[[int], Result], count: int) -> list[Result]:
        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    row = {"number": number, "result": outcome_of(partial(work, number))}
                    yield pa.RecordBatch.from_pylist([row], _SCHEMA)

        rows: list[dict[str, Any]] = run_job(self._spark.range(0, count, 1, count), task, _DDL).to_pylist()
        return [outcome(row["result"]) for row in sorted(rows, key=lambda row: int(row["number"]))]
