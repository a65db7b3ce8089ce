"""`reput sql`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from reput.source.errors import OptionError
from reput.streaming.cli.app import At, Verbose, app, run_or_fail, table_option
from reput.streaming.cli.settings import ConfigFile, Overrides
from reput.streaming.cli.statement import DUCKDB, Asking, CsvSafe, Limit, OutputFormat, ResultFile


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
    ] = DUCKDB,
    output_format: OutputFormat = "table",
    csv_safe: CsvSafe = False,
    limit: Limit = None,
    at: At = None,
    output: ResultFile = None,
    config: ConfigFile = None,
    option: Overrides = None,
    verbose: Verbose = False,
) -> None:
    """Run one SQL query over the message table; nothing that could write, or read anything else, is run."""

    def run() -> None:
        asking = Asking(
            table, engine, output_format, csv_safe, limit, at, output, config, option or [], verbose=verbose
        )
        if statement is None and sys.stdin.isatty() and sys.stdout.isatty():
            _prompt(asking)
            return
        text = sys.stdin.read() if statement is None else statement
        with asking.ask(text) as result, asking.destination() as out:
            asking.show(result, out)

    run_or_fail(run)


def _prompt(asking: Asking) -> None:
    from reput.streaming.sql.duckdb_query import table_columns  # noqa: PLC0415
    from reput.streaming.sql.output_file import standard_output  # noqa: PLC0415
    from reput.streaming.sql.prompt import prompt  # noqa: PLC0415  its modules are loaded only for it

    if asking.for_spark or asking.output is not None:
        raise OptionError("a prompt goes with neither --engine spark nor --output: give a statement")
    table_columns(asking.table, asking.version)  # so that a table that is not there is told at once
    with standard_output():
        prompt(asking.ask, asking.show, lambda: table_columns(asking.table, asking.version))
