"""What a task makes of a piece of the log: entries by queue and keys in log order, as arrays.

The walk makes a record's entry and keys as it passes (``piece_kernels``), and keeps nothing else of it. The driver sees
one block for each queue and piece, not the entries. What few stores need besides (``LogicNeeds.is_plain``) is added
from the records' columns (``ext_units``, ``further_queues``). A piece ends with its range, or when it has collected
`PIECE_BYTES`: keys can take ten times the size of their records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from reput.sinks.dispatch import piece_kernels as kernels
from reput.sinks.dispatch.arrival import QueueArrivals
from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.dispatch.multi_dispatch import MultiDispatch
from reput.sinks.dispatch.runs import find_runs
from reput.sinks.files.scratch import write_arrays
from reput.sinks.filter.consumer_filter import ConsumerFilters
from reput.sinks.formats.batch_consume_queue import BATCH_STORE_UNIT_SIZE, batch_entries
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, queued_records
from reput.sinks.formats.index_file import key_count_max
from reput.source.arrays import Bools, Bytes, Int32s, Int64s
from reput.source.kernels import property_kernels as pk
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns, decode_columns
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.log.range_reader import corrupt_record
from reput.source.log.segment_scan import Window
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_properties import decode_utf8, parse_properties

# ----------------------------------------------------------------------------------------------------------------------
# What few stores need of a record beside its entry and keys, made of decoded columns: further queues and ext units.

# In place of a bitmap's size: the topic has no filter; the entry gets no ConsumeQueueExt unit at all.
NO_BIT_MAP = -1
NO_EXT_UNIT = -2


def further_queues(
    columns: RecordColumns, wanted: Bools, rules: MultiDispatch
) -> Iterator[tuple[int, bytes, int, int]]:
    """The queues that multi dispatch adds to `wanted` records (bool[n]): (row, topic, queue id, queue offset)."""
    wanted = wanted & (columns.spans[:, pk.MULTI_DISPATCH, 1] > 0) & (columns.spans[:, pk.MULTI_QUEUE_OFFSET, 1] > 0)
    physical_offsets = columns.physical_offset
    for row in np.flatnonzero(wanted).tolist():
        topic = _text(columns, columns.parts[row, [rk.TOPIC, rk.TOPIC_SIZE]])
        names = _text(columns, columns.spans[row, pk.MULTI_DISPATCH])
        offsets = _text(columns, columns.spans[row, pk.MULTI_QUEUE_OFFSET])
        for target in rules.queues(topic, int(columns.queue_id[row]), names, offsets, int(physical_offsets[row])):
            yield row, *target


def ext_units(
    columns: RecordColumns, rows: Int64s, is_own: Bools, filters: ConsumerFilters | None
) -> tuple[Int64s, Int32s, np.ndarray[Any, np.dtype[np.object_]]]:
    """What the ext units of the entries of `rows` hold: store timestamps (ms), sizes of bitmaps, bitmaps.

    Entries of further queues, those that are not `is_own` (bool[n]), get no unit.
    """
    sizes = np.where(is_own, NO_BIT_MAP, NO_EXT_UNIT).astype(np.int32)
    bit_maps = np.full(len(rows), b"", object)
    topics = filters.topics if filters is not None else ()
    encoded = {topic.encode("utf-8", "surrogatepass") for topic in topics}
    for at in np.flatnonzero(is_own).tolist() if encoded else ():
        parts = columns.parts[rows[at]]
        topic = _bytes(columns, parts[[rk.TOPIC, rk.TOPIC_SIZE]])
        if filters is None or topic not in encoded:
            continue
        properties = parse_properties(_text(columns, parts[[rk.PROPERTIES, rk.PROPERTIES_SIZE]]))
        bit_map = filters.bit_map(decode_utf8(topic), properties)
        if bit_map is not None:
            sizes[at], bit_maps[at] = len(bit_map), bit_map
    return columns.store_timestamp[rows], sizes, bit_maps


def _bytes(columns: RecordColumns, span: Any) -> bytes:
    at, size = span.tolist()
    return columns.data[at : at + size].tobytes()


def _text(columns: RecordColumns, span: Any) -> str:
    return decode_utf8(_bytes(columns, span))


PIECE_BYTES = 64 * 1024 * 1024

# The arrays by name; see `Piece.arrays`.
PieceArrays = dict[str, np.ndarray[Any, Any]]


class PieceRow(TypedDict):
    """What the driver gets of a piece: ``RESULT_FIELDS``, and more.

    `store_times` (ms) has the first record's, the number of records stored earlier than the one before, and that of the
    last record with a queue entry (None without one); it is empty without records. `queued_offset` is where that record
    begins, a physical offset. `latest_store_time` is at least 0.
    `arrivals` is empty unless it is wanted. `arrays` are the arrays or the scratch file that holds them.
    """

    start: int
    end: int
    messages: int
    last_record: list[int] | None
    store_times: list[int | None]
    queued_offset: int | None
    latest_store_time: int
    arrivals: list[QueueArrivals]
    arrays: Path | PieceArrays


_ENTRY_BYTES, _KEY_BYTES = CQ_STORE_UNIT_SIZE + 8 + 4, 4 + 8 + 8
# The rows that a piece has room for at first.
_ENTRIES, _KEYS, _QUEUES, _TOPIC_BYTES = 1 << 18, 1 << 19, 1 << 10, 1 << 16
_TEXT_MAX = 2**15 - 1  # of a topic, of a property
_NO_ROW = -1
_NO_EXT = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, object))
_NO_BATCHES = (np.empty(0, np.int32), np.empty((0, BATCH_STORE_UNIT_SIZE), np.uint8))


@dataclass(frozen=True)
class QueueFilter:
    """Which queues are made: those of `topic` and `queue_id`, where given, except for topics in `exclude`."""

    topic: bytes | None = None
    queue_id: int | None = None
    exclude: frozenset[bytes] = frozenset()

    def takes(self, topic: bytes, queue_id: int) -> bool:
        """Whether a queue is made."""
        is_named = self.topic in (None, topic) and self.queue_id in (None, queue_id)
        return is_named and topic not in self.exclude


def make_pieces(
    windows: Iterable[Window],
    file: MappedFile,
    needs: LogicNeeds,
    delays_ms: tuple[int, ...],
    wanted: QueueFilter,
    directory: Path | None,
) -> Iterator[PieceRow]:
    """The effects of consecutive records of `file`, piece by piece; `delays_ms` as in ``DecodeOptions``.

    Their arrays are left in scratch files below `directory`, or in memory where that is None. The windows have
    columns unless the needs are plain. Memory: four times `PIECE_BYTES`, and one window.

    Raises
    ------
    CorruptRecordError
        A property that must be a number is not one.
    """
    piece = None
    for window in windows:
        if piece is None:
            piece = Piece(needs, delays_ms, window.start)
        piece.add(window, file)
        if piece.size_bytes >= PIECE_BYTES:
            yield piece.finish(wanted, directory)
            piece = None
    if piece is not None:
        yield piece.finish(wanted, directory)


class Piece:
    """Collects the effects of consecutive records, from `start` on, in arrays."""

    def __init__(self, needs: LogicNeeds, delays_ms: tuple[int, ...], start: int) -> None:
        self._needs = needs
        self._start = self._end = start
        self._delays = np.array(delays_ms, np.int64)
        self._spans, self._tags_codes = np.empty((1, len(pk.LOCATED), 2), np.int32), np.empty(1, np.int64)
        self._state = np.zeros(kernels.STATE, np.int64)
        self._queues = np.empty((_QUEUES, kernels.QUEUE), np.int64)
        self._table = np.full(2 * _QUEUES, -1, np.int32)
        self._topics = np.empty(_TOPIC_BYTES, np.uint8)
        self._numbers, self._queue_offsets = np.empty(_ENTRIES, np.int32), np.empty(_ENTRIES, np.int64)
        self._entries = np.empty((_ENTRIES, CQ_STORE_UNIT_SIZE), np.uint8)
        self._hashes, self._offsets = np.empty(_KEYS, np.int32), np.empty(_KEYS, np.int64)
        self._timestamps = np.empty(_KEYS, np.int64)
        # Window by window: what `ext_units` gave; of each entry of a batch queue, its queue's number and its bytes.
        self._ext: list[tuple[Int64s, Int32s, Any]] = []
        self._batches: list[tuple[Int32s, Bytes]] = []
        self._added_bytes = 0
        self._has_queued = False

    @property
    def size_bytes(self) -> int:
        """The size of what was collected, in bytes."""
        return _ENTRY_BYTES * self._count(kernels.ENTRIES) + _KEY_BYTES * self._count(kernels.KEYS) + self._added_bytes

    def _count(self, which: int) -> int:
        return int(self._state[which])

    def add(self, window: Window, file: MappedFile) -> None:
        """Collect the effects of the records of a window, which begins where the one before ended."""
        row, known_row, known_code = 0, _NO_ROW, 0
        first = self._count(kernels.ENTRIES)
        while True:
            row, cause = self._add(window, row, known_row, known_code)
            if row == len(window):
                break
            if cause == kernels.NO_ROOM:
                self._grow()
                continue
            one, verdict = decode_columns(window.data, window.start, window.parts[row : row + 1], self._delays)
            if verdict is not Verdict.MESSAGE:
                raise corrupt_record(file, window.offset_of(row), verdict)
            known_row, known_code = row, int(one.tags_code[0])
        self._has_queued |= self._count(kernels.ENTRIES) > first
        if not self._needs.is_plain:
            self._add_more(window.columns, first)
        self._end = window.end

    def _add(self, window: Window, first: int, known_row: int, known_code: int) -> tuple[int, int]:
        columns, needs = window.decoded, self._needs
        spans, codes = (self._spans, self._tags_codes) if columns is None else (columns.spans, columns.tags_code)
        row, cause = kernels.add_records(
            *(window.data, window.parts, first, window.start, self._delays, known_row, known_code),
            *(columns is not None, spans, codes, self._state),
            *(needs.consume_queue, needs.arrivals, self._table, self._queues, self._topics),
            *(self._numbers, self._entries, self._queue_offsets),
            *(needs.index, needs.index_tags, self._hashes, self._offsets, self._timestamps),
        )
        return int(row), int(cause)

    def _grow(self) -> None:
        """Double each array that is full, or that lacks room for the longest topic or for the keys of any record."""
        state = self._state
        if state[kernels.ENTRIES] == len(self._numbers):
            self._grow_entries()
        if state[kernels.QUEUES] == len(self._queues):
            self._queues = _doubled(self._queues)
            self._table = np.full(2 * len(self._table), -1, np.int32)
            kernels.index_queues(self._table, self._queues, self._count(kernels.QUEUES))
        if len(self._topics) - state[kernels.TOPIC_BYTES] < _TEXT_MAX:
            self._topics = _doubled(self._topics)
        if len(self._hashes) - state[kernels.KEYS] < key_count_max(_TEXT_MAX):
            self._hashes, self._offsets = _doubled(self._hashes), _doubled(self._offsets)
            self._timestamps = _doubled(self._timestamps)

    def _grow_entries(self) -> None:
        self._numbers, self._entries = _doubled(self._numbers), _doubled(self._entries)
        self._queue_offsets = _doubled(self._queue_offsets)

    # --- what few stores need ---------------------------------------------------------------------------------

    def _add_more(self, columns: RecordColumns, first: int) -> None:
        """Add what the compiled pass leaves out of the records of a window, whose entries begin at `first`."""
        needs = self._needs
        queued = queued_records(columns.sys_flag) & needs.consume_queue
        if needs.batch_topics:
            self._take_batches(columns, queued, first)
        rows = np.flatnonzero(queued)
        is_own = np.ones(len(rows), bool)
        if needs.multi_dispatch or needs.arrivals:
            rows, is_own = self._add_further(columns, queued, first)
        if needs.ext and needs.consume_queue:
            units = ext_units(columns, rows, is_own, needs.filters)
            self._ext.append(units)
            self._added_bytes += units[0].nbytes + units[1].nbytes + sum(map(len, units[2]))

    def _take_batches(self, columns: RecordColumns, queued: Bools, first: int) -> None:
        """Make the entries of batch queues; their records lose their other entries and leave `queued` (bool[n])."""
        rows = np.flatnonzero(queued)
        end = first + len(rows)
        numbers = self._numbers[first:end].copy()
        found, which = np.unique(numbers, return_inverse=True)
        names = self._names()
        is_batch = np.array([names[number][0] in self._needs.batch_topics for number in found], bool)[which]
        count = int(np.count_nonzero(is_batch))
        for values in (self._numbers, self._queue_offsets, self._entries):
            values[first : end - count] = values[first:end][~is_batch]
        self._state[kernels.ENTRIES] -= count
        self._queues[:, kernels.COUNT] -= np.bincount(numbers[is_batch], minlength=len(self._queues))
        queued[rows[is_batch]] = False
        kept, entries = batch_entries(columns, rows[is_batch])
        units = entries.view(np.uint8).reshape(-1, BATCH_STORE_UNIT_SIZE)
        self._batches.append((numbers[np.searchsorted(rows, kept)], units))
        self._added_bytes += units.nbytes

    def _add_further(self, columns: RecordColumns, queued: Bools, first: int) -> tuple[Int64s, Bools]:
        """Add the entries of further queues to those of the `queued` records, from `first` on, and note arrivals.

        All are in log order, each behind the own entry of its record. Returns each entry's row, and whether it is a
        record's own entry.
        """
        needs, rules = self._needs, self._needs.multi_dispatch or MultiDispatch()
        added = []
        asked = np.ones(len(columns), bool) if needs.arrivals else queued  # an arrival need not be queued
        for row, topic, queue_id, queue_offset in further_queues(columns, asked, rules):
            number = self._number(topic, queue_id)
            if needs.arrivals:
                self._arrive(number, columns, row, queue_offset)
            if needs.multi_dispatch and queued[row]:
                added.append((number, queue_offset, row))
        rows = np.flatnonzero(queued)
        numbers, queue_offsets, further = np.array(added, np.int64).reshape(-1, 3).T
        end = first + len(rows)
        while end + len(added) > len(self._numbers):
            self._grow_entries()
        new, mixed = slice(end, end + len(added)), slice(first, end + len(added))
        self._numbers[new], self._queue_offsets[new] = numbers, queue_offsets
        self._entries[new] = self._entries[first + np.searchsorted(rows, further)]
        self._state[kernels.ENTRIES] += len(added)
        self._queues[:, kernels.COUNT] += np.bincount(numbers, minlength=len(self._queues))
        rows = np.concatenate([rows, further])
        order = np.argsort(rows, kind="stable")
        for values in (self._numbers, self._queue_offsets, self._entries):
            values[mixed] = values[mixed][order]
        return rows[order], order < end - first

    def _number(self, topic: bytes, queue_id: int) -> int:
        """The number of a queue that a property names."""
        data = np.frombuffer(bytearray(topic), np.uint8)
        tables = self._table, self._queues, self._topics, self._state
        while (number := int(kernels.queue_number(data, queue_id, *tables))) < 0:
            self._grow()
            tables = self._table, self._queues, self._topics, self._state
        return number

    def _arrive(self, number: int, columns: RecordColumns, row: int, queue_offset: int) -> None:
        """Note that a further queue got a record; there it is queued whatever kind it is."""
        queue, physical_offset = self._queues[number], columns.data_offset + columns.parts[row, rk.AT]
        if queue[kernels.ARRIVED_QUEUED] < 1 or queue[kernels.ARRIVED_AT] <= physical_offset:
            last = physical_offset, queue_offset, columns.tags_code[row], columns.store_timestamp[row], 1
            queue[kernels.ARRIVED_AT : kernels.ARRIVED_QUEUED + 1] = last

    # --- the result -------------------------------------------------------------------------------------------

    def finish(self, wanted: QueueFilter, directory: Path | None) -> PieceRow:
        """What was collected for the `wanted` queues; for `directory` see `make_pieces`."""
        state, arrays = self._state.tolist(), self.arrays(wanted)
        messages = state[kernels.MESSAGES]
        queued = state[kernels.LAST_QUEUED_TIME] if self._has_queued else None
        queued_offset = state[kernels.LAST_QUEUED_OFFSET] if self._has_queued else None
        last = (kernels.LAST_OFFSET, kernels.LAST_SIZE, kernels.LAST_TIME, kernels.LAST_CRC)
        return {
            "start": self._start,
            "end": self._end,
            "messages": messages,
            "last_record": [state[field] for field in last] if messages else None,
            "store_times": [state[kernels.FIRST_TIME], state[kernels.BACKWARDS], queued] if messages else [],
            "queued_offset": queued_offset,
            "latest_store_time": state[kernels.LATEST_TIME],
            "arrivals": list(self._arrivals()) if self._needs.arrivals else [],
            "arrays": arrays if directory is None else write_arrays(directory, arrays),
        }

    def arrays(self, wanted: QueueFilter) -> PieceArrays:
        """The entries of the wanted queues, grouped by queue, with their runs, and all keys.

        Of ConsumeQueues: `topics` (uint8, one behind the other), `topic_sizes`, `queue_ids` and `counts` [queues],
        `runs` (RUN[queues]), `entries` (uint8[n, 20]), `queue_offsets` (int64[n]; empty where every queue runs on: the
        runs give them). Of their ext units, if there are any: `store_timestamps` and `bit_map_sizes` [n],
        `bit_maps` (uint8, one behind the other). Of BatchConsumeQueues: the first four, named ``batch_...``, and
        `batch_entries` (uint8[m, 46]). In log order: `key_hashes`, `key_offsets`, `key_timestamps` [keys].
        """
        names, numbers = self._names(), self._numbers[: self._count(kernels.ENTRIES)]
        is_wanted = np.array([wanted.takes(*name) for name in names], bool)
        # A queue gets its number before its first entry, and may get none.
        counts = np.where(is_wanted, self._queues[: len(names), kernels.COUNT], 0)
        total = int(counts.sum())
        starts = np.where(counts > 0, np.cumsum(counts) - counts, -1)
        entries, queue_offsets = np.empty((total, CQ_STORE_UNIT_SIZE), np.uint8), np.empty(total, np.int64)
        kernels.group_rows(numbers, starts, self._entries, self._queue_offsets, entries, queue_offsets)
        runs = find_runs(entries, queue_offsets, counts[counts > 0])
        keys = slice(self._count(kernels.KEYS))
        return {
            **_block_arrays(names, counts),
            "runs": runs,
            "entries": entries,
            "queue_offsets": queue_offsets[:0] if runs["runs_on"].all() else queue_offsets,
            **self._ext_arrays(numbers, is_wanted),
            **self._batch_arrays(names, is_wanted),
            "key_hashes": self._hashes[keys],
            "key_offsets": self._offsets[keys],
            "key_timestamps": self._timestamps[keys],
        }

    def _ext_arrays(self, numbers: Int32s, is_wanted: Bools) -> PieceArrays:
        """What the ext units hold, in the order of the entries."""
        order = np.argsort(numbers, kind="stable") if self._ext else np.empty(0, np.int64)
        order = order[is_wanted[numbers[order]]]
        times, sizes, bit_maps = (np.concatenate(parts)[order] for parts in zip(_NO_EXT, *self._ext, strict=True))
        data = np.frombuffer(b"".join(bit_maps.tolist()), np.uint8)
        return {"store_timestamps": times, "bit_map_sizes": sizes, "bit_maps": data}

    def _batch_arrays(self, names: list[tuple[bytes, int]], is_wanted: Bools) -> PieceArrays:
        """The entries of batch queues, grouped by queue."""
        numbers, units = (np.concatenate(parts) for parts in zip(_NO_BATCHES, *self._batches, strict=True))
        order = np.argsort(numbers, kind="stable")
        order = order[is_wanted[numbers[order]]]
        counts = np.bincount(numbers[order], minlength=len(names))
        return {**_block_arrays(names, counts, "batch_"), "batch_entries": units[order]}

    def _names(self) -> list[tuple[bytes, int]]:
        """Topic and queue id of each number."""
        columns = (kernels.TOPIC_AT, kernels.TOPIC_SIZE, kernels.QUEUE_ID)
        queues = self._queues[: self._count(kernels.QUEUES), columns].tolist()
        return [(self._topics[at : at + size].tobytes(), queue_id) for at, size, queue_id in queues]

    def _arrivals(self) -> Iterator[QueueArrivals]:
        first = kernels.ARRIVED
        for name, queue in zip(self._names(), self._queues[:, first:].tolist(), strict=False):
            messages, size_bytes, _, queue_offset, tags_code, store_timestamp, is_queued = queue
            if is_queued >= 0:
                last = queue_offset + 1, tags_code, store_timestamp, bool(is_queued)
                yield QueueArrivals(*name, *last, messages, size_bytes)


def _block_arrays(names: list[tuple[bytes, int]], counts: Int64s, prefix: str = "") -> PieceArrays:
    """Names and entry counts of the queues that have entries, ordered by number."""
    some = np.flatnonzero(counts)
    topics = [names[number][0] for number in some.tolist()]
    return {
        f"{prefix}topics": np.frombuffer(b"".join(topics), np.uint8),
        f"{prefix}topic_sizes": np.array([len(topic) for topic in topics], np.int64),
        f"{prefix}queue_ids": np.array([names[number][1] for number in some.tolist()], np.int32),
        f"{prefix}counts": counts[some],
    }


def _doubled(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    grown = np.empty((2 * len(values), *values.shape[1:]), values.dtype)
    grown[: len(values)] = values
    return grown
