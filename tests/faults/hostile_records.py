"""Records that no sound producer or disk leaves, each with the bytes it has at its place."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

from support.record_writer import MAGIC_BLANK, MAGIC_V2, Message, encode

Encoded = Callable[[int], bytes]

SOUND = Message("A", properties={"KEYS": "k1 k2", "TAGS": "t", "UNIQ_KEY": "u"})
#: The places of fields in a record with IPv4 hosts.
MAGIC_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, SYS_FLAG_AT, BODY_LENGTH_AT = 4, 12, 20, 28, 36, 84


def _with(message: Message, at: int, data: bytes) -> Encoded:
    """A sound record with other bytes at `at`; below 0 it counts from the end."""

    def encoded(offset: int) -> bytes:
        record = bytearray(encode(message, offset))
        begin = at if at >= 0 else len(record) + at
        record[begin : begin + len(data)] = data
        return bytes(record)

    return encoded


def _sound(message: Message) -> Encoded:
    return lambda offset: encode(message, offset)


def _i32(number: int) -> bytes:
    return struct.pack(">i", number)


def _topic_at(message: Message) -> int:
    return BODY_LENGTH_AT + 4 + len(message.body)


def _fields() -> Iterator[tuple[str, Encoded]]:
    for number in (-1, -(2**31), 2**31 - 1, 90, 91, 1, 7):
        yield f"a total size of {number}", _with(SOUND, 0, _i32(number))
    for number in (-1, 2**31 - 1, -(2**31), 5, 3):
        yield f"a body length of {number}", _with(SOUND, BODY_LENGTH_AT, _i32(number))
    for number in (0, 0x80, 0xFF, 0x7F):
        yield f"a topic length of {number}", _with(SOUND, _topic_at(SOUND), bytes([number]))
    properties_at = -len(SOUND.properties_bytes) - 2
    for number in (-1, -32768, 32767, 1):
        yield f"a properties length of {number}", _with(SOUND, properties_at, struct.pack(">h", number))
    for number in (-1, 0x10, 0x20, 0x30, 0x4, 0xC, 0xFF0F):
        yield f"a sysFlag of {number}", _with(SOUND, SYS_FLAG_AT, _i32(number))
    yield "another's place", _with(SOUND, PHYSICAL_OFFSET_AT, struct.pack(">q", 2**40))
    yield "a place below 0", _with(SOUND, PHYSICAL_OFFSET_AT, struct.pack(">q", -1))
    yield "another magic", _with(SOUND, MAGIC_AT, b"\0\0\0\0")
    yield "a blank of no size", lambda _: struct.pack(">iI", 0, MAGIC_BLANK)
    yield "a blank below 0", lambda _: struct.pack(">iI", -8, MAGIC_BLANK)
    yield "a blank beyond its file", lambda _: struct.pack(">iI", 2**31 - 1, MAGIC_BLANK)
    yield "a V2 magic on a V1 record", _with(SOUND, MAGIC_AT, struct.pack(">I", MAGIC_V2))


def _queues() -> Iterator[tuple[str, Encoded]]:
    for number in (-1, -(2**31), 2**31 - 1):
        yield f"a queue id of {number}", _sound(replace(SOUND, queue_id=number))
    for number in (-1, -(2**63), 2**60, 2**63 - 1, 2**31):
        yield f"a queue offset of {number}", _sound(replace(SOUND, topic="N", queue_offset=number))
        yield f"a jump to queue offset {number}", _sound(replace(SOUND, queue_offset=number))
    for number in (-1, -(2**63), 2**63 - 1, 0):
        yield f"a store time of {number}", _sound(replace(SOUND, store_timestamp=number))


def _names() -> Iterator[tuple[str, Encoded]]:
    topics = [
        "../../../x",
        "..",
        ".",
        "/x",
        "a/b",
        "a\0b",
        "a b",
        "%LMQ%a/1",
        "%LMQ%..",
        "é",
        "\n",
        "x" * 127,
        "\x1b[2J",
    ]
    for topic in topics:
        yield f"the topic {topic!r}", _sound(replace(SOUND, topic=topic))
    yield "a topic that is no UTF-8", _with(replace(SOUND, topic="abc"), _topic_at(SOUND) + 1, b"\xed\xa0\x80")
    yield "a topic of 255 bytes", _sound(replace(SOUND, topic="x" * 255, magic=MAGIC_V2))
    yield "a retry topic of 255 bytes", _sound(replace(SOUND, topic="%RETRY%" + "x" * 248, magic=MAGIC_V2))


def _properties() -> Iterator[tuple[str, Encoded]]:
    texts: dict[str, bytes] = {
        "10,000 keys": b"KEYS\x01" + b"k " * 10_000,
        "one key of 30,000 bytes": b"KEYS\x01" + b"k" * 30_000,
        "tags of 30,000 bytes": b"TAGS\x01" + b"t" * 30_000,
        "nothing but separators": b"\x01\x02" * 5_000,
        "KEYS 3,000 times": b"KEYS\x01a\x02" * 3_000,
        "no value": b"KEYS\x02TAGS\x02UNIQ_KEY",
        "no name": b"\x01a\x02\x01b",
        "keys that are no UTF-8": b"KEYS\x01\xed\xa0\x80 \xff\xfe \xf0\x9f\x02TAGS\x01\xc0\x80",
        "NUL in everything": b"KEYS\x01\0 \0\0\x02TAGS\x01\0\x02UNIQ_KEY\x01\0",
        "a further queue outside": b"INNER_MULTI_DISPATCH\x01../../x,%LMQ%a/1\x02INNER_MULTI_QUEUE_OFFSET\x010,0",
        "2,000 further queues": b"INNER_MULTI_DISPATCH\x01"
        + b",".join(b"%%LMQ%%%d" % i for i in range(2000))
        + b"\x02INNER_MULTI_QUEUE_OFFSET\x01"
        + b",".join([b"0"] * 2000),
        "further queues without offsets": b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x010",
        "an offset that is no number": b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x01x",
        "a batch of words": b"INNER_NUM\x01x\x02INNER_BASE\x01y",
        "a batch too large": b"INNER_NUM\x0199999999999\x02INNER_BASE\x01-1",
        "an own checksum of words": b"__CRC32#\x01abcdefghij\x02",
    }
    for name, text in texts.items():
        yield name, _sound(replace(SOUND, properties=text))
    for delay in (b"x", b"-1", b"99999999999999999999", b"2147483647", b""):
        late = replace(SOUND, topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01" + delay)
        yield f"a delay of {delay!r}", _sound(late)
    yield "a wrong body checksum", _sound(replace(SOUND, body_crc=1))


#: By name: a record's bytes at a place of the log.
HOSTILE: dict[str, Encoded] = dict([*_fields(), *_queues(), *_names(), *_properties()])
