"""What the commits of a Delta table did to one broker's rows, by the JSON files of the table's log alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar

from reput.sinks.table.row_ledger import RowsTaken
from reput.sinks.table.storage import LOG, TableStorage
from reput.source.printable import lines_of, printable

# The operations by which people change rows on purpose. Rows that anything else takes away are lost.
_WANTED = frozenset({"DELETE", "UPDATE", "MERGE"})
_CHANGES = frozenset({"UPDATE", "MERGE"})
_DESCRIPTION_LENGTH_MAX = 200
#: The end of the engine's name in a commit that makes rows again.
REPAIR = " repair"
#: What reput's note says of a commit that brought messages.
DISPATCHED = "dispatched"
#: What it says of one that took rows away for good, with the log before it.
FORGOTTEN = "forgotten"
#: What it says of one that took rows away that had expired.
EXPIRED = "expired"
# Earlier releases committed through Delta Kernel, which put its own name in front.
_OURS = "/reput/"
_Value = TypeVar("_Value")


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
        The broker's rows that reput took away in it because they had expired, and that is all it did; None otherwise.
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
    def parse(cls, version: int, text: str, app_id: str, broker: str) -> TableCommit:
        """Read a commit's file as seen by `broker`, whose transactions have the id `app_id`.

        Raises
        ------
        ValueError
            The text is no commit of a Delta log.
        """
        actions = [json.loads(line) for line in lines_of(text)]
        if not all(isinstance(action, dict) for action in actions):
            msg = f"version {version} is no Delta commit"
            raise ValueError(msg)
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        end, rows, removes, adds = None, 0, False, False
        for action in actions:
            if "txn" in action and action["txn"]["appId"] == app_id:
                end = int(action["txn"]["version"])
            if action.get("add", {}).get("dataChange"):
                rows += int(_statistics(action["add"]).get("numRecords", 0))
                adds = adds or _may_hold(action["add"], broker)
            if action.get("remove", {}).get("dataChange"):
                removes = removes or _may_hold(action["remove"], broker)
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
            text = storage.read(commit_file(version)).decode()
            yield TableCommit.parse(version, text, app_id, broker)
        except (OSError, ValueError, KeyError, TypeError):
            yield version


@dataclass(frozen=True)
class LogEntry:
    """One commit, whoever made it. Its texts are others': whoever shows them makes them printable.

    Attributes
    ----------
    version
        The version of the table.
    time_ms
        When it was made, in milliseconds since 1970; None if it does not say.
    operation, engine
        What it was and what made it, in Delta's words; None if it does not say.
    what, broker, start, end
        What reput says of its own commits: what was done, to which broker's `[start, end)` of the log; None for others.
    retention
        By which rules rows had expired that it took away; None if it did something else.
    files_added, files_removed
        How many data files it added and removed.
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
    def brings_messages(self) -> bool:
        """Whether it is a transaction of reput that brought messages."""
        return self.what == DISPATCHED

    @classmethod
    def parse(cls, version: int, text: str) -> LogEntry:
        """Read a commit's file; raises ValueError, KeyError or TypeError if the text is no commit of a Delta log."""
        actions = [json.loads(line) for line in lines_of(text)]
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
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
            rows=sum(int(_statistics(file).get("numRecords", 0)) for file in added),
            size_bytes=sum(int(file["size"]) for file in added),
        )


@dataclass(frozen=True)
class RowsBefore:
    """What a broker's part of a table was before version `version`, when the log before that was removed.

    Attributes
    ----------
    rows
        The number of its rows.
    end
        The version of its last transaction; None without any.
    on_purpose
        Whether rows had been taken away before, and always by people on purpose.
    """

    version: int
    rows: int
    end: int | None
    on_purpose: bool


def rows_before(storage: TableStorage, missing: int, last: int, broker: str) -> RowsBefore | None:
    """What ``reput table forget`` noted when it removed the log, with version `missing`; None if it did not.

    `last` is the table's version.
    """
    there = {file.name for file in storage.files(LOG)}
    first = next((number for number in range(missing, last + 1) if commit_file(number) in there), missing)
    if first == missing:
        return None
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        for line in lines_of(storage.read(commit_file(first)).decode()):
            if (info := json.loads(line).get("commitInfo")) is not None and _note(info).get("what") == FORGOTTEN:
                known = _note(info)["before"].get(broker, {"rows": 0, "end": None, "on_purpose": False})
                return RowsBefore(first, int(known["rows"]), _as(int, known["end"]), bool(known["on_purpose"]))
    return None


def transaction_id(broker: str) -> str:
    """The id of the transactions of one broker's messages; their versions are end offsets in the log."""
    return f"reput/{broker}/messages"


def log_entries(storage: TableStorage, last: int, limit: int) -> Iterator[LogEntry]:
    """The newest commits from version `last` down, at most `limit`, up to the first that the log lacks.

    Raises
    ------
    OSError, ValueError, KeyError, TypeError
        A commit cannot be read.
    """
    for version in range(last, max(-1, last - limit), -1):
        try:
            text = storage.read(commit_file(version)).decode()
        except FileNotFoundError:
            return
        yield LogEntry.parse(version, text)


def version_with_columns(storage: TableStorage, last: int, columns: Mapping[str, Any]) -> int | None:
    """The last version, from `last` down, with these columns, by name with their types in Delta's JSON.

    None if no version of the log has them, or a commit cannot be read.
    """
    ends_at = last
    with suppress(OSError, ValueError, LookupError, TypeError):
        for version in range(last, -1, -1):
            text = storage.read(commit_file(version)).decode()
            if '"metaData"' not in text:
                continue
            actions = [json.loads(line) for line in lines_of(text)]
            for schema in (json.loads(each["metaData"]["schemaString"]) for each in actions if "metaData" in each):
                found = {field["name"]: field["type"] for field in schema["fields"]}
                if all(found.get(name) == kind for name, kind in columns.items()):
                    return ends_at
                ends_at = version - 1
    return None


def commit_file(version: int) -> str:
    """The name of a commit's file."""
    return f"{LOG}/{version:020d}.json"


def commit_digest(storage: TableStorage, version: int) -> str | None:
    """A digest that distinguishes a commit from others of its version; None if its file cannot be read."""
    try:
        return hashlib.sha256(storage.read(commit_file(version))).hexdigest()
    except OSError:
        return None


def _statistics(file: dict[str, Any]) -> dict[str, Any]:
    statistics = json.loads(file.get("stats") or "{}")
    return statistics if isinstance(statistics, dict) else {}


def _note(info: dict[str, Any]) -> dict[str, Any]:
    """What reput's commit says of itself; nothing for another writer's."""
    if _OURS not in str(info.get("engineInfo")):
        return {}
    with suppress(ValueError, TypeError):
        note = json.loads(info.get("userMetadata") or "{}")
        return note if isinstance(note, dict) else {}
    return {}


def _expired(note: dict[str, Any], broker: str) -> tuple[RowsTaken, ...] | None:
    if note.get("what") != EXPIRED or note.get("broker") != broker:
        return None
    with suppress(ValueError, TypeError, KeyError):
        return tuple(RowsTaken(*map(int, each)) for each in note["taken"])
    return None


def _as(kind: type[_Value], value: object) -> _Value | None:
    return value if isinstance(value, kind) else None


def _may_hold(file: dict[str, Any], broker: str) -> bool:
    """Whether a file may have rows of the broker. Bounds may be truncated, which widens them."""
    statistics = _statistics(file)
    if statistics.get("numRecords") == 0:
        return False
    least = statistics.get("minValues", {}).get("broker")
    greatest = statistics.get("maxValues", {}).get("broker")
    return least is None or greatest is None or least <= broker <= greatest


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
