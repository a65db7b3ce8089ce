"""The live screen on a terminal: a run's state and why, then a line for each query; a line each of several runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reput.streaming.output.spark_checkpoint import LOGIC, TABLE
from reput.streaming.process.interruption import is_set_within
from reput.streaming.status.batch_report import duration_text, size_text
from reput.streaming.status.judgement import Judgement, State, judge
from reput.streaming.status.run_state import QueryPhase, QueryState, RunState
from reput.streaming.status.status_document import worst_first, worst_of

_REFRESHED_AFTER_S = 0.5
# By default the table gets a micro-batch every 10 s; the rate of a shorter time would jump.
_RATE_WINDOW_S = 30.0
_STYLES = {State.RUNNING: "bold green", State.STOPPED: "bold red", State.WAITING: "bold red"}
# Of what a query has, and the width of the narrowest terminal that shows it.
_COLUMNS = (
    *(("msg/s", 0), ("behind", 0), ("oldest", 0), ("messages", 50)),
    *(("findings", 64), ("restarts", 64), ("end offset", 100)),
)
# Of a broker, as those of a query; under the queries' names is the age of the oldest message that each lacks.
_BROKER_COLUMNS = (("state", 0), ("logic", 0), ("table", 0), ("msg/s", 45), ("messages", 56), ("restarts", 100))
_NAME_WIDTH_MAX = 24
# Above the brokers' lines: the state of all, the heads of columns; below them: how long the run is, and the cursor.
_OTHER_LINES = 4


class Screen:
    """Shows the run twice a second from a thread of its own, and leaves the terminal as it was."""

    def __init__(self, console: Console, *states: RunState) -> None:
        """`states` are those of the process's brokers, one at least."""
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
        """Show at once what has changed."""
        with self._lock:
            if self._stopped.is_set():
                return
            size, before = self._console.size, self._size
            if size.width < before.width or size.height != before.height:  # lines were wrapped, or moved
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
    """What a terminal shows of a run; no line is wider."""
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
    """What a terminal shows of several brokers: the worst state and why, then a line each, the worst first.

    Those for which the terminal has no line are counted. No line is wider than it.
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
    """A broker's line: its state, how old the oldest message is that each query lacks, and what came."""
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
