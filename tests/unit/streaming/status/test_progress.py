"""Lines in the log and the live table: each query's own lag, few lines, and what was found at once."""

from __future__ import annotations

import io
import logging
from functools import partial

import pytest
from rich.console import Console
from support.seen_log import SeenLog

from reput.sinks.anomalies import AnomalyCounts
from reput.streaming.process.process_log import Allowance
from reput.streaming.status import progress
from reput.streaming.status.batch_report import BatchReport, Lag, LogEnd, duration_text
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.status.run_state import RunState

NOW = 30.0


def report(query: str, end: int) -> BatchReport:
    return BatchReport(query, 0, end, 1, 1.0)


def quiet_console() -> Console:
    return Console(file=io.StringIO())


@pytest.mark.parametrize(
    ("log", "end", "stored", "words"),
    [
        (LogEnd(500), 500, None, "0 bytes and 0.0 s behind"),
        (LogEnd(500), 600, None, "0 bytes and 0.0 s behind"),  # the query was quicker than the look
        (LogEnd(500), 200, 28_500, "300 bytes and 1.5 s behind"),
        (LogEnd(500), 200, 31_000, "300 bytes and 0.0 s behind"),  # the broker's clock is ahead
        (LogEnd(500), 200, None, "300 bytes and ? s behind"),
        (None, 200, 28_500, "? bytes and ? s behind"),
    ],
)
def test_the_words(log: LogEnd | None, end: int, stored: int | None, words: str) -> None:
    """Seconds are the age of the first message that the query lacks."""
    watch = SeenLog(log, {} if stored is None else {end: stored})
    assert str(Lag.of(log, end, watch, NOW)) == words


def test_one_message_after_an_hour_of_silence_is_no_hour_behind() -> None:
    """The age counts from the message that is missing, not from the one before it."""
    watch = SeenLog(LogEnd(500), {400: 3_600_000})
    assert Lag.of(watch.end, 400, watch, 3_600.2).seconds == pytest.approx(0.2)


def test_each_query_has_a_lag_of_its_own_from_its_first_line_on(caplog: pytest.LogCaptureFixture) -> None:
    """The table is behind while the queues are not, and both lines and the summary say so."""
    reporter = ProgressReporter(quiet_console(), RunState(clock=lambda: NOW))
    log = SeenLog(LogEnd(900), {300: 18_000, 400: 19_000})
    reporter.start(log)
    with caplog.at_level(logging.INFO, "reput"):
        for query, end in (("logic", 900), ("table", 300), ("table", 400)):
            reporter.on_batch(report(query, end))
    assert [line.split("MB/s, ")[1] for line in caplog.messages] == [
        "0 bytes and 0.0 s behind",
        "600 bytes and 12.0 s behind",
        "500 bytes and 11.0 s behind",
    ]
    log.end, log.stored = LogEnd(1_000), {900: 29_000, 400: 17_000}  # while the run ends
    reporter.stop()
    assert [line.split("offset ")[1] for line in reporter.summary()] == [
        "900, 100 bytes and 1.0 s behind",
        "400, 600 bytes and 13.0 s behind",
    ]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock of the lines, in seconds; a test moves it."""
    now = [1_000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_are_few_unless_something_was_found(caplog: pytest.LogCaptureFixture, now: list[float]) -> None:
    """A line a minute has all batches since the last one; a finding is logged at once; silence is not logged."""
    reporter = ProgressReporter(quiet_console(), line_every_s=60.0)
    with caplog.at_level(logging.INFO, "reput"):
        for number in range(100):
            now[0] += 1.0
            reporter.on_batch(BatchReport("logic", 10 * number, 10 * number + 10, 2, 0.5))
        first, second = caplog.messages
        assert first.startswith("logic: [0, 10): 2 messages, 4 messages/s")
        assert second.startswith("logic: [10, 610): 120 messages in 60 batches, 2 messages/s")
        reporter.on_batch(BatchReport("logic", 1_000, 1_010, 2, 0.5, AnomalyCounts(gap=1)))
        assert caplog.messages[2].startswith("logic: [610, 1010): 80 messages in 40 batches")
        assert caplog.messages[2].endswith("anomalies: 1 gap")
        for _ in range(200):
            now[0] += 1.0
            reporter.refresh()
        assert len(caplog.messages) == 3
        reporter.on_batch(BatchReport("logic", 1_010, 1_020, 2, 0.5))
        reporter.stop()
        assert len(caplog.messages) == 4


def test_a_line_that_is_due_is_told_without_a_further_batch(caplog: pytest.LogCaptureFixture, now: list[float]) -> None:
    """The last batch before a silence is logged a minute later, not when the silence ends."""
    reporter = ProgressReporter(quiet_console(), line_every_s=60.0)
    with caplog.at_level(logging.INFO, "reput"):
        reporter.on_batch(report("logic", 10))
        reporter.on_batch(report("logic", 20))
        assert len(caplog.messages) == 1
        now[0] += 61.0
        reporter.refresh()
        assert len(caplog.messages) == 2


def test_a_line_that_says_behind_is_followed_when_that_is_over(
    caplog: pytest.LogCaptureFixture, now: list[float]
) -> None:
    """A log at rest, whose last record is held back for a while: the last line says that all of it is kept."""
    reporter = ProgressReporter(quiet_console(), line_every_s=60.0)
    reporter.start(SeenLog(LogEnd(20), {10: 18_000}))
    with caplog.at_level(logging.INFO, "reput"):
        reporter.on_batch(report("logic", 10))
        now[0] += 1.0
        reporter.on_batch(report("logic", 20))
        assert [line.split("MB/s, ")[1].split(" bytes")[0] for line in caplog.messages] == ["10", "0"]
        reporter.on_batch(report("logic", 20))
        assert len(caplog.messages) == 2


def test_findings_in_batch_after_batch_are_few_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, now: list[float]
) -> None:
    """A log that is out of order for years: some lines at once, then one a minute, with every count in one of them."""
    monkeypatch.setattr(progress, "Allowance", partial(Allowance, clock=lambda: now[0]))
    reporter = ProgressReporter(quiet_console(), line_every_s=60.0)
    with caplog.at_level(logging.INFO, "reput"):
        for number in range(6_000):
            now[0] += 0.1
            reporter.on_batch(BatchReport("logic", number, number + 1, 1, 0.1, AnomalyCounts(gap=1)))
        reporter.stop()
    assert len(caplog.messages) <= 20 + 2 * 10 + 1
    assert sum(int(line.split("anomalies: ")[1].split()[0]) for line in caplog.messages) == 6_000


def test_the_terminal_says_at_once_what_the_run_does() -> None:
    """Before Spark has started there is a state and a reason, and no empty table."""
    shown = io.StringIO()
    with ProgressReporter(Console(file=shown, force_terminal=True, width=80, color_system=None)) as reporter:
        reporter.starting("starts Spark")
        assert "starting  starts Spark" in shown.getvalue()
        assert "query" not in shown.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "?"), (0.04, "0.0 s"), (119.9, "119.9 s"), (150.0, "2.5 min"), (7_300.0, "2.0 h"), (200_000.0, "2.3 d")],
)
def test_durations_for_people(seconds: float | None, words: str) -> None:
    """Two of a unit at least, so that nothing is rounded away."""
    assert duration_text(seconds) == words
