"""The segments of a commitlog on disk: names, sizes, holes, reads, and their listing while the log grows.

``MappedFileQueue`` and ``MultiPathMappedFileQueue`` of the broker, for a reader: nothing here ever opens a file for
writing.

A live log is looked at many times a second, so its segments are listed again only when they may have changed
(``SegmentListing``). A directory's time of change shows that segments came, went or were renamed. That time has a
granularity, so the listing of a directory that has just changed is not relied on. Where it is coarser, or a network's
file system shows it late, a listing is outdated after `_LISTED_EVERY_S`. The contents of segments are never judged by a
time: a broker writes to them through a mapping, which may leave their times unchanged.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from reput.source.errors import (
    UNANSWERED,
    DataLossError,
    OptionError,
    ReputError,
    SegmentError,
    StoreError,
    TransientError,
    who_refuses,
)
from reput.source.log.store_layout import check_is_commit_log, is_file_name, no_commit_log
from reput.source.record import dledger_entry as dle
from reput.source.record import message_format as fmt
from reput.source.record.dledger_entry import ENTRY_HEADER_SIZE
from reput.source.record.message_format import BORNHOST_V6_FLAG
from reput.source.system import limit_reached, open_unnoticed

_log = logging.getLogger(__name__)


class SegmentContent(Protocol):
    """The bytes of a segment that has no file of its own, such as one in a backup. It can be pickled, for tasks."""

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view` with the segment's bytes from `position`; return their number, 0 only at the segment's end.

        Raises StoreError.
        """


#: An open segment: a descriptor of its file, or its content.
OpenFile: TypeAlias = int | SegmentContent


@dataclass(frozen=True, order=True)
class MappedFile:
    """One segment: the physical offset of its first byte, its size in bytes, its path.

    `frame` is the size in bytes of the header before each record: 0, or ``dledger_entry.ENTRY_HEADER_SIZE``. With
    `content` there is no file at the path, which is then only for messages.
    """

    file_from_offset: int
    size: int
    path: str
    frame: int = 0
    content: SegmentContent | None = field(default=None, compare=False)

    @property
    def end(self) -> int:
        """The physical offset after its last byte."""
        return self.file_from_offset + self.size


@contextmanager
def open_for_reading(path: str, offset: int | None = None) -> Iterator[int]:
    """A read-only descriptor that leaves no trace, not even an access time where the system allows that.

    `offset` is the wanted physical offset, for an error to name.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    StoreError, TransientError
        Opening it failed, or reading it inside the ``with``; see ``read_error``.
    """
    try:
        descriptor = open_unnoticed(path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        if (known := read_error(path, error, offset)) is None:
            raise
        raise known from error


@contextmanager
def open_segment(file: MappedFile, doing: str = "it was looked at", offset: int | None = None) -> Iterator[OpenFile]:
    """A segment, open for reading; `offset` is the wanted physical offset, for an error to name.

    Raises
    ------
    DataLossError
        The segment has gone since it was listed; `doing` tells the message what it was opened for.
    StoreError, TransientError
        Opening it failed, or reading it inside the ``with``; see ``read_error``.
    """
    if file.content is not None:
        yield file.content
        return
    try:
        with open_for_reading(file.path, offset) as descriptor:
            yield descriptor
    except FileNotFoundError as error:
        if error.filename != file.path:
            raise
        raise DataLossError(f"{file.path} is gone: the log expired while {doing}", file=file.path) from None


def read_fully(opened: OpenFile, buffer: Any, size: int, offset: int) -> int:
    """Fill `buffer[:size]` (uint8) with the file's bytes from `offset`; return how many the file had."""
    return _fill(opened, buffer.data[:size], offset)


def read_at(opened: OpenFile, size: int, offset: int) -> bytes:
    """The `size` bytes at the file's byte `offset`, fewer at its end."""
    data = bytearray(size)
    return bytes(data[: _fill(opened, memoryview(data), offset)])


def _fill(opened: OpenFile, view: memoryview, offset: int) -> int:
    done = 0
    while done < len(view):
        rest, at = view[done:], offset + done
        got = os.preadv(opened, [rest], at) if isinstance(opened, int) else opened.read_into(rest, at)
        if got == 0:
            break
        done += got
    return done


def cut_short(file: MappedFile, offset: int, what: str) -> DataLossError:
    """The error for a segment that ended too early while `what` was read from `offset`."""
    return DataLossError(
        f"{file.path} is shorter than its {file.size} bytes: it was cut while {what} was read",
        file=file.path,
        physical_offset=offset,
    )


def read_head(file: MappedFile, size: int, position: int = 0) -> bytes:
    """The first `size` bytes of a segment, or the `size` bytes at `position`; fewer at its end.

    Raises
    ------
    DataLossError
        It has gone since it was listed.
    """
    with open_segment(file) as opened:
        return read_at(opened, size, position)


_FIRST_BYTE = attrgetter("file_from_offset")


@dataclass(frozen=True)
class MappedFileQueue:
    """The row of segments, oldest first. A snapshot: load again to see new and expired files.

    `unfinished` is the path of a last file that has no size yet, or None; it is not among `files`. `known_end` is the
    offset where the log ends; None if it must be searched for.
    """

    files: tuple[MappedFile, ...]
    paths: tuple[Path, ...]
    unfinished: str | None = None
    known_end: int | None = None

    @classmethod
    def load(
        cls, paths: Sequence[Path], mapped_file_size: int | None = None, *, dledger: bool = False
    ) -> MappedFileQueue:
        """List the segments of one commitlog, which may lie in several directories.

        With `dledger`, its records are DLedger's from some file on. The files before hold plain records if a broker
        with an old commitlog changed to DLedger (``DLedgerCommitLog#dividedCommitlogOffset``).

        Raises
        ------
        StoreError
            A directory is missing or cannot be read.
        SegmentError
            The files' sizes differ from each other or from `mapped_file_size` (bytes; None infers it), or a name
            is not a multiple of the size, or a file of plain records comes after DLedger's. A hole is not an error
            here; see `check_no_hole`.
        OptionError
            The records are DLedger's and `dledger` is off, or the other way round.
        """
        if len(paths) == 1 and (kept := _kept_logs.get(paths[0])) is not None:
            return kept
        found = [entry for path in paths for entry in _framed(sorted(_segments(path)), dledger=dledger)]
        found.sort()
        # The broker creates a file and then gives it its size: a last file of size 0 is not a segment yet.
        unfinished = found.pop().path if found and found[-1].size == 0 else None
        if found:
            _check_sizes(found, mapped_file_size)
            _check_frames(found, dledger=dledger)
        return cls(tuple(found), tuple(paths), unfinished)

    @property
    def mapped_file_size(self) -> int:
        """Size of every segment in bytes; 0 without segments."""
        return self.files[0].size if self.files else 0

    @property
    def min_offset(self) -> int:
        """The first physical offset that the log still has; 0 without segments."""
        return self.files[0].file_from_offset if self.files else 0

    @property
    def end_of_files(self) -> int:
        """The physical offset after the last file, which is not the end of valid data; 0 without segments."""
        return self.files[-1].end if self.files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The segment that holds `offset`, or None."""
        at = bisect_right(self.files, offset, key=_FIRST_BYTE) - 1
        return self.files[at] if at >= 0 and offset < self.files[at].end else None

    @property
    def last_row_begin(self) -> int:
        """The begin of the last row of segments without a hole; 0 without segments."""
        begin = self.min_offset
        for file, after in zip(self.files, self.files[1:], strict=False):
            if file.end != after.file_from_offset:
                begin = after.file_from_offset
        return begin

    def rows(self, start: int, end: int) -> list[tuple[int, int]]:
        """`[start, end)` without the stretches that no segment holds."""
        found: list[tuple[int, int]] = []
        for file in self.files:
            begin, stop = max(start, file.file_from_offset), min(end, file.end)
            if begin < stop and found and found[-1][1] == begin:
                found[-1] = found[-1][0], stop
            elif begin < stop:
                found.append((begin, stop))
        return found

    def next_available(self, offset: int) -> int:
        """`offset`, or the begin of the next segment if the one that held `offset` is missing."""
        at = bisect_right(self.files, offset, key=_FIRST_BYTE)
        is_there = at > 0 and offset < self.files[at - 1].end
        return offset if is_there or at == len(self.files) else self.files[at].file_from_offset

    def following(self, file: MappedFile) -> MappedFile | None:
        """The segment that begins where `file` ends, or None."""
        return self.find(file.end)

    def check_no_hole(self, start: int) -> None:
        """Raise SegmentError if a segment after the one that holds `start` is missing from the row."""
        for file, after in zip(self.files, self.files[1:], strict=False):
            if after.file_from_offset > start and file.end != after.file_from_offset:
                begin = after.file_from_offset
                raise SegmentError(
                    f"hole in the commitlog: {file.path} ends at {file.end}, the next file is {after.path}, "
                    f"{begin - file.end} bytes are missing",
                    advice="restore the missing files, or set failOnDataLoss=false to continue after them",
                    file=file.path,
                    physical_offset=file.end,
                )


# Logs that are not directories of segments, such as a backup's, by the path that names them in options.
_kept_logs: dict[Path, MappedFileQueue] = {}


def name_log(queue: MappedFileQueue) -> None:
    """Make the only path of `queue` mean that row of segments, in this process and its forks."""
    (path,) = queue.paths
    _kept_logs[path] = queue


@lru_cache(maxsize=1024)  # one warning, however often the directory is listed
def _warn_of(name: str, directory: Path) -> None:
    _log.warning("ignored %r in %s: not a segment's name", name, directory)


def _segments(directory: Path) -> Iterator[MappedFile]:
    others: list[str] = []
    segments = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if not is_file_name(entry.name):
                    others.append(entry.name)
                    continue
                segments += 1
                with suppress(FileNotFoundError):  # expired between the listing and now
                    yield MappedFile(int(entry.name), entry.stat().st_size, entry.path)
    except (FileNotFoundError, NotADirectoryError):
        raise no_commit_log(directory) from None
    except OSError as error:
        if isinstance(known := read_error(str(directory), error), TransientError):
            raise known from error
        why, advice = limit_reached(error) or (error.strerror, None)
        raise StoreError(f"cannot list the commitlog at {directory}: {why}", advice=advice, file=directory) from error
    if not segments:
        check_is_commit_log(directory)
    for name in others:
        _warn_of(name, directory)


def _framed(files: Sequence[MappedFile], *, dledger: bool) -> list[MappedFile]:
    """The segments of one directory with their frame, which the first file that was begun shows."""
    framed = next((known for file in files if (known := _is_framed(file)) is not None), dledger)
    if framed and not dledger:
        directory = Path(files[0].path).parent
        raise OptionError(
            f"{directory} is a DLedger commitlog: set enableDLegerCommitLog=true to read it (reput tail --dledger)",
            file=directory,
        )
    return [replace(file, frame=ENTRY_HEADER_SIZE) for file in files] if framed else list(files)


def _is_framed(file: MappedFile) -> bool | None:
    with suppress(DataLossError):  # expired between the listing and now
        return is_framed(read_head(file, HEAD_SIZE), file.file_from_offset, file.size)
    return None


def _check_frames(files: Sequence[MappedFile], *, dledger: bool) -> None:
    if dledger and not any(file.frame for file in files):
        directory = Path(files[0].path).parent
        raise OptionError(
            f"enableDLegerCommitLog is on, and {directory} holds plain records: leave it off, or also give "
            "DLedger's directory (dledger-SELFID/data in the store)",
            file=directory,
        )
    for file, after in zip(files, files[1:], strict=False):
        if file.frame and not after.frame:
            raise SegmentError(
                f"{after.path} holds plain records and lies behind {file.path}, which is DLedger's",
                advice="remove one of them",
                file=after.path,
                physical_offset=after.file_from_offset,
            )


def _check_sizes(files: Sequence[MappedFile], wanted: int | None) -> None:
    pattern = next((file for file in files if file.size), files[0])
    size = wanted if wanted is not None else pattern.size
    for file in files:
        if file.size != size or not size:
            why = "mappedFileSizeCommitLog" if wanted is not None else f"the size of {pattern.path}"
            raise SegmentError(
                f"{file.path} has {file.size} bytes where {why} is {size}; every segment must have the same size: "
                "was the copy cut, or does the directory hold two stores?",
                file=file.path,
            )
        if file.file_from_offset % size:
            raise SegmentError(
                f"{file.path} begins at {file.file_from_offset}, which is not a multiple of its size {size}; "
                "was the file renamed or cut?",
                file=file.path,
            )
    for file, after in zip(files, files[1:], strict=False):
        if file.file_from_offset == after.file_from_offset:
            raise SegmentError(
                f"{file.path} and {after.path} are the same segment",
                advice="remove one of them from the paths",
                file=after.path,
                physical_offset=after.file_from_offset,
            )


# ----------------------------------------------------------------------------------------------------------------------
# The errors for files and directories that the system refuses to read.

# Errors by a limit of the process, not by the file.
_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def read_error(path: str, error: OSError, offset: int | None = None) -> ReputError | None:
    """The error to raise for an OSError on `path`; None if its cause is not that file.

    `offset` is the wanted physical offset, if it is known. A missing file gets no error here: its meaning depends on
    the reader.
    """
    if isinstance(error, FileNotFoundError) or error.errno in _LIMITS or error.filename not in (None, path):
        return None
    where = path if offset is None else f"{path} at offset {offset}"
    kind, advice = (TransientError if error.errno in UNANSWERED else StoreError), None
    if kind is TransientError:
        advice = "look at the disk or mount that holds it, and start the same command again"
    words = error.strerror
    if isinstance(error, PermissionError):
        advice = "make it readable for the user that runs reput"
        words, advice = who_refuses(path) or (words, advice)
    return kind(f"cannot read {where}: {words}", advice=advice, file=path, physical_offset=offset)


# ----------------------------------------------------------------------------------------------------------------------
# The first bytes of a segment: whether it was begun, how its records are framed, when the first one was stored.

# Up to and including the first record's store timestamp, after a DLedger header and an IPv6 host.
HEAD_SIZE = dle.ENTRY_HEADER_SIZE + fmt.STORE_TIMESTAMP_AT + fmt.HOST_V6_EXTRA + 8
_RECORD_MAGIC_CODES = (fmt.MESSAGE_MAGIC_CODE, fmt.MESSAGE_MAGIC_CODE_V2)


def _i32(head: bytes, at: int) -> int:
    return int.from_bytes(head[at : at + 4], "big", signed=True)


def _i64(head: bytes, at: int) -> int:
    return int.from_bytes(head[at : at + 8], "big", signed=True)


def is_framed(head: bytes, file_from_offset: int, size: int) -> bool | None:
    """Whether the segment holds DLedger entries; None if its head does not show it, for example if it is all zeros."""
    if _i32(head, fmt.MAGIC_AT) in (*_RECORD_MAGIC_CODES, fmt.BLANK_MAGIC_CODE):
        return False
    magic, entry_size = _i32(head, 0), _i32(head, dle.ENTRY_SIZE_AT)
    if magic == dle.ENTRY_BLANK_MAGIC_CODE:
        return True if entry_size == size else None
    body_size = _i32(head, dle.ENTRY_BODY_SIZE_AT)
    if magic == dle.ENTRY_MAGIC_CODE and entry_size == dle.ENTRY_HEADER_SIZE + body_size:
        return True if _i64(head, dle.ENTRY_POS_AT) == file_from_offset else None
    return None


def is_begun(head: bytes, file_from_offset: int, frame: int) -> bool:
    """Whether the broker has begun to write this segment, and so has finished the one before it."""
    if len(head) < fmt.PHYSICAL_OFFSET_AT + 8:
        return False
    if frame:
        magic, own_offset = _i32(head, 0), _i64(head, dle.ENTRY_POS_AT)
        return magic == dle.ENTRY_BLANK_MAGIC_CODE or (magic == dle.ENTRY_MAGIC_CODE and own_offset == file_from_offset)
    magic, own_offset = _i32(head, fmt.MAGIC_AT), _i64(head, fmt.PHYSICAL_OFFSET_AT)
    return magic == fmt.BLANK_MAGIC_CODE or (magic in _RECORD_MAGIC_CODES and own_offset == file_from_offset)


def is_blank(head: bytes, frame: int) -> bool:
    """Whether the blank that fills up a segment begins with `head`."""
    return _i32(head, 0) == dle.ENTRY_BLANK_MAGIC_CODE if frame else _i32(head, fmt.MAGIC_AT) == fmt.BLANK_MAGIC_CODE


def first_store_timestamp(head: bytes, frame: int) -> int | None:
    """The store time in milliseconds of the record at the begin of `head`; None if there is none."""
    record = head[frame:]
    if _i32(record, fmt.MAGIC_AT) not in _RECORD_MAGIC_CODES:
        return None
    shift = fmt.HOST_V6_EXTRA if _i32(record, fmt.SYS_FLAG_AT) & BORNHOST_V6_FLAG else 0
    return _i64(record, fmt.STORE_TIMESTAMP_AT + shift)


_LISTED_EVERY_S = 5.0
_JUST_BEFORE_NS = 100_000_000
# How long a segment that is being made, or copied, may have another size.
_PATIENCE_S = 10.0

_Stamp = tuple[int, int, int]


class SegmentListing:
    """Lists the segments of one commitlog repeatedly."""

    def __init__(
        self,
        paths: Sequence[Path],
        mapped_file_size: int | None = None,
        *,
        dledger: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the arguments of ``MappedFileQueue.load``; `clock` is monotonic, in seconds."""
        self._paths = tuple(paths)
        self._mapped_file_size = mapped_file_size
        self._dledger = dledger
        self._clock = clock
        self._queue: MappedFileQueue | None = None
        self._stamps: list[_Stamp | None] = []
        self._is_settled = False
        self._listed_at = 0.0
        self._odd_since: float | None = None

    def load(self) -> MappedFileQueue:
        """The segments as they are now; the identical object while nothing has changed.

        Raises
        ------
        TransientError
            The log had segments before, and now it has none, or one of its directories has gone. No broker leaves such
            a log: it keeps its last segment.
        ReputError
            ``MappedFileQueue.load`` raised it. If the files form no row, this is raised only if no row was listed
            before, or after they have formed none for some seconds.
        """
        stamps = [_stamp(path) for path in self._paths]
        if self._queue is not None and self._is_known(self._queue, stamps):
            return self._queue
        found = self._list(stamps)
        self._check_stayed(stamps)
        self._check_not_gone(found, stamps)
        if self._queue is None or stamps != self._stamps or found != self._queue:
            self._queue = found
        newest = max((stamp[2] for stamp in stamps if stamp is not None), default=0)
        # A change in the future was made before the clock was set back: the next change gets another time.
        self._is_settled = abs(time.time_ns() - newest) > _JUST_BEFORE_NS and self._odd_since is None
        self._stamps, self._listed_at = stamps, self._clock()
        return self._queue

    def forget(self) -> None:
        """Make the next call list the directories, whatever their times of change are."""
        self._is_settled = False

    def _is_known(self, queue: MappedFileQueue, stamps: Sequence[_Stamp | None]) -> bool:
        if not self._is_settled or stamps != self._stamps or None in stamps:
            return False
        return queue.unfinished is None and self._clock() - self._listed_at < _LISTED_EVERY_S

    def _list(self, stamps: Sequence[_Stamp | None]) -> MappedFileQueue:
        try:
            found = MappedFileQueue.load(self._paths, self._mapped_file_size, dledger=self._dledger)
        except SegmentError as error:
            if self._queue is None:
                raise
            now = self._clock()
            if self._odd_since is None:
                self._odd_since = now
                _log.warning("%s; looking again for %d s", error, _PATIENCE_S)
            if now - self._odd_since >= _PATIENCE_S:
                raise
            return self._queue
        except StoreError as error:
            if self._queue is None or not self._queue.files or None not in stamps:
                raise
            away = self._paths[stamps.index(None)]
            raise _gone(away, f"{away} is gone") from error
        self._odd_since = None
        return found

    def _check_stayed(self, stamps: Sequence[_Stamp | None]) -> None:
        """Raise TransientError if a path no longer is the directory of its `stamps`.

        The listing would lack files that were listed by then, as if they had expired.
        """
        for path, before in zip(self._paths, stamps, strict=True):
            if before is not None and before[:2] != (_stamp(path) or ())[:2]:
                raise _gone(path, f"{path} went while it was listed")

    def _check_not_gone(self, found: MappedFileQueue, stamps: Sequence[_Stamp | None]) -> None:
        """Raise TransientError if a directory lost all its segments in a way that expiry does not explain."""
        if self._queue is None:
            return
        had, has = ({file.path.rpartition("/")[0] for file in queue.files} for queue in (self._queue, found))
        for path, before, now in zip(self._paths, self._stamps, stamps, strict=True):
            # One of several directories may be empty after expiry, unless it is another directory now.
            if str(path) in had and str(path) not in has and (not has or (before or ())[:2] != (now or ())[:2]):
                raise _gone(path, f"{path} holds no segment any more")


def _gone(path: Path, what: str) -> TransientError:
    return TransientError(
        f"{what}, and it held the commitlog that was being read: its volume was unmounted, or the directory replaced",
        advice="start the same command again when the log is back",
        file=path,
    )


def _stamp(path: Path) -> _Stamp | None:
    """The status fields that change when a segment comes or goes; None without such a directory."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
