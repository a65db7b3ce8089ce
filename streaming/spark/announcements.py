"""What tasks tell the driver before their job has ended; Spark's accumulators carry it, on a cluster as well."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.sql import SparkSession

Listener = Callable[[bytes], None]
# The listeners of this process by number; words for one that has gone are dropped.
_listeners: dict[int, Listener] = {}
_numbers = itertools.count()
# Spark keeps an accumulator for as long as its context, so there is one for all.
_accumulators: WeakKeyDictionary[SparkContext, Accumulator[list[tuple[int, bytes]]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Announce:
    """Called by a task with words for the driver, which hears them when the task has ended well."""

    listener: int
    accumulator: Accumulator[list[tuple[int, bytes]]]

    def __call__(self, words: bytes) -> None:
        """Say `words`."""
        self.accumulator.add([(self.listener, words)])


@contextmanager
def announcements(spark: SparkSession, listener: Listener) -> Iterator[Announce]:
    """Within the block, `listener` gets what tasks announce; a thread of Spark's calls it.

    The order is that in which tasks end. A task that is run again in another job is heard again. Nothing is certain to
    be heard before the job has ended: its result must say all.
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
    """Collects words in a task; in the driver, hands them on and keeps nothing."""

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
