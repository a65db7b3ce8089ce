"""`reput sql --engine spark`: one query over the message table, by Spark."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import CalendarIntervalType, DayTimeIntervalType, VariantVal, YearMonthIntervalType

from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import raise_log_damage
from reput.sinks.table.storage import table_storage
from reput.source.errors import OptionError, OutputError, ReputError, TransientError
from reput.source.printable import printable
from reput.streaming.config.run_options import SparkOptions
from reput.streaming.output.paths import check_table
from reput.streaming.spark.session import end_session, start_session, temporary_log_file
from reput.streaming.sql.result import NO_RELATIONS, Relations, Result
from reput.streaming.sql.spark_check import VIEW, parse_query

# ----------------------------------------------------------------------------------------------------------------------
# Why Spark did not run a query, in one line and with a fitting exit code.
#
# If Spark refuses a statement, or cannot compute its values, the user must change it (`OptionError`). A table that
# cannot be read is an `OutputError`, and a Spark that has ended is a `TransientError`.

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


# ----------------------------------------------------------------------------------------------------------------------
# The rows of a query that Spark runs.

# The finalizer of the iterator that `toLocalIterator` returns.
_ROWS_GO: Final = "PyLocalIterable.__del__"
# Python has no value for two of these types, so all intervals are shown as Spark's text.
_AS_TEXT: Final = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)


class SparkResult(Result):
    """The rows of a DataFrame, of which one partition at a time is held in memory; of Arrow's all are."""

    def __init__(self, rows: DataFrame) -> None:
        self.names = rows.columns
        self._rows = _with_texts(rows)

    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows, which need not be read to their end.

        If they are not, pyspark's iterator may find its socket closed when it is finalized, and Python would print it.
        """
        if not isinstance(sys.unraisablehook, _UnreadRows):
            sys.unraisablehook = _UnreadRows(sys.unraisablehook)
        return (tuple(map(_plain, row)) for row in self._rows.toLocalIterator())

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows, all of them at once."""
        table = self._rows.toArrow().rename_columns(self.names)
        return table.schema, iter(table.to_batches())


class _UnreadRows:
    """A hook that ignores failures in finalizing an iterator over rows, and passes all others on to `others`."""

    def __init__(self, others: Callable[[Any], Any]) -> None:
        self._others = others

    def __call__(self, unraisable: Any) -> None:
        name = getattr(unraisable.object, "__qualname__", "")
        if not (name.endswith(_ROWS_GO) and isinstance(unraisable.exc_value, OSError | ValueError)):
            self._others(unraisable)


def _with_texts(result: DataFrame) -> DataFrame:
    if not any(isinstance(field.dataType, _AS_TEXT) for field in result.schema):
        return result
    numbered = result.toDF(*(str(number) for number in range(len(result.columns))))  # names may repeat
    return numbered.select(
        *(
            sql.col(str(number)).cast("string") if isinstance(field.dataType, _AS_TEXT) else sql.col(str(number))
            for number, field in enumerate(result.schema)
        )
    )


def _plain(value: Any) -> Any:
    """A value without types of pyspark's: a struct is a dict."""
    if isinstance(value, Row):
        return {name: _plain(part) for name, part in zip(value.__fields__, value, strict=True)}
    if isinstance(value, VariantVal):
        return _plain(value.toPython())
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value


# Besides what ``spark_check`` refuses: no file can be read as a table by its path.
SETTINGS = {"spark.sql.runSQLOnFiles": "false"}


@contextmanager
def spark_query(
    table: TableLocation,
    statement: str,
    options: SparkOptions,
    *,
    version: int | None = None,
    limit: int | None = None,
    relations: Relations = NO_RELATIONS,
    verbose: bool = False,
) -> Iterator[Result]:
    """Start Spark, and have the result of `query` meanwhile; `limit` are its first rows.

    `verbose` leaves Spark's own messages on the terminal. Errors are those of `query` and of ``start_session``.
    """
    check_table(table)
    _write_times_in_utc()
    log_file = None if verbose else temporary_log_file()
    spark = start_session(
        "reput sql",
        master=options.master,
        driver_memory=options.driver_memory,
        log_file=log_file,
        settings=SETTINGS,
        table=table,
    )
    try:
        with spark_failures_as_errors(table):
            rows = query(spark, table, statement, version, relations)
            yield SparkResult(rows if limit is None else rows.limit(limit))
    finally:
        end_session(spark)
        if log_file is not None:
            log_file.unlink(missing_ok=True)


def _write_times_in_utc() -> None:
    """Set the time zone of the process to UTC: Spark hands times to Python in that zone."""
    os.environ["TZ"] = "UTC"
    time.tzset()


def query(
    spark: SparkSession,
    table: TableLocation,
    statement: str,
    version: int | None = None,
    relations: Relations = NO_RELATIONS,
) -> DataFrame:
    """The result of `statement`, in which the table is called `messages`; only the table and `relations` are read.

    `version` is the table's version to read; None: the newest.

    Raises
    ------
    OutputError
        There is no Delta table at `table`, or it cannot be read.
    OptionError
        The statement contains something that is not known to only read, or Spark does not understand it.
    """
    check_table(table)
    with spark_failures_as_errors(table):
        plan = parse_query(spark, statement, relations)
        options = {} if version is None else {"versionAsOf": str(version)}
        spark.read.format("delta").options(**options).load(str(table)).createOrReplaceTempView(VIEW)
        for name, few in relations.items():
            spark.createDataFrame(few).createOrReplaceTempView(name)
        return run_plan(spark, plan)


def run_plan(spark: SparkSession, plan: JavaObject) -> DataFrame:
    """The result of a plan of ``parse_query``: the plan that was checked is the one that runs. Errors are Spark's."""
    jvm: Any = spark._jvm  # noqa: SLF001  a plan has no Python API
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001
