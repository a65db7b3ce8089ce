"""A real broker boots on a restored store: it serves every message before the moment and none after.

The short form boots 4.9.3 on one store::

    python -m pytest tests/test_backup_broker.py -m "slow or not slow"
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import javaproperties
import pytest
from broker import lifeline_run
from broker.boot_check import boot_check
from broker.log_contents import LogContents
from broker.rocketmq import RocketMQ
from support.broker_stores import unpack
from support.command_line import run_reput
from support.proof_counts import Proof
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


@pytest.mark.slow
def test_kills_of_both_sides(tmp_path: Path, release: GetRelease, proof: Proof) -> None:
    """The short form of `make lifeline`: two live brokers, their backups and what is restored of them."""
    assert release("4.9.3")
    worlds = lifeline_run.run(tmp_path, 60, 300, 4)
    restores = [each for world in worlds for each in world.restores]
    assert len(restores) == 4
    assert [each.wrong for each in restores if each.wrong] == []
    proof("G16 restores at random times of a log whose broker and backup were killed", len(restores))
