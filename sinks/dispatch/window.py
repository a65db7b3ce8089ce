"""What a task makes of one window of the log for ConsumeQueue and IndexFile: one row of `WINDOW_SCHEMA`.

28 bytes a queued message and 20 bytes a key, never a record; what nobody needs is not computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from reput.sinks.dispatch.multi_dispatch import MultiDispatch
from reput.sinks.dispatch.task_result import RESULT_FIELDS, last_record_of
from reput.sinks.filter.consumer_filter import ConsumerFilters
from reput.sinks.formats import consume_queue as cqf
from reput.sinks.formats.batch_consume_queue import batch_entries
from reput.sinks.formats.index_file import collect_keys, keys_most
from reput.source.arrays import Bytes, Int64s
from reput.source.kernels import property_kernels as pk
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.record.java_string import decode_utf8
from reput.source.record.message_properties import parse_properties
from reput.source.segments.range_reader import Window

OFFSET = np.dtype("<i8")
COUNT = np.dtype("<i8")
ID = np.dtype("<i4")
BIT_MAP_SIZE = np.dtype("<i4")
# `is_queued` says whether the record got an entry: one that got none counts only where the queue had no other.
ARRIVAL = np.dtype(
    [
        *(("queue_id", "<i4"), ("next_offset", "<i8"), ("tags_code", "<i8"), ("store_timestamp", "<i8")),
        ("is_queued", "?"),
    ]
)
TOPIC_COUNT = np.dtype([("messages", "<i8"), ("size_bytes", "<i8")])

# In `bit_map_sizes`: no filter on the topic; and an entry that gets no ConsumeQueueExt unit at all.
NO_BIT_MAP = -1
NO_EXT_UNIT = -2

WINDOW_SCHEMA = pa.schema(
    [
        *RESULT_FIELDS,
        # Store timestamp (ms) of the first record, how many were stored earlier than the one before, and of the last
        # record with a queue entry, null without one.
        pa.field("store_times", pa.list_(pa.int64()), nullable=False),
        *(
            pa.field(name, pa.list_(pa.binary()), nullable=False)
            for name in ("topics", "batch_topics", "arrived", "counted")
        ),
        *(
            pa.field(name, pa.binary(), nullable=False)
            for name in (
                *("queue_ids", "queue_counts", "entries", "queue_offsets"),
                *("store_timestamps", "bit_map_sizes", "bit_maps"),
                *("batch_queue_ids", "batch_counts", "batch_entries"),
                *("key_hashes", "key_offsets", "key_timestamps"),
                *("arrivals", "topic_counts"),
            )
        ),
    ]
)


@dataclass(frozen=True)
class LogicNeeds:
    """Which effects of a record are wanted.

    Attributes
    ----------
    index_tags
        Also the key ``topic#T#tags`` of 5.4.0 and later.
    multi_dispatch
        How messages go to further queues; None for ``enableMultiDispatch=false``.
    ext
        What a ConsumeQueueExt unit holds, for each entry.
    filters
        The subscriptions that its bitmap is made of; None for no bitmaps.
    batch_topics
        Topics (UTF-8) with a BatchConsumeQueue; their records get no ConsumeQueue entry.
    arrivals
        The summary of ``arrival``.
    """

    consume_queue: bool = True
    index: bool = True
    index_tags: bool = False
    multi_dispatch: MultiDispatch | None = None
    ext: bool = False
    filters: ConsumerFilters | None = None
    batch_topics: frozenset[bytes] = frozenset()
    arrivals: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether only ConsumeQueue entries and keys are wanted, each message to its own queue."""
        return not (self.ext or self.batch_topics or self.multi_dispatch or self.arrivals)


@dataclass
class _Block:
    """Entries of one queue: the records they are of (rows of the window), and each record's offset in this queue."""

    entries: Bytes
    rows: Int64s
    queue_offsets: Int64s
    is_own: np.ndarray[Any, np.dtype[np.bool_]]

    def select(self, which: Any) -> _Block:
        """Some of the entries: a slice, or indices."""
        return _Block(self.entries[which], self.rows[which], self.queue_offsets[which], self.is_own[which])


def encode_window(window: Window, needs: LogicNeeds) -> pa.RecordBatch:
    """One window of the log as one row of `WINDOW_SCHEMA`."""
    columns = window.columns
    row: dict[str, Any] = {
        "start": window.start,
        "end": window.end,
        "messages": len(columns),
        "last_record": last_record_of(columns),
    }
    if len(columns):
        row.update(store_times=_store_times(columns, with_queues=needs.consume_queue))
        if needs.consume_queue:
            row.update(_queues(columns, needs))
        if needs.arrivals:
            row.update(_arrivals(columns, needs.multi_dispatch or MultiDispatch()))
        if needs.index:
            row.update(_keys(columns, needs))
    values = [_value(row[name], kind) if name in row else _nothing(kind) for name, kind in _KINDS]
    return pa.RecordBatch.from_arrays(values, schema=WINDOW_SCHEMA)


def _value(value: Any, kind: pa.DataType) -> pa.Array:
    """One value as a column; the bytes of an array as they are, without a copy."""
    if not isinstance(value, np.ndarray):
        return pa.array([value], kind)
    ends = pa.py_buffer(np.array([0, value.nbytes], np.int32))
    return pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(np.ascontiguousarray(value))])


_KINDS = [(field.name, field.type) for field in WINDOW_SCHEMA]


@cache  # not when the module is loaded: pyarrow loads pandas to make an array of Python values
def _nothing(kind: pa.DataType) -> pa.Array:
    return pa.array([b"" if kind == pa.binary() else []], kind)


def _store_times(columns: RecordColumns, *, with_queues: bool) -> list[int | None]:
    times = columns.store_timestamp
    queued: Int64s = np.flatnonzero(cqf.queued_records(columns.sys_flag))
    last_queued = int(times[queued[-1]]) if with_queues and len(queued) else None
    return [int(times[0]), int(np.count_nonzero(times[1:] < times[:-1])), last_queued]


def _groups(columns: RecordColumns) -> tuple[Any, Int64s]:
    """Each record's queue as a number (int32[n]), in order of first appearance, and the first record of each."""
    count = len(columns)
    groups, firsts = np.empty(count, np.int32), np.empty(count, np.int64)
    table = np.full(1 << (2 * count).bit_length(), -1, np.int32)
    queues = cqf.group_by_queue(columns.data, columns.parts, columns.queue_id, table, groups, firsts)
    return groups, firsts[:queues]


def _queues(columns: RecordColumns, needs: LogicNeeds) -> dict[str, Any]:
    count = len(columns)
    groups, firsts = _groups(columns)
    topics = _topics(columns, firsts)
    queued = cqf.queued_records(columns.sys_flag)
    to_batch_queue = np.zeros(count, bool)
    if needs.batch_topics:
        to_batch_queue = queued & np.array([topic in needs.batch_topics for topic in topics], bool)[groups]
        queued &= ~to_batch_queue
    counts = np.zeros(len(firsts), np.int64)
    cqf.count_queued(groups, queued, counts)
    total = int(counts.sum())
    entries, rows = np.empty((total, cqf.CQ_STORE_UNIT_SIZE), np.uint8), np.empty(total, np.int64)
    queue_offsets = np.empty(total, np.int64)
    cqf.encode_entries(
        *(columns.parts, columns.place, groups, queued, columns.tags_code, columns.queue_offset),
        *(np.cumsum(counts) - counts, entries, rows, queue_offsets),
    )
    queues = list(zip(topics, columns.queue_id[firsts].tolist(), strict=True))
    block = _Block(entries, rows, queue_offsets, np.ones(total, bool))
    further = dict(_further_queues(columns, queued, needs.multi_dispatch))
    if further:
        blocks = _with_further(queues, counts, block, further)
        queues, counts = list(blocks), np.array([len(block.rows) for block in blocks.values()], np.int64)
        block = _joined(blocks.values())
    return {
        "topics": [topic for topic, _ in queues],
        "queue_ids": np.array([queue_id for _, queue_id in queues], ID),
        "queue_counts": counts.astype(COUNT, copy=False),
        "entries": block.entries,
        "queue_offsets": block.queue_offsets.astype(OFFSET, copy=False),
        **(_ext_units(columns, block, needs.filters) if needs.ext else {}),
        **(_batch_queues(columns, groups, queues, np.flatnonzero(to_batch_queue)) if to_batch_queue.any() else {}),
    }


def _batch_queues(columns: RecordColumns, groups: Any, queues: list[tuple[bytes, int]], rows: Int64s) -> dict[str, Any]:
    kept, entries = batch_entries(columns, rows)
    counts = np.bincount(groups[kept], minlength=len(queues))
    order = np.argsort(groups[kept], kind="stable")
    found = np.flatnonzero(counts).tolist()
    return {
        "batch_topics": [queues[group][0] for group in found],
        "batch_queue_ids": np.array([queues[group][1] for group in found], ID),
        "batch_counts": counts[found].astype(COUNT),
        "batch_entries": entries[order],
    }


def _topics(columns: RecordColumns, rows: Int64s) -> list[bytes]:
    spans = columns.parts[:, [rk.TOPIC, rk.TOPIC_SIZE]][rows].tolist()
    return [columns.data[at : at + size].tobytes() for at, size in spans]


def _text(columns: RecordColumns, at: int, size: int) -> str:
    return decode_utf8(columns.data[at : at + size].tobytes())


_Further = dict[tuple[bytes, int], list[tuple[int, int]]]


def _further_queues(
    columns: RecordColumns, queued: np.ndarray[Any, np.dtype[np.bool_]], rules: MultiDispatch | None
) -> Iterator[tuple[tuple[bytes, int], list[tuple[int, int]]]]:
    """By queue, the (row, queue offset) that multi dispatch adds to it."""
    if rules is None:
        return
    wanted = queued & (columns.spans[:, pk.MULTI_DISPATCH, 1] > 0) & (columns.spans[:, pk.MULTI_QUEUE_OFFSET, 1] > 0)
    found: _Further = {}
    for row in np.flatnonzero(wanted).tolist():
        topic = _text(columns, *columns.parts[row, [rk.TOPIC, rk.TOPIC_SIZE]].tolist())
        names = _text(columns, *columns.spans[row, pk.MULTI_DISPATCH].tolist())
        offsets = _text(columns, *columns.spans[row, pk.MULTI_QUEUE_OFFSET].tolist())
        place = int(columns.physical_offset[row])
        for name, queue_id, offset in rules.queues(topic, int(columns.queue_id[row]), names, offsets, place):
            found.setdefault((name, queue_id), []).append((row, offset))
    yield from found.items()


def _with_further(
    queues: list[tuple[bytes, int]], counts: Int64s, own: _Block, further: _Further
) -> dict[tuple[bytes, int], _Block]:
    """The own entries by queue, and the further ones put among them in log order, behind an own one of their record."""
    ends = np.cumsum(counts)
    blocks = {
        queue: own.select(slice(end - count, end))
        for queue, end, count in zip(queues, ends.tolist(), counts.tolist(), strict=True)
    }
    entry_of = {row: at for at, row in enumerate(own.rows.tolist())}
    for queue, added in further.items():
        more = own.select([entry_of[row] for row, _ in added])
        more.queue_offsets = np.array([offset for _, offset in added], np.int64)
        more.is_own = np.zeros(len(added), bool)
        block = _joined([blocks[queue], more]) if queue in blocks else more
        blocks[queue] = block.select(np.argsort(block.rows, kind="stable"))
    return blocks


def _joined(blocks: Iterable[_Block]) -> _Block:
    parts = zip(*((block.entries, block.rows, block.queue_offsets, block.is_own) for block in blocks), strict=True)
    entries, rows, queue_offsets, is_own = (np.concatenate(part) for part in parts)
    return _Block(entries, rows, queue_offsets, is_own)


def _ext_units(columns: RecordColumns, block: _Block, filters: ConsumerFilters | None) -> dict[str, Any]:
    """What each entry's ConsumeQueueExt unit holds beside the tags code; further queues' entries get none."""
    sizes = np.where(block.is_own, NO_BIT_MAP, NO_EXT_UNIT).astype(BIT_MAP_SIZE)
    maps = []
    if filters is not None:
        topics = {topic.encode("utf-8", "surrogatepass") for topic in filters.topics}
        for at in np.flatnonzero(block.is_own).tolist():
            row = int(block.rows[at])
            start, size = columns.parts[row, [rk.TOPIC, rk.TOPIC_SIZE]].tolist()
            topic = columns.data[start : start + size].tobytes()
            if topic not in topics:
                continue
            text = _text(columns, *columns.parts[row, [rk.PROPERTIES, rk.PROPERTIES_SIZE]].tolist())
            bit_map = filters.bit_map(decode_utf8(topic), parse_properties(text))
            if bit_map is not None:
                sizes[at] = len(bit_map)
                maps.append(bit_map)
    return {
        "store_timestamps": columns.store_timestamp[block.rows].astype(OFFSET, copy=False),
        "bit_map_sizes": sizes,
        "bit_maps": np.frombuffer(b"".join(maps), np.uint8),
    }


def _arrivals(columns: RecordColumns, rules: MultiDispatch) -> dict[str, Any]:
    """The last record of each queue, and of each further queue that a record names, whatever got entries.

    ``DefaultMessageStore.ReputMessageService#doReput`` and ``#notifyMessageArrive4MultiQueue``, which ask no switch.
    """
    groups, firsts = _groups(columns)
    queued = cqf.queued_records(columns.sys_flag)
    rows = np.arange(len(columns))
    last = np.empty(len(firsts), np.int64)
    last[groups] = rows
    last[groups[queued]] = rows[queued]
    topics, queue_ids = _topics(columns, firsts), columns.queue_id[firsts].tolist()
    offsets, is_queued = columns.queue_offset[last].tolist(), queued[last].tolist()
    for (topic, queue_id), added in _further_queues(columns, np.ones(len(columns), bool), rules):
        topics.append(topic)
        queue_ids.append(queue_id)
        last = np.append(last, added[-1][0])
        offsets.append(added[-1][1])
        is_queued.append(True)
    arrivals = np.empty(len(topics), ARRIVAL)
    arrivals["queue_id"], arrivals["next_offset"] = queue_ids, np.array(offsets, np.int64) + 1
    arrivals["tags_code"], arrivals["store_timestamp"] = columns.tags_code[last], columns.store_timestamp[last]
    arrivals["is_queued"] = is_queued
    counts = np.empty(len(firsts), TOPIC_COUNT)
    counts["messages"] = np.bincount(groups, minlength=len(firsts))
    counts["size_bytes"] = np.bincount(groups, columns.msg_size, len(firsts))
    return {
        "arrived": topics,
        "arrivals": arrivals,
        "counted": topics[: len(firsts)],
        "topic_counts": counts,
    }


def _keys(columns: RecordColumns, needs: LogicNeeds) -> dict[str, Any]:
    of_records = (columns.data, columns.parts, columns.spans, columns.place, columns.sys_flag, columns.store_timestamp)
    room = 4 * len(columns)
    keys: list[Any] = [np.empty(room, kind) for kind in (ID, OFFSET, OFFSET)]
    row = count = 0
    while True:
        row, count = collect_keys(*of_records, needs.index_tags, row, count, *keys)
        if row == len(columns):
            names = ("key_hashes", "key_offsets", "key_timestamps")
            return {name: values[:count] for name, values in zip(names, keys, strict=True)}
        room = max(2 * room, count + keys_most(int(columns.spans[row, pk.KEYS, 1])))
        keys = [np.concatenate([known[:count], np.empty(room - count, known.dtype)]) for known in keys]
