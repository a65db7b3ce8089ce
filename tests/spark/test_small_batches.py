"""Micro-batches that the driver reads itself: what they leave is what Spark's jobs leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.delta_rows import offsets
from support.logs import put_bytes
from support.rebuild_runner import rebuild
from support.record_writer import Message, StoredRecord, write_log
from support.store_compare import differing_bytes
from support.tail_runs import run_tail

from reput.source.errors import CorruptRecordError
from reput.streaming.config.pipeline import load_config
from reput.streaming.tail import micro_batch
from reput.streaming.tail.micro_batch import Dispatch
from reput.streaming.tail.opening import rehearse_planning
from reput.streaming.tail.ranges import no_ranges, plan_without_code, stream_ranges

pytestmark = pytest.mark.spark

MESSAGES, A_BATCH = 60, 12
SIZES = ("mappedFileSizeConsumeQueue=200", "maxHashSlotNum=7", "maxIndexNum=20", "tailGuardMs=20")


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, list[StoredRecord]]:
    """A log of some segments, and its records."""
    root = tmp_path / "store"
    records = write_log(
        root / "commitlog",
        (
            Message("ABC"[number % 3], number % 2, properties={"KEYS": f"k{number}", "TAGS": "t"})
            for number in range(MESSAGES)
        ),
        4096,
    )
    return root, records


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one with each micro-batch that a job reads."""
    found: list[str] = []
    read = micro_batch.read_ranges

    def reading(*given: Any) -> Any:
        found.append("job")
        return read(*given)

    monkeypatch.setattr(micro_batch, "read_ranges", reading)
    return found


@pytest.mark.parametrize("reads_here", [True, False])
def test_files_and_rows(
    spark: SparkSession,
    store: tuple[Path, list[StoredRecord]],
    jobs: list[str],
    tmp_path: Path,
    reads_here: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None is read by a job, unless it is too large."""
    if not reads_here:
        monkeypatch.setattr(micro_batch, "SMALL_BYTES", 100)
        monkeypatch.setattr(micro_batch, "SMALL_FIRST_BYTES", 100)
    root, _ = store
    limits = (*SIZES, f"maxMessagesPerTrigger={A_BATCH}")
    reporter = run_tail(spark, root, tmp_path / "out", *limits, table=tmp_path / "table")
    batches = MESSAGES // A_BATCH
    assert [f"{MESSAGES} messages in {batches} batches" in line for line in reporter.summary()] == [True, True]
    assert len(jobs) == (0 if reads_here else batches)
    rebuild(load_config(root, overrides=SIZES), tmp_path / "fresh")
    assert differing_bytes(tmp_path / "fresh", tmp_path / "out") == {}
    found = offsets(spark, tmp_path / "table")
    assert len(found) == len(set(found)) == MESSAGES
    assert not any((tmp_path / "out" / "reput" / "scratch").iterdir())


def test_damage(spark: SparkSession, store: tuple[Path, list[StoredRecord]], jobs: list[str], tmp_path: Path) -> None:
    """It ends the run with the record's file and offset, or is left out; two queries then, each at its own offset."""
    root, records = store
    bad = records[30]
    segment = root / "commitlog" / f"{bad.physical_offset // 4096 * 4096:020d}"
    put_bytes(segment, bad.physical_offset % 4096 + 88, b"\xff\xff")  # in its body
    limits = (*SIZES, f"maxMessagesPerTrigger={A_BATCH}", "checkCrc=all")
    with pytest.raises(CorruptRecordError) as raised:
        run_tail(spark, root, tmp_path / "out", *limits, "onDamage=stop", table=tmp_path / "table")
    assert (raised.value.physical_offset, raised.value.file) == (bad.physical_offset, str(segment))
    run_tail(spark, root, tmp_path / "out", *limits, "onDamage=quarantine", table=tmp_path / "table")
    found = offsets(spark, tmp_path / "table")
    assert sorted(found) == [record.physical_offset for record in records if record is not bad]
    rebuild(load_config(root, overrides=(*SIZES, "checkCrc=all", "onDamage=quarantine")), tmp_path / "fresh")
    assert differing_bytes(tmp_path / "fresh", tmp_path / "out") == {}
    assert len(jobs) < 2 * MESSAGES // A_BATCH


def test_a_read_without_ranges(spark: SparkSession) -> None:
    """Spark plans it as any other; errors of a rehearsal do not appear."""
    assert no_ranges(spark).collect() == []
    rehearse_planning(spark)


@pytest.mark.usefixtures("compiled")
def test_no_code_is_made_for_their_plans(
    spark: SparkSession, store: tuple[Path, list[StoredRecord]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second micro-batch of a query on; all else that is asked, such as rows of a table, has its code."""
    root, _ = store
    setting = "spark.sql.codegen.wholeStage"
    options = (*SIZES, f"maxMessagesPerTrigger={A_BATCH}", "consumeQueueEnable=false", "messageIndexEnable=false")
    found: list[str] = []
    call = Dispatch.__call__

    def noted(dispatch: Dispatch, ranges: DataFrame, batch_id: int) -> None:
        found.append(ranges.sparkSession.conf.get(setting, ""))
        call(dispatch, ranges, batch_id)

    monkeypatch.setattr(Dispatch, "__call__", noted)
    run_tail(spark, root, tmp_path / "out", *options, table=tmp_path / "table")
    assert found == ["false"] * (MESSAGES // A_BATCH)
    assert spark.conf.get(setting) == "true"

    def last_plan(on_batch: Callable[[DataFrame, int], None]) -> str:
        limits = {"path": str(root / "commitlog"), "maxMessagesPerTrigger": A_BATCH, "tailGuardMs": 20}
        writer = stream_ranges(spark, limits).writeStream.foreachBatch(on_batch)
        query: Any = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return str(query._jsq.streamingQuery().lastExecution().executedPlan())

    assert "*(1)" in last_plan(lambda _ranges, _batch_id: None)
    assert "*(1)" not in last_plan(lambda ranges, _batch_id: plan_without_code(ranges))
