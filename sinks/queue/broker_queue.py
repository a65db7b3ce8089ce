"""A broker's queues in memory from its start on: what it keeps of their files, and where the next entries go.

``ConsumeQueue#recover``, ``#truncateDirtyLogicFiles`` and ``#putMessagePositionInfo``, with ``MappedFileQueue`` below
them, in which 4.9.3 and 5.5.0 agree. Also ``BatchConsumeQueue`` of 5.5.0. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from reput.sinks.formats.consume_queue import (
    BATCH_ENTRY,
    CQ_STORE_UNIT_SIZE,
    ENTRY,
    PRE_BLANK,
    is_pre_blank,
    is_written,
)
from reput.sinks.queue.queue_reader import Units, read_units
from reput.sinks.queue.rocksdb_queue import Place
from reput.source.arrays import Bools, Bytes, Int64s, leading

# ``ConsumeQueue#recover`` reads this many files, the last ones.
_RECOVERED_FILES = 3
_NEVER = -1


@dataclass
class QueueFile:
    """One file: its first byte in the queue, its written bytes, its path or None if the broker has just made it.

    `is_first` is whether it was made for a queue without files, whose front is then filled; `unit` is an entry's dtype.
    """

    begin: int
    wrote: int
    path: Path | None = None
    is_first: bool = False
    unit: np.dtype[Any] = ENTRY
    _units: Units | None = None

    @property
    def units(self) -> Units:
        """The units up to the hole at the file's end, including those that were put; kept in memory."""
        if self._units is None:
            self._units = self.read().copy()
        return self._units

    def read(self) -> Units:
        """The same units for a single use: they are not kept in memory."""
        if self._units is not None:
            return self._units
        return np.empty(0, self.unit) if self.path is None else read_units(self.path, self.unit)

    def put(self, units: Units) -> None:
        """Write units after the written ones."""
        known, at = self.units, self.wrote // self.unit.itemsize
        end = at + len(units)
        if end > len(known):
            # Room for half as many more: entries come a few at a time.
            grown = np.zeros(end + end // 2 + 16, self.unit)
            grown[: len(known)] = known
            known = self._units = grown
        known[at:end] = units
        self.wrote += len(units) * self.unit.itemsize


@dataclass
class BrokerQueue:
    """One queue as the broker has it after loading its files; `size` is a file's in bytes.

    `removed` are the paths of files that the broker deletes.
    """

    unit: ClassVar[np.dtype[Any]] = ENTRY

    topic: str
    queue_id: int
    size: int
    files: list[QueueFile] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)
    max_physic_offset: int = _NEVER

    @property
    def max_offset(self) -> int:
        """The queue offset after its last entry."""
        return (self.files[-1].begin + self.files[-1].wrote) // CQ_STORE_UNIT_SIZE if self.files else 0

    @property
    def last_end(self) -> int:
        """The physical offset where the record of its last entry ends; 0 without entries."""
        for file in self.files[::-1]:
            units = file.read()[: file.wrote // self.unit.itemsize]
            found = np.flatnonzero(self._leads_to_a_record(units[-1:]))
            if len(found):
                return _end_of(units[-1])
            if len(units):
                break
        return 0

    def recover(self) -> None:
        """Find the end of the entries in the last files, and remove later files (``#recover``)."""
        if not self.files:
            return
        end = 0
        for file in self.files[-_RECOVERED_FILES:]:
            units = file.units[: self.size // self.unit.itemsize]
            count = leading(self._is_valid(units))
            if count:
                self.max_physic_offset = self._reached(units[count - 1])
            end = file.begin + count * self.unit.itemsize
            if count * self.unit.itemsize < self.size:
                break
        kept = []
        for file in self.files:
            if file.begin + self.size <= end:
                kept.append(file)
            elif end >= file.begin:
                file.wrote = end - file.begin
                kept.append(file)
            else:
                self._remove(file)
        self.files = kept

    def truncate(self, physical_offset: int) -> None:
        """Cut the entries of records from `physical_offset` on, as far as the last file goes (``truncateDirty...``).

        A file is removed only if its first entry is cut. A first entry that stays counts as written, whatever it is.
        """
        self.max_physic_offset = self._before(physical_offset)
        while self.files:
            file = self.files[-1]
            units = file.units[: self.size // self.unit.itemsize]
            first = units[0] if len(units) else np.zeros(1, self.unit)[0]
            if first["physical_offset"] < physical_offset:
                rest = units[1:]
                count = 1 + leading(self._is_valid(rest) & (rest["physical_offset"] < physical_offset))
                file.wrote = count * self.unit.itemsize
                self.max_physic_offset = self._reached(units[count - 1] if len(units) else first)
                return
            self._remove(self.files.pop())

    def destroy(self) -> None:
        """Remove all files: the log is gone (``DefaultMessageStore#destroyLogics``)."""
        for file in self.files:
            self._remove(file)
        self.files, self.max_physic_offset = [], _NEVER

    def put(self, entries: Bytes, queue_offsets: Int64s) -> None:
        """Put entries (uint8[n, 20]) of records with these queue offsets, in log order."""
        units: Units = entries.view(ENTRY)[:, 0]
        ends = units["physical_offset"].astype(np.int64) + units["msg_size"]
        # Records that end at or before the last record with an entry get none; that end only grows here.
        later = np.flatnonzero(ends > self.max_physic_offset)
        units, queue_offsets, ends = units[later], queue_offsets[later], ends[later]
        runs_on = np.ones(len(units), bool)
        runs_on[1:] = (queue_offsets[1:] - queue_offsets[:-1] == 1) & (ends[1:] > ends[:-1])
        breaks = [*np.flatnonzero(~runs_on).tolist(), len(units)]
        row = 0
        while row < len(units):
            is_put = self._put_one(units[row], int(queue_offsets[row]), int(ends[row]))
            row += 1
            if breaks[0] < row:
                breaks.pop(0)
            if is_put and row < breaks[0] and int(queue_offsets[row]) == self.max_offset:
                self._put_run(units[row : breaks[0]])
                row = breaks[0]

    def _put_one(self, unit: np.void, queue_offset: int, end: int) -> bool:
        """``#putMessagePositionInfo``; False if nothing is put."""
        if end <= self.max_physic_offset:
            return False
        at = queue_offset * CQ_STORE_UNIT_SIZE
        file = self._last_file(at)
        if file.is_first and queue_offset != 0 and file.wrote == 0:
            file.put(np.full(max(0, at % self.size) // CQ_STORE_UNIT_SIZE, PRE_BLANK))
        if queue_offset != 0 and at < file.begin + file.wrote:
            return False
        self.max_physic_offset = end
        file.put(np.array([unit], ENTRY))
        return True

    def _put_run(self, units: Units) -> None:
        """Put entries with consecutive queue offsets, of which the first is the queue's end."""
        while len(units):
            file = self._last_file(self.max_offset * CQ_STORE_UNIT_SIZE)
            some = units[: (self.size - file.wrote) // CQ_STORE_UNIT_SIZE]
            file.put(some)
            self.max_physic_offset = _end_of(some[-1])
            units = units[len(some) :]

    def _last_file(self, at: int) -> QueueFile:
        """The file that takes the next entry (``MappedFileQueue#getLastMappedFile``)."""
        if not self.files:
            self.files.append(QueueFile(at - at % self.size, 0, is_first=True))
        elif self.files[-1].wrote == self.size:
            self.files.append(QueueFile(self.files[-1].begin + self.size, 0))
        return self.files[-1]

    def entries_from(self, physical_offset: int) -> int:
        """The number of entries of records from `physical_offset` on."""
        return sum(
            int(np.count_nonzero((units["physical_offset"] >= physical_offset) & self._leads_to_a_record(units)))
            for units in self._written()
        )

    def entries_in(self, ranges: Sequence[tuple[int, int]]) -> int:
        """The number of entries of records in some ranges of the log, `(begin, end)` with the end exclusive."""
        count = 0
        for units in self._written() if ranges else ():
            offsets, is_real = units["physical_offset"], self._leads_to_a_record(units)
            count += sum(int(np.count_nonzero(is_real & (offsets >= a) & (offsets < b))) for a, b in ranges)
        return count

    def _leads_to_a_record(self, units: Units) -> Bools:
        """Which units are entries: files that recovery does not read may have zeros between them."""
        real: Bools = is_written(units) & ~is_pre_blank(units)
        return real

    def _is_valid(self, units: Units) -> Bools:
        """Which units recovery takes for entries."""
        written: Bools = is_written(units)
        return written

    def _reached(self, unit: np.void) -> int:
        """The queue's `max_physic_offset` with this last entry."""
        return _end_of(unit)

    def _before(self, physical_offset: int) -> int:
        """The queue's `max_physic_offset` after a cut at an offset that leaves no entry."""
        return physical_offset

    def _remove(self, file: QueueFile) -> None:
        if file.path is not None:
            self.removed.append(file.path)

    def _written(self) -> Iterator[Units]:
        for file in self.files:
            yield file.read()[: file.wrote // self.unit.itemsize]


@dataclass
class BrokerBatchQueue(BrokerQueue):
    """A BatchConsumeQueue of 5.5.0. Its `max_physic_offset` is where the last record begins.

    An entry has as many queue offsets as its inner batch has messages.
    """

    unit: ClassVar[np.dtype[Any]] = BATCH_ENTRY

    @property
    def max_offset(self) -> int:
        """The queue offset after its last message (``#reviseMaxOffsetInQueue`` looks into the last two files)."""
        for file in self.files[-2:][::-1]:
            number = file.wrote // self.unit.itemsize
            if number:
                units = file.units[number - 1 : number]
                last = units[0] if len(units) else np.zeros(1, self.unit)[0]
                return int(last["msg_base_offset"]) + int(last["batch_size"])
        return 0

    def put(self, entries: Bytes, queue_offsets: Int64s) -> None:  # noqa: ARG002  the entries have them
        """Put entries (uint8[n, 46]) of records, in log order (``#putBatchMessagePositionInfo``)."""
        units: Units = entries.view(BATCH_ENTRY)[:, 0]
        for unit in units[units["physical_offset"] > self.max_physic_offset]:
            if not self.files:
                self.files.append(QueueFile(0, 0, unit=self.unit))
            elif self.files[-1].wrote == self.size:
                self.files.append(QueueFile(self.files[-1].begin + self.size, 0, unit=self.unit))
            self.files[-1].put(np.array([unit], self.unit))
            self.max_physic_offset = int(unit["physical_offset"])

    def _leads_to_a_record(self, units: Units) -> Bools:
        written: Bools = is_written(units)
        return written

    def _is_valid(self, units: Units) -> Bools:
        valid: Bools = is_written(units) & (units["msg_base_offset"] >= 0) & (units["batch_size"] > 0)
        return valid

    def _reached(self, unit: np.void) -> int:
        return int(unit["physical_offset"])

    def _before(self, physical_offset: int) -> int:
        return physical_offset - 1


@dataclass
class BrokerRocksDBQueue(BrokerQueue):
    """A queue in RocksDB: it has an entry for each queue offset that was put, in any order, and no file.

    `last` is the entry that was put last (``RocksDBConsumeQueueStore#putMessagePosition0``). `first` is the first entry
    that the log still had when a broker last searched for it.
    """

    last: Place | None = None
    first: Place | None = None
    _put: list[tuple[Int64s, Units]] = field(default_factory=list)

    @property
    def max_offset(self) -> int:
        """The queue offset after its last entry."""
        return 0 if self.last is None else self.last.queue_offset + 1

    @property
    def last_end(self) -> int:
        """The physical offset where the record of its last entry ends; 0 without entries."""
        queue_offsets, units = self._joined()
        found = np.flatnonzero(queue_offsets == self.max_offset - 1)
        return _end_of(units[found[-1]]) if len(found) else 0

    def hold(self, queue_offsets: Int64s, units: Units) -> None:
        """Take entries of the database."""
        self._put.append((queue_offsets, units))

    def put(self, entries: Bytes, queue_offsets: Int64s) -> None:
        """Put entries (uint8[n, 20]) of records with these queue offsets, in log order, over those with the same."""
        units: Units = entries.view(ENTRY)[:, 0]
        if len(units):
            self.hold(queue_offsets, units.copy())
            # If a message names the queue twice, a broker takes the first of its entries for the queue's last.
            at = int(np.flatnonzero(units["physical_offset"] == units["physical_offset"][-1])[0])
            self.last = Place(int(units["physical_offset"][at]), int(queue_offsets[at]))
            self.max_physic_offset = max(self.max_physic_offset, _end_of(units[-1]))

    def cut(self, physical_offset: int, log_begin: int) -> None:
        """Cut a queue whose last record begins at `physical_offset` or later (``#correctMaxCqOffset``).

        The search is the broker's: it stops at the entry of a record that begins exactly at the offset, and so may keep
        one entry too many. A queue without an entry before the offset is not changed.
        """
        first = self.first
        if first is None or first.physical_offset < log_begin:
            first = self._search(0 if first is None else first.queue_offset, log_begin, wants_first=True)
        if first is None or first.physical_offset > physical_offset:
            return
        self.last = self._search(first.queue_offset, physical_offset, wants_first=False) or first

    def _search(self, low: int, physical_offset: int, *, wants_first: bool) -> Place | None:
        """``RocksDBConsumeQueueTable#binarySearchInCQ`` from a queue offset to the last one."""
        numbers, units = self._joined()
        found, high = None, self.max_offset - 1
        while high >= low:
            number = low + (high - low) // 2
            at = int(np.searchsorted(numbers, number))
            if at == len(numbers) or numbers[at] != number:
                low = number + 1
                continue
            place = Place(int(units["physical_offset"][at]), number)
            if place.physical_offset == physical_offset:
                return place if wants_first else found
            if place.physical_offset > physical_offset:
                high = number - 1
            else:
                low = number + 1
            if (place.physical_offset > physical_offset) == wants_first:
                found = place
        return found

    def _joined(self) -> tuple[Int64s, Units]:
        """All entries by queue offset, each the last one that was put there."""
        if not self._put:
            return np.empty(0, np.int64), np.empty(0, ENTRY)
        queue_offsets = np.concatenate([offsets for offsets, _ in self._put])[::-1]
        units = np.concatenate([units for _, units in self._put])[::-1]
        numbers, rows = np.unique(queue_offsets, return_index=True)
        is_read = numbers < self.max_offset
        self._put = [(numbers, units[rows])]
        return numbers[is_read], units[rows][is_read]

    def _written(self) -> Iterator[Units]:
        yield self._joined()[1]


def _end_of(unit: np.void) -> int:
    return int(unit["physical_offset"]) + int(unit["msg_size"])
