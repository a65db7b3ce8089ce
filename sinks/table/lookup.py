"""Rows of a message table by key, id or queue offset, without Spark and Java.

The table's log names the files and the bounds of some of their columns. Key filters reduce the remaining files to those
that have the key, and a few others. Only these are opened, and only row groups with fitting bounds are read.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reput.sinks.table.columns import BODY_SCHEMA
from reput.sinks.table.data_file import DataFile, KeyProbe, deleted_rows, logged_time, without_views
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import check_readable, read_snapshot
from reput.source.arrays import Int64s
from reput.source.errors import OutputError
from reput.source.record.message_decoder import MessageId
from reput.source.times import EPOCH

#: A row by its columns' names.
Row = dict[str, Any]
_MICROSECOND = timedelta(microseconds=1)
# Maxima of times are rounded down to milliseconds in the table's log.
_ROUNDED_US = 1000
# The columns that a search needs; a table of reput has these.
_COLUMNS = frozenset(
    {"broker", "topic", "queue_id", "queue_offset", "physical_offset", "store_time", "keys", "uniq_key"}
)


@dataclass(frozen=True)
class Within:
    """The limits of a search: of a topic, of a broker, stored from `begin` to `end`; None means no limit."""

    topic: str | None = None
    broker: str | None = None
    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Wanted:
    """The conditions on rows.

    Attributes
    ----------
    equal
        Values by column.
    least, greatest
        Bounds by column, both included; a row without a value is outside.
    key
        The wanted element of the column `keys`; None for any.
    """

    equal: Mapping[str, Any] = field(default_factory=dict)
    least: Mapping[str, Any] = field(default_factory=dict)
    greatest: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None

    def may_be_between(self, bounds: Callable[[str], tuple[Any, Any]]) -> bool:
        """Whether a row may be among rows whose minimum and maximum of a column, or None, `bounds` returns."""
        return (
            all(_is_between(bounds(name), value, value) for name, value in self.equal.items())
            and all(_is_between(bounds(name), value, None) for name, value in self.least.items())
            and all(_is_between(bounds(name), None, value) for name, value in self.greatest.items())
        )

    @property
    def columns(self) -> list[str]:
        """The columns that decide."""
        names = [*self.equal, *self.least, *self.greatest, *([] if self.key is None else ["keys"])]
        return list(dict.fromkeys(names))

    def mask(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Which rows fit."""
        fits = np.ones(rows.num_rows, np.bool_)
        if self.key is not None:
            fits &= _has_element(rows["keys"], self.key)
        for compare, values in ((pc.equal, self.equal), (pc.greater_equal, self.least), (pc.less_equal, self.greatest)):
            for name, value in values.items():
                here = np.zeros(rows.num_rows, np.bool_)
                here[_true_rows(compare(rows[name], pa.scalar(value)))] = True
                fits &= here
        return fits


def _is_between(bounds: tuple[Any, Any], least: Any, greatest: Any) -> bool:
    low, high = bounds
    return (low is None or greatest is None or low <= greatest) and (high is None or least is None or least <= high)


def _true_rows(values: pa.Array | pa.ChunkedArray) -> Int64s:
    """The numbers of the rows that are true; null counts as false."""
    return np.from_dlpack(pc.indices_nonzero(values)).astype(np.int64)


def _with_times_as_numbers(rows: pa.Table) -> pa.Table:
    """The rows with each time as microseconds since 1970."""
    for number, column in enumerate(rows.schema):
        if pa.types.is_timestamp(column.type):
            microseconds = rows[number].cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
            rows = rows.set_column(number, column.name, microseconds)
    return rows


def _has_element(lists: pa.ChunkedArray, element: str) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(lists), np.bool_)
    begin = 0
    for chunk in lists.chunks:
        elements = _true_rows(pc.equal(pc.list_flatten(chunk), pa.scalar(element)))
        found[begin + np.from_dlpack(pc.list_parent_indices(chunk).take(pa.array(elements)))] = True
        begin += len(chunk)
    return found


@dataclass(frozen=True)
class _Order:
    """The order of an answer: by a column, ascending or descending, and by physical offset among equals."""

    column: str
    descending: bool

    @property
    def columns(self) -> list[str]:
        return [self.column, "physical_offset"]

    def rank(self, value: int | None) -> float:
        """A number to sort rows with this value of the column; those without a value come last."""
        if value is None:
            return math.inf
        return -value if self.descending else value

    def first(self, rows: pa.Table, numbers: Int64s, most: int) -> Int64s:
        """The first `most` of `numbers`, which are rows' numbers, ascending."""
        if len(numbers) <= most:
            return numbers
        some = rows.select(self.columns).take(pa.array(numbers))
        direction = "descending" if self.descending else "ascending"
        keys = [(name, direction) for name in self.columns]
        order = np.from_dlpack(pc.sort_indices(some, sort_keys=keys))  # nulls come last
        return np.sort(numbers[order[:most]])


_NEWEST_FIRST, _BY_QUEUE_OFFSET = _Order("store_time", descending=True), _Order("queue_offset", descending=False)


@dataclass
class TableAnswer:
    """The rows found, and how: of `files` of the table, `opened` were opened, `unfiltered` have no key filter."""

    rows: list[Row]
    files: int
    opened: int = 0
    unfiltered: int = 0


class TableLookup:
    """Look-ups in the version that the table has when this is made.

    Times are milliseconds since 1970, both ends included; None means no limit. Rows have Python's values: times as
    ``datetime`` in UTC, `properties` as a dict.

    Raises
    ------
    OutputError
        There is no message table, it cannot be read without Spark, or one of its files cannot be read.
    """

    def __init__(self, root: TableLocation, *, with_body: bool = False) -> None:
        """With `with_body`, rows come with their bodies, if the table has them."""
        snapshot = read_snapshot(root)
        self._storage = snapshot.storage
        self._columns = [name for name in snapshot.column_names if with_body or name not in BODY_SCHEMA.names]
        if missing := sorted(_COLUMNS - set(snapshot.column_names)):
            raise OutputError(f"{root} is not a message table: it has no column {missing[0]}", file=root)
        check_readable(snapshot)
        self._files = list(snapshot.files())
        self._times = {column["name"] for column in snapshot.columns if str(column["type"]).startswith("timestamp")}

    @property
    def has_bodies(self) -> bool:
        """Whether rows come with bodies."""
        return set(BODY_SCHEMA.names) <= set(self._columns)

    def by_key(self, key: str, max_num: int, within: Within | None = None) -> TableAnswer:
        """The newest `max_num` messages with `key` among their KEYS, newest first."""
        return self._search(_wanted(within, key=key), _NEWEST_FIRST, max_num, key)

    def by_unique_key(self, key: str, max_num: int, within: Within | None = None) -> TableAnswer:
        """The newest `max_num` messages with this unique key, newest first."""
        return self._search(_wanted(within, uniq_key=key), _NEWEST_FIRST, max_num, key)

    def by_msg_id(self, text: str, *, broker: str | None = None) -> TableAnswer:
        """The message with an offset message id, of each broker whose log has it; raises OptionError for a bad id."""
        wanted = MessageId.parse(text)
        equal = _wanted(Within(broker=broker), physical_offset=wanted.offset, msg_id=str(wanted))
        return self._search(equal, _NEWEST_FIRST, sys.maxsize)

    def by_queue_offset(
        self, topic: str, queue_id: int, queue_offset: int, count: int, *, broker: str | None = None
    ) -> TableAnswer:
        """The first `count` messages of a queue from `queue_offset`, in the queue's order."""
        wanted = _wanted(Within(topic, broker), queue_id=queue_id)
        return self._search(replace(wanted, least={"queue_offset": queue_offset}), _BY_QUEUE_OFFSET, count)

    def by_time(
        self, topic: str, queue_id: int, timestamp: int, count: int, *, broker: str | None = None
    ) -> TableAnswer:
        """The first `count` messages of a queue that were stored at `timestamp` or later, in the queue's order."""
        wanted = _wanted(Within(topic, broker, timestamp), queue_id=queue_id)
        return self._search(wanted, _BY_QUEUE_OFFSET, count)

    def _search(self, wanted: Wanted, order: _Order, max_num: int, key: str | None = None) -> TableAnswer:
        """The first `max_num` rows in the order; key filters are searched for `key`."""
        answer = TableAnswer([], len(self._files))

        def rank(row: Row) -> tuple[float, int]:
            physical_offset = row["physical_offset"]
            return order.rank(_number(row[order.column])), -physical_offset if order.descending else physical_offset

        candidates = [(self._first_rank(file, order), file) for file in self._candidates(wanted, key, answer)]
        for first_rank, file in sorted(candidates, key=itemgetter(0)):
            if len(answer.rows) == max_num and rank(answer.rows[-1])[0] < first_rank:
                break
            answer.rows = sorted([*answer.rows, *self._rows(file, wanted, order, max_num, answer)], key=rank)[:max_num]
        return answer

    def _candidates(self, wanted: Wanted, key: str | None, answer: TableAnswer) -> Iterator[DataFile]:
        probe = None if key is None else KeyProbe(key)
        for file in self._files:
            if not wanted.may_be_between(partial(self._bounds, file)):
                continue
            may_have = None if probe is None else probe.may_be_in(self._storage, file.path)
            if probe is not None and may_have is None:
                answer.unfiltered += 1
            if may_have is not False:
                yield file

    def _bounds(self, file: DataFile, column: str) -> tuple[Any, Any]:
        """The bounds of a file's column, times as microseconds since 1970."""
        least, greatest = file.bounds.columns.get(column, (None, None))
        return (
            (_number(logged_time(least)), _number(logged_time(greatest)))
            if column in self._times
            else (least, greatest)
        )

    def _first_rank(self, file: DataFile, order: _Order) -> float:
        """A rank that no row of the file precedes in the order."""
        bound = self._bounds(file, order.column)[order.descending]
        return -math.inf if bound is None else order.rank(bound) - _ROUNDED_US

    def _rows(self, file: DataFile, wanted: Wanted, order: _Order, most: int, answer: TableAnswer) -> list[Row]:
        answer.opened += 1
        try:
            gone = deleted_rows(self._storage, file.vector)
            with self._storage.parquet(file.path, coerce_int96_timestamp_unit="us") as parquet:
                rows = _rows_of(parquet, self._columns, wanted, order, most, gone)
                return [dict.fromkeys(self._columns) | row for row in rows]
        except (OSError, pa.ArrowException) as error:
            cause, path = str(error).partition("\n")[0], self._storage.location / file.path
            raise OutputError(f"{path}, a file of the table, cannot be read: {cause}", file=path) from error


def _wanted(within: Within | None, *, key: str | None = None, **equal: str | int) -> Wanted:
    bounds = within or Within()
    given = {"topic": bounds.topic, "broker": bounds.broker, **equal}
    least = {} if bounds.begin is None else {"store_time": bounds.begin * 1000}
    greatest = {} if bounds.end is None else {"store_time": bounds.end * 1000}
    return Wanted({name: value for name, value in given.items() if value is not None}, least, greatest, key)


def _number(value: datetime | int | None) -> int | None:
    return (value - EPOCH) // _MICROSECOND if isinstance(value, datetime) else value


def _rows_of(
    parquet: pq.ParquetFile,
    names: Sequence[str],
    wanted: Wanted,
    order: _Order,
    most: int,
    gone: Int64s,
) -> Iterator[Row]:
    """The file's first rows that fit, `most` of them, with those columns of `names` that the file has.

    `gone` are the numbers of deleted rows.
    """
    columns = list(dict.fromkeys([*wanted.columns, *order.columns]))
    if not set(columns) <= set(parquet.schema_arrow.names):
        return  # the columns were added to the table later, so they are all null
    here_names = [name for name in names if name in parquet.schema_arrow.names]
    groups = list(_groups(parquet.metadata, wanted))
    found_groups = parquet.read_row_groups([number for number, _ in groups], columns=columns)
    deciding = _with_times_as_numbers(without_views(found_groups))
    fits, begin = wanted.mask(deciding), 0
    ends = np.cumsum([parquet.metadata.row_group(number).num_rows for number, _ in groups], dtype=np.int64)
    if len(gone):
        for (_, first_row), end in zip(groups, ends, strict=True):
            here = gone[(first_row <= gone) & (gone < first_row + end - begin)] - first_row
            fits[begin + here] = False
            begin = end
    found = order.first(deciding, np.flatnonzero(fits), most)
    for (number, _), start, end in zip(groups, np.append(0, ends), ends, strict=False):
        here = found[(found >= start) & (found < end)] - start
        if len(here):
            yield from _pythonic(without_views(parquet.read_row_group(number, here_names)).take(pa.array(here)))


def _groups(metadata: pq.FileMetaData, wanted: Wanted) -> Iterator[tuple[int, int]]:
    """The row groups that may have a row, each with the number of its first row in the file."""
    first_row = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        places = {group.column(place).path_in_schema: place for place in range(group.num_columns)}

        def bounds(name: str, group: Any = group, places: Mapping[str, int] = places) -> tuple[Any, Any]:
            statistics = group.column(places[name]).statistics if name in places else None
            if statistics is None or not statistics.has_min_max:
                return None, None
            if statistics.logical_type.type == "TIMESTAMP":
                is_number = "timeUnit=microseconds" in str(statistics.logical_type)
                return (statistics.min_raw, statistics.max_raw) if is_number else (None, None)
            return statistics.min, statistics.max

        if wanted.may_be_between(bounds):
            yield number, first_row
        first_row += group.num_rows


def _pythonic(rows: pa.Table) -> Iterator[Row]:
    columns = [as_python(column) for column in rows.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(rows.column_names, values, strict=True))


def as_python(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The column's values in Python's types: times in UTC, maps as dicts; raises OverflowError for a year too far."""
    if pa.types.is_timestamp(column.type):
        numbers = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
        return [None if number is None else EPOCH + number * _MICROSECOND for number in numbers]
    if pa.types.is_map(column.type):  # the last value of a repeated key counts
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    found: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    return found
