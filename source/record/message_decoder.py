"""The reference decoder: one record in plain Python, the specification in code; and offset message ids.

It is slow, and it stays: the compiled decoder (``batch_decoder``) must give the same verdict and the same fields for
every input, and every decoder test runs over both.

Records of both versions are read wherever they are. A 4.9.3 broker writes only V1 and would stop at a V2 record, but it
did not write a log that holds one.
"""

from __future__ import annotations

import ipaddress
import re
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from reput.source.errors import OptionError
from reput.source.record import message_format as fmt
from reput.source.record.message_format import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG
from reput.source.record.message_properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    decode_utf8,
    inner_batch,
    parse_properties,
    tags_code,
)


class Verdict(IntEnum):
    """The result of a check of the bytes at an offset of the log.

    It is stricter than the broker, which never compares a record's own physical offset.
    """

    MESSAGE = 0
    BLANK = 1  # the file's records end here, the log continues in the next file
    EMPTY = 2  # zeros: nothing was written here yet
    UNDERFLOW = 3  # the record is longer than the given bytes; read more
    BAD_MAGIC = 4
    BAD_SIZE = 5  # the total size is below the smallest record or beyond the end of the file
    BAD_PHYSICAL_OFFSET = 6  # stale bytes: a record that was written for another offset
    BAD_LENGTH = 7  # the parts' lengths do not add up to the total size
    BAD_TOPIC = 8  # the topic is empty
    BAD_CRC = 9  # the body's checksum differs
    BAD_DELAY = 10  # DELAY on the schedule topic is not a number
    BAD_PROPERTY_CRC = 11  # the checksum that the broker appended as a property differs
    BAD_INNER_BATCH = 12  # the record has INNER_NUM and INNER_BASE, and one of them is not a number
    BAD_BLANK = 13  # a blank of another size than the rest of its file, with records after it; no decoder's verdict


@dataclass(frozen=True)
class Message:
    """Every field of one record. Timestamps in milliseconds, hosts as (packed address, port).

    `batch_num` and `msg_base_offset` are those of an inner batch, 1 and -1 for any other record.
    """

    physical_offset: int
    msg_size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[bytes, int]
    store_timestamp: int
    store_host: tuple[bytes, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: dict[str, str]
    tags_code: int
    batch_num: int
    msg_base_offset: int

    @property
    def tags(self) -> str | None:
        """The TAGS property as stored; it may hold several tags."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> str | None:
        """The KEYS property as stored, with its blanks."""
        return self.properties.get(PROPERTY_KEYS)

    @property
    def uniq_key(self) -> str | None:
        """The unique key from the client."""
        return self.properties.get(PROPERTY_UNIQ_KEY)


_HEAD = struct.Struct(">iiiiiqqiq")
_MIDDLE = struct.Struct(">iqi")
_TOPIC_LENGTHS = {fmt.MESSAGE_MAGIC_CODE: struct.Struct(">b"), fmt.MESSAGE_MAGIC_CODE_V2: struct.Struct(">h")}
assert [length.size for length in _TOPIC_LENGTHS.values()] == [fmt.TOPIC_LENGTH_SIZE, fmt.TOPIC_LENGTH_V2_SIZE]
assert _HEAD.size == fmt.BORN_HOST_AT


def _host(data: memoryview, at: int, size: int) -> tuple[bytes, int]:
    (port,) = struct.unpack_from(">i", data, at + size - 4)
    return bytes(data[at : at + size - 4]), port


def decode_message(
    data: memoryview,
    at: int,
    physical_offset: int,
    file_end: int,
    *,
    check_crc: bool,
    delays_ms: tuple[int, ...],
) -> tuple[Verdict, Message | None]:
    """Judge and decode the record at `data[at:]`.

    Parameters
    ----------
    data
        Bytes of one segment file; they may begin and end anywhere.
    at
        Where the record begins in `data`.
    physical_offset
        The offset in the log of ``data[at]``; a record that names another one is stale.
    file_end
        The offset in the log of the segment's end (exclusive); no record crosses it.
    check_crc
        Whether the body is compared with its CRC-32, and the record with the one that 5.2.0 and later may append as its
        last property. A property of that name elsewhere is an ordinary one.
    delays_ms
        Delay levels in milliseconds, level 1 first.

    Returns
    -------
    The verdict, and the message if the verdict is ``MESSAGE``.
    """
    available = len(data) - at
    if available < fmt.BLANK_SIZE:
        return Verdict.UNDERFLOW, None
    total_size, magic = struct.unpack_from(">ii", data, at)
    if magic == fmt.BLANK_MAGIC_CODE:
        return Verdict.BLANK, None
    if magic == 0 and total_size == 0:
        return Verdict.EMPTY, None
    if magic not in _TOPIC_LENGTHS:
        return Verdict.BAD_MAGIC, None
    if not fmt.FIXED_LENGTH <= total_size <= file_end - physical_offset:
        return Verdict.BAD_SIZE, None
    if total_size > available:
        return Verdict.UNDERFLOW, None
    return _decode_body(data[at : at + total_size], physical_offset, _TOPIC_LENGTHS[magic], check_crc, delays_ms)


def _property_crc_differs(record: memoryview, properties_length: int) -> bool:
    """Whether the record ends in the property with its checksum, and the checksum is wrong."""
    own = bytes(record[-fmt.PROPERTY_CRC_SIZE :])
    if properties_length < fmt.PROPERTY_CRC_SIZE or not own.startswith(fmt.PROPERTY_CRC_PREFIX):
        return False
    return own != fmt.property_crc(zlib.crc32(record[: -fmt.PROPERTY_CRC_SIZE]))


def _decode_body(
    record: memoryview,
    physical_offset: int,
    topic_length_format: struct.Struct,
    check_crc: bool,
    delays_ms: tuple[int, ...],
) -> tuple[Verdict, Message | None]:
    size, _, crc, queue_id, flag, queue_offset, own_offset, sys_flag, born = _HEAD.unpack_from(record)
    if own_offset != physical_offset:
        return Verdict.BAD_PHYSICAL_OFFSET, None
    born_size = fmt.HOST_V6_SIZE if sys_flag & BORNHOST_V6_FLAG else fmt.HOST_V4_SIZE
    store_size = fmt.HOST_V6_SIZE if sys_flag & STOREHOSTADDRESS_V6_FLAG else fmt.HOST_V4_SIZE
    store_at = fmt.BORN_HOST_AT + born_size
    body_at = store_at + 8 + store_size + _MIDDLE.size
    if body_at + topic_length_format.size + fmt.PROPERTIES_LENGTH_SIZE > size:
        return Verdict.BAD_LENGTH, None
    (store_timestamp,) = struct.unpack_from(">q", record, store_at)
    reconsume, prepared, body_length = _MIDDLE.unpack_from(record, store_at + 8 + store_size)
    body_length = max(0, body_length)
    topic_at = body_at + body_length + topic_length_format.size
    if topic_at + fmt.PROPERTIES_LENGTH_SIZE > size:
        return Verdict.BAD_LENGTH, None
    (topic_length,) = topic_length_format.unpack_from(record, topic_at - topic_length_format.size)
    properties_at = topic_at + topic_length + fmt.PROPERTIES_LENGTH_SIZE
    if topic_length < 0 or properties_at > size:
        return Verdict.BAD_LENGTH, None
    (properties_length,) = struct.unpack_from(">h", record, properties_at - fmt.PROPERTIES_LENGTH_SIZE)
    properties_length = max(0, properties_length)
    if properties_at + properties_length != size:
        return Verdict.BAD_LENGTH, None
    if topic_length == 0:
        return Verdict.BAD_TOPIC, None
    body = bytes(record[body_at : body_at + body_length])
    # An empty body is stored with checksum 0 and the broker never checks it.
    if check_crc and body and zlib.crc32(body) & 0x7FFFFFFF != crc:
        return Verdict.BAD_CRC, None
    if check_crc and _property_crc_differs(record, properties_length):
        return Verdict.BAD_PROPERTY_CRC, None
    topic = decode_utf8(bytes(record[topic_at : topic_at + topic_length]))
    properties = parse_properties(decode_utf8(bytes(record[properties_at:size])))
    code = tags_code(topic, properties, store_timestamp, delays_ms)
    if code is None:
        return Verdict.BAD_DELAY, None
    batch = inner_batch(properties)
    if batch is None:
        return Verdict.BAD_INNER_BATCH, None
    return Verdict.MESSAGE, Message(
        physical_offset=physical_offset,
        msg_size=size,
        body_crc=crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=_host(record, fmt.BORN_HOST_AT, born_size),
        store_timestamp=store_timestamp,
        store_host=_host(record, store_at + 8, store_size),
        reconsume_times=reconsume,
        prepared_transaction_offset=prepared,
        body=body,
        topic=topic,
        properties=properties,
        tags_code=code,
        batch_num=batch[0],
        msg_base_offset=batch[1],
    )


# ----------------------------------------------------------------------------------------------------------------------
# Enough of one record to recognize it.

#: The number of leading bytes that hold a record's fingerprint, for hosts of any size.
FINGERPRINTED_BYTES = fmt.STORE_TIMESTAMP_AT + fmt.HOST_V6_EXTRA + 8
_MAGIC_CODES = (fmt.MESSAGE_MAGIC_CODE, fmt.MESSAGE_MAGIC_CODE_V2)


@dataclass(frozen=True)
class RecordFingerprint:
    """Enough of one record to recognize it: its physical offset, size, store timestamp (ms) and body CRC."""

    offset: int
    size: int
    store_timestamp: int
    body_crc: int


def fingerprint_of(head: bytes, offset: int) -> RecordFingerprint | None:
    """The record at `offset` of the log, by its first `FINGERPRINTED_BYTES`; None if no record of that offset has them.

    Checksums are not compared: a record that overwrites another one changes these bytes.
    """
    if len(head) < FINGERPRINTED_BYTES or _integer(head, fmt.MAGIC_AT, 4) not in _MAGIC_CODES:
        return None
    if _integer(head, fmt.PHYSICAL_OFFSET_AT, 8) != offset:
        return None
    shift = fmt.HOST_V6_EXTRA if _integer(head, fmt.SYS_FLAG_AT, 4) & BORNHOST_V6_FLAG else 0
    return RecordFingerprint(
        offset,
        _integer(head, fmt.TOTAL_SIZE_AT, 4),
        _integer(head, fmt.STORE_TIMESTAMP_AT + shift, 8),
        _integer(head, fmt.BODY_CRC_AT, 4),
    )


def _integer(head: bytes, at: int, size: int) -> int:
    return int.from_bytes(head[at : at + size], "big", signed=True)


_MSG_ID = re.compile(r"(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{56})")
_PORT_AND_OFFSET = struct.Struct(">iq")


@dataclass(frozen=True)
class MessageId:
    """An offset message id: the broker's packed address (4 or 16 bytes), its port, the offset in its log."""

    address: bytes
    port: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Decode 32 (IPv4) or 56 (IPv6) hexadecimal digits (``MessageDecoder#decodeMessageId``).

        Raises
        ------
        OptionError
            The text is not of that form.
        """
        if not _MSG_ID.fullmatch(text):
            raise OptionError(
                f"{text!r} is not an offset message id: 32 hexadecimal digits wanted, or 56 of a broker on IPv6",
                advice="a client's unique key is asked for with --topic and --uniq-key",
            )
        data = bytes.fromhex(text)
        port, offset = _PORT_AND_OFFSET.unpack(data[-_PORT_AND_OFFSET.size :])
        return cls(data[: -_PORT_AND_OFFSET.size], port, offset)

    @classmethod
    def of(cls, message: Message) -> MessageId:
        """The id that the broker gave this message (``MessageDecoder#createMessageId``)."""
        address, port = message.store_host
        return cls(address, port, message.physical_offset)

    def __str__(self) -> str:
        return (self.address + _PORT_AND_OFFSET.pack(self.port, self.offset)).hex().upper()


def host_text(host: tuple[bytes, int]) -> str:
    """``address:port`` of a packed address and a port, an IPv6 address in brackets."""
    address, port = ipaddress.ip_address(host[0]), host[1]
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
