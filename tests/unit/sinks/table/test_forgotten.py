"""Which rows are to be forgotten, and where traces of them are found."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reput.sinks.table.forget import ForgetRequest, traces
from reput.sinks.table.message_file import TABLE_SCHEMA
from reput.sinks.table.storage import table_storage
from reput.source.errors import OptionError
from reput.streaming.table.commands import checked_request

ROWS: list[dict[str, Any]] = [
    {"topic": "orders", "keys": ["1", "2"], "uniq_key": "U1", "msg_id": "M1"},
    {"topic": "orders", "keys": [], "uniq_key": None, "msg_id": "M2"},
    {"topic": "SCHEDULE_TOPIC_XXXX", "real_topic": "orders", "keys": ["12"], "msg_id": "M3"},
    {"topic": "%RETRY%g", "keys": None, "properties": [("RETRY_TOPIC", "orders"), ("ORIGIN_MESSAGE_ID", "M1")]},
    {"topic": "%DLQ%g", "broker": "c", "properties": [("DLQ_ORIGIN_TOPIC", "orders"), ("note", "U1")]},
    {"topic": "bills", "keys": ["1"], "properties": [("TAGS", "orders"), ("KEYS", "1")]},
    {"topic": "bills", "properties": [("__transactionId__", "U1")]},
    {"topic": None, "broker": None},
    {"topic": "%RETRY%g+orders", "origin_topic": "orders"},
]


def rows(more: int = 0) -> pa.Table:
    filled = [{"broker": "b", "properties": [], **row} for row in ROWS * (more + 1)]
    return pa.Table.from_pylist(filled, TABLE_SCHEMA)


@pytest.mark.parametrize(
    ("request_", "wanted", "mentioned"),
    [
        (ForgetRequest(topics=["orders"]), {0, 1, 2, 3, 4, 8}, {5}),
        (ForgetRequest(topics=["orders"], broker="b"), {0, 1, 2, 3, 8}, set()),
        (ForgetRequest(topics=["orders", "bills"]), {0, 1, 2, 3, 4, 5, 6, 8}, set()),
        (ForgetRequest(keys=["1"]), {0, 5}, set()),
        (ForgetRequest(keys=["1", "12"], topics=["orders"]), {0, 2}, {5}),
        (ForgetRequest(uniq_keys=["U1"]), {0, 6}, {4}),
        (ForgetRequest(msg_ids=["M1"]), {0, 3}, set()),
        (ForgetRequest(msg_ids=["M2", "M3"], keys=["2"]), {0, 1, 2}, set()),
        (ForgetRequest(keys=["nothing"]), set(), set()),
    ],
)
def test_rows(request_: ForgetRequest, wanted: set[int], mentioned: set[int], tmp_path: Path) -> None:
    """By column, and by the properties that a broker keeps of a moved message, but not by other texts."""
    (batch,) = rows().to_batches()
    assert {number for number, hit in enumerate(request_.mask(batch)) if hit} == wanted
    half = len(ROWS) // 2
    assert {number + half for number, hit in enumerate(request_.mask(batch.slice(half))) if hit} == {
        number for number in wanted if number >= half
    }
    pq.write_table(rows(2), tmp_path / "x.parquet", row_group_size=3)
    found = request_.find(table_storage(tmp_path), "x.parquet")
    assert (found.rows, found.mentions) == (3 * len(wanted), 3 * len(mentioned))


def test_a_file_of_others_may_have_other_columns(tmp_path: Path) -> None:
    """A column that is missing, or is not a text, has no value; Arrow's other kinds of text are texts."""
    columns = {
        "topic": pa.array(["orders", "x"], pa.large_string()),
        "keys": pa.array([1, 2]),
        "note": pa.array([1, 2]),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert ForgetRequest(topics=["orders"]).find(table_storage(tmp_path), "x.parquet").rows == 1
    assert ForgetRequest(keys=["1"]).find(table_storage(tmp_path), "x.parquet").rows == 0


TOPICS = ["orders", 'o"r', "ö\\d€r's", "\x1b]0;x\x07", "long-" * 20]


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_traces_in_a_log(topic: str, ascii_only: bool, tmp_path: Path) -> None:
    """In statistics, a text inside of a text, cut as Delta cuts them; in a predicate; in a checkpoint."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    statistics = json.dumps({"minValues": {"topic": topic[:32]}}, ensure_ascii=ascii_only)
    (log / "1.json").write_text(json.dumps({"add": {"stats": statistics}}, ensure_ascii=ascii_only))
    (log / "2.json").write_text(json.dumps({"add": {"stats": json.dumps({"minValues": {"topic": f"x{topic}"}})}}))
    (log / "3.json").write_text(json.dumps({"commitInfo": {"predicate": f"(topic = '{topic}')"}}))
    pq.write_table(pa.table({"add": [{"stats": statistics}, None]}), log / "4.checkpoint.parquet")
    schema = pa.schema({"remove": pa.struct({"stats": pa.string()})})
    pq.write_table(pa.table({"remove": [{"stats": None}]}, schema), log / "5.checkpoint.parquet")
    found = traces(table_storage(tmp_path), ForgetRequest(topics=[topic])).log_files
    assert found == [f"_delta_log/{name}" for name in ("1.json", "3.json", "4.checkpoint.parquet")]
    assert traces(table_storage(tmp_path), ForgetRequest(topics=[topic], broker="b")).log_files == []


def test_traces_in_files(tmp_path: Path) -> None:
    """In any file below the table, from any writer; a file that cannot be read is reported, and is not clean."""
    (tmp_path / "_change_data").mkdir()
    for name in ("a.parquet", "_change_data/b.parquet"):
        pq.write_table(rows(), tmp_path / name)
    pq.write_table(rows().slice(7, 1), tmp_path / "c.parquet")
    request = ForgetRequest(topics=["orders"])
    found = traces(table_storage(tmp_path), request)
    assert found.rows == {"a.parquet": 6, "_change_data/b.parquet": 6}
    assert (found.files, found.unreadable, found.is_clean) == (3, [], False)
    assert traces(table_storage(tmp_path), ForgetRequest(topics=["else"])).is_clean
    torn = f".part-rest-{uuid.UUID(int=1)}.zstd.parquet.tmp"
    for name in ("torn.parquet", torn):
        (tmp_path / name).write_bytes(b"PAR1 orders")
    found = traces(table_storage(tmp_path), ForgetRequest(topics=["else"]))
    assert (sorted(found.unreadable), found.is_clean) == ([torn, "torn.parquet"], False)


@pytest.mark.parametrize("request_", [ForgetRequest(), ForgetRequest(broker="b"), ForgetRequest(keys=[""])])
def test_what_is_forgotten_is_said(request_: ForgetRequest) -> None:
    """Nothing, or an empty text, means no message."""
    with pytest.raises(OptionError):
        checked_request(request_)
