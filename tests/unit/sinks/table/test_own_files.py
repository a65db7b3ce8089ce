"""Which files that no version has may be removed."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest

from reput.sinks.table.data_file import keys_file, orphans, remove_data_files
from reput.sinks.table.storage import table_storage

HOUR = 3600.0


def part(number: int = 0) -> str:
    return f"part-{number:020d}-{number + 1:020d}-{uuid.UUID(int=number)}.zstd.parquet"


def put(root: Path, name: str, hours: float) -> str:
    """Make a file that was written this many hours ago."""
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x" * 7)
    os.utime(path, (0, time.time() - hours * HOUR))
    return name


def names(root: Path, needed: Iterable[str] = ()) -> set[str]:
    return {file.name for file in orphans(table_storage(root), set(needed))}


OWN = [part(), part().replace("part", "merged"), f"part-rest-{uuid.UUID(int=1)}.zstd.parquet"]
OTHERS = ["part-00000-1234.snappy.parquet", "x.parquet", part() + ".x", "x" + part(), f".{part()}", "notes.tmp"]


def test_only_names_of_reput_go(tmp_path: Path) -> None:
    """With the files that have a name of their own only at the end, and key filters of any file."""
    own = [*OWN, *(f".{name}.tmp" for name in OWN), *(f"_keys/{name}.bloom" for name in OWN)]
    own.append(f"_keys/.{part()}.bloom.tmp")
    own += ["_keys/x.parquet.bloom", "_keys/day=1/y.parquet.bloom"]
    (tmp_path / "_keys").mkdir()
    for name in [*own, *OTHERS, "_keys/notes"]:
        put(tmp_path, name, 2)
    assert names(tmp_path) == set(own)
    for file in (OWN[0], "day=1/y.parquet"):
        assert names(tmp_path, [file]) == set(own) - {file, keys_file(file)}


@pytest.mark.parametrize(
    ("hours", "gone"),
    [
        ([0.5], []),
        ([1.5], [0]),
        ([0.5, 1.2, 2.0, 2.9], []),  # a rebuild that has written for hours is at work
        ([0.5, 1.2, 2.3, 2.9], [2, 3]),
        ([-0.5, 0.8, 1.9], [2]),  # the clock was set back
        ([1.1, 1.2, 1.3], [0, 1, 2]),
    ],
)
def test_what_a_writer_may_still_commit_stays(hours: list[float], gone: list[int], tmp_path: Path) -> None:
    """Files that follow each other within an hour, if the last was written within the last hour."""
    put_there = [put(tmp_path, part(number), each) for number, each in enumerate(hours)]
    assert names(tmp_path) == {put_there[number] for number in gone}


def test_a_data_file_goes_with_its_keys(tmp_path: Path) -> None:
    """The second call finds nothing, which is not an error; no other file is removed."""
    for name in (part(), part(1)):
        put(tmp_path, name, 0)
        put(tmp_path, f"_keys/{name}.bloom", 0)
    for _ in range(2):
        remove_data_files(table_storage(tmp_path), [part()])
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {part(1), f"_keys/{part(1)}.bloom"}
