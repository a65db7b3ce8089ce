"""The status of a process and its brokers as one JSON document: the page, `/status` and `reput status` show the same.

Times are seconds since the epoch, sizes are bytes; unknown values are null. For several brokers it is an overview that
stays small: the history of each, its last batches and older findings are in the document of that broker alone. A tail
leaves the document in its output, and `reput status` reads it there (`status_of`).
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_lock import is_locked
from reput.sinks.files.store_path import REPUT
from reput.sinks.table.location import TableLocation
from reput.source.errors import OutputError, check_format
from reput.source.printable import counted, printable
from reput.source.releases import version_text
from reput.streaming.config.broker import broker_version
from reput.streaming.config.pipeline import PIPELINE_OPTIONS, PipelineConfig
from reput.streaming.output.paths import OutputPaths
from reput.streaming.status.batch_report import BatchReport, Lag, duration_text, size_text
from reput.streaming.status.run_state import Judgement, QueryState, RunState, State, judge

# ----------------------------------------------------------------------------------------------------------------------
# Facts that do not change during a run: versions, paths, and the options that differ from their defaults.

_PACKAGES: Final = {"reput": "rocketmq-reput", "pyspark": "pyspark", "delta-spark": "delta-spark", "pyarrow": "pyarrow"}


def versions() -> dict[str, str]:
    """Return the releases of the software in a run, by name."""
    found = {"python": platform.python_version()}
    for name, package in _PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:  # reput may run from its source tree
            continue
    return found


def facts_of(config: PipelineConfig, paths: OutputPaths) -> dict[str, Any]:
    """Return facts of one broker's run: paths, the broker's release, and options other than defaults, as text."""
    table: TableLocation | None = paths.table
    defaults = {spec.name: spec.default for spec in PIPELINE_OPTIONS}
    return {
        "store": str(config.store),
        "output": str(paths.output),
        "table": None if table is None else str(table),
        "brokerVersion": version_text(broker_version(config.broker.version, config.store)),
        "options": {name: str(value) for name, value in config.values.items() if value != defaults[name]},
    }


#: The version of the document's format; a reader refuses a later one.
FORMAT_VERSION: Final = 1

#: The worst of several brokers' states first.
_WORST_FIRST = (State.STOPPED, State.WAITING, State.LAGGING, State.STARTING, State.DEGRADED, State.RUNNING)


# Most findings of each of several brokers; the document of one broker has all that are kept.
_FINDINGS_IN_OVERVIEW = 5
_GROUPS_SHOWN = 50


def status_document(runs: Sequence[RunState], facts: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the status of the process and of each of `runs` (at least one); a single run comes with its history."""
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
    """Return the state of the process: the worst of its runs (at least one), which is named if there are several."""
    return _worst([(run, judge(run)) for run in runs])


def worst_first(runs: Sequence[RunState]) -> list[tuple[RunState, Judgement]]:
    """Return each of the runs with its state, the worst first; runs in the same state keep their order."""
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
            **({"consumption": _consumption(run, to_epoch)} if is_alone else {}),
        }


def _consumption(run: RunState, to_epoch: float) -> dict[str, Any]:
    """Return the moves of consumer groups in the run: groups that went back first, then those that moved long ago."""
    groups = sorted(run.groups.items(), key=lambda each: (-each[1].resets, each[1].moved_at, each[0]))
    return {
        "groups": len(groups),
        "first": [
            {
                "group": group,
                "topic": topic,
                "passed": moves.passed,
                "resets": moves.resets,
                "movedAt": moves.moved_at + to_epoch,
            }
            for (group, topic), moves in groups[:_GROUPS_SHOWN]
        ],
        "passed": [[round(at + to_epoch, 3), passed] for at, passed in run.passed],
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


# ----------------------------------------------------------------------------------------------------------------------
# The status document in a file of the output, for `reput status`, also after a run has ended.

STATUS_FILE = (REPUT, "status.json")
# The page draws from these; the file does not need them.
_LEFT_OUT = ("lags", "consumption")
# When the file was written, in addition to the time of day: the start of the machine, and the time since then.
_BOOT, _MONOTONIC = "boot", "monotonicSeconds"
# The file is written at most, and at least, this often, in seconds.
_WRITTEN_EVERY_S, _RENEWED_EVERY_S = 5.0, 60.0


class StatusFile:
    """Writes the status of a run into its output; the run continues if the file cannot be written."""

    def __init__(self, output: Path, run: RunState) -> None:
        self._files = DurableFiles(output)
        self._run = run
        self._written_at = float("-inf")
        self._written: object = None

    def write(self, facts: dict[str, Any], now: float, *, at_once: bool = False) -> None:
        """Write the status, with `facts`, at `now` (monotonic seconds) if it is due or `at_once` asks for it.

        It is due every five seconds if the state or an offset has changed, or the log's end became known; otherwise
        every minute.
        """
        since = now - self._written_at
        if since < _WRITTEN_EVERY_S and not at_once:
            return
        gist = _gist(self._run)
        if gist == self._written and since < _RENEWED_EVERY_S and not at_once:
            return
        if not self._files.root.joinpath(REPUT).is_dir():  # the output's disk may not be mounted
            return
        self._written_at, self._written = now, gist
        status = {**status_document([self._run], facts), **_moment()}
        brokers = [
            {**_kept(broker), "queries": [_kept(query) for query in broker["queries"]]} for broker in status["brokers"]
        ]
        with suppress(OutputError):
            self._files.put_unsynced(*STATUS_FILE, data=json.dumps({**status, "brokers": brokers}).encode())


def seconds_since_written(status: dict[str, Any]) -> float:
    """Return the age of a document of this machine; by the time of day only if the machine was started since."""
    moment = _moment()
    if status.get(_BOOT) == moment[_BOOT]:
        return float(max(0.0, moment[_MONOTONIC] - float(status[_MONOTONIC])))
    return max(0.0, time.time() - float(status["at"]))


def _moment() -> dict[str, Any]:
    """Return the present by a clock that cannot be set, common to all processes until the machine is restarted."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return {_BOOT: boot, _MONOTONIC: time.monotonic()}


def _kept(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in _LEFT_OUT}


def _gist(run: RunState) -> object:
    """Return the part of the state whose change makes the file due early."""
    with run.read():
        queries = [(name, query.phase, query.end) for name, query in sorted(run.queries.items())]
        # A query's lag is known only once the log's end is; that may be the last change for a long time.
        return judge(run).state, run.log_end is None, queries


def load_status(output: Path) -> dict[str, Any] | None:
    """Return the document that the last run wrote; None if there is none.

    Raises
    ------
    OutputError
        It cannot be read.
    LaterFormatError
        A later release wrote it.
    """
    path = output.joinpath(*STATUS_FILE)
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        check_format(path, document["formatVersion"], FORMAT_VERSION, file=path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}", file=path) from error
    except (ValueError, LookupError, TypeError) as error:
        raise OutputError(
            f"{path} is not a status of reput", advice="remove it: 'reput tail' writes a new one", file=path
        ) from error
    return document


#: The exit codes of `reput status`; 3 is that of ``systemctl status`` and init scripts for a service that does not run.
EXIT_CODES: Final = {
    State.RUNNING: 0,
    State.STARTING: 0,
    State.STOPPED: 3,
    State.LAGGING: 10,
    State.WAITING: 11,
    State.DEGRADED: 12,
}
# A run renews its status every minute.
_SEEN_WITHIN_S = 180.0
_FINDINGS_SHOWN = 5


def status_of(output: Path) -> dict[str, Any]:
    """Return the present status document of the tail that keeps `output`.

    A tail that was killed could not report its end: its document is changed to say so. A tail that has not renewed its
    document is shown as waiting.

    Raises
    ------
    OutputError
        There is no output, `reput tail` of this release did not keep it, or it cannot be read.
    """
    if not output.is_dir():
        raise OutputError(
            f"no output at {output}: the directory does not exist",
            advice="give the --output of 'reput tail'",
            file=output,
        )
    status = load_status(output)
    if status is None:
        file = output.joinpath(*STATUS_FILE)
        raise OutputError(f"no status at {file}: no 'reput tail' of this release has kept this output", file=file)
    unseen = seconds_since_written(status)
    if State(status["state"]) is State.STOPPED:
        return status
    if not is_locked(output):
        _change(status, State.STOPPED, f"it ended without a word, at most {duration_text(unseen)} ago: it was killed")
    elif unseen > _SEEN_WITHIN_S:
        _change(status, State.WAITING, f"no sign of life for {duration_text(unseen)}")
    return status


def _change(status: dict[str, Any], state: State, reason: str) -> None:
    for each in (status, *status["brokers"]):
        each["state"], each["reason"] = state.value, reason


def exit_code_of(status: dict[str, Any]) -> int:
    """Return the exit code of the command."""
    return EXIT_CODES[State(status["state"])]


def status_text(status: dict[str, Any]) -> str:
    """Return the status for people: a line each for the state, the run, its queries and the last findings."""
    lines = []
    for broker in status["brokers"]:
        lines.append(f"{broker['state']:<9} {broker['reason']}")
        seen = duration_text(seconds_since_written(status))
        began = _utc(broker["startedAt"])
        lines.append(f"broker    {broker['broker']}, process {status['pid']}, since {began}, as of {seen} ago")
        lines += [_query_line(query) for query in broker["queries"]]
        found = broker["findings"][:_FINDINGS_SHOWN]
        lines += [f"found     {_utc(each['at'])} {each['query']}: {each['text']}" for each in found]
    return "\n".join(printable(line) for line in lines)


def _query_line(query: dict[str, Any]) -> str:
    behind, end = query["behind"], query["commitOffset"]
    restarts = f", started again {counted(query['restarts'], 'time')}" if query["restarts"] else ""
    return (
        f"{query['query']:<9} {query['phase']}, {counted(query['messages'], 'message', form=',')} in this run, "
        f"end offset {'?' if end is None else end}, "
        f"{size_text(behind['bytes'])} and {duration_text(behind['seconds'])} behind{restarts}"
    )


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
