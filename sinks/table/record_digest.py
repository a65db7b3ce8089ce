"""Sums over stretches of the log, with which a message table is compared without bringing rows together.

A record's digest has 64 bits of its physical offset, size, store time, queue offset and body CRC. A stretch's digest is
the sum of its records', so rows may come in any order and from any file. A different stretch goes unnoticed with a
chance of 2^-64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from reput.sinks.table.row_retention import NO_TIME, ExpiryLimits
from reput.source.arrays import Bools, Int64s
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.rows.column_builders import RepeatedTexts
from reput.source.segments.segment_scan import Window

# The bytes of the log that one sum covers: few enough rows to be compared one by one where the sum differs.
STRETCH_BYTES = 1 << 20
SUM_SCHEMA = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("stretch", "rows", "digest")])
SUM_DDL = "stretch bigint, rows bigint, digest bigint"
COMPARED = ("physical_offset", "msg_size", "store_time", "queue_offset", "body_crc")
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000

_MIX = [np.uint64(value) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)]


def record_digests(fields: Iterable[Int64s]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The digests, uint64[n], of records given as the columns of `COMPARED`, int64[n] each, times in milliseconds."""
    total: np.ndarray[tuple[int], np.dtype[np.uint64]] | None = None
    with np.errstate(over="ignore"):
        for values in fields:
            mixed = values.astype(np.int64).view(np.uint64) + _MIX[0]
            mixed = mixed if total is None else mixed ^ total
            mixed = (mixed ^ mixed >> np.uint64(30)) * _MIX[1]
            mixed = (mixed ^ mixed >> np.uint64(27)) * _MIX[2]
            total = mixed ^ mixed >> np.uint64(31)
    assert total is not None
    return total


def compared_fields(columns: RecordColumns, limits: ExpiryLimits | None = None) -> list[Int64s]:
    """The columns of `COMPARED` of decoded records, without those that have expired by `limits`."""
    times = columns.store_timestamp.copy()
    times[(times < _YEAR_1_MS) | (times >= _YEAR_10000_MS)] = NO_TIME
    crc = columns.other_fields().body_crc.astype(np.int64)
    fields = [columns.physical_offset, columns.msg_size, times, columns.queue_offset, crc]
    if limits is None or limits.latest_ms is None or not bool((times < limits.latest_ms).any()):
        return fields
    kept = ~_expired(columns, times, limits)
    return [values[kept] for values in fields]


def _expired(columns: RecordColumns, store_times_ms: Int64s, limits: ExpiryLimits) -> Bools:
    topics = RepeatedTexts()
    spans = (np.ascontiguousarray(columns.parts[:, part]) for part in (rk.TOPIC, rk.TOPIC_SIZE))
    topics.add(columns.data, *spans)
    codes, texts = topics.numbered()
    return limits.mask(codes, texts.to_pylist(), store_times_ms)


def table_fields(batch: pa.RecordBatch) -> list[Int64s]:
    """The columns of `COMPARED` of rows, with the store time in ms; `NO_TIME` for what is null or no column."""
    return [_numbers(batch.column(name)) if name in batch.schema.names else _nulls(batch.num_rows) for name in COMPARED]


def _numbers(column: pa.Array) -> Int64s:
    if not pa.types.is_timestamp(column.type):
        numbers: Int64s = column.cast(pa.int64()).fill_null(NO_TIME).to_numpy()
        return numbers
    microseconds = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    times = microseconds.fill_null(0).to_numpy() // 1000
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), times, NO_TIME)


def _nulls(count: int) -> Int64s:
    return np.full(count, NO_TIME, np.int64)


@dataclass
class StretchSums:
    """The number of rows and the sum of their digests (mod 2^64), by stretch."""

    sums: dict[int, tuple[int, int]] = field(default_factory=dict)

    def take(self, fields: list[Int64s]) -> None:
        """Add records or rows."""
        if not len(fields[0]):
            return
        stretches, which = np.unique(fields[0] // STRETCH_BYTES, return_inverse=True)
        counts = np.bincount(which)
        digests = np.zeros(len(stretches), np.uint64)
        np.add.at(digests, which, record_digests(fields))
        for stretch, count, digest in zip(stretches.tolist(), counts.tolist(), digests.tolist(), strict=True):
            self.add(stretch, count, digest)

    def passing(self, windows: Iterable[Window], limits: ExpiryLimits | None = None) -> Iterator[Window]:
        """The windows as they are; before each is passed on, its records are added, except for expired ones."""
        for window in windows:
            self.take(compared_fields(window.columns, limits))
            yield window

    def add(self, stretch: int, count: int, digest: int) -> None:
        """Add the rows and digest of a stretch."""
        known = self.sums.get(stretch, (0, 0))
        self.sums[stretch] = (known[0] + count, (known[1] + digest) % 2**64)

    def add_all(self, other: StretchSums) -> None:
        """Add all stretches of `other`."""
        for stretch, known in other.sums.items():
            self.add(stretch, *known)

    def to_batch(self) -> pa.RecordBatch:
        """The sums as rows of `SUM_SCHEMA`."""
        stretches = sorted(self.sums)
        counts, digests = ([self.sums[stretch][which] for stretch in stretches] for which in (0, 1))
        signed = [digest - 2**64 if digest >= 2**63 else digest for digest in digests]
        columns = [pa.array(each, pa.int64()) for each in (stretches, counts, signed)]
        return pa.RecordBatch.from_arrays(columns, schema=SUM_SCHEMA)

    @classmethod
    def of_rows(cls, rows: Iterable[dict[str, int]]) -> StretchSums:
        """The sums in rows of `SUM_SCHEMA`."""
        sums = cls()
        for row in rows:
            sums.add(row["stretch"], row["rows"], row["digest"] % 2**64)
        return sums

    def differing(self, other: StretchSums) -> list[int]:
        """The stretches in which the two differ."""
        stretches = sorted(self.sums.keys() | other.sums.keys())
        return [stretch for stretch in stretches if self.sums.get(stretch) != other.sums.get(stretch)]
