"""A Parquet file in memory, written row group by row group from Arrow's columns.

Arrow's own writer takes half as long again for the columns of a message, and it is what a load of the table waits for
most. This one knows no more than such columns need: integers, texts and bytes, times, dictionaries of texts, lists of
texts, maps of texts. Whatever else writes or reads a table's files does so by Arrow.

https://github.com/apache/parquet-format
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from reput import __version__
from reput.sinks.parquet import thrift
from reput.sinks.parquet.levels import FlatLevels, Levels, ListLevels, row_ranges
from reput.sinks.parquet.values import PLAIN, RLE, Bounds, Numbered, Numbers, Texts, Values, from_zero, numbered
from reput.source.arrays import Bools, Bytes

_MAGIC = b"PAR1"
_VERSION = 2
# In the form that readers look for, which know of others' writers what to distrust.
_CREATED_BY = b"reput version " + __version__.encode()
# Parquet's numbers: physical types, repetition of a field, kinds of pages, codecs.
_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_ZSTD = 6
# ConvertedType of earlier readers, and the field of LogicalType that says the same.
_UTF8, _MAP, _LIST, _TIMESTAMP_MICROS = 0, 1, 3, 10
_STRING_TYPE, _MAP_TYPE, _LIST_TYPE, _TIMESTAMP_TYPE = 1, 2, 3, 8
_NOTHING = thrift.struct({})
_UTC = _EXACT = thrift.boolean(True)
_MICROS = thrift.struct({2: _NOTHING})
# A reader holds a page in memory.
_PAGE_BYTES = 1 << 20
_LEVEL = 1


@dataclass(frozen=True)
class _Column:
    """A column of values: `path` from the row's field down to them."""

    path: tuple[str, ...]
    physical_type: int


class ParquetFile:
    """The columns of `schema`, compressed by zstd.

    Numbers of the columns in `by_difference` are DELTA_BINARY_PACKED, those in `by_number` have a dictionary, which
    texts have where Arrow has one. Texts of the columns in `by_prefix`, where a list's elements are named as
    ``keys.list.element``, are DELTA_BYTE_ARRAY. The columns in `with_bounds`, which have no lists, have statistics.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        by_difference: Collection[str] = (),
        by_number: Collection[str] = (),
        by_prefix: Collection[str] = (),
        with_bounds: Collection[str] = (),
    ) -> None:
        """Raises TypeError for a column of a type that this module does not know."""
        self._elements = list(_schema_elements(schema))
        self._schema = schema
        self._by_difference, self._by_number = frozenset(by_difference), frozenset(by_number)
        self._by_prefix = frozenset(by_prefix)
        self._with_bounds = frozenset(with_bounds)
        self._codec = pa.Codec("zstd", compression_level=_LEVEL)
        self._out = pa.BufferOutputStream()
        self._out.write(_MAGIC)
        self._groups: list[thrift.Encoded] = []
        self._rows = 0
        self._page: Bytes = np.empty(0, np.uint8)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a row group; columns of `batch` are those of the schema, in its order. No row adds none."""
        if not batch.num_rows:
            return
        start = self._out.tell()
        chunks = [
            chunk
            for field, array in zip(self._schema, batch.columns, strict=True)
            for chunk in self._chunks(field, array)
        ]
        group = {
            1: thrift.list_of([chunk for chunk, _ in chunks]),
            2: thrift.i64(sum(size for _, size in chunks)),
            3: thrift.i64(batch.num_rows),
            5: thrift.i64(start),
            6: thrift.i64(self._out.tell() - start),
            7: thrift.i16(len(self._groups)),
        }
        self._groups.append(thrift.struct(group))
        self._rows += batch.num_rows

    def finish(self) -> pa.Buffer:
        """The file; nothing can be added to it any more."""
        columns = sum(2 if pa.types.is_map(field.type) else 1 for field in self._schema)
        footer = thrift.struct(
            {
                1: thrift.i32(_VERSION),
                2: thrift.list_of(self._elements),
                3: thrift.i64(self._rows),
                4: thrift.list_of(self._groups),
                6: thrift.binary(_CREATED_BY),
                # Bounds are in the order of the types.
                7: thrift.list_of([thrift.struct({1: _NOTHING})] * columns),
            }
        ).data
        self._out.write(footer)
        self._out.write(len(footer).to_bytes(4, "little"))
        self._out.write(_MAGIC)
        return self._out.getvalue()

    def _chunks(self, field: pa.Field, array: pa.Array) -> Iterator[tuple[thrift.Encoded, int]]:
        """The column chunks of a field, each with its uncompressed size."""
        array, kind, name = from_zero(array), field.type, field.name
        valid = _valid(array)
        if pa.types.is_list(kind):
            offsets = array.offsets.to_numpy()
            levels = ListLevels(offsets, valid)
            yield self._chunk(*self._texts((name, "list", "element"), levels, array.values), array)
        elif pa.types.is_map(kind):
            levels = ListLevels(array.offsets.to_numpy(), valid)
            keys = _dictionary(array.keys)
            yield self._chunk(_Column((name, "key_value", "key"), _BYTE_ARRAY), levels, keys, array)
            yield self._chunk(*self._texts((name, "key_value", "value"), levels, array.items), array)
        else:
            there = array if valid is None else array.drop_null()
            yield self._chunk(
                _Column((name,), _physical_type(kind)), FlatLevels(valid), self._values(field, there), array
            )

    def _texts(self, path: tuple[str, ...], levels: Levels, texts: pa.Array) -> tuple[_Column, Levels, Values]:
        return _Column(path, _BYTE_ARRAY), levels, Texts(texts, by_prefix=".".join(path) in self._by_prefix)

    def _values(self, field: pa.Field, there: pa.Array) -> Values:
        if pa.types.is_dictionary(field.type):
            return _dictionary(there)
        if _physical_type(field.type) == _BYTE_ARRAY:
            return Texts(there, by_prefix=field.name in self._by_prefix)
        dtype = np.int64 if _physical_type(field.type) == _INT64 else np.int32
        numbers: Any = np.frombuffer(from_zero(there).buffers()[1] or b"", dtype, len(there))
        if field.name in self._by_number and (known := numbered(numbers)) is not None:
            return known
        return Numbers(numbers, by_difference=field.name in self._by_difference)

    def _chunk(self, column: _Column, levels: Levels, values: Values, array: pa.Array) -> tuple[thrift.Encoded, int]:
        """Write a column chunk; returns its metadata and its size before compression."""
        start, size, dictionary_at = self._out.tell(), 0, None
        stats = []
        if isinstance(values, Numbered):
            dictionary_at = start
            size += self._dictionary_page(values.dictionary, values.size)
            stats.append((_DICTIONARY_PAGE, PLAIN, 1))
        data_at, entries, first_value, pages = self._out.tell(), 0, 0, 0
        for first, last in row_ranges(len(array), 1 + array.nbytes // _PAGE_BYTES):
            page = levels.of_page(first, last)
            size += self._data_page(page.data, page.count, values, first_value, first_value + page.values)
            first_value += page.values
            entries += page.count
            pages += 1
        stats.append((_DATA_PAGE, values.encoding, pages))
        has_bounds = column.path[0] in self._with_bounds
        metadata = thrift.struct(
            {
                1: thrift.i32(column.physical_type),
                2: thrift.list_of(
                    [thrift.i32(each) for each in sorted({RLE, *(encoding for _, encoding, _ in stats)})]
                ),
                3: thrift.list_of([thrift.binary(name.encode()) for name in column.path]),
                4: thrift.i32(_ZSTD),
                5: thrift.i64(entries),
                6: thrift.i64(size),
                7: thrift.i64(self._out.tell() - start),
                9: thrift.i64(data_at),
                11: None if dictionary_at is None else thrift.i64(dictionary_at),
                12: _statistics(values.bounds(), array.null_count) if has_bounds else None,
                13: thrift.list_of([_page_encoding(*each) for each in stats]),
            }
        )
        return thrift.struct({2: thrift.i64(0), 3: metadata}), size

    def _dictionary_page(self, dictionary: Texts | Numbers, size: int) -> int:
        header = thrift.struct({1: thrift.i32(size), 2: thrift.i32(PLAIN)})
        page = self._room(dictionary.bytes_most(0, size))
        return self._put_page(_DICTIONARY_PAGE, page[: dictionary.put(0, size, page, 0)], 7, header)

    def _data_page(self, levels: bytes, count: int, values: Values, first: int, last: int) -> int:
        header = thrift.struct(
            {1: thrift.i32(count), 2: thrift.i32(values.encoding), 3: thrift.i32(RLE), 4: thrift.i32(RLE)}
        )
        page = self._room(len(levels) + values.bytes_most(first, last))
        page[: len(levels)] = np.frombuffer(levels, np.uint8)
        end = values.put(first, last, page, len(levels))
        return self._put_page(_DATA_PAGE, page[:end], 5, header)

    def _put_page(self, kind: int, page: Bytes, header_field: int, header: thrift.Encoded) -> int:
        """Write a page; returns its uncompressed size, with its header."""
        body = self._codec.compress(pa.py_buffer(page))
        fields = {1: thrift.i32(kind), 2: thrift.i32(len(page)), 3: thrift.i32(body.size), header_field: header}
        head = thrift.struct(fields).data
        self._out.write(head)
        self._out.write(body)
        return len(head) + len(page)

    def _room(self, size: int) -> Bytes:
        if len(self._page) < size:
            self._page = np.empty(max(size, 2 * len(self._page)), np.uint8)
        return self._page


def _valid(array: pa.Array) -> Bools | None:
    if not array.null_count:
        return None
    bitmap = np.frombuffer(array.buffers()[0], np.uint8)
    return np.unpackbits(bitmap, count=len(array), bitorder="little").view(np.bool_)


def _dictionary(array: pa.DictionaryArray) -> Numbered:
    return Numbered(array.indices.to_numpy(), Texts(array.dictionary), len(array.dictionary))


def _physical_type(kind: pa.DataType) -> int:
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _BYTE_ARRAY
    if pa.types.is_int32(kind):
        return _INT32
    if pa.types.is_int64(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us"):
        return _INT64
    msg = f"no column of {kind} is written"
    raise TypeError(msg)


def _statistics(bounds: Bounds | None, nulls: int) -> thrift.Encoded:
    return thrift.struct(
        {
            3: thrift.i64(nulls),
            5: thrift.binary(bounds.greatest) if bounds else None,
            6: thrift.binary(bounds.least) if bounds else None,
            7: _EXACT if bounds else None,
            8: _EXACT if bounds else None,
        }
    )


def _page_encoding(kind: int, encoding: int, count: int) -> thrift.Encoded:
    return thrift.struct({1: thrift.i32(kind), 2: thrift.i32(encoding), 3: thrift.i32(count)})


def _schema_elements(schema: pa.Schema) -> Iterator[thrift.Encoded]:
    yield thrift.struct({3: thrift.i32(_REQUIRED), 4: thrift.binary(b"schema"), 5: thrift.i32(len(schema))})
    for field in schema:
        kind = field.type
        if pa.types.is_list(kind):
            yield _group(field.name, _OPTIONAL, 1, _LIST, _LIST_TYPE)
            yield _group("list", _REPEATED, 1)
            yield _leaf("element", pa.string(), _REQUIRED)
        elif pa.types.is_map(kind):
            yield _group(field.name, _OPTIONAL, 1, _MAP, _MAP_TYPE)
            yield _group("key_value", _REPEATED, 2)
            yield _leaf("key", pa.string(), _REQUIRED)
            yield _leaf("value", pa.string(), _REQUIRED)
        else:
            yield _leaf(field.name, kind, _OPTIONAL)


def _group(name: str, repetition: int, children: int, converted: int | None = None, logical: int = 0) -> thrift.Encoded:
    return thrift.struct(
        {
            3: thrift.i32(repetition),
            4: thrift.binary(name.encode()),
            5: thrift.i32(children),
            6: None if converted is None else thrift.i32(converted),
            10: None if converted is None else thrift.struct({logical: _NOTHING}),
        }
    )


def _leaf(name: str, kind: pa.DataType, repetition: int) -> thrift.Encoded:
    converted = logical = None
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
        converted, logical = _UTF8, thrift.struct({_STRING_TYPE: _NOTHING})
    elif pa.types.is_timestamp(kind):
        converted = _TIMESTAMP_MICROS
        logical = thrift.struct({_TIMESTAMP_TYPE: thrift.struct({1: _UTC, 2: _MICROS})})
    return thrift.struct(
        {
            1: thrift.i32(_physical_type(kind)),
            3: thrift.i32(repetition),
            4: thrift.binary(name.encode()),
            6: None if converted is None else thrift.i32(converted),
            10: logical,
        }
    )
