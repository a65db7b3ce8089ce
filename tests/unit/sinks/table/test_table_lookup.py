"""Look-ups in a table find the rows that a walk over all rows finds, whatever files they are in."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from reput.sinks.table.data_file import write_key_filter_of
from reput.sinks.table.log import read_snapshot
from reput.sinks.table.lookup import TableAnswer, TableLookup, Within
from reput.sinks.table.message_file import TABLE_SCHEMA
from reput.sinks.table.storage import table_storage
from reput.source.errors import OptionError, OutputError

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MS = timedelta(milliseconds=1)
Row = dict[str, Any]


def message(number: int, rng: Random) -> Row:
    row: Row = dict.fromkeys(TABLE_SCHEMA.names)
    time = None if rng.random() < 0.05 else EPOCH + timedelta(milliseconds=1_700_000_000_000 + rng.randrange(50))
    return row | {
        "broker": rng.choice("bc"),
        "topic": rng.choice(["A", "B", "ä"]),
        "queue_id": rng.randrange(2),
        "queue_offset": number // 3,
        "physical_offset": number * 100,
        "store_time": time,
        "keys": rng.sample(["k", "l", "ü", "k k"], rng.randrange(3)),
        "uniq_key": rng.choice([None, "u", "v", "k"]),
        "msg_id": f"{number % 7:016X}{number * 100:016X}",
        "properties": [("KEYS", "k"), ("x", "\n")],
    }


def write(root: Path, files: list[list[Row]]) -> None:
    for rows in files:
        table = pa.Table.from_pylist(rows, TABLE_SCHEMA)
        deltalake.write_deltalake(str(root), table, mode="append")


def random_table(root: Path, rng: Random) -> list[Row]:
    """A table of a few files, some with key filters; its rows as a look-up gives them."""
    rows = [message(number, rng) for number in range(rng.randrange(1, 60))]
    rng.shuffle(rows)
    cuts = sorted(rng.randrange(len(rows)) for _ in range(rng.randrange(6)))
    files = [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True) if start < end]
    write(root, files)
    for name in (file.path for file in read_snapshot(root).files()):
        if rng.random() < 0.6:
            write_key_filter_of(table_storage(root), name)
    return [row | {"properties": dict(row["properties"])} for row in rows]


def fits(row: Row, begin: int | None, end: int | None, equal: Row) -> bool:
    if row["store_time"] is None and (begin is not None or end is not None):
        return False
    if begin is not None and (row["store_time"] - EPOCH) / MS < begin:
        return False
    if end is not None and (row["store_time"] - EPOCH) / MS > end:
        return False
    return all(value is None or row[name] == value for name, value in equal.items())


def newest(rows: list[Row], most: int) -> list[Row]:
    old = datetime.min.replace(tzinfo=timezone.utc)
    return sorted(rows, key=lambda row: (row["store_time"] or old, row["physical_offset"]), reverse=True)[:most]


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 50))])
def test_like_a_walk_over_all_rows(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    rows = random_table(tmp_path, rng)
    table = TableLookup(tmp_path)
    for _ in range(20):
        times = [None, *(1_700_000_000_000 + rng.randrange(-2, 52) for _ in range(2))]
        begin, end, most = rng.choice(times), rng.choice(times), rng.choice([1, 2, 5, 100])
        topic, broker, key = (
            rng.choice([None, "A", "ä", "C"]),
            rng.choice([None, "b", "x"]),
            rng.choice(["k", "ü", "u", "?"]),
        )
        some = [row for row in rows if fits(row, begin, end, {"topic": topic, "broker": broker})]
        within = Within(topic, broker, begin, end)
        assert table.by_key(key, most, within).rows == newest([row for row in some if key in row["keys"]], most)
        with_unique_key = [row for row in some if row["uniq_key"] == key]
        assert table.by_unique_key(key, most, within).rows == newest(with_unique_key, most)
        queue = {"topic": rng.choice(["A", "ä"]), "queue_id": rng.randrange(2), "broker": broker}
        first, time = rng.randrange(-1, 21), 1_700_000_000_000 + rng.randrange(-2, 52)
        entries = sorted((row for row in rows if fits(row, None, None, queue)), key=lambda row: row["physical_offset"])
        found = table.by_queue_offset(queue["topic"], queue["queue_id"], first, most, broker=broker)
        assert found.rows == [row for row in entries if row["queue_offset"] >= first][:most]
        found = table.by_time(queue["topic"], queue["queue_id"], time, most, broker=broker)
        assert found.rows == [row for row in entries if fits(row, time, None, {})][:most]
        one = rng.choice(rows)
        assert table.by_msg_id(one["msg_id"].lower()).rows == [one]


def opened(answer: TableAnswer) -> tuple[int, int]:
    return answer.opened, answer.files


def test_few_files_are_opened(tmp_path: Path) -> None:
    rng = Random(1)
    files = [
        [message(number, rng) | {"uniq_key": f"U{number}", "keys": [f"K{number}"]} for number in range(at, at + 10)]
        for at in range(0, 200, 10)
    ]
    write(tmp_path, files)
    lookup = TableLookup(tmp_path)
    unfiltered = lookup.by_key("K77", max_num=5)
    assert (opened(unfiltered), unfiltered.unfiltered) == ((20, 20), 20)
    for name in (file.path for file in read_snapshot(tmp_path).files()):
        write_key_filter_of(table_storage(tmp_path), name)
    for found in (lookup.by_key("K77", max_num=5), lookup.by_unique_key("U77", max_num=5)):
        assert [row["physical_offset"] for row in found.rows] == [7700]
        assert (opened(found), found.unfiltered) == ((1, 20), 0)
    assert opened(lookup.by_key("K", max_num=5)) == (0, 20)
    assert opened(lookup.by_msg_id(files[3][4]["msg_id"])) == (1, 20)


def test_rows_that_a_later_column_lacks(tmp_path: Path) -> None:
    """A file of an older version has not every column: what it lacks is null, and nothing in it has a key there."""
    rows = [message(number, Random(number)) for number in range(4)]
    old = pa.Table.from_pylist(rows[:2], TABLE_SCHEMA).drop_columns(["uniq_key", "tags"])
    deltalake.write_deltalake(str(tmp_path), old)
    new = pa.Table.from_pylist([row | {"uniq_key": "u"} for row in rows[2:]], TABLE_SCHEMA)
    deltalake.write_deltalake(str(tmp_path), new, mode="append", schema_mode="merge")
    lookup = TableLookup(tmp_path)
    assert {row["physical_offset"] for row in lookup.by_unique_key("u", max_num=9).rows} == {200, 300}
    assert [row["physical_offset"] for row in lookup.by_msg_id(rows[1]["msg_id"]).rows] == [100]


def test_refusals(tmp_path: Path) -> None:
    """One clear line for a path without a table, for another table, or for a table without one of its files."""
    with pytest.raises(OutputError, match="is not a Delta table"):
        TableLookup(tmp_path / "none")
    deltalake.write_deltalake(str(tmp_path / "other"), pa.table({"a": [1]}))
    with pytest.raises(OutputError, match="is not a message table: it has no column broker"):
        TableLookup(tmp_path / "other")
    write(tmp_path / "t", [[message(1, Random(1)) | {"uniq_key": "u"}]])
    lookup = TableLookup(tmp_path / "t")
    with pytest.raises(OptionError, match="is not an offset message id"):
        lookup.by_msg_id("xyz")
    for damage in ("cut", "gone"):
        path = tmp_path / "t" / next(read_snapshot(tmp_path / "t").files()).path
        path.write_bytes(path.read_bytes()[:-10]) if damage == "cut" else path.unlink()
        with pytest.raises(OutputError, match="a file of the table, cannot be read") as raised:
            lookup.by_unique_key("u", max_num=1)
        assert raised.value.file == str(path) or raised.value.file == path
