"""The row of the table that a decoded message must make, by the rules for one message."""

from __future__ import annotations

import ipaddress
from typing import Any

from reput.source.record import message_origin as origin
from reput.source.record.message_decoder import Message
from reput.source.record.message_properties import parse_int, split_keys

TYPES = {0x0: "none", 0x4: "prepared", 0x8: "commit", 0xC: "rollback"}
YEAR_1, YEAR_10000 = -62_135_596_800_000, 253_402_300_800_000


def host_text(host: tuple[bytes, int]) -> str:
    address = ipaddress.ip_address(host[0])
    return f"[{address}]:{host[1]}" if address.version == 6 else f"{address}:{host[1]}"


def micros(milliseconds: int) -> int | None:
    return 1000 * milliseconds if YEAR_1 <= milliseconds < YEAR_10000 else None


def row_of(message: Message) -> dict[str, Any]:
    """The row that a message must make; times as microseconds."""
    properties = message.properties
    packed, port = message.store_host
    port_and_offset = port.to_bytes(4, "big", signed=True) + message.physical_offset.to_bytes(8, "big", signed=True)
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "msg_size": message.msg_size,
        "store_time": micros(message.store_timestamp),
        "born_time": micros(message.born_timestamp),
        "born_host": host_text(message.born_host),
        "store_host": host_text(message.store_host),
        "tags": message.tags,
        "tags_code": message.tags_code,
        "keys": split_keys(message.keys or ""),
        "uniq_key": message.uniq_key,
        "msg_id": (packed + port_and_offset).hex().upper(),
        "body_size": len(message.body),
        "body_crc": message.body_crc,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "transaction_type": TYPES[message.sys_flag & 0xC],
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "delay_level": parse_int(properties.get("DELAY", "")),
        "real_topic": properties.get("REAL_TOPIC"),
        "real_queue_id": parse_int(properties.get("REAL_QID", "")),
        "properties": sorted(properties.items()),
        **origins_of(message),
    }


def origins_of(message: Message) -> dict[str, Any]:
    """The columns that follow from others, by the rules for one message."""
    topic, properties = message.topic, message.properties
    level = parse_int(properties.get("DELAY", ""))
    deliver_ms = origin.deliver_ms(topic, properties, message.tags_code, level, message.store_timestamp)
    return {
        "kind": origin.kind(topic, properties),
        "consumer_group": origin.consumer_group(topic, properties),
        "origin_topic": origin.origin_topic(topic, properties),
        "origin_msg_id": origin.origin_msg_id(properties),
        "deliver_time": None if deliver_ms is None else micros(deliver_ms),
        "producer_group": origin.producer_group(topic, properties),
        "client_host": properties.get("__BORNHOST"),
        "transaction_id": origin.transaction_id(topic, properties, has_type=message.sys_flag & 0xC != 0),
        "first_key": (split_keys(message.keys or "") or [None])[0],
    }
