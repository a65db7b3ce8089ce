"""Keeping a message table tidy while it grows: one broker's files are merged and get key filters, the log is cut.

All of it happens between two commits of the broker's messages, by the thread that makes them, a bounded piece at a
time; only the files of a merge may be written by another thread meanwhile. It may be interrupted anywhere: a merge is
one commit. The files of a merge that was interrupted stay, and are no part of the table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from reput.sinks.table.commit import DataFile, Note
from reput.sinks.table.compaction import Merge, StoredFile, next_merge, next_unsorted
from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.expired_rows import Expired
from reput.sinks.table.expiry import TableExpiry
from reput.sinks.table.file_list import FileList
from reput.sinks.table.key_filter import KeyFilterWriter
from reput.sinks.table.log_cleanup import LOG_KEPT, clean_log
from reput.sinks.table.own_files import OWN_DATA_FILE, remove_data_files
from reput.sinks.table.row_retention import ALL_FOREVER, RowRetention
from reput.source.errors import MayPassError, OutputError, ReputError, TransientError
from reput.source.printable import printable

_log = logging.getLogger("reput")

_FILE = (
    *("path", "size_bytes", "num_records"),
    *("min.physical_offset", "max.physical_offset", "min.store_time", "max.store_time"),
)
_ROW_IDS = "delta.enableRowTracking"
# How many commits come between two looks at the log's directory.
CLEANED_EVERY = 100


@dataclass
class UpkeepDone:
    """What was done: merges, the files before and after them, commits removed from the log, expired rows removed.

    `files` are those of the table that may be merged, `small_files` those among them that are smaller than half a
    target file; both as they were seen last, None if they were not looked at. `refused` says that upkeep has ended.
    """

    merges: int = 0
    files_before: int = 0
    files_after: int = 0
    commits_removed: int = 0
    expired: Expired = field(default_factory=Expired)
    files: int | None = None
    small_files: int | None = None
    refused: bool = False


@dataclass(frozen=True)
class _Begun:
    """A merge whose files are written by another thread, and that is not committed yet."""

    files: Sequence[StoredFile]
    merged: Future[list[DataFile]]


class TableUpkeep:
    """Keeps the files of one broker in a table tidy."""

    def __init__(
        self, table: DeltaTable, broker: str, versions_kept: int, retention: RowRetention = ALL_FOREVER
    ) -> None:
        """The last `versions_kept` versions can be read, and RESTORE can go back to them; `retention` is of rows."""
        self._table = table
        self._expiry = TableExpiry(table, broker, retention)
        self._broker = broker
        self._versions_kept = versions_kept
        self._list: FileList | None = None
        # By path; None for what is left as it is.
        self._known: dict[str, StoredFile | None] = {}
        # The files of the present version that may lack their key filter.
        self._unfiltered: list[str] = []
        self._filters = KeyFilterWriter(table.storage)
        self._configuration: dict[str, str] = {}
        self._cleaned_at = -1
        self._begun: _Begun | None = None
        self._refused = False
        self._missed_file = False

    def step(self, seconds: float, *, sorts: bool = True, beside: Executor | None = None) -> UpkeepDone:
        """Do what is most due, one merge at least, and begin no other after so many seconds; `sorts` also large files.

        With `beside`, which writes the files of one merge after the other, a merge is only begun, and committed by the
        first step that finds its files written.

        Nothing that stands in its way is an error: a full disk and other writers' commits end the step, and anything
        else ends the upkeep until the next start, which is logged once.
        """
        done, began = UpkeepDone(refused=self._refused), time.monotonic()
        if self._refused:
            return done
        try:
            if self._begun is not None and (beside is None or self.has_written):
                self._commit_begun(done)
            if self._begun is None:
                self._merge_due(done, began + seconds, beside, sorts=sorts)
            else:
                self._files()
            while self._unfiltered and time.monotonic() - began < seconds:
                self._filter(self._unfiltered.pop())
            if self._begun is None:  # else a merge may be made of files whose rows expire
                self._expire(done, began + seconds)
            self._clean(done)
        except (TransientError, MayPassError) as error:
            _log.warning("%s; the table is tidied later", error)
        except FileNotFoundError as error:
            # `reput table forget` may have removed the file; if the log still names it the next time, it was lost.
            if self._missed_file:
                self._refuse(self._lost_file_error() or error)
            self._list, self._missed_file = None, True
        except (ReputError, pa.ArrowException, OSError, ValueError, LookupError) as error:
            self._refuse(error)
        done.refused = self._refused
        if self._list is not None:
            files = [file for file in self._known.values() if file is not None]
            done.files, done.small_files = len(files), sum(not file.is_large for file in files)
        return done

    @property
    def has_written(self) -> bool:
        """Whether the files of a merge that was begun are written, or failed to be, so that a step has work."""
        return self._begun is not None and self._begun.merged.done()

    def give_up(self) -> None:
        """Wait until nothing is written any more, and remove the files of a merge that was not committed."""
        begun, self._begun = self._begun, None
        if begun is not None:
            with suppress(ReputError, pa.ArrowException, OSError, ValueError, LookupError):
                self._remove(begun.merged.result())

    def _refuse(self, error: BaseException) -> None:
        """End the upkeep; if the table cannot be written at all, the next commit of messages says so."""
        self._refused = True
        why = printable(str(error).partition("\n")[0])
        _log.warning("%s: it is not tidied before the next start: %s", self._table.path, why)

    def to_the_end(self) -> UpkeepDone:
        """Merge, sort and write key filters until nothing is due; unlike in `step`, what stands in its way is raised.

        Raises
        ------
        ReputError
            The table cannot be written, or not by reput.
        pa.ArrowException, OSError, ValueError, LookupError
            The table cannot be read.
        """
        done = UpkeepDone()
        try:
            self._merge_due(done)
            for name in self._unfiltered:
                self._filter(name)
        except FileNotFoundError as error:
            raise (self._lost_file_error() or error) from error
        return done

    def expire_to_the_end(self) -> Expired:
        """Take all expired rows away; what stands in its way is raised as in `to_the_end`."""
        done = UpkeepDone()
        try:
            self._files()
            self._expire(done)
        except FileNotFoundError as error:
            raise (self._lost_file_error() or error) from error
        return done.expired

    def _lost_file_error(self) -> OutputError | None:
        """What to say of the first file of the version seen last that is not on the disk; None if all are."""
        storage = self._table.storage
        names = [storage.name_of(path) for path in self._known]
        found = zip(names, storage.statuses(names), strict=True)
        name = next((name for name, there in found if there is None), None)
        if name is None:
            return None
        gone = storage.location / name
        return OutputError(
            f"{gone} is gone, and the rows that it had",
            advice="the next start says which they are, and 'reput rebuild --only table' makes them again",
            file=gone,
        )

    def _next(self, *, sorts: bool) -> list[StoredFile]:
        files = self._files()
        return next_merge(files) or (next_unsorted(files) if sorts else [])

    def _files(self) -> list[StoredFile]:
        """The files of the present version that have rows of the broker alone and were written by reput."""
        if self._list is None:
            self._list = FileList(self._table.path)
        else:
            self._list.update()
            if self._list.version < self._table.version:  # `reput table forget` removed the commits between
                self._list = FileList(self._table.path)
        self._configuration = self._list.configuration
        if self._configuration.get(_ROW_IDS) == "true":
            raise OutputError(f"{_ROW_IDS} is on, and reput gives no row its old number", file=self._table.path)
        files = self._list.files()
        paths = files["path"].to_pylist()
        new = [number for number, path in enumerate(paths) if path not in self._known]
        self._known.update(self._parsed(files.take(pa.array(new, pa.int64()))))
        self._known = {path: self._known[path] for path in paths}
        self._unfiltered = [path for path in self._unfiltered if path in self._known]
        self._expiry.keep_only(self._known)
        return [file for file in self._known.values() if file is not None]

    def _parsed(self, files: pa.Table) -> Iterator[tuple[str, StoredFile | None]]:
        names = [*_FILE, "min.broker", "max.broker"]
        values = (files[name].to_pylist() if name in files.column_names else [None] * len(files) for name in names)
        for *file, least, greatest in zip(*values, strict=True):
            if least == self._broker:  # of a file of several brokers, one of them writes the filter
                self._unfiltered.append(file[0])
            if least is None or greatest is None or least <= self._broker <= greatest:
                self._expiry.add(file[0], file[5], (file[3], file[4]))
            is_ours = least == greatest == self._broker and OWN_DATA_FILE.fullmatch(file[0]) and None not in file[:5]
            yield file[0], StoredFile(*file) if is_ours else None

    def _filter(self, name: str) -> None:
        if not self._filters.has(name) and self._table.storage.name_of(name) == name:
            self._filters.write_from_file(name)

    def _expire(self, done: UpkeepDone, until: float | None = None) -> None:
        while (taken := self._expiry.step(until)).rows:
            done.expired.rows += taken.rows
            done.expired.files += taken.files
            self._files()
            if until is not None and time.monotonic() >= until:
                break

    def _merge_due(
        self, done: UpkeepDone, until: float | None = None, beside: Executor | None = None, *, sorts: bool = True
    ) -> None:
        while files := self._next(sorts=sorts):
            merge = Merge(self._table.storage, files)
            if beside is not None:
                self._begun = _Begun(files, beside.submit(merge.write))
                break
            self._commit(files, merge.write(), done)
            if until is not None and time.monotonic() >= until:
                break

    def _commit_begun(self, done: UpkeepDone) -> None:
        assert self._begun is not None
        begun, self._begun = self._begun, None
        self._commit(begun.files, begun.merged.result(), done)

    def _commit(self, files: Sequence[StoredFile], merged: Sequence[DataFile], done: UpkeepDone) -> None:
        start, end = min(file.least for file in files), max(file.greatest for file in files) + 1
        # After an error nobody knows whether the commit is in the log, so the merged files stay.
        note: Note = {"broker": self._broker, "what": "merged", "start": start, "end": end}
        if not self._table.rewrite([file.path for file in files], merged, start, end, note):
            self._remove(merged)
            self._leave(files)
            return
        if len(merged) >= len(files) > 1:  # rows so wide that few of them fit into memory
            self._known.update(dict.fromkeys((file.path for file in merged), None))
        self._missed_file = False
        done.merges += 1
        done.files_before += len(files)
        done.files_after += len(merged)

    def _leave(self, files: Sequence[StoredFile]) -> None:
        """Leave what cannot be merged as it is: files of which a deletion vector has taken rows.

        If there are none, and all files are still there, nobody knows why, so they all are left.
        """
        paths = [file.path for file in files]
        self._files()
        assert self._list is not None
        name_of, kept_rows = self._table.storage.name_of, self._list.kept_rows
        cut = [path for path in paths if path in self._known and kept_rows(name_of(path)) is not None]
        if not cut and self._known.keys() >= set(paths):
            cut = paths
        self._known.update(dict.fromkeys(cut, None))

    def _remove(self, files: Sequence[DataFile]) -> None:
        remove_data_files(self._table.storage, (file.path for file in files))

    def _clean(self, done: UpkeepDone) -> None:
        version = self._table.version
        if version < self._cleaned_at + CLEANED_EVERY:
            return
        self._cleaned_at = version
        if LOG_KEPT in self._configuration:
            return
        with suppress(FileNotFoundError):  # another reput on this table removes it, too
            done.commits_removed = clean_log(self._table.path, version, self._versions_kept)
