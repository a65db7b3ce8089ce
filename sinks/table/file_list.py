"""What a table is at a version, by its log alone: without Spark, and mostly without opening a data file.

``FileList`` reads the files and the properties of a version; ``TableState`` tells people what they come to.
"""

from __future__ import annotations

import json
import operator
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any

import deltalake
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from reput.sinks.table.data_file import FileBounds, LoggedFile, StoredFile, keys_file
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import LogEntry, log_entries, raise_log_damage, transaction_id
from reput.sinks.table.storage import table_storage
from reput.source.errors import OptionError, OutputError
from reput.source.printable import printable

# ----------------------------------------------------------------------------------------------------------------------
# The files of a Delta table's version, read from the table's log without Spark and Java.

# What changes nothing for whoever reads files, or is heeded here.
_READ_FEATURES = frozenset({"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
# Features that concern tables alone whose schema has this text. They stay in the protocol when the column has gone, and
# deltalake names the first one, too, where it switches deletion vectors on.
_BY_SCHEMA = {"variant": '"variant"', "typeWidening": '"delta.typeChanges"'}
# What deltalake takes for a character of a URL, also in a local path; no other percent sign is in its way.
_ESCAPED = re.compile("%[0-9A-Fa-f]{2}")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class FileList:
    """A table's files as they were when it was made, or by the last `update`."""

    def __init__(self, root: TableLocation, at: int | datetime | None = None) -> None:
        """Read the log of the table at `root`; `at` is the version to read, or a time at which it was the newest.

        Raises
        ------
        OutputError
            There is no table, or deltalake cannot read it.
        OptionError
            The table has no such version.
        """
        #: Where the table is.
        self.root = root
        self._storage = table_storage(root)
        # By the files' names, once they were asked for.
        self._vectors: dict[str, npt.NDArray[np.bool_]] | None = None
        try:
            with log_errors(root):
                self._table = deltalake.DeltaTable(self._storage.uri, storage_options=self._storage.deltalake_options)
        except OutputError as error:
            if isinstance(error.__cause__, TableNotFoundError):
                raise OutputError(f"{root} is no Delta table", file=root) from error
            raise
        if at is not None:
            self._go_back(at)

    def _go_back(self, at: int | datetime) -> None:
        newest = self.version
        version = self._version_at(at, newest) if isinstance(at, datetime) else at
        try:
            self._table.load_as_version(version)
        except DeltaError as error:
            raise OptionError(f"{self.root} has no version {version} to read: its newest is {newest}") from error

    def _version_at(self, at: datetime, newest: int) -> int:
        """The last version that was made at the time `at` or earlier, by the times that the commits themselves have.

        deltalake goes by the times of the commits' files, which are those of the copy where a table was copied.
        """
        first, begun = newest, ""
        with log_errors(self.root):
            for entry in log_entries(self._storage, newest, newest + 1):
                time = None if entry.time_ms is None else _EPOCH + timedelta(milliseconds=entry.time_ms)
                if time is not None and time <= at:
                    return entry.version
                first, begun = entry.version, "" if time is None else f", of {time.isoformat()}"
        raise OptionError(
            f"{self.root} had no version at {at.isoformat()}, or has lost it: the first that it has is {first}{begun}"
        )

    def check_readable(self) -> None:
        """Raise OutputError for a table whose files are not its rows: one that only Spark reads."""
        # Whether columns are mapped is asked by itself.
        found = self.reader_features - _READ_FEATURES - {"columnMapping"}
        foreign = sorted(feature for feature in found if not self._is_without_effect(feature))
        mapped = ["column mapping"] if self.has_mapped_columns else []
        partitioned = ["partitions"] if self.metadata.partition_columns else []
        if what := [*foreign, *mapped, *partitioned]:
            raise OutputError(
                f"{self.root}: a table with {', '.join(what)} is not read without Spark",
                advice="ask 'reput sql --engine spark'",
                file=self.root,
            )

    def _is_without_effect(self, feature: str) -> bool:
        """Whether no column of the table has what the feature is about."""
        texts = [text for name, text in _BY_SCHEMA.items() if feature.startswith(name)]
        return bool(texts) and texts[0] not in self._table.schema().to_json()

    def write_checkpoint(self, *, removes_expired: bool = False) -> int:
        """Write a checkpoint of the table's version, and return the version; raises OutputError.

        With `removes_expired`, commits go from the log that are older than the table's owner wants to keep them.
        """
        with log_errors(self.root):
            self._table.create_checkpoint()
            if removes_expired:
                self._table.cleanup_metadata()
        return self.version

    def update(self) -> None:
        """Read what was committed since; raises OutputError."""
        self._vectors = None
        with log_errors(self.root):
            self._table.update_incremental()

    @property
    def version(self) -> int:
        """The table's version."""
        return int(self._table.version())

    @property
    def metadata(self) -> Any:
        """The table's name, properties and the like, as deltalake has them."""
        return self._table.metadata()

    @property
    def protocol(self) -> Any:
        """What readers and writers of the table must know, as deltalake has it."""
        return self._table.protocol()

    def transaction_version(self, app_id: str) -> int | None:
        """The newest transaction version of `app_id`; None without any."""
        version = self._table.transaction_version(app_id)
        return None if version is None else int(version)

    @property
    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self.metadata.configuration)

    @property
    def column_names(self) -> list[str]:
        """The table's columns."""
        return [field.name for field in self._table.schema().fields]

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The table's columns as the log has them: ``name``, ``type``, and ``comment`` in ``metadata``."""
        fields: list[dict[str, Any]] = json.loads(self._table.schema().to_json())["fields"]
        return fields

    @property
    def arrow_schema(self) -> pa.Schema:
        """The table's columns as Arrow has them."""
        return pa.schema(self._table.schema().to_arrow())

    @property
    def reader_features(self) -> frozenset[str]:
        """What a reader must know beyond reader version 1."""
        return frozenset(self.protocol.reader_features or ())

    @property
    def has_mapped_columns(self) -> bool:
        """Whether columns have other names in the files."""
        return self.configuration.get("delta.columnMapping.mode", "none") != "none"

    def kept_rows(self, name: str) -> npt.NDArray[np.bool_] | None:
        """Which rows of a file, by its name in ``TableStorage``, no deletion vector removes; None for all.

        They are counted from its first row on. Rows behind the last of these are kept.
        """
        if self._vectors is None:
            self._vectors = {}
            if "deletionVectors" in self.reader_features:
                found: Any = self._table.deletion_vectors()
                for row in pa.table(found).to_pylist():
                    vector = np.array(row["selection_vector"], np.bool_)
                    self._vectors[self._storage.name_of(row["filepath"])] = vector
        return self._vectors.get(name)

    def files(self) -> pa.Table:
        """A row a file: ``path``, ``size_bytes``, ``num_records``, statistics as ``min.COLUMN`` and ``max.COLUMN``.

        A path is as in the log, see ``TableStorage.name_of``. Columns of statistics that no file has are missing.
        """
        with log_errors(self.root):
            actions: Any = self._table.get_add_actions(flatten=True)
            return pa.RecordBatchReader.from_stream(actions).read_all()  # `pa.table` loads pandas

    def files_of(self, broker: str) -> list[LoggedFile]:
        """The files that may hold rows of the broker, sorted by their paths; raises OutputError."""
        rows = self.files().to_pylist()
        found = ((row["path"], row["size_bytes"], FileBounds.of_row(row)) for row in rows)
        return [
            LoggedFile(path, size_bytes, bounds, self.kept_rows(self._storage.name_of(path)))
            for path, size_bytes, bounds in sorted(found, key=operator.itemgetter(0))
            if bounds.may_hold(broker)
        ]


@contextmanager
def log_errors(path: TableLocation) -> Iterator[None]:
    """Raise what reading a table's log or files raises as OutputError; `path` is the table's root."""
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise_log_damage(table_storage(path), error)
        said = printable(str(error).strip().partition("\n")[0])
        escaped = _ESCAPED.search(str(path))
        advice = f"deltalake takes {escaped[0]} in a path for another character: move the table" if escaped else None
        raise OutputError(f"{path}: the table cannot be read: {said}", advice=advice, file=path) from error


# ----------------------------------------------------------------------------------------------------------------------
# What a table is at its present version, by its log alone: without Spark, and mostly without opening a data file.

_BOUNDS = ("min.physical_offset", "max.physical_offset", "min.store_time", "max.store_time", "min.broker", "max.broker")
# How far back the last range of each broker is looked for.
_COMMITS_SEARCHED = 2000


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
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """What the data files take."""
        return sum(file.size_bytes for file in self.files)

    @property
    def store_times(self) -> tuple[datetime, datetime] | None:
        """The first and the last store time; None if no file tells."""
        known = [file for file in self.files if file.first_time and file.last_time]
        if not known:
            return None
        return min(file.first_time for file in known), max(file.last_time for file in known)  # type: ignore[type-var,return-value]

    @property
    def small_files(self) -> list[StoredFile]:
        """The files that are merged with others, when there are enough of them."""
        return [file for file in self.files if not file.is_large]

    @property
    def unfiltered_files(self) -> list[StoredFile]:
        """The files without a key filter, which a look-up by key has to open."""
        found = self.storage.statuses([keys_file(file.path) for file in self.files])
        return [file for file, keys in zip(self.files, found, strict=True) if keys is None]

    @property
    def unsorted_files(self) -> list[StoredFile]:
        """The large files of reput in the order of the log, which are sorted by topic one after the other."""
        return [file for file in self.files if file.is_own and file.is_large and not file.is_sorted]

    @cached_property
    def brokers(self) -> list[BrokerRows]:
        """The brokers that have rows, by name."""
        rows: Counter[str | None] = Counter()
        with log_errors(self.path):
            for file in self.files:
                rows.update({file.broker: file.rows} if file.broker is not None else self._rows_in(file))
            ranges: dict[str, LogEntry] = {}
            for entry in log_entries(self.storage, self.version, _COMMITS_SEARCHED):
                if entry.brings_messages and entry.broker is not None:
                    ranges.setdefault(entry.broker, entry)
            names = sorted({name for name in rows if name is not None})
            return [self._broker_rows(name, rows[name], ranges.get(name)) for name in names]

    def _broker_rows(self, broker: str, rows: int, last: LogEntry | None) -> BrokerRows:
        end = self._list.transaction_version(transaction_id(broker))
        return BrokerRows(broker, rows, end, _range(last))

    def _files(self) -> Iterator[StoredFile]:
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
            yield replace(stored, broker=least if least == greatest else None)

    def _rows_in(self, file: StoredFile) -> Counter[str | None]:
        """The rows of each broker in a file of several."""
        name = self.storage.name_of(file.path)
        with self.storage.parquet(name) as parquet:
            brokers: list[str | None] = parquet.read(columns=["broker"])["broker"].to_pylist()
        kept = self._list.kept_rows(name)
        gone = set() if kept is None else set(np.flatnonzero(~kept).tolist())
        return Counter(broker for row, broker in enumerate(brokers) if row not in gone)


def _range(entry: LogEntry | None) -> tuple[int, int] | None:
    return None if entry is None or entry.start is None or entry.end is None else (entry.start, entry.end)
