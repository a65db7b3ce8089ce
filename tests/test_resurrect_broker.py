"""Real brokers lose all of ``config/`` and start on what `reput resurrect` makes: nothing is lost, nothing repeated."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from broker import damaged_configs, remoting
from broker.rocketmq import RocketMQ
from broker.served import wait_for
from broker.server import Broker, NameServer
from support.command_line import run_reput
from support.proof_counts import Proof
from support.store_table import add_store

from reput.sinks.files.durable_file import DurableFiles
from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.tail.consumption import ConsumptionWatch

pytestmark = pytest.mark.broker

TOPIC, GROUP, LATER = "orders", "billing", "reminders"
QUEUES, DELIVERED, WAITING = 4, 5, 3
ONE_SECOND, FIVE_SECONDS = 1, 2  # levels
STRICT = {"autoCreateTopicEnable": False, "autoCreateSubscriptionGroup": False}


def ends(broker: Broker, topic: str) -> list[int]:
    return [remoting.max_offset(broker.port, topic, queue_id) for queue_id in range(QUEUES)]


def lived(broker: Broker, root: Path) -> None:
    """Messages in all queues, a group that consumed half of them, delayed messages before and behind their time."""
    for number in range(2 * QUEUES):
        remoting.send_message(broker.port, TOPIC, number % QUEUES, b"body")
    remoting.make_group(broker.port, GROUP)
    for queue_id in range(QUEUES):
        remoting.update_consumer_offset(broker.port, GROUP, TOPIC, queue_id, 1)
    for number in range(DELIVERED):
        remoting.send_message(broker.port, LATER, 0, b"soon", DELAY=ONE_SECOND, UNIQ_KEY=f"soon-{number}")
    wait_for("messages of one second were not delivered", lambda: ends(broker, LATER)[0] == DELIVERED)
    config = load_config(broker.store, broker_conf=broker.home / "server.conf", overrides=["tableTriggerMs=0"])
    (root / "output").mkdir()
    watch = ConsumptionWatch(config, OutputPaths(root / "output", root / "messages"), DurableFiles(root / "output"))
    file = broker.store / "config" / "consumerOffset.json"
    wait_for("the broker wrote no offsets", lambda: file.exists() and f"{TOPIC}@{GROUP}" in file.read_text())
    watch.look()
    for number in range(WAITING):
        remoting.send_message(broker.port, LATER, 0, b"later", DELAY=FIVE_SECONDS, UNIQ_KEY=f"later-{number}")


def resurrected(rocketmq: RocketMQ, names: NameServer, root: Path) -> Broker:
    """A broker that was killed, lost its ``config/``, and has what `reput resurrect` made; `root`/lost has nothing."""
    broker = rocketmq.broker(root / "home", names, {"flushConsumerOffsetInterval": 1000})
    broker.start()
    try:
        lived(broker, root)
    finally:
        broker.kill()
    shutil.rmtree(broker.store / "config")
    made, conf = root / "made", broker.home / "server.conf"
    add_store(root / "messages", broker.store, "broker-a", broker_conf=conf)
    words = ["--table", str(root / "messages"), "--result", str(made)]
    run_reput(["resurrect", "--store", str(broker.store), "--broker-conf", str(conf), *words])
    shutil.copytree(root / "home", root / "lost")
    made.rename(broker.store / "config")
    return rocketmq.broker(root / "home", names, STRICT)


def repeats_and_refuses(lost: Broker) -> None:
    """A broker without the files: so the same checks could fail."""
    wait_for("nothing is repeated", lambda: ends(lost, LATER)[0] == 2 * DELIVERED + WAITING)
    with pytest.raises(ConnectionError):
        remoting.send_message(lost.port, TOPIC, QUEUES - 1, b"more")
    assert remoting.consumer_offset(lost.port, GROUP, TOPIC, 0) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("version", "stores"), [("4.9.3", ["v4-tx-delay-retry", "v4-sql92"])])
def test_each_damage_of_each_file(
    version: str, stores: list[str], release: Callable[[str], RocketMQ], tmp_path: Path, proof: Proof
) -> None:
    """The short form of `damaged_configs`: a broker starts, has topics and groups, and skips nothing."""
    assert release(version)
    for case, lost in damaged_configs.measure(tmp_path, {version: stores}).items():
        if case.after:
            assert (lost.refused, lost.topics, lost.groups) == (0, 0, 0), case
            assert not lost.skipped or case.damage == damaged_configs.ANOTHER, case
            assert not lost.repeated or case.damage == damaged_configs.ANOTHER, case
        proof("files of config/ damaged, and loaded by a broker before and after `reput resurrect`", lost.stores)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.3", "5.5.0"])
def test_a_broker_that_lost_its_config(
    version: str, release: Callable[[str], RocketMQ], tmp_path: Path, proof: Proof
) -> None:
    """Killed, all files gone: topics, group, offsets and delayed messages continue; without reput they do not."""
    rocketmq = release(version)
    with rocketmq.name_server(tmp_path / "names") as names:
        with resurrected(rocketmq, names, tmp_path) as again:
            assert [remoting.consumer_offset(again.port, GROUP, TOPIC, each) for each in range(QUEUES)] == [1] * QUEUES
            remoting.send_message(again.port, TOPIC, QUEUES - 1, b"more")
            assert ends(again, TOPIC) == [2, 2, 2, 3]
            wait_for("what waited was not delivered", lambda: ends(again, LATER)[0] >= DELIVERED + WAITING)
            time.sleep(2)  # what is repeated comes by then
            assert ends(again, LATER)[0] == DELIVERED + WAITING
        with rocketmq.broker(tmp_path / "lost", names, STRICT) as lost:
            repeats_and_refuses(lost)
    proof("brokers that lost config/ and start on what `reput resurrect` makes")
