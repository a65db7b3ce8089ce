"""The index in RocksDB (``indexRocksDBEnable``, 5.4.0 to 5.5.1): read, searched, and compared with the log.

It is the default column family of ``rocksdbstore/`` (``IndexRocksDBStore``). A key is the hour of the record's store
time, the topic, the kind of the key, the key, the record's unique key unless that is the key itself, and the record's
physical offset; the value is the store time (``IndexRocksDBRecord``). Records without a unique key, and rollbacks, have
no keys. Two more keys say up to which record it is written.

A broker removes hours with the log, and puts no record before the last one. So it begins where it was switched on, and
it may end before the log does.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reput.sinks.findings import Difference, Findings
from reput.sinks.message_rocksdb import KEY, LONG_BYTES, PLACES, SPLIT, TAG, UNIQUE, bytes_of, long_of, of_store
from reput.source.printable import printable
from reput.source.record.message_decoder import Message
from reput.source.record.message_format import is_indexed
from reput.source.record.message_properties import split_keys

_HOUR_MS = 3_600_000
# Keys are looked up once more than this many have been collected.
_ASKED = 10_000


def keys_of(message: Message) -> Iterator[bytes]:
    """The keys that a broker puts for a record, each once."""
    unique, topic = message.uniq_key, message.topic
    if not topic or not unique or message.store_timestamp <= 0 or not is_indexed(message.sys_flag):
        return
    hour = bytes_of(message.store_timestamp // _HOUR_MS * _HOUR_MS)
    named = [(KEY, key) for key in dict.fromkeys(split_keys(message.keys or "")) if key]
    named += [(TAG, message.tags)] if message.tags else []
    middles = [f"{topic}@{kind}@{key}@{unique}" for kind, key in named]
    for middle in (*middles, f"{topic}@{UNIQUE}@{unique}"):
        yield b"".join((hour, SPLIT, middle.encode(), SPLIT, bytes_of(message.physical_offset)))


@dataclass(frozen=True)
class RocksDBIndex:
    """An open index; `last_offset` is where the last record that it covers begins, 0 for none."""

    database: Any
    last_offset: int

    @classmethod
    @contextmanager
    def open(cls, root: Path) -> Iterator[RocksDBIndex | None]:
        """Open the index of a store for reading; None for a store without one.

        Raises
        ------
        StoreError
            The database cannot be read, here or later.
        """
        with of_store(root) as found:
            has_keys = found is not None and next(iter(found.database.items()), None) is not None
            yield cls(found.database, found.indexed_to) if found is not None and has_keys else None

    def query_offset(self, topic: str, key: str, max_num: int, begin: int, end: int) -> list[int]:
        """The physical offsets of records with a key or unique key, stored in `[begin, end]` (ms), newest first.

        At most `max_num`. A longer key is also found if it begins with `key` and a ``@``.
        """
        found = (
            offset
            for kind in (KEY, UNIQUE)
            for stored, offset in self._with_prefix(f"@{topic}@{kind}@{key}@".encode(errors="surrogateescape"), begin)
            if begin <= stored <= end
        )
        return heapq.nlargest(max_num, dict.fromkeys(found))

    def _with_prefix(self, middle: bytes, begin: int) -> Iterator[tuple[int, int]]:
        """Store time and physical offset of each entry with `middle` after its hour, from the hour of `begin` on."""
        hour = max(0, begin // _HOUR_MS * _HOUR_MS)
        while True:
            prefix, after = bytes_of(hour) + middle, None
            for key, value in self.database.items(from_key=prefix):
                if not key.startswith(prefix):
                    after = long_of(key[:LONG_BYTES])
                    break
                yield long_of(value), long_of(key[-LONG_BYTES:])
            if after is None or key in PLACES:
                return
            # The key after the prefix may be of the same hour; then this hour has no more.
            hour = max(hour + _HOUR_MS, after)

    def entries(self) -> Iterator[tuple[bytes, int, int]]:
        """Key, store time and physical offset of each entry."""
        for key, value in self.database.items():
            if key not in PLACES:
                yield key, long_of(value), long_of(key[-LONG_BYTES:])

    def compare(self, messages: Iterable[Message], first: int) -> ComparedIndex:
        """Compare the keys of a range's records with the entries; `first` is the first record that the index has."""
        found, wanted = ComparedIndex(), list[tuple[bytes, Message]]()
        for message in messages:
            if message.physical_offset >= first:
                wanted += ((key, message) for key in keys_of(message))
            if len(wanted) > _ASKED:
                self._compare(wanted, found)
                wanted = []
        self._compare(wanted, found)
        return found

    def _compare(self, wanted: list[tuple[bytes, Message]], found: ComparedIndex) -> None:
        values = self.database.get([key for key, _ in wanted]) if wanted else ()
        for (key, message), value in zip(wanted, values, strict=True):
            if value is None and message.physical_offset > self.last_offset:
                found.findings.note("not_dispatched_yet")
                continue
            found.keys += 1
            if value is not None and long_of(value) == message.store_timestamp:
                found.right += 1
                continue
            name = printable(key[LONG_BYTES + 1 : -LONG_BYTES - 1].decode("utf-8", "backslashreplace"))
            kind, text = ("key_missing", "is missing") if value is None else ("key_differs", "has another store time")
            found.findings.differ(
                Difference(
                    kind,
                    f"the key {name!r} of the record at {message.physical_offset} {text}",
                    physical_offset=message.physical_offset,
                )
            )


@dataclass
class ComparedIndex:
    """The number of keys of a range's records, the number of right entries, and the differences."""

    keys: int = 0
    right: int = 0
    findings: Findings = field(default_factory=Findings)


@dataclass(frozen=True)
class IndexExtent:
    """The first record of a log that an index has, and the number of entries before the log, in it and after it."""

    first: int
    expired: int
    inside: int
    behind: int

    @classmethod
    def of(cls, index: RocksDBIndex, least: int, limit: int) -> IndexExtent:
        """The extent of an index beside a log `[least, limit)`."""
        first, counts = limit, Counter[int]()
        for _, _, offset in index.entries():
            counts[-1 if offset < least else int(offset >= limit)] += 1
            if least <= offset < first:
                first = offset
        return cls(first, counts[-1], counts[0], counts[1])
