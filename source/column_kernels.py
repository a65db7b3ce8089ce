"""Compiled kernels that lay text out as Arrow wants it: bytes in one buffer and where each value ends, or numbers.

Spans are read a word of eight bytes at a time, a word only where the buffer has all of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from reput.source import message_properties as props
from reput.source.record_kernels import PROPERTIES, PROPERTIES_SIZE

WORD_SIZE = 8

_ITEM_END = ord(props.PROPERTY_SEPARATOR)
_NAME_END = ord(props.NAME_VALUE_SEPARATOR)
_KEY_SEPARATOR = ord(props.KEY_SEPARATOR)
# Two upper-case digits for each byte, as they stand in memory.
_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)
_OFFSET_SIZE = 8

# Masks of a word's first 0 to 8 bytes, of each byte's lowest and highest bit; byte k of _INDEX, from the top, is k.
_FIRST = np.array([(1 << 8 * size) - 1 for size in range(WORD_SIZE + 1)], np.uint64)
_LOW, _HIGH, _INDEX = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080), np.uint64(0x0001020304050607)
_ITEM_ENDS, _NAME_ENDS = np.uint64(_ITEM_END * 0x0101010101010101), np.uint64(_NAME_END * 0x0101010101010101)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True)
def _load(data: Any, at: int) -> int:
    """The eight bytes at `at`, the first one lowest.

    The indices are unsigned: numba would wrap signed ones that are negative, and LLVM could not make one load of it.
    """
    first = np.uint64(at)
    return (
        np.uint64(data[first])
        | np.uint64(data[first + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[first + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[first + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[first + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[first + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[first + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[first + np.uint64(7)]) << np.uint64(56)
    )


@njit(cache=True)
def _store(out: Any, to: int, word: int) -> None:
    """The reverse of `_load`."""
    first = np.uint64(to)
    out[first] = np.uint8(word)
    out[first + np.uint64(1)] = np.uint8(word >> np.uint64(8))
    out[first + np.uint64(2)] = np.uint8(word >> np.uint64(16))
    out[first + np.uint64(3)] = np.uint8(word >> np.uint64(24))
    out[first + np.uint64(4)] = np.uint8(word >> np.uint64(32))
    out[first + np.uint64(5)] = np.uint8(word >> np.uint64(40))
    out[first + np.uint64(6)] = np.uint8(word >> np.uint64(48))
    out[first + np.uint64(7)] = np.uint8(word >> np.uint64(56))


@njit(cache=True)
def _word(data: Any, at: int, size: int) -> int:
    """The first `size` bytes at `at`, 8 at most, as `_load` gives them; the others are 0."""
    if at + WORD_SIZE <= data.size:
        word = _load(data, at)
        return word & _FIRST[size] if size < WORD_SIZE else word
    word = np.uint64(0)
    for i in range(min(size, WORD_SIZE)):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@njit(cache=True, inline="always")
def _copy(data: Any, at: int, size: int, out: Any, to: int) -> None:
    """Copy a span by words: up to seven bytes behind it are written, too, and the next span replaces them."""
    if at + size + WORD_SIZE <= data.size:
        for i in range(0, size, WORD_SIZE):
            _store(out, to + i, _load(data, at + i))
    else:
        for i in range(size):
            out[to + i] = data[at + i]


@njit(cache=True)
def _find(data: Any, at: int, end: int, pattern: int, other: int) -> int:
    """Where the first byte of `data[at:end]` is that is one of two, each repeated to a word; `end` without any."""
    while at < end:
        if at + WORD_SIZE <= data.size:
            word = _load(data, at)
            left, right = word ^ pattern, word ^ other
            # A zero byte's highest bit; what a borrow adds stands above the first.
            hits = ((left - _LOW) & ~left | (right - _LOW) & ~right) & _HIGH
            if hits:
                lowest = (hits & (~hits + np.uint64(1))) >> np.uint64(7)
                return min(end, at + np.int64(lowest * _INDEX >> np.uint64(56)))
            at += WORD_SIZE
        else:
            byte = np.uint64(data[at])
            if byte == pattern & np.uint64(0xFF) or byte == other & np.uint64(0xFF):
                return at
            at += 1
    return end


@njit(cache=True)
def is_ascii(out: Any, size: int) -> bool:
    """Whether the first `size` bytes are ASCII."""
    seen = np.uint8(0)
    for i in range(size):
        seen |= out[i]
    return seen < 0x80


@njit(cache=True)
def gather(data: Any, starts: Any, sizes: Any, ends: Any, out: Any) -> None:
    """Copy the spans one after the other to `out`; `ends` (int32[n + 1]) takes 0 and where each value ends.

    `out` has a word more than the spans.
    """
    to = 0
    ends[0] = 0
    for row in range(starts.size):
        _copy(data, starts[row], sizes[row], out, to)
        to += sizes[row]
        ends[row + 1] = to


@njit(cache=True)
def _hash(data: Any, at: int, size: int) -> int:
    code = np.uint64(size)
    for i in range(0, size, WORD_SIZE):
        code = (code ^ _word(data, at + i, size - i)) * _FACTOR
        code ^= code >> np.uint64(32)
    return np.int64((code * _FACTOR) >> np.uint64(32))


@njit(cache=True)
def _equal(data: Any, left: int, right: int, size: int) -> bool:
    for i in range(0, size, WORD_SIZE):  # noqa: SIM110  numba compiles no generator expressions
        if _word(data, left + i, size - i) != _word(data, right + i, size - i):
            return False
    return True


@njit(cache=True)
def number_spans(data: Any, starts: Any, sizes: Any, table: Any, codes: Any, distinct: Any) -> int:
    """Number the spans' bytes in the order of their first appearance; an empty span has no number.

    Parameters
    ----------
    table
        int32 scratch, all -1, a power of two above the spans' count.
    codes
        int32[n], takes each span's number, 0 for an empty one.
    distinct
        int64[n, 2], takes start and size of each number's first span.

    Returns
    -------
    How many numbers there are.
    """
    count = 0
    for row in range(starts.size):
        at, size = starts[row], sizes[row]
        if size == 0:
            codes[row] = 0
            continue
        slot = _hash(data, at, size) & (table.size - 1)
        number = np.int64(table[slot])
        while number >= 0 and not (distinct[number, 1] == size and _equal(data, distinct[number, 0], at, size)):
            slot = (slot + 1) & (table.size - 1)
            number = np.int64(table[slot])
        if number < 0:
            number = np.int64(count)
            table[slot] = number
            distinct[number, 0], distinct[number, 1] = at, size
            count += 1
        codes[row] = number
    return count


@njit(cache=True)
def list_keys(data: Any, starts: Any, sizes: Any, row_ends: Any, ends: Any, out: Any) -> int:
    """Copy the single keys of each KEYS span; `row_ends` (int32[n + 1]) counts them row by row.

    `ends` and `out` are as `gather`'s; a span has at most one key for each two bytes, rounded up. Returns how many
    keys there are.
    """
    pattern = np.uint64(_KEY_SEPARATOR) * _LOW
    count = to = 0
    row_ends[0] = ends[0] = 0
    for row in range(starts.size):
        at = starts[row]
        end = at + sizes[row]
        while at < end:
            stop = _find(data, at, end, pattern, pattern)
            if stop > at:
                _copy(data, at, stop - at, out, to)
                to += stop - at
                count += 1
                ends[count] = to
            at = stop + 1
        row_ends[row + 1] = count
    return count


@njit(cache=True)
def list_properties(data: Any, parts: Any, row_ends: Any, names: Any, values: Any) -> int:
    """Find name and value of every property; the rules are ``message_properties.parse_properties``'s.

    Parameters
    ----------
    row_ends
        int32[n + 1], counts the items row by row.
    names, values
        int64[2, m], starts and sizes. m must be enough for all: no record has more than a quarter of its properties'
        bytes, rounded up.

    Returns
    -------
    How many items there are; a name may be there more than once.
    """
    count = 0
    row_ends[0] = 0
    for row in range(parts.shape[0]):
        at = parts[row, PROPERTIES]
        end = at + parts[row, PROPERTIES_SIZE]
        while at < end:
            name_end = _find(data, at, end, _NAME_ENDS, _ITEM_ENDS)
            if name_end == end or data[name_end] == _ITEM_END:
                at = name_end + 1
                continue
            stop = _find(data, name_end + 1, end, _ITEM_ENDS, _ITEM_ENDS)
            if name_end > at and name_end + 1 < stop:
                names[0, count], names[1, count] = at, name_end - at
                values[0, count], values[1, count] = name_end + 1, stop - name_end - 1
                count += 1
            at = stop + 1
        row_ends[row + 1] = count
    return count


@njit(cache=True)
def keep_last(row_ends: Any, names: Any, values: Any, latest: Any) -> int:
    """Leave each name once in its row, in the first one's place with the last one's value; returns how many are left.

    `row_ends` and `values` are those of `list_properties`, `names` (int32[m]) are numbers, `latest` is int64 scratch
    with an element a number, all -1.
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
            values[0, place], values[1, place] = values[0, item], values[1, item]
        first = row_ends[row + 1]
        row_ends[row + 1] = count
    return count


@njit(cache=True)
def message_ids(data: Any, hosts: Any, host_sizes: Any, offsets: Any, ends: Any, out: Any) -> None:
    """Write offset message ids (``MessageDecoder#createMessageId``): host, port and place in upper-case hex.

    `out` holds two digits an element (uint16); `ends` counts digits.
    """
    to = 0
    ends[0] = 0
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
