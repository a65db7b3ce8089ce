"""``rocksdbstore/``, where brokers since 5.4.0 may keep keys, timers and half messages (``MessageRocksDBStorage``).

Each of them has a column family: the default one the index (``indexRocksDBEnable``), ``timer`` the waiting timer
messages (``timerRocksDBEnable``), ``trans`` the half messages whose producers are asked (``transRocksDBEnable``). A
broker always makes the database. It collects entries in memory before it writes them, so after a kill the last entries
may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from reput.sinks.files.config_manager import is_rocksdb, open_rocksdb
from reput.source.log.store_layout import MORE_IN_ROCKSDB

_TIMERS, _TRANSACTIONS = "timer", "trans"
SPLIT: Final = b"@"
#: The letter in a key of the index for its kind: a key, a tag or a unique key.
KEY, TAG, UNIQUE = "K", "T", "U"
_LAST_OFFSET = b"lastOffsetPy"
#: Keys of the index that hold how far it has come.
PLACES: Final = (_LAST_OFFSET, b"lastStoreTimeStamp")
_SENT_TO, _READ_TO = b"timeline_checkpoint", b"sys_topic_scan_offset_checkpoint"
LONG_BYTES: Final = 8
_INT_BYTES = 4
# The size of the hour before a key of the index, and of the physical offset after it, each with a separator.
_EDGE = LONG_BYTES + len(SPLIT)
# The broker puts no half message here whose unique key contains a separator.
_PARTS_OF_HALF = 3


def long_of(data: bytes) -> int:
    """A Java ``long`` of eight bytes; 0 for no bytes."""
    return int.from_bytes(data, "big", signed=True)


def bytes_of(number: int) -> bytes:
    """The eight bytes of a Java ``long``."""
    return number.to_bytes(LONG_BYTES, "big", signed=True)


class EntryKind(str, Enum):
    """The kind of an entry: a key, a tag or a unique key of a record, a timer message, a half message, or bad."""

    KEY = "KEY"
    TAG = "TAG"
    UNIQ_KEY = "UNIQ_KEY"
    TIMER = "TIMER"
    HALF = "HALF"
    BAD_ENTRY = "BAD_ENTRY"


_KINDS = {KEY.encode(): EntryKind.KEY, TAG.encode(): EntryKind.TAG, UNIQUE.encode(): EntryKind.UNIQ_KEY}


class Entry(NamedTuple):
    """One entry; fields that its kind does not have hold None.

    `size` is the size of the database's key and value in bytes. `time_ms` is a record's store time, or when a timer
    message is due. `check_times` is how often the producer was asked about a half message. The `key` of a bad entry is
    the database's own key.
    """

    kind: EntryKind
    size: int
    physical_offset: int | None = None
    time_ms: int | None = None
    topic: bytes | None = None
    key: bytes | None = None
    uniq_key: bytes | None = None
    msg_size: int | None = None
    check_times: int | None = None


@dataclass(frozen=True)
class MessageRocksDB:
    """The open database.

    Attributes
    ----------
    indexed_to, halves_to
        Where the last record of the index, or of the half messages, begins; 0 for none. No earlier record is added any
        more.
    timers_sent_to_ms, timers_read_to
        The time (ms) up to which timer messages were sent, and the offset of their queue up to which they were read; 0
        for none.
    """

    database: Any
    indexed_to: int
    halves_to: int
    timers_sent_to_ms: int
    timers_read_to: int

    @classmethod
    @contextmanager
    def open(cls, directory: Path) -> Iterator[MessageRocksDB]:
        """Open a database, only to read it.

        Raises
        ------
        StoreError
            It cannot be read, here or later.
        """
        with open_rocksdb(directory, _TIMERS, _TRANSACTIONS) as database:
            timers, halves = (database.get_column_family(name) for name in (_TIMERS, _TRANSACTIONS))
            places = [database.get(_LAST_OFFSET), halves.get(_LAST_OFFSET), timers.get(_SENT_TO), timers.get(_READ_TO)]
            yield cls(database, *(long_of(place or b"") for place in places))

    def entries(self) -> Iterator[Entry]:
        """All entries: the index by hour and topic, timer messages by time, half messages by offset."""
        for key, value in self.database.items():
            if key not in PLACES:
                yield _of_index(key, value)
        yield from self.timers()
        yield from self.halves()

    def timers(self) -> Iterator[Entry]:
        """The waiting timer messages, the first ones first (``TimerRocksDBRecord``)."""
        for key, value in self.database.get_column_family(_TIMERS).items():
            if key in (_SENT_TO, _READ_TO):
                continue
            length = len(key) + len(value)
            if len(key) < LONG_BYTES or len(value) != _INT_BYTES + LONG_BYTES:
                yield Entry(EntryKind.BAD_ENTRY, length, key=key)
                continue
            size, at = long_of(value[:_INT_BYTES]), long_of(value[_INT_BYTES:])
            due_ms, uniq_key = long_of(key[:LONG_BYTES]), key[LONG_BYTES:]
            yield Entry(EntryKind.TIMER, length, at, due_ms, uniq_key=uniq_key, msg_size=size)

    def halves(self) -> Iterator[Entry]:
        """The half messages whose producers are asked, in the log's order (``TransRocksDBRecord``)."""
        for key, value in self.database.get_column_family(_TRANSACTIONS).items():
            if key == _LAST_OFFSET:
                continue
            length = len(key) + len(value)
            parts = key[LONG_BYTES:].split(SPLIT)
            if len(parts) != _PARTS_OF_HALF or len(value) != 2 * _INT_BYTES:
                yield Entry(EntryKind.BAD_ENTRY, length, key=key)
                continue
            times, size = long_of(value[:_INT_BYTES]), long_of(value[_INT_BYTES:])
            at, (_, topic, uniq_key) = long_of(key[:LONG_BYTES]), parts
            yield Entry(EntryKind.HALF, length, at, topic=topic, uniq_key=uniq_key, msg_size=size, check_times=times)


def _of_index(key: bytes, value: bytes) -> Entry:
    """An entry of the index (``IndexRocksDBRecord``); a key or a tag is followed by the unique key."""
    topic, split, rest = key[_EDGE:-_EDGE].partition(SPLIT)
    kind = _KINDS.get(rest[:1])
    if not split or kind is None or rest[1:2] != SPLIT or len(value) != LONG_BYTES:
        return Entry(EntryKind.BAD_ENTRY, len(key) + len(value), key=key)
    named, _, uniq_key = rest[2:].rpartition(SPLIT)
    own = None if kind is EntryKind.UNIQ_KEY else named
    uniq_key = rest[2:] if own is None else uniq_key
    return Entry(kind, len(key) + len(value), long_of(key[-LONG_BYTES:]), long_of(value), topic, own, uniq_key)


@contextmanager
def of_store(root: Path) -> Iterator[MessageRocksDB | None]:
    """Open a store's database; None if it has no data. Raises the errors of `open`.

    A broker makes the database even if it puts nothing into it.
    """
    directory = root / MORE_IN_ROCKSDB
    has_data = any(directory.glob("*.sst")) or any(path.stat().st_size for path in directory.glob("*.log"))
    if not has_data or not is_rocksdb(directory):
        yield None
        return
    with MessageRocksDB.open(directory) as found:
        yield found
