"""`reput quarantine list`."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from reput.source.printable import counted, printable
from reput.streaming.cli.app import Application, Json, Output, app, run_or_fail

quarantine = Application(
    help="What was left out of the log under onDamage=quarantine or broker.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(quarantine, name="quarantine")


@quarantine.callback()
def about() -> None:
    """What was left out of the log under onDamage=quarantine or broker."""


@quarantine.command("list", epilog="Example: reput quarantine list --output /data/reput")
def list_ranges(output: Output, as_json: Json = False) -> None:
    """One line a range that was left out, in log order; --json shows all its fields, 64 bytes among them."""
    from reput.sinks.quarantine import load_quarantine  # noqa: PLC0415

    def run() -> None:
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

    run_or_fail(run)
