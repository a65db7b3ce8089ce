"""Why Spark did not run a query, in one line and with a fitting exit code.

If Spark refuses a statement, or cannot compute its values, the user must change it (`OptionError`). A table that
cannot be read is an `OutputError`, and a Spark that has ended is a `TransientError`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from reput.sinks.table.location import TableLocation
from reput.sinks.table.log_damage import raise_log_damage
from reput.sinks.table.storage import table_storage
from reput.source.errors import OptionError, OutputError, ReputError, TransientError
from reput.source.printable import printable

# Spark's advice on settings and statements that `reput sql` does not have, and the code of the SQL standard.
_NOISE: Final = re.compile(
    r"\s*If necessary set .*? to bypass this error\."
    r"|\s*It is possible the underlying files have been updated\..*"
    r"|\s*SQLSTATE: \w+",
    re.DOTALL,
)
_CONDITION: Final = re.compile(r"^\[([A-Z_0-9.]+)\] ")
_POSITION: Final = re.compile(r"line (\d+),? pos(ition)? (\d+)")
_FILE: Final = re.compile(r"(?:file:/*)?(/[^\s,]+\.(?:parquet|json|checkpoint|crc|bin))\b")
# Conditions for which the table is to blame, not the statement.
_TABLE_CONDITIONS: Final = ("FAILED_READ_FILE", "DELTA_", "CANNOT_READ_", "PATH_NOT_FOUND", "INVALID_LOG_VERSION")
_TOO_DEEP: Final = "the statement is nested too deeply"
_OUT_OF_MEMORY: Final = "java.lang.OutOfMemoryError"


@contextmanager
def spark_failures_as_errors(table: TableLocation) -> Iterator[None]:
    """Convert Spark's exceptions into errors of reput; `table` is being read.

    Raises
    ------
    OptionError
        The statement cannot be run, or one of its values cannot be computed or shown.
    OutputError
        The table cannot be read.
    TransientError
        Spark has ended, or does not have enough memory.
    """
    # pyspark logs each error as JSON, including all Java frames, before it raises it.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    try:
        yield
    except ReputError:
        raise
    except PySparkException as error:
        raise _as_error(table, str(error.getMessage() or error), str(error)) from error
    except Py4JJavaError as error:
        raise _java_as_error(table, error.java_exception) from error
    except BrokenPipeError:
        raise  # of standard output
    except (Py4JNetworkError, Py4JError, ConnectionError, EOFError) as error:
        raise TransientError("Spark's Java process ended while the query ran: start the same command again") from error
    except (ValueError, OverflowError) as error:
        raise OptionError(f"a value of the result cannot be shown: {printable(str(error))}") from error
    except RecursionError as error:
        raise OptionError(_TOO_DEEP) from error


def _java_as_error(table: TableLocation, thrown: Any) -> ReputError:
    """The error for a chain of causes: for the first that has a condition of Spark, or else for the root cause."""
    messages: list[str] = []
    while thrown is not None and len(messages) < 50:
        name, message = thrown.getClass().getName(), str(thrown.getMessage() or "")
        if name == "java.lang.StackOverflowError":
            return OptionError(_TOO_DEEP)
        if name == _OUT_OF_MEMORY:
            return TransientError("Spark has not enough memory for this query: ask for fewer rows or columns")
        messages.append(message or name.rpartition(".")[2])
        thrown = thrown.getCause()
    named = [message for message in messages if _CONDITION.match(message) and not message.startswith("[INTERNAL_ERROR")]
    return _as_error(table, named[0] if named else messages[-1], " ".join(messages))


def _as_error(table: TableLocation, message: str, whole: str) -> ReputError:
    condition = _CONDITION.match(message.strip())
    name = condition.group(1) if condition else ""
    if (_FILE.search(whole) and not name) or name.startswith(_TABLE_CONDITIONS):
        raise_log_damage(table_storage(table), OSError(message))
        cause = f"cannot read the table {printable(str(table))}: {_line(message)}{_file(message, whole)}"
        return OutputError(cause, file=table)
    return OptionError(f"cannot run the query: {_line(message)}{_position(whole)}")


def _line(message: str) -> str:
    """The message on one line, without its condition."""
    text = _CONDITION.sub("", _NOISE.sub("", message).strip())
    return printable(" ".join(line.strip() for line in text.splitlines() if line.strip()))


def _file(message: str, whole: str) -> str:
    found = _FILE.search(whole)
    return f" ({printable(found.group(1))})" if found and found.group(1) not in message else ""


def _position(whole: str) -> str:
    """The position in the statement; Spark counts from 1 after ``position`` and from 0 after ``pos``."""
    found = _POSITION.search(whole)
    return f" (line {found.group(1)}, column {int(found.group(3)) + (not found.group(2))})" if found else ""
