"""The waves of a micro-batch: ranges that tasks have read are written while other tasks still read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from queue import SimpleQueue

from reput.streaming.effects.range_task import RangeEffects

OnRange = Callable[[RangeEffects], None]


class Waves:
    """Writes the ranges of one micro-batch in log order, wave by wave, as far as they are known to follow each other.

    Attributes
    ----------
    end
        Where the last wave ends that was written; at first, where the batch is expected to begin.
    """

    def __init__(self, start: int, write: OnRange, bytes_a_wave: Callable[[], int]) -> None:
        """`write` is called with consecutive ranges, joined, of at least `bytes_a_wave` then, one wave at a time."""
        self.end = start
        self._write = write
        self._bytes_a_wave = bytes_a_wave

    def during(self, read: Callable[[OnRange], list[RangeEffects]]) -> list[RangeEffects]:
        """What `read` returns, in log order, but for the ranges that were written meanwhile.

        `read` may call what it is given with the ranges that have been read, from any thread, in any order, and more
        than once with one of them. Another thread writes; on return it has ended, and an error of it is raised.
        """
        arrived: SimpleQueue[RangeEffects | None] = SimpleQueue()
        with ThreadPoolExecutor(1, "reput-waves") as pool:
            writing = pool.submit(copy_context().run, self._write_waves, arrived)
            try:
                results = read(arrived.put)
            finally:
                arrived.put(None)
                writing.result()
        return [each for each in results if each.end > self.end]

    def _write_waves(self, arrived: SimpleQueue[RangeEffects | None]) -> None:
        waiting: dict[int, RangeEffects] = {}
        while (each := arrived.get()) is not None:
            waiting[each.start] = each
            if not arrived.empty():
                continue
            wave = list(_following(waiting, self.end))
            if wave and wave[-1].end - self.end >= self._bytes_a_wave():
                self._write(RangeEffects.join(wave))
                self.end = wave[-1].end


def _following(waiting: dict[int, RangeEffects], start: int) -> Iterator[RangeEffects]:
    """The ranges that follow each other from `start` on."""
    while (each := waiting.get(start)) is not None and each.end > start:
        yield each
        start = each.end
