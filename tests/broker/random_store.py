"""One seed, one store: a broker with random settings, kept busy by real clients, stopped or killed."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.artifacts import HarnessError
from broker.boot_check import DERIVED
from broker.java_process import free_port
from broker.kinds import Client, Kind
from broker.rocketmq import Broker, NameServer, RocketMQ
from broker.server import ConfValue

KILL_AFTER_S = 6.0
KILL_RATE = 500


@dataclass(frozen=True)
class RandomStore:
    """The results of a run: the store of a broker after a clean stop, its settings, the acknowledged messages."""

    store: Path
    broker_conf: Path
    acknowledged: int


def random_conf(pick: random.Random, kinds: Sequence[Kind]) -> dict[str, ConfValue]:
    """Small files, so that every kind of them is left behind more than once."""
    conf: dict[str, ConfValue] = {
        "mappedFileSizeCommitLog": pick.choice([64, 200, 1024, 4096]) * 1024,
        # Not always whole entries: the broker rounds up.
        "mappedFileSizeConsumeQueue": pick.randint(400, 20_000),
        "mapperFileSizeBatchConsumeQueue": 46 * pick.randint(5, 200),
        "mappedFileSizeConsumeQueueExt": pick.choice([1024, 8192, 65_536]),
        "maxHashSlotNum": pick.randint(10, 3000),
        # A file's name is a time in milliseconds: it must take longer than one to fill it.
        "maxIndexNum": pick.randint(4000, 12_000),
        "messageDelayLevel": pick.choice(
            ["1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "1s 1s 2s 1m 1h 1d"]
        ),
    }
    for kind in kinds:
        conf.update(kind.conf)
    if "dLegerSelfId" in conf:
        conf["dLegerPeers"] = f"{conf['dLegerSelfId']}-127.0.0.1:{free_port()}"
    return conf


def random_store(
    rocketmq: RocketMQ, seed: int, kinds: Sequence[Kind], messages: int, work: Path, *, kill: bool = False
) -> RandomStore:
    """Run each kind in turn with about `messages` in all; `kill`: then kill -9 under load and start again.

    A store whose queues or index depend on moments (a kill, a subscription) is given to the broker again without them.
    """
    pick = random.Random(seed)
    conf = random_conf(pick, kinds)
    with rocketmq.name_server(work / "namesrv") as name_server:
        broker = rocketmq.broker(work / "broker", name_server, conf)
        write_groups(broker.store, [group for kind in kinds for group in kind.groups])
        with broker:
            acknowledged = 0
            for number, kind in enumerate(kinds):
                client = Client(rocketmq, name_server, work, f"{seed}-{number}", pick)
                acknowledged += kind.send(client, max(1, messages // len(kinds)))
            if kill:
                kill_under_load(broker, rocketmq, name_server)
            broker.stop()
            if kill or any(kind.rebuild for kind in kinds):
                rebuild(broker)
    return RandomStore(broker.store, broker.home / "server.conf", acknowledged)


def write_groups(store: Path, groups: Sequence[str]) -> None:
    """Leave consumer groups in a new store, as the broker's SubscriptionGroupManager reads them at its start."""
    if not groups:
        return
    (store / "config").mkdir(parents=True)
    table = {group: {"groupName": group} for group in groups}
    data = {"dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0}, "subscriptionGroupTable": table}
    (store / "config" / "subscriptionGroup.json").write_text(json.dumps(data), encoding="ascii")


def kill_under_load(broker: Broker, rocketmq: RocketMQ, name_server: NameServer) -> None:
    """Kill -9 while messages come, and a start that recovers."""
    with rocketmq.start_workload(
        "send", name_server, topics="Kill:4", rate=KILL_RATE, seconds=KILL_AFTER_S * 2, sendTimeoutMs=1000
    ) as load:
        wait_for_records(broker)
        broker.kill()
        load.kill()
    broker.start()


def wait_for_records(broker: Broker) -> None:
    """Wait until the load has reached the log."""
    before = written(broker)
    deadline = time.monotonic() + 60
    while written(broker) == before:
        if time.monotonic() > deadline:
            raise HarnessError("no message arrived in 60 s")
        time.sleep(0.1)
    time.sleep(1)


def written(broker: Broker) -> bytes:
    """The queue entries of the load's topic."""
    queues = broker.store / "consumequeue" / "Kill"
    return b"".join(path.read_bytes() for path in sorted(queues.rglob("*")) if path.is_file())


def rebuild(broker: Broker) -> None:
    """Let the broker itself build everything from its log again, without clients.

    4.9.3 does so after a clean stop if all queues are gone. 5.5.0 does it in recovery, for a number of files of the
    log.
    """
    for name in DERIVED:
        shutil.rmtree(broker.store / name, ignore_errors=True)
    (broker.store / "checkpoint").unlink(missing_ok=True)
    broker.conf["commitLogRecoverMaxNum"] = 1_000_000
    broker.start()
    broker.stop()
    del broker.conf["commitLogRecoverMaxNum"]
