"""One IndexFile that is written: slots are kept in memory; entries, slots and header go to disk in that order."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reput.sinks.dispatch.entries import KeyEntries
from reput.sinks.files.durable_file import DurableFiles, remove_scratch, write_scratch
from reput.sinks.files.sparse_file import data_extents
from reput.sinks.files.store_path import index_file
from reput.sinks.formats.index_file import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    SLOTS_A_PAGE,
    IndexHeader,
    chain_entries,
    index_file_size,
    put_entries,
)
from reput.source.arrays import Int32s, Int64s
from reput.source.errors import SinkError

# Keys that are looked up together: their slots stay in the processor's nearest cache.
_KEYS_AT_ONCE = 128
# Entries and slots that are written together: they go to the system from the processor's cache, in reused memory.
_ENTRIES_A_WRITE = 32 * 1024
_SLOTS_A_WRITE = 64 * 1024


class IndexFile:
    """A file of an index that is not full. It holds ``maxIndexNum - 1`` keys: entry 0 is never used.

    Its slots are in memory, or in a scratch file for the task that puts the next keys.
    """

    def __init__(
        self, files: DurableFiles, name: str, max_hash_slot_num: int, max_index_num: int, header: IndexHeader
    ) -> None:
        self.name = name
        self.header = header
        self._files = files
        self._parts = index_file(name)
        self._max_index_num = max_index_num
        self._entries_at = HEADER_SIZE + SLOT_SIZE * max_hash_slot_num
        self._size = index_file_size(max_hash_slot_num, max_index_num)
        self._slots: Int32s = np.zeros(max_hash_slot_num, np.int32)
        # The pages with slots that differ on disk and in memory.
        self._touched = np.zeros(max_hash_slot_num // SLOTS_A_PAGE + 1, bool)
        self._kept: Path | None = None

    def create(self) -> None:
        """Create the file on disk with the header that it inherits."""
        self._files.create(*self._parts, size=self._size)
        self._write_header()

    def recover(self) -> None:
        """Bring the file on disk to the state of the header in memory.

        The slots are made again from the entries, since a crash may have left slots that point behind the header's
        count, which would hide their chains.
        """
        path = self._files.root.joinpath(*self._parts)
        size = path.stat().st_size
        if size != self._size:
            raise SinkError(
                f"{path} has {size} bytes where maxHashSlotNum and maxIndexNum make {self._size}",
                advice="give the broker's settings (--broker-conf), or remove the index to derive it again",
                file=path,
            )
        count = self.header.next_entry
        entries = np.fromfile(path, ENTRY, count, offset=self._entries_at)
        on_disk = np.fromfile(path, ">i4", len(self._slots), offset=HEADER_SIZE)
        hashes = entries["key_hash"][1:].astype(np.int32)
        if len(hashes) and int(hashes.min()) < 0:
            raise SinkError(
                f"{path} has an entry with a negative hash: it is damaged",
                advice="remove the index to derive it again",
                file=path,
            )
        previous = np.empty(len(hashes), np.int32)
        chain_entries(self._slots, hashes, 1, previous)
        if (previous != entries["previous"][1:]).any():
            raise SinkError(
                f"{path} has broken chains: it is damaged",
                advice="remove the index to derive it again",
                file=path,
            )
        if (on_disk != self._slots).any():
            self._files.write(*self._parts, offset=HEADER_SIZE, data=self._slots.astype(">i4").tobytes())
        self._clear_entries(count)
        self._write_header()

    @property
    def room(self) -> int:
        """How many keys still fit."""
        return self._max_index_num - self.header.next_entry

    @property
    def is_full(self) -> bool:
        """Whether the next message makes a new file."""
        return self.room <= 0

    def put(self, keys: KeyEntries) -> None:
        """Write the entries of `keys`, at least one and at most `room`; slots and header stay in memory until `flush`.

        The caller syncs; `recover` mends what a crash in between leaves.
        """
        count, first = len(keys.hashes), self.header.next_entry
        assert 0 < count <= self.room
        self._take_back_slots()
        header = self.header.followed_by(count, keys.first, keys.last, 0)
        # The first key's time is measured from the begin that the file inherited, the others' from its own begin.
        begin = self.header.begin_timestamp
        entries = np.empty((min(count, _ENTRIES_A_WRITE), ENTRY_SIZE), np.uint8)
        ahead = np.empty(_KEYS_AT_ONCE, np.int64)
        fresh = 0
        for done in range(0, count, _ENTRIES_A_WRITE):
            some = slice(done, min(count, done + _ENTRIES_A_WRITE))
            made = entries[: some.stop - done]
            fresh += put_entries(
                *(self._slots, self._touched, ahead, first + done, header.begin_timestamp, begin),
                *(keys.hashes[some], keys.offsets[some], keys.timestamps[some], made),
            )
            self._files.write(*self._parts, offset=self._entries_at + ENTRY_SIZE * (first + done), data=made.data)
            begin = header.begin_timestamp
        self.header = self.header.followed_by(count, keys.first, keys.last, fresh)

    def flush(self, *, slots: bool = True) -> None:
        """Write the changed slots, unless they are to wait, and then the header; the caller syncs.

        Keys hit slots all over the file: where many are put, writing the slots once at the end is much less.
        """
        if slots:
            self.write_slots()
        self._write_header()

    def hand_over_slots(self, directory: Path) -> Path | None:
        """Leave the slots to a task, in a scratch file in `directory`; None where no key was put yet.

        `flush` leaves them out until `go_on` has been called with what the task has made of them.
        """
        self._touched[:] = False
        kept, self._kept = self._kept, None
        return kept if kept is not None or self.header.next_entry == 1 else self.keep_slots(directory)

    def keep_slots(self, directory: Path) -> Path:
        """Write the slots to a scratch file in `directory`."""
        return write_scratch(directory, self._slots.data)

    def go_on(self, header: IndexHeader, kept: Path | None) -> None:
        """Go on where a task has put keys: at `header`, with the slots that are kept; None if they are on disk."""
        self.header, self._kept = header, kept

    def read_slots(self, kept: Path) -> None:
        """Take the slots out of a scratch file; all that are not empty may differ from those on disk."""
        self._slots[:] = np.fromfile(kept, self._slots.dtype)
        self._touched[np.flatnonzero(self._slots) // SLOTS_A_PAGE] = True

    def _take_back_slots(self) -> None:
        """Take the slots back into memory, if they are in a scratch file, and remove that."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self.read_slots(kept)
            remove_scratch([kept])

    def write_slots(self) -> None:
        """Write the changed slots; the caller syncs."""
        self._take_back_slots()
        pages: Int64s = np.flatnonzero(self._touched)
        self._touched[:] = False
        if not len(pages):
            return
        breaks = np.flatnonzero(np.diff(pages) > 1) + 1
        for adjacent in np.split(pages, breaks):
            end = (int(adjacent[-1]) + 1) * SLOTS_A_PAGE
            for first in range(int(adjacent[0]) * SLOTS_A_PAGE, end, _SLOTS_A_WRITE):
                slots = self._slots[first : min(first + _SLOTS_A_WRITE, end)].astype(">i4").view(np.uint8)
                self._files.write(*self._parts, offset=HEADER_SIZE + SLOT_SIZE * first, data=slots.data)

    def _write_header(self) -> None:
        self._files.write(*self._parts, offset=0, data=self.header.encode())

    def _clear_entries(self, first: int) -> None:
        """Zero what a crash left from entry `first` on."""
        path = self._files.root.joinpath(*self._parts)
        with path.open("rb") as file:
            for begin, end in list(data_extents(file.fileno(), self._entries_at + ENTRY_SIZE * first)):
                file.seek(begin)
                if file.read(end - begin).strip(b"\0"):
                    self._files.write(*self._parts, offset=begin, data=bytes(end - begin))
