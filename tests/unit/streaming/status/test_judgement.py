"""The state of a run in a word: what it is judged from, what beats what, and that it does not flicker."""

from __future__ import annotations

from collections import Counter

import pytest
from support.seen_log import SeenLog

from reput.sinks.anomalies import AnomalyCounts
from reput.streaming.status.batch_report import BatchReport, LogEnd
from reput.streaming.status.run_state import FINDING_WINDOW_S, LAG_WINDOW_S, RunState, State, judge

BEGIN = 1_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> float:
        return self.now


class Run:
    """A run of two queries, and a log that grows by 1,000 bytes a second."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.state = RunState("a", clock=self.clock)
        for query in ("logic", "table"):
            self.state.on_running(query, 0)
        self.log = SeenLog(LogEnd(0))
        self.behind_s = dict.fromkeys(("logic", "table"), 0.0)
        self.busy: set[str] = set()  # queries whose micro-batch is at work

    def live(self, seconds: float) -> None:
        """Let this many seconds pass, with a look in each; each query is its `behind_s` behind."""
        for _ in range(round(seconds)):
            self.clock.now += 1.0
            end = round(1_000 * (self.clock.now - BEGIN))
            self.log.end = LogEnd(end)
            for query, behind in self.behind_s.items():
                kept = max(0, end - round(1_000 * behind))
                known = self.state.query(query)
                if query in self.busy:
                    kept = known.end or 0
                elif kept != known.end:
                    known.end, known.batches, known.last_at = kept, known.batches + 1, self.clock.now
                self.log.stored[kept] = round(1_000 * (BEGIN + kept / 1_000))
            self.state.look(self.log)

    @property
    def judged(self) -> tuple[State, str]:
        judgement = judge(self.state)
        return judgement.state, judgement.reason


@pytest.fixture
def run() -> Run:
    return Run()


def test_it_starts_until_each_query_runs() -> None:
    """The reason is the stage."""
    state = RunState("a")
    state.on_stage("starts Spark")
    assert judge(state).state is State.STARTING
    assert judge(state).reason == "starts Spark"
    state.query("table")
    state.on_running("logic", 0)
    assert judge(state).state is State.STARTING
    state.on_running("table", 0)
    assert judge(state).state is State.RUNNING


def test_a_query_that_has_all_waits_for_messages(run: Run) -> None:
    """Nothing is wrong then, so the word is running."""
    run.live(5)
    assert run.judged == (State.RUNNING, "all that is in the log is kept; waits for new messages")


def test_behind_for_a_whole_window_is_lagging(run: Run) -> None:
    """Not for a moment: the lag of a window counts by its least, and so does the way back."""
    run.live(120)
    run.behind_s["table"] = LAG_WINDOW_S + 20
    run.live(LAG_WINDOW_S - 10)
    assert run.judged[0] is State.RUNNING
    run.live(20)
    state, reason = run.judged
    assert state is State.LAGGING
    assert reason == "table is 80.0 kB and 80.0 s behind, and does not catch up"
    run.behind_s["table"] = 3.0
    run.live(1)
    assert run.judged[0] is State.RUNNING


def test_a_saw_that_touches_the_ground_is_not_lagging(run: Run) -> None:
    """A table with a long trigger is far behind before each commit, and near the end after it."""
    for second in range(600):
        run.behind_s["table"] = float(second % 100)
        run.live(1)
        assert run.judged[0] is State.RUNNING


def test_lagging_says_when_it_is_over(run: Run) -> None:
    """From how the lag shrank."""
    run.behind_s["logic"] = 1_000.0
    run.clock.now += 2_000
    for _ in range(200):
        run.live(1)
        run.behind_s["logic"] -= 2.0
    assert run.judged[0] is State.LAGGING
    assert run.judged[1] == "logic is 602.0 kB and 10.0 min behind, caught up in about 5.0 min"


def test_a_restart_with_a_backlog_is_not_said_not_to_catch_up() -> None:
    """93 messages in, while gigabytes are at work; the log grows meanwhile, and 40 s later all is kept."""
    run = Run()
    run.clock.now += 4_000  # the log grew by 4 MB while nothing read it
    run.behind_s = {"logic": 3_999.0, "table": 3_999.0}
    run.live(3)
    run.busy = {"logic", "table"}
    for _ in range(90):
        run.live(1)
        state, reason = run.judged
        assert "does not catch up" not in reason
        assert state is State.RUNNING or reason.endswith("behind, not known yet whether it catches up")
    assert run.judged[0] is State.LAGGING
    run.busy, run.behind_s = {"table"}, {"logic": 5.0, "table": 5.0}
    run.live(1)
    assert run.judged[1].startswith("table is ")
    run.busy = set()
    run.live(1)
    assert run.judged[0] is State.RUNNING


def test_large_micro_batches_that_catch_up(run: Run) -> None:
    """The first small one, then each 200 kB in 100 s of a log that grows by half as much: sawteeth that get lower."""
    run.clock.now += 3_000
    run.behind_s = {"logic": 3_000.0, "table": 0.0}
    run.live(2)
    for number in range(1, 8):
        run.busy = {"logic"}
        run.live(99)
        assert "does not catch up" not in run.judged[1], number
        run.busy, run.behind_s["logic"] = set(), 3_000.0 - 100 * number
        run.live(1)
        if number > 2:
            assert "caught up in about" in run.judged[1]


def test_a_query_that_waits_beats_what_was_found(run: Run) -> None:
    """The reason has the cause and the begin of the wait; once the query runs again the reason is gone."""
    run.live(10)
    run.state.on_finding("logic", "something")
    run.state.on_waiting("table", "no room\x1b[2J", 5.0, 3)
    run.clock.now += 30
    run.state.on_waiting("table", "no room\x1b[2J", 10.0, 4)
    state, reason = run.judged
    assert state is State.WAITING
    assert reason.startswith("table has waited 30.0 s, attempt 4: no room")
    assert "\x1b" not in reason
    run.state.on_running("table", 10)
    assert run.judged[0] is State.WAITING  # it was opened, and may fail again at once
    run.state.on_resumed("table")
    assert run.judged == (State.DEGRADED, "30.0 s ago, logic: something")
    assert run.state.query("table").restarts == 2


def test_what_is_no_record_is_waited_for(run: Run) -> None:
    """Even if the log continues after the bytes, the query will not do so by itself."""
    run.live(3)
    run.state.on_bad_end("logic", "the bytes at offset 3 are not a record (BAD_CRC)")
    assert run.judged == (State.WAITING, "logic waits: the bytes at offset 3 are not a record (BAD_CRC)")
    run.state.on_bad_end("logic", None)
    assert run.judged[0] is State.RUNNING


def test_findings_are_forgotten(run: Run) -> None:
    """A range left out degrades the run for an hour."""
    run.state.on_batch(BatchReport("logic", 0, 10, 1, 0.1, AnomalyCounts(gap=1), Counter(BAD_CRC=1)))
    run.state.on_finding("logic", "[0, 10), quarantined: 1 BAD_CRC")
    assert run.judged == (State.DEGRADED, "0.0 s ago, logic: [0, 10), quarantined: 1 BAD_CRC")
    run.clock.now += FINDING_WINDOW_S + 1
    run.live(2)
    assert run.judged[0] is State.RUNNING


def test_many_restarts_are_a_finding(run: Run) -> None:
    """Each passes by itself, and together they are worth a look."""
    run.live(2)
    for _ in range(4):
        assert run.judged[0] is State.RUNNING
        run.state.on_waiting("logic", "a worker died", 1.0, 1)
        run.state.on_running("logic", 10)
        run.state.on_resumed("logic")
    assert run.judged == (State.DEGRADED, "logic was started again 4 times within the last hour")


def test_an_end_is_final(run: Run) -> None:
    """With its reason and exit code."""
    run.state.on_waiting("table", "no room", 5.0, 3)
    run.state.on_end("no room for the output", 75)
    assert run.judged == (State.STOPPED, "no room for the output")
    assert run.state.exit_code == 75


def test_lags_are_kept_for_an_hour(run: Run) -> None:
    """Each of the last hour's samples is one of five seconds."""
    run.live(2 * 3_600)
    lags = run.state.query("logic").lags
    assert 3_600 / 5 - 2 <= len(lags) <= 3_600 / 5 + 2
    assert lags[0].at >= run.clock.now - 3_605
