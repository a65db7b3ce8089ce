"""Which files are merged next, how often a row is written, and what a merged file is like."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reput.sinks.table import upkeep
from reput.sinks.table.data_file import TARGET_BYTES, TARGET_ROWS, DataFile, delta_statistics
from reput.sinks.table.storage import table_storage
from reput.sinks.table.upkeep import merged_files, next_merge, next_unsorted

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def stored(number: int, rows: int = 100, *, seconds: int = 10, path: str = "part-x", size_bytes: int = 0) -> DataFile:
    begin = START + timedelta(seconds=seconds * number)
    end = begin + timedelta(seconds=seconds - 1)
    return described(
        f"{path}{number}", size_bytes or rows * 60, rows, (number * 1000, number * 1000 + 999), (begin, end)
    )


def described(
    name: str, size_bytes: int, rows: int, offsets: tuple[int, int], times: tuple[object, object]
) -> DataFile:
    (least, greatest), (begin, end) = offsets, times
    low, high = {"physical_offset": least, "store_time": begin}, {"physical_offset": greatest, "store_time": end}
    return DataFile(name, size_bytes, 0, delta_statistics(rows, low, high, {}))


def rows_of(files: list[DataFile]) -> int:
    return sum(file.bounds.rows or 0 for file in files)


def merged(files: list[DataFile]) -> DataFile:
    """Return the result of a merge of them."""
    first, last = files[0].bounds, files[-1].bounds
    assert first.least is not None
    assert last.greatest is not None
    size_bytes = sum(file.size_bytes for file in files)
    times = first.store_times[0], last.store_times[1]
    return described(f"merged-{files[0].path}", size_bytes, rows_of(files), (first.least, last.greatest), times)


def tidy(files: list[DataFile]) -> tuple[list[DataFile], int]:
    """Merge until nothing is left to merge; the rows that were written for it, too."""
    written = 0
    while found := next_merge(files):
        assert len(found) > 1
        assert rows_of(found) <= TARGET_ROWS
        at = files.index(found[0])
        assert files[at : at + len(found)] == found, "not consecutive in the log"
        written += rows_of(found)
        files = [*files[:at], merged(found), *files[at + len(found) :]]
    return files, written


@pytest.mark.parametrize("rows", [1, 100, 4000])
def test_two_days_of_commits(rows: int) -> None:
    """A commit every ten seconds: few files at any moment, each row written a few times, one file for a day at last."""
    files: list[DataFile] = []
    most = written = 0
    for number in range(2 * 8640):
        files, more = tidy([*files, stored(number, rows)])
        written += more
        most = max(most, len(files))
    levels = 7
    assert most <= 8 * levels + 2 * 8640 * rows / TARGET_ROWS * 2
    assert written <= levels * 2 * 8640 * rows
    first_day = [file for file in files if file.bounds.store_times[1] < START + timedelta(days=1)]  # type: ignore[operator]
    assert len(first_day) <= max(1, 3 * 8640 * rows / TARGET_ROWS)


def test_any_sizes() -> None:
    """Files of all sizes, hours and days apart: what is left is tidy, and no file of two days was made."""
    for seed in range(200):
        rng = Random(seed)
        files = [
            stored(number, rng.choice([1, 50, 5000, 200_000, TARGET_ROWS]), seconds=rng.choice([10, 3600]))
            for number in range(rng.randrange(1, 120))
        ]
        left, _ = tidy(files)
        assert rows_of(left) == rows_of(files)
        for file in left:
            if file not in files:
                assert len({*file.days}) == 1
        assert tidy(left) == (left, 0)


def test_bytes_count_as_rows_do() -> None:
    files = [stored(number, 10, size_bytes=TARGET_BYTES // 2) for number in range(20)]
    assert next_merge(files) == []
    assert next_unsorted(files) == files[:1]
    assert next_unsorted([stored(0, 10), stored(1, TARGET_ROWS, path="merged-")]) == []


def write(directory: Path, name: str, first: int, count: int, **more: list[str]) -> DataFile:
    rng = Random(first)
    offsets = list(range(first, first + count))
    rows = pa.table(
        {
            "broker": ["b"] * count,
            "topic": [rng.choice("CAB") for _ in offsets],
            "queue_id": pa.array([0] * count, pa.int32()),
            "queue_offset": offsets,
            "physical_offset": offsets,
            "store_time": pa.array([START + timedelta(seconds=n) for n in offsets], pa.timestamp("us", "UTC")),
            "uniq_key": [f"u{n}" for n in offsets],
            **more,
        }
    )
    pq.write_table(rows, directory / name, row_group_size=7, store_schema=False)
    size_bytes = (directory / name).stat().st_size
    return described(name, size_bytes, count, (first, first + count - 1), (None, None))


def test_a_merged_file_has_every_row_by_topic(tmp_path: Path) -> None:
    """Also the columns that others added to some of the files; its statistics are those of its rows."""
    files = [write(tmp_path, "a", 0, 20), write(tmp_path, "b", 20, 30, note=["x"] * 30)]
    (made,) = merged_files(table_storage(tmp_path), files)
    rows = pq.read_table(tmp_path / made.path)
    found = list(zip(rows["topic"].to_pylist(), rows["physical_offset"].to_pylist(), strict=True))
    assert found == sorted(found)
    assert sorted(offset for _, offset in found) == list(range(50))
    assert {
        (offset, key, note)
        for offset, key, note in zip(
            *(rows[n].to_pylist() for n in ("physical_offset", "uniq_key", "note")), strict=True
        )
    } == {(n, f"u{n}", None if n < 20 else "x") for n in range(50)}
    statistics = json.loads(made.statistics_json)
    assert statistics["numRecords"] == 50
    assert (statistics["minValues"]["physical_offset"], statistics["maxValues"]["physical_offset"]) == (0, 49)
    assert (statistics["minValues"]["topic"], statistics["maxValues"]["topic"]) == ("A", "C")
    assert made.size_bytes == (tmp_path / made.path).stat().st_size


def test_row_groups_of_a_merged_file_have_bloom_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the unique key, in each: other readers pass over row groups by them."""
    monkeypatch.setattr(upkeep, "_ROWS_A_GROUP", 10)
    (made,) = merged_files(table_storage(tmp_path), [write(tmp_path, "a", 0, 30)])
    metadata = pq.read_metadata(tmp_path / made.path)
    assert metadata.num_row_groups == 3
    for group in map(metadata.row_group, range(3)):
        columns = [group.column(number) for number in range(group.num_columns)]
        assert [column.path_in_schema for column in columns if column.bloom_filter_length] == ["uniq_key"]


def test_a_merged_file_is_encoded_as_the_tasks_files_are(tmp_path: Path) -> None:
    """Ids and keys without what they share with the row before: a quarter of a file."""
    (made,) = merged_files(table_storage(tmp_path), [write(tmp_path, "a", 0, 30)])
    group = pq.read_metadata(tmp_path / made.path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    encodings = {column.path_in_schema: set(column.encodings) for column in columns}
    assert encodings["uniq_key"] == {"RLE", "DELTA_BYTE_ARRAY"}
    assert encodings["physical_offset"] == {"RLE", "DELTA_BINARY_PACKED"}
    assert "RLE_DICTIONARY" in encodings["topic"]


def test_what_does_not_fit_into_memory_becomes_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row group by row group; each file's statistics are of its own rows."""
    monkeypatch.setattr(upkeep, "_ENCODED_BYTES", 3000)
    made = merged_files(table_storage(tmp_path), [write(tmp_path, "a", 0, 40), write(tmp_path, "b", 40, 40)])
    assert len(made) > 2
    bounds = [json.loads(file.statistics_json) for file in made]
    ranges = [(each["minValues"]["physical_offset"], each["maxValues"]["physical_offset"]) for each in bounds]
    assert ranges == sorted(ranges)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 79
    assert all(before[1] + 1 == after[0] for before, after in zip(ranges, ranges[1:], strict=False))
    rows = pa.concat_tables(pq.read_table(tmp_path / file.path) for file in made)
    assert sorted(rows["physical_offset"].to_pylist()) == list(range(80))


def test_many_texts_do_not_stand_in_every_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column with many texts has in each row group those of its rows alone."""
    monkeypatch.setattr(upkeep, "_ROWS_A_GROUP", 1000)
    rng = Random(1)
    tags = sorted(f"{rng.getrandbits(128):032x}" for _ in range(20_000))
    size = {}
    for limit in (1024, 10**9):
        monkeypatch.setattr(upkeep, "_TEXTS_MAX", limit)
        (made,) = merged_files(table_storage(tmp_path), [write(tmp_path, "a", 0, 20_000, tags=tags)])
        size[limit] = made.size_bytes
        assert sorted(pq.read_table(tmp_path / made.path)["tags"].to_pylist()) == tags
    assert size[1024] < size[10**9] / 3
