"""What a message is, by the topic it stands under, and where it comes from.

The broker puts some messages under a topic of its own and keeps the topic that they were sent to in a property:
messages that wait (``ScheduleMessageService``, 5.x ``TimerMessageStore``), half messages
(``TransactionalMessageBridge``), and those that consumers sent back (``AbstractSendMessageProcessor``).
"""

from __future__ import annotations

from typing import Final

from reput.source.record.java_string import parse_long
from reput.source.record.message_properties import PROPERTY_REAL_TOPIC, PROPERTY_UNIQ_KEY, SCHEDULE_TOPIC

PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY_BORN_HOST: Final = "__BORNHOST"

NORMAL: Final = "normal"
DELAYED: Final = "delayed"
TIMER: Final = "timer"
HALF: Final = "half"
HALF_OP: Final = "half_op"
HALF_DISCARDED: Final = "half_discarded"
RETRY: Final = "retry"
DLQ: Final = "dlq"
TRACE: Final = "trace"
REPLY: Final = "reply"
SYSTEM: Final = "system"
KINDS: Final = (NORMAL, DELAYED, TIMER, HALF, HALF_OP, HALF_DISCARDED, RETRY, DLQ, TRACE, REPLY, SYSTEM)

#: Kinds of messages whose topic is the broker's, and whose REAL_TOPIC is the one they are for.
HAVE_REAL_TOPIC: Final = frozenset({DELAYED, TIMER, HALF, HALF_DISCARDED})
#: Kinds of messages that a consumer group could not consume.
SENT_BACK: Final = frozenset({RETRY, DLQ})
#: Kinds of messages that are a transaction's beginning, or its end without a commit.
OF_TRANSACTION: Final = frozenset({HALF, HALF_DISCARDED})
# Kinds whose topic no producer sends to.
_OF_BROKER = HAVE_REAL_TOPIC | SENT_BACK | {HALF_OP}

_RETRY_PREFIX, _DLQ_PREFIX = "%RETRY%", "%DLQ%"
_SYSTEM_PREFIX, _TRACE_PREFIX, _REPLY_END = "rmq_sys_", "rmq_sys_TRACE_DATA_", "_REPLY_TOPIC"
# Between group and topic in the retry topic of messages that were popped (5.x ``KeyBuilder``, version 2).
_POP_SEPARATOR = "+"
_KINDS_OF_TOPICS = {
    SCHEDULE_TOPIC: DELAYED,
    "rmq_sys_wheel_timer": TIMER,
    "RMQ_SYS_TRANS_HALF_TOPIC": HALF,
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": HALF_OP,
    "TRANS_CHECK_MAX_TIME_TOPIC": HALF_DISCARDED,
    "RMQ_SYS_TRACE_TOPIC": TRACE,
    # The rest of TopicValidator's topics.
    **dict.fromkeys(("TBW102", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC"), SYSTEM),
}


def kind_of(topic: str) -> str:
    """What messages under a topic of the log are: one of `KINDS`."""
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

    In a topic of 5.x's first version for popped messages, ``%RETRY%group_topic``, the group has no end of its own, and
    the whole is returned.
    """
    if topic.startswith(_DLQ_PREFIX):
        return topic.removeprefix(_DLQ_PREFIX) or None
    if not topic.startswith(_RETRY_PREFIX):
        return None
    group = topic if (parts := _popped(topic)) is None else parts[0]
    return group.removeprefix(_RETRY_PREFIX) or None


def sent_topic(topic: str | None) -> str | None:
    """The topic if producers send to it, the one named in a retry topic of popped messages, None for any other."""
    if not topic:
        return None
    parts = _popped(topic)
    found = topic if parts is None else parts[1]
    return found if kind_of(found) not in _OF_BROKER else None


def _popped(topic: str) -> tuple[str, str] | None:
    """The two parts of a retry topic of popped messages (5.x ``KeyBuilder#isPopRetryTopicV2``)."""
    if not topic.startswith(_RETRY_PREFIX):
        return None
    parts = topic.rstrip(_POP_SEPARATOR).split(_POP_SEPARATOR)  # Java's split drops what is empty at the end
    return (parts[0], parts[1]) if len(parts) == 2 else None


def topic_meant(topic: str, properties: dict[str, str]) -> str | None:
    """The topic that a message is for: REAL_TOPIC where the broker put it under a topic of its own, else its topic."""
    return properties.get(PROPERTY_REAL_TOPIC) if kind_of(topic) in HAVE_REAL_TOPIC else topic


def consumer_group(topic: str, properties: dict[str, str]) -> str | None:
    """The group that could not consume a message, also while it waits to be consumed again; None for others."""
    return group_of(topic_meant(topic, properties) or "")


def origin_topic(topic: str, properties: dict[str, str]) -> str | None:
    """The topic that the producer sent a message to; None where the log does not say."""
    meant = topic_meant(topic, properties)
    if meant is None or kind_of(meant) not in SENT_BACK:
        return sent_topic(meant)
    names = (PROPERTY_RETRY_TOPIC, PROPERTY_DLQ_ORIGIN_TOPIC)
    return next(filter(None, map(sent_topic, (*map(properties.get, names), meant))), None)


def origin_msg_id(properties: dict[str, str]) -> str | None:
    """The message id that a message had before it was first sent back; None without."""
    return properties.get(PROPERTY_ORIGIN_MESSAGE_ID) or properties.get(PROPERTY_DLQ_ORIGIN_MESSAGE_ID)


def transaction_id(topic: str, properties: dict[str, str], *, has_type: bool) -> str | None:
    """The id that half message and committed message have in common; None for a message of no transaction.

    `has_type` is whether sysFlag names a transaction's type.
    """
    if not has_type and kind_of(topic) not in OF_TRANSACTION:
        return None
    return properties.get(PROPERTY_TRANSACTION_ID) or properties.get(PROPERTY_UNIQ_KEY)


def deliver_ms(topic: str, properties: dict[str, str], tags_code: int, delay_level: int | None) -> int | None:
    """When a message that waits is to be delivered, in milliseconds; None for others, or if the log does not say."""
    kind = kind_of(topic)
    if kind == TIMER:
        return parse_long(properties.get(PROPERTY_TIMER_OUT_MS, ""))
    return tags_code if kind == DELAYED and delay_level is not None and delay_level > 0 else None
