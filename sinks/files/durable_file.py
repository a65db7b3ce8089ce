"""The only module that writes, syncs, renames or removes a file of an output.

Everything goes through a `DurableFiles` below one root, so that tests can count, fail or tear each call, and so that
nothing is ever written outside the output. Nothing is written by ``mmap``: a full disk would be a SIGBUS, not an error.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from reput.sinks.files.file_system import FileSystems, refused, sync_directory
from reput.source.errors import OutputError

# The number of files kept open. Files written since the last `sync` stay open beyond that, so that a failed write-back
# is reported to the descriptor that wrote, unless their file system will report it.
_OPEN_FILES_MAX = 512
# From this number of directories with new names, and of files if those count, file systems are synced as a whole.
_SYNCED_WHOLE_FROM = 512
# Syncs of many small files wait for the disk, not for a processor; concurrent ones share the disk's flushes.
_SYNC_THREADS = 8
_COMPONENT = re.compile(r"[^/\0]+")


class DurableFiles:
    """Files below `root`, named by the parts of their relative path; after `sync` they survive a power failure.

    Raises
    ------
    OutputError
        From every method: the path leaves the root, passes through a symbolic link, or the system refused.
    """

    def __init__(self, root: Path, *, whole: bool = False) -> None:
        """With `whole`, many files are made durable by a sync of their file system, not only many new ones.

        Such a sync also waits for data of other programs there. Beside a live broker that may take longer than syncing
        each file.
        """
        self.root = root
        # Paths are texts in this class: with many files, a Path costs as much as the call that it is for.
        self._root = str(root)
        self._syncs_whole = whole
        self._descriptors: dict[str, int] = {}
        self._dirty: set[str] = set()
        self._checked_directories: set[str] = set()
        self._changed_directories: set[str] = set()
        # Directories that have been synced. Names in them are durable unless these files have changed them since.
        self._synced_directories: set[str] = set()
        self._file_systems = FileSystems()
        # Whether files were closed that still need a sync of their file system.
        self._has_closed = False
        self._failure: OutputError | None = None
        # The root's device and inode, once something has been written below it.
        self._identity: tuple[int, int] | None = None
        self._beside: list[DurableFiles] = []
        #: The seconds spent waiting for these files, without those beside them, to become durable.
        self.sync_seconds = 0.0

    def beside(self) -> DurableFiles:
        """Files below the same root that another thread may write and sync meanwhile; closed with these."""
        self._beside.append(DurableFiles(self.root, whole=self._syncs_whole))
        return self._beside[-1]

    def make_directory(self, *parts: str) -> Path:
        """Create a directory below the root, and its parents, if missing."""
        path = self._path(parts)
        try:
            self._make(path)
        except OSError as error:
            raise refused("create the directory", Path(path), error) from error
        return Path(path)

    def create(self, *parts: str, size: int, keeps: bool = False) -> None:
        """Create a file of `size` zero bytes (sparse); one that exists is emptied first, unless `keeps` is true."""
        path = self._path(parts)
        parent = os.path.dirname(path)
        try:
            self._make(parent)
            self._forget(path)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if keeps else os.O_TRUNC)
            self._keep(path, os.open(path, flags, 0o644))
            os.ftruncate(self._descriptors[path], size)
        except OSError as error:
            raise refused("create", Path(path), error) from error
        self._changed_directories.add(parent)

    def write(self, *parts: str, offset: int, data: bytes | memoryview) -> None:
        """Write all of `data` at byte `offset` of an existing file, in several writes if need be."""
        path = self._path(parts)
        view = memoryview(data).cast("B")
        try:
            descriptor = self._descriptor(path)
            self._dirty.add(path)
            done = 0
            while done < len(view):
                done += os.pwrite(descriptor, view[done:], offset + done)
        except OSError as error:
            raise refused("write", Path(path), error) from error

    def set_modified(self, *parts: str, time_ms: int) -> None:
        """Set when a file was last modified, if this user and the file system can; the time is not made durable."""
        time_ns = time_ms * 1_000_000
        with suppress(OSError):
            os.utime(self._path(parts), ns=(time_ns, time_ns), follow_symlinks=False)

    def sync(self) -> None:
        """Make everything written so far durable.

        A failed sync is never tried again: the system forgets what it failed to write, so a second try would succeed.
        """
        if self._failure is not None:
            raise self._failure
        began = time.monotonic()
        try:
            self._sync_whole()
            self._sync_files(sorted(self._dirty))
            self._sync_directories()
        except OSError as error:
            raise refused("sync", Path(error.filename or self.root), error) from error
        self._close_idle()
        self.sync_seconds += time.monotonic() - began

    def replace(self, *parts: str, data: bytes | memoryview) -> None:
        """Put a small file in place, completely or not at all, durably."""
        self._put(parts, data, durable=True)

    def put_unsynced(self, *parts: str, data: bytes | memoryview) -> None:
        """Put a complete new file in place; it counts only after `make_durable`, here or in another process."""
        self._put(parts, data, durable=False)

    def _put(self, parts: tuple[str, ...], data: bytes | memoryview, *, durable: bool) -> None:
        path = self._path(parts)
        parent, name = os.path.split(path)
        temporary = os.path.join(parent, f".{name}.tmp")
        try:
            self._make(parent)
            if parent == self._root:
                self._check_root()
            self._forget(path)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                began = time.monotonic()
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
            if durable:
                self._changed_directories.add(parent)
                self._sync_directories()
        except OSError as error:
            raise refused("replace", Path(path), error) from error
        if durable:
            self.sync_seconds += time.monotonic() - began

    def make_durable(self, files: Iterable[tuple[str, ...]]) -> None:
        """Make files durable, with their names, that any process put in place with `put_unsynced`.

        A write-back that failed while no process had the file open is reported to the first that opens it afterwards.
        """
        try:
            for parts in files:
                path = self._path(parts)
                try:
                    self._descriptor(path)
                except OSError as error:
                    raise refused("open", Path(path), error) from error
                self._changed_directories.add(os.path.dirname(path))  # another process has changed it
            self.sync()
        finally:
            self.close()

    def move(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Give a file or directory another name below the root, durably; nothing may be at `target`."""
        old, new = self._path(source), self._path(target)
        try:
            self._make(os.path.dirname(new))
            self._sync_directories()
            self._forget_below(old)
            os.replace(old, new)
            self._changed_directories.update((os.path.dirname(old), os.path.dirname(new)))
            self._sync_directories()
        except OSError as error:
            raise refused("move", Path(old), error) from error

    def remove(self, *parts: str) -> None:
        """Remove a file, if it exists; a symbolic link is not reput's, and is refused."""
        path = self._path(parts)
        if Path(path).is_symlink():
            raise refused("remove", Path(path), OSError(errno.ELOOP, "it is a symbolic link, and not reput's own"))
        self._forget(path)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path)
                self._changed_directories.add(os.path.dirname(path))
        except OSError as error:
            raise refused("remove", Path(path), error) from error

    def sync_names(self, *parts: str) -> None:
        """Make the names in a directory durable if they have changed.

        No content depends on it: after a failure it may be called again, and `sync` also tries it again.
        """
        directory = self._path(parts)
        if directory not in self._changed_directories:
            return
        try:
            sync_directory(directory)
        except OSError as error:
            raise refused("sync", Path(directory), error) from error
        self._changed_directories.discard(directory)
        self._synced_directories.add(directory)

    def remove_tree(self, *parts: str) -> None:
        """Remove a directory and everything below it, durably; it is renamed first, so that half of it is never found.

        If a process dies meanwhile, the next call removes the rest under the other name.
        """
        path = Path(self._path(parts))
        leftover = path.with_name(f".{path.name}.removed")
        try:
            _remove_below(leftover)
            self._forget_below(str(path))
            if path.is_dir() and not path.is_symlink():
                os.replace(path, leftover)
                self._changed_directories.add(str(path.parent))
                self._sync_directories()
                _remove_below(leftover)
        except OSError as error:
            raise refused("remove the directory", path, error) from error

    def remove_directory(self, *parts: str) -> None:
        """Remove a directory if it is empty; `sync` makes that durable."""
        path = self._path(parts)
        if not Path(path).is_dir() or any(Path(path).iterdir()):
            return
        self._forget_below(path)
        try:
            os.rmdir(path)
        except OSError as error:
            raise refused("remove the directory", Path(path), error) from error
        self._changed_directories.add(os.path.dirname(path))

    def close(self) -> None:
        """Close every file; unsynced data may be lost."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
        self._dirty.clear()
        self._file_systems.close()
        self._has_closed = False
        for files in self._beside:
            files.close()

    def _path(self, parts: tuple[str, ...]) -> str:
        for part in parts:
            if part in (".", "..") or not _COMPONENT.fullmatch(part):
                raise OutputError(f"{part!r} is not a name for a file or directory below {self.root}", file=self.root)
        return os.path.join(self._root, *parts)

    def _make(self, directory: str) -> None:
        if directory in self._checked_directories:
            return
        is_root, is_new = directory == self._root, True
        if not is_root:
            self._make(os.path.dirname(directory))
            self._check_root()
        try:
            os.mkdir(directory)
        except FileExistsError:
            is_new = False
        except FileNotFoundError:
            if not is_root:
                raise
            os.makedirs(directory)
        if is_root:
            self._file_systems.see(directory, os.stat(directory).st_dev)
        elif not is_new:  # a new directory is on the file system of its parent, which was seen
            status = os.lstat(directory)
            if stat.S_ISLNK(status.st_mode):
                raise OSError(errno.ELOOP, "a symbolic link inside the output is not followed", directory)
            self._file_systems.see(directory, status.st_dev)
        if is_new or not is_root:
            # Also for an existing one below the root: its maker may have died before its name was durable.
            self._changed_directories.add(os.path.dirname(directory))
        self._checked_directories.add(directory)

    def _check_root(self) -> None:
        """Raise FileNotFoundError if the root is another directory than before: a mount point without its disk.

        Nothing below the old root is found in such a directory. Only new files in the root itself would be made in the
        wrong place.
        """
        status = os.stat(self._root)
        identity = status.st_dev, status.st_ino
        if self._identity not in (None, identity):
            raise FileNotFoundError(errno.ENOENT, f"{self.root} is another directory than before", str(self.root))
        self._identity = identity

    def _descriptor(self, path: str) -> int:
        if path not in self._descriptors:
            parent = os.path.dirname(path)
            self._make(parent)
            self._keep(path, os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))
            if parent not in self._synced_directories:
                self._changed_directories.add(parent)  # its name may not be durable yet either
        return self._descriptors[path]

    def _keep(self, key: str, descriptor: int) -> None:
        self._file_systems.watch()
        self._descriptors[key] = descriptor
        self._dirty.add(key)  # it will be written, so it must not be closed as idle below
        if len(self._descriptors) > _OPEN_FILES_MAX:
            self._close_idle()
        if len(self._descriptors) > _OPEN_FILES_MAX:
            # All wait for a sync.
            oldest = [name for name in self._descriptors if name != key][: _OPEN_FILES_MAX // 2]
            if self._are_many:
                self._has_closed = True
                for name in oldest:
                    os.close(self._descriptors.pop(name))
            else:
                self._sync_files(oldest)
                self._close_idle()

    def _close_idle(self) -> None:
        if len(self._descriptors) > _OPEN_FILES_MAX:
            idle = [key for key in self._descriptors if key not in self._dirty]
            # More than one, so that not every opened file causes a search through all others.
            for key in idle[: len(self._descriptors) - _OPEN_FILES_MAX * 3 // 4]:
                os.close(self._descriptors.pop(key))

    def _forget(self, key: str) -> None:
        self._dirty.discard(key)
        descriptor = self._descriptors.pop(key, None)
        if descriptor is not None:
            os.close(descriptor)

    def _forget_below(self, directory: str) -> None:
        """Forget everything about a directory that will be removed, and about all paths below it."""
        for known in [path for path in self._descriptors if _is_at(path, directory)]:
            self._forget(known)
        for names in (self._checked_directories, self._changed_directories, self._synced_directories):
            names -= {path for path in names if _is_at(path, directory)}

    @property
    def _are_many(self) -> bool:
        """Whether so many paths need a sync that their whole file systems are synced."""
        waiting = len(self._changed_directories) + (len(self._dirty) if self._syncs_whole else 0)
        return waiting >= _SYNCED_WHOLE_FROM and self._file_systems.are_synced_whole

    def _sync_whole(self) -> None:
        """Sync whole file systems instead of many files and directories."""
        if not (self._has_closed or self._are_many):
            return
        self._sync_each(lambda _: self._file_systems.sync(), [self._root], alone=1)
        self._has_closed = False
        if self._file_systems.are_synced_whole:
            self._dirty.clear()
            # Other directories may be on another file system where a file was removed and none was written.
            synced = self._changed_directories & self._checked_directories
            self._changed_directories -= synced
            self._synced_directories |= synced
        else:  # files that were closed before a directory on another file system was seen are now synced
            self._dirty &= self._descriptors.keys()

    def _sync_files(self, paths: Sequence[str]) -> None:
        self._sync_each(lambda path: os.fsync(self._descriptors[path]), paths, alone=1)
        self._dirty.difference_update(paths)

    def _sync_directories(self) -> None:
        changed = sorted(self._changed_directories)
        self._sync_each(sync_directory, changed, alone=_SYNC_THREADS)  # a few take less time than threads
        self._changed_directories.clear()
        self._synced_directories.update(changed)

    def _sync_each(self, sync: Callable[[str], None], paths: Sequence[str], *, alone: int) -> None:
        """Sync files or directories: up to `alone` of them in this thread, more concurrently; keep those that fail."""

        def one(path: str) -> None:
            try:
                sync(path)
            except OSError as error:
                error.filename = path
                self._failure = refused("sync", Path(path), error)
                raise

        if len(paths) > alone:
            with ThreadPoolExecutor(_SYNC_THREADS) as pool:
                list(pool.map(one, paths))
        else:
            list(map(one, paths))


def _is_at(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def _remove_below(directory: Path) -> None:
    if not directory.is_dir():
        return
    for path in sorted(directory.rglob("*"), reverse=True):  # paths below a directory come before it
        if path.is_dir() and not path.is_symlink():
            os.rmdir(path)
        else:
            os.unlink(path)
    os.rmdir(directory)


# ----------------------------------------------------------------------------------------------------------------------
# Files that are written once, completely: those that a user names, and a task's messages to the driver.


@contextmanager
def written_beside(path: Path) -> Iterator[BinaryIO]:
    """Write a file beside `path`, then put it durably in its place; an error leaves no file; raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(str(path.parent))


def write_scratch(directory: Path, *parts: bytes | memoryview) -> Path:
    """Write a new file under a unique name, not durably: a task's message to the driver."""
    try:
        descriptor, path = tempfile.mkstemp(dir=directory, suffix=".scratch")
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            for part in parts:
                view = memoryview(part)
                while view:
                    view = view[file.write(view) :]
    except OSError as error:
        raise refused("write a scratch file in", directory, error) from error
    return Path(path)


def remove_scratch(paths: Iterable[Path]) -> None:
    """Remove scratch files that are no longer needed; the next run removes those that cannot be removed now."""
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
