"""Which values of a column are there, and where lists begin: Parquet's definition and repetition levels.

https://github.com/apache/parquet-format/blob/master/README.md#nested-encoding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reput.sinks.parquet import page_kernels as kernels
from reput.sinks.parquet.thrift import varint
from reput.source.arrays import Bools, Bytes, Int32s
from reput.source.kernels.byte_kernels import WORD

_NO_BOOLS = np.empty(0, np.bool_)


@dataclass(frozen=True)
class PageLevels:
    """The levels of one page as its first bytes: `count` of them, of which `values` stand for a value."""

    data: bytes
    count: int
    values: int


class Levels(Protocol):
    """The levels of one column."""

    def of_page(self, first: int, last: int) -> PageLevels:
        """The levels of the rows `[first, last)`; pages are asked for in the order of their rows."""


class FlatLevels:
    """Those of a column that may be null and has no lists."""

    def __init__(self, valid: Bools | None) -> None:
        """`valid` is None if no value is null."""
        self._valid = valid

    def of_page(self, first: int, last: int) -> PageLevels:
        """See `Levels`."""
        count = last - first
        if self._valid is None:
            return PageLevels(_with_size(repeated(1, 1, count)), count, count)
        valid = self._valid[first:last]
        return PageLevels(_with_size(hybrid(valid.view(np.uint8), 1)), count, int(np.count_nonzero(valid)))


class ListLevels:
    """Those of a list that may be null, of elements that are not; also those of a map's keys, and of its values."""

    def __init__(self, offsets: Int32s, valid: Bools | None) -> None:
        """`offsets` and `valid` as `FlatLevels` and Arrow have them; a null list has no elements."""
        self._offsets = offsets
        self._valid = _NO_BOOLS if valid is None else valid
        most = len(offsets) - 1 + int(offsets[-1] - offsets[0])
        self._repetition, self._definition = np.empty(most, np.uint8), np.empty(most, np.uint8)
        self._pages: dict[tuple[int, int], PageLevels] = {}

    def of_page(self, first: int, last: int) -> PageLevels:
        """See `Levels`; a map's values have the pages that its keys had."""
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
    """The rows of each of so many pages, or of fewer: ``[first, last)``, in turn, about equally many."""
    step = max(1, -(-rows // pages))
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]
