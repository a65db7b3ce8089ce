"""`reput sql`."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console

from reput.source.errors import OptionError, OutputError
from reput.streaming.cli.app import Verbose, app, run_or_fail, table_option
from reput.streaming.cli.settings import ConfigFile, Overrides
from reput.streaming.process.standard_streams import drop_output


@app.command(
    epilog="Example: reput sql --table /data/messages "
    "\"SELECT topic, count(*) FROM messages WHERE tags = 'TagA' GROUP BY topic\""
)
def sql(
    statement: Annotated[
        str, typer.Argument(help="A query; the table is called messages. What runs: docs/commands/sql.md.")
    ],
    table: Annotated[Any, table_option("The Delta table that 'reput tail --table' keeps; only read.")],
    output_format: Annotated[str, typer.Option("--format", help="table, csv or json (a line a row).")] = "table",
    csv_safe: Annotated[
        bool,
        typer.Option("--csv-safe", help="For a spreadsheet: a ' before each text that would be taken as a formula."),
    ] = False,
    config: ConfigFile = None,
    option: Overrides = None,
    verbose: Verbose = False,
) -> None:
    """Run one SQL query over the message table; nothing that could write, or read anything else, is run."""
    from reput.streaming.config.pipeline import load_spark_options  # noqa: PLC0415
    from reput.streaming.output.table_path import check_table  # noqa: PLC0415
    from reput.streaming.spark.session import end_session, start_session, temporary_log_file  # noqa: PLC0415
    from reput.streaming.sql import sql as queries  # noqa: PLC0415
    from reput.streaming.sql.failure import spark_failures_as_errors  # noqa: PLC0415
    from reput.streaming.sql.output import FORMATS, write_result  # noqa: PLC0415

    def run() -> None:
        if output_format not in FORMATS:
            msg = f"--format {output_format}: one of {', '.join(FORMATS)} wanted"
            raise OptionError(msg)
        if csv_safe and output_format != "csv":
            raise OptionError(f"--csv-safe goes with --format csv, not with {output_format}")
        options = load_spark_options(config, option or ())
        check_table(table)
        _write_times_in_utc()
        log_file = None if verbose else temporary_log_file()
        spark = start_session(
            "reput sql",
            master=options.master,
            driver_memory=options.driver_memory,
            log_file=log_file,
            settings=queries.SETTINGS,
            table=table,
        )
        try:
            with _output_failures_as_errors(), spark_failures_as_errors(table):
                result = queries.query(spark, table, statement)
                write_result(result, output_format, _standard_output(), Console(), csv_safe=csv_safe)
                sys.stdout.flush()
        finally:
            end_session(spark)
            if log_file is not None:
                log_file.unlink(missing_ok=True)

    run_or_fail(run)


@contextmanager
def _output_failures_as_errors() -> Iterator[None]:
    """Raise OutputError if the result cannot be written; ``run_or_fail`` handles a reader that has enough."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise OutputError(
            f"cannot write the result to standard output: {error.strerror}", file="/dev/stdout"
        ) from error


def _write_times_in_utc() -> None:
    """Set the time zone of the process to UTC: Spark hands times to Python in that zone."""
    os.environ["TZ"] = "UTC"
    time.tzset()


def _standard_output() -> TextIO:
    """Standard output, in UTF-8 unless it is a terminal, which gets what it can show."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    return sys.stdout
