"""`reput sql`: one query over the message table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from reput.source.errors import OutputError
from reput.source.printable import printable
from reput.streaming.sql.check import VIEW, parse_query
from reput.streaming.sql.failure import spark_failures_as_errors

_LOG = "_delta_log"

# Besides what ``check`` refuses: no file can be read as a table by its path.
SETTINGS = {"spark.sql.runSQLOnFiles": "false"}


def query(spark: SparkSession, table: Path, statement: str) -> DataFrame:
    """The result of `statement`, in which the table is called `messages`; only the table is read.

    Raises
    ------
    OutputError
        There is no Delta table at `table`, or it cannot be read.
    OptionError
        The statement contains something that is not known to only read, or Spark does not understand it.
    """
    check_table(table)
    with spark_failures_as_errors(table):
        plan = parse_query(spark, statement)
        spark.read.format("delta").load(str(table)).createOrReplaceTempView(VIEW)
        return run_plan(spark, plan)


def run_plan(spark: SparkSession, plan: JavaObject) -> DataFrame:
    """The result of a plan of ``parse_query``: the plan that was checked is the one that runs. Errors are Spark's."""
    jvm: Any = spark._jvm  # noqa: SLF001  a plan has no Python API
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001


def check_table(table: Path) -> None:
    """Check that there is a Delta table that can be read, before Spark is started.

    Raises
    ------
    OutputError
        There is none; the message says what is there instead.
    """
    log, advice = table / _LOG, "give the directory that 'reput tail --table' made"
    name = printable(str(table))
    try:
        if not table.exists():
            raise OutputError(f"{name} does not exist: {advice}", file=table)
        if not table.is_dir():
            raise OutputError(f"{name} is no Delta table but a file: {advice}", file=table)
        if not log.is_dir():
            empty = "is empty" if not any(table.iterdir()) else f"is no Delta table (it has no {_LOG})"
            raise OutputError(f"{name} {empty}: {advice}", file=table)
        with os.scandir(log) as entries:
            if not any(entry.name.endswith((".json", ".parquet")) for entry in entries):
                raise OutputError(f"{name} is no Delta table (its {_LOG} holds no commit): {advice}", file=log)
    except OSError as error:
        path = printable(str(error.filename))
        raise OutputError(f"cannot read {path}: {error.strerror}", file=error.filename) from error
