"""`reput sql`."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn, TextIO

import typer
from rich.console import Console

from reput.source.errors import OptionError, OutputError, ReputError
from reput.streaming.cli_app import Verbose, app, run_or_fail

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class QueryStoppedError(ReputError):
    """A signal ended the query before all rows were written, so that its answer is not to be taken for whole."""

    exit_code = 128 + signal.SIGINT  # as a shell tells of a program that Ctrl-C ended


class _StopSignal(KeyboardInterrupt):
    """Passes the ``except Exception`` of the libraries on its way."""


@app.command(
    epilog="Example: reput sql --table /data/messages "
    "\"SELECT topic, count(*) FROM messages WHERE tags = 'TagA' GROUP BY topic\""
)
def sql(
    statement: Annotated[str, typer.Argument(help="A query; the table is called messages. What runs: docs/sql.md.")],
    table: Annotated[Path, typer.Option(help="The Delta table that 'reput tail --table' keeps; only read.")],
    output_format: Annotated[str, typer.Option("--format", help="table, csv or json (a line a row).")] = "table",
    csv_safe: Annotated[
        bool,
        typer.Option("--csv-safe", help="For a spreadsheet: a ' before each text that would be taken as a formula."),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Run one SQL query over the message table; nothing that could write, or read anything else, is run."""
    from reput.streaming import sql as queries  # noqa: PLC0415
    from reput.streaming.session import start_session, temporary_log_file  # noqa: PLC0415
    from reput.streaming.sql_failure import spark_failures_told  # noqa: PLC0415
    from reput.streaming.sql_output import FORMATS, write_result  # noqa: PLC0415

    def run() -> None:
        if output_format not in FORMATS:
            msg = f"--format {output_format}: one of {', '.join(FORMATS)} wanted"
            raise OptionError(msg)
        if csv_safe and output_format != "csv":
            raise OptionError(f"--csv-safe goes with --format csv, not with {output_format}")
        queries.check_table(table)
        _write_times_in_utc()
        log_file = None if verbose else temporary_log_file()
        try:
            with _stops_told() as take_signals:
                spark = start_session(
                    "reput sql", master="local[*]", driver_memory="2g", log_file=log_file, settings=queries.SETTINGS
                )
                take_signals()  # Spark has put its own handler in the place of this one
                try:
                    with _output_failures_told(), spark_failures_told(table):
                        result = queries.query(spark, table, statement)
                        write_result(result, output_format, _standard_output(), Console(), csv_safe=csv_safe)
                        sys.stdout.flush()
                except _StopSignal:
                    raise  # Spark's answer is still on its way: it is asked nothing more, and ends with this process
                except BaseException:
                    spark.stop()
                    raise
                spark.stop()
        finally:
            if log_file is not None:
                log_file.unlink(missing_ok=True)

    run_or_fail(run)


@contextmanager
def _stops_told() -> Iterator[Callable[[], None]]:
    """Turn the signals that ask for a stop into `QueryStoppedError`; gives what makes them so once more."""

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        for each in _STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # one is enough
        raise _StopSignal(signal.Signals(number).name)

    def take_signals() -> None:
        for each in _STOP_SIGNALS:
            signal.signal(each, stop)

    before = [signal.getsignal(each) for each in _STOP_SIGNALS]
    take_signals()
    try:
        yield take_signals
    except _StopSignal as stopped:
        raise QueryStoppedError(f"stopped by {stopped}: the answer is not complete") from stopped
    finally:
        for each, handler in zip(_STOP_SIGNALS, before, strict=True):
            signal.signal(each, handler)


@contextmanager
def _output_failures_told() -> Iterator[None]:
    """Whoever reads standard output may have enough before the end, as `head` has; all else that fails is told."""
    try:
        yield
    except BrokenPipeError:
        # What is still in Python's buffer goes nowhere, without a word at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError(f"cannot write the result to standard output: {error.strerror}") from error


def _write_times_in_utc() -> None:
    """Spark hands times to Python in the time zone of the process."""
    os.environ["TZ"] = "UTC"
    time.tzset()


def _standard_output() -> TextIO:
    """In UTF-8 unless it is a terminal, which gets what it can show."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    return sys.stdout
