"""Waves: ranges that tasks have read are written, in log order, while other tasks still read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from queue import SimpleQueue
from typing import TypeVar

from reput.sinks.queue.queue_sink import QueueSink
from reput.streaming.effects.range_task import RangeEffects

OnRange = Callable[[RangeEffects], None]
_Result = TypeVar("_Result")

# Each wave syncs the files of most queues: for so many that takes as long as reading a range of the usual size.
_QUEUES_A_RANGE = 1024
_SIGNALS_SEEN_WITHIN_S = 1.0


def worth_a_wave(least_bytes: int, sinks: Iterable[object]) -> int:
    """How much of the log a wave takes at least: `least_bytes`, and more where the sinks have thousands of queues."""
    queues = sum(sink.queue_count for sink in sinks if isinstance(sink, QueueSink))
    return least_bytes * (1 + queues // _QUEUES_A_RANGE)


class Waves:
    """Writes what is read in log order, one wave after the other, while the caller reads more.

    All methods are for one thread, which reads; `write` and what is left `behind` run in others, never two at once.
    """

    def __init__(self, write: OnRange, bytes_a_wave: Callable[[], int], stops: Collection[int] = ()) -> None:
        """`write` is called with consecutive ranges, joined, of at least `bytes_a_wave` then.

        A wave that reaches one of the physical offsets `stops`, where ranges end, ends there and may have less.
        """
        self._write = write
        self._bytes_a_wave = bytes_a_wave
        self._stops = stops
        self._behind: Future[None] | None = None
        # Where the last wave has ended, and whether another one may still be written.
        self._changed = threading.Condition()
        self._end, self._goes_on = 0, False

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
        self._end, self._goes_on = start, True
        writing = _beside(lambda: self._write_waves(behind, arrived))
        try:
            results = read(arrived.put)
        finally:
            arrived.put(None)
            writing.result()
        return self.not_written(results)

    def not_written(self, ranges: Iterable[RangeEffects]) -> list[RangeEffects]:
        """Those of the ranges that no wave has had yet."""
        end = self._end
        return [each for each in ranges if each.end > end]

    def wait_for(self, end: int) -> bool:
        """Wait, while reading, until all before the physical offset `end` is written; False if that has failed.

        The ranges up to `end` must have come, and with those behind them be enough for a wave.
        """
        with self._changed:
            # In one long wait, a Ctrl-C that comes just before would be seen only at the end.
            while self._goes_on and self._end < end:
                self._changed.wait(_SIGNALS_SEEN_WITHIN_S)
            return self._end >= end

    def leave_behind(self, work: Callable[[], None]) -> None:
        """Begin `work`, which writes the rest of what was read, and return at once; before, all else is written."""
        self.settle()
        self._behind = _beside(work)

    def settle(self) -> None:
        """Wait until what was left behind is written; its error is raised, once."""
        behind, self._behind = self._behind, None
        if behind is not None:
            behind.result()

    def _write_waves(self, behind: Future[None] | None, arrived: SimpleQueue[RangeEffects | None]) -> None:
        """Write what arrives, when what was left `behind` is written."""
        waiting: dict[int, RangeEffects] = {}
        try:
            if behind is not None:
                behind.result()
            while (each := arrived.get()) is not None:
                waiting[each.start] = each
                while arrived.empty() and (wave := self._next_wave(waiting)):
                    self._write(RangeEffects.join(wave))
                    self._note(wave[-1].end, goes_on=True)
        finally:
            self._note(self._end, goes_on=False)

    def _next_wave(self, waiting: dict[int, RangeEffects]) -> list[RangeEffects]:
        """Take the ranges of the next wave out of those that wait; nothing if they are not enough for one."""
        wave: list[RangeEffects] = []
        end = self._end
        while end not in self._stops or not wave:
            each = waiting.get(end)
            if each is None or each.end <= end:
                break
            wave.append(each)
            end = each.end
        if end - self._end < self._bytes_a_wave() and end not in self._stops:
            return []
        for each in wave:
            del waiting[each.start]
        return wave

    def _note(self, end: int, *, goes_on: bool) -> None:
        with self._changed:
            self._end, self._goes_on = end, goes_on
            self._changed.notify_all()


def _beside(work: Callable[[], _Result]) -> Future[_Result]:
    """Run `work` in a thread of its own, which ends with it."""
    pool = ThreadPoolExecutor(1, "reput-waves")
    try:
        return pool.submit(copy_context().run, work)
    finally:
        pool.shutdown(wait=False)
