"""Snapshots of Kernel's that this process has seen last, as long as they are the newest of their tables.

Several brokers of a process may commit to one table in turn. Each would load anew what the one before has just made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reput.sinks.table.history import commit_file
from reput.sinks.table.location import TableLocation
from reput.sinks.table.storage import TableStorage


@dataclass(frozen=True)
class SeenSnapshot:
    """A snapshot that the JVM `jvm` has, and what told the file of its commit from others of that name."""

    jvm: Any
    snapshot: Any
    version: int
    commit: tuple[object, ...]

    def is_newest(self, storage: TableStorage) -> bool:
        """Whether no commit came behind it, in this table: one that was created anew has another file there."""
        is_there = bool(self.commit) and self.commit == storage.identity(commit_file(self.version))
        return is_there and storage.status(commit_file(self.version + 1)) is None


_seen_last: dict[TableLocation, SeenSnapshot] = {}


def remember(jvm: Any, storage: TableStorage, snapshot: Any) -> SeenSnapshot:
    """Remember the newest snapshot of the table in `storage`."""
    version = int(snapshot.getVersion())
    seen = SeenSnapshot(jvm, snapshot, version, storage.identity(commit_file(version)))
    _seen_last[storage.location] = seen
    return seen


def newest_seen(jvm: Any, storage: TableStorage) -> SeenSnapshot | None:
    """The snapshot of the table in `storage` that was seen last, if `jvm` has it and it is the newest."""
    seen = _seen_last.get(storage.location)
    return seen if seen is not None and seen.jvm is jvm and seen.is_newest(storage) else None


def forget_seen(storage: TableStorage) -> None:
    """Forget the snapshot of the table in `storage`: behind a checkpoint, files may go that it has yet to read."""
    _seen_last.pop(storage.location, None)
