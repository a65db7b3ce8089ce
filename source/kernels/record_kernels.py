"""Compiled kernels over the records of a segment: a verdict on each, and where its parts are.

numba checks no bounds, so nothing here indexes with a number read from the file before it was compared with the
bytes at hand. Each kernel is a pure function of primitives and arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source.kernels.byte_kernels import crc32, kernel, load_i16, load_i32, load_i64
from reput.source.record import dledger_entry as dle
from reput.source.record import message_format as fmt
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_format import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG

# numba compiles module globals in as constants; an IntEnum would cost a lookup.
_MESSAGE, _BLANK, _EMPTY, _UNDERFLOW = (
    int(Verdict.MESSAGE),
    int(Verdict.BLANK),
    int(Verdict.EMPTY),
    int(Verdict.UNDERFLOW),
)
_BAD_MAGIC, _BAD_SIZE, _BAD_PHYSICAL_OFFSET = (
    int(Verdict.BAD_MAGIC),
    int(Verdict.BAD_SIZE),
    int(Verdict.BAD_PHYSICAL_OFFSET),
)
_BAD_LENGTH, _BAD_TOPIC, _BAD_CRC = int(Verdict.BAD_LENGTH), int(Verdict.BAD_TOPIC), int(Verdict.BAD_CRC)
_BAD_PROPERTY_CRC = int(Verdict.BAD_PROPERTY_CRC)
_MAGIC_AT, _PHYSICAL_OFFSET_AT, _SYS_FLAG_AT = fmt.MAGIC_AT, fmt.PHYSICAL_OFFSET_AT, fmt.SYS_FLAG_AT
_BODY_CRC_AT, _BODY_LENGTH_AT, _BODY_AT = fmt.BODY_CRC_AT, fmt.BODY_LENGTH_AT, fmt.BODY_AT
_FIXED_LENGTH, _BLANK_SIZE, _V6_EXTRA = fmt.FIXED_LENGTH, fmt.BLANK_SIZE, fmt.HOST_V6_EXTRA
_MESSAGE_MAGIC, _BLANK_MAGIC = fmt.MESSAGE_MAGIC_CODE, fmt.BLANK_MAGIC_CODE
_MESSAGE_MAGIC_V2, _V2_EXTRA = fmt.MESSAGE_MAGIC_CODE_V2, fmt.TOPIC_LENGTH_V2_SIZE - fmt.TOPIC_LENGTH_SIZE
_ENTRY_MAGIC, _ENTRY_BLANK_MAGIC = dle.ENTRY_MAGIC_CODE, dle.ENTRY_BLANK_MAGIC_CODE
_ENTRY_SIZE_AT, _ENTRY_POS_AT, _ENTRY_BODY_SIZE_AT = dle.ENTRY_SIZE_AT, dle.ENTRY_POS_AT, dle.ENTRY_BODY_SIZE_AT
_ENTRY_HEADER_SIZE = dle.ENTRY_HEADER_SIZE
_CRC_PREFIX, _CRC_END = np.frombuffer(fmt.PROPERTY_CRC_PREFIX, np.uint8), fmt.PROPERTY_CRC_END[0]
_CRC_DIGITS, _CRC_SIZE = fmt.PROPERTY_CRC_DIGITS, fmt.PROPERTY_CRC_SIZE
_BORN_V6, _STORE_V6 = BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG

# Where a record's parts are, relative to the buffer: one row of the array that `scan_records` fills.
AT, SIZE, BODY, BODY_SIZE, TOPIC, TOPIC_SIZE, PROPERTIES, PROPERTIES_SIZE = range(8)
PARTS = 8


@kernel
def _property_crc_differs(data: Any, at: int, end: int) -> bool:
    """Whether the record `data[at:end]` ends in the property with its checksum, and the checksum is wrong."""
    own = end - _CRC_SIZE
    for i in range(_CRC_PREFIX.size):
        if data[own + i] != _CRC_PREFIX[i]:
            return False
    crc = crc32(data, at, own - at) & 0x7FFFFFFF
    for i in range(_CRC_DIGITS):
        if data[own + _CRC_PREFIX.size + i] != 0x30 + crc % 10:
            return True
        crc //= 10
    return data[end - 1] != _CRC_END


@kernel
def check_entry(data: Any, at: int, limit: int, offset: int, file_end: int) -> int:
    """Judge the DLedger header at `data[at:limit]`, at `offset` of the log, as ``dledger_entry.check_entry`` does."""
    if limit - at < _BLANK_SIZE:
        return _UNDERFLOW
    magic = load_i32(data, at)
    size = np.int64(load_i32(data, at + _ENTRY_SIZE_AT))
    if magic != _ENTRY_MAGIC:
        if magic == _ENTRY_BLANK_MAGIC:
            return _BLANK
        return _EMPTY if magic == 0 and size == 0 else _BAD_MAGIC
    if size < _ENTRY_HEADER_SIZE + _FIXED_LENGTH or size > file_end - offset:
        return _BAD_SIZE
    if size > limit - at:
        return _UNDERFLOW
    if load_i64(data, at + _ENTRY_POS_AT) != offset:
        return _BAD_PHYSICAL_OFFSET
    record = at + _ENTRY_HEADER_SIZE
    magic = load_i32(data, record + _MAGIC_AT)
    if magic not in (_MESSAGE_MAGIC, _MESSAGE_MAGIC_V2):
        return _BAD_MAGIC
    body_size = size - _ENTRY_HEADER_SIZE
    if load_i32(data, at + _ENTRY_BODY_SIZE_AT) != body_size or load_i32(data, record) != body_size:
        return _BAD_LENGTH
    return _MESSAGE


@kernel
def check_record(
    data: Any, at: int, limit: int, physical_offset: int, file_end: int, check_crc: bool, parts: Any
) -> int:
    """Judge the record at `data[at:limit]`; fill `parts` for a message.

    It makes the tests of ``message_decoder.decode_message`` in the same order, except those of the properties.
    """
    if limit - at < _BLANK_SIZE:
        return _UNDERFLOW
    size = np.int64(load_i32(data, at))
    magic = load_i32(data, at + _MAGIC_AT)
    wider = 0
    if magic != _MESSAGE_MAGIC:
        if magic == _BLANK_MAGIC:
            return _BLANK
        if magic != _MESSAGE_MAGIC_V2:
            return _EMPTY if magic == 0 and size == 0 else _BAD_MAGIC
        wider = _V2_EXTRA
    if size < _FIXED_LENGTH or size > file_end - physical_offset:
        return _BAD_SIZE
    if size > limit - at:
        return _UNDERFLOW
    if load_i64(data, at + _PHYSICAL_OFFSET_AT) != physical_offset:
        return _BAD_PHYSICAL_OFFSET
    sys_flag = load_i32(data, at + _SYS_FLAG_AT)
    hosts = (_V6_EXTRA if sys_flag & _BORN_V6 else 0) + (_V6_EXTRA if sys_flag & _STORE_V6 else 0)
    end = at + size
    body = at + _BODY_AT + hosts
    if body + wider + 3 > end:
        return _BAD_LENGTH
    body_size = max(np.int64(0), np.int64(load_i32(data, at + _BODY_LENGTH_AT + hosts)))
    topic = body + body_size + wider + 1
    if topic + 2 > end:
        return _BAD_LENGTH
    topic_size = np.int64(load_i16(data, topic - 2)) if wider else np.int64(np.int8(data[topic - 1]))
    properties = topic + topic_size + 2
    if topic_size < 0 or properties > end:
        return _BAD_LENGTH
    properties_size = max(np.int64(0), np.int64(load_i16(data, properties - 2)))
    if properties + properties_size != end:
        return _BAD_LENGTH
    if topic_size == 0:
        return _BAD_TOPIC
    if check_crc:
        if body_size > 0 and crc32(data, body, body_size) & 0x7FFFFFFF != np.int64(load_i32(data, at + _BODY_CRC_AT)):
            return _BAD_CRC
        # Most records end in another property. The first byte shows this without a call, which would cost on each
        # record.
        own = end - _CRC_SIZE
        if properties_size >= _CRC_SIZE and data[own] == _CRC_PREFIX[0] and _property_crc_differs(data, at, end):
            return _BAD_PROPERTY_CRC
    parts[AT], parts[SIZE] = at, size
    parts[BODY], parts[BODY_SIZE] = body, body_size
    parts[TOPIC], parts[TOPIC_SIZE] = topic, topic_size
    parts[PROPERTIES], parts[PROPERTIES_SIZE] = properties, properties_size
    return _MESSAGE


@kernel
def scan_records(
    data: Any, at: int, limit: int, offset: int, file_end: int, frame: int, check_crc: bool, parts: Any
) -> tuple[int, int, int]:
    """Follow the records of `data[at:limit]` until one is not a message, or `parts` is full.

    `offset` is the physical offset of ``data[at]``. `frame` is the size in bytes of the header before each record: 0,
    or that of a DLedger entry. `parts` is int64[n, PARTS], and gets where the records are, not their frames. Returns
    the number of messages, where the scan stopped in `data`, and the verdict there: MESSAGE if `parts` is full.
    """
    count = 0
    while count < parts.shape[0]:
        verdict = check_entry(data, at, limit, offset, file_end) if frame else _MESSAGE
        if verdict == _MESSAGE:
            verdict = check_record(data, at + frame, limit, offset + frame, file_end, check_crc, parts[count])
        if verdict != _MESSAGE:
            return count, at, verdict
        size = frame + parts[count, SIZE]
        at += size
        offset += size
        count += 1
    return count, at, _MESSAGE


# ----------------------------------------------------------------------------------------------------------------------
# The compiled search for the next record that names its own physical offset.

_FIRST_BYTE = fmt.MESSAGE_MAGIC_CODE >> 24 & 0xFF
assert fmt.MESSAGE_MAGIC_CODE_V2 >> 24 & 0xFF == _FIRST_BYTE

#: The number of bytes of a record that the search reads, without its frame.
LOOKED_AT = _PHYSICAL_OFFSET_AT + 8
NOT_FOUND = -1


@kernel
def find_own_offset(data: Any, at: int, limit: int, data_offset: int, frame: int) -> int:
    """The first index from `at` where a record names its own physical offset, or NOT_FOUND.

    Such a record has a magic code, and its physical offset field holds its own offset; with a `frame`, so does its
    entry's. `data_offset` is the physical offset of ``data[0]``. No byte at or after `limit` is read.
    """
    for i in range(at, limit - frame - LOOKED_AT + 1):
        record = i + frame
        if (
            data[record + _MAGIC_AT] != _FIRST_BYTE
            or load_i64(data, record + _PHYSICAL_OFFSET_AT) != data_offset + record
        ):
            continue
        magic = load_i32(data, record + _MAGIC_AT)
        if magic not in (_MESSAGE_MAGIC, _MESSAGE_MAGIC_V2):
            continue
        if frame == 0 or load_i64(data, i + _ENTRY_POS_AT) == data_offset + i:
            return i
    return NOT_FOUND
