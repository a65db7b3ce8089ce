"""The output of `reput recover` and `reput expire`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from reput.sinks.recover.retention import QueueRetention
from reput.source.printable import counted, printable
from reput.streaming.recover.recover import RecoveryReport, RetentionReport
from reput.streaming.recover.sink_repair import QueueReport


def as_json(report: RecoveryReport | RetentionReport) -> str:
    """The report's fields, as one JSON object."""
    return json.dumps(asdict(report), indent=1)


def recovery_text(report: RecoveryReport, *, dry_run: bool) -> str:
    """Return one line for each finding and each repair, then a line for every queue."""
    kind = "abnormal (a broker left its abort file)" if report.unclean else "normal"
    lines = [
        f"log [{report.log_start}, {report.log_end})",
        f"a broker's recovery would be {kind}, from {report.broker_recovers_from}",
    ]
    if dry_run and report.unexplained:
        lines.append(f"would be done with --yes only: {report.unexplained}")
    if report.rewound:
        lines.append("the log was cut and written again: the last record dispatched is no longer at its place")
    verbs = ("would remove", "would mend") if dry_run else ("removed", "mended")
    for sink in report.sinks:
        before = "no progress record" if sink.end_before is None else f"ended at {sink.end_before}"
        after = "would continue" if dry_run else "continues"
        line = f"{sink.name}: {before}, {after} at {sink.end_after}"
        dropped = f", {counted(sink.files.entries_dropped, 'entry')} dropped" if sink.files.entries_dropped else ""
        lines.append(line + dropped)
        lines += [f"{verbs[0]} {path}" for path in sink.files.removed]
        lines += [f"{verbs[1]} {path}" for path in sink.files.mended]
    if report.spark_checkpoint_removed:
        lines.append(f"{verbs[0]} Spark's checkpoint of the logic query, which is ahead of the sinks")
    if not report.is_changed:
        lines.append("queues and index agree with the log: nothing to do")
    if report.abort is not None:
        lines.append(report.abort.text(dry_run=dry_run))
    return _text([*lines, *_queue_lines(report.queues)])


def retention_text(report: RetentionReport, *, dry_run: bool) -> str:
    """Return a line for each file that was removed, then a line for every queue."""
    verb = "would remove" if dry_run else "removed"
    lines = [f"the log begins at {report.min_physic_offset}"]
    lines += [f"{verb} {path}" for path in report.removed] or ["nothing has expired"]
    return _text([*lines, *_queue_lines(report.queues)])


def _text(lines: Iterable[str]) -> str:
    """The lines made harmless for a terminal, since the names of queues and files contain topics."""
    return "\n".join(map(printable, lines))


def _queue_lines(queues: Iterable[QueueReport | QueueRetention]) -> list[str]:
    return [f"{queue.topic}-{queue.queue_id}: min {queue.min_offset}, max {queue.max_offset}" for queue in queues]
