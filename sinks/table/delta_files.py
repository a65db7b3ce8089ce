"""The data files of a Delta table's present version: which cannot be read, and which may hold certain rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from reput.sinks.table.file_path import file_path
from reput.sinks.table.refusal import output_errors
from reput.source.errors import OutputError


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
    """A file of the table's log that is missing on disk or has another size; `problem` says which."""

    path: Path
    problem: str
    bounds: FileBounds


def active_files(spark: SparkSession, root: Path) -> DataFrame:
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


def bad_files(spark: SparkSession, root: Path) -> Iterator[BadFile]:
    """Files of the present version that are missing or have another size; their contents are not looked at.

    Raises
    ------
    OutputError
        The log or a file's size cannot be read.
    """
    files = active_files(spark, root).orderBy(sf.col("path"))
    with output_errors(f"{root}: cannot read the Delta log", root):
        table = files.toArrow()
    for batch in table.to_batches():
        names, sizes, statistics = (batch.column(number) for number in range(3))
        for row, name in enumerate(names.to_pylist()):
            path = file_path(root, name)
            try:
                size = path.stat().st_size
                problem = f"has {size} bytes, {sizes[row].as_py()} were committed"
                if size == sizes[row].as_py():
                    continue
            except FileNotFoundError:
                problem = "is not there"
            except OSError as error:
                raise OutputError(f"cannot look at {path}: {error.strerror}", file=path) from error
            yield BadFile(path, problem, FileBounds.of(statistics[row].as_py()))


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
