"""Removing queue, ext and index files of which the log no longer has any record.

``ConsumeQueue#deleteExpiredFile``, ``BatchConsumeQueue#deleteExpiredFile``, ``ConsumeQueueExt#truncateByMinAddress``
and ``IndexService#deleteExpiredFile``. `reput tail` does so while it runs, `reput expire` on request. The progress
records stay true: they count a queue by its end, and name the index's last file, and the files that show these stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import names_in
from reput.sinks.files.store_path import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    RelativePath,
    consume_queue_ext_file,
    index_file,
)
from reput.sinks.formats.consume_queue import is_pre_blank, is_written
from reput.sinks.index.index_reader import index_file_names, open_index_file
from reput.sinks.queue.batch_consume_queue import offsets_of_batches
from reput.sinks.queue.consume_queue_ext import files_before
from reput.sinks.queue.queue_reader import QueueReader
from reput.source.arrays import leading
from reput.source.log.store_layout import is_file_name


@dataclass(frozen=True)
class QueueRetention:
    """The files of one queue that expire, and the queue offsets that remain: `[min_offset, max_offset)`."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    removed: tuple[RelativePath, ...]


def expire_queue(disk: QueueReader, min_physic_offset: int, end_offset: int | None = None) -> QueueRetention:
    """Decide which files of one queue expire, and what remains; the arguments are those of `expired_queue_files`."""
    removed = expired_queue_files(disk, min_physic_offset, end_offset)
    least, end = _kept_units(disk, min_physic_offset)
    if disk.kind.top == BATCH_CONSUME_QUEUE:
        first = next((file for file in disk.files if disk.relative_path(file) not in removed), 0)
        least, end = offsets_of_batches(disk, first // disk.unit_size, least, end)
    topic = disk.topic.decode("utf-8", "backslashreplace")
    return QueueRetention(topic, disk.queue_id, least, end, tuple(removed))


def expired_queue_files(disk: QueueReader, min_physic_offset: int, end_offset: int | None = None) -> list[RelativePath]:
    """The files of one queue that expire, in the order of removal: its own, oldest first, then those of ext.

    Its own files expire from the first on, as long as they are full and their last entry's record has expired. The last
    file with an entry stays, because it shows where the queue ends; a broker removes even that one if an empty file
    follows.

    Parameters
    ----------
    min_physic_offset
        The first physical offset that the log still has.
    end_offset
        Entries of records from this physical offset on do not count, because the next start drops them; None counts
        all.
    """
    files = disk.files
    expired = list(takewhile(lambda file: _is_expired(disk, file, min_physic_offset), files[:-1]))
    while expired and not any(_has_entry(disk, file, end_offset) for file in files[len(expired) :]):
        expired.pop()
    removed: list[RelativePath] = [disk.relative_path(file) for file in expired]
    return removed + _expired_ext_files(disk, min_physic_offset) if disk.kind.top == CONSUME_QUEUE else removed


def expired_index_files(root: Path, min_physic_offset: int, last: str | None = None) -> list[RelativePath]:
    """The leading index files whose last key's record has expired; never the last file, nor from the file `last` on."""
    expired: list[RelativePath] = []
    for name in index_file_names(root)[:-1]:
        if last is not None and name >= last:
            break
        with open_index_file(root.joinpath(*index_file(name))) as file:
            if file.header().end_phy_offset >= min_physic_offset:
                break
        expired.append(index_file(name))
    return expired


def remove_in_order(
    files: DurableFiles, paths: Iterable[RelativePath], on_removed: Callable[[RelativePath], None] | None = None
) -> None:
    """Remove files, each durably before the next, so that a stop leaves no hole; `on_removed` gets each.

    Raises
    ------
    OutputError
        A file cannot be removed; it and the later ones remain, and the call may be repeated.
    """
    for parts in paths:
        files.remove(*parts)
        if on_removed is not None:
            on_removed(parts)
        files.sync_names(*parts[:-1])


def _is_expired(disk: QueueReader, file: int, min_physic_offset: int) -> bool:
    """Whether the file is full and its last entry's record has expired."""
    last = disk.read_written((file + disk.file_size) // disk.unit_size - 1, 1)
    return len(last) == 1 and int(last["physical_offset"][0]) < min_physic_offset


def _has_entry(disk: QueueReader, file: int, end_offset: int | None = None) -> bool:
    units = disk.units(file)
    entries = is_written(units) & ~is_pre_blank(units)
    if end_offset is not None:
        entries &= units["physical_offset"] < end_offset
    return bool(entries.any())


def _kept_units(disk: QueueReader, min_physic_offset: int) -> tuple[int, int]:
    """The number of the first unit whose record the log has, and the number after the queue's last unit."""
    last = next((file for file in reversed(disk.files) if _has_entry(disk, file)), None)
    if last is None:
        end = disk.files[0] // disk.unit_size if disk.files else 0
    else:
        end = last // disk.unit_size + leading(is_written(disk.units(last)))
    return disk.min_offset(min_physic_offset, end), end


def _expired_ext_files(disk: QueueReader, min_physic_offset: int) -> list[RelativePath]:
    """The ext files that end before the unit of the first entry whose record the log still has."""
    directory = disk.root.joinpath(*consume_queue_ext_file(disk.topic, disk.queue_id, 0)).parent
    names = sorted(filter(is_file_name, names_in(directory)))
    if len(names) < 2:  # that unit is in the only file
        return []
    least, end = _kept_units(disk, min_physic_offset)
    if least >= end:
        return []
    ends = {int(name): int(name) + (directory / name).stat().st_size for name in names}
    before = files_before(ends, int(disk.read(least, 1)["tags_code"][0]))
    return [consume_queue_ext_file(disk.topic, disk.queue_id, file) for file in before]
