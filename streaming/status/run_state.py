"""The facts about one broker's run, collected from its queries; everything that is shown is read from here.

The queries' threads report batches. The main thread looks at the log and notes why a query waits. Code that shows the
state takes a snapshot (``status_document``, ``publisher``) from a thread of its own. `judge` has one word for a run,
and the reason. It judges by observations over a while, so that the word does not flicker at a limit.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from prometheus_client import Histogram

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.source.errors import OutputFullError, ReputError, says_no_room
from reput.source.printable import printable
from reput.streaming.status.batch_report import BatchReport, Lag, LogEnd, LogWatch, duration_text, size_text

# Lags are kept for an hour, one for every few seconds, and batches until there are newer ones.
_LAGS_KEPT_S, _LAGS_A_SAMPLE_S = 3600.0, 5.0
_BATCHES_KEPT = 20
_MINUTE_S, _MINUTES_KEPT = 60.0, 61
_FINDINGS_KEPT = 50
# The time of day was set if it differs from a steady clock by more than this; a thread may rest between both readings.
_SET_FROM_S = 1.0

#: Seconds of micro-batches by broker, query and phase, of all runs of this process.
BATCH_SECONDS = Histogram(
    "rocketmq_reput_batch_seconds",
    "Seconds that a micro-batch spends in a phase: plan, read, write, sync or commit.",
    ["broker", "query", "phase"],
    registry=None,
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)


class QueryPhase(Enum):
    """The phase of a query between its start and the end of the run."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    ENDED = "ended"


@dataclass(frozen=True)
class LagSample:
    """The lag `at` the end of a stretch of time that has `begun` a few seconds before, by ``RunState.clock``.

    `least_seconds` is the least lag in it, None if none was known; by then `messages` were kept in this run, in
    `batches` micro-batches, up to the physical offset `end`.
    """

    begun: float
    at: float
    lag: Lag
    least_seconds: float | None
    messages: int
    batches: int = 0
    end: int | None = None


@dataclass(frozen=True)
class RunFinding:
    """Something in the log or the run that an operator may have to look at: a line, and `at` what time.

    The time is by ``RunState.clock``.
    """

    at: float
    query: str
    text: str


@dataclass
class GroupMoves:
    """The moves of a consumer group in the queues of a topic during the run; `moved_at` is by ``RunState.clock``."""

    passed: int = 0
    resets: int = 0
    moved_at: float = 0.0


@dataclass
class QueryState:
    """One query's part of the run; times are seconds by ``RunState.clock``."""

    phase: QueryPhase = QueryPhase.STARTING
    batches: int = 0
    messages: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    end: int | None = None
    read_end: int | None = None
    last: BatchReport | None = None
    last_at: float | None = None
    anomalies: AnomalyCounts = NO_ANOMALIES
    quarantined: Counter[str] = field(default_factory=Counter)
    expired_bytes: int = 0
    waits_for: str | None = None
    waits_code: str | None = None
    waits_since: float | None = None
    waits_until: float | None = None
    attempt: int = 0
    restarts: int = 0
    restarted_at: deque[float] = field(default_factory=lambda: deque(maxlen=_FINDINGS_KEPT))
    bad_end: str | None = None
    lag: Lag = field(default_factory=Lag)
    lags: deque[LagSample] = field(default_factory=deque)
    recent: deque[tuple[float, BatchReport]] = field(default_factory=lambda: deque(maxlen=_BATCHES_KEPT))

    def note_lag(self, lag: Lag, now: float) -> None:
        """Note the lag at `now`."""
        self.lag = lag
        last = self.lags[-1] if self.lags else None
        if last is not None and now - last.begun < _LAGS_A_SAMPLE_S:
            known = [each for each in (last.least_seconds, lag.seconds) if each is not None]
            self.lags[-1] = self._sample(last.begun, now, lag, min(known, default=None))
        else:
            self.lags.append(self._sample(now, now, lag, lag.seconds))
        while self.lags[0].at < now - _LAGS_KEPT_S:
            self.lags.popleft()

    def _sample(self, begun: float, now: float, lag: Lag, least_seconds: float | None) -> LagSample:
        return LagSample(begun, now, lag, least_seconds, self.messages, self.batches, self.end)

    def messages_per_second(self, now: float, window_s: float = 60.0) -> float | None:
        """Return the rate of the last `window_s` seconds, or since the first look at the log; None before that look."""
        before = next((sample for sample in self.lags if sample.at >= now - window_s), None)
        if before is None or now - before.at < 1.0:
            return None
        return (self.messages - before.messages) / (now - before.at)


class RunState:
    """One broker's run; every method may be called by any thread."""

    def __init__(
        self,
        broker: str = "",
        facts: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], float] | None = None,
    ) -> None:
        """Take `facts` that do not change: paths, versions, options other than defaults; they must fit into JSON.

        `clock` returns seconds of a clock that cannot be set: every time is noted by it. `time_of_day` returns seconds
        since the epoch; by default it is the machine's, or `clock` if that is given.
        """
        self.broker = broker
        self.facts: dict[str, Any] = dict(facts or {})
        self.clock = clock
        self.time_of_day = time_of_day or (time.time if clock is time.monotonic else clock)
        self.started_at = clock()
        self._to_epoch = self.time_of_day() - self.started_at
        self.stage = "starting"
        self.ended: str | None = None
        self.exit_code: int | None = None
        self.queries: dict[str, QueryState] = {}
        self.log_end: LogEnd | None = None
        self.looked_at: float | None = None
        self.findings: deque[RunFinding] = deque(maxlen=_FINDINGS_KEPT)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.gauges: dict[str, float] = {}
        #: The groups that moved, by group and topic.
        self.groups: dict[tuple[str, str], GroupMoves] = {}
        #: The begin of a minute, by `clock`, and how many messages groups passed in it; without minutes that have none.
        self.passed: deque[tuple[float, int]] = deque(maxlen=_MINUTES_KEPT)
        self._lock = threading.RLock()

    @contextmanager
    def read(self) -> Iterator[RunState]:
        """Keep other threads from changing it while it is read."""
        with self._lock:
            yield self

    def seconds_to_epoch(self) -> float:
        """Return the seconds that turn a time by `clock` into seconds since the epoch, by the present time of day.

        It is the same as before unless the time of day was set, so the time shown for a moment does not waver.
        """
        to_epoch = self.time_of_day() - self.clock()
        if abs(to_epoch - self._to_epoch) > _SET_FROM_S:
            self._to_epoch = to_epoch
        return self._to_epoch

    def query(self, name: str) -> QueryState:
        """Return the query of that name; the first call makes it."""
        with self._lock:
            return self.queries.setdefault(name, QueryState())

    def on_stage(self, words: str) -> None:
        """Note, in a few words for people, what the run does before its queries run."""
        with self._lock:
            self.stage = words

    def on_batch(self, report: BatchReport) -> None:
        """Count a durable batch."""
        now = self.clock()
        with self._lock:
            state = self.query(report.query)
            state.batches += 1
            state.messages += report.messages
            state.size_bytes += report.end - report.start
            state.seconds += report.seconds
            state.end, state.last, state.last_at = report.end, report, now
            state.read_end = max(state.read_end or 0, report.end)
            state.anomalies += report.anomalies
            state.quarantined += report.quarantined
            state.expired_bytes += report.expired_bytes
            state.recent.append((now, report))
        self.on_phases(report.query, report.phases)

    def on_phases(self, query: str, phases: Mapping[str, float]) -> None:
        """Count seconds of a batch by phase; Spark's own are known only after the batch was reported."""
        for phase, seconds in phases.items():
            BATCH_SECONDS.labels(self.broker, query, phase).observe(seconds)

    def on_read(self, query: str, end: int) -> None:
        """Note that a query has read the log up to `end`; the effects are not durable yet."""
        with self._lock:
            self.query(query).read_end = end

    def on_running(self, query: str, end: int) -> None:
        """Note that a query was opened, for the first time or after a wait, and begins at the record at `end`.

        A query that was waiting keeps that state until `on_resumed`, because it may fail again immediately.
        """
        with self._lock:
            state = self.query(query)
            state.end = end if state.end is None else max(end, state.end)
            if state.phase is not QueryPhase.WAITING:
                state.phase = QueryPhase.RUNNING

    def on_resumed(self, query: str) -> None:
        """Note that a query that had waited works again."""
        with self._lock:
            state = self.query(query)
            state.phase = QueryPhase.RUNNING
            state.waits_for = state.waits_code = state.waits_since = state.waits_until = None

    def on_waiting(self, query: str, cause: str, pause_s: float, attempt: int, code: str = ReputError.code) -> None:
        """Note that a query waits, for the `attempt`-th time since it last advanced, because of `cause`.

        `code` is that of the error, which is the same in every release; if Spark reports in its own words that there is
        no room, it is that of the output's error.
        """
        now = self.clock()
        with self._lock:
            state = self.query(query)
            if state.phase is not QueryPhase.WAITING:
                state.waits_since = now
            state.restarts += 1
            state.restarted_at.append(now)
            state.phase, state.waits_for, state.attempt = QueryPhase.WAITING, printable(cause), attempt
            state.waits_code = OutputFullError.code if says_no_room(cause) else code
            state.waits_until = now + pause_s

    def on_bad_end(self, query: str, words: str | None) -> None:
        """Note that a query waits at bytes that are not a record; None once it does not."""
        with self._lock:
            self.query(query).bad_end = words

    def on_finding(self, query: str, words: str) -> None:
        """Note something that an operator may have to look at."""
        with self._lock:
            self.findings.append(RunFinding(self.clock(), query, printable(words)))

    def count(self, name: str, label: str, amount: int = 1) -> None:
        """Add to one of the run's other counters."""
        with self._lock:
            self.counts[name, label] += amount

    def gauge(self, name: str, value: float) -> None:
        """Set one of the run's other figures."""
        with self._lock:
            self.gauges[name] = value

    def on_moves(self, moves: Iterable[tuple[str, str, int | None, int | None]]) -> None:
        """Note the moves of consumer groups: group, topic, and the offset before and after, in each queue that moved.

        A group that was seen for the first time, without an offset before, has not moved yet.
        """
        now, together = self.clock(), 0
        with self._lock:
            for group, topic, before, after in moves:
                if before is None:
                    continue
                known = self.groups.setdefault((group, topic), GroupMoves())
                known.moved_at = now
                step = 0 if after is None else after - before
                known.passed += max(0, step)
                known.resets += step < 0
                together += max(0, step)
            minute = now // _MINUTE_S * _MINUTE_S
            if self.passed and self.passed[-1][0] == minute:
                together += self.passed.pop()[1]
            self.passed.append((minute, together))

    def look(self, watch: LogWatch) -> LogEnd | None:
        """Look for the log's end, and note how far each query lags."""
        with self._lock:
            ends = {name: state.end for name, state in self.queries.items() if state.end is not None}
        log_end = watch.look(max(ends.values())) if ends else None
        now = self.clock()
        lags = {name: Lag.of(log_end, end, watch, self.time_of_day()) for name, end in ends.items()}
        with self._lock:
            self.log_end, self.looked_at = log_end, now
            for name, lag in lags.items():
                self.queries[name].note_lag(lag, now)
        return log_end

    def on_begun_again(self) -> None:
        """Note that a run that has ended starts again; its counts stay."""
        with self._lock:
            self.ended = self.exit_code = None
            for state in self.queries.values():
                state.phase = QueryPhase.STARTING

    def on_end(self, words: str, exit_code: int) -> None:
        """Note how the run ended."""
        with self._lock:
            self.ended, self.exit_code = printable(words), exit_code
            for state in self.queries.values():
                state.phase = QueryPhase.ENDED


#: A query lags if, for this long, it always lacked a message that was this old.
LAG_WINDOW_S = 60.0
#: A finding degrades a run for this long.
FINDING_WINDOW_S = 3600.0
# More starts of a query than this within `FINDING_WINDOW_S` degrade the run.
_RESTARTS_MAX = 3
# The speed is measured over at least this many micro-batches: the first is small, so that messages come soon.
_BATCHES_TELL = 2


class State(Enum):
    """The state of a run; where several fit, the first in this order counts."""

    STOPPED = "stopped"
    STARTING = "starting"
    WAITING = "waiting"
    LAGGING = "lagging"
    DEGRADED = "degraded"
    RUNNING = "running"


@dataclass(frozen=True)
class Judgement:
    """The state, and the reason in a line for people."""

    state: State
    reason: str


def judge(run: RunState) -> Judgement:
    """Return the present state of the run."""
    with run.read():
        now = run.clock()
        if run.ended is not None:
            return Judgement(State.STOPPED, run.ended)
        for name, query in sorted(run.queries.items()):
            if query.phase is QueryPhase.WAITING and query.waits_since is not None:
                waited = f"{name} has waited {duration_text(now - query.waits_since)}, attempt {query.attempt}"
                return Judgement(State.WAITING, f"{waited}: {query.waits_for}")
        for name, query in sorted(run.queries.items()):
            if query.bad_end is not None:
                return Judgement(State.WAITING, f"{name} waits: {query.bad_end}")
        if not run.queries or any(query.phase is QueryPhase.STARTING for query in run.queries.values()):
            return Judgement(State.STARTING, run.stage)
        for name, query in sorted(run.queries.items()):
            if _lags(query, now):
                return Judgement(State.LAGGING, f"{name} is {_behind(query)} behind, {_outlook(query, now)}")
        if (reason := next(_findings(run, now), None)) is not None:
            return Judgement(State.DEGRADED, reason)
        return Judgement(State.RUNNING, _running(run))


def _lags(query: QueryState, now: float) -> bool:
    seen = [sample for sample in query.lags if sample.at >= now - LAG_WINDOW_S]
    if not seen or query.lags[0].begun > now - LAG_WINDOW_S:  # too young to tell
        return False
    least = [sample.least_seconds for sample in seen]
    return all(seconds is not None and seconds > LAG_WINDOW_S for seconds in least)


def _behind(query: QueryState) -> str:
    return f"{size_text(query.lag.size_bytes)} and {duration_text(query.lag.seconds)}"


def _outlook(query: QueryState, now: float) -> str:
    """Return whether a query that lags catches up, by its speed and the log's over the last five windows.

    A micro-batch of gigabytes may be at work, whose messages do not count before its end. So the messages that the
    query kept are divided by the time until the last batch ended, and one batch alone measures nothing.
    """
    behind = query.lag.size_bytes
    before = next((each for each in query.lags if each.at >= now - 5 * LAG_WINDOW_S), None)
    if before is None or before.lag.size_bytes is None or behind is None or before.end is None or query.end is None:
        return "not known yet whether it catches up"
    ended_at = before.at if query.last_at is None else query.last_at
    if query.batches - before.batches < _BATCHES_TELL or ended_at <= before.at:
        return "not known yet whether it catches up"
    grown = (query.end + behind - before.end - before.lag.size_bytes) / (now - before.at)
    gained = (query.end - before.end) / (ended_at - before.at) - grown
    if gained <= 0:
        return "and does not catch up"
    return f"caught up in about {duration_text(behind / gained)}"


def _findings(run: RunState, now: float) -> Iterator[str]:
    for finding in reversed(run.findings):
        if finding.at >= now - FINDING_WINDOW_S:
            yield f"{duration_text(now - finding.at)} ago, {finding.query}: {finding.text}"
    for name, query in sorted(run.queries.items()):
        recent = [at for at in query.restarted_at if at >= now - FINDING_WINDOW_S]
        if len(recent) > _RESTARTS_MAX:
            yield f"{name} was started again {len(recent)} times within the last hour"


def _running(run: RunState) -> str:
    if all(query.lag.size_bytes == 0 for query in run.queries.values()):
        return "all that is in the log is kept; waits for new messages"
    return ", ".join(f"{name} {_behind(query)} behind" for name, query in sorted(run.queries.items()))
