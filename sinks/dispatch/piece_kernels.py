"""Compiled kernels of pieces: a record's entry and keys in one pass, while it is in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.sinks.formats.consume_queue import is_queued, put_entry, slot_of
from reput.sinks.formats.index_file import key_count_max, put_keys
from reput.source.kernels import property_kernels as pk
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.byte_kernels import inlined, kernel, load_i32, load_i64, spans_equal
from reput.source.record import message_format as fmt
from reput.source.record.message_format import BORNHOST_V6_FLAG

_BORN_V6, _V6_EXTRA = BORNHOST_V6_FLAG, fmt.HOST_V6_EXTRA
_QUEUE_ID_AT, _QUEUE_OFFSET_AT, _SYS_FLAG_AT = fmt.QUEUE_ID_AT, fmt.QUEUE_OFFSET_AT, fmt.SYS_FLAG_AT
_STORE_TIMESTAMP_AT, _BODY_CRC_AT = fmt.STORE_TIMESTAMP_AT, fmt.BODY_CRC_AT

# The counts and values of `add_records`, int64[STATE]: messages, entries, keys, queues and bytes of their topics; the
# first record's store timestamp, and the number of records stored earlier than the one before; the last record's
# fingerprint; the store timestamp and the physical offset of the last record with an entry; the latest store timestamp,
# at least 0.
MESSAGES, ENTRIES, KEYS, QUEUES, TOPIC_BYTES, FIRST_TIME, BACKWARDS = range(7)
LAST_OFFSET, LAST_SIZE, LAST_TIME, LAST_CRC, LAST_QUEUED_TIME, LAST_QUEUED_OFFSET, LATEST_TIME = range(7, 14)
STATE = 14

# A queue's row, int64[QUEUE]: where its topic is in the bytes of all topics, its id, its number of entries, its hash.
# With arrivals also: the number of its records, their bytes, and the last one's (``Arrival``) physical offset, queue
# offset, tags code, store timestamp and whether it is queued (-1 before the first).
TOPIC_AT, TOPIC_SIZE, QUEUE_ID, COUNT, HASH, ARRIVED, ARRIVED_BYTES = range(7)
ARRIVED_AT, ARRIVED_OFFSET, ARRIVED_CODE, ARRIVED_TIME, ARRIVED_QUEUED = range(7, 12)
QUEUE = 12

# Why `add_records` stopped before the end.
NO_ROOM, ODD_NUMBER = 1, 2


@kernel
def add_records(
    data: Any,
    parts: Any,
    first: int,
    data_offset: int,
    delays_ms: Any,
    known_row: int,
    known_code: int,
    is_located: bool,
    spans: Any,
    tags_codes: Any,
    state: Any,
    with_queues: bool,
    with_arrivals: bool,
    table: Any,
    queues: Any,
    topics: Any,
    numbers: Any,
    entries: Any,
    queue_offsets: Any,
    with_index: bool,
    with_tags: bool,
    key_hashes: Any,
    key_offsets: Any,
    key_timestamps: Any,
) -> tuple[int, int]:
    """Add the records `parts[first:]` of `data` to the arrays of a ``piece.Piece``.

    Parameters
    ----------
    data_offset
        The physical offset of ``data[0]``.
    delays_ms
        Delay levels in milliseconds, level 1 first.
    known_row, known_code
        A record whose numbers the reference decoder found to be good, and its tags code; -1 for none.
    is_located, spans, tags_codes
        Whether ``RecordColumns.spans`` and ``tags_code`` of good records are given; if not, both are scratch, int32[1,
        LOCATED, 2] and int64[1].
    table, queues, topics
        int32[a power of two, at least twice the queues], the number of the queue or -1; int64[queues, QUEUE]; uint8.
    numbers, entries, queue_offsets
        int32[n], uint8[n, 20], int64[n]: each entry's queue number, bytes, and queue offset.

    Returns
    -------
    The first record that was not added, or the end; and why it was not added, NO_ROOM or ODD_NUMBER.
    """
    for row in range(first, parts.shape[0]):
        record = parts[row : row + 1]
        at = record[0, rk.AT]
        sys_flag = load_i32(data, at + _SYS_FLAG_AT)
        timestamp = load_i64(data, at + _STORE_TIMESTAMP_AT + (_V6_EXTRA if sys_flag & _BORN_V6 else 0))
        own = row if is_located else 0
        if not is_located:
            pk.locate_properties(data, record, 0, spans)
            tags_codes[0], is_good = pk.tags_code(data, record, 0, spans, timestamp, delays_ms)
            if row == known_row:
                tags_codes[0] = known_code
            elif not (is_good and pk.inner_batch(data, 0, spans)[2]):
                return row, ODD_NUMBER
        located = spans[own : own + 1]
        if with_index and state[KEYS] + key_count_max(located[0, pk.KEYS, 1]) > key_hashes.size:
            return row, NO_ROOM
        if with_queues or with_arrivals:
            queue_id, queue_offset = load_i32(data, at + _QUEUE_ID_AT), load_i64(data, at + _QUEUE_OFFSET_AT)
            topic, size = record[0, rk.TOPIC], record[0, rk.TOPIC_SIZE]
            queue = _queue_number(data, topic, size, queue_id, table, queues, topics, state)
            entry = state[ENTRIES]
            if queue < 0 or entry == numbers.size:
                return row, NO_ROOM
            if with_arrivals:
                queues[queue, ARRIVED] += 1
                queues[queue, ARRIVED_BYTES] += record[0, rk.SIZE]
                _arrive(queues[queue], data_offset + at, queue_offset, tags_codes[own], timestamp, is_queued(sys_flag))
            if with_queues and is_queued(sys_flag):
                queues[queue, COUNT] += 1
                numbers[entry], queue_offsets[entry] = queue, queue_offset
                put_entry(entries, entry, data_offset + at, record[0, rk.SIZE], tags_codes[own])
                state[ENTRIES] = entry + 1
                state[LAST_QUEUED_TIME], state[LAST_QUEUED_OFFSET] = timestamp, data_offset + at
        if with_index:
            count = state[KEYS]
            state[KEYS] = put_keys(
                *(data, record, 0, located, sys_flag, data_offset + at, timestamp, with_tags),
                *(count, key_hashes, key_offsets, key_timestamps),
            )
        if state[MESSAGES] == 0:
            state[FIRST_TIME] = timestamp
        elif timestamp < state[LAST_TIME]:
            state[BACKWARDS] += 1
        state[MESSAGES] += 1
        state[LATEST_TIME] = max(state[LATEST_TIME], timestamp)
        state[LAST_OFFSET], state[LAST_SIZE], state[LAST_TIME] = data_offset + at, record[0, rk.SIZE], timestamp
    if first < parts.shape[0]:
        state[LAST_CRC] = load_i32(data, parts[parts.shape[0] - 1, rk.AT] + _BODY_CRC_AT)
    return parts.shape[0], 0


@inlined
def _queue_number(
    data: Any, topic: int, size: int, queue_id: int, table: Any, queues: Any, topics: Any, state: Any
) -> int:
    """The number of a queue, a new one if it has none; -1 without room for a new one."""
    mask = table.size - 1
    hashed = slot_of(data, topic, size, queue_id)
    slot = hashed & mask
    while table[slot] >= 0:
        number: int = table[slot]
        queue = queues[number]
        if (
            queue[HASH] == hashed
            and queue[QUEUE_ID] == queue_id
            and queue[TOPIC_SIZE] == size
            and spans_equal(data, topic, topics, queue[TOPIC_AT], size)
        ):
            return number
        slot = (slot + 1) & mask
    number, begin = state[QUEUES], state[TOPIC_BYTES]
    if number == queues.shape[0] or begin + size > topics.size:
        return -1
    for i in range(size):
        topics[begin + i] = data[topic + i]
    queue = queues[number]
    queue[TOPIC_AT], queue[TOPIC_SIZE], queue[QUEUE_ID], queue[COUNT], queue[HASH] = begin, size, queue_id, 0, hashed
    queue[ARRIVED], queue[ARRIVED_BYTES], queue[ARRIVED_QUEUED] = 0, 0, -1
    state[QUEUES], state[TOPIC_BYTES] = number + 1, begin + size
    table[slot] = number
    return number


@inlined
def _arrive(queue: Any, physical_offset: int, queue_offset: int, tags_code: int, timestamp: int, queued: bool) -> None:
    """Note a record as its queue's last, unless it is not queued and an earlier one is."""
    if queued or queue[ARRIVED_QUEUED] < 1:
        queue[ARRIVED_AT], queue[ARRIVED_OFFSET], queue[ARRIVED_CODE] = physical_offset, queue_offset, tags_code
        queue[ARRIVED_TIME], queue[ARRIVED_QUEUED] = timestamp, queued


@kernel
def queue_number(topic: Any, queue_id: int, table: Any, queues: Any, topics: Any, state: Any) -> int:
    """The number of a queue that a property names, a new one if it has none; -1 without room for a new one."""
    number: int = _queue_number(topic, 0, topic.size, queue_id, table, queues, topics, state)
    return number


@kernel
def index_queues(table: Any, queues: Any, count: int) -> None:
    """Put the first `count` queues into a table filled with -1."""
    mask = table.size - 1
    for number in range(count):
        slot = queues[number, HASH] & mask
        while table[slot] >= 0:
            slot = (slot + 1) & mask
        table[slot] = number


@kernel
def group_rows(numbers: Any, starts: Any, entries: Any, queue_offsets: Any, grouped: Any, grouped_offsets: Any) -> None:
    """Group the entries by queue and keep their order; `starts` (int64) is where each queue begins, and is changed.

    A queue whose start is negative is left out.
    """
    for row in range(numbers.size):
        to = starts[numbers[row]]
        if to >= 0:
            starts[numbers[row]] = to + 1
            grouped_offsets[to] = queue_offsets[row]
            into, out_of = np.uint64(to), np.uint64(row)
            for i in range(np.uint64(entries.shape[1])):
                grouped[into, i] = entries[out_of, i]
