"""File systems of an output: directories and whole file systems made durable, holes of files, the clock of ages.

Syncing ten thousand files one by one takes three times as long, because each sync waits for the disk.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from reput.source.errors import OutputError, output_error_of
from reput.source.printable import lines_of
from reput.source.system import limit_reached

#: File systems that `syncfs` makes completely durable; some others only begin to write.
_WHOLE: Final = frozenset({"ext4", "xfs"})
# Since this kernel `syncfs` reports writes that failed since the descriptor was opened.
_REPORTS_SINCE = (5, 8)
_MOUNTS = Path("/proc/self/mountinfo")
_library = ctypes.CDLL(None, use_errno=True)


class FileSystems:
    """The file systems of the directories given to `see`; every method raises OSError."""

    def __init__(self) -> None:
        # By device, the first directory on it that was seen, and its descriptor, or None if `syncfs` is not enough.
        self._directories: dict[int, str] = {}
        self._descriptors: dict[int, int | None] = {}

    def see(self, directory: str, device: int) -> None:
        """Note that something will be written in this directory, on that device."""
        self._directories.setdefault(device, directory)

    def watch(self) -> None:
        """Begin to notice failed writes; call it before writing in a directory that was seen."""
        for device, directory in self._directories.items():
            if device not in self._descriptors:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                self._descriptors[device] = os.open(directory, flags) if is_synced_whole(device) else None

    @property
    def are_synced_whole(self) -> bool:
        """Whether `sync` makes everything durable that was written since `watch`, or reports failed writes."""
        return bool(self._descriptors) and None not in self._descriptors.values()

    def sync(self) -> None:
        """Make all written data durable, of any writer; an error may be another writer's."""
        for descriptor in self._descriptors.values():
            if descriptor is not None:
                _sync(descriptor)

    def close(self) -> None:
        """Stop watching."""
        for descriptor in self._descriptors.values():
            if descriptor is not None:
                os.close(descriptor)
        self._descriptors.clear()


def is_synced_whole(device: int) -> bool:
    """Whether `syncfs` makes a device's file system durable and reports failed writes."""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    if release is None or tuple(map(int, release.groups())) < _REPORTS_SINCE or not hasattr(_library, "syncfs"):
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in lines_of(_MOUNTS.read_text(errors="replace")):
            mount, _, of_file_system = line.partition(" - ")
            if mount.split(" ")[2] == number:
                return of_file_system.partition(" ")[0] in _WHOLE
    return False


def sync_directory(directory: str) -> None:
    """Make the names in a directory durable; raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    if _library.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# ----------------------------------------------------------------------------------------------------------------------
# The content of a directory of an output.


def names_in(directory: Path) -> list[str]:
    """The names in a directory; none if the directory is missing."""
    return [path.name for path in directory.iterdir()] if directory.is_dir() else []


def has_files(directory: Path) -> bool:
    """Whether there is a file in a directory or below it."""
    return directory.is_dir() and any(path.is_file() for path in directory.rglob("*"))


# ----------------------------------------------------------------------------------------------------------------------
# The error to raise if the system refuses something, and the extents of files.


def refused(action: str, path: Path, error: OSError) -> OutputError:
    """The error for an action that the system refused on a file; `action` is a verb and its object."""
    needed = "the output needs a writable directory with room on its disk"
    why, advice = limit_reached(error) or (error.strerror, needed)
    return output_error_of(error)(f"cannot {action} {path}: {why}", advice=advice, file=path)


def data_extents(descriptor: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """`[begin, end)` of each extent with data from byte `start` of the file; holes read as zeros."""
    size = os.fstat(descriptor).st_size
    while start < size:
        try:
            begin = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data from here on
                return
            raise
        start = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, start


def filled_extents(descriptor: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """`[begin, end)` of each extent from byte `start` of the file that is not all zero."""
    for begin, end in list(data_extents(descriptor, start)):
        if os.pread(descriptor, end - begin, begin).strip(b"\0"):
            yield begin, end


# The time of day at the origin of the monotonic clock, as it was set when this process began.
_BEGAN_AT = time.time() - time.monotonic()


def now_for_ages(
    time_of_day: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    began_at: float = _BEGAN_AT,
) -> float:
    """Seconds since the epoch: the time of day, but never more than has passed since this process began.

    A time of day that is set three days forward would make a file that a writer is about to commit three days old. Time
    while the machine was suspended does not count, because no process ran. A time of day that is set back counts.
    """
    return min(time_of_day(), began_at + clock())
