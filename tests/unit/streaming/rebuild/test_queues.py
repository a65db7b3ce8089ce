"""`reput queues`: there and back gives equal bytes, what RocksDB or files cannot hold is refused, nothing is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.broker_stores import unpack
from support.command_line import invoke
from support.rebuild_runner import rebuild
from support.sink_runner import files_below, no_fsync

from reput.sinks.files.store_lock import StoreLock
from reput.streaming.config.pipeline import load_config

FOLDER = "consumequeue"


def queues(home: Path, to: str) -> tuple[int, str]:
    with no_fsync():
        done = invoke(
            ["queues", "--store", str(home / "store"), "--broker-conf", str(home / "broker.conf"), "--to", to]
        )
    return done.exit_code, done.output


def verify(home: Path, store_type: str) -> str:
    conf = home / "after.conf"
    conf.write_text((home / "broker.conf").read_text() + f"\nstoreType={store_type}\n")
    given = ["--store", str(home / "store"), "--broker-conf", str(conf), "-o", "brokerVersion=5.5.0"]
    done = invoke(["verify", *given])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", ["golden-a", "v4-lmq", "v4-expired", "v5-propcrc", "v4-light-queue-blank"])
def test_there_and_back(name: str, tmp_path: Path) -> None:
    """The files have the same names and bytes afterwards, also entries whose records have expired."""
    home = unpack(name, tmp_path)
    before = files_below(home / "store")
    code, said = queues(home, "rocksdb")
    assert code == 0
    assert "now in RocksDB; set storeType=defaultRocksDB in broker.conf before the broker starts" in said
    assert (home / "store" / FOLDER / "CURRENT").is_file()
    assert not [path for path in (home / "store" / FOLDER).iterdir() if path.is_dir()]
    if name != "golden-a":  # whose index is of another release
        assert "nothing differs" in verify(home, "defaultRocksDB")
    assert queues(home, "rocksdb") == (0, "the queues are in RocksDB already\n")
    code, said = queues(home, "files")
    assert code == 0
    after = files_below(home / "store")
    assert {path: data for path, data in after.items() if path != "checkpoint"} == {
        path: data for path, data in before.items() if path != "checkpoint"
    }
    assert queues(home, "files") == (0, "the queues are in files already\n")


def test_a_brokers_own_database(tmp_path: Path) -> None:
    """The files that a database becomes are those that the log makes; light queues among them."""
    home = unpack("v5-rocksdb", tmp_path)
    code, said = queues(home, "files")
    assert (code, said.startswith("49 queues, 498 entries: now in files")) == (0, True)
    assert "498 entries" in verify(home, "default")
    conf = home / "broker.conf"
    conf.write_text(conf.read_text().replace("defaultRocksDB", "default"))
    with no_fsync():
        rebuild(load_config(home / "store", broker_conf=conf), home / "made")
    assert files_below(home / "store" / FOLDER) == files_below(home / "made" / FOLDER)


def test_a_database_in_a_folder_of_its_own(tmp_path: Path) -> None:
    """``useSeparateStorePathForRocksdbCQ``."""
    home = unpack("golden-a", tmp_path)
    before = files_below(home / "store" / FOLDER)
    conf = home / "broker.conf"
    text = conf.read_text() if conf.exists() else ""
    conf.write_text(f"{text}\nstoreType=defaultRocksDB\nuseSeparateStorePathForRocksdbCQ=true\n")
    assert queues(home, "rocksdb")[0] == 0
    assert not (home / "store" / FOLDER).exists()
    assert (home / "store" / "consumequeue_rocksdb" / "CURRENT").is_file()
    assert queues(home, "files")[0] == 0
    assert not (home / "store" / "consumequeue_rocksdb").exists()
    assert files_below(home / "store" / FOLDER) == before


@pytest.mark.parametrize(
    ("name", "to", "because"),
    [
        ("v5-batchcq", "rocksdb", "batchconsumequeue has files, which RocksDB has no place for"),
        ("v4-sql92", "rocksdb", "consumequeue_ext has files, which RocksDB has no place for"),
        ("v4-killed", "rocksdb", "was stopped uncleanly"),
        ("v5-double-write-lite", "files", "has queues in files and in"),
        ("golden-a", "elsewhere", "--to elsewhere: rocksdb or files wanted"),
    ],
)
def test_what_is_refused(name: str, to: str, because: str, tmp_path: Path) -> None:
    home = unpack(name, tmp_path)
    before = files_below(home / "store")
    code, said = queues(home, to)
    assert code != 0
    assert because in said
    assert files_below(home / "store") == before


def test_what_is_not_reputs_is_not_replaced(tmp_path: Path) -> None:
    home = unpack("golden-a", tmp_path)
    note = home / "store" / FOLDER / "notes.txt"
    note.write_text("mine")
    code, said = queues(home, "rocksdb")
    assert (code != 0, "notes.txt is neither reput's nor RocksDB's" in said) == (True, True)
    assert note.read_text() == "mine"


def test_a_running_broker(tmp_path: Path) -> None:
    home = unpack("golden-a", tmp_path)
    with StoreLock(home / "store"):
        code, said = queues(home, "rocksdb")
    assert (code != 0, "lock" in said) == (True, True)


def test_queues_without_files_of_a_store(tmp_path: Path) -> None:
    home = unpack("golden-a", tmp_path)
    shutil.rmtree(home / "store" / FOLDER)
    code, said = queues(home, "rocksdb")
    assert (code != 0, "has no queues" in said) == (True, True)


def test_a_forgotten_broker_conf(tmp_path: Path) -> None:
    """Files of a size that the broker does not have would be made."""
    home = unpack("v5-rocksdb", tmp_path)
    before = files_below(home / "store")
    done = invoke(["queues", "--store", str(home / "store"), "--to", "files"])
    assert done.exit_code == 2
    assert f"give --broker-conf {home / 'broker.conf'}" in done.output
    assert files_below(home / "store") == before


def test_a_broker_conf_that_still_names_rocksdb(tmp_path: Path) -> None:
    home = unpack("v5-rocksdb", tmp_path)
    assert queues(home, "files")[0] == 0
    done = invoke(["verify", "--store", str(home / "store"), "--broker-conf", str(home / "broker.conf")])
    assert done.exit_code != 0
    assert "consumequeue has no RocksDB database; if the broker keeps its queues in files" in done.output
