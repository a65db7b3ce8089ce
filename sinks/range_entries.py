"""What a task of `reput rebuild` leaves of a piece of the log: entries by queue, keys in log order, in a scratch file.

A range's windows (``logic_window``) are put together by its task, so that the driver sees a block a queue and piece
and no entry at all. A piece ends with its range, or where the effects of its windows reach `PIECE_BYTES`: records full
of keys have ten times their own size of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reput.sinks.array_file import Arrays, write_arrays
from reput.sinks.consume_queue_format import CQ_STORE_UNIT_SIZE, merge_blocks
from reput.sinks.logic_batch import merge_store_times
from reput.sinks.logic_window import COUNT, ID, OFFSET, LogicNeeds, encode_window
from reput.sinks.queue_order import find_runs
from reput.sinks.task_result import RESULT_FIELDS
from reput.source.batch_decoder import Bytes, Int64s
from reput.source.range_reader import Window

PIECE_BYTES = 64 * 1024 * 1024

# What the driver is told of a piece: its place, its messages, the last record, store times, the file with the rest.
PIECE_SCHEMA = pa.schema(
    [
        *RESULT_FIELDS,
        pa.field("store_times", pa.list_(pa.int64()), nullable=False),
        pa.field("scratch", pa.string(), nullable=False),
    ]
)

_KEY_COLUMNS: dict[str, np.dtype[Any]] = {"key_hashes": ID, "key_offsets": OFFSET, "key_timestamps": OFFSET}


@dataclass(frozen=True)
class QueueFilter:
    """Which queues are made: those of `topic` and `queue_id`, where given, and of no topic in `exclude`."""

    topic: bytes | None = None
    queue_id: int | None = None
    exclude: frozenset[bytes] = frozenset()

    def takes(self, topic: bytes, queue_id: int) -> bool:
        """Whether a queue is made."""
        is_named = self.topic in (None, topic) and self.queue_id in (None, queue_id)
        return is_named and topic not in self.exclude

    @property
    def takes_all(self) -> bool:
        """Whether every queue is made."""
        return self == QueueFilter()


def write_pieces(
    windows: Iterable[Window], needs: LogicNeeds, wanted: QueueFilter, directory: Path
) -> Iterator[pa.RecordBatch]:
    """Write the effects of consecutive windows to scratch files below `directory`; rows of `PIECE_SCHEMA`.

    `needs` are without ConsumeQueueExt units and batch topics. Memory: twice `PIECE_BYTES`, and one window's effects.
    """
    rows: list[pa.RecordBatch] = []
    size = 0
    for window in windows:
        rows.append(encode_window(window, needs))
        size += rows[-1].nbytes
        if size >= PIECE_BYTES:
            yield _write_piece(rows, wanted, directory)
            rows, size = [], 0
    if rows:
        yield _write_piece(rows, wanted, directory)


def _write_piece(rows: Sequence[pa.RecordBatch], wanted: QueueFilter, directory: Path) -> pa.RecordBatch:
    arrays: Arrays = {**_queues(rows, wanted), **_keys(rows)}
    table = pa.Table.from_batches(rows).select(["start", "end", "messages", "last_record", "store_times"])
    first, backwards = merge_store_times(table)
    last_records = [record for record in table["last_record"].to_pylist() if record is not None]
    summary = {
        "start": table["start"][0].as_py(),
        "end": table["end"][-1].as_py(),
        "messages": sum(table["messages"].to_pylist()),
        "last_record": last_records[-1] if last_records else None,
        "store_times": [] if first is None else [first, backwards],
        "scratch": str(write_arrays(directory, arrays)),
    }
    return pa.RecordBatch.from_pylist([summary], PIECE_SCHEMA)


def _queues(rows: Sequence[pa.RecordBatch], wanted: QueueFilter) -> dict[str, np.ndarray[Any, Any]]:
    """The queues that have entries, each one's entries together, and whether they run on.

    `queue_offsets` is empty where every queue runs on: the runs tell them.
    """
    topics = pa.concat_arrays([row.column("topics").flatten() for row in rows])
    queue_ids = np.concatenate([_values(row, "queue_ids", ID) for row in rows])
    counts = [_values(row, "queue_counts", COUNT) for row in rows]
    firsts, numbers = number_queues(topics, queue_ids)
    totals = np.bincount(numbers, np.concatenate(counts), len(firsts)).astype(np.int64)
    blocks = np.split(numbers, np.cumsum([len(part) for part in counts])[:-1])
    entries = _regroup(rows, "entries", CQ_STORE_UNIT_SIZE, blocks, counts, totals)
    queue_offsets = _regroup(rows, "queue_offsets", OFFSET.itemsize, blocks, counts, totals).view(OFFSET)[:, 0]
    kept = totals > 0
    if not wanted.takes_all:
        names = zip(topics.take(pa.array(firsts)).to_pylist(), queue_ids[firsts].tolist(), strict=True)
        kept &= np.array([wanted.takes(*name) for name in names], bool)
        rows_kept = np.repeat(kept, totals)
        entries, queue_offsets = entries[rows_kept], queue_offsets[rows_kept]
    firsts, totals = firsts[kept], totals[kept]
    runs = find_runs(entries, queue_offsets, totals)
    names = topics.take(pa.array(firsts)).to_pylist()
    return {
        "topics": np.frombuffer(b"".join(names), np.uint8),
        "topic_sizes": np.array([len(name) for name in names], np.int64),
        "queue_ids": queue_ids[firsts].astype(np.int32),
        "counts": totals,
        "runs": runs,
        "entries": entries,
        "queue_offsets": queue_offsets[:0] if runs["runs_on"].all() else queue_offsets,
    }


def number_queues(topics: pa.Array, queue_ids: Any) -> tuple[Int64s, Int64s]:
    """Give blocks of the same queue the same number: a block of each number, and each block's number."""
    codes = topics.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    _, firsts, numbers = np.unique(codes << 32 | queue_ids.astype(np.uint32), return_index=True, return_inverse=True)
    return firsts, numbers


def _regroup(
    rows: Sequence[pa.RecordBatch],
    name: str,
    width: int,
    blocks: Sequence[Int64s],
    counts: Sequence[Int64s],
    totals: Int64s,
) -> Bytes:
    """A column's rows of `width` bytes, each queue's together, as uint8[n, width]."""
    target = np.empty(int(totals.sum()) * width, np.uint8)
    starts = (np.cumsum(totals) - totals) * width
    for row, numbers, sizes in zip(rows, blocks, counts, strict=True):
        merge_blocks(numbers, sizes * width, starts, _values(row, name, np.dtype(np.uint8)), target)
    return target.reshape(-1, width)


def _keys(rows: Sequence[pa.RecordBatch]) -> dict[str, list[np.ndarray[Any, Any]]]:
    return {name: [_values(row, name, dtype) for row in rows] for name, dtype in _KEY_COLUMNS.items()}


def _values(row: pa.RecordBatch, name: str, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A window's binary value as an array."""
    return np.frombuffer(row.column(name)[0].as_buffer(), dtype)
