"""Records and rows of one stretch of the log, compared one by one: rows that are missing, doubled or different."""

from __future__ import annotations

from collections import defaultdict

from reput.sinks.table.record_digest import COMPARED
from reput.sinks.verify.findings import Difference, Findings
from reput.source.arrays import Int64s

Row = tuple[int, ...]


def compare_rows(records: list[Int64s], rows: list[Int64s], findings: Findings) -> None:
    """Report each difference; both arguments are the columns of ``record_digest.COMPARED``."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in zip(*(column.tolist() for column in rows), strict=True):
        found[row[0]].append(row)
    for record in zip(*(column.tolist() for column in records), strict=True):
        offset = record[0]
        there = found.pop(offset, [])
        if not there:
            text = f"the record at {offset} has no row"
            findings.differ(Difference("row_missing", text, physical_offset=offset, expected=_describe(record)))
        if len(there) > 1:
            text = f"the record at {offset} has {len(there)} rows"
            findings.differ(
                Difference("row_twice", text, physical_offset=offset, queue_offset=record[3]), len(there) - 1
            )
        for row in there:
            names = [name for name, wanted, value in zip(COMPARED, record, row, strict=True) if wanted != value]
            if names:
                changes = "; ".join(
                    f"{name} {record[COMPARED.index(name)]} expected, {row[COMPARED.index(name)]} found"
                    for name in names
                )
                text = f"the row of the record at {offset}: {changes}"
                findings.differ(
                    Difference("row_changed", text, None, None, record[3], offset, _describe(record), _describe(row))
                )
    for offset, there in found.items():
        text = f"a row of a record at {offset}, where the log has none"
        findings.differ(
            Difference("row_without_record", text, physical_offset=offset, found=_describe(there[0])), len(there)
        )


def _describe(row: Row) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(COMPARED, row, strict=True))
