"""One queue's units as they are on disk, read at any place of the queue; nothing is written, no file need be whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from reput.sinks.files.directory import names_in
from reput.sinks.files.sparse_file import data_extents
from reput.sinks.formats.consume_queue import is_pre_blank, is_written
from reput.sinks.queue.queue_files import QueueKind, Units
from reput.source.arrays import leading
from reput.source.segments.mapped_file_name import file_name, is_file_name
from reput.source.segments.mapped_file_queue import open_for_reading

_READ_UNITS = 50_000


@dataclass
class QueueUnits:
    """The units of one queue below `root`; `file_size` in bytes, whole units.

    Units are numbered from the queue's beginning: number n stands at byte ``n * unit size`` of the row of files. What
    is missing, be it a file or a file's end, reads as zeros.
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
        """Bytes of one unit."""
        return self.kind.unit.itemsize

    @property
    def directory(self) -> Path:
        """Where the files lie."""
        return self.root.joinpath(*self._parts)

    @cached_property
    def names(self) -> list[str]:
        """Everything in the directory, in order."""
        return sorted(names_in(self.directory))

    @cached_property
    def files(self) -> list[int]:
        """Where each file begins, in bytes of the queue, oldest first."""
        return [int(name) for name in self.names if is_file_name(name)]

    def path(self, file: int) -> Path:
        """The file that begins at byte `file` of the queue."""
        return self.directory / file_name(file)

    def where(self, number: int) -> tuple[str, int]:
        """The file that holds unit `number`, by its path below the root, and the byte in it."""
        at = number * self.unit_size
        file = at - at % self.file_size
        return "/".join((*self._parts, file_name(file))), at - file

    def read(self, first: int, count: int) -> Units:
        """`count` units from number `first` on."""
        units = np.zeros(count, self.kind.unit)
        view = units.view(np.uint8).reshape(-1).data if count else memoryview(b"")
        at, done = first * self.unit_size, 0
        while done < len(view):
            file = at - at % self.file_size
            size = min(len(view) - done, file + self.file_size - at)
            try:
                with open_for_reading(str(self.path(file))) as descriptor:
                    os.preadv(descriptor, [view[done : done + size]], at - file)
            except FileNotFoundError:
                pass
            at, done = at + size, done + size
        return units

    def blocks(self, first: int, end: int) -> Iterator[tuple[int, Units]]:
        """The units `[first, end)` in pieces of bounded size, each with the number of its first."""
        while first < end:
            count = min(_READ_UNITS, end - first)
            yield first, self.read(first, count)
            first += count

    def written(self, first: int) -> Iterator[tuple[int, Units]]:
        """Pieces from number `first` on, over all files, that are not all zero; holes of files are not read."""
        for file in self.files:
            begin = max(0, first * self.unit_size - file)
            if begin >= self.file_size:
                continue
            with open_for_reading(str(self.path(file))) as descriptor:
                extents = list(data_extents(descriptor, begin))
            for start, end in extents:
                low = (file + max(begin, start)) // self.unit_size
                high = -(-(file + min(end, self.file_size)) // self.unit_size)
                for number, units in self.blocks(low, high):
                    if units.tobytes().strip(b"\0"):
                        yield number, units

    def search(self, place: int) -> int:
        """The number of the first unit of a record at `place` or later, in a queue whose units are in log order.

        The number behind the last unit when there is none. What is out of order gives some number.
        """
        if not self.files:
            return 0
        low = self.files[0] // self.unit_size
        high = (self.files[-1] + self.file_size) // self.unit_size
        while low < high:
            middle = (low + high) // 2
            unit = self.read(middle, 1)[0]
            if unit["msg_size"] <= 0 or unit["physical_offset"] >= place:
                high = middle
            else:
                low = middle + 1
        return low

    def end_of_last(self) -> int:
        """Where the last written unit's record ends, 0 without one (``ConsumeQueue#getMaxPhysicOffset``)."""
        for file in reversed(self.files):
            first = file // self.unit_size
            units = self.read(first, self.file_size // self.unit_size)
            units = units[: leading(is_written(units))]
            real = np.flatnonzero(~is_pre_blank(units))
            if len(real):
                last = units[int(real[-1])]
                return int(last["physical_offset"]) + int(last["msg_size"])
        return 0
