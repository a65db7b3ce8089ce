"""`reput table optimize`, `vacuum`, `repair`, `expire` and `forget`: upkeep by hand.

Each has a plan, which changes nothing, beside the deed. None needs Spark.
"""

from __future__ import annotations

import time

from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.expiry import Expired, ExpiredRows
from reput.sinks.table.file_list import FileList, TableState, log_errors
from reput.sinks.table.forget import ForgetRequest, Forgotten, traces
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import LOG_KEPT, Cleaning, cleaning, log_damage
from reput.sinks.table.message_file import TABLE_SCHEMA
from reput.sinks.table.retention import RowRetention
from reput.sinks.table.storage import output_errors, table_storage
from reput.sinks.table.upkeep import TableUpkeep
from reput.source.errors import OptionError, output_error_of
from reput.source.rows.message_schema import LATER_NAMES, spark_schema
from reput.streaming.output.paths import check_table
from reput.streaming.table.report import ExpiryReport, ForgetPlan, OptimizeReport, RepairReport, VacuumReport

# ----------------------------------------------------------------------------------------------------------------------
# `reput table optimize`: by hand the merges that a `tail` does beside its work.


def existing_table(path: TableLocation) -> DeltaTable:
    """The message table at `path`, which must be there and stays as it is; errors as ``check_table``."""
    check_table(path)
    return DeltaTable(path.resolve(), spark_schema(TABLE_SCHEMA), later=LATER_NAMES)


def brokers_of(state: TableState, broker: str | None) -> tuple[str, ...]:
    """The brokers with files of their own in a table, or `broker` alone; raises OptionError if it has none."""
    found = sorted({file.broker for file in state.files if file.broker is not None and file.is_own})
    if broker is None:
        return tuple(found)
    if broker not in found:
        raise OptionError(f"--broker {broker}: no file of {state.path} has rows of that broker alone")
    return (broker,)


def optimize(path: TableLocation, broker: str | None) -> OptimizeReport:
    """Merge and sort the files of `broker`, or of each, until nothing is due.

    Killed at any moment, the merges that were committed stay, and the same command does the rest.

    Raises
    ------
    OptionError
        The broker has no files.
    OutputError
        The table cannot be read, or not be written by reput.
    TransientError
        Other writers committed first again and again, or the disk is full.
    """
    table = existing_table(path)
    before = TableState(table.path)
    names, merges = brokers_of(before, broker), 0
    for name in names:
        with log_errors(table.path), output_errors(f"{table.path} cannot be tidied", table.path):
            merges += TableUpkeep(table, name, 0).to_the_end().merges
    after = TableState(table.path)
    return OptimizeReport(
        *(names, merges, len(before.files), len(after.files), before.size_bytes, after.size_bytes, after.version)
    )


# ----------------------------------------------------------------------------------------------------------------------
# `reput table vacuum`: by hand, and without Spark, what a `tail` removes beside its work.

# Another cleaning of the same table, as a `tail` does, may remove a file while this one looks for what can go.
_ATTEMPTS = 3


def vacuum(path: TableLocation, versions_kept: int, *, dry_run: bool) -> VacuumReport:
    """Remove what the last `versions_kept` versions do not need, and orphans; with `dry_run` only look for it.

    Killed at any moment, every version that is kept can still be read, and the same command does the rest. A `tail` may
    write the table meanwhile.

    Raises
    ------
    OutputError
        The table cannot be read, or a file cannot be removed.
    """
    check_table(path)
    state = TableState(path)
    keeps_log = LOG_KEPT in state.metadata.configuration
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
# `reput table repair`: another checkpoint in place of one that is damaged or gone, without Spark.


def repair(path: TableLocation) -> RepairReport:
    """Set damaged checkpoints aside, and write one by the commits. Killed at any moment, the same command finishes.

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
            return RepairReport((), FileList(path).version, written=False)
        if not damage.to_set_aside:
            raise damage.error(storage)
        damage.repair(storage)
    except OSError as error:
        raise output_error_of(error)(f"{path}: the table's log cannot be repaired: {error}", file=path) from error
    return RepairReport(damage.to_set_aside, FileList(path).write_checkpoint(), written=True)


# ----------------------------------------------------------------------------------------------------------------------
# `reput table expire`: what has expired by ``tableRetention``, without Spark, and removing it.


def expiry_plan(path: TableLocation, retention: RowRetention, broker: str | None) -> ExpiryReport:
    """What `expire` would remove; nothing is changed. Rows that a deletion vector takes away count.

    Raises
    ------
    OptionError
        No topic's rows ever expire, or the broker has no rows.
    OutputError
        The table cannot be read.
    """
    state = _state(path, retention)
    limits = retention.limits(time.time())
    found = {}
    with log_errors(state.path):
        for name in _brokers(state, broker):
            rows = ExpiredRows(name, limits)
            files = (file for file in state.files if file.broker in (name, None))
            expired = [rows.look_into(state.storage, state.storage.name_of(file.path)).rows for file in files]
            found[name] = Expired(sum(expired), sum(map(bool, expired)))
    return ExpiryReport(str(retention), found)


def expire(path: TableLocation, retention: RowRetention, broker: str | None) -> ExpiryReport:
    """Remove the expired rows of `broker`, or of each.

    Killed at any moment, the commits that were made stay, and the same command does the rest.

    Raises
    ------
    OptionError
        No topic's rows ever expire, or the broker has no rows.
    OutputError
        The table cannot be read, or not be written by reput.
    TransientError
        Other writers committed first again and again, or the disk is full.
    """
    from reput.sinks.table.storage import output_errors  # noqa: PLC0415  with Spark's modules
    from reput.sinks.table.upkeep import TableUpkeep  # noqa: PLC0415
    # MERGED

    state = _state(path, retention)
    names = _brokers(state, broker)
    table = existing_table(path)
    with log_errors(table.path), output_errors(f"{table.path} cannot be tidied", table.path):
        done = {name: TableUpkeep(table, name, 0, retention).expire_to_the_end() for name in names}
    return ExpiryReport(str(retention), done)


def _state(path: TableLocation, retention: RowRetention) -> TableState:
    if retention.days_min is None:
        raise OptionError(
            f"tableRetention={retention}: no row ever expires",
            advice="give the rule that the tail has, by --config or --option",
        )
    check_table(path)
    return TableState(path)


def _brokers(state: TableState, broker: str | None) -> list[str]:
    found = [each.broker for each in state.brokers]
    if broker is None:
        return found
    if broker not in found:
        raise OptionError(f"--broker {broker}: {state.path} has no rows of that broker")
    return [broker]


# ----------------------------------------------------------------------------------------------------------------------
# `reput table forget`: what would be forgotten, without Spark, and doing it.


def checked_request(request: ForgetRequest) -> ForgetRequest:
    """The request; raises OptionError if it would mean all rows, or none."""
    texts = (*request.topics, *request.keys, *request.uniq_keys, *request.msg_ids)
    if not texts:
        raise OptionError("what is to be forgotten? Give --topic, --key, --uniq-key or --msg-id")
    if "" in texts or request.broker == "":
        raise OptionError(
            "an empty text matches no message: give --topic, --key, --uniq-key, --msg-id and --broker one"
        )
    return request


def forgetting_plan(path: TableLocation, request: ForgetRequest) -> ForgetPlan:
    """What `forget` would do; nothing is changed.

    Raises
    ------
    OutputError
        The table cannot be read.
    """
    check_table(path)
    state = TableState(path)
    with log_errors(state.path):
        found = traces(state.storage, request)
    present = {file.path for file in state.files}
    rows = {name: count for name, count in found.rows.items() if name in present}
    return ForgetPlan(sum(rows.values()), len(rows), len(found.rows) - len(rows), found)


def forget(path: TableLocation, request: ForgetRequest) -> Forgotten:
    """Take the rows away for good; see ``Forgetting.run``.

    Raises
    ------
    OutputError
        The table cannot be read, or not be written by reput.
    TransientError
        Other writers committed first again and again, or the disk is full.
    """
    from reput.sinks.table.forget import Forgetting  # noqa: PLC0415  with Spark's modules
    # MERGED

    table = existing_table(path)
    with log_errors(table.path):
        return Forgetting(table, request).run()
