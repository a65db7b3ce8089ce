"""What the log itself has: the good records behind a cut, and how many belong into each queue and into the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from reput.source.arrays import Int64s
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.log.boundaries import Boundaries, split
from reput.source.log.offset_range import OffsetRange
from reput.source.record.java_string import decode_utf8
from reput.source.segments.damage import QUARANTINE
from reput.source.segments.mapped_file_queue import MappedFile, MappedFileQueue
from reput.source.segments.range_reader import DecodeOptions, scan_windows
from reput.streaming.doctor.prediction import LostRecords
from reput.streaming.doctor.start_settings import StartSettings
from reput.streaming.effects.range_task import RangeTask

# What is made of so much of the log at once stands in memory.
_RANGE_BYTES = 64 * 1024 * 1024


@dataclass
class Belonging:
    """How many records belong into each queue, how many of those with keys have none in the index, and the damage."""

    records: Counter[tuple[str, int]] = field(default_factory=Counter)
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
        for (topic, queue_id), count in zip(batch.entries.queues, batch.entries.counts.tolist(), strict=True):
            found.records[decode_utf8(topic), queue_id] += count
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
    size, offsets = 0, []
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
            offsets += [int(columns.physical_offset[0]), int(columns.physical_offset[-1])]
            topics.update(map(decode_utf8, _topics(columns)))
    if not offsets:
        return LostRecords()
    return LostRecords(topics.total(), size, offsets[0], offsets[-1], dict(topics.most_common()))


def _topics(columns: RecordColumns) -> Iterator[bytes]:
    for at, size in columns.parts[:, [rk.TOPIC, rk.TOPIC_SIZE]].tolist():
        yield columns.data[at : at + size].tobytes()


def _options(settings: StartSettings) -> DecodeOptions:
    return DecodeOptions(check_crc=True, delays_ms=settings.rules.delays_ms, on_damage=QUARANTINE)
