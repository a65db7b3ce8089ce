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

# What a kernel says of a number: good, none to Java, or not judged here: non-ASCII digits are left to `java_string`.
NUMBER, NO_NUMBER, NOT_ASCII = -1, 0, -2
_SHORT_MAX, _INT_MAX, _LONG_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
_BATCH_NUM, _MSG_BASE_OFFSET = props.DEFAULT_BATCH_NUM, props.DEFAULT_MSG_BASE_OFFSET


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
def _parse_ascii(data: Any, at: int, size: int, most: int) -> tuple[int, int]:
    """Java's parse of ASCII text as an integer up to `most`: (value, NUMBER), or (0, NO_NUMBER or NOT_ASCII)."""
    end = at + size
    negative = data[at] == 0x2D
    start = at + 1 if negative or data[at] == 0x2B else at
    if start == end:
        return 0, NO_NUMBER
    for i in range(start, end):
        if data[i] >= 0x80:
            return 0, NOT_ASCII
    # Below 0, as Java does: there is room for one more than above.
    least = -most - 1 if negative else -most
    value = np.int64(0)
    for i in range(start, end):
        if data[i] < 0x30 or data[i] > 0x39:
            return 0, NO_NUMBER
        digit = np.int64(data[i] - 0x30)
        if value < (least + digit + 9) // 10:
            return 0, NO_NUMBER
        value = value * 10 - digit
    return value if negative else -value, NUMBER


@njit(cache=True)
def tags_codes(data: Any, parts: Any, count: int, spans: Any, delays_ms: Any, codes: Any) -> tuple[int, int]:
    """Fill `codes` (int64[count]) by the rule of ``message_properties.tags_code``.

    Returns (row, why) of the first row it could not fill: why is NO_NUMBER where the broker refuses the record, and
    NOT_ASCII where the caller must decide; (count, NUMBER) when all are filled.
    """
    for row in range(count):
        codes[row] = java_hash(data, spans[row, TAGS, 0], spans[row, TAGS, 1], 0)
        if spans[row, DELAY, 1] == 0 or parts[row, TOPIC_SIZE] != _SCHEDULE_TOPIC.size:
            continue
        if not spans_equal(data, parts[row, TOPIC], _SCHEDULE_TOPIC, 0, _SCHEDULE_TOPIC.size):
            continue
        level, why = _parse_ascii(data, spans[row, DELAY, 0], spans[row, DELAY, 1], _INT_MAX)
        if why != NUMBER:
            return row, why
        level = min(level, delays_ms.size)
        if level > 0:
            at = parts[row, AT]
            shift = _V6_EXTRA if load_i32(data, at + _SYS_FLAG_AT) & _BORN_V6 else 0
            codes[row] = load_i64(data, at + _STORE_TIMESTAMP_AT + shift) + delays_ms[level - 1]
    return count, NUMBER


@njit(cache=True)
def inner_batches(data: Any, spans: Any, count: int, first: int, batch_nums: Any, base_offsets: Any) -> tuple[int, int]:
    """Fill `batch_nums` (int32[n]) and `base_offsets` (int64[n]) from row `first` on.

    The rule is ``message_properties.inner_batch``'s. Arrays without an element are not filled: the numbers are only
    judged. Returns as `tags_codes` does.
    """
    for row in range(first, count):
        num, base = _BATCH_NUM, _MSG_BASE_OFFSET
        if spans[row, INNER_NUM, 1] > 0 and spans[row, INNER_BASE, 1] > 0:
            base, base_why = _parse_ascii(data, spans[row, INNER_BASE, 0], spans[row, INNER_BASE, 1], _LONG_MAX)
            num, num_why = _parse_ascii(data, spans[row, INNER_NUM, 0], spans[row, INNER_NUM, 1], _SHORT_MAX)
            if NOT_ASCII in (base_why, num_why):
                return row, NOT_ASCII
            if NO_NUMBER in (base_why, num_why):
                return row, NO_NUMBER
        if batch_nums.size:
            batch_nums[row] = num
            base_offsets[row] = base
    return count, NUMBER
