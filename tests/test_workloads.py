"""Random brokers, random messages: what `reput tail` makes of the log equals what the broker made of it, byte for byte.

One seed decides the settings of a broker and the messages that real clients send it. The short form is one broker of
5.5.0, or of the release that ROCKETMQ_VERSION names, with a random look of messages and two other kinds. The long form
(ten seeds each, about 3 hours), one line, a million messages::

    python -m pytest tests/test_workloads.py -m "slow or not slow"
    python -m pytest tests/test_workloads.py -m "slow or not slow" -k "plain and 4.9.3"
    REPUT_TEST_MESSAGES=1000000 python -m pytest tests/test_workloads.py -m slow -k "plain and 4.9.3 and seed1-"
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from broker import kinds
from broker.kinds import Kind
from broker.random_store import random_store
from broker.rocketmq import RocketMQ
from pyspark.sql import SparkSession
from support.store_compare import differing_bytes, store_files
from support.tail_runs import run_tail

pytestmark = [pytest.mark.broker, pytest.mark.spark]

MESSAGES = int(os.environ.get("REPUT_TEST_MESSAGES", "1200"))
SEEDS = range(1, 11)
SHORT_RELEASE = os.environ.get("ROCKETMQ_VERSION", "5.5.0")


@dataclass(frozen=True)
class Line:
    """Kinds that one broker of a version takes in turn."""

    name: str
    version: str
    kinds: tuple[Kind, ...]
    kill: bool = False


# Six random looks of messages to topics of their own, in one broker: its start costs more than they do.
MANY = (kinds.PLAIN,) * 6
LINES = [
    Line("short", SHORT_RELEASE, (kinds.PLAIN, kinds.TRANSACTIONS, kinds.DELAY)),
    Line("mixed", "4.9.3", (*MANY, kinds.TRANSACTIONS, kinds.DELAY, kinds.RETRY)),
    Line("mixed", "5.5.0", (*MANY, kinds.TRANSACTIONS, kinds.DELAY)),
    Line("plain", "4.9.3", (kinds.PLAIN, kinds.PLAIN)),
    Line("plain", "5.5.0", (kinds.PLAIN, kinds.PLAIN)),
    Line("killed", "4.9.3", (kinds.PLAIN,), kill=True),
    Line("killed", "5.5.0", (kinds.PLAIN,), kill=True),
    Line("lmq", "4.9.3", (kinds.LMQ,)),
    Line("batchcq", "5.5.0", (kinds.BATCH_CQ, kinds.PLAIN)),
    Line("propcrc", "5.5.0", (kinds.PROPERTY_CRC,)),
    Line("sql92", "4.9.3", (kinds.SQL92, kinds.PLAIN)),
    Line("dledger", "4.9.3", (kinds.DLEDGER,)),
    Line("longtopic", "5.5.0", (kinds.LONG_TOPIC, kinds.PLAIN)),
]
SHORT = [("short", SHORT_RELEASE)]


def cases() -> Iterator[object]:
    """Every line with every seed; the first seed of one line is the short form."""
    for line in LINES:
        for seed in SEEDS:
            marks = [] if seed == SEEDS[0] and (line.name, line.version) in SHORT else [pytest.mark.slow]
            yield pytest.param(line, seed, id=f"{line.name}-{line.version}-seed{seed}-", marks=marks)


@pytest.mark.parametrize(("line", "seed"), list(cases()))
def test_the_files_equal_the_brokers(
    line: Line, seed: int, release: Callable[[str], RocketMQ], spark: SparkSession, tmp_path: Path
) -> None:
    """Every queue, ConsumeQueueExt, BatchConsumeQueue and index file, and no other."""
    left = random_store(release(line.version), seed, line.kinds, MESSAGES, tmp_path, kill=line.kill)
    if left.acknowledged < MESSAGES // 2:
        pytest.fail(f"the broker took only {left.acknowledged} of {MESSAGES} messages")
    run_tail(spark, left.store, tmp_path / "output", conf=left.broker_conf)
    assert len(store_files(left.store)) > 3
    assert differing_bytes(left.store, tmp_path / "output") == {}
