"""Writers that write the same effects side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.source.errors import SinkError
from reput.streaming.effects.effects import Effects, write_side_by_side

NOTHING = Effects(0, 0, None, None)


class Writer:
    """Does `action` for effects, and notes when it has ended."""

    sinks = ()

    def __init__(self, action: Callable[[], AnomalyCounts] = lambda: NO_ANOMALIES) -> None:
        self._action = action
        self.has_ended = threading.Event()

    def write(self, effects: Effects, *, more_follow: bool = False) -> AnomalyCounts:
        assert effects is NOTHING
        assert not more_follow
        try:
            return self._action()
        finally:
            self.has_ended.set()

    def finish(self) -> None:
        """Nothing is left for the end."""


def test_they_write_at_the_same_time() -> None:
    """Each waits for the others to have begun; what they met is added up."""
    barrier = threading.Barrier(3, timeout=30)

    def meet(number: int) -> Callable[[], AnomalyCounts]:
        def action() -> AnomalyCounts:
            barrier.wait()
            return AnomalyCounts(gap=number)

        return action

    writers = [Writer(meet(number)) for number in (1, 2, 4)]
    assert AnomalyCounts(gap=7) == write_side_by_side(writers, NOTHING)
    assert AnomalyCounts(gap=7) == write_side_by_side(writers, NOTHING)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("reput")]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_is_raised_when_all_have_ended(failing: int) -> None:
    """So no file is closed that another writer is still writing."""
    other_waits = threading.Event()

    def fail() -> AnomalyCounts:
        other_waits.wait(30)
        message = "no room"
        raise SinkError(message)

    def go_on() -> AnomalyCounts:
        other_waits.set()
        threading.Event().wait(0.05)
        return NO_ANOMALIES

    both = [Writer(go_on), Writer(go_on)]
    both[failing] = Writer(fail)
    with pytest.raises(SinkError, match=r"^no room$"):
        write_side_by_side(both, NOTHING)
    assert all(writer.has_ended.is_set() for writer in both)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_any_number_of_writers(count: int) -> None:
    """Nothing to write is nothing met."""
    assert write_side_by_side([Writer() for _ in range(count)], NOTHING) == NO_ANOMALIES
