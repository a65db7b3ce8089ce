"""How far behind a query is: bytes to the end of the log now, and seconds between store timestamps."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest
from rich.console import Console
from support.record_writer import CommitLogWriter, Message, StoredRecord

from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import load_config
from reput.streaming.output.log_end import LogEnd, LogEndWatch
from reput.streaming.output.progress import BatchReport, Lag, ProgressReporter


def watch(store: Path, *options: str) -> LogEndWatch:
    config = load_config(store, overrides=options)
    return LogEndWatch(LogReader(SourceOptions.parse(config.source_options())))


def end_of(record: StoredRecord) -> int:
    return record.physical_offset + record.msg_size


def report(query: str, end: int, stored: int | None) -> BatchReport:
    return BatchReport(query, 0, end, 1, 1.0, store_timestamp=stored)


def test_the_end_moves_with_the_log(tmp_path: Path) -> None:
    """Its offset and the last record's time are those of now, over segments and their blanks."""
    with CommitLogWriter(tmp_path / "commitlog", 1024) as writer:
        seen = watch(tmp_path, "tailGuardMs=0")
        for number in range(40):
            writer.append(Message(store_timestamp=1_000_000 + 250 * number))
            end = LogEnd(end_of(writer.records[-1]), 1_000_000 + 250 * number)
            assert seen.look(0) == end
            assert seen.look(end.offset) == end


def test_a_record_that_is_held_back_is_no_lag(tmp_path: Path) -> None:
    """No query may read it yet; the end is before it, and so is the time."""
    with CommitLogWriter(tmp_path / "commitlog", 4096) as writer:
        for stored in (5_000, 9_000):
            writer.append(Message(store_timestamp=stored))
        assert watch(tmp_path, "tailGuardMs=60000").look(0) == LogEnd(end_of(writer.records[0]), 5_000)


def test_a_log_that_cannot_be_read_is_no_end(tmp_path: Path) -> None:
    """The queries say what is wrong; nothing that was seen before is taken for the end now."""
    with CommitLogWriter(tmp_path / "commitlog", 4096) as writer:
        writer.append(Message())
    seen = watch(tmp_path, "tailGuardMs=0")
    assert seen.look(0) is not None
    (tmp_path / "commitlog").rename(tmp_path / "gone")
    assert seen.look(0) is None


@pytest.mark.parametrize(
    ("log", "end", "stored", "words"),
    [
        (LogEnd(500, 9_500), 500, 9_500, "0 bytes and 0.0 s behind"),
        (LogEnd(500, 9_500), 600, 9_900, "0 bytes and 0.0 s behind"),  # the query was quicker than the look
        (LogEnd(500, 9_500), 500, None, "0 bytes and 0.0 s behind"),
        (LogEnd(500, 9_500), 200, 8_000, "300 bytes and 1.5 s behind"),
        (LogEnd(500, 9_500), 200, 9_900, "300 bytes and 0.0 s behind"),  # store times may go back
        (LogEnd(500), 200, 8_000, "300 bytes and ? s behind"),
        (None, 200, 8_000, "? bytes and ? s behind"),
    ],
)
def test_the_words(log: LogEnd | None, end: int, stored: int | None, words: str) -> None:
    """Seconds are those between records, so that clocks do not matter."""
    assert str(Lag.between(log, end, stored)) == words


def test_each_query_has_a_lag_of_its_own_from_its_first_line_on(caplog: pytest.LogCaptureFixture) -> None:
    """The table is behind while the queues are not, and both lines and the summary say so."""
    reporter = ProgressReporter(Console(file=io.StringIO()))
    now = [LogEnd(900, 20_000)]
    reporter.start(lambda _: now[0])
    with caplog.at_level(logging.INFO, "reput"):
        reporter.on_batch(report("logic", 900, 20_000))
        reporter.on_batch(report("table", 300, 8_000))
        reporter.on_batch(report("table", 400, None))  # a batch that has no record ends where the last one was
    said = [record.getMessage() for record in caplog.records]
    assert [line.split("MB/s, ")[1] for line in said] == [
        "0 bytes and 0.0 s behind",
        "600 bytes and 12.0 s behind",
        "500 bytes and 12.0 s behind",
    ]
    now[0] = LogEnd(1_000, 21_000)  # while the run ends
    reporter.stop()
    assert [line.split("offset ")[1] for line in reporter.summary()] == [
        "900, 100 bytes and 1.0 s behind",
        "400, 600 bytes and 13.0 s behind",
    ]


def test_the_live_table_fits_a_narrow_terminal() -> None:
    """80 columns, with a log of terabytes; no figure is cut."""
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80, color_system=None)
    reporter = ProgressReporter(console)
    reporter.start(lambda _: LogEnd(21_000_000_000_000, 4_000_000_000))
    for messages, seconds, start in ((3_123_456_789, 9_000.0, 0), (2_345_678, 0.5, 19_998_000_000_000)):
        reporter.on_batch(
            BatchReport("logic", start, 19_998_765_432_100, messages, seconds, store_timestamp=3_000_000_000)
        )
    reporter.on_batch(BatchReport("table", 0, 10_000, 3, 4.0, store_timestamp=4_000_000_000 - 1_250))
    reporter.stop()
    assert "…" not in shown.getvalue()
    for figure in ("3,125,802,467", "4,691,356", "19998765432100", "1.0 TB", "1000000.0", "21.0 TB", "1.2"):
        assert figure in shown.getvalue()
