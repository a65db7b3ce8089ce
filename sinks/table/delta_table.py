"""A Delta table: tasks write its Parquet files, and the driver commits them, in the terms of Delta's protocol.

A commit is one file of the table's log, put in place only if no other writer has that version. It needs no JVM. A
``Change`` says which files are added and removed. Before a commit, the requirements of the table are checked: features,
columns, constraints that others added. Requirements that reput does not support are refused with an error that has the
statement to undo them.
"""

from __future__ import annotations

import json
import logging
import operator
import random
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote

from pyspark.sql.types import IntegralType, StringType, StructField, StructType, TimestampType

from reput import __version__
from reput.sinks.table.data_file import Action, DataFile
from reput.sinks.table.location import TableLocation, table_away
from reput.sinks.table.log import (
    HINT,
    REPAIR,
    UNREADABLE,
    NoTableError,
    Snapshot,
    StaleSnapshotError,
    checkpoint_file,
    commit_digest,
    commit_file,
    raise_log_damage,
    version_with_columns,
    write_checkpoint,
)
from reput.sinks.table.storage import (
    LOG,
    PROBE,
    TableStorage,
    first_line,
    is_left_over,
    output_errors,
    sync_directories,
    table_storage,
    turn,
)
from reput.source.errors import OutputError, ReputError, SinkError, TransientError, output_error_of
from reput.source.printable import counted, printable

# ----------------------------------------------------------------------------------------------------------------------
# Changes by others that keep reput from writing a table, explained in words, with the statements that undo them.

_CONSTRAINT = "delta.constraints."
_MAPPING = "delta.columnMapping.mode"
# A column's name in the files: its name when the mapping was switched on.
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
    """The columns of `wanted`, among those named in `later`, that the table lacks."""
    there = {ours.name for ours, _ in _named_alike(wanted, found)}
    return [field for field in wanted if field.name in later and field.name not in there]


def _named_alike(wanted: StructType, found: StructType) -> list[tuple[StructField, StructField]]:
    """The columns of both with one name; Delta ignores case."""
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
    """The error for a table that cannot be written at `version`, with the way to undo the cause, or None.

    `wanted` are the columns that reput writes, `found` the table's. It may lack those of `wanted` that are named in
    `later`. A column that others added may stay if it is nullable. `version_with` returns the last version that had the
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
# The requirements of a Delta table for its writers, and those that reput supports.

_READER_MAX, _WRITER_MAX = 3, 7
# Features that reput's commits respect, or that do not concern commits that add and remove files. Tables that have
# columns with conditions on their values, or mapped columns (`refusal`), are refused.
_WRITTEN = frozenset(
    {
        *("allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "checkpointProtection"),
        *("clustering", "columnMapping", "deletionVectors", "domainMetadata", "generatedColumns", "identityColumns"),
        *("inCommitTimestamp", "invariants", "rowTracking", "timestampNtz", "typeWidening", "typeWidening-preview"),
        *("v2Checkpoint", "vacuumProtocolCheck", "variantShredding", "variantShredding-preview"),
        *("variantType", "variantType-preview"),
    }
)
# Metadata of a column whose values writers must compute or check.
_CONDITIONS = {
    "delta.invariants": "a condition on its values",
    "delta.generationExpression": "values that are generated",
    "delta.identity.start": "values that are counted up",
}
_ROW_TRACKING = "delta.rowTracking"
_HIGHEST_ROW = "rowIdHighWaterMark"


def unwritable(path: TableLocation, snapshot: Snapshot) -> OutputError | None:
    """The error for a table with requirements that reput does not support, with the way to undo them, or None."""
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
    for column in snapshot.columns:
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
    """The times at the beginning of the ``commitInfo`` of the version after `snapshot`."""
    if not snapshot.has_times:
        return {"timestamp": now_ms}
    time_ms = max(now_ms, (snapshot.time_ms or 0) + 1)
    return {"inCommitTimestamp": time_ms, "timestamp": time_ms}


class RowNumbers:
    """The row ids for the files of the version after `snapshot`, if its table has row tracking."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._version = snapshot.version + 1
        self._are_given = (
            "rowTracking" in snapshot.features and snapshot.properties.get("delta.rowTrackingSuspended") != "true"
        )
        known: Mapping[str, Any] = json.loads(snapshot.domains.get(_ROW_TRACKING) or "{}")
        self._next = self._first = int(known.get(_HIGHEST_ROW, -1)) + 1

    def of_file(self, rows: int) -> dict[str, int]:
        """The row ids in the action that adds a file of `rows` rows."""
        if not self._are_given:
            return {}
        first, self._next = self._next, self._next + rows
        return {"baseRowId": first, "defaultRowCommitVersion": self._version}

    def actions(self) -> list[dict[str, Any]]:
        """The action that records how many ids were given, if any were."""
        if self._next == self._first:
            return []
        domain = {"domain": _ROW_TRACKING, "configuration": json.dumps({_HIGHEST_ROW: self._next - 1})}
        return [{"domainMetadata": {**domain, "removed": False}}]


# ----------------------------------------------------------------------------------------------------------------------
# One commit of a Delta table: files that are added and removed, and its entry in the history.

#: The fields of a commit's entry in the table's history.
Note = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """The effect of a commit.

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
        Its entry in the table's history.
    new_columns
        Columns that the table gets; then nothing else is changed.
    deleted
        The number of rows that a commit without a transaction deletes; None if it changes no row.
    """

    files: Sequence[DataFile]
    removed: Sequence[DataFile]
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
        """The change in words, for messages."""
        if self.new_columns:
            return f"adding the columns {', '.join(column.name for column in self.new_columns)}"
        if self.deleted is not None:
            return f"{counted(self.deleted, 'row')} deleted"
        if self.transaction is None:
            return f"{counted(len(self.removed), 'file')} written as {len(self.files)}"
        return f"transaction {self.transaction[1]} of {self.transaction[0]!r}"

    def commit_info(self) -> dict[str, Any]:
        """The commit's entry in the log, without its author and time; ``DESCRIBE HISTORY`` shows it."""
        size_bytes = sum(file.size_bytes for file in self.files)
        added, removed = str(len(self.files)), str(len(self.removed))
        rows = sum(file.bounds.rows or 0 for file in self.files)
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
            raise SinkError(f"{file.path!r} is not the path of a data file below {root}", file=root)
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
# A change of a table as the actions of one commit, in the terms of Delta's protocol.

#: The author of a commit, for the table's history; ``log`` and earlier releases recognise reput's by ``/reput/``.
ENGINE_INFO = f"python/reput/{__version__}"
_TIME = re.compile(r"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
# The characters that Java's URI does not encode in a path.
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
    """The actions with which `change` makes the version after `snapshot`.

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
    """The fields of each ``commitInfo``; its id makes each commit different from all others."""
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
    """The table's metadata with more columns after its own, which stay as they were written."""
    schema = json.loads(metadata["schemaString"])
    schema["fields"] += [column.jsonValue() for column in change.new_columns]
    return {**metadata, "schemaString": json.dumps(schema)}


def _checked_rows(storage: TableStorage, schema: StructType, file: DataFile) -> int:
    """The number of a file's rows; checks that its statistics have Delta's form, because readers rely on them."""
    try:
        known = json.loads(file.statistics_json or "null")
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


# ----------------------------------------------------------------------------------------------------------------------
# The places where a Delta table can be created, by one process at a time, and the creation.

# A creation takes a second or two; several processes may wait for each other.
_WAIT_S = 120.0


def is_table(path: TableLocation) -> bool:
    """Whether `path` has a Delta table's log; raises OutputError if it cannot be listed."""
    with output_errors(f"cannot look into {path}", path):
        return any(file.name.endswith(".json") for file in table_storage(path).files(LOG))


@contextmanager
def only_creator(path: Path) -> Iterator[None]:
    """Keep other reputs from creating a table beside `path` meanwhile; makes the directory above it.

    While executors are tested they have files in the directory, which another process would take for another program's.
    The lock is on the directory above, so it leaves no file, and ends with its process.

    Raises
    ------
    OutputError
        The directory above cannot be made or locked.
    TransientError
        Another process keeps the lock.
    """
    with ExitStack() as stack:
        with output_errors(f"cannot create a Delta table at {path}", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            is_ours = stack.enter_context(turn(path.parent, _WAIT_S))
        if not is_ours:
            raise TransientError(
                f"{path}: another process has had {path.parent} locked for {_WAIT_S:.0f} s, as one does that creates a "
                "table there",
                advice="start again when it is done",
                file=path,
            )
        yield


def is_vacant(path: TableLocation) -> bool:
    """Whether a table can be created at `path`: False if one exists; raises OutputError for anything else there."""
    with output_errors(f"cannot look into {path}", path):
        names = _names_at(path)
    if is_table(path):
        return False
    if not names:
        return True
    found = ", ".join(names[:3])
    if any(name.endswith(".parquet") for name in names):
        raise OutputError(
            f"{path} holds data files ({found}) and no log that names them: put its _delta_log back",
            advice="or give an empty or missing directory, to derive from the commitlog what that has",
            file=path,
        )
    raise OutputError(
        f"{path} is not a Delta table, it holds {found}", advice="give an empty or missing directory", file=path
    )


def _names_at(path: TableLocation) -> list[str]:
    if not isinstance(path, Path):
        return sorted(file.name for file in table_storage(path).files(deep=True) if PROBE not in file.name)
    if not path.is_dir():
        return ["a file"] if path.exists() else []
    # A creation that was killed leaves the directory of the log, and perhaps a part of the commit.
    left = table_storage(path).files(LOG, deep=True)
    is_begun = (path / LOG).is_dir() and all(is_left_over(file.name) for file in left)
    return sorted(entry.name for entry in path.iterdir() if not (is_begun and entry.name == LOG))


def create(storage: TableStorage, schema: StructType, properties: Mapping[str, str], comment: str) -> None:
    """Create a table, durably, unless another process was first.

    Raises
    ------
    OutputError
        Something else is at its location, it cannot be written, or Spark could not name the table.
    TransientError
        Another process does not finish creating a table beside it.
    """
    path = storage.location
    if "${" in str(path):  # Spark would replace it in every statement that names the table
        raise OutputError(f"cannot create a Delta table at {path}: Spark would replace what follows '${{'", file=path)
    with ExitStack() as stack:
        if isinstance(path, Path):
            stack.enter_context(only_creator(path))
        if not is_vacant(path):
            return
        with output_errors(f"cannot create a Delta table at {path}", path):
            if isinstance(path, Path):
                (path / LOG).mkdir(parents=True, exist_ok=True)
            if storage.put_if_absent(commit_file(0), text_of(creation(schema, properties, comment))):
                # The commit and its name are durable; the directories may be new and must become durable, too.
                sync_directories(*([path, path.parent] if isinstance(path, Path) else []))


_LOGGER = logging.getLogger(__name__)
# How long to wait while another reput commits; after that this one commits anyway, as it does beside other writers.
_TURN_S = 10.0
_CHECKPOINT_EVERY = 10
# A snapshot keeps the effects of the commits since its checkpoint; after this many it begins with a later checkpoint.
_FOLLOWED_MAX = 1000
#: Called with the table's version before a commit is made on top of it; raises to stop the commit.
Check = Callable[[int], None]
_Result = TypeVar("_Result")


class TransactionAlreadyCommittedError(SinkError):
    """The table already holds this transaction version of the application id, or a later one."""

    code = "already-committed"


class DeltaTable:
    """One Delta table, made by `open_or_create`.

    Only one thread may use it at a time. Other writers may commit meanwhile: a commit never replaces theirs, but is
    made again on top of them, after a call of `check`. Delta's own writers check whether a version exists and then
    rename, so one of them can, within microseconds, overwrite one of our commits; see ``TableWatch``.
    """

    def __init__(
        self,
        path: TableLocation,
        schema: StructType,
        *,
        later: Collection[str] = frozenset(),
    ) -> None:
        """Take the columns of `schema` that the table may lack as `later`; they are not added."""
        self.path = path
        self.storage = table_storage(path, has_log=True)
        self._schema = schema
        self._later = later
        self._snapshot: Snapshot | None = None
        self._snapshot_commit: object = None
        self._loaded_at = 0
        self._added_columns: list[str] = []

    @classmethod
    def open_or_create(
        cls,
        path: TableLocation,
        schema: StructType,
        *,
        properties: Mapping[str, str],
        comment: str = "",
        later: Collection[str] = frozenset(),
        must_exist: bool = False,
    ) -> DeltaTable:
        """Open the Delta table at `path`, or create it if the place is empty, unless it `must_exist`.

        Parameters
        ----------
        path
            The table's root.
        schema
            The wanted columns. An existing table must have these, in any order; others must be nullable.
        later
            The names of those columns that an existing table gets if it lacks them; nullable, with their comments.
        properties, comment
            Table properties, and a description of the table; like the comments of columns, used only for a new table.

        Raises
        ------
        OutputError
            `path` holds something else (then nothing was created), a table with other columns, or one that reput cannot
            write or create.
        OutputAwayError
            It `must_exist`, and there is none.
        TransientError
            Another process does not finish creating a table beside `path`.
        """
        path = path.resolve()
        table = cls(path, schema, later=later)
        table.storage.check()
        if not is_table(path):
            if must_exist:
                raise table_away(path)
            create(table.storage, schema, properties, comment)
        table._check_writable(table._load())
        table._add_new_columns()
        return table

    def _check_writable(self, snapshot: Snapshot) -> None:
        if (refused := unwritable(self.path, snapshot)) is not None:
            raise refused

    def _add_new_columns(self) -> None:
        """Add the columns that the table lacks, in one commit, unless another writer does."""

        def change(snapshot: Snapshot) -> Change | None:
            lacking = new_columns(self._schema, snapshot.schema, self._later)
            return Change((), (), None, new_columns=lacking) if lacking else None

        if change(self._latest()) is not None and (version := self.commit(change)) is not None:
            _LOGGER.info("%s: version %d has new columns, null in the rows that exist", self.path, version)

    def last_transaction_version(self, app_id: str) -> int | None:
        """The newest transaction version of `app_id` on disk now, or None.

        Raises
        ------
        OutputError
            The log cannot be read, or the table can no longer be written.
        """
        return self._latest().transactions.get(app_id)

    @property
    def version(self) -> int:
        """The version on disk now; raises the errors of `last_transaction_version`."""
        return self._latest().version

    @property
    def properties(self) -> dict[str, str]:
        """The present version's properties."""
        return self._latest().properties

    def append(
        self,
        files: Sequence[DataFile],
        *,
        app_id: str,
        version: int,
        check: Check | None = None,
        note: Note | None = None,
    ) -> int:
        """Commit `files`, none or more, with transaction `version` of `app_id`; return the new table version.

        It is a single commit, durable on return. The table must not have the files or that version yet. `note` is the
        entry in the table's history.

        Raises
        ------
        TransactionAlreadyCommittedError
            The table holds this version of `app_id` or a later one; nothing was written.
        SinkError
            A file is not as described, or its statistics are not Delta's; nothing was written.
        OutputError
            A file could not be made durable, or the commit failed or is not durable; `last_transaction_version` shows
            whether it took effect.
        TransientError
            Other writers committed first again and again; nothing was written.
        """
        made = self.commit(lambda _: Change(files, (), (app_id, version), note=note or {}), check)
        assert made is not None
        return made

    def commit(self, make: Callable[[Snapshot], Change | None], check: Check | None = None) -> int | None:
        """Commit the result of `make` for the present snapshot, again if another writer is first; see `append`.

        Returns the new version; None, and commits nothing, if `make` returns None.

        Reputs commit in turn: otherwise, of several with many small commits, the slowest would always be second.
        """
        with ExitStack() as stack:
            if isinstance(self.path, Path):  # on S3, `put_if_absent` decides who is first
                with suppress(OSError):  # the reader of the log reports its faults
                    stack.enter_context(turn(self.path / LOG, _TURN_S))
            return self._commit_behind_others(make, check)

    def _commit_behind_others(self, make: Callable[[Snapshot], Change | None], check: Check | None) -> int | None:
        attempts = self.storage.commit_attempts
        for number in range(attempts):
            if number:
                time.sleep(random.uniform(0, self.storage.commit_pause_s))  # noqa: S311  not a secret
            snapshot = self._latest()
            self._check_writable(snapshot)
            if check is not None:
                check(snapshot.version)
            try:
                change = make(snapshot)
            except StaleSnapshotError:
                self._keep(None)
                continue
            if change is None:
                return None
            check_files(self.storage, change.files)
            self.storage.make_durable(file.path for file in change.files)
            if self._commit(snapshot, change):
                self._after_commit(snapshot.version + 1)
                return snapshot.version + 1
        raise TransientError(
            f"{self.path}: other writers committed {attempts} times in the moment of ours",
            advice="start again",
            file=self.path,
        )

    def _commit(self, snapshot: Snapshot, change: Change) -> bool:
        """Commit once; return False if another writer was first."""
        what, version = f"{self.path}: {change}", snapshot.version + 1
        if change.transaction is not None and change.is_next:
            app_id, wanted = change.transaction
            if (last := snapshot.transactions.get(app_id)) is not None and last >= wanted:
                raise TransactionAlreadyCommittedError(f"{what} is in the table, now at {last}", file=self.path)
        try:
            actions = actions_of(self.storage, snapshot, change)
        except OutputError as error:
            cause = error.cause.removeprefix(f"{self.path}: ")
            raise OutputError(f"{what} failed: {cause}", advice=error.advice, file=self.path) from error
        try:
            is_first = self.storage.put_if_absent(commit_file(version), text_of(actions))
        except OSError as error:
            self._keep(None)
            kind, advice = output_error_of(error), "see the last version before a retry"
            raise kind(f"{what} failed: {first_line(error)}", advice=advice, file=self.path) from error
        if is_first:
            self._keep(snapshot.after(version, actions))
        return is_first

    def _after_commit(self, version: int) -> None:
        """Write a checkpoint if one is due (`delta.checkpointInterval`), and remove old parts of the log."""
        assert self._snapshot is not None
        properties = self._snapshot.properties
        every = properties.get("delta.checkpointInterval", "")
        if version % ((int(every) if every.isdecimal() else 0) or _CHECKPOINT_EVERY):
            return
        self._keep(None)  # the checkpoint has everything that the snapshot remembers of earlier commits
        try:
            self._write_checkpoint(removes_expired=properties.get("delta.enableExpiredLogCleanup") != "false")
        except (ReputError, OSError) as error:
            said = first_line(error)
            _LOGGER.warning("%s: version %d is committed, but its CHECKPOINT failed: %s", self.path, version, said)

    def rewrite(self, removed: Collection[str], files: Sequence[DataFile], note: Note | None = None) -> bool:
        """Replace files by `files` with the same rows, in one commit; `note` is its entry in the table's history.

        Returns False, and changes nothing, if another writer has removed one of the files, or rows of it by a deletion
        vector. Raises the errors of `append`.
        """

        def change(snapshot: Snapshot) -> Change | None:
            files_now = (file for file in self.files(snapshot) if file.path in wanted)
            found = {file.path: file for file in files_now if file.vector is None}
            if found.keys() != wanted:
                return None
            return Change(files, [found[path] for path in removed], None, note=note or {})

        wanted = set(removed)
        return self.commit(change) is not None

    def files_between(self, snapshot: Snapshot, start: int, end: int) -> Iterator[DataFile]:
        """Each file of a snapshot that may have a row with `physical_offset` in `[start, end)`."""
        return (file for file in self.files(snapshot) if file.bounds.may_reach(start, end))

    def files(self, snapshot: Snapshot) -> Iterator[DataFile]:
        """Each file of a snapshot.

        Raises
        ------
        OutputError
            The log cannot be read.
        StaleSnapshotError
            As in ``Snapshot.files``; `commit` handles it.
        """
        try:
            yield from snapshot.files()
        except UNREADABLE as error:
            raise self._unreadable(error) from error

    def of_snapshot(self, work: Callable[[Snapshot], _Result], version: int | None = None) -> _Result:
        """Return the result of `work` for a snapshot of the present version, or of `version`; raises its errors.

        It is called again if the log was cut meanwhile.

        Raises
        ------
        OutputError
            The log cannot be read, or the table can no longer be written.
        """
        snapshot = self._latest()
        if version is not None and snapshot.version != version:
            snapshot = self._load_at(version)
        try:
            return work(snapshot)
        except StaleSnapshotError:
            return work(self._load() if version is None else self._load_at(version))

    def files_of(self, broker: str) -> list[DataFile]:
        """The present version's files that may have rows of the broker, by path; raises the errors of `of_snapshot`."""
        try:
            return self.of_snapshot(lambda snapshot: snapshot.files_of(broker))
        except UNREADABLE as error:
            raise self._unreadable(error) from error

    def write_checkpoint(self) -> int:
        """Write a checkpoint of the present version unless it has one, durably; return the version.

        Raises
        ------
        OutputError
            It cannot be written.
        """
        version = self._load().version
        if self.storage.status(checkpoint_file(version)) is None:
            version = self._write_checkpoint(removes_expired=True)
        self._keep(None)
        return version

    def _write_checkpoint(self, *, removes_expired: bool) -> int:
        with output_errors(f"{self.path}: cannot write a checkpoint", self.path):
            version = write_checkpoint(self.path, removes_expired=removes_expired)
        # deltalake syncs nothing, and a torn checkpoint makes the table unreadable.
        written = self.storage.statuses([checkpoint_file(version), HINT])
        self.storage.make_durable(file.name for file in written if file is not None)
        return version

    def _latest(self) -> Snapshot:
        # Listing the log costs 15 microseconds per file, and a commit every 10 s adds 34,000 files a day.
        # A table that was removed and created again must not continue at the old one's version.
        known = self._snapshot
        same = None if known is None else self._identity(known.version)
        if known is None or same is None or same != self._snapshot_commit:
            return self._load()
        try:
            if self.storage.status(commit_file(known.version + 1)) is None:
                return known
            if known.version - self._loaded_at >= _FOLLOWED_MAX:
                return self._load()
            snapshot = known.latest()
        except UNREADABLE as error:
            raise self._unreadable(error) from error
        self._check(snapshot)
        return snapshot

    def _load(self) -> Snapshot:
        snapshot = self._load_at(None)
        self._loaded_at = snapshot.version
        self._check(snapshot)
        return snapshot

    def _load_at(self, version: int | None) -> Snapshot:
        try:
            return Snapshot.load(self.storage, version)
        except UNREADABLE as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: BaseException) -> OutputError:
        self._keep(None)
        if isinstance(error, NoTableError):
            return table_away(self.path)
        raise_log_damage(self.storage, error)
        said = first_line(error)
        return output_error_of(error)(f"{self.path}: cannot read the Delta log: {said}", file=self.path)

    def _check(self, snapshot: Snapshot) -> None:
        """Keep the snapshot of a table that can be written; raise OutputError for any other table."""
        known = self._snapshot
        if known is None or known.metadata is not snapshot.metadata:
            found, version = snapshot.schema, snapshot.version

            def version_with(names: Sequence[str]) -> int | None:
                wanted = {name: self._schema[name].dataType.jsonValue() for name in names}
                return version_with_columns(self.storage, version, wanted)

            refused = refusal(
                *(self.path, version, self._schema, found, snapshot.partitions, snapshot.properties),
                *(self._later, version_with),
            )
            if refused is not None:
                self._keep(None)
                raise refused
            added = added_columns(self._schema, found)
            if set(added) - set(self._added_columns):
                _LOGGER.info(
                    "%s: the table also has the columns %s, which stay null in our rows", self.path, ", ".join(added)
                )
            self._added_columns = added
        self._keep(snapshot)

    def _keep(self, snapshot: Snapshot | None) -> None:
        self._snapshot = snapshot
        self._snapshot_commit = self._identity(snapshot.version) if snapshot else None

    def _identity(self, version: int) -> object:
        """A value that distinguishes a commit from others of its version; None if it is missing."""
        if not isinstance(self.path, Path):
            return commit_digest(self.storage, version)
        with suppress(FileNotFoundError, NotADirectoryError):  # a digest would cost a read for each commit
            status = (self.path / commit_file(version)).stat()
            return status.st_ino, status.st_mtime_ns, status.st_size
        return None
