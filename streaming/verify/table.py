"""Comparing the message table with the log: sums over stretches, and rows one by one where the sums differ."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile
from reput.sinks.findings import Difference, Findings
from reput.sinks.table.comparison import STRETCH_BYTES, Row, StretchSums, compare_rows, plain_rows
from reput.sinks.table.data_file import bad_files
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import log_entries
from reput.sinks.table.message_table import MessageTable
from reput.sinks.table.storage import LOG, table_storage
from reput.source.errors import OutputError
from reput.source.printable import printable
from reput.streaming.output.table_rows import ComparedRows, compared_rows
from reput.streaming.tasks.tasks import Tasks
from reput.streaming.verify.store_verification import StoreSection, StoreVerification, rows_of_range

# How many stretches are compared row by row; the others that differ are only counted.
_STRETCHES_MAX = 16
# How far back the table's log is searched for the last rows that expired.
_VERSIONS_SEARCHED = 2000


def verify_table(
    path: TableLocation,
    broker: str,
    verification: StoreVerification,
    tasks: Tasks,
    spark: Callable[[], SparkSession],
) -> StoreSection:
    """Compare the rows of `broker` with the records that `verification` read; it must have their sums.

    Tasks read the rows; `spark` is called for a table that only Spark reads.

    Raises
    ------
    OutputError
        There is no Delta table at `path`, or it has other columns.
    """
    storage = table_storage(path)
    if not storage.files(LOG):
        raise OutputError(f"{path} is no Delta table: give the directory that 'reput tail --table' made", file=path)
    section = StoreSection("table")
    rows = compared_rows(path, broker, verification.expired, tasks, spark)
    missing = {file.name: file.problem for file in bad_files(storage, rows.files)}
    found, unreadable = rows.sums()
    for name, problem in (unreadable | missing).items():
        kind = "file_missing" if name in missing else "file_unreadable"
        section.findings.differ(Difference(kind, f"{path / name} {problem}", str(path / name)))
    _compare(rows, found, path, broker, verification, section)
    return section


def _compare(
    rows: ComparedRows,
    found: StretchSums,
    path: TableLocation,
    broker: str,
    verification: StoreVerification,
    section: StoreSection,
) -> None:
    findings = section.findings
    least, limit = _limits(rows, found, verification)
    expected = StretchSums()
    for result in verification.results:
        expected.add_all(result.sums)
    edges = {least // STRETCH_BYTES, limit // STRETCH_BYTES}
    inside = [
        stretch
        for stretch in expected.differing(found)
        if stretch in edges or (least < (stretch + 1) * STRETCH_BYTES and stretch * STRETCH_BYTES < limit)
    ]
    outside = set(found.sums) - set(range(least // STRETCH_BYTES, limit // STRETCH_BYTES + 1))
    findings.note("expired_rows", sum(found.sums[at].rows for at in outside if at * STRETCH_BYTES < least))
    findings.note("rows_behind_the_end", sum(found.sums[at].rows for at in outside if at * STRETCH_BYTES >= limit))
    for stretch in inside[:_STRETCHES_MAX]:
        _compare_stretch(rows, stretch, (least, limit), verification, findings)
    if len(inside) > _STRETCHES_MAX:
        more = len(inside) - _STRETCHES_MAX
        text = f"{more} more stretches of {STRETCH_BYTES} bytes of the log differ from the table, the first at "
        text += str(inside[_STRETCHES_MAX] * STRETCH_BYTES)
        findings.differ(Difference("stretch_differs", text), more)
    findings.note("not_dispatched_yet", verification.settings.log.limit - limit)
    findings.note("rows_of_an_earlier_version", found.earlier_rows)
    section.compared = {
        "rows": sum(each.rows for each in found.sums.values()),
        "columns": len(rows.columns.compared),
    }
    if rows.columns.others:
        findings.remarks.append(f"not compared: {', '.join(rows.columns.others)}")
    forgotten = verification.settings.task.forgotten
    if forgotten.between(least, limit):
        findings.remarks.append(str(forgotten))
    if findings.differences:
        expired = _expired_by(path, broker, rows.version, verification)
        section.advice = _advice(inside, verification, least, limit) + expired


def _advice(stretches: list[int], verification: StoreVerification, least: int, limit: int) -> str:
    """The command that repairs the table: for all that differs if that is one range, else for the whole log."""
    command = "reput rebuild --only table"
    if stretches and stretches[-1] - stretches[0] < len(stretches):
        low, high = max(least, stretches[0] * STRETCH_BYTES), min(limit, (stretches[-1] + 1) * STRETCH_BYTES)
        log = verification.log
        begin, before = log.align_down(least, low), log.align_down(least, high)
        end = high if high in (before, limit) else log.limit(before, limit, 1, None)
        command += f" --from {begin} --to {end}"
    return f"'{command}' with the same --store, --output and --table makes the rows as the log has them, in one commit"


def _expired_by(path: TableLocation, broker: str, version: int, verification: StoreVerification) -> str:
    """Advice to give the rules by which rows expired last, if these are others; else nothing."""
    from reput.sinks.table.file_list import log_errors  # noqa: PLC0415  deltalake starts threads: no fork behind it

    with log_errors(path):
        entries = log_entries(table_storage(path), version, _VERSIONS_SEARCHED)
        found = next((each.retention for each in entries if each.retention is not None and each.broker == broker), None)
    if found is None or found == str(verification.expired.retention):
        return ""
    return f"; rows have expired by {printable(f'tableRetention={found}')}: with that option they are not missed"


def _limits(rows: ComparedRows, found: StretchSums, verification: StoreVerification) -> tuple[int, int]:
    """The `[least, limit)` of the log that the table must have, by its transactions and the sink's progress record.

    `found` are the sums of its rows: without a transaction it must have all, unless it has none and was just begun.
    """
    record = ProgressFile(DurableFiles(verification.output), MessageTable.name).load()
    log = verification.settings.log
    start, end = record.start_offset if record is not None else 0, rows.committed
    if end is None and not found.sums and MessageTable.is_first_start(record):
        end = record.end_offset
    return max(log.least, start), log.limit if end is None else min(log.limit, end)


def _compare_stretch(
    rows: ComparedRows, stretch: int, limits: tuple[int, int], verification: StoreVerification, findings: Findings
) -> None:
    """Compare one stretch row by row: the records that begin in it, and the rows with offsets in it."""
    begin, end = stretch * STRETCH_BYTES, (stretch + 1) * STRETCH_BYTES
    low, high = max(begin, limits[0]), min(end, limits[1])
    there = [row for batch in rows.between(begin, end) for row in plain_rows(batch)]
    inside = [row for row in there if low <= row["physical_offset"] < high]
    findings.note("expired_rows", sum(row["physical_offset"] < low for row in there))
    findings.note("rows_behind_the_end", sum(row["physical_offset"] >= high for row in there))
    records = records_between(verification, limits, low, high)
    compare_rows(records, inside, findings, verification.settings.task.forgotten)


def records_between(verification: StoreVerification, limits: tuple[int, int], low: int, high: int) -> list[Row]:
    """The rows of the records with physical offsets in `[low, high)`, any range inside of `limits`."""
    log, here = verification.log, list[Row]()
    if low < high:
        start = log.align_down(limits[0], low)
        stop = log.align_down(start, high)
        if stop < high:  # the last record begins here and ends behind
            stop = log.limit(stop, limits[1], 1, None)
        for span in log.split(start, stop):
            for rows in rows_of_range(verification.settings, span):
                here += (row for row in plain_rows(rows) if low <= row["physical_offset"] < high)
    return here
