"""`reput sql`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reput.source.errors import OptionError
from reput.streaming.cli.app import At, Verbose, app, run_or_fail, table_option, version_or_time
from reput.streaming.cli.settings import ConfigFile, Overrides

if TYPE_CHECKING:
    from reput.streaming.sql.result import Result

_DUCKDB, _SPARK = "duckdb", "spark"


@app.command(
    epilog="Example: reput sql --table /data/messages "
    "\"SELECT topic, count(*) FROM messages WHERE tags = 'TagA' GROUP BY topic\""
)
def sql(
    table: Annotated[Any, table_option("The Delta table that 'reput tail --table' keeps; only read.")],
    statement: Annotated[
        str | None,
        typer.Argument(
            help="A query; the table is called messages. Without one: a prompt on a terminal, else standard input. "
            "What runs: docs/commands/sql.md."
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="duckdb, which needs no Java, or spark; each has a dialect of its own.")
    ] = _DUCKDB,
    output_format: Annotated[
        str, typer.Option("--format", help="table, csv, json (a line a row), markdown or parquet.")
    ] = "table",
    csv_safe: Annotated[
        bool,
        typer.Option("--csv-safe", help="For a spreadsheet: a ' before each text that would be taken as a formula."),
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first rows of the result, so many.")] = None,
    at: At = None,
    output: Annotated[
        Path | None, typer.Option(help="A file for the result, replaced once the result is whole.")
    ] = None,
    config: ConfigFile = None,
    option: Overrides = None,
    verbose: Verbose = False,
) -> None:
    """Run one SQL query over the message table; nothing that could write, or read anything else, is run."""

    def run() -> None:
        from reput.streaming.sql.output import FORMATS, write_result  # noqa: PLC0415
        from reput.streaming.sql.output_file import output_file, standard_output  # noqa: PLC0415

        if engine not in (_DUCKDB, _SPARK):
            raise OptionError(f"--engine {engine}: {_DUCKDB} or {_SPARK} wanted")
        if output_format not in FORMATS:
            raise OptionError(f"--format {output_format}: one of {', '.join(FORMATS)} wanted")
        if csv_safe and output_format != "csv":
            raise OptionError(f"--csv-safe goes with --format csv, not with {output_format}")
        if output_format == "parquet" and output is None and sys.stdout.isatty():
            raise OptionError("--format parquet wants a file or a pipe: --output FILE")
        wanted = None if at is None else version_or_time(at)

        def ask(text: str) -> AbstractContextManager[Result]:
            if engine == _SPARK:
                return _ask_spark(table, text, wanted, limit, config, option or [], verbose=verbose)
            return _ask_duckdb(table, text, wanted, limit, config, option or [])

        if statement is None and sys.stdin.isatty() and sys.stdout.isatty():
            from reput.streaming.sql.duckdb_query import table_columns  # noqa: PLC0415
            from reput.streaming.sql.prompt import prompt  # noqa: PLC0415  its modules are loaded only for it

            if engine == _SPARK or output is not None:
                raise OptionError("a prompt goes with neither --engine spark nor --output: give a statement")
            table_columns(table, wanted)  # so that a table that is not there is told at once
            with standard_output():
                prompt(
                    ask,
                    lambda result, out: write_result(result, output_format, out, csv_safe=csv_safe),
                    lambda: table_columns(table, wanted),
                )
            return
        text = sys.stdin.read() if statement is None else statement
        with (
            ask(text) as result,
            standard_output() if output is None else output_file(output, table) as out,
        ):
            write_result(result, output_format, out, csv_safe=csv_safe)

    run_or_fail(run)


def _ask_duckdb(
    table: Any, statement: str, at: int | datetime | None, limit: int | None, config: Path | None, option: list[str]
) -> AbstractContextManager[Result]:
    from reput.streaming.sql.duckdb_query import duckdb_query  # noqa: PLC0415

    options = None
    if config is not None or option:
        from reput.streaming.config.pipeline import load_sql_options  # noqa: PLC0415  takes as long as the query

        options, _ = load_sql_options(config, option)
    return duckdb_query(table, statement, at=at, limit=limit, options=options)


def _ask_spark(
    table: Any,
    statement: str,
    at: int | datetime | None,
    limit: int | None,
    config: Path | None,
    option: list[str],
    *,
    verbose: bool,
) -> AbstractContextManager[Result]:
    from reput.sinks.table.file_list import FileList  # noqa: PLC0415
    from reput.source.resource_limits import SPARK, check_limits  # noqa: PLC0415
    from reput.streaming.config.pipeline import load_sql_options  # noqa: PLC0415
    from reput.streaming.output.table_path import check_table  # noqa: PLC0415
    from reput.streaming.sql.spark_query import spark_query  # noqa: PLC0415

    check_limits(SPARK)
    _, options = load_sql_options(config, option)
    check_table(table)
    version = None if at is None else FileList(table, at).version
    return spark_query(table, statement, options, version=version, limit=limit, verbose=verbose)
