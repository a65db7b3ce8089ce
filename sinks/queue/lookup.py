"""Look-ups in one queue, in files or in RocksDB: entries by queue offset, offsets by time; nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, ENTRY, PRE_BLANK, is_ext_addr, is_written
from reput.sinks.queue.batch_consume_queue import BATCH_KIND
from reput.sinks.queue.consume_queue import KIND
from reput.sinks.queue.queue_reader import QueueKind, QueueReader, Units
from reput.sinks.queue.rocksdb_queue import RocksDBQueues
from reput.source.arrays import leading
from reput.source.errors import SinkError
from reput.source.log.mapped_file_queue import MappedFileQueue

# ``ConsumeQueue#recover`` searches for the end in the last three files and trusts those before them.
_FILES_RECOVERED = 3
_LMQ_PREFIX = "%LMQ%"
_OF_A_BATCH = ("msg_base_offset", "physical_offset", "msg_size", "tags_code")
_FILES_OF = {KIND.top: "ConsumeQueue", BATCH_KIND.top: "BatchConsumeQueue"}


class ConsumeQueueEntry(NamedTuple):
    """One entry; `queue_offset` is its number in the queue."""

    queue_offset: int
    physical_offset: int
    msg_size: int
    tags_code: int

    @property
    def is_pre_blank(self) -> bool:
        """Whether it only fills the front of a queue that begins inside a file (``ConsumeQueue#fillPreBlank``)."""
        return self[1:] == PRE_BLANK.item()

    @property
    def ext_address(self) -> int | None:
        """The address of the entry's ConsumeQueueExt unit, which replaces the tags code; None without a unit."""
        return self.tags_code if is_ext_addr(self.tags_code) else None


class _Queue:
    """The common part of look-ups in queues of any kind."""

    topic: str
    queue_id: int

    @property
    def name(self) -> str:
        return _name(self.topic, self.queue_id)


class _EntryForEachMessage(_Queue):
    """A queue with one entry per message, whose number is the queue offset."""

    max_offset: int

    @property
    def is_lmq(self) -> bool:
        """Whether it is a queue of multi dispatch, whose messages have a topic and a queue of their own."""
        return self.topic.startswith(_LMQ_PREFIX)

    def entries_from(self, queue_offset: int, count: int) -> Sequence[int]:
        """The queue offsets of up to `count` entries, beginning at `queue_offset`."""
        return range(queue_offset, min(queue_offset + count, self.max_offset))


@dataclass(frozen=True)
class ConsumeQueueLookup(_EntryForEachMessage):
    """The entries `[min_offset, max_offset)` of one queue, as they were when it was opened.

    `min_offset` is the first entry that points into the log, or `max_offset` if all point before the log
    (``ConsumeQueue#correctMinOffset`` of 5.x). Pre-blank entries are never among them.
    """

    topic: str
    queue_id: int
    reader: QueueReader
    min_offset: int
    max_offset: int

    @classmethod
    def open(cls, root: Path, topic: str, queue_id: int, min_phy_offset: int) -> ConsumeQueueLookup:
        """Open ``consumequeue/<topic>/<queueId>`` below `root`; `min_phy_offset` is where the log begins.

        Raises
        ------
        SinkError
            The queue does not exist, a broker does not accept the topic, or a file's size is not a whole number of
            entries.
        SegmentError
            The sizes of the files differ, or do not fit their names.
        """
        reader = _open(root, KIND, topic, queue_id)
        max_offset = end_of_entries(reader)
        return cls(topic, queue_id, reader, reader.min_offset(min_phy_offset, max_offset), max_offset)

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """The entry at `queue_offset`, which must be below `max_offset`.

        Raises
        ------
        SinkError
            No file holds it, for example because a file was removed or cut meanwhile.
        """
        found = self.reader.read_written(queue_offset, 1)
        if not len(found):
            path, at = self.reader.where(queue_offset)
            raise SinkError(
                f"{path} has no entry {queue_offset} of {self.name} at byte {at}: nothing was written there, the file "
                "is missing from the row, or it was cut while it was read",
                file=path,
            )
        return ConsumeQueueEntry(queue_offset, *found[0].item())

    def offset_in_queue_by_time(self, timestamp: int, store_time: Callable[[ConsumeQueueEntry], int]) -> int:
        """The first entry stored at `timestamp` (milliseconds) or later; `max_offset` if there is none.

        This is the rule of 5.x with the boundary LOWER (``ConsumeQueueStore#getOffsetInQueueByTime``). 4.9.3 picks the
        file by its modification time, which a copy does not keep, and of two neighbours the one nearer in time. As on a
        broker the search is binary, so if the clock went back it finds one of several answers.

        `store_time` gives an entry's store time; an error that it raises ends the search.
        """
        if self.min_offset >= self.max_offset:
            return self.max_offset
        low, high = self._file_by_time(timestamp, store_time)
        return _first_by_time(low, high, timestamp, lambda number: store_time(self.entry(number)))

    def _file_by_time(self, timestamp: int, store_time: Callable[[ConsumeQueueEntry], int]) -> tuple[int, int]:
        """First and last entry of the first file that ends at `timestamp` or later, or else of the last file."""
        bounds = []
        for file in self.reader.files:
            first = max(file // CQ_STORE_UNIT_SIZE, self.min_offset)
            last = min((file + self.reader.file_size) // CQ_STORE_UNIT_SIZE, self.max_offset) - 1
            if first <= last:
                bounds.append((first, last))
        for first, last in bounds[:-1]:
            if store_time(self.entry(last)) >= timestamp:
                return first, last
        return bounds[-1]


@dataclass(frozen=True)
class BatchConsumeQueueLookup(_Queue):
    """The queue offsets `[min_offset, max_offset)` of one BatchConsumeQueue, as in `ConsumeQueueLookup`.

    An entry is an inner batch, and has as many queue offsets as messages.
    """

    topic: str
    queue_id: int
    units: Units
    is_lmq = False

    @classmethod
    def open(cls, root: Path, topic: str, queue_id: int, min_phy_offset: int) -> BatchConsumeQueueLookup:
        """Open ``batchconsumequeue/<topic>/<queueId>`` below `root`; for the rest see ``ConsumeQueueLookup.open``."""
        reader = _open(root, BATCH_KIND, topic, queue_id)
        rows = [units[: leading(is_written(units))] for units in map(reader.units, reader.files)]
        units = np.concatenate([np.empty(0, BATCH_KIND.unit), *rows])
        return cls(topic, queue_id, units[units["physical_offset"] >= min_phy_offset])

    @property
    def min_offset(self) -> int:
        """The first message's queue offset; 0 without messages."""
        return int(self.units["msg_base_offset"][0]) if len(self.units) else 0

    @property
    def max_offset(self) -> int:
        """The queue offset after the last message."""
        return int(self.units["msg_base_offset"][-1]) + int(self.units["batch_size"][-1]) if len(self.units) else 0

    def entries_from(self, queue_offset: int, count: int) -> Sequence[int]:
        """The queue offsets of up to `count` entries, beginning with the batch that holds `queue_offset`."""
        first = self._number(queue_offset)
        offsets: list[int] = self.units["msg_base_offset"][first : first + count].tolist()
        return offsets

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """The entry of the inner batch with `queue_offset`; its own queue offset is that of its first message."""
        unit = self.units[self._number(queue_offset)]
        return ConsumeQueueEntry(*(int(unit[name]) for name in _OF_A_BATCH))

    def offset_in_queue_by_time(self, timestamp: int, store_time: Callable[[ConsumeQueueEntry], int]) -> int:
        """The first message of the first batch stored at `timestamp` (milliseconds) or later, else `max_offset`.

        Entries have their store time, so `store_time` is not called.
        """
        del store_time
        later = np.flatnonzero(self.units["store_timestamp"] >= timestamp)
        return int(self.units["msg_base_offset"][later[0]]) if len(later) else self.max_offset

    def _number(self, queue_offset: int) -> int:
        """The index in `units` of the batch with a queue offset, or of the last one before it."""
        return max(0, int(np.searchsorted(self.units["msg_base_offset"], queue_offset, side="right")) - 1)


@dataclass(frozen=True)
class RocksDBQueueLookup(_EntryForEachMessage):
    """The entries `[min_offset, max_offset)` of one queue in RocksDB, as in `ConsumeQueueLookup`."""

    topic: str
    queue_id: int
    queues: RocksDBQueues
    min_offset: int
    max_offset: int

    @classmethod
    @contextmanager
    def open(cls, database: Path, topic: str, queue_id: int, min_phy_offset: int) -> Iterator[RocksDBQueueLookup]:
        """Open a queue of the database in the directory `database`; `min_phy_offset` is where the log begins.

        Raises
        ------
        SinkError
            The queue does not exist.
        StoreError
            The database cannot be read, here or later.
        """
        queue = (topic.encode(errors="surrogateescape"), queue_id)
        with RocksDBQueues.open(database) as queues:
            if queue not in queues.last:
                raise SinkError(f"no {_name(topic, queue_id)} in the RocksDB database {database}")
            low, high = 0, queues.last[queue].queue_offset + 1
            end = high
            while low < high:
                middle = (low + high) // 2
                numbers, units = next(queues.entries(queue, middle), (None, None))
                if numbers is None or units is None or units["physical_offset"][0] >= min_phy_offset:
                    high = middle
                else:
                    low = int(numbers[0]) + 1
            numbers, _ = next(queues.entries(queue, low), (None, None))
            yield cls(topic, queue_id, queues, end if numbers is None else int(numbers[0]), end)

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """The entry at `queue_offset`, which must be below `max_offset`; raises SinkError if the database lacks it."""
        unit = self._unit(queue_offset)
        return ConsumeQueueEntry(queue_offset, *(int(unit[name]) for name in ENTRY.names or ()))

    def offset_in_queue_by_time(self, timestamp: int, store_time: Callable[[ConsumeQueueEntry], int]) -> int:
        """The first entry stored at `timestamp` (milliseconds) or later; `max_offset` if there is none.

        Entries have their store time, so `store_time` is not called
        (``RocksDBConsumeQueueTable#binarySearchInCQByTime`` with the boundary LOWER).
        """
        del store_time
        if self.min_offset >= self.max_offset:
            return self.max_offset
        low, high = self.min_offset, self.max_offset - 1
        return _first_by_time(low, high, timestamp, lambda number: int(self._unit(number)["store_timestamp"]))

    def _unit(self, number: int) -> np.void:
        queue = (self.topic.encode(errors="surrogateescape"), self.queue_id)
        for _, units in self.queues.entries(queue, number, number + 1):
            unit: np.void = units[0]
            return unit
        raise SinkError(f"the RocksDB database has no entry {number} of {self.name}")


def _first_by_time(low: int, high: int, timestamp: int, time_of: Callable[[int], int]) -> int:
    """The first of the entries `[low, high]` that is stored at `timestamp` or later; `high` + 1 if there is none."""
    if time_of(high) < timestamp:
        return high + 1
    if time_of(low) > timestamp:
        return low
    floor, right = low, high
    while low <= high:
        middle = (low + high) // 2
        time = time_of(middle)
        if time == timestamp:
            while middle > floor and time_of(middle - 1) == timestamp:
                middle -= 1
            return middle
        if time > timestamp:
            high, right = middle - 1, middle
        else:
            low = middle + 1
    return right


def _open(root: Path, kind: QueueKind, topic: str, queue_id: int) -> QueueReader:
    name = topic.encode(errors="surrogateescape")
    directory = root.joinpath(*kind.directory(name, queue_id))
    if not directory.is_dir():
        raise SinkError(
            f"no {_name(topic, queue_id)} at {directory}",
            advice="give the directory that holds consumequeue/ (--output), or derive it with 'reput tail'",
            file=directory,
        )
    row = MappedFileQueue.load([directory])
    size, unit_size = row.mapped_file_size, kind.unit.itemsize
    if size % unit_size:
        raise SinkError(
            f"{row.files[0].path} has {size} bytes, which is not a multiple of {unit_size}: it is not "
            f"a {_FILES_OF[kind.top]} file",
            file=row.files[0].path,
        )
    return QueueReader(root, kind, size or unit_size, name, queue_id)


def _name(topic: str, queue_id: int) -> str:
    return f"queue {queue_id} of topic {topic!r}"


def end_of_entries(reader: QueueReader) -> int:
    """The number after the last valid entry, found as in ``ConsumeQueue#recover``."""
    for file in reader.files[-_FILES_RECOVERED:]:
        count = leading(is_written(reader.units(file)))
        if count * CQ_STORE_UNIT_SIZE < reader.file_size:
            return file // CQ_STORE_UNIT_SIZE + count
    return (reader.files[-1] + reader.file_size) // CQ_STORE_UNIT_SIZE if reader.files else 0
