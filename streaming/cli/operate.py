"""The commands for a running tail and its start: `reput status` and `reput prepare`."""

from __future__ import annotations

import json

import typer

from reput.streaming.cli.app import app, set_up_logging
from reput.streaming.cli.options import Json, Output


@app.command(epilog="Example: reput status --output /data/reput")
def status(output: Output, as_json: Json = False) -> int:
    """Show what the tail of an output does, or how it ended.

    The exit code is for scripts. 0: running or starting; 3: stopped; 10: lagging; 11: waiting; 12: degraded.
    """
    from reput.streaming.status.status_document import exit_code_of, status_of, status_text  # noqa: PLC0415

    found = status_of(output)
    typer.echo(json.dumps(found) if as_json else status_text(found))
    return exit_code_of(found)


@app.command(epilog="Example: reput prepare")
def prepare(as_json: Json = False) -> None:
    """Make Spark start in half the time.

    Run this once, and again after each new Java, Spark or Delta.
    """
    from reput.streaming import prepare as preparation  # noqa: PLC0415

    set_up_logging()
    archive = preparation.prepare().archive
    size = archive.stat().st_size
    if as_json:
        typer.echo(json.dumps({"archive": str(archive), "bytes": size}))
    else:
        typer.echo(f"{archive} ({size / 1e6:.0f} MB): Spark now starts in about half the time")
