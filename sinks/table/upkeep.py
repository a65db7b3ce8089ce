"""Keeping a message table tidy while it grows: files are merged, old rows are deleted, the log is cut.

A file of a micro-batch has the rows of a few seconds in the order of the log. Files that follow each other there are
merged again and again, eight and more at a time, until they have `TARGET_BYTES` or `TARGET_ROWS`. A merged file is
sorted by topic, and by physical offset within a topic: readers that want a topic, an hour or an offset open few files,
and read few of their row groups. Files are merged only with files of the same day, so that old days can be removed as
files.

Rows that have expired by ``tableRetention`` are deleted, a few files at a time, with one commit for these. A file is
opened only when one of its rows may have expired; then it is known when the next one will expire. Older versions of the
table have the rows as long as they can be read.

All of it happens between two commits of the broker's messages, by the thread that makes them, a bounded piece at a
time; only the files of a merge may be written by another thread meanwhile. It may be interrupted anywhere: a merge is
one commit. The files of an interrupted merge stay on disk without being part of the table.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reput.sinks.table.cleaning import LOG_KEPT, clean_log, is_below
from reput.sinks.table.data_file import (
    MERGED,
    DataFile,
    FileStatistics,
    is_of_broker,
    keys_file,
    remove_data_files,
    without_views,
    write_key_filter,
    write_key_filter_of,
)
from reput.sinks.table.delta_table import Change, DeltaTable, Note
from reput.sinks.table.history import EXPIRED
from reput.sinks.table.log import Snapshot
from reput.sinks.table.message_file import (
    DELTA_COLUMNS,
    DICTIONARY_NUMBERS,
    PREFIX_COLUMNS,
    STATISTICS_COLUMNS,
    TEXT_COLUMNS,
    RestOfFiles,
    columns_with_bounds,
)
from reput.sinks.table.retention import (
    ALL_FOREVER,
    NEVER_MS,
    NO_TIME,
    Expired,
    ExpiryLimits,
    RowRetention,
    expiry_ms,
    numbered,
    store_times_ms,
)
from reput.sinks.table.storage import TableStorage
from reput.source.arrays import Bools, Int64s
from reput.source.errors import MayPassError, OutputError, ReputError, TransientError
from reput.source.log.store_layout import file_name
from reput.source.printable import printable

_log = logging.getLogger("reput")
# ----------------------------------------------------------------------------------------------------------------------
# The rows of a data file that have expired by ``tableRetention``, and when the next one will.

_ROWS_LOOKED_AT = 128 * 1024
_COLUMNS = ("broker", "topic", "store_time")


@dataclass(frozen=True)
class FileExpiry:
    """The number of expired rows of a file, and when the first of all expires, or did, in milliseconds since 1970."""

    rows: int
    first_ms: int


@dataclass(frozen=True)
class ExpiredRows:
    """The rows of `broker` that have expired by `limits`."""

    broker: str
    limits: ExpiryLimits

    def mask(self, rows: pa.RecordBatch) -> Bools:
        """Which of the rows have expired."""
        return is_of_broker(rows, self.broker) & self.limits.mask(*_topics_and_times(rows))

    def look_into(self, storage: TableStorage, name: str) -> FileExpiry:
        """Search a data file, also among rows that a deletion vector deletes.

        Raises
        ------
        OSError, LookupError, pa.ArrowException
            The file cannot be read.
        """
        expired, first_ms = 0, NEVER_MS
        with storage.parquet(name, coerce_int96_timestamp_unit="us") as file:
            for rows in map(without_views, file.iter_batches(_ROWS_LOOKED_AT, columns=list(_COLUMNS))):
                codes, topics, times = _topics_and_times(rows)
                counted = is_of_broker(rows, self.broker) & (times != NO_TIME)
                expired += int(np.count_nonzero(counted & self.limits.mask(codes, topics, times)))
                least = np.full(len(topics) + 1, NEVER_MS, np.int64)  # the last is for rows without a topic
                np.minimum.at(least, codes[counted], times[counted])
                oldest = dict(zip(topics, least.tolist(), strict=False))
                there = {topic: time_ms for topic, time_ms in oldest.items() if time_ms < NEVER_MS}
                first_ms = min(first_ms, self.limits.first_expiry_ms(there))
        return FileExpiry(expired, first_ms)


def _topics_and_times(rows: pa.RecordBatch) -> tuple[Int64s, list[str], Int64s]:
    return *numbered(rows["topic"]), store_times_ms(rows["store_time"])


# With more files, more work is lost if the commit fails: their remaining rows are written before it.
_FILES_A_COMMIT = 16


class TableExpiry:
    """Deletes expired rows of one broker from the files that it is given."""

    def __init__(self, table: DeltaTable, broker: str, retention: RowRetention) -> None:
        self._table = table
        self._broker = broker
        self._retention = retention
        # The files that may have rows of the broker, by path, and when a row of each may expire first (ms since 1970).
        self._files: dict[str, DataFile] = {}
        self._due_ms: dict[str, int] = {}

    def look_at(self, files: Iterable[DataFile]) -> None:
        """Take the files of the table's present version; a new one may have expired rows."""
        if (days := self._retention.days_min) is None:
            return
        self._files = {file.path: file for file in files if file.bounds.may_hold(self._broker)}
        known, self._due_ms = self._due_ms, {}
        for path, file in self._files.items():
            first_time = file.bounds.store_times[0]
            first_ms = 0 if first_time is None else int(first_time.timestamp() * 1000)
            self._due_ms[path] = known.get(path, expiry_ms(first_ms, days))

    def step(self, until: float | None = None) -> Expired:
        """Delete the expired rows of some files in one commit; return no rows if there was nothing to commit.

        After `until`, by the monotonic clock, no further file is opened.

        Raises
        ------
        ReputError
            The table cannot be written, or not by reput.
        pa.ArrowException, OSError, LookupError
            A file cannot be read.
        """
        limits = self._retention.limits(time.time())
        rows, wanted = ExpiredRows(self._broker, limits), dict[str, DataFile]()
        for path, file in self._files.items():
            if self._due_ms[path] > limits.today_ms:
                continue
            self._due_ms[path] = rows.look_into(self._table.storage, path).first_ms
            if self._due_ms[path] <= limits.today_ms:
                wanted[path] = file
            if len(wanted) == _FILES_A_COMMIT or (until is not None and time.monotonic() >= until):
                break
        return self._take(wanted, rows) if wanted else Expired()

    def _take(self, files: Mapping[str, DataFile], rows: ExpiredRows) -> Expired:
        rests = RestOfFiles(rows.mask)
        done = Expired()

        def change(snapshot: Snapshot) -> Change | None:
            there = (file for file in self._table.files(snapshot) if file.path in files)
            removed, added = rests.of_all(snapshot, there)
            if not removed:
                return None
            done.rows, done.files = sum(removed.values()), len(removed)
            return Change(added, [*removed], None, note=self._note(removed), deleted=done.rows)

        if self._table.commit(change) is None:  # deletion vectors deleted them, or others removed the files
            self._due_ms.update(dict.fromkeys(files, NEVER_MS))
        return done

    def _note(self, removed: Mapping[DataFile, int]) -> dict[str, Any]:
        taken = [(file.bounds.least, file.bounds.greatest, count) for file, count in removed.items()]
        note: dict[str, Any] = {"broker": self._broker, "what": EXPIRED, "retention": str(self._retention)}
        known = [(least, greatest) for least, greatest, _ in taken if least is not None and greatest is not None]
        if len(known) < len(taken):
            return note
        start, end = min(least for least, _ in known), max(greatest for _, greatest in known) + 1
        return note | {"start": start, "end": end, "taken": taken}


# ----------------------------------------------------------------------------------------------------------------------
# Fewer and larger files from a table's small ones, with rows of a topic together.

# The numbers of files of one level that are merged, with the smaller ones between them. A level's files are as many
# times as large as those of the level below, so each row is written once per level.
_MERGED_MIN, _MERGED_MAX = 8, 64
# The encoded size of rows in the files for which the rows and their sorted copy fit into 500 MB of memory.
_ENCODED_BYTES = 96 * 1024 * 1024
# The most texts of a dictionary that is repeated in each row group.
_TEXTS_MAX = 1024
# Small groups, so that a reader of one topic reads little of the others.
_ROWS_A_GROUP = 32 * 1024
# Each row has another text in these columns, so that minima and maxima exclude nothing: each row group has Bloom
# filters, with which Spark and DuckDB skip it.
_FILTERED_COLUMNS = ("first_key", "uniq_key", "msg_id")
_FALSE_POSITIVES = 0.01
# The number of values that a column's encoder gets at once: with Arrow's 1024, dictionaries' statistics cost more than
# the data.
_ROWS_A_WRITE = 16 * 1024


def next_merge(files: Sequence[DataFile]) -> list[DataFile]:
    """The files to be merged next, consecutive in the log; empty if the table is tidy.

    The smallest come first, because they are the most. If a day is over, all that remain are merged.
    """
    ordered = sorted(files, key=_least)
    days = [list(each) for _, each in groupby(ordered, lambda file: file.days)]
    for day in days[:-1]:
        for run in _runs(day, math.inf):
            if len(merged := _fitting(run)) > 1:
                return merged
    for level in sorted({_level(file) for file in files if not file.is_large}):
        for day in days:
            for run in _runs(day, level):
                if sum(_level(file) == level for file in run) >= _MERGED_MIN:
                    return _fitting(run)
    return []


def _least(file: DataFile) -> int:
    assert file.bounds.least is not None  # of a file that reput wrote
    return file.bounds.least


def _level(file: DataFile) -> int:
    """The level of a file; files of one level are merged with each other."""
    return math.floor(math.log(max(file.share, 1e-9), _MERGED_MIN))


def _runs(files: Sequence[DataFile], level_max: float) -> Iterator[list[DataFile]]:
    """The consecutive files that are neither large nor above a level."""
    for is_small, run in groupby(files, lambda file: not file.is_large and _level(file) <= level_max):
        if is_small:
            yield list(run)


def _fitting(run: Sequence[DataFile]) -> list[DataFile]:
    """The first files of the run that make a file of the target size together."""
    fitting: list[DataFile] = []
    share = 0.0
    for file in run[:_MERGED_MAX]:
        if fitting and share + file.share > 1:
            break
        fitting.append(file)
        share += file.share
    return fitting


def next_unsorted(files: Sequence[DataFile]) -> list[DataFile]:
    """The oldest file that is large and in the order of the log, as large batches of a late tail write it, or none."""
    wanted = [file for file in files if file.is_large and not file.is_sorted]
    return sorted(wanted, key=_least)[:1]


def merged_files(storage: TableStorage, files: Sequence[DataFile]) -> list[DataFile]:
    """Write files, mostly one, with the rows of `files`, sorted, and their key filters; a commit makes them durable.

    The table's log is not changed.

    Raises
    ------
    OutputError
        A file cannot be written.
    OSError
        One of the files cannot be read.
    """
    return [_merged(storage, group) for group in _groups(storage, files)]


def _groups(storage: TableStorage, files: Sequence[DataFile]) -> Iterator[list[tuple[str, list[int]]]]:
    """The files' row groups, in the order of the log, as many at a time as fit into memory."""
    group: dict[str, list[int]] = {}
    encoded = 0
    for path in (file.path for file in files):
        with storage.parquet(path) as file:
            metadata = file.metadata
        for number in range(metadata.num_row_groups):
            size_bytes = metadata.row_group(number).total_byte_size
            if group and encoded + size_bytes > _ENCODED_BYTES:
                yield list(group.items())
                group, encoded = {}, 0
            group.setdefault(path, []).append(number)
            encoded += size_bytes
    yield list(group.items())


def _merged(storage: TableStorage, group: Sequence[tuple[str, list[int]]]) -> DataFile:
    rows = sorted_by_topic(_read(storage, group))
    statistics, buffer = FileStatistics(STATISTICS_COLUMNS), pa.BufferOutputStream()
    with _parquet_writer(buffer, rows.schema) as writer:
        writer.write_table(rows, row_group_size=_ROWS_A_GROUP)
    statistics.add(rows)
    least, greatest = pc.min_max(rows["physical_offset"]).as_py().values()
    name = f"{MERGED}{file_name(least)}-{file_name(greatest)}-{uuid.uuid4()}.zstd.parquet"
    file = DataFile.put(storage, name, buffer.getvalue(), statistics.to_json())
    write_key_filter(storage, name, rows)
    return file


def _read(storage: TableStorage, group: Sequence[tuple[str, list[int]]]) -> pa.Table:
    """The row groups' rows, one after the other; columns that others added to some files are null in the rest."""
    tables = []
    for path, numbers in group:
        with storage.parquet(path, texts=TEXT_COLUMNS) as file:
            tables.append(file.read_row_groups(numbers, use_threads=False))
    rows = pa.concat_tables(tables, promote_options="default").unify_dictionaries().combine_chunks()
    for number, column in enumerate(rows.columns):
        # A row group gets the whole dictionary, even if its rows use only a part of it.
        if pa.types.is_dictionary(column.type) and len(column.chunk(0).dictionary) > _TEXTS_MAX:
            field = rows.schema.field(number).with_type(pa.string())
            rows = rows.set_column(number, field, column.cast(pa.string()))
    return rows


def sorted_by_topic(rows: pa.Table) -> pa.Table:
    """The rows by topic, and by physical offset within one."""
    topics = rows["topic"].dictionary_encode().unify_dictionaries().combine_chunks()
    ranks = pc.rank(topics.dictionary, tiebreaker="dense").to_numpy()
    codes = np.append(ranks, 0)[pc.fill_null(topics.indices, len(ranks)).to_numpy()]
    order = np.lexsort((rows["physical_offset"].to_numpy(), codes))
    return rows.take(pa.array(order))


def _parquet_writer(buffer: pa.BufferOutputStream, schema: pa.Schema) -> pq.ParquetWriter:
    """Arrow's writer, into memory; it supports columns that others added, and Bloom filters."""
    options = {"ndv": _ROWS_A_GROUP, "fpp": _FALSE_POSITIVES}
    return pq.ParquetWriter(
        buffer,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[*TEXT_COLUMNS, "properties.key_value.key", *DICTIONARY_NUMBERS],
        column_encoding=dict.fromkeys(DELTA_COLUMNS, "DELTA_BINARY_PACKED")
        | dict.fromkeys(PREFIX_COLUMNS, "DELTA_BYTE_ARRAY"),
        write_statistics=columns_with_bounds(schema),
        write_batch_size=_ROWS_A_WRITE,
        store_schema=False,  # readers must see texts, not Arrow's dictionaries
        bloom_filter_options={name: options for name in _FILTERED_COLUMNS if name in schema.names} or None,
    )


# ----------------------------------------------------------------------------------------------------------------------
# Keeping a message table tidy while it grows: one broker's files are merged and get key filters, the log is cut.


_ROW_IDS = "delta.enableRowTracking"
# The number of commits between two cleanings of the log.
CLEANED_EVERY = 100


@dataclass
class UpkeepDone:
    """The result of upkeep: merges, files before and after them, commits removed from the log, expired rows removed.

    `files` are those of the table that may be merged, `small_files` those among them that are smaller than half a
    target file; both as they were last seen, None if never. `refused` says that upkeep has ended.
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
    """A merge whose files another thread writes, and that is not committed yet."""

    files: Sequence[DataFile]
    merged: Future[list[DataFile]]


class TableUpkeep:
    """Keeps the files of one broker in a table tidy."""

    def __init__(
        self, table: DeltaTable, broker: str, versions_kept: int, retention: RowRetention = ALL_FOREVER
    ) -> None:
        """Take `versions_kept`: this many last versions can be read and restored. `retention` is that of rows."""
        self._table = table
        self._expiry = TableExpiry(table, broker, retention)
        self._broker = broker
        self._versions_kept = versions_kept
        # The files of the present version by path, once they have been listed; None for files that are left unchanged.
        self._known: dict[str, DataFile | None] | None = None
        # The files that may lack their key filter.
        self._unfiltered: list[str] = []
        self._properties: dict[str, str] = {}
        self._cleaned_at = -1
        self._begun: _Begun | None = None
        self._refused = False
        self._missed_file = False

    def step(self, seconds: float, *, sorts: bool = True, beside: Executor | None = None) -> UpkeepDone:
        """Do what is most due, one merge at least, and begin no other after `seconds`; `sorts` also large files.

        With `beside`, which writes the files of one merge after the other, a merge is only begun. The first step that
        finds its files written commits it.

        This raises no errors: a full disk and other writers' commits end the step. Any other error ends the upkeep
        until the next start, which is logged once.
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
            self._missed_file = True
        except (ReputError, pa.ArrowException, OSError, ValueError, LookupError) as error:
            self._refuse(error)
        done.refused = self._refused
        if self._known is not None:
            files = [file for file in self._known.values() if file is not None]
            done.files, done.small_files = len(files), sum(not file.is_large for file in files)
        return done

    @property
    def has_written(self) -> bool:
        """Whether the files of a begun merge are written, or failed to be, so that a step has work."""
        return self._begun is not None and self._begun.merged.done()

    def give_up(self) -> None:
        """Wait until nothing is being written, and remove the files of a merge that was not committed."""
        begun, self._begun = self._begun, None
        if begun is not None:
            with suppress(ReputError, pa.ArrowException, OSError, ValueError, LookupError):
                self._remove(begun.merged.result())

    def _refuse(self, error: BaseException) -> None:
        """End the upkeep; if the table cannot be written at all, the next commit of messages reports it."""
        self._refused = True
        why = printable(str(error).partition("\n")[0])
        _log.warning("%s: it is not tidied before the next start: %s", self._table.path, why)

    def to_the_end(self) -> UpkeepDone:
        """Merge, sort and write key filters until nothing is due; unlike `step`, this raises errors.

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
        """Delete all expired rows; raises the errors of `to_the_end`."""
        done = UpkeepDone()
        try:
            self._files()
            self._expire(done)
        except FileNotFoundError as error:
            raise (self._lost_file_error() or error) from error
        return done.expired

    def _lost_file_error(self) -> OutputError | None:
        """The error for the first file of the last seen version that is not on the disk; None if all are."""
        storage = self._table.storage
        names = list(self._known or ())
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

    def _next(self, *, sorts: bool) -> list[DataFile]:
        files = self._files()
        return next_merge(files) or (next_unsorted(files) if sorts else [])

    def _files(self) -> list[DataFile]:
        """The files of the present version that have only rows of the broker and were written by reput."""
        self._properties, files = self._table.of_snapshot(
            lambda snapshot: (snapshot.properties, [*self._table.files(snapshot)])
        )
        if self._properties.get(_ROW_IDS) == "true":
            raise OutputError(f"{_ROW_IDS} is on, and reput gives no row its old number", file=self._table.path)
        known = self._known or {}
        for file in files:
            if file.path not in known:
                if (file.bounds.brokers or [None])[0] == self._broker:  # of a file of several, one writes the filter
                    self._unfiltered.append(file.path)
                is_ours = file.is_own and file.bounds.broker == self._broker
                known[file.path] = file if is_ours and None not in (file.bounds.least, file.bounds.greatest) else None
        self._known = {file.path: known[file.path] for file in files}
        self._unfiltered = [path for path in self._unfiltered if path in self._known]
        self._expiry.look_at(files)
        return [file for file in self._known.values() if file is not None]

    def _filter(self, name: str) -> None:
        storage = self._table.storage
        if is_below(name) and storage.status(keys_file(name)) is None:
            write_key_filter_of(storage, name)

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
            if beside is not None:
                self._begun = _Begun(files, beside.submit(merged_files, self._table.storage, files))
                break
            self._commit(files, merged_files(self._table.storage, files), done)
            if until is not None and time.monotonic() >= until:
                break

    def _commit_begun(self, done: UpkeepDone) -> None:
        assert self._begun is not None
        begun, self._begun = self._begun, None
        self._commit(begun.files, begun.merged.result(), done)

    def _commit(self, files: Sequence[DataFile], merged: Sequence[DataFile], done: UpkeepDone) -> None:
        start, end = _least(files[0]), max(file.bounds.greatest or 0 for file in files) + 1
        # After an error it is unknown whether the commit is in the log, so the merged files stay.
        note: Note = {"broker": self._broker, "what": "merged", "start": start, "end": end}
        if not self._table.rewrite([file.path for file in files], merged, note):
            self._remove(merged)
            self._leave(files)
            return
        if len(merged) >= len(files) > 1:  # the rows are so wide that few of them fit into memory
            self._leave_as_is(file.path for file in merged)
        self._missed_file = False
        done.merges += 1
        done.files_before += len(files)
        done.files_after += len(merged)

    def _leave(self, files: Sequence[DataFile]) -> None:
        """Leave files that cannot be merged unchanged: those of which a deletion vector has deleted rows.

        If there are none, and all files still exist, the cause is unknown, so all are left unchanged.
        """
        paths = {file.path for file in files}
        there = {file.path: file for file in self._table.files_of(self._broker) if file.path in paths}
        cut = [path for path, file in there.items() if file.vector is not None]
        self._leave_as_is(cut or (paths if there.keys() == paths else ()))

    def _leave_as_is(self, paths: Iterable[str]) -> None:
        self._known = {**(self._known or {}), **dict.fromkeys(paths, None)}

    def _remove(self, files: Sequence[DataFile]) -> None:
        remove_data_files(self._table.storage, (file.path for file in files))

    def _clean(self, done: UpkeepDone) -> None:
        version = self._table.version
        if version < self._cleaned_at + CLEANED_EVERY:
            return
        self._cleaned_at = version
        if LOG_KEPT in self._properties:
            return
        with suppress(FileNotFoundError):  # another reput on this table also removes it
            done.commits_removed = clean_log(self._table.path, version, self._versions_kept)
