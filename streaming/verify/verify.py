"""All of `reput verify`: the store itself, its table, another store to compare with, a manifest; and the report.

The table is compared with the log by sums over stretches, and by rows one by one where the sums differ. The report has
a line for each section with its first differences, or all of it as JSON.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile
from reput.sinks.files.store_lock import lock_holder
from reput.sinks.findings import Difference, Findings
from reput.sinks.store_comparison import (
    StoreFile,
    compare_manifest,
    compare_pair,
    load_manifest,
    manifest_text,
    pair_files,
    store_files,
)
from reput.sinks.table.comparison import STRETCH_BYTES, Row, StretchSums, compare_rows, plain_rows
from reput.sinks.table.consumption_check import check_consumption
from reput.sinks.table.data_file import bad_files
from reput.sinks.table.forgotten_rows import NONE_FORGOTTEN, forgotten_rows
from reput.sinks.table.history import log_entries
from reput.sinks.table.location import TableLocation, consumption_table_path
from reput.sinks.table.log import log_errors
from reput.sinks.table.message_table import MessageTable
from reput.sinks.table.storage import LOG, table_storage
from reput.source.errors import OptionError, OutputError
from reput.source.log.log_reader import LogReader
from reput.source.log.store_layout import COMMIT_LOG, with_dledger
from reput.source.printable import counted, printable
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.paths import OutputPaths, check_table_place, refuse_paths_inside
from reput.streaming.output.table_rows import ComparedRows, compared_rows
from reput.streaming.spark.session import temporary_log_file
from reput.streaming.tasks.executors import files_to_look_at
from reput.streaming.tasks.task_session import TaskSession, task_session
from reput.streaming.tasks.tasks import Tasks
from reput.streaming.verify.replicas import compare_replicas
from reput.streaming.verify.store_verification import (
    StoreSection,
    StoreVerification,
    VerifyReport,
    digest_files,
    rows_of_range,
)

# Processes take half a second to start: with a smaller log, they would save less than that.
_PROCESSES_FROM_BYTES = 1 << 29


@dataclass(frozen=True)
class VerifyRequest:
    """The comparisons to make; see ``cli.verify``. With `digests`, the report has the SHA-256 of every file."""

    output: Path
    table: TableLocation | None = None
    against: Path | None = None
    manifest: Path | None = None
    write_manifest: Path | None = None
    digests: bool = False

    @property
    def needs_digests(self) -> bool:
        """Whether every file must be hashed."""
        return self.digests or self.manifest is not None or self.write_manifest is not None


def verify(config: PipelineConfig, request: VerifyRequest) -> VerifyReport:
    """Do what `request` asks for; only the manifest that it names is written.

    Raises
    ------
    ReputError
        The store, the table or the manifest cannot be read.
    """
    if request.manifest is not None and request.write_manifest is not None:
        msg = "--manifest and --write-manifest: one of them wanted, a manifest is checked or written"
        raise OptionError(msg)
    known = load_manifest(request.manifest) if request.manifest is not None else None
    _check_manifest_path(config, request.write_manifest)
    check_table_place(request.table)
    holder = lock_holder(request.output)
    forgotten = NONE_FORGOTTEN
    if request.table is not None:
        forgotten = forgotten_rows(table_storage(request.table), config.broker.name)
    verification = StoreVerification(config, request.output, sums=request.table is not None, forgotten=forgotten)
    log_bytes = verification.log_end - verification.log_start
    with _session(config, request, log_bytes) as session:
        sections = verification.run(session.tasks)
        if request.table is not None:
            sections.append(verify_table(request.table, config.broker.name, verification, session.tasks, session.spark))
            sections += _verify_consumption(request.table, config.broker.name)
        files = store_files(request.output, config.commit_log)
        if request.against is not None:
            sections.append(_compare_stores(config, files, request.against))
            replicas = compare_replicas(config, request.against)
            sections += [] if replicas is None else [replicas]
        digests = (
            digest_files(session.tasks, files, config.index.max_hash_slot_num, config.index.max_index_num)
            if request.needs_digests
            else []
        )
    if known is not None:
        section = StoreSection("manifest", {"files": len(known)})
        compare_manifest(known, files, digests, section.findings)
        sections.append(section)
    if request.write_manifest is not None:
        target = request.write_manifest
        DurableFiles(target.parent).replace(target.name, data=manifest_text(digests).encode())
    return VerifyReport(
        config.store,
        request.output,
        verification.log_start,
        verification.limit,
        verification.log_end,
        sections[0].compared["messages"],
        tuple(sections),
        {digest.name: digest.sha256 for digest in digests},
        holder,
    )


def _check_manifest_path(config: PipelineConfig, target: Path | None) -> None:
    if target is None:
        return
    refuse_paths_inside(config.log_directories, OutputPaths(target.parent))
    if not target.parent.is_dir():
        msg = f"--write-manifest {target}: there is no directory {target.parent}"
        raise OptionError(msg)


def _compare_stores(config: PipelineConfig, files: list[StoreFile], against: Path) -> StoreSection:
    """Compare file by file with another store, which is assumed to have the same settings."""
    section = StoreSection("against")
    if not against.is_dir():
        msg = f"--against {against}: the directory does not exist"
        raise OptionError(msg)
    directories = _log_directories(config, against)
    mine = [file for file in files if directories or not file.name.startswith(f"{COMMIT_LOG}/")]
    pairs = pair_files(mine, store_files(against, directories))
    for pair in pairs:
        compare_pair(pair, config.index.max_hash_slot_num, section.findings)
    section.compared = {"files": len(pairs)}
    return section


def _log_directories(config: PipelineConfig, against: Path) -> list[Path]:
    """Return the directories of the other store's log; an output has none, so that no log is compared."""
    if config.source.enable_dledger_commit_log:
        return [*with_dledger((against / COMMIT_LOG,), against, {})] if list(against.glob("dledger-*")) else []
    return [path for path in (against / COMMIT_LOG,) if path.is_dir()]


@contextmanager
def _session(config: PipelineConfig, request: VerifyRequest, log_bytes: int) -> Iterator[TaskSession]:
    """Start a session whose Spark log is a file that is removed afterwards: nothing is written to the output."""
    table_master = config.spark.master if request.table is not None else None
    log_file = temporary_log_file()
    of_output = (path for path in request.output.rglob("*") if path.is_file())
    log = LogReader(config.log_options())
    read = [*files_to_look_at(log.queue()), *itertools.islice(of_output, 1)]
    try:
        with task_session(
            config,
            "reput verify",
            table_master=table_master,
            spark_log=log_file,
            alone=log_bytes < _PROCESSES_FROM_BYTES,
            with_rows=False,
            table=request.table,
            read=read,
        ) as session:
            yield session
    finally:
        log_file.unlink(missing_ok=True)


# At most this many stretches are compared row by row; the others that differ are only counted.
_STRETCHES_MAX = 16
# This many versions of the table's log are searched for the last rows that expired.
_VERSIONS_SEARCHED = 2000


def verify_table(
    path: TableLocation,
    broker: str,
    verification: StoreVerification,
    tasks: Tasks,
    spark: Callable[[], SparkSession],
) -> StoreSection:
    """Compare the rows of `broker` with the records that `verification` read; it must have their sums.

    Tasks read the rows; `spark` is called for a table that only Spark can read.

    Raises
    ------
    OutputError
        There is no Delta table at `path`, or it has other columns.
    """
    storage = table_storage(path)
    if not storage.files(LOG):
        raise OutputError(f"{path} is not a Delta table: give the directory that 'reput tail --table' made", file=path)
    section = StoreSection("table")
    rows = compared_rows(path, broker, verification.expired, tasks, spark)
    missing = {file.path: problem for file, problem in bad_files(storage, rows.files)}
    found, unreadable = rows.sums()
    for name, problem in (unreadable | missing).items():
        kind = "file_missing" if name in missing else "file_unreadable"
        section.findings.differ(Difference(kind, f"{path / name} {problem}", str(path / name)))
    _compare(rows, found, path, broker, verification, section)
    return section


def _verify_consumption(table: TableLocation, broker: str) -> Iterator[StoreSection]:
    """Compare the moves of the broker's groups in the ledger beside the table, if it has any, with each other."""
    section = StoreSection("consumption")
    section.compared = check_consumption(table, broker, section.findings) or {}
    if section.findings.differences:
        history = f"'reput table history --table {printable(str(consumption_table_path(table)))}'"
        section.advice = (
            f"no log has these moves, so no command makes them again; {history} says who changed the ledger"
        )
    if section.compared:
        yield section


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
    """Return the command that repairs the table: for one range if all differences are in it, else for the whole log."""
    command = "reput rebuild --only table"
    if stretches and stretches[-1] - stretches[0] < len(stretches):
        low, high = max(least, stretches[0] * STRETCH_BYTES), min(limit, (stretches[-1] + 1) * STRETCH_BYTES)
        log = verification.log
        begin, before = log.align_down(least, low), log.align_down(least, high)
        end = high if high in (before, limit) else log.limit(before, limit, 1, None)
        command += f" --from {begin} --to {end}"
    return f"'{command}' with the same --store, --output and --table makes the rows as the log has them, in one commit"


def _expired_by(path: TableLocation, broker: str, version: int, verification: StoreVerification) -> str:
    """Return advice to give the rules by which rows expired last, if these are others; else nothing."""
    with log_errors(path):
        entries = log_entries(table_storage(path), version, _VERSIONS_SEARCHED)
        found = next((each.retention for each in entries if each.retention is not None and each.broker == broker), None)
    if found is None or found == str(verification.expired.retention):
        return ""
    return f"; rows have expired by {printable(f'tableRetention={found}')}: with that option they are not missed"


def _limits(rows: ComparedRows, found: StretchSums, verification: StoreVerification) -> tuple[int, int]:
    """Return the `[least, limit)` of the log that the table must have, by its transactions and the progress record.

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
    """Return the rows of the records with physical offsets in `[low, high)`, any range inside of `limits`."""
    log, here = verification.log, list[Row]()
    if low < high:
        start = log.align_down(limits[0], low)
        stop = log.align_down(start, high)
        if stop < high:  # the last record begins here and ends after `high`
            stop = log.limit(stop, limits[1], 1, None)
        for span in log.split(start, stop):
            for rows in rows_of_range(verification.settings, span):
                here += (row for row in plain_rows(rows) if low <= row["physical_offset"] < high)
    return here


_SHOWN = 5


def as_json(report: VerifyReport) -> str:
    """Return the report as one JSON object, whose fields are stable."""
    return json.dumps(
        {
            "store": str(report.store),
            "output": str(report.output),
            "running": report.holder,
            "log": {"start": report.log_start, "compared_until": report.limit, "end": report.log_end},
            "messages": report.messages,
            "differences": report.differences,
            "parts": {
                section.name: {
                    "compared": section.compared,
                    "differences": section.findings.differences,
                    "by_kind": dict(section.findings.counts),
                    "first": section.findings.as_dict()["differences"],
                    "notes": dict(section.findings.notes),
                    **({"remarks": section.findings.remarks} if section.findings.remarks else {}),
                    **({"advice": section.advice} if section.advice else {}),
                    **({"not_seen": section.not_seen} if section.not_seen else {}),
                }
                for section in report.sections
            },
            "sha256": dict(report.digests),
        },
        indent=1,
    )


# The things that were compared, in the singular and the plural.
_ONE: Final = {
    "messages": "message",
    "queues": "queue",
    "entries": "entry",
    "files": "file",
    "keys": "key",
    "rows": "row",
    "columns": "column",
    "moves": "move",
}


def print_report(report: VerifyReport, console: Console) -> None:
    """Print the report for people."""
    if report.holder is not None:
        text = f"{report.holder} runs on {report.output} now: what it writes meanwhile is not compared"
        console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
    console.print(f"log [{report.log_start}, {report.limit}): {counted(report.messages, 'message')}", markup=False)
    for section in report.sections:
        console.print(_line(section), soft_wrap=True, highlight=False)
        for remark in section.findings.remarks[:_SHOWN]:
            console.print(f"  {printable(remark)}", markup=False, highlight=False, soft_wrap=True)
        for difference in section.findings.first[:_SHOWN]:
            console.print(f"  {_describe(difference)}", markup=False, highlight=False, soft_wrap=True)
        more = section.findings.differences - min(len(section.findings.first), _SHOWN)
        if more > 0:
            console.print(f"  and {more} more (--json lists 20 of each part)", markup=False, highlight=False)
        if section.not_seen:
            console.print(f"  {printable(section.not_seen)}", markup=False, highlight=False, soft_wrap=True)
        if section.advice:
            console.print(f"  {section.advice}", markup=False, highlight=False, soft_wrap=True)
    verdict = "nothing differs" if not report.differences else counted(report.differences, "difference")
    console.print(verdict, style="bold green" if not report.differences else "bold red", highlight=False)


def _line(section: StoreSection) -> str:
    compared = ", ".join(counted(count, _ONE.get(what, what), what) for what, count in section.compared.items())
    found = section.findings.differences
    verdict = f"[red]{_counts(section.findings.counts.items())}[/red]" if found else "[green]agrees[/green]"
    notes = _counts(section.findings.notes.items())
    return f"{section.name:<10} {escape(compared) + ': ' if compared else ''}{verdict}{f' ({notes})' if notes else ''}"


def _counts(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts)


def _describe(difference: Difference) -> str:
    where = difference.file or ""
    if difference.byte_offset is not None:
        where += f", byte {difference.byte_offset}"
    return printable(f"{where}: {difference.text}" if where else difference.text)
