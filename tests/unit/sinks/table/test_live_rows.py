"""Rows of a version that are read without Spark: counted by offset and by broker, and the last one found."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.deletion_vector import deletion_vector

from reput.sinks.table.data_file import DataFile, count_before, count_by_broker, last_row, live_batches, live_numbers
from reput.sinks.table.log import read_snapshot
from reput.sinks.table.lookup import TableLookup
from reput.sinks.table.message_file import TABLE_SCHEMA, RestOfFiles
from reput.sinks.table.retention import RowRetention
from reput.sinks.table.storage import LocalStorage, table_storage
from reput.sinks.table.upkeep import ExpiredRows

TIME = datetime(2026, 11, 21, 1, 2, 3, 4000, tzinfo=timezone.utc)
Row = tuple[str | None, int | None]


class Files:
    """Files below a table's root."""

    def __init__(self, root: Path) -> None:
        self.storage = table_storage(root)
        self._root = root

    def add(self, rows: list[Row], *, deleted: list[int] | None = None, bounds: bool = True) -> DataFile:
        name = f"{len(list(self._root.iterdir()))}.parquet"
        brokers, offsets = [row[0] for row in rows], [row[1] for row in rows]
        columns = {"broker": pa.array(brokers, pa.string()), "physical_offset": pa.array(offsets, pa.int64())}
        columns["msg_size"] = pa.array([100] * len(rows), pa.int32())
        columns["store_time"] = pa.array([TIME] * len(rows), pa.timestamp("us", "UTC"))
        columns["body_crc"] = pa.array([7] * len(rows), pa.int64())
        pq.write_table(pa.table(columns), self._root / name, row_group_size=3)
        known, names = [each for each in offsets if each is not None], [each for each in brokers if each is not None]
        stats: dict[str, Any] = {"numRecords": len(rows)}
        if bounds:
            stats["minValues"] = {"broker": min(names), "physical_offset": min(known)}
            stats["maxValues"] = {"broker": max(names), "physical_offset": max(known)}
            stats["nullCount"] = {"broker": brokers.count(None)}
        action = {"path": name, "size": 1, "stats": json.dumps(stats)}
        return DataFile.of(self.storage, action | ({"deletionVector": deletion_vector(deleted)} if deleted else {}))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_counts(files: Files) -> None:
    some = [
        files.add([("b", offset) for offset in range(0, 100, 10)]),
        files.add([("b", offset) for offset in range(100, 200, 10)], deleted=[0, 9]),
        files.add([("a", 205), ("b", 210), (None, 220), ("b", None), ("c", 230)]),
        files.add([("b", 240), ("b", 250)], bounds=False),
        files.add([("c", offset) for offset in range(1000, 1005)]),
    ]
    offsets = [0, 5, 100, 101, 111, 200, 240, 245, 2**63 - 1]
    assert count_before(files.storage, some, "b", offsets) == [0, 1, 10, 10, 11, 18, 19, 20, 21]
    assert count_before(files.storage, some, "c", [2**62]) == [6]
    assert count_before(files.storage, some[1:2], "b", [0, 1000]) == [0, 8]
    assert count_before(files.storage, some, "none", [2**62]) == [0]
    assert count_by_broker(files.storage, some) == {"a": 1, "b": 22, "c": 6}
    assert live_numbers(files.storage, some[1]) is not None
    (batch,) = live_batches(files.storage, some[1], ("physical_offset", "lacking"))
    assert batch.to_pydict() == {"physical_offset": [*range(110, 190, 10)]}


def test_a_file_whose_statistics_tell_is_not_opened(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a mark within it makes that necessary."""
    opened: list[str] = []
    default = LocalStorage.open
    monkeypatch.setattr(LocalStorage, "open", lambda self, name: (opened.append(name), default(self, name))[1])
    some = [files.add([("b", first), ("b", first + 9)]) for first in (0, 10, 20)]
    assert count_before(files.storage, some, "b", [0, 10, 20, 30]) == [0, 2, 4, 6]
    assert count_by_broker(files.storage, some) == {"b": 6}
    assert opened == []
    assert count_before(files.storage, some, "b", [15]) == [3]
    assert opened == ["1.parquet"]


def test_the_last_row(files: Files) -> None:
    some = [
        files.add([("b", 10), ("b", 30), ("b", 20)]),
        files.add([("b", 40), ("b", 50), ("a", 60)], deleted=[1]),
        files.add([("a", 70), ("a", 80)]),
    ]
    told = (100, int(TIME.timestamp() * 1000), 7)
    for begin, end, found in ((0, 100, 40), (0, 40, 30), (0, 30, 20), (11, 20, None), (-50, 11, 10)):
        row = last_row(files.storage, some, "b", begin, end, passes_over=False)
        assert row == (None if found is None else (found, *told)), (begin, end)
    (files._root / "1.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        last_row(files.storage, some, "b", 0, 100, passes_over=False)
    assert last_row(files.storage, some, "b", 0, 100, passes_over=True) == (30, *told)


def test_rows_that_deltalake_has_written_again(tmp_path: Path) -> None:
    """Its DELETE writes texts as views, which Arrow neither compares nor filters."""
    row = {"broker": "b", "topic": "t", "queue_id": 0, "keys": ["k"], "store_time": TIME}
    rows = [row | {"physical_offset": offset, "queue_offset": offset} for offset in range(5)]
    deltalake.write_deltalake(str(tmp_path), pa.Table.from_pylist(rows, TABLE_SCHEMA))
    deltalake.DeltaTable(str(tmp_path)).delete("physical_offset = 3")
    snapshot = read_snapshot(tmp_path)
    (file,) = snapshot.files()
    with snapshot.storage.parquet(file.path) as parquet:
        assert parquet.schema_arrow.field("broker").type == pa.string_view()
    limits = RowRetention.parse("t=1d").limits(TIME.timestamp() + 10 * 86400)
    assert ExpiredRows("b", limits).look_into(snapshot.storage, file.path).rows == 4
    rest = RestOfFiles(lambda rows: pc.equal(rows["physical_offset"], 2).to_numpy(False)).of(snapshot, file)
    assert rest.taken == 1
    assert rest.file is not None
    assert pq.read_table(tmp_path / rest.file.path)["physical_offset"].to_pylist() == [0, 1, 4]
    assert [found["physical_offset"] for found in TableLookup(tmp_path).by_key("k", 9).rows] == [4, 2, 1, 0]
