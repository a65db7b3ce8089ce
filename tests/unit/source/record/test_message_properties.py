"""Small rules of properties, delay levels, sysFlag and the size of a record."""

from __future__ import annotations

import pytest
from support.logs import SHAPES
from support.record_writer import MAGIC_V2, Message, encode

from reput.source.record.message_format import calc_msg_length, is_indexed, is_queued, transaction_type
from reput.source.record.message_properties import DEFAULT_MESSAGE_DELAY_LEVEL, parse_delay_levels, split_keys


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("k1 k2", ["k1", "k2"]),
        (" k3  k4 ", ["k3", "k4"]),
        ("", []),
        ("   ", []),
        ("a\tb\u3000c\nd", ["a\tb\u3000c\nd"]),
        ("k k", ["k", "k"]),
    ],
)
def test_keys_are_split_at_blanks_alone(keys: str, expected: list[str]) -> None:
    """Only U+0020 separates keys, empty pieces vanish, repeated keys stay."""
    assert expected == split_keys(keys)


def test_default_delay_levels() -> None:
    """The broker's 18 levels, in milliseconds."""
    seconds = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
    assert tuple(1000 * delay for delay in seconds) == parse_delay_levels(DEFAULT_MESSAGE_DELAY_LEVEL)


def test_delay_levels_of_each_unit() -> None:
    """Seconds, minutes, hours and days, in any order."""
    assert parse_delay_levels("2d 1s 3h 1m 0s") == (172_800_000, 1_000, 10_800_000, 60_000, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1s 5s  ", (1_000, 5_000)), (" ", ()), ("-1s +2s", (-1_000, 2_000)), ("3000000000s", (3_000_000_000_000,))],
)
def test_delay_levels_as_java_splits_them(text: str, expected: tuple[int, ...]) -> None:
    """`String#split` drops what is empty at the end, and numbers are longs."""
    assert parse_delay_levels(text) == expected


@pytest.mark.parametrize("text", ["", "1", "s", "1w", "1 s", "1.5s", "x s", "1s  2s", "1s, 2s"])
def test_delay_levels_that_are_none(text: str) -> None:
    """Each item is a whole number and a unit."""
    with pytest.raises(ValueError):
        parse_delay_levels(text)


@pytest.mark.parametrize(
    ("bits", "queued", "indexed"), [(0x0, True, True), (0x4, False, True), (0x8, True, True), (0xC, False, False)]
)
@pytest.mark.parametrize("others", [0, 0x33, -16])
def test_what_a_transaction_type_lets_through(bits: int, queued: bool, indexed: bool, others: int) -> None:
    """Prepared records are indexed but not queued, rolled-back ones are not queued; the other bits do not matter."""
    sys_flag = others & ~0xC | bits
    assert (bits, queued, indexed) == (transaction_type(sys_flag), is_queued(sys_flag), is_indexed(sys_flag))


@pytest.mark.parametrize("message", list(SHAPES.values()), ids=list(SHAPES))
def test_calc_msg_length(message: Message) -> None:
    """The parts' lengths add up to the record's size."""
    extra = 12 * (bool(message.stored_sys_flag & 0x10) + bool(message.stored_sys_flag & 0x20))
    lengths = len(message.body), len(message.topic.encode()), len(message.properties_bytes)
    assert len(encode(message, 0)) == calc_msg_length(extra, *lengths, 2 if message.magic == MAGIC_V2 else 1)


def test_calc_msg_length_below_0() -> None:
    """Body and properties below 0 count as 0, a topic below 0 does not."""
    assert calc_msg_length(0, -5, -1, -7) == 90
