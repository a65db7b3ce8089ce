"""Compiled kernels that encode the values of Parquet's pages.

https://github.com/apache/parquet-format/blob/master/Encodings.md

Each writes to `out` (uint8[n]) from `to` and returns where it ended. They write words of eight bytes, and the next word
overwrites the surplus of the one before: `out` has `WORD` bytes more than the encoded values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source.kernels.byte_kernels import WORD, copy_bytes, inlined, kernel, load_word, store_word

#: The numbers of values in a block and in a miniblock of DELTA_BINARY_PACKED; parquet-mr's and Arrow's sizes.
DELTA_BLOCK, DELTA_MINIBLOCK = 128, 32
_MINIBLOCKS = DELTA_BLOCK // DELTA_MINIBLOCK
_LOW = np.uint64(0xFFFFFFFF)
_MOST = np.iinfo(np.int64).max
# Eight levels in a word: of elements that follow another one of their list, of a list's first eight elements, and of
# elements that are not null.
_REPEATED, _FIRST = np.uint64(0x0101010101010101), np.uint64(0x0101010101010100)
_DEFINED = np.uint64(0x0202020202020202)


@kernel
def put_texts(ends: Any, data: Any, first: int, last: int, out: Any, to: int) -> int:
    """PLAIN: each text `[first, last)` after its length; `ends` (int32[n + 1]) and `data` as in Arrow."""
    for row in range(first, last):
        at, size = ends[row], ends[row + 1] - ends[row]
        store_word(out, to, np.uint64(size))
        copy_bytes(data, at, size, out, to + 4)
        to += 4 + size
    return to


@kernel
def is_constant(values: Any) -> bool:
    """Whether all values, of which there is at least one, are equal."""
    seen = values[0] ^ values[0]
    for i in range(values.size):
        seen |= values[i] ^ values[0]
    return seen == 0


@inlined
def _put_bits(number: Any, width: int, bits: Any, filled: int, out: Any, to: int) -> tuple[int, int, int]:
    """Add a number of `width` bits (32 at most) to `bits`, of which `filled` are waiting; write 32 bits once there are.

    Returns the waiting bits, their number, and where the next ones go.
    """
    bits |= number << np.uint64(filled)
    filled += width
    if filled >= 32:
        store_word(out, to, bits)
        bits >>= np.uint64(32)
        filled -= 32
        to += 4
    return bits, filled, to


@inlined
def _fill(bits: Any, out: Any, to: int, end: int) -> None:
    """Write the remaining bits, and zeros up to `end`."""
    while to < end:
        store_word(out, to, bits)
        bits = np.uint64(0)
        to += WORD


@kernel
def pack(values: Any, width: int, out: Any, to: int) -> int:
    """The values, which are not negative, in `width` bits (1 to 32) each, the lowest bits first.

    Zeros follow up to a number of values that is a multiple of eight.
    """
    end, packed = to + (values.size + 7) // 8 * width, np.uint64(0)
    if width <= WORD:  # eight values fit into a word
        packed = np.uint64(values.size // 8 * 8)
        for i in range(np.uint64(0), packed, np.uint64(8)):
            bits = np.uint64(0)
            for place in range(np.uint64(8)):
                bits |= np.uint64(values[i + place]) << place * np.uint64(width)
            store_word(out, to, bits)
            to += width
    bits, filled = np.uint64(0), 0
    for i in range(packed, np.uint64(values.size)):
        bits, filled, to = _put_bits(np.uint64(values[i]), width, bits, filled, out, to)
    _fill(bits, out, to, end)
    return end


@kernel
def list_levels(offsets: Any, valid: Any, first: int, last: int, repetition: Any, definition: Any) -> int:
    """The levels of the lists `[first, last)`, whose elements are not null; return their number.

    `offsets` (int32[n + 1]) are Arrow's; `valid` (bool[n]) is empty if no list is null. `repetition` and `definition`
    (uint8) have room for a level per element and list, and for one more word.
    """
    count = np.uint64(0)
    for row in range(first, last):
        size = np.uint64(offsets[row + 1] - offsets[row])
        if size == 0 or (valid.size > 0 and not valid[row]):
            repetition[count], definition[count] = 0, np.uint8(valid.size == 0 or valid[row])
            count += np.uint64(1)
            continue
        for i in range(np.uint64(0), size, np.uint64(WORD)):
            store_word(repetition, count + i, _REPEATED if i else _FIRST)
            store_word(definition, count + i, _DEFINED)
        count += size
    return np.int64(count)


@kernel
def number_values(values: Any, codes: Any, table: Any, found: Any) -> int:
    """Number the values in the order of their first appearance; return how many there are, -1 for too many.

    `codes` (int32[n]) gets the numbers, `found` the values by number; `table` (int32[a power of two]) is all -1 and
    more than twice as large as `found`.
    """
    count = 0
    for i in range(values.size):
        value = np.uint64(values[i])
        slot = np.int64((value * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & (table.size - 1)
        while table[slot] >= 0 and found[table[slot]] != values[i]:
            slot = (slot + 1) & (table.size - 1)
        if table[slot] < 0:
            if count == found.size:
                return -1
            table[slot] = count
            found[count] = values[i]
            count += 1
        codes[i] = table[slot]
    return count


@kernel
def mark(codes: Any, used: Any) -> None:
    """Set `used` (bool) at each of the codes, which are not negative."""
    for i in range(codes.size):
        used[np.uint64(codes[i])] = True


@inlined
def _put_varint(number: Any, out: Any, to: int) -> int:
    while number > np.uint64(0x7F):
        out[to] = np.uint8(number & np.uint64(0x7F) | np.uint64(0x80))
        number >>= np.uint64(7)
        to += 1
    out[to] = np.uint8(number)
    return to + 1


@inlined
def _put_signed(number: Any, out: Any, to: int) -> int:
    return _put_varint(np.uint64(number << np.int64(1)) ^ np.uint64(number >> np.int64(63)), out, to)


@inlined
def _bit_length(number: Any) -> int:
    length = 0
    while number:
        length += 1
        number >>= np.uint64(1)
    return length


@inlined
def _pack_deltas(deltas: Any, first: int, last: int, least: int, width: int, out: Any, to: int) -> int:
    """A miniblock: `deltas[first:last]` minus `least`, in `width` bits each; zeros fill it."""
    end = to + DELTA_MINIBLOCK * width // 8
    low_width = min(width, 32)
    bits, filled = np.uint64(0), 0
    for i in range(first, last):
        number = np.uint64(deltas[i] - least)
        bits, filled, to = _put_bits(number & _LOW, low_width, bits, filled, out, to)
        if width > 32:
            bits, filled, to = _put_bits(number >> np.uint64(32), width - 32, bits, filled, out, to)
    _fill(bits, out, to, end)
    return end


@inlined
def _put_block(deltas: Any, count: int, least: int, out: Any, to: int) -> int:
    """A block of `count` differences whose minimum is `least`."""
    to = _put_signed(least, out, to)
    widths = to
    to += _MINIBLOCKS
    for mini in range(_MINIBLOCKS):
        first, last = np.uint64(mini * DELTA_MINIBLOCK), np.uint64(min((mini + 1) * DELTA_MINIBLOCK, count))
        most = np.uint64(0)
        for i in range(first, last):
            most |= np.uint64(deltas[i] - least)
        width = _bit_length(most)
        out[widths + mini] = width
        if width:
            to = _pack_deltas(deltas, first, last, least, width, out, to)
    return to


@kernel
def put_deltas(values: Any, deltas: Any, out: Any, to: int) -> int:
    """DELTA_BINARY_PACKED: `values` (int32 or int64) by their differences.

    `deltas` (int64[DELTA_BLOCK]) is scratch. `out` has room for 16 bytes per value, and for `DELTA_BLOCK` values more.
    """
    to = _put_varint(np.uint64(DELTA_BLOCK), out, to)
    to = _put_varint(np.uint64(_MINIBLOCKS), out, to)
    to = _put_varint(np.uint64(values.size), out, to)
    to = _put_signed(np.int64(values[0]) if values.size else np.int64(0), out, to)
    # Unsigned indices let LLVM put several steps of a loop into one instruction.
    for begin in range(np.uint64(1), np.uint64(values.size), np.uint64(DELTA_BLOCK)):
        count = min(np.uint64(DELTA_BLOCK), np.uint64(values.size) - begin)
        least = np.int64(_MOST)
        for i in range(count):
            delta = np.int64(values[begin + i]) - np.int64(values[begin + i - np.uint64(1)])
            # It wraps around like integers of the values' size.
            deltas[i] = np.int64(np.int32(delta)) if values.itemsize == 4 else delta
            least = min(least, deltas[i])
        to = _put_block(deltas, np.int64(count), least, out, to)
    return to


@inlined
def _zero_bytes(word: Any) -> int:
    """The number of lowest bytes that are 0; `word` is not 0."""
    count = 0
    if word & _LOW == 0:
        word >>= np.uint64(32)
        count = 4
    if word & np.uint64(0xFFFF) == 0:
        word >>= np.uint64(16)
        count += 2
    return count + 1 if word & np.uint64(0xFF) == 0 else count


@inlined
def _shared(data: Any, left: int, right: int, size: int) -> int:
    """The number of equal leading bytes, of `size` bytes at either place."""
    first, second, end = np.uint64(left), np.uint64(right), np.uint64(size)
    i, word_ends = np.uint64(0), np.uint64(max(0, data.size - max(left, right) - WORD + 1))
    while i < end and i < word_ends:
        difference = load_word(data, first + i) ^ load_word(data, second + i)
        if difference != 0:
            return min(size, np.int64(i) + _zero_bytes(difference))
        i += np.uint64(WORD)
    while i < end and data[first + i] == data[second + i]:
        i += np.uint64(1)
    return min(np.int64(i), size)


@inlined
def _is_less(data: Any, ends: Any, left: int, right: int) -> bool:
    """Whether the text `left` comes before `right`, by bytes as unsigned numbers."""
    left_at, right_at = np.int64(ends[left]), np.int64(ends[right])
    left_size, right_size = ends[left + 1] - left_at, ends[right + 1] - right_at
    size = min(left_size, right_size)
    i = _shared(data, left_at, right_at, size)
    return data[left_at + i] < data[right_at + i] if i < size else left_size < right_size


@kernel
def text_bounds(ends: Any, data: Any) -> tuple[int, int]:
    """The rows of the least and of the greatest text, of which there is at least one."""
    least = greatest = np.int64(0)
    for row in range(1, ends.size - 1):
        if _is_less(data, ends, greatest, row):
            greatest = np.int64(row)
        elif _is_less(data, ends, row, least):
            least = np.int64(row)
    return least, greatest


@kernel
def shared_prefixes(ends: Any, data: Any, prefixes: Any) -> tuple[int, int]:
    """The number of leading bytes that each text shares with the previous one, into `prefixes` (int32[n]).

    The first text shares 0. Returns the result of `text_bounds`: for most texts the comparison with the previous one,
    made here, is enough.
    """
    least = greatest = np.int64(0)
    prefixes[0] = 0
    before, size_before = np.int64(ends[0]), np.int64(ends[1]) - np.int64(ends[0])
    for row in range(1, ends.size - 1):
        at, size = np.int64(ends[row]), np.int64(ends[row + 1]) - np.int64(ends[row])
        most = min(size_before, size)
        prefix = _shared(data, before, at, most)
        prefixes[row] = prefix
        if data[before + prefix] < data[at + prefix] if prefix < most else size_before < size:
            if greatest == row - 1 or _is_less(data, ends, greatest, row):
                greatest = np.int64(row)
        elif least == row - 1 or _is_less(data, ends, row, least):
            least = np.int64(row)
        before, size_before = at, size
    return least, greatest


@kernel
def put_suffixes(ends: Any, data: Any, prefixes: Any, first: int, last: int, out: Any, to: int) -> int:
    """DELTA_BYTE_ARRAY's third part: the texts `[first, last)`, each without its first bytes.

    `prefixes` (int32) has their numbers, for these texts only. `out` has a word more than the suffixes.
    """
    safe = data.size - 2 * WORD
    for row in range(first, last):
        at = ends[row] + prefixes[row - first]
        size = ends[row + 1] - at
        if size <= WORD and at <= safe:
            store_word(out, to, load_word(data, at))
        else:
            copy_bytes(data, at, size, out, to)
        to += size
    return to
