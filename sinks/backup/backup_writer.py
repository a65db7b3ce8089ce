"""One step of a backup: the changes of log and configuration since the last restore point, and a new point.

The log is append-only, so a step puts only bytes that are new. They are cut into blocks of a segment. A complete block
is one part. The last block grows: when it has several parts of about the same size, these are written again together
with the new bytes, so that a block never has many parts and no byte is written often.

The order makes it safe. The moment is noted, then the configuration is read, and the end of the log is found last. So
the log has all messages before that moment, and no consumer offset is of a later one. All files are durable before the
restore point is put in place, unless another backup has put one of the same number.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

import reput
from reput.sinks.backup.backup_store import Backup
from reput.sinks.backup.restore_point import ConfigFile, RestorePoint, StoredPart
from reput.sinks.backup.zstd_frames import FRAME_BYTES, compressed
from reput.sinks.files.config_manager import backup_of, copy_rocksdb, is_rocksdb, json_of
from reput.sinks.table.storage import output_errors
from reput.source.errors import CommitLogRewoundError, DataLossError, OutputError, StoreError, UnexplainedError
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue, cut_short, open_segment, read_fully

_log = logging.getLogger("reput")

#: The bytes of a block of the log. A part is in memory while it is put in place.
BLOCK_BYTES: Final = 128 << 20
# The number of parts of about the same size that are written again as one.
_PARTS_MERGED: Final = 8
_SMALLEST_BYTES: Final = 64 << 10
# A broker writes a file of configuration in less time than this.
_CONFIG_TRIES, _CONFIG_PAUSE_S = 4, 0.05
# How often a step begins again because segments expired meanwhile.
_STEPS_TRIED: Final = 5

Row = tuple[int, int]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class BackupWriter:
    """Makes restore points of one store; for one thread, and for the only backup to this place."""

    def __init__(
        self,
        backup: Backup,
        open_log: Callable[[], LogReader],
        store: Path,
        settings: Mapping[str, Any],
        *,
        block_bytes: int = BLOCK_BYTES,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        """Take a reader of the log that passes over damage (`open_log`), and the `settings` of the restore points.

        `now_ms` is the time of day.

        Raises
        ------
        StoreError
            The newest restore point cannot be read.
        """
        self._backup = backup
        self._open_log = open_log
        #: The reader of the log.
        self.log = open_log()
        self._store = store
        self._settings = dict(settings)
        self._block_bytes = block_bytes
        self._now_ms = now_ms
        # Parts that were put in place and have no restore point yet.
        self._put: dict[Row, StoredPart] = {}
        # By database of configuration, its files and their status fields when they were read.
        self._read: dict[str, tuple[object, Sequence[ConfigFile]]] = {}
        #: The newest restore point, None before the first.
        self.last = backup.last_point()

    def step(self) -> RestorePoint | None:
        """Put a restore point of this moment in place, durably; return None if nothing has changed since the last.

        Raises
        ------
        OutputError
            The backup cannot be written, or another backup has put a restore point meanwhile.
        StoreError, TransientError
            The log cannot be read.
        UnexplainedError
            The backup is of another store.
        """
        was_cut = False
        for left in range(_STEPS_TRIED - 1, -1, -1):
            try:
                return self._step(was_cut=was_cut)
            except DataLossError:
                if not left:
                    raise
            except CommitLogRewoundError as error:
                if was_cut:
                    raise
                _log.warning("%s: the backup continues with the log as it is now", error.cause)
                was_cut = True
                self._put.clear()
            self.log = self._open_log()  # a reader that remembers nothing of the log before
        raise AssertionError

    def _step(self, *, was_cut: bool) -> RestorePoint | None:
        created = self._now_ms()
        contents = dict(self._config())
        databases = dict(self._databases())
        end = self.log.settled_end(self.log.queue().min_offset)
        queue = self.log.queue()
        begin = queue.min_offset
        config = (*_files_with(contents), *(file for files in databases.values() for file in files))
        parts = tuple(self._parts(queue, self._still_true(queue, end, was_cut=was_cut), queue.rows(begin, end)))
        known = self.last
        point = RestorePoint(
            1 if known is None else known.number + 1,
            created if known is None else max(created, known.created_ms),
            str(self._store),
            reput.__version__,
            self._settings,
            queue.mapped_file_size,
            begin,
            end,
            self.log.last_record_before(end) if end > begin else None,
            config,
            parts,
        )
        if known is not None and point == replace(known, number=point.number, created_ms=point.created_ms):
            return None
        self._put_config(contents)
        with output_errors(f"cannot write {self._backup.location / point.name}", self._backup.location / point.name):
            is_new = self._backup.storage.put_if_absent(point.name, point.encode())
        if not is_new:
            raise OutputError(
                f"{self._backup.location / point.name} exists already: another backup writes to this place",
                advice="stop one of them, or give another --to",
                file=self._backup.location / point.name,
            )
        self.last, self._put = point, {}
        return point

    # --- the configuration ----------------------------------------------------------------------------------------

    def _config(self) -> Iterator[tuple[str, bytes]]:
        """Path and content of each file of configuration."""
        known = {} if self.last is None else {file.path: file for file in self.last.config}
        directory = self._store / "config"
        names = {path.name.removesuffix(".bak") for path in directory.glob("*.json*")}
        for name in sorted(name for name in names if name.endswith(".json")):
            path = f"config/{name}"
            content = _whole(self._store / path)
            if content is None and path in known:
                _log.warning("%s is not whole: the backup keeps the content that it had", self._store / path)
                content = self._backup.config_content(known[path])
            if content is None:
                content = _whole(backup_of(self._store / path))
            if content is None:
                _log.warning("%s is not whole, nor is its .bak: the backup does not have it", self._store / path)
            else:
                yield path, content

    def _databases(self) -> Iterator[tuple[str, Sequence[ConfigFile]]]:
        """Path and files of each RocksDB database of configuration, after these are put into the backup."""
        directory = self._store / "config"
        for database in sorted(directory.iterdir()) if directory.is_dir() else ():
            if not is_rocksdb(database):
                continue
            stamps, known = _stamps(database), self._read.get(database.name)
            if known is None or known[0] != stamps:
                contents = {
                    f"config/{database.name}/{name}": content for name, content in copy_rocksdb(database).items()
                }
                self._put_config(contents)
                self._read[database.name] = known = stamps, tuple(_files_with(contents))
            yield database.name, known[1]

    def _put_config(self, contents: Mapping[str, bytes]) -> None:
        known = set[str]() if self.last is None else {file.sha256 for file in self.last.config}
        for file in _files_with(contents):
            if file.sha256 not in known:
                self._backup.storage.put(file.name, compressed([contents[file.path]]), durable=True)

    # --- the log --------------------------------------------------------------------------------------------------

    def _still_true(self, queue: MappedFileQueue, end: int, *, was_cut: bool) -> list[StoredPart]:
        """The parts of the last restore point that the log still has; each is compared if the log `was_cut`.

        A broker that was stopped uncleanly may have cut its log and written other records there.

        Raises
        ------
        CommitLogRewoundError
            The log no longer has the last record of the last restore point.
        UnexplainedError
            The log that was cut has nothing of the last restore point, or has segments of another size.
        """
        known = self.last
        if known is None or not known.parts:
            return []
        if queue.files and known.mapped_file_size != queue.mapped_file_size:
            raise UnexplainedError(
                f"{self._store} has segments of {queue.mapped_file_size} bytes, and the log that "
                f"{self._backup.location} has is in segments of {known.mapped_file_size}: it is another store",
                advice="give another --to",
                file=self._backup.location,
            )
        parts = [part for part in known.parts if part.begin >= queue.min_offset]
        if was_cut:
            while parts and not self._is_equal(queue, parts[-1], end):
                parts.pop()
            if not parts:
                raise UnexplainedError(
                    f"{self._store} has nothing of the log that {self._backup.location} has: it is another store",
                    advice="give another --to",
                    file=self._backup.location,
                )
        elif known.last_record is not None:
            self.log.check_last_record(known.last_record, known.begin, is_idle=end == known.end)
        return parts

    def _is_equal(self, queue: MappedFileQueue, part: StoredPart, end: int) -> bool:
        file = queue.find(part.begin)
        if file is None or part.end > end:
            return False
        at = part.begin
        for chunk in self._backup.read_part(part):
            if bytes(chunk) != bytes(next(_chunks(file, at, at + len(chunk)))):
                return False
            at += len(chunk)
        return True

    def _parts(self, queue: MappedFileQueue, known: Sequence[StoredPart], rows: Sequence[Row]) -> Iterator[StoredPart]:
        """The parts that cover `rows` of the log: `known` ones, and new ones, which are put in place."""
        for file in queue.files:
            for block in range(file.file_from_offset, file.end, self._block_bytes):
                block_end = min(block + self._block_bytes, file.end)
                end = max((min(stop, block_end) for start, stop in rows if start <= block < stop), default=block)
                if end == block:
                    continue
                ours = [part for part in known if block <= part.begin and part.end <= end]
                kept = _kept(ours, block, end, is_complete=end == block_end)
                yield from kept
                begin = kept[-1].end if kept else block
                if begin < end:
                    yield self._put_part(file, begin, end)

    def _put_part(self, file: MappedFile, begin: int, end: int) -> StoredPart:
        if (begin, end) not in self._put:
            data = compressed(_chunks(file, begin, end))
            part = StoredPart(begin, end, len(data), sha256(data).hexdigest())
            self._backup.storage.put(part.name, data, durable=True)
            self._put[begin, end] = part
        return self._put[begin, end]


def _files_with(contents: Mapping[str, bytes]) -> Iterator[ConfigFile]:
    """The files of configuration with these contents, by path."""
    for path, content in contents.items():
        yield ConfigFile(path, len(content), sha256(content).hexdigest())


def _stamps(database: Path) -> object:
    """Return a value that changes whenever a file of a database does; raises StoreError."""
    try:
        files = [(path.name, path.stat()) for path in sorted(database.iterdir())]
    except FileNotFoundError:
        return object()  # it is being changed
    except OSError as error:
        raise StoreError(f"cannot read {database}: {error.strerror}", file=database) from error
    return [(name, status.st_size, status.st_mtime_ns) for name, status in files]


def _whole(path: Path) -> bytes | None:
    """The content of a file of JSON; None for a missing, empty or damaged one. A running broker may be writing it."""
    for left in range(_CONFIG_TRIES - 1, -1, -1):
        with suppress(FileNotFoundError, ValueError, RecursionError):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                raise
            except OSError as error:
                raise StoreError(f"cannot read {path}: {error.strerror}", file=path) from error
            json_of(content)
            return content
        if left:
            time.sleep(_CONFIG_PAUSE_S)
    return None


def _kept(parts: Sequence[StoredPart], begin: int, end: int, *, is_complete: bool) -> list[StoredPart]:
    """The `parts` of a block from `begin` that stay if the block now ends at `end`."""
    if parts and parts[-1].end == end:
        return list(parts)
    if is_complete:
        return []
    kept, new_from = list(parts), parts[-1].end if parts else begin
    while kept:
        alike = _alike(kept, _tier(end - new_from))
        if len(alike) < _PARTS_MERGED - 1:
            break
        kept, new_from = kept[: -len(alike)], alike[0].begin
    return kept


def _alike(parts: Sequence[StoredPart], tier: int) -> Sequence[StoredPart]:
    """The last parts that are of a tier, or smaller."""
    first = len(parts)
    while first and _tier(parts[first - 1].end - parts[first - 1].begin) <= tier:
        first -= 1
    return parts[first:]


def _tier(size: int) -> int:
    tier = 0
    while size > _SMALLEST_BYTES * _PARTS_MERGED**tier:
        tier += 1
    return tier


def _chunks(file: MappedFile, begin: int, end: int) -> Iterator[memoryview]:
    """The bytes `[begin, end)` of a segment, in frames; each is valid until the next one is asked for."""
    buffer = np.empty(min(FRAME_BYTES, end - begin), np.uint8)
    with open_segment(file, f"[{begin}, {end}) was backed up", begin) as descriptor:
        for at in range(begin, end, FRAME_BYTES):
            size = min(FRAME_BYTES, end - at)
            if read_fully(descriptor, buffer, size, at - file.file_from_offset) < size:
                raise cut_short(file, at, f"[{begin}, {end})")
            yield buffer[:size].data
