"""The 20-byte ConsumeQueue entry, and which records get one."""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source.kernels.byte_kernels import WORD, inlined, load_bytes, store_i32, store_i64
from reput.source.record.message_format import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK, TRANSACTION_NOT_TYPE

ENTRY = np.dtype([("physical_offset", ">i8"), ("msg_size", ">i4"), ("tags_code", ">i8")])
CQ_STORE_UNIT_SIZE = ENTRY.itemsize
assert CQ_STORE_UNIT_SIZE == 20

# Fills the front of a queue's first file when the queue begins in the middle of it (``ConsumeQueue#fillPreBlank``).
PRE_BLANK = np.array((0, 0x7FFFFFFF, 0), dtype=ENTRY)


def is_written(units: Any) -> Any:
    """Which units (`ENTRY`[n]) ``ConsumeQueue#recover`` takes for written, bool[n]."""
    return (units["physical_offset"] >= 0) & (units["msg_size"] > 0)


def is_pre_blank(units: Any) -> Any:
    """Which units (`ENTRY`[n]) are exactly `PRE_BLANK`, bool[n]."""
    return (
        (units["physical_offset"] == PRE_BLANK["physical_offset"])
        & (units["msg_size"] == PRE_BLANK["msg_size"])
        & (units["tags_code"] == PRE_BLANK["tags_code"])
    )


# The golden ratio's bits: an odd number, half of its bits are ones.
_MIXER = 0x9E3779B97F4A7C15

_TYPE_MASK, _NOT_TYPE, _COMMIT_TYPE = TRANSACTION_MASK, TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE


@inlined
def slot_of(data: Any, at: int, size: int, queue_id: int) -> int:
    """A hash of a queue, of all bytes of its topic and its id, for a table of any size."""
    factor = np.uint64(_MIXER)
    value = np.uint64(queue_id)
    for i in range(0, size, WORD):
        word = load_bytes(data, at + i, min(WORD, size - i))
        value = (value ^ word) * factor
        value ^= value >> np.uint64(32)
    return np.int64(value >> np.uint64(1))


def queued_records(sys_flags: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which records get an entry, bool[n]: all but prepared and rolled-back ones."""
    kinds = sys_flags & _TYPE_MASK
    return (kinds == _NOT_TYPE) | (kinds == _COMMIT_TYPE)


@inlined
def is_queued(sys_flag: int) -> bool:
    """Whether a record gets an entry; see `queued_records`."""
    kind = sys_flag & _TYPE_MASK
    return kind == _NOT_TYPE or kind == _COMMIT_TYPE  # noqa: PLR1714  a tuple is slower


@inlined
def put_entry(entries: Any, row: int, physical_offset: int, size: int, tags_code: int) -> None:
    """Write the entry of the record at `physical_offset` to ``entries[row]`` (uint8[n, 20])."""
    store_i64(entries, row, 0, physical_offset)
    store_i32(entries, row, 8, size)
    store_i64(entries, row, 12, tags_code)
