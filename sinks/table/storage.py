"""The files of one Delta table, by their names relative to the table's root: bytes in, bytes out.

A name has ``/`` between its parts. A data file that is elsewhere, as those of a shallow clone are, has its whole
location as its name, and can only be read.
"""

from __future__ import annotations

import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_age import now_for_ages
from reput.sinks.table.location import TableLocation, file_path, table_away
from reput.sinks.table.turns import turn
from reput.source.errors import output_error_of

#: The directory of a table's log.
LOG = "_delta_log"
#: Begins the name of an object by which a server is tried.
PROBE = ".reput-probe-"
# The next start removes what a dead process left of its commits; a living process finishes its own within this time.
_LEFT_OVER_SECONDS = 3600
_MARK = "reput-"
# Of a commit or of its checksum.
_LEFT_OVER = re.compile(rf"\..+\.(?:json|crc)\.{_MARK}.+\.tmp")
# What the system says of a file that is not there, or not below a directory.
_MISSING = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True)
class FileStatus:
    """A file of a table; `modified_s` is in seconds since 1970."""

    name: str
    size_bytes: int
    modified_s: float


class TableStorage(ABC):
    """The files of the table at `location`. It can be pickled, so that tasks get it.

    Attributes
    ----------
    location
        The table's root, for messages and Spark.
    uri, deltalake_options
        The same for deltalake.
    commit_attempts
        How often a commit is tried when other writers commit first.
    commit_pause_s
        At most so long, a random time, is waited for between two attempts.
    """

    location: TableLocation
    uri: str
    deltalake_options: dict[str, str]
    commit_attempts: int
    commit_pause_s: float

    @abstractmethod
    def read(self, name: str) -> bytes:
        """A file's content; raises FileNotFoundError, or another OSError."""

    @abstractmethod
    def open(self, name: str) -> Any:
        """A file as Arrow's ``NativeFile``, to be closed; raises FileNotFoundError, or another OSError."""

    @contextmanager
    def parquet(self, name: str, **options: Any) -> Iterator[pq.ParquetFile]:
        """A Parquet file, open meanwhile; raises OSError, or pa.ArrowException for one that is none."""
        with self.open(name) as file, pq.ParquetFile(file, **options) as parquet:
            yield parquet

    @abstractmethod
    def status(self, name: str) -> FileStatus | None:
        """What is known of a file without opening it; None if it is missing; raises OSError."""

    def statuses(self, names: Sequence[str]) -> list[FileStatus | None]:
        """`status` of each of the names."""
        return [self.status(name) for name in names]

    @abstractmethod
    def identity(self, name: str) -> tuple[object, ...]:
        """What distinguishes a file from others of its name; () if it is missing; raises OSError."""

    @abstractmethod
    def files(self, below: str = "", *, deep: bool = False) -> list[FileStatus]:
        """The files in a directory, with `deep` those of all below it, too; none if it is missing; raises OSError."""

    @abstractmethod
    def put(self, name: str, data: Any, *, durable: bool) -> None:
        """Put a file in place, whole or not at all; one of that name is replaced.

        `data` has Python's buffer protocol. What is not `durable` must pass `make_durable` before it counts.

        Raises
        ------
        OutputError
            It cannot be written.
        """

    @abstractmethod
    def new(self, name: str) -> AbstractContextManager[Any]:
        """A new file, to be written meanwhile; it is in place, not yet durable, unless the context ends with an error.

        Raises
        ------
        OSError, OutputError
            It cannot be written.
        """

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Put a new file in place, whole and durably; False if one of that name was there, which stays.

        Raises
        ------
        OSError
            It cannot be written, or nobody knows whether it was.
        """

    @abstractmethod
    def make_durable(self, names: Iterable[str]) -> None:
        """Make files durable that any process has put in place; raises OutputError, also for a missing one."""

    @abstractmethod
    def sync_log(self, *names: str) -> None:
        """Make files of the log durable that a library wrote, those that are there; raises OutputError."""

    @abstractmethod
    def sync_new_table(self) -> None:
        """Make a table durable that was just made; raises OutputError."""

    @abstractmethod
    def remove(self, names: Iterable[str], *, durable: bool = False) -> None:
        """Remove files, in this order; missing ones are passed over; raises OutputError.

        Without `durable` they may be there again after a power failure.
        """

    @abstractmethod
    def remove_left_over(self) -> None:
        """Remove what dead processes left of their commits."""

    @abstractmethod
    def check_commits(self) -> None:
        """Try whether `put_if_absent` keeps its promise there; raises OutputError if it cannot."""

    @abstractmethod
    def check_removal(self) -> None:
        """Check that nobody can read what is removed; raises OutputError if somebody may."""

    @abstractmethod
    def commit_turn(self, seconds: float) -> AbstractContextManager[bool]:
        """Wait at most `seconds` until no other reput of this machine commits; raises OSError."""

    @abstractmethod
    def name_of(self, logged: str) -> str:
        """The name of a data file by its URL-encoded name in the table's log, or by a URI."""

    def for_commits(self) -> TableStorage:
        """The same of a table that is there: nothing is put where its log is missing, as on an unmounted disk."""
        return self


class LocalStorage(TableStorage):
    """A table below a directory."""

    commit_attempts = 10
    commit_pause_s = 0.0

    def __init__(self, root: Path, *, has_log: bool = False) -> None:
        """`has_log` says that a table is there: without its log nothing is put, for its disk may be unmounted."""
        self._has_log = has_log
        self.location: Path = root
        self.uri = root.resolve().as_uri()
        self.deltalake_options = {}

    def for_commits(self) -> LocalStorage:
        """It puts files only where the table's log is."""
        return LocalStorage(self.location, has_log=True)

    def _check_log(self) -> None:
        if self._has_log and not (self.location / LOG).is_dir():
            raise table_away(self.location)

    def read(self, name: str) -> bytes:
        """Read a file; raises FileNotFoundError, or another OSError."""
        return (self.location / name).read_bytes()

    def open(self, name: str) -> Any:
        """Open a file as Arrow's ``OSFile``; raises FileNotFoundError, or another OSError."""
        return pa.OSFile(str(self.location / name))

    def status(self, name: str) -> FileStatus | None:
        """Look at a file, or at what a link leads to; None if it is missing; raises OSError."""
        with suppress(*_MISSING):
            status = (self.location / name).stat()
            return FileStatus(name, status.st_size, status.st_mtime_ns / 1e9)
        return None

    def identity(self, name: str) -> tuple[object, ...]:
        """Inode, time and size of a file; () if it is missing; raises OSError."""
        with suppress(*_MISSING):
            status = (self.location / name).stat()
            return status.st_ino, status.st_mtime_ns, status.st_size
        return ()

    def files(self, below: str = "", *, deep: bool = False) -> list[FileStatus]:
        """List a directory, with `deep` all below it; links are not followed; raises OSError."""
        found, directories = [], [below]
        while directories:
            directory = directories.pop()
            with suppress(*_MISSING), os.scandir(self.location / directory) as entries:
                for entry in entries:
                    name = f"{directory}/{entry.name}".lstrip("/")
                    if entry.is_dir(follow_symlinks=False):
                        directories += [name] if deep else []
                        continue
                    with suppress(*_MISSING):
                        status = entry.stat(follow_symlinks=False)
                        found.append(FileStatus(name, status.st_size, status.st_mtime_ns / 1e9))
        return found

    def put(self, name: str, data: Any, *, durable: bool) -> None:
        """Write a file under another name, then rename it; raises OutputError."""
        self._check_log()
        files = DurableFiles(self.location)
        (files.replace if durable else files.put_unsynced)(*name.split("/"), data=data)

    @contextmanager
    def new(self, name: str) -> Iterator[Any]:
        """Write a file under its own name; what an error leaves of it is removed."""
        self._check_log()
        path = self.location / name
        try:
            with pa.OSFile(str(path), "wb") as file:
                yield file
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a file under another name, then give it its own by ``link(2)``; raises OSError."""
        path = self.location / name
        temporary = path.with_name(f".{path.name}.{_MARK}{uuid.uuid4()}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            # Hadoop compares a file with the checksums beside it, which may be those of a file that was removed.
            with suppress(FileNotFoundError):
                os.unlink(path.with_name(f".{path.name}.crc"))
            _sync(path.parent)
            return True
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def make_durable(self, names: Iterable[str]) -> None:
        """Sync files and their directories; raises OutputError."""
        DurableFiles(self.location).make_durable(tuple(name.split("/")) for name in names)

    def sync_log(self, *names: str) -> None:
        """Sync files of the log: deltalake does not, and a torn log makes the table unreadable."""
        log = self.location / LOG
        _sync_existing(*(log / part for name in names for part in (name, f".{name}.crc")), log)

    def sync_new_table(self) -> None:
        """Sync the log of a new table, and the directories above it; raises OutputError."""
        log = self.location / LOG
        _sync_existing(*log.iterdir(), log, self.location, self.location.parent)

    def remove(self, names: Iterable[str], *, durable: bool = False) -> None:
        """Remove files in this order, and with `durable` sync their directories; raises OutputError."""
        files = DurableFiles(self.location)
        for name in names:
            files.remove(*name.split("/"))
        if durable:
            files.sync()

    def remove_left_over(self) -> None:
        """Remove temporary files of commits and checksums that are older than an hour."""
        for path in (self.location / LOG).glob(".*.tmp"):
            with suppress(OSError):
                if is_left_over(path.name) and now_for_ages() - path.stat().st_mtime > _LEFT_OVER_SECONDS:
                    path.unlink()

    def check_commits(self) -> None:
        """Do nothing: each file system refuses a name that is taken."""

    def check_removal(self) -> None:
        """Do nothing: a removed file is gone."""

    def commit_turn(self, seconds: float) -> AbstractContextManager[bool]:
        """Wait for the lock of the log's directory, at most `seconds`; raises OSError."""
        return turn(self.location / LOG, seconds)

    def name_of(self, logged: str) -> str:
        """The path below the root, or the whole path of a file elsewhere."""
        path = file_path(self.location, logged)
        for root in (self.location, self.location.resolve()):
            if path.is_relative_to(root):
                return str(path.relative_to(root))
        return str(path)


def table_storage(location: TableLocation) -> TableStorage:
    """The files of the table at a location; nothing is looked at."""
    if isinstance(location, Path):
        return LocalStorage(location)
    from reput.sinks.table.s3_storage import S3Storage  # noqa: PLC0415  it is made of this module's

    return S3Storage(location)


def is_left_over(name: str) -> bool:
    """Whether a file of a log is what `LocalStorage.put_if_absent` had written when its process died."""
    return _LEFT_OVER.fullmatch(PurePosixPath(name).name) is not None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_existing(*paths: Path) -> None:
    for path in paths:
        try:
            with suppress(FileNotFoundError):
                _sync(path)
        except OSError as error:
            raise output_error_of(error)(f"cannot sync {path}: {error.strerror}", file=path) from error
