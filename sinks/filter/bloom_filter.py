"""RocketMQ's bloom filter: which bits of a message's bitmap say that a consumer group's expression matched.

``filter/util/BloomFilter`` and ``BitsArray``; the hash is Guava's ``murmur3_128``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from reput.source.errors import OptionError

_MASK_32, _MASK_64 = 2**32 - 1, 2**64 - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_BLOCK_SIZE = 16


@dataclass(frozen=True)
class BloomFilter:
    """The filter of one broker.

    Attributes
    ----------
    error_rate
        ``maxErrorRateOfBloomFilter`` in percent, 1 to 99.
    expected
        ``expectConsumerNumUseFilter``, at least 1.
    k
        How many positions a text has.
    m
        How many bits a bitmap has, a multiple of 8.

    Raises
    ------
    OptionError
        A setting is outside its limits.
    """

    error_rate: int = 20
    expected: int = 32
    k: int = field(init=False)
    m: int = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.error_rate <= 99:
            raise OptionError(f"maxErrorRateOfBloomFilter is {self.error_rate}; it is a percentage from 1 to 99")
        if self.expected < 1:
            raise OptionError(f"expectConsumerNumUseFilter is {self.expected}; it is at least 1")
        rate = self.error_rate / 100.0
        least = math.ceil(self.expected * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        object.__setattr__(self, "k", math.ceil(math.log(rate) / math.log(0.5)))
        object.__setattr__(self, "m", 8 * math.ceil(least / 8))

    def positions(self, text: str) -> tuple[int, ...]:
        """The `k` bits of `text`, each below `m`; the same one may come twice (``#calcBitPositions``)."""
        hash_64 = murmur3_128_low(text.encode("utf-8", "replace"))
        hash_1, hash_2 = hash_64 & _MASK_32, hash_64 >> 32
        found = []
        for i in range(1, self.k + 1):
            combined = (hash_1 + i * hash_2) & _MASK_32
            # Java flips the bits of a negative int.
            found.append((combined ^ _MASK_32 if combined >> 31 else combined) % self.m)
        return tuple(found)


def bits(positions: Iterable[int], size: int) -> bytes:
    """`size` bits (a multiple of 8) of which those at `positions` are set, the lowest of a byte first.

    Raises
    ------
    ValueError
        A position is not below `size`; Java throws.
    """
    number = 0
    for position in positions:
        if not 0 <= position < size:
            msg = f"position {position} is outside a bitmap of {size} bits"
            raise ValueError(msg)
        number |= 1 << position
    return number.to_bytes(size // 8, "little")


def murmur3_128_low(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, unsigned; Guava's ``asLong()`` of them is signed."""
    h1 = h2 = 0
    whole = len(data) - len(data) % _BLOCK_SIZE
    for at in range(0, whole, _BLOCK_SIZE):
        h1 ^= _mix_1(int.from_bytes(data[at : at + 8], "little"))
        h1 = (_rotate(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK_64
        h2 ^= _mix_2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = (_rotate(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK_64
    h1 ^= _mix_1(int.from_bytes(data[whole : whole + 8], "little"))
    h2 ^= _mix_2(int.from_bytes(data[whole + 8 :], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK_64
    h2 = h2 + h1 & _MASK_64
    return _finish(h1) + _finish(h2) & _MASK_64


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK_64


def _mix_1(k1: int) -> int:
    return _rotate(k1 * _C1 & _MASK_64, 31) * _C2 & _MASK_64


def _mix_2(k2: int) -> int:
    return _rotate(k2 * _C2 & _MASK_64, 33) * _C1 & _MASK_64


def _finish(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK_64
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK_64
    return value ^ value >> 33
