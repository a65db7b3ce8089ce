"""Writing a file again that has rows to be replaced and rows that stay."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from reput.sinks.table.data_file import FileBounds
from reput.sinks.table.log import Snapshot
from reput.sinks.table.message_file import TABLE_SCHEMA, Rest, RestOfFiles
from reput.sinks.table.replace import LogRanges, RowReplacement
from reput.sinks.table.storage import table_storage
from reput.source.rows.message_schema import spark_schema

PLACES = [*range(0, 1000, 100), None]
TIME = datetime(2026, 11, 21, 1, 2, 3, 4000, tzinfo=timezone.utc)


def rows() -> pa.Table:
    """Of two brokers and of none, with a column that others added."""
    brokers = ["b", "b", "other", "b", None, "b", "other", "b", "b", "b", "b"]
    columns: dict[str, Any] = {field.name: pa.nulls(len(PLACES), field.type) for field in TABLE_SCHEMA}
    columns.update(broker=pa.array(brokers), physical_offset=pa.array(PLACES, pa.int64()))
    columns.update(
        topic=pa.array(["t"] * len(PLACES)), store_time=pa.array([TIME] * len(PLACES), pa.timestamp("us", "UTC"))
    )
    columns["keys"] = pa.array([["k", "l"]] * len(PLACES), TABLE_SCHEMA.field("keys").type)
    columns["properties"] = pa.array([[("a", "b")]] * len(PLACES), TABLE_SCHEMA.field("properties").type)
    return pa.table({**columns, "note": pa.array(map(str, range(len(PLACES))))})


def replacement(*ranges: tuple[int, int]) -> RestOfFiles:
    table: Any = None  # not asked for the rest of a file
    return RowReplacement(table, "b", LogRanges(ranges), ())._rests


def version(root: Path) -> Snapshot:
    metadata = {"schemaString": spark_schema(TABLE_SCHEMA).json()}
    return Snapshot(table_storage(root), 0, {}, metadata, {}, {}, None)


@pytest.mark.parametrize("int96", [False, True])
@pytest.mark.parametrize("live", [None, [0, 2, 3, 5, 6]])
def test_the_rest_of_a_file(tmp_path: Path, int96: bool, live: list[int] | None) -> None:
    before = rows()
    pq.write_table(before, tmp_path / "mixed.parquet", use_deprecated_int96_timestamps=int96, row_group_size=4)
    job = replacement((100, 400), (500, 800))
    written = job.write(version(tmp_path), "mixed.parquet", None if live is None else np.array(live))
    taken, rest = written.taken, written.file
    kept = [row for row in (range(len(PLACES)) if live is None else live) if row not in {1, 3, 5, 7}]
    assert taken == len(set(range(len(PLACES)) if live is None else live) & {1, 3, 5, 7})
    assert rest is not None
    after = pq.read_table(tmp_path / rest.path)
    assert after.cast(before.schema).equals(before.take(kept))
    assert after.schema.field("store_time").type == pa.timestamp("us", "UTC")
    assert rest.size_bytes == (tmp_path / rest.path).stat().st_size
    bounds = FileBounds.of(rest.statistics_json)
    assert (bounds.rows, bounds.least) == (len(kept), 0)
    assert not bounds.is_only("b", 0, 10_000)


def test_a_file_of_which_nothing_or_all_is_replaced(tmp_path: Path) -> None:
    """The first stays in the table as it is; of the second nothing is left to write."""
    pq.write_table(rows(), tmp_path / "mixed.parquet")
    assert replacement((2000, 3000)).write(version(tmp_path), "mixed.parquet", None) == Rest(0, None)
    ours = rows().filter(pc.equal(rows()["broker"], "b")).slice(0, 7)
    pq.write_table(ours, tmp_path / "ours.parquet")
    assert replacement((0, 1000)).write(version(tmp_path), "ours.parquet", None) == Rest(7, None)
    assert {path.name for path in tmp_path.iterdir()} == {"mixed.parquet", "ours.parquet"}
