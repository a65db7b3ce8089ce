"""A version of a Delta table as its log has it: protocol, metadata, transactions, and the data files when asked for.

The newest checkpoint and the commits after it tell all of it; what a commit adds is taken in without reading the rest
again. Every action stays as it was written, because a file that is removed must be named with all that its log says of
it: its deletion vector, its row ids. deltalake gives neither, and its threads must not be started before a fork.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from reput.sinks.table.data_file import Action, LoggedAdd, _key
from reput.sinks.table.log import commit_file, parse_commit, read_commit
from reput.sinks.table.storage import LOG, TableStorage

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint\."
    r"(?:(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|[0-9a-f-]{36}\.(?:parquet|json)|parquet)"
)
_SIDECARS = f"{LOG}/_sidecars"
_HINT = f"{LOG}/_last_checkpoint"
_HEADER = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
# What a file's action has beside values that readers of checkpoints made of its statistics.
_ADD = (
    *("path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags", "deletionVector"),
    *("baseRowId", "defaultRowCommitVersion", "clusteringProvider"),
)


#: What reading a log that is not whole raises.
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
    # The files of the checkpoint that it began with, and what later commits did: None for a file that was removed.
    _checkpoint: tuple[str, ...] = ()
    _since: Mapping[tuple[str, object], Action | None] = field(default_factory=dict)

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
        commits = {int(found[1]) for name in names if (found := _COMMIT.fullmatch(name))}
        base, checkpoint = _newest_checkpoint(names, at)
        if not commits and not checkpoint:
            raise NoTableError
        if at is None and _HINT.rpartition("/")[2] in names and (told := _told_checkpoint(storage)) > base:
            raise ValueError(f"{_HINT} names the checkpoint of version {told}, which is not there")
        first = [f"{LOG}/{name}" for name in checkpoint]
        header = list(_header(storage, first))
        sidecars = [f"{_SIDECARS}/{each['sidecar']['path']}" for each in header if "sidecar" in each]
        snapshot = cls(storage, base, {}, {}, {}, {}, None, (*first, *sidecars)).after(base, header)
        last = max(commits, default=base) if at is None else at
        snapshot = snapshot.after_all(last, (read_commit(storage, version) for version in range(base + 1, last + 1)))
        if not snapshot.protocol or not snapshot.metadata:
            raise ValueError("the log has no protocol or no metadata")
        if snapshot.has_times and snapshot.time_ms is None and base in commits:
            snapshot = replace(snapshot, time_ms=_time_of(read_commit(storage, base)))
        return snapshot

    def latest(self) -> Snapshot:
        """It with the commits made since; raises what `load` raises."""
        found = self
        while self.storage.status(commit_file(found.version + 1)) is not None:
            found = found.after(found.version + 1, read_commit(self.storage, found.version + 1))
        return found

    def after(self, version: int, actions: Sequence[Action]) -> Snapshot:
        """The next version, which `actions` made."""
        return self.after_all(version, [actions])

    def after_all(self, version: int, commits: Iterable[Sequence[Action]]) -> Snapshot:
        """A later version, the last of those that `commits` made, one behind the other."""
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
                    since[_key(removed)] = None
            for action in actions:  # a file may be removed, and added with another deletion vector
                if (added := action.get("add")) is not None:
                    since[_key(added)] = added
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
        return StructType.fromJson(json.loads(self.metadata["schemaString"]))

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
        """The features that a writer must know."""
        return frozenset(self.protocol.get("writerFeatures") or ())

    @property
    def has_times(self) -> bool:
        """Whether each commit must have a time after that of the one before."""
        return "inCommitTimestamp" in self.features and self.properties.get("delta.enableInCommitTimestamps") == "true"

    def files(self) -> Iterator[LoggedAdd]:
        """The data files of the version.

        Raises
        ------
        StaleSnapshotError
            Its checkpoint is gone.
        OSError, ValueError, LookupError, pa.ArrowException
            The checkpoint cannot be read.
        """
        for name in self._checkpoint:
            try:
                for action in _adds(self.storage, name):
                    if _key(action) not in self._since:
                        yield LoggedAdd(action)
            except FileNotFoundError as error:
                raise StaleSnapshotError(name) from error
        yield from (LoggedAdd(action) for action in self._since.values() if action is not None)


def _time_of(actions: Iterable[Action]) -> int | None:
    return next((action["commitInfo"].get("inCommitTimestamp") for action in actions if action.get("commitInfo")), None)


def _told_checkpoint(storage: TableStorage) -> int:
    """The version of the newest checkpoint by the log's hint; -1 for one that is no JSON, which nobody heeds."""
    with suppress(ValueError, LookupError, TypeError):
        return int(json.loads(storage.read(_HINT))["version"])
    return -1


def _newest_checkpoint(names: Iterable[str], until: int | None = None) -> tuple[int, list[str]]:
    """The version and the files of the newest checkpoint that has all of its parts; -1 without one."""
    whole: dict[int, list[str]] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        if (found := _CHECKPOINT.fullmatch(name)) is None:
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
    """What a checkpoint's file says of data files."""
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
    """The values that are not null, as JSON has them."""
    for each in column.drop_null().to_pylist():
        yield _plain(each, column.type)


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = (kind.field(number) for number in range(kind.num_fields))
        return {each.name: _plain(value[each.name], each.type) for each in fields if value[each.name] is not None}
    return dict(value) if pa.types.is_map(kind) else value
