"""The files of a Delta table's version, read from the table's log without Spark and Java."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import deltalake
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from reput.sinks.table.history import log_entries
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log_damage import raise_log_damage
from reput.sinks.table.storage import table_storage
from reput.source.errors import OptionError, OutputError
from reput.source.printable import printable

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
