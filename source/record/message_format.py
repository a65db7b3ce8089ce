"""The layout of one CommitLog record as one table, from which everything else derives.

Sources: ``CommitLog.MessageExtEncoder``, ``CommitLog#checkMessageAndReturnSize``, ``CommitLog#calMsgLength`` (4.9.3),
``MessageVersion`` (5.1.0). All integers are big-endian and signed. The two hosts take 8 bytes (IPv4) or 20 (IPv6): an
address and a four-byte port; offsets below are those of a record with two IPv4 hosts.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

MESSAGE_MAGIC_CODE = -626843481  # 0xDAA320A7: one-byte topic length
MESSAGE_MAGIC_CODE_V2 = -626843477  # 0xDAA320AB: two-byte topic length, from 5.1.0 on for topics above 127 characters
BLANK_MAGIC_CODE = -875286124  # 0xCBD43194: the rest of the file holds no record

BLANK_SIZE = 8  # total size and magic code
HOST_V4_SIZE = 8
HOST_V6_SIZE = 20
HOST_V6_EXTRA = HOST_V6_SIZE - HOST_V4_SIZE

TOPIC_LENGTH_SIZE = 1
TOPIC_LENGTH_V2_SIZE = 2
PROPERTIES_LENGTH_SIZE = 2

# The last property that 5.2.0 and later may append (``CommitLog#CRC32_RESERVED_LEN``): the name, the checksum's decimal
# digits, least significant first and padded with zeros, a last separator.
PROPERTY_CRC_PREFIX = b"__CRC32#\x01"
PROPERTY_CRC_DIGITS = 10
PROPERTY_CRC_END = b"\x02"
PROPERTY_CRC_SIZE = len(PROPERTY_CRC_PREFIX) + PROPERTY_CRC_DIGITS + len(PROPERTY_CRC_END)


class Field(NamedTuple):
    """One fixed field: its name, its `struct` code, and its offset with two IPv4 hosts."""

    name: str
    code: str
    offset: int


def _layout(*pairs: tuple[str, str]) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    offset = 0
    for name, code in pairs:
        fields[name] = Field(name, code, offset)
        offset += struct.calcsize(f">{code}")
    fields["body"] = Field("body", "0s", offset)
    return fields


LAYOUT = _layout(
    ("total_size", "i"),
    ("magic_code", "i"),
    ("body_crc", "i"),
    ("queue_id", "i"),
    ("flag", "i"),
    ("queue_offset", "q"),
    ("physical_offset", "q"),
    ("sys_flag", "i"),
    ("born_timestamp", "q"),
    ("born_host", "8s"),
    ("store_timestamp", "q"),
    ("store_host", "8s"),
    ("reconsume_times", "i"),
    ("prepared_transaction_offset", "q"),
    ("body_length", "i"),
)

TOTAL_SIZE_AT = LAYOUT["total_size"].offset
MAGIC_AT = LAYOUT["magic_code"].offset
BODY_CRC_AT = LAYOUT["body_crc"].offset
QUEUE_ID_AT = LAYOUT["queue_id"].offset
FLAG_AT = LAYOUT["flag"].offset
QUEUE_OFFSET_AT = LAYOUT["queue_offset"].offset
PHYSICAL_OFFSET_AT = LAYOUT["physical_offset"].offset
SYS_FLAG_AT = LAYOUT["sys_flag"].offset
BORN_TIMESTAMP_AT = LAYOUT["born_timestamp"].offset
BORN_HOST_AT = LAYOUT["born_host"].offset
# From here on an IPv6 bornHost shifts offsets by HOST_V6_EXTRA, and from the store host's end an IPv6 storeHost again.
STORE_TIMESTAMP_AT = LAYOUT["store_timestamp"].offset
STORE_HOST_AT = LAYOUT["store_host"].offset
RECONSUME_TIMES_AT = LAYOUT["reconsume_times"].offset
PREPARED_OFFSET_AT = LAYOUT["prepared_transaction_offset"].offset
BODY_LENGTH_AT = LAYOUT["body_length"].offset
BODY_AT = LAYOUT["body"].offset

FIXED_LENGTH = BODY_AT + TOPIC_LENGTH_SIZE + PROPERTIES_LENGTH_SIZE

assert BODY_AT == 88
assert FIXED_LENGTH == 91
assert PHYSICAL_OFFSET_AT == 28
assert STORE_TIMESTAMP_AT == 56
assert (MESSAGE_MAGIC_CODE & 0xFFFFFFFF, BLANK_MAGIC_CODE & 0xFFFFFFFF) == (0xDAA320A7, 0xCBD43194)
assert MESSAGE_MAGIC_CODE_V2 & 0xFFFFFFFF == 0xDAA320AB
assert PROPERTY_CRC_SIZE == 20


def calc_msg_length(
    host_extra: int,
    body_length: int,
    topic_length: int,
    properties_length: int,
    topic_length_size: int = TOPIC_LENGTH_SIZE,
) -> int:
    """Size in bytes of a record (``CommitLog#calMsgLength``; 5.x ``MessageExtEncoder#calMsgLength``).

    `host_extra` is the bytes that IPv6 hosts add (0, 12 or 24); `topic_length_size` is 1 (V1) or 2 (V2). Negative body
    and properties lengths count as 0, a negative topic length does not.
    """
    parts = max(0, body_length) + topic_length + max(0, properties_length)
    return FIXED_LENGTH - TOPIC_LENGTH_SIZE + topic_length_size + host_extra + parts


def property_crc(crc: int) -> bytes:
    """The last property of a record whose bytes before it have this CRC-32 (``MessageDecoder#createCrc32``)."""
    digits = f"{crc & 0x7FFFFFFF:0{PROPERTY_CRC_DIGITS}d}"[::-1].encode()
    return PROPERTY_CRC_PREFIX + digits + PROPERTY_CRC_END


# ----------------------------------------------------------------------------------------------------------------------
# Bits of sysFlag (``MessageSysFlag``).

COMPRESSED_FLAG = 0x1
MULTI_TAGS_FLAG = 0x2

TRANSACTION_NOT_TYPE = 0x0
TRANSACTION_PREPARED_TYPE = 0x4
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC
TRANSACTION_MASK = 0xC

BORNHOST_V6_FLAG = 0x10
STOREHOSTADDRESS_V6_FLAG = 0x20

# Defined since 4.9.4, used since 5.0; the store itself reads none of them.
NEED_UNWRAP_FLAG = 0x40  # a batch that the client has to take apart
INNER_BATCH_FLAG = 0x80  # one record that holds several messages, see INNER_NUM

COMPRESSION_TYPE_MASK = 0x700
COMPRESSION_TYPE_NAMES = {
    0x000: "zlib",  # before there was a choice
    0x100: "lz4",
    0x200: "zstd",
    0x300: "zlib",
}

TRANSACTION_TYPE_NAMES = {
    TRANSACTION_NOT_TYPE: "none",
    TRANSACTION_PREPARED_TYPE: "prepared",
    TRANSACTION_COMMIT_TYPE: "commit",
    TRANSACTION_ROLLBACK_TYPE: "rollback",
}

_FLAG_NAMES = {
    MULTI_TAGS_FLAG: "multi_tags",
    BORNHOST_V6_FLAG: "born_host_v6",
    STOREHOSTADDRESS_V6_FLAG: "store_host_v6",
    NEED_UNWRAP_FLAG: "need_unwrap",
    INNER_BATCH_FLAG: "inner_batch",
}

assert set(TRANSACTION_TYPE_NAMES) == {bits for bits in range(TRANSACTION_MASK + 1) if bits & ~TRANSACTION_MASK == 0}


def compression_type(sys_flag: int) -> str | None:
    """The body's compression: ``zlib``, ``lz4`` or ``zstd``; None for a type that no broker knows.

    It is meaningful only if `COMPRESSED_FLAG` is set (``MessageSysFlag#getCompressionType``).
    """
    return COMPRESSION_TYPE_NAMES.get(sys_flag & COMPRESSION_TYPE_MASK)


def flag_names(sys_flag: int) -> list[str]:
    """The names of the bits set in `sys_flag`: the transaction's type if it has one, the body's compression, the rest.

    Bits that no broker knows are one hexadecimal number at the end.
    """
    names = [TRANSACTION_TYPE_NAMES[transaction_type(sys_flag)]] if transaction_type(sys_flag) else []
    known = TRANSACTION_MASK
    if sys_flag & COMPRESSED_FLAG:
        kind = compression_type(sys_flag)
        known |= COMPRESSED_FLAG | (COMPRESSION_TYPE_MASK if kind else 0)
        names.append("compressed" if kind is None else f"compressed_{kind}")
    for flag, name in _FLAG_NAMES.items():
        known |= flag
        if sys_flag & flag:
            names.append(name)
    others = sys_flag & ~known & 0xFFFFFFFF
    return [*names, *([f"{others:#x}"] if others else [])]


def transaction_type(sys_flag: int) -> int:
    """The transaction bits of `sys_flag` (``MessageSysFlag#getTransactionValue``)."""
    return sys_flag & TRANSACTION_MASK


def is_queued(sys_flag: int) -> bool:
    """Whether the record gets a ConsumeQueue entry: prepared and rolled-back ones do not."""
    return transaction_type(sys_flag) in (TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE)


def is_indexed(sys_flag: int) -> bool:
    """Whether the record's keys are indexed: all but a rollback's (``IndexService#buildIndex``)."""
    return transaction_type(sys_flag) != TRANSACTION_ROLLBACK_TYPE
