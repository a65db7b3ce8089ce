"""`reput sql`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reput.source.errors import OptionError
from reput.streaming.cli_app import Verbose, app, run_or_fail


@app.command(
    epilog="Example: reput sql --table /data/messages "
    "\"SELECT topic, count(*) FROM messages WHERE tags = 'TagA' GROUP BY topic\""
)
def sql(
    statement: Annotated[str, typer.Argument(help="A query; the table is called messages.")],
    table: Annotated[Path, typer.Option(help="The Delta table that 'reput tail --table' keeps.")],
    output_format: Annotated[str, typer.Option("--format", help="table, csv or json (a line a row).")] = "table",
    verbose: Verbose = False,
) -> None:
    """Run one SQL query over the message table."""
    from reput.streaming import sql as queries  # noqa: PLC0415
    from reput.streaming.session import end_session, start_session, temporary_log_file  # noqa: PLC0415

    def run() -> None:
        if output_format not in queries.FORMATS:
            msg = f"--format {output_format}: one of {', '.join(queries.FORMATS)} wanted"
            raise OptionError(msg)
        log_file = None if verbose else temporary_log_file()
        spark = start_session("reput sql", master="local[*]", driver_memory="2g", log_file=log_file)
        try:
            result = queries.query(spark, table, statement)
            queries.write_result(result, output_format, sys.stdout, Console())
        finally:
            end_session(spark)
            if log_file is not None:
                log_file.unlink(missing_ok=True)

    run_or_fail(run)
