"""What `reput table` prints: lines for people, in which text of others is harmless, or JSON whose names are stable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from reput.sinks.table.expiry import Expired
from reput.sinks.table.file_list import BrokerRows, TableState
from reput.sinks.table.forget import Forgotten, Traces
from reput.sinks.table.log import LogEntry
from reput.source.printable import counted, printable, printable_json
from reput.streaming.process.text_table import TextTable
from reput.streaming.status.batch_report import size_text

_COLUMNS = ("version", "time", "operation", "broker", "range", "files", "rows", "size", "by")


@dataclass(frozen=True)
class OptimizeReport:
    """What `optimize` did; files and bytes are those of the whole table, brokers those whose files were looked at."""

    brokers: tuple[str, ...]
    merges: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    version: int


@dataclass(frozen=True)
class VacuumReport:
    """What was removed, or would be: commits of the log, data files that only they had, orphans; with their bytes.

    `keeps_log` is whether the log was left alone because its owner set how long it is kept.
    """

    commits: int
    data_files: int
    orphans: int
    size_bytes: int
    keeps_log: bool


@dataclass(frozen=True)
class RepairReport:
    """The files of the log that were set aside, and the version that has a checkpoint now, if one was `written`."""

    set_aside: tuple[str, ...]
    version: int
    written: bool


@dataclass(frozen=True)
class ExpiryReport:
    """What has expired by `retention` and was removed, or would be: rows, and the files that had them, by broker."""

    retention: str
    brokers: dict[str, Expired]


@dataclass(frozen=True)
class ForgetPlan:
    """What would be forgotten: rows in files of the present version; other files that have such rows; all in `left`.

    Rows that a deletion vector takes away count.
    """

    rows: int
    files: int
    older_files: int
    left: Traces


def description(state: TableState) -> dict[str, Any]:
    """What `reput table describe` tells."""
    times = state.store_times
    return {
        "table": str(state.path),
        "id": str(state.metadata.id),
        "version": state.version,
        "rows": state.rows,
        "files": len(state.files),
        "bytes": state.size_bytes,
        "bytes_a_message": round(state.size_bytes / state.rows, 1) if state.rows else None,
        "first_store_time": None if times is None else _time(times[0]),
        "last_store_time": None if times is None else _time(times[1]),
        "brokers": [_broker(each) for each in state.brokers],
        "reader_version": state.protocol.min_reader_version,
        "writer_version": state.protocol.min_writer_version,
        "features": sorted({*(state.protocol.reader_features or ()), *(state.protocol.writer_features or ())}),
        "properties": dict(sorted(state.metadata.configuration.items())),
        "small_files": len(state.small_files),
        "unsorted_files": len(state.unsorted_files),
        "unfiltered_files": len(state.unfiltered_files),
    }


def _broker(rows: BrokerRows) -> dict[str, Any]:
    last = None if rows.last_range is None else list(rows.last_range)
    return {"broker": rows.broker, "rows": rows.rows, "end": rows.end, "last_range": last}


def describe_json(state: TableState) -> str:
    """The description as one line of JSON."""
    return printable_json(description(state))


def describe_text(state: TableState) -> str:
    """The description for people."""
    told = description(state)
    each = f", {told['bytes_a_message']} bytes a message" if state.rows else ""
    lines = [
        f"{state.path}: version {state.version}",
        f"{counted(told['rows'], 'row')} in {counted(told['files'], 'file')}, {size_text(state.size_bytes)}{each}",
    ]
    if state.store_times is not None:
        lines.append(f"stored from {told['first_store_time']} to {told['last_store_time']}")
    for broker in state.brokers:
        end = "without a transaction of reput" if broker.end is None else f"complete up to {broker.end}"
        last = "" if broker.last_range is None else ", last [{}, {})".format(*broker.last_range)
        lines.append(f"broker {broker.broker}: {counted(broker.rows, 'row')}, {end}{last}")
    lines.append(
        f"{counted(told['small_files'], 'small file')}, merged when there are enough of them; "
        f"{counted(told['unsorted_files'], 'large one')} to be sorted; {told['unfiltered_files']} without a key filter"
    )
    features = f", features {', '.join(told['features'])}" if told["features"] else ""
    lines.append(f"reader version {told['reader_version']}, writer version {told['writer_version']}{features}")
    lines += [f"{name} = {value}" for name, value in told["properties"].items()]
    return _text(lines)


def history_json(entries: Iterable[LogEntry]) -> Iterable[str]:
    """A line of JSON for each commit."""
    return (printable_json({**asdict(entry), "time": _entry_time(entry)}) for entry in entries)


def history_lines(entries: Iterable[LogEntry], width: int | None = None) -> list[str]:
    """Return a table with a line for each commit; `width` is that of the terminal, if it is one (``TextTable``)."""
    rows = [_cells(entry) for entry in entries]
    return list(TextTable(_COLUMNS, width).lines(list(zip(*rows, strict=True))))


def _cells(entry: LogEntry) -> Sequence[object]:
    where = "" if entry.start is None or entry.end is None else f"[{entry.start}, {entry.end})"
    operation = " ".join(filter(None, [entry.operation, f"({entry.what})" if entry.what else None]))
    return [
        entry.version,
        _entry_time(entry),
        operation,
        entry.broker,
        where,
        f"+{entry.files_added} -{entry.files_removed}",
        entry.rows,
        size_text(entry.size_bytes),
        entry.engine,
    ]


def optimize_text(report: OptimizeReport) -> str:
    """What was merged."""
    if not report.merges:
        return f"nothing to merge in {counted(report.files_before, 'file')}, {size_text(report.bytes_before)}"
    return _text(
        [
            (
                f"{counted(report.merges, 'merge')}: {counted(report.files_before, 'file')}, "
                f"{size_text(report.bytes_before)}, became "
                f"{report.files_after}, {size_text(report.bytes_after)}, in version {report.version}"
            )
        ]
    )


def repair_text(report: RepairReport) -> str:
    """What was set aside and written."""
    if not report.written:
        return f"nothing to repair: the log can be read, up to version {report.version}"
    aside = ", ".join(map(printable, report.set_aside))
    return f"set aside as _damaged-...: {aside}\nwrote a checkpoint of version {report.version} from the commits"


def vacuum_text(report: VacuumReport, *, dry_run: bool) -> str:
    """What was removed."""
    verb = "would remove" if dry_run else "removed"
    lines = [
        (
            f"{verb} {counted(report.commits, 'commit')} of the log, "
            f"{counted(report.data_files, 'data file')} that only they had, "
            f"{counted(report.orphans, 'file')} that no version had; {size_text(report.size_bytes)}"
        )
    ]
    if report.keeps_log:
        lines.append(
            "the log is left as it is: delta.logRetentionDuration says how long it is kept (ALTER TABLE ... UNSET "
            "TBLPROPERTIES leaves it to reput)"
        )
    return _text(lines)


def expiry_text(report: ExpiryReport, *, dry_run: bool) -> str:
    """What was removed, by broker."""
    verb = "would remove" if dry_run else "removed"
    lines = [
        f"broker {broker}: {verb} {counted(done.rows, 'row')} from {counted(done.files, 'file')}"
        for broker, done in report.brokers.items()
    ]
    return _text([*lines, f"tableRetention: {report.retention}"])


def plan_text(plan: ForgetPlan) -> str:
    """What would be forgotten, and what goes with it."""
    lines = [
        f"{counted(plan.rows, 'row')} in {counted(plan.files, 'file')} of the present version would be forgotten",
        f"such rows are also in {counted(plan.older_files, 'file')} of older versions, or of no version",
        *_mention_lines(plan.left),
        *(f"{name} cannot be looked into" for name in plan.left.unreadable),
        "with --yes they go for good: no older version of the table can be read or restored afterwards, for any row",
    ]
    return _text(lines)


def forgotten_text(done: Forgotten) -> str:
    """What was forgotten, what is left of it, and who else may have it."""
    left = done.left
    lines = []
    if done.version is None:
        lines.append("no such row, in no version")
    else:
        lines.append(
            f"{counted(done.rows, 'row')} forgotten in version {done.version}: "
            f"{counted(done.files_rewritten, 'file')} written without them, "
            f"{counted(done.files_removed, 'file')} of {size_text(done.bytes_removed)} removed, "
            f"{counted(done.commits_removed, 'older version')} gone"
        )
    lines += [f"{name} still has {counted(rows, 'such row')}" for name, rows in left.rows.items()]
    lines += [f"{name} still has such a text" for name in left.log_files]
    lines += [f"{name} cannot be looked into: whether it has such rows is not known" for name in left.unreadable]
    if left.is_clean:
        lines.append(f"none left in {left.files} data files and the table's log")
    else:
        lines.append(
            "a file of reput that no version has goes when its writer has not been at work for an hour: give the same "
            "command again then; remove others' files by hand"
        )
    lines += _mention_lines(left)
    lines.append(
        "commitlog, ConsumeQueue and IndexFile have the messages until they expire there; until then "
        "'reput rebuild --only table' would bring the rows back"
    )
    return _text(lines)


def _mention_lines(left: Traces) -> list[str]:
    rows = sum(left.mentions.values())
    if not rows:
        return []
    first = next(iter(left.mentions))
    where = f"{counted(len(left.mentions), 'file')}, such as {first}"
    stay = counted(rows, "row of another message has", "rows of other messages have")
    kept = "stays" if rows == 1 else "stay"
    return [f"{stay} the same text in a property, and {kept} ({where})"]


def as_json(report: OptimizeReport | VacuumReport | RepairReport | ExpiryReport | ForgetPlan | Forgotten) -> str:
    """A report's fields as one line of JSON."""
    return printable_json(asdict(report))


def _entry_time(entry: LogEntry) -> str | None:
    if entry.time_ms is None:
        return None
    try:
        return _time(datetime.fromtimestamp(entry.time_ms / 1000, timezone.utc))
    except (ValueError, OverflowError, OSError):  # others may write anything
        return None


def _time(time: datetime) -> str:
    return time.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _text(lines: Iterable[str]) -> str:
    """The lines made harmless for a terminal, since names of brokers and properties are others'."""
    return "\n".join(map(printable, lines))
