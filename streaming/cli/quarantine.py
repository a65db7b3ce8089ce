"""`reput quarantine list`."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from reput.source.printable import counted, printable
from reput.streaming.cli.app import app
from reput.streaming.cli.options import Json, Output

quarantine = app.group("quarantine", "List the ranges that were left out of the log.", no_args_is_help=True)


@quarantine.callback()
def about() -> None:
    """List the ranges that were left out of the log under onDamage=quarantine or onDamage=broker."""


@quarantine.command("list", epilog="Example: reput quarantine list --output /data/reput")
def list_ranges(output: Output, as_json: Json = False) -> None:
    """Print one line for each range that was left out.

    The ranges are in the order of the log. --json prints all fields, with the first 64 bytes of each range.
    """
    from reput.sinks.quarantine import load_quarantine  # noqa: PLC0415

    lines = sorted(load_quarantine(output), key=lambda line: line.physical_offset)
    if as_json:
        for line in lines:
            typer.echo(json.dumps(asdict(line)))
        return
    for line in lines:
        where = f"{line.file} byte {line.position}" if line.file else "not in the log any more"
        typer.echo(
            printable(
                f"{line.physical_offset}: {line.length} bytes, {line.cause}, {where}, found {line.found_at} "
                f"({line.policy}), begins {line.head[:32] or '-'}"
            )
        )
    typer.echo(f"reput: {counted(len(lines), 'range')} left out", err=True)
