"""Consecutive pieces (``piece``), of a micro-batch or a wave, as the driver and the writing tasks see them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reput.sinks.dispatch.batch import KeyEntries, QueueEntries
from reput.sinks.dispatch.piece import number_queues
from reput.sinks.dispatch.runs import Run, find_runs
from reput.sinks.files.array_file import read_arrays
from reput.sinks.formats.consume_queue import ENTRY
from reput.source.arrays import Bytes, Int64s
from reput.source.rows.column_builders import numbers as integer_array


class PieceEntries:
    """Entries and keys of consecutive pieces, given in log order.

    Attributes
    ----------
    paths
        The pieces' files; none where these are a part of what they have.
    queues
        Topic and queue id of each queue that has entries.
    counts
        int64[queues], how many each has.
    """

    def __init__(self, pieces: Sequence[dict[str, Any]], paths: Sequence[Path] = ()) -> None:
        """`pieces` are the arrays of ``Piece.write``; `paths` the files that have them, none where no file has."""
        self.paths = tuple(paths)
        self._pieces = list(pieces)
        sizes = [len(piece["counts"]) for piece in self._pieces]
        topics = _topics(self._pieces)
        queue_ids = self._joined("queue_ids", np.int32)
        firsts, numbers = number_queues(topics, queue_ids)
        names = topics.take(integer_array(firsts)).to_pylist()
        self.queues: list[tuple[bytes, int]] = list(zip(names, queue_ids[firsts].tolist(), strict=True))
        # The blocks, each queue's together and in log order.
        order = np.argsort(numbers, kind="stable")
        self._piece = np.repeat(np.arange(len(sizes)), sizes)[order]
        counts = self._joined("counts", np.int64)
        begins = np.concatenate([np.zeros(0, np.int64), *(_begins(piece["counts"]) for piece in self._pieces)])
        self._begins, self._counts = begins[order], counts[order]
        self._runs = self._joined("runs", self._pieces[0]["runs"].dtype)[order] if self._pieces else None
        self._first_block = np.searchsorted(numbers[order], np.arange(len(firsts) + 1))
        self.counts: Int64s = np.bincount(numbers, counts, len(firsts)).astype(np.int64)

    @classmethod
    def read(cls, paths: Sequence[Path]) -> PieceEntries:
        """What tasks left in files."""
        return cls([read_arrays(path) for path in paths], paths)

    def after(self, offset: int) -> PieceEntries:
        """The same without the records before `offset`: what a sink that ends there still needs."""
        return PieceEntries([_after(piece, offset) for piece in self._pieces])

    @property
    def first_queue_offsets(self) -> Int64s:
        """int64[queues], the queue offset of each queue's first entry."""
        if self._runs is None:
            return np.empty(0, np.int64)
        offsets: Int64s = self._runs["first_offset"][self._first_block[:-1]]
        return offsets

    def runs(self) -> Iterator[Run | None]:
        """Each queue's entries as one run; None for a queue whose entries are none."""
        if self._runs is None or not self.queues:
            return
        first, last = self._first_block[:-1], self._first_block[1:] - 1
        follows = np.ones(len(self._runs), bool)
        begin = self._runs["first_offset"]
        follows[1:] = begin[1:] == begin[:-1] + self._counts[:-1]
        follows[first] = True
        is_run = np.logical_and.reduceat(self._runs["runs_on"] & follows, first)
        heads = self._runs[["first_offset", "first_place", "first_end"]][first].tolist()
        ends = self._runs["last_end"][last].tolist()
        for is_one, head, end, count in zip(is_run.tolist(), heads, ends, self.counts.tolist(), strict=True):
            yield Run(head[0], count, head[1], head[2], end) if is_one else None

    def entries(self, queue: int) -> list[Bytes]:
        """The entries of a queue in log order, uint8[n, 20] from each piece that has some."""
        return [self._pieces[piece]["entries"][begin : begin + count] for piece, begin, count in self._blocks(queue)]

    def queue_entries(self, queue: int) -> QueueEntries:
        """The entries of a queue with their queue offsets, as a micro-batch has them."""
        return QueueEntries(*self.queues[queue], np.concatenate(self.entries(queue)), self._queue_offsets(queue))

    def keys(self) -> Iterator[KeyEntries]:
        """The keys in log order, those of a piece at a time."""
        for piece in self._pieces:
            yield KeyEntries(piece["key_hashes"], piece["key_offsets"], piece["key_timestamps"])

    @property
    def key_count(self) -> int:
        """How many keys there are."""
        return sum(len(piece["key_hashes"]) for piece in self._pieces)

    def _blocks(self, queue: int) -> Iterator[tuple[int, int, int]]:
        blocks = slice(self._first_block[queue], self._first_block[queue + 1])
        yield from zip(*(values[blocks].tolist() for values in (self._piece, self._begins, self._counts)), strict=True)

    def _queue_offsets(self, queue: int) -> Int64s:
        parts = []
        first = int(self._first_block[queue])
        assert self._runs is not None
        for number, (piece, begin, count) in enumerate(self._blocks(queue), first):
            known = self._pieces[piece]["queue_offsets"]
            offset = int(self._runs["first_offset"][number])
            parts.append(known[begin : begin + count] if len(known) else np.arange(offset, offset + count))
        return np.concatenate(parts)

    def _joined(self, name: str, dtype: Any) -> Any:
        return np.concatenate([np.empty(0, dtype), *(piece[name] for piece in self._pieces)])


def _begins(counts: Int64s) -> Int64s:
    return np.cumsum(counts) - counts


def _topics(pieces: Sequence[dict[str, Any]]) -> pa.Array:
    """The topics of all blocks, from their bytes and sizes."""
    sizes = np.concatenate([np.zeros(1, np.int64), *(piece["topic_sizes"] for piece in pieces)])
    data = np.concatenate([np.empty(0, np.uint8), *(piece["topics"] for piece in pieces)])
    ends = np.cumsum(sizes).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _after(piece: dict[str, Any], offset: int) -> dict[str, Any]:
    """The arrays of a piece without the records before `offset`."""
    keep = piece["entries"].view(ENTRY)["physical_offset"][:, 0] >= offset
    counts, queue_offsets = piece["counts"], piece["queue_offsets"]
    if not len(queue_offsets):  # every queue runs on
        queue_offsets = np.repeat(piece["runs"]["first_offset"] - _begins(counts), counts) + np.arange(len(keep))
    left = np.bincount(np.repeat(np.arange(len(counts)), counts), keep, len(counts)).astype(np.int64)
    some = left > 0
    entries, queue_offsets = np.ascontiguousarray(piece["entries"][keep]), queue_offsets[keep]
    later = piece["key_offsets"] >= offset
    return {
        "topics": piece["topics"][np.repeat(some, piece["topic_sizes"])],
        "topic_sizes": piece["topic_sizes"][some],
        "queue_ids": piece["queue_ids"][some],
        "counts": left[some],
        "runs": find_runs(entries, queue_offsets, left[some]),
        "entries": entries,
        "queue_offsets": queue_offsets,
        **{name: piece[name][later] for name in ("key_hashes", "key_offsets", "key_timestamps")},
    }
