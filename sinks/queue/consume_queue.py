"""One queue's ConsumeQueue files, and the sink that keeps all of them.

``ConsumeQueue#putMessagePositionInfo`` and ``#recover`` of 4.9.3. The rules marked (A), (C), (D), (E) are the broker's:
already built, a queue that begins in the middle, repeated, a gap. The rules for each single record are in ``entries``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts, BatchAnomalies, OutOfOrder
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import LOGIC_OFFSET_MAX, ExtUnits, QueueEntries, RowByRow, Run, run_of
from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import (
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    RelativePath,
    consume_queue_directory,
    consume_queue_ext_directory,
)
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, ENTRY, MAX_ADDR, PRE_BLANK, is_pre_blank
from reput.sinks.queue.consume_queue_ext import ConsumeQueueExt
from reput.sinks.queue.queue_reader import QueueKind, Units, queue_directories
from reput.sinks.queue.queue_sink import Append, Queue, QueueFiles, QueueSink, no_queue
from reput.sinks.sink import not_yet_written
from reput.source.arrays import Bools, Bytes, Int64s
from reput.source.errors import SinkError

_log = logging.getLogger(__name__)
_WAY_OUT = "onDamage=quarantine leaves such records out of the queues and records them"

KIND = QueueKind(CONSUME_QUEUE, consume_queue_directory, ENTRY, "mappedFileSizeConsumeQueue")
MAPPED_FILE_SIZE_CONSUME_QUEUE = 300_000 * CQ_STORE_UNIT_SIZE


def rounded_file_size(configured: int) -> int:
    """The size of a file in bytes: the setting rounded up to whole entries (``getMappedFileSizeConsumeQueue``)."""
    return -(-configured // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE


@dataclass(frozen=True)
class QueueExtent:
    """Where a queue's next entries go: from byte `begin` of the queue, after `blanks` pre-blank entries (C)."""

    begin: int
    blanks: int
    anomalies: AnomalyCounts = NO_ANOMALIES
    first_out_of_order: OutOfOrder | None = None

    @property
    def end(self) -> int:
        """The byte of the queue after the blanks."""
        return self.begin + self.blanks * CQ_STORE_UNIT_SIZE

    def with_blanks(self, entries: Bytes) -> Bytes:
        """The blanks and `entries` (uint8[n, 20])."""
        if not self.blanks:
            return entries
        blank = np.full(self.blanks, PRE_BLANK).view(np.uint8).reshape(-1, CQ_STORE_UNIT_SIZE)
        return np.concatenate([blank, entries])


@dataclass
class ConsumeQueue(Queue):
    """One queue, with the broker's rules for its next entry; ``QueueAdmission`` explains the bound.

    `moved` counts entries that were appended before the queue offset of their message (E), since the run began.
    """

    first_queue_offset_max: int | None = None
    moved: int = 0

    def plan_append(self, incoming: QueueEntries, file_size: int) -> Append:
        """Decide by the broker's rules; see ``Queue.plan_append``.

        Raises
        ------
        SinkError
            The queue is new and cannot begin at the first record's queue offset.
        """
        entries, queue_offsets = incoming.entries, incoming.queue_offsets
        run = run_of(entries, queue_offsets)
        extent = self.extend(run, file_size) if run is not None else None
        if extent is not None:
            return Append(extent.begin, extent.with_blanks(entries), None, extent.anomalies, extent.first_out_of_order)
        front = self._front(int(queue_offsets[0]), int(entries.view(ENTRY)[0, 0]["physical_offset"]), file_size)
        rows = RowByRow(front.end, self.max_physic_offset)
        rows.take(entries, queue_offsets)
        if rows.anomalies.gap:
            self._note_gap(front.end, queue_offsets)
        self.moved += rows.anomalies.gap
        entries = entries[rows.accepted]
        self.end = rows.end
        if len(entries):
            last = entries.view(ENTRY)[-1, 0]
            self.max_physic_offset = int(last["physical_offset"]) + int(last["msg_size"])
        makes_file = rows.repeated_at == rows.end and rows.end % file_size == 0 and rows.end not in self.files
        return Append(
            front.begin,
            front.with_blanks(entries),
            rows.end if makes_file else None,
            front.anomalies + rows.anomalies,
            rows.first_out_of_order,
        )

    def extend(self, run: Run, file_size: int) -> QueueExtent | None:
        """Append entries with consecutive queue offsets; None, with nothing changed, if each record needs the rules.

        Raises
        ------
        SinkError
            The queue is new and cannot begin at the first record's queue offset.
        """
        front = self._front(run.first_queue_offset, run.first_physical_offset, file_size)
        ahead = run.first_queue_offset * CQ_STORE_UNIT_SIZE - front.end
        if ahead < 0 or run.first_end <= self.max_physic_offset:
            return None
        self.awaited = 0
        if ahead:  # (E): after one gap, every later record of the queue is out of order
            first = OutOfOrder(run.first_physical_offset, run.first_queue_offset, front.end // CQ_STORE_UNIT_SIZE)
            front = replace(front, anomalies=front.anomalies + AnomalyCounts(gap=run.count), first_out_of_order=first)
            self._note_gap(front.end, np.array([run.first_queue_offset]))
            self.moved += run.count
        self.end = front.end + run.count * CQ_STORE_UNIT_SIZE
        self.max_physic_offset = run.last_end
        return front

    def _front(self, first_queue_offset: int, first_physical_offset: int, file_size: int) -> QueueExtent:
        """The extent before the next entry; a new queue may begin in the middle of a file."""
        if self.files:
            return QueueExtent(self.end, 0)
        end = first_queue_offset * CQ_STORE_UNIT_SIZE
        if not QueueAdmission(file_size, self.first_queue_offset_max).can_begin(np.array([first_queue_offset]))[0]:
            raise SinkError(
                f"the first record of {self.topic!r}-{self.queue_id}, at offset {first_physical_offset}, has queue "
                f"offset {first_queue_offset}: no queue begins there, the record is damaged",
                advice=_WAY_OUT,
                physical_offset=first_physical_offset,
            )
        anomalies = AnomalyCounts(pre_blank=1) if end else NO_ANOMALIES
        return QueueExtent(end - end % file_size, end % file_size // CQ_STORE_UNIT_SIZE, anomalies)

    def _note_gap(self, end: int, queue_offsets: Int64s) -> None:
        """Note whether a record continues where a replay of both lives would end, and not where the queue ends.

        The queue ends at `end`. `queue_offsets` are those of the records that come next, some of them after a gap.
        """
        before = np.concatenate([[end // CQ_STORE_UNIT_SIZE - 1], queue_offsets[:-1]])
        there = queue_offsets * CQ_STORE_UNIT_SIZE == self.replay_end
        self.is_joined |= self.replay_end > 0 and bool((there & (queue_offsets - before != 1)).any())

    def unbuilt(self, incoming: QueueEntries) -> tuple[Int64s, Int64s]:
        """See ``Queue.unbuilt``; (A)."""
        units = incoming.entries.view(ENTRY)[:, 0]
        ends = units["physical_offset"].astype(np.int64) + units["msg_size"]
        reached = np.maximum.accumulate(np.concatenate([[self.max_physic_offset], ends[:-1]]))
        rows = np.flatnonzero(ends > reached)
        return rows, np.ones(len(rows), np.int64)

    def adopt(self, units: Units) -> bool:
        """Take `max_physic_offset` from the last unit that is not pre-blank; False without one."""
        real = np.flatnonzero(~is_pre_blank(units))
        if not len(real):
            return False
        last = units[int(real[-1])]
        self.max_physic_offset = int(last["physical_offset"]) + int(last["msg_size"])
        return True


@dataclass(frozen=True)
class QueueAppend:
    """The append of a queue's entries to `extent`; the queue's files up to `last_file` (-1: none) exist.

    `number` is the queue's number in its ``PieceEntries``.
    """

    number: int
    topic: bytes
    queue_id: int
    extent: QueueExtent
    last_file: int


def write_queue_appends(
    files: DurableFiles, mapped_file_size: int, entries: PieceEntries, queues: Iterable[QueueAppend]
) -> None:
    """Write planned appends durably; `mapped_file_size` is the sink's.

    A second call leaves the same bytes, also after later appends.
    """
    _write_appends(QueueFiles(files, KIND, rounded_file_size(mapped_file_size)), entries, queues)
    files.sync()


def _write_appends(files: QueueFiles, entries: PieceEntries, queues: Iterable[QueueAppend]) -> None:
    for queue in queues:
        units = queue.extent.with_blanks(np.concatenate(entries.entries(queue.number)))
        files.write(queue.topic, queue.queue_id, queue.extent.begin, units.reshape(-1).data, queue.last_file)


# The year 2248: a damaged record may state a time that a file system cannot hold.
_FILE_TIME_MS_MAX = 2**43

WriteAppends = Callable[[PieceEntries, list[QueueAppend]], None]


class ConsumeQueueSink(QueueSink):
    """Keeps ``consumequeue/`` from the log."""

    name = "consumequeue"

    def __init__(
        self,
        files: DurableFiles,
        mapped_file_size: int = MAPPED_FILE_SIZE_CONSUME_QUEUE,
        ext_file_size: int | None = None,
        first_queue_offset_max: int | None = None,
        *,
        keeps_later_life: bool = False,
        store_time_of: Callable[[int], int | None] | None = None,
    ) -> None:
        """Take ``mappedFileSizeConsumeQueue`` in bytes as `mapped_file_size`, which is rounded up to whole entries.

        `ext_file_size` is ``mappedFileSizeConsumeQueueExt`` in bytes, None for ``enableConsumeQueueExt=false``;
        `first_queue_offset_max` is the largest queue offset (an index) at which a queue may begin. With
        `keeps_later_life`, a queue that starts over (``last_life``) is emptied first, as the broker did that deleted
        the topic. Without it, the later life is joined to the earlier one, as a broker's replay of the log does.

        `store_time_of` returns the store timestamp (ms) of the record at a physical offset, None if it cannot be read.
        With it, a full file counts as modified when its last message was stored: before 5.1.1, a broker that searches
        a queue by time looks in the first file that was modified at that time or later
        (``MappedFileQueue#getMappedFileByTime``).
        """
        super().__init__(files, KIND, rounded_file_size(mapped_file_size), keeps_later_life=keeps_later_life)
        self.admission = QueueAdmission(rounded_file_size(mapped_file_size), first_queue_offset_max)
        self._ext_file_size = ext_file_size
        self._exts: dict[tuple[bytes, int], ConsumeQueueExt] = {}
        self._store_time_of = store_time_of
        # The files that the present batch has filled: topic, queue id, first byte.
        self._filled: list[tuple[bytes, int, int]] = []

    def is_begun(self, topic: bytes, queue_id: int) -> bool:
        """Whether the queue has entries."""
        return (topic, queue_id) in self._queues

    def _new_queue(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        return ConsumeQueue(topic, queue_id, first_queue_offset_max=self.admission.first_queue_offset_max)

    def _append(self, incoming: QueueEntries) -> Append:
        try:
            consume_queue_directory(incoming.topic, incoming.queue_id)
        except SinkError as error:
            at = int(incoming.entries.view(ENTRY)[0, 0]["physical_offset"])
            raise SinkError(f"the record at offset {at}: {error}", advice=_WAY_OUT, physical_offset=at) from error
        return super()._append(incoming)

    def _prepared(self, incoming: QueueEntries) -> QueueEntries:
        if self._ext_file_size is None or incoming.ext is None:
            return incoming
        return replace(incoming, entries=self._put_ext_units(incoming, incoming.ext, self._ext_file_size))

    def _last_entry(self, queue: Queue) -> QueueEntries:
        found = super()._last_entry(queue)
        ext = self._exts.get((queue.topic, queue.queue_id))
        if ext is None:
            return found
        entries = found.entries.copy()
        codes = entries.view(ENTRY)["tags_code"][:, 0]
        unit = ext.get(int(codes[0]))
        if unit is None:
            units = ExtUnits(np.zeros(1, np.int64), (None,), np.zeros(1, bool))
            return replace(found, ext=units)
        codes[0] = unit.tags_code
        units = ExtUnits(np.array([unit.msg_store_time], np.int64), (unit.filter_bit_map,), np.ones(1, bool))
        return replace(found, entries=entries, ext=units)

    def _empty(self, topic: bytes, queue_id: int) -> None:
        super()._empty(topic, queue_id)
        ext = self._exts.pop((topic, queue_id), None)
        if ext is not None:
            ext.destroy()

    def write(self, batch: LogicBatch, write_appends: WriteAppends | None = None) -> AnomalyCounts:
        """Append the batch's entries; see ``Sink.write``.

        `write_appends` does ``write_queue_appends`` for all queues whose entries are consecutive, and returns when they
        are durable; without it this sink writes them. Other queues are always written here, by the rules for each
        record, and so are all queues whose entries get a ConsumeQueueExt unit.
        """
        rest = not_yet_written(self.name, self.end_offset, batch)
        if rest is None:
            return NO_ANOMALIES
        entries = rest.entries
        met = BatchAnomalies(_log)
        appends: list[QueueAppend] = []
        others: list[int] = []
        for number, (key, run) in enumerate(zip(entries.queues, entries.runs(), strict=True)):
            queue = self._queues.get(key) or self._new_queue(*key)
            assert isinstance(queue, ConsumeQueue)
            extent = None
            if run is not None and self._ext_file_size is None:
                extent = queue.extend(run, self._files.file_size)
            if extent is None:
                others.append(number)
                continue
            appends.append(QueueAppend(number, *key, extent, queue.last_file))
            self._note_files(queue, extent.begin, queue.end)
            self._queues[key] = queue
            met.note(*key, extent.anomalies, extent.first_out_of_order)
        self._announce_removal(map(entries.queue_entries, others))
        if write_appends is None:
            _write_appends(self._files, entries, appends)
        else:
            write_appends(entries, appends)
        for number in others:
            self._append_noting(entries.queue_entries(number), met)
        self._commit(batch)
        self._date_filled_files()
        return met.close()

    def _note_files(self, queue: Queue, begin: int, end: int) -> None:
        super()._note_files(queue, begin, end)
        size = self._files.file_size
        filled = range(begin - begin % size, end - end % size, size)
        self._filled += [(queue.topic, queue.queue_id, file) for file in filled]

    def _date_filled_files(self) -> None:
        filled, self._filled = self._filled, []
        if self._store_time_of is None:
            return
        for topic, queue_id, file in filled:
            number = (file + self._files.file_size) // CQ_STORE_UNIT_SIZE - 1
            last = self._files.reader(topic, queue_id).read(number, 1)[0]
            time_ms = self._store_time_of(int(last["physical_offset"]))
            if time_ms is not None and 0 <= time_ms < _FILE_TIME_MS_MAX:
                self._files.set_modified(topic, queue_id, file, time_ms)

    def moved(self) -> dict[tuple[bytes, int], int]:
        """The number of entries that this run appended before their message's queue offset, by queue; only above 0."""
        queues = ((key, queue) for key, queue in self._queues.items() if isinstance(queue, ConsumeQueue))
        return {key: queue.moved for key, queue in queues if queue.moved}

    def queues_with_older_files(self) -> list[tuple[bytes, int]]:
        """As ``QueueSink.queues_with_older_files``, and the queues of which an ext file may expire."""
        found = super().queues_with_older_files()
        return [*dict.fromkeys([*found, *(key for key, ext in self._exts.items() if ext.has_older_files)])]

    def forget_file(self, path: RelativePath) -> None:
        """As ``QueueSink.forget_file``, or forget an ext file."""
        top, topic, queue_id, name = path
        if top == CONSUME_QUEUE:
            super().forget_file(path)
        elif (ext := self._exts.get((os.fsencode(topic), int(queue_id)))) is not None:
            ext.forget_file(int(name))

    def _put_ext_units(self, incoming: QueueEntries, units: ExtUnits, file_size: int) -> Bytes:
        """Put the entries' units; return the entries with the units' addresses in place of the tags codes.

        A repeated record gets another unit, to which no entry points: the broker puts the unit before it checks.
        """
        key = (incoming.topic, incoming.queue_id)
        if key not in self._exts:
            self._exts[key] = ConsumeQueueExt(self._durable, *key, file_size)
        entries = incoming.entries.copy()
        codes = entries.view(ENTRY)["tags_code"][:, 0]
        tags_codes = codes[units.is_put].astype(np.int64)
        bit_maps = [bits for bits, is_put in zip(units.bit_maps, units.is_put.tolist(), strict=True) if is_put]
        addresses = self._exts[key].put(tags_codes, units.store_timestamps[units.is_put], bit_maps)
        codes[units.is_put] = np.where(addresses <= MAX_ADDR, addresses, tags_codes)
        return entries

    def _load_queues(self, end_offset: int | None, left_out: Callable[[bytes, int], bool] = no_queue) -> None:
        super()._load_queues(end_offset, left_out)
        if self._ext_file_size is None:
            return
        self._exts.clear()
        for key in queue_directories(self._durable.root, CONSUME_QUEUE_EXT, consume_queue_ext_directory):
            if left_out(*key):
                continue
            ext = self._exts[key] = ConsumeQueueExt(self._durable, *key, self._ext_file_size)
            ext.recover()
            address = self._last_address(*key)
            if address is not None:
                ext.truncate_by_max_address(address)
            elif end_offset is not None:  # units of an unfinished batch
                ext.destroy()
        self._durable.sync()

    def _last_address(self, topic: bytes, queue_id: int) -> int | None:
        """The last address in the queue's entries; None if they have none."""
        queue = self._queues.get((topic, queue_id))
        reader = self._files.reader(topic, queue_id)
        for file in reversed(queue.files if queue else []):
            codes = reader.units(file)["tags_code"]
            found = np.flatnonzero(codes <= MAX_ADDR)
            if len(found):
                return int(codes[found[-1]])
        return None


# Records that no queue can take: topic or queue id cannot be a directory, or no queue can begin at their offset.

HOSTILE_TOPIC = "HOSTILE_TOPIC"
NEGATIVE_QUEUE_ID = "NEGATIVE_QUEUE_ID"
BAD_QUEUE_OFFSET = "BAD_QUEUE_OFFSET"


@dataclass(frozen=True)
class RefusedRecord:
    """A sound record that gets no queue entry: its physical offset, its size in bytes, and the cause."""

    physical_offset: int
    msg_size: int
    cause: str


@dataclass(frozen=True)
class QueueAdmission:
    """The records that a queue can take.

    Attributes
    ----------
    file_size
        The size of a ConsumeQueue file in bytes; a queue's last file must still have a name.
    first_queue_offset_max
        The largest queue offset (an index) at which a queue may begin; None for any possible one.
    """

    file_size: int
    first_queue_offset_max: int | None = None

    def can_begin(self, queue_offsets: Int64s) -> Bools:
        """Whether a queue can begin at each of these queue offsets, bool[n]."""
        most = (LOGIC_OFFSET_MAX - self.file_size) // CQ_STORE_UNIT_SIZE
        if self.first_queue_offset_max is not None:
            most = min(most, self.first_queue_offset_max)
        return (queue_offsets >= 0) & (queue_offsets <= most)

    def sift(
        self, batch: LogicBatch, end_offset: int, is_begun: Callable[[bytes, int], bool]
    ) -> tuple[LogicBatch, tuple[RefusedRecord, ...]]:
        """The batch without entries that no queue can take, and their records, in log order, each once.

        `end_offset` is where the queues end. `is_begun` is whether a queue has entries already; such a queue takes any
        queue offset.
        """
        refused: dict[int, RefusedRecord] = {}
        counts: dict[tuple[bytes, int], int] = {}
        later = batch.after(end_offset).entries
        begins = self.can_begin(later.first_queue_offsets)
        for number, (topic, queue_id) in enumerate(later.queues):
            # The entries of a queue that has begun are not read: there may be many.
            if is_begun(topic, queue_id) or (begins[number] and not _cause_of_name(topic, queue_id)):
                continue
            queue = later.queue_entries(number)
            counts[topic, queue_id], cause = self._refused_count(queue)
            refused |= {each.physical_offset: each for each in _refused(queue, counts[topic, queue_id], cause)}
        # A BatchConsumeQueue always begins at byte 0, regardless of its first record.
        nameless = [queue for queue in batch.entries.batch_queues() if _cause_of_name(queue.topic, queue.queue_id)]
        for queue in nameless:
            cause = _cause_of_name(queue.topic, queue.queue_id)
            refused |= {each.physical_offset: each for each in _refused(queue, len(queue.entries), cause)}
        if refused:
            names = [(queue.topic, queue.queue_id) for queue in nameless]
            batch = replace(batch, entries=batch.entries.without(counts, end_offset, names))
        return batch, tuple(refused[offset] for offset in sorted(refused))

    def _refused_count(self, queue: QueueEntries) -> tuple[int, str]:
        """The number of first entries that a queue without entries refuses, and the cause."""
        if cause := _cause_of_name(queue.topic, queue.queue_id):
            return len(queue.entries), cause
        good = self.can_begin(queue.queue_offsets)
        return (int(np.argmax(good)) if good.any() else len(good)), BAD_QUEUE_OFFSET


def _cause_of_name(topic: bytes, queue_id: int) -> str:
    """The cause why topic and queue id cannot be a directory; empty if they can."""
    if queue_id < 0:
        return NEGATIVE_QUEUE_ID
    try:
        consume_queue_directory(topic, queue_id)
    except SinkError:
        return HOSTILE_TOPIC
    return ""


def _refused(queue: QueueEntries, count: int, cause: str) -> Iterator[RefusedRecord]:
    """The records of the first `count` entries, by the two fields with which entries of every kind begin."""
    head = ENTRY["physical_offset"].itemsize + ENTRY["msg_size"].itemsize
    fields = np.dtype([(name, ENTRY[name]) for name in ("physical_offset", "msg_size")])
    for unit in np.ascontiguousarray(queue.entries[:count, :head]).view(fields)[:, 0]:
        yield RefusedRecord(int(unit["physical_offset"]), int(unit["msg_size"]), cause)
