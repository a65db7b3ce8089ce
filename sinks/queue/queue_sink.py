"""The common part of the sinks of both kinds of queues: recovery, durability, progress."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts, BatchAnomalies, OutOfOrder
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import BEFORE, LifeBegin, QueueEntries, last_life
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import KeepsProgress, ProgressFile, SinkProgress
from reput.sinks.files.store_path import RelativePath
from reput.sinks.queue.queue_reader import QueueKind, QueueReader, Units
from reput.source.arrays import Bytes, Int64s
from reput.source.errors import SinkError
from reput.source.log.store_layout import file_name

_log = logging.getLogger(__name__)

#: The key in a progress record of the queues that started over, or may just have done so.
LIVES = "lives"
_EMPTIED = "emptied_for_next_batch"


def no_queue(_: bytes, __: int) -> bool:
    """A predicate that holds for no queue."""
    return False


@dataclass(frozen=True)
class Append:
    """An append to a queue: `entries` (uint8[n, unit]) go to byte `begin` of the queue.

    `empty_file` is the first byte of a file without entries: the broker makes a full queue's next file before it finds
    that the record is a repeated one. `first_out_of_order` is the first record that `anomalies` counts as out of order.
    """

    begin: int
    entries: Bytes
    empty_file: int | None = None
    anomalies: AnomalyCounts = NO_ANOMALIES
    first_out_of_order: OutOfOrder | None = None


@dataclass
class Queue(ABC):
    """One queue's end. Offsets are bytes of the queue, except for `max_physic_offset`, which is in the log.

    `awaited` is ``LifeBegin.awaited`` of its last record. `replay_end` is where the queue would end in a broker's
    replay of the log, which appends the first record of the later life to the earlier one and drops the others; 0
    without an earlier life. `is_joined` is whether a record continues there.
    """

    topic: bytes
    queue_id: int
    end: int = 0
    files: list[int] = field(default_factory=list)  # where each file begins
    max_physic_offset: int = 0
    awaited: int = 0
    replay_end: int = 0
    is_joined: bool = False

    @property
    def last_file(self) -> int:
        """The first byte of the last file; -1 without files."""
        return self.files[-1] if self.files else -1

    @abstractmethod
    def plan_append(self, incoming: QueueEntries, file_size: int) -> Append:
        """Decide where entries (in log order) go, and move `end` and `max_physic_offset`."""

    @abstractmethod
    def adopt(self, units: Units) -> bool:
        """Take `max_physic_offset` from the good units of a file; return False if none of them is a record's."""

    @abstractmethod
    def unbuilt(self, incoming: QueueEntries) -> tuple[Int64s, Int64s]:
        """The rows that are not built already, and the number of queue offsets that each of these takes, int64[n]."""

    def last_life(self, incoming: QueueEntries) -> LifeBegin:
        """Where the queue last starts over in the next entries; see ``last_life``."""
        rows, steps = self.unbuilt(incoming)
        found = last_life(incoming.queue_offsets[rows], steps, has_entries=bool(self.files), awaited=self.awaited)
        return found if found.row in (None, BEFORE) else LifeBegin(int(rows[found.row]), found.awaited)


class QueueSink(KeepsProgress, ABC):
    """Keeps all queues of one kind; subclasses decide how a queue appends entries."""

    name: str

    def __init__(self, files: DurableFiles, kind: QueueKind, file_size: int, *, keeps_later_life: bool = False) -> None:
        """`keeps_later_life` as in ``ConsumeQueueSink``."""
        self._keeps_later_life = keeps_later_life
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

    @property
    def logics_physical_offset(self) -> int | None:
        """The physical offset where the record of `logics_msg_timestamp` begins; None if it is not known."""
        return self._record.progress.state.get("logics_physical_offset")

    def recover(self, start_offset: int) -> SinkProgress:
        """Continue at the progress record's end; entries of later records are dropped. See ``Sink.recover``."""
        record = self._record.load()
        self._finish_removal(record)
        self._load_queues(None if record is None else record.end_offset)
        self._load_lives(record)
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
            # Like the broker, continue after the last record that any queue has (``DefaultMessageStore#start``).
            known = max((queue.max_physic_offset for queue in self._queues.values()), default=0)
            start = max(start_offset, known)
            record = SinkProgress(start, start, None, {"queue_ends": entries})
        # A loaded record is stored again: a process may have died before it made the record's name durable.
        self._durable.sync()
        self._record.store(record)
        return record

    @abstractmethod
    def write(self, batch: LogicBatch) -> AnomalyCounts:
        """Append the batch's entries; see ``Sink.write``."""

    @property
    def queue_count(self) -> int:
        """The number of queues."""
        return len(self._queues)

    @property
    def files(self) -> DurableFiles:
        """The writer of the queues' files."""
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
        state: dict[str, Any] = {"queue_ends": self._count_entries(), **self._lives()}
        time = batch.last_queued_timestamp
        if (time := self.logics_msg_timestamp if time is None else time) is not None:
            state["logics_msg_timestamp"] = time
        offset = batch.last_queued_offset
        if (offset := self.logics_physical_offset if offset is None else offset) is not None:
            state["logics_physical_offset"] = offset
        self._record.advance(batch.end, batch.last_record, state)

    def count_entries_beside(self, left_out: Callable[[bytes, int], bool], end_offset: int) -> int:
        """Count the entries as a progress record does, without some queues that may be damaged.

        As in `recover`, entries of records from `end_offset` on are dropped.
        """
        self._finish_removal(self._record.load())
        self._load_queues(end_offset, left_out)
        return self._count_entries()

    def _count_entries(self) -> int:
        return sum(queue.end // self._unit_size for queue in self._queues.values())

    def _append_noting(self, incoming: QueueEntries, met: BatchAnomalies) -> None:
        append = self._append(incoming)
        met.note(incoming.topic, incoming.queue_id, append.anomalies, append.first_out_of_order)

    # --- lives of a queue -----------------------------------------------------------------------------------

    def joined_lives(self) -> list[tuple[bytes, int, int]]:
        """The queues whose records show that a broker joined their lives: topic, queue id, and that queue offset.

        A broker that lost its queues appends the later life to the earlier one, and continues with that number.
        """
        return [(*key, queue.replay_end // self._unit_size) for key, queue in self._queues.items() if queue.is_joined]

    def _of_last_life(self, incoming: QueueEntries) -> tuple[QueueEntries, LifeBegin]:
        """The entries of the queue's last life, and where it begins; the queue is emptied if it starts over."""
        key = (incoming.topic, incoming.queue_id)
        queue = self._queues.get(key) or self._new_queue(*key)
        found = queue.last_life(incoming) if self._keeps_later_life else LifeBegin(None, 0)
        if found.row is None:
            return incoming, found
        replay_end = queue.end
        if found.row == BEFORE:
            incoming = incoming.behind(self._last_entry(queue))
        else:
            replay = replace(queue, files=list(queue.files))
            replay.plan_append(incoming.rows(0, found.row + 1), self._files.file_size)
            replay_end, incoming = replay.end, incoming.rows(found.row)
        self._empty(*key)
        later = self._queues[key] = self._new_queue(*key)
        later.replay_end = replay_end
        return incoming, found

    def _last_entry(self, queue: Queue) -> QueueEntries:
        number = queue.end // self._unit_size - 1
        units = self._files.reader(queue.topic, queue.queue_id).read(number, 1)
        return QueueEntries(queue.topic, queue.queue_id, units.view(np.uint8).reshape(1, -1), np.zeros(1, np.int64))

    def _empty(self, topic: bytes, queue_id: int) -> None:
        """Remove a queue's files, newest first, so that the remaining ones begin where the queue does."""
        self._queues.pop((topic, queue_id), None)
        for file in reversed(self._files.reader(topic, queue_id).files):
            self._files.remove(topic, queue_id, file)

    def _announce_removal(self, queues: Iterable[QueueEntries]) -> None:
        """Record, durably, which queues will be emptied for the next batch, because a crash may leave half of them."""
        if not self._keeps_later_life:
            return
        keys = [
            (queue.topic, queue.queue_id)
            for queue in queues
            if (known := self._queues.get((queue.topic, queue.queue_id))) and known.last_life(queue).row is not None
        ]
        if not keys:
            return
        record = self._record.progress
        entries = sum(self._queues[key].end // self._unit_size for key in keys)
        state = {
            **record.state,
            "queue_ends": record.state["queue_ends"] - entries,
            _EMPTIED: [queue_name(*key) for key in keys],
        }
        self._record.store(replace(record, state=state))

    def _finish_removal(self, record: SinkProgress | None) -> None:
        for key in emptied(record):
            self._empty(*key)

    def _lives(self) -> dict[str, Any]:
        """The progress record's entry for queues that started over, or may just have done so; empty without any."""
        lives = [
            [*queue_name(*key), queue.awaited, queue.replay_end, queue.is_joined]
            for key, queue in self._queues.items()
            if queue.awaited or queue.replay_end
        ]
        # Sorted: which of the queues started over first depends on where batches end.
        return {LIVES: sorted(lives)} if lives else {}

    def _load_lives(self, record: SinkProgress | None) -> None:
        for name, queue_id, *life in record.state.get(LIVES, ()) if record is not None else ():
            queue = self._queues.get((os.fsencode(name), queue_id))
            if queue is not None:
                queue.awaited, queue.replay_end, queue.is_joined = life

    # --- appending ------------------------------------------------------------------------------------------

    def _prepared(self, incoming: QueueEntries) -> QueueEntries:
        """The entries as they go into the queue's files."""
        return incoming

    def _append(self, incoming: QueueEntries) -> Append:
        incoming, life = self._of_last_life(incoming)
        append = self._put(self._prepared(incoming))
        queue = self._queues[incoming.topic, incoming.queue_id]
        queue.awaited = life.awaited
        if life.row in (None, BEFORE):
            return append
        out_of_order = OutOfOrder(incoming.first_physical_offset, 0, queue.replay_end // self._unit_size - 1)
        anomalies = append.anomalies + AnomalyCounts(queue_restart=1)
        return replace(append, anomalies=anomalies, first_out_of_order=out_of_order)

    def _put(self, incoming: QueueEntries) -> Append:
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


def queue_name(topic: bytes, queue_id: int) -> list[Any]:
    """A queue in the form of a JSON value."""
    return [os.fsdecode(topic), queue_id]


def emptied(record: SinkProgress | None) -> list[tuple[bytes, int]]:
    """The queues that were to be emptied when the writing of a batch was stopped."""
    names = record.state.get(_EMPTIED, ()) if record is not None else ()
    return [(os.fsencode(name), queue_id) for name, queue_id in names]


def good_units(units: Units, end_offset: int | None) -> int:
    """The number of leading units that are good and of records before `end_offset` (None: of any)."""
    good: Any = (units["physical_offset"] >= 0) & (units["msg_size"] > 0)
    if end_offset is not None:
        good &= units["physical_offset"] < end_offset
    return len(units) if good.all() else int(np.argmin(good))


# ----------------------------------------------------------------------------------------------------------------------
# The files of one kind of queue: created in full size, filled from the front, named by the byte where they begin.


class QueueFiles:
    """All files of one kind below one output; `file_size` is in bytes, a multiple of a unit's."""

    def __init__(self, files: DurableFiles, kind: QueueKind, file_size: int) -> None:
        self._files = files
        self._kind = kind
        self.file_size = file_size

    def queues(self) -> Iterator[tuple[bytes, int]]:
        """The topic and queue id of every queue, as in ``QueueKind.queues``."""
        return self._kind.queues(self._files.root)

    def reader(self, topic: bytes, queue_id: int) -> QueueReader:
        """A reader of a queue as it is on disk now."""
        return QueueReader(self._files.root, self._kind, self.file_size, topic, queue_id)

    def create(self, topic: bytes, queue_id: int, file: int) -> None:
        """Create the file that begins at byte `file`, without an entry; one that exists is emptied."""
        self._files.create(*self._parts(topic, queue_id, file), size=self.file_size)

    def remove(self, topic: bytes, queue_id: int, file: int) -> None:
        """Remove one file."""
        self._files.remove(*self._parts(topic, queue_id, file))

    def write(self, topic: bytes, queue_id: int, at: int, data: memoryview, last_file: int) -> None:
        """Write `data` from byte `at` of the queue; files after `last_file` (-1: all) are created if missing.

        A task of a cluster that Spark gave up may do this late. It then keeps what others have written after `data`.
        """
        for file in self.files_of(at, at + len(data)):
            if file > last_file:
                self._files.create(*self._parts(topic, queue_id, file), size=self.file_size, keeps=True)
            size = min(len(data), file + self.file_size - at)
            self._files.write(*self._parts(topic, queue_id, file), offset=at - file, data=data[:size])
            data = data[size:]
            at += size

    def set_modified(self, topic: bytes, queue_id: int, file: int, time_ms: int) -> None:
        """Set when a file was last modified; see ``DurableFiles.set_modified``."""
        self._files.set_modified(*self._parts(topic, queue_id, file), time_ms=time_ms)

    def files_of(self, begin: int, end: int) -> range:
        """The first byte of each file that holds some of the bytes `[begin, end)` of a queue."""
        return range(begin - begin % self.file_size, end, self.file_size) if end > begin else range(0)

    def clear(self, topic: bytes, queue_id: int, file: int, first: int, stale: Units) -> None:
        """Zero the units `stale` of a file, from number `first`."""
        if stale.tobytes().strip(b"\0"):
            at = first * self._kind.unit.itemsize
            self._files.write(*self._parts(topic, queue_id, file), offset=at, data=bytes(stale.nbytes))

    def _parts(self, topic: bytes, queue_id: int, file: int) -> tuple[str, str, str, str]:
        return (*self._kind.directory(topic, queue_id), file_name(file))
