"""From decoded records to Arrow: the rows of `rows=messages` and of the message table."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from reput.source import column_kernels as ck
from reput.source import message_format as fmt
from reput.source import property_kernels as pk
from reput.source import record_kernels as rk
from reput.source.batch_decoder import Bytes, Int64s, RecordColumns
from reput.source.byte_kernels import WORD
from reput.source.dispatch_request import MESSAGE_SCHEMA, OffsetRange, message_schema
from reput.source.java_string import decode_utf8, parse_int
from reput.source.message_sys_flag import (
    BORNHOST_V6_FLAG,
    STOREHOSTADDRESS_V6_FLAG,
    TRANSACTION_MASK,
    TRANSACTION_TYPE_NAMES,
)
from reput.source.options import SourceOptions
from reput.source.range_reader import DecodeOptions, read_windows

_TEXT = pa.dictionary(pa.int32(), pa.string())
_ENCODED = {
    **dict.fromkeys(("topic", "born_host", "store_host", "tags", "transaction_type", "real_topic"), _TEXT),
    "properties": pa.map_(_TEXT, MESSAGE_SCHEMA.field("properties").type.item_field),
}
# MESSAGE_SCHEMA with a dictionary in the place of each text that repeats from message to message.
ENCODED_SCHEMA = pa.schema([field.with_type(_ENCODED.get(field.name, field.type)) for field in MESSAGE_SCHEMA])

_TYPE_NAMES = pa.array([TRANSACTION_TYPE_NAMES[bits] for bits in sorted(TRANSACTION_TYPE_NAMES)])
_TYPE_SHIFT = (TRANSACTION_MASK & -TRANSACTION_MASK).bit_length() - 1
_TIME = MESSAGE_SCHEMA.field("store_time").type
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
    batch = encoded_batch(columns)
    arrays = [_decoded(batch[name]) if name in _ENCODED else batch[name] for name in MESSAGE_SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGE_SCHEMA)


def _decoded(array: pa.Array) -> pa.Array:
    if not isinstance(array, pa.MapArray):
        return array.dictionary_decode()
    kind = MESSAGE_SCHEMA.field("properties").type
    return pa.MapArray.from_arrays(array.offsets, array.keys.dictionary_decode(), array.items, type=kind)


def encoded_batch(columns: RecordColumns) -> pa.RecordBatch:
    """The same as rows of `ENCODED_SCHEMA`; no dictionary but `transaction_type`'s has a value that no row has."""
    data, parts, other = columns.data, columns.parts, columns.other_fields()
    born_at = parts[:, rk.AT] + fmt.BORN_HOST_AT
    store_sizes = _host_sizes(columns.sys_flag & STOREHOSTADDRESS_V6_FLAG)
    transaction_types = (columns.sys_flag & TRANSACTION_MASK) >> _TYPE_SHIFT
    arrays = {
        "topic": _dictionary(data, parts[:, rk.TOPIC], parts[:, rk.TOPIC_SIZE]),
        "queue_id": _numbers(columns.queue_id),
        "queue_offset": _numbers(columns.queue_offset),
        "physical_offset": _numbers(columns.physical_offset),
        "msg_size": _numbers(columns.msg_size.astype(np.int32)),
        "store_time": _timestamps(columns.store_timestamp),
        "born_time": _timestamps(other.born_timestamp),
        "born_host": _hosts(data, born_at, _host_sizes(columns.sys_flag & BORNHOST_V6_FLAG)),
        "store_host": _hosts(data, other.store_host_at, store_sizes),
        "tags": _dictionary(data, *_span(columns, pk.TAGS)),
        "tags_code": _numbers(columns.tags_code),
        "keys": _keys(columns),
        "uniq_key": strings(data, *_span(columns, pk.UNIQ_KEY), null_if_empty=True),
        "msg_id": _message_ids(columns, other.store_host_at, store_sizes),
        "body_size": _numbers(parts[:, rk.BODY_SIZE].astype(np.int32)),
        "body_crc": _numbers(other.body_crc),
        "flag": _numbers(other.flag),
        "sys_flag": _numbers(columns.sys_flag),
        "transaction_type": pa.DictionaryArray.from_arrays(_numbers(transaction_types), _TYPE_NAMES),
        "reconsume_times": _numbers(other.reconsume_times),
        "prepared_transaction_offset": _numbers(other.prepared_transaction_offset),
        "delay_level": _integers(columns, pk.DELAY),
        "real_topic": _dictionary(data, *_span(columns, pk.REAL_TOPIC)),
        "real_queue_id": _integers(columns, pk.REAL_QUEUE_ID),
        "properties": _properties(columns),
    }
    return pa.RecordBatch.from_arrays([arrays[name] for name in ENCODED_SCHEMA.names], schema=ENCODED_SCHEMA)


def _with_body(batch: pa.RecordBatch, columns: RecordColumns) -> pa.RecordBatch:
    starts, sizes = columns.parts[:, rk.BODY], columns.parts[:, rk.BODY_SIZE]
    ends, out = _gathered(columns.data, starts, sizes)
    body = pa.Array.from_buffers(pa.binary(), len(columns), [None, pa.py_buffer(ends), pa.py_buffer(out)])
    return pa.RecordBatch.from_arrays([*batch.columns, body], schema=message_schema(include_body=True))


def _span(columns: RecordColumns, which: int) -> tuple[Any, Any]:
    return columns.spans[:, which, 0], columns.spans[:, which, 1]


def _numbers(values: Any, valid: Any = None) -> pa.Array:
    """Integers as they are, without the looks that ``pa.array`` takes at each array; `valid` is null's contrary."""
    bitmap = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bitmap, pa.py_buffer(values)])


def _gathered(data: Bytes, starts: Any, sizes: Any) -> tuple[Any, Bytes]:
    # The kernels are compiled for one kind of array, whatever the columns are.
    starts, sizes = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(sizes, np.int64)
    total = int(sizes.sum())
    ends, out = np.empty(len(starts) + 1, np.int32), np.empty(total + WORD, np.uint8)
    ck.gather(data, starts, sizes, ends, out)
    return ends, out[:total]


def strings(data: Bytes, starts: Any, sizes: Any, *, null_if_empty: bool = False) -> pa.Array:
    """The spans as text, decoded as Java decodes them."""
    valid = pa.py_buffer(np.packbits(sizes > 0, bitorder="little")) if null_if_empty else None
    return _java_text(_utf8(*_gathered(data, starts, sizes), valid))


def _utf8(ends: Any, out: Bytes, valid: pa.Buffer | None = None) -> pa.Array:
    """Bytes one value after the other as a string array, or as a binary one if they are no UTF-8."""
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(out)]
    array = pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers)
    if not ck.is_ascii(out, len(out)):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            return array.view(pa.binary())
    return array


def _java_text(array: pa.Array) -> pa.Array:
    if array.type == pa.string():
        return array
    return pa.array([None if value is None else decode_utf8(value) for value in array.to_pylist()], pa.string())


def _numbered(data: Bytes, starts: Any, sizes: Any) -> tuple[Any, Int64s]:
    """int32[n], the number of each span's bytes, 0 for an empty one; int64[m, 2], a span of each number."""
    starts, sizes = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(sizes, np.int64)
    codes, distinct = np.empty(len(starts), np.int32), np.empty((len(starts), 2), np.int64)
    table = np.full(2 << len(starts).bit_length(), -1, np.int32)
    count = ck.number_spans(data, starts, sizes, table, codes, distinct)
    return codes, distinct[:count]


def _numbered_texts(data: Bytes, starts: Any, sizes: Any) -> tuple[Any, pa.Array]:
    """int32[n], the number of each span's text, 0 for an empty one; the texts, each once."""
    codes, distinct = _numbered(data, starts, sizes)
    texts = _utf8(*_gathered(data, distinct[:, 0], distinct[:, 1]))
    if texts.type != pa.string():  # bytes that differ may be one text to Java
        encoded = _java_text(texts).dictionary_encode()
        codes, texts = encoded.indices.to_numpy()[codes], encoded.dictionary
    return codes, texts


def _dictionary(data: Bytes, starts: Any, sizes: Any) -> pa.Array:
    """The spans as text, null where they are empty."""
    if not sizes.any():
        return pa.nulls(len(sizes), _TEXT)
    codes, texts = _numbered_texts(data, starts, sizes)
    return pa.DictionaryArray.from_arrays(_numbers(codes, sizes > 0), texts)


def _integers(columns: RecordColumns, which: int) -> pa.Array:
    """A property as an integer; null where it is missing or no integer to Java."""
    starts, sizes = _span(columns, which)
    if not sizes.any():
        return pa.nulls(len(columns), pa.int32())
    codes, texts = _numbered_texts(columns.data, starts, sizes)
    values = pa.array([parse_int(text) for text in texts.to_pylist()], pa.int32())
    return values.take(_numbers(codes, sizes > 0))


def _timestamps(milliseconds: Int64s) -> pa.Array:
    valid = (milliseconds >= _YEAR_1_MS) & (milliseconds < _YEAR_10000_MS)
    return _numbers(np.where(valid, milliseconds, 0) * 1000, valid).view(_TIME)


def _keys(columns: RecordColumns) -> pa.Array:
    spans = columns.spans[:, pk.KEYS].astype(np.int64)
    starts, sizes = np.ascontiguousarray(spans[:, 0]), np.ascontiguousarray(spans[:, 1])
    row_ends = np.empty(len(columns) + 1, np.int32)
    ends, out = np.empty(int((sizes + 1).sum()) // 2 + 1, np.int32), np.empty(int(sizes.sum()) + WORD, np.uint8)
    count = ck.list_keys(columns.data, starts, sizes, row_ends, ends, out)
    keys = _java_text(_utf8(ends[: count + 1], out[: ends[count]]))
    return pa.ListArray.from_arrays(_numbers(row_ends), keys, type=MESSAGE_SCHEMA.field("keys").type)


def _properties(columns: RecordColumns) -> pa.Array:
    data, sizes = columns.data, columns.parts[:, rk.PROPERTIES_SIZE]
    row_ends = np.empty(len(columns) + 1, np.int32)
    # An item takes four bytes with its separators, the last one three.
    most = int((sizes // 4 + 1).sum())
    names, values = np.empty((2, most), np.int64), np.empty((2, most), np.int64)
    count = ck.list_properties(data, columns.parts, row_ends, names, values)
    codes, texts = _numbered_texts(data, names[0, :count], names[1, :count])
    count = ck.keep_last(row_ends, codes, values, np.full(len(texts), -1, np.int64))
    keys = pa.DictionaryArray.from_arrays(_numbers(codes[:count]), texts)
    items = strings(data, values[0, :count], values[1, :count])
    return pa.MapArray.from_arrays(_numbers(row_ends), keys, items, type=ENCODED_SCHEMA.field("properties").type)


def _message_ids(columns: RecordColumns, store_at: Int64s, host_sizes: Int64s) -> pa.Array:
    ends, out = np.empty(len(columns) + 1, np.int32), np.empty(int((host_sizes + 8).sum()), np.uint16)
    ck.message_ids(columns.data, store_at, host_sizes, columns.physical_offset, ends, out)
    return pa.Array.from_buffers(pa.string(), len(columns), [None, pa.py_buffer(ends), pa.py_buffer(out)])


def _host_sizes(is_v6: Any) -> Int64s:
    return np.where(is_v6, fmt.HOST_V6_SIZE, fmt.HOST_V4_SIZE)


def _hosts(data: Bytes, starts: Int64s, sizes: Int64s) -> pa.Array:
    """``address:port``, an IPv6 address in brackets; a window has few hosts and many rows."""
    codes, distinct = _numbered(data, starts, sizes)
    ends, out = _gathered(data, distinct[:, 0], distinct[:, 1])
    hosts = out.tobytes()
    texts = [_host_text(hosts[start:end]) for start, end in pairwise(ends.tolist())]
    return pa.DictionaryArray.from_arrays(_numbers(codes), pa.array(texts, pa.string()))


@lru_cache(maxsize=16384)
def _host_text(host: bytes) -> str:
    address, port = ipaddress.ip_address(host[:-4]), int.from_bytes(host[-4:], "big", signed=True)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
