"""`reput prepare`."""

from __future__ import annotations

import typer

from reput.streaming.cli.app import app, run_or_fail, set_up_logging


@app.command(epilog="Example: reput prepare")
def prepare() -> None:
    """Let Spark start in half the time from now on; once, and again after each new Java, Spark or Delta."""
    from reput.streaming import prepare as preparation  # noqa: PLC0415

    set_up_logging()

    def run() -> None:
        archive = preparation.prepare().archive
        typer.echo(f"{archive} ({archive.stat().st_size / 1e6:.0f} MB): Spark starts in about half the time now")

    run_or_fail(run)
