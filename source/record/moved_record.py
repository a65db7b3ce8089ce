"""A record at another place of a log: every physical offset that the record's own bytes hold.

Brokers of 4.9.3 and 5.5.0 store these in a record, and no others:

* its own physical offset (``CommitLog.MessageExtEncoder``);
* ``preparedTransactionOffset`` of a committed message: where its half message is (``EndTransactionProcessor``);
* ORIGIN_MESSAGE_ID of a message that a consumer sent back: if the broker set it, it is an offset message id, whose last
  bytes are the physical offset (``AbstractSendMessageProcessor#consumerSendMsgBack``). A client that consumes in order
  sets it to a unique key, which has the same form and stays. DLQ_ORIGIN_MESSAGE_ID, which proxies read, is like it.

The checksum over the whole record in the last property is computed again if there is one. Other numbers in properties
and in bodies of the broker's own topics are queue offsets: TRAN_PREPARED_QUEUE_OFFSET, the body of an op message
(``TransactionalMessageBridge``), checkpoints and acks of POP (``PopCheckPoint``, ``AckMsg``, POP_CK), INNER_BASE and
INNER_MULTI_QUEUE_OFFSET. Bodies never change: traces of clients name messages by unique key, and their offset message
ids are those of the log that they were sent to.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import Protocol

from reput.source.record import message_format as fmt
from reput.source.record.message_decoder import MessageId
from reput.source.record.message_format import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG
from reput.source.record.message_origin import PROPERTY_DLQ_ORIGIN_MESSAGE_ID, PROPERTY_ORIGIN_MESSAGE_ID
from reput.source.record.message_properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

_OFFSET, _FLAGS = struct.Struct(">q"), struct.Struct(">i")
_NAMES = f"(?:{PROPERTY_ORIGIN_MESSAGE_ID}|{PROPERTY_DLQ_ORIGIN_MESSAGE_ID})"
_ID = re.compile(
    f"(?:^|{PROPERTY_SEPARATOR}){_NAMES}{NAME_VALUE_SEPARATOR}([0-9a-fA-F]{{32}}|[0-9a-fA-F]{{56}})"
    f"(?={PROPERTY_SEPARATOR}|$)".encode()
)


class MovedTo(Protocol):
    """The new places of a log's records."""

    def offset(self, offset: int) -> int | None:
        """The new offset of the record that was at `offset`; None if there was no record."""

    def message_id(self, message_id: MessageId) -> MessageId | None:
        """The new id of the message that had `message_id`; None if there was no such message."""


def move_record(record: bytearray, offset: int, properties: int, moved: MovedTo) -> None:
    """Change a record, in place, to be the same message at `offset`; its properties begin at byte `properties`.

    Offsets and ids of records that the log no longer has stay.
    """
    _OFFSET.pack_into(record, fmt.PHYSICAL_OFFSET_AT, offset)
    (flags,) = _FLAGS.unpack_from(record, fmt.SYS_FLAG_AT)
    hosts = bool(flags & BORNHOST_V6_FLAG) + bool(flags & STOREHOSTADDRESS_V6_FLAG)
    prepared_at = fmt.PREPARED_OFFSET_AT + hosts * fmt.HOST_V6_EXTRA
    (prepared,) = _OFFSET.unpack_from(record, prepared_at)
    if prepared > 0 and (now := moved.offset(prepared)) is not None:
        _OFFSET.pack_into(record, prepared_at, now)
    for found in _ID.finditer(bytes(record[properties:])):
        message_id = moved.message_id(MessageId.parse(found[1].decode()))
        if message_id is not None:
            at = properties + found.start(1)
            record[at : at + len(found[1])] = str(message_id).encode()
    crc_at = len(record) - fmt.PROPERTY_CRC_SIZE
    if crc_at >= properties and record.startswith(fmt.PROPERTY_CRC_PREFIX, crc_at):
        record[crc_at:] = fmt.property_crc(zlib.crc32(record[:crc_at]))
