"""The values of a column, nulls left out, in the encodings that are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from reput.sinks.parquet import page_kernels as kernels
from reput.sinks.parquet.levels import hybrid
from reput.source.arrays import Bytes, Int32s, Int64s
from reput.source.kernels.byte_kernels import WORD

# Parquet's numbers for encodings.
PLAIN, RLE, DELTA_BINARY_PACKED, DELTA_BYTE_ARRAY, RLE_DICTIONARY = 0, 3, 5, 7, 8
# A text's length stands before it.
_LENGTH_BYTES = 4
# A difference takes as many bits as the largest one of its block, and a block has a head.
_DELTA_BYTES = 16
# Longer texts are no bounds: readers hold the bounds of each row group in memory.
_BOUND_BYTES_MAX = 4096
_DISTINCT_MAX = 1024


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest value, PLAIN without a text's length."""

    least: bytes
    greatest: bytes


class Values(Protocol):
    """Values of one column, some at a time."""

    @property
    def encoding(self) -> int:
        """Parquet's number for the encoding."""

    def bytes_most(self, first: int, last: int) -> int:
        """How many bytes the values `[first, last)` take at most, with what kernels write besides."""

    def put(self, first: int, last: int, out: Bytes, to: int) -> int:
        """Write the values `[first, last)` to `out` from `to` on; returns where they end."""

    def bounds(self) -> Bounds | None:
        """The bounds; None without values, or where they are too long."""


@dataclass(frozen=True)
class Numbers:
    """Integers of 32 or 64 bits; `by_difference` suits those that differ little from row to row."""

    values: Int32s | Int64s
    by_difference: bool = False

    @property
    def encoding(self) -> int:
        """See `Values`."""
        return DELTA_BINARY_PACKED if self.by_difference else PLAIN

    def bytes_most(self, first: int, last: int) -> int:
        """See `Values`."""
        if self.by_difference:
            return _deltas_most(last - first)
        return (last - first) * self.values.itemsize

    def put(self, first: int, last: int, out: Bytes, to: int) -> int:
        """See `Values`."""
        values = self.values[first:last]
        if self.by_difference:
            return int(kernels.put_deltas(values, out, to))
        end = to + values.nbytes
        out[to:end] = values.view(np.uint8)
        return end

    def bounds(self) -> Bounds | None:
        """See `Values`."""
        if not len(self.values):
            return None
        return Bounds(self.values.min().tobytes(), self.values.max().tobytes())


class Texts:
    """Texts or other bytes; `by_prefix` suits those that begin as the one of the row before does."""

    def __init__(self, array: pa.Array, *, by_prefix: bool = False) -> None:
        """An array of strings or of bytes without nulls."""
        _, ends, data = from_zero(array).buffers()
        self._ends = np.frombuffer(ends, np.int32, len(array) + 1) if len(array) else np.zeros(1, np.int32)
        self._data = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        self._by_prefix = by_prefix

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def encoding(self) -> int:
        """See `Values`."""
        return DELTA_BYTE_ARRAY if self._by_prefix else PLAIN

    def bytes_most(self, first: int, last: int) -> int:
        """See `Values`."""
        size, count = int(self._ends[last] - self._ends[first]), last - first
        return size + (2 * _deltas_most(count) if self._by_prefix else _LENGTH_BYTES * count + WORD)

    def put(self, first: int, last: int, out: Bytes, to: int) -> int:
        """See `Values`."""
        if not self._by_prefix:
            return int(kernels.put_texts(self._ends, self._data, first, last, out, to))
        prefixes = np.zeros(last - first, np.int32)
        kernels.shared_prefixes(self._ends, self._data, first, last, prefixes)
        suffixes = np.diff(self._ends[first : last + 1]) - prefixes
        to = int(kernels.put_deltas(suffixes, out, kernels.put_deltas(prefixes, out, to)))
        return int(kernels.put_suffixes(self._ends, self._data, prefixes, first, last, out, to))

    def bounds(self) -> Bounds | None:
        """See `Values`."""
        if not len(self):
            return None
        least, greatest = kernels.text_bounds(self._ends, self._data)
        return _short(self.text(least), self.text(greatest))

    def text(self, number: int) -> bytes:
        """One of them."""
        return self._data[self._ends[number] : self._ends[number + 1]].tobytes()


class Numbered:
    """Values by their number in a dictionary, which has a page of its own."""

    encoding = RLE_DICTIONARY

    def __init__(self, codes: Int32s, dictionary: Texts | Numbers, size: int) -> None:
        """`size` is how many values the dictionary has; some may not be among `codes`."""
        self._codes = codes
        self.dictionary = dictionary
        self.size = size
        self._width = max(1, (size - 1).bit_length())

    def bytes_most(self, first: int, last: int) -> int:
        """See `Values`."""
        return (last - first + 8) * 4 + 2 * WORD

    def put(self, first: int, last: int, out: Bytes, to: int) -> int:
        """See `Values`."""
        packed = bytes([self._width]) + hybrid(self._codes[first:last], self._width)
        end = to + len(packed)
        out[to:end] = np.frombuffer(packed, np.uint8)
        return end

    def bounds(self) -> Bounds | None:
        """See `Values`."""
        used = np.zeros(self.size, np.bool_)
        kernels.mark(self._codes, used)
        if isinstance(self.dictionary, Numbers):
            return Numbers(self.dictionary.values[used]).bounds()
        texts = [self.dictionary.text(number) for number in np.flatnonzero(used).tolist()]
        return _short(min(texts), max(texts)) if texts else None


def _deltas_most(count: int) -> int:
    """How many bytes so many numbers take at most by their differences."""
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
