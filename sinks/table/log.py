"""The log of a Delta table: its commits and checkpoints, and the version of the table that they make.

A commit is one JSON file of actions (`read_commit`). A checkpoint repeats the actions of commits, and
`_last_checkpoint` names the newest. The newest checkpoint and the commits after it hold all of a version: protocol,
metadata, transactions, data files. That is a ``Snapshot``; it takes in new commits without reading the rest again.
Every action stays as it was written, because the action that removes a file must repeat all that the log has about it:
its deletion vector, its row ids. deltalake gives neither, and only writes checkpoints (`write_checkpoint`).

If a file of the log cannot be read, `log_damage` says which one and what to do: if all commits exist, a damaged
checkpoint is set aside, and another is written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from reput.sinks.table.data_file import Action, DataFile, key_of
from reput.sinks.table.location import TableLocation
from reput.sinks.table.storage import LOG, TableStorage, table_storage
from reput.source.errors import OptionError, OutputError
from reput.source.printable import printable
from reput.source.times import milliseconds_of, time_text, utc_text

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Delta's hint at the newest checkpoint.
HINT = f"{LOG}/_last_checkpoint"

_READ_AT_ONCE = 16
#: The end of the engine's name in a commit that makes rows again.
REPAIR = " repair"


def commit_file(version: int) -> str:
    """The name of a commit's file."""
    return f"{LOG}/{version:020d}.json"


def checkpoint_file(version: int) -> str:
    """The name of a version's checkpoint."""
    return f"{LOG}/{version:020d}.checkpoint.parquet"


def read_commit(storage: TableStorage, version: int) -> list[Action]:
    """The actions of a commit, at least one; raises OSError, or a ValueError that names the damage of the file."""
    return parse_commit(storage.read(commit_file(version)))


def parse_commit(content: bytes) -> list[Action]:
    """The actions in the content of a commit's file; raises the errors of `read_commit`."""
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


def commit_info(actions: Sequence[Action]) -> dict[str, Any]:
    """The ``commitInfo`` of a commit; empty if it has none."""
    found: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return found


def transaction_id(broker: str) -> str:
    """The id of the transactions of one broker's messages; their versions are end offsets in the log."""
    return f"reput/{broker}/messages"


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


# ----------------------------------------------------------------------------------------------------------------------
# Files of a table's log that cannot be read, and what to do; searched only after something else has failed.

_COMMIT_NAME = re.compile(r"(\d{20})\.json")
_CHECKPOINT_NAME = re.compile(
    r"(?P<version>\d{20})\.checkpoint\."
    r"(?:(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|[0-9a-f-]{36}\.(?:parquet|json)|parquet)"
)
# Delta ignores files with such names.
_ASIDE = "_damaged-"
_ELSE = "or make the table again at another path with 'reput rebuild --table'"


@dataclass(frozen=True)
class LogDamage:
    """A file of a log that is damaged or missing.

    Attributes
    ----------
    name
        Its name as in ``TableStorage``.
    found
        The damage, in words.
    advice
        What to do.
    to_set_aside
        The files without which the log can be read; empty if commits are missing.
    """

    name: str
    found: str
    advice: str
    to_set_aside: tuple[str, ...] = ()

    def error(self, storage: TableStorage) -> OutputError:
        """The damage as an error."""
        path = storage.location / self.name
        return OutputError(f"{path}: {self.found}", advice=self.advice, file=path)

    def repair(self, storage: TableStorage) -> None:
        """Give the damaged files names that readers of the table ignore; raises OSError or OutputError."""
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
    commits = [int(found[1]) for name in names if (found := _COMMIT_NAME.fullmatch(name))]
    matches = ((name, _CHECKPOINT_NAME.fullmatch(name)) for name in names if name.endswith(".parquet"))
    checkpoints = {name: int(found["version"]) for name, found in matches if found is not None}
    bad = {name: cause for name in checkpoints if (cause := _problem_of_checkpoint(storage, f"{LOG}/{name}"))}
    base = max((version for name, version in checkpoints.items() if name not in bad), default=-1)
    damaged = _damaged_commit(storage, commits, base)
    if damaged is not None:
        first = next((name for name, version in checkpoints.items() if name in bad and version > base), None)
        return LogDamage(f"{LOG}/{first}", bad[first], f"put it back from a backup, {_ELSE}") if first else damaged
    later = [f"{LOG}/{name}" for name, version in checkpoints.items() if name in bad and version > base]
    told = _told_checkpoint(storage) if HINT.rpartition("/")[2] in names else None
    aside = (*later, *([HINT] if told is not None and (later or told > base) else []))
    if not aside:
        return None
    problem = bad[later[0].rpartition("/")[2]] if later else "it names a checkpoint that is not there"
    advice = f"no commit is missing: 'reput table repair --table {storage.location}' writes another checkpoint by them"
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


def _damaged_commit(storage: TableStorage, commits: list[int], base: int) -> LogDamage | None:
    """The first commit after version `base` that is missing or incomplete."""
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


_SIDECARS = f"{LOG}/_sidecars"
_HEADER = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
# The fields of a file's action, without values that writers of checkpoints derived from its statistics.
_ADD = (
    *("path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags", "deletionVector"),
    *("baseRowId", "defaultRowCommitVersion", "clusteringProvider"),
)


#: The errors of reading a log that is not complete.
UNREADABLE = (OSError, ValueError, LookupError, TypeError, pa.ArrowException)


class NoTableError(FileNotFoundError):
    """There is no log."""


class StaleSnapshotError(Exception):
    """The checkpoint that a snapshot began with has gone from the log: the snapshot must be read again."""


@dataclass(frozen=True)
class Snapshot:
    """One version of a table.

    Attributes
    ----------
    protocol, metadata
        The newest actions of these kinds.
    transactions
        The newest transaction version of each application.
    domains
        The configuration of each domain.
    time_ms
        The time in the newest commit; None if it has none, or was not read.
    """

    storage: TableStorage
    version: int
    protocol: Mapping[str, Any]
    metadata: Mapping[str, Any]
    transactions: Mapping[str, int]
    domains: Mapping[str, str]
    time_ms: int | None
    # The files of the checkpoint that it began with, and the effects of later commits: None for a removed file.
    _checkpoint: tuple[str, ...] = ()
    _since: Mapping[tuple[str, object], DataFile | None] = field(default_factory=dict)
    # The files that each file of the checkpoint names, once they have been read.
    _known: dict[str, list[DataFile]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def load(cls, storage: TableStorage, at: int | None = None) -> Snapshot:
        """Read the newest version, or version `at`.

        Raises
        ------
        NoTableError
            There is no log.
        OSError, ValueError, LookupError, TypeError, pa.ArrowException
            The log cannot be read.
        """
        names = {file.name.rpartition("/")[2] for file in storage.files(LOG)}
        commits = {int(found[1]) for name in names if (found := _COMMIT_NAME.fullmatch(name))}
        base, checkpoint = _newest_checkpoint(names, at)
        if not commits and not checkpoint:
            raise NoTableError
        if at is None and HINT.rpartition("/")[2] in names and (told := _told_checkpoint(storage)) > base:
            raise ValueError(f"{HINT} names the checkpoint of version {told}, which is not there")
        first = [f"{LOG}/{name}" for name in checkpoint]
        header = list(_header(storage, first))
        sidecars = [f"{_SIDECARS}/{each['sidecar']['path']}" for each in header if "sidecar" in each]
        snapshot = cls(storage, base, {}, {}, {}, {}, None, (*first, *sidecars)).after(base, header)
        last = max(commits, default=base) if at is None else at
        snapshot = snapshot.after_all(last, _read_commits(storage, range(base + 1, last + 1)))
        if not snapshot.protocol or not snapshot.metadata:
            raise ValueError("the log has no protocol or no metadata")
        if snapshot.has_times and snapshot.time_ms is None and base in commits:
            snapshot = replace(snapshot, time_ms=_time_of(read_commit(storage, base)))
        return snapshot

    def latest(self) -> Snapshot:
        """The snapshot with the commits made since; raises the errors of `load`."""
        found = self
        while self.storage.status(commit_file(found.version + 1)) is not None:
            found = found.after(found.version + 1, read_commit(self.storage, found.version + 1))
        return found

    def after(self, version: int, actions: Sequence[Action]) -> Snapshot:
        """The next version, which `actions` made."""
        return self.after_all(version, [actions])

    def after_all(self, version: int, commits: Iterable[Sequence[Action]]) -> Snapshot:
        """A later version, the last of those that `commits` made, one after the other."""
        protocol, metadata, time_ms, since = self.protocol, self.metadata, self.time_ms, dict(self._since)
        transactions, domains = dict(self.transactions), dict(self.domains)
        for actions in commits:
            time_ms = _time_of(actions)
            for action in actions:
                protocol = action.get("protocol") or protocol
                metadata = action.get("metaData") or metadata
                if (transaction := action.get("txn")) is not None:
                    transactions[transaction["appId"]] = int(transaction["version"])
                if (domain := action.get("domainMetadata")) is not None:
                    domains[domain["domain"]] = domain.get("configuration") or ""
                    if domain.get("removed"):
                        del domains[domain["domain"]]
                if (removed := action.get("remove")) is not None:
                    since[key_of(removed)] = None
            for action in actions:  # a file may be removed, and added with another deletion vector
                if (added := action.get("add")) is not None:
                    since[key_of(added)] = DataFile.of(self.storage, added)
        return replace(
            self,
            version=version,
            protocol=protocol,
            metadata=metadata,
            transactions=transactions,
            domains=domains,
            time_ms=time_ms,
            _since=since,
        )

    @property
    def schema(self) -> StructType:
        """The table's columns."""
        from pyspark.sql.types import StructType  # noqa: PLC0415  reading rows needs no module of Spark

        return StructType.fromJson(json.loads(self.metadata["schemaString"]))

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The table's columns in the form of the log: ``name``, ``type``, and ``comment`` in ``metadata``."""
        fields: list[dict[str, Any]] = json.loads(self.metadata["schemaString"])["fields"]
        return fields

    @property
    def column_names(self) -> list[str]:
        """The names of the table's columns."""
        return [column["name"] for column in self.columns]

    @property
    def partitions(self) -> list[str]:
        """The columns by which the table is partitioned."""
        return list(self.metadata.get("partitionColumns") or ())

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self.metadata.get("configuration") or {})

    @property
    def features(self) -> frozenset[str]:
        """The features that a writer must support."""
        return frozenset(self.protocol.get("writerFeatures") or ())

    @property
    def has_times(self) -> bool:
        """Whether each commit must have a time after that of the previous one."""
        return "inCommitTimestamp" in self.features and self.properties.get("delta.enableInCommitTimestamps") == "true"

    def files(self) -> Iterator[DataFile]:
        """The data files of the version.

        Raises
        ------
        StaleSnapshotError
            Its checkpoint is gone.
        OSError, ValueError, LookupError, pa.ArrowException
            The checkpoint cannot be read.
        """
        for name in self._checkpoint:
            if name not in self._known:
                try:
                    self._known[name] = [DataFile.of(self.storage, action) for action in _adds(self.storage, name)]
                except FileNotFoundError as error:
                    raise StaleSnapshotError(name) from error
            yield from (file for file in self._known[name] if file.key not in self._since)
        yield from (file for file in self._since.values() if file is not None)

    def files_of(self, broker: str) -> list[DataFile]:
        """The files that may have rows of the broker, by path; raises the errors of `files`."""
        return sorted((file for file in self.files() if file.bounds.may_hold(broker)), key=lambda file: file.path)


# ----------------------------------------------------------------------------------------------------------------------
# A version that is only read, without Spark: the newest, one by its number, or the one of a time.

# Features that change nothing for readers of files, or that this module respects; mapped columns are checked
# separately.
_READ_FEATURES = frozenset({"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "columnMapping"})
# Features that only concern tables whose schema has this text. They stay in the protocol after the column has gone.
_BY_SCHEMA = {"variant": '"variant"', "typeWidening": '"delta.typeChanges"'}
_READER_MAX = 3


def read_snapshot(root: TableLocation, at: int | datetime | None = None) -> Snapshot:
    """The newest version of the table at `root`, the version `at`, or the one that was the newest at the time `at`.

    Raises
    ------
    OutputError
        There is no table, or its log cannot be read.
    OptionError
        The table has no such version.
    """
    storage = table_storage(root)
    with log_errors(root):
        try:
            newest = _with_files(storage)
        except NoTableError as error:
            raise OutputError(f"{root} is not a Delta table", file=root) from error
        version = _version_at(newest, at) if isinstance(at, datetime) else at
        if version is None or version == newest.version:
            return newest
        try:
            return _with_files(storage, version)
        except FileNotFoundError as error:
            cause = f"{root} has no version {version} to read: its newest is {newest.version}"
            raise OptionError(cause) from error


def _with_files(storage: TableStorage, at: int | None = None) -> Snapshot:
    """A version with its files, which stay known if its log is cut later; raises the errors of ``Snapshot.load``."""
    for attempt in range(2):
        snapshot = Snapshot.load(storage, at)
        try:
            deque(snapshot.files(), maxlen=0)
        except StaleSnapshotError:  # the log was cut meanwhile
            if attempt:
                raise
        else:
            break
    return snapshot


def _version_at(newest: Snapshot, at: datetime) -> int:
    """The last version that was made at or before the time `at`, by the times in the commits themselves."""
    root, at_ms, first, begun = newest.storage.location, milliseconds_of(at), newest.version, ""
    for version in range(newest.version, -1, -1):
        try:
            time_ms = commit_info(read_commit(newest.storage, version)).get("timestamp")
        except FileNotFoundError:
            break
        time = None
        if isinstance(time_ms, int):
            if time_ms <= at_ms:
                return version
            time = time_text(time_ms)
        first, begun = version, f", of {time}" if time else ""
    raise OptionError(
        f"{root} had no version at {utc_text(at)}, or has lost it: the first that it has is {first}{begun}"
    )


def check_readable(snapshot: Snapshot) -> None:
    """Raise OutputError for a table whose files are not simply its rows: one that only Spark can read."""
    root, schema = snapshot.storage.location, str(snapshot.metadata["schemaString"])
    found = frozenset(snapshot.protocol.get("readerFeatures") or ()) - _READ_FEATURES
    foreign = sorted(
        printable(name)
        for name in found
        if not any(name.startswith(each) and text not in schema for each, text in _BY_SCHEMA.items())
    )
    later = [] if int(snapshot.protocol["minReaderVersion"]) <= _READER_MAX else ["a later reader version"]
    mapped = snapshot.properties.get("delta.columnMapping.mode", "none") != "none"
    what = [*foreign, *later, *(["column mapping"] if mapped else []), *(["partitions"] if snapshot.partitions else [])]
    if what:
        raise OutputError(
            f"{root}: a table with {', '.join(what)} is not read without Spark",
            advice="ask 'reput sql --engine spark'",
            file=root,
        )


@contextmanager
def log_errors(path: TableLocation, *further: type[Exception]) -> Iterator[None]:
    """Raise errors of reading a table's log or files, and `further`, as OutputError; `path` is the table's root."""
    try:
        yield
    except (*UNREADABLE, *further) as error:
        raise_log_damage(table_storage(path), error)
        said = printable(str(error).strip().partition("\n")[0])
        raise OutputError(f"{path}: the table cannot be read: {said}", file=path) from error


# deltalake decodes these as characters of a URL, even in a local path; it accepts other percent signs.
_ESCAPED = re.compile("%[0-9A-Fa-f]{2}")


def write_checkpoint(root: TableLocation, *, removes_expired: bool = False) -> int:
    """Write a checkpoint of the newest version, and return the version; raises OutputError.

    With `removes_expired`, commits go from the log that are older than the table's owner wants to keep them.
    """
    # deltalake starts threads, and a rebuild forks its processes before it asks.
    import deltalake  # noqa: PLC0415
    from deltalake.exceptions import DeltaError  # noqa: PLC0415

    storage = table_storage(root)
    try:
        with log_errors(root, DeltaError):
            table = deltalake.DeltaTable(storage.uri, storage_options=storage.deltalake_options)
            table.create_checkpoint()
            if removes_expired:
                table.cleanup_metadata()
            return int(table.version())
    except OutputError as error:
        if (escaped := _ESCAPED.search(str(root))) is None:
            raise
        advice = f"deltalake takes {escaped[0]} in a path for another character: move the table"
        raise OutputError(error.cause, advice=advice, file=root) from error


# ----------------------------------------------------------------------------------------------------------------------
# The content of commits and checkpoints.


def _read_commits(storage: TableStorage, versions: Iterable[int]) -> Iterable[list[Action]]:
    """The actions of commits; on S3, where each read waits for an answer, many are read at once."""
    if isinstance(storage.location, Path):
        return (read_commit(storage, version) for version in versions)
    with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
        return list(pool.map(partial(read_commit, storage), versions))


def _time_of(actions: Iterable[Action]) -> int | None:
    return next((action["commitInfo"].get("inCommitTimestamp") for action in actions if action.get("commitInfo")), None)


def _told_checkpoint(storage: TableStorage) -> int:
    """The version of the newest checkpoint by the log's hint; -1 for a hint that is not JSON, which readers ignore."""
    with suppress(ValueError, LookupError, TypeError):
        return int(json.loads(storage.read(HINT))["version"])
    return -1


def _newest_checkpoint(names: Iterable[str], until: int | None = None) -> tuple[int, list[str]]:
    """The version and the files of the newest checkpoint that has all of its parts; -1 without one."""
    whole: dict[int, list[str]] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        if (found := _CHECKPOINT_NAME.fullmatch(name)) is None:
            continue
        version = int(found["version"])
        if until is not None and version > until:
            continue
        if found["part"] is None:
            whole[version] = [name]
        else:
            parts.setdefault((version, int(found["parts"])), []).append(name)
    for (version, count), files in parts.items():
        if len(files) == count:
            whole.setdefault(version, files)
    newest = max(whole, default=-1)
    return newest, whole.get(newest, [])


def _header(storage: TableStorage, names: Sequence[str]) -> Iterator[Action]:
    """The actions of a checkpoint that do not name data files."""
    for name in names:
        if name.endswith(".json"):
            actions = parse_commit(storage.read(name))
            yield from ({kind: each[kind]} for each in actions for kind in _HEADER if each.get(kind) is not None)
            continue
        with storage.parquet(name) as file:
            there = set(file.schema_arrow.names)
            for kind in _HEADER:
                if kind in there:
                    column = file.read(columns=[kind])[kind]
                    yield from ({kind: each} for each in _values(column))


def _adds(storage: TableStorage, name: str) -> Iterator[Action]:
    """The ``add`` actions in a checkpoint's file."""
    if name.endswith(".json"):
        yield from (each["add"] for each in parse_commit(storage.read(name)) if each.get("add") is not None)
        return
    with storage.parquet(name) as file:
        schema = file.schema_arrow
        if "add" not in schema.names:
            return
        there = schema.field("add").type
        wanted = [f"add.{part}" for part in _ADD if there.get_field_index(part) >= 0]
        for number in range(file.metadata.num_row_groups):
            yield from _values(file.read_row_group(number, columns=wanted)["add"])


def _values(column: pa.ChunkedArray) -> Iterator[Any]:
    """The structs that are not null, in JSON's form."""
    kept = column.drop_null().combine_chunks()
    names = [kept.type.field(number).name for number in range(kept.type.num_fields)]
    lists = [
        [_plain(each, values.type) for each in values.to_pylist()]
        if pa.types.is_nested(values.type)
        else values.to_pylist()
        for values in kept.flatten()
    ]
    for row in zip(*lists, strict=True):
        yield {name: value for name, value in zip(names, row, strict=True) if value is not None}


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = (kind.field(number) for number in range(kind.num_fields))
        return {each.name: _plain(value[each.name], each.type) for each in fields if value[each.name] is not None}
    return dict(value) if pa.types.is_map(kind) else value
