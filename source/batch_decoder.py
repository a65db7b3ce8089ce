"""The compiled decoder: bytes of a segment to columns, and one verdict where they end.

Same contract as the reference decoder (``message_decoder``); nothing here decides anything that is not decided there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from reput.source import message_format as fmt
from reput.source import property_kernels as pk
from reput.source import record_kernels as rk
from reput.source.java_string import decode_utf8, parse_int
from reput.source.message_decoder import Message, Verdict
from reput.source.message_properties import inner_batch, parse_properties
from reput.source.message_sys_flag import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG

Bytes: TypeAlias = NDArray[np.uint8]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]

SMALLEST_RECORD = fmt.FIXED_LENGTH + 1

_BORN_V6, _STORE_V6, _V6_EXTRA = BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG, fmt.HOST_V6_EXTRA
_QUEUE_ID_AT, _QUEUE_OFFSET_AT, _SYS_FLAG_AT = fmt.QUEUE_ID_AT, fmt.QUEUE_OFFSET_AT, fmt.SYS_FLAG_AT
_STORE_TIMESTAMP_AT, _BORN_TIMESTAMP_AT = fmt.STORE_TIMESTAMP_AT, fmt.BORN_TIMESTAMP_AT
_FLAG_AT, _BODY_CRC_AT, _STORE_HOST_AT = fmt.FLAG_AT, fmt.BODY_CRC_AT, fmt.STORE_HOST_AT
_RECONSUME_TIMES_AT, _PREPARED_OFFSET_AT = fmt.RECONSUME_TIMES_AT, fmt.PREPARED_OFFSET_AT


@njit(cache=True)
def _dispatch_fields(
    data: Any, parts: Any, count: int, queue_ids: Any, queue_offsets: Any, sys_flags: Any, store_timestamps: Any
) -> None:
    for row in range(count):
        at = parts[row, rk.AT]
        sys_flag = rk.load_i32(data, at + _SYS_FLAG_AT)
        shift = _V6_EXTRA if sys_flag & _BORN_V6 else 0
        queue_ids[row] = rk.load_i32(data, at + _QUEUE_ID_AT)
        queue_offsets[row] = rk.load_i64(data, at + _QUEUE_OFFSET_AT)
        sys_flags[row] = sys_flag
        store_timestamps[row] = rk.load_i64(data, at + _STORE_TIMESTAMP_AT + shift)


@njit(cache=True)
def _other_fields(
    data: Any,
    parts: Any,
    count: int,
    flags: Any,
    born_timestamps: Any,
    store_hosts: Any,
    reconsume_times: Any,
    prepared_offsets: Any,
    body_crcs: Any,
) -> None:
    for row in range(count):
        at = parts[row, rk.AT]
        sys_flag = rk.load_i32(data, at + _SYS_FLAG_AT)
        shift = _V6_EXTRA if sys_flag & _BORN_V6 else 0
        flags[row] = rk.load_i32(data, at + _FLAG_AT)
        body_crcs[row] = rk.load_i32(data, at + _BODY_CRC_AT)
        born_timestamps[row] = rk.load_i64(data, at + _BORN_TIMESTAMP_AT)
        store_hosts[row] = at + _STORE_HOST_AT + shift
        shift += _V6_EXTRA if sys_flag & _STORE_V6 else 0
        reconsume_times[row] = rk.load_i32(data, at + _RECONSUME_TIMES_AT + shift)
        prepared_offsets[row] = rk.load_i64(data, at + _PREPARED_OFFSET_AT + shift)


@dataclass(frozen=True)
class OtherFields:
    """The fields that only the message table needs, one value a record.

    `store_host_at` is where the store host begins in the buffer; the born host is at a fixed offset in the record.
    """

    flag: Int32s
    born_timestamp: Int64s
    store_host_at: Int64s
    reconsume_times: Int32s
    prepared_transaction_offset: Int64s
    body_crc: Int32s


@dataclass(frozen=True)
class InnerBatches:
    """How many messages each record holds, and the queue offset of the first; 1 and -1 for an ordinary record (5.x)."""

    batch_num: Int32s
    msg_base_offset: Int64s


@dataclass(frozen=True)
class RecordColumns:
    """Records of one buffer as columns; valid only as long as the buffer keeps its bytes.

    Attributes
    ----------
    data
        uint8, the buffer; ``parts`` and ``spans`` point into it.
    place
        The place in the log of ``data[0]``.
    parts
        int64[n, PARTS]: start and size of the record, its body, its topic, its properties.
    spans
        int32[n, LOCATED, 2]: start and size of each property the store reads; size 0 = absent.
    tags_code
        int64[n], the ConsumeQueue entry's third field.
    queue_id, queue_offset, sys_flag, store_timestamp
        As stored; milliseconds.
    """

    data: Bytes
    place: int
    parts: Int64s
    spans: Int32s
    tags_code: Int64s
    queue_id: Int32s
    queue_offset: Int64s
    sys_flag: Int32s
    store_timestamp: Int64s

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def physical_offset(self) -> Int64s:
        """int64[n], each record's place in the log."""
        return self.parts[:, rk.AT] + self.place

    @property
    def msg_size(self) -> Int64s:
        """int64[n], each record's size in bytes."""
        return self.parts[:, rk.SIZE]

    def other_fields(self) -> OtherFields:
        """Decode the fields that only the message table needs."""
        count = len(self)
        fields = OtherFields(
            np.empty(count, np.int32),
            np.empty(count, np.int64),
            np.empty(count, np.int64),
            np.empty(count, np.int32),
            np.empty(count, np.int64),
            np.empty(count, np.int32),
        )
        _other_fields(
            self.data,
            self.parts,
            count,
            fields.flag,
            fields.born_timestamp,
            fields.store_host_at,
            fields.reconsume_times,
            fields.prepared_transaction_offset,
            fields.body_crc,
        )
        return fields

    def inner_batches(self) -> InnerBatches:
        """Decode INNER_NUM and INNER_BASE (``DispatchRequest#batchSize``, ``#msgBaseOffset``)."""
        batches = InnerBatches(np.empty(len(self), np.int32), np.empty(len(self), np.int64))
        good = _judge_inner_batches(self.data, self.parts, self.spans, batches.batch_num, batches.msg_base_offset)
        assert good == len(self)
        return batches

    def messages(self) -> Iterator[Message]:
        """Each record as the reference decoder's `Message`; for tests and single look-ups, not for speed."""
        other, batches = self.other_fields(), self.inner_batches()
        for row in range(len(self)):
            sys_flag = int(self.sys_flag[row])
            born_at = int(self.parts[row, rk.AT]) + fmt.BORN_HOST_AT
            yield Message(
                physical_offset=int(self.physical_offset[row]),
                msg_size=int(self.msg_size[row]),
                body_crc=int(other.body_crc[row]),
                queue_id=int(self.queue_id[row]),
                flag=int(other.flag[row]),
                queue_offset=int(self.queue_offset[row]),
                sys_flag=sys_flag,
                born_timestamp=int(other.born_timestamp[row]),
                born_host=self._host(born_at, sys_flag & BORNHOST_V6_FLAG),
                store_timestamp=int(self.store_timestamp[row]),
                store_host=self._host(int(other.store_host_at[row]), sys_flag & STOREHOSTADDRESS_V6_FLAG),
                reconsume_times=int(other.reconsume_times[row]),
                prepared_transaction_offset=int(other.prepared_transaction_offset[row]),
                body=self._bytes(row, rk.BODY, rk.BODY_SIZE),
                topic=decode_utf8(self._bytes(row, rk.TOPIC, rk.TOPIC_SIZE)),
                properties=parse_properties(decode_utf8(self._bytes(row, rk.PROPERTIES, rk.PROPERTIES_SIZE))),
                tags_code=int(self.tags_code[row]),
                batch_num=int(batches.batch_num[row]),
                msg_base_offset=int(batches.msg_base_offset[row]),
            )

    def _bytes(self, row: int, start: int, size: int) -> bytes:
        at = int(self.parts[row, start])
        return self.data[at : at + int(self.parts[row, size])].tobytes()

    def _host(self, at: int, is_v6: int) -> tuple[bytes, int]:
        size = fmt.HOST_V6_SIZE if is_v6 else fmt.HOST_V4_SIZE
        host = self.data[at : at + size].tobytes()
        return host[:-4], int.from_bytes(host[-4:], "big", signed=True)


@dataclass(frozen=True)
class Decoded:
    """What `decode_records` found: the messages, where it stopped in the buffer, and the verdict there."""

    columns: RecordColumns
    stop_at: int
    verdict: Verdict


def decode_records(
    data: Bytes,
    at: int,
    limit: int,
    place: int,
    file_end: int,
    *,
    check_crc: bool,
    delays_ms: Int64s,
    frame: int = 0,
    parts: Int64s | None = None,
) -> Decoded:
    """Decode the records of `data[at:limit]` until one is not a message.

    Parameters
    ----------
    data
        Bytes of one segment file; `place` is the place in the log of ``data[0]``.
    file_end
        The place in the log of the segment's end (exclusive).
    delays_ms
        Delay levels in milliseconds, level 1 first.
    frame
        Size in bytes of what stands before each record: 0, or ``dledger_entry.ENTRY_HEADER_SIZE``.
    parts
        Scratch space, int64[n, PARTS], to decode at most n records; by default enough for any.
    """
    if parts is None:
        parts = np.empty((records_max(limit - at), rk.PARTS), np.int64)
    count, stop_at, verdict = rk.scan_records(data, at, limit, place + at, file_end, frame, check_crc, parts)
    columns, bad = decode_columns(data, place, parts[:count], delays_ms)
    if bad is not Verdict.MESSAGE:
        return Decoded(columns, int(parts[len(columns), rk.AT]) - frame, bad)
    return Decoded(columns, stop_at, Verdict(verdict))


def records_max(size: int) -> int:
    """How many records `size` bytes can hold, and one."""
    return size // SMALLEST_RECORD + 1


def decode_columns(data: Bytes, place: int, parts: Int64s, delays_ms: Int64s) -> tuple[RecordColumns, Verdict]:
    """Columns of the records that `scan_records` found, and MESSAGE; or those before a bad one, and its verdict."""
    spans = np.empty((len(parts), len(pk.LOCATED), 2), np.int32)
    pk.locate_properties(data, parts, len(parts), spans)
    codes = np.empty(len(parts), np.int64)
    good, verdict = _fill_tags_codes(data, parts, spans, delays_ms, codes), Verdict.MESSAGE
    if good < len(parts):
        verdict = Verdict.BAD_DELAY
    if (judged := _judge_inner_batches(data, parts[:good], spans)) < good:
        good, verdict = judged, Verdict.BAD_INNER_BATCH
    return _columns(data, place, parts[:good], spans[:good], codes[:good]), verdict


def _columns(data: Bytes, place: int, parts: Int64s, spans: Int32s, codes: Int64s) -> RecordColumns:
    count = len(parts)
    queue_ids, queue_offsets = np.empty(count, np.int32), np.empty(count, np.int64)
    sys_flags, store_timestamps = np.empty(count, np.int32), np.empty(count, np.int64)
    _dispatch_fields(data, parts, count, queue_ids, queue_offsets, sys_flags, store_timestamps)
    return RecordColumns(data, place, parts, spans, codes, queue_ids, queue_offsets, sys_flags, store_timestamps)


def _fill_tags_codes(data: Bytes, parts: Int64s, spans: Int32s, delays_ms: Int64s, codes: Int64s) -> int:
    """Fill `codes`; returns how many records from the first are good."""
    filled = 0
    while filled < len(parts):
        row, why = pk.tags_codes(data, parts[filled:], len(parts) - filled, spans[filled:], delays_ms, codes[filled:])
        filled += row
        if why != pk.NOT_ASCII:
            break
        # Java reads any Unicode digit; so rare that the reference rule decides it.
        start, size = (int(value) for value in spans[filled, pk.DELAY])
        level = parse_int(decode_utf8(data[start : start + size].tobytes()))
        if level is None:
            break
        text = str(level).encode()
        codes[filled] = _tags_code_of_level(data, parts, spans, delays_ms, filled, text)
        filled += 1
    return filled


def _tags_code_of_level(data: Bytes, parts: Int64s, spans: Int32s, delays_ms: Int64s, row: int, level: bytes) -> int:
    """The tags code of one record whose DELAY reads as the ASCII text `level`."""
    extended = np.concatenate([data, np.frombuffer(level, np.uint8)])
    span = spans[row : row + 1].copy()
    span[0, pk.DELAY] = (len(data), len(level))
    code = np.empty(1, np.int64)
    pk.tags_codes(extended, parts[row : row + 1], 1, span, delays_ms, code)
    return int(code[0])


_NO_INT32S, _NO_INT64S = np.empty(0, np.int32), np.empty(0, np.int64)


def _judge_inner_batches(
    data: Bytes, parts: Int64s, spans: Int32s, batch_nums: Int32s = _NO_INT32S, base_offsets: Int64s = _NO_INT64S
) -> int:
    """How many records from the first have good numbers, or none; fills the arrays if they have room."""
    row = 0
    while row < len(parts):
        row, why = pk.inner_batches(data, spans, len(parts), row, batch_nums, base_offsets)
        if why != pk.NOT_ASCII:
            break
        at, size = int(parts[row, rk.PROPERTIES]), int(parts[row, rk.PROPERTIES_SIZE])
        batch = inner_batch(parse_properties(decode_utf8(data[at : at + size].tobytes())))
        if batch is None:
            break
        if len(batch_nums):
            batch_nums[row], base_offsets[row] = batch
        row += 1
    return row
