"""`reput report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reput.source.errors import OptionError
from reput.source.printable import printable
from reput.streaming.cli.app import At, app, run_or_fail, table_option, version_or_time
from reput.streaming.cli.first_words import first_words
from reput.streaming.cli.settings import ConfigFile, Overrides


@app.command(epilog="Example: reput report --table /data/messages --html report.html")
def report(
    table: Annotated[Any, table_option("The Delta table that 'reput tail --table' keeps; only read.")],
    html: Annotated[Path, typer.Option(help="The page, a single file, replaced once the page is whole.")],
    at: At = None,
    since: Annotated[str | None, typer.Option(help="Only messages stored then or later.")] = None,
    until: Annotated[str | None, typer.Option(help="Only messages stored before then.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only topics that match; * stands for any text.")] = None,
    title: Annotated[str | None, typer.Option(help="The page's heading.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="What the tail of the table keeps: adds how far it is behind, and damage.")
    ] = None,
    config: ConfigFile = None,
    option: Overrides = None,
) -> None:
    """Write one self-contained HTML page about the message table, for people who never saw reput."""

    def run() -> None:
        from reput.streaming.config.pipeline import load_sql_options  # noqa: PLC0415
        from reput.streaming.query.lines import parse_time  # noqa: PLC0415
        from reput.streaming.report.selection import Selection  # noqa: PLC0415
        from reput.streaming.report.table_report import write_report  # noqa: PLC0415

        if title is not None and not title.strip():
            raise OptionError("--title is empty")
        options, _ = load_sql_options(config, option or [])
        selection = Selection(topic, *(None if time is None else parse_time(time) for time in (since, until)))
        wanted = None if at is None else version_or_time(at)
        with first_words("reading the table ..."):
            told = write_report(table, html, selection, at=wanted, title=title, output=output, options=options)
        typer.echo(printable(told))

    run_or_fail(run)
