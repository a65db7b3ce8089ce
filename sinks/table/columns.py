"""The columns of the tables: the meaning and unit of each, as comments that every catalog and DESCRIBE show.

The columns of the message table, except bodies, are in ``source/rows/message_schema.py``; ``message_rows`` fills them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

# ----------------------------------------------------------------------------------------------------------------------
# The message table. A table with bodies has two columns for them: texts, and bytes that are not text.

BODY_SCHEMA = pa.schema([pa.field("body", pa.string()), pa.field("body_bytes", pa.binary())])

COLUMN_COMMENTS = {
    "broker": "name of the broker whose commitlog has the message",
    "topic": "topic in the log; of a half or delayed message it is a topic of the system, see real_topic",
    "queue_id": "number of the queue, from 0",
    "queue_offset": "position in the queue, counted in messages from 0",
    "physical_offset": "first byte of the record in the commitlog, counted from the log's first byte ever",
    "msg_size": "size of the whole record in bytes",
    "store_time": "when the broker stored it, in milliseconds; null outside the years 1 to 9999",
    "born_time": "when the producer made it, by the producer's clock, in milliseconds",
    "born_host": "address:port of the producer",
    "store_host": "address:port of the broker that stored it",
    "tags": "TAGS of the message; null without",
    "tags_code": "hash of the tags as in ConsumeQueue; of a delayed message the time of delivery in milliseconds",
    "keys": "KEYS of the message, split at blanks, as IndexFile has them",
    "uniq_key": "unique key that the client gave the message (UNIQ_KEY); null without",
    "msg_id": "offset message id: the broker's address, port and physical offset in hexadecimal digits",
    "body_size": "size of the body in bytes as it is stored, maybe compressed",
    "body_crc": "CRC-32 of the stored body, without its highest bit",
    "flag": "flag that the producer set; RocketMQ itself ignores it",
    "sys_flag": "bits of RocketMQ: compressed, tags, transaction, IPv6, batch",
    "transaction_type": "none, prepared, commit or rollback, by sys_flag; a half message has none, see kind",
    "reconsume_times": "how often consumers sent it back",
    "prepared_transaction_offset": "physical offset of the half message that this one ends; 0 without",
    "delay_level": "level of delay, from 1; null without",
    "real_topic": "topic that a half or delayed message is for (REAL_TOPIC); null without",
    "real_queue_id": "queue that a half or delayed message is for (REAL_QID); null without",
    "properties": "all properties of the message, those of the columns above among them",
    "kind": "what it is, by its topic: normal, delayed, timer, recall, half, half_op, half_discarded, retry, dlq, "
    "trace, reply or system",
    "consumer_group": "group that could not consume it: of a retry or dlq topic, also while it waits; null for others",
    "origin_topic": "topic that the producer sent it to, also of delayed, half, retry and dlq ones; null if unknown",
    "origin_msg_id": "message id from before it was first sent back (ORIGIN_MESSAGE_ID), a msg_id or a uniq_key; null "
    "without",
    "deliver_time": "when it is to be delivered, as was asked for, in milliseconds, of a delayed or timer message; "
    "null for others",
    "producer_group": "producer group (PGROUP), which RocketMQ stores with messages of transactions; null without, and "
    "through a proxy of 5.x, which stores the topic there",
    "client_host": "address:port of the producer behind a proxy of 5.x (__BORNHOST); null without, see born_host",
    "transaction_id": "id that the half message and the committed one have in common (__transactionId__ or UNIQ_KEY); "
    "null without a transaction",
    "first_key": "the first of keys; null without",
    "body": "the decompressed body, if it is UTF-8 text; null with tableIncludeBody=false or above tableBodyBytesMax",
    "body_bytes": "the decompressed body, if it is not UTF-8 text; null as body is",
}

# ----------------------------------------------------------------------------------------------------------------------
# TABLE-quarantine: the ranges that were left out of the log.

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("broker", pa.string()),
        pa.field("physical_offset", pa.int64()),
        pa.field("length", pa.int64()),
        pa.field("cause", pa.string()),
        pa.field("file", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("head", pa.string()),
        pa.field("found_at", pa.string()),
        pa.field("policy", pa.string()),
    ]
)

QUARANTINE_COMMENTS = {
    "broker": "name of the broker whose commitlog has the range",
    "physical_offset": "first byte of the range in the commitlog",
    "length": "size of the range in bytes",
    "cause": "why it could not be read",
    "file": "segment that has its first byte",
    "position": "first byte of the range in that segment",
    "head": "the first bytes of the range in hexadecimal digits",
    "found_at": "when it was found, ISO 8601 in UTC",
    "policy": "onDamage as it was set then",
}

# ----------------------------------------------------------------------------------------------------------------------
# TABLE-consumption: each move of a consumer group in a queue.

_CONSUMPTION_TIME = pa.timestamp("us", tz="UTC")
CONSUMPTION_SCHEMA = pa.schema(
    [
        pa.field("broker", pa.string()),
        pa.field("consumer_group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("offset_before", pa.int64()),
        pa.field("offset_after", pa.int64()),
        pa.field("seen_before", _CONSUMPTION_TIME),
        pa.field("seen_after", _CONSUMPTION_TIME),
        pa.field("move", pa.string()),
    ]
)


#: The kinds of a move.
PROGRESS, RESET_BACK, FIRST_SEEN, GONE = "progress", "reset_back", "first_seen", "gone"

CONSUMPTION_COMMENTS = {
    "broker": "name of the broker that keeps the offset",
    "consumer_group": "the consumer group",
    "topic": "the topic",
    "queue_id": "the queue",
    "offset_before": "the group's offset in the queue before the move; null where none was seen",
    "offset_after": "the group's offset after the move; null where it is gone",
    "seen_before": "the move came after this time; null where offsets were not watched before",
    "seen_after": "the move came before this time",
    "move": "progress, reset_back, first_seen or gone",
}

# ----------------------------------------------------------------------------------------------------------------------


def commented(schema: pa.Schema, comments: Mapping[str, str]) -> StructType:
    """The columns of `schema` in Spark's types, each with its comment.

    Items of lists and maps may be null, as they may in every column that SQL declares.
    """
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415  readers of a table need no Spark

    from reput.source.rows.message_schema import spark_schema  # noqa: PLC0415

    return StructType(
        [
            StructField(field.name, _with_null_items(field.dataType), field.nullable, {"comment": comments[field.name]})
            for field in spark_schema(schema)
        ]
    )


def _with_null_items(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, MapType  # noqa: PLC0415  as above

    if isinstance(kind, ArrayType):
        return ArrayType(kind.elementType)
    return MapType(kind.keyType, kind.valueType) if isinstance(kind, MapType) else kind
