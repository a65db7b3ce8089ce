"""Records and rows of one stretch of the log, compared one by one: rows that are missing, doubled or different."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from reput.sinks.findings import Difference, Findings
from reput.sinks.table.forgotten_rows import NONE_FORGOTTEN, ForgottenRows
from reput.sinks.table.record_digest import COLUMNS, IDENTITY
from reput.source.printable import printable
from reput.source.rows.message_schema import LATER_NAMES, MESSAGE_SCHEMA

#: A row's values by column, times in microseconds.
Row = dict[str, Any]
# How much of a value is shown.
_VALUE_MAX = 60


def plain_rows(rows: pa.RecordBatch) -> list[Row]:
    """Rows as plain values; columns of ``record_digest.COLUMNS`` that are missing are null."""
    columns: dict[str, list[Any]] = {}
    for name in COLUMNS:
        kind = MESSAGE_SCHEMA.field(name).type
        if (at := rows.schema.get_field_index(name)) < 0:
            columns[name] = [None] * rows.num_rows
            continue
        column = rows.column(at)
        if pa.types.is_timestamp(column.type):  # Python's times end with the year 9999, and have no other calendar
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        values = column.to_pylist()
        is_map = pa.types.is_map(kind)
        columns[name] = [None if each is None else dict(each) for each in values] if is_map else values
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def identities(rows: Iterable[Row]) -> set[tuple[Any, ...]]:
    """What tells each row's record from all others, whatever others changed in the row."""
    return {tuple(row[name] for name in IDENTITY) for row in rows}


def compare_rows(
    records: Iterable[Row], rows: Iterable[Row], findings: Findings, forgotten: ForgottenRows = NONE_FORGOTTEN
) -> None:
    """Report each difference; a row without `kind`, of an earlier version of reput, is compared without later columns.

    One that differs in nothing but the later columns is ``row_derived_otherwise``, and one that was `forgotten` and is
    there is ``row_forgotten``.
    """
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["physical_offset"]].append(row)
    for record in records:
        offset = record["physical_offset"]
        there = found.pop(offset, [])
        if not there:
            text = f"the record at {offset} has no row"
            findings.differ(Difference("row_missing", text, physical_offset=offset, expected=_identity(record)))
        if len(there) > 1:
            text = f"the record at {offset} has {len(there)} rows"
            queue_offset = record["queue_offset"]
            findings.differ(
                Difference("row_twice", text, physical_offset=offset, queue_offset=queue_offset), len(there) - 1
            )
        for row in there:
            _compare(record, row, findings)
    for offset, there in found.items():
        kind, text = "row_without_record", f"a row of a record at {offset}, where the log has none"
        if forgotten.between(offset, offset + 1):
            kind, text = "row_forgotten", f"the row of the record at {offset} was forgotten, and is there"
        findings.differ(Difference(kind, text, physical_offset=offset, found=_identity(there[0])), len(there))


def _compare(record: Row, row: Row, findings: Findings) -> None:
    is_earlier = row["kind"] is None
    compared = [name for name in COLUMNS if not (is_earlier and name in LATER_NAMES)]
    names = [name for name in compared if record[name] != row[name]]
    if not names:
        return
    changes = "; ".join(f"{name} {_shown(record, name)} expected, {_shown(row, name)} found" for name in names)
    text = f"the row of the record at {record['physical_offset']}: {changes}"
    kind = "row_changed" if set(names) - LATER_NAMES else "row_derived_otherwise"
    at = record["queue_offset"], record["physical_offset"]
    findings.differ(Difference(kind, text, None, None, *at, _identity(record), _identity(row)))


def _identity(row: Row) -> str:
    return ", ".join(f"{name} {_shown(row, name)}" for name in IDENTITY)


def _shown(row: Row, name: str) -> str:
    """A value as it is shown, times in milliseconds; of a long one the beginning. Producers wrote it."""
    value = row[name]
    if isinstance(value, int) and pa.types.is_timestamp(MESSAGE_SCHEMA.field(name).type):
        return f"{value // 1000}" if value % 1000 == 0 else f"{value / 1000}"
    text = "null" if value is None else printable(repr(value) if not isinstance(value, str) else f"'{value}'")
    return text if len(text) <= _VALUE_MAX else text[: _VALUE_MAX - 1] + "\u2026"
