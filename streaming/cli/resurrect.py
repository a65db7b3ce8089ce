"""`reput resurrect`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from reput.source.errors import OptionError
from reput.source.printable import printable
from reput.streaming.cli.app import app, set_up_logging
from reput.streaming.cli.options import LogConfig, Store, one_of, table_option
from reput.streaming.process.terminal import working

_FORMATS = ("table", "csv", "json")


@app.command(
    epilog="Example: reput resurrect --store /data/store --broker-conf /data/broker.conf --table /data/messages "
    "--result /tmp/config"
)
def resurrect(
    store: Store,
    settings: LogConfig,
    table: Annotated[
        Any, table_option("The message table of this broker. Its ledger tells where consumer groups were.")
    ] = None,
    result: Annotated[
        Path | None, typer.Option(help="Write the files into this new directory. [default: only show their values]")
    ] = None,
    output_format: Annotated[
        str, typer.Option("--format", autocompletion=one_of(*_FORMATS), help="table, csv or json (one line a row).")
    ] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json; errors are JSON, too.")] = False,
) -> None:
    """Make lost files of config/ again: topics, groups, offsets, timers.

    Shows each value that the present files do not have, and its evidence. Nothing is written into the store. Consumers
    may get messages again, but skip none.
    """
    output_format = "json" if as_json else output_format
    if output_format not in _FORMATS:
        raise OptionError(f"--format {output_format}: one of {', '.join(_FORMATS)} wanted")
    set_up_logging()
    with working(f"reading {store}"):
        from reput.streaming.resurrect import resurrect as command  # noqa: PLC0415  --help need not wait for it
        from reput.streaming.sql.output import standard_output, write_result  # noqa: PLC0415

        if result is not None:
            command.check_result(result)
        found = command.resurrected(settings.load(store, only_reads=True), table)
        if result is not None:
            command.write(found, result)
    if found.values or output_format != "table":
        with standard_output() as out:
            write_result(found.rows(), output_format, out)
    sys.stdout.flush()
    for remark in found.remarks:
        typer.echo(printable(f"reput: {remark}"), err=True)
