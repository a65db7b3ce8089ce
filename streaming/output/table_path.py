"""Whether there is a table at a path, looked at before Spark is started."""

from __future__ import annotations

import os
from pathlib import Path

from reput.sinks.table.location import S3Location, TableLocation
from reput.sinks.table.storage import LOG, table_storage
from reput.source.errors import OutputError
from reput.source.printable import printable


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
