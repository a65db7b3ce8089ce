"""`reput sql`, and the options that it shares with `reput ask`: the engine of a statement, the place of its rows."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from reput.source.errors import OptionError
from reput.streaming.cli.app import app
from reput.streaming.cli.options import At, Config, TableToRead, Verbose, one_of, version_or_time

if TYPE_CHECKING:
    from reput.streaming.sql.output import Relations, Result

DUCKDB: Final = "duckdb"
SPARK: Final = "spark"
#: Names that options had in earlier releases.
OLD_NAMES: Final = {"--output": "--result"}


@dataclass(eq=False, repr=False)
class Asking(Config):
    """The way to ask a table: the options of `reput sql` and `reput ask`.

    Raises
    ------
    OptionError
        The options do not go together, or one has a value that it does not allow.
    """

    verbose: Verbose = False
    table: TableToRead = None
    engine: Annotated[
        str,
        typer.Option(
            autocompletion=one_of(DUCKDB, SPARK),
            help="duckdb, which needs no Java, or spark. Each has its own dialect of SQL.",
        ),
    ] = DUCKDB
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            autocompletion=one_of("table", "csv", "json", "markdown", "parquet"),
            help="table, csv, json (one line a row), markdown or parquet.",
        ),
    ] = "table"
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json; errors are JSON, too.")] = False
    csv_safe: Annotated[
        bool,
        typer.Option("--csv-safe", help="Put a ' before each text that a spreadsheet would take for a formula."),
    ] = False
    limit: Annotated[int | None, typer.Option(min=1, help="Print at most this many rows.")] = None
    at: At = None
    result: Annotated[
        Path | None,
        typer.Option(help="Write the rows to this file. It is replaced when the result is complete."),
    ] = None
    #: The version to read, or a time at which it was the newest; None is the newest version.
    version: int | datetime | None = field(init=False)

    def __post_init__(self) -> None:
        """Check the options."""
        from reput.streaming.sql.output import FORMATS  # noqa: PLC0415  --help need not wait for the modules

        if self.as_json:
            if self.output_format not in ("table", "json"):
                raise OptionError(f"--json does not go with --format {self.output_format}")
            object.__setattr__(self, "output_format", "json")
        if self.engine not in (DUCKDB, SPARK):
            raise OptionError(f"--engine {self.engine}: {DUCKDB} or {SPARK} wanted")
        if self.output_format not in FORMATS:
            raise OptionError(f"--format {self.output_format}: one of {', '.join(FORMATS)} wanted")
        if self.csv_safe and self.output_format != "csv":
            raise OptionError(f"--csv-safe goes with --format csv, not with {self.output_format}")
        if self.output_format == "parquet" and self.result is None and sys.stdout.isatty():
            raise OptionError("--format parquet wants a file or a pipe: --result FILE")
        object.__setattr__(self, "version", None if self.at is None else version_or_time(self.at))

    @property
    def for_spark(self) -> bool:
        """Whether Spark runs the statements."""
        return self.engine == SPARK

    def ask(self, statement: str, relations: Relations | None = None) -> AbstractContextManager[Result]:
        """Return the result of a statement, which may also read `relations`; the engine's module has the errors."""
        return self._ask_spark(statement, relations) if self.for_spark else self._ask_duckdb(statement, relations)

    def show(self, result: Result, out: TextIO) -> None:
        """Write the rows in the form that was asked for."""
        from reput.streaming.sql.output import write_result  # noqa: PLC0415

        write_result(result, self.output_format, out, csv_safe=self.csv_safe)

    def destination(self) -> AbstractContextManager[TextIO]:
        """Return the destination of the rows: the file, or standard output; errors are those of ``output_file``."""
        from reput.streaming.sql.output import output_file, standard_output  # noqa: PLC0415

        return standard_output() if self.result is None else output_file(self.result, self.table, option="--result")

    def _ask_duckdb(self, statement: str, relations: Relations | None) -> AbstractContextManager[Result]:
        from reput.streaming.sql.duckdb_query import duckdb_query  # noqa: PLC0415

        options = None
        if self.config is not None or self.option:
            from reput.streaming.config.pipeline import load_sql_options  # noqa: PLC0415  takes as long as the query

            options, _ = load_sql_options(self.config, self.option or [])
        return duckdb_query(
            self.table, statement, at=self.version, limit=self.limit, options=options, relations=relations or {}
        )

    def _ask_spark(self, statement: str, relations: Relations | None) -> AbstractContextManager[Result]:
        from reput.sinks.table.log import read_snapshot  # noqa: PLC0415
        from reput.source.system import SPARK as NEEDS_OF_SPARK  # noqa: PLC0415
        from reput.source.system import check_limits  # noqa: PLC0415
        from reput.streaming.config.pipeline import load_sql_options  # noqa: PLC0415
        from reput.streaming.output.paths import check_table  # noqa: PLC0415
        from reput.streaming.sql.spark_query import spark_query  # noqa: PLC0415

        check_limits(NEEDS_OF_SPARK)
        _, options = load_sql_options(self.config, self.option or [])
        check_table(self.table)
        return spark_query(
            self.table,
            statement,
            options,
            version=None if self.version is None else read_snapshot(self.table, self.version).version,
            limit=self.limit,
            relations=relations or {},
            verbose=self.verbose,
        )


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
