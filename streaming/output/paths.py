"""The places of an output, its table and Spark's checkpoints."""

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

#: The names of a tail's queries and of Spark's checkpoints: that of queues and index, and that of the message table.
LOGIC, TABLE = "logic", "table"


@dataclass(frozen=True)
class OutputPaths:
    """The paths that a command writes to; None for what it does not write, or for checkpoints below the output."""

    output: Path
    table: TableLocation | None = None
    checkpoint: Path | None = None

    def checkpoint_of(self, query: str) -> Path:
        """Return Spark's checkpoint of one query."""
        root = self.checkpoint or self.output / REPUT / SPARK_CHECKPOINT
        return root / query


def _check_writable(path: Path) -> None:
    """Raise OutputError if the directory `path` cannot be created or written, or is on a read-only disk.

    The errors of Spark and Delta do not name what was refused.
    """
    there = next(each for each in (path, *path.resolve().parents) if each.exists())
    if not os.access(there, os.W_OK):
        is_read_only = os.statvfs(there).f_flag & os.ST_RDONLY
        why = os.strerror(errno.EROFS if is_read_only else errno.EACCES)
        raise OutputError(f"cannot write {path}: {why}", advice="give a writable directory", file=path)


def refuse_paths_inside(commit_log: Sequence[Path], paths: OutputPaths) -> None:
    """Raise OutputError if a path is inside a commitlog directory, or if Spark cannot write to it.

    For a table on S3, only check that the server and the bucket can be reached.
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
# Checks of a table that run before Spark is started.


def check_table(table: TableLocation) -> None:
    """Check that a Delta table exists and can be read, before Spark is started.

    Raises
    ------
    OutputError
        It does not exist; the message says what was found instead.
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
            raise OutputError(f"{name} is not a Delta table but a file: {advice}", file=table)
        if not log.is_dir():
            empty = "is empty" if not any(table.iterdir()) else f"is not a Delta table (it has no {LOG})"
            raise OutputError(f"{name} {empty}: {advice}", file=table)
        with os.scandir(log) as entries:
            if not any(entry.name.endswith((".json", ".parquet")) for entry in entries):
                raise OutputError(f"{name} is not a Delta table (its {LOG} holds no commit): {advice}", file=log)
    except OSError as error:
        path = printable(str(error.filename))
        raise OutputError(f"cannot read {path}: {error.strerror}", file=error.filename) from error


def _check_on_s3(table: S3Location, advice: str) -> None:
    if not any(name.endswith((".json", ".parquet")) for name in _names_on_s3(table, LOG)):
        what = "is not a Delta table" if _names_on_s3(table) else "does not exist"
        raise OutputError(f"{table} {what}: {advice}", file=table)


def _names_on_s3(table: S3Location, below: str = "") -> list[str]:
    try:
        return [file.name for file in table_storage(table).files(below)]
    except OSError as error:
        raise OutputError(f"cannot read {table}: {error}", file=table) from error


def check_table_place(table: TableLocation | None) -> None:
    """Check, before Spark is started, that the place of a table on S3 can be reached; a local table is not checked.

    Raises
    ------
    OutputError
        Its server does not answer or refuses the credentials, or its bucket is missing.
    """
    if isinstance(table, S3Location):
        _names_on_s3(table, LOG)
