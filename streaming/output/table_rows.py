"""One broker's rows of a message table, in the form in which they are compared with the log.

Where tasks can read the table's files themselves, they do: that takes a tenth of the time that a JVM which has just
started takes for its first query. Spark reads the other tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from reput.sinks.table.comparison import COLUMNS, SUM_DDL, RowsReader, StretchSums, row_digests
from reput.sinks.table.data_file import DataFile
from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import check_readable, log_errors, read_snapshot, transaction_id
from reput.sinks.table.message_file import TABLE_SCHEMA
from reput.sinks.table.retention import ExpiryLimits
from reput.sinks.table.storage import table_storage
from reput.source.errors import OutputError
from reput.source.rows.message_schema import LATER_NAMES, spark_schema
from reput.streaming.spark.job import run_job
from reput.streaming.tasks.tasks import Tasks, run_over


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table that are compared with the log, and the others: bodies, and columns that others added.

    `lacking` are those of ``message_schema.LATER_NAMES`` that the table does not have.
    """

    compared: tuple[str, ...]
    others: tuple[str, ...]
    lacking: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str], table: TableLocation) -> TableColumns:
        """Sort the columns `names` of the table `table`.

        Raises
        ------
        OutputError
            It lacks a column that tables of every version of reput have.
        """
        lacking = [name for name in COLUMNS if name not in names]
        if missing := {"broker", *lacking} - LATER_NAMES - set(names):
            raise OutputError(f"{table} has no column {min(missing)}", file=table)
        return cls(
            ("broker", *(name for name in COLUMNS if name in names)),
            tuple(name for name in names if name not in ("broker", *COLUMNS)),
            tuple(lacking),
        )


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
    columns
        The table's columns that are compared, and those that are not.
    """

    version: int
    committed: int | None
    files: Sequence[DataFile]
    columns: TableColumns

    @abstractmethod
    def sums(self) -> tuple[StretchSums, dict[str, str]]:
        """Return the sums over all rows, and the error of each file that cannot be read; its rows are left out."""

    @abstractmethod
    def between(self, begin: int, end: int) -> list[pa.RecordBatch]:
        """Return the rows of records in `[begin, end)`, with the ``comparison.COLUMNS`` that files have."""


def compared_rows(
    path: TableLocation,
    broker: str,
    expired: ExpiryLimits,
    tasks: Tasks,
    spark: Callable[[], SparkSession],
    *,
    least: int | None = None,
) -> ComparedRows:
    """Return the rows not expired by `expired`, from the physical offset `least` on; `tasks` or `spark` read them.

    Raises
    ------
    OutputError
        The table cannot be read, or has other columns.
    """
    reader = RowsReader(table_storage(path), broker, expired, least)
    try:
        return _StoredRows(reader, tasks)
    except OutputError:  # also without a table: the error then is Spark's, as in other commands
        return _SparkRows(spark(), reader)


class _StoredRows(ComparedRows):
    def __init__(self, reader: RowsReader, tasks: Tasks) -> None:
        snapshot = read_snapshot(reader.storage.location)
        check_readable(snapshot)
        self.columns = TableColumns.of(snapshot.column_names, reader.storage.location)
        self._reader, self._tasks = reader, tasks
        self.version = snapshot.version
        self.committed = snapshot.transactions.get(transaction_id(reader.broker))
        with log_errors(reader.storage.location):
            self.files = self._files = snapshot.files_of(reader.broker)

    def sums(self) -> tuple[StretchSums, dict[str, str]]:
        total = StretchSums()
        found = run_over(self._tasks, self._reader.sums, self._files)
        for each in found:
            total.add_all(each.sums)
        problems = {
            file.path: each.problem for file, each in zip(self._files, found, strict=True) if each.problem is not None
        }
        return total, problems

    def between(self, begin: int, end: int) -> list[pa.RecordBatch]:
        offset = pc.field("physical_offset")
        return [
            rows.filter((offset >= begin) & (offset < end))
            for file in self._files
            if file.bounds.may_reach(begin, end)
            for rows in self._reader.readable(file)
        ]


class _SparkRows(ComparedRows):
    """Rows that Spark reads; it passes over files that are missing or cut short, so their rows are missing."""

    def __init__(self, spark: SparkSession, reader: RowsReader) -> None:
        path = reader.storage.location
        delta = DeltaTable(path, spark_schema(TABLE_SCHEMA), later=LATER_NAMES)
        self._spark = spark
        self.version = delta.version
        self.committed = delta.last_transaction_version(transaction_id(reader.broker))
        self.files = delta.files_of(reader.broker)
        table = spark.read.format("delta").load(str(path)).where(sf.col("broker") == reader.broker)
        table = table.where(f"not {reader.expired.condition()}")
        if reader.least is not None:
            table = table.where(sf.col("physical_offset") >= reader.least)
        self.columns = TableColumns.of(table.columns, path)
        self._rows = table.select(*(name for name in self.columns.compared if name != "broker"))

    def sums(self) -> tuple[StretchSums, dict[str, str]]:
        with ignoring_missing_files(self._spark):
            return StretchSums.of_rows(run_job(self._rows, _row_sums, SUM_DDL).to_pylist()), {}

    def between(self, begin: int, end: int) -> list[pa.RecordBatch]:
        wanted = f"physical_offset >= {begin} and physical_offset < {end}"
        with ignoring_missing_files(self._spark):
            return list(self._rows.where(wanted).toArrow().to_batches())


def _row_sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sum rows up; yield rows of ``comparison.SUM_DDL``."""
    sums = StretchSums()
    for batch in batches:
        sums.take(row_digests(batch))
    yield sums.to_batch()


@contextmanager
def ignoring_missing_files(spark: SparkSession) -> Iterator[None]:
    """Have Spark pass over data files that are missing or cut short; their rows count as missing."""
    names = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")
    known = {name: spark.conf.get(name) for name in names}
    try:
        for name in names:
            spark.conf.set(name, "true")
        yield
    finally:
        for name, value in known.items():
            spark.conf.set(name, str(value))
