"""What a micro-batch does to queues and index: the tasks' windows (``logic_window``) put together, in log order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from reput.sinks import consume_queue_format as cqf
from reput.sinks.arrival import Arrival, ArrivalSummary, TopicCount
from reput.sinks.logic_window import (
    ARRIVAL,
    BIT_MAP_SIZE,
    COUNT,
    ID,
    NO_BIT_MAP,
    NO_EXT_UNIT,
    OFFSET,
    TOPIC_COUNT,
)
from reput.sinks.sink_progress import RecordFingerprint
from reput.sinks.task_result import in_log_order, last_fingerprint
from reput.source.batch_decoder import Bytes, Int32s, Int64s
from reput.source.java_string import decode_utf8


@dataclass(frozen=True)
class ExtUnits:
    """What the ConsumeQueueExt unit of each entry holds beside its tags code.

    `bit_maps` has None for no bitmap. `is_put` (bool[n]) is False where an entry gets no unit: those of further
    queues. `store_timestamps` in milliseconds.
    """

    store_timestamps: Int64s
    bit_maps: tuple[bytes | None, ...]
    is_put: np.ndarray[Any, np.dtype[np.bool_]]

    def select(self, keep: np.ndarray[Any, np.dtype[np.bool_]]) -> ExtUnits:
        """Those of the entries that `keep` (bool[n]) marks."""
        bit_maps = tuple(bits for bits, kept in zip(self.bit_maps, keep.tolist(), strict=True) if kept)
        return ExtUnits(self.store_timestamps[keep], bit_maps, self.is_put[keep])


@dataclass(frozen=True)
class QueueEntries:
    """Entries of one queue in log order: uint8[n, 20], the records' queue offsets, int64[n], and their ext units."""

    topic: bytes
    queue_id: int
    entries: Bytes
    queue_offsets: Int64s
    ext: ExtUnits | None = None


@dataclass(frozen=True)
class KeyEntries:
    """Keys in log order: hash, the record's place, its store timestamp (ms)."""

    hashes: Int32s
    offsets: Int64s
    timestamps: Int64s


@dataclass(frozen=True)
class LogicBatch:
    """The effects of `[start, end)` of the log on queues and index."""

    start: int
    end: int
    messages: int
    last_record: RecordFingerprint | None
    queues: tuple[QueueEntries, ...]
    keys: KeyEntries
    arrivals: ArrivalSummary | None = None

    @classmethod
    def merge(cls, windows: pa.Table) -> LogicBatch:
        """Put the tasks' windows together, in log order.

        Raises
        ------
        SinkError
            The windows overlap or leave a gap: a task's result is missing or came twice.
        """
        windows = in_log_order(windows)
        return cls(
            start=windows["start"][0].as_py(),
            end=windows["end"][-1].as_py(),
            messages=sum(windows["messages"].to_pylist()),
            last_record=last_fingerprint(windows),
            queues=_merge_queues(windows),
            keys=KeyEntries(
                _joined(windows, "key_hashes", ID),
                _joined(windows, "key_offsets", OFFSET),
                _joined(windows, "key_timestamps", OFFSET),
            ),
            arrivals=_merge_arrivals(windows),
        )

    def after(self, offset: int) -> LogicBatch:
        """The same without the records before `offset`: what a sink that ends there still needs."""
        if offset <= self.start:
            return self
        queues = []
        for queue in self.queues:
            places = queue.entries.view(cqf.ENTRY)["physical_offset"][:, 0]
            keep = places >= offset
            if keep.any():
                ext = queue.ext.select(keep) if queue.ext else None
                kept = queue.entries[keep], queue.queue_offsets[keep]
                queues.append(QueueEntries(queue.topic, queue.queue_id, *kept, ext))
        later = self.keys.offsets >= offset
        keys = KeyEntries(self.keys.hashes[later], self.keys.offsets[later], self.keys.timestamps[later])
        return LogicBatch(offset, self.end, self.messages, self.last_record, tuple(queues), keys)


def _joined(windows: pa.Table, name: str, dtype: np.dtype[Any]) -> Any:
    """A binary column's values one after the other, as one array; copies at most once."""
    column = windows[name].combine_chunks()
    values = column if isinstance(column, pa.Array) else column.chunk(0)
    _, ends, data = values.buffers()
    if data is None:
        return np.empty(0, dtype)
    ends = np.frombuffer(ends, np.int32, len(values) + 1, 4 * values.offset)
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].view(dtype)


def _merge_queues(windows: pa.Table) -> tuple[QueueEntries, ...]:
    numbers: dict[tuple[bytes, int], int] = {}
    ids = _joined(windows, "queue_ids", ID).tolist()
    topics = [topic for row in windows["topics"].to_pylist() for topic in row]
    blocks = np.array([numbers.setdefault(queue, len(numbers)) for queue in zip(topics, ids, strict=True)], np.int64)
    counts = _joined(windows, "queue_counts", COUNT)
    totals = np.bincount(blocks, counts, len(numbers)).astype(np.int64)
    ends = np.cumsum(totals)
    entries = _regroup(windows, "entries", cqf.CQ_STORE_UNIT_SIZE, blocks, counts, ends - totals)
    offsets = _regroup(windows, "queue_offsets", OFFSET.itemsize, blocks, counts, ends - totals)
    queue_offsets = offsets.view(OFFSET)[:, 0] if len(offsets) else np.empty(0, np.int64)
    ext = _merge_ext(windows, blocks, counts, ends - totals)
    return tuple(
        QueueEntries(
            topic,
            queue_id,
            entries[end - total : end],
            queue_offsets[end - total : end],
            ExtUnits(*(part[end - total : end] for part in ext)) if ext else None,
        )
        for (topic, queue_id), end, total in zip(numbers, ends.tolist(), totals.tolist(), strict=True)
        if total
    )


def _regroup(windows: pa.Table, name: str, width: int, blocks: Int64s, counts: Int64s, starts: Int64s) -> Bytes:
    """The column's rows of `width` bytes, each queue's together, as uint8[n, width]."""
    source = _joined(windows, name, np.dtype(np.uint8))
    target = np.empty(len(source), np.uint8)
    cqf.merge_blocks(blocks, counts * width, starts * width, source, target)
    return target.reshape(-1, width)


def _merge_ext(windows: pa.Table, blocks: Int64s, counts: Int64s, starts: Int64s) -> tuple[Any, ...] | None:
    """The parts of `ExtUnits` for all entries, each queue's together; None when the tasks gave none."""
    sizes = _joined(windows, "bit_map_sizes", BIT_MAP_SIZE)
    if not len(sizes):
        return None
    data = memoryview(_joined(windows, "bit_maps", np.dtype(np.uint8)))
    ends = np.cumsum(np.maximum(sizes, 0)).tolist()
    maps = np.empty(len(sizes), object)
    maps[:] = [
        None if size in (NO_BIT_MAP, NO_EXT_UNIT) else bytes(data[end - size : end])
        for size, end in zip(sizes.tolist(), ends, strict=True)
    ]
    order = np.empty(len(sizes), np.int64)
    cqf.merge_blocks(blocks, counts, starts.copy(), np.arange(len(sizes)), order)
    return _joined(windows, "store_timestamps", OFFSET)[order], tuple(maps[order]), (sizes != NO_EXT_UNIT)[order]


def _merge_arrivals(windows: pa.Table) -> ArrivalSummary | None:
    topics = [topic for row in windows["arrived"].to_pylist() for topic in row]
    if not topics:
        return None
    queues: dict[tuple[bytes, int], Arrival] = {}
    for topic, (queue_id, *last) in zip(topics, _joined(windows, "arrivals", ARRIVAL).tolist(), strict=True):
        queues[topic, queue_id] = Arrival(decode_utf8(topic), queue_id, *last)
    counts: dict[bytes, tuple[int, int]] = {}
    counted = [topic for row in windows["counted"].to_pylist() for topic in row]
    for topic, (messages, size) in zip(counted, _joined(windows, "topic_counts", TOPIC_COUNT).tolist(), strict=True):
        known = counts.get(topic, (0, 0))
        counts[topic] = (known[0] + messages, known[1] + size)
    return ArrivalSummary(
        windows["start"][0].as_py(),
        windows["end"][-1].as_py(),
        tuple(queues.values()),
        tuple(TopicCount(decode_utf8(topic), *count) for topic, count in counts.items()),
    )
