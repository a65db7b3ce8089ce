"""The files of one Delta table, by their names relative to the table's root: bytes in, bytes out.

A name has ``/`` between its parts. A data file that is elsewhere, as those of a shallow clone are, has its whole
location as its name, and can only be read. `TableStorage` says in ten methods what a table asks of the place where it
is; whatever else is asked of it is made of these, once.

On a disk a file gets its name only when it is whole, and the reputs of one machine commit in turn. On S3, Arrow reads,
writes, lists and removes, and boto3 puts what must be absent. An object is there whole, durably and at once, or not at
all. Only a put with the header ``If-None-Match: *`` can leave what another writer has put in peace. Arrow has no such
put, and it cannot ask whether a bucket keeps versions.
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

    @abstractmethod
    def statuses(self, names: Sequence[str]) -> list[FileStatus | None]:
        """What is known of files without opening them; None for a missing one; raises OSError."""

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
            It cannot be written, or it is unknown whether it was.
        """

    @abstractmethod
    def make_durable(self, names: Iterable[str]) -> None:
        """Make files durable that any process has put in place; raises OutputError, also for a missing one."""

    @abstractmethod
    def remove(self, names: Iterable[str], *, durable: bool = False) -> None:
        """Remove files, in this order; missing ones are passed over; raises OutputError.

        Without `durable` they may be there again after a power failure.
        """

    @abstractmethod
    def check(self, *, removes: bool = False) -> None:
        """Try whether `put_if_absent` keeps its promise there; with `removes`, also that removed objects are gone.

        Raises
        ------
        OutputError
            It does not, or a removed object can be read.
        """

    def status(self, name: str) -> FileStatus | None:
        """What is known of a file; None if it is missing; raises OSError."""
        return self.statuses([name])[0]

    @contextmanager
    def parquet(self, name: str, *, texts: Collection[str] = (), **options: Any) -> Iterator[pq.ParquetFile]:
        """A Parquet file, open meanwhile; raises OSError, or pa.ArrowException for one that is none.

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
        """`has_log` says that a table is there: without its log nothing is put, for its disk may be unmounted."""
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
        """Look at files, or at what links lead to; None for a missing one; raises OSError."""
        found: list[FileStatus | None] = []
        for name in names:
            try:
                status = os.stat(self.location / name)
                found.append(FileStatus(name, status.st_size, status.st_mtime_ns / 1e9))
            except _MISSING:
                found.append(None)
        return found

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
            # Hadoop compares a file with the checksums beside it, which may be those of a file that was removed.
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
        """Do nothing: each file system refuses a name that is taken, and a removed file is gone."""


def table_storage(location: TableLocation, *, has_log: bool = False) -> TableStorage:
    """The files of the table at a location; nothing is looked at. `has_log` as in `LocalStorage`."""
    if isinstance(location, Path):
        return LocalStorage(location, has_log=has_log)
    return S3Storage(location)


def is_left_over(name: str) -> bool:
    """Whether a file of a log is what `LocalStorage.put_if_absent` had written when its process died."""
    return _LEFT_OVER.fullmatch(PurePosixPath(name).name) is not None


def sync_directories(*paths: Path) -> None:
    """Make the names in directories durable; raises OutputError."""
    for path in paths:
        with output_errors(f"cannot sync {path}", path):
            sync_directory(str(path))


@contextmanager
def output_errors(what: str, file: TableLocation, kind: type[ReputError] | None = None) -> Iterator[None]:
    """Raise errors of the system and of Arrow about `file` as `kind`, by default by the error, `what` in front."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise (kind or output_error_of(error))(f"{what}: {first_line(error)}", file=file) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    said = getattr(error, "strerror", None) or error
    return printable(str(said).strip().partition("\n")[0])


# ----------------------------------------------------------------------------------------------------------------------
# Turns among the reputs of one machine at what each of them does alone: a lock on a directory, without a file.
#
# Within a process, which may keep several brokers, the first to come is next: of many that ask for a lock again and
# again some would never get it.

_POLL_S = 0.01


class _Line:
    """Those of this process that want one directory's lock, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[object] = deque()
        self._has_moved = threading.Condition()

    def enter(self, seconds: float) -> object | None:
        """Wait until all that came before have left; None if none of them leaves for `seconds`."""
        me = object()
        with self._has_moved:
            self._waiting.append(me)
            while self._waiting[0] is not me:
                if not self._has_moved.wait(seconds) and self._waiting[0] is not me:
                    self._waiting.remove(me)
                    return None
        return me

    def leave(self, me: object) -> None:
        """Let the next one in."""
        with self._has_moved:
            self._waiting.remove(me)
            self._has_moved.notify_all()


_lines: dict[tuple[int, int], _Line] = {}
_lines_lock = threading.Lock()


@contextmanager
def turn(directory: Path, seconds: float) -> Iterator[bool]:
    """Wait for the lock of a directory; gives whether it was got. It ends with its process.

    Another process is waited for at most `seconds`; others of this process as long as each is done in that time.

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
# Where S3 is, read once from the usual environment variables and files, as each of four libraries wants it.
#
# Credentials are not read here: pyarrow, deltalake, boto3 and Hadoop each ask AWS' own chain for them.

_CONNECT_S, _REQUEST_S = 5, 60
# Where AWS itself has a bucket without a region in the settings.
_FIRST_REGION = "us-east-1"


@dataclass(frozen=True)
class S3Place:
    """The server of a bucket: its URL, None for AWS itself, and its region."""

    endpoint: str | None
    region: str

    @classmethod
    def of(cls, bucket: str) -> S3Place:
        """What environment and files say of the server; the region of a bucket of AWS is asked for if they do not.

        Raises
        ------
        OSError
            It is not told, and AWS cannot be asked.
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
        # The caller looks what is there before it puts again.
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
        """Hadoop's settings; `scratch` is a directory for what is being uploaded."""
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
        """For messages."""
        return self.endpoint or f"AWS, region {self.region}"


@cache
def _region_of(bucket: str) -> str:
    from pyarrow.fs import resolve_s3_region  # noqa: PLC0415  only here is it needed

    return str(resolve_s3_region(bucket))


def _variable(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _profile() -> dict[str, str]:
    """What the profile in AWS' configuration file says."""
    name = os.environ.get("AWS_PROFILE") or "default"
    parser = configparser.ConfigParser(interpolation=None)
    with suppress(configparser.Error, OSError, UnicodeDecodeError):
        parser.read(os.environ.get("AWS_CONFIG_FILE") or Path.home() / ".aws" / "config", encoding="utf-8")
    section = name if name == "default" else f"profile {name}"
    return dict(parser[section]) if parser.has_section(section) else {}


# ----------------------------------------------------------------------------------------------------------------------
# The files of a table on S3: Arrow reads, writes, lists and removes, and boto3 puts what must be absent.

_THREADS = 16
# With more files than this a listing is cheaper than a request for each.
_STATUSES_MAX = 64
# After an error it is not known whether a put took effect: so long it is looked for before the put is made again.
_PAUSES_S = (0.1, 0.5, 2.0)
_TEXT_LENGTH_MAX = 300
# What Arrow's errors have in them where the server does not answer, or says that it cannot just now.
_UNANSWERED = (
    *("NETWORK_CONNECTION", "curlCode", "Couldn't connect"),
    *("SERVICE_UNAVAILABLE", "SLOW_DOWN", "INTERNAL_FAILURE", "HTTP status 50"),
)
# What they have in them else, and what that means.
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
# The servers and buckets that were tried, see `S3Storage.check`.
_tried: set[tuple[S3Place, str]] = set()


class S3Storage(TableStorage):
    """A table below a prefix of a bucket."""

    commit_attempts = 40
    commit_pause_s = 0.5

    def __init__(self, location: S3Location, place: S3Place | None = None) -> None:
        """`place` is where S3 is; None: as environment and files say. Nothing is asked of the server."""
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
        """Put a name twice, of which the second put must be refused; `removes` wants a bucket without versions."""
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
        """Raise OutputError if the bucket keeps versions of what is removed, or does not tell."""
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
        """Open an object, of which each read gets a part; raises FileNotFoundError, or another OSError."""
        with self._errors():
            return self._files.open_input_file(self._at(name))

    def dataset(self, names: Iterable[str], schema: pa.Schema) -> Any:
        """The rows of Parquet files as Arrow's ``Dataset`` of this schema, which is read when it is asked for rows."""
        import pyarrow.dataset as arrow  # noqa: PLC0415  most tables are on local disks

        form = arrow.ParquetFileFormat(read_options=arrow.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
        files = [form.make_fragment(self._at(name), self._files) for name in names]
        return arrow.FileSystemDataset(files, schema, form, self._files)

    def _status(self, name: str) -> FileStatus | None:
        with self._errors():
            info = self._files.get_file_info([self._at(name)])[0]
        return FileStatus(name, info.size, info.mtime_ns / 1e9) if info.is_file else None

    def statuses(self, names: Sequence[str]) -> list[FileStatus | None]:
        """Ask for some objects at once, or list the table for many; None for a missing one; raises OSError."""
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
        """Put an object, which is durable then; raises OutputError."""
        try:
            # All of it is there before the stream is opened: Arrow completes an object even when its writer fails.
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
        """Put an object unless there is one; raises OSError.

        True also if the same bytes are there: a client repeats a put whose answer is lost.
        """
        self._check_commits()
        return self._put(name, data)

    def _put(self, name: str, data: bytes) -> bool:
        bucket, _, key = self._at(name).partition("/")
        for pause in (*_PAUSES_S, None):
            try:
                self._client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
            except Exception as error:  # whatever it is, what is there decides
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
        """Arrow's file system of this process: one that a fork takes over has lost its threads."""
        if self._made is None or self._made[0] != os.getpid():
            self._made = os.getpid(), self._place.filesystem()
        return self._made[1]

    @property
    def _client(self) -> Any:
        """boto3's client of this process."""
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
        """Raise Arrow's errors as an OSError in words that say what is wrong; FileNotFoundError as it is."""
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
    """An error's first words: what a server answers may repeat parts of the request."""
    said = str(error).strip().partition("\n")[0].partition("<")[0]
    return printable(said)[:_TEXT_LENGTH_MAX]
