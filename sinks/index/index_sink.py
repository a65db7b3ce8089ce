"""The row of index files as it is written, and the sink that keeps it (``IndexService`` of 4.9.3).

The slots of one file are in memory. Entries, slots and header go to disk in that order (``IndexFile``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import KeyEntries
from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.files.durable_file import DurableFiles, remove_scratch, write_scratch
from reput.sinks.files.file_system import data_extents
from reput.sinks.files.scratch import Scratch
from reput.sinks.files.sink_progress import KeepsProgress, ProgressFile, SinkProgress
from reput.sinks.files.store_path import INDEX, index_file
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
from reput.sinks.index.index_reader import index_file_names, open_index_file
from reput.sinks.sink import not_yet_written
from reput.source.arrays import Int32s, Int64s
from reput.source.errors import SinkError

_log = logging.getLogger(__name__)
# The number of keys looked up together: their slots stay in the processor's nearest cache.
_KEYS_AT_ONCE = 128
# The numbers of entries and slots written together: they go to the system from the processor's cache, in reused memory.
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

        The slots are computed again from the entries: after a crash slots may point to entries beyond the header's
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
        """The number of keys that still fit."""
        return self._max_index_num - self.header.next_entry

    @property
    def is_full(self) -> bool:
        """Whether the next message makes a new file."""
        return self.room <= 0

    def put(self, keys: KeyEntries) -> None:
        """Write the entries of `keys`, at least one and at most `room`; slots and header stay in memory until `flush`.

        The caller syncs; `recover` repairs the file after a crash in between.
        """
        count, first = len(keys.hashes), self.header.next_entry
        assert 0 < count <= self.room
        self._take_back_slots()
        header = self.header.followed_by(count, keys.first, keys.last, 0)
        # The first key's time counts from the begin that the file inherited, the others' from its own begin.
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
        """Write the changed slots, if `slots`, and then the header; the caller syncs.

        Keys hit slots all over the file: with many keys, it is much less to write the slots once at the end.
        """
        if slots:
            self.write_slots()
        self._write_header()

    def hand_over_slots(self, directory: Path) -> Path | None:
        """Leave the slots to a task, in a scratch file in `directory`; None if no key was put yet.

        `flush` leaves them out until `go_on` has been called with the task's result.
        """
        self._touched[:] = False
        kept, self._kept = self._kept, None
        return kept if kept is not None or self.header.next_entry == 1 else self.keep_slots(directory)

    def keep_slots(self, directory: Path) -> Path:
        """Write the slots to a scratch file in `directory`."""
        return write_scratch(directory, self._slots.data)

    def go_on(self, header: IndexHeader, kept: Path | None) -> None:
        """Continue after a task has put keys: with `header`, and the slots in the file `kept`, or on disk if None."""
        self.header, self._kept = header, kept

    def read_slots(self, kept: Path) -> None:
        """Load the slots of a scratch file; every slot that is not empty may differ from the one on disk."""
        self._slots[:] = np.fromfile(kept, self._slots.dtype)
        self._touched[np.flatnonzero(self._slots) // SLOTS_A_PAGE] = True

    def _take_back_slots(self) -> None:
        """Load the slots again if they are in a scratch file, and remove that file."""
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
        """Zero the entries from `first` on that a crash left."""
        path = self._files.root.joinpath(*self._parts)
        with path.open("rb") as file:
            for begin, end in list(data_extents(file.fileno(), self._entries_at + ENTRY_SIZE * first)):
                file.seek(begin)
                if file.read(end - begin).strip(b"\0"):
                    self._files.write(*self._parts, offset=begin, data=bytes(end - begin))


MAX_HASH_SLOT_NUM = 5_000_000
MAX_INDEX_NUM = 20_000_000
_NAME_FORMAT = "%Y%m%d%H%M%S%f"
_MILLISECOND = timedelta(milliseconds=1)


def index_file_name(now: float, last: str | None) -> str:
    """A new file's name: local time `now` (seconds since 1970) as ``yyyyMMddHHmmssSSS``.

    The name is always after `last`: the broker would give two files of one millisecond the same path, and a clock that
    went back would put the file before its predecessors.
    """
    seconds, milliseconds = divmod(int(now * 1000), 1000)
    moment = datetime.fromtimestamp(seconds) + milliseconds * _MILLISECOND  # noqa: DTZ006  local time, as the broker's
    if last is not None:
        try:
            moment = max(moment, datetime.strptime(last + "000", _NAME_FORMAT) + _MILLISECOND)  # noqa: DTZ007
        except ValueError:  # a broker accepts any number as a name
            return max(moment.strftime(_NAME_FORMAT)[:-3], f"{int(last) + 1:017d}")
    return moment.strftime(_NAME_FORMAT)[:-3]


@dataclass(frozen=True)
class IndexPut:
    """The keys `[begin, end)` of a batch, numbered from 0, go into one file, which exists and has `header`.

    `sizes` are ``maxHashSlotNum`` and ``maxIndexNum``. `slots` is the scratch file of its slots, None without keys.
    """

    file: str
    sizes: tuple[int, int]
    header: IndexHeader
    slots: Path | None
    begin: int
    end: int


@dataclass(frozen=True)
class IndexPutDone:
    """A task's result for an `IndexPut`: the file's header, and its slots unless the file is full."""

    header: IndexHeader
    slots: Path | None


PutKeys = Callable[[PieceEntries, list[IndexPut]], list[IndexPutDone]]


def put_keys_into_file(files: DurableFiles, entries: PieceEntries, put: IndexPut) -> IndexPutDone:
    """Write the entries of an `IndexPut`, whose keys are in `entries`, durably, and the slots if they fill the file.

    The caller writes the header, so a late call from a machine that was given up changes no byte.
    """
    file = IndexFile(files, put.file, *put.sizes, put.header)
    if put.slots is not None:
        file.read_slots(put.slots)
    for keys in entries.keys_between(put.begin, put.end):
        file.put(keys)
    kept = None
    if file.is_full:
        file.write_slots()
    else:
        kept = file.keep_slots(Scratch(files).directory)
    files.sync()
    return IndexPutDone(file.header, kept)


class IndexSink(KeepsProgress):
    """Keeps ``index/`` from the log."""

    name = "index"

    def __init__(
        self,
        files: DurableFiles,
        max_hash_slot_num: int = MAX_HASH_SLOT_NUM,
        max_index_num: int = MAX_INDEX_NUM,
        clock: Callable[[], float] = time.time,
        *,
        count_of_empty: int = 0,
    ) -> None:
        """Take a `clock` (seconds since 1970), which only names new files.

        `count_of_empty` is the count in a file's header before its first key: 0 up to 4.9.x. 5.x writes its counters at
        every stop, and so 1, the number of the first entry.
        """
        self._files = files
        self._max_hash_slot_num = max_hash_slot_num
        self._max_index_num = max_index_num
        self._clock = clock
        self._count_of_empty = count_of_empty
        self._record = ProgressFile(files, self.name)
        self._file: IndexFile | None = None
        self._last_full_timestamp = 0

    @property
    def index_msg_timestamp(self) -> int:
        """The store checkpoint's third field: the end (ms) of the last file that has a successor; 0 without one."""
        return self._last_full_timestamp

    @property
    def files(self) -> DurableFiles:
        """The writer of the index files; the sink keeps nothing else of files before the last one."""
        return self._files

    def recover(self, start_offset: int) -> SinkProgress:
        """Continue at the progress record; later files and keys are dropped. See ``Sink.recover``."""
        record = self._record.load()
        names = index_file_names(self._files.root)
        if record is not None and record.state["file"] is not None and record.state["file"] not in names:
            if names:
                raise SinkError(
                    f"{self._files.root / INDEX} has no file {record.state['file']}, which was the last one written",
                    advice=f"remove {INDEX}/ and {self._record.path} to derive the index from the log again",
                    file=self._files.root / INDEX,
                )
            _log.warning("%s is gone; deriving it from the log again", self._files.root / INDEX)
            record = None
        if record is None:
            record = self._adopt(names, start_offset)
        last = record.state["file"]
        for name in names:
            if last is None or name > last:
                self._files.remove(*index_file(name))
        if last is not None:
            self._file = self._open(last, IndexHeader(**record.state["header"]))
            self._file.recover()
        self._last_full_timestamp = record.state["index_msg_timestamp"]
        self._files.sync()
        self._record.store(record)
        return record

    def write(self, batch: LogicBatch, *, slots_later: bool = False, put_keys: PutKeys | None = None) -> AnomalyCounts:
        """Add the batch's keys; see ``Sink.write``. The index has no anomalies: its records come in log order.

        With `slots_later`, `finish` writes the slots of the last file; if `finish` was not reached, `recover` computes
        them again. `put_keys` does ``put_keys_into_file`` for each file, and also leaves the slots for later.
        """
        rest = not_yet_written(self.name, self.end_offset, batch)
        if rest is None:
            return NO_ANOMALIES
        entries = rest.entries
        if not entries.paths:  # no file has exactly the rest of a batch that is partly written
            put_keys = None
        if put_keys is None:
            for keys in entries.keys_by_piece():
                self._put(keys)
        else:
            self._put_elsewhere(entries, put_keys)
        last_key = entries.key(entries.key_count - 1)[0] if entries.key_count else -1
        # Every message first gets a file to write to, so one without keys after a full file makes the next.
        last = batch.last_record.offset if batch.last_record is not None else -1
        if last >= self.end_offset and (self._file is None or (self._file.is_full and last > last_key)):
            self._roll()
        if self._file is not None and last_key >= 0:
            self._file.flush(slots=put_keys is None and not slots_later)
        self._files.sync()
        self._record.advance(batch.end, batch.last_record, self._state())
        return NO_ANOMALIES

    def finish(self) -> None:
        """Write, durably, everything that `write` left for later."""
        if self._file is not None:
            self._file.flush()
            self._files.sync()

    def _put(self, keys: KeyEntries) -> None:
        done = 0
        while done < len(keys.hashes):
            file = self._file_with_room()
            until = done + min(file.room, len(keys.hashes) - done)
            file.put(keys.between(done, until))
            done = until

    def _put_elsewhere(self, entries: PieceEntries, put_keys: PutKeys) -> None:
        """Make the files that all keys need, have their entries written, and then write the headers."""
        puts: list[IndexPut] = []
        files: list[IndexFile] = []
        done = 0
        while done < entries.key_count:
            file = self._file_with_room()
            until = done + min(file.room, entries.key_count - done)
            slots = file.hand_over_slots(Scratch(self._files).directory)
            sizes = self._max_hash_slot_num, self._max_index_num
            puts.append(IndexPut(file.name, sizes, file.header, slots, done, until))
            files.append(file)
            # The next file inherits from this one's header, in which only the number of slots is unknown yet.
            header = file.header.followed_by(until - done, entries.key(done), entries.key(until - 1), 0)
            file.go_on(header, None)
            done = until
        for file, put, each in zip(files, puts, put_keys(entries, puts), strict=True):
            file.go_on(each.header, each.slots)
            file.flush(slots=False)
            if put.slots is not None:
                remove_scratch([put.slots])

    def _file_with_room(self) -> IndexFile:
        return self._file if self._file is not None and not self._file.is_full else self._roll()

    def _roll(self) -> IndexFile:
        """Create the next file; its begin and end are the last file's end, if that is above 0."""
        last = self._file
        header = IndexHeader(index_count=self._count_of_empty)
        if last is not None:
            last.flush()
            timestamp, offset = max(0, last.header.end_timestamp), max(0, last.header.end_phy_offset)
            header = replace(
                header,
                begin_timestamp=timestamp,
                end_timestamp=timestamp,
                begin_phy_offset=offset,
                end_phy_offset=offset,
            )
            self._last_full_timestamp = last.header.end_timestamp
        self._file = self._open(index_file_name(self._clock(), last.name if last else None), header)
        self._file.create()
        return self._file

    def _open(self, name: str, header: IndexHeader) -> IndexFile:
        return IndexFile(self._files, name, self._max_hash_slot_num, self._max_index_num, header)

    def _adopt(self, names: list[str], start_offset: int) -> SinkProgress:
        """Continue after a broker's files; without any, begin at `start_offset`."""
        headers = [self._header(name) for name in names]
        state = {
            "file": names[-1] if names else None,
            "header": asdict(headers[-1]) if names else None,
            "index_msg_timestamp": headers[-2].end_timestamp if len(names) > 1 else 0,
        }
        # A cleanly closed index has all keys of its last record; the next record begins somewhere after that one.
        known = headers[-1].end_phy_offset + 1 if headers and max(h.index_count for h in headers) > 1 else 0
        start = max(start_offset, known)
        return SinkProgress(start, start, None, state)

    def _header(self, name: str) -> IndexHeader:
        with open_index_file(self._files.root.joinpath(*index_file(name))) as file:
            return file.header()

    def _state(self) -> dict[str, object]:
        return {
            "file": self._file.name if self._file else None,
            "header": asdict(self._file.header) if self._file else None,
            "index_msg_timestamp": self._last_full_timestamp,
        }
