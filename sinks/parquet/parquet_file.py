"""A Parquet file in memory, written row group by row group from Arrow's columns.

Arrow's own writer takes half as long again for the columns of a message, and it is most of the time of loading a table.
This one supports only the types that such columns need: integers, texts and bytes, times, dictionaries of texts, lists
of texts, maps of texts. All other writers and readers of a table's files use Arrow.

https://github.com/apache/parquet-format
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from reput import __version__
from reput.sinks.parquet import page_kernels as kernels
from reput.source.arrays import Bools, Bytes, Int32s, Int64s
from reput.source.kernels.byte_kernels import WORD

# ----------------------------------------------------------------------------------------------------------------------
# The parts of Thrift's compact protocol that Parquet's headers and footers need: only encoding.
#
# https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

_TRUE, _FALSE, _I16, _I32, _I64, _BINARY, _A_LIST, _STRUCT = 1, 2, 4, 5, 6, 8, 9, 12
# A list of this many elements or more has its size after its first byte.
_LONG_A_LIST = 15


@dataclass(frozen=True)
class Encoded:
    """A value and the protocol's number for its type."""

    kind: int
    data: bytes


def varint(number: int) -> bytes:
    """A number that is not negative, seven bits per byte, the lowest first (ULEB128)."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _signed(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def i16(number: int) -> Encoded:
    """A signed integer of 16 bits."""
    return Encoded(_I16, _signed(number))


def i32(number: int) -> Encoded:
    """A signed integer of 32 bits, or a member of an enumeration."""
    return Encoded(_I32, _signed(number))


def i64(number: int) -> Encoded:
    """A signed integer of 64 bits."""
    return Encoded(_I64, _signed(number))


def boolean(value: bool) -> Encoded:
    """A field of a struct that is true or false."""
    return Encoded(_TRUE if value else _FALSE, b"")


def binary(data: bytes) -> Encoded:
    """Bytes, or a text in UTF-8."""
    return Encoded(_BINARY, varint(len(data)) + data)


def list_of(items: Sequence[Encoded]) -> Encoded:
    """A list of values of one type; an empty one is of structs."""
    kind = items[0].kind if items else _STRUCT
    size = len(items)
    head = bytes([size << 4 | kind]) if size < _LONG_A_LIST else bytes([_LONG_A_LIST << 4 | kind]) + varint(size)
    return Encoded(_A_LIST, head + b"".join(item.data for item in items))


def struct(fields: Mapping[int, Encoded | None]) -> Encoded:
    """A struct, or a union of one field; `fields` by number, rising; None leaves a field out.

    Raises
    ------
    ValueError
        A number does not rise by 1 to 15, for which the protocol has a longer form that Parquet never needs.
    """
    out = bytearray()
    before = 0
    for number, value in fields.items():
        if value is None:
            continue
        if not 1 <= number - before <= _LONG_A_LIST:
            msg = f"field {number} cannot follow field {before}"
            raise ValueError(msg)
        out.append(number - before << 4 | value.kind)
        out += value.data
        before = number
    out.append(0)
    return Encoded(_STRUCT, bytes(out))


# ----------------------------------------------------------------------------------------------------------------------
# Parquet's definition and repetition levels: which values of a column are not null, and where lists begin.
#
# https://github.com/apache/parquet-format/blob/master/README.md#nested-encoding

_NO_BOOLS = np.empty(0, np.bool_)


@dataclass(frozen=True)
class PageLevels:
    """The encoded levels of one page: `count` levels, of which `values` have a value."""

    data: bytes
    count: int
    values: int


class Levels(Protocol):
    """The levels of one column."""

    def of_page(self, first: int, last: int) -> PageLevels:
        """The levels of the rows `[first, last)`; pages are asked for in the order of their rows."""


class FlatLevels:
    """The levels of a column that may be null and has no lists."""

    def __init__(self, valid: Bools | None) -> None:
        """Take which values are not null; None for all."""
        self._valid = valid

    def of_page(self, first: int, last: int) -> PageLevels:
        """See `Levels`."""
        count = last - first
        if self._valid is None:
            return PageLevels(_with_size(repeated(1, 1, count)), count, count)
        valid = self._valid[first:last]
        return PageLevels(_with_size(hybrid(valid.view(np.uint8), 1)), count, int(np.count_nonzero(valid)))


class ListLevels:
    """The levels of a list that may be null, with elements that are not; also of a map's keys, and of its values."""

    def __init__(self, offsets: Int32s, valid: Bools | None) -> None:
        """Take `offsets` as in Arrow, `valid` as in `FlatLevels`; a null list has no elements."""
        self._offsets = offsets
        self._valid = _NO_BOOLS if valid is None else valid
        most = len(offsets) - 1 + int(offsets[-1] - offsets[0]) + WORD
        self._repetition, self._definition = np.empty(most, np.uint8), np.empty(most, np.uint8)
        self._pages: dict[tuple[int, int], PageLevels] = {}

    def of_page(self, first: int, last: int) -> PageLevels:
        """See `Levels`; a map's values have the same pages as its keys."""
        if (first, last) not in self._pages:
            self._pages[first, last] = self._made(first, last)
        return self._pages[first, last]

    def _made(self, first: int, last: int) -> PageLevels:
        repetition, definition = self._repetition, self._definition
        count = kernels.list_levels(self._offsets, self._valid, first, last, repetition, definition)
        levels = _with_size(hybrid(repetition[:count], 1)) + _with_size(hybrid(definition[:count], 2))
        return PageLevels(levels, count, int(self._offsets[last] - self._offsets[first]))


def hybrid(values: Bytes | Int32s, width: int) -> bytes:
    """Numbers below ``2 ** width`` as one run of Parquet's RLE/bit-packing hybrid."""
    if not len(values):
        return b""
    if kernels.is_constant(values):
        return repeated(int(values[0]), width, len(values))
    groups = (len(values) + 7) // 8
    out = np.empty(groups * width + WORD, np.uint8)
    return varint(groups << 1 | 1) + out[: kernels.pack(values, width, out, 0)].tobytes()


def repeated(value: int, width: int, count: int) -> bytes:
    """A run of `count` equal numbers below ``2 ** width``."""
    return varint(count << 1) + value.to_bytes((width + 7) // 8, "little")


def _with_size(levels: bytes) -> bytes:
    return len(levels).to_bytes(4, "little") + levels


def row_ranges(rows: int, pages: int) -> Sequence[tuple[int, int]]:
    """The rows of each of `pages` pages, or of fewer: ``[first, last)``, in order, about equally many."""
    step = max(1, -(-rows // pages))
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]


# ----------------------------------------------------------------------------------------------------------------------
# The values of a column without nulls, in the encodings of this writer.

# Parquet's numbers for encodings.
PLAIN, RLE, DELTA_BINARY_PACKED, DELTA_BYTE_ARRAY, RLE_DICTIONARY = 0, 3, 5, 7, 8
# The size of a text's length, which comes before the text.
_LENGTH_BYTES = 4
# The most bytes per difference: each takes as many bits as the largest one of its block, and a block has a head.
_DELTA_BYTES = 16
# Longer texts are not written as bounds: readers keep the bounds of each row group in memory.
_BOUND_BYTES_MAX = 4096
_DISTINCT_MAX = 1024


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest value, PLAIN without a text's length."""

    least: bytes
    greatest: bytes


class EncodedValues(Protocol):
    """Values of one column, some at a time."""

    @property
    def encoding(self) -> int:
        """Parquet's number for the encoding."""

    def bytes_most(self, first: int, last: int) -> int:
        """The most bytes that the values `[first, last)` take, with the bytes that kernels write after them."""

    def put(self, first: int, last: int, out: Bytes, to: int) -> int:
        """Write the values `[first, last)` to `out` from `to`; return where they end."""

    def bounds(self) -> Bounds | None:
        """The bounds; None without values, or if they are too long."""


@dataclass(frozen=True)
class Numbers:
    """Integers of 32 or 64 bits; `by_difference` suits those that differ little from row to row."""

    values: Int32s | Int64s
    by_difference: bool = False

    @property
    def encoding(self) -> int:
        """See `EncodedValues`."""
        return DELTA_BINARY_PACKED if self.by_difference else PLAIN

    def bytes_most(self, first: int, last: int) -> int:
        """See `EncodedValues`."""
        if self.by_difference:
            return _deltas_most(last - first)
        return (last - first) * self.values.itemsize

    def put(self, first: int, last: int, out: Bytes, to: int) -> int:
        """See `EncodedValues`."""
        values = self.values[first:last]
        if self.by_difference:
            return _put_deltas(values, out, to)
        end = to + values.nbytes
        out[to:end] = values.view(np.uint8)
        return end

    def bounds(self) -> Bounds | None:
        """See `EncodedValues`."""
        if not len(self.values):
            return None
        return Bounds(self.values.min().tobytes(), self.values.max().tobytes())


class EncodedTexts:
    """Texts or other bytes; `by_prefix` suits texts that begin like the one of the row before."""

    def __init__(self, array: pa.Array, *, by_prefix: bool = False) -> None:
        """Take an array of strings or of bytes without nulls."""
        _, ends, data = from_zero(array).buffers()
        self._ends = np.frombuffer(ends, np.int32, len(array) + 1) if len(array) else np.zeros(1, np.int32)
        self._data = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        self._by_prefix = by_prefix

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def encoding(self) -> int:
        """See `EncodedValues`."""
        return DELTA_BYTE_ARRAY if self._by_prefix else PLAIN

    def bytes_most(self, first: int, last: int) -> int:
        """See `EncodedValues`."""
        size, count = int(self._ends[last] - self._ends[first]), last - first
        return size + WORD + (2 * _deltas_most(count) if self._by_prefix else _LENGTH_BYTES * count)

    def put(self, first: int, last: int, out: Bytes, to: int) -> int:
        """See `EncodedValues`."""
        if not self._by_prefix:
            return int(kernels.put_texts(self._ends, self._data, first, last, out, to))
        prefixes = self._compared[0][first:last].copy()
        prefixes[:1] = 0  # no text comes before the first one of a page
        suffixes = np.diff(self._ends[first : last + 1]) - prefixes
        to = _put_deltas(suffixes, out, _put_deltas(prefixes, out, to))
        return int(kernels.put_suffixes(self._ends, self._data, prefixes, first, last, out, to))

    @cached_property
    def _compared(self) -> tuple[Int32s, int, int]:
        """The prefix that each shares with the one before, and the numbers of the least and the greatest."""
        prefixes = np.empty(len(self), np.int32)
        return prefixes, *(kernels.shared_prefixes(self._ends, self._data, prefixes) if len(self) else (0, 0))

    def bounds(self) -> Bounds | None:
        """See `EncodedValues`."""
        if not len(self):
            return None
        least, greatest = self._compared[1:] if self._by_prefix else kernels.text_bounds(self._ends, self._data)
        return _short(self.text(least), self.text(greatest))

    def text(self, number: int) -> bytes:
        """The text of a number."""
        return self._data[self._ends[number] : self._ends[number + 1]].tobytes()


class Numbered:
    """Values by their number in a dictionary, which has a page of its own."""

    encoding = RLE_DICTIONARY

    def __init__(self, codes: Int32s, dictionary: EncodedTexts | Numbers, size: int) -> None:
        """Take the number of values in the dictionary as `size`; some may not be among `codes`."""
        self._codes = codes
        self.dictionary = dictionary
        self.size = size
        self._width = max(1, (size - 1).bit_length())

    def bytes_most(self, first: int, last: int) -> int:
        """See `EncodedValues`."""
        return (last - first + 8) * 4 + 2 * WORD

    def put(self, first: int, last: int, out: Bytes, to: int) -> int:
        """See `EncodedValues`."""
        packed = bytes([self._width]) + hybrid(self._codes[first:last], self._width)
        end = to + len(packed)
        out[to:end] = np.frombuffer(packed, np.uint8)
        return end

    def bounds(self) -> Bounds | None:
        """See `EncodedValues`."""
        used = np.zeros(self.size, np.bool_)
        kernels.mark(self._codes, used)
        if isinstance(self.dictionary, Numbers):
            return Numbers(self.dictionary.values[used]).bounds()
        texts = [self.dictionary.text(number) for number in np.flatnonzero(used).tolist()]
        return _short(min(texts), max(texts)) if texts else None


def _put_deltas(values: Int32s | Int64s, out: Bytes, to: int) -> int:
    return int(kernels.put_deltas(values, np.empty(kernels.DELTA_BLOCK, np.int64), out, to))


def _deltas_most(count: int) -> int:
    """The most bytes that `count` numbers take by their differences."""
    return (count + kernels.DELTA_BLOCK) * _DELTA_BYTES + WORD


def from_zero(array: pa.Array) -> pa.Array:
    """The array with buffers that begin with its first value."""
    return array if array.offset == 0 else pa.concat_arrays([array])


def _short(least: bytes, greatest: bytes) -> Bounds | None:
    return Bounds(least, greatest) if max(len(least), len(greatest)) <= _BOUND_BYTES_MAX else None


def numbered(values: Int32s | Int64s) -> Numbered | None:
    """Numbers by a dictionary of their own; None if more than `_DISTINCT_MAX` differ."""
    codes, found = np.empty(len(values), np.int32), np.empty(_DISTINCT_MAX, values.dtype)
    count = int(kernels.number_values(values, codes, np.full(4 * _DISTINCT_MAX, -1, np.int32), found))
    return Numbered(codes, Numbers(found[:count]), count) if count >= 0 else None


_MAGIC = b"PAR1"
_VERSION = 2
# In the form that readers expect; they know which versions of other writers to distrust.
_CREATED_BY = b"reput version " + __version__.encode()
# Parquet's numbers: physical types, repetition of a field, kinds of pages, codecs.
_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_ZSTD = 6
# ConvertedType of earlier readers, and the field of LogicalType with the same meaning.
_UTF8, _MAP, _LIST, _TIMESTAMP_MICROS = 0, 1, 3, 10
_STRING_TYPE, _MAP_TYPE, _LIST_TYPE, _TIMESTAMP_TYPE = 1, 2, 3, 8
_NOTHING = struct({})
_UTC = _EXACT = boolean(True)
_MICROS = struct({2: _NOTHING})
# The size of a page, which a reader keeps in memory.
_PAGE_BYTES = 1 << 20
_LEVEL = 1


@dataclass(frozen=True)
class _Column:
    """A column of values: `path` from the row's field down to them."""

    path: tuple[str, ...]
    physical_type: int


class ParquetFile:
    """The columns of `schema`, compressed by zstd.

    Numbers of the columns in `by_difference` are DELTA_BINARY_PACKED. Numbers in `by_number` have a dictionary; texts
    have one if Arrow has. Texts of the columns in `by_prefix`, where a list's elements are named as
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
        """Raise TypeError for a column of a type that this module does not support."""
        self._elements = list(_schema_elements(schema))
        self._schema = schema
        self._by_difference, self._by_number = frozenset(by_difference), frozenset(by_number)
        self._by_prefix = frozenset(by_prefix)
        self._with_bounds = frozenset(with_bounds)
        self._codec = pa.Codec("zstd", compression_level=_LEVEL)
        self._out = pa.BufferOutputStream()
        self._out.write(_MAGIC)
        self._groups: list[Encoded] = []
        self._rows = 0
        self._page: Bytes = np.empty(0, np.uint8)
        # Texts of the present row group by their addresses, which stay theirs until it is written.
        self._texts_known: dict[tuple[tuple[int, ...], bool], EncodedTexts] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a row group; the columns of `batch` are those of the schema, in its order. An empty batch adds none."""
        if not batch.num_rows:
            return
        start = self._out.tell()
        chunks = [
            chunk
            for field, array in zip(self._schema, batch.columns, strict=True)
            for chunk in self._chunks(field, array)
        ]
        group = {
            1: list_of([chunk for chunk, _ in chunks]),
            2: i64(sum(size for _, size in chunks)),
            3: i64(batch.num_rows),
            5: i64(start),
            6: i64(self._out.tell() - start),
            7: i16(len(self._groups)),
        }
        self._texts_known.clear()
        self._groups.append(struct(group))
        self._rows += batch.num_rows

    def finish(self) -> pa.Buffer:
        """The file; nothing can be added to it any more."""
        columns = sum(2 if pa.types.is_map(field.type) else 1 for field in self._schema)
        footer = struct(
            {
                1: i32(_VERSION),
                2: list_of(self._elements),
                3: i64(self._rows),
                4: list_of(self._groups),
                6: binary(_CREATED_BY),
                # Bounds are in the order of the types.
                7: list_of([struct({1: _NOTHING})] * columns),
            }
        ).data
        self._out.write(footer)
        self._out.write(len(footer).to_bytes(4, "little"))
        self._out.write(_MAGIC)
        return self._out.getvalue()

    def _chunks(self, field: pa.Field, array: pa.Array) -> Iterator[tuple[Encoded, int]]:
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

    def _texts(self, path: tuple[str, ...], levels: Levels, texts: pa.Array) -> tuple[_Column, Levels, EncodedValues]:
        return _Column(path, _BYTE_ARRAY), levels, self._encoded(texts, ".".join(path))

    def _encoded(self, texts: pa.Array, name: str) -> EncodedTexts:
        """The texts of a column; two columns with the same memory, mostly keys and first keys, are compared once."""
        buffers = tuple(buffer.address if buffer else 0 for buffer in texts.buffers()[1:])
        by_prefix, place = name in self._by_prefix, (texts.offset, len(texts), *buffers)
        if (place, by_prefix) not in self._texts_known:
            self._texts_known[place, by_prefix] = EncodedTexts(texts, by_prefix=by_prefix)
        return self._texts_known[place, by_prefix]

    def _values(self, field: pa.Field, there: pa.Array) -> EncodedValues:
        if pa.types.is_dictionary(field.type):
            return _dictionary(there)
        if _physical_type(field.type) == _BYTE_ARRAY:
            return self._encoded(there, field.name)
        dtype = np.int64 if _physical_type(field.type) == _INT64 else np.int32
        numbers: Any = np.frombuffer(from_zero(there).buffers()[1] or b"", dtype, len(there))
        if field.name in self._by_number and (known := numbered(numbers)) is not None:
            return known
        return Numbers(numbers, by_difference=field.name in self._by_difference)

    def _chunk(self, column: _Column, levels: Levels, values: EncodedValues, array: pa.Array) -> tuple[Encoded, int]:
        """Write a column chunk; return its metadata and its size before compression."""
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
        metadata = struct(
            {
                1: i32(column.physical_type),
                2: list_of([i32(each) for each in sorted({RLE, *(encoding for _, encoding, _ in stats)})]),
                3: list_of([binary(name.encode()) for name in column.path]),
                4: i32(_ZSTD),
                5: i64(entries),
                6: i64(size),
                7: i64(self._out.tell() - start),
                9: i64(data_at),
                11: None if dictionary_at is None else i64(dictionary_at),
                12: _statistics(values.bounds(), array.null_count) if has_bounds else None,
                13: list_of([_page_encoding(*each) for each in stats]),
            }
        )
        return struct({2: i64(0), 3: metadata}), size

    def _dictionary_page(self, dictionary: EncodedTexts | Numbers, size: int) -> int:
        header = struct({1: i32(size), 2: i32(PLAIN)})
        page = self._room(dictionary.bytes_most(0, size))
        return self._put_page(_DICTIONARY_PAGE, page[: dictionary.put(0, size, page, 0)], 7, header)

    def _data_page(self, levels: bytes, count: int, values: EncodedValues, first: int, last: int) -> int:
        header = struct({1: i32(count), 2: i32(values.encoding), 3: i32(RLE), 4: i32(RLE)})
        page = self._room(len(levels) + values.bytes_most(first, last))
        page[: len(levels)] = np.frombuffer(levels, np.uint8)
        end = values.put(first, last, page, len(levels))
        return self._put_page(_DATA_PAGE, page[:end], 5, header)

    def _put_page(self, kind: int, page: Bytes, header_field: int, header: Encoded) -> int:
        """Write a page; return its uncompressed size, with its header."""
        body = self._codec.compress(pa.py_buffer(page))
        fields = {1: i32(kind), 2: i32(len(page)), 3: i32(body.size), header_field: header}
        head = struct(fields).data
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
    return Numbered(array.indices.to_numpy(), EncodedTexts(array.dictionary), len(array.dictionary))


def _physical_type(kind: pa.DataType) -> int:
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _BYTE_ARRAY
    if pa.types.is_int32(kind):
        return _INT32
    if pa.types.is_int64(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us"):
        return _INT64
    msg = f"no column of {kind} is written"
    raise TypeError(msg)


def _statistics(bounds: Bounds | None, nulls: int) -> Encoded:
    return struct(
        {
            3: i64(nulls),
            5: binary(bounds.greatest) if bounds else None,
            6: binary(bounds.least) if bounds else None,
            7: _EXACT if bounds else None,
            8: _EXACT if bounds else None,
        }
    )


def _page_encoding(kind: int, encoding: int, count: int) -> Encoded:
    return struct({1: i32(kind), 2: i32(encoding), 3: i32(count)})


def _schema_elements(schema: pa.Schema) -> Iterator[Encoded]:
    yield struct({3: i32(_REQUIRED), 4: binary(b"schema"), 5: i32(len(schema))})
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


def _group(name: str, repetition: int, children: int, converted: int | None = None, logical: int = 0) -> Encoded:
    return struct(
        {
            3: i32(repetition),
            4: binary(name.encode()),
            5: i32(children),
            6: None if converted is None else i32(converted),
            10: None if converted is None else struct({logical: _NOTHING}),
        }
    )


def _leaf(name: str, kind: pa.DataType, repetition: int) -> Encoded:
    converted = logical = None
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
        converted, logical = _UTF8, struct({_STRING_TYPE: _NOTHING})
    elif pa.types.is_timestamp(kind):
        converted = _TIMESTAMP_MICROS
        logical = struct({_TIMESTAMP_TYPE: struct({1: _UTC, 2: _MICROS})})
    return struct(
        {
            1: i32(_physical_type(kind)),
            3: i32(repetition),
            4: binary(name.encode()),
            6: None if converted is None else i32(converted),
            10: logical,
        }
    )
