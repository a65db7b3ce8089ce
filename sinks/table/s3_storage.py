"""The files of a table on S3: Arrow reads, writes, lists and removes, and boto3 puts what must be absent.

An object is there whole, durably and at once, or not at all. Only a put with the header ``If-None-Match: *`` can leave
what another writer has put in peace. Arrow has no such put, and it cannot ask whether a bucket keeps versions.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import islice
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from reput.sinks.table.location import S3Location
from reput.sinks.table.s3_place import S3Place
from reput.sinks.table.storage import LOG, PROBE, FileStatus, TableStorage
from reput.source.errors import OutputError, output_error_of
from reput.source.printable import printable

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
# The servers and buckets that were tried, see `check_commits`.
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

    def check_commits(self) -> None:
        """Put a name twice: raises OutputError unless the second put is refused."""
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

    def check_removal(self) -> None:
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
        with self._errors(), self._files.open_input_stream(self._at(name)) as file:
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

    def status(self, name: str) -> FileStatus | None:
        """Ask for size and time of an object; None if it is missing; raises OSError."""
        with self._errors():
            info = self._files.get_file_info([self._at(name)])[0]
        return FileStatus(name, info.size, info.mtime_ns / 1e9) if info.is_file else None

    def statuses(self, names: Sequence[str]) -> list[FileStatus | None]:
        """Ask for some objects at once, or list the table for many; None for a missing one; raises OSError."""
        if len(names) <= _STATUSES_MAX:
            return self._at_once(self.status, names)
        listed = {file.name: file for file in self.files(deep=True)}
        elsewhere = [name for name in names if urlsplit(name).scheme]
        listed |= {file.name: file for file in self._at_once(self.status, elsewhere) if file is not None}
        return [listed.get(name) for name in names]

    def identity(self, name: str) -> tuple[object, ...]:
        """ETag, time and size of an object; () if it is missing; raises OSError."""
        with suppress(FileNotFoundError), self.open(name) as file:
            known = dict(file.metadata() or {})
            return known.get("ETag"), known.get("Last-Modified"), file.size()
        return ()

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
            with self._errors(), self._files.open_output_stream(self._at(name)) as file:
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
        self.check_commits()
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

    def sync_log(self, *names: str) -> None:
        """Do nothing: an object is durable."""

    def sync_new_table(self) -> None:
        """Do nothing: an object is durable."""

    def remove_left_over(self) -> None:
        """Do nothing: an object is there only whole."""

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

    def commit_turn(self, seconds: float) -> AbstractContextManager[bool]:  # noqa: ARG002
        """Nobody waits: a put that must be absent decides who is first."""
        return nullcontext(True)

    def name_of(self, logged: str) -> str:
        """The key below the table's, or the whole location of an object elsewhere."""
        for front in (f"s3a://{self._root}/", f"s3://{self._root}/"):
            if logged.startswith(front):
                return unquote(logged[len(front) :])
        return unquote(logged)

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
