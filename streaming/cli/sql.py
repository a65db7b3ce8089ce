"""`reput sql`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Annotated

import typer

from reput.source.errors import OptionError
from reput.streaming.cli.app import app
from reput.streaming.cli.options import TableToRead
from reput.streaming.cli.statement import OLD_NAMES, Asking


@dataclass(eq=False, repr=False, kw_only=True)
class _AskingTable(Asking):
    """The options of `Asking`; the table must be given."""

    table: TableToRead = field()


@app.command(
    epilog="Example: reput sql --table /data/messages "
    "\"SELECT topic, count(*) FROM messages WHERE tags = 'TagA' GROUP BY topic\"",
    old_names=OLD_NAMES,
)
def sql(
    asking: _AskingTable,
    statement: Annotated[
        str | None,
        typer.Argument(
            help="A query. The table is called messages. Without a query, reput shows a prompt on a terminal, or reads "
            "standard input. docs/commands/sql.md says what runs."
        ),
    ] = None,
) -> None:
    """Run one SQL query over the message table.

    A statement that could write, or could read anything but the table, is refused.
    """
    if statement is None and sys.stdin.isatty() and sys.stdout.isatty():
        _prompt(asking)
        return
    text = sys.stdin.read() if statement is None else statement
    with asking.ask(text) as result, asking.destination() as out:
        asking.show(result, out)


def _prompt(asking: Asking) -> None:
    from reput.streaming.sql.duckdb_query import table_columns  # noqa: PLC0415
    from reput.streaming.sql.output import standard_output  # noqa: PLC0415
    from reput.streaming.sql.prompt import prompt  # noqa: PLC0415  its modules are loaded only for it

    if asking.for_spark or asking.result is not None:
        raise OptionError("a prompt goes with neither --engine spark nor --result: give a statement")
    table_columns(asking.table, asking.version)  # so that a missing table is reported at once
    with standard_output():
        prompt(asking.ask, asking.show, lambda: table_columns(asking.table, asking.version))
