"""A key filter never hides a key of its file, and lets few others pass."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.sinks.table import data_file
from reput.sinks.table.data_file import KeyProbe, keys_file, write_key_filter, write_key_filter_of
from reput.sinks.table.storage import table_storage

NAME = "part-1.parquet"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def rows(uniq_keys: list[str | None], keys: list[list[str]]) -> pa.Table:
    schema = pa.schema([("uniq_key", pa.string()), ("keys", pa.list_(pa.string()))])
    return pa.table({"uniq_key": uniq_keys, "keys": keys}, schema)


def may_be_in(root: Path, key: str, name: str = NAME) -> bool | None:
    return KeyProbe(key).may_be_in(table_storage(root), name)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.none() | TEXTS, st.lists(TEXTS, max_size=3)), max_size=40))
def test_every_key_is_found(messages: list[tuple[str | None, list[str]]]) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory)
        write_key_filter(table_storage(root), NAME, rows([one for one, _ in messages], [keys for _, keys in messages]))
        for one, keys in messages:
            assert all(may_be_in(root, key) for key in [*keys, *([one] if one is not None else [])])


@pytest.mark.parametrize("count", [1, 1000, 100_000])
def test_few_others_pass(tmp_path: Path, count: int) -> None:
    uniq_keys: list[str | None] = [f"U{number}" for number in range(count)]
    write_key_filter(table_storage(tmp_path), NAME, rows(uniq_keys, [[f"K{number}"] for number in range(count)]))
    assert sum(bool(may_be_in(tmp_path, f"K{-number}")) for number in range(1, 10_001)) < 50
    assert (tmp_path / keys_file(NAME)).stat().st_size < 64 + 6 * count


def test_a_file_without_keys_has_none(tmp_path: Path) -> None:
    write_key_filter(table_storage(tmp_path), NAME, rows([None], [[]]))
    write_key_filter(table_storage(tmp_path), "empty", rows([], []))
    assert may_be_in(tmp_path, "k") is False
    assert may_be_in(tmp_path, "k", "empty") is False


@pytest.mark.parametrize("types", [(pa.string(), pa.string()), (pa.large_string(), pa.string_view())])
def test_a_file_of_others(tmp_path: Path, types: tuple[pa.DataType, pa.DataType]) -> None:
    """Read from a file in a directory, whatever its writer called the types of its texts; also one without columns."""
    (tmp_path / "day=1").mkdir()
    columns = {"keys": pa.array([["a"], None], pa.list_(types[0])), "uniq_key": pa.array([None, "u"], types[1])}
    pq.write_table(pa.table(columns), tmp_path / "day=1" / "x.parquet")
    pq.write_table(pa.table({"other": [1]}), tmp_path / "y.parquet")
    storage = table_storage(tmp_path)
    for name in ("day=1/x.parquet", "y.parquet"):
        write_key_filter_of(storage, name)
        assert storage.status(keys_file(name)) is not None
    assert [may_be_in(tmp_path, key, "day=1/x.parquet") for key in "aub"] == [True, True, False]
    assert may_be_in(tmp_path, "a", "y.parquet") is False


def test_damage_is_no_answer(tmp_path: Path) -> None:
    """A filter that is missing, empty, cut short, longer than it says, or something else."""
    write_key_filter(table_storage(tmp_path), NAME, rows(["u"], [["k"]]))
    path = tmp_path / keys_file(NAME)
    sound = path.read_bytes()
    damaged = [sound[:length] for length in range(len(sound))] + [
        sound + b"\0",
        b"\x14" + sound[1:],
        b"\x15" + b"\xff" * 50,
    ]
    for data in damaged:
        path.write_bytes(data)
        assert may_be_in(tmp_path, "u") is None
    path.unlink()
    assert may_be_in(tmp_path, "u") is None


def test_too_many_keys_have_no_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file, "_KEYS_MAX", 3)
    write_key_filter(table_storage(tmp_path), NAME, rows(["u", "v"], [["k", "l"], []]))
    assert may_be_in(tmp_path, "u") is None
    write_key_filter(table_storage(tmp_path), NAME, rows(["u", "v"], [["k"], []]))
    assert may_be_in(tmp_path, "u") is True
