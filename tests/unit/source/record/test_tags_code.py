"""Both decoders: tagsCode, the hash of the tags or the time of delivery."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.decoders import Decoder, each_decoder, expected_message
from support.logs import V6_BORN, log_bytes
from support.record_writer import Message, encode

from reput.source.record.message_decoder import Verdict

pytestmark = each_decoder

STORED_AT = 1_700_000_000_001
DELAYED = Message(topic="SCHEDULE_TOPIC_XXXX", store_timestamp=STORED_AT)


def of_level(text: str, message: Message = DELAYED) -> Message:
    return replace(message, properties={"TAGS": "T", "DELAY": text})


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("TagA||TagB", 1_789_476_431),
        ("TAG1", 2_567_159),
        ("abc", 96_354),
        ("中文", 646_394),
        ("😀", 1_772_899),
        ("polygenelubricants", -(2**31)),
    ],
)
@pytest.mark.parametrize("sys_flag", [0, 0x2])
def test_tags_code_is_the_hash_of_the_whole_text(decode: Decoder, tags: str, expected: int, sys_flag: int) -> None:
    """The hash is Java's over UTF-16 units, with or without MULTI_TAGS."""
    (found,), _, _ = decode(encode(Message(sys_flag=sys_flag, properties={"TAGS": tags}), 0))
    assert (tags, expected) == (found.tags, found.tags_code)


@pytest.mark.parametrize("born", [("10.1.2.3", 1), V6_BORN])
@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("1", 1_000),
        ("3", 10_000),
        ("18", 7_200_000),
        ("19", 7_200_000),
        ("99", 7_200_000),
        ("2147483647", 7_200_000),
        ("+3", 10_000),
        ("0003", 10_000),
        ("\uff13", 10_000),  # full-width digits
        ("+\uff11\uff18", 7_200_000),
        ("\u0663", 10_000),  # Arabic-Indic
        ("1\uff18", 7_200_000),
        ("0", None),
        ("-1", None),
        ("-3", None),
        ("-\uff13", None),
        ("\uff10", None),
        ("-2147483648", None),
    ],
)
def test_delay_on_the_schedule_topic(decode: Decoder, text: str, delay_ms: int | None, born: tuple[str, int]) -> None:
    """The code is the delivery time of a level above 0, else the hash of the tags."""
    log = encode(of_level(text, replace(DELAYED, born_host=born)), 0)
    (found,), _, _ = decode(log)
    assert (ord("T") if delay_ms is None else STORED_AT + delay_ms) == found.tags_code


@pytest.mark.parametrize(
    "text",
    [
        " 3",
        "3 ",
        "x",
        "+",
        "-",
        "+-3",
        "3.0",
        "0x3",
        "1_0",
        "2147483648",
        "-2147483649",
        "9" * 400,
        "\xb3",
        "\uff13x",
        "\U0001d7db",
        "\ufffd",
    ],
)
def test_delay_that_is_no_integer_is_refused(decode: Decoder, text: str) -> None:
    """If the broker's parseInt throws, the record is not a message, but those before it are."""
    log, offsets = log_bytes([DELAYED, of_level(text), DELAYED])
    assert ([expected_message(0, DELAYED)], offsets[1], Verdict.BAD_DELAY) == decode(log)


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXY", "SCHEDULE_TOPIC_XXX", "schedule_topic_xxxx", "TopicA"])
@pytest.mark.parametrize("text", ["3", "x"])
def test_delay_elsewhere_means_nothing(decode: Decoder, topic: str, text: str) -> None:
    """Only the stored topic makes a record delayed."""
    (found,), _, _ = decode(encode(of_level(text, replace(DELAYED, topic=topic)), 0))
    assert ord("T") == found.tags_code


def test_an_empty_delay_is_none(decode: Decoder) -> None:
    """An empty property vanishes, so the code stays the hash."""
    (found,), _, _ = decode(encode(of_level(""), 0))
    assert expected_message(0, of_level("")) == found


@pytest.mark.parametrize(("level", "delay_ms"), [("1", 1_000), ("2", 172_800_000), ("3", 172_800_000)])
def test_other_delay_levels(decode: Decoder, level: str, delay_ms: int) -> None:
    """The levels are the broker's setting; those above the highest count as it."""
    (found,), _, _ = decode(encode(of_level(level), 0), delays_ms=(1_000, 172_800_000))
    assert STORED_AT + delay_ms == found.tags_code


@pytest.mark.parametrize("level", ["3", "\uff13"])
def test_without_delay_levels_the_code_is_the_hash(decode: Decoder, level: str) -> None:
    """A broker that has not loaded its levels takes every level as 0."""
    (found,), _, _ = decode(encode(of_level(level), 0), delays_ms=())
    assert ord("T") == found.tags_code


def test_delivery_time_wraps_as_javas_long(decode: Decoder) -> None:
    """A store time at the end of 64 bits makes a negative delivery time, not an error."""
    (found,), _, _ = decode(encode(of_level("1", replace(DELAYED, store_timestamp=2**63 - 1)), 0))
    assert found.tags_code == -(2**63) + 999
