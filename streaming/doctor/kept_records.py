"""What the log itself has: the good records behind a cut, and how many belong into each queue and into the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.log.offset_range import OffsetRange
from reput.source.record.java_string import decode_utf8
from reput.source.segments.damage import QUARANTINE
from reput.source.segments.mapped_file_queue import MappedFile
from reput.source.segments.range_reader import DecodeOptions, scan_windows
from reput.streaming.doctor.prediction import LostRecords
from reput.streaming.doctor.start_settings import StartSettings
from reput.streaming.effects.range_task import RangeTask


@dataclass
class Belonging:
    """How many records belong into each queue, where those with keys begin, and how many ranges are damaged."""

    records: Counter[tuple[str, int]] = field(default_factory=Counter)
    damaged_ranges: int = 0
    with_keys: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = field(default_factory=list)

    def keys_outside(self, ranges: Iterable[tuple[int, int]], end: int) -> int:
        """How many records with keys, before the offset `end`, begin in none of the ranges (first and last offset)."""
        offsets = np.concatenate([np.empty(0, np.int64), *self.with_keys])
        outside = offsets < end
        for first, last in ranges:
            outside &= (offsets < first) | (offsets > last)
        return int(np.count_nonzero(outside))


def belonging(files: Sequence[MappedFile], end: int, settings: StartSettings) -> Belonging:
    """What the good records of segments up to the offset `end` are to queues and index."""
    # Keys of tags are 5.4.0's alone: a record without any other key is not counted.
    task = RangeTask(_options(settings), replace(settings.needs, index_tags=False))
    found = Belonging()
    for file in files:
        stop = min(file.end, end)
        if stop <= file.file_from_offset:
            continue
        effects = task.read(OffsetRange(file.file_from_offset, stop, file))
        found.damaged_ranges += len(effects.damaged)
        batch = effects.batch()
        assert batch is not None
        for (topic, queue_id), count in zip(batch.entries.queues, batch.entries.counts.tolist(), strict=True):
            found.records[decode_utf8(topic), queue_id] += count
        found.with_keys.append(np.unique(batch.entries.keys().offsets))
    return found


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
