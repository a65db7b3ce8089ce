"""Columns that grow window by window and become Arrow arrays: numbers, texts, texts that repeat, properties.

An array is a view of memory that the column uses again: it is valid until the column is added to or cleared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from reput.source.arrays import Bytes, Int32s, Int64s
from reput.source.kernels.byte_kernels import WORD
from reput.source.kernels.record_kernels import PROPERTIES_SIZE
from reput.source.record.message_properties import decode_utf8
from reput.source.rows import column_kernels as ck

TEXT = pa.dictionary(pa.int32(), pa.string())

_FIRST_SIZE = 256


class Values:
    """Numbers of one type. Clearing it keeps its memory."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._array: NDArray[Any] = np.empty(_FIRST_SIZE, dtype)
        self.size = 0

    @property
    def filled(self) -> NDArray[Any]:
        """The values that were added."""
        return self._array[: self.size]

    def reserve(self, count: int) -> NDArray[Any]:
        """All the memory, with room for at least `count` more values; the caller fills it and adds to `size`."""
        if self.size + count > len(self._array):
            grown = np.empty(max(2 * len(self._array), self.size + count), self._array.dtype)
            grown[: self.size] = self.filled
            self._array = grown
        return self._array

    def extend(self, count: int) -> NDArray[Any]:
        """Add `count` values, and return their memory, which the caller fills in."""
        start = self.size
        array = self.reserve(count)
        self.size += count
        return array[start : self.size]

    def append(self, values: Any) -> None:
        """Add values of this type, or values of a wider type that fit into it."""
        self.extend(len(values))[:] = values

    def clear(self) -> None:
        """Forget all."""
        self.size = 0

    def array(self) -> pa.Array:
        """All of them."""
        return numbers(self.filled)


class Ends(Values):
    """The end of each value, after a 0: Arrow's offsets."""

    def __init__(self) -> None:
        super().__init__(np.int32)
        self.clear()

    def reserve_from_last(self, count: int) -> Int32s:
        """The last end, and room for at least `count` more."""
        return self.reserve(count)[self.size - 1 :]

    @property
    def last(self) -> int:
        """The last end."""
        return int(self._array[self.size - 1])

    def clear(self) -> None:
        """Forget all but the 0."""
        self._array[0] = 0
        self.size = 1


def numbers(values: Any, valid: Any = None) -> pa.Array:
    """An array of these integers, without the checks of ``pa.array``; null where `valid` is false."""
    bitmap = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bitmap, pa.py_buffer(values)])


class Texts:
    """Texts as Java decodes them, added as spans of a window's bytes: contiguous int64, as the kernels need them."""

    def __init__(self) -> None:
        self._ends = Ends()
        self._bytes = Values(np.uint8)

    @property
    def size_bytes(self) -> int:
        """Bytes of all texts."""
        return self._bytes.size

    def add(self, data: Bytes, starts: Int64s, sizes: Int64s) -> None:
        """Add the spans of `data`."""
        out = self._bytes.reserve(int(sizes.sum()) + WORD)
        ck.gather(data, starts, sizes, self._ends.reserve_from_last(len(starts)), out)
        self._added(len(starts))

    def _added(self, count: int) -> None:
        self._ends.size += count
        self._bytes.size = self._ends.last

    def clear(self) -> None:
        """Forget all."""
        self._ends.clear()
        self._bytes.clear()

    def array(self, *, null_if_empty: bool = False) -> pa.Array:
        """All texts."""
        ends = self._ends.filled
        valid = pa.py_buffer(np.packbits(ends[1:] > ends[:-1], bitorder="little")) if null_if_empty else None
        return _java_text(_utf8(ends, self._bytes.filled, valid))


class KeyTexts(Texts):
    """The single keys of each KEYS."""

    def __init__(self) -> None:
        super().__init__()
        self._row_ends = Ends()

    def add(self, data: Bytes, starts: Int64s, sizes: Int64s) -> None:
        """Add a row for each span of `data`."""
        out = self._bytes.reserve(int(sizes.sum()) + WORD)
        ends, row_ends = self._ends.reserve(int((sizes + 1).sum()) // 2), self._row_ends.reserve_from_last(len(starts))
        count = ck.list_keys(data, starts, sizes, row_ends, ends, out)
        self._row_ends.size += len(starts)
        self._added(count + 1 - self._ends.size)

    def clear(self) -> None:
        """Forget all."""
        super().clear()
        self._row_ends.clear()

    def lists(self, kind: pa.DataType) -> pa.Array:
        """The keys of each row."""
        return pa.ListArray.from_arrays(self._row_ends.array(), self.array(), type=kind)


class TextNumbers:
    """Texts, each once, numbered in the order of their first appearance; kernels search them and add to them.

    Attributes
    ----------
    count
        The number of texts; the kernels return it.
    table, ends, data
        As in ``column_kernels.number_spans``.
    """

    def __init__(self) -> None:
        self.count = 0
        self.table = np.full(2 * _FIRST_SIZE, -1, np.int32)
        self.ends = np.zeros(_FIRST_SIZE + 1, np.int32)
        self.data = np.empty(16 * _FIRST_SIZE, np.uint8)

    @property
    def size_bytes(self) -> int:
        """Bytes of all texts."""
        return int(self.ends[self.count])

    def grow(self, size: int) -> None:
        """Double each array that has no room for one more text of `size` bytes."""
        if self.count + 1 == len(self.ends):
            self.ends = np.append(self.ends, np.empty(len(self.ends) - 1, np.int32))
        if 2 * (self.count + 1) > len(self.table):
            self.table = np.full(2 * len(self.table), -1, np.int32)
            ck.index_texts(self.table, self.count, self.ends, self.data)
        if self.size_bytes + size + WORD > len(self.data):
            self.data = np.append(self.data, np.empty(len(self.data) + size, np.uint8))

    def clear(self) -> None:
        """Forget all."""
        self.table.fill(-1)
        self.count = 0

    def coded(self, codes: Int32s) -> tuple[Int32s, pa.Array]:
        """`codes` as numbers of the texts as Java decodes them, and these texts; negative numbers stay."""
        texts = _utf8(self.ends[: self.count + 1], self.data[: self.size_bytes])
        if texts.type != pa.string():  # different bytes may be the same text to Java
            encoded = _java_text(texts).dictionary_encode()
            codes, texts = np.append(encoded.indices.to_numpy(), np.int32(-1))[codes], encoded.dictionary
        return codes, texts

    def spans(self) -> list[bytes]:
        """The bytes of each text, in the order of their numbers."""
        ends, data = self.ends[: self.count + 1].tolist(), self.data[: self.size_bytes].tobytes()
        return [data[start:end] for start, end in zip(ends, ends[1:], strict=False)]


class RepeatedTexts:
    """Texts that repeat: each is kept once, and represented by its number; an empty one is null."""

    def __init__(self) -> None:
        self._codes = Values(np.int32)
        self._texts = TextNumbers()

    @property
    def size_bytes(self) -> int:
        """Bytes of all texts, each once."""
        return self._texts.size_bytes

    def add(self, data: Bytes, starts: Int64s, sizes: Int64s) -> None:
        """Add the spans of `data`; contiguous int64."""
        codes, first, texts = self._codes.reserve(len(starts))[self._codes.size :], 0, self._texts
        while True:
            first, texts.count = ck.number_spans(
                data, starts, sizes, first, codes, texts.table, texts.count, texts.ends, texts.data
            )
            if first == len(starts):
                break
            texts.grow(int(sizes[first]))
        self._codes.size += len(starts)

    def clear(self) -> None:
        """Forget all."""
        self._codes.clear()
        self._texts.clear()

    def numbered(self) -> tuple[Int32s, pa.Array]:
        """The number of each text, -1 for an empty one; the texts, each once."""
        return self._texts.coded(self._codes.filled)

    def spans(self) -> list[bytes]:
        """The bytes of each text, in the order of their numbers."""
        return self._texts.spans()

    def array(self, texts: pa.Array | None = None) -> pa.Array:
        """All texts, as a dictionary if they are text; `texts` replaces each of `spans`, if given."""
        codes, known = (self._codes.filled, texts) if texts is not None else self.numbered()
        if not self._texts.count:
            return pa.nulls(len(codes), TEXT if known.type == pa.string() else known.type)
        indices = numbers(codes) if codes.min() >= 0 else numbers(np.maximum(codes, 0), codes >= 0)
        return pa.DictionaryArray.from_arrays(indices, known) if known.type == pa.string() else known.take(indices)


class Properties:
    """All properties of each record, by name; names repeat from record to record."""

    def __init__(self) -> None:
        self._row_ends = Ends()
        self._names, self._codes = TextNumbers(), Values(np.int32)
        self._value_ends, self._values = Ends(), Values(np.uint8)

    @property
    def size_bytes(self) -> int:
        """Bytes of all names, each once, and of all values."""
        return self._names.size_bytes + self._values.size

    def add(self, data: Bytes, parts: Int64s) -> None:
        """Add the properties of each record of `parts`."""
        sizes, names = parts[:, PROPERTIES_SIZE], self._names
        # An item takes at least four bytes with its separators, the last one three.
        most = int((sizes // 4 + 1).sum())
        row_ends, codes = self._row_ends.reserve_from_last(len(parts)), self._codes.reserve(most)[self._codes.size :]
        value_ends, values = self._value_ends.reserve_from_last(most), self._values.reserve(int(sizes.sum()) + WORD)
        first = 0
        while True:
            first, count, names.count = ck.add_properties(
                *(data, parts, first, row_ends, codes),
                *(names.table, names.count, names.ends, names.data, value_ends, values),
            )
            if first == len(parts):
                break
            names.grow(int(sizes[first]))
        self._row_ends.size += len(parts)
        self._codes.size += count
        self._value_ends.size += count
        self._values.size = self._value_ends.last

    def clear(self) -> None:
        """Forget all."""
        for column in (self._row_ends, self._names, self._codes, self._value_ends, self._values):
            column.clear()

    def maps(self, kind: pa.DataType) -> pa.Array:
        """The properties of each record."""
        codes, texts = self._names.coded(self._codes.filled)
        codes, row_ends, kept = codes.copy(), self._row_ends.filled.copy(), np.empty(len(codes), np.int64)
        count = ck.keep_last(row_ends, codes, np.full(len(texts), -1, np.int64), kept)
        items = _java_text(_utf8(self._value_ends.filled, self._values.filled))
        if count < len(codes):
            items = items.take(numbers(kept[:count]))
        keys = pa.DictionaryArray.from_arrays(numbers(codes[:count]), texts)
        return pa.MapArray.from_arrays(numbers(row_ends), keys, items, type=kind)


class MessageIds:
    """Offset message ids (``MessageDecoder#createMessageId``)."""

    def __init__(self) -> None:
        self._ends = Ends()
        self._digits = Values(np.uint8)

    def add(self, data: Bytes, hosts: Int64s, host_sizes: Int64s, offsets: Int64s) -> None:
        """Add the ids of records at the physical offsets `offsets`, stored by `hosts`."""
        out = self._digits.reserve(2 * int((host_sizes + 8).sum()))
        ck.message_ids(data, hosts, host_sizes, offsets, self._ends.reserve_from_last(len(hosts)), out)
        self._ends.size += len(hosts)
        self._digits.size = self._ends.last

    def clear(self) -> None:
        """Forget all."""
        self._ends.clear()
        self._digits.clear()

    def array(self) -> pa.Array:
        """All ids."""
        ends = self._ends.filled
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self._digits.filled)]
        return pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers)


def _utf8(ends: Int32s, out: Bytes, valid: pa.Buffer | None = None) -> pa.Array:
    """A string array of values that follow each other in `out`, or a binary one if they are not UTF-8."""
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
