"""Waves: ranges that tasks have read are written, in log order, while other tasks still read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

from reput.sinks.queue.queue_sink import QueueSink
from reput.streaming.effects.range_task import RangeEffects

OnRange = Callable[[RangeEffects], None]
_Result = TypeVar("_Result")

# Each wave syncs the files of most queues: this many syncs take as long as reading a range of the usual size.
_QUEUES_A_RANGE = 1024
_SIGNALS_SEEN_WITHIN_S = 1.0


def worth_a_wave(least_bytes: int, sinks: Iterable[object]) -> int:
    """Return the least bytes of the log for a wave: `least_bytes`, and more if the sinks have thousands of queues."""
    queues = sum(sink.queue_count for sink in sinks if isinstance(sink, QueueSink))
    return least_bytes * (1 + queues // _QUEUES_A_RANGE)


class Waves:
    """Ranges on their way from one read of the log to the sinks: each waits from its read until its wave is written.

    One thread reads. Its tasks call `put` with the ranges that they have read. A second thread iterates, and writes
    each wave before it asks for the next one (`written_beside`).
    """

    def __init__(self, start: int, bytes_a_wave: Callable[[], int], stops: Collection[int] = ()) -> None:
        """Begin at the physical offset `start`; a wave has at least the bytes that `bytes_a_wave` returns then.

        A wave that reaches one of the physical offsets `stops`, where ranges end, ends there and may have less.
        """
        self._bytes_a_wave = bytes_a_wave
        self._stops = stops
        # Reader and writer share the rest, and change it while they hold `_changed`: the ranges that have come and are
        # not in a wave yet, by their starts; the end of the last wave; the offset up to which the reader waits for
        # waves of any size; whether the reader still reads, and whether another wave may be written.
        self._changed = threading.Condition()
        self._waiting: dict[int, RangeEffects] = {}
        self._end = self._wanted = start
        self._is_reading = self._is_written = True

    def put(self, read: RangeEffects) -> None:
        """Add a range that was read. Any thread may call this, in any order, and more than once for a range."""
        with self._changed:
            if self._is_reading:  # otherwise the writer has ended, and ignores it
                self._waiting[read.start] = read
                self._changed.notify_all()

    def __iter__(self) -> Iterator[RangeEffects]:
        """Yield each wave when it is complete: consecutive ranges, joined. End when the reading has ended."""
        while ranges := self._next_wave():
            yield RangeEffects.join(ranges)
            with self._changed:
                self._end = ranges[-1].end
                self._changed.notify_all()

    @contextmanager
    def written_beside(self, write: Callable[[], None]) -> Iterator[None]:
        """Read in the body of a ``with`` block while `write`, which iterates, runs in a thread of its own.

        After the block the writing has ended; an error of `write` is raised then.
        """
        writing = beside(lambda: self._write(write))
        try:
            yield
        finally:
            with self._changed:
                self._is_reading = False
                self._changed.notify_all()
            writing.result()

    def wait_for(self, end: int) -> bool:
        """Wait, while reading, until everything before the physical offset `end` is written; False if that failed.

        The ranges up to `end` must have come; they are written even if they are small.
        """
        with self._changed:
            self._wanted = end
            self._changed.notify_all()
            # Wait in short steps: a Ctrl-C just before one long wait would be noticed only at its end.
            while self._is_written and self._end < end:
                self._changed.wait(_SIGNALS_SEEN_WITHIN_S)
            return self._end >= end

    def rest_of(self, results: Sequence[RangeEffects]) -> list[RangeEffects]:
        """Return those of `results` that were in no wave."""
        return [each for each in results if each.end > self._end]

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        finally:
            with self._changed:
                self._is_written = False
                self._changed.notify_all()

    def _next_wave(self) -> list[RangeEffects]:
        """Wait for the next wave, and take its ranges from the waiting ones; return none once the reading has ended."""
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
        """Return the waiting ranges that follow each other from the last wave's end on, up to a stop."""
        wave: list[RangeEffects] = []
        end = self._end
        while (each := self._waiting.get(end)) is not None and each.end > end:
            wave.append(each)
            end = each.end
            if end in self._stops:
                break
        return wave


def beside(work: Callable[[], _Result]) -> Future[_Result]:
    """Run `work` in a thread of its own, which ends with it."""
    pool = ThreadPoolExecutor(1, "reput-waves")
    try:
        return pool.submit(copy_context().run, work)
    finally:
        pool.shutdown(wait=False)
