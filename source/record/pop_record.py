"""Checkpoints and acknowledgements that a 5.x broker writes for POP consumers (``PopCheckPoint``, ``AckMsg``).

They are messages of the topic ``rmq_sys_REVIVE_LOG_CLUSTER``, whose tag says which of the two the body is. The broker
stores them immediately as timer messages, and delivers them to that topic when the message would be shown again. Their
unique key is ``TOPIC@QUEUE@OFFSET@GROUP@POP_TIME@BROKER@TAG``; a list of acknowledged messages has the offset -1.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
CHECKPOINT, ACK, BATCH_ACK = "ck", "ack", "bAck"

# The first releases of 5.x wrote the names of an acknowledgement in full.
_LONG_NAMES: Final = {
    "ao": "ackOffset",
    "aol": "ackOffsetList",
    "so": "startOffset",
    "c": "consumerGroup",
    "t": "topic",
    "q": "queueId",
    "pt": "popTime",
}
_LONG_MAX: Final = 2**63 - 1
# A broker hands out at most 32 messages at once; their number is stored in one byte.
_MESSAGES_MAX: Final = 127
_BODY_BYTES_MAX: Final = 64 * 1024


class PopRecord(NamedTuple):
    """A checkpoint or an acknowledgement.

    Attributes
    ----------
    is_ack
        Whether it acknowledges the messages; a checkpoint says that they were handed out.
    topic, queue_id, offsets
        The messages.
    pop_time_ms
        When they were handed out, by the broker's clock; an acknowledgement has the time of its checkpoint.
    invisible_ms
        How long no other consumer gets them; None for an acknowledgement.
    acked
        Those of `offsets` that were acknowledged before the checkpoint was written, with enablePopBufferMerge.
    """

    is_ack: bool
    topic: str
    queue_id: int
    offsets: tuple[int, ...]
    group: str
    pop_time_ms: int
    invisible_ms: int | None = None
    acked: tuple[int, ...] = ()


def pop_record(tag: str | None, body: bytes) -> PopRecord | None:
    """The record in a body with this tag; None if it does not have the right form."""
    if len(body) > _BODY_BYTES_MAX or tag not in (CHECKPOINT, ACK, BATCH_ACK):
        return None
    try:
        found = json.loads(body)
        return _checkpoint(found) if tag == CHECKPOINT else _ack(found, is_list=tag == BATCH_ACK)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _checkpoint(found: dict[str, Any]) -> PopRecord:
    start, count = _number(found["so"]), _number(found["n"], _MESSAGES_MAX)
    differences = _numbers(found.get("d") or range(count))[:count]
    offsets = tuple(start + each for each in differences)
    bits = int(found["bm"]) if isinstance(found.get("bm"), int) else 0
    return PopRecord(
        is_ack=False,
        topic=_text(found["t"]),
        queue_id=_number(found["q"]),
        offsets=offsets,
        group=_text(found["c"]),
        pop_time_ms=_number(found["pt"]),
        invisible_ms=_number(found["it"]),
        acked=tuple(offset for place, offset in enumerate(offsets) if place < 32 and bits >> place & 1),
    )


def _ack(found: dict[str, Any], *, is_list: bool) -> PopRecord:
    def value(name: str) -> Any:
        return found[name if name in found else _LONG_NAMES[name]]

    return PopRecord(
        is_ack=True,
        topic=_text(value("t")),
        queue_id=_number(value("q")),
        offsets=tuple(_numbers(value("aol"))) if is_list else (_number(value("ao")),),
        group=_text(value("c")),
        pop_time_ms=_number(value("pt")),
    )


def _number(value: object, largest: int = _LONG_MAX) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise ValueError("not a number that a broker writes")
    return value


def _numbers(values: Any) -> list[int]:
    return [_number(each) for each in values]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
