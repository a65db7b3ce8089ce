"""Running tasks side by side: in this process, in processes of this machine, or as Spark's tasks.

`ProcessTasks` starts no JVM and schedules no job.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import BaseContext
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import cloudpickle
import pyarrow as pa
from pyspark.sql import SparkSession

from reput.source.errors import ReputError, TransientError
from reput.source.system import end_with_parent, keep_freed_memory, load_without_threads
from reput.streaming.process import terminal
from reput.streaming.process.interruption import result_of
from reput.streaming.spark.job import Announce, announcements, outcome, outcome_of, run_job

_DDL = "number bigint, result binary"
_SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("result", pa.binary())])
# Each task carries the whole description of the work, so hundreds of thousands of things share this many tasks.
_TASKS = 64
_TASKS_A_CORE = 4
# How many jobs run at once: some read waves, and some write queues meanwhile.
_JOBS = 4

Thing = TypeVar("Thing")
Result = TypeVar("Result")
Results = Callable[[], list[Result]]
OnResult = Callable[[int, Result], None]


class Tasks(ABC):
    """Runs tasks, each of which gets its number, in this process or elsewhere.

    `is_on_cluster` means that Spark runs them, perhaps on other machines than this one.
    """

    is_on_cluster = False

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """The number of tasks that run at once."""

    @abstractmethod
    def start(
        self, work: Callable[[int], Result], count: int, on_result: OnResult[Result] | None = None
    ) -> Results[Result]:
        """Begin with the tasks `work(0)` to `work(count - 1)`, after those begun before; one may run more than once.

        The returned function waits for them and returns their results, which are pickled on the way, or raises the
        error of one of them. `on_result` gets a task's number and result while others run, from any thread, perhaps
        more than once. A result may never reach it, or only after the function has returned.
        """

    def run(self, work: Callable[[int], Result], count: int) -> list[Result]:
        """Return the results of `work(0)` to `work(count - 1)`."""
        return self.start(work, count)()


def run_over(tasks: Tasks, work: Callable[[Thing], Result], things: Sequence[Thing]) -> list[Result]:
    """Return the results of `work` for each of the things, in their order."""
    if not things:
        return []
    count = min(len(things), max(_TASKS, _TASKS_A_CORE * tasks.parallelism))
    results = tasks.run(lambda number: [work(thing) for thing in things[number::count]], count)
    return [results[number % count][number // count] for number in range(len(things))]


class SerialTasks(Tasks):
    """Runs tasks in this process, one after the other, when they are waited for; for work too small for processes."""

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
        """Return a function that runs the tasks; `on_result` is never called."""
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
        """Begin with a job of the tasks, and return the function that waits for their results; `work` is pickled."""
        return partial(result_of, self._pool.submit(self._run, work, count, on_result))

    def _run(self, work: Callable[[int], Result], count: int, on_result: OnResult[Result] | None) -> list[Result]:
        if on_result is None:
            return self._run_job(work, count, None)

        def heard(words: bytes) -> None:
            number, pickled = pickle.loads(words)  # noqa: S301
            result = pickle.loads(pickled)  # noqa: S301
            if not isinstance(result, ReputError):  # errors are in the job's result
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


_PRELOADED = "reput.streaming.spark.warm_up"
_THREADS = Path("/proc/self/task")
_PARENT_LOOKED_FOR_S = 1.0


class ProcessTasks(Tasks):
    """Runs tasks in processes that end with this one.

    They are forks of this process, with its modules and kernels, if it has a single thread: so make them before other
    threads, and before Spark is started. A process with several threads cannot be forked safely; the tasks' processes
    are then forks of a server that has loaded the modules.
    """

    def __init__(self, processes: int) -> None:
        self._parallelism = processes
        # Otherwise the first collection in each process would copy everything loaded before the fork. No collection
        # comes before this: little of what was loaded is garbage, and finding it takes 0.2 s.
        gc.freeze()
        self._others = multiprocessing.active_children()
        self._pool = ProcessPoolExecutor(processes, _context(), _begin)
        try:
            self.start(_begun, processes)()  # begins all of them
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> ProcessTasks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        # All wanted results have been fetched, and a task's files are written. If a process has just died,
        # the pool asks the others to end with SIGTERM, which they ignore, and waits for them; and they may wait for
        # ever for a lock that the dead one held.
        for process in multiprocessing.active_children():
            if process not in self._others:
                process.kill()
        self._pool.shutdown(cancel_futures=True)

    @property
    def parallelism(self) -> int:
        """The number of processes."""
        return self._parallelism

    def start(
        self, work: Callable[[int], Result], count: int, on_result: OnResult[Result] | None = None
    ) -> Results[Result]:
        """Begin with the tasks in the processes; return the function that waits for their results; `work` is pickled.

        Raises
        ------
        TransientError
            One of the processes died: now, or while the results are waited for.
        """
        pickled: bytes = cloudpickle.dumps(work)
        with _deaths_as_errors():
            futures = [self._pool.submit(_call, pickled, number) for number in range(count)]
        if terminal.expect(count):
            for future in futures:
                future.add_done_callback(lambda _: terminal.done())
        if on_result is not None:
            for number, future in enumerate(futures):
                future.add_done_callback(partial(_tell, on_result, number))
        return partial(_results, futures)


def _results(futures: list[Future[Result]]) -> list[Result]:
    try:
        with _deaths_as_errors():
            return [result_of(future) for future in futures]
    finally:
        for future in futures:
            future.cancel()


def _tell(on_result: OnResult[Result], number: int, future: Future[Result]) -> None:
    if not future.cancelled() and future.exception() is None:  # errors are raised where the results are waited for
        on_result(number, future.result())


@contextmanager
def _deaths_as_errors() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise TransientError(
            "a process of reput died: it was killed, or the machine ran out of memory (less is needed with smaller "
            "ranges, rebuildMaxBytesPerPartition or for verify maxBytesPerPartition, or with fewer processes, "
            "sparkMaster=local[N])",
            advice="run the same command again, a rebuild continues where it stopped",
        ) from error


def _begun(_: int) -> None:
    """Start a process: the task does nothing."""


def _call(pickled: bytes, number: int) -> Any:
    work: Callable[[int], Any] = cloudpickle.loads(pickled)
    return work(number)


def _context() -> BaseContext:
    if len(list(_THREADS.iterdir())) == 1:
        return multiprocessing.get_context("fork")
    load_without_threads()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    return context


def _begin() -> None:
    """Ignore signals, which the parent handles, and end with it: the fork of a killed process would wait for ever."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    end_with_parent()
    keep_freed_memory()

    def watch() -> None:
        # The system reports the death of the thread that forked, which may have come before reports were requested.
        driver = multiprocessing.parent_process()
        while os.getppid() == parent and (driver is None or driver.is_alive()):
            time.sleep(_PARENT_LOOKED_FOR_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
