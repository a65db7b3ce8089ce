"""What the log itself has: the good records behind a cut, and how many belong into each queue and into the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.dispatch.entries import QueueEntries
from reput.sinks.dispatch.piece_entries import PieceEntries
from reput.sinks.dispatch.runs import Run
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, ENTRY, is_pre_blank
from reput.sinks.queue.consume_queue import ConsumeQueue
from reput.sinks.queue.queue_lives import QueueLives
from reput.source.arrays import Int64s
from reput.source.errors import SinkError
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.log.boundaries import Boundaries, split
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import DecodeOptions, scan_windows
from reput.source.record.damage import QUARANTINE
from reput.source.record.message_properties import decode_utf8
from reput.streaming.doctor.prediction import LostRecords
from reput.streaming.doctor.start_settings import StartSettings
from reput.streaming.effects.range_task import RangeTask

# What is made of so much of the log at once stands in memory.
_RANGE_BYTES = 64 * 1024 * 1024


@dataclass
class _Count:
    """Counts the entries that a broker makes in one queue."""

    queue: ConsumeQueue
    size: int
    count: int = 0

    def take(self, incoming: QueueEntries) -> AnomalyCounts:
        """Count the next entries, by the broker's rules."""
        append = self.queue.plan_append(incoming, self.size)
        self._note(append.begin)
        # Units that fill the front of a queue's first file lead to no record.
        self.count += int(np.count_nonzero(~is_pre_blank(append.entries.view(ENTRY))))
        return append.anomalies

    def take_run(self, run: Run) -> bool:
        """Count entries that run on; False, with nothing counted, where the rules must look at each record."""
        extent = self.queue.extend(run, self.size)
        if extent is None:
            return False
        self._note(extent.begin)
        self.count += run.count
        return True

    def _note(self, begin: int) -> None:
        if not self.queue.files:
            self.queue.files.append(begin)


@dataclass(frozen=True)
class Expected:
    """How many entries a queue should have of records from `start` on."""

    start: int
    entries: int


class QueueRecords:
    """The entries that one queue should have."""

    def __init__(self, topic: bytes, queue_id: int, file_size: int) -> None:
        def count() -> _Count:
            return _Count(ConsumeQueue(topic, queue_id), file_size)

        self._lives = QueueLives(count(), count)
        self._damaged = 0

    def take(self, entries: PieceEntries, number: int, run: Run | None) -> None:
        """Go on with the entries of queue `number`, which are `run` where they run on."""
        try:
            if run is None or self._lives.later or not self._lives.replay.take_run(run):
                self._lives.take(entries.queue_entries(number), CQ_STORE_UNIT_SIZE)
        except SinkError:  # no queue begins at such a queue offset
            self._damaged += int(entries.counts[number])

    def expected(self) -> Iterator[Expected]:
        """What is right: the files show which. Where a replay leaves out messages of the later life, it is not."""
        lives = self._lives
        for life in lives.later:
            yield Expected(life.began_at, life.follower.count)
        if lives.proven is None or lives.goes_on_joined or not lives.passed_over:
            yield Expected(0, lives.replay.count + self._damaged)


@dataclass
class Belonging:
    """The records that belong into each queue, how many of those with keys have none in the index, and the damage."""

    queues: dict[tuple[str, int], QueueRecords] = field(default_factory=dict)
    index_missing: int = 0
    damaged_ranges: int = 0


@dataclass(frozen=True)
class Indexed:
    """Which records the index has: those that begin in `ranges` (first and last offset), or from `start` on."""

    ranges: Sequence[tuple[int, int]]
    start: int

    def count_outside(self, offsets: Int64s) -> int:
        """How many of the records at these offsets have not."""
        outside = offsets < self.start
        for first, last in self.ranges:
            outside &= (offsets < first) | (offsets > last)
        return int(np.count_nonzero(outside))


def belonging(files: Sequence[MappedFile], end: int, indexed: Indexed, settings: StartSettings) -> Belonging:
    """What the good records of segments up to the offset `end` are to queues and index."""
    # Keys of tags are 5.4.0's alone: a record without any other key is not counted.
    task = RangeTask(_options(settings), replace(settings.needs, index_tags=False))
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
        found.index_missing += indexed.count_outside(np.unique(batch.entries.keys().offsets))
    return found


def _ranges(files: Sequence[MappedFile], end: int) -> Iterator[OffsetRange]:
    """The log up to the offset `end`, which is where a record begins, in ranges."""
    queue = MappedFileQueue(tuple(files), ())
    for file in files:
        stop = min(file.end, end)
        yield from split(queue, file.file_from_offset, stop, _RANGE_BYTES, QUARANTINE, Boundaries())


def lost_records(
    files: Sequence[MappedFile], cut: int, last_store_timestamp: int | None, settings: StartSettings
) -> LostRecords:
    """The good records from the offset `cut` on.

    Older ones than the last before the cut, which a log that was cut before may have behind its end, do not count.
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
