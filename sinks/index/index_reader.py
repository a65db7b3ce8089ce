"""The index files of an output as they are on disk, one file or all of them in a row; nothing is written."""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.files.sparse_file import data_extents
from reput.sinks.files.store_path import INDEX, index_file, is_index_file_name
from reput.sinks.formats.index_file import ENTRY, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader, index_file_size
from reput.source.arrays import Int64s
from reput.source.errors import SinkError
from reput.source.segments.mapped_file_queue import open_for_reading

Entries = np.ndarray[Any, Any]

_SLOT = np.dtype(">i4")
# Where the sizes of a file are not known: what is searched at once, and how many findings are looked at.
_SEARCHED_BYTES = 1 << 20
_CANDIDATES_MAX = 10_000
assert _SLOT.itemsize == SLOT_SIZE


def index_file_names(root: Path) -> list[str]:
    """The names of the index files below `root`, oldest first; other files are ignored, as the broker does."""
    directory = root / INDEX
    if not directory.is_dir():
        return []
    with os.scandir(directory) as entries:
        return sorted(e.name for e in entries if is_index_file_name(e.name) and e.is_file(follow_symlinks=False))


@dataclass(frozen=True)
class OpenIndexFile:
    """One index file, open for reading. Bytes that a short file lacks read as zeros. Entries are numbered from 0."""

    descriptor: int
    max_hash_slot_num: int

    @property
    def size(self) -> int:
        """The size on disk in bytes."""
        return os.fstat(self.descriptor).st_size

    def check_size(self, path: Path, max_index_num: int) -> None:
        """Raise SinkError unless the file, at `path`, has the size that both settings make."""
        wanted = index_file_size(self.max_hash_slot_num, max_index_num)
        if self.size != wanted:
            raise SinkError(
                f"{path} has {self.size} bytes where maxHashSlotNum={self.max_hash_slot_num} and "
                f"maxIndexNum={max_index_num} make {wanted}",
                advice="give the broker's settings (--broker-conf)",
                file=path,
            )

    def header(self) -> IndexHeader:
        """The header as it is now."""
        return IndexHeader.decode(self._read(0, HEADER_SIZE))

    def slot(self, slot: int) -> int:
        """The number that one hash slot holds."""
        return int.from_bytes(self._read(HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE), "big", signed=True)

    def slots(self) -> Entries:
        """All hash slots, big-endian int32."""
        return np.frombuffer(self._read(HEADER_SIZE, SLOT_SIZE * self.max_hash_slot_num), _SLOT)

    def entries(self, number: int, count: int) -> Entries:
        """`count` entries from `number` on."""
        return np.frombuffer(self._read(entry_at(number, self.max_hash_slot_num), count * ENTRY_SIZE), ENTRY)

    def filled_behind(self, number: int) -> Iterator[tuple[int, bytes]]:
        """The extents with data from entry `number` on, each with the byte at which it begins."""
        for begin, end in list(data_extents(self.descriptor, entry_at(number, self.max_hash_slot_num))):
            yield begin, os.pread(self.descriptor, end - begin, begin)

    def _read(self, at: int, size: int) -> bytes:
        return os.pread(self.descriptor, size, at).ljust(size, b"\0")


@contextmanager
def open_index_file(path: Path, max_hash_slot_num: int = 0) -> Iterator[OpenIndexFile]:
    """Open one index file, with the errors of ``open_for_reading``; its header needs no `max_hash_slot_num`."""
    with open_for_reading(str(path)) as descriptor:
        yield OpenIndexFile(descriptor, max_hash_slot_num)


def entry_at(number: int, max_hash_slot_num: int) -> int:
    """The byte of a file at which entry `number` stands."""
    return HEADER_SIZE + SLOT_SIZE * max_hash_slot_num + ENTRY_SIZE * number


def deduced_sizes(path: Path, known: Iterable[int] = ()) -> tuple[int, int] | None:
    """``maxHashSlotNum`` and ``maxIndexNum`` of a file by what it holds; None where it does not tell.

    A file's size has both in one sum. The newest entry has the record that the header ends with, and stands in the slot
    of its hash: only the right numbers lead there. Numbers of slots that are `known` are tried first.
    """
    with open_for_reading(str(path)) as descriptor:
        header = IndexHeader.decode(os.pread(descriptor, HEADER_SIZE, 0).ljust(HEADER_SIZE, b"\0"))
        size, number = os.fstat(descriptor).st_size, header.index_count - 1
        if number < 1:
            return None
        by_size = (size - HEADER_SIZE) // (SLOT_SIZE + 4 * ENTRY_SIZE)  # the defaults have four keys a slot
        candidates = (*known, by_size)
        searched = itertools.islice(_slots_by_entry(descriptor, header.end_phy_offset, number), _CANDIDATES_MAX)
        for slots in itertools.chain(candidates, searched):
            keys, rest = divmod(size - HEADER_SIZE - SLOT_SIZE * slots, ENTRY_SIZE)
            if rest or slots < 1 or keys < header.index_count:
                continue
            file = OpenIndexFile(descriptor, slots)
            newest, oldest = file.entries(number, 1)[0], file.entries(1, 1)[0]
            is_in_place = newest["key_hash"] >= 0 and file.slot(int(newest["key_hash"]) % slots) == number
            ends = int(oldest["physical_offset"]), int(newest["physical_offset"])
            if is_in_place and ends == (header.begin_phy_offset, header.end_phy_offset):
                return slots, keys
    return None


def _slots_by_entry(descriptor: int, physical_offset: int, number: int) -> Iterator[int]:
    """How many slots there are if entry `number` is one of those with that physical offset, for each of them."""
    if physical_offset <= 0:  # zeros are everywhere
        return
    wanted = physical_offset.to_bytes(8, "big")
    field = ENTRY.fields["physical_offset"][1]  # type: ignore[index]
    for begin, end in list(data_extents(descriptor)):
        for start in range(begin, end, _SEARCHED_BYTES):
            data = os.pread(descriptor, min(_SEARCHED_BYTES + len(wanted) - 1, end - start), start)
            at = data.find(wanted)
            while at >= 0:
                slots, rest = divmod(start + at - field - entry_at(number, 0), SLOT_SIZE)
                if not rest and slots > 0:
                    yield slots
                at = data.find(wanted, at + 1)


@dataclass(frozen=True)
class IndexReader:
    """The index below `root`; keys are numbered from 0 across all files, entries from 1 in each file.

    `may_follow_expired` says that there may have been files before the first one.
    """

    root: Path
    max_hash_slot_num: int
    max_index_num: int
    may_follow_expired: bool = False

    @cached_property
    def names(self) -> list[str]:
        """The files' names, oldest first."""
        return index_file_names(self.root)

    @cached_property
    def headers(self) -> list[IndexHeader]:
        """Each file's header; bytes that a short file lacks read as zeros."""
        headers = []
        for name in self.names:
            with self.open(name) as file:
                headers.append(file.header())
        return headers

    @cached_property
    def starts(self) -> list[int]:
        """The number of each file's first key, followed by the number of keys."""
        starts = [0]
        for header in self.headers:
            starts.append(starts[-1] + min(header.next_entry, self.max_index_num) - 1)
        return starts

    @property
    def keys(self) -> int:
        """How many keys there are by the headers."""
        return self.starts[-1]

    def file_of(self, key: int) -> int:
        """The position in the row of the file that has key `key`."""
        return bisect_right(self.starts, key, 0, len(self.names)) - 1

    def where(self, key: int) -> tuple[str, int, int]:
        """Where key `key` is: its file's path below the root, the byte in the file, and the entry's number there."""
        file = self.file_of(key)
        number = key - self.starts[file] + 1
        return f"{INDEX}/{self.names[file]}", self.entry_at(number), number

    def entry_at(self, number: int) -> int:
        """The byte of a file at which entry `number` stands."""
        return entry_at(number, self.max_hash_slot_num)

    def path(self, name: str) -> Path:
        """The path of a file."""
        return self.root.joinpath(*index_file(name))

    @contextmanager
    def open(self, name: str) -> Iterator[OpenIndexFile]:
        """Open one of the files."""
        with open_index_file(self.path(name), self.max_hash_slot_num) as file:
            yield file

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
        """`count` entries of one file from entry `number` on; bytes that a short file lacks read as zeros."""
        with self.open(name) as file:
            return file.entries(number, count)

    def slots_of(self, name: str) -> Entries:
        """One file's hash slots, as they are on disk."""
        with self.open(name) as file:
            return file.slots()

    def search(self, physical_offset: int) -> int:
        """The number of the first key of a record at `physical_offset` or later, where the keys are in log order."""
        low, high = 0, self.keys
        while low < high:
            middle = (low + high) // 2
            if self.entries(middle, 1)["physical_offset"][0] < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def time_bases(self, first: int, count: int) -> Int64s:
        """The times that those of keys `[first, first + count)` count from, in ms, by the headers.

        A file's first key counts from the end that the file inherited: 0 where it had no predecessor, -1 where its
        predecessor may have expired.
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
