"""The log of a Delta table: what its commits did, what of it is damaged, and what of it is no longer needed.

A commit is one JSON file. By these files alone ``watch`` follows one broker's rows, and people see who did what. Where
a commit or a checkpoint cannot be read, this module says which one and what to do. A checkpoint only repeats what
commits say, and `_last_checkpoint` only says which is the newest. Where all commits are there, a damaged one is set
aside, and another is written.

Delta itself keeps commits and data files by time, a month and a week. With a commit every ten seconds that would be
260,000 files to list and 60,000 files that nobody reads. Here the number of versions decides: the last ones can all be
read, by their number, too. Files that no version has are left by writers that died; see ``data_file.orphans``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from reput.sinks.files.file_system import now_for_ages
from reput.sinks.table.data_file import Action, orphans, remove_data_files
from reput.sinks.table.location import TableLocation
from reput.sinks.table.storage import LOG, FileStatus, TableStorage, table_storage
from reput.source.errors import OutputError
from reput.source.printable import printable


def commit_file(version: int) -> str:
    """The name of a commit's file."""
    return f"{LOG}/{version:020d}.json"


def checkpoint_file(version: int) -> str:
    """The name of a version's checkpoint."""
    return f"{LOG}/{version:020d}.checkpoint.parquet"


def read_commit(storage: TableStorage, version: int) -> list[Action]:
    """The actions of a commit, at least one; raises OSError, or ValueError that says what of the file is damaged."""
    return parse_commit(storage.read(commit_file(version)))


def parse_commit(content: bytes) -> list[Action]:
    """The actions in the content of a commit's file; raises what `read_commit` raises."""
    actions: list[Action] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            found = json.loads(line.decode()) if line.strip() else {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            where = f"line {number} of its {len(content)} bytes"
            raise ValueError(f"a commit that is torn or damaged: {where} is not an action in JSON")  # noqa: TRY004
        actions += [found] if found else []
    if not actions:
        raise ValueError(f"an empty commit of {len(content)} bytes")
    return actions


def commit_digest(storage: TableStorage, version: int) -> str | None:
    """A digest that distinguishes a commit from others of its version; None if its file cannot be read."""
    try:
        return hashlib.sha256(storage.read(commit_file(version))).hexdigest()
    except OSError:
        return None


# ----------------------------------------------------------------------------------------------------------------------
# What the commits of a Delta table did to one broker's rows, by the JSON files of the table's log alone.

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
    def of(cls, version: int, actions: Sequence[Action], app_id: str, broker: str) -> TableCommit:
        """The commit with these actions as seen by `broker`, whose transactions have the id `app_id`.

        Raises
        ------
        ValueError, KeyError, TypeError
            An action has another form than Delta's.
        """
        info = _info(actions)
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
            yield TableCommit.of(version, read_commit(storage, version), app_id, broker)
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
    def of(cls, version: int, actions: Sequence[Action]) -> LogEntry:
        """The entry of these actions; raises ValueError, KeyError or TypeError if one has another form than Delta's."""
        info = _info(actions)
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
        note = _note(_info(read_commit(storage, first)))
        if note.get("what") == FORGOTTEN:
            known = note["before"].get(broker, {"rows": 0, "end": None, "on_purpose": False})
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
            actions = read_commit(storage, version)
        except FileNotFoundError:
            return
        yield LogEntry.of(version, actions)


def version_with_columns(storage: TableStorage, last: int, columns: Mapping[str, Any]) -> int | None:
    """The last version, from `last` down, with these columns, by name with their types in Delta's JSON.

    None if no version of the log has them, or a commit cannot be read.
    """
    ends_at = last
    with suppress(OSError, ValueError, LookupError, TypeError):
        for version in range(last, -1, -1):
            for metadata in (each["metaData"] for each in read_commit(storage, version) if "metaData" in each):
                found = {field["name"]: field["type"] for field in json.loads(metadata["schemaString"])["fields"]}
                if all(found.get(name) == kind for name, kind in columns.items()):
                    return ends_at
                ends_at = version - 1
    return None


def _info(actions: Sequence[Action]) -> dict[str, Any]:
    """What a commit says of itself; nothing if it does not."""
    found: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return found


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


@dataclass(frozen=True)
class RowsTaken:
    """How many rows were taken away, and bounds of their physical offsets, both included."""

    least: int
    greatest: int
    count: int


# ----------------------------------------------------------------------------------------------------------------------
# What of a table's log cannot be read, and what can be done about it; looked for once something else has failed.

_HINT = f"{LOG}/_last_checkpoint"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\..+)?\.parquet")
# Delta takes files of other names for none of its own.
_ASIDE = "_damaged-"
_ELSE = "or make the table again at another path with 'reput rebuild --table'"


@dataclass(frozen=True)
class LogDamage:
    """A file of a log that is damaged or missing.

    Attributes
    ----------
    name
        Its name as ``TableStorage`` has it.
    found
        What was found.
    advice
        What to do.
    to_set_aside
        The files without which the log can be read; none if commits are missing.
    """

    name: str
    found: str
    advice: str
    to_set_aside: tuple[str, ...] = ()

    def error(self, storage: TableStorage) -> OutputError:
        """It as an error."""
        path = storage.location / self.name
        return OutputError(f"{path}: {self.found}", advice=self.advice, file=path)

    def repair(self, storage: TableStorage) -> None:
        """Give the damaged files names that no reader of the table looks at; raises OSError or OutputError."""
        for name in self.to_set_aside:
            storage.put(f"{LOG}/{_ASIDE}{name.rpartition('/')[2]}", storage.read(name), durable=True)
            storage.remove([name], durable=True)


def log_damage(storage: TableStorage) -> LogDamage | None:
    """The damage that keeps the table's log from being read; None if there is none, or no log.

    Raises
    ------
    OSError
        The log cannot be listed.
    """
    names = sorted(file.name.rpartition("/")[2] for file in storage.files(LOG))
    commits = [int(found[1]) for name in names if (found := _COMMIT.fullmatch(name))]
    checkpoints = {name: int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))}
    bad = {name: cause for name in checkpoints if (cause := _problem_of_checkpoint(storage, f"{LOG}/{name}"))}
    base = max((version for name, version in checkpoints.items() if name not in bad), default=-1)
    damaged = _damaged_commit(storage, commits, base)
    if damaged is not None:
        first = next((name for name, version in checkpoints.items() if name in bad and version > base), None)
        return LogDamage(f"{LOG}/{first}", bad[first], f"put it back from a backup, {_ELSE}") if first else damaged
    later = [f"{LOG}/{name}" for name, version in checkpoints.items() if name in bad and version > base]
    aside = tuple([*later, _HINT] if later or _hint_is_wrong(storage, base) else ())
    if not aside:
        return None
    problem = bad[later[0].rpartition("/")[2]] if later else "it names a checkpoint that is not there"
    if storage.status(_HINT) is None:
        aside = aside[:-1]
    advice = f"all commits are there: 'reput table repair --table {storage.location}' writes another checkpoint by them"
    return LogDamage(aside[0], problem, advice, aside)


def raise_log_damage(storage: TableStorage, error: BaseException) -> None:
    """Raise OutputError from `error` if the table's log is damaged, or else return."""
    damage = None
    with suppress(OSError, OutputError):
        damage = log_damage(storage)
    if damage is not None:
        raise damage.error(storage) from error


def _problem_of_checkpoint(storage: TableStorage, name: str) -> str | None:
    try:
        with storage.parquet(name) as file:
            file.read()
    except (OSError, pa.ArrowException) as error:
        status = storage.status(name)
        size = f"{status.size_bytes} bytes, " if status else ""
        return f"a checkpoint that cannot be read ({size}{type(error).__name__})"
    return None


def _hint_is_wrong(storage: TableStorage, base: int) -> bool:
    """Whether the hint names another version than that of the newest checkpoint; one that is no JSON is not heeded."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return int(json.loads(storage.read(_HINT))["version"]) > base
    return False


def _damaged_commit(storage: TableStorage, commits: list[int], base: int) -> LogDamage | None:
    """The first commit behind version `base` that is missing or is not whole."""
    later = [version for version in commits if version > base]
    if not later:
        return None
    for expected, version in enumerate(later, base + 1):
        if version != expected:
            found = f"this commit is missing; the next one is version {version}"
            return LogDamage(commit_file(expected), found, f"put it back from a backup, {_ELSE}")
        try:
            read_commit(storage, version)
        except ValueError as problem:
            advice = f"put it back from a backup, {_ELSE}"
            if version == later[-1]:
                advice = (
                    "put it back from a backup; or, with every writer stopped, move it out of the directory: the table "
                    f"is version {version - 1} then, and reput brings its rows again from the log"
                )
            return LogDamage(commit_file(version), str(problem), advice)
    return None


# ----------------------------------------------------------------------------------------------------------------------
# Removing what a table no longer needs: old commits, data files that only they had, and files that no version has.

#: Whoever sets this property of a table wants Delta's own way: by time.
LOG_KEPT = "delta.logRetentionDuration"
# So long after a version has gone out of date, a query that began on it may still be at its files.
READ_FOR_S = 900
# A version's commit, its checksum and its checkpoint, and the checksums of these that Hadoop writes.
_OF_VERSION = re.compile(r"\.?(\d{20})\.(?:json|crc|checkpoint\.parquet)(?:\.crc)?")

# Others write further kinds: checkpoints in parts or by another policy, logs that are put together.
_OF_OTHERS = re.compile(r"\.?(\d{20})\..+")


@dataclass(frozen=True)
class Cleaning:
    """What is to be removed.

    Attributes
    ----------
    storage
        The table's files.
    commits
        The number of versions that go.
    log_files
        The names of the files in the log that go with them.
    data_files
        The data files that only these versions had.
    orphans
        Files that no version has and no writer will commit.
    """

    storage: TableStorage
    commits: int
    log_files: tuple[str, ...]
    data_files: tuple[FileStatus, ...]
    orphans: tuple[FileStatus, ...]

    @property
    def size_bytes(self) -> int:
        """What the data files and the orphans take."""
        return sum(file.size_bytes for file in (*self.data_files, *self.orphans))

    def carry_out(self) -> None:
        """Remove it: data files first. Killed at any moment, a later cleaning does the rest.

        Raises
        ------
        OutputError
            A file cannot be removed.
        """
        self.storage.remove((file.name for file in self.orphans), durable=True)
        remove_data_files(self.storage, (file.name for file in self.data_files), durable=True)
        self.storage.remove(self.log_files)


def clean_log(root: TableLocation, version: int, kept: int) -> int:
    """Do what `cleaning` finds, with its errors and OutputError; returns the number of commits removed."""
    found = cleaning(table_storage(root), version, kept)
    found.carry_out()
    return found.commits


def cleaning(storage: TableStorage, version: int, kept: int, *, with_commits: bool = True) -> Cleaning:
    """What can be removed from a table at `version`, of which the last `kept` versions stay readable.

    The log goes up to the newest checkpoint that has `kept` versions behind it and is `READ_FOR_S` old, and with it the
    data files that it removed, unless a later version has them again; not so without `with_commits`.

    Raises
    ------
    OSError, ValueError, LookupError
        The log cannot be read.
    """
    log = TableLog(storage)
    kept_from = log.last_checkpoint(version - kept, now_for_ages() - READ_FOR_S) if with_commits else 0
    old = [number for number in log.commits if number < kept_from]
    if not old:
        return Cleaning(storage, 0, (), (), tuple(log.orphans(version)))
    needed = log.files_since(kept_from, version)
    gone = {path for number in old for path in log.paths(number, "remove") if path not in needed and is_below(path)}
    return Cleaning(
        *(storage, len(old), tuple(log.names_before(kept_from))),
        tuple(filter(None, storage.statuses(sorted(gone)))),
        tuple(log.orphans(version)),
    )


def cleaning_before(storage: TableStorage, first: int, checkpoint: int, version: int) -> Cleaning:
    """What a table at `version` has from before version `first`, which cannot be read afterwards.

    `checkpoint` is the version of a checkpoint, `first` or later. Everything of the log before `first` goes, and each
    data file that no version from `checkpoint` on has and no later commit added. Raises what `cleaning` raises.
    """
    log = TableLog(storage)
    needed = log.files_since(checkpoint, version)
    needed.update(path for number in range(first + 1, checkpoint + 1) for path in log.paths(number, "add"))
    gone = {path for path in log.named() if path not in needed and is_below(path)}
    return Cleaning(
        *(storage, sum(number < first for number in log.commits), tuple(log.names_before(first, of_others=True))),
        tuple(filter(None, storage.statuses(sorted(gone)))),
        tuple(log.orphans(version)),
    )


def hide_removed(storage: TableStorage, checkpoint: int) -> None:
    """Take the statistics of removed files out of a checkpoint: their bounds are texts of rows that went.

    Raises
    ------
    OutputError
        The checkpoint cannot be written.
    OSError, pa.ArrowException
        It cannot be read.
    """
    name = checkpoint_file(checkpoint)
    with storage.parquet(name) as file:
        actions = file.read()
    removed = actions["remove"].combine_chunks()
    if "stats" not in removed.type.names or removed.field("stats").null_count == len(removed):
        return
    fields = [removed.type.field(number) for number in range(removed.type.num_fields)]
    values = [
        pa.nulls(len(removed), each.type) if each.name == "stats" else removed.field(each.name) for each in fields
    ]
    hidden = pa.StructArray.from_arrays(values, fields=fields, mask=removed.is_null())
    number = actions.schema.get_field_index("remove")
    actions = actions.set_column(number, actions.schema.field(number), pa.chunked_array([hidden]))
    buffer = pa.BufferOutputStream()
    pq.write_table(actions, buffer, compression="snappy", store_schema=False)
    checksums = f"{LOG}/.{name.removeprefix(f'{LOG}/')}.crc"
    storage.remove([checksums])  # Hadoop compares a file with the checksums beside it
    storage.put(name, buffer.getvalue(), durable=True)


class TableLog:
    """The commits and checkpoints of a table as they are in its log; the numbers of both ascend."""

    def __init__(self, storage: TableStorage) -> None:
        """List the log of a table; raises OSError if that is not possible."""
        self._storage = storage
        self._files = {file.name: file for file in storage.files(LOG)}
        names = [name.removeprefix(f"{LOG}/") for name in self._files]
        self._versions = {match[0]: int(match[1]) for name in names if (match := _OF_VERSION.fullmatch(name))}
        self._others = {match[0]: int(match[1]) for name in names if (match := _OF_OTHERS.fullmatch(name))}
        numbers = sorted(set(self._versions.values()))
        self.commits = [number for number in numbers if commit_file(number) in self._files]
        self.checkpoints = [number for number in numbers if checkpoint_file(number) in self._files]

    def last_checkpoint(self, version: int, written_by_s: float) -> int:
        """The newest checkpoint of a version up to `version` that was committed by then (seconds since 1970); or 0."""
        for number in reversed(self.checkpoints):
            commit = self._files.get(commit_file(number))
            if number <= version and commit is not None and commit.modified_s <= written_by_s:
                return number
        return 0

    def names_before(self, version: int, *, of_others: bool = False) -> list[str]:
        """The names of the files of earlier versions, ascending; `of_others` with those that only others write."""
        versions = {**self._others, **self._versions} if of_others else self._versions
        names = sorted((name for name in versions if versions[name] < version), key=lambda name: (versions[name], name))
        return [f"{LOG}/{name}" for name in names]

    def paths(self, version: int, *actions: str) -> Iterator[str]:
        """The data files that a commit names in actions of these kinds, ``add`` or ``remove``, not URL-encoded."""
        for found in read_commit(self._storage, version):
            yield from (unquote(found[kind]["path"]) for kind in actions if found.get(kind) is not None)

    def files_at(self, checkpoint: int) -> set[str]:
        """The data files that a checkpoint has."""
        with self._storage.parquet(checkpoint_file(checkpoint)) as file:
            added = file.read(columns=["add.path"])["add"].combine_chunks()
        return {unquote(path) for path in added.field("path").to_pylist() if path is not None}

    def files_since(self, checkpoint: int, last: int) -> set[str]:
        """The data files of a checkpoint, and those that later versions, up to `last`, added."""
        later = (path for number in range(checkpoint + 1, last + 1) for path in self.paths(number, "add"))
        return self.files_at(checkpoint).union(later)

    def named(self) -> set[str]:
        """Every data file that the log names: that of each version that can be read, and perhaps more."""
        first = self.files_at(self.checkpoints[0]) if self.checkpoints else set()
        return first.union(path for number in self.commits for path in self.paths(number, "add", "remove"))

    def orphans(self, version: int) -> list[FileStatus]:
        """The orphans of the table, whose present version is `version`; none if the log does not name all files."""
        first = self.checkpoints[0] + 1 if self.checkpoints else 0
        is_whole = set(range(first, version + 1)) <= set(self.commits)
        return orphans(self._storage, self.named()) if is_whole else []


def is_below(path: str) -> bool:
    """Whether a data file that the log names is below the table's root."""
    return not urlsplit(path).scheme and not path.startswith("/") and ".." not in path.split("/")
