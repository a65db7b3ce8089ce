"""The first bytes of a segment: whether it was begun, how its records are framed, when the first one was stored."""

from __future__ import annotations

from reput.source.record import dledger_entry as dle
from reput.source.record import message_format as fmt
from reput.source.record.message_sys_flag import BORNHOST_V6_FLAG

# As far as the first record's store timestamp, behind a DLedger header and an IPv6 host.
HEAD_SIZE = dle.ENTRY_HEADER_SIZE + fmt.STORE_TIMESTAMP_AT + fmt.HOST_V6_EXTRA + 8
_RECORD_MAGIC_CODES = (fmt.MESSAGE_MAGIC_CODE, fmt.MESSAGE_MAGIC_CODE_V2)


def _i32(head: bytes, at: int) -> int:
    return int.from_bytes(head[at : at + 4], "big", signed=True)


def _i64(head: bytes, at: int) -> int:
    return int.from_bytes(head[at : at + 8], "big", signed=True)


def is_framed(head: bytes, file_from_offset: int, size: int) -> bool | None:
    """Whether the segment holds DLedger entries; None when its head does not show it, as when it is all zeros."""
    if _i32(head, fmt.MAGIC_AT) in (*_RECORD_MAGIC_CODES, fmt.BLANK_MAGIC_CODE):
        return False
    magic, entry_size = _i32(head, 0), _i32(head, dle.ENTRY_SIZE_AT)
    if magic == dle.ENTRY_BLANK_MAGIC_CODE:
        return True if entry_size == size else None
    body_size = _i32(head, dle.ENTRY_BODY_SIZE_AT)
    if magic == dle.ENTRY_MAGIC_CODE and entry_size == dle.ENTRY_HEADER_SIZE + body_size:
        return True if _i64(head, dle.ENTRY_POS_AT) == file_from_offset else None
    return None


def is_begun(head: bytes, file_from_offset: int, frame: int) -> bool:
    """Whether the broker has begun to write this segment, and so has finished the one before it."""
    if len(head) < fmt.PHYSICAL_OFFSET_AT + 8:
        return False
    if frame:
        magic, own_offset = _i32(head, 0), _i64(head, dle.ENTRY_POS_AT)
        return magic == dle.ENTRY_BLANK_MAGIC_CODE or (magic == dle.ENTRY_MAGIC_CODE and own_offset == file_from_offset)
    magic, own_offset = _i32(head, fmt.MAGIC_AT), _i64(head, fmt.PHYSICAL_OFFSET_AT)
    return magic == fmt.BLANK_MAGIC_CODE or (magic in _RECORD_MAGIC_CODES and own_offset == file_from_offset)


def is_blank(head: bytes, frame: int) -> bool:
    """Whether the segment holds nothing from here on: the blank that fills it up begins here."""
    return _i32(head, 0) == dle.ENTRY_BLANK_MAGIC_CODE if frame else _i32(head, fmt.MAGIC_AT) == fmt.BLANK_MAGIC_CODE


def first_store_timestamp(head: bytes, frame: int) -> int | None:
    """The store time in milliseconds of the record at the begin of `head`; None when there is none."""
    record = head[frame:]
    if _i32(record, fmt.MAGIC_AT) not in _RECORD_MAGIC_CODES:
        return None
    shift = fmt.HOST_V6_EXTRA if _i32(record, fmt.SYS_FLAG_AT) & BORNHOST_V6_FLAG else 0
    return _i64(record, fmt.STORE_TIMESTAMP_AT + shift)
