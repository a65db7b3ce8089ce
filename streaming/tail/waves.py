"""The waves of a query's micro-batches: ranges that tasks have read are written while other tasks still read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from queue import SimpleQueue
from typing import TypeVar

from reput.streaming.effects.range_task import RangeEffects

OnRange = Callable[[RangeEffects], None]
_Result = TypeVar("_Result")


class Waves:
    """Writes what is read in log order, one wave after the other, while the caller reads more.

    All methods are for one thread, which reads; `write` and what is left `behind` run in others, never two at once.
    """

    def __init__(self, write: OnRange, bytes_a_wave: Callable[[], int]) -> None:
        """`write` is called with consecutive ranges, joined, of at least `bytes_a_wave` then."""
        self._write = write
        self._bytes_a_wave = bytes_a_wave
        self._behind: Future[None] | None = None

    @property
    def is_writing(self) -> bool:
        """Whether what was left behind is not done yet; what has failed is done."""
        return self._behind is not None and not self._behind.done()

    def during(self, start: int, read: Callable[[OnRange], list[RangeEffects]]) -> list[RangeEffects]:
        """What `read` returns, in log order, but for the ranges that were written meanwhile, from `start` on.

        `read` may call what it is given with the ranges that have been read, from any thread, in any order, and more
        than once with one of them. On return nothing is written any more; an error of that, or of what was left behind
        before, is raised.
        """
        arrived: SimpleQueue[RangeEffects | None] = SimpleQueue()
        behind, self._behind = self._behind, None
        writing = _beside(lambda: self._write_waves(behind, start, arrived))
        try:
            results = read(arrived.put)
        finally:
            arrived.put(None)
            end = writing.result()
        return [each for each in results if each.end > end]

    def leave_behind(self, work: Callable[[], None]) -> None:
        """Begin `work`, which writes the rest of what was read, and return at once; before, all else is written."""
        self.settle()
        self._behind = _beside(work)

    def settle(self) -> None:
        """Wait until what was left behind is written; its error is raised, once."""
        behind, self._behind = self._behind, None
        if behind is not None:
            behind.result()

    def _write_waves(self, behind: Future[None] | None, start: int, arrived: SimpleQueue[RangeEffects | None]) -> int:
        """Write what arrives, when what was left `behind` is written; returns where the last wave ends."""
        if behind is not None:
            behind.result()
        waiting: dict[int, RangeEffects] = {}
        while (each := arrived.get()) is not None:
            waiting[each.start] = each
            if not arrived.empty():
                continue
            wave = list(_following(waiting, start))
            if wave and wave[-1].end - start >= self._bytes_a_wave():
                self._write(RangeEffects.join(wave))
                start = wave[-1].end
        return start


def _beside(work: Callable[[], _Result]) -> Future[_Result]:
    """Run `work` in a thread of its own, which ends with it."""
    pool = ThreadPoolExecutor(1, "reput-waves")
    try:
        return pool.submit(copy_context().run, work)
    finally:
        pool.shutdown(wait=False)


def _following(waiting: dict[int, RangeEffects], start: int) -> Iterator[RangeEffects]:
    """The ranges that follow each other from `start` on."""
    while (each := waiting.get(start)) is not None and each.end > start:
        yield each
        start = each.end
