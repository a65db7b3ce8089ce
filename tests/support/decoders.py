"""The two decoders behind one signature, and what they must say of a message that ``record_writer`` wrote."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pytest
from support import model, record_writer

from reput.source.kernels.batch_decoder import decode_records
from reput.source.record.dledger_entry import decode_entry
from reput.source.record.message_decoder import Message, Verdict, decode_message

DELAYS_MS = tuple(model.Settings().delay_ms)

# Lies behind and before what a decoder may look at: a decoder that reads it gives another answer.
_POISON = bytes.fromhex("ffffffffdaa320a7") * 8
_FRAME = record_writer.ENTRY_HEADER_BYTES


class Outcome(NamedTuple):
    """The messages, the first offset that is not the begin of a message, and the verdict there."""

    messages: list[Message]
    stop_at: int
    verdict: Verdict


class Decoder(Protocol):
    """Decodes bytes of one segment until one is not a message; `offset` is the offset in the log of ``log[0]``."""

    def __call__(
        self,
        log: bytes,
        offset: int = 0,
        file_end: int | None = None,
        *,
        check_crc: bool = True,
        delays_ms: Sequence[int] = DELAYS_MS,
        dledger: bool = False,
    ) -> Outcome:
        """Without `file_end` the segment ends where `log` ends."""


def reference_decoder(
    log: bytes,
    offset: int = 0,
    file_end: int | None = None,
    *,
    check_crc: bool = True,
    delays_ms: Sequence[int] = DELAYS_MS,
    dledger: bool = False,
) -> Outcome:
    """``message_decoder`` in a loop."""
    file_end = offset + len(log) if file_end is None else file_end
    data, at, delays = memoryview(log), 0, tuple(delays_ms)
    messages: list[Message] = []
    decode_one = decode_entry if dledger else decode_message
    while True:
        verdict, message = decode_one(data, at, offset + at, file_end, check_crc=check_crc, delays_ms=delays)
        assert (verdict is Verdict.MESSAGE) == (message is not None)
        if message is None:
            return Outcome(messages, at, verdict)
        messages.append(message)
        at += message.msg_size + (_FRAME if dledger else 0)


def batch_decoder(
    log: bytes,
    offset: int = 0,
    file_end: int | None = None,
    *,
    check_crc: bool = True,
    delays_ms: Sequence[int] = DELAYS_MS,
    dledger: bool = False,
) -> Outcome:
    """``batch_decoder``, from the middle of a larger buffer."""
    file_end = offset + len(log) if file_end is None else file_end
    data = np.frombuffer(_POISON + log + _POISON, np.uint8)
    at = len(_POISON)
    decoded = decode_records(
        data,
        at,
        at + len(log),
        offset - at,
        file_end,
        check_crc=check_crc,
        delays_ms=np.array(delays_ms, np.int64),
        frame=_FRAME if dledger else 0,
    )
    return Outcome(list(decoded.columns.messages()), decoded.stop_at - at, decoded.verdict)


DECODERS: dict[str, Decoder] = {"reference": reference_decoder, "batch": batch_decoder}

#: Runs a test once for each decoder, as its argument `decode`.
each_decoder = pytest.mark.parametrize("decode", list(DECODERS.values()), ids=list(DECODERS))


def _host(host: record_writer.Host) -> tuple[bytes, int]:
    return ipaddress.ip_address(host[0]).packed, host[1]


def expected_message(
    physical_offset: int, message: record_writer.Message, settings: model.Settings | None = None
) -> Message:
    """Return the decoder's right result for `message` at that offset."""
    record = record_writer.encode(message, physical_offset)
    stored = model.parse_record(record)[1] if message.append_property_crc else message
    properties = model.parse_properties(stored.properties_bytes)
    is_inner_batch = {"INNER_NUM", "INNER_BASE"} <= properties.keys()
    return Message(
        physical_offset=physical_offset,
        msg_size=len(record),
        body_crc=record_writer.body_crc_of(message.body) if message.body_crc is None else message.body_crc,
        queue_id=message.queue_id,
        flag=message.flag,
        queue_offset=message.queue_offset or 0,
        sys_flag=message.stored_sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=_host(message.born_host),
        store_timestamp=message.store_timestamp,
        store_host=_host(message.store_host),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        body=message.body,
        topic=message.topic,
        properties=properties,
        tags_code=model.tags_code(message, settings or model.Settings()),
        batch_num=int(properties["INNER_NUM"]) if is_inner_batch else 1,
        msg_base_offset=int(properties["INNER_BASE"]) if is_inner_batch else -1,
    )
