"""What the tasks of a micro-batch hand to the driver for ConsumeQueue and IndexFile, through ``scratch`` files.

One Arrow row a window of the log, in no particular order; 28 bytes a queued message and 20 bytes a key, never a
record. ``LogicBatch.merge`` checks that the windows follow each other without a gap and puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from reput.sinks import consume_queue_format as cqf
from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.index_format import collect_keys
from reput.sinks.sink_progress import RecordFingerprint
from reput.sinks.task_result import RESULT_FIELDS, in_log_order, last_fingerprint, last_record_of
from reput.source import record_kernels as rk
from reput.source.batch_decoder import Bytes, Int32s, Int64s, RecordColumns
from reput.source.range_reader import Window

_OFFSET = np.dtype("<i8")
_COUNT = np.dtype("<i8")
_ID = np.dtype("<i4")

WINDOW_SCHEMA = pa.schema(
    [
        *RESULT_FIELDS,
        pa.field("topics", pa.list_(pa.binary()), nullable=False),
        # The first record's store timestamp (ms), and how many were stored earlier than the one before them.
        pa.field("store_times", pa.list_(pa.int64())),
        pa.field("queue_ids", pa.binary(), nullable=False),
        pa.field("queue_counts", pa.binary(), nullable=False),
        pa.field("entries", pa.binary(), nullable=False),
        pa.field("queue_offsets", pa.binary(), nullable=False),
        pa.field("key_hashes", pa.binary(), nullable=False),
        pa.field("key_offsets", pa.binary(), nullable=False),
        pa.field("key_timestamps", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True)
class LogicNeeds:
    """Which sinks are on; what nobody needs is not computed."""

    consume_queue: bool = True
    index: bool = True


def encode_window(window: Window, needs: LogicNeeds) -> pa.RecordBatch:
    """One window of the log as one row of `WINDOW_SCHEMA`."""
    columns = window.columns
    row: dict[str, Any] = {
        "start": window.start,
        "end": window.end,
        "messages": len(columns),
        "last_record": last_record_of(columns),
        "topics": [],
        **dict.fromkeys(WINDOW_SCHEMA.names[len(RESULT_FIELDS) + 1 :], b""),
        "store_times": _store_times(columns) if len(columns) else None,
    }
    if needs.consume_queue and len(columns):
        row.update(_queues(columns))
    if needs.index and len(columns):
        row.update(_keys(columns))
    return pa.RecordBatch.from_pylist([row], WINDOW_SCHEMA)


def _store_times(columns: RecordColumns) -> list[int]:
    times = columns.store_timestamp
    return [int(times[0]), int(np.count_nonzero(times[1:] < times[:-1]))]


def _queues(columns: RecordColumns) -> dict[str, Any]:
    count = len(columns)
    groups, firsts = np.empty(count, np.int32), np.empty(count, np.int64)
    table = np.full(1 << (2 * count).bit_length(), -1, np.int32)
    group_count = cqf.group_by_queue(columns.data, columns.parts, columns.queue_id, table, groups, firsts)
    counts = np.zeros(group_count, np.int64)
    total = cqf.count_queued(groups, columns.sys_flag, counts)
    starts = np.cumsum(counts) - counts
    entries, offsets = np.empty((total, cqf.CQ_STORE_UNIT_SIZE), np.uint8), np.empty(total, np.int64)
    cqf.encode_entries(
        columns.parts,
        columns.place,
        groups,
        columns.sys_flag,
        columns.tags_code,
        columns.queue_offset,
        starts,
        entries,
        offsets,
    )
    rows = [int(row) for row in firsts[:group_count]]
    topics = columns.parts[:, [rk.TOPIC, rk.TOPIC_SIZE]]
    return {
        "topics": [columns.data[at : at + size].tobytes() for at, size in topics[rows]],
        "queue_ids": columns.queue_id[rows].astype(_ID).tobytes(),
        "queue_counts": counts.astype(_COUNT).tobytes(),
        "entries": entries.tobytes(),
        "queue_offsets": offsets.astype(_OFFSET).tobytes(),
    }


def _keys(columns: RecordColumns) -> dict[str, Any]:
    room = 2 * len(columns)
    while True:
        hashes, offsets = np.empty(room, np.int32), np.empty(room, np.int64)
        timestamps = np.empty(room, np.int64)
        count = collect_keys(
            columns.data,
            columns.parts,
            columns.spans,
            columns.place,
            columns.sys_flag,
            columns.store_timestamp,
            hashes,
            offsets,
            timestamps,
        )
        if count <= room:
            break
        room = count
    return {
        "key_hashes": hashes[:count].astype(_ID).tobytes(),
        "key_offsets": offsets[:count].astype(_OFFSET).tobytes(),
        "key_timestamps": timestamps[:count].astype(_OFFSET).tobytes(),
    }


@dataclass(frozen=True)
class QueueEntries:
    """Entries of one queue in log order: uint8[n, 20], and the records' queue offsets, int64[n]."""

    topic: bytes
    queue_id: int
    entries: Bytes
    queue_offsets: Int64s


@dataclass(frozen=True)
class KeyEntries:
    """Keys in log order: hash, the record's place, its store timestamp (ms)."""

    hashes: Int32s
    offsets: Int64s
    timestamps: Int64s


@dataclass(frozen=True)
class LogicBatch:
    """The effects of `[start, end)` of the log on queues and index.

    `first_store_timestamp` (ms) is the first record's, `store_time_backwards` how many of the others were stored
    earlier than the one before them.
    """

    start: int
    end: int
    messages: int
    last_record: RecordFingerprint | None
    queues: tuple[QueueEntries, ...]
    keys: KeyEntries
    first_store_timestamp: int | None = None
    store_time_backwards: int = 0

    @classmethod
    def merge(cls, windows: pa.Table) -> LogicBatch:
        """Put the tasks' windows together, in log order.

        Raises
        ------
        SinkError
            The windows overlap or leave a gap: a task's result is missing or came twice.
        """
        windows = in_log_order(windows)
        first_store_timestamp, backwards = _merge_store_times(windows)
        return cls(
            start=windows["start"][0].as_py(),
            end=windows["end"][-1].as_py(),
            messages=sum(windows["messages"].to_pylist()),
            last_record=last_fingerprint(windows),
            queues=_merge_queues(windows),
            keys=KeyEntries(
                _joined(windows, "key_hashes", _ID),
                _joined(windows, "key_offsets", _OFFSET),
                _joined(windows, "key_timestamps", _OFFSET),
            ),
            first_store_timestamp=first_store_timestamp,
            store_time_backwards=backwards,
        )

    def anomalies(self, before: RecordFingerprint | None) -> AnomalyCounts:
        """What the records are by themselves, whatever the queues hold; `before` is the record before the batch."""
        first = self.first_store_timestamp
        backwards = before is not None and first is not None and first < before.store_timestamp
        return AnomalyCounts(store_time_backwards=self.store_time_backwards + backwards)

    def after(self, offset: int) -> LogicBatch:
        """The same without the records before `offset`: what a sink that ends there still needs."""
        if offset <= self.start:
            return self
        queues = []
        for queue in self.queues:
            places = queue.entries.view(cqf.ENTRY)["physical_offset"][:, 0]
            keep = places >= offset
            if keep.any():
                queues.append(QueueEntries(queue.topic, queue.queue_id, queue.entries[keep], queue.queue_offsets[keep]))
        later = self.keys.offsets >= offset
        keys = KeyEntries(self.keys.hashes[later], self.keys.offsets[later], self.keys.timestamps[later])
        return LogicBatch(offset, self.end, self.messages, self.last_record, tuple(queues), keys)


def _merge_store_times(windows: pa.Table) -> tuple[int | None, int]:
    """The first record's store timestamp and the number of steps back, those between windows among them."""
    first = before = None
    backwards = 0
    columns = (windows[name].to_pylist() for name in ("store_times", "last_record"))
    for times, last_record in zip(*columns, strict=True):
        if times is None:
            continue
        window_first, inside = times
        backwards += inside + (before is not None and window_first < before)
        first = window_first if first is None else first
        before = RecordFingerprint(*last_record).store_timestamp
    return first, backwards


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
    ids = _joined(windows, "queue_ids", _ID).tolist()
    topics = [topic for row in windows["topics"].to_pylist() for topic in row]
    blocks = np.array([numbers.setdefault(queue, len(numbers)) for queue in zip(topics, ids, strict=True)], np.int64)
    counts = _joined(windows, "queue_counts", _COUNT)
    totals = np.bincount(blocks, counts, len(numbers)).astype(np.int64)
    ends = np.cumsum(totals)
    entries = _regroup(windows, "entries", cqf.CQ_STORE_UNIT_SIZE, blocks, counts, ends - totals)
    offsets = _regroup(windows, "queue_offsets", _OFFSET.itemsize, blocks, counts, ends - totals)
    queue_offsets = offsets.view(_OFFSET)[:, 0] if len(offsets) else np.empty(0, np.int64)
    return tuple(
        QueueEntries(topic, queue_id, entries[end - total : end], queue_offsets[end - total : end])
        for (topic, queue_id), end, total in zip(numbers, ends.tolist(), totals.tolist(), strict=True)
        if total
    )


def _regroup(windows: pa.Table, name: str, width: int, blocks: Int64s, counts: Int64s, starts: Int64s) -> Bytes:
    """The column's rows of `width` bytes, each queue's together, as uint8[n, width]."""
    source = _joined(windows, name, np.dtype(np.uint8))
    target = np.empty(len(source), np.uint8)
    cqf.merge_blocks(blocks, counts * width, starts * width, source, target)
    return target.reshape(-1, width)
