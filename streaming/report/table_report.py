"""`reput report`: figures of a table, as a page in a file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from reput.sinks.table.location import TableLocation
from reput.source.errors import EnvironmentSetupError
from reput.source.system import pip_install
from reput.streaming.config.run_options import SqlOptions
from reput.streaming.report.figures import Selection, figures_of, findings_of
from reput.streaming.report.markup import count
from reput.streaming.sql.output import check_output_file, output_file
from reput.streaming.status.batch_report import size_text


def write_report(
    table: TableLocation,
    html: Path,
    selection: Selection,
    *,
    at: int | datetime | None = None,
    title: str | None = None,
    output: Path | None = None,
    options: SqlOptions | None = None,
) -> str:
    """Write the page, in the place of a file of that name; return a line about its contents.

    Raises
    ------
    EnvironmentSetupError
        matplotlib is not installed.
    """
    try:
        from reput.streaming.report.page import page_of  # noqa: PLC0415  imports matplotlib, which is an extra
    except ModuleNotFoundError as error:
        raise EnvironmentSetupError(
            f"reput report needs matplotlib, and the module {error.name} is missing",
            advice=pip_install("matplotlib"),
        ) from error
    check_output_file(html, table, option="--html")
    figures = figures_of(table, selection, at=at, output=output, options=options)
    page = page_of(figures, title)
    with output_file(html, table, option="--html") as file:
        file.write(page)
    messages, findings = figures.contents.total.messages, len(findings_of(figures))
    told = f"{count(messages, 'message')}, {count(findings, 'finding')}"
    return f"{html}: {told}, version {figures.version} of the table, {size_text(len(page.encode()))}"
