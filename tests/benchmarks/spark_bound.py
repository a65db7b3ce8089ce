"""The speed of Spark itself: rows of a reput table from Parquet into a new Delta table with the DataFrame writer.

    python -m benchmarks.spark_bound --table DIR --target DIR

reads the Parquet files of `--table` (one core each task, `local[2]`) and prints JSON: rows, and median seconds with
Delta's default statistics and with those on reput's columns only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from reput.sinks.table.message_file import STATISTICS_COLUMNS
from reput.streaming.spark.session import start_session

STATISTICS = "spark.databricks.delta.properties.defaults.dataSkippingStatsColumns"


def write_seconds(spark: SparkSession, rows: DataFrame, target: Path, statistics_on: str | None) -> float:
    """Seconds of one write into a table that is not there yet."""
    shutil.rmtree(target, ignore_errors=True)
    if statistics_on is None:
        spark.conf.unset(STATISTICS)
    else:
        spark.conf.set(STATISTICS, statistics_on)
    began = time.monotonic()
    rows.write.format("delta").save(str(target))
    return time.monotonic() - began


def main() -> None:
    """Write a part to warm up, then all of it, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    files = [str(path) for path in given.table.rglob("*.parquet") if "_delta_log" not in path.parts]
    spark = start_session("bound", master="local[2]", driver_memory="4g", log_file=given.target.with_suffix(".log"))
    kinds = {"on every column": None, "on reput's columns": ",".join(STATISTICS_COLUMNS)}
    try:
        rows = spark.read.parquet(*files)
        count = rows.count()
        for statistics_on in kinds.values():
            write_seconds(spark, rows.limit(count // 10 + 1), given.target, statistics_on)
        found: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(given.rounds):
            for name, statistics_on in kinds.items():
                found[name].append(write_seconds(spark, rows, given.target, statistics_on))
    finally:
        spark.stop()
        shutil.rmtree(given.target, ignore_errors=True)
    seconds = {name: statistics.median(times) for name, times in found.items()}
    print(json.dumps({"rows": count, "seconds": seconds, "all_seconds": found}))


if __name__ == "__main__":
    main()
