"""`reput table forget`: what would be forgotten, without Spark, and doing it."""

from __future__ import annotations

from reput.sinks.table.file_list import log_errors
from reput.sinks.table.forgotten import ForgetRequest, Forgotten, traces
from reput.sinks.table.location import TableLocation
from reput.sinks.table.table_state import TableState
from reput.source.errors import OptionError
from reput.streaming.output.paths import check_table
from reput.streaming.table.report import ForgetPlan


def checked(request: ForgetRequest) -> ForgetRequest:
    """The request; raises OptionError if it would mean all rows, or none."""
    texts = (*request.topics, *request.keys, *request.uniq_keys, *request.msg_ids)
    if not texts:
        raise OptionError("what is to be forgotten? Give --topic, --key, --uniq-key or --msg-id")
    if "" in texts or request.broker == "":
        raise OptionError(
            "an empty text matches no message: give --topic, --key, --uniq-key, --msg-id and --broker one"
        )
    return request


def plan(path: TableLocation, request: ForgetRequest) -> ForgetPlan:
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
    present = {file.stored.path for file in state.files}
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
    from reput.streaming.table.upkeep import existing_table  # noqa: PLC0415

    table = existing_table(path)
    with log_errors(table.path):
        return Forgetting(table, request).run()
