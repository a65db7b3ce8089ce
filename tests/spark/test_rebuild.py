"""`reput rebuild` on Spark: the brokers' bytes and a table; `tail` after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from support.logs import put_bytes
from support.rebuild_runner import LocalTasks, tasks_write_all
from support.record_writer import CommitLogWriter, Message, encode, write_log
from support.store_compare import differing_bytes
from support.tail_runs import rows, run_tail
from unit.streaming.rebuild.test_rebuild_damage import lines_of, tail_store

from reput.sinks.quarantine import QuarantinedRange, load_quarantine
from reput.sinks.table.quarantine_table import QuarantineTable
from reput.streaming.config.pipeline import load_config
from reput.streaming.rebuild.pipeline import RebuildProgress, RebuildReport
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import Rebuild
from reput.streaming.tasks.tasks import SparkTasks, Tasks

pytestmark = pytest.mark.spark

GetStore = Callable[[str], BrokerStore]


def run_rebuild(
    spark: SparkSession,
    store: Path,
    output: Path,
    *options: str,
    conf: Path | None = None,
    tasks: Tasks | None = None,
    **request: object,
) -> RebuildReport:
    """Run `reput rebuild` in this process, its tasks on Spark unless `tasks` are given."""
    config = load_config(store, broker_conf=conf, overrides=("tailGuardMs=20", *options))
    with Rebuild(config, RebuildRequest(output, **request), RebuildProgress()) as job:  # type: ignore[arg-type]
        return job.run(tasks or SparkTasks(spark), lambda: spark)


@pytest.mark.parametrize(
    "name", ["v4-plain", "v4-lmq", "v5-batchcq", pytest.param("v4-sql92-rebuilt", marks=pytest.mark.slow)]
)
def test_files_equal_the_brokers_and_the_table_has_each_message_once(
    spark: SparkSession, broker_store: GetStore, tmp_path: Path, name: str
) -> None:
    """Ranges cut anywhere, several waves, queues and index written by tasks; a second run adds no row."""
    store = broker_store(name)
    options = ("rebuildMaxBytesPerWave=6m", "tableMaxBytesPerPartition=1300k")
    table = tmp_path / "table"
    for _ in range(2):
        with tasks_write_all():
            report = run_rebuild(spark, store.root, tmp_path / "out", *options, conf=store.broker_conf, table=table)
        assert differing_bytes(store.root, tmp_path / "out") == {}
        assert report.messages == rows(spark, table) == store.facts["totalMessages"]


def test_results_of_sparks_tasks_are_told_while_others_are_made(spark: SparkSession, tmp_path: Path) -> None:
    """The first result lets the last task end, so the job waits for a result that has reached the driver."""
    told: dict[int, str] = {}

    def work(number: int) -> str:
        deadline = time.monotonic() + 60
        while number == 1 and not (tmp_path / "told").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return str(number)

    def on_result(number: int, result: str) -> None:
        told[number] = result
        (tmp_path / "told").touch()

    assert SparkTasks(spark).start(work, 2, on_result)() == ["0", "1"]
    assert told == {0: "0", 1: "1"}


def test_tail_goes_on_behind_it(spark: SparkSession, tmp_path: Path) -> None:
    """A forged record in a body among the first part; then the log grows."""
    store = tmp_path / "store"
    with CommitLogWriter(store / "commitlog", 8192) as writer:
        for number in range(20):
            at = writer.records[-1].physical_offset + writer.records[-1].msg_size if writer.records else 0
            body = encode(Message(body=b"forged"), at + 88) + b"x" * 100
            writer.append(Message(body=body, properties={"KEYS": f"k{number}"}))
        options = ("rebuildMaxBytesPerPartition=300", "tableMaxBytesPerPartition=500", "rebuildMaxBytesPerWave=2000")
        run_rebuild(spark, store, tmp_path / "out", *options, table=tmp_path / "table")
        for number in range(20, 50):
            writer.append(Message(properties={"KEYS": f"k{number}"}))
    reporter = run_tail(spark, store, tmp_path / "out", table=tmp_path / "table")
    assert (reporter.messages("logic"), reporter.messages("table")) == (30, 30)
    assert rows(spark, tmp_path / "table") == 50
    run_tail(spark, store, tmp_path / "fresh")
    assert differing_bytes(tmp_path / "fresh", tmp_path / "out") == {}
    run_rebuild(spark, store, tmp_path / "only", only="table", table=tmp_path / "table2")
    assert rows(spark, tmp_path / "table2") == 50
    assert {path.name for path in (tmp_path / "only").iterdir()} == {"lock", "reput"}


def test_behind_damage_with_a_table(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves out the same as `tail`, a row each, once, though the process dies before the first one."""
    store, output, table = tmp_path / "store", tmp_path / "out", tmp_path / "table"
    records = write_log(store / "commitlog", [Message("../x" if n == 4 else "T", queue_offset=n) for n in range(90)])
    damaged = (9, 40, 70)
    for number in damaged:
        segment, at = divmod(records[number].physical_offset, 2000)
        put_bytes(store / "commitlog" / f"{segment * 2000:020d}", at + 4, b"\x55")
    options = ("onDamage=quarantine", "rebuildMaxBytesPerWave=5000", "tableMaxBytesPerPartition=700")
    with monkeypatch.context() as patch:
        patch.setattr(QuarantineTable, "write", die_with_lines)
        with pytest.raises(StoppedError):
            run_rebuild(spark, store, output, *options, tasks=LocalTasks(), table=table)
    report = run_rebuild(spark, store, output, *options, tasks=LocalTasks(), table=table)
    assert report.quarantined == {"BAD_MAGIC": 3, "HOSTILE_TOPIC": 1}
    tail_store(load_config(store, overrides=("tailGuardMs=20", *options)), tmp_path / "tail", Random(1))
    assert differing_bytes(tmp_path / "tail", output) == {}
    assert lines_of(output) == lines_of(tmp_path / "tail")
    left_out = spark.read.format("delta").load(f"{table}-quarantine").orderBy("physical_offset").collect()
    assert [row.asDict() for row in left_out] == list(map(vars, load_quarantine(output)))
    found = spark.read.format("delta").load(str(table)).select("physical_offset").collect()
    expected = [record.physical_offset for number, record in enumerate(records) if number not in damaged]
    assert sorted(row.physical_offset for row in found) == expected


class StoppedError(Exception):
    """The process dies."""


def die_with_lines(_: QuarantineTable, __: int, lines: Sequence[QuarantinedRange]) -> None:
    if lines:
        raise StoppedError
