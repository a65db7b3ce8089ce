"""What the user sees of a run: a live table on a terminal; elsewhere lines in the log, few when little happens."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console

from reput.sinks.anomalies import NO_ANOMALIES
from reput.sinks.table.upkeep import UpkeepDone
from reput.source.errors import ReputError
from reput.source.printable import counted
from reput.streaming.output.log_end import LogEnd
from reput.streaming.process.allowance import Allowance
from reput.streaming.process.failures import failure_of, one_line
from reput.streaming.status.batch_report import BatchReport, Lag, LogWatch, findings
from reput.streaming.status.run_state import RunState
from reput.streaming.status.screen import Screen

_log = logging.getLogger("reput")
_MB = 1_000_000
_LOOKED_AT_EVERY_S = 1.0
# So many lines may be told before their time because something was found; then one in the time between two lines.
_FINDINGS_AT_ONCE = 20


def has_screen(console: Console) -> bool:
    """Whether runs are shown live there; their lines are not logged then."""
    return console.is_terminal and not console.is_dumb_terminal


class _NoLog:
    """Stands for the log before the run has one."""

    def look(self, start: int) -> LogEnd | None:  # noqa: ARG002
        return None

    def store_timestamp_at(self, offset: int) -> int | None:  # noqa: ARG002
        return None


@dataclass
class _Line:
    """Batches of one query that are told in one line of the log: `report` has their sums, `begun_at` is monotonic."""

    report: BatchReport
    begun_at: float
    batches: int = 1

    def add(self, report: BatchReport) -> None:
        """Add the next batch."""
        self.batches += 1
        self.report = self.report.followed_by(report)


class ProgressReporter:
    """Collects what the queries do in a `RunState`, and shows it.

    On a terminal it is a live screen. Elsewhere each query gets a line in the log for its first batch, then at most one
    every `line_every_s` seconds, and one at once for a batch in which something was found, unless that is so in batch
    after batch.
    """

    def __init__(
        self,
        console: Console,
        state: RunState | None = None,
        *,
        line_every_s: float = 0.0,
        turn: Callable[[], None] = lambda: None,
        is_alone: bool = True,
    ) -> None:
        """`turn` is called whenever the run shows that it is alive, several times a second.

        If it is not `is_alone`, whoever runs several shows them on one screen.
        """
        self.state = RunState() if state is None else state
        self._turn = turn
        self._has_screen = has_screen(console)
        self._screen = Screen(console, self.state) if self._has_screen and is_alone else None
        self._watch: LogWatch = _NoLog()
        self._looked_at = 0.0
        self._line_every_s = line_every_s
        self._lines: dict[str, _Line] = {}
        self._told_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self._at_once = Allowance(_FINDINGS_AT_ONCE, max(line_every_s, 1e-3))

    def __enter__(self) -> ProgressReporter:
        """Begin to show the run."""
        if self._screen is not None:
            self._screen.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was, and note how the run ended."""
        if self._screen is not None:
            self._screen.stop()
        if error is None:
            self.state.on_end("it ended as it was asked to", 0)
        elif isinstance(error, Exception):
            failure = failure_of(error)
            self.state.on_end(one_line(str(failure)), failure.exit_code)
        else:
            self.state.on_end("it was interrupted", 1)

    def starting(self, words: str) -> None:
        """Show what the run does before its queries run."""
        self.state.on_stage(words)
        self._turn()
        if self._screen is not None:
            self._screen.refresh()

    def start(self, watch: LogWatch) -> None:
        """Begin to show how far the queries are behind the log that `watch` sees."""
        self._watch = watch

    def stop(self) -> None:
        """Look for the log's end a last time, and tell what was not told yet."""
        self.state.look(self._watch)
        self._tell(at_once=True)

    def on_batch(self, report: BatchReport) -> None:
        """Count a durable batch, and show it."""
        self._turn()
        self.state.on_batch(report)
        found = findings(report.anomalies, report.quarantined)
        if found:
            self.state.on_finding(report.query, f"[{report.start}, {report.end}){found}")
        with self._lock:
            if report.query in self._lines:
                self._lines[report.query].add(report)
            else:
                begun_at = self._told_at.get(report.query, time.monotonic() - report.seconds)
                self._lines[report.query] = _Line(report, begun_at)
            at_once = bool(found) and self._at_once.take()
        self.state.look(self._watch)
        self._tell(at_once=at_once)

    def on_clean(self, removed: Mapping[str, int]) -> None:
        """Count files of queues and index that were removed, given by the directory of their kind."""
        for kind, count in removed.items():
            self.state.count("expired_files", kind, count)

    def on_upkeep(self, done: UpkeepDone) -> None:
        """Count what upkeep of the table did."""
        state = self.state
        state.count("table_merged_files", "messages", done.files_before)
        state.count("table_expired_rows", "messages", done.expired.rows)
        state.gauge("table_upkeep_refused", done.refused)
        if done.files is not None and done.small_files is not None:
            state.gauge("table_files", done.files)
            state.gauge("table_small_files", done.small_files)

    def on_running(self, query: str, end: int) -> None:
        """Note that a query was opened, and that it goes on at `end`, where a record begins."""
        self.state.on_running(query, end)

    def on_waiting(self, query: str, failure: str, pause_s: float, attempt: int, code: str = ReputError.code) -> None:
        """Note that a query failed and is opened again in `pause_s` seconds, for the `attempt`-th time in a row.

        `code` is that of the error.
        """
        self.state.on_waiting(query, failure, pause_s, attempt, code)

    def on_resumed(self, query: str) -> None:
        """Note that a query that was opened again has got on."""
        self.state.on_resumed(query)

    def refresh(self) -> None:
        """Look at the log and show how far the queries are behind it; to be called now and then."""
        self._turn()
        now = time.monotonic()
        if now - self._looked_at >= _LOOKED_AT_EVERY_S:
            self._looked_at = now
            self.state.look(self._watch)
            self._tell()

    def messages(self, query: str) -> int:
        """The number of messages that the query has processed in this run."""
        return self.state.query(query).messages

    def summary(self) -> list[str]:
        """A line for each query about the whole run."""
        with self.state.read() as state:
            at_end = NO_ANOMALIES if state.log_end is None else state.log_end.at_end
            return [
                f"{name}: {counted(query.messages, 'message')} in {counted(query.batches, 'batch')}, "
                f"{query.seconds:.2f} s, "
                f"{query.messages / max(query.seconds, 1e-9):.0f} messages/s, "
                f"{query.size_bytes / max(query.seconds, 1e-9) / _MB:.1f} MB/s, end offset {query.end}, "
                f"{query.lag}"
                f"{findings(query.anomalies + at_end, query.quarantined)}"
                for name, query in sorted(state.queries.items())
                if query.batches
            ]

    def _tell(self, *, at_once: bool = False) -> None:
        """Log the lines that are due; `at_once` all that there is to tell."""
        now = time.monotonic()
        with self._lock:
            due = [
                name
                for name in self._lines
                if at_once or now - self._told_at.get(name, -self._line_every_s) >= self._line_every_s
            ]
            lines = [self._lines.pop(name) for name in due]
            self._told_at.update(dict.fromkeys(due, now))
        for line in () if self._has_screen else lines:
            query = line.report.query
            _log.info("%s", _words(line, self.state.query(query).lag, now), extra={"query": query})


def _words(line: _Line, lag: Lag, now: float) -> str:
    """A batch's own rate, or that of the time since the last line, in which the query may have waited for messages."""
    report, many = line.report, line.batches > 1
    seconds = max(now - line.begun_at if many else report.seconds, 1e-9)
    batches = f" in {counted(line.batches, 'batch')}" if many else ""
    return (
        f"{report.query}: [{report.start}, {report.end}): {counted(report.messages, 'message')}{batches}, "
        f"{report.messages / seconds:.0f} messages/s, {(report.end - report.start) / seconds / _MB:.1f} MB/s, {lag}"
        f"{findings(report.anomalies, report.quarantined)}"
    )
