"""Both decoders: V2 records, DLedger entries, appended checksums and inner batches, field by field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.decoders import Decoder, each_decoder, expected_message
from support.logs import SHAPES, WITH_PROPERTY_CRC, entry_bytes, log_bytes
from support.record_writer import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Message, body_crc_of, encode, encode_entry

from reput.source.record.message_decoder import Verdict

pytestmark = each_decoder

OFFSET = 4096
LONG = Message(topic="t" * 200, body=b"0123456789", magic=MAGIC_V2, properties={"TAGS": "abc", "KEYS": "k"})
TOPIC_LENGTH = 88 + len(LONG.body)
Change = Callable[[bytearray], None]


def put(at: int, value: int, size: int = 4) -> Change:
    """Overwrite an integer."""

    def change(record: bytearray) -> None:
        at_end = at % len(record)
        record[at_end : at_end + size] = (value % 256**size).to_bytes(size, "big")

    return change


def changed(record: bytes, *changes: Change) -> bytes:
    """The same bytes, damaged."""
    data = bytearray(record)
    for change in changes:
        change(data)
    return bytes(data)


# --- V2 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 128, "%RETRY%" + "g" * 248, "t" * 32_767, "主题" * 40])
def test_v2_topics_of_any_length(decode: Decoder, topic: str) -> None:
    """A V2 record has a topic of 1 to 32,767 bytes, with V1 records before and after it."""
    messages = [SHAPES["plain"], replace(LONG, topic=topic), SHAPES["v6 both"]]
    log, offsets = log_bytes(messages, OFFSET)
    expected = [expected_message(at, message) for at, message in zip(offsets, messages, strict=True)]
    assert (expected, len(log), Verdict.EMPTY) == decode(log + bytes(8), OFFSET)


@pytest.mark.parametrize(
    ("expected", "change"),
    [
        (Verdict.BAD_LENGTH, put(4, MAGIC_V1)),
        (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, 0, 2)),
        (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, 199, 2)),
        (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, 201, 2)),
        (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, -1, 2)),
        (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, -(2**15), 2)),
        (Verdict.BAD_LENGTH, put(TOPIC_LENGTH, 2**15 - 1, 2)),
        (Verdict.BAD_CRC, put(88, 0x31, 1)),
        (Verdict.BAD_SIZE, put(0, 90)),
    ],
)
def test_v2_damage(decode: Decoder, expected: Verdict, change: Change) -> None:
    """The lengths of a V2 record are checked as a V1 record's are."""
    assert decode(changed(encode(LONG, 0), change)) == ([], 0, expected)


def test_v2_needs_one_byte_more(decode: Decoder) -> None:
    """91 bytes hold the fixed fields of V1 alone; a V2 record of 92 has no topic."""
    for magic, size, verdict in (
        (MAGIC_V1, 91, Verdict.BAD_TOPIC),
        (MAGIC_V2, 91, Verdict.BAD_LENGTH),
        (MAGIC_V2, 92, Verdict.BAD_TOPIC),
    ):
        record = size.to_bytes(4, "big") + magic.to_bytes(4, "big") + bytes(size - 8)
        assert decode(record) == ([], 0, verdict)


# --- DLedger ---------------------------------------------------------------------------------------------

RECORD = SHAPES["plain"]
ENTRY_SIZE = 48 + len(encode(RECORD, 0))


def test_entries_of_every_shape(decode: Decoder) -> None:
    """A message in an entry is at the entry's offset and 48, and its size is the record's."""
    messages = [*SHAPES.values(), WITH_PROPERTY_CRC]
    log, offsets = entry_bytes(messages, OFFSET)
    expected = [expected_message(at + 48, message) for at, message in zip(offsets, messages, strict=True)]
    assert (expected, len(log), Verdict.EMPTY) == decode(log + bytes(8), OFFSET, dledger=True)


@pytest.mark.parametrize(
    ("expected", "change"),
    [
        (Verdict.BLANK, put(0, -1)),
        (Verdict.BAD_MAGIC, put(0, 0)),
        (Verdict.BAD_MAGIC, put(0, 2)),
        (Verdict.BAD_MAGIC, put(0, MAGIC_BLANK)),
        (Verdict.BAD_SIZE, put(4, 0)),
        (Verdict.BAD_SIZE, put(4, 48 + 90)),
        (Verdict.BAD_SIZE, put(4, -1)),
        (Verdict.BAD_SIZE, put(4, 4096)),
        (Verdict.UNDERFLOW, put(4, 1000)),
        (Verdict.BAD_LENGTH, put(4, ENTRY_SIZE - 1)),
        (Verdict.BAD_LENGTH, put(4, ENTRY_SIZE + 1)),
        (Verdict.BAD_PHYSICAL_OFFSET, put(24, OFFSET, 8)),
        (Verdict.BAD_PHYSICAL_OFFSET, put(24, -1, 8)),
        (Verdict.BAD_LENGTH, put(44, ENTRY_SIZE)),
        (Verdict.BAD_LENGTH, put(44, 0)),
        (Verdict.BAD_LENGTH, put(48, ENTRY_SIZE - 49)),
        (Verdict.BAD_LENGTH, put(48, ENTRY_SIZE - 47)),
        (Verdict.BAD_MAGIC, put(52, MAGIC_BLANK)),
        (Verdict.BAD_MAGIC, put(52, 0)),
        (Verdict.BAD_PHYSICAL_OFFSET, put(48 + 28, OFFSET + ENTRY_SIZE, 8)),
        (Verdict.BAD_CRC, put(48 + 88, 0, 1)),
    ],
)
def test_damaged_entries(decode: Decoder, expected: Verdict, change: Change) -> None:
    """Each field of the header that RocketMQ relies on, and the record that does not fit into its entry."""
    first = encode_entry(encode(RECORD, OFFSET + 48), OFFSET)
    offset = OFFSET + len(first)
    entry = changed(encode_entry(encode(RECORD, offset + 48), offset), change)
    behind = offset + len(entry)
    log = first + entry + encode_entry(encode(RECORD, behind + 48), behind)
    assert ([expected_message(OFFSET + 48, RECORD)], len(first), expected) == decode(
        log, OFFSET, OFFSET + 4096, dledger=True
    )


def test_either_log_is_no_other(decode: Decoder) -> None:
    """A plain record is not an entry, and an entry is not a plain record."""
    assert ([], 0, Verdict.BAD_MAGIC) == decode(encode(RECORD, 0), dledger=True)
    assert ([], 0, Verdict.BAD_MAGIC) == decode(encode_entry(encode(RECORD, 48), 0))


@pytest.mark.parametrize("size", [0, 8, 100, -1])
def test_the_end_of_a_dledger_file(decode: Decoder, size: int) -> None:
    """It is known by its magic code, as in the broker."""
    log = encode_entry(encode(RECORD, 48), 0) + b"\xff" * 4 + (size % 2**32).to_bytes(4, "big") + bytes(300)
    assert decode(log, dledger=True)[1:] == (ENTRY_SIZE, Verdict.BLANK)


def test_an_entry_cut_at_every_byte(decode: Decoder) -> None:
    """Without any of its bytes it is not a message yet; nor is it with zeros instead, up to its last text."""
    entry = encode_entry(encode(RECORD, 48), 0)
    for cut in range(len(entry)):
        assert decode(entry[:cut], 0, 4096, dledger=True) == ([], 0, Verdict.UNDERFLOW), cut
    for cut in range(len(entry) - len(RECORD.properties_bytes)):
        found = decode(entry[:cut] + bytes(len(entry) - cut + 300), 0, 4096, dledger=True)
        assert found.messages == [], cut
        assert found.verdict is not Verdict.BLANK, cut


# --- The checksum as a property --------------------------------------------------------------------------


def test_a_known_checksum(decode: Decoder) -> None:
    """The least digit comes first: 1667285399 is 9935827661."""
    record = encode(WITH_PROPERTY_CRC, 0)
    crc = body_crc_of(record[:-20])
    assert record[-20:] == b"__CRC32#\x01" + f"{crc:010d}"[::-1].encode() + b"\x02"
    assert "9935827661" == f"{1_667_285_399:010d}"[::-1]
    (found,), _, _ = decode(record)
    assert found == expected_message(0, WITH_PROPERTY_CRC)
    assert {"KEYS": "k1 k2", "TAGS": "TagA", "__CRC32#": f"{crc:010d}"[::-1]} == found.properties


@pytest.mark.parametrize(
    "change",
    [put(12, 7), put(16, 1), put(20, 9, 8), put(56, 1, 8), put(-11, 0x2F, 1), put(-11, 0x3A, 1), put(-1, 0, 1)],
)
def test_the_checksum_covers_the_record(decode: Decoder, change: Change) -> None:
    """Queue id, flag, queue offset and store time, which nothing else checks; counted only when checked."""
    record = changed(encode(WITH_PROPERTY_CRC, 0), change)
    assert decode(record) == ([], 0, Verdict.BAD_PROPERTY_CRC)
    assert len(decode(record, check_crc=False).messages) == 1


@pytest.mark.parametrize(
    "properties",
    [
        b"__CRC32#\x011234567890\x02TAGS\x01a",
        b"__CRC32#\x01123456789\x02",
        b"__CRC32#\x0112345678901\x02",
        b"__CRC32#\x011234567890",
        b"__CRC32\x011234567890x\x02",
    ],
)
def test_a_property_of_that_name_elsewhere_is_an_ordinary_one(decode: Decoder, properties: bytes) -> None:
    """The broker's is at the very end, with ten digits and a separator."""
    message = Message(properties=properties)
    assert decode(encode(message, 0)).messages == [expected_message(0, message)]


# --- Inner batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, (1, -1)),
        ({"INNER_NUM": "5"}, (1, -1)),
        ({"INNER_BASE": "5"}, (1, -1)),
        ({"INNER_NUM": "x"}, (1, -1)),
        ({"INNER_BASE": "x"}, (1, -1)),
        ({"INNER_NUM": "", "INNER_BASE": "x"}, (1, -1)),
        ({"INNER_NUM": "5", "INNER_BASE": "70"}, (5, 70)),
        ({"INNER_NUM": "+5", "INNER_BASE": "+70"}, (5, 70)),
        ({"INNER_NUM": "-32768", "INNER_BASE": "-9223372036854775808"}, (-32768, -(2**63))),
        ({"INNER_NUM": "32767", "INNER_BASE": "9223372036854775807"}, (32767, 2**63 - 1)),
        ({"INNER_NUM": "0005", "INNER_BASE": "0" * 30}, (5, 0)),
        ({"INNER_NUM": "\uff15", "INNER_BASE": "\u0667"}, (5, 7)),
        ({"INNER_NUM": "32768", "INNER_BASE": "1"}, None),
        ({"INNER_NUM": "-32769", "INNER_BASE": "1"}, None),
        ({"INNER_NUM": "1", "INNER_BASE": "9223372036854775808"}, None),
        ({"INNER_NUM": "1", "INNER_BASE": "-9223372036854775809"}, None),
        ({"INNER_NUM": "1", "INNER_BASE": "92233720368547758070"}, None),
        ({"INNER_NUM": "1", "INNER_BASE": "x"}, None),
        ({"INNER_NUM": "1 ", "INNER_BASE": "1"}, None),
        ({"INNER_NUM": "+", "INNER_BASE": "1"}, None),
        ({"INNER_NUM": "1", "INNER_BASE": "\uff15x"}, None),
        ({"INNER_NUM": "\uff15", "INNER_BASE": "x"}, None),
    ],
)
@pytest.mark.parametrize("sys_flag", [0, 0xC0])
def test_inner_batches(
    decode: Decoder, properties: dict[str, str], expected: tuple[int, int] | None, sys_flag: int
) -> None:
    """Both properties as Java reads them, whatever sysFlag says; a text that is not a number makes a bad record."""
    messages = [SHAPES["plain"], Message(properties=properties, sys_flag=sys_flag), SHAPES["inner batch"]]
    log, offsets = log_bytes(messages)
    found = decode(log)
    if expected is None:
        assert (1, offsets[1], Verdict.BAD_INNER_BATCH) == (len(found.messages), *found[1:])
    else:
        numbers = [(message.batch_num, message.msg_base_offset) for message in found.messages]
        assert numbers == [(1, -1), expected, (11, 2**32)]


def test_the_first_bad_record_counts(decode: Decoder) -> None:
    """A bad DELAY before a bad inner batch, and the other way round."""
    delay = Message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "x"})
    batch = Message(properties={"INNER_NUM": "x", "INNER_BASE": "x"})
    assert decode(log_bytes([delay, batch])[0])[1:] == (0, Verdict.BAD_DELAY)
    assert decode(log_bytes([batch, delay])[0])[1:] == (0, Verdict.BAD_INNER_BATCH)
    both = replace(delay, properties={"DELAY": "x", "INNER_NUM": "x", "INNER_BASE": "x"})
    assert decode(encode(both, 0))[1:] == (0, Verdict.BAD_DELAY)
