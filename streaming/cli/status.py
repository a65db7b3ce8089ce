"""`reput status`."""

from __future__ import annotations

import json

import typer

from reput.streaming.cli.app import Json, Output, app


@app.command(epilog="Example: reput status --output /data/reput")
def status(output: Output, as_json: Json = False) -> None:
    """Tell what the tail that keeps an output does, or how it ended, and end with an exit code for scripts.

    0: running or starting; 3: stopped; 10: lagging; 11: waiting; 12: degraded.
    """
    from reput.streaming.status.report import exit_code_of, status_of, status_text  # noqa: PLC0415

    found = status_of(output)
    typer.echo(json.dumps(found) if as_json else status_text(found))
    raise typer.Exit(exit_code_of(found))
