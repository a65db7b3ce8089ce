"""The kind of a message, by its topic in the log, and its origin: topic, groups, ids, time of delivery.

The broker puts some messages under a topic of its own and keeps the topic that they were sent to in a property:
messages that wait (``ScheduleMessageService``, 5.x ``TimerMessageStore``), half messages
(``TransactionalMessageBridge``), and those that consumers sent back (``AbstractSendMessageProcessor``).
"""

from __future__ import annotations

from typing import Final

from reput.source.record.message_properties import PROPERTY_REAL_TOPIC, PROPERTY_UNIQ_KEY, SCHEDULE_TOPIC, parse_long

PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
PROPERTY_BORN_HOST: Final = "__BORNHOST"
PROPERTY_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"

NORMAL: Final = "normal"
DELAYED: Final = "delayed"
TIMER: Final = "timer"
RECALL: Final = "recall"
HALF: Final = "half"
HALF_OP: Final = "half_op"
HALF_DISCARDED: Final = "half_discarded"
RETRY: Final = "retry"
DLQ: Final = "dlq"
TRACE: Final = "trace"
REPLY: Final = "reply"
SYSTEM: Final = "system"
KINDS: Final = (NORMAL, DELAYED, TIMER, RECALL, HALF, HALF_OP, HALF_DISCARDED, RETRY, DLQ, TRACE, REPLY, SYSTEM)

#: Kinds of messages whose topic is the broker's, and whose REAL_TOPIC is the one they are for.
HAVE_REAL_TOPIC: Final = frozenset({DELAYED, TIMER, RECALL, HALF, HALF_DISCARDED})
#: Kinds of messages that a consumer group could not consume.
SENT_BACK: Final = frozenset({RETRY, DLQ})
#: Kinds of messages that begin a transaction, or end it without a commit.
OF_TRANSACTION: Final = frozenset({HALF, HALF_DISCARDED})
# Kinds whose topic no producer sends to.
_OF_BROKER = HAVE_REAL_TOPIC | SENT_BACK | {HALF_OP}

_RETRY_PREFIX, _DLQ_PREFIX = "%RETRY%", "%DLQ%"
_SYSTEM_PREFIX, _TRACE_PREFIX, _REPLY_END = "rmq_sys_", "rmq_sys_TRACE_DATA_", "_REPLY_TOPIC"
# Between group and topic in the retry topic of messages that were popped (5.x ``KeyBuilder``, version 2).
_POP_SEPARATOR = "+"
#: A proxy of 5.x (gRPC) leaves at least one of these properties in each message, a remoting client none.
BY_PROXY: Final = (PROPERTY_BORN_HOST, PROPERTY_BORN_TIMESTAMP)
# TIMER_OUT_MS is at most this much before the time that was asked for (``timerPrecisionMs``, which is at most 1,000).
TIMER_PRECISION_MS: Final = 1000
_LONG_MAX = 2**63 - 1
#: Properties that delay a message from when the broker gets it, and their units; the first one present counts.
TIMER_DELAYS: Final = ((PROPERTY_TIMER_DELAY_SEC, 1000), (PROPERTY_TIMER_DELAY_MS, 1))
#: Sums of numbers below these fit into a long; a broker accepts no larger delay.
DELAY_MAX: Final = 2**40
STORE_TIMESTAMP_MAX: Final = 2**60
#: Topics of op messages, which record that half messages were ended: by their queue offsets, or by a physical offset.
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_OP_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
_KINDS_OF_TOPICS = {
    SCHEDULE_TOPIC: DELAYED,
    "rmq_sys_wheel_timer": TIMER,
    "RMQ_SYS_TRANS_HALF_TOPIC": HALF,
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": HALF,
    OP_TOPIC: HALF_OP,
    ROCKSDB_OP_TOPIC: HALF_OP,
    "TRANS_CHECK_MAX_TIME_TOPIC": HALF_DISCARDED,
    "RMQ_SYS_TRACE_TOPIC": TRACE,
    # The rest of TopicValidator's topics.
    **dict.fromkeys(("TBW102", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC"), SYSTEM),
}


def kind(topic: str, properties: dict[str, str]) -> str:
    """The kind of a message, one of `KINDS`. A mark that recalls a timer message has the topic of timer messages."""
    found = kind_of(topic)
    return RECALL if found == TIMER and PROPERTY_TIMER_DEL_UNIQKEY in properties else found


def kind_of(topic: str) -> str:
    """The kind of the messages of a topic in the log, one of `KINDS` except `RECALL`, which only `kind` recognizes."""
    if topic in _KINDS_OF_TOPICS:
        return _KINDS_OF_TOPICS[topic]
    if topic.startswith(_RETRY_PREFIX):
        return RETRY
    if topic.startswith(_DLQ_PREFIX):
        return DLQ
    if topic.startswith(_TRACE_PREFIX):
        return TRACE
    if topic.startswith(_SYSTEM_PREFIX):
        return SYSTEM
    return REPLY if topic.endswith(_REPLY_END) else NORMAL


def group_of(topic: str) -> str | None:
    """The consumer group of a topic of `SENT_BACK`, as ``KeyBuilder#parseGroup`` reads it; None for other topics.

    In a topic of 5.x's first version for popped messages, ``%RETRY%group_topic``, nothing marks the group's end, and
    the rest of the name is returned.
    """
    if topic.startswith(_DLQ_PREFIX):
        return topic.removeprefix(_DLQ_PREFIX) or None
    if not topic.startswith(_RETRY_PREFIX):
        return None
    group = topic if (parts := _popped(topic)) is None else parts[0]
    return group.removeprefix(_RETRY_PREFIX) or None


def sent_topic(topic: str | None) -> str | None:
    """The topic if producers send to it, or the one named in a retry topic of popped messages; None for any other."""
    if not topic:
        return None
    parts = _popped(topic)
    found = topic if parts is None else parts[1]
    return found if kind_of(found) not in _OF_BROKER else None


def _popped(topic: str) -> tuple[str, str] | None:
    """The two parts of a retry topic of popped messages (5.x ``KeyBuilder#isPopRetryTopicV2``)."""
    if not topic.startswith(_RETRY_PREFIX):
        return None
    parts = topic.rstrip(_POP_SEPARATOR).split(_POP_SEPARATOR)  # Java's split drops empty parts at the end
    return (parts[0], parts[1]) if len(parts) == 2 else None


def topic_meant(topic: str, properties: dict[str, str]) -> str | None:
    """The topic that a message is for: REAL_TOPIC if the broker put it under a topic of its own, else its topic."""
    return properties.get(PROPERTY_REAL_TOPIC) if kind_of(topic) in HAVE_REAL_TOPIC else topic


def consumer_group(topic: str, properties: dict[str, str]) -> str | None:
    """The group that could not consume a message, also while it waits to be consumed again; None for others."""
    return group_of(topic_meant(topic, properties) or "")


def origin_topic(topic: str, properties: dict[str, str]) -> str | None:
    """The topic that the producer sent a message to; None if the log does not say."""
    meant = topic_meant(topic, properties)
    if meant is None or kind_of(meant) not in SENT_BACK:
        return sent_topic(meant)
    names = (PROPERTY_RETRY_TOPIC, PROPERTY_DLQ_ORIGIN_TOPIC)
    return next(filter(None, map(sent_topic, (*map(properties.get, names), meant))), None)


def origin_msg_id(properties: dict[str, str]) -> str | None:
    """The message id that a message had before it was first sent back; None for other messages."""
    return properties.get(PROPERTY_ORIGIN_MESSAGE_ID) or properties.get(PROPERTY_DLQ_ORIGIN_MESSAGE_ID)


def producer_group(topic: str, properties: dict[str, str]) -> str | None:
    """The producer's group; None if the log does not say.

    A proxy of 5.x knows no group of its clients, and stores the topic in its place.
    """
    group = properties.get(PROPERTY_PRODUCER_GROUP)
    if any(name in properties for name in BY_PROXY) and group == origin_topic(topic, properties):
        return None
    return group


def transaction_id(topic: str, properties: dict[str, str], *, has_type: bool) -> str | None:
    """The id that half message and committed message have in common; None for a message without a transaction.

    `has_type` is whether sysFlag names a transaction's type. An op message that names one transaction, as those of
    `ROCKSDB_OP_TOPIC` do, also has its id.
    """
    found, named = kind_of(topic), properties.get(PROPERTY_TRANSACTION_ID)
    if found == HALF_OP:
        return named
    return named or properties.get(PROPERTY_UNIQ_KEY) if has_type or found in OF_TRANSACTION else None


def deliver_ms(
    topic: str, properties: dict[str, str], tags_code: int, delay_level: int | None, store_timestamp: int
) -> int | None:
    """When a message that waits is to be delivered, in milliseconds; None for others, or if the log does not say.

    For a timer message this is when its producer wanted it. The broker works by TIMER_OUT_MS, which is up to
    `TIMER_PRECISION_MS` earlier, and delivers it after that. A delay counts from when the broker got the message, which
    is just before it stored it. If the message has been stored again since, this is the latest possible moment.
    """
    found = kind(topic, properties)
    if found == TIMER:
        out = parse_long(properties.get(PROPERTY_TIMER_OUT_MS, ""))
        return None if out is None else min(max(_asked_ms(properties, store_timestamp, out), out), latest_ms(out))
    return tags_code if found == DELAYED and delay_level is not None and delay_level > 0 else None


def latest_ms(out: int) -> int:
    """The latest time that a producer can have asked for if TIMER_OUT_MS is `out`."""
    return min(out + TIMER_PRECISION_MS, _LONG_MAX)


def _asked_ms(properties: dict[str, str], store_timestamp: int, out: int) -> int:
    """When the producer wanted a timer message; `out` if no property says so with a value that a broker accepts."""
    for name, unit_ms in TIMER_DELAYS:
        if name in properties:
            delay = parse_long(properties[name])
            is_taken = delay is not None and abs(delay) < DELAY_MAX and abs(store_timestamp) < STORE_TIMESTAMP_MAX
            return store_timestamp + delay * unit_ms if delay is not None and is_taken else out
    asked = parse_long(properties.get(PROPERTY_TIMER_DELIVER_MS, ""))
    return out if asked is None else asked
