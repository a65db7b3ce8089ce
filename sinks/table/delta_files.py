"""The data files of a Delta table's present version: which cannot be read, and which may hold certain rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from reput.sinks.table.location import TableLocation
from reput.sinks.table.refusal import output_errors
from reput.sinks.table.storage import TableStorage


@dataclass(frozen=True)
class FileBounds:
    """The statistics of a file's rows; a bound is None where the statistics lack it.

    `least` and `greatest` are physical offsets of the rows of all brokers, `rows` is their number.
    """

    rows: int | None
    least: int | None
    greatest: int | None
    brokers: tuple[str, str] | None

    @classmethod
    def of(cls, statistics_json: str | None) -> FileBounds:
        """Read them from Delta's statistics of a file."""
        statistics = json.loads(statistics_json or "{}")
        low, high = statistics.get("minValues") or {}, statistics.get("maxValues") or {}
        brokers = (low["broker"], high["broker"]) if low.get("broker") and high.get("broker") else None
        nulls = (statistics.get("nullCount") or {}).get("broker")
        return cls(
            statistics.get("numRecords"),
            low.get("physical_offset"),
            high.get("physical_offset"),
            brokers if nulls == 0 else None,
        )

    def may_hold(self, broker: str) -> bool:
        """Whether the file may hold rows of the broker."""
        return self.rows != 0 and (self.brokers is None or self.brokers[0] <= broker <= self.brokers[1])

    def is_only(self, broker: str, start: int, end: int) -> bool:
        """Whether every row belongs to the broker and to `[start, end)`."""
        if self.brokers != (broker, broker) or self.least is None or self.greatest is None:
            return False
        return start <= self.least and self.greatest < end


@dataclass(frozen=True)
class BadFile:
    """A file of the table's log that is missing or has another size; `problem` says which.

    `name` is its name as ``TableStorage`` has it.
    """

    name: str
    problem: str
    bounds: FileBounds


def active_files(spark: SparkSession, root: TableLocation) -> DataFrame:
    """The present version's files as the log has them: ``path``, ``size``, ``stats``.

    Raises
    ------
    OutputError
        The log cannot be read.
    """
    session: Any = spark
    # Delta's threads use the active session of the calling thread; pyspark sets it only in the thread that made it.
    session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001
    delta_log = session._jvm.org.apache.spark.sql.delta.DeltaLog  # noqa: SLF001  py4j's gateway has no public name
    with output_errors(f"{root}: cannot read the Delta log", root):
        snapshot = delta_log.forTableWithSnapshot(session._jsparkSession, str(root))._2()  # noqa: SLF001
        return DataFrame(snapshot.allFiles().toDF(), spark).select("path", "size", "stats")


def bad_files(spark: SparkSession, storage: TableStorage) -> Iterator[BadFile]:
    """Files of the present version that are missing or have another size; their contents are not looked at.

    Raises
    ------
    OutputError
        The log or a file's size cannot be read.
    """
    root = storage.location
    files = active_files(spark, root).orderBy(sf.col("path"))
    with output_errors(f"{root}: cannot read the Delta log", root):
        table = files.toArrow()
    for batch in table.to_batches():
        logged, sizes, statistics = (batch.column(number).to_pylist() for number in range(3))
        names = [storage.name_of(each) for each in logged]
        with output_errors(f"cannot look at the files of {root}", root):
            found = storage.statuses(names)
        for name, size, there, statistics_json in zip(names, sizes, found, statistics, strict=True):
            if there is None or there.size_bytes != size:
                problem = f"has {there.size_bytes} bytes, {size} were committed" if there else "is not there"
                yield BadFile(name, problem, FileBounds.of(statistics_json))


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
