"""`reput offsets`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from reput.source.errors import OptionError
from reput.source.printable import printable
from reput.streaming.cli.app import app
from reput.streaming.cli.options import LogConfig, StoreIfGiven, TableToRead, one_of

_FORMATS = ("table", "csv", "json", "consumerOffset.json")


@app.command(
    epilog="Example: reput offsets --table /data/messages --at 2026-01-31T12:00:00Z --format consumerOffset.json "
    "--result offsets.json"
)
def offsets(
    table: TableToRead,
    at: Annotated[str, typer.Option(help="The time: 2026-01-31T12:00:00Z, or milliseconds since 1970.")],
    settings: LogConfig,
    store: StoreIfGiven = None,
    broker: Annotated[str | None, typer.Option(help="Only offsets of this broker.")] = None,
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            autocompletion=one_of(*_FORMATS),
            help="table, csv, json (one line a row), or consumerOffset.json, the file that a broker reads.",
        ),
    ] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json; errors are JSON, too.")] = False,
    result: Annotated[
        Path | None, typer.Option(help="Write to this file. It is replaced when it is complete. Never in a store.")
    ] = None,
) -> None:
    """Show where consumer groups were at a time.

    Reads the ledger of consumption beside the table. No offset is ahead of what was seen by then. With --store, each is
    compared with the present one.
    """
    if as_json:
        if output_format not in ("table", "json"):
            raise OptionError(f"--json does not go with --format {output_format}")
        output_format = "json"
    if output_format not in _FORMATS:
        raise OptionError(f"--format {output_format}: one of {', '.join(_FORMATS)} wanted")
    from reput.streaming.ask import offsets_at as ledger  # noqa: PLC0415  --help need not wait for the modules
    from reput.streaming.query.lines import parse_time  # noqa: PLC0415
    from reput.streaming.sql.output import output_file, standard_output, write_result  # noqa: PLC0415

    if result is not None:
        ledger.check_not_in_a_store(result)
    now = None
    if store is not None:
        config = settings.load(store, only_reads=True)
        now = ledger.offsets_now(config)
    found = ledger.offsets_at(table, parse_time(at), broker)
    if output_format == ledger.CONSUMER_OFFSETS or now is not None:
        ledger.one_broker(found)
    with standard_output() if result is None else output_file(result, table, option="--result") as out:
        if output_format == ledger.CONSUMER_OFFSETS:
            ledger.write_consumer_offsets(found, out)
        else:
            write_result(ledger.as_rows(found, now), output_format, out)
    if now is not None:
        sys.stdout.flush()
        typer.echo(printable(f"reput: {ledger.difference(found, now)}"), err=True)
