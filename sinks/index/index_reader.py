"""The index files of an output as they are on disk, one file or all of them in a row; nothing is written."""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.files.file_system import data_extents
from reput.sinks.files.store_path import INDEX, index_file, is_index_file_name
from reput.sinks.formats.index_file import ENTRY, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader, index_file_size
from reput.source.arrays import Int64s
from reput.source.errors import SinkError
from reput.source.log.mapped_file_queue import open_for_reading
from reput.source.record.message_properties import hash_code

Entries = np.ndarray[Any, Any]

_SLOT = np.dtype(">i4")
# For a file of unknown sizes: the bytes searched at once, and the number of candidates tried.
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
    """One index file, open for reading. Missing bytes of a short file read as zeros. Entries are numbered from 0."""

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
        """`count` entries beginning with `number`."""
        return np.frombuffer(self._read(entry_at(number, self.max_hash_slot_num), count * ENTRY_SIZE), ENTRY)

    def filled_behind(self, number: int) -> Iterator[tuple[int, bytes]]:
        """The extents with data from entry `number` on, each with the byte where it begins."""
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
    """The byte of a file where entry `number` begins."""
    return HEADER_SIZE + SLOT_SIZE * max_hash_slot_num + ENTRY_SIZE * number


def deduced_sizes(path: Path, known: Iterable[int] = ()) -> tuple[int, int] | None:
    """``maxHashSlotNum`` and ``maxIndexNum`` of a file, deduced from its content; None if that is not possible.

    A file's size has both in one sum. The newest entry belongs to the record that the header ends with, and its number
    is in the slot of its hash: only the right sizes lead there. Numbers of slots that are `known` are tried first.
    """
    with open_for_reading(str(path)) as descriptor:
        header = IndexHeader.decode(os.pread(descriptor, HEADER_SIZE, 0).ljust(HEADER_SIZE, b"\0"))
        size, number = os.fstat(descriptor).st_size, header.index_count - 1
        if number < 1:
            return None
        by_size = (size - HEADER_SIZE) // (SLOT_SIZE + 4 * ENTRY_SIZE)  # the defaults have four keys per slot
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
    """The number of slots if entry `number` is an entry with that physical offset, for each such entry."""
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

    `may_follow_expired` says that earlier files may have expired.
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
        """Each file's header; missing bytes of a short file read as zeros."""
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
        """The number of keys by the headers."""
        return self.starts[-1]

    def file_of(self, key: int) -> int:
        """The position in the row of the file that has key `key`."""
        return bisect_right(self.starts, key, 0, len(self.names)) - 1

    def where(self, key: int) -> tuple[str, int, int]:
        """The place of key `key`: its file's path below the root, the byte in the file, the entry's number there."""
        file = self.file_of(key)
        number = key - self.starts[file] + 1
        return f"{INDEX}/{self.names[file]}", self.entry_at(number), number

    def entry_at(self, number: int) -> int:
        """The byte of a file where entry `number` begins."""
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
        """Up to `count` entries beginning with key `first`, across files."""
        parts = []
        while count > 0 and first < self.keys:
            file = self.file_of(first)
            some = min(count, self.starts[file + 1] - first)
            parts.append(self.entries_of(self.names[file], first - self.starts[file] + 1, some))
            first, count = first + some, count - some
        return np.concatenate(parts) if parts else np.empty(0, ENTRY)

    def entries_of(self, name: str, number: int, count: int) -> Entries:
        """`count` entries of one file beginning with `number`; missing bytes of a short file read as zeros."""
        with self.open(name) as file:
            return file.entries(number, count)

    def slots_of(self, name: str) -> Entries:
        """One file's hash slots, as they are on disk."""
        with self.open(name) as file:
            return file.slots()

    def search(self, physical_offset: int) -> int:
        """The number of the first key of a record at `physical_offset` or later, if the keys are in log order."""
        low, high = 0, self.keys
        while low < high:
            middle = (low + high) // 2
            if self.entries(middle, 1)["physical_offset"][0] < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def time_bases(self, first: int, count: int) -> Int64s:
        """The times from which the times of keys `[first, first + count)` count, in ms, by the headers.

        A file's first key counts from the end that the file inherited: 0 without a predecessor, -1 if its predecessor
        may have expired.
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


# ----------------------------------------------------------------------------------------------------------------------
# Offsets by key from index files (``IndexService#queryOffset``, ``IndexFile#selectPhyOffset``); read only.

# Passing over this many entries that are too old takes a tenth of a second.
_OLDER_MAX = 10_000


def index_key_hash(key: str) -> int:
    """The hash of ``topic#key``, 0 to 2^31 - 1 (``IndexFile#indexKeyHashMethod``)."""
    value = abs(hash_code(key))
    return value if value < 2**31 else 0  # Math.abs(Integer.MIN_VALUE) is negative


@dataclass
class QueryOffsetResult:
    """Commitlog offsets of entries with the key's hash, newest first; repeated if the index has an offset twice.

    A hash has 32 bits, so any of them may belong to another key. `damages` has a sentence for each contradiction in the
    files that was passed over. `older_left` is the number of entries that are too old and are still passed over before
    the search ends at the first of them, as a broker's search does.
    """

    phy_offsets: list[int] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)
    older_left: int = 0

    def ends_at_older(self) -> bool:
        """Whether the search of a file ends at an entry that is too old; counts the entry."""
        self.older_left -= 1
        if self.older_left == 0:
            self.damages.append(
                f"{_OLDER_MAX} index entries with this hash are older than the times asked for: what the broker "
                "stored later with an earlier time may be missed after them"
            )
        return self.older_left < 0


@dataclass(frozen=True)
class IndexLookup:
    """The index files below `root`, made with the settings ``maxHashSlotNum`` and ``maxIndexNum``."""

    root: Path
    max_hash_slot_num: int
    max_index_num: int

    def query_offset(
        self, topic: str, key: str, max_num: int, begin: int, end: int, *, times_rise: bool = True
    ) -> QueryOffsetResult:
        """Search a key in the files from the newest to the oldest, as ``IndexService#queryOffset`` does.

        Parameters
        ----------
        topic, key
            As the producer gave them; a unique key is a key like any other.
        max_num
            The most entries to take, including those of other keys with the same hash.
        begin, end
            Times in milliseconds, both inclusive. An entry's time is the store time cut to whole seconds from the
            file's begin, so give a `begin` that is 1000 ms early.
        times_rise
            End a search at the first entry or file that is too old, as a broker does. Otherwise some thousand of them
            are passed over, and entries whose time the file cannot tell are also taken: after the clock went back older
            entries have later times, and a message from before its file's first one has that one's time.

        Raises
        ------
        SinkError
            There is no index, or a file's size is not that of the settings.
        StoreError, TransientError
            A file cannot be read; see ``read_error``.
        """
        result = QueryOffsetResult(older_left=0 if times_rise else _OLDER_MAX)
        key_hash = index_key_hash(f"{topic}#{key}")
        for name in reversed(self.file_names()):
            path = self.root.joinpath(*index_file(name))
            try:
                with open_index_file(path, self.max_hash_slot_num) as opened:
                    opened.check_size(path, self.max_index_num)
                    header = opened.header()
                    if result.older_left > 0 or _is_time_matched(header, begin, end):
                        file = _IndexFile(opened, path, self.max_index_num)
                        file.select_phy_offset(result, key_hash, max_num, begin, end)
            except FileNotFoundError:  # it has expired since it was listed, and so have all older ones
                break
            is_older = header.begin_timestamp < begin and result.older_left <= 0
            if is_older or len(result.phy_offsets) >= max_num:
                break
        return result

    @property
    def exists(self) -> bool:
        """Whether there is a directory of index files."""
        return (self.root / INDEX).is_dir()

    def file_names(self) -> list[str]:
        """The names of the index files, oldest first.

        Raises
        ------
        SinkError
            There is no directory of index files.
        """
        directory = self.root / INDEX
        if not self.exists:
            raise SinkError(
                f"no index at {directory}",
                advice="give the directory that holds index/ (--output), or derive it with 'reput tail'",
                file=directory,
            )
        return index_file_names(self.root)


def _is_time_matched(header: IndexHeader, begin: int, end: int) -> bool:
    """Whether a file may hold times of `[begin, end]` (``IndexFile#isTimeMatched``)."""
    first, last = header.begin_timestamp, header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


@dataclass(frozen=True)
class _IndexFile:
    """One open file of the right size."""

    file: OpenIndexFile
    path: Path
    max_index_num: int

    def select_phy_offset(self, result: QueryOffsetResult, key_hash: int, max_num: int, begin: int, end: int) -> None:
        """Add the offsets of a hash's entries (``IndexFile#selectPhyOffset``).

        An entry's predecessor is older and has a smaller number, so the walk ends: it stops at the first link that does
        not lead to a smaller number. A crash between slot and header leaves an entry that links to itself. The broker
        also stops there, but follows any other such link for ever.
        """
        slot = key_hash % self.file.max_hash_slot_num
        # A broker sets the slot, then the count. Read in the same order, the count is at most one too low.
        number = self.file.slot(slot)
        header = self.file.header()
        count = header.next_entry
        if count > self.max_index_num:
            result.damages.append(
                f"{self.path}: the header counts to {count} where maxIndexNum is {self.max_index_num}; "
                "the file is passed over"
            )
            return
        if number < 0 or number > count:
            result.damages.append(
                f"{self.path}: slot {slot} points to entry {number} of {count}; its entries cannot be found"
            )
            return
        # After a crash a slot may point to the entry after the counted ones; entry maxIndexNum does not exist.
        while 0 < number < self.max_index_num and count > 1 and len(result.phy_offsets) < max_num:
            entry_hash, phy_offset, time_diff, previous = self.file.entries(number, 1)[0].item()
            if time_diff < 0:
                result.damages.append(f"{self.path}: entry {number} has the time difference {time_diff}")
                return
            time = header.begin_timestamp + 1000 * time_diff
            # The broker counts the first entry from another file's time; a negative difference becomes 0.
            has_no_time = result.older_left > 0 and (time_diff == 0 or number == 1)
            if entry_hash == key_hash and (has_no_time or begin <= time <= end):
                result.phy_offsets.append(phy_offset)
            if previous == number or (time < begin and result.ends_at_older()):
                return
            if previous > number or previous < 0:
                result.damages.append(
                    f"{self.path}: entry {number} links to entry {previous}, which is not an older one; "
                    "the entries after it cannot be found"
                )
                return
            number = previous
