"""From decoded records to Arrow: the rows of `rows=messages` and of the message table."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from reput.source import column_kernels as ck
from reput.source import message_format as fmt
from reput.source import property_kernels as pk
from reput.source import record_kernels as rk
from reput.source.batch_decoder import Bytes, Int64s, RecordColumns
from reput.source.dispatch_request import MESSAGE_SCHEMA, OffsetRange, message_schema
from reput.source.java_string import decode_utf8, parse_int
from reput.source.message_properties import parse_properties
from reput.source.message_sys_flag import (
    BORNHOST_V6_FLAG,
    STOREHOSTADDRESS_V6_FLAG,
    TRANSACTION_MASK,
    TRANSACTION_TYPE_NAMES,
)
from reput.source.options import SourceOptions
from reput.source.range_reader import DecodeOptions, read_windows

_TYPE_NAMES = pa.array([TRANSACTION_TYPE_NAMES[bits] for bits in sorted(TRANSACTION_TYPE_NAMES)])
_TYPE_SHIFT = (TRANSACTION_MASK & -TRANSACTION_MASK).bit_length() - 1
# Milliseconds of years 1 and 10000: what a SQL timestamp can hold.
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000


def read_messages(span: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Rows of one range in batches of bounded size."""
    decode = DecodeOptions(options.check_crc == "all", options.delays_ms, options.on_damage)
    for window in read_windows(span.file, span.start, span.end, decode):
        batch = message_batch(window.columns)
        if options.include_body:
            batch = _with_body(batch, window.columns)
        yield batch


def message_batch(columns: RecordColumns) -> pa.RecordBatch:
    """The records as rows of ``dispatch_request.MESSAGE_SCHEMA``; copies what it needs of the buffer."""
    data, parts, other = columns.data, columns.parts, columns.other_fields()
    born_at = parts[:, rk.AT] + fmt.BORN_HOST_AT
    store_at = other.store_host_at
    arrays = {
        "topic": strings(data, parts[:, rk.TOPIC], parts[:, rk.TOPIC_SIZE]),
        "queue_id": pa.array(columns.queue_id),
        "queue_offset": pa.array(columns.queue_offset),
        "physical_offset": pa.array(columns.physical_offset),
        "msg_size": pa.array(columns.msg_size.astype(np.int32)),
        "store_time": _timestamps(columns.store_timestamp),
        "born_time": _timestamps(other.born_timestamp),
        "born_host": _hosts(data, born_at, columns.sys_flag & BORNHOST_V6_FLAG),
        "store_host": _hosts(data, store_at, columns.sys_flag & STOREHOSTADDRESS_V6_FLAG),
        "tags": _property(columns, pk.TAGS),
        "tags_code": pa.array(columns.tags_code),
        "keys": _keys(columns),
        "uniq_key": _property(columns, pk.UNIQ_KEY),
        "msg_id": _message_ids(columns, store_at),
        "body_size": pa.array(parts[:, rk.BODY_SIZE].astype(np.int32)),
        "body_crc": pa.array(other.body_crc),
        "flag": pa.array(other.flag),
        "sys_flag": pa.array(columns.sys_flag),
        "transaction_type": _TYPE_NAMES.take(pa.array((columns.sys_flag & TRANSACTION_MASK) >> _TYPE_SHIFT)),
        "reconsume_times": pa.array(other.reconsume_times),
        "prepared_transaction_offset": pa.array(other.prepared_transaction_offset),
        "delay_level": _integers(columns, pk.DELAY),
        "real_topic": _property(columns, pk.REAL_TOPIC),
        "real_queue_id": _integers(columns, pk.REAL_QUEUE_ID),
        "properties": _properties(columns),
    }
    return pa.RecordBatch.from_arrays([arrays[name] for name in MESSAGE_SCHEMA.names], schema=MESSAGE_SCHEMA)


def _with_body(batch: pa.RecordBatch, columns: RecordColumns) -> pa.RecordBatch:
    starts, sizes = columns.parts[:, rk.BODY], columns.parts[:, rk.BODY_SIZE]
    ends, out, _ = _gathered(columns.data, starts, sizes)
    body = pa.Array.from_buffers(pa.binary(), len(columns), [None, pa.py_buffer(ends), pa.py_buffer(out)])
    return pa.RecordBatch.from_arrays([*batch.columns, body], schema=message_schema(include_body=True))


def _gathered(data: Bytes, starts: Int64s, sizes: Int64s) -> tuple[Any, Bytes, bool]:
    ends, out = np.empty(len(starts) + 1, np.int32), np.empty(int(sizes.sum()), np.uint8)
    return ends, out, ck.gather(data, starts, sizes, ends, out)


def strings(data: Bytes, starts: Int64s, sizes: Int64s, *, null_if_empty: bool = False) -> pa.Array:
    """The spans as text, decoded as Java decodes them."""
    array, is_valid = _utf8(data, starts, sizes, null_if_empty=null_if_empty)
    if is_valid:
        return array
    binary = array.view(pa.binary()).to_pylist()
    return pa.array([None if value is None else decode_utf8(value) for value in binary], pa.string())


def _utf8(data: Bytes, starts: Int64s, sizes: Int64s, *, null_if_empty: bool = False) -> tuple[pa.Array, bool]:
    """The spans as they are, as a string array, and whether they are valid UTF-8."""
    ends, out, is_ascii = _gathered(data, starts, sizes)
    validity = pa.py_buffer(np.packbits(sizes > 0, bitorder="little")) if null_if_empty else None
    array = pa.Array.from_buffers(pa.string(), len(starts), [validity, pa.py_buffer(ends), pa.py_buffer(out)])
    if is_ascii:
        return array, True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return array, False
    return array, True


def _property(columns: RecordColumns, which: int) -> pa.Array:
    spans = columns.spans[:, which].astype(np.int64)
    return strings(columns.data, spans[:, 0], spans[:, 1], null_if_empty=True)


def _integers(columns: RecordColumns, which: int) -> pa.Array:
    """A property as an integer; null where it is missing or no integer to Java."""
    spans = columns.spans[:, which]
    values = np.zeros(len(columns), np.int32)
    missing = np.ones(len(columns), bool)
    for row in np.flatnonzero(spans[:, 1]).tolist():
        at, size = int(spans[row, 0]), int(spans[row, 1])
        value = parse_int(decode_utf8(columns.data[at : at + size].tobytes()))
        if value is not None:
            values[row], missing[row] = value, False
    return pa.array(values, mask=missing)


def _timestamps(milliseconds: Int64s) -> pa.Array:
    outside = (milliseconds < _YEAR_1_MS) | (milliseconds >= _YEAR_10000_MS)
    micros = np.where(outside, 0, milliseconds) * 1000
    return pa.array(micros, pa.int64(), mask=outside).cast(pa.timestamp("us", tz="UTC"))


def _keys(columns: RecordColumns) -> pa.Array:
    spans = columns.spans[:, pk.KEYS].astype(np.int64)
    row_ends = np.empty(len(columns) + 1, np.int32)
    room = len(columns)
    while True:
        starts, sizes = np.empty(room, np.int64), np.empty(room, np.int64)
        count = ck.split_keys(columns.data, spans[:, 0], spans[:, 1], row_ends, starts, sizes)
        if count <= room:
            break
        room = count
    kind = MESSAGE_SCHEMA.field("keys").type
    return pa.ListArray.from_arrays(pa.array(row_ends), strings(columns.data, starts[:count], sizes[:count]), type=kind)


def _properties(columns: RecordColumns) -> pa.Array:
    sizes = columns.parts[:, rk.PROPERTIES_SIZE]
    row_ends = np.empty(len(columns) + 1, np.int32)
    # An item takes four bytes with its separators, the last one three.
    items = np.empty((int((sizes // 4 + 1).sum()), 4), np.int64)
    most = int(sizes.max(initial=0)) // 4 + 1
    table = np.empty(1 << (2 * most).bit_length(), np.int32)
    count = ck.list_properties(columns.data, columns.parts, row_ends, items, table)
    kind = MESSAGE_SCHEMA.field("properties").type
    names, is_valid = _utf8(columns.data, items[:count, 0], items[:count, 1])
    if not is_valid:  # names that differ as bytes may be one name to Java
        spans = columns.parts[:, [rk.PROPERTIES, rk.PROPERTIES_SIZE]].tolist()
        texts = (decode_utf8(columns.data[at : at + size].tobytes()) for at, size in spans)
        return pa.array([list(parse_properties(text).items()) for text in texts], kind)
    values = strings(columns.data, items[:count, 2], items[:count, 3])
    return pa.MapArray.from_arrays(pa.array(row_ends), names, values, type=kind)


def _message_ids(columns: RecordColumns, store_at: Int64s) -> pa.Array:
    is_v6 = (columns.sys_flag & STOREHOSTADDRESS_V6_FLAG) != 0
    sizes = np.where(is_v6, fmt.HOST_V6_SIZE, fmt.HOST_V4_SIZE)
    ends, out = np.empty(len(columns) + 1, np.int32), np.empty(int(2 * (sizes + 8).sum()), np.uint8)
    ck.message_ids(columns.data, store_at, sizes, columns.physical_offset, ends, out)
    return pa.Array.from_buffers(pa.string(), len(columns), [None, pa.py_buffer(ends), pa.py_buffer(out)])


def _hosts(data: Bytes, starts: Int64s, is_v6: Any) -> pa.Array:
    """``address:port``, an IPv6 address in brackets; a window has few hosts and many rows."""
    packed = np.empty(len(starts), np.int64)
    ck.v4_hosts(data, starts, packed)
    codes, distinct = pd.factorize(packed)
    texts = [_host_text(int(value).to_bytes(8, "big", signed=True)) for value in distinct]
    numbers = dict(zip(texts, range(len(texts)), strict=True))
    for row in np.flatnonzero(is_v6).tolist():
        at = int(starts[row])
        text = _host_text(data[at : at + fmt.HOST_V6_SIZE].tobytes())
        codes[row] = numbers.setdefault(text, len(numbers))
    return pa.array(list(numbers), pa.string()).take(pa.array(codes))


@lru_cache(maxsize=4096)
def _host_text(host: bytes) -> str:
    address, port = ipaddress.ip_address(host[:-4]), int.from_bytes(host[-4:], "big", signed=True)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
