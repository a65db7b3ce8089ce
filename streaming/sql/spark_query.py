"""`reput sql --engine spark`: one query over the message table, by Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from reput.sinks.table.location import TableLocation
from reput.streaming.config.run_options import SparkOptions
from reput.streaming.output.table_path import check_table
from reput.streaming.spark.session import end_session, start_session, temporary_log_file
from reput.streaming.sql.result import NO_RELATIONS, Relations, Result
from reput.streaming.sql.spark_check import VIEW, parse_query
from reput.streaming.sql.spark_failure import spark_failures_as_errors
from reput.streaming.sql.spark_result import SparkResult

# Besides what ``spark_check`` refuses: no file can be read as a table by its path.
SETTINGS = {"spark.sql.runSQLOnFiles": "false"}


@contextmanager
def spark_query(
    table: TableLocation,
    statement: str,
    options: SparkOptions,
    *,
    version: int | None = None,
    limit: int | None = None,
    relations: Relations = NO_RELATIONS,
    verbose: bool = False,
) -> Iterator[Result]:
    """Start Spark, and have the result of `query` meanwhile; `limit` are its first rows.

    `verbose` leaves Spark's own messages on the terminal. Errors are those of `query` and of ``start_session``.
    """
    check_table(table)
    _write_times_in_utc()
    log_file = None if verbose else temporary_log_file()
    spark = start_session(
        "reput sql",
        master=options.master,
        driver_memory=options.driver_memory,
        log_file=log_file,
        settings=SETTINGS,
        table=table,
    )
    try:
        with spark_failures_as_errors(table):
            rows = query(spark, table, statement, version, relations)
            yield SparkResult(rows if limit is None else rows.limit(limit))
    finally:
        end_session(spark)
        if log_file is not None:
            log_file.unlink(missing_ok=True)


def _write_times_in_utc() -> None:
    """Set the time zone of the process to UTC: Spark hands times to Python in that zone."""
    os.environ["TZ"] = "UTC"
    time.tzset()


def query(
    spark: SparkSession,
    table: TableLocation,
    statement: str,
    version: int | None = None,
    relations: Relations = NO_RELATIONS,
) -> DataFrame:
    """The result of `statement`, in which the table is called `messages`; only the table and `relations` are read.

    `version` is the table's version to read; None: the newest.

    Raises
    ------
    OutputError
        There is no Delta table at `table`, or it cannot be read.
    OptionError
        The statement contains something that is not known to only read, or Spark does not understand it.
    """
    check_table(table)
    with spark_failures_as_errors(table):
        plan = parse_query(spark, statement, relations)
        options = {} if version is None else {"versionAsOf": str(version)}
        spark.read.format("delta").options(**options).load(str(table)).createOrReplaceTempView(VIEW)
        for name, few in relations.items():
            spark.createDataFrame(few).createOrReplaceTempView(name)
        return run_plan(spark, plan)


def run_plan(spark: SparkSession, plan: JavaObject) -> DataFrame:
    """The result of a plan of ``parse_query``: the plan that was checked is the one that runs. Errors are Spark's."""
    jvm: Any = spark._jvm  # noqa: SLF001  a plan has no Python API
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001
