"""The advice of `reput doctor`, followed on damaged copies of a store, ends, and loses nothing that was served.

Brokers judge many more of them in `tests/test_doctor_broker.py`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.advice import execute_advice, follow_advice, lost_and_moved, served, told
from support.command_line import invoke, run_reput
from support.record_writer import Message, write_store
from support.store_damage import UNIT_BYTES, write

SEGMENT_BYTES, UNITS_A_FILE = 8192, 100
QUEUE_ID_AT, PHYSICAL_OFFSET_AT = 12, 28
FAR_OFF = 2**40
CONF = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 20 * UNITS_A_FILE,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two topics, 6 segments, with queues and an index."""
    home = tmp_path_factory.mktemp("sound")
    messages = [
        Message(topic="AB"[number % 3 == 0], queue_id=number % 2, properties={"KEYS": f"k{number}", "TAGS": "t"})
        for number in range(360)
    ]
    write_store(home / "store", messages, SEGMENT_BYTES)
    (home / "store" / "broker.conf").unlink()
    (home / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in CONF.items()))
    last = max((home / "store" / "commitlog").iterdir())
    os.truncate(last, SEGMENT_BYTES)
    reput(home, "rebuild", "--output", str(home / "store"))
    shutil.rmtree(home / "store" / "reput")
    return home


def reput(home: Path, command: str, *more: str) -> str:
    paths = ["--store", str(home / "store"), "--broker-conf", str(home / "broker.conf")]
    done = run_reput([command, *paths, *more])
    return done.output


def segment(store: Path, number: int) -> Path:
    return sorted((store / "commitlog").iterdir())[number]


def queue_file(store: Path, number: int = 0) -> Path:
    return store / "consumequeue" / "A" / "1" / f"{number * 20 * UNITS_A_FILE:020d}"


DAMAGES: dict[str, Callable[[Path], object]] = {
    "the last segment gone": lambda store: segment(store, -1).unlink(),
    "the last segment empty": lambda store: write(segment(store, -1), 0, bytes(SEGMENT_BYTES)),
    "a segment in the middle gone": lambda store: segment(store, 2).unlink(),
    "the first segments gone": lambda store: [segment(store, 0).unlink() for _ in range(2)],
    "a record torn": lambda store: write(segment(store, 3), 4000, bytes(300)),
    "a record torn, abort": lambda store: (write(segment(store, 4), 10, bytes(30)), (store / "abort").touch()),
    "a segment cut": lambda store: os.truncate(segment(store, 3), 5000),
    "a queue gone": lambda store: shutil.rmtree(queue_file(store).parent),
    "all queues gone": lambda store: shutil.rmtree(store / "consumequeue"),
    "a queue file cut": lambda store: os.truncate(queue_file(store), 777),
    "queues end sooner": lambda store: write(queue_file(store), 40, bytes(20 * UNITS_A_FILE - 40)),
    "the index gone": lambda store: shutil.rmtree(store / "index"),
    "an index file gone": lambda store: min((store / "index").iterdir()).unlink(),
    "a stray file": lambda store: (store / "commitlog" / "notes.txt").write_bytes(b"mine"),
    "a segment longer": lambda store: os.truncate(segment(store, 2), SEGMENT_BYTES + 40),
    "the queues are a file": lambda store: (shutil.rmtree(store / "consumequeue"), (store / "consumequeue").touch()),
    "a queue is a file": lambda store: (shutil.rmtree(queue_file(store).parent), queue_file(store).parent.touch()),
    "the index is a file": lambda store: (shutil.rmtree(store / "index"), (store / "index").touch()),
    "an index file cut": lambda store: os.truncate(min((store / "index").iterdir()), 400),
    "the checkpoint is a directory": lambda store: ((store / "checkpoint").unlink(), (store / "checkpoint").mkdir()),
    "a hole, and the last segment torn": lambda store: (
        segment(store, 1).unlink(),
        write(segment(store, -1), 10, bytes(30)),
    ),
    "abort is a directory": lambda store: (store / "abort").mkdir(),
    "abort, no checkpoint": lambda store: ((store / "abort").touch(), (store / "checkpoint").unlink(missing_ok=True)),
}


@pytest.mark.parametrize("release", ["4.9.3", "5.5.0"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_advice_that_is_followed(damage: str, release: str, sound: Path, tmp_path: Path) -> None:
    """It ends, never says the same twice, and loses no entry of a record that the log still has."""
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    DAMAGES[damage](home / "store")
    before, log = served([home / "store"]), log_files(home / "store")
    harmless = told(home, release)["harmless"]
    commands = execute_advice(home, release)
    assert harmless <= (not commands)
    copies = [path for path in home.iterdir() if (path / "commitlog").is_dir() and path.name != "store"]
    assert before <= served([home / "store", *copies])
    after = told(home, release)
    assert after["starts"]
    assert after["harmless"] or copies or after["holes"]
    # A segment may have got its size back, and a file that is not a segment may be beside the store.
    for name, data in log.items():
        kept = [log_files(place).get(name, b"")[: len(data)] for place in (home / "store", *copies)]
        assert data in kept or (home / f"store.{name}").read_bytes() == data


def log_files(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()}


@pytest.mark.parametrize("release", ["4.9.3", "5.5.0"])
def test_a_log_that_is_gone_is_no_all_clear(release: str, sound: Path, tmp_path: Path) -> None:
    """A volume may not be mounted: a start deletes all queues, and no command is advised that accepts that."""
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    entries = len(served([home / "store"]))
    for path in (home / "store" / "commitlog").iterdir():
        path.unlink()
    found = told(home, release)
    assert not found["harmless"]
    assert found["missing_entries"] == entries > 0
    assert found["removed_queue_files"]
    (step,) = found["advice"]
    assert step["command"] is None
    assert "restore the log, or mount the volume" in step["why"]
    os.truncate(queue_file(home / "store"), 777)
    (step, again) = told(home, release)["advice"]
    assert "restore the log, or mount the volume" in step["why"]
    assert again["command"].startswith("reput doctor")


@pytest.mark.parametrize("release", ["4.9.3", "5.5.0"])
def test_a_queue_with_another_ones_entries(release: str, sound: Path, tmp_path: Path) -> None:
    """They are more than it should have, and its last record is not among them: it is made again."""
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    shutil.copyfile(queue_file(home / "store"), home / "store" / "consumequeue" / "B" / "0" / f"{0:020d}")
    found = told(home, release)
    assert [(queue["topic"], queue["missing"] > 0) for queue in found["queues"]] == [
        *[("A", False)] * 2,
        *[("B", True), ("B", False)],
    ]
    execute_advice(home, release)
    assert told(home, release)["harmless"]
    theirs = sorted(entry for entry in served([sound / "store"]) if entry[0] == "B")
    assert sorted(entry for entry in served([home / "store"]) if entry[0] == "B") == theirs


def test_entries_that_lead_into_damage_are_told(sound: Path, tmp_path: Path) -> None:
    """A start loses nothing more, but a segment of zeros in the middle is not harmless."""
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    records = sum(entry[3] // SEGMENT_BYTES == 2 for entry in served([home / "store"]))
    write(segment(home / "store", 2), 0, bytes(SEGMENT_BYTES))
    found = told(home, "5.5.0")
    assert found["unserved"] == records > 0
    assert found["verdict"] == "5.5.0 starts, and nothing more is lost"


def test_keys_of_an_index_file_that_was_cut_are_missing(sound: Path, tmp_path: Path) -> None:
    """Its header still names its last record."""
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    first = min((home / "store" / "index").iterdir())
    os.truncate(first, 40 + 4 * CONF["maxHashSlotNum"] + 20 * (1 + 30))
    assert told(home, "5.5.0")["index_missing"] == CONF["maxIndexNum"] - 1 - 30


def test_a_hole_is_told_and_no_rebuild_is_advised(sound: Path, tmp_path: Path) -> None:
    """Entries that lead into it are counted: that nothing is lost would be false. Only the segment helps."""
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    segment(home / "store", 2).unlink()
    found = told(home, "5.5.0")
    assert found["missing_entries"] > 0
    assert not found["harmless"]
    assert "serves no message of the segments that are missing" in found["verdict"]
    assert [step["command"] for step in found["advice"]] == [None]


@pytest.mark.parametrize("release", ["4.9.3", "5.5.0"])
def test_only_the_queue_that_lacks_something_is_made_again(release: str, sound: Path, tmp_path: Path) -> None:
    """A record of A names another queue: a rebuild of all would move what follows it, and no queue of B needs that."""
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    write(segment(home / "store", 2), QUEUE_ID_AT, (7).to_bytes(4, "big"))
    shutil.rmtree(home / "store" / "consumequeue" / "B" / "1")
    before = served([home / "store"])
    commands, foretold = follow_advice(home, release)
    assert any("--topic B" in command for command in commands)
    assert lost_and_moved(before, served([home / "store"])) == (set(), set())
    assert foretold == 0


@pytest.mark.parametrize("release", ["4.9.3", "5.5.0"])
def test_entries_that_are_moved_are_foretold(release: str, sound: Path, tmp_path: Path) -> None:
    """The queue that has the damage lacks entries, too: --yes is advised, with how many of its entries move."""
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    (queue,) = {entry[:2] for entry in served([home / "store"]) if entry[3] == SEGMENT_BYTES}
    write(segment(home / "store", 1), 0, bytes(8))
    path = home.joinpath("store", "consumequeue", *map(str, queue), f"{0:020d}")
    os.truncate(path, 40 * UNIT_BYTES + 7)
    before = served([home / "store"])
    steps = told(home, release)["advice"]
    moving = [queue for step in steps for queue in step["moving"]]
    (step,) = (step for step in steps if step["moving"])
    assert step["command"].endswith("--yes")
    assert f"; it moves {sum(queue['entries'] for queue in moving)} entries of 1 queue to other queue" in step["why"]
    _, foretold = follow_advice(home, release)
    lost, moved = lost_and_moved(before, served([home / "store"]))
    assert not lost
    assert 0 < len(moved) == foretold


@pytest.mark.parametrize("release", ["4.9.3", "5.5.0"])
def test_a_record_that_takes_the_index_ahead(release: str, sound: Path, tmp_path: Path) -> None:
    """Recovery dispatches a whole record that states an offset far behind the log; then the index takes no other."""
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    (home / "store" / "abort").touch()
    shutil.rmtree(home / "store" / "index")
    last = segment(home / "store", -1)
    second = int.from_bytes(last.read_bytes()[:4], "big")
    write(last, second + PHYSICAL_OFFSET_AT, FAR_OFF.to_bytes(8, "big"))
    found = told(home, release)
    assert found["index_end"] == FAR_OFF
    assert found["index_missing"] > 0
    assert f"puts no key of a new message before offset {FAR_OFF}" in found["verdict"]
    execute_advice(home, release)
    after = told(home, release)
    assert after["index_missing"] == 0
    # The normal recovery of 5.5.0 dispatches that record again, 4.9.3's dispatches none.
    assert after["harmless"] is (release == "4.9.3")
    commands = [step["command"] for step in after["advice"]]
    assert commands == ([] if release == "4.9.3" else [None, None])


def test_a_dump_beside_a_hole(sound: Path, tmp_path: Path) -> None:
    """A part of the log without a hole is shown; the way over one is the option that the error names."""
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    segment(home / "store", 2).unlink()
    paths = ["dump", "--store", str(home / "store"), "--broker-conf", str(home / "broker.conf")]
    assert invoke([*paths, "--to", "1000"]).exit_code == 0
    assert invoke([*paths, "--from", str(4 * SEGMENT_BYTES)]).exit_code == 0
    refused = run_reput(paths, code=1)
    assert "set failOnDataLoss=false to continue after them" in refused.output
    assert invoke([*paths, "-o", "failOnDataLoss=false"]).exit_code == 0
