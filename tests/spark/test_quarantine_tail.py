"""A tail over a damaged store: the other records' files, one row a damaged range, in whatever batches, once."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from support.delta_rows import rows
from support.logs import end_of, put_bytes
from support.record_writer import Message, write_log
from support.tail_runs import run_tail

from reput.sinks.quarantine import load_quarantine
from reput.source.data_source import CommitLogDataSource
from reput.source.errors import CorruptRecordError
from reput.streaming.process.failures import failure_of

pytestmark = [pytest.mark.spark, pytest.mark.long]


def entries(store: Path) -> Counter[tuple[str, bytes]]:
    """Every queue entry with its queue."""
    found: Counter[tuple[str, bytes]] = Counter()
    for path in sorted((store / "consumequeue").glob("*/*/*")):
        data = path.read_bytes()
        units = (data[at : at + 20] for at in range(0, len(data), 20))
        queue = f"{path.parts[-3]}-{path.parts[-2]}"
        found.update((queue, unit) for unit in units if unit.strip(b"\0"))
    return found


def test_a_damaged_store_of_a_real_broker(
    spark: SparkSession, broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    """Three damaged records: the broker's entries but theirs, a row each, in the table too, and a replay adds none."""
    sound = broker_store("v4-plain")
    store, table, out = tmp_path / "store", tmp_path / "messages", tmp_path / "out"
    shutil.copytree(sound.root, store)
    units = sorted(
        (int.from_bytes(unit[:8], "big"), queue, unit) for queue, unit in entries(store) if queue.startswith("Topic")
    )
    # Far from each other, in segments that are complete.
    lost = [units[len(units) * part // 5] for part in (1, 2, 3)]
    segments = sorted((store / "commitlog").iterdir())
    size = segments[0].stat().st_size
    for (at, _, _), damage in zip(lost, ((4, b"\x55"), (0, bytes(8)), (28, b"\x55" * 60)), strict=True):
        put_bytes(store / "commitlog" / f"{at - at % size:020d}", at % size + damage[0], damage[1])
    options = ["maxBytesPerTrigger=3m", "maxBytesPerPartition=900k", "tableMaxBytesPerTrigger=5m"]
    with pytest.raises(Exception) as raised:
        run_tail(spark, store, tmp_path / "stopped", *options, conf=sound.broker_conf)
    error = failure_of(raised.value)
    assert isinstance(error, CorruptRecordError)
    assert f"no good record at offset {lost[0][0]} " in error.cause
    assert "onDamage=quarantine" in (error.advice or "")
    assert (error.file, error.physical_offset) == (
        str(store / "commitlog" / f"{lost[0][0] - lost[0][0] % size:020d}"),
        lost[0][0],
    )

    options.append("onDamage=quarantine")
    reporter = run_tail(spark, store, out, *options, table=table, conf=sound.broker_conf)
    assert entries(out) == entries(sound.root) - Counter((queue, unit) for _, queue, unit in lost)
    lines = load_quarantine(out)
    wanted = [(at, int.from_bytes(unit[8:12], "big")) for at, _, unit in lost]
    assert [(line.physical_offset, line.length) for line in lines] == wanted
    assert [line.cause for line in lines] == ["BAD_MAGIC", "EMPTY", "BAD_PHYSICAL_OFFSET"]
    assert [line.head[:16] for line in lines][1] == "0" * 16
    logic, _ = reporter.summary()
    assert logic.endswith(", quarantined: 1 BAD_MAGIC, 1 BAD_PHYSICAL_OFFSET, 1 EMPTY")
    rows = spark.read.format("delta").load(f"{table}-quarantine").orderBy("physical_offset").collect()
    assert [row.asDict() for row in rows] == [vars(line) for line in lines]
    assert spark.read.format("delta").load(str(table)).count() == sound.facts["totalMessages"] - 3

    # The last batches come again: Spark's checkpoints are lost, and the table's rows before they were committed.
    shutil.rmtree(out / "reput" / "spark-checkpoint")
    shutil.rmtree(tmp_path / "messages-quarantine")
    before = entries(out)
    run_tail(spark, store, out, *options, table=table, conf=sound.broker_conf)
    assert entries(out) == before
    assert load_quarantine(out) == lines
    assert spark.read.format("delta").load(f"{table}-quarantine").count() == 3


def test_without_queues_the_table_has_its_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    """Only a table is kept; records that no queue takes are rows of it, and an expired gap is a range, too."""
    store, out, table = tmp_path / "store", tmp_path / "out", tmp_path / "messages"
    records = write_log(store / "commitlog", [Message("../x" if n == 4 else "T") for n in range(60)])
    put_bytes(store / "commitlog" / f"{0:020d}", records[7].physical_offset + 4, b"\x55")
    options = ["onDamage=quarantine", "failOnDataLoss=false", "messageIndexEnable=false"]
    run_tail(spark, store, out, *options, "consumeQueueEnable=false", table=table)
    assert [line.cause for line in load_quarantine(out)] == ["BAD_MAGIC"]
    assert spark.read.format("delta").load(str(table)).count() == 59
    assert not (out / "consumequeue").exists()

    queues = tmp_path / "queues"
    run_tail(spark, store, queues, *options, "maxBytesPerTrigger=1k")
    found = [(line.physical_offset, line.cause) for line in load_quarantine(queues)]
    assert found == [(records[4].physical_offset, "HOSTILE_TOPIC"), (records[7].physical_offset, "BAD_MAGIC")]
    assert sum(entries(queues).values()) == 58
    # The log grows, and its first segments expire before anything reads them.
    end = end_of(records)
    write_log(store / "commitlog", [Message("T")] * 140)
    expired = [path for path in sorted((store / "commitlog").iterdir()) if int(path.name) <= end]
    assert len(expired) == 3
    for path in expired:
        path.unlink()
    assert int(expired[-1].name) + 2000 > end
    run_tail(spark, store, queues, *options)
    (line,) = load_quarantine(queues)[2:]
    assert (line.physical_offset, line.physical_offset + line.length) == (end, int(expired[-1].name) + 2000)
    assert (line.cause, line.policy) == ("EXPIRED", "quarantine")


def test_holes_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """Segments that are missing between others are rows of the quarantine's table: read over, and found at a start."""
    store, out, table = tmp_path / "store", tmp_path / "out", tmp_path / "messages"
    write_log(store / "commitlog", [Message("T")] * 140)
    first, second = (store / "commitlog" / f"{begin:020d}" for begin in (4000, 10_000))
    first.unlink()
    later = {path.name: path.read_bytes() for path in (store / "commitlog").iterdir() if path.name >= second.name}
    for name in later:
        (store / "commitlog" / name).unlink()
    options = ["onDamage=quarantine", "failOnDataLoss=false"]
    run_tail(spark, store, out, *options, table=table)
    for name, data in later.items():
        if name != second.name:
            (store / "commitlog" / name).write_bytes(data)
    run_tail(spark, store, out, *options, table=table)
    holes = [(line.physical_offset, line.length, line.cause) for line in load_quarantine(out)]
    assert holes == [(4000, 2000, "EXPIRED"), (10_000, 2000, "EXPIRED")]
    found = rows(table.with_name("messages-quarantine"))
    assert [(row["physical_offset"], row["length"], row["cause"]) for row in found] == holes


def test_reading_directly(spark: SparkSession, tmp_path: Path) -> None:
    """The source's own option, batch reads of messages."""
    spark.dataSource.register(CommitLogDataSource)
    records = write_log(tmp_path, [Message()] * 60)
    put_bytes(tmp_path / f"{0:020d}", records[3].physical_offset + 4, b"\x55")
    reader = spark.read.format("rocketmq-commitlog").option("tailGuardMs", "0")
    assert reader.option("onDamage", "quarantine").load(str(tmp_path)).count() == 59
    first = [record for record in records if record.physical_offset < 2000]
    assert reader.option("onDamage", "broker").load(str(tmp_path)).count() == 60 - len(first) + 3
