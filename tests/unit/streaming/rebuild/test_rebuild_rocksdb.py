"""A 5.5.0 broker's store with queues in files and in RocksDB, through every command that compares, makes or removes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.broker_stores import unpack
from support.command_line import invoke
from support.rebuild_runner import rebuild
from support.sink_runner import files_below

from reput.streaming.config.pipeline import load_config

Tree = dict[str, bytes]
NOT_SEEN = "light queues (%LMQ%...) are in RocksDB alone (combineCQUseRocksdbForLmq), which reput does not see"


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
