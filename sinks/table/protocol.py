"""What a Delta table asks of its writers, and which of it reput does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reput.sinks.table.location import TableLocation
from reput.sinks.table.refusal import table_name
from reput.sinks.table.snapshot import Snapshot
from reput.source.errors import OutputError
from reput.source.printable import printable

_READER_MAX, _WRITER_MAX = 3, 7
# A commit heeds these, or they do not concern one that adds and removes files. Columns with conditions on their values
# are refused where a table has some, and so are mapped columns (``refusal``).
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
