"""The contract between the source and its users: the columns of a dispatched record."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

_TIMESTAMP = pa.timestamp("us", tz="UTC")


def _column(name: str, kind: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


# Columns that follow from the others. Tables of earlier versions of reput lack them: a writer adds them to such a
# table, and its older rows keep null. A row lacks all of them or none, and `LATER_MARK` shows which. A further column
# needs a mark of its own: without one, ``sinks/table/comparison.py`` finds that each older row differs.
_LATER_COLUMNS = [
    _column("kind", pa.string(), nullable=True),
    _column("consumer_group", pa.string(), nullable=True),
    _column("origin_topic", pa.string(), nullable=True),
    _column("origin_msg_id", pa.string(), nullable=True),
    _column("deliver_time", _TIMESTAMP, nullable=True),
    _column("producer_group", pa.string(), nullable=True),
    _column("client_host", pa.string(), nullable=True),
    _column("transaction_id", pa.string(), nullable=True),
    _column("first_key", pa.string(), nullable=True),
]
LATER_NAMES = frozenset(field.name for field in _LATER_COLUMNS)
#: The later column that is never null in a row that has them.
LATER_MARK = "kind"

# Names are the broker's words in snake case. Timestamps are null where a stored value is outside years 1 to 9999.
MESSAGE_SCHEMA = pa.schema(
    [
        _column("topic", pa.string()),
        _column("queue_id", pa.int32()),
        _column("queue_offset", pa.int64()),
        _column("physical_offset", pa.int64()),
        _column("msg_size", pa.int32()),
        _column("store_time", _TIMESTAMP, nullable=True),
        _column("born_time", _TIMESTAMP, nullable=True),
        _column("born_host", pa.string()),
        _column("store_host", pa.string()),
        _column("tags", pa.string(), nullable=True),
        _column("tags_code", pa.int64()),
        _column("keys", pa.list_(pa.field("element", pa.string(), nullable=False))),
        _column("uniq_key", pa.string(), nullable=True),
        _column("msg_id", pa.string()),
        _column("body_size", pa.int32()),
        _column("body_crc", pa.int32()),
        _column("flag", pa.int32()),
        _column("sys_flag", pa.int32()),
        _column("transaction_type", pa.string()),
        _column("reconsume_times", pa.int32()),
        _column("prepared_transaction_offset", pa.int64()),
        _column("delay_level", pa.int32(), nullable=True),
        _column("real_topic", pa.string(), nullable=True),
        _column("real_queue_id", pa.int32(), nullable=True),
        _column("properties", pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))),
        *_LATER_COLUMNS,
    ]
)


def message_schema(*, include_body: bool) -> pa.Schema:
    """Columns of `rows=messages`: `MESSAGE_SCHEMA`, and `body` (as stored, maybe compressed) on request."""
    return MESSAGE_SCHEMA.append(_column("body", pa.binary())) if include_body else MESSAGE_SCHEMA


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns in Spark's types."""
    return from_arrow_schema(schema)
