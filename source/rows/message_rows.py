"""The records of several windows, collected as rows of `ENCODED_SCHEMA`."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from reput.source.arrays import Int64s
from reput.source.kernels import property_kernels as pk
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import OtherFields, RecordColumns
from reput.source.kernels.byte_kernels import WORD
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import DecodeOptions, read_windows
from reput.source.options import SourceOptions
from reput.source.record.message_format import TRANSACTION_MASK, TRANSACTION_TYPE_NAMES
from reput.source.record.message_origin import PROPERTY_BORN_HOST
from reput.source.record.message_properties import decode_utf8, parse_int
from reput.source.rows import column_kernels as ck
from reput.source.rows.column_builders import (
    TEXT,
    KeyTexts,
    MessageIds,
    Properties,
    RepeatedTexts,
    Texts,
    Values,
    numbers,
)
from reput.source.rows.message_schema import MESSAGE_SCHEMA, message_schema
from reput.source.rows.origin_columns import OriginColumns, first_keys

ENCODED = {
    **dict.fromkeys(("topic", "born_host", "store_host", "tags", "transaction_type", "real_topic"), TEXT),
    **dict.fromkeys(("kind", "consumer_group", "origin_topic", "producer_group", "client_host"), TEXT),
    "properties": pa.map_(TEXT, MESSAGE_SCHEMA.field("properties").type.item_field),
}
# MESSAGE_SCHEMA with a dictionary instead of each text that repeats from message to message.
ENCODED_SCHEMA = pa.schema([field.with_type(ENCODED.get(field.name, field.type)) for field in MESSAGE_SCHEMA])

_TYPE_SHIFT = (TRANSACTION_MASK & -TRANSACTION_MASK).bit_length() - 1
_TIME = MESSAGE_SCHEMA.field("store_time").type
# Milliseconds of years 1 and 10000: what a SQL timestamp can hold.
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
_TIMES = ("store_time", "born_time")
_NUMBERS = {field.name: field.type for field in MESSAGE_SCHEMA if pa.types.is_integer(field.type)}
# The columns that hold a property as text, and those that hold one as an integer.
_REPEATED_PROPERTIES = {"tags": pk.TAGS, "real_topic": pk.REAL_TOPIC}
_INTEGER_PROPERTIES = {"delay_level": pk.DELAY, "real_queue_id": pk.REAL_QUEUE_ID}
# How many properties have columns: the first ones of `pk.LOCATED`.
_PROPERTIES_WITH_COLUMNS = 1 + max(*_REPEATED_PROPERTIES.values(), *_INTEGER_PROPERTIES.values(), pk.KEYS, pk.UNIQ_KEY)


class MessageRows:
    """The rows of records, until they are cleared."""

    def __init__(self) -> None:
        self._count = 0
        self._numbers = {
            name: Values(kind.to_pandas_dtype()) for name, kind in _NUMBERS.items() if name not in _INTEGER_PROPERTIES
        }
        self._times = {name: Values(np.int64) for name in _TIMES}
        names = ("topic", "born_host", "store_host", *_REPEATED_PROPERTIES, *_INTEGER_PROPERTIES)
        self._repeated = {name: RepeatedTexts() for name in names}
        self._keys, self._uniq_keys, self._message_ids = KeyTexts(), Texts(), MessageIds()
        self._properties = Properties()

    def __len__(self) -> int:
        return self._count

    @property
    def text_bytes(self) -> int:
        """Bytes of the texts that may be large: properties, keys, and topics, each topic once."""
        return self._properties.size_bytes + self._keys.size_bytes + self._repeated["topic"].size_bytes

    def add(self, columns: RecordColumns) -> None:
        """Add the records of a window; copies what it needs of its buffer."""
        data, parts, count = columns.data, columns.parts, len(columns)
        numbers_of, times = self._numbers, self._times
        other = columns.other_fields(
            OtherFields(
                numbers_of["flag"].extend(count),
                times["born_time"].extend(count),
                np.empty(count, np.int64),
                numbers_of["reconsume_times"].extend(count),
                numbers_of["prepared_transaction_offset"].extend(count),
                numbers_of["body_crc"].extend(count),
            )
        )
        times["store_time"].append(columns.store_timestamp)
        for name, values in (
            ("queue_id", columns.queue_id),
            ("queue_offset", columns.queue_offset),
            ("msg_size", columns.msg_size),
            ("tags_code", columns.tags_code),
            ("body_size", parts[:, rk.BODY_SIZE]),
            ("sys_flag", columns.sys_flag),
        ):
            numbers_of[name].append(values)
        physical_offsets = numbers_of["physical_offset"].extend(count)
        physical_offsets[:] = columns.physical_offset
        spans = np.empty((ck.PROPERTY_FIELDS + _PROPERTIES_WITH_COLUMNS, 2, count), np.int64)
        ck.field_spans(parts, columns.spans, columns.sys_flag, other.store_host_at, spans)
        properties = spans[ck.PROPERTY_FIELDS :]
        self._repeated["topic"].add(data, *spans[ck.TOPIC_FIELD])
        self._repeated["born_host"].add(data, *spans[ck.BORN_HOST_FIELD])
        self._repeated["store_host"].add(data, *spans[ck.STORE_HOST_FIELD])
        for name, which in (*_REPEATED_PROPERTIES.items(), *_INTEGER_PROPERTIES.items()):
            self._repeated[name].add(data, *properties[which])
        self._keys.add(data, *properties[pk.KEYS])
        self._uniq_keys.add(data, *properties[pk.UNIQ_KEY])
        self._message_ids.add(data, spans[ck.STORE_HOST_FIELD, 0], spans[ck.STORE_HOST_FIELD, 1], physical_offsets)
        self._properties.add(data, parts)
        self._count += count

    def batch(self) -> pa.RecordBatch:
        """All rows, valid until there are more or they are cleared.

        Dictionaries have no text that no row has, but for those of `transaction_type` and `kind`.
        """
        repeated = self._repeated
        types = (self._numbers["sys_flag"].filled & TRANSACTION_MASK) >> _TYPE_SHIFT
        arrays = {
            **{name: column.array() for name, column in self._numbers.items()},
            **{name: _timestamps(column.filled) for name, column in self._times.items()},
            **{name: repeated[name].array() for name in ("topic", *_REPEATED_PROPERTIES)},
            **{name: _mapped(repeated[name], _host_text, pa.string()) for name in ("born_host", "store_host")},
            **{name: _mapped(repeated[name], _integer, pa.int32()) for name in _INTEGER_PROPERTIES},
            "keys": self._keys.lists(ENCODED_SCHEMA.field("keys").type),
            "uniq_key": self._uniq_keys.array(null_if_empty=True),
            "msg_id": self._message_ids.array(),
            "transaction_type": pa.DictionaryArray.from_arrays(numbers(types), _type_names()),
            "properties": self._properties.maps(ENCODED_SCHEMA.field("properties").type),
        }
        tags_codes, stored = self._numbers["tags_code"].filled, self._times["store_time"].filled
        arrays |= _origins(arrays, tags_codes, stored, types != 0)
        return pa.RecordBatch.from_arrays([arrays[name] for name in ENCODED_SCHEMA.names], schema=ENCODED_SCHEMA)

    def clear(self) -> None:
        """Forget all rows, and keep the memory for the next ones."""
        for numbers_of in (*self._numbers.values(), *self._times.values()):
            numbers_of.clear()
        for repeated in self._repeated.values():
            repeated.clear()
        for texts in (self._keys, self._uniq_keys):
            texts.clear()
        self._message_ids.clear()
        self._properties.clear()
        self._count = 0


def _origins(
    arrays: Mapping[str, pa.Array], tags_codes: Int64s, store_timestamps: Int64s, has_type: Any
) -> dict[str, pa.Array]:
    """The columns that follow from others; `has_type` is whether sysFlag names a transaction's type."""
    origins = OriginColumns(arrays["topic"], arrays["real_topic"], arrays["properties"])
    deliver_ms = origins.deliver_ms(tags_codes, arrays["delay_level"], store_timestamps)
    return {
        "kind": origins.kind,
        "consumer_group": origins.consumer_group,
        "origin_topic": origins.origin_topic,
        "origin_msg_id": origins.origin_msg_id,
        "deliver_time": pa.nulls(len(has_type), _TIME) if deliver_ms is None else _timestamps(*deliver_ms),
        "producer_group": origins.producer_group,
        "client_host": origins.text(PROPERTY_BORN_HOST),
        "transaction_id": origins.transaction_id(arrays["uniq_key"], has_type),
        "first_key": first_keys(arrays["keys"]),
    }


@cache  # not when the module is loaded: pyarrow loads pandas to make an array of Python values
def _type_names() -> pa.Array:
    return pa.array([TRANSACTION_TYPE_NAMES[bits] for bits in sorted(TRANSACTION_TYPE_NAMES)])


def _mapped(column: RepeatedTexts, convert: Callable[[bytes], Any], kind: pa.DataType) -> pa.Array:
    return column.array(pa.array([convert(span) for span in column.spans()], kind))


def _integer(span: bytes) -> int | None:
    """A property as the integer that Java reads, None where it reads none."""
    return parse_int(decode_utf8(span))


def _timestamps(milliseconds: Int64s, is_known: Any = True) -> pa.Array:
    valid = (milliseconds >= _YEAR_1_MS) & (milliseconds < _YEAR_10000_MS) & is_known
    return numbers(np.where(valid, milliseconds, 0) * 1000, valid).view(_TIME)


@lru_cache(maxsize=16384)
def _host_text(host: bytes) -> str:
    """``address:port``, an IPv6 address in brackets."""
    address, port = ipaddress.ip_address(host[:-4]), int.from_bytes(host[-4:], "big", signed=True)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


# ----------------------------------------------------------------------------------------------------------------------
# From decoded records to Arrow: the rows of `rows=messages`.


def read_messages(span: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Rows of one range in batches of bounded size."""
    decode = DecodeOptions(options.check_crc == "all", options.delays_ms, options.on_damage)
    for window in read_windows(span.file, span.start, span.end, decode):
        batch = message_batch(window.columns)
        if options.include_body:
            batch = _with_body(batch, window.columns)
        yield batch


def message_batch(columns: RecordColumns) -> pa.RecordBatch:
    """The records as rows of ``message_schema.MESSAGE_SCHEMA``; copies what it needs of the buffer."""
    rows = MessageRows()
    rows.add(columns)
    batch = rows.batch()
    arrays = [_decoded(batch[name]) if name in ENCODED else batch[name] for name in MESSAGE_SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGE_SCHEMA)


def _decoded(array: pa.Array) -> pa.Array:
    if not isinstance(array, pa.MapArray):
        return array.dictionary_decode()
    kind = MESSAGE_SCHEMA.field("properties").type
    return pa.MapArray.from_arrays(array.offsets, array.keys.dictionary_decode(), array.items, type=kind)


def _with_body(batch: pa.RecordBatch, columns: RecordColumns) -> pa.RecordBatch:
    starts, sizes = (np.ascontiguousarray(columns.parts[:, part]) for part in (rk.BODY, rk.BODY_SIZE))
    ends, out = np.zeros(len(columns) + 1, np.int32), np.empty(int(sizes.sum()) + WORD, np.uint8)
    ck.gather(columns.data, starts, sizes, ends, out)
    body = pa.Array.from_buffers(pa.binary(), len(columns), [None, pa.py_buffer(ends), pa.py_buffer(out)])
    return pa.RecordBatch.from_arrays([*batch.columns, body], schema=message_schema(include_body=True))
