"""The status of a process and its brokers as one JSON document: the page, `/status` and `reput status` show the same.

Times are seconds since the epoch, sizes are bytes; what is not known is null. Of several brokers it is an overview that
stays small: the history of each, its last batches and older findings are in the document of that broker alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from reput.streaming.status.batch_report import BatchReport, Lag
from reput.streaming.status.judgement import Judgement, State, judge
from reput.streaming.status.run_state import QueryState, RunState

#: Of the document; a reader refuses a later one.
FORMAT_VERSION: Final = 1

#: The worst of several brokers' states first.
_WORST_FIRST = (State.STOPPED, State.WAITING, State.LAGGING, State.STARTING, State.DEGRADED, State.RUNNING)


# Of each of several brokers; one alone has all that are kept.
_FINDINGS_IN_OVERVIEW = 5


def status_document(runs: Sequence[RunState], facts: dict[str, Any] | None = None) -> dict[str, Any]:
    """The status of the process and of each of `runs`, of which there is at least one; of one it has the history."""
    judged = [(run, judge(run)) for run in runs]
    worst = _worst(judged)
    return {
        "formatVersion": FORMAT_VERSION,
        "at": runs[0].time_of_day(),
        "state": worst.state.value,
        "reason": worst.reason,
        "pid": os.getpid(),
        **(facts or {}),
        "brokers": [_broker(run, judgement, is_alone=len(runs) == 1) for run, judgement in judged],
    }


def worst_of(runs: Sequence[RunState]) -> Judgement:
    """What the whole process is like: the worst of its runs, of which there is at least one, named among several."""
    return _worst([(run, judge(run)) for run in runs])


def worst_first(runs: Sequence[RunState]) -> list[tuple[RunState, Judgement]]:
    """What each of the runs is like, the worst first; those of one state are in their order."""
    return sorted(((run, judge(run)) for run in runs), key=lambda each: _WORST_FIRST.index(each[1].state))


def _worst(judged: Sequence[tuple[RunState, Judgement]]) -> Judgement:
    run, worst = min(judged, key=lambda each: _WORST_FIRST.index(each[1].state))
    if len(judged) == 1:
        return worst
    words = f"all {len(judged)} brokers" if worst.state is State.RUNNING else f"{run.broker}: {worst.reason}"
    return Judgement(worst.state, words)


def _broker(run: RunState, judged: Judgement, *, is_alone: bool) -> dict[str, Any]:
    with run.read():
        to_epoch = run.seconds_to_epoch()
        findings = [*reversed(run.findings)][: None if is_alone else _FINDINGS_IN_OVERVIEW]
        return {
            "broker": run.broker,
            "state": judged.state.value,
            "reason": judged.reason,
            "startedAt": run.started_at + to_epoch,
            "exitCode": run.exit_code,
            **run.facts,
            "log": {
                "endOffset": None if run.log_end is None else run.log_end.offset,
                "lookedAt": _of_epoch(run.looked_at, to_epoch),
            },
            "queries": [
                _query(name, query, run.clock(), to_epoch) | (_history(query, to_epoch) if is_alone else {})
                for name, query in sorted(run.queries.items())
            ],
            "findings": [{"at": found.at + to_epoch, "query": found.query, "text": found.text} for found in findings],
            "counts": [
                {"name": name, "label": label, "count": count} for (name, label), count in sorted(run.counts.items())
            ],
            "gauges": dict(sorted(run.gauges.items())),
        }


def _of_epoch(at: float | None, to_epoch: float) -> float | None:
    return None if at is None else at + to_epoch


def _query(name: str, query: QueryState, now: float, to_epoch: float) -> dict[str, Any]:
    return {
        "query": name,
        "phase": query.phase.value,
        "readOffset": query.read_end,
        "commitOffset": query.end,
        "behind": _lag(query.lag),
        "waitsFor": query.waits_for or query.bad_end,
        "waitsSince": _of_epoch(query.waits_since, to_epoch),
        "waitsUntil": _of_epoch(query.waits_until, to_epoch),
        "attempt": query.attempt,
        "restarts": query.restarts,
        "batches": query.batches,
        "messages": query.messages,
        "messagesPerSecond": query.messages_per_second(now),
        "bytes": query.size_bytes,
        "seconds": query.seconds,
        "lastBatchAt": _of_epoch(query.last_at, to_epoch),
        "anomalies": query.anomalies.as_dict(),
        "quarantined": dict(sorted(query.quarantined.items())),
        "expiredUnreadBytes": query.expired_bytes,
    }


def _history(query: QueryState, to_epoch: float) -> dict[str, Any]:
    return {
        "lags": [
            [
                round(sample.at + to_epoch, 3),
                sample.lag.size_bytes,
                None if sample.lag.seconds is None else round(sample.lag.seconds, 3),
            ]
            for sample in query.lags
        ],
        "recent": [_batch(at + to_epoch, report) for at, report in reversed(query.recent)],
    }


def _lag(lag: Lag) -> dict[str, Any]:
    return {"bytes": lag.size_bytes, "seconds": lag.seconds}


def _batch(at: float, report: BatchReport) -> dict[str, Any]:
    return {
        "at": at,
        "start": report.start,
        "end": report.end,
        "messages": report.messages,
        "seconds": report.seconds,
        "phases": dict(report.phases),
    }
