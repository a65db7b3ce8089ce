"""Compiled kernels over properties: they find the ones that the store reads, and compute tags code and inner batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source.kernels.byte_kernels import WORD, find_byte, inlined, kernel, load_bytes, load_word, spans_equal
from reput.source.kernels.record_kernels import PROPERTIES, PROPERTIES_SIZE, TOPIC, TOPIC_SIZE
from reput.source.record import message_properties as props

# ----------------------------------------------------------------------------------------------------------------------
# The compiled ``String#hashCode`` of UTF-8 bytes, without making a string of them.

_FACTOR = 31
_POWERS = np.array([_FACTOR**power & 0xFFFFFFFF for power in range(WORD + 1)], dtype=np.uint64)
_NOT_ASCII = 0x8080808080808080
_ALL = 0xFFFFFFFFFFFFFFFF


@kernel
def _next_unit(data: Any, at: int, end: int) -> tuple[int, int]:
    """The code point of the non-ASCII sequence at `at` as Java decodes it (U+FFFD if malformed), and its size."""
    first = data[at]
    left = end - at
    second_ok = left > 1 and (data[at + 1] & 0xC0) == 0x80
    if 0xC2 <= first <= 0xDF:
        if second_ok:
            return (np.int64(first & 0x1F) << 6) | np.int64(data[at + 1] & 0x3F), 2
        return 0xFFFD, 1
    if 0xE0 <= first <= 0xEF:
        if not second_ok or (first == 0xE0 and data[at + 1] < 0xA0):
            return 0xFFFD, 1
        if left < 3 or (data[at + 2] & 0xC0) != 0x80:
            return 0xFFFD, 2
        point = (np.int64(first & 0x0F) << 12) | (np.int64(data[at + 1] & 0x3F) << 6) | np.int64(data[at + 2] & 0x3F)
        return (0xFFFD if 0xD800 <= point <= 0xDFFF else point), 3
    if 0xF0 <= first <= 0xF4:
        if not second_ok or (first == 0xF0 and data[at + 1] < 0x90) or (first == 0xF4 and data[at + 1] > 0x8F):
            return 0xFFFD, 1
        if left < 3 or (data[at + 2] & 0xC0) != 0x80:
            return 0xFFFD, 2
        if left < 4 or (data[at + 3] & 0xC0) != 0x80:
            return 0xFFFD, 3
        point = (
            (np.int64(first & 0x07) << 18)
            | (np.int64(data[at + 1] & 0x3F) << 12)
            | (np.int64(data[at + 2] & 0x3F) << 6)
            | np.int64(data[at + 3] & 0x3F)
        )
        return point, 4
    return 0xFFFD, 1


@kernel
def _hash_units(data: Any, at: int, end: int, value: Any) -> Any:
    """Continue `value` with the UTF-16 units of any text, one by one."""
    factor = np.uint64(_FACTOR)
    while at < end:
        if data[at] < 0x80:
            value = value * factor + np.uint64(data[at])
            at += 1
        else:
            point, used = _next_unit(data, at, end)
            if point > 0xFFFF:
                value = value * factor + np.uint64(0xD7C0 + (point >> 10))
                point = 0xDC00 | (point & 0x3FF)
            value = value * factor + np.uint64(point)
            at += used
    return value


@inlined
def _hash_word(word: int) -> int:
    """The hash of eight ASCII units, the first one lowest: combines neighbours, then pairs, then fours."""
    units, pairs = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
    by_two = (word & units) * _POWERS[1] + (word >> np.uint64(8) & units)
    by_four = (by_two & pairs) * _POWERS[2] + (by_two >> np.uint64(16) & pairs)
    return (by_four & np.uint64(0xFFFFFFFF)) * _POWERS[4] + (by_four >> np.uint64(32))


@inlined
def java_hash(data: Any, at: int, size: int, seed: int) -> int:
    """``String#hashCode`` of UTF-8 bytes, continued from `seed` (0 to begin): int32 as int64.

    ``java_hash(b, ..., java_hash(a, ..., 0))`` is the hash of the two texts one after the other.
    """
    # Bits above 32 never affect the lower ones; they are cut off at the end.
    value = np.uint64(seed)
    end = at + size
    not_ascii = np.uint64(_NOT_ASCII)
    while at + WORD <= end:
        word = load_word(data, at)
        if word & not_ascii:
            return np.int64(np.int32(_hash_units(data, at, end, value)))
        value = value * _POWERS[WORD] + _hash_word(word)
        at += WORD
    left = end - at
    if left <= 0:
        return np.int64(np.int32(value))
    if end < WORD:
        return np.int64(np.int32(_hash_units(data, at, end, value)))
    # The last units, after zeros, which add nothing.
    word = load_word(data, end - WORD) & np.uint64(_ALL) << np.uint64(8 * (WORD - left))
    if word & not_ascii:
        return np.int64(np.int32(_hash_units(data, at, end, value)))
    return np.int64(np.int32(value * _POWERS[left] + _hash_word(word)))


# The properties that the store reads, in the order of the columns that `locate_properties` fills.
LOCATED = (
    props.PROPERTY_TAGS,
    props.PROPERTY_KEYS,
    props.PROPERTY_UNIQ_KEY,
    props.PROPERTY_DELAY,
    props.PROPERTY_REAL_TOPIC,
    props.PROPERTY_REAL_QUEUE_ID,
    props.PROPERTY_INNER_MULTI_DISPATCH,
    props.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    props.PROPERTY_INNER_NUM,
    props.PROPERTY_INNER_BASE,
)
TAGS, KEYS, UNIQ_KEY, DELAY, REAL_TOPIC, REAL_QUEUE_ID = range(6)
MULTI_DISPATCH, MULTI_QUEUE_OFFSET, INNER_NUM, INNER_BASE = range(6, len(LOCATED))

_NAMED = [f"{name}{props.NAME_VALUE_SEPARATOR}".encode() for name in LOCATED]
_NAMES = np.frombuffer(b"".join(_NAMED), dtype=np.uint8)
_NAME_SIZES = np.array([len(name) for name in _NAMED], dtype=np.int64)  # with the separator
_NAME_STARTS = np.cumsum(_NAME_SIZES) - _NAME_SIZES
_NAME_HEADS = np.array([int.from_bytes(name[:WORD], "little") for name in _NAMED], dtype=np.uint64)
_HEAD_MASKS = np.array([(1 << 8 * min(WORD, len(name))) - 1 for name in _NAMED], dtype=np.uint64)
_LOCATED_COUNT = len(LOCATED)
# The names that begin with byte b: `_BY_LETTER[_LETTER_BEGINS[b] : _LETTER_BEGINS[b + 1]]`.
_BY_LETTER = np.argsort(_NAMES[_NAME_STARTS], kind="stable")
_LETTER_BEGINS = np.searchsorted(_NAMES[_NAME_STARTS][_BY_LETTER], np.arange(257))
_ITEM_END = ord(props.PROPERTY_SEPARATOR)

_SCHEDULE_TOPIC = np.frombuffer(props.SCHEDULE_TOPIC.encode(), dtype=np.uint8)

_SHORT_MAX, _INT_MAX, _LONG_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
_BATCH_NUM, _MSG_BASE_OFFSET = props.DEFAULT_BATCH_NUM, props.DEFAULT_MSG_BASE_OFFSET


@inlined
def _known_property(data: Any, at: int, size: int) -> int:
    """The index in LOCATED of the item `data[at:at + size]`, or -1; an item without a value is not a property."""
    head = load_bytes(data, at, min(WORD, data.size - at))
    for i in range(_LETTER_BEGINS[data[at]], _LETTER_BEGINS[data[at] + 1]):
        index = _BY_LETTER[i]
        name_size = _NAME_SIZES[index]
        if name_size < size and head & _HEAD_MASKS[index] == _NAME_HEADS[index]:
            rest = name_size - WORD
            if rest <= 0 or spans_equal(data, at + WORD, _NAMES, _NAME_STARTS[index] + WORD, rest):
                return index
    return -1


@inlined
def locate_properties(data: Any, parts: Any, row: int, spans: Any) -> None:
    """Fill `spans[row]` (int32[n, len(LOCATED), 2]: start in `data`, size; size 0 = absent).

    The rules are those of ``message_properties.parse_properties``; the separators are ASCII, so bytes and text agree. A
    name ends at the first separator: an item is one of LOCATED if it begins with the name and that separator.
    """
    for index in range(_LOCATED_COUNT):
        spans[row, index, 0] = 0
        spans[row, index, 1] = 0
    at = parts[row, PROPERTIES]
    end = at + parts[row, PROPERTIES_SIZE]
    while at < end:
        stop = find_byte(data, at, end, _ITEM_END)
        index = _known_property(data, at, stop - at)
        if index >= 0:
            spans[row, index, 0] = at + _NAME_SIZES[index]
            spans[row, index, 1] = stop - at - _NAME_SIZES[index]
        at = stop + 1


@kernel
def _parse_ascii(data: Any, at: int, size: int, most: int) -> tuple[int, bool]:
    """The integer up to `most` that Java parses from ASCII text, and whether there is one.

    Digits beyond ASCII also give (0, False). Java reads them, but they are so rare that the reference decoder judges
    them.
    """
    end = at + size
    negative = data[at] == 0x2D
    start = at + 1 if negative or data[at] == 0x2B else at
    # Counted below 0, as in Java: there is room for one more number than above.
    least = -most - 1 if negative else -most
    value = np.int64(0)
    for i in range(start, end):
        digit = np.int64(data[i]) - 0x30
        if digit < 0 or digit > 9 or value < (least + digit + 9) // 10:
            return 0, False
        value = value * 10 - digit
    return value if negative else -value, start < end


@inlined
def tags_code(data: Any, parts: Any, row: int, spans: Any, store_timestamp: int, delays_ms: Any) -> tuple[int, bool]:
    """The tags code of one record by the rule of ``message_properties.tags_code``.

    The second result is False if DELAY counts and `_parse_ascii` cannot read it: the reference decoder must judge it.
    """
    code = java_hash(data, spans[row, TAGS, 0], spans[row, TAGS, 1], 0)
    if spans[row, DELAY, 1] == 0:
        return code, True
    return _delayed_code(data, parts, row, spans, store_timestamp, delays_ms, code)


@kernel
def _delayed_code(
    data: Any, parts: Any, row: int, spans: Any, store_timestamp: int, delays_ms: Any, code: int
) -> tuple[int, bool]:
    if parts[row, TOPIC_SIZE] != _SCHEDULE_TOPIC.size:
        return code, True
    if not spans_equal(data, parts[row, TOPIC], _SCHEDULE_TOPIC, 0, _SCHEDULE_TOPIC.size):
        return code, True
    level, is_number = _parse_ascii(data, spans[row, DELAY, 0], spans[row, DELAY, 1], _INT_MAX)
    level = min(level, delays_ms.size)
    return store_timestamp + delays_ms[level - 1] if level > 0 else code, is_number


@inlined
def inner_batch(data: Any, row: int, spans: Any) -> tuple[int, int, bool]:
    """Number of messages and base offset of one record by the rule of ``message_properties.inner_batch``.

    The third result is False if `_parse_ascii` cannot read one of the two: the reference decoder must judge it.
    """
    if spans[row, INNER_NUM, 1] == 0 or spans[row, INNER_BASE, 1] == 0:
        return _BATCH_NUM, _MSG_BASE_OFFSET, True
    return _named_batch(data, row, spans)


@kernel
def _named_batch(data: Any, row: int, spans: Any) -> tuple[int, int, bool]:
    num, is_num = _parse_ascii(data, spans[row, INNER_NUM, 0], spans[row, INNER_NUM, 1], _SHORT_MAX)
    base, is_base = _parse_ascii(data, spans[row, INNER_BASE, 0], spans[row, INNER_BASE, 1], _LONG_MAX)
    return num, base, is_num and is_base
