"""A message table compared with the log: by sums over stretches, and row by row where a sum differs.

A row's digest has 64 bits of all columns that are made from the log (`COLUMNS`), whatever encoding they have in a file.
A stretch's digest is the sum of its rows' digests. So rows may come in any order and from any file, and they need not
be brought together. A different stretch goes unnoticed with a chance of 2^-64. The rows are read without Spark.

An earlier version of reput wrote rows without the columns of ``message_schema.LATER_NAMES``. These have their own
digest, which is left out of the sums where `kind`, which later versions always write, is null.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from reput.sinks.findings import Difference, Findings
from reput.sinks.table import digest_kernels as dk
from reput.sinks.table.data_file import DataFile, is_of_broker, live_batches, offsets_in
from reput.sinks.table.forgotten_rows import NONE_FORGOTTEN, ForgottenRows
from reput.sinks.table.message_file import TEXT_COLUMNS
from reput.sinks.table.retention import NO_TIME, ExpiryLimits, numbered, store_times_ms
from reput.sinks.table.storage import TableStorage
from reput.source.arrays import Bools, Int64s
from reput.source.log.segment_scan import Window
from reput.source.printable import printable
from reput.source.rows.message_rows import MessageRows
from reput.source.rows.message_schema import LATER_MARK, LATER_NAMES, MESSAGE_SCHEMA

# ----------------------------------------------------------------------------------------------------------------------
# Sums over stretches of the log, with which a message table is compared without bringing rows together.

# The bytes of the log that one sum covers: few enough rows to compare one by one if the sum differs.
STRETCH_BYTES = 1 << 20
#: The columns that are compared: all that a row has from the log, except for bodies.
COLUMNS = tuple(MESSAGE_SCHEMA.names)
#: The columns that identify a record, and so recognise a row even if others have changed it.
IDENTITY = ("physical_offset", "msg_size", "store_time", "queue_offset", "body_crc")
_FIRST_COLUMNS = [name for name in COLUMNS if name not in LATER_NAMES]
_LATER_COLUMNS = [name for name in COLUMNS if name in LATER_NAMES]
SUM_SCHEMA = pa.schema(
    [pa.field(name, pa.int64(), nullable=False) for name in ("stretch", "rows", "digest", "later", "earlier_rows")]
)
SUM_DDL = ", ".join(f"{name} bigint" for name in SUM_SCHEMA.names)
# The number of the log's rows that are made at a time: they stay in the processor's cache.
_ROWS_AT_ONCE = 8 * 1024
_SEEDS = {name: np.uint64(number * 0xD6E8FEB86659FD93 % 2**64) for number, name in enumerate(COLUMNS, start=1)}


def row_digests(rows: pa.RecordBatch) -> list[Int64s]:
    """Each row's physical offset, the digests of its first and its later columns, and whether it lacks the latter.

    int64[n] each. A column that is missing is null in each row.
    """
    offsets = _numbers(_column(rows, "physical_offset")).copy()
    first, later = (_digests(rows, names) for names in (_FIRST_COLUMNS, _LATER_COLUMNS))
    is_earlier = _column(rows, LATER_MARK).is_null().to_numpy(zero_copy_only=False)
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
    """A number for each value that distinguishes it from others; the column may have another type than `kind`."""
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
    times_ms = store_times_ms(_column(rows, "store_time"))
    if not bool(((times_ms != NO_TIME) & (times_ms < limits.latest_ms)).any()):
        return None
    return limits.mask(*numbered(_column(rows, "topic")), times_ms)


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
        """Add a window's records; yield all collected rows if there are enough."""
        if columns := self._forgotten.left_of(window.columns):
            self._rows.add(columns)
        if len(self._rows) >= _ROWS_AT_ONCE:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The collected rows."""
        if len(self._rows):
            rows = self._rows.batch()
            expired = expired_rows(rows, self._limits)
            yield rows if expired is None else rows.filter(pa.array(~expired))
        self._rows.clear()


@dataclass(frozen=True)
class StretchSum:
    """The rows of a stretch: their number, the sums of both digests (mod 2^64), the number that lack later columns."""

    rows: int = 0
    digest: int = 0
    later: int = 0
    earlier_rows: int = 0

    def __add__(self, other: StretchSum) -> StretchSum:
        """The sum of the rows of both."""
        return StretchSum(
            self.rows + other.rows,
            (self.digest + other.digest) % 2**64,
            (self.later + other.later) % 2**64,
            self.earlier_rows + other.earlier_rows,
        )

    def tells(self, rows: StretchSum) -> bool:
        """Whether `rows` of a table are those of the records in this sum."""
        if (self.rows, self.digest) != (rows.rows, rows.digest):
            return False
        return rows.earlier_rows == rows.rows or (not rows.earlier_rows and self.later == rows.later)


@dataclass
class StretchSums:
    """The sum of each stretch that has rows."""

    sums: dict[int, StretchSum] = field(default_factory=dict)

    def take(self, fields: list[Int64s]) -> None:
        """Add rows in the form of `row_digests`."""
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
        """The unchanged windows, after their records have been added, except expired and forgotten ones."""
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
        """The number of rows that lack the later columns."""
        return sum(each.earlier_rows for each in self.sums.values())

    def differing(self, table: StretchSums) -> list[int]:
        """The stretches whose rows in a table are not those of these records."""
        stretches = sorted(self.sums.keys() | table.sums.keys())
        nothing = StretchSum()
        return [each for each in stretches if not self.sums.get(each, nothing).tells(table.sums.get(each, nothing))]


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


# ----------------------------------------------------------------------------------------------------------------------
# One broker's rows out of a table's data files, read without Spark, as they are compared with the log.

_ROWS_A_READ = 32 * 1024
# The errors of a file that cannot be read.
_DAMAGED = (OSError, pa.ArrowException)


@dataclass
class FileSums:
    """The sums over a file's rows; `problem` says why some of them could not be read, None if all were."""

    sums: StretchSums = field(default_factory=StretchSums)
    problem: str | None = None


@dataclass(frozen=True)
class RowsReader:
    """Reads the rows of `broker` that have not expired by `expired`, from offset `least`; None reads all."""

    storage: TableStorage
    broker: str
    expired: ExpiryLimits
    least: int | None = None

    def batches(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        """The rows of a file, with those of `COLUMNS` that it has, some at a time.

        Raises
        ------
        OSError, pa.ArrowException
            The file cannot be read.
        """
        options = {"texts": TEXT_COLUMNS, "batch_size": _ROWS_A_READ, "use_threads": False}
        for batch in live_batches(self.storage, file, (*COLUMNS, "broker"), **options):
            keep = is_of_broker(batch, self.broker)
            if self.least is not None:
                keep = keep & (offsets_in(batch) >= self.least)
            if (expired := expired_rows(batch, self.expired)) is not None:
                keep = keep & ~expired
            yield batch if keep.all() else batch.filter(pa.array(keep))

    def sums(self, file: DataFile) -> FileSums:
        """The sums over a file's rows; in a damaged file over the rows before the damage."""
        found = FileSums()
        try:
            for rows in self.batches(file):
                found.sums.take(row_digests(rows))
        except _DAMAGED as error:
            said = printable(str(error).strip().partition("\n")[0])
            found.problem = f"cannot be read: {said}"
        return found

    def readable(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        """The rows of `batches`, up to where the file is damaged."""
        with suppress(*_DAMAGED):
            yield from self.batches(file)


# ----------------------------------------------------------------------------------------------------------------------
# Records and rows of one stretch of the log, compared one by one: rows that are missing, doubled or different.

#: A row's values by column, times in microseconds.
Row = dict[str, Any]
# The number of characters of a value that are shown.
_VALUE_MAX = 60


def plain_rows(rows: pa.RecordBatch) -> list[Row]:
    """Rows as plain values; columns of `COLUMNS` that are missing are null."""
    columns: dict[str, list[Any]] = {}
    for name in COLUMNS:
        kind = MESSAGE_SCHEMA.field(name).type
        if (at := rows.schema.get_field_index(name)) < 0:
            columns[name] = [None] * rows.num_rows
            continue
        column = rows.column(at)
        if pa.types.is_timestamp(column.type):  # Python's times end with the year 9999, and have no other calendar
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        values = column.to_pylist()
        is_map = pa.types.is_map(kind)
        columns[name] = [None if each is None else dict(each) for each in values] if is_map else values
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def identities(rows: Iterable[Row]) -> set[tuple[Any, ...]]:
    """The values that identify each row's record, whatever else others changed in the row."""
    return {tuple(row[name] for name in IDENTITY) for row in rows}


def compare_rows(
    records: Iterable[Row], rows: Iterable[Row], findings: Findings, forgotten: ForgottenRows = NONE_FORGOTTEN
) -> None:
    """Report each difference; a row without `kind`, of an earlier version of reput, is compared without later columns.

    A row that differs only in the later columns is ``row_derived_otherwise``. A row that was `forgotten` and that the
    table still has is ``row_forgotten``.
    """
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["physical_offset"]].append(row)
    for record in records:
        offset = record["physical_offset"]
        there = found.pop(offset, [])
        if not there:
            text = f"the record at {offset} has no row"
            findings.differ(Difference("row_missing", text, physical_offset=offset, expected=_identity(record)))
        if len(there) > 1:
            text = f"the record at {offset} has {len(there)} rows"
            queue_offset = record["queue_offset"]
            findings.differ(
                Difference("row_twice", text, physical_offset=offset, queue_offset=queue_offset), len(there) - 1
            )
        for row in there:
            _compare(record, row, findings)
    for offset, there in found.items():
        kind, text = "row_without_record", f"a row of a record at {offset}, where the log has none"
        if forgotten.between(offset, offset + 1):
            kind, text = "row_forgotten", f"the row of the record at {offset} was forgotten, but is in the table"
        findings.differ(Difference(kind, text, physical_offset=offset, found=_identity(there[0])), len(there))


def _compare(record: Row, row: Row, findings: Findings) -> None:
    is_earlier = row[LATER_MARK] is None
    compared = [name for name in COLUMNS if not (is_earlier and name in LATER_NAMES)]
    names = [name for name in compared if record[name] != row[name]]
    if not names:
        return
    changes = "; ".join(f"{name} {_shown(record, name)} expected, {_shown(row, name)} found" for name in names)
    text = f"the row of the record at {record['physical_offset']}: {changes}"
    kind = "row_changed" if set(names) - LATER_NAMES else "row_derived_otherwise"
    at = record["queue_offset"], record["physical_offset"]
    findings.differ(Difference(kind, text, None, None, *at, _identity(record), _identity(row)))


def _identity(row: Row) -> str:
    return ", ".join(f"{name} {_shown(row, name)}" for name in IDENTITY)


def _shown(row: Row, name: str) -> str:
    """A value as it is shown: times in milliseconds, only the beginning of a long value. Producers wrote it."""
    value = row[name]
    if isinstance(value, int) and pa.types.is_timestamp(MESSAGE_SCHEMA.field(name).type):
        return f"{value // 1000}" if value % 1000 == 0 else f"{value / 1000}"
    text = "null" if value is None else printable(repr(value) if not isinstance(value, str) else f"'{value}'")
    return text if len(text) <= _VALUE_MAX else text[: _VALUE_MAX - 1] + "\u2026"
