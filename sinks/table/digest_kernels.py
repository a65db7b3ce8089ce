"""Compiled kernels that add up digests of 64 bits: of texts, of lists and maps of texts, and of whole rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.source.kernels.byte_kernels import WORD, inlined, kernel, load_bytes

_FIRST, _SECOND, _THIRD = (np.uint64(value) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
#: The number for null, which adds nothing to a row's sum.
NULL = 0x3C6EF372FE94F82B
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@inlined
def mixed(value: Any) -> Any:
    """A value with its bits mixed (SplitMix64), so that a sum of such values identifies them."""
    bits = np.uint64(value) + _FIRST
    bits = (bits ^ bits >> _30) * _SECOND
    bits = (bits ^ bits >> _27) * _THIRD
    return bits ^ bits >> _31


@kernel
def add_column(values: Any, seed: Any, total: Any) -> None:
    """Add a column's digests or numbers (int64[n]) to the rows' sums `total` (uint64[n]).

    Each column has its own `seed` (uint64), so that a value that moves to another column changes the sum.
    """
    for row in range(total.size):
        if values[row] != NULL:
            total[row] += mixed(np.uint64(values[row]) ^ seed)


@kernel
def finish(total: Any) -> None:
    """Turn the rows' sums into digests: a sum of digests shows which values are of one row, a sum of sums would not."""
    for row in range(total.size):
        total[row] = mixed(total[row])


@kernel
def sum_runs(offsets: Any, stretch_bytes: int, first: Any, later: Any, is_earlier: Any, out: Any) -> int:
    """Add up consecutive rows of the same stretch; return the number of such runs.

    `offsets`, `first`, `later` and `is_earlier` (int64[n]) are ``row_digests``'s; `out` (int64[n, 5]) gets a run's
    stretch, its number of rows, and the sums of the other three.
    """
    run = -1
    for row in range(offsets.size):
        stretch = offsets[row] // stretch_bytes
        if run < 0 or out[run, 0] != stretch:
            run += 1
            out[run, 0] = stretch
            out[run, 1:] = 0
        out[run, 1] += 1
        out[run, 2] += first[row]
        out[run, 3] += later[row]
        out[run, 4] += is_earlier[row]
    return run + 1


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
