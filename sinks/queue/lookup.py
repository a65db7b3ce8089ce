"""Entries of one ConsumeQueue by offset in queue, and offsets in queue by time; files are only read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reput.sinks.files.store_path import consume_queue_directory
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, ENTRY, PRE_BLANK, is_pre_blank
from reput.sinks.formats.consume_queue_ext import is_ext_addr
from reput.source.errors import SinkError
from reput.source.segments.mapped_file_queue import MappedFile, MappedFileQueue, open_for_reading

# ``ConsumeQueue#recover`` looks for the end in the last three files and trusts those before them.
_FILES_RECOVERED = 3
_LMQ_PREFIX = "%LMQ%"

Entries = np.ndarray[Any, np.dtype[np.void]]


class ConsumeQueueEntry(NamedTuple):
    """One entry; `queue_offset` is its place in the queue, counted in entries."""

    queue_offset: int
    physical_offset: int
    msg_size: int
    tags_code: int

    @property
    def is_pre_blank(self) -> bool:
        """Whether it only fills the front of a queue that begins in its middle (``ConsumeQueue#fillPreBlank``)."""
        return self[1:] == PRE_BLANK.item()

    @property
    def ext_address(self) -> int | None:
        """What stands in the place of the tags code of an entry that has a ConsumeQueueExt unit."""
        return self.tags_code if is_ext_addr(self.tags_code) else None


@dataclass(frozen=True)
class ConsumeQueueLookup:
    """The entries `[min_offset, max_offset)` of one queue, as they were when it was opened.

    `min_offset` is the first entry that points into the log; when all point before it, it is `max_offset`
    (``ConsumeQueue#correctMinOffset`` of 5.x). Pre-blank entries are never counted among them.
    """

    topic: str
    queue_id: int
    files: tuple[MappedFile, ...]
    min_offset: int
    max_offset: int

    @classmethod
    def open(cls, root: Path, topic: str, queue_id: int, min_phy_offset: int) -> ConsumeQueueLookup:
        """Open ``consumequeue/<topic>/<queueId>`` below `root`; `min_phy_offset` is the log's first place.

        Raises
        ------
        SinkError
            There is no such queue, the topic is no name that a broker accepts, or a file's size is no whole number of
            entries.
        SegmentError
            The sizes of the files differ, or do not go with their names.
        """
        directory = root.joinpath(*consume_queue_directory(topic.encode(errors="surrogateescape"), queue_id))
        if not directory.is_dir():
            raise SinkError(
                f"no {_name(topic, queue_id)} at {directory}; give the directory that holds consumequeue/ (--output), "
                "or derive it with 'reput tail'"
            )
        files = MappedFileQueue.load([directory]).files
        if files and files[0].size % CQ_STORE_UNIT_SIZE:
            raise SinkError(
                f"{files[0].path} has {files[0].size} bytes, which is no multiple of {CQ_STORE_UNIT_SIZE}: "
                "it is no ConsumeQueue file"
            )
        max_offset = _max_offset(files)
        return cls(topic, queue_id, files, _min_offset(files, min_phy_offset, max_offset), max_offset)

    @property
    def name(self) -> str:
        """The queue in words."""
        return _name(self.topic, self.queue_id)

    @property
    def is_lmq(self) -> bool:
        """Whether it is a queue of multi dispatch, whose messages have a topic and a queue of their own."""
        return self.topic.startswith(_LMQ_PREFIX)

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """The entry at `queue_offset`, which must be below `max_offset`.

        Raises
        ------
        SinkError
            No file holds it, as when one was removed from the row, or the file cannot be read.
        """
        place = queue_offset * CQ_STORE_UNIT_SIZE
        file = next((file for file in self.files if file.file_from_offset <= place < file.end), None)
        if file is None:
            raise SinkError(f"no file of {self.name} holds entry {queue_offset}: the file is missing from the row")
        return ConsumeQueueEntry(queue_offset, *_read(file, place - file.file_from_offset, 1)[0].item())

    def offset_in_queue_by_time(self, timestamp: int, store_time: Callable[[ConsumeQueueEntry], int]) -> int:
        """The first entry stored at `timestamp` (milliseconds) or later, `max_offset` without one.

        The rule of 5.x with the boundary LOWER (``ConsumeQueueStore#getOffsetInQueueByTime``). 4.9.3 picks the file by
        its modification time, which a copy does not keep, and of two neighbours the nearer in time. As on a broker the
        search halves the queue, so where the clock went back it finds one of several answers.

        `store_time` gives an entry's store time; what it raises ends the search.
        """
        if self.min_offset >= self.max_offset:
            return self.max_offset
        low, high = self._file_by_time(timestamp, store_time)
        if store_time(self.entry(high)) < timestamp:
            return high + 1
        if store_time(self.entry(low)) > timestamp:
            return low
        floor, right = low, high
        while low <= high:
            middle = (low + high) // 2
            time = store_time(self.entry(middle))
            if time == timestamp:
                while middle > floor and store_time(self.entry(middle - 1)) == timestamp:
                    middle -= 1
                return middle
            if time > timestamp:
                high, right = middle - 1, middle
            else:
                low = middle + 1
        return right

    def _file_by_time(self, timestamp: int, store_time: Callable[[ConsumeQueueEntry], int]) -> tuple[int, int]:
        """First and last entry of the first file that ends at `timestamp` or later, of the last file without one."""
        bounds = []
        for file in self.files:
            first = max(file.file_from_offset // CQ_STORE_UNIT_SIZE, self.min_offset)
            last = min(file.end // CQ_STORE_UNIT_SIZE, self.max_offset) - 1
            if first <= last:
                bounds.append((first, last))
        for first, last in bounds[:-1]:
            if store_time(self.entry(last)) >= timestamp:
                return first, last
        return bounds[-1]


def _name(topic: str, queue_id: int) -> str:
    return f"queue {queue_id} of topic {topic!r}"


def _read(file: MappedFile, at: int, count: int) -> Entries:
    size = count * CQ_STORE_UNIT_SIZE
    try:
        with open_for_reading(file.path) as descriptor:
            data = os.pread(descriptor, size, at)
    except OSError as error:
        raise SinkError(f"cannot read {file.path}: {error.strerror}") from error
    if len(data) < size:
        raise SinkError(f"{file.path} is shorter than its {file.size} bytes: it was cut while it was read")
    return np.frombuffer(data, ENTRY)


def _read_all(file: MappedFile) -> Entries:
    return _read(file, 0, file.size // CQ_STORE_UNIT_SIZE)


def _max_offset(files: tuple[MappedFile, ...]) -> int:
    """The place behind the last valid entry, as ``ConsumeQueue#recover`` finds it."""
    for file in files[-_FILES_RECOVERED:]:
        entries = _read_all(file)
        valid = (entries["physical_offset"] >= 0) & (entries["msg_size"] > 0)
        if not valid.all():
            return file.file_from_offset // CQ_STORE_UNIT_SIZE + int(valid.argmin())
    return files[-1].end // CQ_STORE_UNIT_SIZE if files else 0


def _min_offset(files: tuple[MappedFile, ...], min_phy_offset: int, max_offset: int) -> int:
    for file in files:
        last_offset, _, _ = _read(file, file.size - CQ_STORE_UNIT_SIZE, 1)[0].item()
        if last_offset < min_phy_offset and file is not files[-1]:
            continue
        entries = _read_all(file)
        alive = (entries["physical_offset"] >= min_phy_offset) & ~is_pre_blank(entries)
        if alive.any():
            return min(file.file_from_offset // CQ_STORE_UNIT_SIZE + int(alive.argmax()), max_offset)
    return max_offset
