"""The ConsumeQueue files of an output as they are on disk, for the commands that mend or shorten them; read only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reput.sinks.files.directory import names_in
from reput.sinks.files.sparse_file import data_extents
from reput.sinks.files.store_path import CONSUME_QUEUE, consume_queue_directory, consume_queue_file
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, ENTRY, is_pre_blank, is_written
from reput.source.arrays import Entries, leading
from reput.source.errors import SinkError
from reput.source.segments.mapped_file_name import is_file_name


@dataclass
class QueueOnDisk:
    """One queue's files below `root`: where each begins, in bytes of the queue, with its size on disk."""

    root: Path
    topic: bytes
    queue_id: int
    file_size: int
    sizes: dict[int, int]

    @property
    def files(self) -> list[int]:
        """Where each file begins, oldest first."""
        return list(self.sizes)

    def parts(self, file: int) -> tuple[str, str, str, str]:
        """The parts of a file's path below the root."""
        return consume_queue_file(self.topic, self.queue_id, file)

    def path(self, file: int) -> Path:
        """Where a file lies."""
        return self.root.joinpath(*self.parts(file))

    def units(self, file: int, begin: int = 0, count: int | None = None) -> Entries:
        """A file's whole units from byte `begin` of the file on, at most `count`."""
        units = (self.sizes[file] - begin) // CQ_STORE_UNIT_SIZE
        wanted = units if count is None else min(count, units)
        return np.fromfile(self.path(file), ENTRY, max(0, wanted), offset=begin)

    def read(self, position: int, count: int) -> Entries:
        """Up to `count` written units from byte `position` of the queue on, to the first that is none, or a hole."""
        found = []
        while count:
            file = position - position % self.file_size
            if file not in self.sizes:
                break
            units = self.units(file, position - file, count)
            valid = leading(is_written(units))
            found.append(units[:valid])
            position += valid * CQ_STORE_UNIT_SIZE
            count -= valid
            if valid < len(units) or position < file + self.file_size:
                break
        return np.concatenate(found) if found else np.empty(0, ENTRY)

    def has_data(self, file: int, begin: int = 0) -> bool:
        """Whether any byte from byte `begin` of the file on is not zero."""
        return next(self.extents(file, begin), None) is not None

    def extents(self, file: int, begin: int) -> Iterator[tuple[int, int]]:
        """`[begin, end)` of the file's stretches from byte `begin` on that are not all zero."""
        with self.path(file).open("rb") as opened:
            for start, end in list(data_extents(opened.fileno(), begin)):
                opened.seek(start)
                if opened.read(end - start).strip(b"\0"):
                    yield start, end

    def min_offset_in_queue(self, min_physic_offset: int, end: int) -> int:
        """The first entry whose record the log has, as the number of an entry; `end` (bytes) without one.

        ``ConsumeQueue#correctMinOffset`` by the rule of 5.x, over all files: 4.9.3 looks at the first file only, and
        leaves the minimum where it was when no entry is left.
        """
        for file in self.files:
            if file >= end:
                break
            units = self.units(file, 0, (end - file) // CQ_STORE_UNIT_SIZE)
            kept = np.flatnonzero((units["physical_offset"] >= min_physic_offset) & ~is_pre_blank(units))
            if len(kept):
                return file // CQ_STORE_UNIT_SIZE + int(kept[0])
        return end // CQ_STORE_UNIT_SIZE


def load_queues_on_disk(root: Path, file_size: int) -> list[QueueOnDisk]:
    """Every queue below `root`, in order of topic and queue id; `file_size` in bytes, whole entries.

    A file may be shorter than `file_size` when another one of the output shows that this is the size: a copy or a crash
    cut it.

    Raises
    ------
    SinkError
        A directory is not one that a broker makes, or a file has another size.
    """
    queues = [
        _load(root, Path(topic), Path(queue), file_size)
        for topic in _directories(root / CONSUME_QUEUE)
        for queue in _directories(topic)
        if queue.name.isdecimal()
    ]
    has_whole_file = any(size == file_size for queue in queues for size in queue.sizes.values())
    for queue in queues:
        for file, size in queue.sizes.items():
            is_cut = not size or (has_whole_file and size < file_size)
            if size != file_size and not is_cut:
                msg = (
                    f"{queue.path(file)} has {size} bytes where mappedFileSizeConsumeQueue is {file_size}; give the "
                    "broker's setting (--broker-conf), or remove the queue to derive it again"
                )
                raise SinkError(msg)
    return queues


def _directories(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    with os.scandir(root) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))


def _load(root: Path, topic: Path, queue: Path, file_size: int) -> QueueOnDisk:
    name, queue_id = os.fsencode(topic.name), int(queue.name)
    if root.joinpath(*consume_queue_directory(name, queue_id)) != queue:
        msg = f"{queue} is no queue's directory: its name is not how a broker writes {queue_id}; remove it"
        raise SinkError(msg)
    sizes = {int(file): (queue / file).lstat().st_size for file in sorted(names_in(queue)) if is_file_name(file)}
    return QueueOnDisk(root, name, queue_id, file_size, sizes)
