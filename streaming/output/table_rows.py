"""One broker's rows of a message table, in the form in which they are compared with the log.

Tasks read the files themselves where these are the table's rows. That takes a tenth of the seconds that a JVM which has
just started takes for its first query; Spark reads what only Spark can.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from reput.sinks.table.delta_files import LoggedFile, files_of, files_without_spark, ignoring_missing_files
from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.history import transaction_id
from reput.sinks.table.location import TableLocation
from reput.sinks.table.message_file import TABLE_SCHEMA
from reput.sinks.table.record_digest import COMPARED, SUM_DDL, StretchSums, table_fields
from reput.sinks.table.row_retention import ExpiryLimits
from reput.sinks.table.storage import table_storage
from reput.sinks.table.stored_rows import RowsFile, RowsReader
from reput.source.arrays import Int64s
from reput.source.errors import OutputError
from reput.source.rows.message_schema import LATER_NAMES, spark_schema
from reput.streaming.spark.job import run_job
from reput.streaming.tasks.tasks import Tasks, run_over


class ComparedRows(ABC):
    """The rows of one broker in one version of a table, or those of them that are to be compared.

    Attributes
    ----------
    version
        The table's version.
    committed
        The broker's newest transaction version, None without any.
    files
        The data files that may have rows of the broker.
    """

    version: int
    committed: int | None
    files: list[LoggedFile]

    @abstractmethod
    def sums(self) -> tuple[StretchSums, dict[str, str]]:
        """The sums over all rows; and files that cannot be read, by name, each with what is wrong: their rows lack."""

    @abstractmethod
    def between(self, begin: int, end: int) -> list[Int64s]:
        """The rows of records in `[begin, end)` as the columns of ``record_digest.COMPARED``."""


def compared_rows(
    path: TableLocation,
    broker: str,
    expired: ExpiryLimits,
    tasks: Tasks,
    spark: Callable[[], SparkSession],
    *,
    least: int | None = None,
) -> ComparedRows:
    """The rows that have not expired by `expired`, from the physical offset `least` on; `tasks` or `spark` read them.

    Raises
    ------
    OutputError
        The table cannot be read, or has other columns.
    """
    reader = RowsReader(table_storage(path), broker, expired, least)
    try:
        return _StoredRows(reader, tasks)
    except OutputError:  # also where there is none: Spark's words are those that other commands have
        return _SparkRows(spark(), reader)


class _StoredRows(ComparedRows):
    def __init__(self, reader: RowsReader, tasks: Tasks) -> None:
        # deltalake starts threads, and processes are forked before it is asked.
        from reput.sinks.table.file_list import FileList  # noqa: PLC0415

        listed = FileList(reader.storage.location)
        listed.check_readable()
        if missing := {*COMPARED, "broker", "topic"} - set(listed.column_names):
            raise OutputError(f"{reader.storage.location} has no column {min(missing)}", file=reader.storage.location)
        self._reader, self._tasks = reader, tasks
        self.version = listed.version
        self.committed = listed.transaction_version(transaction_id(reader.broker))
        self.files = files_without_spark(listed, reader.broker)
        names = [reader.storage.name_of(file.path) for file in self.files]
        self._files = [
            RowsFile(name, file.bounds, listed.kept_rows(name)) for name, file in zip(names, self.files, strict=True)
        ]

    def sums(self) -> tuple[StretchSums, dict[str, str]]:
        total = StretchSums()
        found = run_over(self._tasks, self._reader.sums, self._files)
        for each in found:
            total.add_all(each.sums)
        problems = {
            file.name: each.problem for file, each in zip(self._files, found, strict=True) if each.problem is not None
        }
        return total, problems

    def between(self, begin: int, end: int) -> list[Int64s]:
        files = [file for file in self._files if file.bounds.may_reach(begin, end)]
        parts = [fields for file in files for fields in self._reader.readable_fields(file)]
        inside = [(fields[0] >= begin) & (fields[0] < end) for fields in parts]
        return _joined([[values[keep] for values in fields] for fields, keep in zip(parts, inside, strict=True)])


class _SparkRows(ComparedRows):
    """Files that are missing or cut short are passed over: their rows lack."""

    def __init__(self, spark: SparkSession, reader: RowsReader) -> None:
        path = reader.storage.location
        delta = DeltaTable(spark, path, spark_schema(TABLE_SCHEMA), later=LATER_NAMES)
        self._spark = spark
        self.version = delta.version
        self.committed = delta.last_transaction_version(transaction_id(reader.broker))
        self.files = files_of(spark, reader.storage, reader.broker)
        table = spark.read.format("delta").load(str(path)).where(sf.col("broker") == reader.broker)
        table = table.where(f"not {reader.expired.condition()}")
        if reader.least is not None:
            table = table.where(sf.col("physical_offset") >= reader.least)
        self._rows = table.select(*COMPARED)

    def sums(self) -> tuple[StretchSums, dict[str, str]]:
        with ignoring_missing_files(self._spark):
            return StretchSums.of_rows(run_job(self._rows, _row_sums, SUM_DDL).to_pylist()), {}

    def between(self, begin: int, end: int) -> list[Int64s]:
        wanted = f"physical_offset >= {begin} and physical_offset < {end}"
        with ignoring_missing_files(self._spark):
            batches = self._rows.where(wanted).toArrow().to_batches()
        return _joined([table_fields(batch) for batch in batches])


def _row_sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sum rows up; yields rows of ``record_digest.SUM_DDL``."""
    sums = StretchSums()
    for batch in batches:
        sums.take(table_fields(batch))
    yield sums.to_batch()


def _joined(parts: Sequence[list[Int64s]]) -> list[Int64s]:
    return [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * len(COMPARED)
