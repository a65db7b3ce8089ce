"""`reput sql`: one query over the message table."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from reput.source.errors import OptionError, OutputError

VIEW = "messages"
FORMATS = ("table", "csv", "json")


def query(spark: SparkSession, table: Path, statement: str) -> DataFrame:
    """The result of `statement`, in which the table is called `messages`.

    Raises
    ------
    OutputError
        There is no Delta table at `table`.
    OptionError
        The statement is not a query, or Spark does not understand it.
    """
    if not (table / "_delta_log").is_dir():
        msg = f"{table} is no Delta table: give the directory that 'reput tail --table' made"
        raise OutputError(msg)
    try:
        spark.read.format("delta").load(str(table)).createOrReplaceTempView(VIEW)
        _check_is_query(spark, statement)
        return spark.sql(statement)
    except PySparkException as error:
        msg = f"cannot run the query: {str(error).splitlines()[0]}"
        raise OptionError(msg) from error


def _check_is_query(spark: SparkSession, statement: str) -> None:
    jvm: Any = spark._jvm  # noqa: SLF001  the parser has no Python API
    session: Any = spark._jsparkSession  # noqa: SLF001
    plan = session.sessionState().sqlParser().parsePlan(statement)
    logical = "org.apache.spark.sql.catalyst.plans.logical"
    for kind in (f"{logical}.Command", f"{logical}.ParsedStatement"):
        if jvm.java.lang.Class.forName(kind).isInstance(plan):
            msg = "only queries are run here: SELECT ... FROM messages ..."
            raise OptionError(msg)


def write_result(result: DataFrame, output_format: str, out: TextIO, console: Console) -> int:
    """Write the rows in one of `FORMATS`, all of them; returns how many."""
    if output_format == "table":
        return _write_table(result, console)
    count = 0
    writer = csv.writer(out)
    if output_format == "csv":
        writer.writerow(result.columns)
    for row in result.toLocalIterator():
        count += 1
        if output_format == "csv":
            writer.writerow([_csv_value(value) for value in row])
        else:
            out.write(json.dumps(row.asDict(recursive=True), default=_plain, ensure_ascii=False) + "\n")
    return count


def _write_table(result: DataFrame, console: Console) -> int:
    rows = result.collect()
    table = Table(*result.columns)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console.print(table)
    console.print(f"{len(rows)} rows")
    return len(rows)


def _plain(value: object) -> str:
    return value.isoformat(sep=" ", timespec="milliseconds") if isinstance(value, datetime) else str(value)


def _csv_value(value: object) -> object:
    if isinstance(value, (list, dict)):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return _plain(value) if isinstance(value, datetime) else value


def _cell(value: object) -> str:
    from rich.markup import escape  # noqa: PLC0415

    return "" if value is None else escape(str(_csv_value(value)))
