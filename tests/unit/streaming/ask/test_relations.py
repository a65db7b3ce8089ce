"""The relations that questions read from a store: files as brokers write them, and hostile ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from support.outputs import config_of
from support.record_writer import Message, write_store

from reput.source.errors import OptionError, StoreError
from reput.streaming.ask.question import questions
from reput.streaming.ask.relations import broker_of, relations_of
from reput.streaming.ask.store_relations import STORE_RELATIONS
from reput.streaming.config.pipeline import PipelineConfig, load_config

OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    """Of a store with three messages, a segment each, and an empty config/."""
    write_store(tmp_path / "store", [Message(body=bytes(100))] * 3, 400)
    (tmp_path / "store" / "config").mkdir()
    return config_of(tmp_path / "store")


def rows(name: str, config: PipelineConfig) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in STORE_RELATIONS[name].load(config).to_pylist()]


def put(config: PipelineConfig, name: str, text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    (config.store / "config" / name).write_bytes(data)


def test_consumer_offsets(config: PipelineConfig) -> None:
    """With the bare keys of fastjson, and names that look like them."""
    put(
        config,
        "consumerOffset.json",
        '{\n\t"offsetTable":{\n\t\t"T@g":{0:31,1:9223372036854775807\n\t\t},'
        '"a\\"{3:4@{0:1}":{ 2 : 5 }, "%RETRY%g@g":{"7":-1},"none":{0:1},"a@b@c":{0:1},"@g":{0:1},"T@empty":{}\n\t}\n}',
    )
    assert rows("consumer_offsets", config) == [
        ("g", "T", 0, 31),
        ("g", "T", 1, 2**63 - 1),
        ("{0:1}", 'a"{3:4', 2, 5),
        ("g", "%RETRY%g", 7, -1),
    ]


def test_consumer_offsets_with_light_queues(config: PipelineConfig) -> None:
    """A broker with enableLmq reads another file, which has a table of light queues; it may be the only one."""
    put(config, "lmqConsumerOffset.json", '{"lmqOffsetTable":{"%LMQ%a@%LMQ%c":7},"offsetTable":{"T@g":{0:2}}}')
    of_lmq = [("g", "T", 0, 2), ("%LMQ%c", "%LMQ%a", 0, 7)]
    assert rows("consumer_offsets", config) == of_lmq
    put(config, "consumerOffset.json", '{"offsetTable":{"T@g":{0:1}}}')
    assert rows("consumer_offsets", config) == [("g", "T", 0, 1)]
    assert rows("consumer_offsets", load_config(config.store, overrides=["enableLmq=true"])) == of_lmq


def test_topic_configs(config: PipelineConfig) -> None:
    """Of 4.9.3 and of 5.x; half a surrogate pair, which JSON may have, is written out."""
    topics = {"A": {"readQueueNums": 4, "writeQueueNums": 8, "perm": 6, "attributes": {}}, "\ud800\x1b": {}}
    put(config, "topics.json", json.dumps({"topicConfigTable": topics}))
    assert rows("topic_configs", config) == [("A", 4, 8, 6), ("\\ud800\x1b", 0, 0, 0)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        '{"offsetTable":[]}',
        '{"offsetTable":{"T@g":3}}',
        '{"offsetTable":{"T@g":{0:"x"}}}',
        '{"offsetTable":{"T@g":{0:1.5}}}',
        '{"offsetTable":{"T@g":{0:9223372036854775808}}}',
        '{"offsetTable":{"T@g":{"x":1}}}',
        '{"offsetTable":{"T@g":{0:null}}}',
        "[" * 100_000,
        b"\xff\xfe",
    ],
    ids=range(13),
)
def test_a_file_that_no_broker_wrote(text: str | bytes, config: PipelineConfig) -> None:
    """The error is one line, with the file's name."""
    put(config, "consumerOffset.json", text)
    with pytest.raises(StoreError, match=r"consumerOffset\.json") as caught:
        rows("consumer_offsets", config)
    assert len(str(caught.value)) < 500


def test_a_file_that_is_not_there(config: PipelineConfig) -> None:
    with pytest.raises(
        StoreError, match=r"no .*consumerOffset\.json; a broker that keeps its configuration in RocksDB"
    ):
        rows("consumer_offsets", config)


def test_segments(config: PipelineConfig) -> None:
    files = sorted((config.store / "commitlog").iterdir())
    found = [(offset, size, round(time.timestamp() * 1000)) for offset, size, time in rows("log_segments", config)]
    assert found == [(int(file.name), 400, file.stat().st_mtime_ns // 1_000_000) for file in files]
    assert len(files) == 3


def test_queues(config: PipelineConfig, tmp_path: Path) -> None:
    """Of both kinds; a link is not followed, and a directory that is not a queue is skipped."""
    queues = config.store / "consumequeue"
    for path in ("T/0", "T/1", "%LMQ%a/0", "T/x", "T/99999999999"):
        (queues / path).mkdir(parents=True)
    (queues / "T" / "1" / f"{0:020d}").write_bytes(bytes(60))
    (queues / "T" / "1" / f"{60:020d}").write_bytes(bytes(40))
    (queues / "T" / "1" / "note").write_bytes(bytes(7))
    (queues / "rocksdb.sst").write_bytes(bytes(7))
    (queues / "link").symlink_to(tmp_path, target_is_directory=True)
    (config.store / "batchconsumequeue" / "B" / "3").mkdir(parents=True)
    assert rows("consume_queues", config) == [("%LMQ%a", 0, 0, 0), ("T", 0, 0, 0), ("T", 1, 2, 100), ("B", 3, 0, 0)]


def test_ends_of_transactions(tmp_path: Path) -> None:
    """An offset a message, as 4.9.3 writes it, or several, as 5.x does; hostile bodies give none."""
    bodies = [b"3", b"4,5,", b"", b"x,6", b"9" * 30, "\u0661".encode(), b"-1"]
    store = tmp_path / "store"
    records = write_store(store, [Message(OP, body=body, properties={"TAGS": "d"}) for body in bodies], 1 << 16)
    queue = store / "consumequeue" / OP / "0"
    queue.mkdir(parents=True)
    units = [
        record.physical_offset.to_bytes(8, "big") + record.msg_size.to_bytes(4, "big") + bytes(8) for record in records
    ]
    (queue / f"{0:020d}").write_bytes(b"".join(units))
    assert rows("half_ops", config_of(store)) == [(0, 3), (0, 4), (0, 5), (0, 6)]


def test_a_question_without_its_store(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"lag reads consumer_offsets, which is where .*: --store wanted"):
        relations_of(questions()["lag"], tmp_path, None, print)


@pytest.mark.parametrize(
    ("brokers", "options", "found"),
    [
        (["a"], [], "a"),
        (["a", "b"], ["broker=b"], "b"),
        ([], ["broker=b"], "b"),
        (["a", "b"], [], None),
        (["a"], ["broker=b"], None),
    ],
)
def test_the_broker_of_a_store(
    brokers: list[str], options: list[str], found: str | None, config: PipelineConfig, tmp_path: Path
) -> None:
    """The one that its settings name, or the table's only one; else it must be said."""
    table = tmp_path / "table"
    schema = pa.schema([("broker", pa.string())])
    deltalake.write_deltalake(str(table), schema.empty_table())
    for broker in brokers:
        deltalake.write_deltalake(str(table), pa.Table.from_pylist([{"broker": broker}], schema), mode="append")
    named = load_config(config.store, overrides=options)
    if found is not None:
        assert broker_of(table, named) == found
        return
    with pytest.raises(OptionError, match=f"the table has rows of {', '.join(brokers)}; give --broker"):
        broker_of(table, named)
