"""Where the rows of a query go: a file of its own, or standard output."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from reput.sinks.files.single_file import written_beside
from reput.sinks.table.location import TableLocation
from reput.sinks.table.storage import LOG
from reput.source.errors import OptionError, OutputError
from reput.source.segments.mapped_file_name import is_file_name
from reput.source.segments.store_layout import COMMIT_LOG
from reput.source.system_errors import output_error_of
from reput.streaming.process.standard_streams import drop_output


@contextmanager
def output_file(path: Path, table: TableLocation, *, option: str = "--output") -> Iterator[TextIO]:
    """A new text file that takes the place of `path` once all is written; it is never half a file.

    Raises
    ------
    OptionError
        `path`, the value of `option`, is in a Delta table or among the files of a store, or is something that no file
        can replace.
    OutputError
        It cannot be written.
    """
    check_output_file(path, table, option=option)
    try:
        with written_beside(path) as file:
            out = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="\n")
            yield out
            out.flush()
            out.detach()
    except OSError as error:
        raise output_error_of(error)(f"cannot write {path}: {error.strerror}", file=path) from error


def check_output_file(path: Path, table: TableLocation, *, option: str) -> None:
    """Raise OptionError where `output_file` does, before anything is computed."""
    whole = path.resolve()
    if isinstance(table, Path) and whole.is_relative_to(table.resolve()):
        raise OptionError(f"{option} {path} is in the table that is read")
    if any((directory / LOG).is_dir() for directory in whole.parents):
        raise OptionError(f"{option} {path} is in a Delta table")
    if COMMIT_LOG in whole.parent.parts or any(map(is_file_name, _names_in(whole.parent))):
        raise OptionError(f"{option} {path} is among the files of a log or a queue: nothing else is written there")
    if path.exists() and not path.is_file():
        raise OptionError(f"{option} {path} is not a file")


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  names alone are wanted
    except OSError:  # told where the file is to be written
        return []


@contextmanager
def standard_output() -> Iterator[TextIO]:
    """Standard output, in UTF-8 unless it is a terminal, which gets what it can show; raises OutputError.

    A reader that has enough, as ``head`` does, raises BrokenPipeError.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise OutputError(
            f"cannot write the result to standard output: {error.strerror}", file="/dev/stdout"
        ) from error
