"""One index file by itself: its header's counts, its slots and chains, and what should be empty.

A walk from a key's slot finds the key if each slot points to its newest entry, and each entry to the one before it in
its slot. Both follow from the entries' hashes, so they are made again and compared. If they agree, each key's chain
reaches all its entries, and none of another slot, and every link leads to a smaller number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from reput.sinks.files.store_path import INDEX
from reput.sinks.formats.index_file import HEADER_SIZE, SLOT_SIZE, IndexHeader, chain_entries, index_file_size
from reput.sinks.index.index_reader import Entries, IndexReader
from reput.sinks.verify.findings import Difference, Findings

_CHUNK = 1 << 20


@dataclass
class IndexFileCheck:
    """Checks the file at position `file` of the row; memory: 8 bytes a slot, and a million entries."""

    row: IndexReader
    file: int
    findings: Findings
    _end: int = 0  # behind the last entry, counted or put since

    @property
    def name(self) -> str:
        """The file's path below the root."""
        return f"{INDEX}/{self.row.names[self.file]}"

    @property
    def header(self) -> IndexHeader:
        """The file's header."""
        return self.row.headers[self.file]

    def run(self) -> None:
        """Check the whole file."""
        size = self.row.path(self.row.names[self.file]).stat().st_size
        wanted = index_file_size(self.row.max_hash_slot_num, self.row.max_index_num)
        if size != wanted:
            text = (
                f"{size} bytes where maxHashSlotNum={self.row.max_hash_slot_num} and "
                f"maxIndexNum={self.row.max_index_num} make {wanted}"
            )
            self._differ("file_size", text, size, wanted, size)
            return
        if not self._check_count():
            return
        slots = np.zeros(self.row.max_hash_slot_num, np.int32)
        self._end = self.header.next_entry
        used = self._check_chains(slots)
        self._check_slots(slots)
        self._check_slot_count(used)
        self._check_physical_offsets()
        self._check_empty()

    def _check_count(self) -> bool:
        count, is_last = self.header.index_count, self.file == len(self.row.names) - 1
        if not 0 <= count <= self.row.max_index_num:
            text = f"the header counts to {count}, entries go from 1 to {self.row.max_index_num - 1}"
            self._differ("index_header", text, 36, None, count)
            return False
        if not is_last and count < self.row.max_index_num:
            text = f"the header counts to {count}, but there is a later file, so this one was full"
            self._differ("index_header", text, 36, self.row.max_index_num, count)
        return True

    def _chunks(self) -> Iterator[tuple[int, Entries]]:
        """The counted entries in chunks, each with the number of its first entry."""
        number, end = 1, self.header.next_entry
        while number < end:
            count = min(_CHUNK, end - number)
            yield number, self.row.entries_of(self.row.names[self.file], number, count)
            number += count

    def _check_chains(self, slots: Entries) -> int:
        used = 0
        for first, entries in self._chunks():
            hashes = entries["key_hash"].astype(np.int32)
            for at in np.flatnonzero(hashes < 0).tolist():
                text = f"entry {first + at}: a negative hash, {hashes[at]}"
                self._differ("index_entry", text, self.row.entry_at(first + at), None, int(hashes[at]), first + at)
            previous = np.empty(len(hashes), np.int32)
            used += chain_entries(slots, hashes, first, previous)
            for at in np.flatnonzero(previous != entries["previous"]).tolist():
                found, number = int(entries["previous"][at]), first + at
                text = f"entry {number}: its chain goes on at entry {previous[at]}, the link says {found}"
                self._differ("chain", text, self.row.entry_at(number) + 16, int(previous[at]), found, number)
        return used

    def _check_slots(self, slots: Entries) -> None:
        on_disk = self.row.slots_of(self.row.names[self.file])
        count = self.header.next_entry
        for slot in np.flatnonzero(on_disk != slots).tolist():
            found = int(on_disk[slot])
            if found >= count and self._leads_back(slot, found, int(slots[slot])):
                self._end = max(self._end, found + 1)
                continue
            beyond = f", beyond the {count - 1} entries counted" if found >= count else ""
            text = f"slot {slot} points to entry {found}{beyond}; its newest entry is {slots[slot]}"
            self._differ("slot", text, HEADER_SIZE + SLOT_SIZE * slot, int(slots[slot]), found)
        self.findings.note("entries_not_counted_yet", self._end - count)

    def _leads_back(self, slot: int, number: int, newest: int) -> bool:
        """Whether entries behind the counted ones link from `number` to the slot's `newest` counted entry.

        A put writes the entry, then the slot, then the count: such a put is under way, or its broker died.
        """
        if self.file < len(self.row.names) - 1 or number >= self.row.max_index_num:
            return False
        while number >= self.header.next_entry:
            entry = self.row.entries_of(self.row.names[self.file], number, 1)[0]
            if not entry["physical_offset"] or entry["key_hash"] % self.row.max_hash_slot_num != slot:
                return False
            if not 0 <= entry["previous"] < number:
                return False
            number = int(entry["previous"])
        return number == newest

    def _check_slot_count(self, used: int) -> None:
        found, keys = self.header.hash_slot_count, self.header.next_entry - 1
        if found == used:
            return
        if found == keys:
            self.findings.note("slots_counted_as_until_4.7.0")
            return
        self._differ("index_header", f"hashSlotCount is {found}, {used} slots are in use", 32, used, found)

    def _check_physical_offsets(self) -> None:
        """Check that ``beginPhyOffset`` and ``endPhyOffset`` are those of the first and the last entry."""
        keys = self.header.next_entry - 1
        if not keys:
            self._check_inherited()
            return
        for name, at, number, found in (
            ("beginPhyOffset", 16, 1, self.header.begin_phy_offset),
            ("endPhyOffset", 24, keys, self.header.end_phy_offset),
        ):
            entry = self.row.entries_of(self.row.names[self.file], number, 1)
            expected = int(entry["physical_offset"][0])
            if found != expected:
                text = f"the header's {name} is {found}, entry {number} names {expected}"
                self._differ("index_header", text, at, expected, found)

    def _check_inherited(self) -> None:
        """Check that a file without a key begins and ends where its predecessor ended; the first one has zeros."""
        header = self.header
        pairs = [
            ("beginTimestamp", 0, header.begin_timestamp),
            ("endTimestamp", 8, header.end_timestamp),
            ("beginPhyOffset", 16, header.begin_phy_offset),
            ("endPhyOffset", 24, header.end_phy_offset),
        ]
        if self.file:
            before = self.row.headers[self.file - 1]
            stamp, offset = max(0, before.end_timestamp), max(0, before.end_phy_offset)
        else:
            stamp, offset = 0, 0
            if self.row.may_follow_expired:
                stamp, offset = header.begin_timestamp, header.begin_phy_offset
        for (name, at, found), expected in zip(pairs, (stamp, stamp, offset, offset), strict=True):
            if found != expected:
                text = (
                    f"the header of a file without keys has the {name} {found}, its predecessor ended with {expected}"
                )
                self._differ("index_header", text, at, expected, found)

    def _check_empty(self) -> None:
        """Check that entry 0 is unused, and that nothing lies behind the last entry."""
        name = self.row.names[self.file]
        self._check_zeros(self.row.entry_at(0), self.row.entries_of(name, 0, 1).tobytes())
        with self.row.open(name) as file:
            for begin, data in file.filled_behind(self._end):
                self._check_zeros(begin, data)

    def _check_zeros(self, begin: int, data: bytes) -> None:
        if data.strip(b"\0"):
            at = begin + len(data) - len(data.lstrip(b"\0"))
            text = "bytes where no entry is"
            self._differ("bytes_behind_the_end", text, at, 0, data[at - begin])

    def _differ(
        self, kind: str, text: str, at: int | None, expected: int | None, found: int, number: int | None = None
    ) -> None:
        wanted = None if expected is None else str(expected)
        self.findings.differ(Difference(kind, text, self.name, at, number, None, wanted, str(found)))
