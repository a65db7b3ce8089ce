"""The 46-byte BatchConsumeQueue entry of 5.x, and which records get one (``BatchConsumeQueue``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source import property_kernels as pk
from reput.source.batch_decoder import Int64s, RecordColumns
from reput.source.java_string import decode_utf8, parse_long, parse_short

BATCH_ENTRY = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("msg_size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("msg_base_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
BATCH_STORE_UNIT_SIZE = BATCH_ENTRY.itemsize
assert BATCH_STORE_UNIT_SIZE == 46

_NOT_COMPACTED = -1


def batch_entries(columns: RecordColumns, rows: Int64s) -> tuple[Int64s, np.ndarray[Any, Any]]:
    """Entries of those of the records `rows` that are inner batches: (their rows, BATCH_ENTRY[n]).

    A record that does not name its base offset and number of messages gets none, as from the broker
    (``#putMessagePositionInfoWrapper``).
    """
    found = []
    for row in rows.tolist():
        number = parse_short(_property(columns, row, pk.INNER_NUM))
        base = parse_long(_property(columns, row, pk.INNER_BASE))
        if number is not None and base is not None and number >= 0 and base >= 0:
            found.append((row, base, number))
    kept = np.array([row for row, _, _ in found], np.int64)
    entries = np.zeros(len(kept), BATCH_ENTRY)
    entries["physical_offset"] = columns.physical_offset[kept]
    entries["msg_size"] = columns.msg_size[kept]
    entries["tags_code"] = columns.tags_code[kept]
    entries["store_timestamp"] = columns.store_timestamp[kept]
    entries["msg_base_offset"] = [base for _, base, _ in found]
    entries["batch_size"] = [number for _, _, number in found]
    entries["compacted_offset"] = _NOT_COMPACTED
    return kept, entries


def _property(columns: RecordColumns, row: int, which: int) -> str:
    at, size = columns.spans[row, which].tolist()
    return decode_utf8(columns.data[at : at + size].tobytes())
