"""The frame around each record of a DLedger commitlog (dledger 0.2.3 and later), and its rules in plain Python.

``<storePathRootDir>/dledger-<dLegerSelfId>/data`` holds entries: a header, then one record, whose own offset is the
entry's plus the header's size. Ranges of such a log begin at entries; queues and index name the records. All integers
are big-endian and signed.

Sources: ``DLedgerEntry``, ``DLedgerEntryCoder``, ``DLedgerCommitLog#checkMessageAndReturnSize``.
"""

from __future__ import annotations

import struct

from reput.source.record import message_format as fmt
from reput.source.record.message_decoder import Message, Verdict, decode_message

ENTRY_MAGIC_CODE = 1
ENTRY_BLANK_MAGIC_CODE = -1  # the rest of the file holds no entry; its size in bytes follows

# magic, size with this header, index, term, offset of the entry, channel, chain CRC, body CRC, size of the body.
# DLedger leaves both checksums 0 or keeps them for itself: RocketMQ does not read either.
_HEADER = struct.Struct(">iiqqqiiii")

ENTRY_SIZE_AT = 4
ENTRY_INDEX_AT = 8
ENTRY_POS_AT = 24
ENTRY_BODY_SIZE_AT = 44
ENTRY_HEADER_SIZE = _HEADER.size

assert ENTRY_HEADER_SIZE == 48
assert ENTRY_BODY_SIZE_AT == ENTRY_HEADER_SIZE - 4
assert struct.calcsize(">iiqq") == ENTRY_POS_AT


def check_entry(data: memoryview, at: int, offset: int, file_end: int) -> Verdict:
    """Judge the header at `data[at:]`, at `offset` of the log; MESSAGE means that a record follows it.

    It is stricter than the broker, which reads only the magic code: sizes, offset and the record's own size must fit. A
    plain record is not an entry: a store with both kinds has them in different files.
    """
    available = len(data) - at
    if available < fmt.BLANK_SIZE:
        return Verdict.UNDERFLOW
    magic, size = struct.unpack_from(">ii", data, at)
    if magic == ENTRY_BLANK_MAGIC_CODE:
        return Verdict.BLANK
    if magic == 0 and size == 0:
        return Verdict.EMPTY
    if magic != ENTRY_MAGIC_CODE:
        return Verdict.BAD_MAGIC
    if not ENTRY_HEADER_SIZE + fmt.FIXED_LENGTH <= size <= file_end - offset:
        return Verdict.BAD_SIZE
    if size > available:
        return Verdict.UNDERFLOW
    *_, pos, _, _, _, body_size = _HEADER.unpack_from(data, at)
    if pos != offset:
        return Verdict.BAD_PHYSICAL_OFFSET
    total_size, record_magic = struct.unpack_from(">ii", data, at + ENTRY_HEADER_SIZE)
    if record_magic not in (fmt.MESSAGE_MAGIC_CODE, fmt.MESSAGE_MAGIC_CODE_V2):
        return Verdict.BAD_MAGIC
    if not size - ENTRY_HEADER_SIZE == body_size == total_size:
        return Verdict.BAD_LENGTH
    return Verdict.MESSAGE


def decode_entry(
    data: memoryview, at: int, offset: int, file_end: int, *, check_crc: bool, delays_ms: tuple[int, ...]
) -> tuple[Verdict, Message | None]:
    """Judge and decode the entry at `data[at:]`, at `offset` of the log.

    The other parameters are those of ``message_decoder.decode_message``. The message's physical offset is `offset` plus
    the header's size.
    """
    verdict = check_entry(data, at, offset, file_end)
    if verdict is not Verdict.MESSAGE:
        return verdict, None
    at, offset = at + ENTRY_HEADER_SIZE, offset + ENTRY_HEADER_SIZE
    return decode_message(data, at, offset, file_end, check_crc=check_crc, delays_ms=delays_ms)
