"""All of `reput verify`: the store itself, its table, another store to compare it with, a manifest."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_lock import lock_holder
from reput.sinks.store_comparison import (
    StoreFile,
    compare_manifest,
    compare_pair,
    load_manifest,
    manifest_text,
    pair_files,
    store_files,
)
from reput.sinks.table.forgotten_rows import NONE_FORGOTTEN, forgotten_rows
from reput.sinks.table.location import TableLocation
from reput.sinks.table.storage import table_storage
from reput.source.errors import OptionError
from reput.source.log.log_reader import LogReader
from reput.source.log.store_layout import COMMIT_LOG, with_dledger
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.paths import OutputPaths, check_table_place, refuse_paths_inside
from reput.streaming.spark.session import temporary_log_file
from reput.streaming.tasks.executors import files_to_look_at
from reput.streaming.tasks.task_session import TaskSession, task_session
from reput.streaming.verify.store_verification import (
    StoreSection,
    StoreVerification,
    VerifyReport,
    digest_files,
)
from reput.streaming.verify.table import verify_table

# Processes take half a second to start, in which one core checks as much of a smaller log as they would save.
_PROCESSES_FROM_BYTES = 1 << 29


@dataclass(frozen=True)
class VerifyRequest:
    """What to compare; see ``cli.verify``. With `digests`, the report has the SHA-256 of every file."""

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
        files = store_files(request.output, config.commit_log)
        if request.against is not None:
            sections.append(_compare_stores(config, files, request.against))
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
    """The directories of the other store's log; an output has none, so that no log is compared."""
    if config.source.enable_dledger_commit_log:
        return [*with_dledger((against / COMMIT_LOG,), against, {})] if list(against.glob("dledger-*")) else []
    return [path for path in (against / COMMIT_LOG,) if path.is_dir()]


@contextmanager
def _session(config: PipelineConfig, request: VerifyRequest, log_bytes: int) -> Iterator[TaskSession]:
    """A session whose Spark log is a file that is removed afterwards: nothing is written to the output."""
    table_master = config.spark.master if request.table is not None else None
    log_file = temporary_log_file()
    of_output = (path for path in request.output.rglob("*") if path.is_file())
    log = LogReader(SourceOptions.parse(config.source_options()))
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
