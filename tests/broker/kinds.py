"""Kinds of workload: what real clients can make a broker store, each with the settings that it needs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.rocketmq import NameServer, RocketMQ
from broker.server import ConfValue

LONG_GROUP = "long" * 48  # a record of version 1 has room for a topic of 127 bytes
READY_TIMEOUT_S = 60.0
EXPRESSIONS = "amount < 500|amount BETWEEN 100 AND 300 AND TAGS = 'TagA'|KEYS IS NULL|property1 = 'value 7'"


@dataclass(frozen=True)
class Client:
    """Where a kind sends to; `name` keeps its topics apart from those of other kinds, `random` decides its shape."""

    rocketmq: RocketMQ
    name_server: NameServer
    work: Path
    name: str
    random: random.Random

    def run(self, command: str, **arguments: object) -> dict[str, int]:
        """Run a subcommand of the Java client and check that nothing failed."""
        acks = self.work / f"{self.name}-{command}.jsonl"
        more = {} if command in {"transactions", "subscribe", "raw"} else {"acksFile": acks}
        report = self.rocketmq.workload(
            command, self.name_server, seed=self.random.randrange(1 << 30), **more, **arguments
        )
        assert report["failed"] == 0, f"{self.name}: {report['first_failure']}"
        return report


Send = Callable[[Client, int], int]
"""Send about so many messages; return how many were acknowledged."""


@dataclass(frozen=True)
class Kind:
    """One kind of workload. `rebuild`: what it leaves depends on moments, the broker has to build it again."""

    name: str
    send: Send
    conf: Mapping[str, ConfValue] = field(default_factory=dict)
    rebuild: bool = False
    #: Consumer groups that the broker knows from its start; no request makes one of more than 120 characters.
    groups: tuple[str, ...] = ()


def shape(client: Client) -> dict[str, object]:
    """Random looks of messages; a batch stays below half the smallest log file."""
    pick = client.random
    return {
        "bodyMax": pick.choice([50, 500, 3000]),
        "compressOver": pick.choice([1000, 4096]),
        "keysMax": pick.randrange(4),
        "propertiesMax": pick.randrange(5),
        "plain": pick.choice([0, 0.1, 0.5]),
        "nonAscii": pick.choice([0, 0.1, 0.5]),
    }


def topics(client: Client, *names: str) -> str:
    """The topics' names, with a random number of queues each."""
    return ",".join(f"{name}{client.name}:{client.random.choice([1, 3, 8])}" for name in names)


def plain(client: Client, messages: int) -> int:
    """Singles and batches, compressed bodies, non-ASCII text, odd topic names; synchronous and not."""
    report = client.run(
        "send",
        topics=topics(client, "Plain", "Odd%|Name_-", "X" * 100),
        count=messages,
        mode=client.random.choice(["sync", "async"]),
        batch=client.random.choice([0, 0.2, 0.6]),
        sendTimeoutMs=60_000,  # a million messages on a busy machine
        **shape(client),
    )
    return report["acknowledged"]


def transactions(client: Client, messages: int) -> int:
    """Half messages that are committed, rolled back or left open."""
    third = max(1, messages // 3)
    report = client.run(
        "transactions", topics=topics(client, "Tx"), commit=third, rollback=third, unknown=third, **shape(client)
    )
    return report["committed"] + report["rolled_back"] + report["unknown"]


def delay(client: Client, messages: int) -> int:
    """Messages of every delay level; most still wait when the broker stops."""
    return client.run("delay", topics=topics(client, "Late"), count=messages, **shape(client))["acknowledged"]


def retry(client: Client, messages: int) -> int:
    """A consumer that fails: %RETRY% and %DLQ% topics."""
    report = client.run(
        "retry", topics=topics(client, "Retry"), group=f"retry-{client.name}", count=messages, **shape(client)
    )
    assert report["dead"] == messages, f"{report['dead']} of {messages} reached %DLQ%"
    return report["acknowledged"]


def long_topic(client: Client, messages: int) -> int:
    """A %RETRY% topic of more than 127 characters: records of version 2."""
    return client.run("raw", topic=f"%RETRY%{LONG_GROUP}", count=messages, **shape(client))["acknowledged"]


def sql92(client: Client, messages: int) -> int:
    """SQL92 consumers that subscribed before the messages come."""
    names, ready = topics(client, "Sql"), client.work / f"{client.name}-ready"
    with client.rocketmq.start_workload(
        "subscribe",
        client.name_server,
        topics=names,
        group=f"sql-{client.name}",
        expressions=EXPRESSIONS,
        readyFile=ready,
        seconds=600,
    ):
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not ready.exists():
            assert time.monotonic() < deadline, "the SQL92 consumers did not come up"
            time.sleep(0.1)
        looks = {**shape(client), "propertiesMax": 4}
        return client.run("send", topics=names, count=messages, batch=0, **looks)["acknowledged"]


def lmq(client: Client, messages: int) -> int:
    """Messages that are dispatched to light queues beside their own."""
    queues = ",".join(f"%LMQ%{client.name}-{i}" for i in range(5))
    # A record without properties makes 4.9.3's dispatch fail for ever where multi dispatch is on.
    looks = {**shape(client), "plain": 0, "lmq": queues}
    return client.run("send", topics=topics(client, "Multi"), count=messages, batch=0, **looks)["acknowledged"]


def batch_cq(client: Client, messages: int) -> int:
    """Inner batches, one record each, in BatchConsumeQueues."""
    names = topics(client, "Batch")
    report = client.run(
        "send", topics=names, count=messages, batch=1, queueType="BatchCQ", mode="sync", **shape(client)
    )
    return report["acknowledged"]


PLAIN = Kind("plain", plain)
TRANSACTIONS = Kind("transactions", transactions)
DELAY = Kind("delay", delay)
RETRY = Kind("retry", retry)
LONG_TOPIC = Kind("long topic", long_topic, groups=(LONG_GROUP,))
SQL92 = Kind(
    "SQL92",
    sql92,
    {"enablePropertyFilter": True, "enableCalcFilterBitMap": True, "enableConsumeQueueExt": True},
    rebuild=True,
)
LMQ = Kind("LMQ", lmq, {"enableLmq": True, "enableMultiDispatch": True})
BATCH_CQ = Kind("BatchCQ", batch_cq)
PROPERTY_CRC = Kind("property CRC", plain, {"enabledAppendPropCRC": True, "forceVerifyPropCRC": True})
DLEDGER = Kind("DLedger", plain, {"enableDLegerCommitLog": True, "dLegerGroup": "broker-a", "dLegerSelfId": "n0"})
