"""Rows that are taken from a table's files: each file that has such rows is replaced by one with its other rows.

``RestOfFiles`` does that for whoever takes rows: those that have expired (``upkeep``), are forgotten (``forget``), or
are made again by the log (``RowReplacement``). Files that hold only such rows are just removed.
"""

from __future__ import annotations

import logging
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import TimestampType

from reput.sinks.table.data_file import DataFile, live_numbers, rows_at
from reput.sinks.table.delta_table import Change, DeltaTable
from reput.sinks.table.log import Snapshot
from reput.sinks.table.message_file import FileStatistics
from reput.sinks.table.storage import output_errors
from reput.source.arrays import Bools

_log = logging.getLogger("reput")


class LogRanges:
    """Separate ranges `[start, end)` of the log."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self.ranges = sorted(ranges)
        self._starts = [start for start, _ in self.ranges]

    @property
    def hull(self) -> tuple[int, int]:
        """The first range's start and the last range's end."""
        return self.ranges[0][0], self.ranges[-1][1]

    def around(self, physical_offset: int) -> tuple[int, int] | None:
        """The range with a physical offset; None if there is none."""
        number = bisect_right(self._starts, physical_offset) - 1
        return self.ranges[number] if number >= 0 and physical_offset < self.ranges[number][1] else None

    def overlap(self, least: int | None, greatest: int | None) -> bool:
        """Whether an offset from `least` to `greatest`, both included, may be in a range."""
        if least is None or greatest is None:
            return True
        return any(start <= greatest and least < end for start, end in self.ranges)

    def mask(self, physical_offsets: npt.NDArray[np.int64]) -> Bools:
        """Which of the physical offsets are in a range."""
        starts = np.array(self._starts, np.int64)
        ends = np.array([end for _, end in self.ranges], np.int64)
        number = np.searchsorted(starts, physical_offsets, "right") - 1
        return (number >= 0) & (physical_offsets < ends[np.maximum(number, 0)])


class RowReplacement:
    """Replaces one broker's rows of `ranges` by those in `files`, which tasks wrote below the table's root."""

    def __init__(
        self,
        table: DeltaTable,
        broker: str,
        ranges: LogRanges,
        files: Sequence[DataFile],
        bad: Sequence[DataFile] = (),
    ) -> None:
        """`bad` are files that are removed with all their rows, since they cannot be read."""
        self._table = table
        self._broker = broker
        self._ranges = ranges
        self._files = files
        self._bad = {file.path for file in bad}
        self._rests = RestOfFiles(table, self._replaced)

    def commit(self, app_id: str, end_offset: int) -> int:
        """Make the commit, with transaction `end_offset` of `app_id`, whether or not it is above the last one.

        Returns the table's new version; the commit is durable. Raises what ``DeltaTable.append`` raises.
        """
        return self._table.commit(lambda snapshot: self._change(snapshot, app_id, end_offset))

    def _change(self, snapshot: Snapshot, app_id: str, end_offset: int) -> Change:
        removed, added = [], list(self._files)
        for file in self._table.files_between(snapshot, *self._searched):
            if file.path in self._bad:
                removed.append(file)
                continue
            bounds = file.bounds
            if not bounds.may_hold(self._broker) or not self._ranges.overlap(bounds.least, bounds.greatest):
                continue
            around = None if bounds.least is None else self._ranges.around(bounds.least)
            if around is None or not bounds.is_only(self._broker, *around):
                holds_some, rest = self._rest_of(file)
                if not holds_some:
                    continue
                added += [rest] if rest is not None else []
            removed.append(file)
        note = {"broker": self._broker, "what": "made again", "ranges": str(self._ranges.ranges)}
        return Change(added, removed, (app_id, end_offset), is_next=False, note=note)

    @property
    def _searched(self) -> tuple[int, int]:
        if self._bad:
            return -(2**63), 2**63 - 1
        return self._ranges.hull if self._ranges.ranges else (0, 0)

    def _rest_of(self, file: DataFile) -> tuple[bool, DataFile | None]:
        """Whether the file has rows to replace, and a new file with its other rows, None without any."""
        there = self._table.storage.status(file.path)
        if there is not None and there.size_bytes == file.size_bytes:
            rest = self._rests.of(file)
            return rest.taken > 0, rest.file
        text = "%s cannot be read: with it %s rows are gone, of other brokers, too, if it had such"
        _log.warning(text, self._table.path / file.path, file.bounds.rows)
        return True, None

    def _replaced(self, rows: pa.RecordBatch) -> Bools:
        ours = pc.fill_null(pc.equal(rows["broker"], self._broker), fill_value=False)
        physical_offsets = pc.fill_null(rows["physical_offset"], -1).to_numpy(zero_copy_only=False)
        mask: Bools = ours.to_numpy(zero_copy_only=False) & self._ranges.mask(physical_offsets)
        return mask


@dataclass(frozen=True)
class Rest:
    """How many rows were taken from a file, and the new file with those that stay, None without any."""

    taken: int
    file: DataFile | None


class _NothingToKeepError(Exception):
    """A new file is not wanted: no row was taken, or none stays."""


class RestOfFiles:
    """Writes the rows that stay of data files from which others are taken; nothing of the table's log is changed.

    Columns that others added stay, and rows that a deletion vector takes away are not written.
    """

    def __init__(self, table: DeltaTable, taken: Callable[[pa.RecordBatch], Bools]) -> None:
        """`taken` says which of some rows are taken."""
        self._table = table
        self._taken = taken
        # A rest that was written is still good when another writer was first and the commit is made again.
        self._known: dict[tuple[str, object], Rest] = {}

    def of_all(self, files: Iterable[DataFile], *, always: bool = False) -> tuple[dict[DataFile, int], list[DataFile]]:
        """Those of the table's files that have rows to take, with how many, and their rests; the rest as in `of`."""
        removed, added = dict[DataFile, int](), list[DataFile]()
        for file in files:
            rest = self.of(file, always=always)
            if rest.taken or always:
                removed[file] = rest.taken
                added += [] if rest.file is None else [rest.file]
        return removed, added

    def of(self, file: DataFile, *, always: bool = False) -> Rest:
        """The rest of a file of the table; it is written if rows are taken, or `always`.

        Raises
        ------
        OutputError
            The file cannot be read, or its rest not be written.
        """
        if file.key not in self._known:
            path = self._table.path / file.path
            with output_errors(f"cannot read the deletion vector of {path}", path):
                live = live_numbers(self._table.storage, file)
            self._known[file.key] = self.write(file.path, live, always=always)
        return self._known[file.key]

    def write(self, source: str, live: npt.NDArray[np.int64] | None, *, always: bool = False) -> Rest:
        """The rest of the file `source`, of which only the rows with the numbers `live` there are, or all; see `of`."""
        name = f"part-rest-{uuid.uuid4()}.zstd.parquet"
        root, statistics, taken = self._table.path, FileStatistics(), 0
        writer: pq.ParquetWriter | None = None
        what = f"cannot write the rows of {root / source} that stay to {root / name}"
        with suppress(_NothingToKeepError), output_errors(what, root / name), self._table.storage.new(name) as file:
            with ExitStack() as stack:
                for batch, gone in self._batches(source, live):
                    taken += int(np.count_nonzero(gone))
                    kept = pa.Table.from_batches([batch.filter(pa.array(~gone))])
                    if writer is None:
                        writer = pq.ParquetWriter(file, kept.schema, compression="zstd", store_schema=False)
                        stack.enter_context(writer)
                    if kept.num_rows:
                        writer.write_table(kept)
                        statistics.add(kept.combine_chunks())
            if not (taken or always) or not statistics.rows:
                raise _NothingToKeepError
            return Rest(taken, DataFile.new(name, file.tell(), statistics.to_json()))
        return Rest(taken, None)

    def _batches(self, name: str, live: npt.NDArray[np.int64] | None) -> Iterator[tuple[pa.RecordBatch, Bools]]:
        """The live rows of a file in batches, and which of them are taken."""
        times = [field.name for field in self._table.schema if isinstance(field.dataType, TimestampType)]
        for batch in rows_at(self._table.storage, name, live):
            rows = _with_utc(batch, times)
            if rows.num_rows:
                yield rows, self._taken(rows)


def _with_utc(batch: pa.RecordBatch, times: Sequence[str]) -> pa.RecordBatch:
    """Mark the times as UTC: Spark may write them as INT96, which has no time zone."""
    columns = []
    for field, values in zip(batch.schema, batch.columns, strict=True):
        is_time = field.name in times and field.type != pa.timestamp("us", "UTC")
        columns.append(values.cast(pa.timestamp("us", "UTC")) if is_time else values)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
