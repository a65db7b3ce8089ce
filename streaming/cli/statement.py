"""What commands that ask the table in SQL share: their options, how a statement is run, how its rows are shown."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from reput.source.errors import OptionError
from reput.streaming.cli.app import version_or_time

if TYPE_CHECKING:
    from reput.streaming.sql.result import Relations, Result

DUCKDB: Final = "duckdb"
SPARK: Final = "spark"

OutputFormat = Annotated[str, typer.Option("--format", help="table, csv, json (a line a row), markdown or parquet.")]
CsvSafe = Annotated[
    bool,
    typer.Option("--csv-safe", help="For a spreadsheet: a ' before each text that would be taken as a formula."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first rows of the result, so many.")]
ResultFile = Annotated[
    Path | None, typer.Option("--output", help="A file for the result, replaced once the result is whole.")
]


@dataclass(frozen=True)
class Asking:
    """How a table is asked, by a command's options of these names.

    Raises
    ------
    OptionError
        The options do not go together, or one has a value that it does not allow.
    """

    table: Any
    engine: str
    output_format: str
    csv_safe: bool
    limit: int | None
    at: str | None
    output: Path | None
    config: Path | None
    option: list[str]
    verbose: bool
    #: The version to read, or a time at which it was the newest; None is the newest of all.
    version: int | datetime | None = field(init=False)

    def __post_init__(self) -> None:
        """Check the options."""
        from reput.streaming.sql.output import FORMATS  # noqa: PLC0415  --help need not wait for the modules

        if self.engine not in (DUCKDB, SPARK):
            raise OptionError(f"--engine {self.engine}: {DUCKDB} or {SPARK} wanted")
        if self.output_format not in FORMATS:
            raise OptionError(f"--format {self.output_format}: one of {', '.join(FORMATS)} wanted")
        if self.csv_safe and self.output_format != "csv":
            raise OptionError(f"--csv-safe goes with --format csv, not with {self.output_format}")
        if self.output_format == "parquet" and self.output is None and sys.stdout.isatty():
            raise OptionError("--format parquet wants a file or a pipe: --output FILE")
        object.__setattr__(self, "version", None if self.at is None else version_or_time(self.at))

    @property
    def for_spark(self) -> bool:
        """Whether Spark runs the statements."""
        return self.engine == SPARK

    def ask(self, statement: str, relations: Relations | None = None) -> AbstractContextManager[Result]:
        """The result of a statement, which may read `relations`, too; errors are those of the engine's module."""
        return self._ask_spark(statement, relations) if self.for_spark else self._ask_duckdb(statement, relations)

    def show(self, result: Result, out: TextIO) -> None:
        """Write the rows in the form that is wanted."""
        from reput.streaming.sql.output import write_result  # noqa: PLC0415

        write_result(result, self.output_format, out, csv_safe=self.csv_safe)

    def destination(self) -> AbstractContextManager[TextIO]:
        """Where the rows go: the file, or standard output; errors as in ``output_file``."""
        from reput.streaming.sql.output_file import output_file, standard_output  # noqa: PLC0415

        return standard_output() if self.output is None else output_file(self.output, self.table)

    def _ask_duckdb(self, statement: str, relations: Relations | None) -> AbstractContextManager[Result]:
        from reput.streaming.sql.duckdb_query import duckdb_query  # noqa: PLC0415

        options = None
        if self.config is not None or self.option:
            from reput.streaming.config.pipeline import load_sql_options  # noqa: PLC0415  takes as long as the query

            options, _ = load_sql_options(self.config, self.option)
        return duckdb_query(
            self.table, statement, at=self.version, limit=self.limit, options=options, relations=relations or {}
        )

    def _ask_spark(self, statement: str, relations: Relations | None) -> AbstractContextManager[Result]:
        from reput.sinks.table.file_list import FileList  # noqa: PLC0415
        from reput.source.resource_limits import SPARK as NEEDS_OF_SPARK  # noqa: PLC0415
        from reput.source.resource_limits import check_limits  # noqa: PLC0415
        from reput.streaming.config.pipeline import load_sql_options  # noqa: PLC0415
        from reput.streaming.output.table_path import check_table  # noqa: PLC0415
        from reput.streaming.sql.spark_query import spark_query  # noqa: PLC0415

        check_limits(NEEDS_OF_SPARK)
        _, options = load_sql_options(self.config, self.option)
        check_table(self.table)
        return spark_query(
            self.table,
            statement,
            options,
            version=None if self.version is None else FileList(self.table, self.version).version,
            limit=self.limit,
            relations=relations or {},
            verbose=self.verbose,
        )
