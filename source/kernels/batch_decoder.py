"""The compiled decoder: bytes of a segment to columns, and one verdict where they end.

It has the contract of the reference decoder (``message_decoder``), and leaves every doubtful case to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from reput.source.arrays import Bools, Bytes, Int32s, Int64s
from reput.source.kernels import property_kernels as pk
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.byte_kernels import kernel, load_i32, load_i64
from reput.source.record import message_format as fmt
from reput.source.record.message_decoder import Message, Verdict, decode_message
from reput.source.record.message_format import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG
from reput.source.record.message_properties import decode_utf8, inner_batch, parse_properties

SMALLEST_RECORD = fmt.FIXED_LENGTH + 1

_BORN_V6, _STORE_V6, _V6_EXTRA = BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG, fmt.HOST_V6_EXTRA
_QUEUE_ID_AT, _QUEUE_OFFSET_AT, _SYS_FLAG_AT = fmt.QUEUE_ID_AT, fmt.QUEUE_OFFSET_AT, fmt.SYS_FLAG_AT
_STORE_TIMESTAMP_AT, _BORN_TIMESTAMP_AT = fmt.STORE_TIMESTAMP_AT, fmt.BORN_TIMESTAMP_AT
_FLAG_AT, _BODY_CRC_AT, _STORE_HOST_AT = fmt.FLAG_AT, fmt.BODY_CRC_AT, fmt.STORE_HOST_AT
_RECONSUME_TIMES_AT, _PREPARED_OFFSET_AT = fmt.RECONSUME_TIMES_AT, fmt.PREPARED_OFFSET_AT


@kernel
def _dispatch_columns(
    data: Any,
    parts: Any,
    first: int,
    delays_ms: Any,
    spans: Any,
    tags_codes: Any,
    queue_ids: Any,
    queue_offsets: Any,
    sys_flags: Any,
    store_timestamps: Any,
) -> int:
    """Fill the columns from row `first`; return the first row whose numbers are not good here, or the end.

    In that row all but `tags_codes` is filled. The work goes row by row, while a record is still in the cache.
    """
    for row in range(first, parts.shape[0]):
        at = parts[row, rk.AT]
        sys_flag = load_i32(data, at + _SYS_FLAG_AT)
        store_timestamp = load_i64(data, at + _STORE_TIMESTAMP_AT + (_V6_EXTRA if sys_flag & _BORN_V6 else 0))
        queue_ids[row] = load_i32(data, at + _QUEUE_ID_AT)
        queue_offsets[row] = load_i64(data, at + _QUEUE_OFFSET_AT)
        sys_flags[row] = sys_flag
        store_timestamps[row] = store_timestamp
        pk.locate_properties(data, parts, row, spans)
        tags_codes[row], is_good = pk.tags_code(data, parts, row, spans, store_timestamp, delays_ms)
        if not (is_good and pk.inner_batch(data, row, spans)[2]):
            return row
    return parts.shape[0]


@kernel
def _inner_batches(data: Any, spans: Any, first: int, batch_nums: Any, base_offsets: Any) -> int:
    """Fill the columns from row `first`; return the first row whose numbers are not good here, or the end."""
    for row in range(first, batch_nums.size):
        batch_nums[row], base_offsets[row], is_good = pk.inner_batch(data, row, spans)
        if not is_good:
            return row
    return batch_nums.size


@kernel
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
        sys_flag = load_i32(data, at + _SYS_FLAG_AT)
        shift = _V6_EXTRA if sys_flag & _BORN_V6 else 0
        flags[row] = load_i32(data, at + _FLAG_AT)
        body_crcs[row] = load_i32(data, at + _BODY_CRC_AT)
        born_timestamps[row] = load_i64(data, at + _BORN_TIMESTAMP_AT)
        store_hosts[row] = at + _STORE_HOST_AT + shift
        shift += _V6_EXTRA if sys_flag & _STORE_V6 else 0
        reconsume_times[row] = load_i32(data, at + _RECONSUME_TIMES_AT + shift)
        prepared_offsets[row] = load_i64(data, at + _PREPARED_OFFSET_AT + shift)


@dataclass(frozen=True)
class OtherFields:
    """The fields that only the message table needs, one value per record.

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
    """The number of messages of each record, and the queue offset of the first; 1 and -1 for ordinary records (5.x)."""

    batch_num: Int32s
    msg_base_offset: Int64s


@dataclass(frozen=True)
class RecordColumns:
    """Records of one buffer as columns; valid only as long as the buffer keeps its bytes.

    Attributes
    ----------
    data
        uint8, the buffer; ``parts`` and ``spans`` point into it.
    data_offset
        The physical offset of ``data[0]``.
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
    data_offset: int
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
        """int64[n], each record's."""
        return self.parts[:, rk.AT] + self.data_offset

    @property
    def msg_size(self) -> Int64s:
        """int64[n], each record's size in bytes."""
        return self.parts[:, rk.SIZE]

    def first(self, count: int) -> RecordColumns:
        """The first `count` of the records."""
        return self._part(slice(count))

    def behind(self, count: int) -> RecordColumns:
        """The records after the first `count`."""
        return self._part(slice(count, None))

    def where(self, mask: Bools) -> RecordColumns:
        """The records for which `mask` is true."""
        return self._part(mask)

    def _part(self, part: slice | Bools) -> RecordColumns:
        return RecordColumns(
            self.data,
            self.data_offset,
            self.parts[part],
            self.spans[part],
            self.tags_code[part],
            self.queue_id[part],
            self.queue_offset[part],
            self.sys_flag[part],
            self.store_timestamp[part],
        )

    def other_fields(self, into: OtherFields | None = None) -> OtherFields:
        """Decode the fields that only the message table needs, into the memory of `into` if it is given."""
        count = len(self)
        fields = into or OtherFields(
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
        row, nums, bases = 0, batches.batch_num, batches.msg_base_offset
        while (row := _inner_batches(self.data, self.spans, row, nums, bases)) < len(self):
            batch = inner_batch(parse_properties(decode_utf8(self._bytes(row, rk.PROPERTIES, rk.PROPERTIES_SIZE))))
            assert batch is not None
            nums[row], bases[row] = batch
            row += 1
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
    """The result of `decode_records`: the messages, where it stopped in the buffer, and the verdict there."""

    columns: RecordColumns
    stop_at: int
    verdict: Verdict


def decode_records(
    data: Bytes,
    at: int,
    limit: int,
    data_offset: int,
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
        Bytes of one segment file.
    data_offset
        The physical offset of ``data[0]``.
    file_end
        The physical offset of the segment's end (exclusive).
    delays_ms
        Delay levels in milliseconds, level 1 first.
    frame
        Size in bytes of the header before each record: 0, or ``dledger_entry.ENTRY_HEADER_SIZE``.
    parts
        Scratch space, int64[n, PARTS], to decode at most n records; by default enough for any.
    """
    if parts is None:
        parts = np.empty((records_max(limit - at), rk.PARTS), np.int64)
    count, stop_at, verdict = rk.scan_records(data, at, limit, data_offset + at, file_end, frame, check_crc, parts)
    columns, bad = decode_columns(data, data_offset, parts[:count], delays_ms)
    if bad is not Verdict.MESSAGE:
        return Decoded(columns, int(parts[len(columns), rk.AT]) - frame, bad)
    return Decoded(columns, stop_at, Verdict(verdict))


def records_max(size: int) -> int:
    """One more than the number of records that `size` bytes can hold."""
    return size // SMALLEST_RECORD + 1


def decode_columns(data: Bytes, data_offset: int, parts: Int64s, delays_ms: Int64s) -> tuple[RecordColumns, Verdict]:
    """The columns of records that `scan_records` found, and MESSAGE; or of those before a bad one, and its verdict."""
    count = len(parts)
    spans, tags_codes = np.empty((count, len(pk.LOCATED), 2), np.int32), np.empty(count, np.int64)
    queue_ids, queue_offsets = np.empty(count, np.int32), np.empty(count, np.int64)
    sys_flags, store_timestamps = np.empty(count, np.int32), np.empty(count, np.int64)
    columns = RecordColumns(
        data, data_offset, parts, spans, tags_codes, queue_ids, queue_offsets, sys_flags, store_timestamps
    )
    row, verdict = 0, Verdict.MESSAGE
    while (row := _fill(columns, row, delays_ms)) < count:
        verdict, message = _judge_by_reference(data, data_offset, parts[row], delays_ms)
        if message is None:
            break
        tags_codes[row] = message.tags_code
        row += 1
    return columns if row == count else columns.first(row), verdict


def _fill(columns: RecordColumns, first: int, delays_ms: Int64s) -> int:
    """Fill the rows from `first`; return the first row that is not good by itself, or the end."""
    return int(
        _dispatch_columns(
            columns.data,
            columns.parts,
            first,
            delays_ms,
            columns.spans,
            columns.tags_code,
            columns.queue_id,
            columns.queue_offset,
            columns.sys_flag,
            columns.store_timestamp,
        )
    )


def _judge_by_reference(
    data: Bytes, data_offset: int, parts: Int64s, delays_ms: Int64s
) -> tuple[Verdict, Message | None]:
    """The reference decoder's verdict on one record that is good except perhaps for its numbers, and the message."""
    at, size = int(parts[rk.AT]), int(parts[rk.SIZE])
    physical_offset, delays = data_offset + at, tuple(delays_ms.tolist())
    record = data[at : at + size].data
    return decode_message(record, 0, physical_offset, physical_offset + size, check_crc=False, delays_ms=delays)
