"""5.5.0 brokers' stores with queues in files and in RocksDB, or in RocksDB alone, through the commands.

Each command that compares, makes or removes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.broker_stores import unpack
from support.command_line import invoke
from support.rebuild_runner import rebuild
from support.sink_runner import files_below

from reput.sinks.queue.rocksdb_queue import RocksDBQueues
from reput.streaming.config.pipeline import load_config

Tree = dict[str, bytes]
NOT_SEEN = "light queues (%LMQ%...) are in RocksDB alone (combineCQUseRocksdbForLmq), and are not read"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return unpack("v5-double-write-lite", tmp_path)


def reput(command: str, home: Path, *more: str) -> tuple[int, str]:
    done = invoke([command, "--store", str(home / "store"), "--broker-conf", str(home / "broker.conf"), *more])
    return done.exit_code, done.output


def set_to(home: Path, lines: str) -> None:
    path = home / "broker.conf"
    path.write_text(path.read_text() + lines)


def queues_of(root: Path) -> Tree:
    return files_below(root / "consumequeue")


def test_what_is_sound_is_called_so(home: Path) -> None:
    """No file is expected for light queues; verify reads them in RocksDB, doctor says that it does not.

    doctor asks about the release that the store shows.
    """
    code, said = reput("verify", home)
    assert (code, NOT_SEEN in said, "nothing differs" in said) == (0, False, True)
    code, said = reput("doctor", home)
    assert code == 0
    assert said.startswith("5.5.0 starts, and nothing is lost\n")
    assert NOT_SEEN in said
    assert "4.9.3" not in said
    code, said = reput("verify", home, "--json")
    assert json.loads(said)["parts"]["rocksdb"]["compared"] == {"queues": 5, "entries": 600}


def test_light_queues_of_before_are_left_alone(home: Path) -> None:
    """Their files stay when ``combineCQUseRocksdbForLmq`` is switched on; the broker reads them no more."""
    old = home / "store" / "consumequeue" / "%LMQ%abc" / "0" / f"{0:020d}"
    old.parent.mkdir(parents=True)
    shutil.copy(home / "store" / "consumequeue" / "T" / "0" / f"{0:020d}", old)
    code, said = reput("verify", home)
    assert (code, "nothing differs" in said) == (0, True)


def test_it_is_not_refused_without_a_store_type(home: Path) -> None:
    path = home / "broker.conf"
    path.write_text(path.read_text().replace("storeType=default\n", ""))
    assert reput("verify", home)[0] == 0
    for queue in (home / "store" / "consumequeue" / "T").iterdir():
        shutil.rmtree(queue)
    code, said = reput("verify", home)
    assert (code, "300 entry_missing" in said, "5 queues, 600 entries: agrees" in said) == (1, True, True), said
    code, said = reput("recover", home, "--output", str(home / "store"))
    assert code == 2
    assert "consumequeue is a RocksDB database: this broker keeps its queues in RocksDB" in said


def test_a_rebuild_in_place_leaves_the_database(home: Path) -> None:
    """The queues' files come out equal, RocksDB's are not touched, and a fresh output has the broker's files alone."""
    store = home / "store"
    config = load_config(store, broker_conf=home / "broker.conf")
    before, inodes = queues_of(store), {path: path.stat().st_ino for path in (store / "consumequeue").glob("*.*")}
    for queue in ("1", "3"):
        shutil.rmtree(store / "consumequeue" / "T" / queue)
    rebuild(config, store)
    assert queues_of(store) == before
    assert inodes == {path: path.stat().st_ino for path in inodes}
    assert reput("verify", home)[0] == 0
    rebuild(config, home / "fresh")
    assert queues_of(home / "fresh") == {path: data for path, data in before.items() if path.startswith("T/")}


def lose_the_log(home: Path) -> None:
    for path in (home / "store" / "commitlog").iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("command", "harm"),
    [
        (("recover", "--yes"), lose_the_log),
        (("recover",), lambda _: None),
        (("expire",), lambda home: (home / "store" / "commitlog" / f"{0:020d}").unlink()),
        (("rebuild", "--only", "consumequeue"), lambda _: None),
        (("rebuild", "--topic", "T"), lambda _: None),
    ],
)
def test_no_command_touches_the_database(command: tuple[str, ...], harm: Callable[[Path], object], home: Path) -> None:
    store = home / "store"
    before = {path: data for path, data in queues_of(store).items() if "/" not in path}
    assert len(before) == 9
    harm(home)
    code, said = reput(command[0], home, "--output", str(store), *command[1:])
    assert code == 0, said
    assert {path: data for path, data in queues_of(store).items() if "/" not in path} == before


def test_an_index_in_rocksdb_alone(home: Path) -> None:
    """``indexFileWriteEnable=false``: no index file is missed, advised or made."""
    set_to(home, "indexRocksDBEnable=true\nindexFileWriteEnable=false\nindexFileReadEnable=false\n")
    shutil.rmtree(home / "store" / "index")
    code, said = reput("verify", home)
    assert (code, "no index files are expected (messageIndexEnable=false, or indexFile" in said) == (0, True), said
    assert "nothing differs" in said
    code, said = reput("doctor", home)
    assert (code, "what to do" in said) == (0, False), said
    rebuild(load_config(home / "store", broker_conf=home / "broker.conf"), home / "store")
    assert not (home / "store" / "index").exists()
    code, said = reput("recover", home, "--output", str(home / "store"))
    assert (code, (home / "store" / "index").exists()) == (0, False), said
    code, said = reput("query", home, "--topic", "T", "--key", "k1")
    assert code == 1
    assert "store has no index files, and its broker keeps none (messageIndexEnable=false, or indexFileWr" in said
    assert "ask a table (--table), or make an index: 'reput rebuild --only index --option messageIndexEnable=tr" in said


def entries_of(directory: Path) -> Any:
    with RocksDBQueues.open(directory) as queues:
        found = {queue: [(n.tolist(), u.tobytes()) for n, u in queues.entries(queue)] for queue in queues.last}
        return found, queues.last, queues.dispatched_to


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    return unpack("v5-rocksdb", tmp_path)


def test_queues_in_rocksdb_alone(alone: Path) -> None:
    """A rebuild makes the database that the broker had, in place and in an output of its own."""
    database = alone / "store" / "consumequeue"
    broker = entries_of(database)
    shutil.rmtree(database)
    code, said = reput("rebuild", alone, "--output", str(alone / "store"))
    assert (code, "49 queues in 2 files" in said) == (0, True), said
    assert entries_of(database) == broker
    assert not (alone / "store" / "abort").exists()
    code, said = reput("rebuild", alone, "--output", str(alone / "out"))
    assert code == 0
    assert entries_of(alone / "out" / "consumequeue") == broker
    assert reput("verify", alone, "--output", str(alone / "out"))[0] == 0
    # Made once more, in the place of the old one.
    assert reput("rebuild", alone, "--output", str(alone / "store"))[0] == 0
    assert entries_of(database) == broker


def test_topics_that_are_left_out(alone: Path) -> None:
    code, _ = reput("rebuild", alone, "--output", str(alone / "out"), "--only", "consumequeue", "--exclude", "PlainKp")
    assert code == 0
    found, _, _ = entries_of(alone / "out" / "consumequeue")
    assert found
    assert not [queue for queue in found if queue[0] == b"PlainKp"]


def put_queue_file(store: Path) -> None:
    (store / "consumequeue" / "T" / "0").mkdir(parents=True)
    (store / "consumequeue" / "T" / "0" / f"{0:020d}").write_bytes(bytes(20_000))


def cut_log(store: Path) -> None:
    """Lose all but the first records."""
    path = store / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[: int.from_bytes(data[:4], "big")].ljust(len(data), b"\0"))


@pytest.mark.parametrize(
    ("words", "harm", "because"),
    [
        (("--topic", "PlainKp"), lambda _: None, "--topic makes files, and this broker keeps its queues in RocksDB"),
        ((), lambda store: (store / "consumequeue" / "notes.txt").touch(), "is neither reput's nor RocksDB's"),
        ((), put_queue_file, "has queues in files, and this broker keeps them in RocksDB alone"),
        ((), cut_log, "after the log's end"),
    ],
)
def test_what_a_rebuild_of_a_database_refuses(
    words: tuple[str, ...], harm: Callable[[Path], object], because: str, alone: Path
) -> None:
    harm(alone / "store")
    before = queues_of(alone / "store")
    code, said = reput("rebuild", alone, "--output", str(alone / "store"), "--only", "consumequeue", *words)
    assert code != 0
    assert because in said
    assert queues_of(alone / "store") == before


def test_tail_refuses_queues_in_rocksdb(alone: Path) -> None:
    code, said = reput("tail", alone, "--output", str(alone / "out"), "--available-now")
    assert code == 2
    assert "this broker keeps its queues in RocksDB, not in the ConsumeQueue files that reput writes" in said
    assert not (alone / "out" / "consumequeue").exists()


def test_doctor_on_a_switched_store_type(tmp_path: Path) -> None:
    """Queues are in files, and broker.conf has ``storeType=defaultRocksDB``: that start loses queues."""
    home = unpack("golden-a", tmp_path)
    set_to(home, "\nstoreType=defaultRocksDB\n")
    code, said = reput("doctor", home, "--release", "5.5.0")
    assert code == 1
    assert said.splitlines()[0] == "5.5.0 starts, and leaves 1 message out of 1 queue"
    assert "'reput queues --to rocksdb' moves them first" in said
    command = f"reput queues --store {home}/store --broker-conf {home}/broker.conf --to rocksdb"
    assert f"       {command}\n" in said
    assert invoke(command.split()[1:]).exit_code == 0
    assert reput("doctor", home, "--release", "5.5.0")[0] == 0
