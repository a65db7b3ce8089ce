"""A real message store serves the same messages before and after each command, where settings are easily mistaken.

The ``broker.conf`` was forgotten; light queues are in RocksDB alone; the index is in RocksDB. Stores of 5.5.0, and of
4.9.3 where it knows the setting, are started on copies of a store: on one as it was, on one after all commands that are
refused or done, and on one that lost a queue and got what ``reput doctor`` advised. They are asked for each message of
each queue, and for a sample of keys. All copies are started in one JVM for each release.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import javaproperties
import pytest
from broker.log_contents import LogContents
from broker.recovery import start_stores
from broker.rocketmq import RocketMQ
from broker.served import Plan
from support.advice import execute_advice
from support.broker_stores import unpack
from support.command_line import invoke
from support.proof_counts import Proof
from support.sink_runner import files_below

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("waits_are_skipped")]

GetRelease = Callable[[str], RocketMQ]
# Every command that writes into the store that it reads.
IN_PLACE = (
    ("rebuild", "--yes"),
    ("rebuild", "--yes", "--only", "index"),
    ("rebuild", "--yes", "--only", "consumequeue"),
    ("recover", "--yes"),
    ("expire",),
)
# Keys are in RocksDB alone, and asked for there.
INDEX_IN_ROCKSDB = "indexRocksDBEnable=true\nindexFileWriteEnable=false\nindexFileReadEnable=false\n"


@dataclass
class Stores:
    """Copies of one home, each after another command."""

    home: Path
    conf_file: Path
    work: Path

    def __post_init__(self) -> None:
        self.copies: dict[str, Path] = {}
        self.after("nothing")

    def after(self, name: str, harm: Callable[[Path], object] = lambda _: None) -> Path:
        """A new copy of the home, harmed."""
        self.copies[name] = Path(
            shutil.copytree(self.home, self.work / str(len(self.copies)), copy_function=shutil.copyfile)
        )
        harm(self.copies[name] / "store")
        return self.copies[name]

    def check(self, release: RocketMQ, proof: Proof) -> None:
        """Start all of them, and compare what they serve with the log."""
        conf = javaproperties.loads(self.conf_file.read_text())
        plan = Plan.of(self.home, conf)
        assert min(map(len, plan.answers)) > 0
        starts = [(home / "store", conf) for home in self.copies.values()]
        happened = start_stores(release, starts, self.work / "java", plans=["".join(plan.lines)] * len(starts))
        wrong = {}
        for name, found in zip(self.copies, happened, strict=True):
            assert found.facts["started"], f"{name}: {found.facts['error']}"
            served = zip(plan.lines, plan.answers, found.facts["served"], strict=True)
            if differing := [f"{line.strip()!r}: {len(is_)} of {len(due)}" for line, due, is_ in served if due != is_]:
                wrong[name] = differing
        proof("G13 stores that serve after a command what they served before", len(starts))
        assert not wrong


def run(home: Path, command: Sequence[str], *more: str) -> tuple[int, str]:
    """Run a command that writes in place."""
    done = invoke([command[0], "--store", str(home / "store"), "--output", str(home / "store"), *command[1:], *more])
    return done.exit_code, done.output


def with_conf(home: Path) -> tuple[str, str]:
    return "--broker-conf", str(home / "broker.conf")


def lose_queue(store: Path) -> None:
    """Lose the files of the first queue of the first topic of clients."""
    shutil.rmtree(min(path for path in (store / "consumequeue").glob("T*/0")))


@pytest.mark.parametrize("version", ["4.9.3", "5.5.0"])
def test_a_forgotten_broker_conf(version: str, release: GetRelease, tmp_path: Path, proof: Proof) -> None:
    """Queue files of 10,000 bytes, and settings that do not say so: commands that write in place refuse, also to heal.

    doctor then advises to give the file, and its advice with the file brings back a lost queue.
    """
    home = unpack("v4-plain", tmp_path)
    conf = (home / "broker.conf").rename(tmp_path / "the-brokers.conf")
    stores = Stores(home, conf, tmp_path / "copies")
    before = files_below(home / "store")
    refused = stores.after("each command was refused")
    for command in IN_PLACE:
        code, said = run(refused, command)
        assert (code, "mappedFileSizeConsumeQueue=10000 makes them" in said) == (2, True), said
    for words in (("verify",), ("doctor", "--release", version)):
        assert invoke([*words, "--store", str(refused / "store")]).exit_code == 0
    assert files_below(refused / "store") == before

    lost = stores.after("a lost queue was made again as advised", lose_queue)
    damaged = files_below(lost / "store")
    without = json.loads(invoke(["doctor", "--store", str(lost / "store"), "--json", "--release", version]).stdout)
    advice = without["releases"][version]["advice"]
    assert [step["command"] for step in advice] == [None]
    assert "--broker-conf" in advice[0]["why"]
    assert run(lost, ("rebuild", "--yes"))[0] == 2
    assert files_below(lost / "store") == damaged
    shutil.copy(conf, lost / "broker.conf")
    execute_advice(lost, version)
    stores.check(release(version), proof)


def test_light_queues_in_rocksdb_alone(release: GetRelease, tmp_path: Path, proof: Proof) -> None:
    """Of a 5.5.0 store with its other queues in files too, which the broker reads: no command takes a message away."""
    home = unpack("v5-double-write-lite", tmp_path)
    conf = home / "broker.conf"
    conf.write_text(conf.read_text().replace("combineCQPreferCQType=defaultRocksDB", "combineCQPreferCQType=default"))
    stores = Stores(home, conf, tmp_path / "copies")
    every = stores.after("every command")
    for command in IN_PLACE:
        code, said = run(every, command, *with_conf(every))
        assert code == 0, said
    execute_advice(stores.after("a lost queue was made again as advised", lose_queue), "5.5.0")
    stores.check(release("5.5.0"), proof)


def test_an_index_in_rocksdb(release: GetRelease, tmp_path: Path, proof: Proof) -> None:
    """``indexFileWriteEnable=false``: keys are found as before; no command makes, misses or advises an index file."""
    home = unpack("v5-plain", tmp_path)
    conf = home / "broker.conf"
    conf.write_text(conf.read_text() + INDEX_IN_ROCKSDB)
    for derived in ("consumequeue", "index"):
        shutil.rmtree(home / "store" / derived)
    (home / "store" / "checkpoint").unlink()
    # 5.5.0 makes queues and index itself.
    start = home / "store", javaproperties.loads(conf.read_text())
    (made,) = start_stores(release("5.5.0"), [start], tmp_path / "making", plans=["queue\tTopicA\t0\n"])
    assert made.facts["started"]
    stores = Stores(home, conf, tmp_path / "copies")
    every = stores.after("every command")
    for command in IN_PLACE:
        code, said = run(every, command, *with_conf(every))
        assert code == (2 if "index" in command else 0), said
    for words in (("verify",), ("doctor", "--release", "5.5.0")):
        done = invoke([*words, "--store", str(every / "store"), *with_conf(every)])
        assert (done.exit_code, "what to do" in done.output) == (0, False), done.output
    execute_advice(stores.after("a lost queue was made again as advised", lose_queue), "5.5.0")
    for copied in stores.copies.values():
        assert not (copied / "store" / "index").exists()
    stores.check(release("5.5.0"), proof)


QUEUES_SEARCHED = [("TopicA", 0), ("TopicB", 0), ("TopicB", 2)]


def searched(release: RocketMQ, home: Path, work: Path) -> int:
    """How many messages of `QUEUES_SEARCHED` the store does not find by the time when they were stored."""
    conf = javaproperties.loads((home / "broker.conf").read_text())
    stored: dict[tuple[str, int], dict[int, int]] = {queue: {} for queue in QUEUES_SEARCHED}
    for record in LogContents.load(home / "store", conf).records:
        if (times := stored.get((record.topic, record.queue_id))) is not None and record.is_queued:
            times[record.queue_offset] = record.store_timestamp
    asked = [(*queue, time) for queue, times in stored.items() for time in sorted({*times.values()})]
    assert len(asked) > 1000
    plan = "".join(f"time\t{topic}\t{queue_id}\t{time}\n" for topic, queue_id, time in asked)
    (happened,) = start_stores(release, [(home / "store", conf)], work, plans=[plan])
    answers = [offset for (offset,) in happened.facts["served"]]
    return sum(
        stored[topic, queue_id].get(offset) != time
        for (topic, queue_id, time), offset in zip(asked, answers, strict=True)
    )


def test_a_rebuilt_queue_is_searched_by_time(release: GetRelease, tmp_path: Path, proof: Proof) -> None:
    """4.9.3 looks for a time in the first file that was modified then or later.

    If all files were modified today, as in a store that was copied without times, it looks in the first one alone.
    """
    home = unpack("v4-plain", tmp_path)
    code, said = run(home, ("rebuild", "--yes"), *with_conf(home))
    assert code == 0, said
    assert searched(release("4.9.3"), home, tmp_path / "rebuilt") == 0
    proof("G13 queues that a broker searches by time", len(QUEUES_SEARCHED))
    for file in (home / "store" / "consumequeue").glob("*/*/*"):
        file.touch()
    assert searched(release("4.9.3"), home, tmp_path / "touched") > 300
