"""Compiled kernels that lay text out as Arrow wants it: bytes in one buffer and where each value ends, or numbers.

Each adds to what a column has from windows before. Spans are read a word of eight bytes at a time, a word only where
the buffer has all of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source import message_properties as props
from reput.source.byte_kernels import WORD, find_byte, find_either, load_bytes, load_word, spans_equal, store_word
from reput.source.kernel import inlined, kernel
from reput.source.record_kernels import PROPERTIES, PROPERTIES_SIZE

_ITEM_END = ord(props.PROPERTY_SEPARATOR)
_NAME_END = ord(props.NAME_VALUE_SEPARATOR)
_KEY_SEPARATOR = ord(props.KEY_SEPARATOR)
# Two upper-case digits for each byte, as they stand in memory.
_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)
_OFFSET_SIZE = 8

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@inlined
def _copy(data: Any, at: int, size: int, out: Any, to: int) -> None:
    """Copy a span by words: up to seven bytes behind it are written, too, and the next span replaces them."""
    if at + size + WORD <= data.size:
        for i in range(0, size, WORD):
            store_word(out, to + i, load_word(data, at + i))
    else:
        for i in range(size):
            out[to + i] = data[at + i]


@kernel
def is_ascii(out: Any, size: int) -> bool:
    """Whether the first `size` bytes are ASCII."""
    seen = np.uint8(0)
    for i in range(size):
        seen |= out[i]
    return seen < 0x80


@kernel
def gather(data: Any, starts: Any, sizes: Any, ends: Any, out: Any) -> None:
    """Copy the spans one after the other to `out`, from `ends[0]` on.

    `ends` (int32[n + 1]) takes where each value ends, `out` has a word more than the spans.
    """
    to = ends[0]
    for row in range(starts.size):
        _copy(data, starts[row], sizes[row], out, to)
        to += sizes[row]
        ends[row + 1] = to


@inlined
def _hash(data: Any, at: int, size: int) -> int:
    code = np.uint64(size)
    for i in range(0, size, WORD):
        code = (code ^ load_bytes(data, at + i, min(WORD, size - i))) * _FACTOR
        code ^= code >> np.uint64(32)
    return np.int64((code * _FACTOR) >> np.uint64(32))


@kernel
def number_spans(
    data: Any, starts: Any, sizes: Any, first: int, codes: Any, table: Any, count: int, ends: Any, out: Any
) -> tuple[int, int]:
    """Number the spans' bytes in the order of their first appearance.

    Parameters
    ----------
    first
        The row to begin with.
    codes
        int32[n], takes each span's number, -1 for an empty one.
    table
        int32[a power of two, at least twice the numbers], the number or -1; see `fill_table`.
    count, ends, out
        How many numbers there are already; each number's bytes as `gather` leaves them.

    Returns
    -------
    The first row that there was no room for, or the end; how many numbers there are.
    """
    for row in range(first, starts.size):
        at, size = starts[row], sizes[row]
        if size == 0:
            codes[row] = -1
            continue
        slot = _hash(data, at, size) & (table.size - 1)
        number = np.int64(table[slot])
        while number >= 0 and not (
            ends[number + 1] - ends[number] == size and spans_equal(data, at, out, ends[number], size)
        ):
            slot = (slot + 1) & (table.size - 1)
            number = np.int64(table[slot])
        if number < 0:
            to = ends[count]
            if count + 1 == ends.size or 2 * (count + 1) > table.size or to + size + WORD > out.size:
                return row, count
            number = np.int64(count)
            table[slot] = number
            _copy(data, at, size, out, to)
            count += 1
            ends[count] = to + size
        codes[row] = number
    return starts.size, count


@kernel
def fill_table(table: Any, count: int, ends: Any, out: Any) -> None:
    """Put the first `count` numbers of `number_spans` into a table filled with -1."""
    for number in range(count):
        slot = _hash(out, ends[number], ends[number + 1] - ends[number]) & (table.size - 1)
        while table[slot] >= 0:
            slot = (slot + 1) & (table.size - 1)
        table[slot] = number


@kernel
def list_keys(data: Any, starts: Any, sizes: Any, row_ends: Any, ends: Any, out: Any) -> int:
    """Copy the single keys of each KEYS span; `row_ends` (int32[n + 1]) counts them row by row, from `row_ends[0]` on.

    `ends` and `out` are of all keys, as `gather`'s; a span has at most one key for each two bytes, rounded up. Returns
    how many keys there are.
    """
    count = row_ends[0]
    to = ends[count]
    for row in range(starts.size):
        at = starts[row]
        end = at + sizes[row]
        while at < end:
            stop = find_byte(data, at, end, _KEY_SEPARATOR)
            if stop > at:
                _copy(data, at, stop - at, out, to)
                to += stop - at
                count += 1
                ends[count] = to
            at = stop + 1
        row_ends[row + 1] = count
    return count


@kernel
def list_properties(data: Any, parts: Any, row_ends: Any, names: Any, values: Any) -> int:
    """Find name and value of every property; the rules are ``message_properties.parse_properties``'s.

    Parameters
    ----------
    row_ends
        int32[n + 1], counts the items row by row, from `row_ends[0]` on.
    names, values
        int64[2, m], starts and sizes of these rows' items. m must be enough for all: no record has more than a quarter
        of its properties' bytes, rounded up.

    Returns
    -------
    How many items these rows have; a name may be there more than once.
    """
    count = 0
    for row in range(parts.shape[0]):
        at = parts[row, PROPERTIES]
        end = at + parts[row, PROPERTIES_SIZE]
        while at < end:
            name_end = find_either(data, at, end, _NAME_END, _ITEM_END)
            if name_end == end or data[name_end] == _ITEM_END:
                at = name_end + 1
                continue
            stop = find_byte(data, name_end + 1, end, _ITEM_END)
            if name_end > at and name_end + 1 < stop:
                names[0, count], names[1, count] = at, name_end - at
                values[0, count], values[1, count] = name_end + 1, stop - name_end - 1
                count += 1
            at = stop + 1
        row_ends[row + 1] = row_ends[0] + count
    return count


@kernel
def keep_last(row_ends: Any, names: Any, latest: Any, kept: Any) -> int:
    """Leave each name once in its row, in the first one's place with the last one's value; returns how many are left.

    `row_ends` begins with 0 and `names` (int32[m]) are the items' numbers; both are changed. `latest` is int64 scratch
    with an element a number, all -1; `kept` (int64[m]) takes which item's value each one that is left has.
    """
    count = first = 0
    for row in range(row_ends.size - 1):
        row_first = count
        for item in range(first, row_ends[row + 1]):
            place = latest[names[item]]
            if place < row_first:  # not in this row before
                place = count
                names[place], latest[names[item]] = names[item], place
                count += 1
            kept[place] = item
        first = row_ends[row + 1]
        row_ends[row + 1] = count
    return count


@kernel
def message_ids(data: Any, hosts: Any, host_sizes: Any, offsets: Any, ends: Any, out: Any) -> None:
    """Write offset message ids (``MessageDecoder#createMessageId``): host, port and place in upper-case hex.

    `out` holds two digits an element (uint16); `ends` (int32[n + 1]) counts digits, from `ends[0]` on.
    """
    to = ends[0] // 2
    for row in range(hosts.size):
        at = hosts[row]
        for i in range(host_sizes[row]):
            out[to + i] = _HEX[data[at + i]]
        to += host_sizes[row]
        offset = offsets[row]
        for i in range(_OFFSET_SIZE):
            out[to + i] = _HEX[offset >> (56 - 8 * i) & 0xFF]
        to += _OFFSET_SIZE
        ends[row + 1] = 2 * to
