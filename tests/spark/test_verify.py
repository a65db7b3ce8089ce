"""`reput verify` on Spark: the same findings as in one process, and the message table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from support.sink_runner import dispatch_store, no_fsync
from support.tail_runs import run_tail

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.table.message_table import MessageTable
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.tasks.tasks import SerialTasks, SparkTasks
from reput.streaming.verify.store_verification import StoreSection, StoreVerification
from reput.streaming.verify.verify import verify_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]

Unpack = Callable[[str], BrokerStore]


def config_of(store: BrokerStore) -> PipelineConfig:
    overrides = ["tailGuardMs=0", "maxBytesPerPartition=300k"]
    return load_config(store.root, broker_conf=store.broker_conf, overrides=overrides)


def seen(sections: list[StoreSection]) -> list[object]:
    return [(section.name, section.compared, section.findings.as_dict()) for section in sections]


def test_as_in_one_process(spark: SparkSession, broker_store: Unpack, tmp_path: Path) -> None:
    """Several ranges, with a changed byte in a queue and one in the index."""
    store = broker_store("v4-tx-delay-retry")
    config = config_of(store)
    with no_fsync():
        dispatch_store(config, tmp_path)
    for directory in ("consumequeue/TxTopic/2", "index"):
        file = min((tmp_path / directory).iterdir())
        data = bytearray(file.read_bytes())
        data[7] ^= 1
        file.write_bytes(data)
    local, remote = (StoreVerification(config, tmp_path, sums=True) for _ in range(2))
    expected = local.run(SerialTasks())
    assert sum(section.findings.differences for section in expected) == 2
    assert seen(remote.run(SparkTasks(spark))) == seen(expected)
    assert remote.results == local.results
    assert len(remote.results) > 3


@pytest.mark.parametrize("by_spark", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_table(by_spark: bool, spark: SparkSession, broker_store: Unpack, tmp_path: Path) -> None:
    """A sound one, and one with rows twice, missing, changed, and without a record; the same by either reader."""
    # To deltalake the one name means another directory.
    store, table = broker_store("v4-tx-delay-retry"), tmp_path / ("per%20cent" if by_spark else "table")
    only_table = ("consumeQueueEnable=false", "messageIndexEnable=false")
    run_tail(spark, store.root, tmp_path / "out", *only_table, table=table, conf=store.broker_conf)
    config = config_of(store)
    verification = StoreVerification(config, store.root, sums=True)
    verification.run(SerialTasks())
    started: list[SparkSession] = []

    def start() -> SparkSession:
        started.append(spark)
        return spark

    def section_of_table() -> StoreSection:
        started.clear()
        return verify_table(table, config.broker.name, verification, SerialTasks(), start)

    section = section_of_table()
    assert bool(started) == by_spark
    assert section.findings.as_dict() == {"counts": {}, "differences": [], "notes": {}}
    assert section.compared == {"rows": store.facts["totalMessages"], "columns": 35}
    rows = spark.read.format("delta").load(str(table)).select("physical_offset").orderBy("physical_offset").collect()
    twice, missing, crc, time, moved = (rows[at][0] for at in (0, 500, 1000, 1500, -1))
    name = f"delta.`{table}`"
    spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE physical_offset = {twice}")
    spark.sql(f"DELETE FROM {name} WHERE physical_offset = {missing}")
    spark.sql(
        f"UPDATE {name} SET body_crc = body_crc + cast(physical_offset = {crc} AS int), store_time = CASE WHEN "
        f"physical_offset = {time} THEN store_time + INTERVAL 1 MILLISECOND ELSE store_time END, "
        f"physical_offset = physical_offset + 3 * cast(physical_offset = {moved} AS int) "
        f"WHERE physical_offset IN ({crc}, {time}, {moved})"
    )
    section = section_of_table()
    assert bool(started) == by_spark
    found = {(difference.kind, difference.physical_offset) for difference in section.findings.first}
    assert found == {
        ("row_twice", twice),
        ("row_missing", missing),
        ("row_changed", crc),
        ("row_changed", time),
        ("row_missing", moved),
        ("row_without_record", moved + 3),
    }
    assert section.findings.differences == len(found)


def test_a_table_whose_first_batch_is_not_committed(spark: SparkSession, broker_store: Unpack, tmp_path: Path) -> None:
    """Nothing is missed yet. All is without the record of that start, and where there is a row all the same."""
    store = broker_store("v4-tx-delay-retry")
    config, files = config_of(store), DurableFiles(tmp_path)
    table = MessageTable(tmp_path / "table", config.broker.name, files, log_begin=0)
    table.recover(0)
    with no_fsync():
        dispatch_store(config, tmp_path)

    def notes_and_differences() -> tuple[dict[str, int], int]:
        verification = StoreVerification(config, tmp_path, sums=True)
        verification.run(SerialTasks())
        found = verify_table(table.path, config.broker.name, verification, SerialTasks(), lambda: spark).findings
        return dict(found.notes), found.differences

    end = StoreVerification(config, tmp_path, sums=True).log_end
    assert notes_and_differences() == ({"not_dispatched_yet": end}, 0)
    record = tmp_path / "reput" / "progress" / f"{table.name}.json"
    kept = record.read_bytes()
    record.unlink()
    assert notes_and_differences() == ({}, store.facts["totalMessages"])
    record.write_bytes(kept)
    spark.sql(f"INSERT INTO delta.`{table.path}` (broker, physical_offset) VALUES ('{config.broker.name}', {end + 1})")
    assert notes_and_differences() == (
        {"rows_behind_the_end": 1, "rows_of_an_earlier_version": 1},
        store.facts["totalMessages"],
    )
