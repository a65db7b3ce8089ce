"""Sums over stretches of the log, with which a message table is compared without bringing rows together.

A row's digest has 64 bits of all columns that are made from the log (`COLUMNS`), whatever encoding they have in a file.
A stretch's digest is the sum of its rows', so rows may come in any order and from any file. A different stretch goes
unnoticed with a chance of 2^-64.

An earlier version of reput wrote rows without the columns of ``message_schema.LATER_NAMES``. They have their own
digest, which is left out of the sums where `kind`, which later versions always write, is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.sinks.table import digest_kernels as dk
from reput.sinks.table.forgotten_rows import NONE_FORGOTTEN, ForgottenRows
from reput.sinks.table.row_retention import NO_TIME, ExpiryLimits
from reput.source.arrays import Bools, Int64s
from reput.source.log.segment_scan import Window
from reput.source.rows.message_rows import MessageRows
from reput.source.rows.message_schema import LATER_NAMES, MESSAGE_SCHEMA

# The bytes of the log that one sum covers: few enough rows to be compared one by one where the sum differs.
STRETCH_BYTES = 1 << 20
#: The columns that are compared: all that a row has from the log, except for bodies.
COLUMNS = tuple(MESSAGE_SCHEMA.names)
#: Those that tell a record from any other, by which a row is recognised whatever others changed in it.
IDENTITY = ("physical_offset", "msg_size", "store_time", "queue_offset", "body_crc")
_FIRST_COLUMNS = [name for name in COLUMNS if name not in LATER_NAMES]
_LATER_COLUMNS = [name for name in COLUMNS if name in LATER_NAMES]
# A column of every row that has the later columns.
_MARK = "kind"
SUM_SCHEMA = pa.schema(
    [pa.field(name, pa.int64(), nullable=False) for name in ("stretch", "rows", "digest", "later", "earlier_rows")]
)
SUM_DDL = ", ".join(f"{name} bigint" for name in SUM_SCHEMA.names)
# Rows of the log that are made at a time: they stay in the processor's cache.
_ROWS_AT_ONCE = 8 * 1024
_SEEDS = {name: np.uint64(number * 0xD6E8FEB86659FD93 % 2**64) for number, name in enumerate(COLUMNS, start=1)}


def row_digests(rows: pa.RecordBatch) -> list[Int64s]:
    """Of each row its physical offset, the digest of its first columns and of its later ones, and if it lacks these.

    int64[n] each. A column that is missing is null in each row.
    """
    offsets = _numbers(_column(rows, "physical_offset")).copy()
    first, later = (_digests(rows, names) for names in (_FIRST_COLUMNS, _LATER_COLUMNS))
    is_earlier = _column(rows, _MARK).is_null().to_numpy(zero_copy_only=False)
    later[is_earlier] = 0
    return [offsets, first, later, is_earlier.astype(np.int64)]


def _digests(rows: pa.RecordBatch, names: Iterable[str]) -> Int64s:
    total = np.zeros(rows.num_rows, np.uint64)
    for name in names:
        column, kind = _column(rows, name), MESSAGE_SCHEMA.field(name).type
        if column.null_count == len(column):
            continue
        dk.add_column(_values(column, kind), _SEEDS[name], total)
    dk.finish(total)
    digests: Int64s = total.view(np.int64)
    return digests


def _column(rows: pa.RecordBatch, name: str) -> pa.Array:
    at = rows.schema.get_field_index(name)
    return rows.column(at) if at >= 0 else pa.nulls(rows.num_rows, MESSAGE_SCHEMA.field(name).type)


def _values(column: pa.Array, kind: pa.DataType) -> Int64s:
    """A number for each value, which tells it from others; the column may have another type than `kind`."""
    if pa.types.is_map(kind):
        found = _of_maps(column)
    elif pa.types.is_list(kind):
        found = _of_lists(column)
    else:
        found = _of_texts(column) if pa.types.is_string(kind) else _numbers(column)
    if column.null_count:
        found = np.where(column.is_valid().to_numpy(zero_copy_only=False), found, dk.NULL)
    return found


def _numbers(column: pa.Array) -> Int64s:
    """Numbers as they are, times in microseconds, 0 for null."""
    if pa.types.is_timestamp(column.type) and column.type.unit != "us":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    column = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column.cast(pa.int64())
    numbers: Int64s = (column.fill_null(0) if column.null_count else column).to_numpy()
    return numbers


def _of_texts(column: pa.Array) -> Int64s:
    if pa.types.is_dictionary(column.type):
        codes = (column.indices.fill_null(-1) if column.null_count else column.indices).to_numpy()
        found: Int64s = np.append(_of_texts(column.dictionary), dk.NULL)[codes]
        return found
    texts = column if pa.types.is_string(column.type) else column.cast(pa.string())
    _, ends, data = texts.buffers()
    out = np.empty(len(texts), np.int64)
    known = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    dk.text_digests(known, np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1], out)
    return out


def _of_lists(column: pa.Array) -> Int64s:
    ends, out = column.offsets.to_numpy(), np.empty(len(column), np.int64)
    dk.list_digests(_of_texts(column.values.slice(ends[0], ends[-1] - ends[0])), ends - ends[0], out)
    return out


def _of_maps(column: pa.Array) -> Int64s:
    ends, out = column.offsets.to_numpy(), np.empty(len(column), np.int64)
    names, items = (_of_texts(each.slice(ends[0], ends[-1] - ends[0])) for each in (column.keys, column.items))
    dk.map_digests(names, items, ends - ends[0], out)
    return out


def expired_rows(rows: pa.RecordBatch, limits: ExpiryLimits | None) -> Bools | None:
    """Which rows have expired; None if none has."""
    if limits is None or limits.latest_ms is None:
        return None
    times = _column(rows, "store_time")
    is_known = times.is_valid().to_numpy(zero_copy_only=False)
    times_ms = np.where(is_known, _numbers(times) // 1000, NO_TIME)
    if not bool((is_known & (times_ms < limits.latest_ms)).any()):
        return None
    topics = _column(rows, "topic")
    topics = topics if pa.types.is_dictionary(topics.type) else topics.cast(pa.string()).dictionary_encode()
    codes = pc.fill_null(topics.indices, -1).to_numpy()
    return limits.mask(codes, topics.dictionary.to_pylist(), times_ms)


class RecordRows:
    """The records of windows as rows, some at a time, without those that expired by `limits` or are `forgotten`."""

    def __init__(self, limits: ExpiryLimits | None, forgotten: ForgottenRows) -> None:
        self._limits = limits
        self._forgotten = forgotten
        self._rows = MessageRows()

    def batches(self, windows: Iterable[Window]) -> Iterator[pa.RecordBatch]:
        """The rows of all records; each batch is valid until the next is asked for."""
        for window in windows:
            yield from self.add(window)
        yield from self.rest()

    def add(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Add a window's records; the rows that are there if these are enough."""
        if columns := self._forgotten.left_of(window.columns):
            self._rows.add(columns)
        if len(self._rows) >= _ROWS_AT_ONCE:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The rows that are there."""
        if len(self._rows):
            rows = self._rows.batch()
            expired = expired_rows(rows, self._limits)
            yield rows if expired is None else rows.filter(pa.array(~expired))
        self._rows.clear()


@dataclass(frozen=True)
class StretchSum:
    """The rows of a stretch: how many, the sums of both of their digests (mod 2^64), how many lack later columns."""

    rows: int = 0
    digest: int = 0
    later: int = 0
    earlier_rows: int = 0

    def __add__(self, other: StretchSum) -> StretchSum:
        """The rows of both."""
        return StretchSum(
            self.rows + other.rows,
            (self.digest + other.digest) % 2**64,
            (self.later + other.later) % 2**64,
            self.earlier_rows + other.earlier_rows,
        )

    def tells(self, rows: StretchSum) -> bool:
        """Whether `rows` of a table are those of the records that this is the sum of."""
        if (self.rows, self.digest) != (rows.rows, rows.digest):
            return False
        return rows.earlier_rows == rows.rows or (not rows.earlier_rows and self.later == rows.later)


@dataclass
class StretchSums:
    """The sum of each stretch that has rows."""

    sums: dict[int, StretchSum] = field(default_factory=dict)

    def take(self, fields: list[Int64s]) -> None:
        """Add rows, given as `row_digests`."""
        if not len(fields[0]):
            return
        offsets, *values = fields
        if bool((offsets[1:] < offsets[:-1]).any()):  # another writer sorted the file
            order = np.argsort(offsets)
            offsets, *values = (each[order] for each in fields)
        runs = np.empty((len(offsets), 5), np.int64)
        count = dk.sum_runs(offsets, STRETCH_BYTES, *values, runs)
        for stretch, rows, digest, later, earlier in runs[:count].tolist():
            self.add(stretch, StretchSum(rows, digest % 2**64, later % 2**64, earlier))

    def passing(
        self,
        windows: Iterable[Window],
        limits: ExpiryLimits | None = None,
        forgotten: ForgottenRows = NONE_FORGOTTEN,
    ) -> Iterator[Window]:
        """The windows as they are; meanwhile their records are added, except for expired and forgotten ones."""
        records = RecordRows(limits, forgotten)
        for window in windows:
            for rows in records.add(window):
                self.take(row_digests(rows))
            yield window
        for rows in records.rest():
            self.take(row_digests(rows))

    def add(self, stretch: int, known: StretchSum) -> None:
        """Add the sum of rows of a stretch."""
        self.sums[stretch] = self.sums.get(stretch, StretchSum()) + known

    def add_all(self, other: StretchSums) -> None:
        """Add all stretches of `other`."""
        for stretch, known in other.sums.items():
            self.add(stretch, known)

    def to_batch(self) -> pa.RecordBatch:
        """The sums as rows of `SUM_SCHEMA`."""
        rows = [
            (stretch, each.rows, _signed(each.digest), _signed(each.later), each.earlier_rows)
            for stretch, each in sorted(self.sums.items())
        ]
        columns = [pa.array([row[at] for row in rows], pa.int64()) for at in range(len(SUM_SCHEMA))]
        return pa.RecordBatch.from_arrays(columns, schema=SUM_SCHEMA)

    @classmethod
    def of_rows(cls, rows: Iterable[dict[str, int]]) -> StretchSums:
        """The sums in rows of `SUM_SCHEMA`."""
        sums = cls()
        for row in rows:
            known = StretchSum(row["rows"], row["digest"] % 2**64, row["later"] % 2**64, row["earlier_rows"])
            sums.add(row["stretch"], known)
        return sums

    @property
    def earlier_rows(self) -> int:
        """How many rows lack the later columns."""
        return sum(each.earlier_rows for each in self.sums.values())

    def differing(self, table: StretchSums) -> list[int]:
        """The stretches whose rows in a table are not those of these records."""
        stretches = sorted(self.sums.keys() | table.sums.keys())
        nothing = StretchSum()
        return [each for each in stretches if not self.sums.get(each, nothing).tells(table.sums.get(each, nothing))]


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
