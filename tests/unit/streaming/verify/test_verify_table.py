"""`reput verify --table`: the rows of data files beside the log, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.deletion_vector import deletion_vector
from support.outputs import Output
from support.record_writer import Message, write_store
from support.store_table import add_store
from support.verified import run_verify

from reput.sinks.table import comparison
from reput.sinks.table.comparison import (
    COLUMNS,
    STRETCH_BYTES,
    RowsReader,
    StretchSums,
    plain_rows,
    row_digests,
)
from reput.sinks.table.data_file import DataFile, FileBounds
from reput.sinks.table.message_file import TABLE_SCHEMA
from reput.sinks.table.retention import ALL_FOREVER, DAY_MS, RowRetention
from reput.sinks.table.storage import table_storage
from reput.source.rows.message_schema import LATER_NAMES
from reput.streaming.tasks import task_session
from reput.streaming.verify.store_verification import StoreVerification
from reput.streaming.verify.verify import records_between

BROKER = "DEFAULT_BROKER"
DAY = 20_000
OLD, NEW = (DAY - 3) * DAY_MS, DAY * DAY_MS
NOW_S = (DAY + 0.5) * 86_400


@pytest.fixture
def table(output: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The table of an output's log, with rows of another broker; Spark is not to be started."""

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError

    monkeypatch.setattr(task_session, "start_session", refuse)
    for broker in (BROKER, "another"):
        add_store(tmp_path / "table", output.store, broker)
    return tmp_path / "table"


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output.make(tmp_path / "made", Random(5), 50)


def kinds(output: Output, table: Path, *more: str) -> dict[str, int]:
    """Return the findings of `reput verify` in the table, by kind."""
    result = run_verify(output, "--table", table, "--json", *more)
    assert result.stdout, (result.output, result.exception)
    found: dict[str, int] = json.loads(result.stdout)["parts"]["table"]["by_kind"]
    assert result.exit_code == int(bool(found)), result.output
    return found


def test_rows_of_the_log(output: Output, table: Path) -> None:
    """Each of its own broker, once; also where processes read them."""
    result = run_verify(output, "--table", table)
    assert result.exit_code == 0, result.output
    assert "table      50 rows, 35 columns: agrees" in result.output


def test_rows_that_differ(output: Output, table: Path) -> None:
    """One is gone, one appears twice, one has another checksum."""
    written = deltalake.DeltaTable(str(table))
    rows = written.to_pyarrow_table().filter(pc.field("broker") == BROKER).sort_by("physical_offset")
    gone, twice, changed = (rows["physical_offset"][at].as_py() for at in (3, 20, 49))
    written.delete(f"broker = '{BROKER}' AND physical_offset = {gone}")
    written.update({"body_crc": "body_crc + 1"}, predicate=f"broker = '{BROKER}' AND physical_offset = {changed}")
    deltalake.write_deltalake(str(table), rows.slice(20, 1), mode="append")
    assert kinds(output, table) == {"row_missing": 1, "row_twice": 1, "row_changed": 1}
    result = run_verify(output, "--table", table)
    assert f"the record at {gone} has no row" in result.output
    assert f"the record at {twice} has 2 rows" in result.output


# Changes of others to each column, in SQL: another value, or null where the value is one.
CHANGES = {
    "properties": "map('KEYS', 'x')",
    "keys": "make_array('x', 'y')",
    **dict.fromkeys(
        ("store_time", "born_time", "deliver_time"), "arrow_cast(1000, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    ),
}


def changed(name: str) -> str:
    kind = TABLE_SCHEMA.field(name).type
    plain = f"coalesce({name}, 0) + 1" if pa.types.is_integer(kind) else f"concat(coalesce({name}, ''), 'x')"
    return CHANGES.get(name, plain)


def test_each_column_is_compared(output: Output, table: Path) -> None:
    """Each column has another value in a row of its own: that row differs, and the column is named."""
    written = deltalake.DeltaTable(str(table))
    rows = written.to_pyarrow_table().filter(pc.field("broker") == BROKER).sort_by("physical_offset").to_pylist()
    names = [name for name in COLUMNS if name != "physical_offset"]
    offsets = {name: row["physical_offset"] for name, row in zip(names, rows, strict=False)}
    cases = {
        name: f"CASE WHEN physical_offset = {offset} THEN {changed(name)} ELSE {name} END"
        for name, offset in offsets.items()
    }
    written.update(cases, predicate=f"broker = '{BROKER}'")
    result = json.loads(run_verify(output, "--table", table, "--json").stdout)["parts"]["table"]
    later = len(LATER_NAMES)
    assert result["by_kind"] == {"row_changed": len(names) - later, "row_derived_otherwise": later}
    settings = StoreVerification(output.config, output.out)
    records = {
        row["physical_offset"]: row for row in records_between(settings, (0, settings.log_end), 0, settings.log_end)
    }
    found = deltalake.DeltaTable(str(table)).to_pyarrow_table().filter(pc.field("broker") == BROKER)
    for batch in found.to_batches():
        for row in plain_rows(batch):
            record = records[row["physical_offset"]]
            assert [name for name in COLUMNS if record[name] != row[name]] == [
                name for name, offset in offsets.items() if offset == row["physical_offset"]
            ]


def test_values_of_two_rows_are_swapped(output: Output, table: Path) -> None:
    """A sum over all values of a stretch would be the same: a digest is of the whole row."""
    written = deltalake.DeltaTable(str(table))
    rows = written.to_pyarrow_table().filter(pc.field("broker") == BROKER).sort_by("physical_offset").to_pylist()
    first, second = rows[0], next(row for row in rows if row["msg_size"] != rows[0]["msg_size"])
    case = " ".join(
        f"WHEN physical_offset = {row['physical_offset']} THEN {other['msg_size']}"
        for row, other in ((first, second), (second, first))
    )
    written.update({"msg_size": f"CASE {case} ELSE msg_size END"}, predicate=f"broker = '{BROKER}'")
    assert kinds(output, table) == {"row_changed": 2}


def test_sums_do_not_depend_on_order() -> None:
    """Another writer may sort a file by anything; offsets of several stretches, and of one that comes again."""
    generator = np.random.default_rng(7)
    offsets = np.sort(generator.integers(0, 5 * STRETCH_BYTES, 500))
    fields = [offsets, *generator.integers(-(2**63), 2**63 - 1, (2, 500)), np.arange(500) % 2]
    sums = []
    for order in (np.arange(500), generator.permutation(500), np.arange(500)[::-1]):
        found = StretchSums()
        found.take([each[order] for each in fields])
        sums.append(found)
    assert sums[0].sums == sums[1].sums == sums[2].sums
    assert {at: each.rows for at, each in sums[0].sums.items()} == {
        at: int((offsets // STRETCH_BYTES == at).sum()) for at in range(5)
    }
    assert sums[0].sums[0].digest == sum(fields[1][offsets < STRETCH_BYTES].tolist()) % 2**64
    assert sums[0].earlier_rows == 250


def test_rows_of_some_of_a_file(output: Output, table: Path) -> None:
    """Rows are left out by broker, by deletion and by row group where names of properties are a dictionary."""
    rows = deltalake.DeltaTable(str(table)).to_pyarrow_table()
    path = table.parent / "rows.parquet"
    pq.write_table(rows, path, row_group_size=7)
    reader = RowsReader(table_storage(table.parent), BROKER, ALL_FOREVER.limits(NOW_S))
    kept = np.arange(rows.num_rows) % 3 != 0
    file = DataFile(path.name, 0, 0, None, {"deletionVector": deletion_vector(np.flatnonzero(~kept).tolist())})
    wanted = rows.filter(pa.array(kept)).filter(pc.field("broker") == BROKER).to_batches()
    found = [row for batch in reader.batches(file) for row in plain_rows(batch)]
    assert found == [row for batch in wanted for row in plain_rows(batch)] != []
    sums = StretchSums()
    for batch in wanted:
        sums.take(row_digests(batch))
    assert reader.sums(file).sums.sums == sums.sums


def test_every_row_was_changed(output: Output, table: Path) -> None:
    """As another writer can in one statement."""
    names = ("topic", "queue_id", "tags", "uniq_key", "msg_id")
    written = deltalake.DeltaTable(str(table))
    written.update({name: changed(name) for name in names}, predicate=f"broker = '{BROKER}'")
    assert kinds(output, table) == {"row_changed": 50}


def test_rows_of_an_earlier_version(output: Output, table: Path) -> None:
    """Null in their later columns is noted but is not a difference; another topic still is one."""
    written = deltalake.DeltaTable(str(table))
    written.update(dict.fromkeys(sorted(LATER_NAMES), "NULL"), predicate=f"broker = '{BROKER}'")
    assert kinds(output, table) == {}
    assert "agrees (50 rows_of_an_earlier_version)" in run_verify(output, "--table", table).output
    written = deltalake.DeltaTable(str(table))
    offsets = written.to_pyarrow_table().filter(pc.field("broker") == BROKER)["physical_offset"].to_pylist()
    written.update({"topic": "'x'"}, predicate=f"broker = '{BROKER}' AND physical_offset = {offsets[3]}")
    assert kinds(output, table) == {"row_changed": 1}


def test_what_is_not_compared_is_named(output: Output, table: Path) -> None:
    """A column that others added, and bodies."""
    rows = (
        deltalake.DeltaTable(str(table))
        .to_pyarrow_table()
        .slice(0, 0)
        .append_column("theirs", pa.array([], pa.int64()))
    )
    deltalake.write_deltalake(str(table), rows, mode="append", schema_mode="merge")
    assert kinds(output, table) == {}
    assert "  not compared: theirs\n" in run_verify(output, "--table", table).output


def test_digests_do_not_depend_on_encoding(output: Output, table: Path) -> None:
    """Texts as they are, large, or by dictionaries; rows in slices; properties in any order."""
    rows = deltalake.DeltaTable(str(table)).to_pyarrow_table().combine_chunks().to_batches()[0]
    wanted = [values.tolist() for values in row_digests(rows)]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        columns = [column.cast(kind) if pa.types.is_string(column.type) else column for column in rows.columns]
        other = pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
        assert [values.tolist() for values in row_digests(other)] == wanted
    parts = [row_digests(rows.slice(at, 7)) for at in range(0, rows.num_rows, 7)]
    assert [np.concatenate(each).tolist() for each in zip(*parts, strict=True)] == wanted
    turned = pa.array([each[::-1] for each in rows["properties"].to_pylist()], rows["properties"].type)
    at = rows.schema.get_field_index("properties")
    other = pa.RecordBatch.from_arrays(
        [turned if number == at else column for number, column in enumerate(rows.columns)], names=rows.schema.names
    )
    assert [values.tolist() for values in row_digests(other)] == wanted


def test_digests_tell_values_apart() -> None:
    """Null from empty and from a number, texts and lists by their borders, a name from its value."""

    def digest(name: str, value: object) -> int:
        column = pa.array([value], TABLE_SCHEMA.field(name).type)
        return int(row_digests(pa.RecordBatch.from_arrays([column], names=[name]))[1][0])

    different = {
        "tags": [None, "", "a", "a\0", "aaaaaaaa", "aaaaaaaab", "b"],
        "keys": [None, [], [""], ["", ""], ["a", "b"], ["b", "a"], ["ab"]],
        "properties": [None, [], [("a", "b")], [("b", "a")], [("a", "b"), ("c", "d")], [("a", "d"), ("c", "b")]],
        "queue_id": [None, 0, 1, -1],
    }
    for name, values in different.items():
        assert len({digest(name, value) for value in values}) == len(values)


@pytest.mark.parametrize("damage", ["gone", "short", "other bytes"])
def test_a_file_that_is_no_good(damage: str, output: Output, table: Path) -> None:
    """It is named, once, and its rows are missing."""
    path = next(
        path
        for path in table.glob("*.parquet")
        if pq.read_table(path, columns=["broker"])["broker"].unique().to_pylist() == [BROKER]
    )
    data, rows = path.read_bytes(), pq.read_metadata(path).num_rows
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-100] if damage == "short" else bytes(len(data)))
    kind = "file_unreadable" if damage == "other bytes" else "file_missing"
    assert kinds(output, table) == {kind: 1, "row_missing": rows}
    assert str(path) in run_verify(output, "--table", table).output


def test_expired_rows(tmp_path: Path, output: Output, table: Path) -> None:
    """By the rules that were given, a row that has expired is neither missing nor one too many."""
    assert kinds(output, table, "-o", "tableRetention=*=1d") == {}
    deltalake.DeltaTable(str(table)).delete(f"broker = '{BROKER}'")
    assert kinds(output, table, "-o", "tableRetention=*=1d") == {}
    assert kinds(output, table) == {"row_missing": 50}


# --- one file ------------------------------------------------------------------------------------------------


def offsets(reader: RowsReader, name: str, deleted: list[int] | None = None) -> list[int]:
    file = DataFile(name, 0, 0, None, {"deletionVector": deletion_vector(deleted)} if deleted else {})
    return [int(offset) for rows in reader.batches(file) for offset in rows["physical_offset"].to_pylist()]


def test_which_rows_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the broker that no deletion vector removes, that have not expired, from an offset on; in any batches."""
    messages = [Message("old" if i % 3 else "kept", store_timestamp=OLD if i % 2 else NEW) for i in range(40)]
    write_store(tmp_path / "store", messages, 1 << 16)
    add_store(tmp_path / "table", tmp_path / "store", "b")
    (name,) = (path.name for path in (tmp_path / "table").glob("*.parquet"))
    every = pq.read_table(tmp_path / "table" / name)["physical_offset"].to_pylist()
    storage, forever = table_storage(tmp_path / "table"), ALL_FOREVER.limits(NOW_S)
    for rows_at_once in (1, 7, 64):
        monkeypatch.setattr(comparison, "_ROWS_A_READ", rows_at_once)
        assert offsets(RowsReader(storage, "b", forever), name) == every
        assert offsets(RowsReader(storage, "c", forever), name) == []
        assert offsets(RowsReader(storage, "b", forever, every[5]), name) == every[5:]
        assert offsets(RowsReader(storage, "b", forever), name, [0, 29]) == [*every[1:29], *every[30:]]
        limits = RowRetention.parse("old=1d").limits(NOW_S)
        left = [offset for i, offset in enumerate(every) if not (i % 3 and i % 2)]
        assert offsets(RowsReader(storage, "b", limits), name) == left


def test_columns_that_a_file_lacks(tmp_path: Path) -> None:
    """They are null: a file without a broker has none of its rows."""
    write_store(tmp_path / "store", [Message("T") for _ in range(5)], 1 << 16)
    add_store(tmp_path / "table", tmp_path / "store", "b")
    (path,) = (tmp_path / "table").glob("*.parquet")
    rows = pq.read_table(path)
    storage, forever = table_storage(tmp_path / "table"), ALL_FOREVER.limits(NOW_S)
    pq.write_table(rows.drop_columns(["broker"]), tmp_path / "table" / "1.parquet")
    assert offsets(RowsReader(storage, "b", forever), "1.parquet") == []
    pq.write_table(rows.drop_columns(["store_time"]), tmp_path / "table" / "2.parquet")
    (rows,) = RowsReader(storage, "b", forever).batches(DataFile("2.parquet", 0, 0, None))
    assert "store_time" not in rows.schema.names
    assert row_digests(rows)[1].tolist() == row_digests(with_nulls(rows, "store_time"))[1].tolist()


def with_nulls(rows: pa.RecordBatch, name: str) -> pa.RecordBatch:
    kind = TABLE_SCHEMA.field(name).type
    return pa.RecordBatch.from_arrays([*rows.columns, pa.nulls(rows.num_rows, kind)], names=[*rows.schema.names, name])


def test_bounds() -> None:
    """A file is left out where its statistics say that it has no such row."""

    def reaches(bounds: Sequence[int | None], begin: int, end: int) -> bool:
        return FileBounds(None, *bounds, None).may_reach(begin, end)

    assert [reaches((10, 20), *each) for each in ((0, 10), (0, 11), (20, 21), (21, 30))] == [False, True, True, False]
    assert reaches((None, 20), 30, 40)


def test_sums_of_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"nothing of Parquet")
    reader = RowsReader(table_storage(tmp_path), "b", ALL_FOREVER.limits(NOW_S))
    found = reader.sums(DataFile("f", 0, 0, None))
    assert found.sums == StretchSums()
    assert found.problem
    assert "\n" not in found.problem
    assert list(reader.readable(DataFile("f", 0, 0, None))) == []
