"""Compiled kernels that add up digests of 64 bits: of texts, of lists and maps of texts, and of whole rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source.kernels.byte_kernels import WORD, load_bytes
from reput.source.kernels.compile import inlined, kernel

_FIRST, _SECOND, _THIRD = (np.uint64(value) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@inlined
def mixed(value: Any) -> Any:
    """A value with its bits mixed (SplitMix64), so that a sum of such values tells the values."""
    bits = np.uint64(value) + _FIRST
    bits = (bits ^ bits >> _30) * _SECOND
    bits = (bits ^ bits >> _27) * _THIRD
    return bits ^ bits >> _31


@kernel
def add_column(values: Any, total: Any) -> None:
    """Take a column's digests or numbers (int64[n]) into the rows' digests `total` (uint64[n])."""
    for row in range(total.size):
        total[row] = mixed(total[row] ^ np.uint64(values[row]))


@kernel
def text_digests(data: Any, ends: Any, out: Any) -> None:
    """The digest of each text; `data` is uint8, and `ends` (int32[n + 1]) are Arrow's offsets."""
    for row in range(out.size):
        at, end = np.int64(ends[row]), np.int64(ends[row + 1])
        code = mixed(end - at)
        while at < end:
            code = (code ^ load_bytes(data, at, min(WORD, end - at))) * _FIRST
            code ^= code >> _31
            at += WORD
        out[row] = np.int64(mixed(code))


@kernel
def list_digests(items: Any, ends: Any, out: Any) -> None:
    """The digest of each list, by the digests of its items in their order; `ends` (int32[n + 1]) begin with 0."""
    for row in range(out.size):
        code = np.uint64(ends[row + 1] - ends[row])
        for item in range(ends[row], ends[row + 1]):
            code = mixed(code ^ np.uint64(items[item]))
        out[row] = np.int64(code)


@kernel
def map_digests(names: Any, items: Any, ends: Any, out: Any) -> None:
    """The digest of each map, by the digests of its names and values in any order; `ends` as in `list_digests`."""
    for row in range(out.size):
        code = np.uint64(ends[row + 1] - ends[row])
        for item in range(ends[row], ends[row + 1]):
            code += mixed(mixed(np.uint64(names[item])) ^ np.uint64(items[item]))
        out[row] = np.int64(code)
