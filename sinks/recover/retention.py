"""Removing, only on request, queue, ext and index files of which the log no longer has any record.

``ConsumeQueue#deleteExpiredFile``, ``ConsumeQueueExt#truncateByMinAddress`` and ``IndexService#deleteExpiredFile``. The
progress records stay true: they count a queue by its end, and name the index's last file, which is never removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reput.sinks.files.directory import names_in
from reput.sinks.files.store_path import RelativePath, consume_queue_ext_file, index_file
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, is_pre_blank, is_written
from reput.sinks.formats.consume_queue_ext import is_ext_addr, un_decorate
from reput.sinks.index.index_reader import index_file_names, open_index_file
from reput.sinks.queue.queue_reader import QueueReader
from reput.source.arrays import leading
from reput.source.segments.mapped_file_name import is_file_name


@dataclass(frozen=True)
class QueueRetention:
    """What expires of one queue, and the numbers of the entries left: from `min_offset` to `max_offset` (exclusive)."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    removed: tuple[RelativePath, ...]


def expire_queue(disk: QueueReader, min_physic_offset: int) -> QueueRetention:
    """Decide what expires of one queue; `min_physic_offset` is the first offset that the log still has."""
    last = _last_file_with_entries(disk)
    expired = []
    for file in disk.files:
        if last is None or file >= last or not _is_expired(disk, file, min_physic_offset):
            break
        expired.append(file)
    end = _end(disk, last)
    min_offset = disk.min_offset(min_physic_offset, end // CQ_STORE_UNIT_SIZE)
    removed = [disk.relative_path(file) for file in expired] + _expired_ext_files(disk, min_offset, end)
    topic = disk.topic.decode("utf-8", "backslashreplace")
    return QueueRetention(topic, disk.queue_id, min_offset, end // CQ_STORE_UNIT_SIZE, tuple(removed))


def expired_index_files(root: Path, min_physic_offset: int) -> list[RelativePath]:
    """The leading index files whose last key's record has expired; never the last file."""
    expired: list[RelativePath] = []
    for name in index_file_names(root)[:-1]:
        with open_index_file(root.joinpath(*index_file(name))) as file:
            if file.header().end_phy_offset >= min_physic_offset:
                break
        expired.append(index_file(name))
    return expired


def _last_file_with_entries(disk: QueueReader) -> int | None:
    """The last file with an entry, which tells the end. A broker removes it, too, when an empty file follows."""
    for file in disk.files[::-1]:
        units = disk.units(file)
        if (is_written(units) & ~is_pre_blank(units)).any():
            return file
    return None


def _is_expired(disk: QueueReader, file: int, min_physic_offset: int) -> bool:
    """Whether the file is full and its last entry's record has expired."""
    last = disk.read_written((file + disk.file_size) // CQ_STORE_UNIT_SIZE - 1, 1)
    return len(last) == 1 and int(last["physical_offset"][0]) < min_physic_offset


def _end(disk: QueueReader, last: int | None) -> int:
    if last is None:
        return disk.files[0] if disk.files else 0
    return last + leading(is_written(disk.units(last))) * CQ_STORE_UNIT_SIZE


def _expired_ext_files(disk: QueueReader, min_offset: int, end: int) -> list[RelativePath]:
    """The ext files that end before the unit of the first entry whose record the log still has."""
    if min_offset * CQ_STORE_UNIT_SIZE >= end:
        return []
    address = int(disk.read(min_offset, 1)["tags_code"][0])
    if not is_ext_addr(address):
        return []
    directory = disk.root.joinpath(*consume_queue_ext_file(disk.topic, disk.queue_id, 0)).parent
    names = filter(is_file_name, names_in(directory))
    sizes = {int(name): (directory / name).stat().st_size for name in sorted(names)}
    offset = un_decorate(address)
    return [consume_queue_ext_file(disk.topic, disk.queue_id, file) for file in sizes if file + sizes[file] < offset]
