"""Some at once, then one in a while."""

from __future__ import annotations

from support.live_log import Clock

from reput.streaming.process.process_log import Allowance


def test_some_at_once_then_one_a_minute() -> None:
    """However often it is asked, and the rest comes back with time, but no more than there was."""
    clock = Clock()
    allowance = Allowance(3, 60.0, clock)
    assert [allowance.take() for _ in range(10)] == [True] * 3 + [False] * 7
    taken = 0
    for _ in range(36_000):
        clock.now += 0.1
        taken += allowance.take()
    assert taken in (59, 60)
    clock.now += 1e9
    assert [allowance.take() for _ in range(10)] == [True] * 3 + [False] * 7
