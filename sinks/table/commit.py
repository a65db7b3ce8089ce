"""A commit of a Delta table: what it changes, what the table allows, and its actions in Delta's own words.

A ``Change`` has files that are added and removed. Before it is made, the table is asked what it wants of its writers:
features, columns, constraints that others added. What reput does not do is refused with the statement that undoes it.
"""

from __future__ import annotations

import json
import operator
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from pyspark.sql.types import IntegralType, StringType, StructField, StructType, TimestampType

from reput import __version__
from reput.sinks.table.data_file import Action, DataFile, LoggedAdd
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import REPAIR
from reput.sinks.table.snapshot import Snapshot
from reput.sinks.table.storage import TableStorage, output_errors
from reput.source.errors import OutputError, SinkError
from reput.source.printable import counted, printable

# ----------------------------------------------------------------------------------------------------------------------
# Changes by others that keep reput from writing a table, explained in words, with what undoes them.

_CONSTRAINT = "delta.constraints."
_MAPPING = "delta.columnMapping.mode"
# A column's name in the files: the one that it had when the mapping was switched on.
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


def table_name(path: TableLocation) -> str:
    """The table's name in SQL."""
    return "delta." + quoted(str(path))


def quoted(identifier: str) -> str:
    """An identifier, quoted for SQL."""
    return "`" + identifier.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as SQL's literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def column(field: StructField) -> str:
    """A column's declaration in SQL."""
    return f"{quoted(field.name)} {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"


def added_columns(wanted: StructType, found: StructType) -> list[str]:
    """The columns that others added and that reput leaves null."""
    return [column(field) for field in found if field.name not in wanted.fieldNames() and field.nullable]


def new_columns(wanted: StructType, found: StructType, later: Collection[str]) -> list[StructField]:
    """The columns of `wanted` named in `later` that the table lacks."""
    there = {ours.name for ours, _ in _named_alike(wanted, found)}
    return [field for field in wanted if field.name in later and field.name not in there]


def _named_alike(wanted: StructType, found: StructType) -> list[tuple[StructField, StructField]]:
    """The columns of both with one name; to Delta, small and capital letters are the same."""
    names = {field.name.lower(): field for field in found}
    return [(field, names[field.name.lower()]) for field in wanted if field.name.lower() in names]


def refusal(
    path: TableLocation,
    version: int,
    wanted: StructType,
    found: StructType,
    partitions: Sequence[str],
    properties: Mapping[str, str],
    later: Collection[str] = (),
    version_with: Callable[[Sequence[str]], int | None] | None = None,
) -> OutputError | None:
    """The error for a table that cannot be written at `version`, with what undoes it; None if it can be written.

    `wanted` are the columns that reput writes, `found` the table's. It may lack those of `wanted` that are named in
    `later`. A column that others added may stay if it is nullable. `version_with` tells the last version that had the
    columns with these names.
    """
    name, alter = table_name(path), f"ALTER TABLE {table_name(path)}"
    columns = {column(field) for field in found}
    other_kind = [
        pair for pair in _named_alike(wanted, found) if pair[0].name in later and column(pair[0]) not in columns
    ]
    lacking = [column(field) for field in wanted if field.name not in later and column(field) not in columns]
    others = [column(field) for field in found if column(field) not in {column(field) for field in wanted}]
    required = [field.name for field in found if field.name not in wanted.fieldNames() and not field.nullable]
    mapping = properties.get(_MAPPING, "none")
    if partitions:
        listed = ", ".join(f"partition column {each}" for each in partitions)
        cause = f"{path}: a Delta table with other columns, {listed}"
        return OutputError(cause, advice="give another path", file=path)
    if lacking:
        names = [field.name for field in wanted if column(field) in lacking]
        renamed = {field.metadata.get(_PHYSICAL_NAME): field.name for field in found if field.name not in names}
        if mapping != "none" and all(each in renamed for each in names):
            renames = (f"{alter} RENAME COLUMN {quoted(renamed[each])} TO {quoted(each)}" for each in names)
            undo = f"columns were renamed, give them their names again: {'; '.join(renames)}"
        else:
            known = None if version_with is None else version_with(names)
            number = "N' with the version before" if known is None else f"{known}'"
            undo = (
                f"'RESTORE TABLE {name} TO VERSION AS OF {number} undoes that columns were dropped or got other types, "
                "and 'reput rebuild --only table' makes the rows again that came since"
            )
        return OutputError(
            f"{path}: a Delta table with other columns at version {version}, lacking {lacking}, not wanted {others}",
            advice=f"{undo}; for a table that is not reput's give another path",
            file=path,
        )
    if other_kind and mapping == "none":
        ours, there = other_kind[0]
        free = quoted(f"{there.name}_before")
        undo = (
            f"{alter} SET TBLPROPERTIES ('{_MAPPING}' = 'name', 'delta.minReaderVersion' = '2', "
            f"'delta.minWriterVersion' = '5'); {alter} RENAME COLUMN {quoted(there.name)} TO {free}; "
            f"{alter} SET TBLPROPERTIES ('{_MAPPING}' = 'none')"
        )
        cause = f"{path}: reput adds the column {column(ours)}, and the table has {column(there)}, which others added"
        return OutputError(cause, advice=f"give theirs another name: {undo}", file=path)
    if required:
        undo = "; ".join(f"{alter} ALTER COLUMN {quoted(each)} DROP NOT NULL" for each in required)
        cause = f"{path}: columns were added that must not be null, not wanted {others}"
        return OutputError(cause, advice=f"undo it: {undo}", file=path)
    if mapping != "none":  # files with the columns' own names would be read as null
        undo = f"{alter} SET TBLPROPERTIES ('{_MAPPING}' = 'none')"
        cause = f"{path}: columns mapped by {mapping}, which reput does not write"
        return OutputError(cause, advice=f"undo it: {undo}", file=path)
    constraints = [key.removeprefix(_CONSTRAINT) for key in properties if key.startswith(_CONSTRAINT)]
    if constraints:
        undo = "; ".join(f"{alter} DROP CONSTRAINT {quoted(each)}" for each in constraints)
        cause = f"{path}: a constraint on its rows, which reput does not check"
        return OutputError(cause, advice=f"undo it: {undo}", file=path)
    return None


# ----------------------------------------------------------------------------------------------------------------------
# What a Delta table asks of its writers, and which of it reput does.

_READER_MAX, _WRITER_MAX = 3, 7
# A commit heeds these, or they do not concern one that adds and removes files. Columns with conditions on their values
# are refused where a table has some, and so are mapped columns (`refusal`).
_WRITTEN = frozenset(
    {
        *("allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "checkpointProtection"),
        *("clustering", "columnMapping", "deletionVectors", "domainMetadata", "generatedColumns", "identityColumns"),
        *("inCommitTimestamp", "invariants", "rowTracking", "timestampNtz", "typeWidening", "typeWidening-preview"),
        *("v2Checkpoint", "vacuumProtocolCheck", "variantShredding", "variantShredding-preview"),
        *("variantType", "variantType-preview"),
    }
)
# What a column's metadata has whose values writers must compute or check.
_CONDITIONS = {
    "delta.invariants": "a condition on its values",
    "delta.generationExpression": "values that are generated",
    "delta.identity.start": "values that are counted up",
}
_ROW_TRACKING = "delta.rowTracking"
_HIGHEST_ROW = "rowIdHighWaterMark"


def unwritable(path: TableLocation, snapshot: Snapshot) -> OutputError | None:
    """The error for a table that asks of its writers what reput does not do, with what undoes it; None otherwise."""
    alter = f"ALTER TABLE {table_name(path)}"
    needs = {"reader": int(snapshot.protocol["minReaderVersion"]), "writer": int(snapshot.protocol["minWriterVersion"])}
    if needs["reader"] > _READER_MAX or needs["writer"] > _WRITER_MAX:
        return OutputError(
            f"{path}: the table needs Delta's reader version {needs['reader']} and writer version {needs['writer']}, "
            f"and reput writes up to {_READER_MAX} and {_WRITER_MAX}",
            advice="give another path, or use a later release of reput",
            file=path,
        )
    if unknown := sorted(map(printable, snapshot.features - _WRITTEN)):
        undo = "; ".join(f"{alter} DROP FEATURE `{name}`" for name in unknown)
        cause = f"{path}: the table needs {', '.join(unknown)}, which reput does not write"
        return OutputError(cause, advice=f"undo it: {undo}", file=path)
    for column in json.loads(snapshot.metadata["schemaString"])["fields"]:
        for key, what in _CONDITIONS.items():
            if key in (column.get("metadata") or {}):
                name = printable(column["name"]).replace("`", "``")
                cause = f"{path}: the column `{name}` has {what}, which reput does not write"
                return OutputError(cause, advice=f"undo it: {alter} DROP COLUMN `{name}`", file=path)
    return None


def check_change(path: TableLocation, snapshot: Snapshot, *, adds_rows: bool, removes_rows: bool) -> None:
    """Raise OutputError if a table does not allow such a change, whose files have other rows than those removed."""
    if not removes_rows:
        return
    alter = f"ALTER TABLE {table_name(path)} SET TBLPROPERTIES"
    if snapshot.properties.get("delta.appendOnly", "").lower() == "true":
        cause = f"{path}: the table only takes new rows, and these replace others"
        raise OutputError(cause, advice=f"allow it: {alter} ('delta.appendOnly' = 'false')", file=path)
    if adds_rows and snapshot.properties.get("delta.enableChangeDataFeed", "").lower() == "true":
        cause = f"{path}: the table keeps a change data feed, which a commit that replaces rows cannot write"
        raise OutputError(cause, advice=f"undo it: {alter} ('delta.enableChangeDataFeed' = 'false')", file=path)


def commit_times(snapshot: Snapshot, now_ms: int) -> dict[str, int]:
    """The times that the ``commitInfo`` of the version after `snapshot` begins with."""
    if not snapshot.has_times:
        return {"timestamp": now_ms}
    time_ms = max(now_ms, (snapshot.time_ms or 0) + 1)
    return {"inCommitTimestamp": time_ms, "timestamp": time_ms}


class RowNumbers:
    """The row ids that the files of the version after `snapshot` get, where its table has row tracking."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._version = snapshot.version + 1
        self._are_given = (
            "rowTracking" in snapshot.features and snapshot.properties.get("delta.rowTrackingSuspended") != "true"
        )
        known: Mapping[str, Any] = json.loads(snapshot.domains.get(_ROW_TRACKING) or "{}")
        self._next = self._first = int(known.get(_HIGHEST_ROW, -1)) + 1

    def of_file(self, rows: int) -> dict[str, int]:
        """What the action that adds a file of so many rows has of them."""
        if not self._are_given:
            return {}
        first, self._next = self._next, self._next + rows
        return {"baseRowId": first, "defaultRowCommitVersion": self._version}

    def actions(self) -> list[dict[str, Any]]:
        """The action that says how many were given, if any were."""
        if self._next == self._first:
            return []
        domain = {"domain": _ROW_TRACKING, "configuration": json.dumps({_HIGHEST_ROW: self._next - 1})}
        return [{"domainMetadata": {**domain, "removed": False}}]


# ----------------------------------------------------------------------------------------------------------------------
# What one commit of a Delta table does: files that are added and removed, and what the history says of it.

#: What the table's history says of a commit, by name.
Note = Mapping[str, Any]


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

#: Who commits, for the table's history; ``log`` and earlier releases know reput's commits by ``/reput/``.
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
