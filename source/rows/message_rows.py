"""The records of several windows, collected as rows of `ENCODED_SCHEMA`, with the kind and origin of each message.

`OriginColumns` applies the rules of ``message_origin`` to many rows. A rule about a topic is applied once to each text
of a dictionary, and properties that few messages have are found by the dictionary of names: rows of ordinary messages
cost little more than copying their topic's number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.source.arrays import Int32s, Int64s
from reput.source.kernels import property_kernels as pk
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import OtherFields, RecordColumns
from reput.source.kernels.byte_kernels import WORD
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import DecodeOptions, read_windows
from reput.source.options import SourceOptions
from reput.source.record import message_origin as origin
from reput.source.record.message_decoder import host_text
from reput.source.record.message_format import TRANSACTION_MASK, TRANSACTION_TYPE_NAMES
from reput.source.record.message_origin import PROPERTY_BORN_HOST
from reput.source.record.message_properties import decode_utf8, parse_int, parse_long
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
from reput.source.rows.message_schema import LATER_NAMES, MESSAGE_SCHEMA, message_schema

ENCODED = {
    **dict.fromkeys(("topic", "born_host", "store_host", "tags", "transaction_type", "real_topic"), TEXT),
    **dict.fromkeys(("kind", "consumer_group", "origin_topic", "producer_group", "client_host"), TEXT),
    "properties": pa.map_(TEXT, MESSAGE_SCHEMA.field("properties").type.item_field),
}
# MESSAGE_SCHEMA with a dictionary instead of each text that repeats from message to message.
ENCODED_SCHEMA = pa.schema([field.with_type(ENCODED.get(field.name, field.type)) for field in MESSAGE_SCHEMA])

_TYPE_SHIFT = (TRANSACTION_MASK & -TRANSACTION_MASK).bit_length() - 1
_TIME = MESSAGE_SCHEMA.field("store_time").type
# Milliseconds of the years 1 and 10000, the limits of a SQL timestamp.
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
_TIMES = ("store_time", "born_time")
# The columns that hold a property as text, and those that hold one as an integer.
_REPEATED_PROPERTIES = {"tags": pk.TAGS, "real_topic": pk.REAL_TOPIC}
_INTEGER_PROPERTIES = {"delay_level": pk.DELAY, "real_queue_id": pk.REAL_QUEUE_ID}
# The integers that `MessageRows.add` copies from each record; the later columns follow from others (`_origins`).
_NUMBERS = {
    field.name: field.type
    for field in MESSAGE_SCHEMA
    if pa.types.is_integer(field.type) and field.name not in LATER_NAMES and field.name not in _INTEGER_PROPERTIES
}
# The number of properties with columns: the first ones of `pk.LOCATED`.
_PROPERTIES_WITH_COLUMNS = 1 + max(*_REPEATED_PROPERTIES.values(), *_INTEGER_PROPERTIES.values(), pk.KEYS, pk.UNIQ_KEY)


class MessageRows:
    """The rows of records, until they are cleared."""

    def __init__(self) -> None:
        self._count = 0
        self._numbers = {name: Values(kind.to_pandas_dtype()) for name, kind in _NUMBERS.items()}
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
        """All rows, valid until rows are added or cleared.

        Dictionaries have only texts of these rows, except those of `transaction_type` and `kind`.
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
    """A property as the integer that Java reads; None if Java reads none."""
    return parse_int(decode_utf8(span))


def _timestamps(milliseconds: Int64s, is_known: Any = True) -> pa.Array:
    has_any = is_known is True and len(milliseconds) > 0
    if has_any and milliseconds.min() >= _YEAR_1_MS and milliseconds.max() < _YEAR_10000_MS:
        return numbers(milliseconds * 1000).view(_TIME)  # in nearly all logs
    valid = (milliseconds >= _YEAR_1_MS) & (milliseconds < _YEAR_10000_MS) & is_known
    return numbers(np.where(valid, milliseconds, 0) * 1000, valid).view(_TIME)


@lru_cache(maxsize=16384)
def _host_text(host: bytes) -> str:
    return host_text((host[:-4], int.from_bytes(host[-4:], "big", signed=True)))


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


# Numbers that need no check of their size.
_PLAIN_NUMBER = "^[0-9]{1,18}$"


class OriginColumns:
    """The columns of one batch, from `topic` and `real_topic` (dictionaries) and all `properties` (a map)."""

    def __init__(self, topic: pa.Array, real_topic: pa.Array, properties: pa.MapArray) -> None:
        self._properties = properties
        self._texts: dict[str, int] = {}
        self._given = topic
        self._topic = self._numbered(topic)
        kinds = [*self._told(origin.kind_of), origin.NORMAL]  # the last one for a message without a topic
        self._kinds_there = {*kinds}
        self._kinds = np.array([origin.KINDS.index(each) for each in kinds], np.int32)[self._topic]
        timer = self._is_one_of({origin.TIMER})
        if timer.any() and (marks := self._has(origin.PROPERTY_TIMER_DEL_UNIQKEY)) is not None:
            self._kinds[timer & marks] = origin.KINDS.index(origin.RECALL)
            self._kinds_there.add(origin.RECALL)
        meant, waits = self._topic, self._is_one_of(origin.HAVE_REAL_TOPIC)
        if waits.any():
            meant = np.where(waits, self._numbered(real_topic), meant)
        self._meant: Int32s = meant

    @property
    def kind(self) -> pa.Array:
        """The kind of each message."""
        return pa.DictionaryArray.from_arrays(numbers(self._kinds), pa.array(origin.KINDS, pa.string()))

    @property
    def consumer_group(self) -> pa.Array:
        """The group that could not consume the message."""
        if not any(self._told(origin.group_of)):
            return self._nulls(TEXT)
        return self._column(self._translated(origin.group_of, self._meant))

    @property
    def origin_topic(self) -> pa.Array:
        """The topic that the message was sent to."""
        codes = self._origins()
        return self._given if codes is self._topic else self._column(codes)

    def _origins(self) -> Int32s:
        """The numbers of the topics that the messages were sent to; `_topic` itself if all are the messages' own."""
        if self._meant is self._topic and all(origin.sent_topic(text) == text for text in self._texts):
            return self._topic
        found = self._translated(origin.sent_topic, self._meant)
        is_sent_back = np.array([origin.kind_of(text) in origin.SENT_BACK for text in self._texts] + [False])
        sent_back = is_sent_back[self._meant]
        if sent_back.any():
            for name in (origin.PROPERTY_DLQ_ORIGIN_TOPIC, origin.PROPERTY_RETRY_TOPIC):
                if (named := self.property(name)) is not None:
                    codes = self._translated(origin.sent_topic, self._numbered(named.dictionary_encode()))
                    found = np.where(sent_back & (codes >= 0), codes, found)
        return found

    @property
    def origin_msg_id(self) -> pa.Array:
        """The message id from before the message was first sent back."""
        return self._first_of(origin.PROPERTY_ORIGIN_MESSAGE_ID, origin.PROPERTY_DLQ_ORIGIN_MESSAGE_ID)

    def text(self, name: str) -> pa.Array:
        """A property as text that repeats; null for messages without it."""
        found = self.property(name)
        return self._nulls(TEXT) if found is None else found.dictionary_encode()

    @property
    def producer_group(self) -> pa.Array:
        """The producer's group; null where a proxy stored the topic in its place."""
        groups = self.text(origin.PROPERTY_PRODUCER_GROUP)
        marks = [each for each in map(self._has, origin.BY_PROXY) if each is not None]
        if groups.null_count == len(groups) or not marks:
            return groups
        codes = self._numbered(groups)
        return self._column(np.where(np.any(marks, axis=0) & (codes == self._origins()), -1, codes))

    def transaction_id(self, uniq_key: pa.Array, has_type: Any) -> pa.Array:
        """The transaction's id; `has_type` is whether sysFlag names a transaction's type."""
        ends = self._is_one_of({origin.HALF_OP})
        wanted = (has_type | self._is_one_of(origin.OF_TRANSACTION)) & ~ends
        named = self.property(origin.PROPERTY_TRANSACTION_ID) if (wanted | ends).any() else None
        if named is None and not wanted.any():
            return self._nulls(pa.string())
        nothing = pa.scalar(None, pa.string())
        found = uniq_key if named is None else pc.coalesce(named, uniq_key)
        of_ends = nothing if named is None else named
        return pc.if_else(pa.array(wanted), found, pc.if_else(pa.array(ends), of_ends, nothing))

    def deliver_ms(
        self, tags_code: Int64s, delay_level: pa.Array, store_timestamp: Int64s
    ) -> tuple[Int64s, Any] | None:
        """When waiting messages are to be delivered, in milliseconds, and which times are known; None for none."""
        if not self._is_one_of({origin.DELAYED, origin.TIMER}).any():
            return None
        delayed, timer = (self._is_one_of({kind}) for kind in (origin.DELAYED, origin.TIMER))
        known = delayed & pc.fill_null(pc.greater(delay_level, 0), fill_value=False).to_numpy(zero_copy_only=False)
        times = np.where(known, tags_code, 0)
        if timer.any() and (named := self.property(origin.PROPERTY_TIMER_OUT_MS)) is not None:
            out = _longs(named)
            known |= timer & out.is_valid().to_numpy(zero_copy_only=False)
            outs = pc.fill_null(out, 0).to_numpy()
            asked = np.clip(self._asked_ms(outs, store_timestamp), outs, _latest_ms(outs))
            times = np.where(timer & known, asked, times)
        return times, known

    def _asked_ms(self, outs: Int64s, store_timestamp: Int64s) -> Int64s:
        """When producers wanted timer messages, in milliseconds; `outs` where no property says so."""
        asked = outs
        if (named := self.property(origin.PROPERTY_TIMER_DELIVER_MS)) is not None:
            asked = pc.coalesce(_longs(named), numbers(outs)).to_numpy(zero_copy_only=False)
        for name, unit_ms in reversed(origin.TIMER_DELAYS):
            if (named := self.property(name)) is not None:
                delays = _longs(named)
                delay = pc.fill_null(delays, origin.DELAY_MAX).to_numpy(zero_copy_only=False)
                is_taken = (np.abs(delay) < origin.DELAY_MAX) & (np.abs(store_timestamp) < origin.STORE_TIMESTAMP_MAX)
                told = np.where(is_taken, store_timestamp + np.where(is_taken, delay, 0) * unit_ms, outs)
                asked = np.where(named.is_valid().to_numpy(zero_copy_only=False), told, asked)
        return asked

    def _has(self, name: str) -> Any | None:
        """A mask of the messages with the property; None if no message has it."""
        found = self.property(name)
        return None if found is None else found.is_valid().to_numpy(zero_copy_only=False)

    def property(self, name: str) -> pa.Array | None:
        """The property of each message, null for messages without it; None if no message has it."""
        names, row_ends = self._properties.keys, self._properties.offsets.to_numpy()
        number = pc.index(names.dictionary, name).as_py()
        items = np.flatnonzero(names.indices.to_numpy() == number) if number >= 0 else np.empty(0, np.int64)
        if not len(items):
            return None
        rows = np.searchsorted(row_ends, items, "right") - 1
        which, valid = np.zeros(len(self._topic), np.int64), np.zeros(len(self._topic), bool)
        which[rows], valid[rows] = items, True
        return self._properties.items.take(numbers(which, valid))

    def _first_of(self, *names: str) -> pa.Array:
        found = [each for each in map(self.property, names) if each is not None]
        return pc.coalesce(*found) if found else self._nulls(pa.string())

    def _nulls(self, kind: pa.DataType) -> pa.Array:
        return pa.nulls(len(self._topic), kind)

    def _is_one_of(self, kinds: Any) -> Any:
        if self._kinds_there.isdisjoint(kinds):
            return np.zeros(len(self._kinds), bool)
        return np.array([kind in kinds for kind in origin.KINDS])[self._kinds]

    def _numbered(self, texts: pa.Array) -> Int32s:
        """The number of each text of a dictionary array among all texts, -1 for null."""
        known = [self._number(text) for text in texts.dictionary.to_pylist()]
        codes: Int32s = (pc.fill_null(texts.indices, -1) if texts.null_count else texts.indices).to_numpy()
        return codes if known == list(range(len(known))) else np.array([*known, -1], np.int32)[codes]

    def _number(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _told(self, rule: Callable[[str], Any]) -> Sequence[Any]:
        return [rule(text) for text in self._texts]

    def _translated(self, rule: Callable[[str], str | None], codes: Int32s) -> Int32s:
        """The numbers of the results of `rule` for the texts with these numbers."""
        told = self._told(rule)
        return np.array([-1 if text is None else self._number(text) for text in told] + [-1], np.int32)[codes]

    def _column(self, codes: Int32s) -> pa.Array:
        """The texts of these numbers, null for -1; the dictionary has only texts that are used."""
        used = np.zeros(len(self._texts) + 1, bool)
        used[codes] = True
        places = np.append(np.cumsum(used[:-1]) - 1, -1).astype(np.int32)
        texts = [text for text, is_used in zip(self._texts, used.tolist(), strict=False) if is_used]
        if not texts:
            return self._nulls(TEXT)
        indices = places[codes]
        return pa.DictionaryArray.from_arrays(numbers(np.maximum(indices, 0), codes >= 0), pa.array(texts, pa.string()))


def first_keys(keys: pa.ListArray) -> pa.Array:
    """The first key of each row; null for rows without keys."""
    ends = keys.offsets.to_numpy()
    valid = ends[1:] > ends[:-1]
    if len(keys.values) == len(keys) and valid.all():
        return keys.values
    return keys.values.take(numbers(np.where(valid, ends[:-1], 0), valid))


def _latest_ms(outs: Int64s) -> Int64s:
    """``origin.latest_ms`` of each number."""
    last = np.iinfo(np.int64).max - origin.TIMER_PRECISION_MS
    latest: Int64s = np.minimum(outs, last) + origin.TIMER_PRECISION_MS
    return latest


def _longs(texts: pa.Array) -> pa.Array:
    """Each text as the long that Java reads; null if Java reads none."""
    is_plain = pc.match_substring_regex(texts, _PLAIN_NUMBER)
    if pc.all(is_plain).as_py() is not False:
        return texts.cast(pa.int64())
    return pa.array([None if text is None else parse_long(text) for text in texts.to_pylist()], pa.int64())
