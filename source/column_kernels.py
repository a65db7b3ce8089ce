"""Compiled kernels that lay strings out as Arrow wants them: one buffer of bytes, and where each value ends."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from reput.source import message_properties as props
from reput.source.property_kernels import java_hash, spans_equal
from reput.source.record_kernels import PROPERTIES, PROPERTIES_SIZE

_ITEM_END = ord(props.PROPERTY_SEPARATOR)
_NAME_END = ord(props.NAME_VALUE_SEPARATOR)
_KEY_SEPARATOR = ord(props.KEY_SEPARATOR)
_HEX = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
_HOST_V4, _PORT_SIZE, _OFFSET_SIZE = 4, 4, 8

# Up to this many properties a record, looking through the earlier ones is cheaper than a table of them.
_FEW = 16


@njit(cache=True)
def gather(data: Any, starts: Any, sizes: Any, ends: Any, out: Any) -> bool:
    """Copy the spans one after the other to `out`; `ends` (int32[n + 1]) takes 0 and where each value ends.

    Returns whether all bytes are ASCII.
    """
    to = 0
    seen = np.uint8(0)
    ends[0] = 0
    for row in range(starts.size):
        at = starts[row]
        for i in range(sizes[row]):
            byte = data[at + i]
            seen |= byte
            out[to + i] = byte
        to += sizes[row]
        ends[row + 1] = to
    return seen < 0x80


@njit(cache=True)
def split_keys(data: Any, starts: Any, sizes: Any, row_ends: Any, key_starts: Any, key_sizes: Any) -> int:
    """Find the single keys of each KEYS span; `row_ends` (int32[n + 1]) counts them row by row.

    Fills `key_starts` and `key_sizes` as far as they reach; returns how many keys there are.
    """
    count = 0
    row_ends[0] = 0
    for row in range(starts.size):
        at = starts[row]
        end = at + sizes[row]
        while at < end:
            stop = at
            while stop < end and data[stop] != _KEY_SEPARATOR:
                stop += 1
            if stop > at:
                if count < key_starts.size:
                    key_starts[count] = at
                    key_sizes[count] = stop - at
                count += 1
            at = stop + 1
        row_ends[row + 1] = count
    return count


@njit(cache=True)
def _find_name(data: Any, at: int, size: int, items: Any, first: int, count: int, table: Any) -> int:
    """The item of this record with the same name, or -1; a new name is noted in `table` as number `count`."""
    if count - first > _FEW:
        return _note_name(data, at, size, items, count, table)
    for item in range(first, count):
        if items[item, 1] == size and spans_equal(data, items[item, 0], data, at, size):
            return item
    if count - first == _FEW:
        table[:] = -1
        for item in range(first, count):
            _note_name(data, items[item, 0], items[item, 1], items, item, table)
        _note_name(data, at, size, items, count, table)
    return -1


@njit(cache=True)
def _note_name(data: Any, at: int, size: int, items: Any, number: int, table: Any) -> int:
    mask = table.size - 1
    slot = java_hash(data, at, size, size) & mask
    while table[slot] >= 0:
        item = table[slot]
        if items[item, 1] == size and spans_equal(data, items[item, 0], data, at, size):
            return item
        slot = (slot + 1) & mask
    table[slot] = number
    return -1


@njit(cache=True)
def list_properties(data: Any, parts: Any, row_ends: Any, items: Any, table: Any) -> int:
    """Find name and value of every property; the rules are ``message_properties.parse_properties``'s.

    Parameters
    ----------
    row_ends
        int32[n + 1], counts the items row by row.
    items
        int64[m, 4]: name start and size, value start and size. m must be enough for all: no record has more than
        a quarter of its properties' bytes, rounded up.
    table
        int32 scratch, a power of two at least twice the items of any record.

    Returns
    -------
    How many items there are.
    """
    count = 0
    row_ends[0] = 0
    for row in range(parts.shape[0]):
        first = count
        at = parts[row, PROPERTIES]
        end = at + parts[row, PROPERTIES_SIZE]
        while at < end:
            name_end = -1
            stop = at
            while stop < end and data[stop] != _ITEM_END:
                if name_end < 0 and data[stop] == _NAME_END:
                    name_end = stop
                stop += 1
            if name_end > at and name_end + 1 < stop:
                item = _find_name(data, at, name_end - at, items, first, count, table)
                if item < 0:
                    item = count
                    count += 1
                    items[item, 0], items[item, 1] = at, name_end - at
                items[item, 2], items[item, 3] = name_end + 1, stop - name_end - 1
            at = stop + 1
        row_ends[row + 1] = count
    return count


@njit(cache=True)
def message_ids(data: Any, hosts: Any, host_sizes: Any, offsets: Any, ends: Any, out: Any) -> None:
    """Write offset message ids (``MessageDecoder#createMessageId``): host, port and place in upper-case hex."""
    to = 0
    ends[0] = 0
    for row in range(hosts.size):
        at = hosts[row]
        for i in range(host_sizes[row]):
            byte = data[at + i]
            out[to], out[to + 1] = _HEX[byte >> 4], _HEX[byte & 15]
            to += 2
        for i in range(_OFFSET_SIZE):
            byte = offsets[row] >> (56 - 8 * i) & 0xFF
            out[to], out[to + 1] = _HEX[byte >> 4], _HEX[byte & 15]
            to += 2
        ends[row + 1] = to


@njit(cache=True)
def v4_hosts(data: Any, hosts: Any, packed: Any) -> None:
    """Pack each row's four address bytes and four port bytes into one int64."""
    for row in range(hosts.size):
        value = np.int64(0)
        for i in range(_HOST_V4 + _PORT_SIZE):
            value = value << 8 | np.int64(data[hosts[row] + i])
        packed[row] = value
