"""What the dumps of a store's files have in common: their header, entries by column, and runs of what is the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from reput.sinks.index.lookup import index_key_hash
from reput.sinks.queue.queue_reader import Units
from reput.streaming.dump.store_file import DumpedFile

#: The verdicts on what stands in such a file.
ENTRY_VERDICT: Final = "ENTRY"
PRE_BLANK: Final = "PRE_BLANK"
EMPTY: Final = "EMPTY"
BAD_ENTRY: Final = "BAD_ENTRY"
END_MARK: Final = "END_MARK"
NOT_COUNTED: Final = "NOT_COUNTED"
BAD_CHAIN: Final = "BAD_CHAIN"

#: How many entries are rows at once.
ENTRIES_AT_ONCE: Final = 1 << 16
_UNSIGNED = 2**64 - 1


@dataclass(frozen=True)
class EntryRange:
    """Which entries are shown: those of records in `[begin, end)`, and of the key with that hash; None takes all."""

    begin: int | None = None
    end: int | None = None
    key_hash: int | None = None

    @classmethod
    def of_key(cls, begin: int | None, end: int | None, topic: str | None, key: str | None) -> EntryRange:
        """The range, and the hash that the index has for a key of a topic."""
        key_hash = None if topic is None or key is None else index_key_hash(f"{topic}#{key}")
        return cls(begin, end, key_hash)

    def rows(self, entries: Units) -> np.ndarray[Any, Any]:
        """Which entries are meant, bool[n]."""
        chosen = np.ones(len(entries), bool)
        if self.begin is not None:
            chosen &= entries["physical_offset"] >= self.begin
        if self.end is not None:
            chosen &= entries["physical_offset"] < self.end
        if self.key_hash is not None:
            chosen &= entries["key_hash"] == self.key_hash
        return chosen


@dataclass(frozen=True)
class Run:
    """`count` times the same in a row, from byte `position` of the file on, `length` bytes in all."""

    verdict: str
    position: int
    length: int
    count: int | None = None
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """Entries of one verdict, given by column."""

    verdict: str
    columns: list[list[Any]]
    size: int


Parts = Iterator[Rows | Run]


def file_fields(file: DumpedFile) -> dict[str, Any]:
    """What the path says of a file, and its size in bytes."""
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
    """A tags code as the eight bytes that stand in the file."""
    return f"{code & _UNSIGNED:#x}"


def merged(parts: Iterable[Rows | Run]) -> Parts:
    """The same parts, where runs that go on in the next chunk are one."""
    before: Run | None = None
    for part in parts:
        if isinstance(part, Run) and before is not None and before.verdict == part.verdict:
            count = (before.count or 0) + (part.count or 0)
            before = Run(part.verdict, before.position, before.length + part.length, count, before.more)
            continue
        if before is not None:
            yield before
        before = part if isinstance(part, Run) else None
        if isinstance(part, Rows):
            yield part
    if before is not None:
        yield before
