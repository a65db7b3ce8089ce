"""Rows that have expired by ``tableRetention`` are taken away, a few files at a time, one commit for these.

A file is opened only when one of its rows may have expired, and then it is known when the next one will. Older versions
of the table have the rows as long as they can be read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reput.sinks.table.commit import Change
from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.expired_rows import Expired, ExpiredRows
from reput.sinks.table.history import EXPIRED
from reput.sinks.table.replace import RestOfFiles
from reput.sinks.table.row_retention import RowRetention, expiry_ms
from reput.sinks.table.snapshot import Snapshot

# With more files, more is lost if the commit fails: what stays of them is written before it.
_FILES_A_COMMIT = 16
_ANYWHERE = 0, 2**63 - 2


class _NothingExpiredError(Exception):
    """None of the files has an expired row."""


@dataclass
class _File:
    """When a row of a file may have expired, in milliseconds since 1970; bounds of its physical offsets, included."""

    due_ms: int
    least: int
    greatest: int


class TableExpiry:
    """Takes expired rows of one broker away, from the files that it is told of."""

    def __init__(self, table: DeltaTable, broker: str, retention: RowRetention) -> None:
        self._table = table
        self._broker = broker
        self._retention = retention
        # By the path in the table's log.
        self._files: dict[str, _File] = {}

    def add(self, path: str, first_time: datetime | None, bounds: tuple[int | None, int | None]) -> None:
        """Take in a file that may have rows of the broker, with the least values of its columns.

        `first_time` is a lower bound of its store times, `bounds` are those of its physical offsets, both included;
        None stands for what nobody knows.
        """
        days = self._retention.days_min
        if days is not None:
            first_ms = 0 if first_time is None else int(first_time.timestamp() * 1000)
            least, greatest = bounds
            known = _ANYWHERE if least is None or greatest is None else (least, greatest)
            self._files[path] = _File(expiry_ms(first_ms, days), *known)

    def keep_only(self, paths: Collection[str]) -> None:
        """Forget all other files: the table does not have them any more."""
        self._files = {path: file for path, file in self._files.items() if path in paths}

    def step(self, until: float | None = None) -> Expired:
        """Take the expired rows from some files in one commit; returns no rows if there was nothing to commit.

        After `until`, by the monotonic clock, no further file is opened.

        Raises
        ------
        ReputError
            The table cannot be written, or not by reput.
        pa.ArrowException, OSError, LookupError
            A file cannot be read.
        """
        limits = self._retention.limits(time.time())
        rows, wanted = ExpiredRows(self._broker, limits), {}
        for path, file in self._files.items():
            if file.due_ms > limits.today_ms:
                continue
            file.due_ms = rows.look_into(self._table.storage, self._table.storage.name_of(path)).first_ms
            if file.due_ms <= limits.today_ms:
                wanted[path] = file
            if len(wanted) == _FILES_A_COMMIT or (until is not None and time.monotonic() >= until):
                break
        return self._take(wanted, rows) if wanted else Expired()

    def _take(self, files: Mapping[str, _File], rows: ExpiredRows) -> Expired:
        rests = RestOfFiles(self._table, rows.mask)
        searched = min(file.least for file in files.values()), max(file.greatest for file in files.values()) + 1
        done = Expired()

        def change(snapshot: Snapshot) -> Change:
            removed, added, taken = [], [], []
            for file in self._table.files_between(snapshot, *searched):
                if file.path in files and (rest := rests.of(file)).taken:
                    removed.append(file)
                    added += [] if rest.file is None else [rest.file]
                    taken.append((file.bounds.least, file.bounds.greatest, rest.taken))
            if not removed:
                raise _NothingExpiredError
            done.rows, done.files = sum(count for _, _, count in taken), len(removed)
            return Change(added, removed, None, note=self._note(taken), deleted=done.rows)

        try:
            self._table.commit(change)
        except _NothingExpiredError:  # deletion vectors have taken them, or others the files
            for path in files:
                del self._files[path]
        return done

    def _note(self, taken: list[tuple[int | None, int | None, int]]) -> dict[str, Any]:
        note: dict[str, Any] = {"broker": self._broker, "what": EXPIRED, "retention": str(self._retention)}
        known = [(least, greatest) for least, greatest, _ in taken if least is not None and greatest is not None]
        if len(known) < len(taken):
            return note
        start, end = min(least for least, _ in known), max(greatest for _, greatest in known) + 1
        return note | {"start": start, "end": end, "taken": taken}
