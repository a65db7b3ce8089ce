"""A change of a table as the actions of one commit, in the words of Delta's protocol."""

from __future__ import annotations

import json
import operator
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from pyspark.sql.types import IntegralType, StringType, StructType, TimestampType

from reput import __version__
from reput.sinks.table.change import Change, DataFile
from reput.sinks.table.history import REPAIR
from reput.sinks.table.protocol import RowNumbers, check_change, commit_times
from reput.sinks.table.snapshot import Action, Snapshot
from reput.sinks.table.storage import TableStorage
from reput.source.errors import SinkError

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
