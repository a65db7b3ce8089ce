"""The memory of a run: rates, offsets that only grow, and counts from many threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.seen_log import SeenLog

from reput.streaming.status.batch_report import BatchReport, LogEnd
from reput.streaming.status.run_state import RunState, State, judge
from reput.streaming.status.status_document import status_document


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


@pytest.mark.parametrize("step_s", [-3 * 86_400.0, 3 * 86_400.0])
def test_the_time_of_day_is_set_under_a_run(step_s: float) -> None:
    """Rates, waits and the judgement use the clock that cannot be set; displayed times use the present time of day."""
    clock, step = Clock(), 0.0
    state = RunState("a", clock=clock, time_of_day=lambda: 1e9 + clock.now + step)
    for query in ("logic", "table"):
        state.on_running(query, 0)
    for second in range(400):
        clock.now += 1.0
        if second == 200:
            step = step_s
            state.on_waiting("table", "no room", 5.0, 1)
        if second == 230:
            assert judge(state).reason == "table has waited 30.0 s, attempt 1: no room"
            state.on_resumed("table")
        state.on_batch(BatchReport("logic", second, second + 1, 50, 0.9))
        stored = round(1000 * state.time_of_day()) - 500
        state.look(SeenLog(LogEnd(second + 2), {second + 1: stored, 0: stored}))
        if second >= 10:
            assert state.query("logic").messages_per_second(clock.now) == pytest.approx(50.0)
    assert judge(state).state is State.RUNNING
    assert len(state.query("logic").lags) == pytest.approx(400 / 5, abs=2)
    document = status_document([state])
    (broker,), now = document["brokers"], 1e9 + clock.now + step_s
    assert document["at"] == now
    assert broker["startedAt"] == pytest.approx(now - 400)
    assert broker["log"]["lookedAt"] == pytest.approx(now)
    (logic, _) = broker["queries"]
    assert logic["lastBatchAt"] == pytest.approx(now)
    assert logic["lags"][-1][0] == pytest.approx(now)
    assert logic["recent"][0]["at"] == pytest.approx(now)


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


def test_what_consumer_groups_did() -> None:
    """Those that went back come first, then those that moved long ago; messages that all passed by minute."""
    clock = Clock()
    state = RunState("a", clock=clock)
    clock.now = 600.0
    state.on_moves([("new", "T", None, 9), ("slow", "T", 1, 2), ("stock", "T", 5, 9)])
    clock.now = 630.0
    state.on_moves([("stock", "T", 9, 3), ("stock", "T", 3, 4)])
    clock.now = 700.0
    state.on_moves([("billing", "T", 0, 7), ("gone", "T", 5, None)])
    (broker,) = status_document([state])["brokers"]
    told = broker["consumption"]
    assert told["groups"] == 4
    assert [(each["group"], each["passed"], each["resets"], each["movedAt"]) for each in told["first"]] == [
        ("stock", 5, 1, 630.0),
        ("slow", 1, 0, 600.0),
        ("billing", 7, 0, 700.0),
        ("gone", 0, 0, 700.0),
    ]
    assert told["passed"] == [[600.0, 6], [660.0, 7]]
    assert "consumption" not in status_document([state, RunState("b")])["brokers"][0]
