"""Keeping a message table tidy while it grows: one broker's files are merged, the log is cut.

All of it happens between two commits of the broker's messages, by the thread that makes them, a bounded piece at a
time. It may be interrupted anywhere: a merge is one commit. The files of a merge that was interrupted stay, and are no
part of the table.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.table.change import DataFile, Note
from reput.sinks.table.compaction import Merge, StoredFile, next_merge, next_unsorted
from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.log_cleanup import clean_log
from reput.sinks.table.refusal import JAVA_ERRORS
from reput.source.errors import OutputError, ReputError, TransientError
from reput.source.printable import printable

_log = logging.getLogger("reput")

# The names that reput gives; nobody else's files are merged.
_OURS = re.compile(r"(?:part|merged)-\d{20}-\d{20}-[0-9a-f-]{36}\.zstd\.parquet")
_FILE = (
    *("path", "size_bytes", "num_records"),
    *("min.physical_offset", "max.physical_offset", "min.store_time", "max.store_time"),
)
_ROW_IDS = "delta.enableRowTracking"
# Whoever sets it wants Delta's own way: by time.
_LOG_KEPT = "delta.logRetentionDuration"
# How many commits come between two looks at the log's directory.
CLEANED_EVERY = 100


@dataclass
class UpkeepDone:
    """What was done: merges, the files before and after them, and commits that were removed from the log."""

    merges: int = 0
    files_before: int = 0
    files_after: int = 0
    commits_removed: int = 0


class TableUpkeep:
    """Keeps the files of one broker in a table tidy."""

    def __init__(self, table: DeltaTable, broker: str, versions_kept: int) -> None:
        """The last `versions_kept` versions can be read, and RESTORE can go back to them."""
        self._table = table
        self._broker = broker
        self._versions_kept = versions_kept
        self._log_table: deltalake.DeltaTable | None = None
        # By path; None for what is left as it is.
        self._known: dict[str, StoredFile | None] = {}
        self._configuration: dict[str, str] = {}
        self._cleaned_at = -1
        self._refused = False

    def step(self, seconds: float, *, sorts: bool = True) -> UpkeepDone:
        """Do what is most due, one merge at least, and begin no other after so many seconds; `sorts` also large files.

        Nothing that stands in its way is an error: a full disk and other writers' commits end the step, and anything
        else ends the upkeep until the next start, which is logged once.
        """
        done, began = UpkeepDone(), time.monotonic()
        if self._refused:
            return done
        try:
            while files := self._next(sorts=sorts):
                self._merge(files, done)
                if time.monotonic() - began >= seconds:
                    break
            self._clean(done)
        except TransientError as error:
            _log.warning("%s; the table is tidied later", error)
        except (ReputError, *JAVA_ERRORS, DeltaError, pa.ArrowException, OSError, ValueError, LookupError) as error:
            # If the table cannot be written at all, the next commit of messages says so.
            self._refused = True
            why = printable(str(error).partition("\n")[0])
            _log.warning("%s: it is not tidied before the next start: %s", self._table.path, why)
        return done

    def _next(self, *, sorts: bool) -> list[StoredFile]:
        files = self._files()
        return next_merge(files) or (next_unsorted(files) if sorts else [])

    def _files(self) -> list[StoredFile]:
        """The files of the present version that have rows of the broker alone and were written by reput."""
        if self._log_table is None:
            self._log_table = deltalake.DeltaTable(self._table.path.as_uri())
        else:
            self._log_table.update_incremental()
        self._configuration = self._log_table.metadata().configuration
        if self._configuration.get(_ROW_IDS) == "true":
            raise OutputError(f"{_ROW_IDS} is on, and reput gives no row its old number", file=self._table.path)
        actions: Any = pa.table(self._log_table.get_add_actions(flatten=True))
        paths = actions["path"].to_pylist()
        new = [number for number, path in enumerate(paths) if path not in self._known]
        self._known.update(self._parsed(actions.take(pa.array(new, pa.int64()))))
        self._known = {path: self._known[path] for path in paths}
        return [file for file in self._known.values() if file is not None]

    def _parsed(self, actions: pa.Table) -> Iterator[tuple[str, StoredFile | None]]:
        names = [*_FILE, "min.broker", "max.broker"]
        values = (
            actions[name].to_pylist() if name in actions.column_names else [None] * len(actions) for name in names
        )
        for *file, least, greatest in zip(*values, strict=True):
            is_ours = least == greatest == self._broker and _OURS.fullmatch(file[0]) and None not in file[:5]
            yield file[0], StoredFile(*file) if is_ours else None

    def _merge(self, files: Sequence[StoredFile], done: UpkeepDone) -> None:
        try:
            merged = Merge(self._table.path, files).write()
        except FileNotFoundError as error:
            gone = next((path for file in files if not (path := self._table.path / file.path).exists()), None)
            if gone is None:
                raise
            raise OutputError(
                f"{gone} is gone, and the rows that it had",
                advice="the next start says which they are, and 'reput rebuild --only table' makes them again",
                file=gone,
            ) from error
        start, end = min(file.least for file in files), max(file.greatest for file in files) + 1
        # After an error nobody knows whether the commit is in the log, so the merged files stay.
        note: Note = {"broker": self._broker, "what": "merged", "start": start, "end": end}
        if not self._table.rewrite([file.path for file in files], merged, start, end, note):
            self._remove(merged)
            self._known.update(dict.fromkeys((file.path for file in files), None))
            return
        if len(merged) >= len(files) > 1:  # rows so wide that few of them fit into memory
            self._known.update(dict.fromkeys((file.path for file in merged), None))
        done.merges += 1
        done.files_before += len(files)
        done.files_after += len(merged)

    def _remove(self, files: Sequence[DataFile]) -> None:
        output = DurableFiles(self._table.path)
        for file in files:
            output.remove(file.path)

    def _clean(self, done: UpkeepDone) -> None:
        version = self._table.version
        if version < self._cleaned_at + CLEANED_EVERY:
            return
        self._cleaned_at = version
        if _LOG_KEPT in self._configuration:
            return
        with suppress(FileNotFoundError):  # another reput on this table removes it, too
            done.commits_removed = clean_log(self._table.path, version, self._versions_kept)
