"""The command `reput query --table`: a look-up in the message table instead of a store.

It answers for messages that have expired from the log, and from several brokers at once.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from reput.sinks.table.columns import BODY_SCHEMA
from reput.sinks.table.location import TableLocation
from reput.sinks.table.lookup import TableAnswer, TableLookup, Within
from reput.source.errors import OptionError
from reput.source.times import EPOCH, milliseconds_of, time_text
from reput.streaming.output.paths import check_table
from reput.streaming.process.terminal import terminal_width
from reput.streaming.query.options import QueryOptions, check_format, check_key, check_unique_key, lines, parse_time


def run_table_query(
    options: QueryOptions,
    table: TableLocation,
    *,
    output_format: str = "table",
    with_body: bool = False,
    out: TextIO,
    note: Callable[[str], object],
) -> int:
    """Look up, write the messages to `out` and how they were found to `note`; return how many were found.

    Raises
    ------
    OptionError
        The options do not go together, or one has a value that it does not allow.
    OutputError
        There is no message table, or it cannot be read.
    """
    check_format(output_format)
    ask = _question(options)
    check_table(table)
    lookup = TableLookup(table, with_body=with_body)
    if with_body and not lookup.has_bodies:
        raise OptionError(f"--body: {table} has no bodies, since it is kept without tableIncludeBody")
    answer = ask(lookup)
    if not answer.rows:
        for other in options.in_other_cases():
            if (found := _question(other)(lookup)).rows:
                answer = found
                note(f"the unique key is {other.uniq_key}, in other cases than were given")
                break
    rows = [table_row(row) for row in answer.rows]
    if options.uniq_key is not None and rows:
        first = min(answer.rows, key=lambda row: (row["store_time"] or EPOCH, row["physical_offset"]))
        rows = [row | {"chosen": found is first} for row, found in zip(rows, answer.rows, strict=True)]
    out.writelines(f"{line}\n" for line in lines(rows, output_format, terminal_width(out)))
    note(f"{answer.opened} of {answer.files} data files opened")
    if answer.unfiltered:
        note(f"{answer.unfiltered} of them have no key filter: 'reput table optimize' or a running tail writes it")
    return len(rows)


def _question(options: QueryOptions) -> Callable[[TableLookup], TableAnswer]:
    """Return the look-up that the options ask for; all options have been checked."""
    kind, broker, count = options.kind(of_table=True), options.broker, options.entries
    topic, queue_id = options.topic or "", options.queue_id or 0
    if kind == "msg_id":
        msg_id = options.msg_id or ""
        return lambda table: table.by_msg_id(msg_id, broker=broker)
    if kind == "queue_offset":
        queue_offset = options.queue_offset or 0
        return lambda table: table.by_queue_offset(topic, queue_id, queue_offset, count, broker=broker)
    if kind == "time":
        timestamp = parse_time(options.time or "")
        return lambda table: table.by_time(topic, queue_id, timestamp, count, broker=broker)
    within = Within(options.topic, broker, *options.period)
    if kind == "key":
        key = options.key or ""
        check_key(key)
        return lambda table: table.by_key(key, options.most, within)
    key = options.uniq_key or ""
    check_unique_key(key)
    return lambda table: table.by_unique_key(key, options.most, within)


def table_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's row as ``store_lookup`` has it: times as text and milliseconds, a body as text or base64."""
    shown: dict[str, Any] = {}
    bodies = {"body": row.get("body"), "body_base64": _base64(row.get("body_bytes"))}
    for name, value in row.items():
        if name in BODY_SCHEMA.names:
            continue
        if not name.endswith("_time"):
            shown[name] = value
            continue
        milliseconds = None if value is None else milliseconds_of(value)
        shown[name] = None if milliseconds is None else time_text(milliseconds)
        shown[f"{name}stamp"] = milliseconds
    return shown | {name: body for name, body in bodies.items() if body is not None}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
