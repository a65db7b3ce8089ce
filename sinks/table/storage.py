"""The files of one Delta table, by their names relative to the table's root: bytes in, bytes out.

A name has ``/`` between its parts. A data file elsewhere, such as one of a shallow clone, has its whole location as its
name, and can only be read. `TableStorage` has ten methods for what a table needs of its place; everything else is made
of these, once.

On a disk a file gets its name only when it is complete, and the reputs of one machine commit in turn. On S3, Arrow
reads, writes, lists and removes, and boto3 puts objects that must not exist yet. An object appears completely, durably
and immediately, or not at all. Only a put with the header ``If-None-Match: *`` never replaces another writer's object.
Arrow has no such put, and it cannot ask whether a bucket keeps versions.
"""

from __future__ import annotations

import configparser
import fcntl
import os
import re
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import now_for_ages, sync_directory
from reput.sinks.table.location import S3Location, TableLocation, table_away
from reput.source.errors import OutputError, ReputError, output_error_of
from reput.source.printable import printable

#: The directory of a table's log.
LOG = "_delta_log"
#: The prefix of the name of an object with which a server is tested.
PROBE = ".reput-probe-"
# The next start removes the temporary files of dead processes; a living process finishes its own within this time.
_LEFT_OVER_SECONDS = 3600
_MARK = "reput-"
# The temporary file of a commit or of its checksum.
_LEFT_OVER = re.compile(rf"\..+\.(?:json|crc)\.{_MARK}.+\.tmp")
# The system's errors for a file that does not exist, or is not below a directory.
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
        The table's root for deltalake.
    commit_attempts
        How often a commit is tried when other writers commit first.
    commit_pause_s
        The longest pause between two attempts; each is random.
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

    @abstractmethod
    def statuses(self, names: Sequence[str]) -> list[FileStatus | None]:
        """The status of files, without opening them; None for a missing one; raises OSError."""

    @abstractmethod
    def files(self, below: str = "", *, deep: bool = False) -> list[FileStatus]:
        """The files in a directory, with `deep` also below it; empty if it is missing; raises OSError."""

    @abstractmethod
    def put(self, name: str, data: Any, *, durable: bool) -> None:
        """Put a file in place, completely or not at all; a file of that name is replaced.

        `data` has Python's buffer protocol. Without `durable`, the file counts only after `make_durable`.

        Raises
        ------
        OutputError
            It cannot be written.
        """

    @abstractmethod
    def new(self, name: str) -> AbstractContextManager[Any]:
        """A new file, to be written in the context.

        At the end of the context the file is in place, not yet durable, unless the context ends with an error.

        Raises
        ------
        OSError, OutputError
            It cannot be written.
        """

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Put a new file in place, completely and durably; return False if one of that name exists, which stays.

        Raises
        ------
        OSError
            It cannot be written, or it is unknown whether it was.
        """

    @abstractmethod
    def make_durable(self, names: Iterable[str]) -> None:
        """Make files durable that any process has put in place; raises OutputError, also for a missing file."""

    @abstractmethod
    def remove(self, names: Iterable[str], *, durable: bool = False) -> None:
        """Remove files, in this order; missing ones are ignored; raises OutputError.

        Without `durable` they may exist again after a power failure.
        """

    @abstractmethod
    def check(self, *, removes: bool = False) -> None:
        """Test whether `put_if_absent` keeps its promise here; with `removes`, also that removed objects are gone.

        Raises
        ------
        OutputError
            It does not, or a removed object can be read.
        """

    def status(self, name: str) -> FileStatus | None:
        """The status of a file; None if it is missing; raises OSError."""
        return self.statuses([name])[0]

    @contextmanager
    def parquet(self, name: str, *, texts: Collection[str] = (), **options: Any) -> Iterator[pq.ParquetFile]:
        """A Parquet file, open in the context; raises OSError, or pa.ArrowException if it is not a Parquet file.

        Those of the columns `texts` that it has are read as dictionaries; `options` are those of ``ParquetFile``.
        """
        with self.open(name) as file:
            if texts:
                metadata = pq.read_metadata(file)
                there = set(texts).intersection(metadata.schema.to_arrow_schema().names)
                options |= {"metadata": metadata, "read_dictionary": sorted(there)}
            with pq.ParquetFile(file, **options) as parquet:
                yield parquet


class LocalStorage(TableStorage):
    """A table below a directory."""

    commit_attempts = 10
    commit_pause_s = 0.0

    def __init__(self, root: Path, *, has_log: bool = False) -> None:
        """With `has_log`, a table exists: nothing is put without its log, because its disk may be unmounted."""
        self._has_log = has_log
        self._has_committed = False
        self.location: Path = root
        self.uri = root.resolve().as_uri()
        self.deltalake_options = {}

    def _check_log(self) -> None:
        if self._has_log and not (self.location / LOG).is_dir():
            raise table_away(self.location)

    def read(self, name: str) -> bytes:
        """Read a file; raises FileNotFoundError, or another OSError."""
        return (self.location / name).read_bytes()

    def open(self, name: str) -> Any:
        """Open a file as Arrow's ``OSFile``; raises FileNotFoundError, or another OSError."""
        return pa.OSFile(str(self.location / name))

    def statuses(self, names: Sequence[str]) -> list[FileStatus | None]:
        """Get the status of files, or of the targets of links; None for a missing one; raises OSError."""
        found: list[FileStatus | None] = []
        for name in names:
            try:
                status = os.stat(self.location / name)
                found.append(FileStatus(name, status.st_size, status.st_mtime_ns / 1e9))
            except _MISSING:
                found.append(None)
        return found

    def files(self, below: str = "", *, deep: bool = False) -> list[FileStatus]:
        """List a directory, with `deep` everything below it; links are not followed; raises OSError."""
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
        """Write a file under its own name; after an error it is removed."""
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
        if not self._has_committed:
            self._remove_left_over()
            self._has_committed = True
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
            # Hadoop compares a file with the checksums beside it, which may be those of a removed file.
            with suppress(FileNotFoundError):
                os.unlink(path.with_name(f".{path.name}.crc"))
            sync_directory(str(path.parent))
            return True
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def make_durable(self, names: Iterable[str]) -> None:
        """Sync files and their directories; raises OutputError."""
        DurableFiles(self.location).make_durable(tuple(name.split("/")) for name in names)

    def remove(self, names: Iterable[str], *, durable: bool = False) -> None:
        """Remove files in this order, and with `durable` sync their directories; raises OutputError."""
        files = DurableFiles(self.location)
        for name in names:
            files.remove(*name.split("/"))
        if durable:
            files.sync()

    def _remove_left_over(self) -> None:
        """Remove temporary files of commits and checksums that are older than an hour."""
        for path in (self.location / LOG).glob(".*.tmp"):
            with suppress(OSError):
                if is_left_over(path.name) and now_for_ages() - path.stat().st_mtime > _LEFT_OVER_SECONDS:
                    path.unlink()

    def check(self, *, removes: bool = False) -> None:
        """Do nothing: each file system refuses an existing name, and a removed file is gone."""


def table_storage(location: TableLocation, *, has_log: bool = False) -> TableStorage:
    """The files of the table at a location, without any access to it. `has_log` as in `LocalStorage`."""
    if isinstance(location, Path):
        return LocalStorage(location, has_log=has_log)
    return S3Storage(location)


def is_left_over(name: str) -> bool:
    """Whether a file of a log is a temporary file of `LocalStorage.put_if_absent` whose process died."""
    return _LEFT_OVER.fullmatch(PurePosixPath(name).name) is not None


def sync_directories(*paths: Path) -> None:
    """Make the names in directories durable; raises OutputError."""
    for path in paths:
        with output_errors(f"cannot sync {path}", path):
            sync_directory(str(path))


@contextmanager
def output_errors(what: str, file: TableLocation, kind: type[ReputError] | None = None) -> Iterator[None]:
    """Raise errors of the system and of Arrow about `file` as `kind`, with `what` before their text.

    Without a `kind`, the error decides about the class.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise (kind or output_error_of(error))(f"{what}: {first_line(error)}", file=file) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    said = getattr(error, "strerror", None) or error
    return printable(str(said).strip().partition("\n")[0])


# ----------------------------------------------------------------------------------------------------------------------
# Turns among the reputs of one machine: a lock on a directory, without a file.
#
# Within a process, which may keep several brokers, threads get the lock in the order in which they came: of many that
# ask for a lock again and again some would never get it.

_POLL_S = 0.01


class _Line:
    """The threads of this process that wait for one directory's lock, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[object] = deque()
        self._has_moved = threading.Condition()

    def enter(self, seconds: float) -> object | None:
        """Wait until all earlier threads have left; return None if none of them leaves for `seconds`."""
        me = object()
        with self._has_moved:
            self._waiting.append(me)
            while self._waiting[0] is not me:
                if not self._has_moved.wait(seconds) and self._waiting[0] is not me:
                    self._waiting.remove(me)
                    return None
        return me

    def leave(self, me: object) -> None:
        with self._has_moved:
            self._waiting.remove(me)
            self._has_moved.notify_all()


_lines: dict[tuple[int, int], _Line] = {}
_lines_lock = threading.Lock()


@contextmanager
def turn(directory: Path, seconds: float) -> Iterator[bool]:
    """Wait for the lock of a directory; yield whether this process got it. It ends with its process.

    Wait at most `seconds` for a lock held by another process. Waits inside this process do not count while each holder
    finishes within `seconds`.

    Raises
    ------
    OSError
        The directory cannot be opened or locked.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        line = _line_of(descriptor)
        me = line.enter(seconds)
        if me is None:
            yield False
            return
        try:
            yield _is_locked(descriptor, time.monotonic() + seconds)
        finally:
            line.leave(me)
    finally:
        os.close(descriptor)


def _line_of(descriptor: int) -> _Line:
    status = os.fstat(descriptor)
    with _lines_lock:
        return _lines.setdefault((status.st_dev, status.st_ino), _Line())


def _is_locked(descriptor: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True


# ----------------------------------------------------------------------------------------------------------------------
# The place of S3, read once from the usual environment variables and files, in the form for each of four libraries.
#
# Credentials are not read here: pyarrow, deltalake, boto3 and Hadoop each ask AWS' own chain for them.

_CONNECT_S, _REQUEST_S = 5, 60
# The region of AWS for a bucket without a region in the settings.
_FIRST_REGION = "us-east-1"


@dataclass(frozen=True)
class S3Place:
    """The server of a bucket: its URL, None for AWS itself, and its region."""

    endpoint: str | None
    region: str

    @classmethod
    def of(cls, bucket: str) -> S3Place:
        """The server by environment and files; if they name no region, AWS is asked for the region of a bucket.

        Raises
        ------
        OSError
            There is no region, and AWS cannot be asked.
        """
        profile = _profile()
        endpoint = _variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") or profile.get("endpoint_url")
        region = _variable("AWS_REGION", "AWS_DEFAULT_REGION") or profile.get("region")
        if region is None and endpoint is None:
            region = _region_of(bucket)
        return cls(endpoint, region or _FIRST_REGION)

    def filesystem(self) -> Any:
        """Arrow's file system; an object of up to 10 MB is one request."""
        from pyarrow.fs import S3FileSystem  # noqa: PLC0415  most tables are on local disks

        options: dict[str, Any] = {"region": self.region, "allow_delayed_open": True}
        options |= {"connect_timeout": _CONNECT_S, "request_timeout": _REQUEST_S}
        if self.endpoint:
            at = urlsplit(self.endpoint)
            options |= {"endpoint_override": at.netloc + at.path.rstrip("/"), "scheme": at.scheme}
        return S3FileSystem(**options)

    def client(self) -> Any:
        """boto3's client."""
        import boto3  # noqa: PLC0415  most tables are on local disks
        from botocore.config import Config  # noqa: PLC0415

        options: dict[str, Any] = {"connect_timeout": _CONNECT_S, "read_timeout": _REQUEST_S}
        # The caller checks what exists before it puts again.
        options["retries"] = {"total_max_attempts": 1}
        # Servers other than AWS have no names for buckets, and not all of them know its newer checksums.
        if self.endpoint:
            options |= {"s3": {"addressing_style": "path"}, "request_checksum_calculation": "when_required"}
        return boto3.client("s3", endpoint_url=self.endpoint, region_name=self.region, config=Config(**options))

    def deltalake_options(self) -> dict[str, str]:
        """The ``storage_options`` of deltalake."""
        options = {"aws_region": self.region, "aws_force_credential_load": "true"}
        if self.endpoint:
            options["aws_endpoint_url"] = self.endpoint
            options["aws_allow_http"] = str(urlsplit(self.endpoint).scheme == "http").lower()
        return options

    def hadoop_settings(self, scratch: Path) -> dict[str, str]:
        """Hadoop's settings; `scratch` is a directory for data that is being uploaded."""
        settings = {
            "fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
            "fs.s3a.endpoint.region": self.region,
            "fs.s3a.input.stream.type": "classic",
            "fs.s3a.buffer.dir": str(scratch),
            # An endpoint that is down is reported after seconds, not minutes.
            "fs.s3a.attempts.maximum": "3",
            "fs.s3a.retry.limit": "3",
        }
        if self.endpoint:
            is_tls = urlsplit(self.endpoint).scheme == "https"
            settings["fs.s3a.endpoint"] = self.endpoint
            settings["fs.s3a.path.style.access"] = "true"
            settings["fs.s3a.connection.ssl.enabled"] = str(is_tls).lower()
        return settings

    def __str__(self) -> str:
        """The place in words, for messages."""
        return self.endpoint or f"AWS, region {self.region}"


@cache
def _region_of(bucket: str) -> str:
    from pyarrow.fs import resolve_s3_region  # noqa: PLC0415  only here is it needed

    return str(resolve_s3_region(bucket))


def _variable(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _profile() -> dict[str, str]:
    name = os.environ.get("AWS_PROFILE") or "default"
    parser = configparser.ConfigParser(interpolation=None)
    with suppress(configparser.Error, OSError, UnicodeDecodeError):
        parser.read(os.environ.get("AWS_CONFIG_FILE") or Path.home() / ".aws" / "config", encoding="utf-8")
    section = name if name == "default" else f"profile {name}"
    return dict(parser[section]) if parser.has_section(section) else {}


# ----------------------------------------------------------------------------------------------------------------------
# The files of a table on S3: Arrow reads, writes, lists and removes, and boto3 puts objects that must not exist yet.

_THREADS = 16
# With more files than this a listing is cheaper than a request for each.
_STATUSES_MAX = 64
# After an error it is unknown whether a put took effect: the pauses between searches for it, before the next put.
_PAUSES_S = (0.1, 0.5, 2.0)
_TEXT_LENGTH_MAX = 300
# Words in Arrow's errors if the server does not answer, or says that it cannot at the moment.
_UNANSWERED = (
    *("NETWORK_CONNECTION", "curlCode", "Couldn't connect"),
    *("SERVICE_UNAVAILABLE", "SLOW_DOWN", "INTERNAL_FAILURE", "HTTP status 50"),
)
# Other words in them, and their meaning.
_MEANINGS = (
    (("NO_SUCH_BUCKET", "NoSuchBucket"), "there is no bucket {bucket}"),
    (
        (
            "ACCESS_DENIED",
            "INVALID_ACCESS_KEY_ID",
            "SIGNATURE_DOES_NOT_MATCH",
            "HTTP status 403",
            "INVALID_CLIENT_TOKEN",
        ),
        "{place} refuses the credentials, or they do not allow this",
    ),
)
# The servers and buckets that were tested, see `S3Storage.check`.
_tried: set[tuple[S3Place, str]] = set()


class S3Storage(TableStorage):
    """A table below a prefix of a bucket."""

    commit_attempts = 40
    commit_pause_s = 0.5

    def __init__(self, location: S3Location, place: S3Place | None = None) -> None:
        """Take the place of S3; None: by environment and files. No request is made."""
        self.location: S3Location = location
        try:
            self._place = place or S3Place.of(location.bucket)
        except OSError as error:
            raise OutputError(f"cannot read {location}: {_cut(error)}", file=location) from error
        self._root = f"{location.bucket}/{location.key}"
        self.uri = f"s3://{self._root}"
        self.deltalake_options = self._place.deltalake_options()
        self._made: tuple[int, Any] | None = None
        self._client_made: tuple[int, Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return S3Storage, (self.location, self._place)

    def check(self, *, removes: bool = False) -> None:
        """Put a name twice, of which the second put must be refused; `removes` requires a bucket without versions."""
        self._check_commits()
        if removes:
            self._check_removal()

    def _check_commits(self) -> None:
        if (self._place, self.location.bucket) in _tried:
            return
        name = f"{LOG}/{PROBE}{uuid.uuid4()}"
        try:
            is_heeded = self._put(name, b"1") and not self._put(name, b"2")
        except OSError as error:
            kind = output_error_of(error)
            raise kind(f"cannot write to {self.location}: {error}", file=self.location) from error
        finally:
            with suppress(OutputError):  # the credentials may not allow it
                self.remove([name])
        if not is_heeded:
            raise OutputError(
                f"{self.location}: {self._place} ignores If-None-Match, so writers could overwrite "
                "each other's commits",
                advice="give a server that heeds it, as AWS does",
                file=self.location,
            )
        _tried.add((self._place, self.location.bucket))

    def _check_removal(self) -> None:
        """Raise OutputError if the bucket keeps versions of removed objects, or does not say."""
        bucket = self.location.bucket
        try:
            # A bucket that never had versions has no status.
            if "Status" not in self._client.get_bucket_versioning(Bucket=bucket):
                return
            what, advice = "keeps versions of objects", "move the table to a bucket that never had versions"
        except Exception as error:  # noqa: BLE001  boto3 raises many kinds
            what, advice = f"does not tell whether it keeps versions: {_cut(error)}", "allow s3:GetBucketVersioning"
        raise OutputError(
            f"{self.location}: the bucket {bucket} {what}, so what is removed could be read again",
            advice=advice,
            file=self.location,
        )

    def read(self, name: str) -> bytes:
        """Get an object; raises FileNotFoundError, or another OSError."""
        with self._errors(), self._files.open_input_stream(self._at(name), compression=None) as file:
            return bytes(file.readall())

    def open(self, name: str) -> Any:
        """Open an object for reads of parts; raises FileNotFoundError, or another OSError."""
        with self._errors():
            return self._files.open_input_file(self._at(name))

    def dataset(self, names: Iterable[str], schema: pa.Schema) -> Any:
        """The rows of Parquet files as Arrow's ``Dataset`` of this schema, which reads them on demand."""
        import pyarrow.dataset as arrow  # noqa: PLC0415  most tables are on local disks

        form = arrow.ParquetFileFormat(read_options=arrow.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
        files = [form.make_fragment(self._at(name), self._files) for name in names]
        return arrow.FileSystemDataset(files, schema, form, self._files)

    def _status(self, name: str) -> FileStatus | None:
        with self._errors():
            info = self._files.get_file_info([self._at(name)])[0]
        return FileStatus(name, info.size, info.mtime_ns / 1e9) if info.is_file else None

    def statuses(self, names: Sequence[str]) -> list[FileStatus | None]:
        """Request the status of a few objects, or list the table for many; None for a missing one; raises OSError."""
        if len(names) <= _STATUSES_MAX:
            return self._at_once(self._status, names)
        listed = {file.name: file for file in self.files(deep=True)}
        elsewhere = [name for name in names if urlsplit(name).scheme]
        listed |= {file.name: file for file in self._at_once(self._status, elsewhere) if file is not None}
        return [listed.get(name) for name in names]

    def files(self, below: str = "", *, deep: bool = False) -> list[FileStatus]:
        """List the objects below a prefix; raises OSError, also if the bucket is missing."""
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415  as in S3Place

        selector = FileSelector(self._at(below).rstrip("/"), recursive=deep, allow_not_found=True)
        with self._errors():
            found = self._files.get_file_info(selector)
            if not found and self._files.get_file_info([self.location.bucket])[0].type == FileType.NotFound:
                raise OSError(f"there is no bucket {self.location.bucket}")
        front = len(self._root) + 1
        return [FileStatus(each.path[front:], each.size, each.mtime_ns / 1e9) for each in found if each.is_file]

    def put(self, name: str, data: Any, *, durable: bool) -> None:  # noqa: ARG002  it always is
        """Put an object, which is then durable; raises OutputError."""
        try:
            # All data is ready before the stream is opened: Arrow completes an object even if its writer fails.
            with self._errors(), self._files.open_output_stream(self._at(name), compression=None) as file:
                file.write(data)
        except OSError as error:
            kind = output_error_of(error)
            raise kind(f"cannot write {self.location / name}: {error}", file=self.location / name) from error

    @contextmanager
    def new(self, name: str) -> Iterator[Any]:
        """Collect an object in memory, then put it."""
        buffer = pa.BufferOutputStream()
        yield buffer
        self.put(name, buffer.getvalue(), durable=True)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Put an object unless one exists; raises OSError.

        Returns True also if an object with the same bytes exists: a client repeats a put whose answer is lost.
        """
        self._check_commits()
        return self._put(name, data)

    def _put(self, name: str, data: bytes) -> bool:
        bucket, _, key = self._at(name).partition("/")
        for pause in (*_PAUSES_S, None):
            try:
                self._client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
            except Exception as error:  # whatever it is, the existing object decides
                with suppress(FileNotFoundError):
                    return self.read(name) == data
                if pause is None:
                    raise OSError(_cut(error)) from error
                time.sleep(pause)
            else:
                return True
        raise AssertionError

    def make_durable(self, names: Iterable[str]) -> None:
        """Do nothing: an object is durable."""

    def remove(self, names: Iterable[str], *, durable: bool = False) -> None:  # noqa: ARG002  it always is
        """Remove objects in this order, some at a time; raises OutputError."""
        left = iter(names)
        while some := list(islice(left, _THREADS)):
            self._at_once(self._remove, some)

    def _remove(self, name: str) -> None:
        try:
            with suppress(FileNotFoundError), self._errors():
                self._files.delete_file(self._at(name))
        except OSError as error:
            kind = output_error_of(error)
            raise kind(f"cannot remove {self.location / name}: {error}", file=self.location / name) from error

    @property
    def _files(self) -> Any:
        """Arrow's file system of this process; after a fork it has lost its threads, so each process makes its own."""
        if self._made is None or self._made[0] != os.getpid():
            self._made = os.getpid(), self._place.filesystem()
        return self._made[1]

    @property
    def _client(self) -> Any:
        if self._client_made is None or self._client_made[0] != os.getpid():
            self._client_made = os.getpid(), self._place.client()
        return self._client_made[1]

    def _at(self, name: str) -> str:
        return name.partition("://")[2] if urlsplit(name).scheme else f"{self._root}/{name}"

    @staticmethod
    def _at_once(action: Callable[[str], Any], names: Sequence[str]) -> list[Any]:
        if len(names) < 2:
            return [action(name) for name in names]
        with ThreadPoolExecutor(min(_THREADS, len(names))) as pool:
            return list(pool.map(action, names))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise Arrow's errors as an OSError in words that name the fault; FileNotFoundError stays."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            said = str(error)
            if any(mark in said for mark in _UNANSWERED):
                raise ConnectionError(f"{self._place} does not answer") from error
            for marks, meaning in _MEANINGS:
                if any(mark in said for mark in marks):
                    raise OSError(meaning.format(place=self._place, bucket=self.location.bucket)) from error
            raise OSError(_cut(error)) from error


def _cut(error: BaseException) -> str:
    """An error's first words: the server's answer may repeat parts of the request."""
    said = str(error).strip().partition("\n")[0].partition("<")[0]
    return printable(said)[:_TEXT_LENGTH_MAX]
