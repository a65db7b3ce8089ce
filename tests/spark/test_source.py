"""The data source `rocketmq-commitlog` through Spark: batch and streaming, limits, offsets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BrokerStore
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from support.record_writer import CommitLogWriter, Message, write_log

from reput.source.data_source import NAME, CommitLogDataSource

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(CommitLogDataSource)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A log of 40 records in several segments; and where each begins."""
    path = tmp_path_factory.mktemp("store") / "commitlog"
    with CommitLogWriter(path, 2048) as writer:
        for number in range(40):
            writer.append(
                Message(
                    body=b"x" * number,
                    properties={"KEYS": f"a{number} b{number}", "TAGS": "é", "UNIQ_KEY": f"U{number}"},
                    store_timestamp=1_700_000_000_000 + 1000 * number,
                )
            )
        return path, [record.physical_offset for record in writer.records]


def read(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    texts = {name: str(value) for name, value in {"tailGuardMs": 10, **options}.items()}
    return spark.read.format(NAME).options(**texts).load(str(path))


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["physical_offset"] for row in frame.select("physical_offset").collect())


def test_a_batch_has_every_message_with_all_columns(spark: SparkSession, log: tuple[Path, list[int]]) -> None:
    """Rows equal what was written; the body on request."""
    path, physical_offsets = log
    frame = read(spark, path, includeBody="true", maxBytesPerPartition=700)
    found = sorted(frame.collect(), key=lambda row: row["physical_offset"])
    assert physical_offsets == [row["physical_offset"] for row in found]
    assert [b"x" * number for number in range(40)] == [bytes(row["body"]) for row in found]
    assert [[f"a{number}", f"b{number}"] for number in range(40)] == [row["keys"] for row in found]
    assert {"é"} == {row["tags"] for row in found}
    assert {"KEYS": "a7 b7", "TAGS": "é", "UNIQ_KEY": "U7"} == found[7]["properties"]
    assert "body" not in read(spark, path).columns


def test_a_real_store_is_read_whole(spark: SparkSession, broker_store: Callable[[str], BrokerStore]) -> None:
    """All messages of a broker's store, by topic."""
    store = broker_store("v4-plain")
    counts = read(spark, store.root / "commitlog").groupBy("topic").count().collect()
    assert store.facts["messagesPerTopic"] == {row["topic"]: row["count"] for row in counts}


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({}, 0, 40),
        ({"startingOffset": 10}, 10, 40),
        ({"endingOffset": 30}, 0, 30),
        ({"startingOffset": 5, "endingOffset": 6}, 5, 6),
        ({"startingOffset": "latest"}, 40, 40),
        ({"startingTimestamp": 1_700_000_000_000 + 12_500}, 13, 40),
        ({"startingTimestamp": 0}, 0, 40),
        ({"startingTimestamp": 1_800_000_000_000}, 40, 40),
    ],
)
def test_where_a_batch_begins_and_ends(
    spark: SparkSession, log: tuple[Path, list[int]], options: dict[str, Any], first: int, last: int
) -> None:
    """Offsets are numbers of records here; the source gets the places."""
    path, physical_offsets = log
    given = {
        name: physical_offsets[value] if name.endswith("Offset") and isinstance(value, int) else value
        for name, value in options.items()
    }
    assert physical_offsets[first:last] == offsets(read(spark, path, **given))


def test_ranges_tile_the_log(spark: SparkSession, log: tuple[Path, list[int]]) -> None:
    """`rows=ranges` gives record-aligned ranges that follow each other."""
    path, physical_offsets = log
    ranges = sorted(read(spark, path, rows="ranges", maxBytesPerPartition=500).collect())
    assert ranges[0]["start"] == 0
    for before, after in zip(ranges, ranges[1:], strict=False):
        assert before["end"] == after["start"]
        assert after["start"] in physical_offsets or after["start"] % 2048 == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nonsense": 1}, "unknown option 'nonsense'; the options are"),
        ({"maxBytesPerTrigger": -1}, "maxBytesPerTrigger=-1"),
        ({"rows": "records"}, "rows=records: messages or ranges wanted"),
        ({"startingOffset": 3}, "startingOffset=3 is not where a record begins"),
        ({"rows": "ranges", "includeBody": "true"}, "ranges have no bodies"),
    ],
)
def test_wrong_options_are_told(
    spark: SparkSession, log: tuple[Path, list[int]], options: dict[str, Any], words: str
) -> None:
    """The option's name and what it allows reach the user through Spark."""
    with pytest.raises(PySparkException) as caught:
        read(spark, log[0], **options).collect()
    assert words in str(caught.value)


def stream(spark: SparkSession, path: Path, checkpoint: Path, **options: object) -> tuple[list[list[int]], Any]:
    """Run a stream to the log's end; the offsets of each micro-batch, and the last progress."""
    batches: list[list[int]] = []
    texts = {name: str(value) for name, value in {"tailGuardMs": 10, **options}.items()}
    frame = spark.readStream.format(NAME).options(**texts).load(str(path))
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: batches.append(offsets(batch)))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches, query.lastProgress


@pytest.mark.parametrize(
    ("options", "largest"),
    [({"maxMessagesPerTrigger": 7}, 7), ({"maxBytesPerTrigger": 1000, "maxMessagesPerTrigger": 3}, 3), ({}, 40)],
)
def test_limits_hold_for_every_micro_batch(
    spark: SparkSession, log: tuple[Path, list[int]], tmp_path: Path, options: dict[str, int], largest: int
) -> None:
    """No micro-batch is larger than asked, and together they are the log."""
    path, physical_offsets = log
    batches, progress = stream(spark, path, tmp_path / "checkpoint", **options)
    assert physical_offsets == [offset for batch in batches for offset in batch]
    assert largest == max(len(batch) for batch in batches)
    latest = json.loads(progress["sources"][0]["latestOffset"])
    assert latest["physicOffset"] == json.loads(progress["sources"][0]["endOffset"])["physicOffset"]


def test_maxbytespertrigger_always_takes_a_record(
    spark: SparkSession, log: tuple[Path, list[int]], tmp_path: Path
) -> None:
    """A limit below the size of a record does not stop the stream."""
    path, physical_offsets = log
    batches, _ = stream(spark, path, tmp_path / "checkpoint", maxBytesPerTrigger=1, startingOffset=physical_offsets[35])
    assert [[offset] for offset in physical_offsets[35:]] == [batch for batch in batches if batch]


def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """It reads only new records."""
    with CommitLogWriter(tmp_path / "commitlog", 2048) as writer:
        writer.append(Message())
        first, _ = stream(spark, tmp_path / "commitlog", tmp_path / "checkpoint")
        writer.append(Message(body=b"new"))
        second, _ = stream(spark, tmp_path / "commitlog", tmp_path / "checkpoint")
        physical_offsets = [record.physical_offset for record in writer.records]
    assert ([physical_offsets[:1]], [physical_offsets[1:]]) == (first, second)


def test_a_checkpoint_of_another_log_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The first record of the segment before the offset tells one log from another."""
    for name, timestamp in (("one", 1_700_000_000_000), ("two", 1_700_000_000_001)):
        write_log(tmp_path / name, (Message(store_timestamp=timestamp) for _ in range(10)), 2048)
    stream(spark, tmp_path / "one", tmp_path / "checkpoint")
    with pytest.raises(PySparkException, match="this is another store"):
        stream(spark, tmp_path / "two", tmp_path / "checkpoint")


def test_an_empty_log_gives_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A commitlog without a segment, and one whose only segment is zeros."""
    (tmp_path / "commitlog").mkdir()
    assert offsets(read(spark, tmp_path / "commitlog")) == []
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(2048))
    assert offsets(read(spark, tmp_path / "commitlog")) == []
    batches, _ = stream(spark, tmp_path / "commitlog", tmp_path / "checkpoint")
    assert [batch for batch in batches if batch] == []
