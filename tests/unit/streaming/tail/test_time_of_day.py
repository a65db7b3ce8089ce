"""The time of day that is set back is noticed, and nothing else is taken for that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.live_log import Clock

from reput.streaming.tail.tail import NOTICED_FROM_S, TimeOfDay

DAY_S = 86_400.0


class Machine:
    """A clock, and a time of day that can be set."""

    def __init__(self) -> None:
        self.clock, self.epoch = Clock(), 1e9
        self.watch = TimeOfDay(lambda: self.epoch + self.clock.now, self.clock)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_set_back_is_noticed_once(machine: Machine) -> None:
    """By how much, from the moment when the watch was made; each change counts again."""
    for _ in range(2):
        machine.epoch -= 3 * DAY_S
        machine.clock.now += 0.2
        assert machine.watch.set_back_by() == pytest.approx(3 * DAY_S)
        assert machine.watch.set_back_by() == 0.0


def test_forwards_a_suspended_machine_and_little_steps_are_nothing(machine: Machine) -> None:
    """No query waits longer for these: while a machine is suspended, only the time of day moves."""
    for step in (3 * DAY_S, 8 * 3_600.0, -0.9 * NOTICED_FROM_S, 0.3):
        machine.epoch += step
        machine.clock.now += 0.2
        assert machine.watch.set_back_by() == 0.0


def test_set_forwards_and_back_is_noticed(machine: Machine) -> None:
    """As by a time server whose answer was wrong: a query may have begun to wait in between."""
    machine.epoch += 3 * DAY_S
    assert machine.watch.set_back_by() == 0.0
    machine.epoch -= 3 * DAY_S
    assert machine.watch.set_back_by() == pytest.approx(3 * DAY_S)


def test_a_thread_that_rests_between_both_clocks_sees_nothing() -> None:
    """On a busy machine it may rest for seconds, anywhere."""

    def rests(*where: int) -> Iterator[float]:
        for number in range(9):
            yield 5.0 if number in where else 0.0

    for where in ((0,), (1,), (2,), (3,), (4,), (5,), (1, 5), (0, 4), (2, 4)):
        clock, rest = Clock(), rests(*where)

        def read(clock: Clock = clock, rest: Iterator[float] = rest) -> float:
            now = clock.now
            clock.now += next(rest)
            return now

        watch = TimeOfDay(read, read)
        assert watch.set_back_by() == 0.0, where
