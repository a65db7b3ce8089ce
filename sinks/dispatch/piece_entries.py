"""Consecutive pieces (``piece``) of a micro-batch or a wave, as the driver and the writing tasks see them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reput.sinks.dispatch.entries import ExtUnits, KeyEntries, QueueEntries
from reput.sinks.dispatch.piece import NO_EXT_UNIT, PieceArrays
from reput.sinks.dispatch.runs import Run, find_runs
from reput.sinks.files.scratch import read_arrays
from reput.sinks.formats.batch_consume_queue import BATCH_ENTRY
from reput.sinks.formats.consume_queue import ENTRY
from reput.source.arrays import Bools, Bytes, Int64s
from reput.source.rows.column_builders import numbers as integer_array

_PHYSICAL_OFFSET = ENTRY["physical_offset"]  # the first field of every kind of entry
_BATCH = "batch_"
_KEYS = ("key_hashes", "key_offsets", "key_timestamps")


class PieceEntries:
    """Entries and keys of consecutive pieces, given in log order.

    Attributes
    ----------
    paths
        The pieces' files; empty where the pieces are in memory, or where the files hold more than these entries.
    queues
        Topic and queue id of each ConsumeQueue that has entries, in order of first appearance.
    counts
        int64[queues], how many each has.
    """

    def __init__(self, pieces: Sequence[PieceArrays], paths: Sequence[Path] = ()) -> None:
        """`pieces` are those of ``Piece.arrays``."""
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
        """The entries and keys of records from `offset` on: what a sink that ends there still needs."""
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
        """The same without some entries; all keys stay.

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
        """Each queue's entries as one run; None for a queue whose entries do not run on."""
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
        """The entries of a queue with their queue offsets, and with ext units where these are wanted."""
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
        """The keys `[begin, end)` in log order, numbered from 0 on, from each piece that has some of them."""
        for piece, some in self._key_slices(begin, end):
            yield KeyEntries(*(self._pieces[piece][name] for name in _KEYS)).between(some.start, some.stop)

    def key(self, number: int) -> tuple[int, int]:
        """The physical offset and the store timestamp (ms) of a key, numbered from 0 on."""
        return next(self.keys_between(number, number + 1)).first

    def paths_of_keys(self, begin: int, end: int) -> tuple[list[Path], int]:
        """The files of the pieces that have some of the keys `[begin, end)`; and how many keys are before these."""
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
        """The number of each piece's first key, and behind them that of all keys, int64[pieces + 1]."""
        return np.cumsum([0, *(len(piece["key_hashes"]) for piece in self._pieces)])

    def keys(self) -> KeyEntries:
        """The keys of all pieces."""
        return KeyEntries(*(_joined(self._pieces, name) for name in _KEYS))

    @property
    def key_count(self) -> int:
        """How many keys there are."""
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
        """`prefix` begins the names of the arrays."""
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
    """Number the queues by first appearance; returns each number's first block, and each block's number."""
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
    if not len(queue_offsets):  # every queue runs on
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
        **{name: piece[name][keep_key] for name in _KEYS},
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
