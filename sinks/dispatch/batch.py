"""What a micro-batch does to queues and index: the tasks' windows (``window``) put together, in log order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.dispatch.arrival import Arrival, ArrivalSummary, TopicCount
from reput.sinks.dispatch.task_result import RESULT_FIELDS, check_no_gap, in_log_order, last_fingerprint
from reput.sinks.dispatch.window import (
    ARRIVAL,
    BIT_MAP_SIZE,
    COUNT,
    ID,
    NO_BIT_MAP,
    NO_EXT_UNIT,
    OFFSET,
    TOPIC_COUNT,
)
from reput.sinks.files.sink_progress import RecordFingerprint
from reput.sinks.formats import consume_queue as cqf
from reput.sinks.formats.batch_consume_queue import BATCH_ENTRY, BATCH_STORE_UNIT_SIZE
from reput.source.arrays import Bytes, Int32s, Int64s
from reput.source.record.java_string import decode_utf8

_PLACE = cqf.ENTRY["physical_offset"]  # the first field of every kind of entry

# What a window tells of the log itself.
_RESULT_COLUMNS = [*(field.name for field in RESULT_FIELDS), "store_times"]


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
    """Entries of one queue in log order: uint8[n, unit], the records' queue offsets, int64[n], and their ext units."""

    topic: bytes
    queue_id: int
    entries: Bytes
    queue_offsets: Int64s
    ext: ExtUnits | None = None

    def without_first(self, count: int) -> QueueEntries:
        """The entries behind the first `count`."""
        ext = self.ext.select(np.arange(len(self.entries)) >= count) if self.ext else None
        return replace(self, entries=self.entries[count:], queue_offsets=self.queue_offsets[count:], ext=ext)


@dataclass(frozen=True)
class KeyEntries:
    """Keys in log order: hash, the record's place, its store timestamp (ms)."""

    hashes: Int32s
    offsets: Int64s
    timestamps: Int64s


NO_KEYS = KeyEntries(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True)
class LogicBatch:
    """The effects of `[start, end)` of the log on queues and index.

    `first_store_timestamp` (ms) is the first record's, `store_time_backwards` how many of the others were stored
    earlier than the one before them; `last_queued_timestamp` (ms) that of the last record with a queue entry.
    """

    start: int
    end: int
    messages: int
    last_record: RecordFingerprint | None
    queues: tuple[QueueEntries, ...]
    keys: KeyEntries
    batch_queues: tuple[QueueEntries, ...] = ()
    arrivals: ArrivalSummary | None = None
    first_store_timestamp: int | None = None
    store_time_backwards: int = 0
    last_queued_timestamp: int | None = None

    @classmethod
    def merge(cls, windows: pa.Table) -> LogicBatch:
        """Put the tasks' windows together, in log order.

        Raises
        ------
        SinkError
            The windows overlap or leave a gap: a task's result is missing or came twice.
        """
        windows = in_log_order(windows)
        return replace(
            cls.without_effects(windows.select(_RESULT_COLUMNS).to_pylist()),
            queues=_merge_queues(windows),
            keys=KeyEntries(
                _joined(windows, "key_hashes", ID),
                _joined(windows, "key_offsets", OFFSET),
                _joined(windows, "key_timestamps", OFFSET),
            ),
            batch_queues=_merge_batch_queues(windows),
            arrivals=_merge_arrivals(windows),
        )

    @classmethod
    def without_effects(cls, results: Sequence[Mapping[str, Any]]) -> LogicBatch:
        """What tasks tell of the log itself (``piece.PieceRow``), put together; no queue has an entry.

        Raises
        ------
        SinkError
            The results do not follow each other in the log.
        """
        check_no_gap([result["start"] for result in results], [result["end"] for result in results])
        first_store_timestamp, backwards, last_queued_timestamp = _merge_store_times(results)
        return cls(
            start=results[0]["start"],
            end=results[-1]["end"],
            messages=sum(result["messages"] for result in results),
            last_record=last_fingerprint(result["last_record"] for result in results),
            queues=(),
            keys=NO_KEYS,
            first_store_timestamp=first_store_timestamp,
            store_time_backwards=backwards,
            last_queued_timestamp=last_queued_timestamp,
        )

    def anomalies(self, before: RecordFingerprint | None) -> AnomalyCounts:
        """What the records are by themselves, whatever the queues hold; `before` is the record before the batch."""
        first = self.first_store_timestamp
        backwards = before is not None and first is not None and first < before.store_timestamp
        return AnomalyCounts(store_time_backwards=self.store_time_backwards + backwards)

    def only(self, wanted: Callable[[bytes, int], bool]) -> LogicBatch:
        """The same with some queues only, by topic and queue id."""
        queues, batch_queues = (
            tuple(queue for queue in each if wanted(queue.topic, queue.queue_id))
            for each in (self.queues, self.batch_queues)
        )
        return replace(self, queues=queues, batch_queues=batch_queues)

    def after(self, offset: int) -> LogicBatch:
        """The same without the records before `offset`: what a sink that ends there still needs."""
        if offset <= self.start:
            return self
        later = self.keys.offsets >= offset
        keys = KeyEntries(self.keys.hashes[later], self.keys.offsets[later], self.keys.timestamps[later])
        queues, batch_queues = _after(self.queues, offset), _after(self.batch_queues, offset)
        return LogicBatch(offset, self.end, self.messages, self.last_record, queues, keys, batch_queues)


def _after(queues: Iterable[QueueEntries], offset: int) -> tuple[QueueEntries, ...]:
    """The entries of records from `offset` on."""
    kept = []
    for queue in queues:
        keep = queue.entries[:, : _PLACE.itemsize].copy().view(_PLACE)[:, 0] >= offset
        if keep.any():
            ext = queue.ext.select(keep) if queue.ext else None
            rest = queue.entries[keep], queue.queue_offsets[keep]
            kept.append(QueueEntries(queue.topic, queue.queue_id, *rest, ext))
    return tuple(kept)


def _merge_store_times(results: Iterable[Mapping[str, Any]]) -> tuple[int | None, int, int | None]:
    """The first record's store timestamp, the number of steps back, between results too, and the last queued one's."""
    first = before = last_queued = None
    backwards = 0
    for result in results:
        if not result["store_times"]:
            continue
        result_first, inside, queued = result["store_times"]
        last_queued = last_queued if queued is None else queued
        backwards += inside + (before is not None and result_first < before)
        first = result_first if first is None else first
        before = RecordFingerprint(*result["last_record"]).store_timestamp
    return first, backwards, last_queued


def _joined(windows: pa.Table, name: str, dtype: np.dtype[Any]) -> Any:
    """A binary column's values one after the other, as one array; copies at most once."""
    column = windows[name].combine_chunks()
    values = column if isinstance(column, pa.Array) else column.chunk(0)
    _, ends, data = values.buffers()
    if data is None:
        return np.empty(0, dtype)
    ends = np.frombuffer(ends, np.int32, len(values) + 1, 4 * values.offset)
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].view(dtype)


@dataclass(frozen=True)
class _Blocks:
    """Each window's entries of each queue: the queue's number in `queues`, the entries, where the queue's begin."""

    queues: tuple[tuple[bytes, int], ...]
    numbers: Int64s
    counts: Int64s
    starts: Int64s

    @classmethod
    def of(cls, windows: pa.Table, topics: str, queue_ids: str, counts: str) -> _Blocks:
        """The blocks that three columns say."""
        known: dict[tuple[bytes, int], int] = {}
        keys = zip(
            (topic for row in windows[topics].to_pylist() for topic in row),
            _joined(windows, queue_ids, ID).tolist(),
            strict=True,
        )
        numbers = np.array([known.setdefault(queue, len(known)) for queue in keys], np.int64)
        sizes = _joined(windows, counts, COUNT)
        totals = np.bincount(numbers, sizes, len(known)).astype(np.int64)
        return cls(tuple(known), numbers, sizes, np.cumsum(totals) - totals)

    def regroup(self, windows: pa.Table, name: str, width: int) -> Bytes:
        """A column's rows of `width` bytes, each queue's together, as uint8[n, width]."""
        source = _joined(windows, name, np.dtype(np.uint8))
        target = np.empty(len(source), np.uint8)
        cqf.merge_blocks(self.numbers, self.counts * width, self.starts * width, source, target)
        return target.reshape(-1, width)

    def order(self) -> Int64s:
        """Where each entry of the result comes from."""
        order = np.empty(int(self.counts.sum()), np.int64)
        cqf.merge_blocks(self.numbers, self.counts, self.starts.copy(), np.arange(len(order)), order)
        return order

    def of_queue(self) -> Iterator[tuple[tuple[bytes, int], slice]]:
        """Each queue that has entries, and where they are in the result."""
        ends = [*self.starts[1:].tolist(), int(self.counts.sum())]
        for queue, start, end in zip(self.queues, self.starts.tolist(), ends, strict=True):
            if end > start:
                yield queue, slice(start, end)


def _merge_queues(windows: pa.Table) -> tuple[QueueEntries, ...]:
    blocks = _Blocks.of(windows, "topics", "queue_ids", "queue_counts")
    if not blocks.queues:
        return ()
    entries = blocks.regroup(windows, "entries", cqf.CQ_STORE_UNIT_SIZE)
    queue_offsets = blocks.regroup(windows, "queue_offsets", OFFSET.itemsize).view(OFFSET)[:, 0]
    ext = _merge_ext(windows, blocks)
    return tuple(
        QueueEntries(
            *queue,
            entries[part],
            queue_offsets[part],
            ExtUnits(*(values[part] for values in ext)) if ext else None,
        )
        for queue, part in blocks.of_queue()
    )


def _merge_batch_queues(windows: pa.Table) -> tuple[QueueEntries, ...]:
    blocks = _Blocks.of(windows, "batch_topics", "batch_queue_ids", "batch_counts")
    if not blocks.queues:
        return ()
    entries = blocks.regroup(windows, "batch_entries", BATCH_STORE_UNIT_SIZE)
    queue_offsets = entries.view(BATCH_ENTRY)["msg_base_offset"][:, 0].astype(np.int64)
    return tuple(QueueEntries(*queue, entries[part], queue_offsets[part]) for queue, part in blocks.of_queue())


def _merge_ext(windows: pa.Table, blocks: _Blocks) -> tuple[Any, ...] | None:
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
    order = blocks.order()
    return _joined(windows, "store_timestamps", OFFSET)[order], tuple(maps[order]), (sizes != NO_EXT_UNIT)[order]


def _merge_arrivals(windows: pa.Table) -> ArrivalSummary | None:
    topics = [topic for row in windows["arrived"].to_pylist() for topic in row]
    if not topics:
        return None
    queues: dict[tuple[bytes, int], Arrival] = {}
    queued: set[tuple[bytes, int]] = set()
    for topic, (queue_id, *last, is_queued) in zip(topics, _joined(windows, "arrivals", ARRIVAL).tolist(), strict=True):
        key = (topic, queue_id)
        if is_queued or key not in queued:
            queues[key] = Arrival(decode_utf8(topic), queue_id, *last)
        if is_queued:
            queued.add(key)
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
