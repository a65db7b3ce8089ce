"""Look-ups by key in a store whose index is in RocksDB, made by a real 5.5.0 message store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rocksdict import Options, Rdict
from support.broker_stores import unpack
from support.command_line import invoke

from reput.sinks.index.rocksdb_index import RocksDBIndex, keys_of
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, scan_windows
from reput.source.record.message_decoder import Message


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return unpack("v5-rocksdb-index", tmp_path)


def records(home: Path) -> list[Message]:
    (file,) = MappedFileQueue.load((home / "store" / "commitlog",)).files
    windows = scan_windows(file, 0, file.end, DecodeOptions())
    return [message for window in windows for message in window.decode(np.empty(0, np.int64)).columns.messages()]


def rows(home: Path, *words: str) -> list[dict[str, object]]:
    of_store = ["--store", str(home / "store"), "--broker-conf", str(home / "broker.conf")]
    done = invoke(["query", *of_store, *words, "--json"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_keys_are_those_that_a_broker_writes(home: Path) -> None:
    """Each key of each record, and no other; keys, tags and unique keys."""
    wanted = {key: message for message in records(home) for key in keys_of(message)}
    with RocksDBIndex.open(home / "store") as index:
        assert index is not None
        entries = list(index.entries())
    assert {key for key, _, _ in entries} == set(wanted)
    assert all(
        (stored, at) == (wanted[key].store_timestamp, wanted[key].physical_offset) for key, stored, at in entries
    )


def test_every_key_is_found(home: Path) -> None:
    """By key and by unique key, without any index file."""
    assert not (home / "store" / "index").exists()
    for message in records(home):
        if message.uniq_key is None:
            continue
        found = rows(home, "--topic", message.topic, "--uniq-key", message.uniq_key)
        assert message.physical_offset in [row["physical_offset"] for row in found]
        for key in (message.keys or "").split():
            found = rows(home, "--topic", message.topic, "--key", key)
            assert message.physical_offset in [row["physical_offset"] for row in found]


def test_an_index_that_cannot_be_read_is_no_empty_answer(home: Path) -> None:
    """Without another index a look-up fails; beside index files, the answer says that there may be more."""
    (message, *_) = (each for each in records(home) if each.keys)
    key = ["--topic", message.topic, "--key", str(message.keys).split()[0]]
    for path in (home / "store" / "rocksdbstore").glob("MANIFEST-*"):
        path.write_bytes(b"damaged")
    of_store = ["--store", str(home / "store"), "--broker-conf", str(home / "broker.conf")]
    done = invoke(["query", *of_store, *key])
    assert done.exit_code != 0
    assert "cannot read the RocksDB database" in done.stderr
    shutil.rmtree(home / "store" / "rocksdbstore")
    done = invoke(["query", *of_store, *key])
    assert done.exit_code != 0
    assert "no index" in done.stderr


def verify(home: Path) -> tuple[int, dict[str, Any]]:
    done = invoke(["verify", "--store", str(home / "store"), "--broker-conf", str(home / "broker.conf"), "--json"])
    return done.exit_code, json.loads(done.stdout)["parts"]["rocksdb index"]


def test_verify_compares_each_key(home: Path) -> None:
    """Nothing differs; without one of its keys, and with one too many, it says which."""
    count = sum(1 for message in records(home) for _ in keys_of(message))
    code, section = verify(home)
    assert (code, section["compared"], section["differences"]) == (0, {"keys": count}, 0)
    (message, *_) = (each for each in records(home) if each.keys)
    (key, *_) = keys_of(message)
    options = Options(raw_mode=True)
    families = {"default": options, "timer": options, "trans": options}
    database = Rdict(str(home / "store" / "rocksdbstore"), options, families)
    database.delete(key)
    database[key[:8] + b"@T@K@none@none@" + key[-8:]] = message.store_timestamp.to_bytes(8, "big")
    database.close()
    code, section = verify(home)
    assert (code, section["by_kind"]) == (1, {"key_missing": 1, "key_unexplained": 1})
