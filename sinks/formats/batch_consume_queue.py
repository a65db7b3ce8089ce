"""The 46-byte BatchConsumeQueue entry of 5.x, and which records get one (``BatchConsumeQueue``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source.arrays import Int64s
from reput.source.kernels.batch_decoder import RecordColumns

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
    """The entries of those records among `rows` that are inner batches, as (rows, BATCH_ENTRY[n]).

    As with the broker, a record that does not state its base offset and number of messages gets no entry
    (``#putMessagePositionInfoWrapper``).
    """
    batches = columns.inner_batches()
    kept = rows[(batches.batch_num[rows] >= 0) & (batches.msg_base_offset[rows] >= 0)]
    entries = np.zeros(len(kept), BATCH_ENTRY)
    entries["physical_offset"] = columns.physical_offset[kept]
    entries["msg_size"] = columns.msg_size[kept]
    entries["tags_code"] = columns.tags_code[kept]
    entries["store_timestamp"] = columns.store_timestamp[kept]
    entries["msg_base_offset"] = batches.msg_base_offset[kept]
    entries["batch_size"] = batches.batch_num[kept]
    entries["compacted_offset"] = _NOT_COMPACTED
    return kept, entries
