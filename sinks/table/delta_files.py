"""The data files of a Delta table's present version: which cannot be read, and which may hold certain rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from reput.sinks.table.refusal import output_errors
from reput.sinks.table.storage import TableStorage

if TYPE_CHECKING:
    from reput.sinks.table.file_list import FileList
    from reput.sinks.table.snapshot import LoggedAdd


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

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> FileBounds:
        """Take them from a row of ``FileList.files``."""
        low, high = row.get("min.broker"), row.get("max.broker")
        brokers = (low, high) if low and high and row.get("null_count.broker") == 0 else None
        return cls(row.get("num_records"), row.get("min.physical_offset"), row.get("max.physical_offset"), brokers)

    def may_hold(self, broker: str) -> bool:
        """Whether the file may hold rows of the broker."""
        return self.rows != 0 and (self.brokers is None or self.brokers[0] <= broker <= self.brokers[1])

    def may_reach(self, start: int, end: int) -> bool:
        """Whether the file may hold rows of `[start, end)`."""
        return self.least is None or self.greatest is None or (self.least < end and start <= self.greatest)

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


@dataclass(frozen=True)
class LoggedFile:
    """A file of the table's log: its path as there, its size, and what is known of its rows."""

    path: str
    size_bytes: int
    bounds: FileBounds


def listed_files(listed: FileList, broker: str) -> list[LoggedFile]:
    """The files of the version that was `listed` that may hold rows of the broker, sorted by their paths.

    Raises
    ------
    OutputError
        The log cannot be read.
    """
    rows = listed.files().to_pylist()
    files = (LoggedFile(row["path"], row["size_bytes"], FileBounds.of_row(row)) for row in rows)
    return sorted((file for file in files if file.bounds.may_hold(broker)), key=lambda file: file.path)


def bad_files(storage: TableStorage, files: Sequence[LoggedFile | LoggedAdd]) -> list[BadFile]:
    """Those of the table's files that are missing or have another size; their contents are not looked at.

    Raises
    ------
    OutputError
        A file's size cannot be read.
    """
    names = [storage.name_of(file.path) for file in files]
    with output_errors(f"cannot look at the files of {storage.location}", storage.location):
        found = storage.statuses(names)
    bad = []
    for file, name, there in zip(files, names, found, strict=True):
        if there is None or there.size_bytes != file.size_bytes:
            problem = f"has {there.size_bytes} bytes, {file.size_bytes} were committed" if there else "is not there"
            bad.append(BadFile(name, problem, file.bounds))
    return bad


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
