"""`reput table expire`: what has expired by ``tableRetention``, without Spark, and removing it."""

from __future__ import annotations

import time

from reput.sinks.table.expired_rows import Expired, ExpiredRows
from reput.sinks.table.file_list import log_errors
from reput.sinks.table.location import TableLocation
from reput.sinks.table.row_retention import RowRetention
from reput.sinks.table.table_state import TableState
from reput.source.errors import OptionError
from reput.streaming.output.paths import check_table
from reput.streaming.table.report import ExpiryReport


def plan(path: TableLocation, retention: RowRetention, broker: str | None) -> ExpiryReport:
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
            expired = [rows.look_into(state.storage, state.storage.name_of(file.stored.path)).rows for file in files]
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
    from reput.sinks.table.refusal import output_errors  # noqa: PLC0415  with Spark's modules
    from reput.sinks.table.upkeep import TableUpkeep  # noqa: PLC0415
    from reput.streaming.table.upkeep import existing_table  # noqa: PLC0415

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
