"""What the sinks of both kinds of queues share: recovery, durability, progress."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts, BatchAnomalies, OutOfOrder
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import QueueEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import KeepsProgress, ProgressFile, SinkProgress
from reput.sinks.files.store_path import RelativePath
from reput.sinks.queue.queue_files import QueueFiles
from reput.sinks.queue.queue_reader import QueueKind, QueueReader, Units
from reput.source.arrays import Bytes
from reput.source.errors import SinkError

_log = logging.getLogger(__name__)


def no_queue(_: bytes, __: int) -> bool:
    """A predicate that holds for no queue."""
    return False


@dataclass(frozen=True)
class Append:
    """An append to a queue: `entries` (uint8[n, unit]) go to byte `begin` of the queue.

    `empty_file` is where a file begins that gets no entry: the broker makes a full queue's next file before it finds
    that the record is a repeated one. `first_out_of_order` is the first record that `anomalies` counts as out of order.
    """

    begin: int
    entries: Bytes
    empty_file: int | None = None
    anomalies: AnomalyCounts = NO_ANOMALIES
    first_out_of_order: OutOfOrder | None = None


@dataclass
class Queue(ABC):
    """One queue's end. Offsets are bytes of the queue, except for `max_physic_offset`, which is in the log."""

    topic: bytes
    queue_id: int
    end: int = 0
    files: list[int] = field(default_factory=list)  # where each file begins
    max_physic_offset: int = 0

    @property
    def last_file(self) -> int:
        """Where the last file begins; -1 without one."""
        return self.files[-1] if self.files else -1

    @abstractmethod
    def plan_append(self, incoming: QueueEntries, file_size: int) -> Append:
        """Decide where entries (in log order) go, and move `end` and `max_physic_offset`."""

    @abstractmethod
    def adopt(self, units: Units) -> bool:
        """Take `max_physic_offset` from the good units of a file; False if none of them is a record's."""


class QueueSink(KeepsProgress, ABC):
    """Keeps all queues of one kind; subclasses decide how a queue appends entries."""

    name: str

    def __init__(self, files: DurableFiles, kind: QueueKind, file_size: int) -> None:
        self._root = files.root / kind.top
        self._durable = files
        self._unit_size = kind.unit.itemsize
        self._files = QueueFiles(files, kind, file_size)
        self._record = ProgressFile(files, self.name)
        self._queues: dict[tuple[bytes, int], Queue] = {}

    @abstractmethod
    def _new_queue(self, topic: bytes, queue_id: int) -> Queue:
        """An empty queue of this kind."""

    @property
    def logics_msg_timestamp(self) -> int | None:
        """The store checkpoint's second field: the store timestamp (ms) of the last record with an entry.

        None if it is not known: no entry was written yet, or files were taken over.
        """
        return self._record.progress.state.get("logics_msg_timestamp")

    def recover(self, start_offset: int) -> SinkProgress:
        """Go on at the progress record's end; entries of later records are dropped. See ``Sink.recover``."""
        record = self._record.load()
        self._load_queues(None if record is None else record.end_offset)
        entries = self._count_entries()
        if record is not None and entries != record.state["queue_ends"]:
            if self._queues:
                raise SinkError(
                    f"the queues below {self._root} end at {entries} entries in all where "
                    f"{record.state['queue_ends']} were written: files are missing or were changed",
                    advice=f"remove {self._root.name}/ and {self._record.path} to derive the queues from the log again",
                    file=self._root,
                )
            _log.warning("%s is gone; deriving it from the log again", self._root)
            record = None
        if record is None:
            # As the broker does, go on after the last record that any queue has (``DefaultMessageStore#start``).
            known = max((queue.max_physic_offset for queue in self._queues.values()), default=0)
            start = max(start_offset, known)
            record = SinkProgress(start, start, None, {"queue_ends": entries})
        # A record that was found is stored, too: a process may have died before it made the record's name durable.
        self._durable.sync()
        self._record.store(record)
        return record

    @abstractmethod
    def write(self, batch: LogicBatch) -> AnomalyCounts:
        """Append the batch's entries; see ``Sink.write``."""

    @property
    def queue_count(self) -> int:
        """How many queues there are."""
        return len(self._queues)

    @property
    def files(self) -> DurableFiles:
        """What writes the queues' files."""
        return self._durable

    def queues_with_older_files(self) -> list[tuple[bytes, int]]:
        """The topic and queue id of the queues of which a file may expire: a queue's last file never does."""
        return [key for key, queue in self._queues.items() if len(queue.files) > 1]

    def reader(self, topic: bytes, queue_id: int) -> QueueReader:
        """A reader of a queue as it is on disk now."""
        return self._files.reader(topic, queue_id)

    def forget_file(self, path: RelativePath) -> None:
        """Forget a queue's oldest file, which was removed; between two batches only."""
        _, topic, queue_id, name = path
        queue = self._queues[os.fsencode(topic), int(queue_id)]
        queue.files = [file for file in queue.files if file != int(name)]

    def _commit(self, batch: LogicBatch) -> None:
        """Make the files durable, then the progress record that they have all effects before the batch's end."""
        self._durable.sync()
        state: dict[str, Any] = {"queue_ends": self._count_entries()}
        time = batch.last_queued_timestamp
        if (time := self.logics_msg_timestamp if time is None else time) is not None:
            state["logics_msg_timestamp"] = time
        self._record.advance(batch.end, batch.last_record, state)

    def count_entries_beside(self, left_out: Callable[[bytes, int], bool], end_offset: int) -> int:
        """Count the entries as a progress record does, but leave some queues out, which may be damaged.

        As in `recover`, entries of records from `end_offset` on are dropped.
        """
        self._load_queues(end_offset, left_out)
        return self._count_entries()

    def _count_entries(self) -> int:
        return sum(queue.end // self._unit_size for queue in self._queues.values())

    def _append_noting(self, incoming: QueueEntries, met: BatchAnomalies) -> None:
        append = self._append(incoming)
        met.note(incoming.topic, incoming.queue_id, append.anomalies, append.first_out_of_order)

    def _append(self, incoming: QueueEntries) -> Append:
        key = (incoming.topic, incoming.queue_id)
        queue = self._queues.get(key) or self._new_queue(*key)
        append = queue.plan_append(incoming, self._files.file_size)
        data = np.ascontiguousarray(append.entries).reshape(-1).data
        self._files.write(*key, append.begin, data, queue.last_file)
        self._note_files(queue, append.begin, append.begin + len(data))
        if append.empty_file is not None and append.empty_file > queue.last_file:
            self._files.create(*key, append.empty_file)
            queue.files.append(append.empty_file)
        self._queues[key] = queue
        return append

    def _note_files(self, queue: Queue, begin: int, end: int) -> None:
        """Note the files that writing the bytes `[begin, end)` of a queue has created."""
        queue.files += [file for file in self._files.files_of(begin, end) if file > queue.last_file]

    def _load_queues(self, end_offset: int | None, left_out: Callable[[bytes, int], bool] = no_queue) -> None:
        for topic, queue_id in self._files.queues():
            if left_out(topic, queue_id):
                continue
            queue = self._new_queue(topic, queue_id)
            reader = self._files.reader(topic, queue_id)
            reader.check_sizes()
            queue.files = reader.files
            self._find_end(queue, reader, end_offset)
            if queue.files:
                self._queues[topic, queue_id] = queue
        self._durable.sync()

    def _find_end(self, queue: Queue, reader: QueueReader, end_offset: int | None) -> None:
        """Find the queue's end, and drop entries of records from `end_offset` on (None keeps all)."""
        key = (queue.topic, queue.queue_id)
        dropped: list[int] = []
        while queue.files:
            units = reader.units(queue.files[-1])
            count = good_units(units, end_offset)
            if queue.adopt(units[:count]):
                queue.end = queue.files[-1] + count * self._unit_size
                self._files.clear(*key, queue.files[-1], count, units[count:])
                break
            dropped.insert(0, queue.files.pop())
        # A full queue may already have its next file, without an entry.
        if dropped and queue.files and dropped[0] == queue.end:
            queue.files.append(dropped.pop(0))
            self._files.create(*key, queue.files[-1])
        for file in dropped:
            self._files.remove(*key, file)


def good_units(units: Units, end_offset: int | None) -> int:
    """How many leading units are good and of records before `end_offset` (None: of any)."""
    good: Any = (units["physical_offset"] >= 0) & (units["msg_size"] > 0)
    if end_offset is not None:
        good &= units["physical_offset"] < end_offset
    return len(units) if good.all() else int(np.argmin(good))
