"""The log by itself: the good records after a cut, and how many belong in each queue and in the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.dispatch.entries import QueueEntries, Run
from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, ENTRY, is_pre_blank
from reput.sinks.queue.consume_queue import KIND, ConsumeQueue, QueueAdmission
from reput.sinks.queue.queue_check import QueueLives
from reput.sinks.queue.queue_reader import QueueReader
from reput.source.arrays import Int64s
from reput.source.errors import SinkError
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import Boundaries, DecodeOptions, scan_windows, split
from reput.source.record.damage import QUARANTINE
from reput.source.record.message_properties import decode_utf8
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.doctor.prediction import LostRecords, Moving
from reput.streaming.doctor.start_settings import StartSettings
from reput.streaming.effects.range_task import RangeTask

# The effects of this much of the log are in memory at once.
_RANGE_BYTES = 64 * 1024 * 1024


@dataclass
class _Count:
    """Counts the entries that a broker makes in one queue.

    `last_end` is the physical offset where the record of the last entry ends. With `stored`, the queue on disk, `moved`
    counts the entries that have another queue offset there.
    """

    queue: ConsumeQueue
    size: int
    stored: QueueReader | None = None
    count: int = 0
    moved: int = 0
    last_end: int = 0

    def take(self, incoming: QueueEntries) -> AnomalyCounts:
        """Count the next entries, by the broker's rules."""
        append = self.queue.plan_append(incoming, self.size)
        self._note(append.begin)
        # Units that fill the front of a queue's first file lead to no record.
        is_entry = ~is_pre_blank(append.entries.view(ENTRY))
        self.count += int(np.count_nonzero(is_entry))
        if is_entry.any():
            last = append.entries.view(ENTRY)[is_entry][-1]
            self.last_end = int(last["physical_offset"]) + int(last["msg_size"])
        if append.anomalies.gap and self.stored is not None:
            self.moved += self.stored.count_elsewhere(append.begin // CQ_STORE_UNIT_SIZE, append.entries.view(ENTRY))
        return append.anomalies

    def take_run(self, run: Run) -> bool:
        """Count consecutive entries; return False, and count nothing, if the rules must examine each record."""
        if (
            self.stored is not None
            and self.queue.files
            and run.first_queue_offset * CQ_STORE_UNIT_SIZE > self.queue.end
        ):
            return False  # the place of each entry must be compared
        extent = self.queue.extend(run, self.size)
        if extent is None:
            return False
        self._note(extent.begin)
        self.count += run.count
        self.last_end = run.last_end
        return True

    def _note(self, begin: int) -> None:
        if not self.queue.files:
            self.queue.files.append(begin)


@dataclass(frozen=True)
class Expected:
    """The number of entries that a queue should have of records from `start` on, and the end of the last one's record.

    `last_end` is a physical offset; None if it is unknown.
    """

    start: int
    entries: int
    last_end: int | None = None


class QueueRecords:
    """The entries that one queue should have."""

    def __init__(self, topic: bytes, queue_id: int, file_size: int, stored: QueueReader | None = None) -> None:
        def count() -> _Count:
            return _Count(ConsumeQueue(topic, queue_id), file_size, stored)

        self._lives = QueueLives(count(), count)
        # Entries that do not follow the rules of a ConsumeQueue.
        self._added = 0

    def take(self, entries: PieceEntries, number: int, run: Run | None) -> None:
        """Take the next entries, those of queue `number` in `entries`; `run` has them if they are consecutive."""
        try:
            if run is None or self._lives.later or not self._lives.replay.take_run(run):
                self._lives.take(entries.queue_entries(number), CQ_STORE_UNIT_SIZE)
        except SinkError:  # a queue cannot begin at such a queue offset
            self._added += int(entries.counts[number])

    def add(self, count: int) -> None:
        """Count entries of a BatchConsumeQueue, which takes all of them."""
        self._added += count

    def moved(self, *, keeps_later_life: bool) -> int:
        """Return how many entries a rebuild would move; it may keep only the later life of a queue."""
        life = self._lives.proven if keeps_later_life else None
        return (self._lives.replay if life is None else life.follower).moved

    def expected(self) -> Iterator[Expected]:
        """Yield each correct state; the files show which of them is right.

        A replay's is not correct if it leaves out messages of the later life.
        """
        lives = self._lives
        for life in lives.later:
            yield Expected(life.began_at, life.follower.count, life.follower.last_end)
        if lives.proven is None or lives.goes_on_joined or not lives.passed_over:
            yield Expected(0, lives.replay.count + self._added, None if self._added else lives.replay.last_end)


@dataclass
class Belonging:
    """The records of each queue, the number of records with keys that the index lacks, and the damage."""

    queues: dict[tuple[str, int], QueueRecords] = field(default_factory=dict)
    index_missing: int = 0
    damaged_ranges: int = 0


@dataclass(frozen=True)
class Indexed:
    """The records in the index: those that begin in `ranges` (first and last offset, both inclusive)."""

    ranges: Sequence[tuple[int, int]]

    def count_outside(self, offsets: Int64s) -> int:
        """Return how many of the records at these offsets the index lacks."""
        outside = np.ones(len(offsets), bool)
        for first, last in self.ranges:
            outside &= (offsets < first) | (offsets > last)
        return int(np.count_nonzero(outside))


def belonging(files: Sequence[MappedFile], end: int, indexed: Indexed, settings: StartSettings) -> Belonging:
    """Find what belongs in queues and index of the good records in segments up to the offset `end`."""
    # Only 5.4.0 and later index tags: a record without any other key is not counted.
    task = RangeTask(_options(settings), replace(settings.needs, index_tags=False, index=settings.misses_keys))
    found = Belonging()
    for span in _ranges(files, end):
        effects = task.read(span)
        found.damaged_ranges += len(effects.damaged)
        batch = effects.batch()
        assert batch is not None
        entries = batch.entries
        for number, ((topic, queue_id), run) in enumerate(zip(entries.queues, entries.runs(), strict=True)):
            key = decode_utf8(topic), queue_id
            if key not in found.queues:
                found.queues[key] = QueueRecords(topic, queue_id, settings.queue_file_size)
            found.queues[key].take(entries, number, run)
        for queue in entries.batch_queues():
            key = decode_utf8(queue.topic), queue.queue_id
            found.queues.setdefault(key, QueueRecords(queue.topic, queue.queue_id, 0)).add(len(queue.entries))
        found.index_missing += indexed.count_outside(np.unique(batch.entries.keys().offsets))
    return found


def moving(config: PipelineConfig, settings: StartSettings) -> tuple[Moving, ...]:
    """Return the queues of a store with entries that a rebuild of them, with ``onDamage=quarantine``, would move.

    This reads the log, which must not have a hole: it is for a store that a rebuild is advised for.
    """
    log = LogReader(config.log_options(onDamage=QUARANTINE))
    files, size = log.queue().files, settings.queue_file_size
    task = RangeTask(_options(settings), replace(settings.needs, index=False))
    admission = QueueAdmission(size, config.queue.max_first_queue_offset)
    queues: dict[tuple[bytes, int], QueueRecords] = {}
    for span in _ranges(files, log.settled_end(log.queue().min_offset)):
        batch = task.read(span).batch()
        if batch is None:
            continue
        entries = admission.sift(batch, 0, lambda topic, queue_id: (topic, queue_id) in queues)[0].entries
        for number, (key, run) in enumerate(zip(entries.queues, entries.runs(), strict=True)):
            if key not in queues:
                queues[key] = QueueRecords(*key, size, QueueReader(config.store, KIND, size, *key))
            queues[key].take(entries, number, run)
    keeps = config.queue.keeps_later_life
    counts = {key: queue.moved(keeps_later_life=keeps) for key, queue in sorted(queues.items())}
    return tuple(Moving(decode_utf8(topic), number, count) for (topic, number), count in counts.items() if count)


def _ranges(files: Sequence[MappedFile], end: int) -> Iterator[OffsetRange]:
    """Cut the log up to the offset `end`, where a record begins, into ranges."""
    queue = MappedFileQueue(tuple(files), ())
    for file in files:
        stop = min(file.end, end)
        yield from split(queue, file.file_from_offset, stop, _RANGE_BYTES, QUARANTINE, Boundaries())


def lost_records(
    files: Sequence[MappedFile], cut: int, last_store_timestamp: int | None, settings: StartSettings
) -> LostRecords:
    """Return the good records from the offset `cut` on.

    Records older than the last one before the cut do not count: a log that was cut before may have them after its end.
    """
    topics: Counter[str] = Counter()
    size, end, offsets = 0, 0, []
    for file in files:
        start = max(cut, file.file_from_offset)
        for window in scan_windows(file, start, file.end, _options(settings)):
            columns = window.decode(np.array(settings.rules.delays_ms, np.int64)).columns
            if not len(columns):
                continue
            if last_store_timestamp is not None and columns.store_timestamp[0] < last_store_timestamp:
                return LostRecords()
            last_store_timestamp = None
            size += int(columns.msg_size.sum())
            end = int(columns.physical_offset[-1] + columns.msg_size[-1])
            offsets += [int(columns.physical_offset[0]), int(columns.physical_offset[-1])]
            topics.update(map(decode_utf8, _topics(columns)))
    if not offsets:
        return LostRecords()
    return LostRecords(topics.total(), size, offsets[0], offsets[-1], end, dict(topics.most_common()))


def _topics(columns: RecordColumns) -> Iterator[bytes]:
    for at, size in columns.parts[:, [rk.TOPIC, rk.TOPIC_SIZE]].tolist():
        yield columns.data[at : at + size].tobytes()


def _options(settings: StartSettings) -> DecodeOptions:
    return DecodeOptions(check_crc=True, delays_ms=settings.rules.delays_ms, on_damage=QUARANTINE)
