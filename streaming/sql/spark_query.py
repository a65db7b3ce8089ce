"""`reput sql`: one query over the message table."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

from reput.sinks.table.location import TableLocation
from reput.streaming.output.table_path import check_table
from reput.streaming.sql.spark_check import VIEW, parse_query
from reput.streaming.sql.spark_failure import spark_failures_as_errors

# Besides what ``spark_check`` refuses: no file can be read as a table by its path.
SETTINGS = {"spark.sql.runSQLOnFiles": "false"}


def query(spark: SparkSession, table: TableLocation, statement: str) -> DataFrame:
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
