"""Reading a backup: its restore points, the log and the configuration in them; its verification, and its expiry."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa

from reput.sinks.backup.restore_point import CONFIG_FILES, LOG_PARTS, ConfigFile, RestorePoint, StoredPart
from reput.sinks.backup.zstd_frames import BadFramesError, FramesReader
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import now_for_ages
from reput.sinks.table.location import TableLocation
from reput.sinks.table.storage import TableStorage, first_line, table_storage
from reput.source.errors import StoreError
from reput.source.log.store_layout import POINTS

_POINT_NAME: Final = re.compile(rf"{POINTS}/(\d{{10}})\.json")
# Parts, files of configuration, and temporary files of a process that was killed while it put one in place.
_REMOVABLE: Final = re.compile(
    rf"(?:{LOG_PARTS}|{CONFIG_FILES})/(?:[0-9a-f-]+\.zst|\.[0-9a-f-]+\.zst\.tmp)|{POINTS}/\.\d+\.json\.\S+\.tmp"
)
# A file without a restore point may come from another backup that runs to the same place on S3.
_IN_USE_SECONDS: Final = 3600


@dataclass(frozen=True)
class Fault:
    """A fault of a file; the restore points with these numbers cannot be restored."""

    file: str
    what: str
    points: tuple[int, ...]


@dataclass
class Proof:
    """The result of `Backup.verify`: the number of restore points and files, their bytes, and the faults."""

    points: int = 0
    files: int = 0
    bytes: int = 0
    log_bytes: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def broken(self) -> list[int]:
        """The restore points that cannot be restored."""
        return sorted({number for fault in self.faults for number in fault.points})


class Backup:
    """The backup at a location."""

    def __init__(self, location: TableLocation) -> None:
        self.location = location
        self.storage: TableStorage = table_storage(location)
        # When each restore point that `expire` knows was made, and how many of them need a file.
        self._created = dict[int, int]()
        self._needed = Counter[str]()

    def prepare(self) -> None:
        """Make the place for restore points, or test that S3 refuses a second one of a number; raises OutputError."""
        if isinstance(self.location, Path):
            files = DurableFiles(self.location)
            files.make_directory(POINTS)
            files.sync()
        self.storage.check()

    @contextmanager
    def read_errors(self, name: str, offset: int | None = None) -> Iterator[None]:
        """Raise errors with a file of the backup as StoreError; a part's error names `offset` of the log."""
        path = self.location / name
        where = "" if offset is None else f" at offset {offset} of the log"
        try:
            yield
        except FileNotFoundError as error:
            raise StoreError(f"{path} is missing from the backup", file=path, physical_offset=offset) from error
        except (BadFramesError, ValueError) as error:
            raise StoreError(f"{path} is damaged{where}: {error}", file=path, physical_offset=offset) from error
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"cannot read {path}: {first_line(error)}", file=path, physical_offset=offset) from error

    def numbers(self) -> list[int]:
        """The numbers of the restore points, the oldest first; raises StoreError."""
        with self.read_errors(POINTS):
            names = [_POINT_NAME.fullmatch(file.name) for file in self.storage.files(POINTS)]
        return sorted(int(name[1]) for name in names if name is not None)

    def point(self, number: int) -> RestorePoint:
        """A restore point.

        Raises
        ------
        StoreError
            It is missing or damaged.
        LaterFormatError
            A later release wrote it.
        """
        name = f"{POINTS}/{number:010d}.json"
        with self.read_errors(name):
            found = RestorePoint.decode(self.storage.read(name), self.location / name)
            if found.number != number:
                raise ValueError(f"it is restore point {found.number}")
            return found

    def last_point(self) -> RestorePoint | None:
        """The newest restore point, or None; raises the errors of `point`."""
        numbers = self.numbers()
        return self.point(numbers[-1]) if numbers else None

    def last_before(self, time_ms: int) -> tuple[int | None, int | None]:
        """The numbers of the newest restore point made at or before a time, and of the next one; None for none."""
        numbers = self.numbers()
        at = bisect_right(numbers, time_ms, key=lambda number: self.point(number).created_ms)
        return (numbers[at - 1] if at else None), (numbers[at] if at < len(numbers) else None)

    def first_with(self, offset: int) -> int | None:
        """The number of the first restore point whose log reaches `offset`, or None."""
        numbers = self.numbers()
        at = bisect_left(numbers, offset, key=lambda number: self.point(number).end)
        if at < len(numbers) and self.point(numbers[at]).end >= offset:
            return numbers[at]
        # If the log was cut, later restore points may end earlier.
        return next((number for number in numbers if self.point(number).end >= offset), None)

    def frames(self, part: StoredPart) -> FramesReader:
        """The frames of a part, whose file the caller closes; raises StoreError."""
        with self.read_errors(part.name, part.begin), ExitStack() as stack:
            reader = FramesReader(stack.enter_context(self.storage.open(part.name)))
            if reader.content_size != part.end - part.begin:
                raise BadFramesError(f"it has {reader.content_size} bytes of the log")
            stack.pop_all()
            return reader

    def read_part(self, part: StoredPart, begin: int | None = None, end: int | None = None) -> Iterator[memoryview]:
        """Yield the bytes `[begin, end)` of the log, which are in `part`; by default all of it; raises StoreError."""
        begin, end = part.begin if begin is None else begin, part.end if end is None else end
        with closing(self.frames(part)) as frames, self.read_errors(part.name, begin):
            yield from frames.read(begin - part.begin, end - part.begin)

    def read_log(self, point: RestorePoint, begin: int, end: int) -> bytes:
        """The bytes `[begin, end)` of the log of a restore point, fewer at its end or at a hole; raises StoreError."""
        found = b""
        for part in point.parts:
            if part.begin <= begin + len(found) < min(part.end, end):
                at = begin + len(found)
                found += b"".join(self.read_part(part, at, min(part.end, end)))
        return found

    def config_content(self, file: ConfigFile) -> bytes:
        """The content of a file of configuration; raises StoreError."""
        with self.read_errors(file.name):
            return _checked_config(file, self.storage.read(file.name))

    # --- the proof ------------------------------------------------------------------------------------------------

    def verify(self) -> Proof:
        """Read the whole backup, and compare each file with its digests in the restore points.

        Raises
        ------
        StoreError
            The backup cannot be listed.
        LaterFormatError
            A later release wrote it.
        """
        with self.read_errors(""):
            sizes = {file.name: file.size_bytes for file in self.storage.files(deep=True)}
        proof = Proof()
        wanted: dict[str, tuple[StoredPart | ConfigFile, list[int]]] = {}
        numbers = [int(name[1]) for name in map(_POINT_NAME.fullmatch, sorted(sizes)) if name is not None]
        proof.points = len(numbers)
        for before, after in pairwise(numbers):
            for number in range(before + 1, after):
                proof.faults.append(Fault(f"{POINTS}/{number:010d}.json", "it is missing", (number,)))
        for number in numbers:
            try:
                point = self.point(number)
            except StoreError as error:
                proof.faults.append(Fault(f"{POINTS}/{number:010d}.json", str(error), (number,)))
                continue
            proof.faults += [Fault(point.name, what, (number,)) for what in _gaps(point)]
            needed: list[StoredPart | ConfigFile] = [*point.parts, *point.config]
            for each in needed:
                wanted.setdefault(each.name, (each, []))[1].append(number)
        for name, (file, of) in sorted(wanted.items()):
            what = self._what_is_wrong(file, sizes.get(name))
            proof.files += 1
            proof.bytes += sizes.get(name, 0)
            proof.log_bytes += file.end - file.begin if isinstance(file, StoredPart) else 0
            if what is not None:
                proof.faults.append(Fault(name, what, tuple(of)))
        return proof

    def _what_is_wrong(self, file: StoredPart | ConfigFile, size: int | None) -> str | None:
        """Return the fault of a file of `size` bytes (None: missing), or None if it has none."""
        if size is None:
            return "it is missing"
        if isinstance(file, StoredPart) and size != file.size:
            return f"it has {size} bytes, and had {file.size}"
        try:
            data = self.storage.read(file.name)
            if isinstance(file, ConfigFile):
                _checked_config(file, data)
                return None
            if hashlib.sha256(data).hexdigest() != file.sha256:
                return "it has changed: its SHA-256 is another one"
            chunks = [*FramesReader(pa.BufferReader(data)).read()]
        except (OSError, ValueError, BadFramesError) as error:
            return first_line(error)
        if sum(map(len, chunks)) != file.end - file.begin:
            return f"it has {sum(map(len, chunks))} bytes of the log"
        return None

    # --- expiry ---------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int, *, keep_points: int | None, keep_ms: int | None, is_alone: bool) -> list[int]:
        """Remove restore points, and files that no other one needs; return the numbers of the points.

        A restore point stays if it is one of the newest `keep_points`, or if a moment of the last `keep_ms`
        milliseconds needs it. Those are the points made in that time, and the newest one before, whose configuration
        was in force when that time began. The newest one always stays. Without `keep_points` and `keep_ms`, all stay.

        Parameters
        ----------
        is_alone
            Whether no other backup can be putting files there now.

        Raises
        ------
        StoreError
            A restore point is damaged, so that the files that it needs are unknown: nothing is removed.
        OutputError
            A file cannot be removed.
        """
        numbers = self.numbers()
        self._know(numbers)
        gone = list[int]()
        if keep_points is not None or keep_ms is not None:
            by_count = numbers[-max(keep_points or 0, 1) :]
            first = by_count[0] if by_count else 0
            if keep_ms is not None:
                before = [number for number in numbers if self._created[number] <= now_ms - keep_ms]
                first = min(first, before[-1] if before else first, numbers[0] if not before and numbers else first)
            gone = [number for number in numbers if number < first]
        # The points go first, so that none ever lacks its files. The oldest go before the others, also after a power
        # failure: a point that is missing between others is a fault.
        unneeded = [self.point(number) for number in gone]
        for point in unneeded:
            self.storage.remove([point.name], durable=True)
            del self._created[point.number]
            self._needed.subtract(point.files)
        with self.read_errors(""):
            listed = [file for folder in (LOG_PARTS, CONFIG_FILES, POINTS) for file in self.storage.files(folder)]
        oldest = now_for_ages() - _IN_USE_SECONDS
        left = [
            file.name
            for file in listed
            if self._needed[file.name] <= 0
            and _REMOVABLE.fullmatch(file.name)
            and (is_alone or file.modified_s < oldest)
        ]
        self.storage.remove(left)
        self._needed = +self._needed
        return gone

    def _know(self, numbers: Sequence[int]) -> None:
        """Read restore points that were made since the last expiry; all of them if others removed some meanwhile."""
        if not self._created.keys() <= set(numbers):
            self._created.clear()
            self._needed.clear()
        for number in numbers:
            if number not in self._created:
                point = self.point(number)
                self._created[number] = point.created_ms
                self._needed.update(point.files)


def _checked_config(file: ConfigFile, data: bytes) -> bytes:
    content = b"".join(FramesReader(pa.BufferReader(data)).read())
    if len(content) != file.size or hashlib.sha256(content).hexdigest() != file.sha256:
        raise BadFramesError("it has changed: its SHA-256 is another one")
    return content


def _gaps(point: RestorePoint) -> Iterator[str]:
    """Yield the faults of the row of a restore point's parts, in words."""
    at, size = point.begin, point.mapped_file_size
    for part in point.parts:
        if part.begin < at or (part.begin > at and (part.begin % size or at % size)):
            yield f"its part {part.name} begins at {part.begin}, and the one before ends at {at}"
        at = part.end
    if at != point.end:
        yield f"its parts end at {at}, and its log at {point.end}"
