"""A backup through the Spark source, and as the log of a table that is rebuilt: the rows are its store's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.backups import OPTIONS, GrowingStore
from support.command_line import run_reput
from support.delta_rows import rows
from support.sink_runner import no_fsync

from pyspark_rocketmq_commitlog import DefaultSource
from reput.sinks.backup.backup_source import BackupDataSource
from reput.source.data_source import NAME, CommitLogDataSource
from reput.streaming.backup.opened import open_backup
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.rebuild.pipeline import RebuildProgress
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import Rebuild
from reput.streaming.tasks.tasks import SparkTasks

pytestmark = pytest.mark.spark


@pytest.fixture
def growing(tmp_path: Path) -> GrowingStore:
    growing = GrowingStore(tmp_path, seed=7)
    with no_fsync():
        growing.grow(5)
    return growing


def test_batch_and_stream(spark: SparkSession, growing: GrowingStore, tmp_path: Path) -> None:
    """All rows with bodies; a stream that is started again continues to the end of the newest restore point."""
    backup = str(growing.root / "backup")
    assert type(DefaultSource({"path": backup})) is BackupDataSource
    options = {"includeBody": "true", "maxBytesPerPartition": "700", "tailGuardMs": "0"}
    spark.dataSource.register(CommitLogDataSource)
    expected = sorted(map(str, spark.read.format(NAME).options(**options).load(str(growing.store)).collect()))
    spark.dataSource.register(BackupDataSource)
    try:
        found = spark.read.format(NAME).options(**options).load(backup).collect()
        assert sorted(map(str, found)) == expected
        earlier = spark.read.format(NAME).options(**options).load(f"{backup}/points/0000000002.json").count()
        assert 0 < earlier < len(expected)
        for _ in range(2):
            stream = spark.readStream.format(NAME).options(**options).load(backup)
            writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            writer.trigger(availableNow=True).start(str(tmp_path / "rows"), "parquet").awaitTermination()
            found = spark.read.parquet(str(tmp_path / "rows")).collect()
            assert sorted(row["physical_offset"] for row in found) == [
                record.physical_offset for record in growing.log.records
            ]
            with no_fsync():
                growing.grow(1)
    finally:
        spark.dataSource.register(CommitLogDataSource)


def test_a_table(spark: SparkSession, growing: GrowingStore, tmp_path: Path) -> None:
    """Spark's tasks read the backup; the rows are those that the store gives."""

    def load(store: Path, more: object = ()) -> PipelineConfig:
        return load_config(store, overrides=OPTIONS)

    of_backup = open_backup(growing.root / "backup", OPTIONS, None, load)
    tables = []
    for config in (load(growing.store), replace(of_backup, broker=load(growing.store).broker)):
        tables.append(tmp_path / f"table{len(tables)}")
        output = tmp_path / f"out{len(tables)}"
        request = RebuildRequest(output, tables[-1], only="table")
        with no_fsync(), Rebuild(config, request, RebuildProgress()) as job:
            job.run(SparkTasks(spark), lambda: spark)
    assert rows(tables[1]) == rows(tables[0])
    assert len(rows(tables[1])) == len(growing.log.records)
    # A question reads the offsets of consumers in a backup as in the store; about files it is refused.
    ask = ["--table", str(tables[1]), *(word for option in OPTIONS for word in ("-o", option)), "--format", "csv"]
    backup = str(growing.root / "backup")
    words = ["ask", "unconsumed", *ask, "--group", "group"]
    answer = run_reput([*words, "--store", str(growing.store)]).stdout
    assert run_reput([*words, "--store", backup]).stdout == answer
    done = run_reput(["ask", "half-open", *ask, "--store", backup], code=2)
    assert f"which a backup does not tell; 'reput restore --from {backup} --to DIR' makes a store of it" in done.stderr
