"""`reput report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from reput.source.errors import OptionError
from reput.source.printable import printable
from reput.streaming.cli.app import app
from reput.streaming.cli.options import At, Config, Json, Period, TableToRead, version_or_time
from reput.streaming.process.terminal import working


@app.command(epilog="Example: reput report --table /data/messages --html report.html")
def report(
    table: TableToRead,
    html: Annotated[Path, typer.Option(help="The page, a single file. It is replaced when the page is complete.")],
    period: Period,
    settings: Config,
    at: At = None,
    topic: Annotated[str | None, typer.Option(help="Only topics that match; * stands for any text.")] = None,
    title: Annotated[str | None, typer.Option(help="The page's heading.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="The directory that the table's tail keeps. Adds damage, and how far the tail is behind."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an HTML page about the message table.

    The page is a single file, for readers who have never seen reput.
    """
    if title is not None and not title.strip():
        raise OptionError("--title is empty")
    with working("reading the table"):  # before deltalake is loaded, which has a thread of its own
        from reput.streaming.config.pipeline import load_sql_options  # noqa: PLC0415
        from reput.streaming.report.selection import Selection  # noqa: PLC0415
        from reput.streaming.report.table_report import write_report  # noqa: PLC0415

        options, _ = load_sql_options(settings.config, settings.option or [])
        selection = Selection(topic, *period.bounds)
        wanted = None if at is None else version_or_time(at)
        told = write_report(table, html, selection, at=wanted, title=title, output=output, options=options)
    typer.echo(json.dumps({"html": str(html), "report": told}) if as_json else printable(told))
