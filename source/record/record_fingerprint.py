"""Enough of one record to recognize it."""

from __future__ import annotations

from dataclasses import dataclass

from reput.source.record import message_format as fmt
from reput.source.record.message_sys_flag import BORNHOST_V6_FLAG

#: The first bytes of a record that its fingerprint is made of, whatever its hosts are.
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
    """The record at `offset` of the log, by its first `FINGERPRINTED_BYTES`; None when they are none of that offset.

    Checksums are not compared: whatever is written over a record begins with these bytes.
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
