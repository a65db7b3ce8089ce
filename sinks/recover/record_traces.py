"""Which records the queue and index files of an output name, where no progress record tells; read only.

A trace is enough of a record to look for it in a log. Files are taken as they are: what cannot be read as an entry is
no trace, and no error.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reput.sinks.files.directory import names_in
from reput.sinks.files.store_path import INDEX, index_file, is_index_file_name
from reput.sinks.formats.consume_queue import PRE_BLANK
from reput.sinks.formats.index_file import HEADER_SIZE, IndexHeader
from reput.sinks.queue.batch_consume_queue import KIND as BATCH_KIND
from reput.sinks.queue.consume_queue import KIND
from reput.sinks.queue.queue_files import queue_directories
from reput.source.segments.mapped_file_name import is_file_name
from reput.source.segments.mapped_file_queue import open_for_reading

_HEAD = struct.Struct(">qi")  # the first fields of an entry of either kind of queue: place and size of the record
_PRE_BLANK_SIZE = int(PRE_BLANK["msg_size"])


@dataclass(frozen=True)
class RecordTrace:
    """What one entry says of its record; None where it says nothing of that.

    `offset` is the record's place in the log, `size` in bytes, `store_timestamp` in milliseconds.
    """

    offset: int
    size: int | None = None
    topic: bytes | None = None
    queue_id: int | None = None
    store_timestamp: int | None = None


def queue_traces(root: Path, least: int) -> Iterator[tuple[str, RecordTrace]]:
    """Of each queue below `root`, the last entry, and the first of a record at `least` or behind it.

    Each with the folder that the queue is in.
    """
    for kind in (KIND, BATCH_KIND):
        for topic, queue_id in queue_directories(root / kind.top):
            directory = root / kind.top / os.fsdecode(topic) / str(queue_id)
            for offset, size in _Queue(directory, kind.unit.itemsize).first_and_last(least):
                yield kind.top, RecordTrace(offset, size, topic, queue_id)


def index_traces(root: Path) -> Iterator[RecordTrace]:
    """The first and the last record of each index file that has a key, by its header."""
    for name in sorted(filter(is_index_file_name, names_in(root / INDEX))):
        with suppress(OSError), root.joinpath(*index_file(name)).open("rb") as file:
            header = IndexHeader.decode(file.read(HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))
            if header.next_entry > 1:
                yield RecordTrace(header.begin_phy_offset, store_timestamp=header.begin_timestamp)
                yield RecordTrace(header.end_phy_offset, store_timestamp=header.end_timestamp)


class _Queue:
    """One queue's directory, read a unit at a time."""

    def __init__(self, directory: Path, unit_size: int) -> None:
        self._unit_size = unit_size
        self._paths = [directory / name for name in sorted(filter(is_file_name, names_in(directory)))]

    def first_and_last(self, least: int) -> Iterator[tuple[int, int]]:
        """Offset and size of the records of the entries that `queue_traces` wants."""
        last = next(filter(None, map(self._last_of, reversed(self._paths))), None)
        if last is None:
            return
        yield last
        for path in self._paths:
            in_file = self._last_of(path)
            if in_file is not None and in_file[0] >= least:
                yield self._first_of(path, least) or in_file
                return

    def _last_of(self, path: Path) -> tuple[int, int] | None:
        with suppress(OSError), open_for_reading(str(path)) as file:
            return _entry(self._unit(file, self._find(file, lambda _, size: size <= 0) - 1))
        return None

    def _first_of(self, path: Path, least: int) -> tuple[int, int] | None:
        with suppress(OSError), open_for_reading(str(path)) as file:
            return _entry(self._unit(file, self._find(file, lambda offset, size: size <= 0 or offset >= least)))
        return None

    def _find(self, file: int, is_behind: Callable[[int, int], bool]) -> int:
        """The number of the first unit for which `is_behind` holds, as it does for all that follow it."""
        low, high = 0, os.fstat(file).st_size // self._unit_size
        while low < high:
            middle = (low + high) // 2
            offset, size = self._unit(file, middle)
            if size != _PRE_BLANK_SIZE and is_behind(offset, size):
                high = middle
            else:
                low = middle + 1
        return low

    def _unit(self, file: int, number: int) -> tuple[int, int]:
        data = os.pread(file, _HEAD.size, number * self._unit_size) if number >= 0 else b""
        offset, size = _HEAD.unpack(data.ljust(_HEAD.size, b"\0"))
        return int(offset), int(size)


def _entry(unit: tuple[int, int]) -> tuple[int, int] | None:
    offset, size = unit
    return unit if offset >= 0 and 0 < size != _PRE_BLANK_SIZE else None
