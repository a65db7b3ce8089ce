"""Traces and POP records of real clients and brokers: `reput ask consumed` says what the consumers wrote down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BrokerStore
from support.broker_table import make_table
from support.deliveries import check_deliveries

from broker.rocketmq import RocketMQ
from broker.server import Broker
from reput.source.log.log_reader import MessageLookup
from reput.source.record.message_decoder import Message

pytestmark = pytest.mark.broker

TRACED = {"sent": 6, "committed": 1, "given": 16, "consumed": 12, "failed": 4}


def end_of(broker: Broker) -> int:
    """The end of the last record of the log."""
    log, offset = MessageLookup([broker.store / "commitlog"]), 0
    while isinstance(found := log.find(offset), Message):
        offset += found.msg_size
    return offset


@pytest.mark.parametrize(
    ("version", "client", "settings", "states"),
    [
        pytest.param("4.9.3", "4.9.3", {"traceTopic": "my_traces"}, TRACED, marks=pytest.mark.slow),
        # A 5.x client drops the traces of a consumer whose broker gave the messages no region.
        pytest.param("4.9.3", "5.5.0", {}, {"sent": 6, "committed": 1}, marks=pytest.mark.slow),
        pytest.param("5.5.0", "4.9.3", {}, TRACED, marks=pytest.mark.slow),
        ("5.5.0", "5.5.0", {"pop": "true"}, TRACED | {"given": 24, "acknowledged": 6, "postponed": 2}),
    ],
)
def test_each_delivery_is_told(
    version: str,
    client: str,
    settings: dict[str, str],
    states: dict[str, int],
    release: Callable[[str], RocketMQ],
    tmp_path: Path,
) -> None:
    rocketmq = release(version)
    conf = {"traceTopicEnable": True, "mappedFileSizeCommitLog": 1 << 20}
    with (
        rocketmq.name_server(tmp_path / "names") as names,
        rocketmq.broker(tmp_path / "home", names, conf) as broker,
    ):
        clients = release(client).workload("traces", names, topics="orders:1", **settings)
    store = BrokerStore(broker.store, tmp_path / "home" / "server.conf", {"minOffset": 0, "maxOffset": end_of(broker)})
    make_table(store, tmp_path / "table")
    words = "--store", str(store.root), "--broker-conf", str(store.broker_conf)
    traces = "given" in states
    assert check_deliveries(clients, tmp_path / "table", *words, consumers_trace=traces) == states
