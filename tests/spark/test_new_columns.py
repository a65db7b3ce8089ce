"""Tables of earlier versions of reput get the columns that came later, and their rows stay beside new ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from support.delta_rows import rows
from support.kept_table import KeptTable

from reput.sinks.table.columns import COLUMN_COMMENTS, commented
from reput.sinks.table.data_file import DataFile
from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.forget import ForgetRequest, Forgetting
from reput.sinks.table.log import Snapshot, transaction_id
from reput.sinks.table.lookup import TableLookup
from reput.sinks.table.message_file import TABLE_SCHEMA, TableFileWriter
from reput.sinks.table.storage import table_storage
from reput.sinks.table.upkeep import TableUpkeep
from reput.source.errors import OutputError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.source.rows.message_schema import LATER_NAMES
from reput.streaming.output import table_rows
from reput.streaming.table.commands import message_table, optimize
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreVerification
from reput.streaming.verify.verify import verify_table

pytestmark = pytest.mark.spark

ALL = commented(TABLE_SCHEMA, COLUMN_COMMENTS)
OLD = StructType([field for field in ALL if field.name not in LATER_NAMES])
LATER = [field for field in ALL if field.name in LATER_NAMES]


class OldTable(KeptTable):
    """A table as an earlier version of reput made it, without the columns that came later."""

    def __init__(self, spark: SparkSession, root: Path, schema: StructType = OLD, broker: str = "b") -> None:
        super().__init__(spark, root, broker=broker)
        properties = {"delta.dataSkippingStatsColumns": "broker,topic,queue_id,queue_offset,physical_offset,store_time"}
        self.old = DeltaTable.open_or_create(self.path, schema, properties=properties)

    def fill_old(self, start: int, end: int) -> None:
        """Commit records `[start, end)`, by number, as that version did."""
        log = LogReader(SourceOptions.parse(self.config().source_options()))
        writer = TableFileWriter(table_storage(self.path), self.broker, 0, log.decode_options)
        files = []
        for span in log.split(self.offsets[start], self.offsets[end]):
            (row,) = writer.write(span).to_pylist()
            path = self.path / row["path"]
            pq.write_table(pq.read_table(path).drop_columns(list(LATER_NAMES)), path)
            status = os.stat(path)
            files.append(DataFile(row["path"], status.st_size, status.st_mtime_ns // 1_000_000, row["statistics_json"]))
        self.old.append(files, app_id=transaction_id(self.broker), version=self.offsets[end])

    def kinds(self) -> list[str | None]:
        """The column `kind`, in the order of the log."""
        return [row.kind for row in self.spark.sql(f"SELECT kind FROM {self.sql} ORDER BY physical_offset").collect()]


@pytest.fixture
def old(spark: SparkSession, tmp_path: Path) -> OldTable:
    table = OldTable(spark, tmp_path)
    table.fill_old(0, 20)
    return table


def schema_of(table: KeptTable) -> StructType:
    return table.spark.read.format("delta").load(str(table.path)).schema


def actions(table: KeptTable, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (table.path / f"_delta_log/{version:020d}.json").read_text().splitlines()]


def test_a_start_adds_the_columns(old: OldTable) -> None:
    """In one commit of metadata alone: at the end, each with its comment; old rows have null, new rows values."""
    before = old.old.version
    table = old.open()
    assert table.delta.version == before + 1
    assert [next(iter(action)) for action in actions(old, before + 1)] == ["commitInfo", "metaData"]
    assert schema_of(old).names == [*OLD.names, *(field.name for field in LATER)]
    comments = {row.col_name: row.comment for row in old.spark.sql(f"DESCRIBE {old.sql}").collect()}
    assert {name: comments[name] for name in LATER_NAMES} == {name: COLUMN_COMMENTS[name] for name in LATER_NAMES}
    assert old.history()[-1] == "ADD COLUMNS"
    old.fill(table, [40, 60])
    assert old.found() == old.expected()
    assert old.kinds() == [None] * 20 + ["normal"] * 40
    assert table.delta.version == before + 3
    assert len(deltalake.DeltaTable(str(old.path)).to_pyarrow_table()) == 60


def test_a_second_start_adds_nothing(old: OldTable) -> None:
    """Nor does a start with a table that was made with all columns."""
    version = old.open().delta.version
    assert old.open().delta.version == version


@pytest.mark.slow
def test_two_starts_at_once_add_them_once(old: OldTable) -> None:
    """The one that comes second finds them there, whenever it looked."""
    versions = []

    def first() -> None:
        versions.append(old.open().delta.version)

    second = DeltaTable(old.path, ALL, later=LATER_NAMES)
    commit = second._commit
    second._commit = lambda snapshot, change: (versions or first()) and commit(snapshot, change)  # type: ignore[method-assign]
    second._latest()
    second._add_new_columns()
    assert second.version == versions[0]
    assert old.history().count("ADD COLUMNS") == 1


def test_who_opened_it_before_goes_on(old: OldTable) -> None:
    """A reader, and an older reput, whose files lack the columns."""
    reader = old.spark.read.format("delta").load(str(old.path)).select("physical_offset", "topic")
    table = old.open()
    old.fill_old(20, 40)
    assert reader.count() == 40
    assert old.kinds() == [None] * 40
    assert table.delta.version == old.old.version


def differences(table: OldTable) -> int:
    """How many `reput verify --table` finds, between the rows and the log's messages."""
    table.out.mkdir(exist_ok=True)
    verification = StoreVerification(table.config(), table.out, sums=True)
    verification.run(SerialTasks())
    section = verify_table(table.path, table.broker, verification, SerialTasks(), lambda: table.spark)
    assert section.compared == {"rows": len(table.found()), "columns": len(schema_of(table).names)}
    return section.findings.differences


@pytest.mark.parametrize("by_spark", [False, True])
def test_readers_add_nothing(by_spark: bool, old: OldTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify takes the table as it is: the columns that are not there are no difference, and neither is null."""

    def only_spark_reads_it(_: Snapshot) -> None:
        raise OutputError(str(old.path))

    if by_spark:
        monkeypatch.setattr(table_rows, "check_readable", only_spark_reads_it)
    assert differences(old) == 0
    assert schema_of(old).names == OLD.names
    old.fill(old.open(), [40])
    assert differences(old) == 0


def test_commands_on_the_table_add_nothing(old: OldTable) -> None:
    """`optimize` and `forget` write files as the table has them; key filters have the keys of old rows, too."""
    for start in range(20, 40):
        old.fill_old(start, start + 1)
    report = optimize(old.path, None)
    assert (report.files_before, report.merges > 0, report.files_after < 5) == (22, True, True)
    done = Forgetting(message_table(old.path).opened(), ForgetRequest(keys=["k7"])).run()
    assert (done.rows, done.left.is_clean) == (1, True)
    assert schema_of(old).names == OLD.names
    found = [TableLookup(old.path).by_key(f"k{number}", max_num=5).rows for number in range(41)]
    assert [len(rows) for rows in found] == [int(number != 7 and number < 40) for number in range(41)]
    assert found[0][0]["keys"] == ["k0"]


def test_a_merge_of_old_and_new_files(old: OldTable) -> None:
    """Each row keeps what it has."""
    old.fill_old(20, 30)
    table = old.open()
    old.fill(table, range(31, 51))
    before = rows(old.path)
    assert TableUpkeep(table.delta, "b", 50).step(60).merges >= 1
    assert rows(old.path) == before
    assert old.kinds() == [None] * 30 + ["normal"] * 20
    assert [row["first_key"] for row in before] == [None] * 30 + [f"k{number}" for number in range(30, 50)]


@pytest.mark.slow
def test_rebuild_leaves_sound_old_rows(old: OldTable) -> None:
    """Without a range, log and rows are compared by what both have, and rows that agree stay with their nulls."""
    old.repair()
    assert old.found() == old.expected()
    assert old.kinds() == [None] * 20 + ["normal"] * 40
    assert differences(old) == 0


@pytest.mark.slow
def test_rebuild_of_a_range_fills_them(old: OldTable) -> None:
    """Rows that are made again have all columns; the rest of a file keeps what it had."""
    old.repair()
    old.repair(start=old.offsets[5], end=old.offsets[12])
    assert old.found() == old.expected()
    assert old.kinds() == [None] * 5 + ["normal"] * 7 + [None] * 8 + ["normal"] * 40
    assert old.history().count("ADD COLUMNS") == 1


@pytest.mark.slow
def test_a_clustered_table(spark: SparkSession, tmp_path: Path) -> None:
    """As the first versions of reput made them, with features that others switched on; it keeps all of them."""
    table = OldTable(spark, tmp_path)
    spark.sql(f"ALTER TABLE {table.sql} CLUSTER BY (topic, store_time)")
    features = {f"delta.enable{name}": "true" for name in ("InCommitTimestamps", "DeletionVectors", "RowTracking")}
    values = ", ".join(f"'{key}' = '{value}'" for key, value in features.items())
    spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ({values})")
    table.fill_old(0, 20)
    table.fill(table.open(), [60])
    assert table.kinds() == [None] * 20 + ["normal"] * 40
    detail = spark.sql(f"DESCRIBE DETAIL {table.sql}").first()
    assert detail is not None
    assert detail.clusteringColumns == ["topic", "store_time"]
    assert features.items() <= detail.properties.items()


@pytest.mark.parametrize(
    ("name", "kind"), [pytest.param("kind", "int", marks=pytest.mark.slow), ("Origin_Topic", "string")]
)
def test_a_column_of_others_with_that_name(old: OldTable, name: str, kind: str) -> None:
    """Nothing is written; the statements in the error rename the other column, and then everything continues."""
    old.spark.sql(f"ALTER TABLE {old.sql} ADD COLUMNS ({name} {kind})")
    version = old.old.version
    with pytest.raises(OutputError) as raised:
        old.open()
    assert f"the table has `{name}` {kind}, which others added" in str(raised.value)
    assert raised.value.advice is not None
    assert DeltaTable(old.path, OLD).version == version
    for statement in raised.value.advice.partition(": ")[2].split("; "):
        old.spark.sql(statement)
    old.fill(old.open(), [60])
    assert old.found() == old.expected()
    assert old.kinds() == [None] * 20 + ["normal"] * 40
    assert f"{name}_before" in schema_of(old).names


@pytest.mark.slow
def test_a_column_of_others_of_the_same_type(old: OldTable) -> None:
    """It is taken as it is, with the rows that it has."""
    old.spark.sql(f"ALTER TABLE {old.sql} ADD COLUMNS (kind string)")
    old.spark.sql(f"UPDATE {old.sql} SET kind = 'theirs' WHERE physical_offset = 0")
    old.fill(old.open(), [60])
    assert old.kinds() == ["theirs"] + [None] * 19 + ["normal"] * 40
    assert set(schema_of(old).names) == set(ALL.names)


def test_a_table_that_is_not_ours_gets_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Only a table with all the columns of before is one of reput's."""
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/table` (topic string, queue_id int) USING DELTA")
    table = KeptTable(spark, tmp_path)
    with pytest.raises(OutputError, match="with other columns"):
        table.open()
    assert schema_of(table).names == ["topic", "queue_id"]


@pytest.mark.slow
def test_a_restored_table_gets_them_again(old: OldTable) -> None:
    """RESTORE to a version before removes the columns, and their values come back with the columns."""
    version = old.old.version
    old.open()
    old.spark.sql(f"RESTORE TABLE {old.sql} TO VERSION AS OF {version}")
    table = old.open()
    assert set(schema_of(old).names) == set(ALL.names)
    old.fill(table, [60])
    assert old.kinds() == [None] * 20 + ["normal"] * 40


def test_bodies_when_they_are_asked_for(old: OldTable) -> None:
    """The columns come when the option is switched on; switched off again, new rows have null."""
    old.fill(old.open(), [30])
    assert "body" not in schema_of(old).names
    table = old.open("tableIncludeBody=true", "tableBodyBytesMax=3")
    assert schema_of(old).names[-2:] == ["body", "body_bytes"]
    old.fill(table, [45])
    old.fill(old.open(), [60])
    found = rows(old.path)
    assert [row["body"] for row in found[:30] + found[45:]] == [None] * 45
    assert [row["body"] for row in found[30:45]] == [
        None if row["body_size"] > 3 else "x" * row["body_size"] for row in found[30:45]
    ]
    assert old.history().count("ADD COLUMNS") == 2
    assert old.found() == old.expected()


@pytest.mark.slow
def test_a_new_table_with_bodies(spark: SparkSession, tmp_path: Path) -> None:
    """It has the columns from its beginning, with their comments; merges and repairs keep what is in them."""
    kept = KeptTable(spark, tmp_path)
    option = "tableIncludeBody=true"
    table = kept.open(option)
    assert table.delta.version == 0
    kept.fill(table, range(1, 21))
    assert TableUpkeep(table.delta, "b", 50).step(60).merges == 1
    kept.repair(option, start=kept.offsets[5], end=kept.offsets[9])
    assert [row["body"] for row in rows(kept.path)[:20]] == ["x" * (number % 5) for number in range(20)]
    comments = {row.col_name: row.comment for row in spark.sql(f"DESCRIBE {kept.sql}").collect()}
    assert comments["body"] == COLUMN_COMMENTS["body"]
