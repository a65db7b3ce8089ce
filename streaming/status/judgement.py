"""One word for a run, and why: judged from what was seen over a while, so that it does not flicker at a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from reput.streaming.status.batch_report import duration_text, size_text
from reput.streaming.status.run_state import QueryPhase, QueryState, RunState

#: A query lags if for so long it never had all messages that were as old as this.
LAG_WINDOW_S = 60.0
#: What was found degrades a run for so long.
FINDING_WINDOW_S = 3600.0
# More starts of a query than these within `FINDING_WINDOW_S` are no accident.
_RESTARTS_MAX = 3
# A first micro-batch is small, so that messages come soon.
_BATCHES_TELL = 2


class State(Enum):
    """What a run is like; where several fit, the first in this order counts."""

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
    """What the run is like now."""
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
    """Whether a query that lags catches up, by how fast it and the log went on over the last five windows.

    A micro-batch of gigabytes may be at work, of which nothing counts before its end: what the query kept is divided by
    the time until the last one ended, and one that ended is no measure yet.
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
