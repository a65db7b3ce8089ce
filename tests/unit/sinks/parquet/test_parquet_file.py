"""Our Parquet files beside Arrow's own of the same rows: what readers find in them is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.sinks.parquet import parquet_file
from reput.sinks.parquet.parquet_file import ParquetFile

TEXT = pa.dictionary(pa.int32(), pa.string())
TIME = pa.timestamp("us", tz="UTC")
LIST = pa.list_(pa.field("element", pa.string(), nullable=False))
MAP = pa.map_(TEXT, pa.field("value", pa.string(), nullable=False))
INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (32, 64))
WORDS = st.one_of(
    st.text(max_size=12), st.sampled_from(["", "order", "ordér", "order000000000001", "order000000000002"])
)
# Texts that share a beginning of any length, words of eight bytes among them, with the one before.
IDS = st.one_of(WORDS, st.builds(lambda size, end: "ordér0123456789abcdef"[:size] + end, st.integers(0, 21), WORDS))
DIFFERENCES, NUMBERED, PREFIXES = ("near", "far", "narrow"), ("few",), ("id", "ids.list.element")

# Each column: its type, and values of it.
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), WORDS),
    "bytes": (pa.binary(), st.binary(max_size=12)),
    "topic": (TEXT, st.sampled_from(["a", "b", "", "été", "z" * 40])),
    "plain32": (pa.int32(), INT32),
    "plain64": (pa.int64(), INT64),
    "time": (TIME, st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)),
    "near": (pa.int64(), st.integers(1000, 1100)),
    "far": (pa.int64(), INT64),
    "narrow": (pa.int32(), INT32),
    "few": (pa.int64(), st.integers(-3, 3)),
    "id": (pa.string(), IDS),
    "ids": (LIST, st.lists(IDS, max_size=4)),
    "keys": (LIST, st.lists(WORDS, max_size=4)),
    "properties": (MAP, st.lists(st.tuples(st.sampled_from(["KEYS", "TAGS", "ü"]), WORDS), max_size=3)),
}
SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])
FLAT = [field.name for field in SCHEMA if not pa.types.is_nested(field.type) and field.name != "bytes"]
ROWS = st.fixed_dictionaries({name: st.one_of(st.none(), values, values) for name, (_, values) in COLUMNS.items()})


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows as Arrow has them."""
    return pa.RecordBatch.from_arrays(
        [column_of([row[name] for row in rows], kind) for name, (kind, _) in COLUMNS.items()], schema=SCHEMA
    )


def column_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """One column; a map's keys are numbered, which ``pa.array`` cannot do."""
    if kind != MAP:
        return pa.array(values, kind)
    plain = pa.array(values, pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False)))
    offsets = pa.array(plain.offsets.to_pylist()[:-1], pa.int32())
    offsets = pa.array([None if v is None else o for o, v in zip(offsets.to_pylist(), values, strict=True)], pa.int32())
    offsets = pa.concat_arrays([offsets, plain.offsets[-1:]])
    return pa.MapArray.from_arrays(offsets, plain.keys.dictionary_encode(), plain.items, type=MAP)


def ours(groups: list[pa.RecordBatch], schema: pa.Schema = SCHEMA) -> pa.Buffer:
    """The groups in a file of ours."""
    file = ParquetFile(schema, by_difference=DIFFERENCES, by_number=NUMBERED, by_prefix=PREFIXES, with_bounds=FLAT)
    for group in groups:
        file.write(group)
    return file.finish()


def arrows(groups: list[pa.RecordBatch], schema: pa.Schema = SCHEMA) -> pa.Buffer:
    """The groups in a file of Arrow's."""
    buffer = pa.BufferOutputStream()
    dictionaries = ["topic", "properties.key_value.key", *NUMBERED]
    options = {
        "use_dictionary": [name for name in dictionaries if name.split(".")[0] in schema.names],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in DIFFERENCES if name in schema.names}
        | {name: "DELTA_BYTE_ARRAY" for name in PREFIXES if name.split(".")[0] in schema.names},
        "write_statistics": [name for name in FLAT if name in schema.names],
    }
    with pq.ParquetWriter(buffer, schema, compression="zstd", store_schema=False, **options) as writer:
        for group in groups:
            writer.write_batch(group)
    return buffer.getvalue()


def assert_alike(groups: list[pa.RecordBatch]) -> None:
    """Rows, schema, encodings and statistics of the two files are the same."""
    found, wanted = (pq.ParquetFile(pa.BufferReader(make(groups))) for make in (ours, arrows))
    assert wanted.schema.equals(found.schema)
    assert wanted.read().equals(found.read())
    assert len(groups) == found.metadata.num_row_groups
    for group in range(len(groups)):
        for column in range(found.metadata.num_columns):
            got, want = (each.metadata.row_group(group).column(column) for each in (found, wanted))
            assert want.path_in_schema == got.path_in_schema
            assert want.num_values == got.num_values
            assert want.statistics == got.statistics, want.path_in_schema
            if got.statistics is not None and want.statistics.has_min_max:
                assert (want.statistics.min, want.statistics.max) == (got.statistics.min, got.statistics.max)
            if {"RLE_DICTIONARY", "DELTA_BINARY_PACKED", "DELTA_BYTE_ARRAY"} & set(want.encodings):
                assert set(want.encodings) == set(got.encodings), want.path_in_schema


@settings(max_examples=150)
@given(st.lists(st.lists(ROWS, min_size=1, max_size=40), min_size=1, max_size=3))
def test_rows_and_statistics_are_those_of_arrows_file(groups: list[list[dict[str, Any]]]) -> None:
    """Every kind of column with nulls here and there, in up to three row groups."""
    assert_alike([batch_of(rows) for rows in groups])


@pytest.mark.parametrize("page_bytes", [1, 100, 4096])
def test_a_column_may_have_many_pages(page_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages begin with a row, whatever lists it has; numbers continue after nulls of an earlier page."""
    monkeypatch.setattr(parquet_file, "_PAGE_BYTES", page_bytes)
    rng = np.random.default_rng(7)
    rows = [
        {
            **dict.fromkeys(COLUMNS),
            **({"text": f"t{i}", "topic": f"T{i % 3}", "near": i, "time": i, "few": i % 5} if i % 3 else {}),
            "plain32": -i,
            "plain64": i << 40,
            "far": int(rng.integers(-(2**63), 2**63)),
            "narrow": int(rng.integers(-(2**31), 2**31)),
            **({"keys": [f"k{n}" for n in range(i % 4)]} if i % 7 else {}),
            **({"id": f"{i // 9:032x}", "ids": [f"{i:09}{n}" for n in range(i % 3)]} if i % 4 else {}),
            **({"properties": [("KEYS", "a" * (i % 50)), ("TAGS", "")]} if i % 5 else {}),
        }
        for i in range(1000)
    ]
    assert_alike([batch_of(rows), batch_of(rows[:1]), batch_of(rows[:333])])


@pytest.mark.parametrize("rows", [0, 1, 8, 127, 128, 129, 130, 161, 5000])
@pytest.mark.parametrize("bits", [0, 1, 7, 31, 32, 33, 63, 64])
def test_differences_of_any_width(rows: int, bits: int) -> None:
    """Blocks and miniblocks that end early; differences that wrap around."""
    rng = np.random.default_rng(bits)
    wide = rng.integers(0, 2**64, rows, np.uint64, endpoint=False) if bits else np.zeros(rows, np.uint64)
    values = (wide >> np.uint64(64 - bits)).view(np.int64) if bits else wide.view(np.int64)
    if not rows:
        return
    for dtype in (np.int64, np.int32):
        schema = pa.schema([pa.field("far", pa.from_numpy_dtype(dtype))])
        batch = pa.RecordBatch.from_arrays([pa.array(values.astype(dtype))], schema=schema)
        assert pq.read_table(pa.BufferReader(ours([batch], schema))).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("count", [1, 2, 3, 255, 256, 257, 1024, 1025, 70_000])
def test_dictionaries_of_any_size(count: int) -> None:
    """Numbers of one bit up to 17; more numbers than a dictionary of numbers takes; texts that no row has."""
    codes = np.arange(2 * count, dtype=np.int32) % count
    texts = pa.DictionaryArray.from_arrays(codes[1:] if count > 1 else codes, [f"text {i}" for i in range(count + 1)])
    schema = pa.schema([pa.field("topic", TEXT), pa.field("few", pa.int64())])
    batch = pa.RecordBatch.from_arrays([texts, pa.array(codes[: len(texts)].astype(np.int64) * 3)], schema=schema)
    found, wanted = (pq.ParquetFile(pa.BufferReader(make([batch], schema))) for make in (ours, arrows))
    assert wanted.read().equals(found.read())
    assert ("RLE_DICTIONARY" in found.metadata.row_group(0).column(1).encodings) == (count <= 1024)
    statistics = found.metadata.row_group(0).column(0).statistics
    used = sorted(f"text {i}" for i in range(count))
    assert (used[0], used[-1]) == (statistics.min, statistics.max)


def test_columns_that_are_slices_of_longer_ones() -> None:
    """The memory before and after them does not matter."""
    whole = batch_of(
        [{**dict.fromkeys(COLUMNS), "text": f"t{i}", "topic": "ab"[i % 2], "keys": ["k"] * (i % 3)} for i in range(50)]
    )
    assert_alike([whole.slice(13, 21)])


def test_bounds_that_are_long_are_left_out() -> None:
    """Readers keep bounds in memory: 4,096 bytes are kept, one more is not; nulls are still counted."""
    schema = pa.schema([pa.field("text", pa.string())])
    for size, has in ((4096, True), (4097, False)):
        batch = pa.RecordBatch.from_arrays([pa.array(["x" * size, None])], schema=schema)
        statistics = pq.ParquetFile(pa.BufferReader(ours([batch], schema))).metadata.row_group(0).column(0).statistics
        assert (has, 1) == (statistics.has_min_max, statistics.null_count)


@pytest.mark.parametrize("make", [ours, arrows])
def test_a_file_without_rows(make: Callable[[list[pa.RecordBatch]], pa.Buffer]) -> None:
    """It has the columns but no row group, like Arrow's; an empty group is not written."""
    found = pq.ParquetFile(pa.BufferReader(make([])))
    assert (0, 0, len(SCHEMA.names)) == (
        found.metadata.num_rows,
        found.metadata.num_row_groups,
        len(found.schema_arrow),
    )
    assert ours([]).equals(ours([batch_of([])]))


@pytest.mark.parametrize("kind", [pa.bool_(), pa.float64(), pa.large_string(), pa.timestamp("ms"), pa.int8()])
def test_a_column_of_another_type_is_refused(kind: pa.DataType) -> None:
    """When the file is begun, rather than written as what it is not."""
    with pytest.raises(TypeError, match="is written"):
        ParquetFile(pa.schema([pa.field("column", kind)]))


def test_lists_whose_elements_are_a_slice() -> None:
    """Of a longer array."""
    schema = pa.schema([pa.field("keys", LIST)])
    elements = pa.array([f"k{i}" for i in range(20)]).slice(7, 6)
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 6], pa.int32()), elements, type=LIST)
    batch = pa.RecordBatch.from_arrays([lists], schema=schema)
    assert pq.read_table(pa.BufferReader(ours([batch], schema))).equals(pa.Table.from_batches([batch]))


def test_memory_that_holds_other_texts_in_the_next_row_group() -> None:
    schema = pa.schema([("id", pa.string()), ("again", pa.string())])
    memory = np.frombuffer(b"cdecdf", np.uint8).copy()
    ends = np.array([0, 3, 6], np.int32)
    texts = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(ends), pa.py_buffer(memory)])
    file = ParquetFile(schema, by_prefix=["id", "again"], with_bounds=["id", "again"])
    for group in (b"cdecdf", b"bbbaaa"):
        memory[:] = np.frombuffer(group, np.uint8)
        file.write(pa.RecordBatch.from_arrays([texts, texts], schema=schema))
    found = pq.ParquetFile(pa.BufferReader(file.finish()))
    rows = found.read().to_pydict()
    assert rows["id"] == rows["again"] == ["cde", "cdf", "bbb", "aaa"]
    bounds = found.metadata.row_group(1).column(0).statistics
    assert (bounds.min, bounds.max) == ("aaa", "bbb")
