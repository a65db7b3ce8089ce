"""`reput table optimize`: by hand the merges that a `tail` does beside its work; and the session that needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.file_list import log_errors
from reput.sinks.table.location import TableLocation
from reput.sinks.table.message_file import TABLE_SCHEMA
from reput.sinks.table.refusal import output_errors
from reput.sinks.table.table_state import TableState
from reput.sinks.table.upkeep import TableUpkeep
from reput.source.errors import OptionError
from reput.source.rows.message_schema import LATER_NAMES, spark_schema
from reput.streaming.config.run_options import SparkOptions
from reput.streaming.output.table_path import check_table
from reput.streaming.spark.session import TAIL_SETTINGS, end_session, start_session, temporary_log_file
from reput.streaming.table.report import OptimizeReport

# Commits are made by the driver; Spark itself has little to do.
_MASTER = "local[1]"


@contextmanager
def table_session(
    command: str, options: SparkOptions, table: TableLocation, *, verbose: bool
) -> Iterator[SparkSession]:
    """A session for commits to `table`; `verbose` leaves Spark's messages on the terminal. Errors: `start_session`."""
    spark_log = None if verbose else temporary_log_file()
    spark = start_session(
        command,
        master=_MASTER,
        driver_memory=options.driver_memory,
        log_file=spark_log,
        settings=TAIL_SETTINGS,
        table=table,
    )
    try:
        yield spark
    finally:
        end_session(spark)


def existing_table(spark: SparkSession, path: TableLocation) -> DeltaTable:
    """The message table at `path`, which must be there and stays as it is; errors as ``check_table``."""
    check_table(path)
    return DeltaTable(spark, path.resolve(), spark_schema(TABLE_SCHEMA), later=LATER_NAMES)


def brokers_of(state: TableState, broker: str | None) -> tuple[str, ...]:
    """The brokers with files of their own in a table, or `broker` alone; raises OptionError if it has none."""
    found = sorted({file.broker for file in state.files if file.broker is not None and file.is_own})
    if broker is None:
        return tuple(found)
    if broker not in found:
        raise OptionError(f"--broker {broker}: no file of {state.path} has rows of that broker alone")
    return (broker,)


def optimize(spark: SparkSession, path: TableLocation, broker: str | None) -> OptimizeReport:
    """Merge and sort the files of `broker`, or of each, until nothing is due.

    Killed at any moment, the merges that were committed stay, and the same command does the rest.

    Raises
    ------
    OptionError
        The broker has no files.
    OutputError
        The table cannot be read, or not be written by reput.
    TransientError
        Other writers committed first again and again, or the disk is full.
    """
    table = existing_table(spark, path)
    before = TableState(table.path)
    names, merges = brokers_of(before, broker), 0
    for name in names:
        with log_errors(table.path), output_errors(f"{table.path} cannot be tidied", table.path):
            merges += TableUpkeep(table, name, 0).to_the_end().merges
    after = TableState(table.path)
    return OptimizeReport(
        *(names, merges, len(before.files), len(after.files), before.size_bytes, after.size_bytes, after.version)
    )
