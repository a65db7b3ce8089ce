"""A tail's table, read by Spark, deltalake, DuckDB and Polars; and their writes to it beside a running tail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from spark.test_table_repair import VACUUM, settings
from support.kept_table import KeptTable
from support.other_writer import in_the_moment_of_a_commit
from support.record_writer import Message, write_log
from support.tail_runs import run_tail

from reput.sinks.table.upkeep import TableUpkeep
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreVerification
from reput.streaming.verify.verify import verify_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]

HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000
ODD_TOPIC = 'it\'s 50% "odd"\\ 订单 😀'
TOPICS = ("plain", ODD_TOPIC, "a.b-c_d", "%RETRY%group")
COUNT = 120


def message(number: int) -> Message:
    """One of four topics; every ninth has no properties, every eleventh a store time that no timestamp can be."""
    properties = {
        "KEYS": f"k{number} ä'{number % 3} 100%",
        "UNIQ_KEY": f"U{number:04d}",
        "TAGS": "a=b,c",
        "é": "\\ \" '",
    }
    return Message(
        TOPICS[number % len(TOPICS)],
        number % 3,
        body=b"x" * (number % 7),
        properties={} if number % 9 == 8 else properties,
        store_timestamp=2**62 if number % 11 == 10 else BEGIN_MS + number * HOUR_MS // 4,
    )


@dataclass(frozen=True)
class Question:
    """A filter: rows of a topic in an hour, or the row of a unique key."""

    topic: str
    begin: datetime
    uniq_key: str

    @property
    def end(self) -> datetime:
        return self.begin + timedelta(hours=1)


QUESTION = Question(ODD_TOPIC, datetime.fromtimestamp((BEGIN_MS + 10 * HOUR_MS) / 1000, timezone.utc), "U0041")


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three brokers' rows, in files that their tails merged, and a few that they did not."""
    root = tmp_path_factory.mktemp("readers")
    for number, broker in enumerate(("a", "b'ä", "c")):
        records = write_log(root / f"store{number}" / "commitlog", map(message, range(COUNT)), 1 << 16)
        size = records[-1].physical_offset // (12 if number == 1 else 3)
        options = (
            f"broker={broker}",
            f"tableMaxBytesPerTrigger={size}",
            "consumeQueueEnable=false",
            "messageIndexEnable=false",
        )
        run_tail(spark, root / f"store{number}", root / f"out{number}", *options, table=root / "table")
    names = [Path(uri).name for uri in deltalake.DeltaTable(str(root / "table")).file_uris()]
    assert {name.partition("-")[0] for name in names} == {"part", "merged"}
    return root / "table"


def by_spark(spark: SparkSession, path: Path, question: Question) -> list[pa.Table]:
    rows = spark.read.format("delta").load(str(path))
    hour = (sf.col("store_time") >= question.begin) & (sf.col("store_time") < question.end)
    found = rows.where((sf.col("topic") == question.topic) & hour), rows.where(sf.col("uniq_key") == question.uniq_key)
    return [rows.toArrow(), *(each.toArrow() for each in found)]


def by_deltalake(spark: SparkSession, path: Path, question: Question) -> list[pa.Table]:
    table = deltalake.DeltaTable(str(path))
    hour = [("store_time", ">=", question.begin), ("store_time", "<", question.end)]
    filters: list[Any] = [None, [("topic", "=", question.topic), *hour], [("uniq_key", "=", question.uniq_key)]]
    return [table.to_pyarrow_table(filters=each) for each in filters]


def by_dataset(spark: SparkSession, path: Path, question: Question) -> list[pa.Table]:
    dataset = deltalake.DeltaTable(str(path)).to_pyarrow_dataset()
    hour = (ds.field("store_time") >= question.begin) & (ds.field("store_time") < question.end)
    filters = (None, (ds.field("topic") == question.topic) & hour, ds.field("uniq_key") == question.uniq_key)
    return [dataset.to_table(filter=each) for each in filters]


def by_duckdb(spark: SparkSession, path: Path, question: Question) -> list[pa.Table]:
    with duckdb.connect() as connection:
        connection.register("messages", deltalake.DeltaTable(str(path)).to_pyarrow_dataset())
        return asked(connection, question)


def asked(connection: duckdb.DuckDBPyConnection, question: Question) -> list[pa.Table]:
    """The answers from a table or view `messages` of DuckDB."""
    hour = "topic = ? AND store_time >= ? AND store_time < ?"
    parameters: list[list[Any]] = [[], [question.topic, question.begin, question.end], [question.uniq_key]]
    queries = [f"SELECT * FROM messages WHERE {where}" for where in ("true", hour, "uniq_key = ?")]
    return [
        connection.sql(query, params=values).to_arrow_table() for query, values in zip(queries, parameters, strict=True)
    ]


def by_polars(spark: SparkSession, path: Path, question: Question) -> list[pa.Table]:
    rows = pl.scan_delta(str(path))
    hour = (pl.col("store_time") >= question.begin) & (pl.col("store_time") < question.end)
    found = (
        rows.filter((pl.col("topic") == question.topic) & hour),
        rows.filter(pl.col("uniq_key") == question.uniq_key),
    )
    return [each.collect().to_arrow() for each in (rows, *found)]


def by_sql_of_deltalake(spark: SparkSession, path: Path, question: Question) -> list[pa.Table]:
    tables = deltalake.QueryBuilder().register("messages", deltalake.DeltaTable(str(path)))
    topic = question.topic.replace("'", "''")
    begin, end = question.begin.isoformat(), question.end.isoformat()
    hour = f"topic = '{topic}' AND store_time >= '{begin}' AND store_time < '{end}'"
    wheres = ("true", hour, f"uniq_key = '{question.uniq_key}'")
    return [pa.table(tables.execute(f"SELECT * FROM messages WHERE {where}").read_all()) for where in wheres]


READERS: list[Callable[[SparkSession, Path, Question], list[pa.Table]]] = [
    by_deltalake,
    by_dataset,
    by_sql_of_deltalake,
    by_duckdb,
    by_polars,
]


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows in order, as Python has them; a map is its pairs, which some readers give as structures."""
    found = rows.to_pylist()
    for row in found:
        pairs = row["properties"]
        if isinstance(pairs, dict):
            pairs = list(pairs.items())
        row["properties"] = pairs and [
            tuple(each.values()) if isinstance(each, dict) else tuple(each) for each in pairs
        ]
    return sorted(found, key=lambda row: (row["broker"], row["physical_offset"]))


@pytest.fixture(scope="module")
def as_spark_reads(spark: SparkSession, table: Path) -> list[list[dict[str, Any]]]:
    return [plain(rows) for rows in by_spark(spark, table, QUESTION)]


def test_spark(as_spark_reads: list[list[dict[str, Any]]]) -> None:
    """Against the messages that were written."""
    rows, hour, key = as_spark_reads
    assert len(rows) == 3 * COUNT
    for number, row in enumerate(rows[:COUNT]):
        written = message(number)
        properties = dict(written.properties)
        assert (row["topic"], row["uniq_key"]) == (written.topic, properties.get("UNIQ_KEY"))
        assert row["keys"] == properties.get("KEYS", "").split()
        assert dict(row["properties"]) == properties
        assert (row["store_time"] is None) == (number % 11 == 10)
    wanted = [n for n in range(40, 44) if message(n).topic == ODD_TOPIC]
    assert [row["queue_id"] for row in hour] == [n % 3 for n in wanted] * 3
    assert [row["uniq_key"] for row in key] == ["U0041"] * 3


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_others_read_the_same(
    reader: Callable[[SparkSession, Path, Question], list[pa.Table]],
    spark: SparkSession,
    table: Path,
    as_spark_reads: list[list[dict[str, Any]]],
) -> None:
    """All rows with all columns, lists and maps among them, those of a topic and an hour, and those of a unique key."""
    for found, expected in zip(reader(spark, table, QUESTION), as_spark_reads, strict=True):
        assert found.column_names == list(expected[0])
        assert plain(found) == expected


@pytest.mark.slow
def test_duckdb_with_its_own_extension(table: Path, tmp_path: Path, as_spark_reads: list[list[dict[str, Any]]]) -> None:
    """`delta_scan`, if DuckDB can fetch the extension: the package does not have it."""
    with duckdb.connect(config={"extension_directory": str(tmp_path)}) as connection:
        try:
            connection.install_extension("delta")
        except (duckdb.IOException, duckdb.HTTPException) as error:
            pytest.skip(f"DuckDB cannot fetch its extension, so delta_scan is not tried: {str(error).splitlines()[0]}")
        connection.load_extension("delta")
        connection.execute(f"CREATE VIEW messages AS SELECT * FROM delta_scan('{table}')")
        found = asked(connection, QUESTION)
    assert [plain(rows) for rows in found] == as_spark_reads


def vacuum_of_deltalake(kept: KeptTable) -> None:
    deltalake.DeltaTable(str(kept.path)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def vacuum_of_spark(kept: KeptTable) -> None:
    with settings(kept.spark, **VACUUM):
        kept.spark.sql(f"VACUUM {kept.sql} RETAIN 0 HOURS")


def z_order(kept: KeptTable) -> None:
    deltalake.DeltaTable(str(kept.path)).optimize.z_order(["topic", "store_time"])


OTHERS: dict[str, Callable[[KeptTable], object]] = {
    "deltalake compact": lambda kept: deltalake.DeltaTable(str(kept.path)).optimize.compact(),
    "deltalake z_order": z_order,
    "deltalake vacuum": lambda kept: deltalake.DeltaTable(str(kept.path)).vacuum(dry_run=False, full=True),
    "deltalake vacuum of everything": vacuum_of_deltalake,
    "Spark OPTIMIZE": lambda kept: kept.spark.sql(f"OPTIMIZE {kept.sql}"),
    "Spark ZORDER": lambda kept: kept.spark.sql(f"OPTIMIZE {kept.sql} ZORDER BY (topic, store_time)"),
    "Spark VACUUM": lambda kept: kept.spark.sql(f"VACUUM {kept.sql}"),
    "Spark VACUUM of everything": vacuum_of_spark,
    "Spark DELETE": lambda kept: kept.spark.sql(f"DELETE FROM {kept.sql} WHERE physical_offset = {kept.offsets[3]}"),
    "deltalake delete": lambda kept: deltalake.DeltaTable(str(kept.path)).delete(
        f"physical_offset = {kept.offsets[3]}"
    ),
}
AT_ONCE = {"deltalake compact", "Spark DELETE"}
# They take away what no version names yet, so Delta's own rules forbid them beside any writer.
ONLY_BETWEEN = {"deltalake vacuum of everything", "Spark VACUUM of everything"}


@pytest.mark.parametrize(
    "other", [each if each in AT_ONCE else pytest.param(each, marks=pytest.mark.slow) for each in OTHERS]
)
def test_others_beside_a_running_tail(other: str, spark: SparkSession, tmp_path: Path) -> None:
    """Between its commits, and in the moment of one: rows = messages, each once, but for those that a DELETE took."""
    kept = KeptTable(spark, tmp_path)
    table = kept.open()
    upkeep = TableUpkeep(table.delta, "b", 50)
    kept.fill(table, range(2, 21, 2))
    OTHERS[other](kept)
    kept.fill(table, [22, 24])
    if other not in ONLY_BETWEEN:
        with in_the_moment_of_a_commit(lambda: OTHERS[other](kept)):
            kept.fill(table, [26])
    kept.fill(table, range(28, 46, 2))
    upkeep.step(60.0)
    OTHERS[other](kept)
    kept.fill(kept.open(), [50, 60])
    deleted = [kept.offsets[3]] * ("delete" in other.lower())
    assert kept.found() == [offset for offset in kept.expected() if offset not in deleted]
    verification = StoreVerification(kept.config(), kept.out, sums=True)
    verification.run(SerialTasks())
    findings = verify_table(kept.path, "b", verification, SerialTasks(), lambda: spark).findings
    assert [(each.kind, each.physical_offset) for each in findings.first] == [("row_missing", at) for at in deleted]
