"""`reput dump --file` of ``rocksdbstore/``: a real 5.5.0 broker's index, and timers and half messages beside it."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from rocksdict import Options, Rdict
from support.broker_stores import unpack
from unit.streaming.dump.dumps import file_dump

from reput.sinks.index.rocksdb_index import keys_of
from reput.source.errors import OptionError, StoreError, UnknownNameError
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, scan_windows
from reput.streaming.dump.entry_files import FileKind
from reput.streaming.dump.log_dump import RecordSelection

DUE_MS = 1_800_000_000_000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return unpack("v5-rocksdb-index", tmp_path)


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A database of another name, with a timer message, two half messages, and one invalid entry in each."""
    path, options = tmp_path / "copy", Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(path), options)
    timers, halves = (database.create_column_family(name, options) for name in ("timer", "trans"))
    timers[b"timeline_checkpoint"] = struct.pack(">q", DUE_MS - 1000)
    timers[b"sys_topic_scan_offset_checkpoint"] = struct.pack(">q", 7)
    timers[struct.pack(">q", DUE_MS) + b"U0"] = struct.pack(">iq", 300, 4096)
    timers[struct.pack(">q", DUE_MS) + b"U1"] = b"short"
    halves[b"lastOffsetPy"] = struct.pack(">q", 2000)
    halves[struct.pack(">q", 1000) + b"@T@U2"] = struct.pack(">ii", 3, 200)
    halves[struct.pack(">q", 2000) + b"@T\x1b[31m@U3"] = struct.pack(">ii", 0, 201)
    halves[struct.pack(">q", 3000) + b"@T@U@4"] = struct.pack(">ii", 0, 202)
    for each in (timers, halves, database):
        each.close()
    return path


def test_the_index_has_the_keys_of_the_records(home: Path) -> None:
    """One row for each key that a broker puts for the log's records, with the record's offset and time."""
    (file,) = MappedFileQueue.load((home / "store" / "commitlog",)).files
    windows = scan_windows(file, 0, file.end, DecodeOptions())
    records = [each for window in windows for each in window.decode(np.empty(0, np.int64)).columns.messages()]
    dumped = file_dump(home / "store" / "rocksdbstore")
    wanted = {key: each for each in records for key in keys_of(each)}
    assert dumped.header["indexed_to"] == max(each.physical_offset for each in wanted.values())
    assert len(dumped.rows) == len(wanted) == sum(dumped.counts.values()) > 100
    got = {
        "@".join(
            [row["topic"], row["verdict"][0], *filter(None, (row["key"], row["uniq_key"])), str(row["physical_offset"])]
        ): row["timestamp"]
        for row in dumped.rows
    }
    assert got == {f"{key[9:-9].decode()}@{each.physical_offset}": each.store_timestamp for key, each in wanted.items()}


def test_what_is_chosen(home: Path) -> None:
    """By topic, key or unique key, and by the record's offset; an option of records is refused."""
    path = home / "store" / "rocksdbstore"
    (row,) = file_dump(path, selection=RecordSelection(topic="T", key="tk0")).rows
    assert (row["verdict"], row["key"]) == ("KEY", "tk0")
    with_key = file_dump(path, selection=RecordSelection(key=row["uniq_key"])).rows
    assert {each["verdict"] for each in with_key} == {"KEY", "TAG", "UNIQ_KEY"}
    at = row["physical_offset"]
    assert set(file_dump(path, begin=at, end=at + 1).offsets()) == {at}
    assert len(file_dump(path, limit=4).rows) == 4
    assert file_dump(path, selection=RecordSelection(topic="T", key="nope")).rows == []
    with pytest.raises(UnknownNameError, match=r"no topic is called Com in .*; is Comp meant"):
        file_dump(path, selection=RecordSelection(topic="Com"))
    with pytest.raises(OptionError, match="has no records"):
        file_dump(path, selection=RecordSelection(since=0))


def test_timers_and_half_messages(waiting: Path) -> None:
    dumped = file_dump(waiting, kind=FileKind.MESSAGE_ROCKSDB)
    assert {name: dumped.header[name] for name in ("timers_sent_to", "timers_read_to", "halves_to", "indexed_to")} == {
        "timers_sent_to": "2027-01-15T07:59:59.000Z",
        "timers_read_to": 7,
        "halves_to": 2000,
        "indexed_to": 0,
    }
    (timer,) = dumped.of("TIMER")
    assert (timer["timestamp"], timer["uniq_key"], timer["physical_offset"], timer["msg_size"]) == (
        DUE_MS,
        "U0",
        4096,
        300,
    )
    halves = [(each["physical_offset"], each["uniq_key"], each["check_times"]) for each in dumped.of("HALF")]
    assert halves == [(1000, "U2", 3), (2000, "U3", 0)]
    assert len(dumped.of("BAD_ENTRY")) == 2
    assert file_dump(waiting, kind=FileKind.MESSAGE_ROCKSDB, begin=1500).counts == {"TIMER": 1, "HALF": 1}


def test_a_database_of_another_kind(tmp_path: Path) -> None:
    """It does not count as damaged: no advice would change it."""
    path = unpack("v5-config-v2-batchcq", tmp_path) / "store" / "config" / "rdb"
    with pytest.raises(StoreError, match=r"is a RocksDB database of another kind: it has no column family offset;"):
        file_dump(path)


def test_a_queue_that_is_not_there(tmp_path: Path) -> None:
    """An unknown topic or queue in a database of queues is an error, not an empty answer."""
    path = unpack("v5-rocksdb", tmp_path) / "store" / "consumequeue"
    topic = file_dump(path, limit=1).rows[0]["topic"]
    with pytest.raises(UnknownNameError, match=f"no topic is called {topic}x in .*; is .*{topic}"):
        file_dump(path, selection=RecordSelection(topic=f"{topic}x"))
    with pytest.raises(UnknownNameError, match=f"the topic {topic} has no queue 77"):
        file_dump(path, selection=RecordSelection(topic=topic, queue_id=77))
    with pytest.raises(UnknownNameError, match="no topic has the queue 77"):
        file_dump(path, selection=RecordSelection(queue_id=77))
