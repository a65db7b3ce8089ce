"""`reput prepare`."""

from __future__ import annotations

import json

import typer

from reput.streaming.cli.app import app, set_up_logging
from reput.streaming.cli.options import Json


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
