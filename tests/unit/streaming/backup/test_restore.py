"""A restored store: the log of its moment, byte for byte, with what a rebuild makes of it; the commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.backups import FIRST_MS, OPTIONS, SEGMENT, STEPS, GrowingStore, log_bytes_of
from support.broker_stores import unpack
from support.command_line import invoke, run_reput
from support.rebuild_runner import rebuild
from support.sink_runner import files_below

from reput.sinks.backup.backup_store import Backup
from reput.sinks.files.config_manager import json_of, read_rocksdb
from reput.sinks.files.store_lock import StoreLock
from reput.source.errors import OptionError
from reput.streaming.config.pipeline import load_config
from reput.streaming.process.environment import run_directory


def end_of(growing: GrowingStore, count: int) -> int:
    """Return the offset after this many messages."""
    record = growing.log.records[count - 1]
    return record.physical_offset + record.msg_size if count else 0


def check(growing: GrowingStore, target: Path, count: int, tmp_path: Path) -> None:
    """The store in `target` has the first `count` messages, and what a rebuild of a log with these alone makes."""
    end = end_of(growing, count)
    store = tmp_path / "cut"
    shutil.copytree(growing.store / "commitlog", store / "commitlog")
    for path in (store / "commitlog").iterdir():
        size = max(0, min(SEGMENT, end - int(path.name)))
        path.write_bytes(path.read_bytes()[:size].ljust(SEGMENT, b"\0"))
    # After the last message of a segment there may be the blank that fills it.
    restored = log_bytes_of(target, 0, 20 * SEGMENT)
    rest = growing.bytes_of_log(end, end - end % -SEGMENT)
    assert restored[:end] == growing.bytes_of_log(0, end)
    assert restored[end:].rstrip(b"\0") in (b"", rest.rstrip(b"\0"))
    if restored[end:].strip(b"\0"):
        assert not any(end <= record.physical_offset < end - end % -SEGMENT for record in growing.log.records)
    assert all(path.stat().st_size == SEGMENT for path in (target / "commitlog").iterdir())
    rebuild(growing.config(store), store)
    assert files_below(target / "consumequeue") == files_below(store / "consumequeue")
    assert [*files_below(target / "index").values()] == [*files_below(store / "index").values()]
    assert (target / "checkpoint").read_bytes() == (store / "checkpoint").read_bytes()
    assert not (target / "abort").exists()
    assert sorted(path.name for path in (target / "reput").iterdir()) == ["progress", "restored.json"]
    check_offsets(growing, target, count)


def check_offsets(growing: GrowingStore, target: Path, count: int) -> None:
    """Consumers are not beyond the log, nor before what they have consumed of it."""
    ends: dict[tuple[str, int], int] = {}
    for record in growing.log.records[:count]:
        if record.message.is_queued:
            ends[record.message.topic, record.message.queue_id] = (record.message.queue_offset or 0) + 1
    found = json_of((target / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    for name, table in found.items():
        for queue_id, offset in table.items():
            assert offset <= ends.get((name.partition("@")[0], int(queue_id)), 0)


@pytest.mark.parametrize("seed", range(8))
def test_any_moment(growing: GrowingStore, seed: int, tmp_path: Path) -> None:
    """A time, an offset, a restore point: all messages before it, and none after."""
    growing.rng.seed(seed)
    target = tmp_path / "restored"
    kind = ("at_ms", "offset", "point", "newest")[seed % 4]
    count = growing.rng.randint(1, growing.count)
    if kind == "at_ms":
        made = growing.restore(target, at_ms=FIRST_MS + 10 * (count - 1) + growing.rng.randint(0, 9))
        assert made.config_ms <= FIRST_MS + 10 * count or made.config_point == 1
        following = growing.backup.point(min(made.config_point + 1, STEPS))
        assert following.created_ms > FIRST_MS + 10 * (count - 1) or made.config_point == STEPS
    elif kind == "offset":
        made = growing.restore(target, offset=end_of(growing, count) + growing.rng.randint(0, 20))
        assert growing.backup.point(made.config_point).end <= made.end or made.config_point == 1
    elif kind == "point":
        number = growing.rng.randint(1, STEPS)
        made = growing.restore(target, point=number)
        count = json_of((target / "config" / "topics.json").read_bytes())["count"]
        assert (made.point, made.config_point) == (number, number)
    else:
        made = growing.restore(target)
        count = growing.count
    assert made.messages == count
    assert made.last_stored_ms == FIRST_MS + 10 * (count - 1)
    check(growing, target, count, tmp_path)


def test_before_the_first_message(growing: GrowingStore, tmp_path: Path) -> None:
    """A moment that has no message is a typo, unless the backup has none at all."""
    with pytest.raises(OptionError, match=r"the first message of the backup was stored at 2023-11-14T22:13:20\.000Z"):
        growing.restore(tmp_path / "restored", at_ms=FIRST_MS - 1)
    assert not (tmp_path / "restored" / "checkpoint").exists()
    assert growing.restore(tmp_path / "restored", at_ms=FIRST_MS).messages == 1
    empty = GrowingStore(tmp_path / "empty")
    empty.put_config("topics.json", {})
    empty.step()
    made = empty.restore(tmp_path / "none", at_ms=FIRST_MS - 1)
    assert (made.messages, made.end, made.last_stored_ms, made.config_point) == (0, 0, None, 1)
    assert "after that moment: the backup has no older one" in made.notes[0]


@pytest.mark.parametrize("name", ["v4-plain", "v5-plain", "v5-rocksdb"])
def test_later_commands_know_the_release(name: str, tmp_path: Path) -> None:
    """The restored store has the signs of the broker's release: `verify` finds nothing, without an option for it."""
    home = unpack(name, tmp_path)
    conf = ["--broker-conf", str(home / "broker.conf")]
    run_reput(["backup", "--store", str(home / "store"), *conf, "--to", str(tmp_path / "b")])
    run_reput(["restore", "--from", str(tmp_path / "b"), "--to", str(tmp_path / "restored"), *conf])
    assert run_reput(["verify", "--store", str(tmp_path / "restored"), *conf]).stdout.endswith("nothing differs\n")


def test_a_sample_is_restored_and_removed(growing: GrowingStore, tmp_path: Path) -> None:
    """By number or any; a broken one is not taken at random, and ends the command if it is asked for."""
    words = ["backup", "verify", "--sample", *(word for option in OPTIONS for word in ("-o", option))]
    backup = tmp_path / "b"
    shutil.copytree(growing.root / "backup", backup)
    scratch = run_directory()
    done = run_reput([*words, "--from", str(backup), "--point", "4"])
    assert "restored restore point 4 into a scratch directory, which is removed: offsets 0 to " in done.output
    assert "verify finds no difference\nevery restore point can be restored\n" in done.output
    sample = json.loads(run_reput([*words, "--from", str(backup), "--json"]).stdout)["sample"]
    assert 1 <= sample["point"] <= STEPS
    assert sample["messages"] > 0
    needed = Backup(backup).point(1).files
    for part in (backup / "log").iterdir():
        if f"log/{part.name}" not in needed:
            part.unlink()
    sample = json.loads(run_reput([*words, "--from", str(backup), "--json"], code=1).stdout)["sample"]
    assert sample["point"] == 1
    done = run_reput([*words, "--from", str(backup), "--point", str(STEPS)], code=1)
    assert (done.stderr.splitlines()[-1].count("is missing from the backup"), done.stdout) == (1, "")
    assert (
        "--point: only with --sample"
        in run_reput(["backup", "verify", "--from", str(backup), "--point", "1"], 2).stderr
    )
    assert not [*scratch.glob("sample-*")]


def test_after_the_newest_restore_point(growing: GrowingStore, tmp_path: Path) -> None:
    """All there is, and a note that says so."""
    made = growing.restore(tmp_path / "restored", at_ms=growing.now_ms + 60_000)
    assert made.messages == growing.count
    assert "the backup has no later message" in made.notes[0]


def test_offsets_of_delayed_messages(tmp_path: Path) -> None:
    """A level's offset is that of its queue; light queues have one number."""
    growing = GrowingStore(tmp_path)
    growing.append(40)
    growing.put_config("delayOffset.json", {"offsetTable": {"1": 500, "3": 0}})
    growing.put_config("lmqConsumerOffset.json", {"lmqOffsetTable": {"%LMQ%a@g": 7}, "offsetTable": {}})
    growing.step()
    made = growing.restore(tmp_path / "restored")
    assert made.lowered_offsets == 2
    config = tmp_path / "restored" / "config"
    assert json_of((config / "delayOffset.json").read_bytes()) == {"offsetTable": {"1": 0, "3": 0}}
    assert json_of((config / "lmqConsumerOffset.json").read_bytes())["lmqOffsetTable"] == {"%LMQ%a@g": 0}


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        ({"offset": 10**9}, "the newest restore point ends at"),
        ({"point": 99}, "there are 1 to 10"),
        ({"point": 1, "offset": 5}, "one of them wanted"),
    ],
)
def test_a_moment_that_is_not_there(growing: GrowingStore, moment: dict[str, int], said: str, tmp_path: Path) -> None:
    """Nothing is made."""
    with pytest.raises(OptionError, match=said):
        growing.restore(tmp_path / "restored", **moment)
    assert not (tmp_path / "restored" / "commitlog").exists()


def test_only_an_empty_directory(growing: GrowingStore, tmp_path: Path) -> None:
    """Existing files stay; those that a file system itself makes do not count."""
    target = tmp_path / "restored"
    (target / "lost+found").mkdir(parents=True)
    growing.restore(target, point=1)
    before = files_below(target)
    with pytest.raises(OptionError, match="it is not empty; give an empty directory"):
        growing.restore(target)
    assert files_below(target) == before


def test_a_damaged_backup(growing: GrowingStore, tmp_path: Path) -> None:
    """Nothing is put in place; the restore can be made again from a backup that is mended."""
    backup = shutil.copytree(growing.root / "backup", tmp_path / "backup")
    part = backup / growing.backup.point(STEPS).parts[0].name
    data = part.read_bytes()
    part.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    words = ["restore", "--from", str(backup), "--to", str(tmp_path / "restored"), *options()]
    done = run_reput(words, code=1)
    assert f"{part} is damaged" in done.output
    assert not (tmp_path / "restored" / "commitlog").exists()
    part.write_bytes(data)
    assert "nothing is lost" in run_reput(words).output


def options() -> list[str]:
    return [word for option in OPTIONS for word in ("-o", option)]


def test_commands(tmp_path: Path) -> None:
    """A store of a 5.5.0 broker, there and back: its queues and index are the broker's, byte for byte."""
    home = unpack("v5-plain", tmp_path)
    given = ["--store", str(home / "store"), "--broker-conf", str(home / "broker.conf"), "--to", str(tmp_path / "b")]
    before = files_below(home / "store")
    assert run_reput(["backup", *given]).output.startswith("restore point 1 of ")
    assert run_reput(["backup", "create", *given]).output.startswith("nothing is new since restore point 1 of ")
    assert json.loads(run_reput(["backup", *given, "--json"]).output)["new"] is False
    assert files_below(home / "store") == before
    backup = ["--from", str(tmp_path / "b")]
    assert len(json.loads(run_reput(["backup", "list", *backup, "--json"]).output)) == 1
    assert "restore point 1 of" in run_reput(["backup", "list", *backup]).output
    assert "config/topics.json" in run_reput(["backup", "describe", *backup]).output
    described = json.loads(run_reput(["backup", "describe", *backup, "--json"]).output)
    assert described["settings"]["brokerVersion"] == "5.5.0"
    assert "every restore point can be restored" in run_reput(["backup", "verify", *backup]).output
    done = run_reput(["restore", *backup, "--to", str(tmp_path / "restored"), "--json"])
    made = json.loads(done.stdout)
    assert made["broker"] == "5.5.0 starts, and nothing is lost"
    restored = files_below(tmp_path / "restored")
    for path, data in before.items():
        if path.startswith(("consumequeue/", "commitlog/")) or (path.startswith("config/") and path.endswith(".json")):
            assert restored[path].rstrip(b"\0") == data.rstrip(b"\0"), path
    (tmp_path / "b" / "points" / "0000000001.json").unlink()
    assert "there is no restore point" in run_reput(["backup", "verify", *backup], code=1).output
    assert "it has none" in run_reput(["backup", "describe", *backup], code=2).output
    assert "has no restore point" in run_reput(["restore", *backup, "--to", str(tmp_path / "r")], code=2).output


def test_where_no_backup_may_be(tmp_path: Path) -> None:
    """In the store; where another backup writes."""
    home = unpack("golden-a", tmp_path)
    given = ["backup", "--store", str(home / "store"), "--broker-conf", str(home / "broker.conf"), "--to"]
    before = files_below(home / "store")
    assert "is in the store, where nothing is written" in run_reput([*given, str(home / "store" / "b")], 2).output
    assert files_below(home / "store") == before
    with StoreLock(tmp_path / "b"):
        done = invoke([*given, str(tmp_path / "b")])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert f"another backup writes to {tmp_path / 'b'}; stop it first, or give another --to" in done.stderr


@pytest.mark.parametrize("name", ["v5-rocksdb", "v5-config-v2-batchcq"])
def test_configuration_in_rocksdb(name: str, tmp_path: Path) -> None:
    """Databases have the same keys and values; queues in RocksDB are made where the broker.conf says."""
    home = unpack(name, tmp_path)
    conf = ["--broker-conf", str(home / "broker.conf")]
    before = files_below(home / "store")
    run_reput(["backup", "--store", str(home / "store"), *conf, "--to", str(tmp_path / "b")])
    assert files_below(home / "store") == before
    assert (
        "nothing is new"
        in run_reput(["backup", "--store", str(home / "store"), *conf, "--to", str(tmp_path / "b")]).output
    )
    words = ["restore", "--from", str(tmp_path / "b"), "--to", str(tmp_path / "restored")]
    if name == "v5-rocksdb":
        assert "were in RocksDB, and nothing says where; give --broker-conf" in run_reput(words, code=2).stderr
    run_reput([*words, *conf])
    databases = [path.name for path in (home / "store" / "config").iterdir() if path.is_dir()]
    assert databases
    for database in databases:
        one, other = (read_rocksdb(root / "config" / database, b"") for root in (home / "store", tmp_path / "restored"))
        assert one == other
        assert one
    config = load_config(tmp_path / "restored", broker_conf=home / "broker.conf", knows_rocksdb=True)
    assert config.makes_rocksdb == (name == "v5-rocksdb")


def test_what_a_backup_does_not_keep(tmp_path: Path) -> None:
    """It is refused, in a line."""
    home = unpack("v4-dledger", tmp_path)
    words = ["--store", str(home / "store"), "--broker-conf", str(home / "broker.conf"), "--to", str(tmp_path / "b")]
    done = run_reput(["backup", *words, "--dledger"], code=1)
    assert "has a log of DLedger, which a backup does not keep" in done.stderr
    assert not (tmp_path / "b" / "points").exists()
