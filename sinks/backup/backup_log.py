"""The log of a restore point, read in place by the readers of any log: a row of segments without files.

Each segment reads the wanted bytes from the parts of the backup, frame by frame. A reader goes through a log in windows
that are smaller than a frame, so the last frames that a process has read stay in its memory.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Final

from reput.sinks.backup.backup_store import Backup
from reput.sinks.backup.restore_point import RestorePoint, StoredPart
from reput.sinks.backup.zstd_frames import FRAME_BYTES, FramesReader
from reput.sinks.table.location import TableLocation, parse_location
from reput.source.errors import OptionError
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue
from reput.source.log.store_layout import COMMIT_LOG, POINTS, as_given, backup_of, file_name

# A look-up follows entries back and forth, and several threads may read.
_FRAMES_KEPT: Final = 16
_PARTS_OPEN: Final = 8
_BEGIN: Final = attrgetter("begin")


def restore_point_at(path: Path) -> tuple[Backup, RestorePoint]:
    """The backup that a path names, and the restore point that it names, by default the newest.

    Raises
    ------
    OptionError
        There is no such restore point.
    StoreError
        It cannot be read.
    """
    backup = Backup(parse_location(as_given(backup_of(path))))
    numbers = backup.numbers()
    if not numbers:
        raise OptionError(f"{backup.location} has no restore point")
    number = numbers[-1]
    if path.parent.name == POINTS:
        found = [each for each in numbers if path.name == f"{each:010d}.json"]
        if not found:
            raise OptionError(f"{as_given(path)} is not a restore point: there are {numbers[0]} to {number}")
        number = found[0]
    return backup, backup.point(number)


def log_of_point(backup: Backup, point: RestorePoint, path: Path) -> MappedFileQueue:
    """The log of a restore point; options name it by `path`."""
    return MappedFileQueue(tuple(_segments(backup, point)), (path,), known_end=point.end)


def _segments(backup: Backup, point: RestorePoint) -> Iterator[MappedFile]:
    size = point.mapped_file_size
    for begin in sorted({part.begin - part.begin % size for part in point.parts}):
        content = _Content(backup.location, begin, size, tuple(_parts_of(point.parts, begin, begin + size)))
        yield MappedFile(begin, size, f"{backup.location}/{COMMIT_LOG}/{file_name(begin)}", content=content)


def _parts_of(parts: Sequence[StoredPart], begin: int, end: int) -> Sequence[StoredPart]:
    return parts[bisect_right(parts, begin - 1, key=_BEGIN) : bisect_right(parts, end - 1, key=_BEGIN)]


@dataclass(frozen=True)
class _Content:
    """The bytes of a segment; see ``SegmentContent``. After the end of the log they are zeros."""

    location: TableLocation
    begin: int
    size: int
    parts: tuple[StoredPart, ...]

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` up to the end of one frame, or of the zeros after the log's end."""
        offset = self.begin + position
        view = view[: max(0, self.size - position)]
        at = bisect_right(self.parts, offset, key=_BEGIN) - 1
        if at < 0 or offset >= self.parts[at].end:
            view[:] = bytes(len(view))
            return len(view)
        part = self.parts[at]
        within = (offset - part.begin) % FRAME_BYTES
        content = _stretch(os.getpid(), self.location, part, offset - within)
        found = content[within : within + len(view)]
        view[: len(found)] = found
        return len(found)


@lru_cache(maxsize=_FRAMES_KEPT)
def _stretch(process: int, location: TableLocation, part: StoredPart, begin: int) -> bytes:
    """The bytes of a part from `begin` to the end of a frame: parts are written in such stretches."""
    end = min(begin + FRAME_BYTES, part.end)
    with _backup(process, location).read_errors(part.name, begin):
        return b"".join(_frames(process, location, part).read(begin - part.begin, end - part.begin))


@lru_cache(maxsize=_PARTS_OPEN)
def _frames(process: int, location: TableLocation, part: StoredPart) -> FramesReader:
    # Nothing but this cache refers to the file: it is closed when another part takes its place.
    return _backup(process, location).frames(part)


@lru_cache(maxsize=1)
def _backup(process: int, location: TableLocation) -> Backup:  # noqa: ARG001  a connection is of one process
    return Backup(location)
