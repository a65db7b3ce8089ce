"""`reput table`: a table's description and history, its upkeep by hand, and rows that are forgotten.

`optimize`, `vacuum`, `repair`, `expire` and `forget` have a plan, which changes nothing, beside the deed. They do not
need Spark. They print lines for people, in which texts of others are harmless, or JSON whose names are stable.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from reput.sinks.table.cleaning import LOG_KEPT, Cleaning, cleaning
from reput.sinks.table.consumption import ConsumptionTable, ledger_brokers
from reput.sinks.table.data_file import DataFile, count_by_broker, keys_file, rows_in
from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.forget import ForgetRequest, Forgetting, Forgotten, Traces, traces
from reput.sinks.table.history import LogEntry, log_entries
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import log_damage, log_errors, read_snapshot, transaction_id, write_checkpoint
from reput.sinks.table.message_file import TABLE_SCHEMA
from reput.sinks.table.retention import Expired, RowRetention
from reput.sinks.table.storage import output_errors, table_storage
from reput.sinks.table.upkeep import ExpiredRows, TableUpkeep
from reput.source.errors import OptionError, output_error_of
from reput.source.printable import counted, printable, printable_json
from reput.source.rows.message_schema import LATER_NAMES, spark_schema
from reput.source.times import time_text, utc_text
from reput.streaming.output.paths import check_table
from reput.streaming.process.text_table import TextTable
from reput.streaming.status.batch_report import size_text

_MOVES = "move of a consumer group", "moves of consumer groups"
_COLUMNS = ("version", "time", "operation", "broker", "range", "files", "rows", "size", "by")


# The last range of each broker is looked for in this many commits.
_COMMITS_SEARCHED = 2000


@dataclass(frozen=True)
class BrokerRows:
    """One broker's part of a table.

    Attributes
    ----------
    rows
        How many rows it has.
    end
        The offset in its log before which its rows are complete; None if reput never committed any.
    last_range
        The `[start, end)` of its log that the last commit of messages had; None if that commit is no longer in the
        table's log.
    """

    broker: str
    rows: int
    end: int | None
    last_range: tuple[int, int] | None


class TableState:
    """A table at its present version, from its log alone: mostly without opening a data file.

    Raises
    ------
    OutputError
        The log cannot be read.
    """

    def __init__(self, path: TableLocation) -> None:
        self.path = path.resolve()
        self.snapshot = read_snapshot(self.path)
        self.storage, self.version = self.snapshot.storage, self.snapshot.version
        self.files = list(self.snapshot.files())
        with log_errors(self.path):
            self._rows = [rows_in(self.storage, file) - file.deleted for file in self.files]

    @property
    def rows(self) -> int:
        """The number of rows that no deletion vector removes."""
        return sum(self._rows)

    def opened(self) -> DeltaTable:
        """Return the table, ready to be written as a message table; nothing is changed yet."""
        return DeltaTable(self.path, spark_schema(TABLE_SCHEMA), later=LATER_NAMES)

    @property
    def has_messages(self) -> bool:
        """Whether its rows are messages, by their columns; rows of the ledger of consumption are moves."""
        return "store_time" in self.snapshot.column_names

    @property
    def size_bytes(self) -> int:
        """The size of the data files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def store_times(self) -> tuple[datetime, datetime] | None:
        """The first and the last store time; None if no file has them."""
        known = [(first, last) for first, last in (file.bounds.store_times for file in self.files) if first and last]
        return (min(first for first, _ in known), max(last for _, last in known)) if known else None

    @property
    def small_files(self) -> list[DataFile]:
        """The files that are merged with others once there are enough of them."""
        return [file for file in self.files if not file.is_large]

    @property
    def unfiltered_files(self) -> list[DataFile]:
        """The files without a key filter, which a look-up by key has to open."""
        found = self.storage.statuses([keys_file(file.path) for file in self.files])
        return [file for file, keys in zip(self.files, found, strict=True) if keys is None]

    @property
    def unsorted_files(self) -> list[DataFile]:
        """The large files that reput wrote in the order of the log, to be sorted by topic one after the other."""
        return [file for file in self.files if file.is_own and file.is_large and not file.is_sorted]

    @cached_property
    def brokers(self) -> list[BrokerRows]:
        """The brokers that have rows, by name."""
        with log_errors(self.path):
            rows = count_by_broker(self.storage, self.files)
            ranges: dict[str, tuple[int, int] | None] = {}
            for entry in log_entries(self.storage, self.version, _COMMITS_SEARCHED):
                if entry.brings_messages and entry.broker is not None:
                    ranges.setdefault(entry.broker, entry.span)
        ends = {name: self.snapshot.transactions.get(transaction_id(name)) for name in rows}
        return [BrokerRows(name, rows[name], ends[name], ranges.get(name)) for name in sorted(rows)]


@dataclass(frozen=True)
class OptimizeReport:
    """The result of `optimize`; files and bytes are those of the whole table, brokers those that were examined."""

    brokers: tuple[str, ...]
    merges: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    version: int


@dataclass(frozen=True)
class VacuumReport:
    """The files that are or would be removed: commits of the log, data files that only they had, orphans; their bytes.

    `keeps_log` is whether the log was left alone because its owner set how long it is kept.
    """

    commits: int
    data_files: int
    orphans: int
    size_bytes: int
    keeps_log: bool


@dataclass(frozen=True)
class RepairReport:
    """The files of the log that were set aside, and the version that now has a checkpoint, if one was `written`."""

    set_aside: tuple[str, ...]
    version: int
    written: bool


@dataclass(frozen=True)
class ExpiryReport:
    """The rows that have expired by `retention` and were removed, or would be, and the files that had them, by broker.

    `consumption` are the rows of the ledger beside the table, of the brokers that have any there.
    """

    retention: str
    brokers: dict[str, Expired]
    consumption: dict[str, Expired]


@dataclass(frozen=True)
class ForgetPlan:
    """The rows that would be forgotten in files of the present version; other files with such rows; all in `left`.

    Rows that a deletion vector removes count.
    """

    rows: int
    files: int
    older_files: int
    left: Traces


def description(state: TableState) -> dict[str, Any]:
    """Return the contents of `reput table describe`."""
    times, protocol, metadata = state.store_times, state.snapshot.protocol, state.snapshot.metadata
    features = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    return {
        "table": str(state.path),
        "id": str(metadata["id"]),
        "version": state.version,
        "rows": state.rows,
        "files": len(state.files),
        "bytes": state.size_bytes,
        "bytes_a_message": round(state.size_bytes / state.rows, 1) if state.rows else None,
        "first_store_time": None if times is None else utc_text(times[0]),
        "last_store_time": None if times is None else utc_text(times[1]),
        "brokers": [_broker(each) for each in state.brokers],
        "reader_version": protocol["minReaderVersion"],
        "writer_version": protocol["minWriterVersion"],
        "features": sorted(features),
        "properties": dict(sorted(state.snapshot.properties.items())),
        "small_files": len(state.small_files),
        "unsorted_files": len(state.unsorted_files),
        "unfiltered_files": len(state.unfiltered_files),
    }


def _broker(rows: BrokerRows) -> dict[str, Any]:
    last = None if rows.last_range is None else list(rows.last_range)
    return {"broker": rows.broker, "rows": rows.rows, "end": rows.end, "last_range": last}


def describe_json(state: TableState) -> str:
    """Return the description as one line of JSON."""
    return printable_json(description(state))


def describe_text(state: TableState) -> str:
    """Return the description for people."""
    told = description(state)
    what = "message" if state.has_messages else "row"
    each = f", {told['bytes_a_message']} bytes a {what}" if state.rows else ""
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
    if state.has_messages:
        lines.append(
            f"{counted(told['small_files'], 'small file')}, merged when there are enough of them; "
            f"{counted(told['unsorted_files'], 'large one')} to be sorted; "
            f"{told['unfiltered_files']} without a key filter"
        )
    features = f", features {', '.join(told['features'])}" if told["features"] else ""
    lines.append(f"reader version {told['reader_version']}, writer version {told['writer_version']}{features}")
    lines += [f"{name} = {value}" for name, value in told["properties"].items()]
    return _text(lines)


def history_json(entries: Iterable[LogEntry]) -> Iterable[str]:
    """Yield a line of JSON for each commit."""
    return (printable_json({**asdict(entry), "time": _entry_time(entry)}) for entry in entries)


def history_lines(entries: Iterable[LogEntry], width: int | None = None) -> list[str]:
    """Return a table with a line for each commit; `width` is that of the terminal, if it is one (``TextTable``)."""
    rows = [_cells(entry) for entry in entries]
    return list(TextTable(_COLUMNS, width).lines(list(zip(*rows, strict=True))))


def _cells(entry: LogEntry) -> Sequence[object]:
    where = "" if entry.span is None else "[{}, {})".format(*entry.span)
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
    """Return the merges in words."""
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
    """Return the files that were set aside and written, in words."""
    if not report.written:
        return f"nothing to repair: the log can be read, up to version {report.version}"
    aside = ", ".join(map(printable, report.set_aside))
    return f"set aside as _damaged-...: {aside}\nwrote a checkpoint of version {report.version} from the commits"


def vacuum_text(report: VacuumReport, *, dry_run: bool) -> str:
    """Return the files that were removed, in words."""
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
    """Return the rows that were removed, by broker, in words."""
    verb = "would remove" if dry_run else "removed"
    lines = [
        f"broker {broker}: {verb} {counted(done.rows, *what)} from {counted(done.files, 'file')}"
        for what, found in ((("row",), report.brokers), (_MOVES, report.consumption))
        for broker, done in found.items()
    ]
    return _text([*lines, f"tableRetention: {report.retention}"])


def plan_text(plan: ForgetPlan) -> str:
    """Return, in words, the rows that would be forgotten, and the other files that have such rows."""
    lines = [
        f"{counted(plan.rows, 'row')} in {counted(plan.files, 'file')} of the present version would be forgotten",
        f"such rows are also in {counted(plan.older_files, 'file')} of older versions, or of no version",
        *_mention_lines(plan.left),
        *(f"{name} cannot be looked into" for name in plan.left.unreadable),
        "with --yes they go for good: no older version of the table can be read or restored afterwards, for any row",
    ]
    return _text(lines)


def forgotten_text(done: Forgotten) -> str:
    """Return the rows that were forgotten, the files that still have some, and other places that may, in words."""
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
    """Return a report's fields as one line of JSON."""
    return printable_json(asdict(report))


def _entry_time(entry: LogEntry) -> str | None:
    return None if entry.time_ms is None else time_text(entry.time_ms)


def _text(lines: Iterable[str]) -> str:
    """Join the lines, made harmless for a terminal: names of brokers and properties come from others."""
    return "\n".join(map(printable, lines))


# ----------------------------------------------------------------------------------------------------------------------
# `reput table optimize`: the merges that a `tail` does beside its work, by hand.


def message_table(path: TableLocation) -> TableState:
    """Return the state of the message table at `path`, which must exist.

    Raises
    ------
    OptionError
        It is another table, such as the ledger of consumption.
    OutputError
        It does not exist, or cannot be read.
    """
    check_table(path)
    state = TableState(path)
    if not state.has_messages:
        raise OptionError(
            f"{path} is not a message table: it has no store times",
            advice="give the table that 'reput tail' keeps; what it keeps beside it is maintained with it",
        )
    return state


def brokers_of(state: TableState, broker: str | None) -> tuple[str, ...]:
    """Return the brokers with files of their own in a table, or only `broker`; raise OptionError if it has none."""
    found = sorted({file.bounds.broker for file in state.files if file.bounds.broker is not None and file.is_own})
    if broker is None:
        return tuple(found)
    if broker not in found:
        raise OptionError(f"--broker {broker}: no file of {state.path} has rows of that broker alone")
    return (broker,)


def optimize(path: TableLocation, broker: str | None) -> OptimizeReport:
    """Merge and sort the files of `broker`, or of each broker, until nothing is due.

    If it is killed, the merges that were committed stay, and the same command does the rest.

    Raises
    ------
    OptionError
        The broker has no files.
    OutputError
        The table cannot be read, or not be written by reput.
    TransientError
        Other writers committed first again and again, or the disk is full.
    """
    before = message_table(path)
    table = before.opened()
    names, merges = brokers_of(before, broker), 0
    for name in names:
        with log_errors(table.path), output_errors(f"{table.path} cannot be tidied", table.path):
            merges += TableUpkeep(table, name, 0).to_the_end().merges
    after = TableState(table.path)
    return OptimizeReport(
        *(names, merges, len(before.files), len(after.files), before.size_bytes, after.size_bytes, after.version)
    )


# ----------------------------------------------------------------------------------------------------------------------
# `reput table vacuum`: the removals that a `tail` does beside its work, by hand and without Spark.

# Another cleaning of the same table, such as a `tail`'s, may remove a file while this one searches.
_ATTEMPTS = 3


def vacuum(path: TableLocation, versions_kept: int, *, dry_run: bool) -> VacuumReport:
    """Remove files that the last `versions_kept` versions do not need, and orphans; with `dry_run` only find them.

    If it is killed, every version that is kept can still be read, and the same command does the rest. A `tail` may
    write the table meanwhile.

    Raises
    ------
    OutputError
        The table cannot be read, or a file cannot be removed.
    """
    check_table(path)
    state = TableState(path)
    keeps_log = LOG_KEPT in state.snapshot.properties
    found = _cleaning(state, versions_kept, with_commits=not keeps_log)
    if not dry_run:
        found.carry_out()
    return VacuumReport(found.commits, len(found.data_files), len(found.orphans), found.size_bytes, keeps_log)


def _cleaning(state: TableState, versions_kept: int, *, with_commits: bool) -> Cleaning:
    for attempt in range(_ATTEMPTS):
        with log_errors(state.path):
            try:
                return cleaning(state.storage, state.version, versions_kept, with_commits=with_commits)
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise
    raise AssertionError


# ----------------------------------------------------------------------------------------------------------------------
# `reput table repair`: a new checkpoint in place of one that is damaged or gone, without Spark.


def repair(path: TableLocation) -> RepairReport:
    """Set damaged checkpoints aside, and write one from the commits. If it is killed, the same command finishes.

    Raises
    ------
    OutputError
        Commits are missing or damaged, and nothing was changed; or the log cannot be written.
    """
    check_table(path)
    storage = table_storage(path)
    try:
        damage = log_damage(storage)
        if damage is None:
            return RepairReport((), read_snapshot(path).version, written=False)
        if not damage.to_set_aside:
            raise damage.error(storage)
        damage.repair(storage)
    except OSError as error:
        raise output_error_of(error)(f"{path}: the table's log cannot be repaired: {error}", file=path) from error
    return RepairReport(damage.to_set_aside, write_checkpoint(path), written=True)


# ----------------------------------------------------------------------------------------------------------------------
# `reput table expire`: finding and removing rows that have expired by ``tableRetention``, without Spark.


def expiry_plan(path: TableLocation, retention: RowRetention, broker: str | None) -> ExpiryReport:
    """Return the rows that `expire` would remove, without changing anything. Rows that a deletion vector removes count.

    Raises
    ------
    OptionError
        No topic's rows ever expire, or the broker has no rows.
    OutputError
        The table cannot be read.
    """
    expiring = _Expiring(path, retention, broker)
    state, now_s = expiring.state, time.time()
    limits, found = retention.limits(now_s), {}
    with log_errors(state.path):
        for name in expiring.brokers:
            rows = ExpiredRows(name, limits)
            files = (file for file in state.files if file.bounds.broker in (name, None))
            expired = [rows.look_into(state.storage, file.path).rows for file in files]
            found[name] = Expired(sum(expired), sum(map(bool, expired)))
    moves = {each.broker: each.expired(now_s) for each in expiring.ledgers}
    return ExpiryReport(str(retention), found, moves)


def expire(path: TableLocation, retention: RowRetention, broker: str | None) -> ExpiryReport:
    """Remove the expired rows of `broker`, or of each broker, and their moves in the ledger of consumption.

    If it is killed, the commits that were made stay, and the same command does the rest.

    Raises
    ------
    OptionError
        No topic's rows ever expire, or the broker has no rows.
    OutputError
        The table cannot be read, or not be written by reput.
    TransientError
        Other writers committed first again and again, or the disk is full.
    """
    expiring = _Expiring(path, retention, broker)
    table = expiring.state.opened()
    with log_errors(table.path), output_errors(f"{table.path} cannot be tidied", table.path):
        done = {name: TableUpkeep(table, name, 0, retention).expire_to_the_end() for name in expiring.brokers}
        moves = {each.broker: each.expire(time.time()) for each in expiring.ledgers}
    return ExpiryReport(str(retention), done, moves)


class _Expiring:
    """A table whose rows may expire, and the ledger beside it: `brokers` of the table, writers for the ledger."""

    def __init__(self, path: TableLocation, retention: RowRetention, broker: str | None) -> None:
        if retention.days_min is None:
            raise OptionError(
                f"tableRetention={retention}: no row ever expires",
                advice="give the rule that the tail has, by --config or --option",
            )
        self.state = message_table(path)
        self.brokers = [each.broker for each in self.state.brokers if broker in (None, each.broker)]
        self.ledgers = [
            ConsumptionTable(path, name, 0, retention) for name in ledger_brokers(path) if broker in (None, name)
        ]
        if broker is not None and not self.brokers and not self.ledgers:
            raise OptionError(f"--broker {broker}: {self.state.path} has no rows of that broker")


# ----------------------------------------------------------------------------------------------------------------------
# `reput table forget`: finding and removing the rows of a request, without Spark.


def checked_request(request: ForgetRequest) -> ForgetRequest:
    """Return the request; raise OptionError if it would mean all rows, or none."""
    texts = (*request.topics, *request.keys, *request.uniq_keys, *request.msg_ids)
    if not texts:
        raise OptionError("what is to be forgotten? Give --topic, --key, --uniq-key or --msg-id")
    if "" in texts or request.broker == "":
        raise OptionError(
            "an empty text matches no message: give --topic, --key, --uniq-key, --msg-id and --broker one"
        )
    return request


def forgetting_plan(path: TableLocation, request: ForgetRequest) -> ForgetPlan:
    """Return the rows that `forget` would remove, without changing anything.

    Raises
    ------
    OutputError
        The table cannot be read.
    """
    state = message_table(path)
    with log_errors(state.path):
        found = traces(state.storage, request)
    present = {file.path for file in state.files}
    rows = {name: count for name, count in found.rows.items() if name in present}
    return ForgetPlan(sum(rows.values()), len(rows), len(found.rows) - len(rows), found)


def forget(path: TableLocation, request: ForgetRequest) -> Forgotten:
    """Remove the rows for good; see ``Forgetting.run``.

    Raises
    ------
    OutputError
        The table cannot be read, or not be written by reput.
    TransientError
        Other writers committed first again and again, or the disk is full.
    """
    table = message_table(path).opened()
    with log_errors(table.path):
        return Forgetting(table, request).run()
