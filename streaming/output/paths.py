"""Where an output, its table and Spark's checkpoints are."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reput.sinks.files.store_path import REPUT, SPARK_CHECKPOINT
from reput.sinks.table.location import S3Location, TableLocation, consumption_table_path, quarantine_table_path
from reput.sinks.table.storage import LOG, table_storage
from reput.source.errors import OutputError
from reput.source.printable import printable

#: What a tail keeps: queues with index, and the message table. So are their queries and Spark's checkpoints called.
LOGIC, TABLE = "logic", "table"


@dataclass(frozen=True)
class OutputPaths:
    """Where a command writes; None for what it does not write, or for Spark's checkpoints below the output."""

    output: Path
    table: TableLocation | None = None
    checkpoint: Path | None = None

    def checkpoint_of(self, query: str) -> Path:
        """Spark's checkpoint of one query."""
        root = self.checkpoint or self.output / REPUT / SPARK_CHECKPOINT
        return root / query


def _check_writable(path: Path) -> None:
    """Raise OutputError if the directory `path` cannot be created or written, or is on a read-only disk.

    Errors of Spark and Delta do not say what was refused.
    """
    there = next(each for each in (path, *path.resolve().parents) if each.exists())
    if not os.access(there, os.W_OK):
        is_read_only = os.statvfs(there).f_flag & os.ST_RDONLY
        why = os.strerror(errno.EROFS if is_read_only else errno.EACCES)
        raise OutputError(f"cannot write {path}: {why}", advice="give a writable directory", file=path)


def refuse_paths_inside(commit_log: Sequence[Path], paths: OutputPaths) -> None:
    """Raise OutputError if a path is inside a commitlog directory, or if Spark cannot write to it.

    Of a table on S3 it is only checked that it can be looked for.
    """
    refuse_paths_in(commit_log, paths)
    check_table_place(paths.table)
    for path in (paths.table, paths.checkpoint):
        if isinstance(path, Path):
            _check_writable(path)


def refuse_paths_in(commit_log: Sequence[Path], paths: OutputPaths) -> None:
    """Raise OutputError if a path is inside a commitlog directory."""
    written = {"--output": paths.output, "--table": paths.table, "--checkpoint": paths.checkpoint}
    if paths.table is not None:
        written["--table's quarantine"] = quarantine_table_path(paths.table)
        written["--table's consumption"] = consumption_table_path(paths.table)
    for name, path in written.items():
        if not isinstance(path, Path):
            continue
        for directory in commit_log:
            if path.resolve() == directory.resolve() or directory.resolve() in path.resolve().parents:
                raise OutputError(
                    f"{name} {path} is inside the commitlog {directory}: nothing is ever written there", file=path
                )


# ----------------------------------------------------------------------------------------------------------------------
# Whether there is a table at a path, looked at before Spark is started.


def check_table(table: TableLocation) -> None:
    """Check that there is a Delta table that can be read, before Spark is started.

    Raises
    ------
    OutputError
        There is none; the message says what is there instead.
    """
    advice = "give the directory that 'reput tail --table' made"
    name = printable(str(table))
    if not isinstance(table, Path):
        _check_on_s3(table, advice)
        return
    log = table / LOG
    try:
        if not table.exists():
            raise OutputError(f"{name} does not exist: {advice}", file=table)
        if not table.is_dir():
            raise OutputError(f"{name} is no Delta table but a file: {advice}", file=table)
        if not log.is_dir():
            empty = "is empty" if not any(table.iterdir()) else f"is no Delta table (it has no {LOG})"
            raise OutputError(f"{name} {empty}: {advice}", file=table)
        with os.scandir(log) as entries:
            if not any(entry.name.endswith((".json", ".parquet")) for entry in entries):
                raise OutputError(f"{name} is no Delta table (its {LOG} holds no commit): {advice}", file=log)
    except OSError as error:
        path = printable(str(error.filename))
        raise OutputError(f"cannot read {path}: {error.strerror}", file=error.filename) from error


def _check_on_s3(table: S3Location, advice: str) -> None:
    if not any(name.endswith((".json", ".parquet")) for name in _names_on_s3(table, LOG)):
        what = "is no Delta table" if _names_on_s3(table) else "does not exist"
        raise OutputError(f"{table} {what}: {advice}", file=table)


def _names_on_s3(table: S3Location, below: str = "") -> list[str]:
    try:
        return [file.name for file in table_storage(table).files(below)]
    except OSError as error:
        raise OutputError(f"cannot read {table}: {error}", file=table) from error


def check_table_place(table: TableLocation | None) -> None:
    """Check, before Spark is started, that a table on S3 can be looked for; nothing is checked of another one.

    Raises
    ------
    OutputError
        Its server does not answer or refuses the credentials, or its bucket is missing.
    """
    if isinstance(table, S3Location):
        _names_on_s3(table, LOG)
