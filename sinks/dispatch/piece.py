"""The result of a task for a piece of the log, as arrays: entries by queue and keys in log order; and pieces joined.

The walk makes a record's entry and keys as it passes (``piece_kernels``), and keeps nothing else of it. The driver sees
one block for each queue and piece, not the entries. Few stores need more (``LogicNeeds.is_plain``): these parts are
added from the records' columns (``ext_units``, ``further_queues``). A piece ends with its range, or when it has
collected `PIECE_BYTES`: keys can take ten times the size of their records.

`PieceEntries` are consecutive pieces of a micro-batch or a wave, as the driver and the writing tasks see them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from reput.sinks.dispatch import piece_kernels as kernels
from reput.sinks.dispatch.arrival import QueueArrivals
from reput.sinks.dispatch.entries import ExtUnits, KeyEntries, QueueEntries, Run, find_runs
from reput.sinks.dispatch.logic_needs import LogicNeeds, MultiDispatch
from reput.sinks.files.scratch import read_arrays, write_arrays
from reput.sinks.filter.consumer_filter import ConsumerFilters
from reput.sinks.formats.consume_queue import (
    BATCH_ENTRY,
    BATCH_STORE_UNIT_SIZE,
    CQ_STORE_UNIT_SIZE,
    ENTRY,
    batch_entries,
    queued_records,
)
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
from reput.source.rows.column_builders import numbers as integer_array

# ----------------------------------------------------------------------------------------------------------------------
# Parts that few stores need beside a record's entry and keys, made from decoded columns: further queues and ext units.

# Values in place of a bitmap's size: the topic has no filter; the entry gets no ConsumeQueueExt unit at all.
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
    """The content of the ext units for the entries of `rows`: store timestamps (ms), sizes of bitmaps, bitmaps.

    Entries of further queues, for which `is_own` (bool[n]) is false, get no unit.
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
    """The part of a piece that the driver gets: ``RESULT_FIELDS``, and more.

    `store_times` (ms) has the first record's, the number of records stored earlier than the one before, and that of the
    last record with a queue entry (None without one); it is empty without records. `queued_offset` is the physical
    offset where that record begins. `latest_store_time` is at least 0.

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
# The number of rows that a piece has room for at first.
_ENTRIES, _KEYS, _QUEUES, _TOPIC_BYTES = 1 << 18, 1 << 19, 1 << 10, 1 << 16
_TEXT_MAX = 2**15 - 1  # of a topic, of a property
_NO_ROW = -1
_NO_EXT = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, object))
_NO_BATCHES = (np.empty(0, np.int32), np.empty((0, BATCH_STORE_UNIT_SIZE), np.uint8))


@dataclass(frozen=True)
class QueueFilter:
    """The queues to make: those of `topic` and `queue_id`, if given, except for topics in `exclude`."""

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

    Their arrays are left in scratch files below `directory`, or without a `directory` in memory. The windows have
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
        # Window by window: the result of `ext_units`; for each entry of a batch queue, its queue's number and its
        # bytes.
        self._ext: list[tuple[Int64s, Int32s, Any]] = []
        self._batches: list[tuple[Int32s, Bytes]] = []
        self._added_bytes = 0
        self._has_queued = False

    @property
    def size_bytes(self) -> int:
        """The size of the collected effects, in bytes."""
        return _ENTRY_BYTES * self._count(kernels.ENTRIES) + _KEY_BYTES * self._count(kernels.KEYS) + self._added_bytes

    def _count(self, which: int) -> int:
        return int(self._state[which])

    def add(self, window: Window, file: MappedFile) -> None:
        """Collect the effects of the records of a window, which begins where the previous one ended."""
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
        """Add the parts of a window's records that the compiled pass leaves out; their entries begin at `first`."""
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

        All are in log order, each after its record's own entry. Returns each entry's row, and whether it is a record's
        own entry.
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
        """Note that a further queue got a record; there it is queued whatever its kind is."""
        queue, physical_offset = self._queues[number], columns.data_offset + columns.parts[row, rk.AT]
        if queue[kernels.ARRIVED_QUEUED] < 1 or queue[kernels.ARRIVED_AT] <= physical_offset:
            last = physical_offset, queue_offset, columns.tags_code[row], columns.store_timestamp[row], 1
            queue[kernels.ARRIVED_AT : kernels.ARRIVED_QUEUED + 1] = last

    # --- the result -------------------------------------------------------------------------------------------

    def finish(self, wanted: QueueFilter, directory: Path | None) -> PieceRow:
        """The collected effects for the `wanted` queues; for `directory` see `make_pieces`."""
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

        Of ConsumeQueues: `topics` (uint8, one after the other), `topic_sizes`, `queue_ids` and `counts` [queues],
        `runs` (RUN[queues]), `entries` (uint8[n, 20]), `queue_offsets` (int64[n]; empty if every queue is one run: the
        runs give them). Of their ext units, if there are any: `store_timestamps` and `bit_map_sizes` [n], `bit_maps`
        (uint8, one after the other). Of BatchConsumeQueues: the first four, named ``batch_...``, and `batch_entries`
        (uint8[m, 46]). In log order: `key_hashes`, `key_offsets`, `key_timestamps` [keys].
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
        """The content of the ext units, in the order of the entries."""
        order = np.argsort(numbers, kind="stable") if self._ext else np.empty(0, np.int64)
        order = order[is_wanted[numbers[order]]]
        times, sizes, bit_maps = (np.concatenate(parts)[order] for parts in zip(_NO_EXT, *self._ext, strict=True))
        data = np.frombuffer(b"".join(bit_maps.tolist()), np.uint8)
        return {"store_timestamps": times, "bit_map_sizes": sizes, "bit_maps": data}

    def _batch_arrays(self, names: list[tuple[bytes, int]], is_wanted: Bools) -> PieceArrays:
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


_PHYSICAL_OFFSET = ENTRY["physical_offset"]  # the first field of every kind of entry
_BATCH = "batch_"
_KEY_ARRAYS = ("key_hashes", "key_offsets", "key_timestamps")


class PieceEntries:
    """Entries and keys of consecutive pieces, given in log order.

    Attributes
    ----------
    paths
        The pieces' files; empty if the pieces are in memory, or if the files hold more than these entries.
    queues
        Topic and queue id of each ConsumeQueue that has entries, in order of first appearance.
    counts
        int64[queues], the number of entries of each.
    """

    def __init__(self, pieces: Sequence[PieceArrays], paths: Sequence[Path] = ()) -> None:
        """Take the arrays of ``Piece.arrays`` for each piece."""
        self.paths = tuple(paths)
        self._pieces = list(pieces)
        self._blocks, self._batches = _BlocksByQueue(self._pieces, ""), _BlocksByQueue(self._pieces, _BATCH)
        self.queues, self.counts = self._blocks.queues, self._blocks.totals
        self._bit_map_ends = [np.cumsum(np.maximum(piece["bit_map_sizes"], 0)) for piece in self._pieces]
        self._runs = _joined(self._pieces, "runs")[self._blocks.order] if self._pieces else None

    @classmethod
    def read(cls, arrays: Iterable[Path | PieceArrays]) -> PieceEntries:
        """The entries that tasks left, in files or in memory."""
        known = list(arrays)
        paths = [each for each in known if isinstance(each, Path)]
        return cls([read_arrays(each) if isinstance(each, Path) else each for each in known], paths)

    def after(self, offset: int) -> PieceEntries:
        """The entries and keys of records from `offset` on, for a sink that ends there."""
        return PieceEntries(
            [
                _select(
                    piece,
                    _physical_offsets(piece["entries"]) >= offset,
                    _physical_offsets(piece["batch_entries"]) >= offset,
                    piece["key_offsets"] >= offset,
                )
                for piece in self._pieces
            ]
        )

    def without(
        self, counts: Mapping[tuple[bytes, int], int], offset: int, batch_queues: Collection[tuple[bytes, int]]
    ) -> PieceEntries:
        """These entries and keys without some entries; all keys stay.

        Each queue loses the first `counts` of its entries of records from `offset` on, and `batch_queues` lose all.
        """
        keep = [np.ones(len(piece["entries"]), bool) for piece in self._pieces]
        keep_batch = [np.ones(len(piece["batch_entries"]), bool) for piece in self._pieces]
        for number, queue in enumerate(self.queues):
            left = counts.get(queue, 0)
            for piece, block in self._blocks.of_queue(number) if left else ():
                entries = self._pieces[piece]["entries"][block]
                refused = np.flatnonzero(_physical_offsets(entries) >= offset)[:left]
                keep[piece][block.start + refused] = False
                left -= len(refused)
        for number, queue in enumerate(self._batches.queues):
            for piece, block in self._batches.of_queue(number) if queue in batch_queues else ():
                keep_batch[piece][block] = False
        return PieceEntries(
            [
                _select(piece, kept, kept_batch, np.ones(len(piece["key_offsets"]), bool))
                for piece, kept, kept_batch in zip(self._pieces, keep, keep_batch, strict=True)
            ]
        )

    @property
    def first_queue_offsets(self) -> Int64s:
        """The queue offset of each queue's first entry, int64[queues]."""
        if self._runs is None:
            return np.empty(0, np.int64)
        offsets: Int64s = self._runs["first_queue_offset"][self._blocks.first[:-1]]
        return offsets

    def runs(self) -> Iterator[Run | None]:
        """Each queue's entries as one run; None for a queue whose entries are not a run."""
        if self._runs is None or not self.queues:
            return
        first, last = self._blocks.first[:-1], self._blocks.first[1:] - 1
        follows = np.ones(len(self._runs), bool)
        begin = self._runs["first_queue_offset"]
        follows[1:] = begin[1:] == begin[:-1] + self._blocks.counts[:-1]
        follows[first] = True
        is_run = np.logical_and.reduceat(self._runs["runs_on"] & follows, first)
        heads = self._runs[["first_queue_offset", "first_physical_offset", "first_end"]][first].tolist()
        ends = self._runs["last_end"][last].tolist()
        for is_one, head, end, count in zip(is_run.tolist(), heads, ends, self.counts.tolist(), strict=True):
            yield Run(head[0], count, head[1], head[2], end) if is_one else None

    def entries(self, queue: int) -> list[Bytes]:
        """The entries of a queue in log order, uint8[n, 20] from each piece that has some."""
        return [self._pieces[piece]["entries"][block] for piece, block in self._blocks.of_queue(queue)]

    def queue_entries(self, queue: int) -> QueueEntries:
        """The entries of a queue with their queue offsets, and with ext units if these are wanted."""
        entries, queue_offsets = np.concatenate(self.entries(queue)), self._queue_offsets(queue)
        return QueueEntries(*self.queues[queue], entries, queue_offsets, self._ext_units(queue))

    def all_queues(self) -> Iterator[QueueEntries]:
        """`queue_entries` of each ConsumeQueue."""
        return map(self.queue_entries, range(len(self.queues)))

    def batch_queues(self) -> Iterator[QueueEntries]:
        """The entries of each BatchConsumeQueue; an entry's queue offset is its base offset."""
        for number, queue in enumerate(self._batches.queues):
            blocks = self._batches.of_queue(number)
            entries = np.concatenate([self._pieces[piece]["batch_entries"][block] for piece, block in blocks])
            queue_offsets = entries.view(BATCH_ENTRY)["msg_base_offset"][:, 0].astype(np.int64)
            yield QueueEntries(*queue, entries, queue_offsets)

    def keys_by_piece(self) -> Iterator[KeyEntries]:
        """The keys in log order, piece by piece."""
        return self.keys_between(0, self.key_count)

    def keys_between(self, begin: int, end: int) -> Iterator[KeyEntries]:
        """The keys `[begin, end)` in log order, numbered from 0, from each piece that has some of them."""
        for piece, some in self._key_slices(begin, end):
            yield KeyEntries(*(self._pieces[piece][name] for name in _KEY_ARRAYS)).between(some.start, some.stop)

    def key(self, number: int) -> tuple[int, int]:
        """The physical offset and the store timestamp (ms) of a key, numbered from 0."""
        return next(self.keys_between(number, number + 1)).first

    def paths_of_keys(self, begin: int, end: int) -> tuple[list[Path], int]:
        """The files of the pieces that have some of the keys `[begin, end)`, and the number of keys before them."""
        pieces = [piece for piece, _ in self._key_slices(begin, end)]
        return [self.paths[piece] for piece in pieces], int(self._key_begins[pieces[0]])

    def _key_slices(self, begin: int, end: int) -> Iterator[tuple[int, slice]]:
        """The pieces that have some of the keys `[begin, end)`, and which of its keys."""
        begins = self._key_begins
        for piece in range(int(np.searchsorted(begins, begin, "right")) - 1, int(np.searchsorted(begins, end))):
            first, last = int(begins[piece]), int(begins[piece + 1])
            if first < last:
                yield piece, slice(max(begin, first) - first, min(end, last) - first)

    @cached_property
    def _key_begins(self) -> Int64s:
        """The number of each piece's first key, and then that of all keys, int64[pieces + 1]."""
        return np.cumsum([0, *(len(piece["key_hashes"]) for piece in self._pieces)])

    def keys(self) -> KeyEntries:
        """The keys of all pieces."""
        return KeyEntries(*(_joined(self._pieces, name) for name in _KEY_ARRAYS))

    @property
    def key_count(self) -> int:
        """The number of keys."""
        return int(self._key_begins[-1])

    def _queue_offsets(self, queue: int) -> Int64s:
        parts = []
        first = int(self._blocks.first[queue])
        assert self._runs is not None
        for number, (piece, block) in enumerate(self._blocks.of_queue(queue), first):
            known = self._pieces[piece]["queue_offsets"]
            offset = int(self._runs["first_queue_offset"][number])
            parts.append(known[block] if len(known) else np.arange(offset, offset + block.stop - block.start))
        return np.concatenate(parts)

    def _ext_units(self, queue: int) -> ExtUnits | None:
        times, sizes, bit_maps = [], [], []
        for piece, block in self._blocks.of_queue(queue):
            arrays, data = self._pieces[piece], self._pieces[piece]["bit_maps"].data
            if not len(arrays["bit_map_sizes"]):
                return None
            times.append(arrays["store_timestamps"][block])
            sizes.append(arrays["bit_map_sizes"][block])
            ends = self._bit_map_ends[piece][block].tolist()
            for size, end in zip(sizes[-1].tolist(), ends, strict=True):
                bit_maps.append(bytes(data[end - size : end]) if size >= 0 else None)
        return ExtUnits(np.concatenate(times), tuple(bit_maps), np.concatenate(sizes) != NO_EXT_UNIT)


class _BlocksByQueue:
    """The blocks of pieces by queue; a block is the entries of one queue in one piece.

    `queues` are in order of first appearance, `totals` (int64[queues]) their numbers of entries. `order` sorts the
    blocks by queue, each queue's in log order. In that order `counts` are the blocks' entries, and `first`
    (int64[queues + 1]) is each queue's first block.
    """

    def __init__(self, pieces: Sequence[PieceArrays], prefix: str) -> None:
        sizes = [len(piece[f"{prefix}counts"]) for piece in pieces]
        topics = _topics(pieces, prefix)
        queue_ids = _joined(pieces, f"{prefix}queue_ids", np.int32)
        firsts, numbers = _number_queues(topics, queue_ids)
        names = topics.take(integer_array(firsts)).to_pylist()
        self.queues: list[tuple[bytes, int]] = list(zip(names, queue_ids[firsts].tolist(), strict=True))
        self.order = np.argsort(numbers, kind="stable")
        self._piece = np.repeat(np.arange(len(sizes)), sizes)[self.order]
        counts = _joined(pieces, f"{prefix}counts", np.int64)
        begins = np.concatenate([np.zeros(0, np.int64), *(_begins(piece[f"{prefix}counts"]) for piece in pieces)])
        self._begins, self.counts = begins[self.order], counts[self.order]
        self.first = np.searchsorted(numbers[self.order], np.arange(len(firsts) + 1))
        self.totals: Int64s = np.bincount(numbers, counts, len(firsts)).astype(np.int64)

    def of_queue(self, queue: int) -> Iterator[tuple[int, slice]]:
        """The blocks of a queue: the piece's number, and the slice of its entries."""
        blocks = slice(self.first[queue], self.first[queue + 1])
        columns = (values[blocks].tolist() for values in (self._piece, self._begins, self.counts))
        for piece, begin, count in zip(*columns, strict=True):
            yield piece, slice(begin, begin + count)


def _number_queues(topics: pa.Array, queue_ids: Any) -> tuple[Int64s, Int64s]:
    """Number the queues by first appearance; return each number's first block, and each block's number."""
    codes = np.from_dlpack(topics.dictionary_encode().indices).astype(np.int64)
    _, firsts, numbers = np.unique(codes << 32 | queue_ids.astype(np.uint32), return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return firsts[order], ranks[numbers]


def _joined(pieces: Sequence[PieceArrays], name: str, dtype: Any = None) -> Any:
    nothing = () if dtype is None else (np.empty(0, dtype),)
    return np.concatenate([*nothing, *(piece[name] for piece in pieces)])


def _begins(counts: Int64s) -> Int64s:
    return np.cumsum(counts) - counts


def _physical_offsets(entries: Bytes) -> Any:
    return entries[:, : _PHYSICAL_OFFSET.itemsize].copy().view(_PHYSICAL_OFFSET)[:, 0]


def _topics(pieces: Sequence[PieceArrays], prefix: str) -> pa.Array:
    """The topics of all blocks, from their bytes and sizes."""
    sizes = np.concatenate([np.zeros(1, np.int64), *(piece[f"{prefix}topic_sizes"] for piece in pieces)])
    data = np.concatenate([np.empty(0, np.uint8), *(piece[f"{prefix}topics"] for piece in pieces)])
    ends = np.cumsum(sizes).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _select(piece: PieceArrays, keep: Bools, keep_batch: Bools, keep_key: Bools) -> PieceArrays:
    """The arrays of a piece with some of its entries, entries of batch queues and keys."""
    counts, queue_offsets = piece["counts"], piece["queue_offsets"]
    if not len(queue_offsets):  # every queue is one run
        queue_offsets = np.repeat(piece["runs"]["first_queue_offset"] - _begins(counts), counts) + np.arange(len(keep))
    blocks = _select_blocks(piece, keep, "")
    entries, queue_offsets = np.ascontiguousarray(piece["entries"][keep]), queue_offsets[keep]
    sizes = piece["bit_map_sizes"]
    keep_ext = keep if len(sizes) else np.zeros(0, bool)
    return {
        **blocks,
        "runs": find_runs(entries, queue_offsets, blocks["counts"]),
        "entries": entries,
        "queue_offsets": queue_offsets,
        "store_timestamps": piece["store_timestamps"][keep_ext],
        "bit_map_sizes": sizes[keep_ext],
        "bit_maps": piece["bit_maps"][np.repeat(keep_ext, np.maximum(sizes, 0))],
        **_select_blocks(piece, keep_batch, _BATCH),
        "batch_entries": piece["batch_entries"][keep_batch],
        **{name: piece[name][keep_key] for name in _KEY_ARRAYS},
    }


def _select_blocks(piece: PieceArrays, keep: Bools, prefix: str) -> PieceArrays:
    """The blocks that keep at least one entry."""
    topics, sizes, queue_ids, counts = (
        piece[f"{prefix}{name}"] for name in ("topics", "topic_sizes", "queue_ids", "counts")
    )
    left = np.bincount(np.repeat(np.arange(len(counts)), counts), keep, len(counts)).astype(np.int64)
    some = left > 0
    return {
        f"{prefix}topics": topics[np.repeat(some, sizes)],
        f"{prefix}topic_sizes": sizes[some],
        f"{prefix}queue_ids": queue_ids[some],
        f"{prefix}counts": left[some],
    }
