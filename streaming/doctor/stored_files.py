"""The files that a broker finds, as it lists and loads them; what it does not load ends its start.

``MappedFileQueue#load``, ``DefaultMessageStore#loadConsumeQueue``, ``IndexService#load``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reput.sinks.files.file_system import names_in
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, STORE_CHECKPOINT
from reput.sinks.formats.index_file import ENTRY, IndexHeader
from reput.sinks.index.index_reader import entry_at, open_index_file
from reput.sinks.queue.broker_queue import BrokerBatchQueue, BrokerQueue, QueueFile
from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.record.message_properties import parse_int, parse_long
from reput.streaming.doctor.prediction import Obstacle, Part
from reput.streaming.doctor.start_settings import StartSettings


class NoStartError(Exception):
    """The broker does not start."""

    def __init__(self, part: Part, why: str, file: Path | str | None = None, size: int | None = None) -> None:
        super().__init__(why)
        self.obstacle = Obstacle(part, why, None if file is None else str(file), size)


@dataclass
class Segment:
    """A segment as the broker has it: `wrote` bytes of it count, at first all."""

    file: MappedFile
    wrote: int

    @property
    def end(self) -> int:
        """The physical offset behind the bytes that count."""
        return self.file.file_from_offset + self.wrote


@dataclass
class IndexFiles:
    """The index as it is loaded.

    `ranges` are the physical offsets of the first and the last record whose keys each file has, in order; a file that
    was cut has fewer than its header says. `end` is the offset of the last record by the headers: the broker puts keys
    of none before it. `removed` are the paths of files that are deleted.
    """

    ranges: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    removed: list[Path] = field(default_factory=list)


def load_segments(directories: Iterable[Path], settings: StartSettings, removed: list[Path]) -> list[Segment]:
    """The segments, oldest first; `removed` gets the path of one that 5.5.0 deletes as it loads them."""
    paths = [path for directory in directories for path in _listed(directory)]
    return [
        Segment(MappedFile(begin, settings.segment_size, str(path)), settings.segment_size)
        for begin, path in _load_row(Part.LOG, paths, settings.segment_size, settings, removed)
    ]


def load_queues(store: Path, settings: StartSettings) -> dict[tuple[str, int], BrokerQueue]:
    """Every queue by topic and queue id.

    Raises
    ------
    NoStartError
        A file has another size, or 5.5.0 finds a queue of the other kind than its topic has.
    """
    found: dict[tuple[str, int], BrokerQueue] = {}
    if settings.is_v5:
        _check_kinds(store, settings)
    for topic, queue_id, directory in _queues_in(store / CONSUME_QUEUE):
        size = settings.queue_file_size
        removed: list[Path] = []
        row = _load_row(Part.QUEUES, _listed(directory), size, settings, removed)
        files = [QueueFile(begin, size, path) for begin, path in row]
        found[topic, queue_id] = BrokerQueue(topic, queue_id, size, files, removed=removed)
        if settings.ext_file_size is not None:
            ext = _listed(store / CONSUME_QUEUE_EXT / topic / str(queue_id))
            list(_load_row(Part.QUEUES, ext, settings.ext_file_size, settings, removed))
    for topic, queue_id, directory in _queues_in(store / BATCH_CONSUME_QUEUE) if settings.is_v5 else ():
        size, removed = settings.batch_file_size, []
        row = _load_row(Part.QUEUES, _listed(directory), size, settings, removed)
        files = [QueueFile(begin, size, path, unit=BrokerBatchQueue.unit) for begin, path in row]
        found[topic, queue_id] = BrokerBatchQueue(topic, queue_id, size, files, removed=removed)
    return found


def _queues_in(top: Path) -> Iterator[tuple[str, int, Path]]:
    """Topic, queue id and directory of each queue; the broker makes the path of a queue from the number."""
    for topic in _listed(top):
        for directory in _listed(topic):
            queue_id = parse_int(directory.name)
            if queue_id is not None:
                yield topic.name, queue_id, topic / str(queue_id)


def _check_kinds(store: Path, settings: StartSettings) -> None:
    """``ConsumeQueueStore#queueTypeShouldBe``, which is asked for each directory of a queue."""
    batch_topics = settings.needs.batch_topics
    for top, other in ((CONSUME_QUEUE, BATCH_CONSUME_QUEUE), (BATCH_CONSUME_QUEUE, CONSUME_QUEUE)):
        for topic in _listed(store / top):
            is_wrong = (os.fsencode(topic.name) in batch_topics) == (top == CONSUME_QUEUE)
            found = next((each for each in _listed(topic) if parse_int(each.name) is not None), None)
            if is_wrong and found is not None:
                why = f"{found} is of the wrong kind: the topic's queues belong into {other}/"
                raise NoStartError(Part.QUEUES, why, found)


def load_index(store: Path, checkpoint: StoreCheckpoint, settings: StartSettings, *, is_abnormal: bool) -> IndexFiles:
    """The index; without a clean stop, files that are newer than the checkpoint are deleted."""
    index = IndexFiles()
    for path in sorted(_listed(store / INDEX)):
        if parse_long(path.name) is None:
            continue
        if path.is_dir():
            if settings.is_v5:
                raise NoStartError(Part.INDEX, f"{path} is a directory where index files are", path)
            break
        header = _header(path)
        if is_abnormal and header.end_timestamp > checkpoint.index_msg_timestamp:
            index.removed.append(path)
            continue
        index.end = header.end_phy_offset
        last = _last_offset(path, header, settings)
        if last is not None:
            index.ranges.append((header.begin_phy_offset, last))
    return index


def _last_offset(path: Path, header: IndexHeader, settings: StartSettings) -> int | None:
    """The offset of the last record whose keys a file has; None if it was cut before the first of them."""
    first, size = entry_at(1, settings.max_hash_slot_num), path.stat().st_size
    count = (size - first) // ENTRY.itemsize
    if count >= header.next_entry - 1:
        return header.end_phy_offset
    if count < 1:
        return None
    with open_index_file(path, settings.max_hash_slot_num) as file:
        return int(file.entries(count, 1)["physical_offset"][0])


def load_checkpoint(store: Path) -> StoreCheckpoint:
    """The store's checkpoint; zeros without a file."""
    path = store / STORE_CHECKPOINT
    if path.is_dir():
        raise NoStartError(Part.CHECKPOINT, f"{path} is a directory where the broker opens a file", path)
    try:
        return StoreCheckpoint.decode(path.read_bytes())
    except FileNotFoundError:
        return StoreCheckpoint()


def _load_row(
    part: Part, paths: list[Path], size: int, settings: StartSettings, removed: list[Path]
) -> Iterator[tuple[int, Path]]:
    """Where each file of a row begins, and its path, in the order of names (``MappedFileQueue#doLoad``).

    5.5.0 deletes an empty file at the end of the row: its path goes to `removed`.
    """
    paths = sorted(paths, key=lambda path: path.name)
    for path in paths:
        status = path.stat()
        if settings.is_v5 and path.is_dir():
            continue
        if settings.is_v5 and status.st_size == 0 and path is paths[-1]:
            removed.append(path)
            continue
        if status.st_size != size:
            why = f"{path} has {status.st_size} bytes where files of {size} are set"
            has_a_name = not path.is_dir() and parse_long(path.name) is not None
            raise NoStartError(part, why, path, size if has_a_name else None)
        begin = parse_long(path.name)
        if begin is None:
            raise NoStartError(part, f"{path} has a name that is no number", path)
        yield begin, path


def _listed(directory: Path) -> list[Path]:
    return [directory / name for name in names_in(directory)]


def _header(path: Path) -> IndexHeader:
    with open_index_file(path) as file:
        return file.header()
