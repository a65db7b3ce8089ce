"""Questions that a message table is asked: how much of it must be read for each, and how long readers take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from reput.sinks.table.delta_table import literal, table_name

ROUNDS = 3
#: Of a time's statistics: Delta's are whole milliseconds, rounded down.
_ROUNDED = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Question:
    """A filter, and the columns that its answer has.

    `bounds` are what statistics can be compared with: the least and the greatest value wanted of a column, both
    included. `key` is a text that the list column `keys` must contain, None if none must.
    """

    name: str
    columns: tuple[str, ...]
    bounds: dict[str, tuple[Any, Any]]
    key: str | None = None

    @property
    def sql(self) -> str:
        """The filter in SQL."""
        parts = [f"{name} BETWEEN {_sql(low)} AND {_sql(high)}" for name, (low, high) in self.bounds.items()]
        parts += [] if self.key is None else [f"array_contains(keys, {_sql(self.key)})"]
        return " AND ".join(parts)

    @property
    def expression(self) -> ds.Expression | None:
        """The filter of `bounds` as a dataset takes it."""
        found: ds.Expression | None = None
        for name, (low, high) in self.bounds.items():
            each = (ds.field(name) >= low) & (ds.field(name) <= high)
            found = each if found is None else found & each
        return found

    @property
    def read_columns(self) -> set[str]:
        """The columns of the answer and of the filter."""
        return {*self.columns, *self.bounds, *(() if self.key is None else ("keys",))}


@dataclass(frozen=True)
class Reading:
    """How much a reader that knows the statistics must read, of the whole; bytes of the columns in question."""

    files: int
    row_groups: int
    bytes: int
    of_files: int
    of_row_groups: int
    of_bytes: int


def _sql(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.astimezone(timezone.utc).isoformat(sep=' ', timespec='milliseconds')}'"
    return literal(value)


def may_hold(low: Any, high: Any, wanted: tuple[Any, Any]) -> bool:
    """Whether values from `low` to `high`, which are unknown if None, may be among the wanted ones."""
    if low is None or high is None:
        return True
    return bool(low <= wanted[1] and wanted[0] <= (high + _ROUNDED if isinstance(high, datetime) else high))


def reading(root: Path, question: Question) -> Reading:
    """By Delta's statistics of the files, and Parquet's of the row groups in those that are left."""
    actions = pa.table(deltalake.DeltaTable(str(root)).get_add_actions(flatten=True))
    found, there = [0, 0, 0], [0, 0, 0]
    for file in actions.to_pylist():
        is_read = all(
            may_hold(file.get(f"min.{name}"), file.get(f"max.{name}"), wanted)
            for name, wanted in question.bounds.items()
        )
        groups = list(_row_groups(root / unquote(file["path"]), question))
        read = [size for size, may in groups if is_read and may]
        for total, sizes in ((there, [size for size, _ in groups]), (found, read)):
            total[0] += bool(sizes) if total is there else is_read
            total[1] += len(sizes)
            total[2] += sum(sizes)
    return Reading(found[0], found[1], found[2], there[0], there[1], there[2])


def _row_groups(path: Path, question: Question) -> Iterator[tuple[int, bool]]:
    """Of each row group the bytes of the question's columns, and whether its statistics let it hold an answer."""
    metadata = pq.read_metadata(path)
    for number in range(metadata.num_row_groups):
        group, size, may = metadata.row_group(number), 0, True
        for at in range(group.num_columns):
            column = group.column(at)
            name = column.path_in_schema.partition(".")[0]
            if name not in question.read_columns:
                continue
            size += column.total_compressed_size
            known = column.statistics if column.is_stats_set else None
            if name in question.bounds and known is not None and known.has_min_max:
                may = may and may_hold(known.min, known.max, question.bounds[name])
        yield size, may


def best_of(ask: Callable[[], int]) -> tuple[float, int]:
    """The seconds of the quickest of some rounds, after one that is not counted, and the number of rows."""
    rows, took = ask(), []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        assert ask() == rows
        took.append(time.perf_counter() - began)
    return min(took), rows


def ask_spark(spark: SparkSession, root: Path, question: Question) -> int:
    """The rows of the answer, brought to the driver."""
    columns = ", ".join(question.columns)
    return int(spark.sql(f"SELECT {columns} FROM {table_name(root)} WHERE {question.sql}").toArrow().num_rows)


def ask_deltalake(root: Path, question: Question) -> int:
    """The same by deltalake's dataset, which pyarrow scans; pyarrow knows no filter by an element of a list."""
    dataset = deltalake.DeltaTable(str(root)).to_pyarrow_dataset()
    columns = [*question.columns, *(() if question.key is None else ("keys",))]
    rows = 0
    for batch in dataset.to_batches(columns=list(dict.fromkeys(columns)), filter=question.expression):
        if question.key is None:
            rows += batch.num_rows
        else:
            lists = batch.column("keys")
            is_key = pc.equal(pc.list_flatten(lists), question.key)
            rows += len(pc.unique(pc.list_parent_indices(lists).filter(is_key)))
    return rows


def questions(
    topic: str, middle: datetime, day: datetime, key: str, uniq_key: str, every: tuple[str, ...]
) -> list[Question]:
    """The questions; `every` are the table's columns, `middle` where the hour begins, `day` the day's first moment."""
    last = timedelta(milliseconds=1)
    hour, whole_day = (middle, middle + timedelta(hours=1) - last), (day, day + timedelta(days=1) - last)
    return [
        Question("topic and one hour", every, {"topic": (topic, topic), "store_time": hour}),
        Question("one key", ("physical_offset",), {}, key),
        Question("one unique key", every, {"uniq_key": (uniq_key, uniq_key)}),
        Question("all of one day", ("topic", "msg_size"), {"store_time": whole_day}),
    ]
