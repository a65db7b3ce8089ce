"""The files of one queue as they are on disk; nothing is written, and files may be missing or cut."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.files.file_system import data_extents, filled_extents, names_in
from reput.sinks.files.store_path import is_directory_name
from reput.sinks.formats.consume_queue import is_pre_blank, is_written
from reput.source.arrays import Int64s, leading
from reput.source.errors import SinkError
from reput.source.log.mapped_file_queue import open_for_reading, read_fully
from reput.source.log.store_layout import Row, file_name, is_file_name, last_bytes, row_of

Units = np.ndarray[Any, Any]

_READ_UNITS = 50_000


@dataclass(frozen=True)
class QueueKind:
    """The differences between the kinds of queues.

    Attributes
    ----------
    top
        The directory of the kind below the store's root.
    directory
        Makes the path of a queue's directory from a topic's bytes and a queue id; refuses hostile names.
    unit
        The dtype of one entry; its first fields are ``physical_offset`` and ``msg_size``.
    setting
        The broker's setting for the size of a file.
    """

    top: str
    directory: Callable[[bytes, int], tuple[str, str, str]]
    unit: np.dtype[Any]
    setting: str

    def queues(self, root: Path) -> Iterator[tuple[bytes, int]]:
        """The topic and queue id of every queue below `root`, as in ``queue_directories``."""
        return queue_directories(root, self.top, self.directory)

    def not_made(self, root: Path) -> list[Path]:
        """The directories of topics below `root` that reput does not make, because of their names."""
        return [topic for topic in _directories(root / self.top) if not is_directory_name(topic.name)]


@dataclass
class QueueReader:
    """One queue below `root`; `file_size` is in bytes, a multiple of a unit's. Files are listed once, at first use.

    Units are numbered from the queue's beginning: unit n begins at byte ``n * unit_size`` of the row of files. Missing
    files, and missing ends of files, read as zeros.
    """

    root: Path
    kind: QueueKind
    file_size: int
    topic: bytes
    queue_id: int
    _parts: tuple[str, str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._parts = self.kind.directory(self.topic, self.queue_id)

    @property
    def unit_size(self) -> int:
        """The size of a unit in bytes."""
        return self.kind.unit.itemsize

    @property
    def directory(self) -> Path:
        """The directory with the files."""
        return self.root.joinpath(*self._parts)

    @cached_property
    def names(self) -> list[str]:
        """All names in the directory, in order."""
        return sorted(names_in(self.directory))

    @cached_property
    def sizes(self) -> dict[int, int]:
        """The size on disk of each file, by the byte of the queue where it begins, oldest first."""
        return {int(name): (self.directory / name).lstat().st_size for name in self.names if is_file_name(name)}

    @property
    def files(self) -> list[int]:
        """The first byte of each file in the queue, oldest first."""
        return list(self.sizes)

    def relative_path(self, file: int) -> tuple[str, str, str, str]:
        """The path below the root of the file that begins at byte `file` of the queue."""
        return (*self._parts, file_name(file))

    def path(self, file: int) -> Path:
        """The path of the file that begins at byte `file` of the queue."""
        return self.directory / file_name(file)

    def where(self, number: int) -> tuple[str, int]:
        """The place of unit `number`: its file's path below the root, and the byte in the file."""
        at = number * self.unit_size
        file = at - at % self.file_size
        return "/".join(self.relative_path(file)), at - file

    def check_sizes(self, *, may_be_cut: bool = False) -> None:
        """Raise SinkError for a file whose size is not `file_size`, or with `may_be_cut` for a larger one.

        An empty file is not an error: a crash may leave one, and it has no unit.
        """
        for file, size in self.sizes.items():
            if size not in (0, self.file_size) and not (may_be_cut and size < self.file_size):
                raise SinkError(
                    f"{self.path(file)} has {size} bytes where {self.kind.setting} is {self.file_size}",
                    advice="give the broker's setting (--broker-conf), or remove the queue to derive it again",
                    file=self.path(file),
                )

    def read(self, first: int, count: int) -> Units:
        """`count` units beginning with number `first`."""
        units = np.zeros(count, self.kind.unit)
        data = units.view(np.uint8).reshape(-1)
        at, done = first * self.unit_size, 0
        while done < len(data):
            file = at - at % self.file_size
            size = min(len(data) - done, file + self.file_size - at)
            with suppress(FileNotFoundError), open_for_reading(str(self.path(file))) as descriptor:
                read_fully(descriptor, data[done:], size, at - file)
            at, done = at + size, done + size
        return units

    def read_written(self, first: int, count: int) -> Units:
        """Up to `count` units from number `first`, ending before the first that is not written (``is_written``)."""
        units = self.read(first, count)
        return units[: leading(is_written(units))]

    def units(self, file: int, begin: int = 0, count: int | None = None) -> Units:
        """The whole units of a file from its byte `begin`, or `count` of them; without the hole at its end."""
        return read_units(self.path(file), self.kind.unit, begin, count)

    def chunks(self, first: int, end: int) -> Iterator[tuple[int, Units]]:
        """The units `[first, end)` in chunks of bounded size, each with the number of its first unit."""
        while first < end:
            count = min(_READ_UNITS, end - first)
            yield first, self.read(first, count)
            first += count

    def filled(self, first: int) -> Iterator[tuple[int, Units]]:
        """The chunks from unit `first`, over all files, that are not all zero; holes of files are not read."""
        for file in self.files:
            begin = max(0, first * self.unit_size - file)
            if begin >= self.file_size:
                continue
            with open_for_reading(str(self.path(file))) as descriptor:
                extents = list(data_extents(descriptor, begin))
            for start, end in extents:
                low = (file + max(begin, start)) // self.unit_size
                high = -(-(file + min(end, self.file_size)) // self.unit_size)
                for number, units in self.chunks(low, high):
                    if units.tobytes().strip(b"\0"):
                        yield number, units

    def extents(self, file: int, begin: int) -> Iterator[tuple[int, int]]:
        """`[begin, end)` of each extent of a file, from its byte `begin`, that is not all zero."""
        with open_for_reading(str(self.path(file))) as descriptor:
            yield from filled_extents(descriptor, begin)

    def search(self, physical_offset: int) -> int:
        """The number of the first unit of a record at or after `physical_offset`, else that after the last unit.

        The units must be in log order, otherwise the number may be any.
        """
        if not self.files:
            return 0
        low = self.files[0] // self.unit_size
        high = (self.files[-1] + self.file_size) // self.unit_size
        while low < high:
            middle = (low + high) // 2
            unit = self.read(middle, 1)[0]
            if unit["msg_size"] <= 0 or unit["physical_offset"] >= physical_offset:
                high = middle
            else:
                low = middle + 1
        return low

    def end_of_last(self) -> int:
        """The end of the last written unit's record; 0 without one (``ConsumeQueue#getMaxPhysicOffset``)."""
        for file in reversed(self.files):
            units = self.units(file)
            units = units[: leading(is_written(units))]
            real = np.flatnonzero(~is_pre_blank(units))
            if len(real):
                last = units[int(real[-1])]
                return int(last["physical_offset"]) + int(last["msg_size"])
        return 0

    @cached_property
    def places(self) -> tuple[Int64s, Int64s]:
        """The physical offset and the number of each entry, int64[n] each, as they were at first use."""
        found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for file in self.files:
            units = self.units(file)
            rows = np.flatnonzero(is_written(units) & ~is_pre_blank(units))
            found.append((units["physical_offset"][rows].astype(np.int64), rows + file // self.unit_size))
        offsets, numbers = zip(*found, strict=True)
        return np.concatenate(offsets), np.concatenate(numbers)

    def count_elsewhere(self, first: int, units: Units) -> int:
        """How many of these units (of ``consumequeue``), numbered from `first`, the queue has at another number."""
        rows = np.flatnonzero(~is_pre_blank(units))
        offsets, numbers = self.places
        _, there, here = np.intersect1d(
            offsets, units["physical_offset"].reshape(-1)[rows].astype(np.int64), return_indices=True
        )
        return int(np.count_nonzero(numbers[there] != first + rows[here]))

    def min_offset(self, min_physic_offset: int, max_offset: int) -> int:
        """The number of the first entry before `max_offset` whose record the log has; `max_offset` if there is none.

        This is ``ConsumeQueue#correctMinOffset`` of 5.x, over all files. 4.9.3 reads only the first file, and keeps the
        old minimum if no entry is left.
        """
        for file in self.files:
            first = file // self.unit_size
            if first >= max_offset:
                break
            last = self.read_written(first + self.file_size // self.unit_size - 1, 1)
            if len(last) and last["physical_offset"][0] < min_physic_offset:
                continue  # and so have all before it
            try:
                units = self.units(file)[: max_offset - first]
            except FileNotFoundError:
                continue  # it expired since it was listed
            kept = np.flatnonzero((units["physical_offset"] >= min_physic_offset) & ~is_pre_blank(units))
            if len(kept):
                return first + int(kept[0])
        return max_offset


def moved_entries(before: QueueReader, after: QueueReader) -> int:
    """The number of entries of `before` that have another number in `after`."""
    (offsets, numbers), (offsets_after, numbers_after) = before.places, after.places
    _, rows, rows_after = np.intersect1d(offsets, offsets_after, return_indices=True)
    return int(np.count_nonzero(numbers[rows] != numbers_after[rows_after]))


def units_of_file(path: Path, unit: np.dtype[Any]) -> Iterator[tuple[int, Units]]:
    """All whole units of one file at any path, in chunks of bounded size, each with the number of its first unit."""
    with open_for_reading(str(path)) as descriptor:
        first = 0
        while True:
            data = np.empty(_READ_UNITS * unit.itemsize, np.uint8)
            size = read_fully(descriptor, data, len(data), first * unit.itemsize)
            count = size // unit.itemsize
            if not count:
                return
            yield first, data[: count * unit.itemsize].view(unit)
            first += count


def read_units(path: Path, unit: np.dtype[Any], begin: int = 0, count: int | None = None) -> Units:
    """The whole units of a file from its byte `begin`, or `count` of them; without the hole at its end."""
    with open_for_reading(str(path)) as descriptor:
        if count is None:
            end = max((end for _, end in data_extents(descriptor)), default=0)
            count = max(0, -(-end // unit.itemsize) - begin // unit.itemsize)
        data = os.pread(descriptor, count * unit.itemsize, begin)
    return np.frombuffer(data, unit, len(data) // unit.itemsize)


def queue_directories(
    root: Path, top: str, directory: Callable[[bytes, int], tuple[str, str, str]]
) -> Iterator[tuple[bytes, int]]:
    """The topic and queue id of every queue below the directory `top` of `root`, in order; see ``QueueKind``.

    Queues are left out if reput makes no directory for their topic; their records get no entries either.

    Raises
    ------
    SinkError
        A queue's directory has a name that a broker would not give it.
    """
    for topic in _directories(root / top):
        if not is_directory_name(topic.name):
            continue
        name = os.fsencode(topic.name)
        for queue in _directories(topic):
            if queue.name.isdecimal():
                queue_id = int(queue.name)
                if root.joinpath(*directory(name, queue_id)) != queue:
                    raise SinkError(
                        f"{queue} is not a queue's directory: its name is not how a broker writes {queue_id}",
                        advice="remove it",
                        file=queue,
                    )
                yield name, queue_id


def queue_rows(root: Path, top: str) -> list[Row]:
    """The files of each queue below the directory `top` of `root`, whatever their directories are called."""
    return [row_of([queue]) for topic in _directories(root / top) for queue in _directories(topic)]


def ends_full(row: Row, unit: int) -> bool:
    """Whether a queue's last file is filled up to its last unit (`unit` bytes), without a next file."""
    return bool(last_bytes(row[-1], unit).strip(b"\0"))


def load_queues(root: Path, kind: QueueKind, file_size: int) -> list[QueueReader]:
    """Every queue of a kind below `root`, in order of directories; `file_size` is in bytes, a multiple of a unit's.

    A file may be shorter than `file_size` if another file of the output has that size: a copy or a crash cut it.

    Raises
    ------
    SinkError
        A directory has a name that a broker would not give it, or a file has another size.
    """
    queues = [QueueReader(root, kind, file_size, *queue) for queue in kind.queues(root)]
    may_be_cut = any(size == file_size for queue in queues for size in queue.sizes.values())
    for queue in queues:
        queue.check_sizes(may_be_cut=may_be_cut)
    return queues


def _directories(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    with os.scandir(root) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
