"""Message traces: records that clients with tracing write about messages they sent and consumed (``TraceDataEncoder``).

The body of a message of a trace topic has several traces. Each ends with U+0002, and U+0001 separates its fields. The
first field is the type, which decides what the others mean. Java writes a missing value as the text ``null``. Any
producer may write any bytes into a trace topic, so a trace that does not have the right form is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final, NamedTuple

from reput.source.record.message_properties import decode_utf8, parse_int, parse_long

PUB, SUB_BEFORE, SUB_AFTER, END_TRANSACTION, RECALL = "Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"

_TRACE_END, _FIELD_END, _NULL = "\x02", "\x01", "null"
# The place of the message id, and the number of fields of the oldest client whose traces are read.
_ID_PLACE: Final = {PUB: (5, 13), SUB_BEFORE: (5, 8), SUB_AFTER: (2, 6), END_TRANSACTION: (5, 13), RECALL: (5, 7)}
# ``ConsumeReturnType``, by its number.
_RESULTS: Final = ("success", "time out", "exception", "null returned", "failed")


class MessageTrace(NamedTuple):
    """One trace; fields that its type does not have, or that the client left empty, hold None.

    Attributes
    ----------
    kind
        ``Pub``, ``SubBefore``, ``SubAfter``, ``EndTransaction`` or ``Recall``.
    msg_id
        The unique key of the message, or its message id if it has none.
    time_ms
        By the client's clock: when it began to send, began or ended to consume, or ended the transaction.
    group
        The producer's or the consumer's group.
    cost_ms
        How long sending or consuming took; for a batch that was consumed, divided by its number of messages.
    retry_times
        How often the message had been consumed before.
    request_id
        The id that the traces before and after one consumption have in common.
    result
        How consumption ended: ``success``, ``time out``, ``exception``, ``null returned`` or ``failed``.
    transaction_state
        ``COMMIT_MESSAGE``, ``ROLLBACK_MESSAGE`` or ``UNKNOW``.
    """

    kind: str
    msg_id: str
    time_ms: int | None = None
    group: str | None = None
    topic: str | None = None
    success: bool | None = None
    cost_ms: int | None = None
    retry_times: int | None = None
    request_id: str | None = None
    result: str | None = None
    transaction_state: str | None = None


def message_traces(body: bytes, msg_ids: Container[str]) -> Iterator[MessageTrace]:
    """The traces of the messages `msg_ids` in a body, in its order, without traces of another form."""
    for text in decode_utf8(body).split(_TRACE_END):
        fields = text.split(_FIELD_END)
        place, count = _ID_PLACE.get(fields[0], (0, 0))
        if count and len(fields) >= count and fields[place] in msg_ids:
            trace = _trace(fields)
            if trace is not None:
                yield trace


def _trace(fields: list[str]) -> MessageTrace | None:
    """The trace with these fields, of which there are enough; None if a number or a truth value cannot be parsed."""
    found = [None if field in ("", _NULL) else field for field in fields]
    kind = fields[0]
    try:
        if kind == SUB_AFTER:
            return _consumed(found)
        time, group = _long(found[1]), found[3]
        if kind == SUB_BEFORE:
            retries = _integer(found[6])
            return MessageTrace(kind, fields[5], time, group, retry_times=retries, request_id=found[4])
        common = MessageTrace(kind, fields[5], time, group, found[4])
        if kind == PUB:
            # Old clients write no message id before it; new ones may write the client's host after it.
            success = _truth(found[12] if len(found) == _ID_PLACE[PUB][1] else found[13])
            return common._replace(success=success, cost_ms=_integer(found[10]))
        if kind == END_TRANSACTION:
            return common._replace(transaction_state=found[11])
        return common._replace(success=_truth(found[6]))
    except ValueError:
        return None


def _consumed(found: list[str | None]) -> MessageTrace:
    """The trace after consumption; clients of Alibaba Cloud leave out the time and the group at its end."""
    code = _integer(found[6]) if len(found) > 6 else None
    time, group = (_long(found[7]), found[8]) if len(found) > 8 else (None, None)
    return MessageTrace(
        SUB_AFTER,
        str(found[2]),
        time,
        group,
        success=_truth(found[4]),
        cost_ms=_integer(found[3]),
        request_id=found[1],
        result=_RESULTS[code] if code is not None and 0 <= code < len(_RESULTS) else None,
    )


def _long(text: str | None) -> int | None:
    return _parsed(text, parse_long)


def _integer(text: str | None) -> int | None:
    return _parsed(text, parse_int)


def _parsed(text: str | None, parse: Callable[[str], int | None]) -> int | None:
    value = None if text is None else parse(text)
    if value is None and text is not None:
        raise ValueError(text)
    return value


def _truth(text: str | None) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"
