"""Bloom positions, the shape of a filter, and the order of bits, as RocketMQ's and Guava's classes give them."""

from __future__ import annotations

import pytest

from reput.sinks.filter.consumer_filter import BloomFilter, bits
from reput.source.errors import OptionError

# error rate, expected number, k, m, positions of GROUPS
FILTERS = [
    (20, 32, 3, 112, [(49, 97, 110), (17, 39, 50), (80, 66, 42)]),
    (10, 20, 4, 96, [(49, 17, 78, 14), (33, 39, 50, 19), (80, 18, 42, 56)]),
    (20, 64, 3, 216, [(25, 113, 198), (201, 111, 194), (200, 186, 42)]),
    (
        *(1, 300, 7, 2880),
        [
            (1393, 977, 2574, 110, 2353, 1937, 1614),
            (1857, 2055, 626, 2707, 25, 2656, 677),
            (2576, 2130, 2058, 2648, 1595, 2593, 2113),
        ],
    ),
    (10, 128, 4, 616, [(105, 209, 614, 510), (73, 431, 442, 227), (24, 346, 210, 160)]),
    (50, 32, 1, 48, [(1,), (33,), (32,)]),
]
GROUPS = ["CID_abc_efg", "CID_abc_123", "CID_0#topic0"]


@pytest.mark.parametrize(("error_rate", "expected", "k", "m", "positions"), FILTERS)
def test_positions(error_rate: int, expected: int, k: int, m: int, positions: list[tuple[int, ...]]) -> None:
    bloom = BloomFilter(error_rate, expected)
    assert (bloom.k, bloom.m) == (k, m)
    assert [bloom.positions(group) for group in GROUPS] == positions
    assert bloom.positions("") == (0,) * k


def test_the_broker_s_defaults() -> None:
    assert BloomFilter() == BloomFilter(20, 32)


@pytest.mark.parametrize(
    ("positions", "size", "expected"),
    [
        ([], 16, "0000"),
        ([0, 9], 16, "0102"),
        ([7, 7], 8, "80"),
        ([15, 8, 0], 16, "0181"),
        ([111], 112, "00" * 13 + "80"),
    ],
)
def test_bits_begin_at_the_lowest(positions: list[int], size: int, expected: str) -> None:
    assert bits(positions, size).hex() == expected


@pytest.mark.parametrize("position", [-1, 16, 2**31])
def test_bits_outside_are_refused(position: int) -> None:
    with pytest.raises(ValueError, match="outside a bitmap of 16 bits"):
        bits([3, position], 16)


@pytest.mark.parametrize(("error_rate", "expected"), [(0, 32), (100, 32), (-1, 32), (20, 0), (20, -5)])
def test_settings_outside_their_limits(error_rate: int, expected: int) -> None:
    with pytest.raises(OptionError, match=r"maxErrorRateOfBloomFilter|expectConsumerNumUseFilter"):
        BloomFilter(error_rate, expected)
