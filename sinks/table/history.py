"""The effects of a table's commits, by the JSON files of its log alone: on one broker's rows, and in words.

``TableCommit`` serves to follow one broker's rows (``watch``), and ``LogEntry`` shows people who did what. reput's own
commits have a note, which says more than Delta's terms: which part of which broker's log, and why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar

from reput.sinks.table.data_file import Action, FileBounds
from reput.sinks.table.log import REPAIR, commit_file, commit_info, read_commit
from reput.sinks.table.storage import LOG, TableStorage
from reput.source.printable import printable

# The operations by which people change rows on purpose. Rows that anything else removes are lost.
_WANTED = frozenset({"DELETE", "UPDATE", "MERGE"})
_CHANGES = frozenset({"UPDATE", "MERGE"})
_DESCRIPTION_LENGTH_MAX = 200
#: The word in reput's note for a commit that brought messages.
DISPATCHED = "dispatched"
#: The word for a commit that deleted rows for good, with the log before it.
FORGOTTEN = "forgotten"
#: The word for a commit that deleted expired rows.
EXPIRED = "expired"
# Earlier releases committed through Delta Kernel, which put its own name before this.
_OURS = "/reput/"
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class RowsTaken:
    """The number of rows that were deleted, and bounds of their physical offsets, both included."""

    least: int
    greatest: int
    count: int


@dataclass(frozen=True)
class TableCommit:
    """One commit, seen by one broker.

    Attributes
    ----------
    version
        The version of the table.
    description
        The commit in words: version, operation, predicate, engine, time.
    end_offset
        The version of the broker's transaction in it; None in another writer's commit.
    rows
        The number of rows in its added files, by their statistics.
    removes
        Whether it removes files that may hold the broker's rows.
    touches
        Whether it adds, changes or removes rows that may be the broker's.
    is_wanted
        Whether its operation is one by which people change rows on purpose.
    changes
        Whether it may have changed rows without changing their number.
    is_repair
        Whether reput made rows again in it.
    expired
        The broker's expired rows that reput deleted in it, if it did nothing else; otherwise None.
    """

    version: int
    description: str
    end_offset: int | None
    rows: int
    removes: bool
    touches: bool
    is_wanted: bool
    changes: bool
    is_repair: bool
    expired: tuple[RowsTaken, ...] | None

    @classmethod
    def of(cls, version: int, actions: Sequence[Action], app_id: str, broker: str) -> TableCommit:
        """The commit with these actions as seen by `broker`, whose transactions have the id `app_id`.

        Raises
        ------
        ValueError, KeyError, TypeError
            An action has another form than Delta's.
        """
        info = commit_info(actions)
        end, rows, removes, adds = None, 0, False, False
        for action in actions:
            if "txn" in action and action["txn"]["appId"] == app_id:
                end = int(action["txn"]["version"])
            if action.get("add", {}).get("dataChange"):
                bounds = FileBounds.of(action["add"].get("stats"))
                rows += int(bounds.rows or 0)
                adds = adds or bounds.may_hold(broker)
            if action.get("remove", {}).get("dataChange"):
                removes = removes or FileBounds.of(action["remove"].get("stats")).may_hold(broker)
        operation = info.get("operation")
        wanted, changes = operation in _WANTED, operation in _CHANGES
        is_repair = str(info.get("engineInfo")).endswith(REPAIR)
        touches, expired = adds or removes, _expired(_note(info), broker)
        return cls(version, _describe(version, info), end, rows, removes, touches, wanted, changes, is_repair, expired)


def commits(storage: TableStorage, first: int, last: int, app_id: str, broker: str) -> Iterator[TableCommit | int]:
    """The commits of versions `[first, last]`; for one that cannot be read, only its version.

    Delta removes the files of old commits once a checkpoint holds their effects.
    """
    for version in range(first, last + 1):
        try:
            yield TableCommit.of(version, read_commit(storage, version), app_id, broker)
        except (OSError, ValueError, KeyError, TypeError):
            yield version


@dataclass(frozen=True)
class LogEntry:
    """One commit, by any writer. Other programs wrote its texts: make them printable before they are shown.

    Attributes
    ----------
    version
        The version of the table.
    time_ms
        When it was made, in milliseconds since 1970; None if it does not say.
    operation, engine
        Its operation and its author, in Delta's terms; None if it does not say.
    what, broker, start, end
        reput's note on its own commits: what was done, to which broker's `[start, end)` of the log; None for others.
    retention
        The rules by which the rows that it deleted had expired; None if it did something else.
    files_added, files_removed
        The number of data files that it added and removed.
    rows, size_bytes
        Of the added files, by the log.
    """

    version: int
    time_ms: int | None
    operation: str | None
    engine: str | None
    what: str | None
    broker: str | None
    start: int | None
    end: int | None
    retention: str | None
    files_added: int
    files_removed: int
    rows: int
    size_bytes: int

    @property
    def span(self) -> tuple[int, int] | None:
        """The `[start, end)` of the log; None if it does not say."""
        return None if self.start is None or self.end is None else (self.start, self.end)

    @property
    def brings_messages(self) -> bool:
        """Whether it is a transaction of reput that brought messages."""
        return self.what == DISPATCHED

    @classmethod
    def of(cls, version: int, actions: Sequence[Action]) -> LogEntry:
        """The entry of these actions; raises ValueError, KeyError or TypeError if one does not have Delta's form."""
        info = commit_info(actions)
        added = [action["add"] for action in actions if action.get("add")]
        note = _note(info)
        return cls(
            version=version,
            time_ms=_as(int, info.get("timestamp")),
            operation=_as(str, info.get("operation")),
            engine=_as(str, info.get("engineInfo")),
            what=_as(str, note.get("what")),
            broker=_as(str, note.get("broker")),
            start=_as(int, note.get("start")),
            end=_as(int, note.get("end")),
            retention=_as(str, note.get("retention")),
            files_added=len(added),
            files_removed=sum(bool(action.get("remove")) for action in actions),
            rows=sum(int(FileBounds.of(file.get("stats")).rows or 0) for file in added),
            size_bytes=sum(int(file["size"]) for file in added),
        )


@dataclass(frozen=True)
class RowsBefore:
    """A broker's part of a table just before version `version`, when the log before that was removed.

    Attributes
    ----------
    rows
        The number of its rows.
    end
        The version of its last transaction; None without any.
    on_purpose
        Whether rows had been deleted before, and always by people on purpose.
    """

    version: int
    rows: int
    end: int | None
    on_purpose: bool


def rows_before(storage: TableStorage, missing: int, last: int, broker: str) -> RowsBefore | None:
    """The note of ``reput table forget`` from when it removed the log, with version `missing`; None if it did not.

    `last` is the table's version.
    """
    there = {file.name for file in storage.files(LOG)}
    first = next((number for number in range(missing, last + 1) if commit_file(number) in there), missing)
    if first == missing:
        return None
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        note = _note(commit_info(read_commit(storage, first)))
        if note.get("what") == FORGOTTEN:
            known = note["before"].get(broker, {"rows": 0, "end": None, "on_purpose": False})
            return RowsBefore(first, int(known["rows"]), _as(int, known["end"]), bool(known["on_purpose"]))
    return None


def log_entries(storage: TableStorage, last: int, limit: int) -> Iterator[LogEntry]:
    """The newest commits from version `last` down, at most `limit`, up to the first that the log lacks.

    Raises
    ------
    OSError, ValueError, KeyError, TypeError
        A commit cannot be read.
    """
    for version in range(last, max(-1, last - limit), -1):
        try:
            actions = read_commit(storage, version)
        except FileNotFoundError:
            return
        yield LogEntry.of(version, actions)


def _note(info: dict[str, Any]) -> dict[str, Any]:
    """The note in a commit of reput; empty for another writer's."""
    if _OURS not in str(info.get("engineInfo")):
        return {}
    with suppress(ValueError, TypeError):
        note = json.loads(info.get("userMetadata") or "{}")
        return note if isinstance(note, dict) else {}
    return {}


def _as(kind: type[_Value], value: object) -> _Value | None:
    return value if isinstance(value, kind) else None


def _expired(note: dict[str, Any], broker: str) -> tuple[RowsTaken, ...] | None:
    if note.get("what") != EXPIRED or note.get("broker") != broker:
        return None
    with suppress(ValueError, TypeError, KeyError):
        return tuple(RowsTaken(*map(int, each)) for each in note["taken"])
    return None


def _describe(version: int, info: dict[str, Any]) -> str:
    text = f"version {version}, {info.get('operation', 'an unknown operation')}"
    parameters = info.get("operationParameters") or {}
    predicate = parameters.get("predicate") or parameters.get("version") or parameters.get("mode")
    if predicate not in (None, "[]"):
        text += f" ({predicate})"
    if (engine := info.get("engineInfo")) is not None:
        text += f" by {engine}"
    if isinstance(time := info.get("timestamp"), int):
        text += f" at {datetime.fromtimestamp(time / 1000, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    return printable(text)[:_DESCRIPTION_LENGTH_MAX]
