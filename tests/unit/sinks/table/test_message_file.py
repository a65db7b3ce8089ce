"""Files of the message table: what is read from them is what the log says, whatever their encodings are."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.logs import end_of, load_log, varied_messages
from support.record_writer import Message

from reput.sinks.table import message_file
from reput.sinks.table.message_file import STATISTICS_COLUMNS, TABLE_SCHEMA, TableFileWriter
from reput.sinks.table.storage import table_storage
from reput.source.errors import ReputError
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import DecodeOptions, read_windows
from reput.source.rows.message_rows import message_batch
from reput.source.rows.message_schema import MESSAGE_SCHEMA

DICTIONARIES = {"broker", "topic", "born_host", "store_host", "tags", "tags_code", "transaction_type", "real_topic"}
DICTIONARIES |= {"kind", "consumer_group", "origin_topic", "producer_group", "client_host"}
DIFFERENCES = {"queue_id", "queue_offset", "physical_offset", "msg_size", "body_size"}
PREFIXES = {"msg_id", "uniq_key", "first_key", "keys.list.element"}
NESTED = {"keys.list.element", "properties.key_value.key", "properties.key_value.value"}


def written(log: Path, root: Path, messages: list[Message]) -> tuple[dict[str, Any], pa.Table]:
    """The row that a task returns for a log of these messages, and the table's rows by the batch decoder."""
    queue, records = load_log(log, messages, 1 << 20)
    span = OffsetRange(0, end_of(records), queue.files[0])
    (row,) = TableFileWriter(table_storage(root), "broker-a", 0, DecodeOptions()).write(span).to_pylist()
    windows = read_windows(span.file, span.start, span.end, DecodeOptions())
    batches = [message_batch(window.columns) for window in windows]
    plain = pa.Table.from_batches(batches, MESSAGE_SCHEMA)
    broker = pa.array(["broker-a"] * len(plain), pa.string())
    return row, pa.Table.from_arrays([broker, *plain.columns], schema=TABLE_SCHEMA)


@pytest.fixture(params=[(1 << 20, 128 * 1024), (2000, 7), (500, 50)], ids=["one group", "many groups", "many windows"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of a window and rows of a row group."""
    window_bytes, rows = request.param
    monkeypatch.setattr(message_file, "WINDOW_BYTES", window_bytes)
    monkeypatch.setattr(message_file, "_ROWS_A_GROUP", rows)


MALFORMED = [
    b"TAGS\x01\xff\x02\xfe\x01a\x02\xff\x01b",
    b"TAGS\x01\xfe\x02REAL_TOPIC\x01\xc0\xaf",
    b"TAGS\x01\xef\xbf\xbd",
]
LOGS = {
    "all shapes": varied_messages(200),
    "tags here and there": [Message(properties={"TAGS": f"T{i % 3}"} if i // 20 % 2 else {}) for i in range(200)],
    "nothing that repeats": [Message(properties={"TAGS": f"T{i}", f"name{i}": "v"}, topic=f"A{i}") for i in range(200)],
    "no properties at all": [Message() for _ in range(50)],
    "bytes that are one text to Java": [Message(properties=MALFORMED[i % 3]) for i in range(100)],
}


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("name", LOGS)
def test_rows_are_read_as_decoded(name: str, tmp_path: Path) -> None:
    """A reader that knows nothing of Arrow's dictionaries finds the table's columns, types and rows."""
    row, expected = written(tmp_path / "log", tmp_path / "table", LOGS[name])
    found = pq.read_table(tmp_path / "table" / row["path"])
    assert TABLE_SCHEMA.names == found.schema.names
    for field in TABLE_SCHEMA:
        assert pa.types.is_nested(field.type) or found.schema.field(field.name).type == field.type
    assert expected.to_pylist() == found.to_pylist()
    assert (len(LOGS[name]), (tmp_path / "table" / row["path"]).stat().st_size) == (row["messages"], row["size_bytes"])


def test_parts_one_after_the_other_share_memory_and_no_row(tmp_path: Path) -> None:
    """The next one has the rows' arrays of the one before; not of one that failed, which has rows in them."""
    message_file._spare_rows.clear()
    for number, name in enumerate(LOGS):
        row, expected = written(tmp_path / name, tmp_path / "table", LOGS[name])
        assert expected.to_pylist() == pq.read_table(tmp_path / "table" / row["path"]).to_pylist()
        assert len(message_file._spare_rows) == 1
        if number == 2:
            queue, records = load_log(tmp_path / "failing", varied_messages(5), 1 << 20)
            path = Path(queue.files[0].path)
            path.write_bytes(path.read_bytes()[: records[4].physical_offset + 4] + bytes(100))
            span = OffsetRange(0, end_of(records), queue.files[0])
            with pytest.raises(ReputError):
                TableFileWriter(table_storage(tmp_path / "table"), "broker-a", 0, DecodeOptions()).write(span)
            assert message_file._spare_rows == []


@pytest.mark.usefixtures("sizes")
def test_encodings_and_statistics_of_each_row_group(tmp_path: Path) -> None:
    """Dictionaries stay dictionaries over many windows, and each flat column has its bounds."""
    row, _ = written(tmp_path / "log", tmp_path / "table", LOGS["all shapes"])
    metadata = pq.read_metadata(tmp_path / "table" / row["path"])
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            name, encodings = column.path_in_schema, set(column.encodings)
            dictionary = name in DICTIONARIES or name == "properties.key_value.key"
            # PLAIN is the encoding of the dictionary itself.
            assert dictionary == ("RLE_DICTIONARY" in encodings), name
            assert (name in DIFFERENCES) == ("DELTA_BINARY_PACKED" in encodings), name
            assert (name in PREFIXES) == ("DELTA_BYTE_ARRAY" in encodings), name
            assert (name in NESTED) == (column.statistics is None), name
            assert "ZSTD" == column.compression


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("name", LOGS)
def test_statistics_are_those_of_the_rows(name: str, tmp_path: Path) -> None:
    """Delta's minima, maxima and null counts are exact, times to the millisecond."""
    row, expected = written(tmp_path / "log", tmp_path / "table", LOGS[name])
    statistics = json.loads(row["statistics_json"])
    assert expected.num_rows == statistics["numRecords"]
    for column in STATISTICS_COLUMNS:
        values = [value for value in expected[column].to_pylist() if value is not None]
        bounds = [statistics[bound][column] for bound in ("minValues", "maxValues")]
        if column == "store_time":
            bounds = [datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc) for text in bounds]
        assert [min(values), max(values)] == bounds, column
        assert expected[column].null_count == statistics["nullCount"][column]


def test_no_message_makes_no_file(tmp_path: Path) -> None:
    """A range whose records are all in the table already has no file and no statistics."""
    queue, records = load_log(tmp_path / "log", [Message()])
    end = end_of(records)
    writer = TableFileWriter(table_storage(tmp_path / "table"), "broker-a", end, DecodeOptions())
    (row,) = writer.write(OffsetRange(0, end, queue.files[0])).to_pylist()
    assert (0, None, None) == (row["messages"], row["path"], row["statistics_json"])
    assert not (tmp_path / "table").exists()


def test_row_groups_are_bounded_by_their_texts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group ends with the window that fills it, so that many large properties stay below what Arrow can count."""
    monkeypatch.setattr(message_file, "WINDOW_BYTES", 2000)
    monkeypatch.setattr(message_file, "_TEXT_A_GROUP", 4000)
    messages = [Message(properties={"large": "x" * 900}) for _ in range(40)]
    row, expected = written(tmp_path / "log", tmp_path / "table", messages)
    metadata = pq.read_metadata(tmp_path / "table" / row["path"])
    rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    assert 40 == sum(rows)
    assert 4000 <= 900 * max(rows) < 4000 + 2000
    assert expected.to_pylist() == pq.read_table(tmp_path / "table" / row["path"]).to_pylist()
