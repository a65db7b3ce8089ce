"""Two brokers of a real controller's group (5.5.0) whose logs part, and what `reput verify --against` says of them.

The first broker leads, the second follows. The second one is stopped, the first gets more messages and is stopped, and
the second one, which lacks them, is elected and gets others. At last the first one follows it::

    python -m pytest tests/test_replicas_broker.py -m slow
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker import remoting
from broker.java_process import free_port
from broker.log_contents import Record, read_records
from broker.rocketmq import Broker, NameServer, RocketMQ
from support.command_line import invoke
from support.proof_counts import Proof

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC, GROUP = "Replicated", "readers"
BOTH, FIRST, SECOND = 60, 21, 13
WITHIN_S = 90


def records_of(store: Path) -> list[Record]:
    return list(read_records(store, {})) if (store / "commitlog").exists() else []


def offsets_of(broker: Broker) -> list[tuple[int, str | None]]:
    return [(record.offset, record.uniq_key) for record in records_of(broker.store)]


def wait_for(what: str, check: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN_S
    while not check():
        assert time.monotonic() < until, f"{what} did not come in {WITHIN_S} s"
        time.sleep(0.5)


def replica(rocketmq: RocketMQ, home: Path, name_server: NameServer, controller: str) -> Broker:
    conf = {
        "brokerId": -1,
        "brokerRole": "SLAVE",
        "enableControllerMode": True,
        "controllerAddr": controller,
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 20_000,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
        "haMaxTimeSlaveNotCatchup": 3000,
    }
    return rocketmq.broker(home, name_server, conf)


def send(rocketmq: RocketMQ, name_server: NameServer, count: int, seed: int) -> None:
    """Send messages, as soon as there is a master."""
    sent = 0
    until = time.monotonic() + WITHIN_S
    while sent < count:
        assert time.monotonic() < until, "no master was elected"
        done = rocketmq.workload(
            "send", name_server, topics=f"{TOPIC}:2", count=count - sent, mode="sync", seed=seed + sent, batch=0
        )
        sent += done["acknowledged"]


def make_group(rocketmq: RocketMQ, root: Path) -> tuple[Broker, Broker]:
    port = free_port()
    conf = {
        "enableControllerInNamesrv": True,
        "controllerDLegerGroup": "group",
        "controllerDLegerSelfId": "n0",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerStorePath": str(root / "controller"),
        "mappedFileSize": 1 << 20,
        "enableElectUncleanMaster": True,
        "scanNotActiveBrokerInterval": 1000,
        "configStorePath": str(root / "controller.properties"),
    }
    with rocketmq.name_server(root / "namesrv", conf) as name_server:
        first, second = (
            replica(rocketmq, root / name, name_server, f"127.0.0.1:{port}") for name in ("first", "second")
        )
        with first:
            send(rocketmq, name_server, BOTH, 100)
            with second:
                wait_for("the log of the first one", lambda: offsets_of(second) == offsets_of(first))
                second.stop()
            send(rocketmq, name_server, FIRST, 200)
            remoting.make_group(first.port, GROUP)
            for queue_id in (0, 1):
                end = remoting.max_offset(first.port, TOPIC, queue_id)
                remoting.update_consumer_offset(first.port, GROUP, TOPIC, queue_id, end)
            first.stop()
        with second:
            send(rocketmq, name_server, SECOND, 300)
            second.stop()
        for each in (first, second):
            shutil.copytree(each.store, root / "parted" / each.home.name)
        with second:
            send(rocketmq, name_server, 1, 400)
            with first:
                wait_for("the master's log", lambda: offsets_of(first) == offsets_of(second))
                first.stop()
            second.stop()
    return first, second


def verify(here: Path, there: Path) -> dict[str, Any]:
    words = ["verify", "--store", str(here), "--against", str(there), "--json", "-o", "brokerVersion=5.5.0"]
    sizes = ("mappedFileSizeConsumeQueue=20000", "maxHashSlotNum=1000", "maxIndexNum=4000")
    done = invoke([*words, *(word for size in sizes for word in ("-o", size))])
    found: dict[str, Any] = json.loads(done.stdout)["parts"]["replicas"]
    return found


def test_logs_that_part(release: Callable[[str], RocketMQ], tmp_path: Path, proof: Proof) -> None:
    first, second = make_group(release("5.5.0"), tmp_path)
    stores = [tmp_path / "parted" / each.home.name for each in (first, second)]
    mine, theirs = map(records_of, stores)
    parting = mine[BOTH].offset
    assert [record.offset for record in mine[: BOTH + 1]] == [record.offset for record in theirs[: BOTH + 1]]
    assert (len(mine), len(theirs)) == (BOTH + FIRST, BOTH + SECOND)
    found = verify(*stores)
    ours, others = ({(r.topic, r.queue_id, r.queue_offset) for r in records[BOTH:]} for records in (mine, theirs))
    ends = {queue_id: max(place[2] for place in others if place[1] == queue_id) + 1 for queue_id in (0, 1)}
    beyond = sum(max(place[2] for place in ours if place[1] == queue_id) + 1 > ends[queue_id] for queue_id in (0, 1))
    assert found["by_kind"] == {
        "logs_part": 1,
        "message_only_here": FIRST,
        "message_only_there": SECOND,
        "queue_offset_shared": len(ours & others),
        **({"consumer_offset_beyond": beyond} if beyond else {}),
    }
    assert beyond > 0
    assert found["first"][0]["physical_offset"] == parting
    assert f"cuts its log at {parting}, in epoch" in " ".join(found["remarks"])
    # The prediction came true: the first one's own messages are gone.
    assert len(records_of(first.store)) == BOTH + SECOND + 1
    assert verify(first.store, second.store)["differences"] == 0
    proof("G13 messages of two replicas that only one of them has", FIRST + SECOND)
