"""`reput restore`: a store that a broker starts on, as it was at a moment, from a backup.

The store is made whole in a directory inside the target (``REBUILD_ROOT``): the log up to the cut, the configuration of
that moment, queues and index from the log, and consumers' offsets that are not beyond it. It is compared with its log
there. Only then does a swap with a durable note (``sinks/files/swap.py``) put it in place, so that the target has
nothing or everything.
"""

from __future__ import annotations

import json
import logging
import random
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from reput.sinks.abort_file import LeftBy, abort_left_by, clear_abort, mark_abort
from reput.sinks.backup.backup_store import Backup
from reput.sinks.backup.restore_point import RestorePoint
from reput.sinks.files.config_manager import json_of
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import names_in
from reput.sinks.files.store_lock import StoreLock
from reput.sinks.files.store_path import ABORT, LOCK, REBUILD, REBUILD_ROOT, REPUT, SCRATCH
from reput.sinks.files.swap import finish_swap, swap
from reput.sinks.queue.batch_consume_queue import BATCH_KIND
from reput.sinks.queue.broker_queue import BrokerBatchQueue, QueueFile
from reput.sinks.queue.consume_queue import KIND, rounded_file_size
from reput.sinks.queue.lookup import end_of_entries
from reput.sinks.queue.queue_reader import load_queues
from reput.sinks.queue.rocksdb_queue import RocksDBQueues
from reput.sinks.table.location import TableLocation
from reput.source.errors import OptionError, ReputError, StoreError
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import HEAD_SIZE, MappedFileQueue, first_store_timestamp
from reput.source.log.range_reader import align_down, find_timestamp
from reput.source.log.store_layout import COMMIT_LOG, file_name, rocksdb_queues
from reput.source.printable import counted
from reput.source.record.damage import QUARANTINE
from reput.source.times import time_text
from reput.streaming.backup.partial_log import MessageChoice, write_part
from reput.streaming.config.broker import SIGNS, broker_version
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.doctor.doctor import examine, verdict
from reput.streaming.process.environment import run_directory
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import rebuild
from reput.streaming.verify.verify import VerifyRequest, verify

_log = logging.getLogger("reput")

#: The result of a restore: in the target once everything is in place.
RESTORED: Final = (REPUT, "restored.json")
# The place of the whole log while a part of it is restored.
_WHOLE: Final = "whole"
_DELAYED: Final = b"SCHEDULE_TOPIC_XXXX"
# The names that an empty directory may have.
_IGNORED: Final = {LOCK, "lost+found"}
_FOUND_IN: Final = (
    ("consumerOffset.json", "offsetTable"),
    ("lmqConsumerOffset.json", "offsetTable"),
    ("lmqConsumerOffset.json", "lmqOffsetTable"),
    ("delayOffset.json", "offsetTable"),
)

#: Loads the configuration of the store that is being restored, by the settings of its restore point.
Load = Callable[[Path, RestorePoint], PipelineConfig]
_Ends = Mapping[tuple[bytes, int], int]


@dataclass(frozen=True)
class RestoreRequest:
    """The source, the target and the moment of a restore: a time in milliseconds since 1970, or a physical offset.

    Without a time or an offset it is the newest restore point, or the one of this number. With `part`, only some
    messages are restored.
    """

    source: TableLocation
    target: Path
    at_ms: int | None = None
    offset: int | None = None
    point: int | None = None
    part: MessageChoice = field(default_factory=MessageChoice)

    def __post_init__(self) -> None:
        given = [each for each in (self.at_ms, self.offset, self.point) if each is not None]
        if len(given) > 1:
            raise OptionError("--at, --offset and --point: one of them wanted")


@dataclass(frozen=True)
class Restored:
    """The result of a restore.

    Attributes
    ----------
    target
        The store.
    point, config_point
        The restore points of its log and of its configuration.
    config_ms
        The moment of the configuration, in milliseconds since 1970.
    begin, end
        The offsets between which the log is.
    messages
        How many messages it has.
    last_stored_ms
        When the newest one was stored, in milliseconds since 1970; None without one.
    lowered_offsets
        How many offsets of consumers and of delayed messages led beyond the log, and now lead to its end.
    notes
        What the operator must know, in sentences.
    """

    target: str
    point: int
    config_point: int
    config_ms: int
    begin: int
    end: int
    messages: int
    last_stored_ms: int | None
    lowered_offsets: int
    notes: tuple[str, ...]

    def text(self) -> str:
        """The report for people."""
        last = "none" if self.last_stored_ms is None else time_text(self.last_stored_ms)
        log = f"offsets {self.begin} to {self.end}, the last one stored at {last}"
        lines = [
            f"{self.target}: {counted(self.messages, 'message')}, {log}",
            f"configuration of {time_text(self.config_ms)} (restore point {self.config_point})",
            "queues and index were made from the log, and verify finds no difference",
        ]
        if self.lowered_offsets:
            lines.append(f"{counted(self.lowered_offsets, 'offset')} beyond the log now lead to its end")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def restore(request: RestoreRequest, load: Load) -> Restored:
    """Restore a store, prove it, and put it in place.

    Raises
    ------
    OptionError
        The backup has no such moment, or the target is not empty.
    StoreError
        The backup is damaged, or what was restored is not what it should be.
    OutputError
        The target cannot be written.
    """
    backup = Backup(request.source)
    target = request.target
    with ExitStack() as cleanup:
        cleanup.enter_context(StoreLock(target))
        files = DurableFiles(target)
        cleanup.callback(files.close)
        finish_swap(files)
        if (earlier := _earlier(files)) is not None:
            return earlier
        files.remove_tree(*REBUILD_ROOT)
        work = DurableFiles(target.joinpath(*REBUILD_ROOT))
        cleanup.callback(work.close)
        made = _Restoring(backup, request, work, load).run()
        work.replace(*RESTORED, data=json.dumps(asdict(made), indent=1).encode() + b"\n")
        work.sync()
        mark_abort(files)
        swap(files, [(path, path) for path in _paths(work.root)], may_empty=True)
        clear_abort(files)
        return made


def restore_sample(source: TableLocation, points: Sequence[int], load: Load) -> Restored:
    """Restore one of these restore points, chosen at random, into a scratch directory, which is removed then.

    The errors are those of `restore`.
    """
    with tempfile.TemporaryDirectory(prefix="sample-", dir=run_directory()) as directory:
        point = random.choice(points)  # noqa: S311  no secret
        return restore(RestoreRequest(source, Path(directory) / "store", point=point), load)


def _earlier(files: DurableFiles) -> Restored | None:
    """Return the result of an earlier restore that was stopped just before its end; raise OptionError for a store."""
    note = files.root.joinpath(*RESTORED)
    if note.exists() and abort_left_by(files.root) is LeftBy.REPUT:
        files.remove_tree(*REBUILD_ROOT)
        clear_abort(files)
        _log.info("finished putting in place what an earlier restore made")
        fields = json.loads(note.read_bytes())
        return Restored(**{**fields, "notes": tuple(fields["notes"])})
    # A restore that is stopped just before it puts the store in place leaves its `abort`.
    ours = {*_IGNORED, REPUT, f".{ABORT}.tmp"} | ({ABORT} if abort_left_by(files.root) is LeftBy.REPUT else set())
    if set(names_in(files.root)) - ours or set(names_in(files.root / REPUT)) - {REBUILD}:
        raise OptionError(f"--to {files.root}: it is not empty", advice="give an empty directory, or a new one")
    return None


def _paths(root: Path) -> Iterator[tuple[str, ...]]:
    """Yield the paths below `root` that are moved into place."""
    for path in sorted(root.iterdir()):
        if path.name == REPUT:
            yield from ((REPUT, each.name) for each in sorted(path.iterdir()) if each.name not in {REBUILD, SCRATCH})
        elif path.name != LOCK:
            yield (path.name,)


class _Restoring:
    """One restore into `work`."""

    def __init__(self, backup: Backup, request: RestoreRequest, work: DurableFiles, load: Load) -> None:
        self._backup = backup
        self._request = request
        self._work = work
        # The place of the whole log; a part of it goes into the store.
        self._whole = DurableFiles(work.root / _WHOLE) if request.part else work
        self._load = load
        self._notes: list[str] = []

    def run(self) -> Restored:
        point, config_point = self._points()
        point = self._log_of(point)
        cut = self._cut(point)
        if self._request.part:
            cut = self._keep_part(point, cut)
            self._note_rocksdb(config_point)
        for file in config_point.config:
            self._work.replace(*Path(file.path).parts, data=self._backup.config_content(file))
        self._work.sync()
        config = self._load(self._work.root, point)
        if config.commit_log != (self._work.root / COMMIT_LOG,):
            raise OptionError(
                f"the log is restored to {COMMIT_LOG}/ of --to, and broker.conf has it in {config.commit_log[0]}",
                advice="leave its path out of broker.conf",
            )
        # A backup lacks the files of a broker by which later commands know its release.
        version = broker_version(config.broker.version, self._work.root)
        for sign in SIGNS:
            if version >= sign.made_since:
                sign.leave(self._work)
        if cut > point.begin:
            rebuild(config, RebuildRequest(self._work.root), "reput restore")
        lowered = self._lower_offsets(_queue_ends(config, self._work.root))
        report = verify(config, VerifyRequest(self._work.root))
        if report.differences or report.log_end != cut:
            raise StoreError(
                f"what was restored is not sound: {counted(report.differences, 'difference')}, and its log ends at "
                f"{report.log_end}, not at {cut}",
                advice=f"'reput verify --store {self._work.root}' names them; 'reput backup verify' proves the backup",
                file=self._work.root,
            )
        return Restored(
            str(self._request.target),
            point.number,
            config_point.number,
            config_point.created_ms,
            point.begin,
            cut,
            report.messages,
            self._last_stored(config, cut),
            lowered,
            tuple(self._notes),
        )

    @staticmethod
    def _last_stored(config: PipelineConfig, cut: int) -> int | None:
        record = LogReader(config.log_options()).last_record_before(cut) if cut else None
        return None if record is None else record.store_timestamp

    # --- which moment ---------------------------------------------------------------------------------------------

    def _points(self) -> tuple[RestorePoint, RestorePoint]:
        """The restore points of the log and of the configuration."""
        numbers, request = self._backup.numbers(), self._request
        if not numbers:
            raise OptionError(f"{self._backup.location} has no restore point")
        if request.point is not None and request.point not in numbers:
            raise OptionError(f"--point {request.point}: there are {numbers[0]} to {numbers[-1]}")
        if request.offset is not None:
            return self._points_of_offset(request.offset, numbers[0])
        if request.at_ms is None:
            point = self._backup.point(request.point or numbers[-1])
            return point, point
        before, after = self._backup.last_before(request.at_ms)
        point = self._backup.point(after or numbers[-1])
        if after is None and point.last_stored_ms is not None and request.at_ms - point.created_ms >= _TOLD_MS:
            self._notes.append(
                f"the newest restore point is of {time_text(point.created_ms)}: the backup has no later message"
            )
        return point, self._config_of(before, numbers[0])

    def _points_of_offset(self, offset: int, first: int) -> tuple[RestorePoint, RestorePoint]:
        number = self._backup.first_with(offset)
        if number is None:
            newest = self._backup.last_point()
            assert newest is not None
            raise OptionError(f"--offset {offset}: the newest restore point ends at {newest.end}")
        point = self._backup.point(number)
        if offset < point.begin:
            raise OptionError(f"--offset {offset}: the log of restore point {number} begins at {point.begin}")
        before = number if point.end == offset else number - 1
        return point, self._config_of(before if before >= first else None, first)

    def _config_of(self, before: int | None, first: int) -> RestorePoint:
        if before is not None:
            return self._backup.point(before)
        point = self._backup.point(first)
        self._notes.append(
            f"the configuration is of {time_text(point.created_ms)}, after that moment: the backup has no older one"
        )
        self._note_rocksdb(point)
        return point

    def _note_rocksdb(self, point: RestorePoint) -> None:
        note = "offsets of consumers in RocksDB are not lowered: some may lead beyond the log"
        if note not in self._notes and any(Path(file.path).name == "CURRENT" for file in point.config):
            self._notes.append(note)

    # --- the log --------------------------------------------------------------------------------------------------

    def _log_of(self, point: RestorePoint) -> RestorePoint:
        """Write the segments that the moment needs; return the restore point with only these."""
        size, at_ms = point.mapped_file_size, self._request.at_ms
        self._whole.make_directory(COMMIT_LOG)
        if not point.parts:
            return point
        begins = sorted({part.begin - part.begin % size for part in point.parts})
        if self._request.offset is not None:
            point = point.up_to(self._end_of_segment(begins, size, self._request.offset))
        elif at_ms is not None:
            # Messages are stored in the order of their times, unless the broker's clock was set back.
            stored = [self._first_stored(point, begin) for begin in begins]
            known = [(time_ms, begin) for time_ms, begin in zip(stored, begins, strict=True) if time_ms is not None]
            last = bisect_right([time_ms for time_ms, _ in known], at_ms)
            if known and not last:
                raise OptionError(
                    f"--at {time_text(at_ms)}: the first message of the backup was stored at {time_text(known[0][0])}",
                    advice="give that time or a later one",
                )
            point = point.up_to(known[last - 1][1] + size if last else begins[0] + size)
        for part in point.parts:
            begin = part.begin - part.begin % size
            path = (COMMIT_LOG, file_name(begin))
            if not self._whole.root.joinpath(*path).exists():
                self._whole.create(*path, size=size)
            at = part.begin - begin
            for chunk in self._backup.read_part(part):
                self._whole.write(*path, offset=at, data=chunk)
                at += len(chunk)
            self._whole.sync()
        return point

    @staticmethod
    def _end_of_segment(begins: list[int], size: int, offset: int) -> int:
        """Return the end of the segment with the byte before `offset`, at least that of the first segment."""
        return max(begins[0], begins[max(0, bisect_right(begins, offset - 1) - 1)]) + size

    def _first_stored(self, point: RestorePoint, begin: int) -> int | None:
        return first_store_timestamp(self._backup.read_log(point, begin, begin + HEAD_SIZE), 0)

    def _cut(self, point: RestorePoint) -> int:
        """Remove the records that were written after the last record of the moment; return the offset of the cut."""
        queue = MappedFileQueue.load([self._whole.root / COMMIT_LOG], point.mapped_file_size or None)
        cut = point.end
        if self._request.at_ms is not None:
            cut = find_timestamp(queue, point.end, self._request.at_ms + 1, QUARANTINE)
        elif self._request.offset is not None and (file := queue.find(self._request.offset)) is not None:
            wanted = min(self._request.offset, point.end)
            cut = align_down(file, file.file_from_offset, wanted, QUARANTINE)
            if cut != self._request.offset:
                self._notes.append(f"offset {self._request.offset} is inside the record at {cut}, where the log ends")
        for file in queue.files:
            path = (COMMIT_LOG, Path(file.path).name)
            if file.file_from_offset >= cut and file.file_from_offset > point.begin:
                self._whole.remove(*path)
            elif cut < file.end:
                for size in (cut - file.file_from_offset, file.size):  # everything after the cut becomes zeros
                    self._whole.create(*path, size=size, keeps=True)
        self._whole.sync()
        return cut

    def _keep_part(self, point: RestorePoint, cut: int) -> int:
        """Write the part that is wanted into the store; return where it ends."""
        part = self._request.part
        queue = MappedFileQueue.load([self._whole.root / COMMIT_LOG], point.mapped_file_size or None)
        end = write_part(self._whole, queue, cut, part, self._work)
        self._whole.close()
        self._work.remove_tree(_WHOLE)
        self._notes.append(f"only the messages{part.words()}; their physical offsets and message ids are new")
        if part.topics:
            self._notes.append("messages of these topics that are delayed, timed, half or in retry are not in it")
        return end

    # --- queues, index and offsets --------------------------------------------------------------------------------

    def _lower_offsets(self, ends: _Ends) -> int:
        """Lower each offset beyond its queue's end to that end; return how many."""
        lowered = 0
        for name, table in _FOUND_IN:
            path = self._work.root / "config" / name
            try:
                found = json_of(path.read_bytes())
            except FileNotFoundError:
                continue
            of_table = _lowered(found.get(table) or {}, name, ends)
            if of_table:
                self._work.replace("config", name, data=json.dumps(found, indent=1, ensure_ascii=False).encode())
            lowered += of_table
        self._work.sync()
        return lowered


class Predicted(NamedTuple):
    """The prediction for a broker of the store's release at its start, in words."""

    words: str
    is_harmless: bool


def predicted(request: RestoreRequest, made: Restored, load: Load, broker_conf: Path | None) -> Predicted:
    """Ask `reput doctor` about a restored store, which was proved. If doctor cannot predict, its words say why."""
    try:
        config = load(request.target, Backup(request.source).point(made.point))
        found = examine(config, broker_conf, [broker_version(config.broker.version, config.store)])
    except ReputError as error:
        return Predicted(str(error), is_harmless=True)
    return Predicted("\n".join(verdict(each.prediction) for each in found.diagnoses), found.is_harmless)


# A restore point that is older than the moment by this much is reported: the backup may have stopped.
_TOLD_MS: Final = 10_000


def _lowered(table: dict[str, Any], name: str, ends: _Ends) -> int:
    """Lower the offsets of a file's `table` in place; return how many were beyond their queue's end."""
    lowered = 0

    def least(holder: dict[str, Any], key: str, topic: bytes, queue_id: int) -> None:
        nonlocal lowered
        end = ends.get((topic, queue_id), 0)
        if int(holder[key]) > end:
            holder[key] = end
            lowered += 1

    for key, value in table.items():
        topic = key.partition("@")[0].encode()
        if name == "delayOffset.json":
            least(table, key, _DELAYED, int(key) - 1)
        elif isinstance(value, dict):
            for queue_id in value:
                least(value, queue_id, topic, int(queue_id))
        else:  # a light topic has one queue, of number 0
            least(table, key, topic, 0)
    return lowered


def _queue_ends(config: PipelineConfig, root: Path) -> dict[tuple[bytes, int], int]:
    """The queue offset after the last entry of each queue below `root`."""
    size, batch_size = config.queue.mapped_file_size_consume_queue, config.queue.mapper_file_size_batch_consume_queue
    ends = {
        (reader.topic, reader.queue_id): end_of_entries(reader)
        for reader in load_queues(root, KIND, rounded_file_size(size))
    }
    for reader in load_queues(root, BATCH_KIND, batch_size):
        files = [QueueFile(begin, batch_size, reader.path(begin), unit=BATCH_KIND.unit) for begin in reader.files]
        queue = BrokerBatchQueue(reader.topic.decode(errors="replace"), reader.queue_id, batch_size, files)
        queue.recover()
        ends[reader.topic, reader.queue_id] = queue.max_offset
    if (database := rocksdb_queues(root)) is not None:
        with RocksDBQueues.open(database) as queues:
            ends |= {queue: place.queue_offset + 1 for queue, place in queues.last.items()}
    return ends
