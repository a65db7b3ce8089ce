"""The rows of a version of a table as they are read without Spark: those that no deletion vector takes away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.sinks.table.deletion_vector import deleted_rows
from reput.sinks.table.snapshot import LoggedAdd
from reput.sinks.table.storage import TableStorage
from reput.source.arrays import Bools, Int64s

_ROWS_AT_ONCE = 256 * 1024
_OF_LAST_ROW = ("physical_offset", "msg_size", "store_time", "body_crc")


def live_numbers(storage: TableStorage, file: LoggedAdd) -> Int64s | None:
    """The numbers of a file's rows that no deletion vector takes away, ascending; None for all.

    Raises
    ------
    OSError, pa.ArrowException
        The vector, or the number of rows, cannot be read.
    """
    if not file.has_vector:
        return None
    rows = file.bounds.rows
    if rows is None:
        with storage.parquet(storage.name_of(file.path)) as parquet:
            rows = parquet.metadata.num_rows
    return np.setdiff1d(np.arange(rows), deleted_rows(storage, file.action["deletionVector"]), assume_unique=True)


def live_batches(storage: TableStorage, file: LoggedAdd, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """A file's rows with those of the columns that it has, some at a time.

    Raises
    ------
    OSError, pa.ArrowException
        The file cannot be read.
    """
    live, begin = live_numbers(storage, file), 0
    with storage.parquet(storage.name_of(file.path), coerce_int96_timestamp_unit="us") as parquet:
        there = [name for name in columns if name in parquet.schema_arrow.names]
        for rows in parquet.iter_batches(_ROWS_AT_ONCE, columns=there):
            end = begin + rows.num_rows
            if live is not None:
                here = live[np.searchsorted(live, begin) : np.searchsorted(live, end)] - begin
                rows = rows.take(pa.array(here))  # noqa: PLW2901
            begin = end
            yield rows


def offsets_of(storage: TableStorage, file: LoggedAdd, broker: str) -> Int64s:
    """The physical offsets of the broker's rows in a file, ascending; raises what `live_batches` raises."""
    parts = [np.empty(0, np.int64)]
    for rows in live_batches(storage, file, ("broker", "physical_offset")):
        if rows.num_columns == 2:
            offsets = pc.fill_null(rows["physical_offset"], -1).to_numpy(zero_copy_only=False)
            parts.append(offsets[is_of_broker(rows, broker) & (offsets >= 0)])
    return np.sort(np.concatenate(parts))


def is_of_broker(rows: pa.RecordBatch, broker: str) -> Bools:
    """Which of some rows, which have the column, are of the broker."""
    equal = pc.fill_null(pc.equal(rows["broker"].cast(pa.string()), broker), fill_value=False)
    found: Bools = equal.to_numpy(zero_copy_only=False)
    return found


def count_before(storage: TableStorage, files: Iterable[LoggedAdd], broker: str, offsets: Sequence[int]) -> list[int]:
    """The number of the broker's rows before each offset; files whose statistics tell that are not opened.

    Raises what `live_batches` raises.
    """
    wanted = np.array(offsets, np.int64)
    counts = np.zeros(len(wanted), np.int64)
    for file in files:
        bounds = file.bounds
        if not bounds.may_hold(broker):
            continue
        if not file.has_vector and bounds.rows is not None and bounds.is_only(broker, -(2**63), 2**63):
            assert bounds.least is not None
            assert bounds.greatest is not None
            if not ((bounds.least < wanted) & (wanted <= bounds.greatest)).any():
                counts += np.where(wanted > bounds.greatest, bounds.rows, 0)
                continue
        counts += np.searchsorted(offsets_of(storage, file, broker), wanted)
    return [int(count) for count in counts]


def count_by_broker(storage: TableStorage, files: Iterable[LoggedAdd]) -> dict[str, int]:
    """The number of rows of each broker; raises what `live_batches` raises."""
    counts: Counter[str] = Counter()
    for file in files:
        bounds = file.bounds
        if not file.has_vector and bounds.rows is not None and bounds.brokers and len({*bounds.brokers}) == 1:
            counts[bounds.brokers[0]] += bounds.rows
            continue
        for rows in live_batches(storage, file, ("broker",)):
            if rows.num_columns:
                for each in pc.value_counts(rows["broker"].cast(pa.string()).drop_null()).to_pylist():
                    counts[each["values"]] += each["counts"]
    return {broker: rows for broker, rows in counts.items() if rows}


def last_row(
    storage: TableStorage, files: Iterable[LoggedAdd], broker: str, begin: int, end: int, *, passes_over: bool
) -> tuple[int, ...] | None:
    """The broker's last row with an offset in `[begin, end)`; None without any, or if a value of it is null.

    Its physical offset, size, store time in milliseconds since 1970, and the checksum of its body. Raises what
    `live_batches` raises, unless it `passes_over` files that cannot be read.
    """
    found: list[int | None] = []
    by_end = sorted(files, key=lambda file: end if file.bounds.greatest is None else file.bounds.greatest, reverse=True)
    for file in by_end:
        greatest = file.bounds.greatest
        if found and greatest is not None and greatest <= (found[0] or 0):
            break
        if not file.bounds.may_hold(broker):
            continue
        try:
            for rows in live_batches(storage, file, ("broker", *_OF_LAST_ROW)):
                if "broker" not in rows.schema.names or "physical_offset" not in rows.schema.names:
                    continue
                offsets = pc.fill_null(rows["physical_offset"], -1).to_numpy(zero_copy_only=False)
                here = np.flatnonzero(is_of_broker(rows, broker) & (offsets >= max(begin, 0)) & (offsets < end))
                if len(here) and (not found or offsets[here].max() > (found[0] or 0)):
                    found = _values_of(rows, int(here[np.argmax(offsets[here])]))
        except (OSError, pa.ArrowException):
            if not passes_over:
                raise
    values = tuple(value for value in found if value is not None)
    return values if found and len(values) == len(found) else None


def _values_of(rows: pa.RecordBatch, number: int) -> list[int | None]:
    """The values of `_OF_LAST_ROW` in a row."""
    values = []
    for name in _OF_LAST_ROW:
        column = rows[name].slice(number, 1) if name in rows.schema.names else pa.nulls(1, pa.int64())
        if pa.types.is_timestamp(column.type):
            column = pc.divide(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)
        values.append(column[0].as_py())
    return values
