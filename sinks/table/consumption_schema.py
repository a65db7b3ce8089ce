"""The ledger of consumption beside a message table: its columns, and where it is."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from reput.sinks.table.location import TableLocation, beside

_TIME: Final = pa.timestamp("us", tz="UTC")
CONSUMPTION_SCHEMA: Final = pa.schema(
    [
        pa.field("broker", pa.string()),
        pa.field("consumer_group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("offset_before", pa.int64()),
        pa.field("offset_after", pa.int64()),
        pa.field("seen_before", _TIME),
        pa.field("seen_after", _TIME),
        pa.field("move", pa.string()),
    ]
)
CONSUMPTION_COMMENTS: Final = {
    "broker": "name of the broker that keeps the offset",
    "consumer_group": "the consumer group",
    "topic": "the topic",
    "queue_id": "the queue",
    "offset_before": "the group's offset in the queue before the move; null where none was seen",
    "offset_after": "the group's offset after the move; null where it is gone",
    "seen_before": "the move came after this time; null where nobody watched before",
    "seen_after": "the move came before this time",
    "move": "progress, reset_back, first_seen or gone",
}


def consumption_table_path(table: TableLocation) -> TableLocation:
    """The path of the ledger: that of the message table `table` with ``-consumption`` behind it."""
    return beside(table, "-consumption")
