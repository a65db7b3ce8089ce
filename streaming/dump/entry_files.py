"""Dumps of the files of a store: their kind, header and entries, and the rest of each file.

A file's kind is known from its path, from its first bytes, or from an option.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from reput.sinks.files.config_manager import is_rocksdb
from reput.sinks.files.store_path import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    STORE_CHECKPOINT,
    is_index_file_name,
)
from reput.sinks.formats.consume_queue import (
    BATCH_ENTRY,
    ENTRY,
    MAX_EXT_UNIT_SIZE,
    MIN_EXT_UNIT_SIZE,
    CqExtUnit,
    decorate,
    is_ext_addr,
    is_pre_blank,
    is_written,
)
from reput.sinks.formats.index_file import chain_entries
from reput.sinks.index.index_reader import OpenIndexFile, entry_at, index_key_hash, open_index_file
from reput.sinks.message_rocksdb import Entry, MessageRocksDB
from reput.sinks.queue.queue_reader import Units, units_of_file
from reput.sinks.queue.rocksdb_queue import QueueKey, RocksDBQueues
from reput.sinks.store_checkpoint import CHECKPOINT_SIZE, StoreCheckpoint
from reput.source.errors import OptionError, StoreError, UnknownNameError
from reput.source.log.mapped_file_queue import HEAD_SIZE, MappedFile, is_begun, is_framed, open_for_reading
from reput.source.log.store_layout import COMMIT_LOG, MORE_IN_ROCKSDB, is_dledger_log, is_file_name
from reput.source.options import nearest, shown
from reput.source.record.dledger_entry import ENTRY_HEADER_SIZE, ENTRY_POS_AT
from reput.source.record.message_format import PHYSICAL_OFFSET_AT
from reput.source.times import time_text
from reput.streaming.config.settings import IndexOptions


class FileKind(str, Enum):
    """The kinds of files that a dump reads, by the name of their directory or of the file."""

    COMMIT_LOG = COMMIT_LOG
    CONSUME_QUEUE = CONSUME_QUEUE
    CONSUME_QUEUE_EXT = CONSUME_QUEUE_EXT
    BATCH_CONSUME_QUEUE = BATCH_CONSUME_QUEUE
    INDEX = INDEX
    CHECKPOINT = STORE_CHECKPOINT
    ROCKSDB = "rocksdb"
    MESSAGE_ROCKSDB = MORE_IN_ROCKSDB


# This many entries of ``rocksdbstore/`` are printed at once.
_ROWS = 1000
_KIND_NAMES = ", ".join(kind.value for kind in FileKind)
_QUEUES = (FileKind.CONSUME_QUEUE, FileKind.CONSUME_QUEUE_EXT, FileKind.BATCH_CONSUME_QUEUE)


@dataclass(frozen=True)
class DumpedFile:
    """A file: its kind, its size in bytes, and the topic and queue id of a queue's file if the path has them.

    `file_from_offset` is the number in its name: its first byte in its row of files; None for other names.
    """

    path: Path
    kind: FileKind
    size: int
    file_from_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None


def kind_named(name: str | None) -> FileKind | None:
    """Return the kind of that name.

    Raises
    ------
    OptionError
        There is no such kind.
    """
    if name is None:
        return None
    try:
        return FileKind(name)
    except ValueError:
        raise OptionError(f"--file-kind {name}: one of {_KIND_NAMES} wanted") from None


def recognise(path: Path, kind: FileKind | None = None) -> DumpedFile:
    """Find out the kind of the file at `path`; `kind` gives it if neither path nor content shows it.

    Raises
    ------
    OptionError
        There is no such file, or its kind is unknown.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise OptionError(f"--file {path}: {error.strerror}") from error
    if is_rocksdb(path):
        size = sum(each.stat().st_size for each in path.iterdir() if each.is_file())
        return DumpedFile(
            path, kind or (FileKind(path.name) if path.name == MORE_IN_ROCKSDB else FileKind.ROCKSDB), size
        )
    if not path.is_file():
        raise OptionError(f"--file {path}: not a regular file; --store reads the log of a whole store", file=path)
    kind = kind or _by_path(path, status.st_size) or _by_content(path)
    if kind is None:
        raise OptionError(
            f"--file {path}: neither its path nor its first bytes say what it is",
            advice=f"give --file-kind: {_KIND_NAMES}",
        )
    offset = int(path.name) if is_file_name(path.name) else None
    topic, queue_id = None, None
    if kind in _QUEUES and _is_in_queue(path):
        topic, queue_id = path.parent.parent.name, int(path.parent.name)
    return DumpedFile(path, kind, status.st_size, offset, topic, queue_id)


def segment_of(file: DumpedFile) -> MappedFile:
    """Return a file of the log as a segment; if its name does not give its offset, its first record does.

    Raises
    ------
    StoreError
        Neither its name nor a record at its begin shows where in the log it belongs.
    """
    head = _head(file.path)
    found = _offset_and_frame(head)
    offset = found[0] if file.file_from_offset is None and found else file.file_from_offset
    if offset is None:
        raise StoreError(
            f"{file.path}: no record begins it, so its physical offset is not known",
            advice="give it the name that it had in the commitlog",
            file=file.path,
        )
    framed = is_framed(head, offset, file.size)
    if framed is None:
        framed = is_dledger_log(file.path.parent)
    return MappedFile(offset, file.size, str(file.path), ENTRY_HEADER_SIZE if framed else 0)


def _by_path(path: Path, size: int) -> FileKind | None:
    if _is_in_queue(path):
        return FileKind(path.parents[2].name)
    if is_file_name(path.name) and (path.parent.name == COMMIT_LOG or is_dledger_log(path.parent)):
        return FileKind.COMMIT_LOG
    if is_index_file_name(path.name):
        return FileKind.INDEX
    return FileKind.CHECKPOINT if path.name == STORE_CHECKPOINT and size == CHECKPOINT_SIZE else None


def _is_in_queue(path: Path) -> bool:
    """Whether it is in a queue's directory: ``consumequeue/TOPIC/QUEUE/FILE``, or the same of another kind."""
    kinds = {kind.value for kind in _QUEUES}
    parents = path.parents
    return is_file_name(path.name) and parents[0].name.isdecimal() and len(parents) > 2 and parents[2].name in kinds


def _by_content(path: Path) -> FileKind | None:
    return FileKind.COMMIT_LOG if _offset_and_frame(_head(path)) else None


def _offset_and_frame(head: bytes) -> tuple[int, int] | None:
    """Return the physical offset and the frame of the record at the begin of `head`; None without one."""
    for frame, at in ((0, PHYSICAL_OFFSET_AT), (ENTRY_HEADER_SIZE, ENTRY_POS_AT)):
        offset = int.from_bytes(head[at : at + 8], "big", signed=True)
        if offset >= 0 and is_begun(head, offset, frame):
            return offset, frame
    return None


def _head(path: Path) -> bytes:
    with open_for_reading(str(path)) as descriptor:
        return os.pread(descriptor, HEAD_SIZE, 0)


# ----------------------------------------------------------------------------------------------------------------------
# Common to the dumps of a store's files: their header, entries by column, and runs of equal units.

#: The verdicts on the units of such a file.
ENTRY_VERDICT: Final = "ENTRY"
PRE_BLANK: Final = "PRE_BLANK"
EMPTY: Final = "EMPTY"
BAD_ENTRY: Final = "BAD_ENTRY"
END_MARK: Final = "END_MARK"
NOT_COUNTED: Final = "NOT_COUNTED"
BAD_CHAIN: Final = "BAD_CHAIN"

#: How many entries become rows at once.
ENTRIES_AT_ONCE: Final = 1 << 16
_UNSIGNED = 2**64 - 1


@dataclass(frozen=True)
class EntryRange:
    """The entries to show: those of records in `[begin, end)`, and of the key with that hash; None takes all."""

    begin: int | None = None
    end: int | None = None
    key_hash: int | None = None

    @classmethod
    def of_key(cls, begin: int | None, end: int | None, topic: str | None, key: str | None) -> EntryRange:
        """Return the range, with the hash that the index has for a key of a topic."""
        key_hash = None if topic is None or key is None else index_key_hash(f"{topic}#{key}")
        return cls(begin, end, key_hash)

    def rows(self, entries: Units) -> np.ndarray[Any, Any]:
        """Return which entries are chosen, bool[n]."""
        chosen = np.ones(len(entries), bool)
        if self.begin is not None:
            chosen &= entries["physical_offset"] >= self.begin
        if self.end is not None:
            chosen &= entries["physical_offset"] < self.end
        if self.key_hash is not None:
            chosen &= entries["key_hash"] == self.key_hash
        return chosen

    def has(self, physical_offset: int | None) -> bool:
        """Whether one entry is chosen; an entry without a record's offset is, if all are."""
        if physical_offset is None:
            return self.begin is None and self.end is None
        return (self.begin or 0) <= physical_offset and (self.end is None or physical_offset < self.end)


@dataclass(frozen=True)
class RunOfUnits:
    """`count` equal units in a row, from byte `position` of the file on, `length` bytes in all."""

    verdict: str
    position: int
    length: int
    count: int | None = None
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """Entries of one verdict, by column."""

    verdict: str
    columns: list[list[Any]]
    size: int


Parts = Iterator[Rows | RunOfUnits]


def file_fields(file: DumpedFile) -> dict[str, Any]:
    """Return the fields that the path gives, and the size in bytes."""
    fields = {
        "file": str(file.path),
        "kind": file.kind.value,
        "size": file.size,
        "file_from_offset": file.file_from_offset,
        "topic": file.topic,
        "queue_id": file.queue_id,
    }
    return {name: value for name, value in fields.items() if value is not None}


def hexadecimal(code: int) -> str:
    """Return a tags code as the eight bytes in the file."""
    return f"{code & _UNSIGNED:#x}"


def merged(parts: Iterable[Rows | RunOfUnits]) -> Parts:
    """Join runs that continue in the next chunk."""
    before: RunOfUnits | None = None
    for part in parts:
        if isinstance(part, RunOfUnits) and before is not None and before.verdict == part.verdict:
            count = (before.count or 0) + (part.count or 0)
            before = RunOfUnits(part.verdict, before.position, before.length + part.length, count, before.more)
            continue
        if before is not None:
            yield before
        before = part if isinstance(part, RunOfUnits) else None
        if isinstance(part, Rows):
            yield part
    if before is not None:
        yield before


# ----------------------------------------------------------------------------------------------------------------------
# The store's checkpoint: three times, and the offsets that 5.x keeps after them.

# The offsets that 5.x keeps in the checkpoint after the three times, eight bytes each.
_CHECKPOINT_OFFSETS = ("master_flushed_offset", "confirm_phy_offset", "logics_physical_offset")


class CheckpointDump:
    """The store's checkpoint, which has only a header."""

    names: Final[tuple[str, ...]] = ()

    def __init__(self, file: DumpedFile) -> None:
        self._file = file

    def header(self) -> dict[str, Any]:
        """Return the three times, and the offsets that 5.x keeps after them."""
        checkpoint = StoreCheckpoint.decode(self._file.path.read_bytes())
        fields = file_fields(self._file)
        for name in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp"):
            fields[name.removesuffix("stamp")] = time_text(getattr(checkpoint, name))
            fields[name] = getattr(checkpoint, name)
        others = checkpoint.others.ljust(8 * len(_CHECKPOINT_OFFSETS), b"\0")
        for number, name in enumerate(_CHECKPOINT_OFFSETS):
            fields[name] = int.from_bytes(others[8 * number : 8 * number + 8], "big", signed=True)
        return fields

    def parts(self) -> Parts:
        """Yield nothing."""
        return iter(())


# ----------------------------------------------------------------------------------------------------------------------
# A file of a ConsumeQueueExt: its units, the mark after the last one, and the rest of the file.

_READ_BYTES = 1 << 20


class ExtFileDump:
    """A file of a ConsumeQueueExt."""

    names: Final = (
        "position",
        "verdict",
        "address",
        "size",
        "tags_code",
        "tags_code_hex",
        "store_time",
        "store_timestamp",
        "filter_bit_map",
    )

    def __init__(self, file: DumpedFile) -> None:
        self._file = file

    def header(self) -> dict[str, Any]:
        """Return the fields of the file, and how many units it has."""
        counts: Counter[str] = Counter()
        size = 0
        for part in self.parts():
            if isinstance(part, Rows):
                counts[part.verdict] += len(part.columns[0])
                size += part.size
        return {
            **file_fields(self._file),
            "units": counts[ENTRY_VERDICT],
            "bad": counts[BAD_ENTRY],
            "bytes_of_units": size,
        }

    def parts(self) -> Parts:
        """Yield the units in order, the mark after the last one, and the rest of the file."""
        at, found, rows = 0, None, []
        with open_for_reading(str(self._file.path)) as descriptor:
            for at, found in self._units(descriptor):
                if found is None:
                    break
                rows.append((at, found))
                if len(rows) == ENTRIES_AT_ONCE:
                    yield from self._rows(rows)
                    rows = []
            yield from self._rows(rows)
            rest = os.pread(descriptor, MIN_EXT_UNIT_SIZE, at)
        if at < self._file.size:
            verdict = EMPTY if not rest.strip(b"\0") else END_MARK if rest[:2] == b"\xff\xff" else BAD_ENTRY
            yield RunOfUnits(verdict, at, self._file.size - at)

    def _units(self, descriptor: int) -> Iterator[tuple[int, CqExtUnit | None]]:
        """Yield each unit with its byte in the file; None where a whole unit no longer follows."""
        at, begin, data = 0, 0, b""
        while True:
            if at + MAX_EXT_UNIT_SIZE > begin + len(data):
                begin, data = at, os.pread(descriptor, _READ_BYTES, at)
            try:
                unit = CqExtUnit.read(data[at - begin : at - begin + MAX_EXT_UNIT_SIZE])
            except ValueError:
                unit = None
            if unit is not None and at + unit.size > self._file.size:
                unit = None
            yield at, unit
            if unit is None:
                return
            at += unit.size

    def _rows(self, units: Sequence[tuple[int, CqExtUnit]]) -> Iterator[Rows]:
        """Yield the units by verdict: a unit is bad if its size is not that of its parts."""
        first = self._file.file_from_offset or 0
        rows = []
        for at, unit in units:
            maps = unit.filter_bit_map or b""
            verdict = ENTRY_VERDICT if unit.size == MIN_EXT_UNIT_SIZE + len(maps) else BAD_ENTRY
            code, time = unit.tags_code, unit.msg_store_time
            row = (at, verdict, decorate(first + at), unit.size, code, hexadecimal(code))
            rows.append((*row, time_text(time), time, maps.hex()))
        for verdict, same in groupby(rows, key=itemgetter(1)):
            columns = [list(column) for column in zip(*same, strict=True)]
            yield Rows(verdict, columns, sum(columns[3]))


# ----------------------------------------------------------------------------------------------------------------------
# An index file: its header, the counts of its slots and chains, and its entries.


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
        """Return the header's fields, and counts: entries, slots in use, the longest chain."""
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
        """Yield the entries in order, the bytes after those that the header counts, and the empty rest."""
        slots = np.zeros(self._options.max_hash_slot_num, np.int32)
        with self._open() as opened:
            for first, entries in self._chunks(opened):
                yield from self._rows(first, entries, slots)
            rest = self._position(self._end)
            for begin, data in opened.filled_behind(self._end):
                filled = data.rstrip(b"\0")
                if filled:
                    yield RunOfUnits(NOT_COUNTED, begin, len(filled))
                    rest = begin + len(filled)
        if rest < self._file.size:
            yield RunOfUnits(EMPTY, rest, self._file.size - rest)

    def _open(self) -> AbstractContextManager[OpenIndexFile]:
        return open_index_file(self._file.path, self._options.max_hash_slot_num)

    def _chunks(self, opened: OpenIndexFile) -> Iterator[tuple[int, Units]]:
        for first in range(1, self._end, ENTRIES_AT_ONCE):
            yield first, opened.entries(first, min(ENTRIES_AT_ONCE, self._end - first))

    def _rows(self, first: int, entries: Units, slots: Units) -> Iterator[Rows]:
        """Yield the entries by verdict: a chain is bad if an entry does not lead to the slot's previous one."""
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


# ----------------------------------------------------------------------------------------------------------------------
# A RocksDB database of queues: how far it is dispatched, and the entries of each queue up to its last one.


class RocksDBDump:
    """A directory with a RocksDB database of queues."""

    names: Final = (
        "topic",
        "queue_id",
        "queue_offset",
        "verdict",
        "physical_offset",
        "msg_size",
        "tags_code",
        "tags_code_hex",
        "store_time",
        "store_timestamp",
    )

    def __init__(self, file: DumpedFile, chosen: EntryRange, topic: str | None, queue_id: int | None) -> None:
        self._file, self._chosen = file, chosen
        self._topic, self._queue_id = topic, queue_id

    def header(self) -> dict[str, Any]:
        """Return the number of queues, the offset up to which the log is dispatched, and the queues' last entries."""
        with RocksDBQueues.open(self._file.path) as queues:
            wanted = self._wanted(queues)
            return {
                **file_fields(self._file),
                "queues": len(wanted),
                "dispatched_to": queues.dispatched_to,
                "last_queue_offsets": {
                    f"{_name_of(queue)}-{queue[1]}": queues.last[queue].queue_offset for queue in wanted
                },
            }

    def parts(self) -> Parts:
        """Yield the entries, queue by queue."""
        with RocksDBQueues.open(self._file.path) as queues:
            for queue in self._wanted(queues):
                for numbers, units in queues.entries(queue):
                    chosen = self._chosen.rows(units)
                    if chosen.any():
                        yield _rocksdb_rows(queue, numbers[chosen].tolist(), units[chosen])

    def _wanted(self, queues: RocksDBQueues) -> list[QueueKey]:
        of_topic = [queue for queue in sorted(queues.last) if self._topic in (None, _name_of(queue))]
        if self._topic is not None and not of_topic:
            raise _unknown_topic(self._topic, map(_name_of, queues.last), self._file)
        wanted = [queue for queue in of_topic if self._queue_id in (None, queue[1])]
        if self._queue_id is not None and not wanted:
            whose = "no topic" if self._topic is None else f"the topic {shown(self._topic)}"
            has = "has the queue" if self._topic is None else "has no queue"
            raise UnknownNameError(f"nothing found: {whose} {has} {self._queue_id} in {self._file.path}")
        return wanted


def _unknown_topic(topic: str, known: Iterable[str], file: DumpedFile) -> UnknownNameError:
    words = f"nothing found: no topic is called {shown(topic)} in {file.path}"
    return UnknownNameError(words, nearest=nearest(topic, known))


def _name_of(queue: QueueKey) -> str:
    return _text(queue[0])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _rocksdb_rows(queue: QueueKey, numbers: list[int], units: Units) -> Rows:
    codes, times, count = units["tags_code"].tolist(), units["store_timestamp"].tolist(), len(numbers)
    columns = [
        [_name_of(queue)] * count,
        [queue[1]] * count,
        numbers,
        [ENTRY_VERDICT] * count,
        units["physical_offset"].tolist(),
        units["msg_size"].tolist(),
        codes,
        [hexadecimal(code) for code in codes],
        [time_text(time) for time in times],
        times,
    ]
    return Rows(ENTRY_VERDICT, columns, units.nbytes)


# ----------------------------------------------------------------------------------------------------------------------
# ``rocksdbstore/``: the keys, timer messages and half messages that a broker of 5.4.0 or later keeps there.


class MessageRocksDBDump:
    """A directory like ``rocksdbstore/``; an entry's verdict is its kind.

    `time` is a record's store time, or the time when a timer message is due.
    """

    names: Final = (
        "verdict",
        "physical_offset",
        "time",
        "timestamp",
        "topic",
        "key",
        "uniq_key",
        "msg_size",
        "check_times",
    )

    def __init__(self, file: DumpedFile, chosen: EntryRange, topic: str | None, key: str | None) -> None:
        self._file, self._chosen, self._topic, self._key = file, chosen, topic, key

    def header(self) -> dict[str, Any]:
        """Return how far keys, half messages and timer messages are: record offsets, a time, a queue offset."""
        with MessageRocksDB.open(self._file.path) as found:
            sent_to = found.timers_sent_to_ms
            return {
                **file_fields(self._file),
                "indexed_to": found.indexed_to,
                "halves_to": found.halves_to,
                "timers_sent_to": time_text(sent_to) if sent_to else None,
                "timers_read_to": found.timers_read_to,
            }

    def parts(self) -> Parts:
        """Yield the entries, by kind."""
        topics = set[str]()
        with MessageRocksDB.open(self._file.path) as found:
            for kind, entries in groupby(self._chosen_of(found.entries(), topics), lambda each: each.kind.value):
                while some := list(islice(entries, _ROWS)):
                    columns = [list(column) for column in zip(*map(self._row, some), strict=True)]
                    yield Rows(kind, columns, sum(each.size for each in some))
        if self._topic is not None and self._topic not in topics:
            raise _unknown_topic(self._topic, topics, self._file)

    def _chosen_of(self, entries: Iterable[Entry], topics: set[str]) -> Iterator[Entry]:
        """Yield the chosen entries; `topics` gets the topics of all entries."""
        for entry in entries:
            topic, *keys = (None if each is None else _text(each) for each in (entry.topic, entry.key, entry.uniq_key))
            if topic is not None:
                topics.add(topic)
            is_named = self._topic in (None, topic) and self._key in (None, *keys)
            if is_named and self._chosen.has(entry.physical_offset):
                yield entry

    def _row(self, entry: Entry) -> list[Any]:
        time_ms = entry.time_ms
        texts = (None if each is None else _text(each) for each in (entry.topic, entry.key, entry.uniq_key))
        times = (None, None) if time_ms is None else (time_text(time_ms), time_ms)
        return [entry.kind.value, entry.physical_offset, *times, *texts, entry.msg_size, entry.check_times]


# ----------------------------------------------------------------------------------------------------------------------
# A file of a ConsumeQueue or of a BatchConsumeQueue: its header, and its entries.

_KINDS = (ENTRY_VERDICT, PRE_BLANK, EMPTY, BAD_ENTRY)


class QueueFileDump:
    """A file of a ConsumeQueue, or of a BatchConsumeQueue."""

    def __init__(self, file: DumpedFile, chosen: EntryRange) -> None:
        self._file, self._chosen = file, chosen
        self._is_batch = file.kind is FileKind.BATCH_CONSUME_QUEUE
        self._unit = BATCH_ENTRY if self._is_batch else ENTRY
        self._first = (file.file_from_offset or 0) // self._unit.itemsize

    @property
    def names(self) -> list[str]:
        """The columns of an entry; in a ConsumeQueue's file its number is its queue offset."""
        more = ["store_time", "store_timestamp", "msg_base_offset", "batch_size", "compacted_offset", "reserved"]
        names = ["entry" if self._is_batch else "queue_offset", "position", "verdict", "physical_offset", "msg_size"]
        return [*names, "tags_code", "tags_code_hex", *(more if self._is_batch else ["ext_address"])]

    def header(self) -> dict[str, Any]:
        """Return the fields of the file, how many entries of each verdict it has, and where their records are."""
        counts: Counter[str] = Counter()
        low, high = None, None
        for _, units in units_of_file(self._file.path, self._unit):
            kinds = self._kinds(units)
            counts.update({name: int(np.count_nonzero(kinds == number)) for number, name in enumerate(_KINDS)})
            offsets = units["physical_offset"][kinds == 0]
            if len(offsets):
                low = int(offsets.min()) if low is None else min(low, int(offsets.min()))
                high = int(offsets.max()) if high is None else max(high, int(offsets.max()))
        return {
            **file_fields(self._file),
            "first_entry" if self._is_batch else "first_queue_offset": self._first,
            "entries": counts[ENTRY_VERDICT],
            "pre_blank": counts[PRE_BLANK],
            "empty": counts[EMPTY],
            "bad": counts[BAD_ENTRY],
            "bytes_behind_the_last_unit": self._file.size % self._unit.itemsize,
            "min_physical_offset": low,
            "max_physical_offset": high,
        }

    def parts(self) -> Parts:
        """Yield the entries in order; pre-blank and empty ones as runs."""
        yield from merged(self._parts())

    def _kinds(self, units: Units) -> np.ndarray[Any, Any]:
        """Return the verdict on each unit, as its place in `_KINDS`."""
        is_empty = ~units.view(np.uint8).reshape(len(units), -1).any(axis=1)
        kinds = np.where(is_written(units), 0, np.where(is_empty, 2, 3))
        return kinds if self._is_batch else np.where(is_pre_blank(units), 1, kinds)

    def _parts(self) -> Parts:
        for number, units in units_of_file(self._file.path, self._unit):
            kinds = self._kinds(units)
            edges = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
            for begin, end in pairwise(edges):
                verdict, at = _KINDS[kinds[begin]], number + begin
                if verdict in (PRE_BLANK, EMPTY):
                    size = self._unit.itemsize
                    more = {self.names[0]: self._first + at}
                    yield RunOfUnits(verdict, at * size, (end - begin) * size, end - begin, more)
                else:
                    numbers = np.arange(at, number + end)
                    chosen = self._chosen.rows(units[begin:end])
                    yield self._rows(verdict, numbers[chosen], units[begin:end][chosen])

    def _rows(self, verdict: str, numbers: np.ndarray[Any, Any], units: Units) -> Rows:
        codes = units["tags_code"].tolist()
        columns = [
            (numbers + self._first).tolist(),
            (numbers * self._unit.itemsize).tolist(),
            [verdict] * len(units),
            units["physical_offset"].tolist(),
            units["msg_size"].tolist(),
            codes,
            [hexadecimal(code) for code in codes],
        ]
        if self._is_batch:
            times = units["store_timestamp"].tolist()
            rest = [units[name].tolist() for name in self.names[-4:]]
            columns += [[time_text(time) for time in times], times, *rest]
        else:
            columns.append([code if is_ext_addr(code) else None for code in codes])
        return Rows(verdict, columns, units.nbytes)
