"""Ranges that tasks have read are written while others read: in log order, once, never past a gap."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from reput.source.errors import OutputFullError
from reput.streaming.effects.range_task import RangeEffects
from reput.streaming.effects.waves import Waves

LIMIT_SECONDS = 20


def effects(start: int, end: int) -> RangeEffects:
    return RangeEffects(start, end, is_whole=True)


RANGES = [effects(start, end) for start, end in pairwise(range(100, 700, 100))]


class Written:
    """The waves that were written; `wait_for` waits until one ends at an offset."""

    def __init__(self) -> None:
        self.waves: list[tuple[int, int]] = []
        self._changed = threading.Condition()

    def write(self, waves: Waves) -> None:
        """Write all that comes."""
        for wave in waves:
            self.note(wave)

    def note(self, wave: RangeEffects) -> None:
        with self._changed:
            self.waves.append((wave.start, wave.end))
            self._changed.notify_all()

    def wait_for(self, end: int | None = None) -> None:
        """Wait until a wave ends at `end`, or for any wave."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: bool(self.waves) and end in (None, self.waves[-1][1]), timeout=LIMIT_SECONDS
            )


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (1, 0, 0, 3, 2, 1, 4)])
def test_in_log_order_and_once(order: tuple[int, ...]) -> None:
    """However ranges come, and however often: what was not written meanwhile is left, and nothing else."""
    written, waves = Written(), Waves(100, lambda: 200)
    with waves.written_beside(lambda: written.write(waves)):
        for number in order:
            waves.put(RANGES[number])
        written.wait_for()
    covered = [*written.waves, *((each.start, each.end) for each in waves.rest_of(RANGES))]
    assert (covered[0][0], covered[-1][1]) == (100, 600)
    assert all(one[1] == after[0] for one, after in pairwise(covered))
    assert all(end - start >= 200 for start, end in written.waves)


def test_written_while_others_read() -> None:
    """The reader sees the first waves on disk before it has returned; a gap delays the ranges after it."""
    written, waves = Written(), Waves(100, lambda: 100)
    with waves.written_beside(lambda: written.write(waves)):
        waves.put(RANGES[0])
        written.wait_for(200)
        waves.put(RANGES[3])  # behind a gap
        waves.put(RANGES[1])
        written.wait_for(300)
    assert waves.rest_of(RANGES) == RANGES[2:]
    assert written.waves == [(100, 200), (200, 300)]


def test_a_batch_that_begins_elsewhere_is_left_to_the_caller() -> None:
    """Where something lies between the sinks' end and the batch, it has to be looked at first."""
    written, waves = Written(), Waves(50, lambda: 1)
    with waves.written_beside(lambda: written.write(waves)):
        for each in RANGES:
            waves.put(each)
    assert waves.rest_of(RANGES) == RANGES
    assert written.waves == []


def test_a_wave_that_cannot_be_written_ends_the_batch() -> None:
    """Its error is raised once the reader has ended, and nothing is written after it."""
    tried, has_read, waves = Written(), False, Waves(100, lambda: 100)

    def write() -> None:
        for wave in waves:
            tried.note(wave)
            raise OutputFullError("no room")

    def read() -> None:
        nonlocal has_read
        with waves.written_beside(write):
            waves.put(RANGES[0])
            tried.wait_for(200)
            for each in RANGES[1:]:
                waves.put(each)
            has_read = True

    with pytest.raises(OutputFullError, match="no room"):
        read()
    assert has_read
    assert tried.waves == [(100, 200)]


def test_a_read_that_fails_ends_the_writing_first() -> None:
    """The sinks are at rest when the error is raised; a second read continues where the waves ended."""
    written, waves = Written(), Waves(100, lambda: 100)

    def read() -> None:
        with waves.written_beside(lambda: written.write(waves)):
            waves.put(RANGES[0])
            written.wait_for(200)
            raise ValueError("the job failed")

    with pytest.raises(ValueError, match="the job failed"):
        read()
    assert not any(thread.name.startswith("reput-waves") for thread in threading.enumerate())
    assert waves.rest_of(RANGES) == RANGES[1:]


def test_a_wave_ends_at_a_stop_however_little_it_has() -> None:
    """The ranges after it belong to the next wave; the reader can wait until everything is written."""
    written, waves = Written(), Waves(100, lambda: 200, {400, 600})
    with waves.written_beside(lambda: written.write(waves)):
        for each in RANGES:
            waves.put(each)
        assert waves.wait_for(600)
    assert waves.rest_of(RANGES) == []
    assert [end for _, end in written.waves if end in (400, 600)] == [400, 600]
    assert all(end - start >= 200 or end in (400, 600) for start, end in written.waves)


def test_what_is_waited_for_is_written_however_little_it_is() -> None:
    """Otherwise the reader and the writer would wait for each other."""
    written, waves = Written(), Waves(100, lambda: 10_000)
    with waves.written_beside(lambda: written.write(waves)):
        for each in RANGES[:3]:
            waves.put(each)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(waves.wait_for, 300).result(LIMIT_SECONDS)
    assert waves.rest_of(RANGES) == RANGES[3:]
    assert written.waves == [(100, 400)]


def test_who_waits_for_a_wave_that_cannot_be_written_goes_on() -> None:
    """And hears of it; the error itself is raised at the end."""
    waves = Waves(100, lambda: 100)

    def write() -> None:
        for _ in waves:
            raise OutputFullError("no room")

    def read() -> None:
        with waves.written_beside(write):
            waves.put(RANGES[0])
            assert not waves.wait_for(200)

    with pytest.raises(OutputFullError, match="no room"):
        read()
