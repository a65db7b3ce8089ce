"""ConsumeQueues in RocksDB, as brokers of 5.4.0 and later keep them (``RocksDBConsumeQueueStore``): read and written.

The database has two column families. ``default`` has an entry for each message of each queue, under the message's own
queue offset (``RocksDBConsumeQueueTable``). ``offset`` has three kinds of values (``RocksDBConsumeQueueOffsetTable``):

* for each queue, physical offset and queue offset of its last entry;
* for each queue, the same of the first entry that the log still has, which a broker writes when it is first asked for;
* the physical offset up to which the log was dispatched.

Entries after a queue's last one remain from before a recovery, or from an earlier life of the topic; no broker reads
them.

A broker writes its entries without RocksDB's own log, so a killed broker leaves what it had flushed: always a complete
state, older than the log. Its database is only read, through links to its files (`open_rocksdb`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import QueueEntries
from reput.sinks.files.config_manager import is_rocksdb, open_rocksdb
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import SinkProgress
from reput.sinks.formats.consume_queue import ENTRY
from reput.sinks.queue.queue_reader import Units
from reput.sinks.sink import not_yet_written
from reput.source.arrays import Int64s
from reput.source.errors import SinkError, StoreError
from reput.source.printable import printable

#: The value of an entry (``RocksDBConsumeQueueTable#CQ_UNIT_SIZE``): that of a file with the store time after it.
ROCKSDB_ENTRY: Final = np.dtype(
    [("physical_offset", ">i8"), ("msg_size", ">i4"), ("tags_code", ">i8"), ("store_timestamp", ">i8")]
)

#: A queue, by its topic's bytes and its id.
QueueKey = tuple[bytes, int]

_OFFSET: Final = "offset"
# Separates the parts of a key.
_CTRL_1: Final = b"\1"
_MAX, _MIN = b"max", b"min"
# The topic of the key with the offset up to which the log was dispatched.
_CHECKPOINT_TOPIC: Final = b"CHECKPOINT_TOPIC"
_PLACE: Final = struct.Struct(">qq")
_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")
_READ_ENTRIES = 50_000


class Place(NamedTuple):
    """An entry's queue offset, and the physical offset where its record begins."""

    physical_offset: int
    queue_offset: int


def _queue_prefix(topic: bytes, queue_id: int) -> bytes:
    """The first bytes of the keys of a queue's entries; the queue offset follows, 8 bytes."""
    return b"".join((_INT.pack(len(topic)), _CTRL_1, topic, _CTRL_1, _INT.pack(queue_id), _CTRL_1))


def _offset_key(topic: bytes, queue_id: int, which: bytes) -> bytes:
    return b"".join((_INT.pack(len(topic)), _CTRL_1, topic, _CTRL_1, which, _CTRL_1, _INT.pack(queue_id)))


class RocksDBQueues:
    """The queues of one database, as they were when it was opened.

    Attributes
    ----------
    last, first
        The place of each queue's last entry, and of its first one if a broker has searched for it.
    dispatched_to
        The physical offset up to which the log was dispatched; 0 if nothing was.
    """

    def __init__(self, database: Any) -> None:
        """Take an open database; use `open` for one in a directory."""
        self._database = database
        self.last: dict[QueueKey, Place] = {}
        self.first: dict[QueueKey, Place] = {}
        self.dispatched_to = 0
        for key, value in database.get_column_family(_OFFSET).items():
            self._take_offset(key, value)

    @classmethod
    @contextmanager
    def open(cls, directory: Path) -> Iterator[RocksDBQueues]:
        """Open the database in `directory` for reading.

        Raises
        ------
        StoreError
            It is missing or cannot be read, here or later, or the library that reads it is missing.
        SinkError
            It has a key that no broker writes.
        """
        if not is_rocksdb(directory):
            raise StoreError(
                f"{directory} has no RocksDB database",
                advice="if the broker keeps its queues in files, give a broker.conf with storeType=default; else "
                "restore it, or make it again with 'reput rebuild'",
                file=directory,
            )
        with open_rocksdb(directory, _OFFSET) as database:
            yield cls(database)

    def _take_offset(self, key: bytes, value: bytes) -> None:
        topic, which, queue_id = key[5:-9], key[-8:-5], int.from_bytes(key[-4:], "big", signed=True)
        is_known = which in (_MAX, _MIN) and key == _offset_key(topic, queue_id, which)
        if is_known and topic == _CHECKPOINT_TOPIC and len(value) == _LONG.size:
            (self.dispatched_to,) = _LONG.unpack(value)
        elif is_known and len(value) == _PLACE.size:
            table = self.last if which == _MAX else self.first
            table[topic, queue_id] = Place(*_PLACE.unpack(value))
        else:
            raise SinkError(f"the key {key!r} of the column family {_OFFSET} is not one that a broker writes")

    def entries(self, queue: QueueKey, first: int = 0, end: int | None = None) -> Iterator[tuple[Int64s, Units]]:
        """The entries with queue offsets in `[first, end)`, in chunks: queue offsets (int64[n]), values (n units).

        The default `end` is after the queue's last entry; a queue without a last entry yields nothing.
        """
        from rocksdict import ReadOptions  # noqa: PLC0415  only a store with such a database needs it

        if end is None:
            end = self.last[queue].queue_offset + 1 if queue in self.last else 0
        if end <= first:
            return
        prefix, options = _queue_prefix(*queue), ReadOptions()
        options.set_iterate_upper_bound(prefix + _LONG.pack(end))
        rows = self._database.items(from_key=prefix + _LONG.pack(max(0, first)), read_opt=options)
        while chunk := list(islice(rows, _READ_ENTRIES)):
            keys, values = zip(*chunk, strict=True)
            numbers = np.frombuffer(b"".join(key[-8:] for key in keys), ">i8").astype(np.int64)
            data = b"".join(values)
            if len(data) != len(numbers) * ROCKSDB_ENTRY.itemsize:
                raise SinkError(f"an entry of {queue_words(queue)} has not {ROCKSDB_ENTRY.itemsize} bytes")
            yield numbers, np.frombuffer(data, ROCKSDB_ENTRY)


def rocksdb_units(incoming: QueueEntries) -> Units:
    """The values that a broker puts for entries, which must have been made with `LogicNeeds.ext`."""
    assert incoming.ext is not None
    plain = incoming.entries.view(ENTRY)[:, 0]
    units = np.empty(len(plain), ROCKSDB_ENTRY)
    for name in ENTRY.names or ():
        units[name] = plain[name]
    units["store_timestamp"] = incoming.ext.store_timestamps
    return units


class RocksDBQueueWriter:
    """Makes a database of queues in a directory that has none, as a broker of 5.5.0 would leave it.

    Entries are put in log order; of two with the same queue offset the later one counts, as in a broker. The first
    entry that the log still has is not recorded: a broker does that when it is asked for it.
    """

    def __init__(self, directory: Path) -> None:
        """Make the database; `directory` is new or empty."""
        from rocksdict import Rdict, WriteOptions  # noqa: PLC0415  as above

        self._directory = directory
        self._database = Rdict(str(directory), _options(is_compressed=True))
        self._offsets = self._database.create_column_family(_OFFSET, _options(is_compressed=False))
        self._last: dict[QueueKey, Place] = {}
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True

    @property
    def queue_count(self) -> int:
        """The number of queues with an entry."""
        return len(self._last)

    def put(self, queue: QueueKey, queue_offsets: Int64s, units: Units) -> None:
        """Put entries of one queue: queue offsets (int64[n]), values (n of `ROCKSDB_ENTRY`), in log order."""
        from rocksdict import WriteBatch  # noqa: PLC0415  as above

        if not len(units):
            return
        prefix = np.frombuffer(_queue_prefix(*queue), np.uint8)
        keys = np.empty((len(units), len(prefix) + 8), np.uint8)
        keys[:, : len(prefix)] = prefix
        keys[:, len(prefix) :] = queue_offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
        batch = WriteBatch(raw_mode=True)
        for key, value in zip(_rows(keys), _rows(units.view(np.uint8).reshape(len(units), -1)), strict=True):
            batch.put(key, value)
        self._database.write(batch, self._unlogged)
        # A message that names a queue twice has two entries; a broker takes the first of them for the last entry.
        last = int(np.flatnonzero(units["physical_offset"] == units["physical_offset"][-1])[0])
        self._last[queue] = Place(int(units["physical_offset"][last]), int(queue_offsets[last]))

    def finish(self, dispatched_to: int) -> None:
        """Write the table of offsets, and complete the database; `dispatched_to` is a physical offset."""
        for (topic, queue_id), place in self._last.items():
            self._offsets.put(_offset_key(topic, queue_id, _MAX), _PLACE.pack(*place), self._unlogged)
        if dispatched_to:
            self._offsets.put(_offset_key(_CHECKPOINT_TOPIC, 0, _MAX), _LONG.pack(dispatched_to), self._unlogged)
        self._database.flush()
        self._offsets.flush()

    def close(self) -> None:
        """Close the database, and remove the files that RocksDB's library writes for itself."""
        self._offsets.close()
        self._database.close()
        for name in ("rocksdict-config.json", "LOG", "LOCK"):
            (self._directory / name).unlink(missing_ok=True)


class RocksDBQueueSink:
    """Makes the database `folder` below `files` from the log, again each time: it keeps no progress (`Sink`)."""

    name = "queues in RocksDB"
    last_record = None

    def __init__(self, files: DurableFiles, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._writer: RocksDBQueueWriter | None = None
        self._dispatched_to = 0
        self.end_offset = 0
        self.queue_count = 0

    def recover(self, start_offset: int) -> SinkProgress:
        """Begin at `start_offset` with an empty database."""
        self._files.remove_tree(self._folder)
        self._writer = RocksDBQueueWriter(self._files.make_directory(self._folder))
        self.end_offset = start_offset
        return SinkProgress(start_offset, start_offset)

    def write(self, batch: LogicBatch) -> AnomalyCounts:
        """Put the batch's entries; they are durable only after `finish`."""
        assert self._writer is not None
        new = not_yet_written(self.name, self.end_offset, batch)
        if new is not None:
            for incoming in new.entries.all_queues():
                units = rocksdb_units(incoming)
                self._writer.put((incoming.topic, incoming.queue_id), incoming.queue_offsets, units)
                end = int((units["physical_offset"].astype(np.int64) + units["msg_size"]).max(initial=0))
                self._dispatched_to = max(self._dispatched_to, end)
            self.end_offset = new.end
        return NO_ANOMALIES

    def pass_over(self, end_offset: int) -> None:
        """Continue at `end_offset`: the records before it expired unread."""
        self.end_offset = end_offset

    def finish(self) -> None:
        """Complete the database, durably."""
        assert self._writer is not None
        self._writer.finish(self._dispatched_to)
        self.queue_count = self._writer.queue_count
        self.close()
        directory = self._files.root / self._folder
        self._files.make_durable((self._folder, path.name) for path in sorted(directory.iterdir()))

    def files(self) -> Iterator[Path]:
        """The files with entries, once the database is complete."""
        return (self._files.root / self._folder).glob("*.sst")

    def close(self) -> None:
        """Close the database, complete or not."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _rows(data: np.ndarray[Any, Any]) -> list[bytes]:
    whole, size = data.tobytes(), data.shape[1]
    return [whole[at : at + size] for at in range(0, len(whole), size)]


def _options(*, is_compressed: bool) -> Any:
    """The options of a column family whose files a broker's RocksDB, 8.4.4, reads (``RocksDBOptionsFactory``)."""
    from rocksdict import BlockBasedOptions, DBCompressionType, Options  # noqa: PLC0415  as above

    table = BlockBasedOptions()
    table.set_format_version(5)  # the library's own default is newer
    table.set_block_size(32 * 1024)
    table.set_bloom_filter(16, block_based=False)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4() if is_compressed else DBCompressionType.none())
    options.create_if_missing(True)
    options.set_write_buffer_size(128 * 1024 * 1024)
    return options


def queue_words(queue: QueueKey) -> str:
    """A queue in words."""
    topic, queue_id = queue
    return f"queue {queue_id} of topic {printable(topic.decode('utf-8', 'backslashreplace'))!r}"
