"""A run as the user sees it: a live table on a terminal; elsewhere lines in the log, few when little happens."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reput.sinks.anomalies import NO_ANOMALIES
from reput.sinks.table.upkeep import UpkeepDone
from reput.source.printable import counted
from reput.streaming.output.paths import LOGIC, TABLE
from reput.streaming.process.failures import failure_of, one_line
from reput.streaming.process.interruption import is_set_within
from reput.streaming.process.process_log import Allowance
from reput.streaming.status.batch_report import BatchReport, Lag, LogEnd, LogWatch, duration_text, findings, size_text
from reput.streaming.status.run_state import Judgement, QueryPhase, QueryState, RunState, State, judge
from reput.streaming.status.status_document import worst_first, worst_of

# ----------------------------------------------------------------------------------------------------------------------
# The live screen on a terminal: a run's state and why, then a line for each query; a line each of several runs.

_REFRESHED_AFTER_S = 0.5
# By default the table gets a micro-batch every 10 s; the rate of a shorter time would jump.
_RATE_WINDOW_S = 30.0
_STYLES = {State.RUNNING: "bold green", State.STOPPED: "bold red", State.WAITING: "bold red"}
# The columns of a query's line, each with the width of the narrowest terminal that shows it.
_COLUMNS = (
    *(("msg/s", 0), ("behind", 0), ("oldest", 0), ("messages", 50)),
    *(("findings", 64), ("restarts", 64), ("end offset", 100)),
)
# The same of a broker's line; under the queries' names is the age of the oldest message that each lacks.
_BROKER_COLUMNS = (("state", 0), ("logic", 0), ("table", 0), ("msg/s", 45), ("messages", 56), ("restarts", 100))
_NAME_WIDTH_MAX = 24
# Above the brokers' lines: the state of all, the heads of columns; below them: the length of the run, and the cursor.
_OTHER_LINES = 4


class Screen:
    """Shows the run twice a second from a thread of its own, and leaves the terminal as it was."""

    def __init__(self, console: Console, *states: RunState) -> None:
        """Show `states`, those of the process's brokers, of which there is at least one."""
        self._console = console
        self._states = states
        self._live = self._begun()
        self._size = console.size
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)

    def start(self) -> None:
        """Begin to show the run."""
        self._live.start(refresh=True)
        self._thread.start()

    def refresh(self) -> None:
        """Show changes at once."""
        with self._lock:
            if self._stopped.is_set():
                return
            size, before = self._console.size, self._size
            if size.width < before.width or size.height != before.height:  # the terminal wrapped or moved lines
                self._live.stop()
                self._console.clear()
                self._live = self._begun()
                self._live.start()
            self._size = size
            self._live.refresh()

    def stop(self) -> None:
        """Leave the terminal as it was."""
        with self._lock:
            self._stopped.set()
            self._live.stop()

    def _begun(self) -> Live:
        if len(self._states) == 1:
            shown = partial(screen_of, self._states[0], self._console)
        else:
            shown = partial(screen_of_several, self._states, self._console)
        return Live(console=self._console, get_renderable=shown, auto_refresh=False, transient=True)

    def _run(self) -> None:
        while not is_set_within(self._stopped, _REFRESHED_AFTER_S):
            self.refresh()


def screen_of(state: RunState, console: Console) -> Group:
    """Return a run's part of the terminal; no line is wider than the terminal."""
    with state.read():
        judged, now = judge(state), state.clock()
        reason = judged.reason
        if judged.state is State.STARTING:
            reason += f", {duration_text(now - state.started_at)}"
        head = _line((judged.state.value, _STYLES.get(judged.state, "bold yellow")), f"  {reason}")
        name = f"broker {state.broker}, " if state.broker else ""
        foot = _line((f"{name}runs for {duration_text(now - state.started_at)}; Ctrl-C stops it", "dim"))
        if not state.queries:
            return Group(head)
        return Group(head, _table(state.queries, now, console.width), foot)


def screen_of_several(states: Sequence[RunState], console: Console) -> Group:
    """Return the part of several brokers: the worst state and its reason, then a line each, the worst first.

    Brokers for which the terminal has no line are counted. No line is wider than the terminal.
    """
    judged, worst = worst_first(states), worst_of(states)
    counts = Counter(judgement.state for _, judgement in judged)
    summary = ", ".join(f"{count} {state.value}" for state, count in counts.items())
    head = _line((summary, _STYLES.get(worst.state, "bold yellow")), f"  {worst.reason}")
    shown = max(1, console.height - _OTHER_LINES)
    if shown < len(judged):
        shown = max(1, shown - 1)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("broker", no_wrap=True, max_width=_NAME_WIDTH_MAX, overflow="ellipsis")
    for name in (name for name, least in _BROKER_COLUMNS if console.width >= least):
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True)
    for state, judgement in judged[:shown]:
        cells = _cells(state, judgement)
        table.add_row(*cells[: len(table.columns)])
    left = len(judged) - shown
    more = [_line((f"and {left} more, none of them worse", "dim"))] if left > 0 else []
    runs_for = duration_text(states[0].clock() - states[0].started_at)
    foot = _line((f"{len(states)} brokers, runs for {runs_for}; Ctrl-C stops all", "dim"))
    return Group(head, table, *more, foot)


def _cells(run: RunState, judged: Judgement) -> list[str | Text]:
    """Return a broker's line: its state, the age of the oldest message that each query lacks, and its messages."""
    with run.read():
        now, queries = run.clock(), run.queries
        rates = [query.messages_per_second(now, _RATE_WINDOW_S) for query in queries.values()]
        known = [rate for rate in rates if rate is not None]
        return [
            Text(run.broker),
            Text(judged.state.value, _STYLES.get(judged.state, "bold yellow")),
            *(duration_text(queries[name].lag.seconds) if name in queries else "-" for name in (LOGIC, TABLE)),
            f"{max(known):,.0f}" if known else "-",
            f"{max((query.messages for query in queries.values()), default=0):,}",
            str(sum(query.restarts for query in queries.values())),
        ]


def _line(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _table(queries: dict[str, QueryState], now: float, width: int) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("query", no_wrap=True)
    for name in (name for name, least in _COLUMNS if width >= least):
        table.add_column(name, justify="right", no_wrap=True)
    for name, query in sorted(queries.items()):
        rate = query.messages_per_second(now, _RATE_WINDOW_S)
        found = sum(query.anomalies.as_dict().values()) + query.quarantined.total()
        cells = [
            name if query.phase is not QueryPhase.WAITING else f"{name} (waits)",
            "-" if rate is None else f"{rate:,.0f}",
            size_text(query.lag.size_bytes),
            duration_text(query.lag.seconds),
            f"{query.messages:,}",
            f"{found:,}",
            str(query.restarts),
            "-" if query.end is None else str(query.end),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table


_log = logging.getLogger("reput")
_MB = 1_000_000
_LOOKED_AT_EVERY_S = 1.0
# At most this many lines may come early because of findings; after that one in the time between two lines.
_FINDINGS_AT_ONCE = 20


def has_screen(console: Console) -> bool:
    """Whether runs are shown live on `console`; their lines are not logged then."""
    return console.is_terminal and not console.is_dumb_terminal


class _NoLog:
    """Takes the place of the log before the run has one."""

    def look(self, start: int) -> LogEnd | None:  # noqa: ARG002
        return None

    def store_timestamp_at(self, offset: int) -> int | None:  # noqa: ARG002
        return None


@dataclass
class _Line:
    """Batches of one query that share one line of the log: `report` has their sums, `begun_at` is monotonic."""

    report: BatchReport
    begun_at: float
    batches: int = 1

    def add(self, report: BatchReport) -> None:
        """Add the next batch."""
        self.batches += 1
        self.report = self.report.followed_by(report)


class ProgressReporter:
    """Collects the progress of the queries in a `RunState`, and shows it.

    On a terminal it is a live screen. Elsewhere each query gets a line in the log for its first batch, then at most one
    every `line_every_s` seconds, and one at once for a batch with findings, unless batch after batch has them. A line
    about a query that is behind is followed by another as soon as it has caught up.
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
        """Call `turn` whenever the run shows that it is alive, several times a second.

        If it is not `is_alone`, several brokers are shown on one screen.
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
        self._told_behind: set[str] = set()  # queries whose last line says that they are behind
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
        """Look for the log's end a last time, and log the lines that are left."""
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
        """Count files of queues and index that were removed, by the directory of their kind."""
        for kind, count in removed.items():
            self.state.count("expired_files", kind, count)

    def on_upkeep(self, done: UpkeepDone) -> None:
        """Count the results of the table's upkeep."""
        state = self.state
        state.count("table_merged_files", "messages", done.files_before)
        state.count("table_expired_rows", "messages", done.expired.rows)
        state.gauge("table_upkeep_refused", done.refused)
        if done.files is not None and done.small_files is not None:
            state.gauge("table_files", done.files)
            state.gauge("table_small_files", done.small_files)

    def refresh(self) -> None:
        """Look at the log and show how far each query lags; call this now and then."""
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
        """Return a line for each query about the whole run."""
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
        """Log the lines that are due, or `at_once` all lines."""
        now = time.monotonic()
        with self._lock:
            due = [name for name in self._lines if at_once or self._is_due(name, now)]
            lines = [self._lines.pop(name) for name in due]
            self._told_at.update(dict.fromkeys(due, now))
            self._told_behind.difference_update(due)
            self._told_behind.update(name for name in due if not self._has_caught_up(name))
        for line in () if self._has_screen else lines:
            query = line.report.query
            _log.info("%s", _words(line, self.state.query(query).lag, now), extra={"query": query})

    def _is_due(self, query: str, now: float) -> bool:
        if query in self._told_behind and self._has_caught_up(query):
            return True
        return now - self._told_at.get(query, -self._line_every_s) >= self._line_every_s

    def _has_caught_up(self, query: str) -> bool:
        return self.state.query(query).lag.size_bytes == 0


def _words(line: _Line, lag: Lag, now: float) -> str:
    """Return a batch's own rate, or that since the last line, in which the query may have waited for messages."""
    report, many = line.report, line.batches > 1
    seconds = max(now - line.begun_at if many else report.seconds, 1e-9)
    batches = f" in {counted(line.batches, 'batch')}" if many else ""
    return (
        f"{report.query}: [{report.start}, {report.end}): {counted(report.messages, 'message')}{batches}, "
        f"{report.messages / seconds:.0f} messages/s, {(report.end - report.start) / seconds / _MB:.1f} MB/s, {lag}"
        f"{findings(report.anomalies, report.quarantined)}"
    )
