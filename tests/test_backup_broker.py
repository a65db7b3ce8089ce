"""A real broker boots on a restored store: it serves every message before the moment and none after.

The short form boots 4.9.3 on one store::

    python -m pytest tests/test_backup_broker.py -m "slow or not slow"
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import javaproperties
import pytest
from broker import lifeline_run, remoting
from broker.boot_check import boot_check
from broker.log_contents import LogContents
from broker.rocketmq import RocketMQ
from broker.served import plan_of, served_all, start, wait_for
from broker.server import Broker
from support.broker_stores import unpack
from support.command_line import run_reput
from support.paths import ROOT
from support.proof_counts import Proof

from reput.sinks.files.config_manager import json_of

pytestmark = pytest.mark.broker

GetRelease = Callable[[str], RocketMQ]
QUERIES_MAX = 200
# All that a record says but its place in the log, and other places there.
WHAT_STAYS = attrgetter("queue_id", "queue_offset", "sys_flag", "store_timestamp", "topic", "has_body")
STORES = [
    ("v4-tx-delay-retry", "4.9.3"),
    *(pytest.param(name, "4.9.3", marks=pytest.mark.slow) for name in ("v4-plain", "v4-lmq", "v4-expired")),
    *(pytest.param(name, "5.5.0", marks=pytest.mark.slow) for name in ("v5-plain", "v5-batchcq", "v5-propcrc")),
]


@pytest.mark.parametrize("part", [0.6, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "version"), STORES)
def test_a_broker_boots_on_a_restored_store(
    name: str, version: str, part: float, release: GetRelease, tmp_path: Path
) -> None:
    """No warning, nothing dispatched again, no file changed; every message, filtered subset and key is found."""
    home = unpack(name, tmp_path)
    given = ["--broker-conf", str(home / "broker.conf"), "-o", f"brokerVersion={version}"]
    run_reput(["backup", "--store", str(home / "store"), *given, "--to", str(tmp_path / "backup")])
    conf = javaproperties.loads((home / "broker.conf").read_text(encoding="ascii"))
    records = LogContents.load(home / "store", conf).records
    at_ms = records[int(part * (len(records) - 1))].store_timestamp
    restored = tmp_path / "restored"
    restored.mkdir()
    shutil.copyfile(home / "broker.conf", restored / "broker.conf")
    words = ["--from", str(tmp_path / "backup"), "--to", str(restored / "store"), "--at", str(at_ms), *given]
    run_reput(["restore", *words])
    expected = [record for record in records if record.store_timestamp <= at_ms]
    assert LogContents.load(restored / "store", conf).records == expected
    assert len(expected) < len(records) or part == 1.0
    report = boot_check(release(version), restored, restored / "store", tmp_path / "boot", QUERIES_MAX)
    assert report.accepted, str(report)
    assert report.audit is not None
    assert 0 < report.audit.consumed.expected == report.audit.consumed.found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "version"), [("v4-tx-delay-retry", "4.9.3"), ("v5-plain", "5.5.0")])
def test_a_broker_boots_on_a_part(name: str, version: str, release: GetRelease, tmp_path: Path) -> None:
    """Restored are the two topics with the most messages: these are served and found by their keys, and no others."""
    home = unpack(name, tmp_path)
    given = ["--broker-conf", str(home / "broker.conf"), "-o", f"brokerVersion={version}"]
    run_reput(["backup", "--store", str(home / "store"), *given, "--to", str(tmp_path / "backup")])
    conf = javaproperties.loads((home / "broker.conf").read_text(encoding="ascii"))
    records = LogContents.load(home / "store", conf).records
    topics = [topic for topic, _ in Counter(each.topic for each in records).most_common(2)]
    restored = tmp_path / "restored"
    restored.mkdir()
    shutil.copyfile(home / "broker.conf", restored / "broker.conf")
    words = ["--from", str(tmp_path / "backup"), "--to", str(restored / "store"), *given]
    run_reput(["restore", *words, *(word for topic in topics for word in ("--topic", topic))])
    wanted = [record for record in records if record.topic in topics]
    found = LogContents.load(restored / "store", conf).records
    assert 0 < len(found) < len(records)
    assert [WHAT_STAYS(each) for each in found] == [WHAT_STAYS(each) for each in wanted]
    report = boot_check(release(version), restored, restored / "store", tmp_path / "boot", QUERIES_MAX)
    assert report.accepted, str(report)
    assert report.audit is not None
    assert 0 < report.audit.consumed.expected == report.audit.consumed.found


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.5, 1.0])
def test_queues_and_topics_in_rocksdb(part: float, release: GetRelease, tmp_path: Path) -> None:
    """A store with both in RocksDB: a 5.5.0 message store dispatches nothing, and serves each message of each queue."""
    home, restored = unpack("v5-rocksdb", tmp_path), tmp_path / "restored"
    restored.mkdir()
    shutil.copyfile(home / "broker.conf", restored / "broker.conf")
    given = ["--broker-conf", str(home / "broker.conf")]
    run_reput(["backup", "--store", str(home / "store"), *given, "--to", str(tmp_path / "backup")])
    conf = javaproperties.loads((home / "broker.conf").read_text(encoding="ascii"))
    records = LogContents.load(home / "store", conf).records
    at_ms = records[int(part * (len(records) - 1))].store_timestamp
    words = ["--from", str(tmp_path / "backup"), "--to", str(restored / "store"), "--at", str(at_ms), *given]
    run_reput(["restore", *words])
    plan = plan_of(restored)
    happened = start(release("5.5.0"), {"restored": restored}, {"restored": plan}, tmp_path / "work")["restored"]
    assert served_all(happened, plan) == []
    assert happened.facts["dispatched"] == 0


@pytest.mark.slow
def test_kills_of_both_sides(tmp_path: Path, release: GetRelease, proof: Proof) -> None:
    """The short form of `make lifeline`: two live brokers, their backups and what is restored of them."""
    assert release("4.9.3")
    worlds = lifeline_run.run(tmp_path, 60, 300, 4)
    restores = [each for world in worlds for each in world.restores]
    assert len(restores) == 4
    assert [each.wrong for each in restores if each.wrong] == []
    proof("G16 restores at random times of a log whose broker and backup were killed", len(restores))


class Runbook:
    """The commands of the page on backups, with the paths of a test."""

    def __init__(self, root: Path, at_ms: int, version: str) -> None:
        self.places = {"/backup/broker-a": root / "backup", "/scratch": root / "scratch"}
        self._at_ms, self._version = at_ms, version
        page = (
            (ROOT / "docs" / "backup.md").read_text(encoding="utf-8").partition("## Runbook")[2].partition("\n## ")[0]
        )
        self._cases = page.split("\n**")[1:]

    def follow(self, beginning: str, store: Path, number: int) -> str:
        """Run one command of a case; returns what it printed."""
        (case,) = (case for case in self._cases if case.startswith(beginning))
        line = [line for line in case.splitlines() if line.startswith("$ ")][number].removeprefix("$ ")
        for path, real in {**self.places, "/data/store": store}.items():
            line = line.replace(path, str(real))
        words = re.sub(r"--at \S+", f"--at {self._at_ms}", line).split()
        if words[0] == "cp":
            return str(shutil.copyfile(*words[1:]))
        settings = [] if words[1] == "backup" else ["-o", f"brokerVersion={self._version}"]
        return run_reput([*words[1:], *settings]).output


ORDERS, LATER, GROUP, QUEUES = "orders", "later", "billing", 4


def lived(broker: Broker) -> None:
    """Two messages in each queue, and a group that has consumed one of them; all of it is saved."""
    for number in range(2 * QUEUES):
        remoting.send_message(broker.port, ORDERS, number % QUEUES, b"body")
    remoting.make_group(broker.port, GROUP)
    for queue_id in range(QUEUES):
        remoting.update_consumer_offset(broker.port, GROUP, ORDERS, queue_id, 1)
    file = broker.store / "config" / "consumerOffset.json"
    wait_for("the broker wrote no offsets", lambda: file.exists() and f"{ORDERS}@{GROUP}" in file.read_text())


def ends(broker: Broker) -> list[int]:
    return [remoting.max_offset(broker.port, ORDERS, queue_id) for queue_id in range(QUEUES)]


def offsets(broker: Broker) -> list[int]:
    return [remoting.consumer_offset(broker.port, GROUP, ORDERS, queue_id) for queue_id in range(QUEUES)]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.3", "5.5.0"])
def test_the_runbook(version: str, release: GetRelease, tmp_path: Path) -> None:
    """The machine or the disk is gone, a topic was deleted, consumerOffset.json is empty: with what the page says."""
    rocketmq, conf = release(version), {"flushConsumerOffsetInterval": 1000}
    with rocketmq.name_server(tmp_path / "names") as names:
        with rocketmq.broker(tmp_path / "home", names, conf) as broker:
            lived(broker)
            runbook = Runbook(tmp_path, time.time_ns() // 1_000_000, version)
            words = ["backup", "--store", str(broker.store), "--to", str(tmp_path / "backup")]
            run_reput([*words, "-o", f"brokerVersion={version}"])
        for home in ("machine", "disk"):
            store = tmp_path / home / "store"
            (store if home == "machine" else store / "lost+found").mkdir(parents=True)
            assert "every restore point can be restored" in runbook.follow("The machine is gone", store, 0)
            assert "the last one stored at" in runbook.follow("The machine is gone", store, 1)
            with rocketmq.broker(tmp_path / home, names, conf) as again:
                assert (ends(again), offsets(again)) == ([2] * QUEUES, [1] * QUEUES)
                remoting.send_message(again.port, ORDERS, 0, b"more")
                assert ends(again) == [3, 2, 2, 2]
        deleted_topic(runbook, broker)
        no_offsets(runbook, broker)


def deleted_topic(runbook: Runbook, broker: Broker) -> None:
    """Its messages are shown, and are in the queues again beside those that were stored since."""
    case = "A topic was deleted by mistake"
    with broker:
        remoting.delete_topic(broker.port, ORDERS)
        remoting.send_message(broker.port, LATER, 0, b"later")
    assert f"topics: {ORDERS} {2 * QUEUES}" in runbook.follow(case, broker.store, 0)
    runbook.follow(case, broker.store, 1)
    scratch = runbook.places["/scratch"] / "store"
    topics = broker.store / "config" / "topics.json"
    now, then = (json_of((each / "config" / "topics.json").read_bytes()) for each in (broker.store, scratch))
    assert ORDERS not in now["topicConfigTable"]
    now["topicConfigTable"][ORDERS] = then["topicConfigTable"][ORDERS]
    topics.write_text(json.dumps(now))
    runbook.follow(case, broker.store, 2)
    with broker:
        assert ends(broker) == [2] * QUEUES
        assert remoting.max_offset(broker.port, LATER, 0) == 1
        remoting.send_message(broker.port, ORDERS, 3, b"more")
        assert ends(broker) == [2, 2, 2, 3]


def no_offsets(runbook: Runbook, broker: Broker) -> None:
    """With an empty file the group is lost; with the one from the backup it is where it was."""
    config = broker.store / "config"
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (config / name).write_bytes(b"")
    for number in range(2):
        runbook.follow("`consumerOffset.json` is empty", broker.store, number)
    with broker:
        assert offsets(broker) == [1] * QUEUES
