"""What a run remembers: rates, offsets that only grow, and counts from many threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.seen_log import SeenLog

from reput.streaming.output.log_end import LogEnd
from reput.streaming.status.batch_report import BatchReport
from reput.streaming.status.run_state import RunState


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_last_minute() -> None:
    """Not that of a batch, which a small one would make look slow."""
    clock = Clock()
    state = RunState("a", clock=clock)
    assert state.query("logic").messages_per_second(clock.now) is None
    for second in range(200):
        clock.now += 1.0
        state.on_batch(BatchReport("logic", second, second + 1, 5 if second < 100 else 50, 0.9))
        state.look(SeenLog(LogEnd(second + 1)))
    assert state.query("logic").messages_per_second(clock.now) == pytest.approx(50.0)


def test_a_query_that_is_opened_again_keeps_its_end() -> None:
    """It may be told where it ends before it has looked."""
    state = RunState("a")
    state.on_running("logic", 100)
    state.on_waiting("logic", "a worker died", 1.0, 1)
    state.on_running("logic", 0)
    assert (state.query("logic").end, state.query("logic").restarts) == (100, 1)


def test_batches_from_many_threads_are_all_counted() -> None:
    """Each query reports from a thread of its own, while others read."""
    state = RunState("a")

    def report(number: int) -> None:
        state.on_batch(BatchReport(("logic", "table")[number % 2], number, number + 1, 3, 0.1))
        state.look(SeenLog(LogEnd(number)))
        state.count("expired_files", "index")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(report, range(400)))
    assert [state.query(name).messages for name in ("logic", "table")] == [600, 600]
    assert state.counts["expired_files", "index"] == 400
