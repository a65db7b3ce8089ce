"""Rows that are made again from the log: each file that has old ones is replaced by one with its other rows."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.sinks.table.data_file import DataFile, is_of_broker, offsets_in
from reput.sinks.table.delta_table import Change, DeltaTable
from reput.sinks.table.log import Snapshot
from reput.sinks.table.message_file import RestOfFiles
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
        """Take unreadable files as `bad`, which are removed with all their rows."""
        self._table = table
        self._broker = broker
        self._ranges = ranges
        self._files = files
        self._bad = {file.path for file in bad}
        self._rests = RestOfFiles(self._replaced)

    def commit(self, app_id: str, end_offset: int) -> int | None:
        """Make the commit, with transaction `end_offset` of `app_id`, whether or not it is above the last one.

        Returns the table's new version; the commit is durable. Raises the errors of ``DeltaTable.append``.
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
                holds_some, rest = self._rest_of(snapshot, file)
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

    def _rest_of(self, snapshot: Snapshot, file: DataFile) -> tuple[bool, DataFile | None]:
        """Whether the file has rows to replace, and a new file with its other rows, None without any."""
        there = self._table.storage.status(file.path)
        if there is not None and there.size_bytes == file.size_bytes:
            rest = self._rests.of(snapshot, file)
            return rest.taken > 0, rest.file
        text = "%s cannot be read: with it %s rows are gone, of other brokers, too, if it had such"
        _log.warning(text, self._table.path / file.path, file.bounds.rows)
        return True, None

    def _replaced(self, rows: pa.RecordBatch) -> Bools:
        return is_of_broker(rows, self._broker) & self._ranges.mask(offsets_in(rows))
