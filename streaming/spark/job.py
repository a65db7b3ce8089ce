"""A Spark job of this project, from Arrow rows to Arrow rows, which is run again if Spark fails."""

from __future__ import annotations

import itertools
import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.sql import DataFrame, SparkSession

from reput.source.errors import ReputError, TransientError, remote_error, reported_through_spark
from reput.streaming.process.failures import first_line, text_of
from reput.streaming.process.jvm import has_jvm_died

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
# Pauses between attempts: a machine that is too busy to start a Python worker in time needs a moment.
_PAUSES_S = (0.2, 2.0)
# Long enough for workers that have a core, which start in a few seconds.
_JOINED_FOR_S = 10.0
_log = logging.getLogger("reput")


def run_job(ranges: DataFrame, task: Task, ddl: str) -> pa.Table:
    """Run `task` over the ranges' rows, and collect the rows that it yields, in columns `ddl`.

    A job that fails for a reason of Spark's own is run again: files of tasks have a new name each time and count only
    when the driver commits them. Seen with 4.2.0: two queries that start at once can corrupt the serialized form of a
    task (``OptionalDataException``).

    Raises
    ------
    ReputError
        The error that `task` raised.
    """

    def reporting_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reported_through_spark():
            yield from task(batches)

    for pause in (*_PAUSES_S, None):
        try:
            return ranges.mapInArrow(reporting_task, ddl).toArrow()
        except Exception as error:
            if (remote := remote_error(text_of(error))) is not None:
                raise remote from error
            if pause is None or has_jvm_died(within_s=pause) or _has_stopped(ranges.sparkSession):
                raise
            _log.warning("a Spark job failed and is run again in %.1f s: %s", pause, first_line(error))
            time.sleep(pause)
    raise AssertionError


def _has_stopped(spark: Any) -> bool:
    """Whether jobs can no longer run, because reput or the cluster ended the session while this one ran."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001
    except Exception:  # noqa: BLE001  py4j's, of a gateway that is closed
        return True


def outcome_of(work: Callable[[], object]) -> bytes:
    """Return the result of `work`, or the ReputError that it raises, pickled; the driver unpickles it with `outcome`.

    So a task that Spark would retry in vain ends successfully. An error that may pass is raised: a cluster tries the
    task again, on another machine if it can.
    """
    try:
        return pickle.dumps(work())
    except TransientError:
        raise
    except ReputError as error:
        return pickle.dumps(error)


def outcome(pickled: bytes) -> Any:
    """Return the result that `outcome_of` pickled in a task of this run; if it is an error, raise that."""
    result = pickle.loads(pickled)  # noqa: S301
    if isinstance(result, ReputError):
        raise result
    return result


def start_workers(spark: SparkSession) -> None:
    """Let every core start its Python worker, which takes seconds; executors that come later start theirs then.

    Failures are ignored: the first real job starts the workers, or fails.
    """
    started = 0
    with suppress(Exception):
        while started < (cores := int(spark.sparkContext.defaultParallelism)):
            started = cores
            spark.range(0, cores, 1, cores).mapInArrow(_pass_on, "id bigint").toArrow()


class Beside:
    """Runs actions that only save time beside the driver's work, each in a thread of its own."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        """Begin; errors of actions are ignored, because the driver's work does without them or fails by itself."""
        self._threads = [threading.Thread(target=_quietly, args=(action,), daemon=True) for action in actions]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until the actions have ended, so that none runs when Spark is stopped, but not for long.

        In a cluster without room a core may never come; the job that asks for it ends when Spark does.
        """
        deadline = time.monotonic() + _JOINED_FOR_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _quietly(action: Callable[[], object]) -> None:
    with suppress(Exception):
        action()


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


# ----------------------------------------------------------------------------------------------------------------------
# Announcements of tasks to the driver before their job has ended. Spark's accumulators carry them, also on a cluster.

Listener = Callable[[bytes], None]
# The listeners of this process by number; announcements for one that has gone are dropped.
_listeners: dict[int, Listener] = {}
_numbers = itertools.count()
# Spark keeps an accumulator for as long as its context, so there is one for all.
_accumulators: WeakKeyDictionary[SparkContext, Accumulator[list[tuple[int, bytes]]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Announce:
    """Called by a task with words for the driver, which gets them when the task has ended well."""

    listener: int
    accumulator: Accumulator[list[tuple[int, bytes]]]

    def __call__(self, words: bytes) -> None:
        """Announce `words`."""
        self.accumulator.add([(self.listener, words)])


@contextmanager
def announcements(spark: SparkSession, listener: Listener) -> Iterator[Announce]:
    """Within the block, `listener` gets what tasks announce; a thread of Spark's calls it.

    The order is that in which tasks end. A task that is run again in another job announces again. An announcement may
    come only after the job has ended, or never: the job's result must have everything.
    """
    number, context = next(_numbers), spark.sparkContext
    if context not in _accumulators:
        _accumulators[context] = context.accumulator([], _HandedOn())
    _listeners[number] = listener
    try:
        yield Announce(number, _accumulators[context])
    finally:
        del _listeners[number]


class _HandedOn(AccumulatorParam[list[tuple[int, bytes]]]):
    """Collects words in a task; in the driver, passes them to the listener and keeps nothing."""

    def __init__(self, *, in_driver: bool = True) -> None:
        self._in_driver = in_driver

    def __reduce__(self) -> tuple[Callable[[], _HandedOn], tuple[()]]:
        return _in_task, ()

    def zero(self, value: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:  # noqa: ARG002
        return []

    def addInPlace(  # noqa: N802  Spark's name
        self, value1: list[tuple[int, bytes]], value2: list[tuple[int, bytes]]
    ) -> list[tuple[int, bytes]]:
        if not self._in_driver:
            return value1 + value2
        for number, words in value2:
            if (listener := _listeners.get(number)) is not None:
                listener(words)
        return []


def _in_task() -> _HandedOn:
    return _HandedOn(in_driver=False)
