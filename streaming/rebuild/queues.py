"""`reput queues`: a stopped broker's queues move from files into RocksDB, or back.

The new queues are made in a directory of their own, durably, and are read back and compared before they replace any.
A swap with a durable note then puts them in place (``sinks/files/swap.py``). Until the note is written the store has
its old queues. After it, the next command finishes the swap, with the new ones.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from reput.sinks.abort_file import LeftBy, abort_left_by, clear_abort, mark_abort
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import has_files
from reput.sinks.files.own_files import check_queues_only
from reput.sinks.files.store_lock import StoreLock
from reput.sinks.files.store_path import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    REBUILD_ROOT,
    REPUT,
    STORE_CHECKPOINT,
)
from reput.sinks.files.swap import finish_swap, swap
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, ENTRY, PRE_BLANK, is_pre_blank
from reput.sinks.queue.consume_queue import KIND, rounded_file_size
from reput.sinks.queue.lookup import end_of_entries
from reput.sinks.queue.queue_reader import QueueReader, Units, load_queues
from reput.sinks.queue.rocksdb_queue import (
    ROCKSDB_ENTRY,
    QueueKey,
    RocksDBQueues,
    RocksDBQueueWriter,
    queue_words,
)
from reput.sinks.store_checkpoint import StoreCheckpoint, load_store_checkpoint, store_checkpoint
from reput.source.arrays import Int64s
from reput.source.errors import OptionError, OutputError, SinkError
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.store_layout import ROCKSDB_QUEUES, has_queue_files, rocksdb_queues
from reput.source.printable import counted
from reput.source.record.message_format import BORNHOST_V6_FLAG, STORE_TIMESTAMP_AT, SYS_FLAG_AT
from reput.streaming.config.broker import keeps_queued_offset, read_topics
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.stored_sizes import check_fits_files

_log = logging.getLogger("reput")

FILES, ROCKSDB = "files", "rocksdb"
# In the store from before its queues are replaced until they are whole again.
_CONVERTING = (REPUT, "queues.json")
# How many bytes the address of a host takes more with IPv6.
_V6_MORE = 12


@dataclass(frozen=True)
class MovedQueues:
    """The result of a move: how many `queues` and `entries` it moved, none if it had nothing to do."""

    to: str
    queues: int
    entries: int

    def to_json(self) -> str:
        """The result as one JSON object."""
        return json.dumps(asdict(self))

    def text(self) -> str:
        """The result in words."""
        where = "RocksDB" if self.to == ROCKSDB else "files"
        if not self.queues:
            return f"the queues are in {where} already"
        moved = f"{counted(self.queues, 'queue')}, {counted(self.entries, 'entry', 'entries')}"
        setting = "defaultRocksDB" if self.to == ROCKSDB else "default"
        return f"{moved}: now in {where}; set storeType={setting} in broker.conf before the broker starts"


class QueueMove:
    """One move of the queues of `config.store`; `to` is `FILES` or `ROCKSDB`."""

    def __init__(self, config: PipelineConfig, to: str) -> None:
        if to not in (FILES, ROCKSDB):
            raise OptionError(f"--to {to}: {ROCKSDB} or {FILES} wanted")
        self._config = config
        self._store = config.store
        self._to = to
        self._log = LogReader(config.log_options())
        self._files = DurableFiles(self._store)
        self._root = self._store.joinpath(*REBUILD_ROOT)

    def run(self) -> MovedQueues:
        """Move them.

        Raises
        ------
        StoreLockedError
            A broker or reput runs on the store.
        ForeignSettingsError
            The settings are not those of the store's files.
        OutputError
            The broker stopped uncleanly, or the store has queues of both kinds, or something that would be lost.
        SinkError, StoreError
            The queues cannot be read, or lack entries, or the log cannot be read.
        """
        with ExitStack() as cleanup:
            cleanup.enter_context(StoreLock(self._store))
            cleanup.callback(self._files.close)
            if finish_swap(self._files):
                _log.info("finished putting in place what an earlier command made")
            self._end_earlier()
            in_files, database = has_queue_files(self._store), rocksdb_queues(self._store)
            is_there = {FILES: in_files, ROCKSDB: database is not None}
            if [kind for kind, found in is_there.items() if found] == [self._to]:
                return MovedQueues(self._to, 0, 0)
            self._check(in_files=in_files, database=database)
            check_fits_files(self._config, self._store)
            self._files.remove_tree(*REBUILD_ROOT)
            made = DurableFiles(self._root, whole=True)
            cleanup.callback(made.close)
            if self._to == ROCKSDB:
                return self._to_rocksdb(made)
            assert database is not None
            return self._to_files(made, database)

    def _check(self, *, in_files: bool, database: Path | None) -> None:
        if abort_left_by(self._store) is not LeftBy.NOBODY:
            raise OutputError(
                f"{self._store} was stopped uncleanly: its last entries may be missing",
                advice="start the broker as it was, stop it, and move them then",
                file=self._store,
            )
        if in_files and database is not None:
            raise OutputError(
                f"{self._store} has queues in files and in {database}, and nothing says which count",
                advice="'reput verify' compares both with the log; move away those that the broker does not read",
                file=database,
            )
        if not in_files and database is None:
            raise OutputError(f"{self._store} has no queues", file=self._store)
        for folder in (BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT):
            if has_files(self._store / folder):
                raise OutputError(
                    f"{self._store / folder} has files, which RocksDB has no place for",
                    advice="make the queues again: 'reput rebuild' with storeType=defaultRocksDB in broker.conf",
                    file=self._store / folder,
                )
        check_queues_only(self._store, CONSUME_QUEUE)

    def _end_earlier(self) -> None:
        """End a move that was stopped; the `abort` that it left does not concern the queues."""
        if self._store.joinpath(*_CONVERTING).exists():
            if abort_left_by(self._store) is LeftBy.REPUT:
                clear_abort(self._files)
            self._files.remove(*_CONVERTING)
            self._files.sync()

    def _put_in_place(self, made: DurableFiles, folder: str, *more: tuple[str, ...]) -> None:
        """Replace the old queues by those made in `folder`, and the files of `more`."""
        made.close()
        folders = {CONSUME_QUEUE, folder} | ({ROCKSDB_QUEUES} if (self._store / ROCKSDB_QUEUES).exists() else set())
        paths = [*((each,) for each in sorted(folders)), *more]
        # A broker that is started in between makes the queues from the whole log.
        self._files.replace(*_CONVERTING, data=json.dumps({"to": self._to}).encode())
        mark_abort(self._files)
        swap(self._files, [(path, path) for path in paths], may_empty=True, database=CONSUME_QUEUE)
        self._end_earlier()

    # --- files to RocksDB -----------------------------------------------------------------------------------------

    def _to_rocksdb(self, made: DurableFiles) -> MovedQueues:
        folder = self._config.rocksdb_folder or CONSUME_QUEUE
        size = rounded_file_size(self._config.queue.mapped_file_size_consume_queue)
        readers = load_queues(self._store, KIND, size)
        segments = self._log.queue()
        log_end = self._log.settled_end(segments.min_offset)
        writer, entries, dispatched_to = RocksDBQueueWriter(made.make_directory(folder)), 0, 0
        try:
            for reader in readers:
                for numbers, units in _entries_of(reader, segments, log_end):
                    writer.put((reader.topic, reader.queue_id), numbers, units)
                    entries += len(units)
                    last = units[-1]
                    dispatched_to = max(dispatched_to, int(last["physical_offset"]) + int(last["msg_size"]))
            writer.finish(dispatched_to)
        finally:
            writer.close()
        made.make_durable((folder, path.name) for path in sorted((made.root / folder).iterdir()))
        with RocksDBQueues.open(made.root / folder) as database:
            for reader in readers:
                queue = (reader.topic, reader.queue_id)
                _check_equal(queue, _entries_of(reader, segments, log_end), database.entries(queue))
        self._put_in_place(made, folder)
        return MovedQueues(ROCKSDB, writer.queue_count, entries)

    # --- RocksDB to files -----------------------------------------------------------------------------------------

    def _to_files(self, made: DurableFiles, database: Path) -> MovedQueues:
        size = rounded_file_size(self._config.queue.mapped_file_size_consume_queue)
        count, last = 0, np.zeros(1, ROCKSDB_ENTRY)[0]
        with RocksDBQueues.open(database) as queues:
            wanted = [queue for queue, place in sorted(queues.last.items()) if place.queue_offset >= 0]
            self._refuse_batch_topics(wanted)
            for queue in wanted:
                for unit in self._write_queue(made, queues, queue, size):
                    last = max(last, unit, key=lambda each: int(each["physical_offset"]))
            made.sync()
            for queue in wanted:
                reader = QueueReader(made.root, KIND, size, *queue)
                count += _check_equal(queue, queues.entries(queue), _entries_of(reader))
        known = load_store_checkpoint(self._files)
        store_checkpoint(made, self._checkpoint(known, last))
        self._put_in_place(made, CONSUME_QUEUE, (STORE_CHECKPOINT,))
        return MovedQueues(FILES, len(wanted), count)

    def _refuse_batch_topics(self, queues: Sequence[QueueKey]) -> None:
        batch = read_topics(self._config, self._store).batch
        found = next((queue for queue in queues if queue[0] in batch), None)
        if found is not None:
            raise OutputError(
                f"{queue_words(found)}: the topic has a BatchConsumeQueue, whose files have more than RocksDB has",
                advice="'reput rebuild' with a broker.conf that has storeType=default makes the queues again",
                file=self._store,
            )

    def _write_queue(self, made: DurableFiles, queues: RocksDBQueues, queue: QueueKey, size: int) -> Iterator[np.void]:
        """Write a queue's files; yield the last entry of each chunk."""
        after: int | None = None
        for numbers, units in queues.entries(queue):
            first = int(numbers[0])
            if (after is not None and first != after) or numbers[-1] - first + 1 != len(numbers):
                raise SinkError(
                    f"{queue_words(queue)} lacks entries after {first if after is None else after - 1}, and files have "
                    "no gaps",
                    advice="'reput verify' compares it with the log, and names the command that makes it again",
                )
            plain = np.empty(len(units), ENTRY)
            for name in ENTRY.names or ():
                plain[name] = units[name]
            if after is None:
                blanks = first % (size // CQ_STORE_UNIT_SIZE)
                plain = np.concatenate([np.full(blanks, PRE_BLANK), plain]).astype(ENTRY)
                first -= blanks
            _put(made, queue, first * CQ_STORE_UNIT_SIZE, plain.tobytes(), size)
            after = int(numbers[-1]) + 1
            yield units[-1]

    def _checkpoint(self, known: StoreCheckpoint, last: np.void) -> StoreCheckpoint:
        """Return the checkpoint of a broker that has flushed all queues in files, up to the last entry."""
        stored = int(last["store_timestamp"])
        offset = int(last["physical_offset"]) if keeps_queued_offset(self._config, self._store) else None
        return known.advanced(stored, stored, None, offset)


def _put(made: DurableFiles, queue: QueueKey, at: int, data: bytes, size: int) -> None:
    """Write bytes of a queue from its byte `at` on; files have `size` bytes."""
    done = 0
    while done < len(data):
        file = (at + done) - (at + done) % size
        begin = at + done - file
        part = data[done : done + size - begin]
        path = QueueReader(made.root, KIND, size, *queue).relative_path(file)
        if not made.root.joinpath(*path).exists():
            made.create(*path, size=size)
        made.write(*path, offset=begin, data=part)
        done += len(part)


def _entries_of(
    reader: QueueReader, segments: MappedFileQueue | None = None, log_end: int | None = None
) -> Iterator[tuple[Int64s, Units]]:
    """Yield the entries of a queue in files, as they are in RocksDB; a recovery cuts off entries from `log_end` on.

    Store times are those of the records in `segments`, and 0 of records that have expired, or without segments.
    """
    if not reader.files:
        return
    end = end_of_entries(reader)
    for number, plain in reader.chunks(reader.files[0] // CQ_STORE_UNIT_SIZE, end):
        keep = ~is_pre_blank(plain)
        if log_end is not None:
            keep &= plain["physical_offset"] < log_end
        rows = np.flatnonzero(keep)
        units = np.zeros(len(rows), ROCKSDB_ENTRY)
        for name in ENTRY.names or ():
            units[name] = plain[name][rows]
        if segments is not None:
            units["store_timestamp"] = _store_times(segments, units["physical_offset"].astype(np.int64))
        if len(rows):
            yield rows + number, units


def _store_times(segments: MappedFileQueue, offsets: Int64s) -> Int64s:
    """Return the store times (ms) of the records at physical offsets; 0 for those that the log no longer has."""
    times = np.zeros(len(offsets), np.int64)
    for file in segments.files:
        rows = np.flatnonzero((offsets >= file.file_from_offset) & (offsets < file.end - STORE_TIMESTAMP_AT - 20))
        if not len(rows):
            continue
        data, at = np.memmap(file.path, np.uint8, "r"), offsets[rows] - file.file_from_offset
        is_v6 = _numbers(data, at + SYS_FLAG_AT, 4) & BORNHOST_V6_FLAG != 0
        times[rows] = _numbers(data, at + STORE_TIMESTAMP_AT + np.where(is_v6, _V6_MORE, 0), 8)
    return times


def _numbers(data: np.memmap[tuple[int], np.dtype[np.uint8]], at: Int64s, size: int) -> Int64s:
    """Return the big-endian numbers of `size` bytes at some places."""
    found = np.ascontiguousarray(data[at[:, None] + np.arange(size)])
    numbers: Int64s = found.view(f">i{size}").reshape(-1).astype(np.int64)
    return numbers


def _check_equal(
    queue: QueueKey, expected: Iterator[tuple[Int64s, Units]], found: Iterator[tuple[Int64s, Units]]
) -> int:
    """Raise SinkError if a new queue differs from its source; return the number of entries.

    Store times are not compared: files have none.
    """
    count = 0
    for mine, theirs in zip_longest(_plain(expected), _plain(found)):
        if mine != theirs:
            raise SinkError(
                f"{queue_words(queue)}: what was made is not what it was made of, at its entry {count}",
                advice="nothing was changed; run the command again, and report it if it fails again",
            )
        count += 1
    return count


def _plain(entries: Iterator[tuple[Int64s, Units]]) -> Iterator[tuple[int, ...]]:
    for numbers, units in entries:
        fields = (units[name].tolist() for name in ENTRY.names or ())
        yield from zip(numbers.tolist(), *fields, strict=True)
