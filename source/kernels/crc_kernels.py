"""The compiled CRC-32 (IEEE, reflected), as ``zlib.crc32`` and Java's ``CRC32`` give it."""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source.kernels.byte_kernels import WORD, load_word
from reput.source.kernels.compile import kernel

# Four checksums, each of every fourth word, are combined at the end: a single one would wait for its own look-ups.
_WORDS = 4
_ROUND_BYTES = _WORDS * WORD
_NEXT_ROUND = np.uint64(_ROUND_BYTES - WORD)


def _crc_tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Tables whose row k holds what each byte does to the checksum k bytes further on."""
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
    """What eight bytes do to the checksum `distance` bytes behind them."""
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
