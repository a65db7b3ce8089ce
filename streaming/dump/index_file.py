"""An index file: its header, what its slots and chains come to, and its entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, Final

import numpy as np

from reput.sinks.formats.index_file import chain_entries
from reput.sinks.index.index_reader import OpenIndexFile, entry_at, open_index_file
from reput.sinks.queue.queue_reader import Units
from reput.streaming.config.settings import IndexOptions
from reput.streaming.dump.entries import (
    BAD_CHAIN,
    EMPTY,
    ENTRIES_AT_ONCE,
    ENTRY_VERDICT,
    NOT_COUNTED,
    EntryRange,
    Parts,
    Rows,
    Run,
    file_fields,
)
from reput.streaming.dump.store_file import DumpedFile
from reput.streaming.query.lines import time_text


class IndexFileDump:
    """An index file of the sizes in `options`."""

    names: Final = (
        "entry",
        "position",
        "verdict",
        "key_hash",
        "slot",
        "physical_offset",
        "time_diff",
        "previous",
        "previous_expected",
    )

    def __init__(self, file: DumpedFile, options: IndexOptions, chosen: EntryRange) -> None:
        self._file, self._options, self._chosen = file, options, chosen
        with self._open() as opened:
            opened.check_size(file.path, options.max_index_num)
            self._header = opened.header()
        self._end = min(self._header.next_entry, options.max_index_num)

    def header(self) -> dict[str, Any]:
        """The header's fields, and what can be counted: entries, slots in use, the longest chain."""
        slots = self._options.max_hash_slot_num
        lengths = np.zeros(slots, np.int32)
        with self._open() as opened:
            used = int(np.count_nonzero(opened.slots()))
            for _, entries in self._chunks(opened):
                np.add.at(lengths, entries["key_hash"] % slots, 1)
        header = self._header
        return {
            **file_fields(self._file),
            "begin_time": time_text(header.begin_timestamp),
            "begin_timestamp": header.begin_timestamp,
            "end_time": time_text(header.end_timestamp),
            "end_timestamp": header.end_timestamp,
            "begin_phy_offset": header.begin_phy_offset,
            "end_phy_offset": header.end_phy_offset,
            "hash_slot_count": header.hash_slot_count,
            "index_count": header.index_count,
            "max_hash_slot_num": slots,
            "max_index_num": self._options.max_index_num,
            "entries": self._end - 1,
            "slots_in_use": used,
            "chains": int(np.count_nonzero(lengths)),
            "longest_chain": int(lengths.max()),
        }

    def parts(self) -> Parts:
        """The entries in order, what stands behind those that the header counts, and the empty rest."""
        slots = np.zeros(self._options.max_hash_slot_num, np.int32)
        with self._open() as opened:
            for first, entries in self._chunks(opened):
                yield from self._rows(first, entries, slots)
            rest = self._position(self._end)
            for begin, data in opened.filled_behind(self._end):
                filled = data.rstrip(b"\0")
                if filled:
                    yield Run(NOT_COUNTED, begin, len(filled))
                    rest = begin + len(filled)
        if rest < self._file.size:
            yield Run(EMPTY, rest, self._file.size - rest)

    def _open(self) -> AbstractContextManager[OpenIndexFile]:
        return open_index_file(self._file.path, self._options.max_hash_slot_num)

    def _chunks(self, opened: OpenIndexFile) -> Iterator[tuple[int, Units]]:
        for first in range(1, self._end, ENTRIES_AT_ONCE):
            yield first, opened.entries(first, min(ENTRIES_AT_ONCE, self._end - first))

    def _rows(self, first: int, entries: Units, slots: Units) -> Iterator[Rows]:
        """The entries by verdict: the chain of one that is bad goes on elsewhere than where its slot was before."""
        hashes = entries["key_hash"].astype(np.int32)
        previous = np.empty(len(hashes), np.int32)
        chain_entries(slots, hashes, first, previous)
        is_bad = previous != entries["previous"]
        numbers = np.arange(first, first + len(entries))
        chosen = self._chosen.rows(entries)
        edges = [0, *(np.flatnonzero(np.diff(is_bad)) + 1).tolist(), len(is_bad)]
        for begin, end in pairwise(edges):
            verdict = BAD_CHAIN if is_bad[begin] else ENTRY_VERDICT
            part = slice(begin, end)
            rows = chosen[part]
            some, which = entries[part][rows], numbers[part][rows]
            expected = previous[part][rows].tolist() if verdict == BAD_CHAIN else [None] * len(some)
            columns = [
                which.tolist(),
                [self._position(number) for number in which.tolist()],
                [verdict] * len(some),
                some["key_hash"].tolist(),
                (some["key_hash"] % len(slots)).tolist(),
                some["physical_offset"].tolist(),
                some["time_diff"].tolist(),
                some["previous"].tolist(),
                expected,
            ]
            yield Rows(verdict, columns, some.nbytes)

    def _position(self, number: int) -> int:
        return entry_at(number, self._options.max_hash_slot_num)
