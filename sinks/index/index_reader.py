"""The row of index files as one list of keys, in the order they were put; read only."""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.files.directory import names_in
from reput.sinks.files.store_path import INDEX, index_file, is_index_file_name
from reput.sinks.formats.index_file import ENTRY, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader
from reput.source.arrays import Int64s
from reput.source.segments.mapped_file_queue import open_for_reading

Entries = np.ndarray[Any, Any]


@dataclass(frozen=True)
class IndexRow:
    """The index below `root`; numbers of keys count through all files from 0, numbers of entries in a file from 1.

    `may_follow_expired` says that there may have been files before the first one.
    """

    root: Path
    max_hash_slot_num: int
    max_index_num: int
    may_follow_expired: bool = False

    @cached_property
    def names(self) -> list[str]:
        """The files' names, oldest first."""
        return sorted(name for name in names_in(self.root / INDEX) if is_index_file_name(name))

    @cached_property
    def headers(self) -> list[IndexHeader]:
        """Each file's header; what a short file lacks reads as zeros."""
        return [IndexHeader.decode(self._read(name, 0, HEADER_SIZE)) for name in self.names]

    @cached_property
    def starts(self) -> list[int]:
        """The number of each file's first key, and behind the last the number of keys."""
        starts = [0]
        for header in self.headers:
            starts.append(starts[-1] + min(header.next_entry, self.max_index_num) - 1)
        return starts

    @property
    def keys(self) -> int:
        """How many keys the headers count."""
        return self.starts[-1]

    def file_of(self, key: int) -> int:
        """The file that has key `key`, by its place in the row."""
        return bisect_right(self.starts, key, 0, len(self.names)) - 1

    def where(self, key: int) -> tuple[str, int, int]:
        """The file that has key `key`, by its path below the root, the byte in it, and the entry's number there."""
        file = self.file_of(key)
        number = key - self.starts[file] + 1
        return f"{INDEX}/{self.names[file]}", self.entry_at(number), number

    def entry_at(self, number: int) -> int:
        """The byte of a file at which entry `number` stands."""
        return HEADER_SIZE + SLOT_SIZE * self.max_hash_slot_num + ENTRY_SIZE * number

    def entries(self, first: int, count: int) -> Entries:
        """Up to `count` entries from key `first` on, across files."""
        parts = []
        while count > 0 and first < self.keys:
            file = self.file_of(first)
            some = min(count, self.starts[file + 1] - first)
            parts.append(self.entries_of(self.names[file], first - self.starts[file] + 1, some))
            first, count = first + some, count - some
        return np.concatenate(parts) if parts else np.empty(0, ENTRY)

    def entries_of(self, name: str, number: int, count: int) -> Entries:
        """`count` entries of one file from entry `number` on; what a short file lacks reads as zeros."""
        data = self._read(name, self.entry_at(number), count * ENTRY_SIZE)
        return np.frombuffer(data, ENTRY)

    def slots_of(self, name: str) -> Entries:
        """One file's hash slots, as they are on disk."""
        return np.frombuffer(self._read(name, HEADER_SIZE, SLOT_SIZE * self.max_hash_slot_num), ">i4")

    def search(self, place: int) -> int:
        """The number of the first key of a record at `place` or later, where the keys are in log order."""
        low, high = 0, self.keys
        while low < high:
            middle = (low + high) // 2
            if self.entries(middle, 1)["physical_offset"][0] < place:
                low = middle + 1
            else:
                high = middle
        return low

    def time_bases(self, first: int, count: int) -> Int64s:
        """What the times of keys `[first, first + count)` are counted from, in ms, as the headers have it.

        A file's first key counts from the end that the file inherited: 0 where it had no predecessor, -1 where that may
        have expired.
        """
        bases = np.empty(count, np.int64)
        done = 0
        while done < count:
            file = self.file_of(first + done)
            some = min(count - done, self.starts[file + 1] - first - done)
            bases[done : done + some] = self.headers[file].begin_timestamp
            if first + done == self.starts[file]:
                bases[done] = max(0, self.headers[file - 1].end_timestamp) if file else -self.may_follow_expired
            done += some
        return bases

    def _read(self, name: str, at: int, size: int) -> bytes:
        with open_for_reading(str(self.root.joinpath(*index_file(name)))) as descriptor:
            return os.pread(descriptor, size, at).ljust(size, b"\0")
