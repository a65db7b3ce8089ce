"""A change of a table: its files, added and removed, and the actions of its commit, in Delta's own words."""

from __future__ import annotations

import json
import operator
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.types import IntegralType, StringType, StructField, StructType, TimestampType

from reput import __version__
from reput.sinks.table.history import REPAIR
from reput.sinks.table.protocol import RowNumbers, check_change, commit_times
from reput.sinks.table.refusal import output_errors
from reput.sinks.table.snapshot import Action, LoggedAdd, Snapshot
from reput.sinks.table.storage import TableStorage
from reput.source.errors import SinkError
from reput.source.printable import counted

# ----------------------------------------------------------------------------------------------------------------------
# What one commit of a Delta table does: files that are added and removed, and what the history says of it.

#: What the table's history says of a commit, by name.
Note = Mapping[str, Any]


@dataclass(frozen=True)
class DataFile:
    """A Parquet file put below the table's root and not yet durable; a commit first makes it durable.

    Attributes
    ----------
    path
        Relative to the table's root, plain text (not URL-encoded), without ``.``, ``..`` or ``:``.
    size_bytes, modification_time_ms
        Its length, which is checked, and its time in milliseconds since 1970 UTC.
    statistics_json
        Delta's ``numRecords``, ``minValues``, ``maxValues``, ``nullCount``. Readers rely on them: they count rows by
        ``numRecords`` and skip a file whose minimum and maximum exclude a filter. Timestamps look like
        ``2026-11-21T00:00:00.000Z`` and are rounded down, maxima too, since readers add 1 ms to these.
    """

    path: str
    size_bytes: int
    modification_time_ms: int
    statistics_json: str

    @classmethod
    def put(cls, storage: TableStorage, name: str, data: pa.Buffer, statistics_json: str) -> DataFile:
        """Write the file; raises OutputError if it cannot be written."""
        storage.put(name, data, durable=False)
        return cls.new(name, data.size, statistics_json)

    @classmethod
    def new(cls, name: str, size_bytes: int, statistics_json: str) -> DataFile:
        """A file that was written just now."""
        return cls(name, size_bytes, time.time_ns() // 1_000_000, statistics_json)


@dataclass(frozen=True)
class Change:
    """What a commit does.

    Attributes
    ----------
    files
        Added files.
    removed
        Removed files of the table's present version.
    transaction
        The application's id and version; None for a commit that changes no row.
    is_next
        Whether to refuse a transaction version that is not above the last one. If False, the commit is marked as a
        repair.
    note
        What the table's history says of the commit.
    new_columns
        Columns that the table gets; then nothing else is changed.
    deleted
        The number of rows that a commit without a transaction takes away; None if it changes no row.
    """

    files: Sequence[DataFile]
    removed: Sequence[LoggedAdd]
    transaction: tuple[str, int] | None
    is_next: bool = True
    note: Note = field(default_factory=dict)
    new_columns: Sequence[StructField] = ()
    deleted: int | None = None

    @property
    def has_rows_anew(self) -> bool:
        """Whether its files have other rows than the removed ones."""
        return self.transaction is not None or self.deleted is not None

    def __str__(self) -> str:
        """What it is, for messages."""
        if self.new_columns:
            return f"adding the columns {', '.join(column.name for column in self.new_columns)}"
        if self.deleted is not None:
            return f"{counted(self.deleted, 'row')} deleted"
        if self.transaction is None:
            return f"{counted(len(self.removed), 'file')} written as {len(self.files)}"
        return f"transaction {self.transaction[1]} of {self.transaction[0]!r}"

    def commit_info(self) -> dict[str, Any]:
        """What the log says of the commit beside who made it, and when; ``DESCRIBE HISTORY`` shows it."""
        size_bytes = sum(file.size_bytes for file in self.files)
        added, removed = str(len(self.files)), str(len(self.removed))
        rows = sum(json.loads(file.statistics_json)["numRecords"] for file in self.files)
        if self.new_columns:
            columns = [{"column": column.jsonValue()} for column in self.new_columns]
            parameters = {"columns": json.dumps(columns)}
            return {"operation": "ADD COLUMNS", "operationParameters": parameters, "isBlindAppend": False}
        if self.transaction is None:
            deleted = {"numDeletedRows": str(self.deleted), "numCopiedRows": str(rows)}
            return {
                "operation": "OPTIMIZE" if self.deleted is None else "DELETE",
                "operationParameters": {"predicate": "[]"},
                "operationMetrics": {
                    **({} if self.deleted is None else deleted),
                    "numAddedFiles": added,
                    "numRemovedFiles": removed,
                    "numAddedBytes": str(size_bytes),
                    "numRemovedBytes": str(sum(file.size_bytes for file in self.removed)),
                },
                "userMetadata": json.dumps(dict(self.note)),
            }
        return {
            "isBlindAppend": not self.removed,
            "operationParameters": {"mode": "Replace" if self.removed else "Append"},
            "operationMetrics": {
                "numFiles": added,
                "numOutputRows": str(rows),
                "numOutputBytes": str(size_bytes),
                **({"numRemovedFiles": removed} if self.removed else {}),
            },
            "userMetadata": json.dumps({**self.note, "transaction": list(self.transaction)}),
        }


def check_files(storage: TableStorage, files: Sequence[DataFile]) -> None:
    """Raise SinkError for a file that is named twice, is not below the root, or has another size than it should."""
    root = storage.location
    if len({file.path for file in files}) < len(files):
        raise SinkError(f"{root}: a data file is named twice in one commit", file=root)
    for file in files:
        parts = PurePosixPath(file.path)
        if str(parts) != file.path or parts.is_absolute() or ".." in parts.parts or ":" in file.path:
            raise SinkError(f"{file.path!r} is no path of a data file below {root}", file=root)
    with output_errors(f"cannot commit files of {root}", root, SinkError):
        found = storage.statuses([file.path for file in files])
    for file, there in zip(files, found, strict=True):
        if there is None or there.size_bytes != file.size_bytes:
            path = root / file.path
            problem = (
                "No such file or directory" if there is None else f"{there.size_bytes} bytes, not {file.size_bytes}"
            )
            raise SinkError(f"cannot commit {path}: {problem}", advice="write it again", file=path)


# ----------------------------------------------------------------------------------------------------------------------
# A change of a table as the actions of one commit, in the words of Delta's protocol.

#: Who commits, for the table's history; `history` and earlier releases know reput's commits by ``/reput/``.
ENGINE_INFO = f"python/reput/{__version__}"
_TIME = re.compile(r"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
# What Java's URI leaves as it is in a path.
_PLAIN = "/!$&'()*+,;=@~-._"


def text_of(actions: Iterable[Action]) -> bytes:
    """The content of a commit's file."""
    return "".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions).encode()


def creation(schema: StructType, properties: Mapping[str, str], comment: str) -> list[Action]:
    """The actions of a new table's first version, without rows."""
    now = _now_ms()
    parameters = {"partitionBy": "[]", "description": comment, "properties": json.dumps(dict(properties))}
    info = {"timestamp": now, **_who("CREATE TABLE"), "operationParameters": parameters, "isBlindAppend": True}
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema.jsonValue(), separators=(",", ":"), ensure_ascii=False),
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": now,
        **({"description": comment} if comment else {}),
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    return [{"commitInfo": info}, {"metaData": metadata}, {"protocol": protocol}]


def actions_of(storage: TableStorage, snapshot: Snapshot, change: Change) -> list[Action]:
    """The actions by which `change` makes the version after `snapshot`.

    Raises
    ------
    SinkError
        A file has other statistics than Delta's.
    OutputError
        The table does not allow the change.
    """
    path, now = storage.location, _now_ms()
    changes_rows = change.has_rows_anew
    check_change(path, snapshot, adds_rows=bool(change.files), removes_rows=changes_rows and bool(change.removed))
    numbers = RowNumbers(snapshot)
    adds: list[Action] = []
    for file in change.files:
        rows = _checked_rows(storage, snapshot.schema, file)
        adds.append(_add(file, changes_rows=changes_rows) | numbers.of_file(rows))
    info = {**commit_times(snapshot, now), **_who("WRITE", is_repair=not change.is_next), **change.commit_info()}
    actions: list[Action] = [{"commitInfo": info}]
    if change.transaction is not None:
        app_id, version = change.transaction
        actions.append({"txn": {"appId": app_id, "version": version, "lastUpdated": now}})
    if change.new_columns:
        actions.append({"metaData": _with_columns(snapshot.metadata, change)})
    actions += [
        file.removal(now, changes_rows=changes_rows, with_statistics=change.deleted is None) for file in change.removed
    ]
    return [*actions, *({"add": add} for add in adds), *numbers.actions()]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _who(operation: str, *, is_repair: bool = False) -> dict[str, Any]:
    """What each ``commitInfo`` has; its id makes no commit the same as another."""
    engine = ENGINE_INFO + REPAIR if is_repair else ENGINE_INFO
    return {"engineInfo": engine, "operation": operation, "txnId": str(uuid.uuid4())}


def _add(file: DataFile, *, changes_rows: bool) -> Action:
    return {
        "path": quote(file.path, safe=_PLAIN),
        "partitionValues": {},
        "size": file.size_bytes,
        "modificationTime": file.modification_time_ms,
        "dataChange": changes_rows,
        "stats": file.statistics_json,
    }


def _with_columns(metadata: Mapping[str, Any], change: Change) -> Action:
    """The table's metadata with further columns behind its own, which stay as they were written."""
    schema = json.loads(metadata["schemaString"])
    schema["fields"] += [column.jsonValue() for column in change.new_columns]
    return {**metadata, "schemaString": json.dumps(schema)}


def _checked_rows(storage: TableStorage, schema: StructType, file: DataFile) -> int:
    """The number of a file's rows; readers rely on its statistics, so none may have another form than Delta's."""
    try:
        known = json.loads(file.statistics_json)
        for bounds in ("minValues", "maxValues"):
            for name, value in (known.get(bounds) or {}).items():
                _check_bound(schema, name, value)
        return operator.index(known["numRecords"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        path = storage.location / file.path
        raise SinkError(f"{path}: not Delta's statistics with numRecords: {error}", file=path) from error


def _check_bound(schema: StructType, name: str, value: object) -> None:
    kind = schema[name].dataType
    if isinstance(kind, TimestampType):
        is_right = isinstance(value, str) and _TIME.fullmatch(value) is not None
    elif isinstance(kind, IntegralType):
        is_right = isinstance(value, int)
    else:
        is_right = not isinstance(kind, StringType) or isinstance(value, str)
    if not is_right:
        raise ValueError(f"{value!r} of the column {name} cannot be read as {kind.typeName()}")
