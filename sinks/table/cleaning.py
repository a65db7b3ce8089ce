"""Removing what a table no longer needs: old commits, data files that only they had, and files that no version has.

Delta itself keeps commits and data files by time, a month and a week. With a commit every ten seconds that would be
260,000 files to list and 60,000 files that are never read. Here the number of versions decides: the last ones can all
be read, also by their number. Files that no version has are left by writers that died; see ``data_file.orphans``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from reput.sinks.files.file_system import now_for_ages
from reput.sinks.table.data_file import orphans, remove_data_files
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import checkpoint_file, commit_file, read_commit
from reput.sinks.table.storage import LOG, FileStatus, TableStorage, table_storage

#: A table with this property is cleaned in Delta's own way: by time.
LOG_KEPT = "delta.logRetentionDuration"
# A query that began on a version may still read its files this long after the version has gone out of date.
READ_FOR_S = 900
# A version's commit, its checksum and its checkpoint, and the checksums of these that Hadoop writes.
_OF_VERSION = re.compile(r"\.?(\d{20})\.(?:json|crc|checkpoint\.parquet)(?:\.crc)?")

# Other writers write more kinds of files: checkpoints in parts or by another policy, compacted logs.
_OF_OTHERS = re.compile(r"\.?(\d{20})\..+")


@dataclass(frozen=True)
class Cleaning:
    """The files to remove.

    Attributes
    ----------
    storage
        The table's files.
    commits
        The number of versions to remove.
    log_files
        The names of their files in the log.
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
        """The size of the data files and the orphans."""
        return sum(file.size_bytes for file in (*self.data_files, *self.orphans))

    def carry_out(self) -> None:
        """Remove the files, data files first. After a kill at any moment, a later cleaning does the rest.

        Raises
        ------
        OutputError
            A file cannot be removed.
        """
        self.storage.remove((file.name for file in self.orphans), durable=True)
        remove_data_files(self.storage, (file.name for file in self.data_files), durable=True)
        self.storage.remove(self.log_files)


def clean_log(root: TableLocation, version: int, kept: int) -> int:
    """Remove the files that `cleaning` finds; return the number of commits removed.

    Raises the errors of `cleaning`, and OutputError.
    """
    found = cleaning(table_storage(root), version, kept)
    found.carry_out()
    return found.commits


def cleaning(storage: TableStorage, version: int, kept: int, *, with_commits: bool = True) -> Cleaning:
    """Find what can be removed from a table at `version`; the last `kept` versions stay readable.

    With `with_commits`, the log before a checkpoint is removed: the newest one that `kept` versions follow and that is
    `READ_FOR_S` old. The data files that this part of the log removed go with it, unless a later version has them
    again.

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
    """Find what a table at `version` has from before version `first`, which cannot be read afterwards.

    `checkpoint` is the version of a checkpoint, `first` or later. This is everything of the log before `first`, and
    each data file that no version from `checkpoint` on has and no later commit added. Raises the errors of `cleaning`.
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
    """Remove the statistics of removed files from a checkpoint: their bounds are texts of removed rows.

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
    """The commits and checkpoints in a table's log; the numbers of both ascend."""

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
        """The newest checkpoint of a version up to `version` that was committed by then (seconds since 1970), or 0."""
        for number in reversed(self.checkpoints):
            commit = self._files.get(commit_file(number))
            if number <= version and commit is not None and commit.modified_s <= written_by_s:
                return number
        return 0

    def names_before(self, version: int, *, of_others: bool = False) -> list[str]:
        """The names of the files of earlier versions, ascending; `of_others` adds kinds that only others write."""
        versions = {**self._others, **self._versions} if of_others else self._versions
        names = sorted((name for name in versions if versions[name] < version), key=lambda name: (versions[name], name))
        return [f"{LOG}/{name}" for name in names]

    def paths(self, version: int, *actions: str) -> Iterator[str]:
        """The data files that a commit names in actions of these kinds, ``add`` or ``remove``, not URL-encoded."""
        for found in read_commit(self._storage, version):
            yield from (unquote(found[kind]["path"]) for kind in actions if found.get(kind) is not None)

    def files_at(self, checkpoint: int) -> set[str]:
        """The data files in a checkpoint."""
        with self._storage.parquet(checkpoint_file(checkpoint)) as file:
            added = file.read(columns=["add.path"])["add"].combine_chunks()
        return {unquote(path) for path in added.field("path").to_pylist() if path is not None}

    def files_since(self, checkpoint: int, last: int) -> set[str]:
        """The data files in a checkpoint, and those that later versions, up to `last`, added."""
        later = (path for number in range(checkpoint + 1, last + 1) for path in self.paths(number, "add"))
        return self.files_at(checkpoint).union(later)

    def named(self) -> set[str]:
        """Every data file that the log names: the files of each version that can be read, and perhaps more."""
        first = self.files_at(self.checkpoints[0]) if self.checkpoints else set()
        return first.union(path for number in self.commits for path in self.paths(number, "add", "remove"))

    def orphans(self, version: int) -> list[FileStatus]:
        """The orphans of the table, whose present version is `version`; empty if the log does not name all files."""
        first = self.checkpoints[0] + 1 if self.checkpoints else 0
        is_whole = set(range(first, version + 1)) <= set(self.commits)
        return orphans(self._storage, self.named()) if is_whole else []


def is_below(path: str) -> bool:
    """Whether a data file that the log names is below the table's root."""
    return not urlsplit(path).scheme and not path.startswith("/") and ".." not in path.split("/")
