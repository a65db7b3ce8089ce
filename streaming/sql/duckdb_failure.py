"""Why DuckDB did not run a query, in one line and with a fitting exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb
import pyarrow as pa

from reput.sinks.table.location import TableLocation
from reput.source.errors import OptionError, OutputError, TransientError
from reput.source.printable import printable

# DuckDB's name of the kind of an error, and where in the statement it was.
_KIND: Final = re.compile(r"^[A-Z][A-Za-z ]* Error: ")
_POSITION: Final = re.compile(r"^LINE (\d+): ", re.MULTILINE)
# Advice on settings that `reput sql` does not have.
_NOISE: Final = re.compile(r"\s*(Database is launched in in-memory mode|Possible solutions|Launch the database).*", re.DOTALL)


@contextmanager
def duckdb_failures_as_errors(table: TableLocation) -> Iterator[None]:
    """Convert DuckDB's exceptions into errors of reput; `table` is being read.

    Raises
    ------
    OptionError
        The statement cannot be run, or one of its values cannot be computed or shown.
    OutputError
        The table cannot be read.
    TransientError
        There is not enough memory.
    """
    try:
        yield
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        raise TransientError(
            "the query needs more memory than it may take",
            advice="ask for fewer rows or columns, or give it more with -o sqlMaxMemory=8g",
        ) from error
    except (duckdb.IOException, duckdb.HTTPException, pa.ArrowException, duckdb.InvalidInputException) as error:
        line = _line(str(error))
        if isinstance(error, duckdb.InvalidInputException) and ".parquet" not in line:
            raise OptionError(f"cannot run the query: {line}{_position(str(error))}") from error
        raise OutputError(f"cannot read the table {printable(str(table))}: {line}", file=table) from error
    except duckdb.Error as error:
        raise OptionError(f"cannot run the query: {_line(str(error))}{_position(str(error))}") from error
    except (ValueError, OverflowError) as error:
        raise OptionError(f"a value of the result cannot be shown: {printable(str(error))}") from error
    except RecursionError as error:
        raise OptionError("the statement is nested too deeply") from error


def _line(message: str) -> str:
    """The message on one line, without its kind, the statement's text and advice."""
    text = _NOISE.sub("", _KIND.sub("", message.split("\n\nLINE ", 1)[0].strip()))
    return printable(" ".join(line.strip() for line in text.splitlines() if line.strip()))


def _position(message: str) -> str:
    found = _POSITION.search(message)
    return f" (line {found.group(1)})" if found else ""
