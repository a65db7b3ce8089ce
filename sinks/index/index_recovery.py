"""How far the index on disk agrees with the log, and the progress record that cuts off the rest.

A broker that starts with an `abort` file deletes every index file newer than its checkpoint, and derives again only
what its recovery happens to pass (``IndexService#load``): keys are lost, and a record's keys may be there twice. Here
each key whose record the log still has is compared with the key that the record makes. Keys that agree stay. The index
is cut back to before all keys of the first record that disagrees, so that deriving goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.dispatch.entries import KeyEntries
from reput.sinks.formats.index_file import IndexHeader, chain_entries, index_file_size, time_diffs
from reput.sinks.index.index_reader import IndexReader
from reput.source.arrays import Int32s, leading
from reput.source.errors import SinkError


@dataclass(frozen=True)
class _File:
    """One file on disk: its header, its entries from number 0 on, and whether the rest is as it should be.

    `is_counted` covers the header's two counts, `is_clean` the slots and the bytes behind the last entry.
    """

    name: str
    header: IndexHeader
    entries: np.ndarray[Any, Any]
    is_counted: bool
    is_clean: bool

    @property
    def next_entry(self) -> int:
        return len(self.entries)


@dataclass(frozen=True)
class IndexState:
    """The index once everything from the record at `end` on is cut off.

    `state` is that of a progress record, `removed` names the files that go, `entries_dropped` counts entries of the
    newest file that is kept, and `is_mended` is whether other bytes of that file change.
    """

    end: int
    state: dict[str, Any]
    removed: tuple[str, ...]
    entries_dropped: int
    is_mended: bool


class IndexCheck:
    """Compares the index with batches of the log, in log order, up to the first key that is missing or different."""

    def __init__(self, root: Path, max_hash_slot_num: int, max_index_num: int, start: int) -> None:
        """Open the index below `root`; keys of records before `start`, which the log no longer has, are trusted.

        Raises
        ------
        SinkError
            No file has the size that `max_hash_slot_num` and `max_index_num` make.
        """
        self._reader = IndexReader(root, max_hash_slot_num, max_index_num)
        self._slots = max_hash_slot_num
        self._max_index_num = max_index_num
        self._start = start
        self.names = self._reader.names
        self._check_sizes()
        # The file that is compared, the number of its next entry, its begin, and the end (ms) that it inherited.
        self._at, self._file, self._next = 0, self._load(0), 1
        self._begin_timestamp = self._file.header.begin_timestamp if self._file is not None else 0
        self._previous_end = 0
        self.disagrees_at: int | None = None
        self._skip_expired()

    @property
    def has_no_files(self) -> bool:
        """Whether the output has no index file."""
        return not self.names

    @property
    def trusted_until(self) -> int:
        """Behind the last record whose keys are trusted, since it lies before the start; 0 without any."""
        if self._file is None or self._next == 1:
            return 0
        return int(self._file.entries["physical_offset"][self._next - 1]) + 1

    def compare(self, keys: KeyEntries) -> None:
        """Go on with the next batch's keys; sets `disagrees_at` to the first record whose key differs or is missing."""
        assert self.disagrees_at is None
        done = 0
        while done < len(keys.hashes):
            if self._file is not None and self._next == self._file.next_entry:
                following = self._next_file()
                if following is not None:
                    self._open(following)
            file = self._file
            until = done if file is None else min(len(keys.hashes), done + file.next_entry - self._next)
            if until == done:
                self.disagrees_at = int(keys.offsets[done])
                return
            some = KeyEntries(keys.hashes[done:until], keys.offsets[done:until], keys.timestamps[done:until])
            agreeing = self._agreeing(some)
            self._next += agreeing
            if agreeing < until - done:
                self.disagrees_at = int(keys.offsets[done + agreeing])
                return
            done = until

    def cut(
        self,
        end: int,
        last_record: int,
        store_timestamp: Callable[[int], int | None],
        known: Mapping[str, Any] | None = None,
    ) -> IndexState:
        """Cut the index to the agreeing keys of records before `end`, or before an earlier offset.

        `last_record` is the physical offset of the last record in `[start, end)`, -1 without one. `store_timestamp`
        gives that of a record by its offset, None if the log no longer has the record. `known` is the state of the
        present progress record.
        """
        at, file, count = self._at, self._file, self._next
        while file is not None and (at > 0 if count == 1 else int(file.entries["physical_offset"][count - 1]) >= end):
            if count > 1:
                count -= 1
            else:
                at, file = at - 1, self._load(at - 1)
                count = file.next_entry if file is not None else 1
        if file is None:
            # Every message makes a file, with or without a key.
            return self._nothing_kept(end if last_record < 0 else self._start)
        if count == 1 and not (file.next_entry == 1 and file.is_counted and self._may_be_inherited(file.header)):
            return self._nothing_kept(self._start)
        header = self._header(file, count, store_timestamp)
        stamp_before = self._end_timestamp_before(at, known)
        if count >= self._max_index_num and last_record > header.end_phy_offset:
            # The message behind the one that filled the file has made the next file.
            full, at, count, successor = header, at + 1, 1, self._load(at + 1)
            if successor is None:
                return self.cut(max(self._start, full.end_phy_offset), -1, store_timestamp, known)
            file, stamp_before = successor, full.end_timestamp
            stamp, offset = max(0, full.end_timestamp), max(0, full.end_phy_offset)
            header = IndexHeader(stamp, stamp, offset, offset, index_count=_unused_count(file.header))
        state = {"file": file.name, "header": asdict(header), "index_msg_timestamp": stamp_before}
        removed = tuple(name for name in self.names if name > file.name)
        is_mended = header != file.header or not file.is_clean
        return IndexState(end, state, removed, file.next_entry - count, is_mended)

    def _may_be_inherited(self, header: IndexHeader) -> bool:
        """Whether the oldest file's header, without a key, is that of a new file, even behind one that has expired."""
        offset, stamp = header.begin_phy_offset, header.begin_timestamp
        same = (header.end_phy_offset, header.end_timestamp) == (offset, stamp)
        return same and (offset == stamp == 0 or (0 < offset < self._start and stamp > 0))

    def _nothing_kept(self, end: int) -> IndexState:
        state = {"file": None, "header": None, "index_msg_timestamp": 0}
        return IndexState(end, state, tuple(self.names), 0, is_mended=False)

    def _agreeing(self, keys: KeyEntries) -> int:
        """How many leading `keys` agree with the next entries, of which there are enough."""
        assert self._file is not None
        file, first = self._file, self._next
        found = file.entries[first : first + len(keys.hashes)]
        same = (found["key_hash"] == keys.hashes) & (found["physical_offset"] == keys.offsets)
        diffs = time_diffs(keys.timestamps, self._begin_timestamp)
        if first == 1:
            if self._at > 0:
                diffs[:1] = time_diffs(keys.timestamps[:1], self._previous_end)
            else:
                # What the very first file on disk inherited has expired with its predecessor.
                diffs[:1] = found["time_diff"][:1]
            same[0] &= file.header.begin_phy_offset == keys.offsets[0]
            same[0] &= file.header.begin_timestamp == keys.timestamps[0]
        same &= found["time_diff"] == diffs
        if first + len(found) == file.next_entry:
            same[-1] &= file.header.end_phy_offset == keys.offsets[-1]
            same[-1] &= file.header.end_timestamp == keys.timestamps[-1]
        return leading(same)

    def _next_file(self) -> _File | None:
        """The file behind this one; None unless this one is full."""
        assert self._file is not None
        return self._load(self._at + 1) if self._file.next_entry >= self._max_index_num else None

    def _open(self, following: _File) -> None:
        assert self._file is not None
        self._previous_end = max(0, self._file.header.end_timestamp)
        self._at, self._file, self._next = self._at + 1, following, 1
        self._begin_timestamp = following.header.begin_timestamp

    def _skip_expired(self) -> None:
        while self._file is not None:
            offsets = self._file.entries["physical_offset"].astype(np.int64)  # 0 before the first entry
            expired = (offsets[1:] < self._start) & (np.diff(offsets) >= 0)
            self._next = 1 + leading(expired)
            following = self._next_file() if expired.all() else None
            if following is None or not (following.entries["physical_offset"][1:2] < self._start).any():
                return
            self._open(following)

    def _header(self, file: _File, count: int, store_timestamp: Callable[[int], int | None]) -> IndexHeader:
        if count == file.next_entry and file.is_counted:
            return file.header
        last = file.entries[count - 1]
        offset = int(last["physical_offset"])
        stamp_of_last = store_timestamp(offset)
        if stamp_of_last is None:  # to the second, as the entry has it
            stamp_of_last = file.header.begin_timestamp + 1000 * int(last["time_diff"])
        slots: Int32s = np.zeros(self._slots, np.int32)
        hashes = file.entries["key_hash"][1:count].astype(np.int32)
        used = chain_entries(slots, hashes, 1, np.empty(len(hashes), np.int32))
        return IndexHeader(
            file.header.begin_timestamp, stamp_of_last, file.header.begin_phy_offset, offset, used, index_count=count
        )

    def _end_timestamp_before(self, at: int, known: Mapping[str, Any] | None) -> int:
        """The end (ms) of the file before: ``indexMsgTimestamp`` of the store checkpoint."""
        if at > 0:
            return self._reader.headers[at - 1].end_timestamp
        # The file before may have expired; a sink remembers.
        return int(known["index_msg_timestamp"]) if known and known["file"] == self.names[0] else 0

    def _check_sizes(self) -> None:
        size = index_file_size(self._slots, self._max_index_num)
        sizes = {name: self._reader.path(name).stat().st_size for name in self.names}
        if any(sizes.values()) and size not in sizes.values():
            name = max(sizes, key=lambda known: sizes[known])
            raise SinkError(
                f"{self._reader.path(name)} has {sizes[name]} bytes where maxHashSlotNum and maxIndexNum make {size}",
                advice="give the broker's settings (--broker-conf), or remove the index to derive it again",
                file=self._reader.path(name),
            )

    def _load(self, at: int) -> _File | None:
        """The file at position `at` of the row; None if there is none, or if it is unusable.

        Every file but the last must be full and have its slots in order; the last file's slots are made again at the
        next start anyway.
        """
        if not 0 <= at < len(self.names):
            return None
        with self._reader.open(self.names[at]) as file:
            if file.size != index_file_size(self._slots, self._max_index_num):
                return None
            header = file.header()
            count = min(header.next_entry, self._max_index_num)
            entries, slots_on_disk = file.entries(0, count), file.slots()
            is_clean = not any(data.strip(b"\0") for _, data in file.filled_behind(count))
        slots: Int32s = np.zeros(self._slots, np.int32)
        hashes = entries["key_hash"][1:].astype(np.int32)
        if len(hashes) and int(hashes.min()) < 0:
            return None
        previous = np.empty(len(hashes), np.int32)
        used = chain_entries(slots, hashes, 1, previous)
        if (previous != entries["previous"][1:]).any() or entries[:1].tobytes().strip(b"\0"):
            return None
        # Up to 4.7.0 a broker counted every key, not every slot in use.
        is_counted = header.index_count <= count and header.hash_slot_count in (used, count - 1)
        has_its_slots = bool((slots_on_disk == slots).all())
        if at + 1 < len(self.names) and count >= self._max_index_num and not (has_its_slots and is_counted):
            return None
        is_clean &= has_its_slots
        return _File(self.names[at], header, entries, is_counted, is_clean)


def _unused_count(header: IndexHeader) -> int:
    """The count in a file without a key: 0 as 4.9.3 leaves it, or 1 as a flush leaves it."""
    return header.index_count if header.index_count in (0, 1) else 0
