"""How kernels are compiled, and those over bytes: integers, words of eight bytes, the search for a byte, comparison.

numba checks no bounds: a caller compares with the bytes at hand before it loads, and nothing here reads a byte that it
was not given. Indices are unsigned, because numba lets a signed one count from the end; with unsigned ones the compiler
makes one load, or one store, of all bytes of an integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function of numbers and arrays that makes no array itself.

    It counts no references, because its caller holds the arrays. Counting took more time than the work: a call from
    kernel to kernel costs two atomic operations per array. A kernel that makes an array fails to compile. Other threads
    run Python meanwhile.
    """
    return njit(cache=True, nogil=True, _nrt=False)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a small function like `kernel`, as a part of the kernels that call it for every record or word."""
    return njit(cache=True, nogil=True, _nrt=False, forceinline=True)(function)


WORD = 8
_ONES = 0x0101010101010101
_HIGH_BITS = 0x8080808080808080
_ALL = 0xFFFFFFFFFFFFFFFF


@inlined
def load_i16(data: Any, at: int) -> int:
    """The signed big-endian 16-bit integer at `at`."""
    i = np.uint64(at)
    return np.int16(np.uint16(data[i]) << np.uint16(8) | np.uint16(data[i + np.uint64(1)]))


@inlined
def load_i32(data: Any, at: int) -> int:
    """The signed big-endian 32-bit integer at `at`."""
    first = np.uint64(at)
    value = np.uint32(0)
    for i in range(np.uint64(4)):
        value = value << np.uint32(8) | np.uint32(data[first + i])
    return np.int32(value)


@inlined
def load_i64(data: Any, at: int) -> int:
    """The signed big-endian 64-bit integer at `at`."""
    first = np.uint64(at)
    value = np.uint64(0)
    for i in range(np.uint64(8)):
        value = value << np.uint64(8) | np.uint64(data[first + i])
    return np.int64(value)


@inlined
def load_word(data: Any, at: int) -> int:
    """The eight bytes at `at` as an unsigned integer, the first byte lowest."""
    first = np.uint64(at)
    value = np.uint64(0)
    for i in range(np.uint64(WORD)):
        value |= np.uint64(data[first + i]) << (i << np.uint64(3))
    return value


@inlined
def load_bytes(data: Any, at: int, size: int) -> int:
    """The `size` bytes (1 to 8) at `at` as an unsigned integer, the first byte lowest."""
    if at + WORD <= data.size:
        return load_word(data, at) & np.uint64(_ALL) >> np.uint64(8 * (WORD - size))
    return _load_each(data, at, size)


@kernel
def _load_each(data: Any, at: int, size: int) -> int:
    value = np.uint64(0)
    for i in range(size):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return value


@inlined
def store_i32(out: Any, row: int, at: int, value: int) -> None:
    """Write `value` big-endian to the four bytes of `out[row]` (uint8[n, m]) at `at`."""
    to, first = np.uint64(row), np.uint64(at)
    for i in range(np.uint64(4)):
        out[to, first + i] = np.uint8(value >> (24 - 8 * i))


@inlined
def store_i64(out: Any, row: int, at: int, value: int) -> None:
    """Write `value` big-endian to the eight bytes of `out[row]` (uint8[n, m]) at `at`."""
    to, first = np.uint64(row), np.uint64(at)
    for i in range(np.uint64(8)):
        out[to, first + i] = np.uint8(value >> (56 - 8 * i))


@inlined
def store_word(out: Any, to: int, word: int) -> None:
    """Write the eight bytes of `word` to `out` (uint8[n]) at `to`, the lowest first."""
    first = np.uint64(to)
    for i in range(np.uint64(WORD)):
        out[first + i] = np.uint8(word >> (i << np.uint64(3)))


@inlined
def zero_bytes(word: int) -> int:
    """The high bit of each byte of `word` that is 0; bits above the lowest of them are meaningless."""
    return (word - np.uint64(_ONES)) & ~word & np.uint64(_HIGH_BITS)


@inlined
def first_byte(marks: int) -> int:
    """The number of the lowest byte whose high bit is set in `marks`, which has only high bits and at least one."""
    below = ((marks - np.uint64(1)) & ~marks) >> np.uint64(7) & np.uint64(_ONES)
    return np.int64(below * np.uint64(_ONES) >> np.uint64(56))


@inlined
def find_byte(data: Any, at: int, end: int, byte: int) -> int:
    """The index of the first `byte` in `data[at:end]`, or `end`; `at` may equal `end`."""
    wanted = np.uint64(byte) * np.uint64(_ONES)
    while at < end and at + WORD <= data.size:
        found = zero_bytes(load_word(data, at) ^ wanted)
        if end - at < WORD:
            found |= np.uint64(0x80) << np.uint64(8 * (end - at))
        if found:
            return at + first_byte(found)
        at += WORD
    while at < end and data[at] != byte:
        at += 1
    return at


@inlined
def find_either(data: Any, at: int, end: int, byte: int, other: int) -> int:
    """The index of the first byte of `data[at:end]` that is one of the two, or `end`; `at` may equal `end`."""
    wanted, or_this = np.uint64(byte) * np.uint64(_ONES), np.uint64(other) * np.uint64(_ONES)
    while at < end and at + WORD <= data.size:
        word = load_word(data, at)
        # The bits that a borrow adds are above the first match of each byte, and so above the first match of either.
        found = zero_bytes(word ^ wanted) | zero_bytes(word ^ or_this)
        if end - at < WORD:
            found |= np.uint64(0x80) << np.uint64(8 * (end - at))
        if found:
            return at + first_byte(found)
        at += WORD
    while at < end and data[at] != byte and data[at] != other:
        at += 1
    return at


@inlined
def spans_equal(left: Any, left_at: int, right: Any, right_at: int, size: int) -> bool:
    """Whether the `size` bytes at the two indices are equal."""
    i = 0
    while i + WORD <= size:
        if load_word(left, left_at + i) != load_word(right, right_at + i):
            return False
        i += WORD
    if i == size:
        return True
    return load_bytes(left, left_at + i, size - i) == load_bytes(right, right_at + i, size - i)


@inlined
def copy_bytes(data: Any, at: int, size: int, out: Any, to: int) -> None:
    """Copy a span by words. This also writes up to seven bytes after it, which the next span overwrites."""
    if at + size + WORD <= data.size:
        for i in range(0, size, WORD):
            store_word(out, to + i, load_word(data, at + i))
    else:
        for i in range(size):
            out[to + i] = data[at + i]


# ----------------------------------------------------------------------------------------------------------------------
# The compiled CRC-32 (IEEE, reflected), as ``zlib.crc32`` and Java's ``CRC32`` give it.

# Four checksums, each of every fourth word, are combined at the end: a single one would wait for its own lookups.
_WORDS = 4
_ROUND_BYTES = _WORDS * WORD
_NEXT_ROUND = np.uint64(_ROUND_BYTES - WORD)


def _crc_tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Tables whose row k holds the effect of each byte on the checksum k bytes further on."""
    tables = np.zeros((_ROUND_BYTES, 256), dtype=np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
        tables[0, byte] = crc
    for row in range(1, _ROUND_BYTES):
        previous = tables[row - 1]
        tables[row] = previous >> 8 ^ tables[0][previous & 0xFF]
    return tables


_CRC = _crc_tables()


@kernel
def _fold(word: int, distance: int) -> int:
    """The effect of the eight bytes of `word` on the checksum `distance` bytes after them."""
    mask, row = np.uint64(0xFF), np.uint64(distance)
    return np.uint64(
        _CRC[row + np.uint64(7), word & mask]
        ^ _CRC[row + np.uint64(6), word >> np.uint64(8) & mask]
        ^ _CRC[row + np.uint64(5), word >> np.uint64(16) & mask]
        ^ _CRC[row + np.uint64(4), word >> np.uint64(24) & mask]
        ^ _CRC[row + np.uint64(3), word >> np.uint64(32) & mask]
        ^ _CRC[row + np.uint64(2), word >> np.uint64(40) & mask]
        ^ _CRC[row + np.uint64(1), word >> np.uint64(48) & mask]
        ^ _CRC[row, word >> np.uint64(56)]
    )


@kernel
def crc32(data: Any, start: int, size: int) -> int:
    """CRC-32 of `size` bytes from `start`, as ``zlib.crc32`` gives it (unsigned)."""
    crc = np.uint64(0xFFFFFFFF)
    at, end = start, start + size
    if size >= _ROUND_BYTES:
        second, third, fourth = np.uint64(0), np.uint64(0), np.uint64(0)
        while at + 2 * _ROUND_BYTES <= end:
            crc = _fold(load_word(data, at) ^ crc, _NEXT_ROUND)
            second = _fold(load_word(data, at + WORD) ^ second, _NEXT_ROUND)
            third = _fold(load_word(data, at + 2 * WORD) ^ third, _NEXT_ROUND)
            fourth = _fold(load_word(data, at + 3 * WORD) ^ fourth, _NEXT_ROUND)
            at += _ROUND_BYTES
        crc = _fold(load_word(data, at) ^ crc, 0)
        crc = _fold(load_word(data, at + WORD) ^ second ^ crc, 0)
        crc = _fold(load_word(data, at + 2 * WORD) ^ third ^ crc, 0)
        crc = _fold(load_word(data, at + 3 * WORD) ^ fourth ^ crc, 0)
        at += _ROUND_BYTES
    while at + WORD <= end:
        crc = _fold(load_word(data, at) ^ crc, 0)
        at += WORD
    while at < end:
        crc = np.uint64(_CRC[0, np.uint8(crc) ^ data[np.uint64(at)]]) ^ crc >> np.uint64(8)
        at += 1
    return np.int64(~crc & np.uint64(0xFFFFFFFF))
