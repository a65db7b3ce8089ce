"""A real broker boots on a restored store: it serves every message before the moment and none after.

The short form boots 4.9.3 on one store::

    python -m pytest tests/test_backup_broker.py -m "slow or not slow"
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import javaproperties
import pytest
from broker.boot_check import boot_check
from broker.log_contents import LogContents
from broker.rocketmq import RocketMQ
from support.broker_stores import unpack
from support.command_line import invoke, run_reput
from support.live_run import BROKER_CONF
from test_rocksdb_broker import plan_of, served_all, start

pytestmark = pytest.mark.broker

GetRelease = Callable[[str], RocketMQ]
QUERIES_MAX = 200
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


class Following:
    """`reput backup --follow` as a process beside a broker."""

    def __init__(self, store: Path, work: Path, version: str) -> None:
        self._log = work / "follow.log"
        self._given = ["--broker-conf", str(work / "backup.conf"), "-o", f"brokerVersion={version}"]
        self._command = [str(Path(sys.executable).with_name("reput")), "backup", "--follow", "--every", "2"]
        self._command += ["--store", str(store), "--to", str(work / "backup"), *self._given]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def end(self, number: int = signal.SIGKILL) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.3", "5.5.0"])
def test_kills_of_both_sides(version: str, release: GetRelease, tmp_path: Path) -> None:
    """Under load, broker and backup are killed and started again; restores at random times are equal to the log."""
    rocketmq, rng = release(version), random.Random(version)
    (tmp_path / "backup.conf").write_text("".join(f"{name}={value}\n" for name, value in BROKER_CONF.items()))
    given = ["--broker-conf", str(tmp_path / "backup.conf"), "-o", f"brokerVersion={version}"]
    with (
        rocketmq.name_server(tmp_path / "namesrv") as names,
        rocketmq.broker(tmp_path / "broker", names, BROKER_CONF) as broker,
    ):
        following = Following(broker.store, tmp_path, version)
        following.start()
        rocketmq.workload("send", names, topics="A:4", count=50, mode="sync", acksFile=tmp_path / "first.jsonl")
        load = {"topics": "A:4,B:8", "rate": 300, "seconds": 30, "threads": 4, "mode": "async"}
        with rocketmq.start_workload("send", names, **load, acksFile=tmp_path / "acks.jsonl") as running:
            for side in ("backup", "broker", "backup"):
                time.sleep(5 + 2 * rng.random())
                if side == "broker":
                    broker.kill()
                    broker.start()
                else:
                    following.end()
                    following.start()
            running.wait()
        place = ["--from", str(tmp_path / "backup")]
        deadline = time.monotonic() + 60
        while invoke(["backup", "status", "--store", str(broker.store), *place, "--within", "0"]).exit_code:
            assert time.monotonic() < deadline, (tmp_path / "follow.log").read_text()
            time.sleep(1)
        assert following.end(signal.SIGTERM) == 0
        broker.stop()
    assert "every restore point can be restored" in run_reput(["backup", "verify", *place]).output
    records = LogContents.load(broker.store, {}).records
    for number in range(4):
        at_ms = rng.choice(records[len(records) // 10 :]).store_timestamp
        restored = tmp_path / f"restored-{number}"
        restored.mkdir()
        shutil.copyfile(tmp_path / "backup.conf", restored / "broker.conf")
        run_reput(["restore", *place, "--to", str(restored / "store"), "--at", str(at_ms), *given])
        expected = [record for record in records if record.store_timestamp <= at_ms]
        assert LogContents.load(restored / "store", {}).records == expected
        if number % 2:
            report = boot_check(rocketmq, restored, restored / "store", tmp_path / f"boot-{number}", QUERIES_MAX)
            assert report.accepted, str(report)
