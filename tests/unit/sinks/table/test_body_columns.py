"""Bodies in the table's files: what the producer wrote, in bounded memory, whatever a body claims to hold."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.logs import end_of, load_log
from support.record_writer import Message

from reput.sinks.table import message_file
from reput.sinks.table.message_file import TableFileWriter, table_schema
from reput.sinks.table.storage import table_storage
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import DecodeOptions

ZLIB, LZ4, ZSTD = 0x301, 0x101, 0x201
MAX = 1000

BODIES: dict[str, tuple[Message, str | bytes | None]] = {
    "text": (Message(body="naïve 名".encode()), "naïve 名"),
    "none": (Message(body=b""), ""),
    "bytes": (Message(body=b"\xff\0"), b"\xff\0"),
    "half a surrogate pair": (Message(body=b"\xed\xa0\x80"), b"\xed\xa0\x80"),
    "zlib": (Message(body=zlib.compress(b"z" * MAX), sys_flag=ZLIB), "z" * MAX),
    "lz4": (Message(body=pa.Codec("lz4").compress(b"\xfe" * 9, asbytes=True), sys_flag=LZ4), b"\xfe" * 9),
    "zstd": (Message(body=pa.Codec("zstd").compress(b"zstd", asbytes=True), sys_flag=ZSTD), "zstd"),
    "as large as allowed": (Message(body=b"x" * MAX), "x" * MAX),
    "too large": (Message(body=b"x" * (MAX + 1)), None),
    "too large when decompressed": (Message(body=zlib.compress(b"x" * (MAX + 1)), sys_flag=ZLIB), None),
    "no zlib": (Message(body=b"no zlib", sys_flag=ZLIB), None),
    "cut short": (Message(body=zlib.compress(b"x" * 99)[:-1], sys_flag=ZLIB), None),
    "unknown compression": (Message(body=b"x", sys_flag=0x701), None),
}


def written(tmp_path: Path, messages: list[Message], body_bytes_max: int | None = MAX) -> tuple[dict[str, Any], Path]:
    """The row that a task returns for a log of these messages, and its file."""
    queue, records = load_log(tmp_path / "log", messages, 1 << 24)
    span = OffsetRange(0, end_of(records), queue.files[0])
    writer = TableFileWriter(table_storage(tmp_path / "table"), "b", 0, DecodeOptions(), body_bytes_max)
    (row,) = writer.write(span).to_pylist()
    return row, tmp_path / "table" / row["path"]


def bodies(path: Path) -> list[str | bytes | None]:
    rows = pq.read_table(path, columns=["body", "body_bytes"]).to_pylist()
    assert all(row["body"] is None or row["body_bytes"] is None for row in rows)
    return [row["body"] if row["body"] is not None else row["body_bytes"] for row in rows]


@pytest.mark.parametrize("name", BODIES)
def test_a_body(name: str, tmp_path: Path) -> None:
    """Decompressed, as text or as bytes, or null."""
    message, expected = BODIES[name]
    _, path = written(tmp_path, [message])
    assert bodies(path) == [expected]


@pytest.mark.parametrize(("rows", "text_bytes"), [(1 << 17, 1 << 26), (5, 1 << 26), (1 << 17, 300), (1 << 17, 1)])
def test_bodies_of_many_groups(rows: int, text_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the records are cut into row groups, each row has its own body, and the other columns are unchanged."""
    messages = [message for message, _ in BODIES.values()] * 5
    _, without = written(tmp_path / "without", messages, None)
    monkeypatch.setattr(message_file, "_ROWS_A_GROUP", rows)
    monkeypatch.setattr(message_file, "_TEXT_A_GROUP", text_bytes)
    row, path = written(tmp_path / "with", messages)
    assert row["messages"] == len(messages)
    assert bodies(path) == [expected for _, expected in BODIES.values()] * 5
    found = pq.read_table(path)
    assert found.schema.names == table_schema(include_body=True).names
    assert found.drop_columns(["body", "body_bytes"]).equals(pq.read_table(without))
    if text_bytes == 1:
        assert pq.read_metadata(path).num_row_groups == len(messages)


def test_small_bodies_that_hold_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of them is written as many groups, each with one body more than fits at most."""
    monkeypatch.setattr(message_file, "_TEXT_A_GROUP", 1 << 20)
    bomb = Message(body=zlib.compress(b"b" * 300_000), sys_flag=ZLIB)
    _, path = written(tmp_path, [bomb] * 64, 300_000)
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [4] * 16
    assert path.stat().st_size < 1 << 20


def test_without_bodies(tmp_path: Path) -> None:
    """The file has no columns of them."""
    _, path = written(tmp_path, [Message(body=b"text")], None)
    assert pq.read_schema(path).names == table_schema(include_body=False).names
