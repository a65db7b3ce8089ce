"""What tasks have read is written while others read: in log order, once, never past a gap."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from reput.source.errors import OutputFullError
from reput.streaming.effects.range_task import RangeEffects
from reput.streaming.effects.waves import OnRange, Waves

LIMIT_SECONDS = 20


def effects(start: int, end: int) -> RangeEffects:
    return RangeEffects(start, end, is_whole=True)


RANGES = [effects(start, end) for start, end in pairwise(range(100, 700, 100))]


class Written:
    """The waves that were written; `wait_for` waits until one ends at an offset."""

    def __init__(self) -> None:
        self.waves: list[tuple[int, int]] = []
        self._changed = threading.Condition()

    def write(self, wave: RangeEffects) -> None:
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
    written = Written()
    waves = Waves(written.write, lambda: 200)

    def read(on_range: OnRange) -> list[RangeEffects]:
        for number in order:
            on_range(RANGES[number])
        written.wait_for()
        return RANGES

    left = waves.during(100, read)
    covered = [*written.waves, *((each.start, each.end) for each in left)]
    assert (covered[0][0], covered[-1][1]) == (100, 600)
    assert all(one[1] == after[0] for one, after in pairwise(covered))
    assert all(end - start >= 200 for start, end in written.waves)


def test_written_while_others_read() -> None:
    """The reader sees the first waves on disk before it has returned; a gap holds up what is behind it."""
    written = Written()
    waves = Waves(written.write, lambda: 100)

    def read(on_range: OnRange) -> list[RangeEffects]:
        on_range(RANGES[0])
        written.wait_for(200)
        on_range(RANGES[3])  # behind a gap
        on_range(RANGES[1])
        written.wait_for(300)
        return RANGES

    assert waves.during(100, read) == RANGES[2:]
    assert written.waves == [(100, 200), (200, 300)]


def test_a_batch_that_begins_elsewhere_is_left_to_the_caller() -> None:
    """Where something lies between the sinks' end and the batch, it has to be looked at first."""
    written = Written()

    def read(on_range: OnRange) -> list[RangeEffects]:
        for each in RANGES:
            on_range(each)
        return RANGES

    assert Waves(written.write, lambda: 1).during(50, read) == RANGES
    assert written.waves == []


def test_a_wave_that_cannot_be_written_ends_the_batch() -> None:
    """Its error is raised once the reader has ended, and nothing is written behind it."""
    tried = Written()
    has_read = threading.Event()

    def write(wave: RangeEffects) -> None:
        tried.write(wave)
        raise OutputFullError("no room")

    def read(on_range: OnRange) -> list[RangeEffects]:
        on_range(RANGES[0])
        tried.wait_for(200)
        for each in RANGES[1:]:
            on_range(each)
        has_read.set()
        return RANGES

    waves = Waves(write, lambda: 100)
    with pytest.raises(OutputFullError, match="no room"):
        waves.during(100, read)
    assert has_read.is_set()
    assert tried.waves == [(100, 200)]


def test_a_job_that_fails_ends_the_writing_first() -> None:
    """Whoever looks at the sinks then finds them at rest; a second job goes on where the waves ended."""
    written = Written()
    waves = Waves(written.write, lambda: 100)

    def fail(on_range: OnRange) -> list[RangeEffects]:
        on_range(RANGES[0])
        written.wait_for(200)
        raise ValueError("the job failed")

    with pytest.raises(ValueError, match="the job failed"):
        waves.during(100, fail)
    assert not any(thread.name.startswith("reput-waves") for thread in threading.enumerate())
    assert waves.during(200, lambda _: RANGES) == RANGES[1:]


def test_a_wave_ends_at_a_stop_however_little_it_has() -> None:
    """What lies behind belongs to the next wave; who reads can wait until all is written."""
    written = Written()
    waves = Waves(written.write, lambda: 200, {400, 600})

    def read(on_range: OnRange) -> list[RangeEffects]:
        for each in RANGES:
            on_range(each)
        assert waves.wait_for(600)
        return RANGES

    assert waves.during(100, read) == []
    assert [end for _, end in written.waves if end in (400, 600)] == [400, 600]
    assert all(end - start >= 200 or end in (400, 600) for start, end in written.waves)


def test_what_is_waited_for_is_written_however_little_it_is() -> None:
    """Otherwise the reader and the writer would wait for each other."""
    written = Written()
    waves = Waves(written.write, lambda: 10_000)

    def read(on_range: OnRange) -> list[RangeEffects]:
        for each in RANGES[:3]:
            on_range(each)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(waves.wait_for, 300).result(LIMIT_SECONDS)
        return RANGES

    assert waves.during(100, read) == RANGES[3:]
    assert written.waves == [(100, 400)]


def test_who_waits_for_a_wave_that_cannot_be_written_goes_on() -> None:
    """And hears of it; the error itself is raised at the end."""

    def write(_: RangeEffects) -> None:
        raise OutputFullError("no room")

    def read(on_range: OnRange) -> list[RangeEffects]:
        on_range(RANGES[0])
        assert not waves.wait_for(200)
        return RANGES

    waves = Waves(write, lambda: 100)
    with pytest.raises(OutputFullError, match="no room"):
        waves.during(100, read)


def test_what_is_left_behind_is_written_before_the_next_waves() -> None:
    """Reading goes on meanwhile; its waves wait."""
    written, may_write = Written(), threading.Event()

    def rest() -> None:
        assert may_write.wait(LIMIT_SECONDS)
        written.write(RANGES[0])

    waves = Waves(written.write, lambda: 100)
    waves.leave_behind(rest)
    assert waves.is_writing

    def read(on_range: OnRange) -> list[RangeEffects]:
        on_range(RANGES[1])
        time.sleep(0.1)  # a wave that does not wait is written by then
        assert written.waves == []
        may_write.set()
        written.wait_for(300)
        return RANGES[1:]

    assert waves.during(200, read) == RANGES[2:]
    assert written.waves == [(100, 200), (200, 300)]
    assert not waves.is_writing


@pytest.mark.parametrize("next_step", ["settle", "during", "leave_behind"])
def test_an_error_of_what_is_left_behind_is_raised_once_and_nothing_is_written_behind_it(next_step: str) -> None:
    """Whoever comes next hears of it; after that the sinks have to be opened anew, and nobody asks again."""
    written = Written()

    def rest() -> None:
        raise OutputFullError("no room")

    def read(on_range: OnRange) -> list[RangeEffects]:
        for each in RANGES[1:]:
            on_range(each)
        return RANGES[1:]

    waves = Waves(written.write, lambda: 100)
    waves.leave_behind(rest)
    with pytest.raises(OutputFullError, match="no room"):
        {
            "settle": waves.settle,
            "during": lambda: waves.during(200, read),
            "leave_behind": lambda: waves.leave_behind(lambda: written.write(RANGES[1])),
        }[next_step]()
    waves.settle()
    assert written.waves == []
