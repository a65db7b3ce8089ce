"""What a table is at its present version, by its log alone: without Spark, and mostly without opening a data file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from reput.sinks.table.compaction import StoredFile
from reput.sinks.table.delta_files import file_path
from reput.sinks.table.history import LogEntry, log_entries, transaction_id
from reput.sinks.table.own_files import OWN_DATA_FILE
from reput.source.errors import OutputError
from reput.source.printable import printable

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

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        with log_errors(self.path):
            self._table = deltalake.DeltaTable(self.path.as_uri())
            self.version = int(self._table.version())
            self.protocol: Any = self._table.protocol()
            self.metadata: Any = self._table.metadata()
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
            for entry in log_entries(self.path / "_delta_log", self.version, _COMMITS_SEARCHED):
                if entry.brings_messages and entry.broker is not None:
                    ranges.setdefault(entry.broker, entry)
            names = sorted({name for name in rows if name is not None})
            return [BrokerRows(name, rows[name], self._end(name), _range(ranges.get(name))) for name in names]

    def _end(self, broker: str) -> int | None:
        end = self._table.transaction_version(transaction_id(broker))
        return None if end is None else int(end)

    def _files(self) -> Iterator[TableFile]:
        actions: Any = pa.table(self._table.get_add_actions(flatten=True))
        names = ("path", "size_bytes", "num_records", *_BOUNDS)
        columns = [
            actions[name].to_pylist() if name in actions.column_names else [None] * len(actions) for name in names
        ]
        for path, size, rows, *offsets_and_times, least, greatest in zip(*columns, strict=True):
            stored = StoredFile(path, size, rows or 0, *offsets_and_times)
            if rows is None:
                stored = replace(stored, rows=pq.read_metadata(file_path(self.path, path)).num_rows)
            if (dead := self._dead.get(file_path(self.path, path))) is not None:
                stored = replace(stored, rows=stored.rows - dead.count(False))
            broker = least if least == greatest and least is not None else None
            yield TableFile(stored, broker, OWN_DATA_FILE.fullmatch(path) is not None)

    @cached_property
    def _dead(self) -> dict[Path, list[bool]]:
        """Which rows deletion vectors let stay, by file; rows behind a list's end stay."""
        if "deletionVectors" not in (self.protocol.reader_features or ()):
            return {}
        vectors = pa.table(self._table.deletion_vectors()).to_pylist()
        return {file_path(self.path, row["filepath"]): row["selection_vector"] for row in vectors}

    def _rows_in(self, file: TableFile) -> Counter[str | None]:
        """The rows of each broker in a file of several."""
        path = file_path(self.path, file.stored.path)
        brokers = pq.read_table(path, columns=["broker"])["broker"].to_pylist()
        stays = self._dead.get(path, [])
        stays = [*stays, *[True] * (len(brokers) - len(stays))]
        return Counter(broker for broker, is_there in zip(brokers, stays, strict=True) if is_there)


def _range(entry: LogEntry | None) -> tuple[int, int] | None:
    return None if entry is None or entry.start is None or entry.end is None else (entry.start, entry.end)


@contextmanager
def log_errors(path: Path) -> Iterator[None]:
    """Raise what reading a table's log or files raises as OutputError; `path` is the table's root."""
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError, ValueError, LookupError) as error:
        said = printable(str(error).strip().partition("\n")[0])
        advice = "deltalake reads no table below a path with a percent sign" if "%" in str(path) else None
        raise OutputError(f"{path}: the table cannot be read: {said}", advice=advice, file=path) from error
