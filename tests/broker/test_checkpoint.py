"""The effect on a 5.5.0 message store of the offset that reput writes into the store's checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import javaproperties
import pytest
from support.broker_stores import unpack
from support.rebuild_runner import rebuild
from support.store_compare import files_below

from broker.recovery import start_stores
from broker.rocketmq import RocketMQ
from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.streaming.config.pipeline import load_config

pytestmark = pytest.mark.broker


def test_recovery_begins_where_the_queues_end(release: Callable[[str], RocketMQ], tmp_path: Path) -> None:
    """With ``enableAcceleratedRecovery`` it dispatches the last record alone; without the offset it does not start."""
    home = unpack("v5-plain", tmp_path)
    store = home / "store"
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    (store / "checkpoint").unlink()
    rebuild(load_config(store, broker_conf=home / "broker.conf"), store)
    made = StoreCheckpoint.decode((store / "checkpoint").read_bytes())
    queues = files_below(store / "consumequeue")
    (store / "abort").touch()
    without = shutil.copytree(home, tmp_path / "without", copy_function=shutil.copyfile) / "store"
    (without / "checkpoint").write_bytes(made.with_logics_physical_offset(0).encode())
    conf = javaproperties.loads((home / "broker.conf").read_text()) | {"enableAcceleratedRecovery": "true"}
    good, bad = start_stores(release("5.5.0"), [(store, conf), (without, conf)], tmp_path / "java")
    assert not bad.facts["loaded"]
    assert good.facts["started"]
    assert good.facts["first_dispatched"] >= made.logics_physical_offset
    found = StoreCheckpoint.decode((store / "checkpoint").read_bytes())
    assert found.logics_physical_offset == made.logics_physical_offset
    assert files_below(store / "consumequeue") == queues
