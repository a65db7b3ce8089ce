"""What a task leaves of a piece of the log: entries by queue, keys in log order, in a scratch file.

A record's entry and keys are made as the walk comes by (``piece_kernels``), and nothing else of it is kept; the driver
sees a block a queue and piece and no entry at all. A piece ends with its range, or where what it collected reaches
`PIECE_BYTES`: records full of keys have ten times their own size of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from reput.sinks.dispatch import piece_kernels as kernels
from reput.sinks.dispatch.runs import find_runs
from reput.sinks.files.array_file import write_arrays
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE
from reput.sinks.formats.index_file import keys_most
from reput.source.arrays import Int64s
from reput.source.kernels import property_kernels as pk
from reput.source.kernels.batch_decoder import decode_columns
from reput.source.record.message_decoder import Verdict
from reput.source.segments.mapped_file_queue import MappedFile
from reput.source.segments.range_reader import corrupt_record
from reput.source.segments.segment_scan import Scan

PIECE_BYTES = 64 * 1024 * 1024


class PieceRow(TypedDict):
    """What the driver is told of a piece: ``RESULT_FIELDS``, store times as in ``WINDOW_SCHEMA``, the rest's file."""

    start: int
    end: int
    messages: int
    last_record: list[int] | None
    store_times: list[int | None]
    scratch: str


_ENTRY_BYTES, _KEY_BYTES = CQ_STORE_UNIT_SIZE + 8 + 4, 4 + 8 + 8
# Rows that a piece has room for at first.
_ENTRIES, _KEYS, _QUEUES, _TOPIC_BYTES = 1 << 18, 1 << 19, 1 << 10, 1 << 16
_TEXT_MAX = 2**15 - 1  # of a topic, of a property
_NO_ROW = -1


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


@dataclass(frozen=True)
class PieceNeeds:
    """Which effects of a record are wanted; `index_tags` as in ``LogicNeeds``, `delays_ms` as in ``DecodeOptions``."""

    consume_queue: bool
    index: bool
    index_tags: bool
    delays_ms: tuple[int, ...]


def write_pieces(
    scans: Iterable[Scan], file: MappedFile, needs: PieceNeeds, wanted: QueueFilter, directory: Path
) -> Iterator[PieceRow]:
    """Write the effects of consecutive records of `file` to scratch files below `directory`; a row for each.

    Memory: four times `PIECE_BYTES`, and one scan.

    Raises
    ------
    CorruptRecordError
        A property that must be a number is none.
    """
    piece = None
    for scan in scans:
        if piece is None:
            piece = Piece(needs, scan.start)
        piece.add(scan, file)
        if piece.size_bytes >= PIECE_BYTES:
            yield piece.write(wanted, directory)
            piece = None
    if piece is not None:
        yield piece.write(wanted, directory)


class Piece:
    """What was collected of consecutive records, from `start` on, and the arrays it is collected in."""

    def __init__(self, needs: PieceNeeds, start: int) -> None:
        self._needs = needs
        self._start = self._end = start
        self._delays = np.array(needs.delays_ms, np.int64)
        self._spans, self._tags_codes = np.empty((1, len(pk.LOCATED), 2), np.int32), np.empty(1, np.int64)
        self._state = np.zeros(kernels.STATE, np.int64)
        self._queues = np.empty((_QUEUES, kernels.QUEUE), np.int64)
        self._table = np.full(2 * _QUEUES, -1, np.int32)
        self._topics = np.empty(_TOPIC_BYTES, np.uint8)
        self._numbers, self._queue_offsets = np.empty(_ENTRIES, np.int32), np.empty(_ENTRIES, np.int64)
        self._entries = np.empty((_ENTRIES, CQ_STORE_UNIT_SIZE), np.uint8)
        self._hashes, self._offsets = np.empty(_KEYS, np.int32), np.empty(_KEYS, np.int64)
        self._timestamps = np.empty(_KEYS, np.int64)

    @property
    def size_bytes(self) -> int:
        """What was collected, in bytes."""
        return _ENTRY_BYTES * self._count(kernels.ENTRIES) + _KEY_BYTES * self._count(kernels.KEYS)

    def _count(self, which: int) -> int:
        return int(self._state[which])

    def add(self, scan: Scan, file: MappedFile) -> None:
        """Collect the effects of the records of a scan, which begins where the one before ended."""
        row, known_row, known_code = 0, _NO_ROW, 0
        while True:
            row, cause = self._add(scan, row, known_row, known_code)
            if row == len(scan):
                break
            if cause == kernels.NO_ROOM:
                self._grow()
                continue
            one, verdict = decode_columns(scan.data, scan.start, scan.parts[row : row + 1], self._delays)
            if verdict is not Verdict.MESSAGE:
                raise corrupt_record(file, scan.place_of(row), verdict)
            known_row, known_code = row, int(one.tags_code[0])
        self._end = scan.stop

    def _add(self, scan: Scan, first: int, known_row: int, known_code: int) -> tuple[int, int]:
        columns = scan.columns
        spans, codes = (self._spans, self._tags_codes) if columns is None else (columns.spans, columns.tags_code)
        row, cause = kernels.add_records(
            *(scan.data, scan.parts, first, scan.start, self._delays, known_row, known_code),
            *(columns is not None, spans, codes, self._state),
            *(self._needs.consume_queue, self._table, self._queues, self._topics),
            *(self._numbers, self._entries, self._queue_offsets),
            *(self._needs.index, self._needs.index_tags, self._hashes, self._offsets, self._timestamps),
        )
        return int(row), int(cause)

    def _grow(self) -> None:
        """Double what is full, or has no room for the longest topic or for the keys of any record."""
        state = self._state
        if state[kernels.ENTRIES] == len(self._numbers):
            self._numbers, self._entries = _doubled(self._numbers), _doubled(self._entries)
            self._queue_offsets = _doubled(self._queue_offsets)
        if state[kernels.QUEUES] == len(self._queues):
            self._queues = _doubled(self._queues)
            self._table = np.full(2 * len(self._table), -1, np.int32)
            kernels.fill_table(self._table, self._queues, self._count(kernels.QUEUES))
        if len(self._topics) - state[kernels.TOPIC_BYTES] < _TEXT_MAX:
            self._topics = _doubled(self._topics)
        if len(self._hashes) - state[kernels.KEYS] < keys_most(_TEXT_MAX):
            self._hashes, self._offsets = _doubled(self._hashes), _doubled(self._offsets)
            self._timestamps = _doubled(self._timestamps)

    def write(self, wanted: QueueFilter, directory: Path) -> PieceRow:
        """Write the entries of the queues that are `wanted`, and the keys."""
        state = self._state.tolist()
        keys = state[kernels.KEYS]
        path = write_arrays(
            directory,
            {
                **self.grouped(wanted),
                "key_hashes": self._hashes[:keys],
                "key_offsets": self._offsets[:keys],
                "key_timestamps": self._timestamps[:keys],
            },
        )
        messages = state[kernels.MESSAGES]
        queued = state[kernels.LAST_QUEUED_TIME] if state[kernels.ENTRIES] else None
        last = (kernels.LAST_OFFSET, kernels.LAST_SIZE, kernels.LAST_TIME, kernels.LAST_CRC)
        return {
            "start": self._start,
            "end": self._end,
            "messages": messages,
            "last_record": [state[field] for field in last] if messages else None,
            "store_times": [state[kernels.FIRST_TIME], state[kernels.BACKWARDS], queued] if messages else [],
            "scratch": str(path),
        }

    def grouped(self, wanted: QueueFilter) -> dict[str, np.ndarray[Any, Any]]:
        """The queues that are wanted, each one's entries together, and whether they run on.

        `queue_offsets` is empty where every queue runs on: the runs tell them.
        """
        queues = self._queues[: self._count(kernels.QUEUES)]
        topics = [
            self._topics[at : at + size].tobytes()
            for at, size in queues[:, [kernels.TOPIC_AT, kernels.TOPIC_SIZE]].tolist()
        ]
        names = zip(topics, queues[:, kernels.QUEUE_ID].tolist(), strict=True)
        # A queue was given a number before there was room for its entry.
        kept = queues[:, kernels.COUNT] > 0
        kept &= np.array([wanted.takes(*name) for name in names], bool)
        counts = np.where(kept, queues[:, kernels.COUNT], 0)
        total = int(counts.sum())
        starts = np.where(kept, np.cumsum(counts) - counts, -1)
        entries, queue_offsets = np.empty((total, CQ_STORE_UNIT_SIZE), np.uint8), np.empty(total, np.int64)
        numbers = self._numbers[: self._count(kernels.ENTRIES)]
        kernels.group_rows(numbers, starts, self._entries, self._queue_offsets, entries, queue_offsets)
        runs = find_runs(entries, queue_offsets, counts[kept])
        topics = [topic for topic, is_kept in zip(topics, kept.tolist(), strict=True) if is_kept]
        return {
            "topics": np.frombuffer(b"".join(topics), np.uint8),
            "topic_sizes": np.array([len(topic) for topic in topics], np.int64),
            "queue_ids": queues[kept, kernels.QUEUE_ID].astype(np.int32),
            "counts": counts[kept],
            "runs": runs,
            "entries": entries,
            "queue_offsets": queue_offsets[:0] if runs["runs_on"].all() else queue_offsets,
        }


def _doubled(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    grown = np.empty((2 * len(values), *values.shape[1:]), values.dtype)
    grown[: len(values)] = values
    return grown


def number_queues(topics: pa.Array, queue_ids: Any) -> tuple[Int64s, Int64s]:
    """Give blocks of the same queue the same number: a block of each number, and each block's number."""
    codes = np.from_dlpack(topics.dictionary_encode().indices).astype(np.int64)
    _, firsts, numbers = np.unique(codes << 32 | queue_ids.astype(np.uint32), return_index=True, return_inverse=True)
    return firsts, numbers
