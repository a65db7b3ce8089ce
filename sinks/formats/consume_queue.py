"""The 20-byte ConsumeQueue entry, and the grouping of records by queue."""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source.kernels.byte_kernels import WORD, load_bytes, spans_equal, store_i32, store_i64
from reput.source.kernels.compile import inlined, kernel
from reput.source.kernels.record_kernels import AT, SIZE, TOPIC, TOPIC_SIZE
from reput.source.record.message_sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK, TRANSACTION_NOT_TYPE

ENTRY = np.dtype([("physical_offset", ">i8"), ("msg_size", ">i4"), ("tags_code", ">i8")])
CQ_STORE_UNIT_SIZE = ENTRY.itemsize
assert CQ_STORE_UNIT_SIZE == 20

# Fills the front of a queue's first file when the queue begins in its middle (``ConsumeQueue#fillPreBlank``).
PRE_BLANK = np.array((0, 0x7FFFFFFF, 0), dtype=ENTRY)


def is_written(units: Any) -> Any:
    """Which units (`ENTRY`[n]) count in ``ConsumeQueue#recover``, bool[n]."""
    return (units["physical_offset"] >= 0) & (units["msg_size"] > 0)


def is_pre_blank(units: Any) -> Any:
    """Which units (`ENTRY`[n]) are exactly `PRE_BLANK`, bool[n]."""
    return (
        (units["physical_offset"] == PRE_BLANK["physical_offset"])
        & (units["msg_size"] == PRE_BLANK["msg_size"])
        & (units["tags_code"] == PRE_BLANK["tags_code"])
    )


# Odd, its bits half ones: the golden ratio's.
_MIXER = 0x9E3779B97F4A7C15

_TYPE_MASK, _NOT_TYPE, _COMMIT_TYPE = TRANSACTION_MASK, TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE


@inlined
def slot_of(data: Any, at: int, size: int, queue_id: int) -> int:
    """Where to look for a queue in a table of any size: all bytes of the topic and the id count."""
    factor = np.uint64(_MIXER)
    value = np.uint64(queue_id)
    for i in range(0, size, WORD):
        word = load_bytes(data, at + i, min(WORD, size - i))
        value = (value ^ word) * factor
        value ^= value >> np.uint64(32)
    return np.int64(value >> np.uint64(1))


@kernel
def group_by_queue(data: Any, parts: Any, queue_ids: Any, table: Any, groups: Any, firsts: Any) -> int:
    """Give each record the number of its (topic, queue), numbered by first appearance.

    Parameters
    ----------
    table
        int32 scratch filled with -1, a power of two at least twice the records.
    groups
        int32[n], filled with each record's number.
    firsts
        int64[n], filled with the first record of each number.

    Returns
    -------
    How many numbers were given.
    """
    mask = table.size - 1
    count = 0
    for row in range(groups.size):
        topic, size = parts[row, TOPIC], parts[row, TOPIC_SIZE]
        slot = slot_of(data, topic, size, queue_ids[row]) & mask
        while True:
            group = table[slot]
            if group < 0:
                table[slot] = count
                firsts[count] = row
                groups[row] = count
                count += 1
                break
            first = firsts[group]
            if (
                queue_ids[first] == queue_ids[row]
                and parts[first, TOPIC_SIZE] == size
                and spans_equal(data, parts[first, TOPIC], data, topic, size)
            ):
                groups[row] = group
                break
            slot = (slot + 1) & mask
    return count


def queued_records(sys_flags: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which records get an entry, bool[n]: prepared and rolled-back ones do not."""
    kinds = sys_flags & _TYPE_MASK
    return (kinds == _NOT_TYPE) | (kinds == _COMMIT_TYPE)


@inlined
def is_queued(sys_flag: int) -> bool:
    """`queued_records` of one record."""
    kind = sys_flag & _TYPE_MASK
    return kind == _NOT_TYPE or kind == _COMMIT_TYPE  # noqa: PLR1714  a tuple is slower


@inlined
def put_entry(entries: Any, row: int, place: int, size: int, tags_code: int) -> None:
    """Write the entry of the record at `place` to ``entries[row]`` (uint8[n, 20])."""
    store_i64(entries, row, 0, place)
    store_i32(entries, row, 8, size)
    store_i64(entries, row, 12, tags_code)


@kernel
def count_queued(groups: Any, queued: Any, counts: Any) -> None:
    """Add to `counts` (int64, one a group) the queued records (bool[n]) of each group."""
    for row in range(groups.size):
        counts[groups[row]] += queued[row]


@kernel
def encode_entries(
    parts: Any,
    place: int,
    groups: Any,
    queued: Any,
    tags_codes: Any,
    queue_offsets: Any,
    starts: Any,
    entries: Any,
    rows: Any,
    offsets: Any,
) -> None:
    """Write each queued record's entry at its group's next place.

    `queued` is bool[n]; `starts` (int64, one a group) is where each group begins, and is moved on; `entries` is
    uint8[m, 20], `rows` and `offsets` (int64[m]) take the record that each is of, and its queue offset.
    """
    for row in range(groups.size):
        if queued[row]:
            to = starts[groups[row]]
            starts[groups[row]] = to + 1
            rows[to], offsets[to] = row, queue_offsets[row]
            put_entry(entries, to, place + parts[row, AT], parts[row, SIZE], tags_codes[row])


@kernel
def merge_blocks(block_groups: Any, block_sizes: Any, starts: Any, source: Any, target: Any) -> None:
    """Copy blocks of bytes so that each group's blocks stand together, in the order they came.

    Block i is the next `block_sizes[i]` bytes of `source` and belongs to group `block_groups[i]`, whose next byte in
    `target` is `starts[group]`, which is moved on.
    """
    at = 0
    for block in range(block_groups.size):
        group, size = block_groups[block], block_sizes[block]
        into, out_of = np.uint64(starts[group]), np.uint64(at)
        for i in range(np.uint64(size)):
            target[into + i] = source[out_of + i]
        starts[group] += size
        at += size
