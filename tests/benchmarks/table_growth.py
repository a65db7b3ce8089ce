"""A message table over many small commits: how long commits, snapshots and questions take when there are more.

    PYTHONPATH=tests python -m benchmarks.table_growth --work .work/growth --docs docs --commits 20000

Each commit has a hundred messages, stored ten seconds after those of the commit before, and is followed by the upkeep
that `reput tail` gives it. All of it happens a hundred times as fast as in service, so what is kept by time (removed
files are kept for an hour in the log, for a quarter of an hour on disk) is kept by a hundredth of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import machine, plots
from benchmarks.shapes import SHAPES, made_log
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.table import cleaning
from reput.sinks.table.delta_table import table_name
from reput.sinks.table.lookup import TableLookup
from reput.sinks.table.message_file import TABLE_FILE_SCHEMA, TableFileWriter
from reput.sinks.table.message_table import MessageTable, TableBatch
from reput.sinks.table.upkeep import TableUpkeep
from reput.source.log.log_reader import LogReader
from reput.source.log.offset_range import OffsetRange
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import load_config
from reput.streaming.spark.session import JAVA_OPTIONS, NO_OPTIMIZER, start_session

MESSAGES_A_COMMIT = 100
COMMIT_US = 10_000_000
BROKER = "b"
FASTER = 100
UPKEEP_SECONDS = 5.0
ROUNDS = 3


@dataclass(frozen=True)
class Point:
    """The measurements after a number of commits; times in milliseconds, of questions the best of three."""

    commits: int
    commit_ms: float
    upkeep_ms: float
    spark_snapshot_ms: float
    deltalake_snapshot_ms: float
    count_ms: float
    key_ms: float
    data_files: int
    files_on_disk: int
    log_files: int
    table_bytes: int


def best_of(question: Callable[[], object]) -> float:
    """Milliseconds of the quickest of some rounds."""
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        question()
        took.append(time.perf_counter() - began)
    return min(took) * 1000


class Growth:
    """A table that grows by small commits."""

    def __init__(self, spark: SparkSession, work: Path, commits: int) -> None:
        shape = replace(
            SHAPES["day"], messages=commits * MESSAGES_A_COMMIT, us_a_message=COMMIT_US // MESSAGES_A_COMMIT
        )
        self.spark = spark
        log = made_log(work, "growth", shape)
        config = load_config(log.store, overrides=["tailGuardMs=0"])
        self.log = LogReader(SourceOptions.parse(config.source_options()))
        self.table = MessageTable(work / "table", BROKER, DurableFiles(work / "out"))
        self.table.recover(0)
        name = table_name(self.table.path)
        retention = f"interval {3600 // FASTER} seconds"
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = '{retention}')")
        self.upkeep = TableUpkeep(self.table.delta, BROKER, 1000)
        self.writer = TableFileWriter(self.table.delta.storage, BROKER, 0, self.log.decode_options)

    def ranges(self) -> Iterator[OffsetRange]:
        """The log, a commit's messages at a time."""
        start, end = 0, self.log.end(0)
        while start < end:
            until = self.log.limit(start, end, None, MESSAGES_A_COMMIT)
            yield from self.log.split(start, until)
            start = until

    def commit(self, span: OffsetRange) -> tuple[float, float]:
        """One commit and its upkeep; the seconds of either."""
        row = self.writer.write(span).to_pylist()[0]
        began = time.perf_counter()
        self.table.commit(TableBatch.merge(pa.Table.from_pylist([row], TABLE_FILE_SCHEMA)))
        committed = time.perf_counter()
        self.upkeep.step(UPKEEP_SECONDS)
        return committed - began, time.perf_counter() - committed

    def point(self, commits: int, took: list[tuple[float, float]]) -> Point:
        """Measure the present table; `took` are the seconds of the last commits and of their upkeep."""
        path, name = self.table.path, table_name(self.table.path)
        delta_log: Any = self.spark._jvm.org.apache.spark.sql.delta.DeltaLog
        key = self.spark.sql(f"SELECT uniq_key FROM {name} ORDER BY physical_offset LIMIT 1").first()
        assert key is not None

        def spark_snapshot() -> None:
            # Delta reads a checkpoint in this thread, which has no session of its own.
            self.spark._jvm.SparkSession.setActiveSession(self.spark._jsparkSession)
            delta_log.clearCache()
            delta_log.forTableWithSnapshot(self.spark._jsparkSession, str(path))._2().allFiles().count()

        def key_rows() -> None:
            assert len(TableLookup(path).by_unique_key(key[0], max_num=2).rows) == 1

        on_disk = list(path.glob("*.parquet"))
        return Point(
            commits,
            statistics.median(commit for commit, _ in took) * 1000,
            statistics.mean(upkeep for _, upkeep in took) * 1000,
            best_of(spark_snapshot),
            best_of(lambda: deltalake.DeltaTable(str(path)).file_uris()),
            best_of(lambda: self.spark.sql(f"SELECT count(*), max(queue_id) FROM {name}").collect()),
            best_of(key_rows),
            len(deltalake.DeltaTable(str(path)).file_uris()),
            len(on_disk),
            len(list((path / "_delta_log").iterdir())),
            sum(file.stat().st_size for file in on_disk),
        )


def measure(work: Path, commits: int, every: int) -> list[Point]:
    """Measure points at a distance in commits."""
    cleaning.READ_FOR_S = cleaning.READ_FOR_S // FASTER
    settings = {JAVA_OPTIONS: NO_OPTIMIZER}
    spark = start_session(
        "growth", master="local[2]", driver_memory="2g", log_file=work / "spark.log", settings=settings
    )
    growth, points, took = Growth(spark, work, commits), [], []
    for number, span in enumerate(growth.ranges(), 1):
        took.append(growth.commit(span))
        if number % every == 0:
            points.append(growth.point(number, took[-every:]))
            print(json.dumps(asdict(points[-1])), flush=True)
    spark.stop()
    return points


def main() -> None:
    """Measure, and write the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=1000)
    given = parser.parse_args()
    given.work.mkdir(parents=True)
    points = measure(given.work, given.commits, given.every)
    if given.docs is not None:
        facts = {"machine": machine.facts(given.work), "points": [asdict(point) for point in points]}
        (given.docs / "benchmarks" / "table-growth.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        draw(points, given.docs / "benchmarks" / "table-growth.png")


def draw(points: list[Point], image: Path) -> None:
    """Draw how long everything took over the commits."""
    names = {
        "spark_snapshot_ms": "snapshot, Spark",
        "count_ms": "count(*), Spark",
        "commit_ms": "commit",
        "upkeep_ms": "upkeep after a commit",
        "key_ms": "look-up by key",
        "deltalake_snapshot_ms": "snapshot, deltalake",
    }
    lines = {text: [(point.commits, getattr(point, name)) for point in points] for name, text in names.items()}
    title, labels = "A message table over its commits", ("commits", "milliseconds")
    plots.curves(lines, image, title, labels, logarithmic="y")


if __name__ == "__main__":
    main()
