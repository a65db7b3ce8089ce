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
from broker.boot_check import boot_check
from broker.log_contents import LogContents
from broker.rocketmq import RocketMQ
from support.broker_stores import unpack
from support.command_line import run_reput

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
