"""Why DuckDB did not run a query, in one line and with a fitting exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

from reput.sinks.table.location import TableLocation
from reput.source.errors import OptionError, OutputError, ReputError, TransientError
from reput.source.printable import printable

# DuckDB's name of the kind of an error, and where in the statement it was.
_KIND: Final = re.compile(r"^([A-Z][A-Za-z ]*) Error: ")
_POSITION: Final = re.compile(r"^LINE (\d+): ", re.MULTILINE)
# Kinds for which the table is to blame, as it is for others that name one of its files, and for want of memory.
_TABLE_KINDS: Final = frozenset({"IO", "HTTP"})
_MEMORY_KIND: Final = "Out of Memory"
_FILE: Final = re.compile(r"[^\"' ]+?\.parquet\b")
# What DuckDB may not do is to look for a file of the table elsewhere, which it does if it is not there.
_NOT_THERE: Final = "Permission"
# Advice on settings that `reput sql` does not have.
_NOISE: Final = re.compile(r"\s*(Database is launched in in-memory|Possible solutions|Use SET ).*", re.DOTALL)
# What functions of a name there are; some names have forty.
_FUNCTIONS: Final = re.compile(
    r"\.?( You might need to add explicit type casts\.)?\s*Candidate functions:\s*(.*)", re.DOTALL
)
_FUNCTIONS_SHOWN: Final = 3
# Texts of an error on one line may be as long as a statement.
_LENGTH_MAX: Final = 500


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
    except (duckdb.Error, MemoryError) as error:
        raise _as_error(table, error) from error
    except (ValueError, OverflowError) as error:
        raise OptionError(f"a value of the result cannot be shown: {printable(str(error))}") from error
    except RecursionError as error:
        raise OptionError("the statement is nested too deeply") from error


def _as_error(table: TableLocation, error: Exception) -> ReputError:
    message = str(error).strip()
    kind = found.group(1) if (found := _KIND.match(message)) else ""
    if kind == _MEMORY_KIND or isinstance(error, MemoryError | duckdb.OutOfMemoryException):
        return TransientError(
            "the query needs more memory than it may take",
            advice="ask for fewer rows or columns, or give it more with -o sqlMaxMemory=8g",
        )
    line = _line(message)
    file = _FILE.search(message)
    if kind == _NOT_THERE and file is not None:
        line = f"{printable(file.group())} is missing, or cannot be opened"
    if kind in _TABLE_KINDS or file is not None:
        return OutputError(f"cannot read the table {printable(str(table))}: {line}", file=table)
    return OptionError(f"cannot run the query: {line}{_position(message)}")


def _line(message: str) -> str:
    """The message on one line, without its kind, the statement's text and advice."""
    text = _NOISE.sub("", _KIND.sub("", message.split("\n\nLINE ", 1)[0].strip()))
    text = _FUNCTIONS.sub(_functions, text)
    line = printable(" ".join(line.strip() for line in text.splitlines() if line.strip()))
    return line if len(line) <= _LENGTH_MAX else f"{line[: _LENGTH_MAX - 3]}..."


def _functions(found: re.Match[str]) -> str:
    """The first functions of a name, where none takes the types given."""
    functions = [line.strip() for line in found[2].splitlines() if line.strip()]
    more = f" and {len(functions) - _FUNCTIONS_SHOWN} more" if len(functions) > _FUNCTIONS_SHOWN else ""
    return f"; there are {', '.join(functions[:_FUNCTIONS_SHOWN])}{more}"


def _position(message: str) -> str:
    found = _POSITION.search(message)
    return f" (line {found.group(1)})" if found else ""
