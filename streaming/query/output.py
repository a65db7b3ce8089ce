"""The answer of a look-up as lines: a table for people, or JSON with one line per message.

JSON has the columns of the message table under their names, and each time also in milliseconds. Times are UTC.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from reput.source.errors import CorruptRecordError, OptionError
from reput.source.log.message_lookup import MessageId, host_text
from reput.source.printable import printable, printable_json
from reput.source.record import message_origin as origin
from reput.source.record.java_string import parse_int
from reput.source.record.message_body import BODY_BYTES_MAX, decompress_body
from reput.source.record.message_decoder import Message
from reput.source.record.message_properties import (
    PROPERTY_DELAY,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    split_keys,
)
from reput.source.record.message_sys_flag import TRANSACTION_TYPE_NAMES, transaction_type
from reput.streaming.query.store_lookup import Found

FORMATS = ("table", "json")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_COLUMNS = (
    "store_time",
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "msg_size",
    "tags",
    "keys",
    "uniq_key",
)


def parse_time(text: str) -> int:
    """Milliseconds since 1970, given as a whole number or as an ISO 8601 time, which is UTC without an offset.

    Raises
    ------
    OptionError
        The text is neither.
    """
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise OptionError(
            f"time {text!r}: milliseconds since 1970 wanted, or a time like 2026-01-31T12:00:00Z"
        ) from None
    return ((time if time.tzinfo else time.replace(tzinfo=timezone.utc)) - _EPOCH) // timedelta(milliseconds=1)


def time_text(milliseconds: int) -> str | None:
    """The time as ISO 8601 in UTC, None outside the years 1 to 9999."""
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def plain_body(message: Message) -> bytes | None:
    """The body as the producer gave it; None if it cannot be decompressed, or is too large decompressed."""
    try:
        return decompress_body(message.body, message.sys_flag, size_max=BODY_BYTES_MAX)
    except CorruptRecordError:
        return None


def message_row(found: Found, *, with_body: bool) -> dict[str, Any]:
    """One message as a JSON object.

    A body is `body` if it is UTF-8 and `body_base64` if not; one that cannot be decompressed is
    `body_compressed_base64`, as stored. A message found by unique key has `chosen`, one found in a queue has `entry`.
    """
    message = found.message
    row: dict[str, Any] = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "msg_size": message.msg_size,
        "store_time": time_text(message.store_timestamp),
        "store_timestamp": message.store_timestamp,
        "born_time": time_text(message.born_timestamp),
        "born_timestamp": message.born_timestamp,
        "born_host": host_text(message.born_host),
        "store_host": host_text(message.store_host),
        "tags": message.tags,
        "tags_code": message.tags_code,
        "keys": split_keys(message.keys) if message.keys is not None else [],
        "uniq_key": message.uniq_key,
        "msg_id": str(MessageId.of(message)),
        "body_size": len(message.body),
        "body_crc": message.body_crc,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "transaction_type": TRANSACTION_TYPE_NAMES[transaction_type(message.sys_flag)],
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "delay_level": _integer(message, PROPERTY_DELAY),
        "real_topic": message.properties.get(PROPERTY_REAL_TOPIC),
        "real_queue_id": _integer(message, PROPERTY_REAL_QUEUE_ID),
        "properties": message.properties,
        **_origins(message),
    }
    if found.chosen is not None:
        row["chosen"] = found.chosen
    if found.entry is not None:
        entry = found.entry
        code = ("tags_code", entry.tags_code) if entry.ext_address is None else ("ext_address", entry.ext_address)
        row["entry"] = {"queue_offset": entry.queue_offset, "msg_size": entry.msg_size, code[0]: code[1]}
    if with_body:
        name, text = _body(message)
        row[name] = text
    return row


def _origins(message: Message) -> dict[str, Any]:
    """The columns that follow from others."""
    topic, properties = message.topic, message.properties
    has_type = transaction_type(message.sys_flag) != 0
    deliver_ms = origin.deliver_ms(topic, properties, message.tags_code, _integer(message, PROPERTY_DELAY))
    return {
        "kind": origin.kind_of(topic),
        "consumer_group": origin.consumer_group(topic, properties),
        "origin_topic": origin.origin_topic(topic, properties),
        "origin_msg_id": origin.origin_msg_id(properties),
        "deliver_time": None if deliver_ms is None else time_text(deliver_ms),
        "deliver_timestamp": deliver_ms,
        "producer_group": properties.get(origin.PROPERTY_PRODUCER_GROUP),
        "client_host": properties.get(origin.PROPERTY_BORN_HOST),
        "transaction_id": origin.transaction_id(topic, properties, has_type=has_type),
        "first_key": next(iter(split_keys(message.keys or "")), None),
    }


def _integer(message: Message, name: str) -> int | None:
    return parse_int(message.properties.get(name, ""))


def _body(message: Message) -> tuple[str, str]:
    body = plain_body(message)
    if body is None:
        return "body_compressed_base64", base64.b64encode(message.body).decode()
    try:
        return "body", body.decode()
    except UnicodeDecodeError:
        return "body_base64", base64.b64encode(body).decode()


def lines(found: Iterable[Found], output_format: str, *, with_body: bool) -> Iterator[str]:
    """The messages in one of `FORMATS`, without line ends."""
    rows = [message_row(one, with_body=with_body) for one in found]
    if output_format == "json":
        return (printable_json(row) for row in rows)
    return _table(rows)


def _table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Aligned columns without frames, never cut or wrapped, so that ids can be copied."""
    more = [name for name in ("msg_id", "chosen", "entry") if any(name in row for row in rows)]
    bodies = [name for name in ("body", "body_base64", "body_compressed_base64") if any(name in row for row in rows)]
    names = [*_COLUMNS, *more, *bodies]
    cells = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells if rows else []:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _cell(value: object) -> str:
    """A value as text, harmless for a terminal."""
    if value is None:
        return ""
    if isinstance(value, list):
        value = " ".join(value)
    if isinstance(value, dict):
        value = " ".join(f"{name}={part}" for name, part in value.items())
    return printable(str(value))
