"""The questions of docs/table.md, asked of a table made from a real broker's log, and answered from its messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from support.paths import ROOT
from support.tail_runs import run_tail

from reput.source.log.log_reader import LogReader
from reput.source.log.range_reader import read_windows
from reput.source.options import SourceOptions
from reput.source.record.message_decoder import Message
from reput.streaming.sql.spark_query import query

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]

STATEMENTS = re.findall(r"^```sql\n(.*?)^```$", (ROOT / "docs/table.md").read_text(), re.DOTALL | re.MULTILINE)
HALF, OP, DISCARDED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
DELAYED = "SCHEDULE_TOPIC_XXXX"
GROUP = "retry_cg"


@pytest.fixture(scope="module")
def store(broker_store: Callable[[str], BrokerStore]) -> BrokerStore:
    return broker_store("v4-tx-delay-retry")


@pytest.fixture(scope="module")
def table(spark: SparkSession, store: BrokerStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("questions")
    options = ("consumeQueueEnable=false", "messageIndexEnable=false", "tableIncludeBody=true")
    run_tail(spark, store.root, root / "out", *options, table=root / "table", conf=store.broker_conf)
    return root / "table"


@pytest.fixture(scope="module")
def messages(store: BrokerStore) -> list[Message]:
    """All messages of the log."""
    log = LogReader(SourceOptions.parse({"path": str(store.root / "commitlog"), "tailGuardMs": "0"}))
    found: list[Message] = []
    for span in log.split(0, store.facts["maxOffset"]):
        for window in read_windows(span.file, span.start, span.end, log.decode_options):
            found += window.columns.messages()
    assert len(found) == store.facts["totalMessages"]
    return found


def ask(spark: SparkSession, table: Path, words: str, *replaced: tuple[str, str]) -> Sequence[Any]:
    """Return the rows of the page's only statement with `words`."""
    (statement,) = (statement for statement in STATEMENTS if words in statement)
    for old, new in replaced:
        assert old in statement
        statement = statement.replace(old, new)
    return query(spark, table, statement).collect()


@pytest.mark.parametrize("words", ["kind = 'trace'", pytest.param("SELECT", marks=pytest.mark.slow)])
def test_every_statement_can_be_run(words: str, spark: SparkSession, table: Path) -> None:
    """Unchanged from the page; in short, all are planned, and only the one is run that no other test asks."""
    assert len(STATEMENTS) == 8
    plans = [query(spark, table, statement) for statement in STATEMENTS]
    asked = [plan for plan, statement in zip(plans, STATEMENTS, strict=True) if words in statement]
    assert asked
    for plan in asked:
        plan.collect()


def test_groups(spark: SparkSession, table: Path, messages: list[Message]) -> None:
    """Messages that wait to be consumed again also count for the group, under the topic they were sent to."""
    found = {row.kind: row.messages for row in ask(spark, table, "GROUP BY consumer_group, origin_topic, kind")}
    expected = Counter(
        {"%RETRY%retry_cg": "retry", "%DLQ%retry_cg": "dlq", DELAYED: "delayed"}[message.topic]
        for message in messages
        if message.topic.endswith(GROUP) or message.properties.get("REAL_TOPIC") == f"%RETRY%{GROUP}"
    )
    assert found == expected
    assert min(expected.values()) > 0
    rows = ask(spark, table, "GROUP BY consumer_group, origin_topic, kind")
    assert {(row.consumer_group, row.origin_topic) for row in rows} == {(GROUP, "RetryTopic")}


def test_one_message(spark: SparkSession, table: Path, messages: list[Message]) -> None:
    """From the producer to the dead letters."""
    found = [row.kind for row in ask(spark, table, "first_key = 'order-7'", ("order-7", "retry-0"))]
    assert found[0] == "normal"
    assert found[-1] == "dlq"
    assert {"delayed", "retry"} <= set(found)
    assert len(found) == sum(message.properties.get("KEYS") == "retry-0" for message in messages)


def test_dead_letters(spark: SparkSession, table: Path, messages: list[Message]) -> None:
    """Each finds the message that it was."""
    rows = ask(spark, table, "dead.kind = 'dlq'")
    assert len(rows) == sum(message.topic == f"%DLQ%{GROUP}" for message in messages) > 0
    assert all(row.sent is not None and row.sent < row.store_time for row in rows)


def test_what_waits(spark: SparkSession, table: Path, messages: list[Message]) -> None:
    """At a moment when some of it was delivered."""
    waiting = sorted(message.tags_code for message in messages if message.topic == DELAYED)
    moment = waiting[len(waiting) // 2]
    time = datetime.fromtimestamp(moment / 1000, timezone.utc).isoformat()
    rows = ask(spark, table, "deliver_time > ", ("now()", f"timestamp'{time}'"))
    assert sum(row.messages for row in rows) == sum(code > moment for code in waiting) > 0
    assert {row.origin_topic for row in rows} <= {"RetryTopic", "DelayTopic"}
    assert {row.kind for row in rows} == {"delayed"}


def test_transactions(spark: SparkSession, table: Path, messages: list[Message]) -> None:
    """Each once, with its end."""

    def ids(topic: str) -> set[str | None]:
        return {message.uniq_key for message in messages if message.topic == topic}

    begun, committed, discarded = ids(HALF), ids("TxTopic"), ids(DISCARDED)
    rows = ask(spark, table, "rolled back, or open")
    found = {end: {row.transaction_id for row in rows if row.end == end} for end in {row.end for row in rows}}
    assert found == {
        "committed": committed,
        "discarded": discarded - committed,
        "rolled back, or open": begun - committed - discarded,
    }
    assert len(rows) == len(begun)
    assert {(row.producer_group, row.origin_topic) for row in rows} == {("tx_pg", "TxTopic")}
    ended = {
        int(offset) for message in messages if message.topic == OP for offset in message.body.split(b",") if offset
    }
    halves = {message.uniq_key for message in messages if message.topic == HALF and message.queue_offset in ended}
    rolled_back = [row.transaction_id for row in ask(spark, table, "WITH ended")]
    assert len(rolled_back) == len(set(rolled_back))
    assert set(rolled_back) == halves - committed
    assert rolled_back


def test_producers(spark: SparkSession, table: Path) -> None:
    """Messages of transactions have their group."""
    groups = {row.origin_topic: row.producer_group for row in ask(spark, table, "GROUP BY producer_group, client")}
    assert groups == {"RetryTopic": None, "DelayTopic": None, "TxTopic": "tx_pg"}
