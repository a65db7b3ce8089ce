"""Waves: ranges that tasks have read are written, in log order, while other tasks still read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
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
        # What follows is the reader's and the writer's, and changes with `_changed` held: the ranges that have come and
        # belong to no wave yet, by their starts; where the last wave has ended; up to where the reader waits for waves,
        # however small; whether it reads on, and whether another wave may be written.
        self._changed = threading.Condition()
        self._waiting: dict[int, RangeEffects] = {}
        self._end = self._wanted = 0
        self._is_reading = self._goes_on = False

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
        behind, self._behind = self._behind, None
        self._waiting.clear()
        self._end = self._wanted = start
        self._is_reading = self._goes_on = True
        writing = _beside(lambda: self._write_waves(behind))
        try:
            results = read(self._on_range)
        finally:
            with self._changed:
                self._is_reading = False
                self._changed.notify_all()
            writing.result()
        return [each for each in results if each.end > self._end]

    def wait_for(self, end: int) -> bool:
        """Wait, while reading, until all before the physical offset `end` is written; False if that has failed.

        The ranges up to `end` must have come; they are written, however little they are.
        """
        with self._changed:
            self._wanted = end
            self._changed.notify_all()
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

    def _on_range(self, read: RangeEffects) -> None:
        with self._changed:
            if self._is_reading:  # else it is no news any more
                self._waiting[read.start] = read
                self._changed.notify_all()

    def _write_waves(self, behind: Future[None] | None) -> None:
        """Write what comes, when what was left `behind` is written, until nothing is read any more."""
        try:
            if behind is not None:
                behind.result()
            while wave := self._next_wave():
                self._write(RangeEffects.join(wave))
                with self._changed:
                    self._end = wave[-1].end
                    self._changed.notify_all()
        finally:
            with self._changed:
                self._goes_on = False
                self._changed.notify_all()

    def _next_wave(self) -> list[RangeEffects]:
        """Wait for the next wave, and take its ranges out of those that wait; nothing once nothing is read any more."""
        with self._changed:
            while self._is_reading:
                wave = self._wave()
                if wave and self._is_enough(wave[-1].end):
                    for each in wave:
                        del self._waiting[each.start]
                    return wave
                self._changed.wait()
        return []

    def _is_enough(self, end: int) -> bool:
        """Whether a wave may end at `end`."""
        is_wanted = self._end < self._wanted <= end
        return is_wanted or end in self._stops or end - self._end >= self._bytes_a_wave()

    def _wave(self) -> list[RangeEffects]:
        """The ranges that wait and follow each other from the last wave's end on, up to a stop."""
        wave: list[RangeEffects] = []
        end = self._end
        while (each := self._waiting.get(end)) is not None and each.end > end:
            wave.append(each)
            end = each.end
            if end in self._stops:
                break
        return wave


def _beside(work: Callable[[], _Result]) -> Future[_Result]:
    """Run `work` in a thread of its own, which ends with it."""
    pool = ThreadPoolExecutor(1, "reput-waves")
    try:
        return pool.submit(copy_context().run, work)
    finally:
        pool.shutdown(wait=False)
