"""Compiled kernels over properties: where the store's own properties are, Java's hash, the delay level."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from reput.source import message_format as fmt
from reput.source import message_properties as props
from reput.source.message_sys_flag import BORNHOST_V6_FLAG
from reput.source.record_kernels import (
    AT,
    PROPERTIES,
    PROPERTIES_SIZE,
    TOPIC,
    TOPIC_SIZE,
    load_i32,
    load_i64,
)

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

_NAMES = np.frombuffer("".join(LOCATED).encode(), dtype=np.uint8)
_NAME_SIZES = np.array([len(name) for name in LOCATED], dtype=np.int64)
_NAME_STARTS = np.concatenate([[0], np.cumsum(_NAME_SIZES)[:-1]]).astype(np.int64)
_LOCATED_COUNT = len(LOCATED)
_ITEM_END = ord(props.PROPERTY_SEPARATOR)
_NAME_END = ord(props.NAME_VALUE_SEPARATOR)

_SCHEDULE_TOPIC = np.frombuffer(props.SCHEDULE_TOPIC.encode(), dtype=np.uint8)
_SYS_FLAG_AT, _STORE_TIMESTAMP_AT = fmt.SYS_FLAG_AT, fmt.STORE_TIMESTAMP_AT
_BORN_V6, _V6_EXTRA = BORNHOST_V6_FLAG, fmt.HOST_V6_EXTRA

# What `tags_codes` says of a DELAY that it does not judge itself: non-ASCII digits are left to `java_string`.
DELAY_NOT_ASCII = -2
NO_BAD_DELAY = -1
_INT_MAX = 2**31 - 1


@njit(cache=True)
def spans_equal(left: Any, left_at: int, right: Any, right_at: int, size: int) -> bool:
    """Whether `size` bytes at the two places are equal."""
    for i in range(size):  # noqa: SIM110  numba compiles no generator expressions
        if left[left_at + i] != right[right_at + i]:
            return False
    return True


@njit(cache=True)
def _known_property(data: Any, at: int, size: int) -> int:
    """Which of LOCATED the name at `at` is, or -1."""
    for index in range(_LOCATED_COUNT):
        if size == _NAME_SIZES[index] and spans_equal(data, at, _NAMES, _NAME_STARTS[index], size):
            return index
    return -1


@njit(cache=True)
def locate_properties(data: Any, parts: Any, count: int, spans: Any) -> None:
    """Fill `spans` (int32[count, len(LOCATED), 2]: start in `data`, size; size 0 = absent).

    The rules are ``message_properties.parse_properties``'s; the separators are ASCII, so bytes and text agree.
    """
    for row in range(count):
        for index in range(_LOCATED_COUNT):
            spans[row, index, 0] = 0
            spans[row, index, 1] = 0
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
                index = _known_property(data, at, name_end - at)
                if index >= 0:
                    spans[row, index, 0] = name_end + 1
                    spans[row, index, 1] = stop - name_end - 1
            at = stop + 1


@njit(cache=True)
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


@njit(cache=True)
def java_hash(data: Any, at: int, size: int, seed: int) -> int:
    """``String#hashCode`` of UTF-8 bytes, continued from `seed` (0 to begin): int32 as int64.

    ``java_hash(b, ..., java_hash(a, ..., 0))`` is the hash of the two texts one after the other.
    """
    value = np.uint32(seed & 0xFFFFFFFF)
    end = at + size
    factor = np.uint32(31)
    while at < end:
        if data[at] < 0x80:
            value = value * factor + np.uint32(data[at])
            at += 1
        else:
            point, used = _next_unit(data, at, end)
            if point > 0xFFFF:
                value = value * factor + np.uint32(0xD7C0 + (point >> 10))
                point = 0xDC00 | (point & 0x3FF)
            value = value * factor + np.uint32(point)
            at += used
    return np.int64(np.int32(value))


@njit(cache=True)
def _parse_int_ascii(data: Any, at: int, size: int) -> tuple[int, int]:
    """``Integer#parseInt`` of ASCII text: (value, NO_BAD_DELAY), or (0, why not: 0 malformed, DELAY_NOT_ASCII)."""
    end = at + size
    negative = data[at] == 0x2D
    start = at + 1 if negative or data[at] == 0x2B else at
    if start == end:
        return 0, 0
    for i in range(start, end):
        if data[i] >= 0x80:
            return 0, DELAY_NOT_ASCII
    value = np.int64(0)
    for i in range(start, end):
        if data[i] < 0x30 or data[i] > 0x39:
            return 0, 0
        value = value * 10 + np.int64(data[i] - 0x30)
        if value > _INT_MAX + 1:
            return 0, 0
    value = -value if negative else value
    if value > _INT_MAX:
        return 0, 0
    return value, NO_BAD_DELAY


@njit(cache=True)
def tags_codes(data: Any, parts: Any, count: int, spans: Any, delays_ms: Any, codes: Any) -> tuple[int, int]:
    """Fill `codes` (int64[count]) by the rule of ``message_properties.tags_code``.

    Returns (row, why) of the first row it could not fill: why is 0 where the broker refuses the record, and
    DELAY_NOT_ASCII where the caller must decide; (count, NO_BAD_DELAY) when all are filled.
    """
    for row in range(count):
        codes[row] = java_hash(data, spans[row, TAGS, 0], spans[row, TAGS, 1], 0)
        if spans[row, DELAY, 1] == 0 or parts[row, TOPIC_SIZE] != _SCHEDULE_TOPIC.size:
            continue
        if not spans_equal(data, parts[row, TOPIC], _SCHEDULE_TOPIC, 0, _SCHEDULE_TOPIC.size):
            continue
        level, why = _parse_int_ascii(data, spans[row, DELAY, 0], spans[row, DELAY, 1])
        if why != NO_BAD_DELAY:
            return row, why
        level = min(level, delays_ms.size)
        if level > 0:
            at = parts[row, AT]
            shift = _V6_EXTRA if load_i32(data, at + _SYS_FLAG_AT) & _BORN_V6 else 0
            codes[row] = load_i64(data, at + _STORE_TIMESTAMP_AT + shift) + delays_ms[level - 1]
    return count, NO_BAD_DELAY
