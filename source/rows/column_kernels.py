"""Compiled kernels that lay text out as Arrow wants it: bytes in one buffer and the end of each value, or numbers.

Each adds to what a column has from earlier windows. Spans are read by words of eight bytes, where the buffer holds the
whole word.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source.kernels.byte_kernels import (
    WORD,
    copy_bytes,
    find_byte,
    find_either,
    inlined,
    kernel,
    load_bytes,
    spans_equal,
    store_word,
)
from reput.source.kernels.record_kernels import AT, PROPERTIES, PROPERTIES_SIZE, TOPIC, TOPIC_SIZE
from reput.source.record import message_format as fmt
from reput.source.record import message_properties as props
from reput.source.record.message_format import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG

_ITEM_END = ord(props.PROPERTY_SEPARATOR)
_NAME_END = ord(props.NAME_VALUE_SEPARATOR)
_KEY_SEPARATOR = ord(props.KEY_SEPARATOR)
# The number of bytes whose hexadecimal digits are a word.
_HEX_BYTES = 4

_FACTOR = np.uint64(0x9E3779B97F4A7C15)

#: The rows of `field_spans`: three fields, then the properties as ``property_kernels.LOCATED`` has them.
TOPIC_FIELD, BORN_HOST_FIELD, STORE_HOST_FIELD, PROPERTY_FIELDS = range(4)
_BORN_HOST_AT, _HOST_V4_SIZE, _HOST_V6_SIZE = fmt.BORN_HOST_AT, fmt.HOST_V4_SIZE, fmt.HOST_V6_SIZE
_BORN_V6, _STORE_V6 = BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG


@kernel
def field_spans(parts: Any, spans: Any, sys_flags: Any, store_hosts: Any, out: Any) -> None:
    """Lay out where each record's texts and hosts are, as the other kernels need it.

    `out` (int64[fields, 2, n]) gets a field's starts and sizes: topic, born host, store host, and as many properties of
    `spans` as it has room for. `parts`, `spans` and `sys_flags` are ``RecordColumns``'s, `store_hosts` is
    ``OtherFields.store_host_at``.
    """
    for row in range(parts.shape[0]):
        out[TOPIC_FIELD, 0, row], out[TOPIC_FIELD, 1, row] = parts[row, TOPIC], parts[row, TOPIC_SIZE]
        out[BORN_HOST_FIELD, 0, row] = parts[row, AT] + _BORN_HOST_AT
        out[BORN_HOST_FIELD, 1, row] = _HOST_V6_SIZE if sys_flags[row] & _BORN_V6 else _HOST_V4_SIZE
        out[STORE_HOST_FIELD, 0, row] = store_hosts[row]
        out[STORE_HOST_FIELD, 1, row] = _HOST_V6_SIZE if sys_flags[row] & _STORE_V6 else _HOST_V4_SIZE
        for i in range(out.shape[0] - PROPERTY_FIELDS):
            out[PROPERTY_FIELDS + i, 0, row] = spans[row, i, 0]
            out[PROPERTY_FIELDS + i, 1, row] = spans[row, i, 1]


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

    `ends` (int32[n + 1]) gets the end of each value. `out` has room for one word more than the spans.
    """
    to = ends[0]
    for row in range(starts.size):
        copy_bytes(data, starts[row], sizes[row], out, to)
        to += sizes[row]
        ends[row + 1] = to


@inlined
def _hash(data: Any, at: int, size: int) -> int:
    code = np.uint64(size)
    for i in range(0, size, WORD):
        code = (code ^ load_bytes(data, at + i, min(WORD, size - i))) * _FACTOR
        code ^= code >> np.uint64(32)
    return np.int64((code * _FACTOR) >> np.uint64(32))


@inlined
def _is_text(data: Any, at: int, size: int, ends: Any, out: Any, number: int) -> bool:
    begin = ends[number]
    return ends[number + 1] - begin == size and spans_equal(data, at, out, begin, size)


@inlined
def _slot_of(data: Any, at: int, size: int, table: Any, ends: Any, out: Any) -> int:
    """The slot of a text's number, or the free one that it would get."""
    slot = _hash(data, at, size) & (table.size - 1)
    while table[slot] >= 0 and not _is_text(data, at, size, ends, out, table[slot]):
        slot = (slot + 1) & (table.size - 1)
    return slot


@inlined
def _has_room(size: int, table: Any, count: int, ends: Any, out: Any) -> bool:
    return count + 1 < ends.size and 2 * (count + 1) <= table.size and ends[count] + size + WORD <= out.size


@inlined
def _put_text(data: Any, at: int, size: int, table: Any, slot: int, count: int, ends: Any, out: Any) -> None:
    table[slot] = count
    copy_bytes(data, at, size, out, ends[count])
    ends[count + 1] = ends[count] + size


@kernel
def number_spans(
    data: Any, starts: Any, sizes: Any, first: int, codes: Any, table: Any, count: int, ends: Any, out: Any
) -> tuple[int, int]:
    """Number the spans' bytes in the order of their first appearance; each is first compared with the one before it.

    Parameters
    ----------
    first
        The row to begin with.
    codes
        int32[n], gets each span's number, -1 for an empty one.
    table
        int32[a power of two, at least twice the numbers], the number or -1; see `index_texts`.
    count, ends, out
        The number of numbers that exist already; the bytes of each as `gather` leaves them.

    Returns
    -------
    The first row that there was no room for, or the end; the number of numbers.
    """
    last = np.int64(-1)
    for row in range(first, starts.size):
        at, size = starts[row], sizes[row]
        if size == 0:
            codes[row] = -1
            continue
        if last >= 0 and _is_text(data, at, size, ends, out, last):
            codes[row] = last
            continue
        slot = _slot_of(data, at, size, table, ends, out)
        if table[slot] < 0:
            if not _has_room(size, table, count, ends, out):
                return row, count
            _put_text(data, at, size, table, slot, count, ends, out)
            count += 1
        codes[row] = last = np.int64(table[slot])
    return starts.size, count


@kernel
def index_texts(table: Any, count: int, ends: Any, out: Any) -> None:
    """Put the first `count` numbers of `number_spans` into a table filled with -1."""
    for number in range(count):
        slot = _hash(out, ends[number], ends[number + 1] - ends[number]) & (table.size - 1)
        while table[slot] >= 0:
            slot = (slot + 1) & (table.size - 1)
        table[slot] = number


@kernel
def list_keys(data: Any, starts: Any, sizes: Any, row_ends: Any, ends: Any, out: Any) -> int:
    """Copy the single keys of each KEYS span; `row_ends` (int32[n + 1]) counts them row by row, from `row_ends[0]` on.

    `ends` and `out` are of all keys, as in `gather`; a span has at most one key per two bytes, rounded up. Returns the
    number of keys.
    """
    count = row_ends[0]
    to = ends[count]
    for row in range(starts.size):
        at = starts[row]
        end = at + sizes[row]
        while at < end:
            stop = find_byte(data, at, end, _KEY_SEPARATOR)
            if stop > at:
                copy_bytes(data, at, stop - at, out, to)
                to += stop - at
                count += 1
                ends[count] = to
            at = stop + 1
        row_ends[row + 1] = count
    return count


@kernel
def add_properties(
    data: Any,
    parts: Any,
    first: int,
    row_ends: Any,
    codes: Any,
    table: Any,
    count: int,
    ends: Any,
    out: Any,
    value_ends: Any,
    values: Any,
) -> tuple[int, int, int]:
    """Number the name of every property, and copy its value, by the rules of ``message_properties.parse_properties``.

    Most records have the names of the record before in the same order, so a name is first compared with that.

    Parameters
    ----------
    first
        The row to begin with.
    row_ends
        int32[n + 1], counts the items row by row, from `row_ends[0]` on.
    codes, value_ends, values
        int32[m], the name's number for each of these rows' items; their values as `gather` leaves them, `value_ends`
        int32[m + 1]. m must be enough for all: no record has more items than a quarter of its properties' bytes,
        rounded up.
    table, count, ends, out
        Of the names, see `number_spans`.

    Returns
    -------
    The first row that there was no room for, or the end; the number of items of the rows before it, where a name may
    appear more than once; the number of numbers.
    """
    item = np.int64(row_ends[first] - row_ends[0])
    to = np.int64(value_ends[item])
    before = np.int64(0)  # items of the previous row
    for row in range(first, parts.shape[0]):
        begin = item
        at = parts[row, PROPERTIES]
        end = at + parts[row, PROPERTIES_SIZE]
        while at < end:
            number = np.int64(-1)
            if before > 0:
                guess = codes[item - before]
                name_end = at + ends[guess + 1] - ends[guess]
                if (
                    name_end < end
                    and data[name_end] == _NAME_END
                    and spans_equal(data, at, out, ends[guess], name_end - at)
                ):
                    number = np.int64(guess)
            if number < 0:
                name_end = find_either(data, at, end, _NAME_END, _ITEM_END)
                if name_end == end or data[name_end] == _ITEM_END:
                    at = name_end + 1
                    continue
            stop = find_byte(data, name_end + 1, end, _ITEM_END)
            if name_end > at and name_end + 1 < stop:
                if number < 0:
                    slot = _slot_of(data, at, name_end - at, table, ends, out)
                    if table[slot] < 0:
                        if not _has_room(name_end - at, table, count, ends, out):
                            return row, begin, count
                        _put_text(data, at, name_end - at, table, slot, count, ends, out)
                        count += 1
                    number = np.int64(table[slot])
                codes[item] = number
                copy_bytes(data, name_end + 1, stop - name_end - 1, values, to)
                to += stop - name_end - 1
                item += 1
                value_ends[item] = to
            at = stop + 1
        before = item - begin
        row_ends[row + 1] = row_ends[0] + item
    return parts.shape[0], item, count


@kernel
def keep_last(row_ends: Any, names: Any, latest: Any, kept: Any) -> int:
    """Keep each name once per row, at its first place, with its last value; return how many are kept.

    `row_ends` begins with 0 and `names` (int32[m]) are the items' numbers; both are changed. `latest` is int64 scratch
    with an element per number, all -1. `kept` (int64[m]) gets, for each name kept, the item whose value it has.
    """
    count = first = 0
    for row in range(row_ends.size - 1):
        row_first = count
        for item in range(first, row_ends[row + 1]):
            slot = latest[names[item]]
            if slot < row_first:  # the first one in this row
                slot = count
                names[slot], latest[names[item]] = names[item], slot
                count += 1
            kept[slot] = item
        first = row_ends[row + 1]
        row_ends[row + 1] = count
    return count


@inlined
def _hex_digits(number: Any) -> Any:
    """The upper-case digits of four bytes, the lowest byte first, as a word whose bytes are in this order."""
    number = (number | number << np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    number = (number | number << np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    low = np.uint64(0x000F000F000F000F)
    halves = number >> np.uint64(4) & low | (number & low) << np.uint64(8)
    are_letters = (halves + np.uint64(0x0606060606060606)) >> np.uint64(4) & np.uint64(0x0101010101010101)
    return halves + np.uint64(0x3030303030303030) + are_letters * np.uint64(ord("A") - ord("9") - 1)


@kernel
def message_ids(data: Any, hosts: Any, host_sizes: Any, offsets: Any, ends: Any, out: Any) -> None:
    """Write offset message ids (``MessageDecoder#createMessageId``): host, port and physical offset in upper-case hex.

    `ends` (int32[n + 1]) gets the end of each in `out` (uint8), from `ends[0]` on.
    """
    to = ends[0]
    for row in range(hosts.size):
        for at in range(hosts[row], hosts[row] + host_sizes[row], _HEX_BYTES):  # 8 bytes or 20
            store_word(out, to, _hex_digits(load_bytes(data, at, _HEX_BYTES)))
            to += WORD
        offset: Any = np.uint64(offsets[row])
        reverse: Any = np.uint64(0)
        for _ in range(WORD):
            reverse = reverse << np.uint64(8) | offset & np.uint64(0xFF)
            offset >>= np.uint64(8)
        store_word(out, to, _hex_digits(reverse & np.uint64(0xFFFFFFFF)))
        store_word(out, to + WORD, _hex_digits(reverse >> np.uint64(32)))
        to += 2 * WORD
        ends[row + 1] = to
