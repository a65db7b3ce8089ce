from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from delta.tables import DeltaTable as SparksTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from support.other_writer import in_the_moment_of_a_commit
from support.small_disk import mounted

from reput.sinks.table.columns import COLUMN_COMMENTS, commented
from reput.sinks.table.data_file import DataFile
from reput.sinks.table.delta_table import DeltaTable, TransactionAlreadyCommittedError
from reput.sinks.table.log import commit_file
from reput.sinks.table.message_file import table_schema
from reput.sinks.table.storage import LocalStorage
from reput.source.errors import OutputAwayError, OutputError, OutputFullError, SinkError

pytestmark = pytest.mark.spark

Open = Callable[..., DeltaTable]
APP = "store-1/table"
SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("store_time", TimestampType()),
        StructField("physical_offset", LongType(), nullable=False),
        StructField("queue_id", IntegerType()),
        StructField("keys", ArrayType(StringType())),
        StructField("properties", MapType(StringType(), StringType())),
    ]
)
START = datetime(2026, 11, 21, tzinfo=timezone.utc)
WRITE_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["topic"],
    "write_statistics": ["topic", "store_time", "physical_offset"],
    "write_page_index": True,
    "store_schema": False,
    "row_group_size": 1 << 20,
}


def messages(first: int, count: int = 10, topic: str = "orders") -> pa.Table:
    offsets = range(first, first + count)
    return pa.table(
        {
            # Not in the table's order: columns are found by name.
            "physical_offset": pa.array(offsets, pa.int64()),
            "queue_id": pa.array([None if o % 3 == 0 else o % 4 for o in offsets], pa.int32()),
            "topic": pa.array([topic] * count, pa.string()),
            "store_time": pa.array(
                [START + timedelta(microseconds=1001 * o) for o in offsets], pa.timestamp("us", "UTC")
            ),
            "keys": pa.array([None if o % 5 == 0 else [f"k{o}", None] for o in offsets], pa.list_(pa.string())),
            "properties": pa.array(
                [None if o % 7 == 0 else [("TAGS", "a"), ("none", None)] for o in offsets],
                pa.map_(pa.string(), pa.string()),
            ),
        }
    )


def stamp(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def statistics(rows: pa.Table) -> str:
    low, high = {}, {}
    for name in ("topic", "store_time", "physical_offset"):
        ends = pc.min_max(rows[name]).as_py()
        low[name], high[name] = (stamp(v) if isinstance(v, datetime) else v for v in (ends["min"], ends["max"]))
    nulls = {name: rows[name].null_count for name in low}
    return json.dumps({"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def written(table: DeltaTable, name: str, rows: pa.Table) -> DataFile:
    path = table.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **WRITE_OPTIONS)
    status = path.stat()
    return DataFile(name, status.st_size, status.st_mtime_ns // 1_000_000, statistics(rows))


def quoted(path: Path) -> str:
    return "delta.`" + str(path).replace("`", "``") + "`"


def selected(spark: SparkSession, table: DeltaTable, where: str = "true") -> DataFrame:
    return spark.sql(f"SELECT * FROM {quoted(table.path)} WHERE {where}")


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted(frame.toArrow().to_pylist(), key=lambda row: row["physical_offset"])


def expected(*parts: pa.Table) -> list[dict[str, Any]]:
    rows = pa.concat_tables(parts).select(SCHEMA.names).to_pylist()
    return sorted(rows, key=lambda row: row["physical_offset"])


def files_read(frame: DataFrame) -> int:
    frame.collect()
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(scan.metrics().apply("numFiles").value())


def without_spark(table: DeltaTable) -> tuple[int, list[dict[str, Any]]]:
    """The last version and the rows, where it does not matter who reads them."""
    found = deltalake.DeltaTable(str(table.path))
    return found.version(), sorted(found.to_pyarrow_table().to_pylist(), key=lambda row: row["physical_offset"])


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    def open_(path: Path = tmp_path / "messages", schema: StructType = SCHEMA, **properties: str) -> DeltaTable:
        return DeltaTable.open_or_create(path, schema, properties=properties, comment="it's a 'test'")

    return open_


@pytest.mark.usefixtures("compiled")
def test_rows_are_read_as_written_right_after_each_append(spark: SparkSession, opened: Open) -> None:
    table = opened()
    parts: list[pa.Table] = []
    for part in range(3):
        parts.append(messages(part * 100))
        assert table.append([written(table, f"{part}.parquet", parts[-1])], app_id=APP, version=part) == part + 1
        assert rows_of(selected(spark, table)) == expected(*parts)
    assert table.last_transaction_version(APP) == 2
    assert table.last_transaction_version("another") is None


def test_table_has_comments_properties_and_schema(spark: SparkSession, opened: Open) -> None:
    """And asks no more of its readers and writers than the first Delta tables did."""
    told = StructType([StructField(f.name, f.dataType, f.nullable, {"comment": f"{f.name}'s"}) for f in SCHEMA])
    table = opened(schema=told, **{"delta.appendOnly": "true", "it's": "a\\b'c"})
    detail = spark.sql(f"DESCRIBE DETAIL {quoted(table.path)}").first()
    assert (detail["minReaderVersion"], detail["minWriterVersion"], detail["clusteringColumns"]) == (1, 2, [])
    assert detail["description"] == "it's a 'test'"
    assert {f.name: f.metadata["comment"] for f in selected(spark, table).schema} == {
        f.name: f"{f.name}'s" for f in SCHEMA
    }
    assert detail["properties"] == {"delta.appendOnly": "true", "it's": "a\\b'c"}
    assert selected(spark, table).schema == told
    assert opened(table.path, StructType(SCHEMA.fields[::-1])).append([], app_id=APP, version=1) == 1


@pytest.mark.usefixtures("compiled")
def test_filters_outside_the_statistics_read_no_file(spark: SparkSession, opened: Open) -> None:
    table = opened()
    files = [written(table, f"{first}.parquet", messages(first, topic=f"t{first}")) for first in (0, 100, 200)]
    table.append(files, app_id=APP, version=1)
    for where, count in (
        ("physical_offset > 209", 0),
        ("physical_offset BETWEEN 50 AND 99", 0),
        ("physical_offset = 105", 1),
        ("physical_offset >= 100", 2),
        ("topic = 't200'", 1),
        ("topic = 'u'", 0),
        ("store_time < TIMESTAMP '2026-11-21 00:00:00.05'", 1),
        ("store_time > TIMESTAMP '2026-11-22 00:00:00'", 0),
    ):
        assert files_read(selected(spark, table, where)) == count, where


@pytest.mark.usefixtures("compiled")
def test_bounds_rounded_as_delta_wants_hide_no_row(spark: SparkSession, opened: Open) -> None:
    table = opened()
    long = "z" * 40
    rows = messages(999, 1, topic=long)  # 999 ms and 999 us: the maximum is rounded down below it
    bounds = json.loads(statistics(rows))
    assert bounds["maxValues"]["store_time"] == "2026-11-21T00:00:00.999Z"
    bounds["minValues"]["topic"], bounds["maxValues"]["topic"] = long[:32], long[:32] + "\x7f"
    file = replace(written(table, "0.parquet", rows), statistics_json=json.dumps(bounds))
    table.append([file], app_id=APP, version=1)
    assert rows_of(selected(spark, table, "store_time > TIMESTAMP '2026-11-21 00:00:00.9995'")) == expected(rows)
    assert rows_of(selected(spark, table, f"topic = '{long}'")) == expected(rows)


def test_a_repeated_or_lower_version_is_refused(opened: Open) -> None:
    table = opened()
    rows = messages(0)
    table.append([written(table, "0.parquet", rows)], app_id=APP, version=7)
    again = written(table, "again.parquet", messages(100))
    for other, version in itertools.product((table, opened()), (7, 6, 0)):
        with pytest.raises(TransactionAlreadyCommittedError, match=rf"transaction {version} .* now at 7") as raised:
            other.append([again], app_id=APP, version=version)
        assert raised.value.file == str(table.path)
    assert (without_spark(table), table.last_transaction_version(APP)) == ((1, expected(rows)), 7)
    assert table.append([again], app_id=APP, version=2**62) == 2
    assert table.last_transaction_version(APP) == 2**62


def test_files_are_durable_before_they_are_committed(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks only write them; a commit that names a file which a power failure takes away makes a table unreadable."""
    table = opened()
    seen: list[tuple[str, bool]] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        is_committed = (table.path / "_delta_log" / f"{1:020d}.json").exists()
        seen.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, is_committed))
        real(descriptor)

    files = [
        written(table, name, messages(100 * number)) for number, name in enumerate(("a.parquet", "below/b.parquet"))
    ]
    monkeypatch.setattr(os, "fsync", note)
    table.append(files, app_id=APP, version=1)
    before = [name for name, is_committed in seen if not is_committed]
    assert {"a.parquet", "b.parquet"} == set(before[:2])
    assert {"below", table.path.name} <= set(before[2:])
    monkeypatch.setattr(os, "fsync", lambda _descriptor: os.close(-1))
    with pytest.raises(OutputError, match=r"cannot sync .*c\.parquet: Bad file descriptor"):
        table.append([written(table, "c.parquet", messages(200))], app_id=APP, version=2)
    assert table.last_transaction_version(APP) == 1


def test_a_commit_reads_none_of_those_before_it(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of others are read once, and so are all behind the checkpoint that a start finds."""
    read, default = 0, LocalStorage.read

    def counted(storage: LocalStorage, name: str) -> bytes:
        nonlocal read
        read += name.endswith(".json")
        return default(storage, name)

    def append(table: DeltaTable, number: int, app_id: str = APP) -> int:
        nonlocal read
        read = 0
        table.append([written(table, f"{number}.parquet", messages(100 * number))], app_id=app_id, version=number)
        return read

    table = opened()
    monkeypatch.setattr(LocalStorage, "read", counted)
    assert [append(table, number) for number in range(9)] == [0] * 9
    merged = written(table, "merged.parquet", pa.concat_tables([messages(100), messages(200)]))
    assert table.rewrite(["1.parquet", "2.parquet"], [merged])
    assert [append(table, number) for number in range(9, 12)] == [0] * 3
    other = opened()
    append(other, 12, "another")
    assert [append(table, number) for number in range(13, 15)] == [1, 0]


def test_an_append_without_files_moves_the_version(opened: Open) -> None:
    table = opened()
    assert [table.append([], app_id=APP, version=version) for version in (10, 11)] == [1, 2]
    assert opened().last_transaction_version(APP) == 11
    assert without_spark(table) == (2, [])


def test_the_data_frame_writer_sees_the_same_transactions(spark: SparkSession, opened: Open) -> None:
    table = opened()
    table.append([written(table, "0.parquet", messages(0))], app_id=APP, version=100)
    rows = spark.createDataFrame([("orders", None, 500, 0, None, None)], SCHEMA.simpleString())
    writer = rows.write.format("delta").mode("append").option("txnAppId", APP)
    writer.option("txnVersion", 100).save(str(table.path))
    assert selected(spark, table).count() == 10
    writer.option("txnVersion", 101).save(str(table.path))
    assert selected(spark, table).count() == 11
    with pytest.raises(TransactionAlreadyCommittedError, match="now at 101"):
        table.append([], app_id=APP, version=101)
    assert table.append([], app_id=APP, version=102) == 3


@pytest.mark.usefixtures("compiled")
def test_optimize_compacts_and_keeps_the_rows(spark: SparkSession, opened: Open) -> None:
    table = opened(**{"delta.appendOnly": "true"})
    parts = [messages(first, topic=f"t{first % 20}") for first in range(0, 60, 10)]
    for number, part in enumerate(parts):
        table.append([written(table, f"{number}.parquet", part)], app_id=APP, version=number)
    metrics = spark.sql(f"OPTIMIZE {quoted(table.path)}").first()["metrics"]
    assert (metrics["numFilesAdded"], metrics["numFilesRemoved"]) == (1, 6)
    assert rows_of(selected(spark, table)) == expected(*parts)
    assert files_read(selected(spark, table, "physical_offset > 1000")) == 0

    parts.append(messages(100))
    assert table.append([written(table, "later.parquet", parts[-1])], app_id=APP, version=50) == 8
    assert rows_of(selected(spark, table)) == expected(*parts)
    history = spark.sql(f"DESCRIBE HISTORY {quoted(table.path)}").collect()
    assert [row["operation"] for row in history] == ["WRITE", "OPTIMIZE", *["WRITE"] * 6, "CREATE TABLE"]
    assert "reput/" in history[0]["engineInfo"]


def test_the_history_tells_what_was_dispatched(spark: SparkSession, opened: Open) -> None:
    table = opened()
    first, second = (written(table, f"{number}.parquet", messages(100 * number)) for number in range(2))
    table.append([first, second], app_id=APP, version=500, note={"broker": "ä\n", "start": 0, "end": 500})
    table.append([], app_id=APP, version=501)
    last, before = spark.sql(f"DESCRIBE HISTORY {quoted(table.path)}").collect()[:2]
    assert json.loads(before["userMetadata"]) == {
        "broker": "ä\n",
        "start": 0,
        "end": 500,
        "transaction": [APP, 500],
    }
    assert before["operationMetrics"] == {
        "numFiles": "2",
        "numOutputRows": "20",
        "numOutputBytes": str(first.size_bytes + second.size_bytes),
    }
    assert (before["operationParameters"], before["isBlindAppend"]) == ({"mode": "Append"}, True)
    assert json.loads(last["userMetadata"]) == {"transaction": [APP, 501]}
    assert last["operationMetrics"]["numFiles"] == "0"


def test_many_commits_leave_checkpoints_and_stay_readable(spark: SparkSession, opened: Open) -> None:
    table = opened()
    parts = [messages(first, 2) for first in range(0, 250, 10)]
    for number, part in enumerate(parts):
        table.append([written(table, f"{number}.parquet", part)], app_id=APP, version=number)
    log = table.path / "_delta_log"
    assert sorted(path.name[:20] for path in log.glob("*.checkpoint*.parquet")) == [f"{10:020d}", f"{20:020d}"]
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 20
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert rows_of(selected(spark, table)) == expected(*parts)
    assert opened().last_transaction_version(APP) == 24


def test_a_checkpoint_removes_what_the_retention_no_longer_keeps(opened: Open) -> None:
    short = {"delta.logRetentionDuration": "interval 1 hours", "delta.checkpointInterval": "5"}
    table = opened(**short, **{"delta.deletedFileRetentionDuration": "interval 1 hours"})
    rows = messages(0)
    table.append([written(table, "0.parquet", rows)], app_id=APP, version=1)
    for version in range(2, 10):
        table.append([], app_id=APP, version=version)
    log = table.path / "_delta_log"
    for path in log.glob("0*"):
        os.utime(path, (0, 0))
    assert table.append([], app_id=APP, version=10) == 10
    assert min(log.glob("*.json")).name == f"{10:020d}.json"
    assert table.append([], app_id=APP, version=11) == 11
    assert without_spark(table) == (11, expected(rows))


def test_a_failed_checkpoint_is_told_and_the_commit_stands(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    table = opened(**{"delta.checkpointInterval": "2"})
    (table.path / "_delta_log" / "_last_checkpoint" / "in the way").mkdir(parents=True)
    rows = [messages(0), messages(10)]
    with caplog.at_level(logging.WARNING, logger="reput.sinks.table.delta_table"):
        for number, part in enumerate(rows):
            table.append([written(table, f"{number}.parquet", part)], app_id=APP, version=number)
    assert ["version 2 is committed, but its CHECKPOINT failed" in text for text in caplog.messages] == [True]
    assert without_spark(table) == (2, expected(*rows))
    assert opened().last_transaction_version(APP) == 1


@pytest.mark.parametrize("name", ["with space", "back`tick", "größe 消息", "per%20cent", "q'uo\"te\\"])
def test_any_path_can_hold_a_table(spark: SparkSession, opened: Open, tmp_path: Path, name: str) -> None:
    encoding = spark._jvm.java.lang.System.getProperty("sun.jnu.encoding")
    if not name.isascii() and encoding != "UTF-8":
        pytest.skip(f"this JVM names files in {encoding}")
    parts = [messages(0), messages(10)]
    for version, part in enumerate(parts):
        table = opened(tmp_path / name / "table")
        table.append([written(table, f"{name}/{version}.parquet", part)], app_id=APP, version=version)
    assert rows_of(selected(spark, table)) == expected(*parts)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_new_table_is_as_sparks_own(spark: SparkSession, tmp_path: Path) -> None:
    """For readers and writers; the schema has a list, a map, times and comments."""
    schema, properties = commented(table_schema(include_body=True), COLUMN_COMMENTS), {"delta.checkpointInterval": "50"}
    DeltaTable.open_or_create(tmp_path / "ours", schema, properties=properties, comment='it\'s a "test"')
    theirs = SparksTable.create(spark).location(str(tmp_path / "theirs")).comment('it\'s a "test"')
    for field in schema:
        comment = field.metadata["comment"]
        theirs = theirs.addColumn(field.name, field.dataType.simpleString(), nullable=True, comment=comment)
    theirs.property("delta.checkpointInterval", "50").execute()

    def lasting(name: str) -> list[Any]:
        actions = [json.loads(line) for line in (tmp_path / name / commit_file(0)).read_text().splitlines()]
        found = [action for action in actions if "commitInfo" not in action]
        for action in found:
            for key in ("id", "createdTime"):
                action.get("metaData", {}).pop(key, None)
        return sorted(found, key=str)

    assert lasting("ours") == lasting("theirs")


def test_foreign_files_are_refused_and_left_alone(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "mine.txt").write_text("mine")
    (tmp_path / "torn" / "_delta_log").mkdir(parents=True)
    (tmp_path / "torn" / "_delta_log" / "_last_checkpoint").write_text("{}")
    (tmp_path / "staged" / "_delta_log" / "_staged_commits").mkdir(parents=True)
    (tmp_path / "staged" / "_delta_log" / "_staged_commits" / "0.json").write_text("{}")
    (tmp_path / "no-log").mkdir()
    (tmp_path / "no-log" / "_delta_log").write_text("mine")
    with pytest.raises(OutputError, match=r"messages is not a Delta table, it holds mine\.txt; give an empty or"):
        opened()
    with pytest.raises(OutputError, match="file is not a Delta table, it holds a file; give an empty or missing"):
        opened(tmp_path / "file")
    for name in ("torn", "staged", "no-log"):
        with pytest.raises(OutputError, match=f"{name} is not a Delta table, it holds _delta_log; give an empty or"):
            opened(tmp_path / name)
    with pytest.raises(OutputError, match="cannot create a Delta table"):
        opened(tmp_path / "file" / "below")
    with pytest.raises(OutputError, match="Spark would replace"):
        opened(tmp_path / "${spark.app.name}")
    there = {"file", "messages", "mine.txt", "torn", "_delta_log", "_last_checkpoint"}
    there |= {"staged", "_staged_commits", "0.json", "no-log"}
    assert {path.name for path in tmp_path.rglob("*")} == there


@pytest.mark.parametrize("left", [(), (f".{0:020d}.json.reput-0.tmp",)])
def test_a_creation_that_was_killed_is_made_again(opened: Open, tmp_path: Path, left: tuple[str, ...]) -> None:
    """The directory of the log exists, perhaps with a part of the commit."""
    log = tmp_path / "messages" / "_delta_log"
    log.mkdir(parents=True)
    for name in left:
        (log / name).write_text('{"commitInfo":')
    table = opened()
    assert without_spark(table) == (table.version, []) == (0, [])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([*SCHEMA.fields, StructField("tags", StringType())], r"lacking \['`tags` string'\], not wanted \[\]"),
        (
            [*SCHEMA.fields[:2], StructField("physical_offset", IntegerType()), *SCHEMA.fields[3:]],
            r"lacking \['`physical_offset` int'\], not wanted \['`physical_offset` bigint NOT NULL'\]",
        ),
    ],
)
def test_a_table_with_another_schema_is_refused(opened: Open, fields: list[StructField], message: str) -> None:
    path = opened().path
    with pytest.raises(OutputError, match=message) as refused:
        opened(schema=StructType(fields))
    assert str(path) in str(refused.value)


def test_an_altered_or_partitioned_table_is_refused(spark: SparkSession, opened: Open, tmp_path: Path) -> None:
    table = opened()
    table.append([], app_id=APP, version=1)
    spark.sql(f"ALTER TABLE {quoted(table.path)} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    undo = rf"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
    with pytest.raises(OutputError, match="columns mapped by name") as refused:
        table.append([], app_id=APP, version=2)
    assert undo in str(refused.value)
    spark.sql(undo)
    assert table.append([], app_id=APP, version=2) == 4
    spark.sql(f"ALTER TABLE {quoted(table.path)} ADD CONSTRAINT even CHECK (physical_offset % 2 = 0)")
    with pytest.raises(OutputError, match="a constraint on its rows") as refused:
        table.append([], app_id=APP, version=3)
    spark.sql(f"ALTER TABLE {quoted(table.path)} DROP CONSTRAINT `even`")
    assert f"ALTER TABLE {quoted(table.path)} DROP CONSTRAINT `even`" in str(refused.value)
    assert table.append([], app_id=APP, version=3) == 7
    empty = spark.createDataFrame([], SCHEMA)
    empty.write.format("delta").partitionBy("topic").save(str(tmp_path / "partitioned"))
    with pytest.raises(OutputError, match="partition column topic"):
        opened(tmp_path / "partitioned")


def test_what_others_turn_on_is_followed(spark: SparkSession, opened: Open) -> None:
    """Deletion vectors, clustering, a further column: rows are added as before, and readers see them all."""
    table, parts = opened(), [messages(0), messages(100), messages(200), messages(300)]
    table.append([written(table, "0.parquet", parts[0])], app_id=APP, version=0)
    spark.sql(f"ALTER TABLE {quoted(table.path)} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {quoted(table.path)} WHERE physical_offset = 5")
    table.append([written(table, "1.parquet", parts[1])], app_id=APP, version=1)
    spark.sql(f"ALTER TABLE {quoted(table.path)} CLUSTER BY (topic)")
    table.append([written(table, "2.parquet", parts[2])], app_id=APP, version=2)
    spark.sql(f"ALTER TABLE {quoted(table.path)} ADD COLUMNS (note string)")
    table.append([written(table, "3.parquet", parts[3])], app_id=APP, version=3)
    found = rows_of(selected(spark, table).drop("note"))
    assert found == [row for row in expected(*parts) if row["physical_offset"] != 5]
    assert selected(spark, table, "note IS NULL").count() == 39


def test_a_commit_never_takes_the_place_of_anothers(opened: Open, tmp_path: Path) -> None:
    """Another writer commits between the look at the log and the commit: it is made again after that one."""
    table, other = opened(), opened()
    table.append([], app_id=APP, version=1)
    rows, theirs = messages(0), messages(100)

    def another() -> None:
        other.append([written(other, "theirs.parquet", theirs)], app_id="another", version=1)

    checked: list[int] = []
    with in_the_moment_of_a_commit(another):
        file = written(table, "ours.parquet", rows)
        assert table.append([file], app_id=APP, version=2, check=checked.append) == 3
    assert checked == [1, 2]
    assert without_spark(table) == (3, expected(rows, theirs))
    assert not list((table.path / "_delta_log").glob(".*.tmp*"))


def test_a_bad_file_is_refused_and_nothing_written(opened: Open) -> None:
    table = opened()
    good = written(table, "0.parquet", messages(0))
    for bad, message in (
        ([good, good], "named twice"),
        ([replace(good, path="missing.parquet")], "No such file"),
        ([replace(good, size_bytes=1)], "bytes, not 1"),
        ([replace(good, path="../0.parquet")], "not the path of a data file"),
        ([replace(good, path=str(table.path / "0.parquet"))], "not the path of a data file"),
        ([replace(good, path="./0.parquet")], "not the path of a data file"),
        ([replace(good, statistics_json="{")], "not Delta's statistics"),
        ([replace(good, statistics_json="{}")], "not Delta's statistics"),
        ([replace(good, statistics_json=good.statistics_json.replace("000Z", "000+00:00"))], "as timestamp"),
    ):
        with pytest.raises(SinkError, match=message):
            table.append(bad, app_id=APP, version=1)
    assert without_spark(table) == (0, [])
    assert table.append([good], app_id=APP, version=1) == 1


def test_a_full_disk_is_a_reason_that_may_pass(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java's file system says it in words of its own; with room the same commit succeeds."""
    with mounted(tmp_path / "disk", size="8m") as disk:
        table = opened(disk / "messages")
        files = [written(table, "0.parquet", messages(0))]
        with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(4096))
        for write in (lambda: table.append(files, app_id=APP, version=1), lambda: opened(disk / "other")):
            with pytest.raises(OutputFullError, match=f"{disk}/.*: .*No space left on device"):
                write()
        (disk / "filler").unlink()
        assert table.append(files, app_id=APP, version=1) == 1
        assert without_spark(table) == (1, expected(messages(0)))


def test_commits_of_other_writers_are_seen(opened: Open) -> None:
    one, other = opened(), opened()
    assert one.append([], app_id=APP, version=1) == 1
    assert other.append([], app_id="another", version=1) == 2
    assert one.append([], app_id=APP, version=2) == 3
    with pytest.raises(TransactionAlreadyCommittedError):
        other.append([], app_id=APP, version=2)
    assert other.last_transaction_version(APP) == 2


def test_a_table_removed_under_it_is_not_continued(opened: Open) -> None:
    table = opened()
    for version in range(3):
        table.append([], app_id=APP, version=version)
    shutil.rmtree(table.path)
    with pytest.raises(OutputError, match="there is no Delta table any more"):
        table.append([], app_id=APP, version=3)
    assert not table.path.exists()
    opened()
    assert table.append([], app_id=APP, version=3) == 1


def test_append_inside_foreach_batch(spark: SparkSession, opened: Open, tmp_path: Path) -> None:
    table = opened()

    def sink(batch: DataFrame, batch_id: int) -> None:
        first = batch_id * 100
        file = written(table, f"{batch_id}.parquet", messages(first, batch.count()))
        table.append([file], app_id=APP, version=first)

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("a\nb\n")
    lines = spark.readStream.format("text").load(str(tmp_path / "in"))
    writer = lines.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    for text in ("", "c\n"):
        (tmp_path / "in" / f"{text.strip()}more.txt").write_text(text)
        writer.trigger(availableNow=True).start().awaitTermination()
    assert rows_of(selected(spark, table)) == expected(messages(0, 2), messages(100, 1))


def test_a_table_that_is_away_is_not_made_anew(tmp_path: Path) -> None:
    """Neither at the next opening nor by a file of its own: the place may be a mount point."""
    path = tmp_path / "away"
    with pytest.raises(OutputAwayError, match="there is no Delta table any more"):
        DeltaTable.open_or_create(path, SCHEMA, properties={}, must_exist=True)
    assert not path.exists()
    table = DeltaTable.open_or_create(path, SCHEMA, properties={})
    path.rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(OutputAwayError, match="there is no Delta table any more"):
            table.storage.put("part-0.parquet", b"data", durable=False)
        with pytest.raises(OutputAwayError, match="there is no Delta table any more"), table.storage.new("part-1"):
            pass
        with pytest.raises(OutputAwayError, match="there is no Delta table any more"):
            table.last_transaction_version(APP)
        path.mkdir(exist_ok=True)
        assert list(path.iterdir()) == []
    path.rmdir()
    (tmp_path / "elsewhere").rename(path)
    assert DeltaTable.open_or_create(path, SCHEMA, properties={}, must_exist=True).version == 0
