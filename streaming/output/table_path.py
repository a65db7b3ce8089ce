"""Whether there is a table at a path, looked at before Spark is started."""

from __future__ import annotations

import os
from pathlib import Path

from reput.source.errors import OutputError
from reput.source.printable import printable

_LOG = "_delta_log"


def check_table(table: Path) -> None:
    """Check that there is a Delta table that can be read, before Spark is started.

    Raises
    ------
    OutputError
        There is none; the message says what is there instead.
    """
    log, advice = table / _LOG, "give the directory that 'reput tail --table' made"
    name = printable(str(table))
    try:
        if not table.exists():
            raise OutputError(f"{name} does not exist: {advice}", file=table)
        if not table.is_dir():
            raise OutputError(f"{name} is no Delta table but a file: {advice}", file=table)
        if not log.is_dir():
            empty = "is empty" if not any(table.iterdir()) else f"is no Delta table (it has no {_LOG})"
            raise OutputError(f"{name} {empty}: {advice}", file=table)
        with os.scandir(log) as entries:
            if not any(entry.name.endswith((".json", ".parquet")) for entry in entries):
                raise OutputError(f"{name} is no Delta table (its {_LOG} holds no commit): {advice}", file=log)
    except OSError as error:
        path = printable(str(error.filename))
        raise OutputError(f"cannot read {path}: {error.strerror}", file=error.filename) from error
