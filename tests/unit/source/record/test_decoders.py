"""Both decoders: every field of a record, properties and tagsCode included."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from conftest import BrokerStore
from support.decoders import Decoder, each_decoder, expected_message
from support.logs import SHAPES, V6_BORN, V6_STORE, log_bytes
from support.model import read_log
from support.record_writer import Message, encode

from reput.source.record.message_decoder import Verdict

pytestmark = each_decoder

HOST_PAIRS = list(product([("10.1.2.3", 1234), V6_BORN], [("127.0.0.1", 10911), V6_STORE]))
STORES = ["golden-a", "golden-b", "v4-tx-delay-retry", "v4-expired"]


def check_decodes(decode: Decoder, *messages: Message, offset: int = 8192) -> None:
    """Assert that the messages come back, one behind the other, and that zeros end them."""
    log, offsets = log_bytes(messages, offset)
    expected = [expected_message(at, message) for at, message in zip(offsets, messages, strict=True)]
    assert (expected, len(log), Verdict.EMPTY) == decode(log + bytes(8), offset)


@pytest.mark.parametrize("name", SHAPES)
def test_every_field_comes_back(decode: Decoder, name: str) -> None:
    """A record of each shape gives the fields that were written."""
    check_decodes(decode, SHAPES[name])


def test_records_follow_each_other(decode: Decoder) -> None:
    """Records of all shapes in one log come back in order, each at its own offset."""
    check_decodes(decode, *SHAPES.values())


@pytest.mark.parametrize(("born", "store"), HOST_PAIRS)
def test_hosts_of_either_width(decode: Decoder, born: tuple[str, int], store: tuple[str, int]) -> None:
    """IPv4 and IPv6 in all four combinations shift the fields after them."""
    message = Message(born_host=born, store_host=store, reconsume_times=7, properties={"TAGS": "A"})
    check_decodes(decode, message, message)


@pytest.mark.parametrize("bits", [0x0, 0x1, 0x2, 0x4, 0x8, 0xC, 0x40, 0x700, 0x7FFFFFCF, -0x80000000])
def test_sys_flag_is_kept_as_stored(decode: Decoder, bits: int) -> None:
    """Every bit of sysFlag comes back, and only the two of the hosts shift a field."""
    check_decodes(decode, Message(sys_flag=bits, properties={"KEYS": "k"}))


@pytest.mark.parametrize("bits", [31, 30])
@pytest.mark.parametrize("sign", [-1, 1])
def test_integers_are_signed(decode: Decoder, sign: int, bits: int) -> None:
    """Integers at both ends of their range come back with their sign."""
    i32, i64 = sign * 2**bits - (sign > 0), sign * 2 ** (bits + 32) - (sign > 0)
    message = Message(
        queue_id=i32,
        queue_offset=i64,
        flag=i32,
        born_timestamp=i64,
        born_host=("255.254.253.252", i32),
        store_timestamp=i64,
        store_host=("0.0.0.0", i32),
        reconsume_times=i32,
        prepared_transaction_offset=i64,
    )
    check_decodes(decode, message)


def test_offsets_above_32_bits(decode: Decoder) -> None:
    """A log may lie anywhere in 63 bits."""
    check_decodes(decode, *SHAPES.values(), offset=2**62)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 4095, 4096, 70_000])
def test_bodies_of_any_size(decode: Decoder, size: int) -> None:
    """A body's checksum is checked whatever its size modulo the eight bytes of a step."""
    check_decodes(decode, Message(body=(bytes(range(1, 256)) * 275)[:size]))


@pytest.mark.parametrize("topic", ["T", "t" * 127, "%RETRY%group-1_x", "主题" * 21, "😀", "\x00", "a b"])
def test_topics_of_any_text(decode: Decoder, topic: str) -> None:
    """A topic is 1 to 127 bytes of any UTF-8 text."""
    check_decodes(decode, Message(topic=topic, properties={"TAGS": "A"}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1|B=2", {"A": "1", "B": "2"}),
        ("A=1|B=2|", {"A": "1", "B": "2"}),
        ("A=|B=2", {"B": "2"}),
        ("=v|B=2", {"B": "2"}),
        ("A=1=x", {"A": "1\x01x"}),
        ("A=1|A=2", {"A": "2"}),
        ("A=1|A=", {"A": "1"}),
        ("A|B=2", {"B": "2"}),
        ("AA|=B", {}),
        ("||A=1||", {"A": "1"}),
        ("=", {}),
        ("==", {}),
        ("==x", {}),
        ("A==", {"A": "\x01"}),
        ("A", {}),
        ("|", {}),
        ("A=1|B", {"A": "1"}),
        ("TAGS=a|TAGS=b|TAGS=", {"TAGS": "b"}),
        ("tags=a", {"tags": "a"}),
        ("TAGSX=a|XTAGS=b|TAG=c", {"TAGSX": "a", "XTAGS": "b", "TAG": "c"}),
    ],
)
def test_properties_by_the_brokers_rules(decode: Decoder, text: str, expected: dict[str, str]) -> None:
    """Empty names and values and items without separator vanish, the last of equal names wins."""
    stored = text.replace("=", "\x01").replace("|", "\x02").encode()
    message = Message(properties=stored)
    (found,), _, _ = decode(encode(message, 0))
    assert expected == found.properties
    assert expected_message(0, message) == found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xe4\xb8", "\ufffd"),
        (b"\xc0\xaf", "\ufffd\ufffd"),
    ],
)
@pytest.mark.parametrize("name", [b"TAGS", b"KEYS", b"\xff"])
@pytest.mark.parametrize("end", [b"", b"\x02", b"\x02B\x01b"])
def test_malformed_utf_8_reads_as_in_java(
    decode: Decoder, name: bytes, value: bytes, expected: str, end: bytes
) -> None:
    """Malformed bytes become U+FFFD as in Java and never swallow the separator after them."""
    message = Message(properties=name + b"\x01" + value + end)
    (found,), _, _ = decode(encode(message, 0))
    assert expected == found.properties[name.decode("utf-8", "replace")]
    assert ("b" if end[1:] else None) == found.properties.get("B")
    assert expected_message(0, message) == found


def test_golden_vectors(decode: Decoder, broker_store: Callable[[str], BrokerStore]) -> None:
    """The records of store A read as its reference lists them."""
    log = (broker_store("golden-a").root / "commitlog" / f"{0:020d}").read_bytes()
    messages, stop_at, verdict = decode(log)
    assert (stop_at, verdict) == (1326, Verdict.EMPTY)
    topics = ["TopicA"] * 3 + ["SCHEDULE_TOPIC_XXXX", "HALF"] + ["TopicA"] * 5
    assert topics == [message.topic for message in messages]
    assert [message.physical_offset for message in messages] == [0, 162, 264, 400, 570, 695, 824, 951, 1085, 1219]
    assert [message.queue_offset for message in messages] == [0, 0, 1, 0, 0, 2, 0, 3, 4, 5]
    codes = [0x272BF7, 0, 0x9DCFA, 0x1A1FB823F36, 0x54, 0x54, 0x54, 0x852, 0x852, 0]
    assert codes == [message.tags_code for message in messages]
    assert [message.keys for message in messages[:5]] == ["k1 k2", None, " k3  k4 ", None, "kp"]
    assert [f"7F000001{1:022d}", None, None, "U2", "U3"] == [message.uniq_key for message in messages[:5]]
    assert (bytes.fromhex("105000000000000000050600300c326b"), 1234) == messages[2].born_host


@pytest.mark.parametrize("name", STORES)
def test_logs_of_real_brokers(decode: Decoder, name: str, broker_store: Callable[[str], BrokerStore]) -> None:
    """Every record of a log that a broker wrote reads as an independent parser reads it."""
    store = broker_store(name)
    files = sorted((store.root / "commitlog").iterdir())
    segments = {int(file.name): file.read_bytes() for file in files}
    expected = [expected_message(at, message) for at, message, _ in read_log(segments)]
    found = [decode(log, offset) for offset, log in segments.items()]
    assert expected == [message for outcome in found for message in outcome.messages]
    assert store.facts["totalMessages"] == len(expected)
    assert {Verdict.BLANK, Verdict.EMPTY} >= {outcome.verdict for outcome in found}
