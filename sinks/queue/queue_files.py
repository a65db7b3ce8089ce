"""The files of one kind of queue: full size from creation, filled from the front, named by the byte they begin at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sparse_file import data_extents
from reput.source.errors import SinkError
from reput.source.segments.mapped_file_name import file_name, is_file_name

Units = np.ndarray[Any, Any]


@dataclass(frozen=True)
class QueueKind:
    """What tells the kinds of queues apart.

    Attributes
    ----------
    top
        The directory below the store's root.
    directory
        The parts of one queue's directory, from a topic's bytes and a queue id; refuses hostile names.
    unit
        The dtype of one entry; its first fields are ``physical_offset`` and ``msg_size``.
    setting
        The broker's setting for the size of a file.
    """

    top: str
    directory: Callable[[bytes, int], tuple[str, str, str]]
    unit: np.dtype[Any]
    setting: str


class QueueFiles:
    """All files of one kind below one output; `file_size` in bytes, whole units."""

    def __init__(self, files: DurableFiles, kind: QueueKind, file_size: int) -> None:
        self._files = files
        self._kind = kind
        self.file_size = file_size

    def queues(self) -> Iterator[tuple[bytes, int]]:
        """The topic and queue id of every directory that is a queue's."""
        return queue_directories(self._files.root / self._kind.top)

    def list(self, topic: bytes, queue_id: int) -> list[int]:
        """Where each file of a queue begins, in order.

        Raises
        ------
        SinkError
            A file has another size than the setting says.
        """
        found = []
        with os.scandir(self._files.root.joinpath(*self._kind.directory(topic, queue_id))) as entries:
            for entry in entries:
                if not is_file_name(entry.name):
                    continue
                size = entry.stat(follow_symlinks=False).st_size
                # A crash may leave a file without its size: it has no entry, which makes it one to drop.
                if size not in (0, self.file_size):
                    msg = (
                        f"{entry.path} has {size} bytes where {self._kind.setting} is {self.file_size}; give the "
                        "broker's setting (--broker-conf), or remove the queue to derive it again"
                    )
                    raise SinkError(msg)
                found.append(int(entry.name))
        return sorted(found)

    def create(self, topic: bytes, queue_id: int, file: int) -> None:
        """Make the file that begins at byte `file`, or give one that a crash left its size."""
        self._files.create(*self._parts(topic, queue_id, file), size=self.file_size)

    def remove(self, topic: bytes, queue_id: int, file: int) -> None:
        """Remove one file."""
        self._files.remove(*self._parts(topic, queue_id, file))

    def write(self, topic: bytes, queue_id: int, at: int, data: memoryview, last_file: int) -> None:
        """Write `data` from byte `at` of the queue on; files that begin behind `last_file` (-1: all) are made first."""
        for file in self.files_of(at, at + len(data)):
            if file > last_file:
                self.create(topic, queue_id, file)
            size = min(len(data), file + self.file_size - at)
            self._files.write(*self._parts(topic, queue_id, file), offset=at - file, data=data[:size])
            data = data[size:]
            at += size

    def files_of(self, begin: int, end: int) -> range:
        """Where each file begins that holds some of the bytes `[begin, end)` of a queue."""
        return range(begin - begin % self.file_size, end, self.file_size) if end > begin else range(0)

    def written(self, topic: bytes, queue_id: int, file: int) -> Units:
        """The units of a file, without the hole at its end."""
        unit = self._kind.unit
        with self._files.root.joinpath(*self._parts(topic, queue_id, file)).open("rb") as source:
            end = max((end for _, end in data_extents(source.fileno())), default=0)
            size = os.fstat(source.fileno()).st_size
            source.seek(0)  # looking for extents moved the place
            data = source.read(min(size, -(-end // unit.itemsize) * unit.itemsize))
        return np.frombuffer(data, unit, len(data) // unit.itemsize)

    def clear(self, topic: bytes, queue_id: int, file: int, first: int, stale: Units) -> None:
        """Zero the units `stale` of a file, which begin with number `first`."""
        if stale.tobytes().strip(b"\0"):
            at = first * self._kind.unit.itemsize
            self._files.write(*self._parts(topic, queue_id, file), offset=at, data=bytes(stale.nbytes))

    def _parts(self, topic: bytes, queue_id: int, file: int) -> tuple[str, str, str, str]:
        return (*self._kind.directory(topic, queue_id), file_name(file))


def queue_directories(top: Path) -> Iterator[tuple[bytes, int]]:
    """The topic and queue id of every directory below `top` that is a queue's."""
    if not top.is_dir():
        return
    for topic in sorted(top.iterdir()):
        if topic.is_dir() and not topic.is_symlink():
            for queue in sorted(topic.iterdir()):
                if queue.name.isdecimal() and queue.is_dir() and not queue.is_symlink():
                    yield os.fsencode(topic.name), int(queue.name)
