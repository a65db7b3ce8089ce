"""The kinds and origins of messages, by the topics and properties that brokers give them."""

from __future__ import annotations

import pytest

from reput.source.record.message_origin import (
    KINDS,
    consumer_group,
    deliver_ms,
    group_of,
    kind,
    kind_of,
    origin_msg_id,
    origin_topic,
    producer_group,
    sent_topic,
    transaction_id,
)

TOPICS = {
    "orders": "normal",
    "%LMQ%orders": "normal",
    "RETRY%g": "normal",
    "SCHEDULE_TOPIC_XXXX": "delayed",
    "rmq_sys_wheel_timer": "timer",
    "RMQ_SYS_TRANS_HALF_TOPIC": "half",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": "half_op",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": "half",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": "half_op",
    "TRANS_CHECK_MAX_TIME_TOPIC": "half_discarded",
    "%RETRY%g": "retry",
    "%DLQ%g": "dlq",
    "RMQ_SYS_TRACE_TOPIC": "trace",
    "rmq_sys_TRACE_DATA_DefaultRegion": "trace",
    "DefaultCluster_REPLY_TOPIC": "reply",
    "rmq_sys_REVIVE_LOG_DefaultCluster": "system",
    "TBW102": "system",
    "OFFSET_MOVED_EVENT": "system",
    "BenchmarkTest": "system",
    "SELF_TEST_TOPIC": "system",
    "CHECKPOINT_TOPIC": "system",
}


def test_kinds() -> None:
    """Each kind and each system topic of TopicValidator (4.9.3, 5.5.0) is here; a property tells a mark."""
    assert {topic: kind_of(topic) for topic in TOPICS} == TOPICS
    assert {kind(topic, {"TAGS": "x"}) for topic in TOPICS} | {"recall"} == set(KINDS)
    mark = {"TIMER_DEL_UNIQKEY": "U", "REAL_TOPIC": "orders"}
    assert kind("rmq_sys_wheel_timer", mark) == "recall"
    assert kind("orders", mark) == "normal"
    assert origin_topic("rmq_sys_wheel_timer", mark) == "orders"
    assert deliver_ms("rmq_sys_wheel_timer", {**mark, "TIMER_OUT_MS": "1"}, 0, None, 0) is None


@pytest.mark.parametrize(
    ("topic", "group", "sent"),
    [
        ("%RETRY%g", "g", None),
        ("%DLQ%g", "g", None),
        ("%DLQ%g+T", "g+T", None),
        ("%RETRY%g+T", "g", "T"),
        ("%RETRY%g+T+", "g", "T"),
        ("%RETRY%g+", "g+", None),
        ("%RETRY%g+T+U", "g+T+U", None),
        ("%RETRY%g_T", "g_T", None),
        ("%RETRY%g+%RETRY%h", "g", None),
        ("%RETRY%", None, None),
        ("orders", None, "orders"),
        ("a+b", None, "a+b"),
        ("RMQ_SYS_TRACE_TOPIC", None, "RMQ_SYS_TRACE_TOPIC"),
        ("", None, None),
    ],
)
def test_groups_and_topics_of_retry_topics(topic: str, group: str | None, sent: str | None) -> None:
    """As `KeyBuilder#parseGroup` and `parseNormalTopic` split them; Java drops empty parts at the end."""
    assert (group_of(topic), sent_topic(topic)) == (group, sent)


def test_a_message_that_is_consumed_again() -> None:
    """While it waits, when it is delivered again, and when it is given up."""
    properties = {"RETRY_TOPIC": "orders", "REAL_TOPIC": "%RETRY%g", "ORIGIN_MESSAGE_ID": "M", "DELAY": "3"}
    for topic in ("SCHEDULE_TOPIC_XXXX", "%RETRY%g", "%DLQ%g"):
        assert (consumer_group(topic, properties), origin_topic(topic, properties)) == ("g", "orders")
    assert origin_msg_id(properties) == "M"
    assert deliver_ms("SCHEDULE_TOPIC_XXXX", properties, 1_700_000_010_000, 3, 5) == 1_700_000_010_000
    assert deliver_ms("%RETRY%g", properties, 65, 3, 5) is None


def test_properties_of_a_message_that_was_sent_again() -> None:
    """A producer that sends on what it consumed may leave its properties: its own topic counts."""
    properties = {"RETRY_TOPIC": "orders", "REAL_TOPIC": "%RETRY%g"}
    assert (consumer_group("bills", properties), origin_topic("bills", properties)) == (None, "bills")
    half = {"RETRY_TOPIC": "orders", "REAL_TOPIC": "bills"}
    assert origin_topic("RMQ_SYS_TRANS_HALF_TOPIC", half) == "bills"


def test_what_the_log_does_not_say() -> None:
    """A message that waits for no topic, one that was sent back from none, and an op message."""
    for topic in ("SCHEDULE_TOPIC_XXXX", "%RETRY%g", "%DLQ%g", "RMQ_SYS_TRANS_OP_HALF_TOPIC"):
        assert origin_topic(topic, {}) is None
    assert deliver_ms("SCHEDULE_TOPIC_XXXX", {}, 65, None, 5) is None
    assert deliver_ms("rmq_sys_wheel_timer", {"TIMER_OUT_MS": "soon"}, 65, None, 5) is None


def test_transactions() -> None:
    """The half message, the committed one by its sysFlag, and a half message that was given up, have one id."""
    properties = {"UNIQ_KEY": "U", "REAL_TOPIC": "orders"}
    assert transaction_id("RMQ_SYS_TRANS_HALF_TOPIC", properties, has_type=False) == "U"
    assert transaction_id("TRANS_CHECK_MAX_TIME_TOPIC", properties, has_type=False) == "U"
    assert transaction_id("orders", properties, has_type=True) == "U"
    assert transaction_id("orders", properties, has_type=False) is None
    assert transaction_id("orders", {**properties, "__transactionId__": "I"}, has_type=True) == "I"
    of_rocksdb = {"__transactionId__": "I", "UNIQ_KEY": "V", "TRANS_OFFSET": "0", "REAL_TOPIC": "orders"}
    assert transaction_id("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", properties, has_type=False) == "U"
    assert transaction_id("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", of_rocksdb, has_type=False) == "I"
    assert transaction_id("RMQ_SYS_TRANS_OP_HALF_TOPIC", {"UNIQ_KEY": "V"}, has_type=False) is None


@pytest.mark.parametrize(
    ("asked", "due"),
    [
        ({"TIMER_DELIVER_MS": "1700000013000"}, 13_000),  # a whole second: TIMER_OUT_MS is a second earlier
        ({"TIMER_DELIVER_MS": "1700000012345"}, 12_345),
        ({"TIMER_DELAY_SEC": "12", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "1700000012345"}, 12_400),
        ({"TIMER_DELAY_MS": "12100"}, 12_500),
        ({"TIMER_DELAY_MS": "2000"}, 12_000),
        ({"TIMER_DELAY_SEC": "10000"}, 13_000),  # the clock, or another roll: the latest moment
        ({"TIMER_DELAY_SEC": "x"}, 12_000),
        ({"TIMER_DELIVER_MS": "9000000000000"}, 13_000),
        ({}, 12_000),
    ],
)
def test_when_a_timer_message_is_due(asked: dict[str, str], due: int) -> None:
    """When its producer wanted it, by the property that the broker goes by; never before TIMER_OUT_MS."""
    properties = {"TIMER_OUT_MS": "1700000012000", "REAL_TOPIC": "T", **asked}
    assert deliver_ms("rmq_sys_wheel_timer", properties, 0, None, 1_700_000_000_400) == 1_700_000_000_000 + due


@pytest.mark.parametrize(
    ("topic", "properties", "group"),
    [
        ("orders", {"PGROUP": "orders", "__BORNHOST": "h"}, None),
        ("orders", {"PGROUP": "orders", "BORN_TIMESTAMP": "1"}, None),
        ("orders", {"PGROUP": "orders"}, "orders"),
        ("orders", {"PGROUP": "g", "__BORNHOST": "h"}, "g"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {"PGROUP": "orders", "REAL_TOPIC": "orders", "__BORNHOST": "h"}, None),
        ("%RETRY%g", {"PGROUP": "orders", "RETRY_TOPIC": "orders", "__BORNHOST": "h"}, None),
        ("orders", {"__BORNHOST": "h"}, None),
    ],
)
def test_a_proxy_knows_no_group(topic: str, properties: dict[str, str], group: str | None) -> None:
    """It stores the topic in its place; a producer may have named its group like a topic all the same."""
    assert producer_group(topic, properties) == group
