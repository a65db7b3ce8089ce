"""A query's Spark checkpoint: giving it to Spark, reading it, and removing it."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import REPUT, SPARK_CHECKPOINT
from reput.source.data_source import OFFSET_VERSION, last_record_of_offset
from reput.source.errors import OutputError, check_format
from reput.source.log.log_reader import LogReader
from reput.source.printable import lines_of
from reput.streaming.output.paths import LOGIC
from reput.streaming.process.environment import run_directory

SPARK_CHECKPOINT_OF_LOGIC = (REPUT, SPARK_CHECKPOINT, LOGIC)

_log = logging.getLogger("reput")


def path_for_spark(checkpoint: Path) -> Path:
    """Make a query's checkpoint if it is missing, and return the path by which Spark may write to it.

    The path is a symbolic link in the directory of this run. Spark makes any directory that is missing, so by the real
    path it would write into an empty mount point; it cannot make a directory behind a link.

    Raises
    ------
    OutputError
        The directory cannot be made.
    """
    files = DurableFiles(checkpoint.parent)
    try:
        files.make_directory(checkpoint.name)
        files.sync()
    finally:
        files.close()
    target = checkpoint.absolute()
    link = run_directory() / f"checkpoint-{sha256(os.fsencode(target)).hexdigest()[:32]}"
    with suppress(FileExistsError):  # from an earlier opening
        link.symlink_to(target, target_is_directory=True)
    return link


def spark_offset(checkpoint: Path) -> int | None:
    """Return the physical offset before which everything is done by a query's Spark checkpoint; None without one.

    Raises
    ------
    LaterFormatError, OutputError
        The checkpoint cannot be read.
    """
    commits = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdecimal()]
    if not commits:
        return None
    return end_of_batch(checkpoint, max(commits))


def end_of_batch(checkpoint: Path, batch_id: int) -> int:
    """Return the physical offset at which a planned batch ends.

    Raises
    ------
    LaterFormatError, OutputError
        The checkpoint has no such batch, or cannot be read.
    """
    offset: int = _offset(checkpoint, batch_id)["physicOffset"]
    return offset


def forget_planned_batch(checkpoint: Path, log: LogReader) -> None:
    """Remove a query's Spark checkpoint if its next batch was planned for a log that has been cut since.

    Spark would ask for the same batch again and again. The sinks know where they end, and Spark then begins there.
    """
    planned = [int(path.name) for path in checkpoint.glob("offsets/*") if path.name.isdecimal()]
    if not planned or (checkpoint / "commits" / str(max(planned))).exists():
        return
    offset = _offset(checkpoint, max(planned))
    last = last_record_of_offset(offset)
    if last is None or (log.find_record(last) == last and log.is_led_to(last, int(offset["startOffset"]))):
        return
    _log.warning(
        "the log was cut before a planned micro-batch was read: it no longer has the record at offset %d; removing "
        "Spark's checkpoint %s, the sinks know where they end",
        last.offset,
        checkpoint,
    )
    forget(checkpoint)


def _offset(checkpoint: Path, batch_id: int) -> dict[str, Any]:
    """Return the source's offset at the end of a batch.

    Raises
    ------
    LaterFormatError
        A later release wrote it.
    OutputError
        It cannot be read, or belongs to another source.
    """
    path = checkpoint / "offsets" / str(batch_id)
    try:
        offset: dict[str, Any] = json.loads(lines_of(path.read_text(encoding="utf-8"))[-1])
        check_format(path, offset["version"], OFFSET_VERSION, file=path)
        return {**offset, "physicOffset": int(offset["physicOffset"])}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise OutputError(
            f"{path} has no offset of the log ({error!r})",
            advice=f"remove {checkpoint}: the query continues where its sinks end",
            file=path,
        ) from error


def forget(checkpoint: Path) -> None:
    """Remove a query's Spark checkpoint, durably: the query begins where its sinks end."""
    if checkpoint.exists():
        files = DurableFiles(checkpoint.parent)
        files.remove_tree(checkpoint.name)
        files.close()
