"""The compiled ``String#hashCode``, of UTF-8 bytes that are never made a string."""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source.kernels.byte_kernels import WORD, load_word
from reput.source.kernels.compile import inlined, kernel

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
    """Continue `value` with the units of any text, one by one."""
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
    """The hash of eight ASCII units, the first one lowest: neighbours are put together, then pairs, then fours."""
    units, pairs = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
    by_two = (word & units) * _POWERS[1] + (word >> np.uint64(8) & units)
    by_four = (by_two & pairs) * _POWERS[2] + (by_two >> np.uint64(16) & pairs)
    return (by_four & np.uint64(0xFFFFFFFF)) * _POWERS[4] + (by_four >> np.uint64(32))


@inlined
def java_hash(data: Any, at: int, size: int, seed: int) -> int:
    """``String#hashCode`` of UTF-8 bytes, continued from `seed` (0 to begin): int32 as int64.

    ``java_hash(b, ..., java_hash(a, ..., 0))`` is the hash of the two texts one after the other.
    """
    # Carries above 32 bits never come down again: they are cut off at the end.
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
    # The last units with zeros before them, which add nothing.
    word = load_word(data, end - WORD) & np.uint64(_ALL) << np.uint64(8 * (WORD - left))
    if word & not_ascii:
        return np.int64(np.int32(_hash_units(data, at, end, value)))
    return np.int64(np.int32(value * _POWERS[left] + _hash_word(word)))
