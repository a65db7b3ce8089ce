"""Traces and POP records of real clients and brokers: `reput ask consumed` says what the consumers wrote down."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import BrokerStore
from support.broker_table import make_table
from support.deliveries import check_deliveries

from broker import remoting
from broker.rocketmq import NameServer, RocketMQ
from broker.server import Broker
from reput.source.log.log_reader import MessageLookup
from reput.source.record.message_decoder import Message

pytestmark = [pytest.mark.broker, pytest.mark.slow]

GO_CLIENT = Path(__file__).with_name("go")
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
        ("4.9.3", "4.9.3", {"traceTopic": "my_traces"}, TRACED),
        # A 5.x client drops the traces of a consumer whose broker gave the messages no region.
        ("4.9.3", "5.5.0", {}, {"sent": 6, "committed": 1}),
        ("5.5.0", "4.9.3", {}, TRACED),
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
    def run(names: NameServer, _: Broker) -> dict[str, Any]:
        return release(client).workload("traces", names, topics="orders:1", **settings)

    clients, words = told_by(run, release(version), tmp_path)
    traces = "given" in states
    assert check_deliveries(clients, tmp_path / "table", *words, consumers_trace=traces) == states


def told_by(
    run: Callable[[NameServer, Broker], dict[str, Any]], rocketmq: RocketMQ, root: Path
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the notes of clients that `run` beside a broker, and words to ask a table of its log."""
    conf = {"traceTopicEnable": True, "mappedFileSizeCommitLog": 1 << 20}
    with rocketmq.name_server(root / "names") as names, rocketmq.broker(root / "home", names, conf) as broker:
        clients = run(names, broker)
    store = BrokerStore(broker.store, root / "home" / "server.conf", {"minOffset": 0, "maxOffset": end_of(broker)})
    make_table(store, root / "table")
    return clients, ("--store", str(store.root), "--broker-conf", str(store.broker_conf))


@pytest.mark.parametrize("version", ["4.9.3", "5.5.0"])
def test_the_go_client_tells_the_same(version: str, release: Callable[[str], RocketMQ], tmp_path: Path) -> None:
    """With brokers of both lines: it looks for no region of a message that it consumes."""
    if shutil.which("go") is None:
        pytest.skip("go not found on PATH")
    command = ["go", "build", "-o", str(tmp_path / "traces"), "."]
    built = subprocess.run(command, cwd=GO_CLIENT, capture_output=True, text=True, check=False)
    if built.returncode and "dial tcp" in built.stderr:
        pytest.skip("the client's module cannot be had")
    assert built.returncode == 0, built.stderr

    def run(names: NameServer, broker: Broker) -> dict[str, Any]:
        remoting.send_message(broker.port, "orders", 0, b"body")  # makes the topic
        done = subprocess.run([tmp_path / "traces", str(names), "orders"], capture_output=True, text=True, check=True)
        return cast("dict[str, Any]", json.loads(done.stdout.splitlines()[-1]))

    clients, words = told_by(run, release(version), tmp_path)
    assert check_deliveries(clients, tmp_path / "table", *words) == {"sent": 3, "given": 3, "consumed": 3}
