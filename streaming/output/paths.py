"""Where an output, its table and Spark's checkpoints are."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reput.sinks.files.store_path import REPUT, SPARK_CHECKPOINT
from reput.sinks.table.location import TableLocation
from reput.sinks.table.quarantine_schema import quarantine_table_path
from reput.source.errors import OutputError
from reput.streaming.output.table_path import check_table_place


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
    for name, path in written.items():
        if not isinstance(path, Path):
            continue
        for directory in commit_log:
            if path.resolve() == directory.resolve() or directory.resolve() in path.resolve().parents:
                raise OutputError(
                    f"{name} {path} is inside the commitlog {directory}: nothing is ever written there", file=path
                )
