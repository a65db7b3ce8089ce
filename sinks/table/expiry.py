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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.sinks.table.commit import Change
from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.log import EXPIRED
from reput.sinks.table.replace import RestOfFiles
from reput.sinks.table.retention import NEVER_MS, NO_TIME, ExpiryLimits, RowRetention, expiry_ms
from reput.sinks.table.snapshot import Snapshot
from reput.sinks.table.storage import TableStorage
from reput.source.arrays import Bools, Int64s

# ----------------------------------------------------------------------------------------------------------------------
# Which rows of a data file have expired by ``tableRetention``, and when the next one will.

_ROWS_A_BATCH = 128 * 1024
_COLUMNS = ("broker", "topic", "store_time")


@dataclass
class Expired:
    """Rows that have expired, and the number of files that had them."""

    rows: int = 0
    files: int = 0


@dataclass(frozen=True)
class FileExpiry:
    """How many rows of a file have expired, and when the first of all does, or did, in milliseconds since 1970."""

    rows: int
    first_ms: int


@dataclass(frozen=True)
class ExpiredRows:
    """The rows of `broker` that have expired by `limits`."""

    broker: str
    limits: ExpiryLimits

    def mask(self, rows: pa.RecordBatch) -> Bools:
        """Which of the rows have expired."""
        codes, topics = _numbered(rows)
        return self._is_ours(rows) & self.limits.mask(codes, topics, _store_times_ms(rows))

    def look_into(self, storage: TableStorage, name: str) -> FileExpiry:
        """Look into a data file, also at rows that a deletion vector takes away.

        Raises
        ------
        OSError, LookupError, pa.ArrowException
            The file cannot be read.
        """
        expired, first_ms = 0, NEVER_MS
        with storage.parquet(name, coerce_int96_timestamp_unit="us") as file:
            for rows in file.iter_batches(_ROWS_A_BATCH, columns=list(_COLUMNS)):
                codes, topics = _numbered(rows)
                times = _store_times_ms(rows)
                counted = self._is_ours(rows) & (times != NO_TIME)
                expired += int(np.count_nonzero(counted & self.limits.mask(codes, topics, times)))
                least = np.full(len(topics) + 1, NEVER_MS, np.int64)  # the last is that of rows without a topic
                np.minimum.at(least, codes[counted], times[counted])
                oldest = dict(zip(topics, least.tolist(), strict=False))
                there = {topic: time_ms for topic, time_ms in oldest.items() if time_ms < NEVER_MS}
                first_ms = min(first_ms, self.limits.first_expiry_ms(there))
        return FileExpiry(expired, first_ms)

    def _is_ours(self, rows: pa.RecordBatch) -> Bools:
        ours = pc.fill_null(pc.equal(rows["broker"], self.broker), fill_value=False)
        found: Bools = ours.to_numpy(zero_copy_only=False)
        return found


def _numbered(rows: pa.RecordBatch) -> tuple[Int64s, list[str]]:
    """A number for each row's topic, -1 for a row without one, and the topics by number."""
    topics = rows["topic"]
    if not pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_encode()
    codes: Int64s = pc.fill_null(topics.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return codes, topics.dictionary.to_pylist()


def _store_times_ms(rows: pa.RecordBatch) -> Int64s:
    micros = rows["store_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    times: Int64s = pc.fill_null(micros, NO_TIME).to_numpy(zero_copy_only=False)
    return np.where(times == NO_TIME, times, times // 1000)


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
