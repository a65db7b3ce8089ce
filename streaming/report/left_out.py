"""Ranges of the log that were left out, from the quarantine's table beside the message table, and from an output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reput.sinks.quarantine import load_quarantine
from reput.sinks.table.location import TableLocation
from reput.sinks.table.quarantine_schema import quarantine_table_path
from reput.source.errors import OutputError
from reput.streaming.config.run_options import SqlOptions
from reput.streaming.output.table_path import check_table
from reput.streaming.sql.duckdb_query import table_statements


@dataclass(frozen=True)
class LeftOut:
    """What was left out of one broker's log for one `cause`: ranges, bytes, and where the first one begins."""

    broker: str
    cause: str
    ranges: int
    size_bytes: int
    first_offset: int


def left_out_of(
    table: TableLocation, output: Path | None, options: SqlOptions | None
) -> tuple[list[LeftOut], list[str]]:
    """What was left out, most bytes first, and where that was looked up.

    Raises
    ------
    OutputError
        The quarantine's table or the output cannot be read.
    """
    ranges: dict[tuple[str, int], tuple[str, int]] = {}
    looked_at = []
    beside = quarantine_table_path(table)
    if _is_there(beside):
        with table_statements(beside, options=options) as statements:
            rows = statements.rows("SELECT broker, physical_offset, cause, length FROM messages")
        ranges.update(((broker, offset), (cause, length)) for broker, offset, cause, length in rows)
        looked_at.append(str(beside))
    if output is not None:
        lines = load_quarantine(output)
        ranges.update(((each.broker, each.physical_offset), (each.cause, each.length)) for each in lines)
        looked_at.append(str(output))
    return _summed((broker, offset, *found) for (broker, offset), found in ranges.items()), looked_at


def _is_there(table: TableLocation) -> bool:
    if isinstance(table, Path):
        return table.exists()
    try:
        check_table(table)
    except OutputError:
        return False
    return True


def _summed(ranges: Iterable[tuple[str, int, str, int]]) -> list[LeftOut]:
    sums: dict[tuple[str, str], LeftOut] = {}
    for broker, offset, cause, length in ranges:
        known = sums.get((broker, cause), LeftOut(broker, cause, 0, 0, offset))
        first = min(known.first_offset, offset)
        sums[broker, cause] = LeftOut(broker, cause, known.ranges + 1, known.size_bytes + length, first)
    return sorted(sums.values(), key=lambda each: (-each.size_bytes, each.broker, each.cause))
