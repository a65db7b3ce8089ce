"""What a file system does for an output: directories and whole file systems made durable, holes of files, its clock.

Ten thousand files that are synced one by one take three times as long: the disk is waited for at each of them.
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

#: Of these `syncfs` leaves nothing behind; some of the others only begin to write.
_WHOLE: Final = frozenset({"ext4", "xfs"})
# Since this kernel `syncfs` reports what could not be written since the descriptor was opened.
_REPORTS_SINCE = (5, 8)
_MOUNTS = Path("/proc/self/mountinfo")
_library = ctypes.CDLL(None, use_errno=True)


class FileSystems:
    """The file systems of the directories that were seen; raises OSError from every method."""

    def __init__(self) -> None:
        # By device, the first directory on it that was seen, and its descriptor: None where `syncfs` is of no use.
        self._directories: dict[int, str] = {}
        self._descriptors: dict[int, int | None] = {}

    def see(self, directory: str, device: int) -> None:
        """Something will be written in this directory, on that device."""
        self._directories.setdefault(device, directory)

    def watch(self) -> None:
        """From now on, notice what cannot be written; before anything is written in a directory that was seen."""
        for device, directory in self._directories.items():
            if device not in self._descriptors:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                self._descriptors[device] = os.open(directory, flags) if is_synced_whole(device) else None

    @property
    def are_synced_whole(self) -> bool:
        """Whether `sync` makes all durable that was written since `watch`, or says what failed."""
        return bool(self._descriptors) and None not in self._descriptors.values()

    def sync(self) -> None:
        """Make all that was written durable, by any writer; an error may be another writer's."""
        for descriptor in self._descriptors.values():
            if descriptor is not None:
                _sync(descriptor)

    def close(self) -> None:
        """Watch no more."""
        for descriptor in self._descriptors.values():
            if descriptor is not None:
                os.close(descriptor)
        self._descriptors.clear()


def is_synced_whole(device: int) -> bool:
    """Whether `syncfs` makes a device's file system durable and reports what it could not write."""
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
# What is in a directory of an output.


def names_in(directory: Path) -> list[str]:
    """The names in a directory; none if the directory is missing."""
    return [path.name for path in directory.iterdir()] if directory.is_dir() else []


def has_files(directory: Path) -> bool:
    """Whether there is a file in a directory or below it."""
    return directory.is_dir() and any(path.is_file() for path in directory.rglob("*"))


# ----------------------------------------------------------------------------------------------------------------------
# What is raised where the system refuses to do something to a file.


def refused(action: str, path: Path, error: OSError) -> OutputError:
    """What to raise where the system refused to do something to a file: `action` is a verb, and what is done."""
    needed = "the output needs a writable directory with room on its disk"
    why, advice = limit_reached(error) or (error.strerror, needed)
    return output_error_of(error)(f"cannot {action} {path}: {why}", advice=advice, file=path)


def data_extents(descriptor: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """`[begin, end)` of each extent with data from byte `start` of the file on; holes read as zeros."""
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
    """`[begin, end)` of each extent from byte `start` of the file on that is not all zero."""
    for begin, end in list(data_extents(descriptor, start)):
        if os.pread(descriptor, end - begin, begin).strip(b"\0"):
            yield begin, end


# The time of day when this process began, as the clock that cannot be set counts from.
_BEGAN_AT = time.time() - time.monotonic()


def now_for_ages(
    time_of_day: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    began_at: float = _BEGAN_AT,
) -> float:
    """Seconds since the epoch, as they went by since this process began: not as the time of day was set since.

    Set three days forwards, it would make a file that a writer is about to commit three days old. While the machine was
    suspended no process ran, so that does not count. Set back, the time of day itself is earlier, and counts.
    """
    return min(time_of_day(), began_at + clock())
