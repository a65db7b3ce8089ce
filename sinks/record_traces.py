"""The records that an output's queue and index files name, for outputs without a progress record; read only.

A trace is enough of a record to look for it in a log. Files are taken as they are: what cannot be read as an entry is
neither a trace nor an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reput.sinks.files.store_path import index_file
from reput.sinks.formats.consume_queue import PRE_BLANK
from reput.sinks.index.index_reader import index_file_names, open_index_file
from reput.sinks.queue.batch_consume_queue import KIND as BATCH_KIND
from reput.sinks.queue.consume_queue import KIND
from reput.sinks.queue.queue_reader import QueueReader
from reput.source.errors import ReputError

_PRE_BLANK_SIZE = int(PRE_BLANK["msg_size"])


@dataclass(frozen=True)
class RecordTrace:
    """What one entry says about its record; None where it says nothing.

    `offset` is the record's physical offset, `size` is in bytes, `store_timestamp` in milliseconds.
    """

    offset: int
    size: int | None = None
    topic: bytes | None = None
    queue_id: int | None = None
    store_timestamp: int | None = None


def queue_traces(root: Path, least: int) -> Iterator[tuple[str, RecordTrace]]:
    """The last entry of each queue below `root`, and the first entry of a record at `least` or later.

    Each comes with the folder of its queue.
    """
    for kind in (KIND, BATCH_KIND):
        for topic, queue_id in kind.queues(root):
            # The settings say what size files should have; here each file is taken as it is.
            reader = QueueReader(root, kind, kind.unit.itemsize, topic, queue_id)
            for offset, size in _Queue(reader).first_and_last(least):
                yield kind.top, RecordTrace(offset, size, topic, queue_id)


def index_traces(root: Path) -> Iterator[RecordTrace]:
    """The first and the last record of each index file with a key, by its header."""
    for name in index_file_names(root):
        with suppress(OSError, ReputError), open_index_file(root.joinpath(*index_file(name))) as file:
            header = file.header()
            if header.next_entry > 1:
                yield RecordTrace(header.begin_phy_offset, store_timestamp=header.begin_timestamp)
                yield RecordTrace(header.end_phy_offset, store_timestamp=header.end_timestamp)


class _Queue:
    """One queue, read a unit at a time; a file whose units cannot be read has none."""

    def __init__(self, reader: QueueReader) -> None:
        self._reader = reader

    def first_and_last(self, least: int) -> Iterator[tuple[int, int]]:
        """Physical offset and size of the records that `queue_traces` wants."""
        files = self._reader.files
        last = next(filter(None, map(self._last_of, reversed(files))), None)
        if last is None:
            return
        yield last
        for file in files:
            in_file = self._last_of(file)
            if in_file is not None and in_file[0] >= least:
                yield self._first_of(file, least) or in_file
                return

    def _last_of(self, file: int) -> tuple[int, int] | None:
        with suppress(OSError, ReputError):
            return _entry(self._unit(file, self._find(file, lambda _, size: size <= 0) - 1))
        return None

    def _first_of(self, file: int, least: int) -> tuple[int, int] | None:
        with suppress(OSError, ReputError):
            return _entry(self._unit(file, self._find(file, lambda offset, size: size <= 0 or offset >= least)))
        return None

    def _find(self, file: int, is_behind: Callable[[int, int], bool]) -> int:
        """The number, in its file, of the first unit for which `is_behind` holds; it must hold for all that follow."""
        low, high = 0, self._reader.sizes[file] // self._reader.unit_size
        while low < high:
            middle = (low + high) // 2
            offset, size = self._unit(file, middle)
            if size != _PRE_BLANK_SIZE and is_behind(offset, size):
                high = middle
            else:
                low = middle + 1
        return low

    def _unit(self, file: int, number: int) -> tuple[int, int]:
        if number < 0:
            return 0, 0
        for unit in self._reader.units(file, number * self._reader.unit_size, 1):
            return int(unit["physical_offset"]), int(unit["msg_size"])
        return 0, 0  # the file was cut meanwhile


def _entry(unit: tuple[int, int]) -> tuple[int, int] | None:
    offset, size = unit
    return unit if offset >= 0 and 0 < size != _PRE_BLANK_SIZE else None
