"""Both decoders: the verdict on bytes that are not a good record, and the checks that find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.decoders import Decoder, each_decoder, expected_message
from support.logs import SHAPES, V6_BORN, V6_STORE, log_bytes
from support.record_writer import BORN_HOST_V6, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, STORE_HOST_V6, Message, encode

from reput.source.record.message_decoder import Verdict

pytestmark = each_decoder

OFFSET = 4096
FIRST = Message(properties={"TAGS": "first"})
RECORD = Message(topic="Topic", body=b"0123456789", properties={"TAGS": "abc"})
SIZE = len(encode(RECORD, 0))

TOTAL_SIZE, MAGIC, BODY_CRC, PHYSICAL_OFFSET, SYS_FLAG, BODY_LENGTH, BODY = 0, 4, 8, 28, 36, 84, 88
TOPIC_LENGTH = BODY + len(RECORD.body)
TOPIC = TOPIC_LENGTH + 1
PROPERTIES_LENGTH = TOPIC + len(RECORD.topic)
PROPERTIES = PROPERTIES_LENGTH + 2

Change = Callable[[bytearray], None]


def put(at: int, value: int, size: int = 4) -> Change:
    """Overwrite an integer of the record."""

    def change(record: bytearray) -> None:
        record[at : at + size] = (value % 256**size).to_bytes(size, "big")

    return change


def outcome_of(decode: Decoder, record: bytes, **options: bool) -> tuple[Verdict, int]:
    """The verdict on `record` behind a good one and before another, and how many messages came before it."""
    first = encode(FIRST, OFFSET)
    log = first + record + encode(FIRST, OFFSET + len(first) + len(record))
    messages, stop_at, verdict = decode(log, OFFSET, OFFSET + 4096, **options)
    assert messages[0] == expected_message(OFFSET, FIRST)
    assert len(messages) == 3 or stop_at == len(first)
    return verdict, len(messages)


def changed(*changes: Change, message: Message = RECORD) -> bytes:
    """The bytes of a record behind FIRST, damaged."""
    record = bytearray(encode(message, OFFSET + len(encode(FIRST, OFFSET))))
    for change in changes:
        change(record)
    return bytes(record)


INT_MAX, INT_MIN = 2**31 - 1, -(2**31)
V6 = BORN_HOST_V6 | STORE_HOST_V6

DAMAGE = [
    (Verdict.BLANK, put(MAGIC, MAGIC_BLANK)),
    (Verdict.BAD_LENGTH, put(MAGIC, MAGIC_V2)),
    (Verdict.BAD_MAGIC, put(MAGIC, MAGIC_V1 + 1)),
    (Verdict.BAD_MAGIC, put(MAGIC, 0)),
    (Verdict.BAD_SIZE, put(TOTAL_SIZE, 0)),
    (Verdict.BAD_SIZE, put(TOTAL_SIZE, 90)),
    (Verdict.BAD_SIZE, put(TOTAL_SIZE, -1)),
    (Verdict.BAD_SIZE, put(TOTAL_SIZE, INT_MIN)),
    (Verdict.BAD_SIZE, put(TOTAL_SIZE, INT_MAX)),
    (Verdict.BAD_SIZE, put(TOTAL_SIZE, 4096)),
    (Verdict.UNDERFLOW, put(TOTAL_SIZE, 1000)),
    (Verdict.BAD_LENGTH, put(TOTAL_SIZE, 91)),
    (Verdict.BAD_LENGTH, put(TOTAL_SIZE, SIZE - 1)),
    (Verdict.BAD_LENGTH, put(TOTAL_SIZE, SIZE + 1)),
    (Verdict.BAD_PHYSICAL_OFFSET, put(PHYSICAL_OFFSET, 0, 8)),
    (Verdict.BAD_PHYSICAL_OFFSET, put(PHYSICAL_OFFSET, OFFSET, 8)),
    (Verdict.BAD_PHYSICAL_OFFSET, put(PHYSICAL_OFFSET, -1)),
    (Verdict.BAD_LENGTH, put(SYS_FLAG, BORN_HOST_V6)),
    (Verdict.BAD_LENGTH, put(SYS_FLAG, STORE_HOST_V6)),
    (Verdict.BAD_LENGTH, put(SYS_FLAG, V6)),
    (Verdict.BAD_LENGTH, put(BODY_LENGTH, len(RECORD.body) - 1)),
    (Verdict.BAD_LENGTH, put(BODY_LENGTH, len(RECORD.body) + 1)),
    (Verdict.BAD_LENGTH, put(BODY_LENGTH, 0)),
    (Verdict.BAD_LENGTH, put(BODY_LENGTH, -1)),
    (Verdict.BAD_LENGTH, put(BODY_LENGTH, INT_MIN)),
    (Verdict.BAD_LENGTH, put(BODY_LENGTH, INT_MAX)),
    (Verdict.BAD_LENGTH, put(BODY_LENGTH, SIZE - BODY - 1)),
    (Verdict.BAD_LENGTH, put(BODY_LENGTH, SIZE - BODY - 2)),
    (Verdict.BAD_LENGTH, put(BODY_LENGTH, SIZE - BODY - 3)),
    (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, 0, 1)),
    (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, 4, 1)),
    (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, 6, 1)),
    (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, 127, 1)),
    (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, -1, 1)),
    (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, -128, 1)),
    (Verdict.BAD_LENGTH, put(PROPERTIES_LENGTH, SIZE - PROPERTIES - 1, 2)),
    (Verdict.BAD_LENGTH, put(PROPERTIES_LENGTH, SIZE - PROPERTIES + 1, 2)),
    (Verdict.BAD_LENGTH, put(PROPERTIES_LENGTH, 0, 2)),
    (Verdict.BAD_LENGTH, put(PROPERTIES_LENGTH, -1, 2)),
    (Verdict.BAD_LENGTH, put(PROPERTIES_LENGTH, 2**15 - 1, 2)),
    (Verdict.BAD_LENGTH, put(PROPERTIES_LENGTH, -(2**15), 2)),
]


@pytest.mark.parametrize(("expected", "change"), DAMAGE)
@pytest.mark.parametrize("check_crc", [False, True])
def test_damage_and_its_verdict(decode: Decoder, expected: Verdict, change: Change, check_crc: bool) -> None:
    """Each broken field ends the scan before its record with the verdict that names it."""
    assert outcome_of(decode, changed(change), check_crc=check_crc) == (expected, 1)


def test_zeros_are_no_record_yet(decode: Decoder) -> None:
    """Size 0 and magic 0 say that nothing was written."""
    assert outcome_of(decode, changed(put(TOTAL_SIZE, 0), put(MAGIC, 0))) == (Verdict.EMPTY, 1)


@pytest.mark.parametrize("size", [0, 8, 100, 4096, -1])
def test_a_blank_is_known_by_its_magic(decode: Decoder, size: int) -> None:
    """The blank's size is never looked at, as in the broker."""
    assert outcome_of(decode, changed(put(TOTAL_SIZE, size), put(MAGIC, MAGIC_BLANK))) == (Verdict.BLANK, 1)


@pytest.mark.parametrize(("born", "store"), [(V6_BORN, None), (None, V6_STORE), (V6_BORN, V6_STORE)])
def test_a_lost_ipv6_bit_is_a_bad_length(
    decode: Decoder, born: tuple[str, int] | None, store: tuple[str, int] | None
) -> None:
    """A host read with the wrong width shifts the lengths, and they no longer add up."""
    message = replace(RECORD, born_host=born or RECORD.born_host, store_host=store or RECORD.store_host)
    assert outcome_of(decode, changed(put(SYS_FLAG, 0), message=message)) == (Verdict.BAD_LENGTH, 1)


@pytest.mark.parametrize(("flags", "extra"), [(0, 0), (BORN_HOST_V6, 12), (STORE_HOST_V6, 12), (V6, 24)])
def test_the_fixed_fields_need_their_room(decode: Decoder, flags: int, extra: int) -> None:
    """A record is at least 91 bytes and 12 for each IPv6 host, and then it still has no topic."""
    expected = {90: Verdict.BAD_SIZE, 90 + extra: Verdict.BAD_LENGTH, 91 + extra: Verdict.BAD_TOPIC}
    for size, verdict in (expected | {90: Verdict.BAD_SIZE}).items():
        record = bytearray(changed(put(TOTAL_SIZE, size), put(SYS_FLAG, flags))[:BODY_LENGTH].ljust(size, b"\0"))
        assert outcome_of(decode, bytes(record)) == (verdict, 1), size


def test_a_record_without_topic_is_refused(decode: Decoder) -> None:
    """Lengths that add up are not enough: the topic must not be empty."""
    assert outcome_of(decode, changed(message=replace(RECORD, topic=""))) == (Verdict.BAD_TOPIC, 1)


def test_a_negative_topic_length_is_refused_even_if_all_adds_up(decode: Decoder) -> None:
    """A topic of -2 bytes would take the body's end and its own length for the properties' length."""
    message = replace(RECORD, body=b"0\0", topic="", properties=b"x" * 254)
    record = changed(message=message)
    topic_length = BODY + len(message.body)
    # Without the properties' own length: the two bytes before the text say 254.
    record = record[:topic_length] + b"\xfe" + record[topic_length + 3 :]
    record = len(record).to_bytes(4, "big") + record[4:]
    assert outcome_of(decode, record, check_crc=False) == (Verdict.BAD_LENGTH, 1)


@pytest.mark.parametrize("change", [put(BODY_CRC, 1), put(BODY, 0x31, 1), put(TOPIC_LENGTH - 1, 0, 1)])
def test_a_bad_checksum_counts_only_when_checked(decode: Decoder, change: Change) -> None:
    """The body is compared with its checksum on request alone, as in the broker's replay."""
    assert outcome_of(decode, changed(change), check_crc=True) == (Verdict.BAD_CRC, 1)
    assert outcome_of(decode, changed(change), check_crc=False) == (Verdict.UNDERFLOW, 3)


def test_the_checksums_highest_bit_is_never_set(decode: Decoder) -> None:
    """The broker stores 31 bits; a checksum with the 32nd is another one."""
    set_bit = put(BODY_CRC, encode(RECORD, 0)[BODY_CRC] | 0x80, 1)
    assert outcome_of(decode, changed(set_bit), check_crc=True) == (Verdict.BAD_CRC, 1)


@pytest.mark.parametrize("crc", [0, 1, -1, INT_MIN])
def test_an_empty_body_has_no_checksum(decode: Decoder, crc: int) -> None:
    """The broker never checks the checksum of an empty body."""
    record = changed(message=replace(RECORD, body=b"", body_crc=crc))
    assert outcome_of(decode, record, check_crc=True) == (Verdict.UNDERFLOW, 3)


@pytest.mark.parametrize("length", [0, -1, -(2**15)])
def test_lengths_below_0_mean_none(decode: Decoder, length: int) -> None:
    """A negative body or properties length is read as 0."""
    message = replace(RECORD, body=b"", properties={})
    properties_length = len(encode(message, 0)) - 2
    record = changed(put(BODY_LENGTH, length), put(properties_length, length, 2), message=message)
    offset = OFFSET + len(encode(FIRST, OFFSET))
    assert decode(record, offset).messages == [expected_message(offset, message)]


@pytest.mark.parametrize("room", range(8))
def test_less_than_eight_bytes_are_too_few(decode: Decoder, room: int) -> None:
    """Only the verdict UNDERFLOW is possible before the magic code is complete."""
    assert decode(encode(RECORD, 0)[:room], 0, 4096) == ([], 0, Verdict.UNDERFLOW)


def test_a_record_may_end_where_its_segment_ends(decode: Decoder) -> None:
    """The end of the segment is exclusive; one byte less and no record can be there."""
    log, offsets = log_bytes(SHAPES.values())
    assert decode(log, 0, len(log)).stop_at == len(log)
    assert decode(log, 0, len(log) - 1)[1:] == (offsets[-1], Verdict.BAD_SIZE)
