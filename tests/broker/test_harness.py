"""The harness itself: a real broker takes, keeps and gives back messages of all kinds, and stops cleanly."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import remoting
from broker.rocketmq import Broker, HarnessError, NameServer, RocketMQ

pytestmark = pytest.mark.broker

SMALL_FILES: dict[str, str | int | bool] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 10_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 5000,
    "enablePropertyFilter": True,
}
MESSAGES = 4000
QUEUES = {"Orders": 4, "Payments": 8}
BATCH_MAX = 8  # the client's default


@pytest.fixture(scope="module")
def name_server(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    server = rocketmq.name_server(tmp_path_factory.mktemp("namesrv"))
    try:
        yield server.start()
    finally:
        server.kill()


@pytest.fixture(scope="module")
def broker(rocketmq: RocketMQ, name_server: NameServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests, each of which leaves it running; a clean stop takes 4.9.3 about 7 s."""
    server = rocketmq.broker(tmp_path_factory.mktemp("broker"), name_server, SMALL_FILES)
    try:
        yield server.start()
    finally:
        server.kill()


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def place(message: dict[str, Any]) -> tuple[object, ...]:
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "uniq_key")
    return tuple(message[name] for name in names)


@pytest.mark.slow  # the tests that use the harness show it, too
def test_messages_of_all_kinds_come_back(
    rocketmq: RocketMQ, name_server: NameServer, broker: Broker, tmp_path: Path
) -> None:
    """Every acknowledged message is consumed, at the offset of its acknowledgement."""
    topics = ",".join(f"{topic}:{count}" for topic, count in QUEUES.items())
    acks_file, messages_file = tmp_path / "acks", tmp_path / "messages"
    sent = rocketmq.workload("send", name_server, topics=topics, count=MESSAGES, acksFile=acks_file, seed=7)
    assert (sent["acknowledged"], sent["failed"]) == (MESSAGES, 0)
    assert sum(sent["by_second"]) == MESSAGES
    ends = [remoting.max_offset(broker.port, topic, queue) for topic, count in QUEUES.items() for queue in range(count)]
    assert sum(ends) == MESSAGES
    with pytest.raises(ConnectionError, match="the broker refused the end of Nobody-0"):
        remoting.max_offset(broker.port, "Nobody", 0)

    consumed = rocketmq.workload("consume", name_server, topics=topics, messagesFile=messages_file)
    assert consumed["complete"]
    assert consumed["topics"] == sent["topics"]
    assert consumed["count"] == consumed["distinct"] == MESSAGES
    acks = read_lines(acks_file)
    assert set(map(place, acks)) == set(map(place, read_lines(messages_file)))
    tagged = rocketmq.workload("consume", name_server, topics="Orders", tags="TagA||étiquette")
    assert tagged["count"] == sum(sent["tags"]["Orders"][tag] for tag in ("TagA", "étiquette"))

    check_queries(rocketmq, name_server, [ack for ack in acks if ack["topic"] == "Orders"], tmp_path)


def check_queries(rocketmq: RocketMQ, name_server: NameServer, acks: list[dict[str, Any]], directory: Path) -> None:
    """Ask the index for keys, ASCII and not, and for unique keys of messages of one topic."""

    def query(**arguments: object) -> dict[str, list[tuple[object, ...]]]:
        answer = rocketmq.workload("query", name_server, topic="Orders", **arguments)
        return {key: list(map(place, messages)) for key, messages in answer["results"].items()}

    first_keys = [ack["keys"].split()[0] for ack in acks if ack["keys"]]
    keys = [*first_keys[:10], *[key for key in first_keys if not key.isascii()][:10], "no-such-key"]
    keys_file = directory / "keys"
    keys_file.write_text("\n".join(keys), encoding="utf-8")
    expected = {key: [place(ack) for ack in acks if key in (ack["keys"] or "").split()] for key in keys}
    assert expected["no-such-key"] == []
    assert query(keysFile=keys_file) == expected
    assert query(kind="uniq", key=acks[-1]["uniq_key"]) == {acks[-1]["uniq_key"]: [place(acks[-1])]}


@pytest.mark.slow
def test_transactions_and_delays(rocketmq: RocketMQ, name_server: NameServer, broker: Broker) -> None:
    """Committed messages and those whose delay is over can be consumed, the others not."""
    with rocketmq.start_workload(
        "transactions", name_server, topics="Tx:2", commit=30, rollback=20, unknown=10
    ) as running:
        delayed = rocketmq.workload("delay", name_server, topics="Late:2", count=36)
        transactions = running.wait()
    assert [transactions[name] for name in ("committed", "rolled_back", "unknown")] == [30, 20, 10]
    assert transactions["topics"] == {"Tx": 30}
    assert delayed["levels"] == {str(level): 2 for level in range(1, 19)}
    consumed = rocketmq.workload("consume", name_server, topics="Tx")
    assert consumed["count"] == 30
    # Levels 1 and 2 are 1 s and 5 s; the next is 10 s.
    consumed = rocketmq.workload("consume", name_server, topics="Late", count=4, timeoutSeconds=30)
    assert consumed["count"] >= 4


@pytest.mark.slow
def test_sql_filter_and_rate(rocketmq: RocketMQ, name_server: NameServer, broker: Broker) -> None:
    """The broker filters by SQL92; a rate is held while the caller does other things."""
    with rocketmq.start_workload("send", name_server, topics="Rate:4", rate=2000, seconds=5) as running:
        assert running.running
        sent = running.wait(timeout_s=60)
    assert sent["failed"] == 0
    # Never faster than told; slower only where the machine has no time for it.
    assert 8_000 < sent["acknowledged"] <= 10_000 + BATCH_MAX
    everything = rocketmq.workload("consume", name_server, topics="Rate")
    filtered = rocketmq.workload("consume", name_server, topics="Rate", sql="amount < 500")
    assert everything["count"] == sent["acknowledged"]
    assert 0 < filtered["count"] < everything["count"] / 2


@pytest.mark.slow
def test_a_killed_broker_comes_back(rocketmq: RocketMQ, name_server: NameServer, broker: Broker) -> None:
    """SIGKILL leaves ``abort``; started again on its store, the broker gives back the same messages."""
    sent = rocketmq.workload("send", name_server, topics="Kill:2", count=500, mode="sync")
    before = rocketmq.workload("consume", name_server, topics="Kill")
    pid = broker.pid
    broker.kill()
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)
    assert (broker.store / "abort").exists()
    broker.start()
    after = rocketmq.workload("consume", name_server, topics="Kill")
    assert sent["acknowledged"] == after["count"] == 500
    assert before["queues"] == after["queues"]


@pytest.mark.slow
def test_a_clean_stop_leaves_a_whole_store(rocketmq: RocketMQ, name_server: NameServer, broker: Broker) -> None:
    """SIGTERM leaves log, queues, index and checkpoint, and no ``abort``."""
    rocketmq.workload("send", name_server, topics="Stop:2", count=3000)
    broker.stop()
    assert not broker.running
    assert len(list((broker.store / "commitlog").iterdir())) > 1
    assert {path.name for path in (broker.store / "consumequeue" / "Stop").iterdir()} == {"0", "1"}
    assert list((broker.store / "index").iterdir())
    assert (broker.store / "checkpoint").stat().st_size == 4096
    assert not (broker.store / "abort").exists()
    broker.start()


def test_errors_name_the_cause(rocketmq: RocketMQ, name_server: NameServer, tmp_path: Path) -> None:
    """A broker that cannot start, and a client that was called wrongly, say why."""
    wrong = rocketmq.broker(tmp_path / "broker", name_server, {"brokerRole": "SLAVE", "brokerId": 0})
    with pytest.raises(HarnessError, match="brokerId must be > 0"):
        wrong.start()
    assert not wrong.running
    with pytest.raises(HarnessError, match=r"unknown arguments \[colour\]"):
        rocketmq.workload("send", name_server, colour="red")
