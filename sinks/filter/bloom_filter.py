"""RocketMQ's bloom filter: the bits of a message's bitmap that stand for a consumer group's match.

``filter/util/BloomFilter`` and ``BitsArray``; the hash is Guava's ``murmur3_128``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import mmh3

from reput.source.errors import OptionError

_MASK_32 = 2**32 - 1


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
        """The `k` positions of `text`, each below `m`; a position may come twice (``#calcBitPositions``)."""
        # Guava's `asLong()` is the first half of the 128 bits; its seed is 0.
        hash_64, _ = mmh3.hash64(text.encode("utf-8", "replace"), seed=0, x64arch=True, signed=False)
        hash_1, hash_2 = hash_64 & _MASK_32, hash_64 >> 32
        found = []
        for i in range(1, self.k + 1):
            combined = (hash_1 + i * hash_2) & _MASK_32
            # Java flips the bits of a negative int.
            found.append((combined ^ _MASK_32 if combined >> 31 else combined) % self.m)
        return tuple(found)


def bits(positions: Iterable[int], size: int) -> bytes:
    """A bitmap of `size` bits (a multiple of 8) with those at `positions` set, the lowest bit of a byte first.

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
