"""A message as the row that it has in the message table: one of the log, and one of the table itself.

A row has the table's columns under their names, and each time also in milliseconds. Times are UTC.
"""

from __future__ import annotations

import base64
from typing import Any

from reput.source.errors import CorruptRecordError
from reput.source.record import message_origin as origin
from reput.source.record.message_body import BODY_BYTES_MAX, decompress_body
from reput.source.record.message_decoder import Message, MessageId, host_text
from reput.source.record.message_format import TRANSACTION_TYPE_NAMES, transaction_type
from reput.source.record.message_properties import (
    PROPERTY_DELAY,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    parse_int,
    split_keys,
)
from reput.streaming.query.lines import time_text
from reput.streaming.query.store_lookup import Found


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
    delay_level = _integer(message, PROPERTY_DELAY)
    deliver_ms = origin.deliver_ms(topic, properties, message.tags_code, delay_level, message.store_timestamp)
    return {
        "kind": origin.kind(topic, properties),
        "consumer_group": origin.consumer_group(topic, properties),
        "origin_topic": origin.origin_topic(topic, properties),
        "origin_msg_id": origin.origin_msg_id(properties),
        "deliver_time": None if deliver_ms is None else time_text(deliver_ms),
        "deliver_timestamp": deliver_ms,
        "producer_group": origin.producer_group(topic, properties),
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
