"""A 5.5.0 broker on queues of the wrong kind: it does not start, and on what doctor's advice makes of them it does."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import javaproperties
import pytest
from support.broker_stores import unpack
from support.command_line import invoke
from support.store_compare import files_below

from broker.boot_check import boot_conf
from broker.rocketmq import HarnessError, RocketMQ

pytestmark = pytest.mark.broker

QUEUES = ("consumequeue", "batchconsumequeue")


def queues_of(store: Path) -> dict[str, bytes]:
    return {f"{kind}/{path}": data for kind in QUEUES for path, data in files_below(store / kind).items()}


@pytest.mark.slow
def test_queues_of_the_wrong_kind(release: Callable[[str], RocketMQ], tmp_path: Path) -> None:
    """Topics in RocksDB; then topics in the ``.bak`` alone, on which the broker starts by itself."""
    rocketmq = release("5.5.0")
    with rocketmq.name_server(tmp_path / "namesrv") as name_server:

        def start(home: Path, number: int) -> None:
            conf = boot_conf(javaproperties.loads((home / "broker.conf").read_text()), home / "store")
            with rocketmq.broker(tmp_path / f"broker-{home.name}-{number}", name_server, conf) as broker:
                broker.stop()

        home = unpack("v5-config-v2-batchcq", tmp_path)
        store, before = home / "store", queues_of(home / "store")
        (store / "consumequeue" / "Bq" / "0").mkdir(parents=True)
        with pytest.raises(HarnessError):
            start(home, 1)
        (store / "abort").unlink(missing_ok=True)
        words = ["--store", str(store), "--broker-conf", str(home / "broker.conf")]
        (found,) = json.loads(invoke(["doctor", *words, "--json"]).output)["releases"].values()
        assert not found["starts"]
        assert invoke(shlex.split(found["advice"][0]["command"])[1:]).exit_code == 0
        start(home, 2)
        assert queues_of(store) == before

        home = unpack("v5-batchcq", tmp_path)
        store, before = home / "store", queues_of(home / "store")
        topics = store / "config" / "topics.json"
        topics.rename(topics.with_name("topics.json.bak"))
        words = ["--store", str(store), "--broker-conf", str(home / "broker.conf"), "--output", str(store)]
        assert invoke(["rebuild", *words]).exit_code == 0
        start(home, 1)
        assert queues_of(store) == before
