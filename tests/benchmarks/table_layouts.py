"""One message table in four layouts: the cost of keeping each, the bytes that questions must read, and its readers.

    PYTHONPATH=tests python -m benchmarks.table_layouts --work .work/layouts --docs docs --messages 3000000

A log of 100 topics over five days is loaded by `reput tail` in small commits that are not tidied. Each layout begins
with these files and is made by the program that keeps it: reput's own upkeep, or Spark's OPTIMIZE. Data files are
shared by hard links, so the four take the disk of four tables at most.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from support.reput_tail import reput_tail

from benchmarks import layouts_page, machine
from benchmarks.make_log import STORE_TIMESTAMP_START
from benchmarks.shapes import SHAPES, MadeLog, made_log
from benchmarks.table_questions import Question, ask_deltalake, ask_spark, best_of, questions, reading
from reput.sinks.table.columns import COLUMN_COMMENTS, commented
from reput.sinks.table.data_file import TARGET_BYTES, TARGET_ROWS
from reput.sinks.table.delta_table import DeltaTable, table_name
from reput.sinks.table.message_file import TABLE_SCHEMA
from reput.sinks.table.upkeep import TableUpkeep
from reput.streaming.spark.session import JAVA_OPTIONS, NO_OPTIMIZER, start_session

DAYS = 5
BROKER = "b"
COMMITS_MAX = 300
MESSAGES_A_COMMIT = 10_000
CLUSTERED_BY = "(topic, store_time)"
SETTINGS = {
    JAVA_OPTIONS: NO_OPTIMIZER,
    # As large as reput's own files, and compressed in the same way.
    "spark.databricks.delta.optimize.maxFileSize": str(TARGET_BYTES),
    "spark.databricks.delta.optimize.minFileSize": str(TARGET_BYTES // 2),
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.files.maxRecordsPerFile": str(TARGET_ROWS),
}


@dataclass(frozen=True)
class Layout:
    """How a table is laid out: `make` brings the table at a path there; `oldest_day` is the filter of a retention."""

    name: str
    make: Callable[[SparkSession, Path], None]
    oldest_day: Callable[[datetime], str]


def own(spark: SparkSession, root: Path) -> None:
    """Reput's own upkeep, until nothing is left to be done."""
    schema = commented(TABLE_SCHEMA, COLUMN_COMMENTS)
    upkeep = TableUpkeep(DeltaTable.open_or_create(root, schema, properties={}), BROKER, 1000)
    while upkeep.step(3600.0).merges:
        pass


def by_day(spark: SparkSession, root: Path) -> None:
    """A column `day` that the table is partitioned by."""
    rows = spark.read.format("delta").load(str(root)).withColumn("day", sf.to_date("store_time"))
    placed = rows.repartition("day").sortWithinPartitions("day", "topic", "physical_offset")
    made = root.with_name(f"{root.name}-made")
    writer = placed.write.format("delta").partitionBy("day")
    writer.option("delta.dataSkippingStatsColumns", _statistics(root)).save(str(made))
    shutil.rmtree(root)
    made.rename(root)


def clustered(spark: SparkSession, root: Path) -> None:
    """Liquid clustering."""
    spark.sql(f"ALTER TABLE {table_name(root)} CLUSTER BY {CLUSTERED_BY}")
    spark.sql(f"OPTIMIZE {table_name(root)} FULL")


def z_ordered(spark: SparkSession, root: Path) -> None:
    """Z-order, which is not a feature of the table."""
    spark.sql(f"OPTIMIZE {table_name(root)} ZORDER BY {CLUSTERED_BY}")


def before(day: datetime) -> str:
    """The rows before a day, by their time."""
    return f"store_time < TIMESTAMP '{day:%Y-%m-%d} 00:00:00'"


LAYOUTS = [
    Layout("reput's own", own, before),
    Layout("partitioned by day", by_day, lambda day: f"day < DATE '{day:%Y-%m-%d}'"),
    Layout("liquid clustering", clustered, before),
    Layout("Z-order", z_ordered, before),
]


def _statistics(root: Path) -> str:
    return str(deltalake.DeltaTable(str(root)).metadata().configuration["delta.dataSkippingStatsColumns"])


def loaded(work: Path, log: MadeLog) -> Path:
    """The table that `reput tail` leaves in small commits."""
    table = work / "loaded"
    commits = max(1, min(COMMITS_MAX, log.messages // MESSAGES_A_COMMIT))
    size = log.size_bytes // commits
    settings = ("consumeQueueEnable=false", "messageIndexEnable=false", "tableUpkeep=false", f"broker={BROKER}")
    words = [*settings, f"tableMaxBytesPerTrigger={size}", f"tableMaxBytesPerPartition={size}"]
    options = [word for setting in words for word in ("--option", setting)]
    reput_tail(log.store, log.store / "broker.conf", work / "out", "--table", str(table), *options)
    return table


def linked(source: Path, target: Path) -> Path:
    """Copy a table: its log is copied; its data files, which do not change, are linked."""

    def copy(file: str, to: str) -> None:
        (shutil.copy2 if "_delta_log" in file else os.link)(file, to)

    shutil.copytree(source, target, copy_function=copy)
    return target


def asked(spark: SparkSession, root: Path, wanted: list[Question]) -> list[dict[str, Any]]:
    """Measure how much each question reads and takes; both readers must find as many rows."""
    found = []
    for question in wanted:
        spark_s, rows = best_of(lambda question=question: ask_spark(spark, root, question))  # type: ignore[misc]
        deltalake_s, same = best_of(lambda question=question: ask_deltalake(root, question))  # type: ignore[misc]
        assert rows == same > 0, (question.name, rows, same)
        found.append(
            {"question": question.name, "rows": rows, "spark_s": spark_s, "deltalake_s": deltalake_s}
            | asdict(reading(root, question))
        )
    return found


def dropped(spark: SparkSession, root: Path, where: str) -> dict[str, Any]:
    """A retention: what the DELETE of the oldest day did."""
    began = time.perf_counter()
    spark.sql(f"DELETE FROM {table_name(root)} WHERE {where}")
    seconds = time.perf_counter() - began
    last = spark.sql(f"DESCRIBE HISTORY {table_name(root)} LIMIT 1").first()
    assert last is not None
    assert last.operation == "DELETE"
    names = {"removed": "numRemovedFiles", "written": "numAddedFiles", "bytes_written": "numAddedBytes"}
    metrics = {name: int(last.operationMetrics.get(metric, 0)) for name, metric in names.items()}
    return metrics | {"seconds": seconds}


def users(spark: SparkSession, root: Path) -> dict[str, str]:
    """Who can read and write the table, tried one after the other: "yes", or what it says."""
    rows = spark.read.format("delta").load(str(root)).count()
    one = deltalake.DeltaTable(str(root)).to_pyarrow_dataset().head(1)

    def by_duckdb() -> None:
        with duckdb.connect() as connection:
            connection.register("messages", deltalake.DeltaTable(str(root)).to_pyarrow_dataset())
            assert connection.sql("SELECT count(*) FROM messages").fetchall() == [(rows,)]

    def by_polars() -> None:
        assert pl.scan_delta(str(root)).select(pl.len()).collect().item() == rows

    def by_deltalake() -> None:
        assert deltalake.DeltaTable(str(root)).to_pyarrow_dataset().count_rows() == rows

    def by_compact() -> None:
        deltalake.DeltaTable(str(root)).optimize.compact()

    def by_reput() -> None:
        table = DeltaTable.open_or_create(root, commented(TABLE_SCHEMA, COLUMN_COMMENTS), properties={})
        table.append([], app_id="benchmark", version=1)

    tried = {
        "deltalake reads": by_deltalake,
        "DuckDB reads (deltalake's dataset)": by_duckdb,
        "Polars reads": by_polars,
        "reput writes": by_reput,
        "deltalake appends": lambda: deltalake.write_deltalake(str(root), one, mode="append"),
        "deltalake compacts": by_compact,
    }
    return {name: _outcome(use).replace(str(root), root.name) for name, use in tried.items()}


def _outcome(use: Callable[[], object]) -> str:
    try:
        use()
    except Exception as error:  # noqa: BLE001  what it says is the result
        return f"no: {str(error).splitlines()[0]}"
    return "yes"


def measured(
    spark: SparkSession, work: Path, base: Path, layout: Layout, messages: int, wanted: list[Question], day: datetime
) -> dict[str, Any]:
    """Everything about one layout."""
    root = linked(base, work / layout.name.replace(" ", "-").replace("'", ""))
    known = {path.name for path in root.rglob("*.parquet")}
    began = time.perf_counter()
    layout.make(spark, root)
    seconds = time.perf_counter() - began
    written = [path for path in root.rglob("*.parquet") if path.name not in known and "_delta_log" not in path.parts]
    table = deltalake.DeltaTable(str(root))
    sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    protocol = table.protocol()
    features = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    found = {
        "layout": layout.name,
        "upkeep_s_a_million": seconds / messages * 1e6,
        "upkeep_bytes_a_million": sum(path.stat().st_size for path in written) / messages * 1e6,
        "files": len(sizes),
        "bytes_a_message": sum(sizes) / messages,
        "questions": asked(spark, root, wanted),
        "oldest_day": dropped(spark, root, layout.oldest_day(day)),
        "protocol": f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}",
        "features": features,
        "users": users(spark, root),
    }
    print(json.dumps(found), flush=True)
    return found


def measure(work: Path, messages: int) -> dict[str, Any]:
    """All layouts of one table."""
    shape = replace(SHAPES["day"], messages=messages, us_a_message=DAYS * 86_400_000_000 // messages)
    log = made_log(work, "layouts", shape)
    base = loaded(work, log)
    spark = start_session(
        "layouts", master="local[2]", driver_memory="4g", log_file=work / "spark.log", settings=SETTINGS
    )
    begin = datetime.fromtimestamp(STORE_TIMESTAMP_START / 1000, timezone.utc)
    middle = (begin + timedelta(days=DAYS / 2)).replace(minute=0, second=0, microsecond=0)
    day = middle.replace(hour=0)
    rows = spark.read.format("delta").load(str(base)).where(sf.col("store_time") >= middle)
    one = rows.orderBy("physical_offset").select("topic", "keys", "uniq_key").first()
    assert one is not None
    wanted = questions(one.topic, middle, day, one["keys"][0], one.uniq_key, tuple(rows.columns))
    oldest = (begin + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    found = [measured(spark, work, base, layout, messages, wanted, oldest) for layout in LAYOUTS]
    spark.stop()
    return {
        "machine": machine.facts(work),
        "messages": messages,
        "days": DAYS,
        "loaded_files": len(deltalake.DeltaTable(str(base)).file_uris()),
        "versions": {"deltalake": deltalake.__version__, "duckdb": duckdb.__version__, "polars": pl.__version__},
        "layouts": found,
    }


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--messages", type=int, default=3_000_000)
    given = parser.parse_args()
    given.work.mkdir(parents=True)
    facts = measure(given.work.resolve(), given.messages)
    if given.docs is not None:
        path = given.docs / "benchmarks" / "table-layouts.json"
        path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        (given.docs / "table-layouts.md").write_text(layouts_page.page(facts), encoding="utf-8")


if __name__ == "__main__":
    main()
