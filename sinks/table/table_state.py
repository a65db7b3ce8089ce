"""What a table is at its present version, by its log alone: without Spark, and mostly without opening a data file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np

from reput.sinks.table.compaction import StoredFile
from reput.sinks.table.file_list import FileList, log_errors
from reput.sinks.table.history import LogEntry, log_entries, transaction_id
from reput.sinks.table.location import TableLocation
from reput.sinks.table.own_files import OWN_DATA_FILE, keys_file
from reput.sinks.table.storage import table_storage

_BOUNDS = ("min.physical_offset", "max.physical_offset", "min.store_time", "max.store_time", "min.broker", "max.broker")
# How far back the last range of each broker is looked for.
_COMMITS_SEARCHED = 2000


@dataclass(frozen=True)
class TableFile:
    """A data file of the present version.

    Attributes
    ----------
    stored
        Its path as the log has it, its size and its bounds; `rows` are those that no deletion vector removes.
    broker
        The broker of all of its rows; None if it may have rows of several.
    is_own
        Whether reput wrote it.
    """

    stored: StoredFile
    broker: str | None
    is_own: bool


@dataclass(frozen=True)
class BrokerRows:
    """One broker's part of a table.

    Attributes
    ----------
    rows
        How many rows it has.
    end
        Up to where in its log its rows are complete; None if reput never committed any.
    last_range
        The `[start, end)` of its log that the last commit of messages had; None if the log of the table does not
        tell any more.
    """

    broker: str
    rows: int
    end: int | None
    last_range: tuple[int, int] | None


class TableState:
    """The present version of the table at `path`.

    Raises
    ------
    OutputError
        The log cannot be read.
    """

    def __init__(self, path: TableLocation) -> None:
        self.path = path.resolve()
        self.storage = table_storage(self.path)
        self._list = FileList(self.path)
        self.version = self._list.version
        self.protocol = self._list.protocol
        self.metadata = self._list.metadata
        with log_errors(self.path):
            self.files = list(self._files())

    @property
    def rows(self) -> int:
        """The number of rows that no deletion vector removes."""
        return sum(file.stored.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """What the data files take."""
        return sum(file.stored.size_bytes for file in self.files)

    @property
    def store_times(self) -> tuple[datetime, datetime] | None:
        """The first and the last store time; None if no file tells."""
        known = [file.stored for file in self.files if file.stored.first_time and file.stored.last_time]
        if not known:
            return None
        return min(file.first_time for file in known), max(file.last_time for file in known)  # type: ignore[type-var,return-value]

    @property
    def small_files(self) -> list[TableFile]:
        """The files that are merged with others, when there are enough of them."""
        return [file for file in self.files if not file.stored.is_large]

    @property
    def unfiltered_files(self) -> list[TableFile]:
        """The files without a key filter, which a look-up by key has to open."""
        found = self.storage.statuses([keys_file(file.stored.path) for file in self.files])
        return [file for file, keys in zip(self.files, found, strict=True) if keys is None]

    @property
    def unsorted_files(self) -> list[TableFile]:
        """The large files of reput in the order of the log, which are sorted by topic one after the other."""
        return [file for file in self.files if file.is_own and file.stored.is_large and not file.stored.is_sorted]

    @cached_property
    def brokers(self) -> list[BrokerRows]:
        """The brokers that have rows, by name."""
        rows: Counter[str | None] = Counter()
        with log_errors(self.path):
            for file in self.files:
                rows.update({file.broker: file.stored.rows} if file.broker is not None else self._rows_in(file))
            ranges: dict[str, LogEntry] = {}
            for entry in log_entries(self.storage, self.version, _COMMITS_SEARCHED):
                if entry.brings_messages and entry.broker is not None:
                    ranges.setdefault(entry.broker, entry)
            names = sorted({name for name in rows if name is not None})
            return [self._broker_rows(name, rows[name], ranges.get(name)) for name in names]

    def _broker_rows(self, broker: str, rows: int, last: LogEntry | None) -> BrokerRows:
        end = self._list.transaction_version(transaction_id(broker))
        return BrokerRows(broker, rows, end, _range(last))

    def _files(self) -> Iterator[TableFile]:
        files = self._list.files()
        names = ("path", "size_bytes", "num_records", *_BOUNDS)
        columns = [files[name].to_pylist() if name in files.column_names else [None] * len(files) for name in names]
        for path, size, rows, *offsets_and_times, least, greatest in zip(*columns, strict=True):
            stored = StoredFile(path, size, rows or 0, *offsets_and_times)
            if rows is None:
                with self.storage.parquet(self.storage.name_of(path)) as file:
                    stored = replace(stored, rows=file.metadata.num_rows)
            if (kept := self._list.kept_rows(self.storage.name_of(path))) is not None:
                stored = replace(stored, rows=stored.rows - int(np.count_nonzero(~kept)))
            broker = least if least == greatest and least is not None else None
            yield TableFile(stored, broker, OWN_DATA_FILE.fullmatch(path) is not None)

    def _rows_in(self, file: TableFile) -> Counter[str | None]:
        """The rows of each broker in a file of several."""
        name = self.storage.name_of(file.stored.path)
        with self.storage.parquet(name) as parquet:
            brokers: list[str | None] = parquet.read(columns=["broker"])["broker"].to_pylist()
        kept = self._list.kept_rows(name)
        gone = set() if kept is None else set(np.flatnonzero(~kept).tolist())
        return Counter(broker for row, broker in enumerate(brokers) if row not in gone)


def _range(entry: LogEntry | None) -> tuple[int, int] | None:
    return None if entry is None or entry.start is None or entry.end is None else (entry.start, entry.end)
