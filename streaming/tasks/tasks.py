"""Running tasks side by side, in this process or as Spark's tasks; see also ``process_tasks``."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from reput.source.errors import ReputError
from reput.streaming.process.interruption import result_of
from reput.streaming.spark.job import Announce, announcements, outcome, outcome_of, run_job

_DDL = "number bigint, result binary"
_SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("result", pa.binary())])
# Each task carries the whole description of the work, so hundreds of thousands of things must share fewer tasks.
_TASKS = 64
_TASKS_A_CORE = 4
# How many jobs run at once: some read waves, and some write queues meanwhile.
_JOBS = 4

Thing = TypeVar("Thing")
Result = TypeVar("Result")
Results = Callable[[], list[Result]]
OnResult = Callable[[int, Result], None]


class Tasks(ABC):
    """Runs tasks, each of which is given its number, in this process or elsewhere.

    `is_on_cluster` tells whether Spark runs them, on machines that this one need not be among.
    """

    is_on_cluster = False

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """How many tasks run at once."""

    @abstractmethod
    def start(
        self, work: Callable[[int], Result], count: int, on_result: OnResult[Result] | None = None
    ) -> Results[Result]:
        """Begin with the tasks `work(0)` to `work(count - 1)`, after those begun before; one may run more than once.

        The function that is returned waits for them and returns their results, which are pickled on the way, or raises
        what one of them raised. `on_result` gets a task's number and result while others run, from any thread, perhaps
        more than once. Nothing is certain to reach it, or to have reached it when the function returns.
        """

    def run(self, work: Callable[[int], Result], count: int) -> list[Result]:
        """The results of `work(0)` to `work(count - 1)`."""
        return self.start(work, count)()


def run_over(tasks: Tasks, work: Callable[[Thing], Result], things: Sequence[Thing]) -> list[Result]:
    """The results of `work` for each of the things, in their order."""
    if not things:
        return []
    count = min(len(things), max(_TASKS, _TASKS_A_CORE * tasks.parallelism))
    results = tasks.run(lambda number: [work(thing) for thing in things[number::count]], count)
    return [results[number % count][number // count] for number in range(len(things))]


class SerialTasks(Tasks):
    """Runs tasks in this process, one after the other, once they are waited for; for work too small for processes."""

    @property
    def parallelism(self) -> int:
        """One task runs at a time."""
        return 1

    def start(
        self,
        work: Callable[[int], Result],
        count: int,
        on_result: OnResult[Result] | None = None,  # noqa: ARG002
    ) -> Results[Result]:
        """Return what runs the tasks; `on_result` hears nothing."""
        return lambda: [work(number) for number in range(count)]


class SparkTasks(Tasks):
    """Runs each group of tasks as one Spark job."""

    is_on_cluster = True

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._pool = ThreadPoolExecutor(_JOBS, "spark-job")

    @property
    def parallelism(self) -> int:
        """The cores of the executors so far, at least 2: on a cluster there may be none yet when Spark is ready."""
        return int(self._spark.sparkContext.defaultParallelism)

    def start(
        self, work: Callable[[int], Result], count: int, on_result: OnResult[Result] | None = None
    ) -> Results[Result]:
        """Begin with a job of the tasks, and return what waits for their results; `work` is pickled."""
        return partial(result_of, self._pool.submit(self._run, work, count, on_result))

    def _run(self, work: Callable[[int], Result], count: int, on_result: OnResult[Result] | None) -> list[Result]:
        if on_result is None:
            return self._run_job(work, count, None)

        def heard(words: bytes) -> None:
            number, pickled = pickle.loads(words)  # noqa: S301
            result = pickle.loads(pickled)  # noqa: S301
            if not isinstance(result, ReputError):  # the job's result has errors
                on_result(number, result)

        with announcements(self._spark, heard) as announce:
            return self._run_job(work, count, announce)

    def _run_job(self, work: Callable[[int], Result], count: int, announce: Announce | None) -> list[Result]:
        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    result = outcome_of(partial(work, number))
                    if announce is not None:
                        announce(pickle.dumps((number, result)))
                    yield pa.RecordBatch.from_pylist([{"number": number, "result": result}], _SCHEMA)

        rows: list[dict[str, Any]] = run_job(self._spark.range(0, count, 1, count), task, _DDL).to_pylist()
        return [outcome(row["result"]) for row in sorted(rows, key=lambda row: int(row["number"]))]
