"""The quarantine's table beside a message table: its columns, and where it is."""

from __future__ import annotations

import pyarrow as pa

from reput.sinks.table.location import TableLocation, beside

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


def quarantine_table_path(table: TableLocation) -> TableLocation:
    """The path of the quarantine's table: that of the message table `table` with ``-quarantine`` behind it."""
    return beside(table, "-quarantine")
