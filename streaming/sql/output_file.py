"""Where the rows of a query go: a file of its own, or standard output."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from reput.sinks.files.durable_file import written_beside
from reput.sinks.table.location import TableLocation
from reput.source.errors import OptionError, OutputError
from reput.source.system_errors import output_error_of
from reput.streaming.process.standard_streams import drop_output


@contextmanager
def output_file(path: Path, table: TableLocation) -> Iterator[TextIO]:
    """A new text file that takes the place of `path` once all is written; it is never half a file.

    Raises
    ------
    OptionError
        `path` is in `table`, or is something that no file can replace.
    OutputError
        It cannot be written.
    """
    _check(path, table)
    try:
        with written_beside(path) as file:
            out = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="\n")
            yield out
            out.flush()
            out.detach()
    except OSError as error:
        raise output_error_of(error)(f"cannot write {path}: {error.strerror}", file=path) from error


def _check(path: Path, table: TableLocation) -> None:
    if isinstance(table, Path) and path.resolve().is_relative_to(table.resolve()):
        raise OptionError(f"--output {path} is in the table that is read")
    if path.exists() and not path.is_file():
        raise OptionError(f"--output {path} is no file")


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
