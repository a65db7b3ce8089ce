"""Predict what a broker's start does with a store, step by step as the broker does; nothing is written.

``DefaultMessageStore#load``, ``#recover`` and ``#start``; ``source/releases.py`` says what each release does. First
come the files that a broker finds, as it lists and loads them (``MappedFileQueue#load``, ``ConsumeQueueStore#load``,
``IndexService#load``): a file that it cannot load ends its start.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from reput.sinks.dispatch.logic_needs import bad_offset
from reput.sinks.files.file_system import names_in
from reput.sinks.files.store_path import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    STORE_CHECKPOINT,
    is_directory_name,
)
from reput.sinks.formats.consume_queue import BATCH_ENTRY, ENTRY, is_queued
from reput.sinks.formats.index_file import ENTRY as INDEX_ENTRY
from reput.sinks.formats.index_file import IndexHeader
from reput.sinks.index.index_reader import entry_at, open_index_file
from reput.sinks.queue.broker_queue import BrokerBatchQueue, BrokerQueue, BrokerRocksDBQueue, QueueFile
from reput.sinks.queue.rocksdb_queue import RocksDBQueues
from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.source import releases
from reput.source.arrays import Bools, Bytes, Int64s
from reput.source.kernels import property_kernels as pk
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.log.broker_check import BrokerRecord, GoodRecords, OddRecord, WalkEnd, broker_walk
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import DecodeOptions, scan_windows
from reput.source.options import LONG_MAX
from reput.source.record.message_format import is_indexed
from reput.source.record.message_properties import (
    KEY_SEPARATOR,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    decode_utf8,
    inner_batch,
    parse_int,
    parse_long,
)
from reput.streaming.doctor.kept_records import Expected, Indexed, belonging, lost_records
from reput.streaming.doctor.prediction import LogCut, Obstacle, Part, PredictedQueue, Prediction, Recovery
from reput.streaming.doctor.start_settings import StartSettings, not_known
from reput.streaming.doctor.waiting import TIMER_TOPIC, WaitingMessages
from reput.streaming.effects.range_task import RangeTask
from reput.streaming.output.recovery_start import recovered_first


class NoStartError(Exception):
    """The broker does not start."""

    def __init__(self, part: Part, why: str, file: Path | str | None = None, size: int | None = None) -> None:
        super().__init__(why)
        self.obstacle = Obstacle(part, why, None if file is None else str(file), size)


@dataclass
class Segment:
    """A segment as the broker has it: `wrote` bytes of it count, at first all."""

    file: MappedFile
    wrote: int

    @property
    def end(self) -> int:
        """The physical offset after the bytes that count."""
        return self.file.file_from_offset + self.wrote


@dataclass
class IndexFiles:
    """The index as it is loaded.

    `ranges` are the physical offsets of the first and the last record whose keys each file has, in order; a file that
    was cut has fewer than its header says. `end` is the offset of the last record by the headers: the broker indexes no
    record before it. `removed` are the paths of files that are deleted.
    """

    ranges: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    removed: list[Path] = field(default_factory=list)


def load_segments(directories: Iterable[Path], settings: StartSettings, removed: list[Path]) -> list[Segment]:
    """Return the segments, oldest first; `removed` gets the path of one that is deleted during loading."""
    paths = [path for directory in directories for path in _listed(directory)]
    return [
        Segment(MappedFile(begin, settings.segment_size, str(path)), settings.segment_size)
        for begin, path in _load_row(Part.LOG, paths, settings.segment_size, settings, removed)
    ]


def load_queues(store: Path, settings: StartSettings) -> dict[tuple[str, int], BrokerQueue]:
    """Return every queue by topic and queue id.

    Raises
    ------
    NoStartError
        A file has a wrong size, or a release of 5.x finds a queue of another kind than its topic has.
    """
    found: dict[tuple[str, int], BrokerQueue] = {}
    if settings.in_rocksdb:
        return found if settings.database is None else _rocksdb_queues(settings.database)
    keeps_batch_queues = settings.does(releases.KEEPS_BATCH_QUEUES)
    if keeps_batch_queues:
        _check_kinds(store, settings)
    for topic, queue_id, directory in _queues_in(store / CONSUME_QUEUE):
        size = settings.queue_file_size
        removed: list[Path] = []
        row = _load_row(Part.QUEUES, _listed(directory), size, settings, removed)
        files = [QueueFile(begin, size, path) for begin, path in row]
        found[topic, queue_id] = BrokerQueue(topic, queue_id, size, files, removed=removed)
        if settings.ext_file_size is not None:
            ext = _listed(store / CONSUME_QUEUE_EXT / topic / str(queue_id))
            list(_load_row(Part.QUEUES, ext, settings.ext_file_size, settings, removed))
    for topic, queue_id, directory in _queues_in(store / BATCH_CONSUME_QUEUE) if keeps_batch_queues else ():
        size, removed = settings.batch_file_size, []
        row = _load_row(Part.QUEUES, _listed(directory), size, settings, removed)
        files = [QueueFile(begin, size, path, unit=BrokerBatchQueue.unit) for begin, path in row]
        found[topic, queue_id] = BrokerBatchQueue(topic, queue_id, size, files, removed=removed)
    return found


def _rocksdb_queues(database: Path) -> dict[tuple[str, int], BrokerQueue]:
    found: dict[tuple[str, int], BrokerQueue] = {}
    with RocksDBQueues.open(database) as queues:
        for (topic, queue_id), place in queues.last.items():
            name = decode_utf8(topic)
            queue = BrokerRocksDBQueue(name, queue_id, 0, last=place, first=queues.first.get((topic, queue_id)))
            for numbers, values in queues.entries((topic, queue_id)):
                units = np.empty(len(values), ENTRY)
                for part in ENTRY.names or ():
                    units[part] = values[part]
                queue.hold(numbers, units)
            found[name, queue_id] = queue
    return found


def _dispatched_to(settings: StartSettings) -> int:
    """Return how far RocksDB has queues of the log: 0 for a new database; -1 for files, which show it themselves."""
    if not settings.in_rocksdb:
        return -1
    if settings.database is None:
        return 0
    with RocksDBQueues.open(settings.database) as queues:
        return queues.dispatched_to


def _queues_in(top: Path) -> Iterator[tuple[str, int, Path]]:
    """Yield topic, queue id and directory of each queue; the broker makes the path of a queue from the number."""
    for topic in _listed(top):
        for directory in _listed(topic):
            queue_id = parse_int(directory.name)
            if queue_id is not None:
                yield topic.name, queue_id, topic / str(queue_id)


def _check_kinds(store: Path, settings: StartSettings) -> None:
    """Check each directory of a queue as ``ConsumeQueueStore#queueTypeShouldBe`` does."""
    batch_topics = settings.needs.batch_topics
    for top, other in ((CONSUME_QUEUE, BATCH_CONSUME_QUEUE), (BATCH_CONSUME_QUEUE, CONSUME_QUEUE)):
        for topic in _listed(store / top):
            is_wrong = (os.fsencode(topic.name) in batch_topics) == (top == CONSUME_QUEUE)
            found = next((each for each in _listed(topic) if parse_int(each.name) is not None), None)
            if is_wrong and found is not None:
                why = f"{found} is of the wrong kind: the topic's queues belong into {other}/"
                raise NoStartError(Part.QUEUES, why, found)


def load_index(store: Path, checkpoint: StoreCheckpoint, settings: StartSettings, *, is_abnormal: bool) -> IndexFiles:
    """Return the index; without a clean stop, files that are newer than the checkpoint are deleted."""
    index = IndexFiles()
    for path in sorted(_listed(store / INDEX)):
        if parse_long(path.name) is None:
            continue
        if path.is_dir():
            if settings.does(releases.NEEDS_THE_INDEX):
                raise NoStartError(Part.INDEX, f"{path} is a directory where index files are", path)
            break
        header = _header(path)
        if is_abnormal and header.end_timestamp > checkpoint.index_msg_timestamp:
            index.removed.append(path)
            continue
        index.end = header.end_phy_offset
        last = _last_offset(path, header, settings)
        if last is not None:
            index.ranges.append((header.begin_phy_offset, last))
    return index


def _last_offset(path: Path, header: IndexHeader, settings: StartSettings) -> int | None:
    """Return the offset of the last record whose keys a file has; None if it was cut before the first of them."""
    first, size = entry_at(1, settings.max_hash_slot_num), path.stat().st_size
    count = (size - first) // INDEX_ENTRY.itemsize
    if count >= header.next_entry - 1:
        return header.end_phy_offset
    if count < 1:
        return None
    with open_index_file(path, settings.max_hash_slot_num) as file:
        return int(file.entries(count, 1)["physical_offset"][0])


def load_checkpoint(store: Path) -> StoreCheckpoint:
    """Return the store's checkpoint; zeros without a file."""
    path = store / STORE_CHECKPOINT
    if path.is_dir():
        raise NoStartError(Part.CHECKPOINT, f"{path} is a directory where the broker opens a file", path)
    try:
        return StoreCheckpoint.decode(path.read_bytes())
    except FileNotFoundError:
        return StoreCheckpoint()


def _load_row(
    part: Part, paths: list[Path], size: int, settings: StartSettings, removed: list[Path]
) -> Iterator[tuple[int, Path]]:
    """Yield the begin and the path of each file of a row, in the order of names (``MappedFileQueue#doLoad``).

    Since 5.1.3, an empty file at the end of the row is deleted: its path goes to `removed`.
    """
    paths = sorted(paths, key=lambda path: path.name)
    for path in paths:
        status = path.stat()
        if settings.does(releases.PASSES_OVER_DIRECTORIES) and path.is_dir():
            continue
        deletes_empty = settings.does(releases.DELETES_AN_EMPTY_LAST_FILE)
        if deletes_empty and status.st_size == 0 and path is paths[-1]:
            removed.append(path)
            continue
        if status.st_size != size:
            why = f"{path} has {status.st_size} bytes where files of {size} are set"
            has_a_name = not path.is_dir() and parse_long(path.name) is not None
            raise NoStartError(part, why, path, size if has_a_name else None)
        begin = parse_long(path.name)
        if begin is None:
            raise NoStartError(part, f"{path} has a name that is not a number", path)
        yield begin, path


def _listed(directory: Path) -> list[Path]:
    return [directory / name for name in names_in(directory)]


def _header(path: Path) -> IndexHeader:
    with open_index_file(path) as file:
        return file.header()


# ----------------------------------------------------------------------------------------------------------------------
# Whole records at which the broker's own dispatch ends in an exception.
#
# ``ConsumeQueue#multiDispatchLmqQueue`` and ``ReputMessageService#notifyMessageArrive4MultiQueue`` parse the offsets in
# further queues, and 4.9.3's ``checkMultiDispatchQueue`` assumes that each record has properties. Recovery ends with
# such an exception; a replay tries the record again for ever.

_RETRY_TOPIC = "%RETRY%"


@dataclass(frozen=True)
class DispatchError:
    """A record that the broker cannot dispatch: where it begins, why the broker throws, and whether it has an entry.

    `before` is how many records were examined before it.
    """

    offset: int
    why: str
    is_queued: bool
    before: int = 0


def first_error(
    file: MappedFile, found: GoodRecords, start: int, settings: StartSettings, *, in_replay: bool
) -> DispatchError | None:
    """Return the first record of a segment, from the offset `start` on, at which the broker's dispatch fails."""
    wants_properties = _wants_properties(settings)
    looks = settings.needs.multi_dispatch is not None or (in_replay and settings.notifies)
    if not ((found.names_queues and looks) or (found.lacks_properties and wants_properties)):
        return None
    delays, before = np.array(settings.rules.delays_ms, np.int64), 0
    for window in scan_windows(file, start, found.end, DecodeOptions()):
        columns = window.decode(delays).columns
        has_both = (columns.spans[:, [pk.MULTI_DISPATCH, pk.MULTI_QUEUE_OFFSET], 1] > 0).all(axis=1)
        lacks = _lacks_properties(columns) if wants_properties else np.zeros(len(columns), bool)
        for row in np.flatnonzero(has_both | lacks).tolist():
            names, offsets = (
                _text(columns, columns.spans[row, span]) for span in (pk.MULTI_DISPATCH, pk.MULTI_QUEUE_OFFSET)
            )
            topic = _text(columns, columns.parts[row, [rk.TOPIC, rk.TOPIC_SIZE]])
            queued = is_queued(int(columns.sys_flag[row]))
            why = _why(settings, topic, None if lacks[row] else (names, offsets), queued=queued, in_replay=in_replay)
            if why is not None:
                return DispatchError(window.offset_of(row), why, queued, before + row)
        before += len(columns)
    return None


def error_of(record: BrokerRecord, settings: StartSettings, *, in_replay: bool) -> DispatchError | None:
    """Return why the broker cannot dispatch a record; None if it can."""
    further = None
    if record.properties is not None:
        get = record.properties.get
        further = get(PROPERTY_INNER_MULTI_DISPATCH, ""), get(PROPERTY_INNER_MULTI_QUEUE_OFFSET, "")
    queued = is_queued(record.sys_flag)
    why = _why(settings, record.topic, further, queued=queued, in_replay=in_replay)
    return None if why is None else DispatchError(record.physical_offset, why, queued)


def _why(
    settings: StartSettings, topic: str, further: tuple[str, str] | None, *, queued: bool, in_replay: bool
) -> str | None:
    """Return why the broker throws; `further` are the two properties, None for a record without any property."""
    if further is None:
        return "it has no properties" if queued and _wants_properties(settings) else None
    bad = None
    if queued and settings.needs.multi_dispatch is not None:
        bad = settings.needs.multi_dispatch.fails_at(topic, *further)
    stays_alone = topic.startswith(_RETRY_TOPIC) and settings.does(releases.RETRIES_STAY_ALONE)
    if bad is None and in_replay and settings.notifies and not stays_alone:
        bad = bad_offset(*further)
    return None if bad is None else f"{PROPERTY_INNER_MULTI_QUEUE_OFFSET} holds {bad!r}, which is not a number"


def _wants_properties(settings: StartSettings) -> bool:
    return settings.needs.multi_dispatch is not None and not settings.does(releases.DISPATCHES_WITHOUT_PROPERTIES)


def _lacks_properties(columns: RecordColumns) -> Bools:
    lacks: Bools = columns.parts[:, rk.PROPERTIES_SIZE] <= 0
    return lacks


def _text(columns: RecordColumns, span: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    at, size = span.tolist()
    return decode_utf8(columns.data[at : at + max(0, size)].tobytes())


# ----------------------------------------------------------------------------------------------------------------------
# The effects of the records that a broker dispatches at its start: entries of queues, and ranges with keys.

WAITS = "the broker waits for its replay for ever, and does not come up"


@dataclass
class Dispatcher:
    """Dispatches to queues in memory, and notes which records go to the index.

    `first` is the physical offset of the first record, `count` the number of records. The index takes no record before
    `index_end`; a record that states a wrong offset moves that (`astray` is where the last such record begins).
    `indexed` are the ranges of the log that the index takes. `dispatched_to` is how far RocksDB was when it was loaded,
    and `committed_to` how far it says it is since records were dispatched to it, which may be less; None without
    RocksDB.
    """

    store: Path
    settings: StartSettings
    queues: dict[tuple[str, int], BrokerQueue]
    first: int | None = None
    count: int = 0
    index_end: int = 0
    astray: int | None = None
    indexed: list[tuple[int, int]] = field(default_factory=list)
    dispatched_to: int = -1
    committed_to: int | None = None
    _task: RangeTask = field(init=False)

    def __post_init__(self) -> None:
        options = DecodeOptions(delays_ms=self.settings.rules.delays_ms)
        self._task = RangeTask(options, replace(self.settings.needs, index=False))

    @property
    def max_physic_offset(self) -> int:
        """The end of the last record in any queue; -1 if there is none; with RocksDB its own answer, at first 0."""
        if self.settings.in_rocksdb:
            return self.dispatched_to if self.committed_to is None else self.committed_to
        return max((queue.max_physic_offset for queue in self.queues.values()), default=-1)

    def dispatch(
        self,
        file: MappedFile,
        found: GoodRecords | OddRecord,
        behind: int | None = None,
        *,
        in_replay: bool = False,
    ) -> None:
        """Dispatch records of a segment that begin after the offset `behind`, or all of them.

        Raises
        ------
        NoStartError
            The broker's dispatch of a record fails; the records before it are dispatched.
        """
        if isinstance(found, OddRecord):
            record = found.check.record
            assert record is not None
            if behind is None or record.physical_offset > behind:
                _stop_at(error_of(record, self.settings, in_replay=in_replay), file, in_replay=in_replay)
                self._dispatch_record(record)
                if record.physical_offset == found.start:
                    self._index(found.start, found.check.position)
                elif self._has_keys(record) and record.physical_offset > self.index_end:
                    self.index_end, self.astray = record.physical_offset, found.start
            return
        if behind is not None and found.end - 1 <= behind:
            return
        count, first = found.count, found.start
        if behind is not None and found.start <= behind:
            count, first = self._behind(file, found, behind)
        error = first_error(file, found, first, self.settings, in_replay=in_replay)
        end = found.end
        if error is not None:
            end, count = error.offset, error.before
        if first < end:
            batch = self._task.read(OffsetRange(first, end, file)).batch()
            assert batch is not None
            self._note(first, count)
            self._index(first, end)
            for queue in itertools.chain(batch.entries.all_queues(), batch.entries.batch_queues()):
                self._put(decode_utf8(queue.topic), queue.queue_id, queue.entries, queue.queue_offsets)
        _stop_at(error, file, in_replay=in_replay)

    def _behind(self, file: MappedFile, found: GoodRecords, behind: int) -> tuple[int, int]:
        """Return how many of the records begin after the offset `behind`, and where the first of them begins."""
        count, first = 0, found.end
        for window in scan_windows(file, found.start, found.end, DecodeOptions()):
            starts = window.start + window.parts[:, rk.AT]
            later = starts[starts > behind]
            count += len(later)
            first = min(first, int(later[0])) if len(later) else first
        return count, first

    def _dispatch_record(self, record: BrokerRecord) -> None:
        self._note(record.physical_offset, 1)
        if not is_queued(record.sys_flag):
            return
        entry = np.array([(record.physical_offset, record.msg_size, record.tags_code)], ENTRY)
        if record.topic.encode() in self.settings.needs.batch_topics:
            batch = inner_batch(dict(record.properties or {}))
            if batch is None or min(batch) < 0:
                return
            head = record.physical_offset, record.msg_size, record.tags_code, record.store_timestamp
            entry = np.array([(*head, batch[1], batch[0], -1, 0)], BATCH_ENTRY)
        entries = entry.view(np.uint8).reshape(1, -1)
        self._put(record.topic, record.queue_id, entries, np.array([record.queue_offset], np.int64))

    def _put(self, topic: str, queue_id: int, entries: Bytes, queue_offsets: Int64s) -> None:
        queue = self._queue(topic, queue_id)
        queue.put(entries, queue_offsets)
        if self.settings.in_rocksdb:
            self.committed_to = max(self.committed_to or 0, queue.max_physic_offset)

    def _index(self, first: int, end: int) -> None:
        """Note that the index gets the records of ``[first, end)``, as far as it takes them (``#buildIndex``)."""
        first = max(first, self.index_end)
        if first >= end or not self.settings.needs.index:
            return
        if self.indexed and self.indexed[-1][1] == first - 1:
            first, _ = self.indexed.pop()
        self.indexed.append((first, end - 1))

    def _has_keys(self, record: BrokerRecord) -> bool:
        needs, get = self.settings.needs, (record.properties or {}).get
        names = (PROPERTY_UNIQ_KEY, PROPERTY_KEYS, *[PROPERTY_TAGS] * needs.index_tags)
        return needs.index and is_indexed(record.sys_flag) and any(get(name, "").strip(KEY_SEPARATOR) for name in names)

    def _note(self, first: int, count: int) -> None:
        if count and self.first is None:
            self.first = first
        self.count += count

    def _queue(self, topic: str, queue_id: int) -> BrokerQueue:
        key, is_batch = (topic, queue_id), topic.encode() in self.settings.needs.batch_topics
        if self.settings.in_rocksdb:
            return self.queues.setdefault(key, BrokerRocksDBQueue(topic, queue_id, 0))
        if key not in self.queues and is_batch:
            self.queues[key] = BrokerBatchQueue(topic, queue_id, self.settings.batch_file_size)
        elif key not in self.queues:
            self.queues[key] = BrokerQueue(topic, queue_id, self.settings.queue_file_size)
        if not self.queues[key].files and is_directory_name(topic):
            directory = self.store / (BATCH_CONSUME_QUEUE if is_batch else CONSUME_QUEUE) / topic / str(queue_id)
            self._check_directory(directory)
        return self.queues[key]

    def _check_directory(self, directory: Path) -> None:
        """Raise NoStartError if the broker cannot make the directory of a queue: a file has its name."""
        path = next((path for path in [directory, *directory.parents][:3] if path.exists()), None)
        if path is not None and not path.is_dir():
            queue = f"{directory.parent.name}-{directory.name}"
            why = f"{path} is not a directory: the broker cannot make a file of the queue {queue}, and tries for ever"
            raise NoStartError(Part.QUEUES, why, path)


def _stop_at(error: DispatchError | None, file: MappedFile, *, in_replay: bool) -> None:
    if error is None:
        return
    then = f"the replay tries it again for ever, and {WAITS}" if in_replay else "its recovery ends there"
    why = f"the broker's own dispatch of the record at offset {error.offset} fails ({error.why}): {then}"
    raise NoStartError(Part.DISPATCH if error.is_queued else Part.NOTIFY, why, file.path)


# ----------------------------------------------------------------------------------------------------------------------
# The broker's replay of its log from the end of its queues, after recovery has found the log's end.
#
# ``DefaultMessageStore#start`` and ``ReputMessageService#doReput``, whose position drifts after a record of wrong
# sizes.


def replay_from(segments: list[Segment], dispatcher: Dispatcher) -> int:
    """Return where the replay begins: at the end of the last record that has a queue entry, or at the log's begin."""
    return max(segments[0].file.file_from_offset if segments else 0, dispatcher.max_physic_offset, 0)


def replay(segments: list[Segment], start: int, dispatcher: Dispatcher, settings: StartSettings) -> None:
    """Dispatch from `start` to the log's end.

    Raises
    ------
    NoStartError
        The replay does not reach the end: a segment is missing, or it cannot pass over a record.
    """
    at = start
    while segments and at < segments[-1].end:
        segment = _segment_of(segments, at)
        if segment is None:
            raise NoStartError(Part.REPLAY, f"no segment holds offset {at}, where the replay continues: {WAITS}")
        begin = segment.file.file_from_offset + at % settings.segment_size
        if begin >= segment.end:
            raise NoStartError(
                Part.REPLAY, f"{segment.file.path} has nothing at offset {at}: {WAITS}", segment.file.path
            )
        at = _replay_buffer(segment, begin, dispatcher, settings)


def _replay_buffer(segment: Segment, begin: int, dispatcher: Dispatcher, settings: StartSettings) -> int:
    """Dispatch the readable records of a segment from `begin` on; return where the replay continues."""
    at = position = begin
    size = segment.end - begin
    read = 0
    rules = settings.rules.without_crc()
    while read < size:
        found: GoodRecords | OddRecord | WalkEnd | None = None
        for found in broker_walk(segment.file, position, segment.end, rules):
            if isinstance(found, WalkEnd):
                break
            dispatcher.dispatch(segment.file, found, in_replay=True)
            length = (found.end if isinstance(found, GoodRecords) else found.check.position) - found.start
            at, read, position = at + length, read + length, position + length
        if read >= size:
            break
        assert isinstance(found, WalkEnd)
        check = found.check
        if check.is_fatal:
            why = f"{check.why} at offset {position}: the replay ends, and {WAITS}"
            raise NoStartError(Part.REPLAY, why, segment.file.path)
        if check.success:
            return at + settings.segment_size - at % settings.segment_size
        if check.size <= 0:
            if settings.is_master:
                return at + size - read
            why = f"{check.why} at offset {position}: a slave does not pass over it, {WAITS}"
            raise NoStartError(Part.REPLAY, why, segment.file.path)
        # The broker parses on after the record's parts, but adds the stated size to its position.
        at, position = at + check.size, check.position
    return at


def _segment_of(segments: list[Segment], offset: int) -> Segment | None:
    """Return the segment that holds `offset` (``MappedFileQueue#findMappedFileByOffset``); for 0, the first one."""
    for segment in segments:
        if segment.file.file_from_offset <= offset < segment.file.end:
            return segment
    return segments[0] if offset == 0 else None


# ----------------------------------------------------------------------------------------------------------------------
# The broker's recovery of its commitlog: which records it dispatches, where it ends the log.
#
# ``CommitLog#recoverNormally`` and ``#recoverAbnormally``, with
# ``MappedFileQueue#truncateDirtyFiles`` and ``DefaultMessageStore#truncateDirtyLogicFiles``.

_OUT_OF_MEMORY = "no JVM makes so large an array: the broker ends with an OutOfMemoryError"


@dataclass(frozen=True)
class FoundEnd:
    """The end of the log that recovery found.

    Attributes
    ----------
    offset
        The physical offset.
    segment
        The segment in which it ends.
    why
        How the broker reads the bytes there; empty after a file's blank.
    last_store_timestamp
        The store time (ms) of the last record before; None without one.
    begins_in
        The segment at which recovery began.
    records, dispatched
        How many records it read, and how many of these it dispatched.
    """

    offset: int
    segment: Segment
    why: str
    last_store_timestamp: int | None
    begins_in: Segment
    records: int
    dispatched: int


def recover_log(
    segments: list[Segment],
    checkpoint: StoreCheckpoint,
    dispatcher: Dispatcher,
    settings: StartSettings,
    *,
    is_abnormal: bool,
) -> FoundEnd:
    """Follow the log and dispatch as recovery does; `segments` has at least one.

    Raises
    ------
    NoStartError
        The broker does not survive a record.
    """
    queued_to = dispatcher.max_physic_offset
    files = [segment.file for segment in segments]
    at = recovered_first(files, checkpoint, lambda: queued_to, settings, unclean=is_abnormal)
    begins_in = segments[at]
    dispatches = is_abnormal or settings.does(releases.RECOVERY_DISPATCHES)
    behind = None if is_abnormal else queued_to
    if behind is not None and settings.does(releases.KEEPS_QUEUED_OFFSET):
        # Every record that queues, index or transactions lack is dispatched to all of them.
        behind = min(behind, *(last for last in settings.in_rocksdb_to if last > 0), behind)
    stored, records = None, 0
    while True:
        segment = segments[at]
        begin = end = segment.file.file_from_offset
        found: GoodRecords | OddRecord | WalkEnd | None = None
        for found in broker_walk(segment.file, begin, segment.file.end, settings.rules):
            if isinstance(found, WalkEnd):
                break
            if dispatches:
                dispatcher.dispatch(segment.file, found, behind)
            stored, end = _last_of(found)
            records += found.count if isinstance(found, GoodRecords) else 1
        assert isinstance(found, WalkEnd)
        if found.check.is_fatal:
            raise NoStartError(Part.RECORD, f"{found.check.why} at offset {end}: {_OUT_OF_MEMORY}", segment.file.path)
        if not found.check.success:
            return FoundEnd(end, segment, found.check.why, stored, begins_in, records, dispatcher.count)
        at += 1
        if at == len(segments):
            return FoundEnd(end, segment, "", stored, begins_in, records, dispatcher.count)


def recovery_seconds(read_bytes: int, records: int, dispatched: int) -> float:
    """Estimate the seconds of a broker's recovery that reads these bytes and records and dispatches some of them.

    This holds for a log in the page cache: docs/commands/doctor.md has the 72 starts that it was fitted to.
    """
    return round(0.15 + read_bytes * 0.6e-9 + records * 0.8e-6 + dispatched * 1e-6, 2)


def _last_of(found: GoodRecords | OddRecord) -> tuple[int, int]:
    """Return the store time of the last record, and the offset after it."""
    if isinstance(found, GoodRecords):
        return found.last_store_timestamp, found.end
    assert found.check.record is not None
    return found.check.record.store_timestamp, found.check.position


def cut_log(segments: list[Segment], offset: int) -> list[Segment]:
    """End the log at `offset`: change `segments`, and return those that the broker deletes."""
    removed = []
    for segment in list(segments):
        if segment.file.end <= offset:
            continue
        if offset >= segment.file.file_from_offset:
            segment.wrote = offset - segment.file.file_from_offset
        else:
            segments.remove(segment)
            removed.append(segment)
    return removed


def cut_queues(dispatcher: Dispatcher, queued_to: int, offset: int) -> None:
    """Cut the queues of a log that ends at `offset`, if any reached that far when the broker asked (`queued_to`)."""
    if queued_to >= offset:
        for queue in dispatcher.queues.values():
            queue.truncate(offset)


def cut_rocksdb_queues(store: Path, segments: list[Segment], dispatcher: Dispatcher, offset: int) -> None:
    """Cut the queues in RocksDB of a log that ends at `offset`; `segments` are those before the log is cut.

    Before 5.3.2 the broker cuts none of them if a record was dispatched, whatever the other queues hold
    (``#truncateDirty``).

    Raises
    ------
    OptionError
        It is not known what the broker does with queues that reach further.
    """
    settings, what = dispatcher.settings, "queues in RocksDB that reach past the log's end"
    if (dispatcher.committed_to or 0) > offset:
        raise not_known(settings.version, f"{what} by a record that states a wrong offset", store)
    if dispatcher.dispatched_to <= offset:
        return
    queues = [queue for queue in dispatcher.queues.values() if isinstance(queue, BrokerRocksDBQueue)]
    beyond = [queue for queue in queues if queue.last is not None and queue.last.physical_offset >= offset]
    cuts_all = settings.does(releases.CUTS_ALL_QUEUES_IN_ROCKSDB)
    if dispatcher.committed_to is not None:
        # RocksDB now says that it ends at the record that was dispatched last, and nothing is cut. From 5.3.2 on
        # another thread writes that, before recovery asks or after it: mostly before.
        if beyond and cuts_all:
            raise not_known(settings.version, f"{what} and an abort file", store)
        return
    if beyond and not cuts_all:
        raise not_known(settings.version, what, store)
    for queue in beyond:
        queue.cut(offset, segments[0].file.file_from_offset)


def correct_min_offsets(dispatcher: Dispatcher, settings: StartSettings) -> None:
    """Run ``ConsumeQueue#correctMinOffset`` for each queue, as far as it matters for a start.

    Raises
    ------
    NoStartError
        The release looks for an entry before the first one of a queue's last file.
    """
    for queue in dispatcher.queues.values():
        if isinstance(queue, BrokerBatchQueue | BrokerRocksDBQueue):
            continue
        if not queue.files and settings.does(releases.FORGETS_QUEUES_WITHOUT_FILES):
            queue.max_physic_offset = -1
        last = queue.files[-1] if queue.files else None
        if last and last.begin and not last.wrote and settings.does(releases.FAILS_AT_EMPTY_QUEUE_FILES):
            path = last.path or f"the last file of {queue.topic}-{queue.queue_id}"
            raise NoStartError(Part.QUEUES, f"{path} holds no entry, and the search for its last one fails", last.path)


@dataclass
class _Start:
    """One start, up to the step that it has reached."""

    store: Path
    settings: StartSettings
    is_abnormal: bool
    files: list[MappedFile] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    dispatcher: Dispatcher = field(init=False)
    index: IndexFiles = field(default_factory=IndexFiles)
    end: FoundEnd | None = None
    removed: list[Path] = field(default_factory=list)
    replays_from: int | None = None
    missing_entries: int = 0
    last_is_missing: bool = False
    reach: int = 0
    # Queues that lack the entry of their last record.
    behind: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(self.store, self.settings, {})

    def load(self, commit_log: Sequence[Path]) -> None:
        """Load the files, recover queues and log, and cut both."""
        self.segments = load_segments(commit_log, self.settings, self.removed)
        self.files = [segment.file for segment in self.segments]
        self.dispatcher.queues = load_queues(self.store, self.settings)
        self.dispatcher.dispatched_to = _dispatched_to(self.settings)
        if self.settings.in_rocksdb and not self.segments:
            raise not_known(self.settings.version, "queues in RocksDB and no log", self.store)
        checkpoint = load_checkpoint(self.store)
        self.index = load_index(self.store, checkpoint, self.settings, is_abnormal=self.is_abnormal)
        self.dispatcher.index_end = self.index.end
        queues = self.dispatcher.queues.values()
        for queue in queues:
            queue.recover()
        end_of_files = self.files[-1].end if self.files else 0
        self.reach = reach = max(self.index.end + 1, self.dispatcher.max_physic_offset)
        # Without an index `reach` is 1.
        self.last_is_missing = reach > max(1, end_of_files)
        ranges = list(self.holes) + ([(end_of_files, reach)] if self.last_is_missing else [])
        self.missing_entries = sum(queue.entries_in(ranges) for queue in queues)
        if not self.segments:
            for queue in queues:
                queue.destroy()
            return
        queued_to = self.dispatcher.max_physic_offset
        self.end = recover_log(self.segments, checkpoint, self.dispatcher, self.settings, is_abnormal=self.is_abnormal)
        if self.settings.does(releases.ASKS_THE_QUEUES_AGAIN):
            queued_to = self.dispatcher.max_physic_offset
        if self.settings.in_rocksdb:
            cut_rocksdb_queues(self.store, self.segments, self.dispatcher, self.end.offset)
        else:
            cut_queues(self.dispatcher, queued_to, self.end.offset)
        self.removed += [Path(segment.file.path) for segment in cut_log(self.segments, self.end.offset)]
        correct_min_offsets(self.dispatcher, self.settings)

    def run(self) -> None:
        """Replay, as far as the release does so before it is up."""
        if self.settings.replays_from_queues:
            self.replays_from = replay_from(self.segments, self.dispatcher)
            replay(self.segments, self.replays_from, self.dispatcher, self.settings)
        else:
            self.replays_from = self.log_end
        abort = self.store / ABORT
        if self.settings.does(releases.WRITES_INTO_ABORT) and abort.is_dir():
            raise NoStartError(Part.ABORT, f"{abort} is a directory where the broker writes a file", abort)

    @property
    def _unknown_batch_topics(self) -> set[str]:
        return {topic.decode(errors="replace") for topic in self.settings.unknown_batch_topics}

    def _recovered_bytes(self) -> int:
        if self.end is None:
            return 0
        begin = self.end.begins_in.file.file_from_offset
        return sum(
            min(file.end, self.end.offset) - file.file_from_offset
            for file in self.files
            if (begin <= file.file_from_offset < self.end.offset)
        )

    @property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """Ranges of the log that no segment holds."""
        return tuple(
            (file.end, after.file_from_offset)
            for file, after in zip(self.files, self.files[1:], strict=False)
            if file.end != after.file_from_offset
        )

    @property
    def log_end(self) -> int:
        """The end of the log; 0 without segments."""
        return self.segments[-1].end if self.segments else 0

    def prediction(self) -> Prediction:
        """The prediction as far as the start has come."""
        recovery = Recovery.ABNORMAL if self.is_abnormal else Recovery.NORMAL
        read = self._recovered_bytes()
        removed_queue_files = [path for queue in self.dispatcher.queues.values() for path in queue.removed]
        return Prediction(
            release=self.settings.release,
            recovery=recovery,
            recovers_from=self.end.begins_in.file.path if self.end else None,
            holes=self.holes,
            missing_entries=self.missing_entries,
            last_is_missing=self.last_is_missing,
            reach=self.reach,
            removed_segments=() if self.end else tuple(map(str, self.removed)),
            log_end=self.log_end if self.end or not self.files else None,
            cut=self._cut(),
            dispatched=self.dispatcher.count,
            dispatches_from=self.dispatcher.first,
            replays_from=self.replays_from,
            recovered_bytes=read,
            recovery_seconds=recovery_seconds(read, self.end.records, self.end.dispatched) if self.end else 0.0,
            removed_queue_files=tuple(sorted(map(str, removed_queue_files))),
            removed_index_files=tuple(map(str, self.index.removed)),
            index_end=self.dispatcher.index_end,
            astray=self.dispatcher.astray,
            not_seen=self.settings.not_seen,
        )

    def _cut(self) -> LogCut | None:
        if self.end is None:
            return None
        file = self.end.segment.file
        lost = lost_records(self.files, self.end.offset, self.end.last_store_timestamp, self.settings)
        return LogCut(
            offset=self.end.offset,
            file=file.path,
            position=self.end.offset - file.file_from_offset,
            why=self.end.why,
            lost=lost,
            removed=tuple(sorted(map(str, self.removed))),
        )

    def with_what_is_kept(self, found: Prediction) -> Prediction:
        """Return the prediction with the final state of queues and index beside the log."""
        indexed = Indexed([*self.index.ranges, *self.dispatcher.indexed])
        kept = belonging([segment.file for segment in self.segments], self.log_end, indexed, self.settings)
        begin = self.segments[0].file.file_from_offset if self.segments else 0
        queues = self.dispatcher.queues
        states, unserved = [], 0
        for topic, queue_id in sorted({*queues, *kept.queues}):
            queue, records = queues.get((topic, queue_id)), kept.queues.get((topic, queue_id))
            wanted = list(records.expected()) if records is not None else [Expected(begin, 0)]
            entries = queue.entries_from(begin) if queue else 0
            # A queue that started over may have the entries of one life or of both: take the state that lacks least.
            last_end = queue.last_end if queue else 0
            missing, _, number = min(
                (
                    each.entries - (queue.entries_from(each.start) if queue and each.start > begin else entries),
                    each.last_end != last_end,
                    number,
                )
                for number, each in enumerate(wanted)
            )
            expected = wanted[number]
            # As many entries may be missing as lead to no good record, and files may belong to another queue.
            is_behind = expected.last_end is not None and (
                last_end < expected.last_end or (missing == 0 and last_end != expected.last_end)
            )
            unserved += max(0, -missing)
            missing = max(missing, int(is_behind))
            max_offset = queue.max_offset if queue else 0
            if is_behind and queue is not None:
                self.behind.append(f"{topic}-{queue_id}")
            states.append(PredictedQueue(topic, queue_id, max_offset, entries, expected.entries, max(0, missing)))
        waits = WaitingMessages.of(
            [segment.file for segment in self.segments], self.log_end, {each.topic for each in states}
        )
        ends = {(each.topic, each.queue_id): each.max_offset for each in states}
        beyond_end = sum(
            queue.entries_in([(self.log_end, LONG_MAX)])
            for queue in queues.values()
            if isinstance(queue, BrokerRocksDBQueue)
        )
        return replace(
            found,
            beyond_end=beyond_end,
            timers=waits.predicted_timers(
                self.store, self.settings, ends.get((TIMER_TOPIC, 0), 0), int(time.time() * 1000)
            ),
            transactions=waits.transactions(self.store, self.settings, found.dispatches_from),
            queues=tuple(states),
            damaged_ranges=kept.damaged_ranges,
            renumbered=tuple(sorted({each.topic for each in states if each.records} & self._unknown_batch_topics)),
            unserved=unserved if kept.damaged_ranges else 0,
            index_missing=kept.index_missing,
        )


def no_start(store: Path, settings: StartSettings, why: str) -> Prediction:
    """Return the prediction for a broker whose settings are not those of the store's files."""
    recovery = Recovery.ABNORMAL if (store / ABORT).exists() else Recovery.NORMAL
    return Prediction(settings.release, recovery, Obstacle(Part.SETTINGS, why))


def predict(
    store: Path, commit_log: Sequence[Path], settings: StartSettings, *, is_abnormal: bool | None = None
) -> Prediction:
    """Return what a broker with these settings does; `is_abnormal` counts in place of the store's ``abort`` file.

    Raises
    ------
    ReputError
        A file cannot be read.
    """
    if is_abnormal is None:
        is_abnormal = (store / ABORT).exists()
    start = _Start(store, settings, is_abnormal)
    try:
        start.load(commit_log)
        start.run()
    except NoStartError as stopped:
        if settings.in_rocksdb and stopped.obstacle.part is Part.DISPATCH:
            raise not_known(settings.version, "queues in RocksDB and a record that stops dispatch", store) from None
        return replace(start.prediction(), obstacle=stopped.obstacle)
    found = start.with_what_is_kept(start.prediction())
    # A queue that has lost its directory is not compared.
    if settings.reads_rocksdb and start.behind:
        why = f"the files of the queue {start.behind[0]} end before RocksDB, which the broker reads, does"
        return replace(found, obstacle=Obstacle(Part.QUEUES, f"{why} (combineCQPreferCQType)"))
    return found
