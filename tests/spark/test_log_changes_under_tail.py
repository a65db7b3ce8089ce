"""G4 and G11 in a running tail: the log is cut and written over, or its segments go, while both queries read it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from support.rebuild_runner import rebuild
from support.record_writer import CommitLogWriter
from support.small_log import SIZE, messages, write
from support.store_compare import differing_bytes
from support.tail_runs import LIMIT_S, run_tail, tail_beside

from reput.sinks.quarantine import EXPIRED, load_quarantine
from reput.source.errors import CommitLogRewoundError, DataLossError
from reput.streaming.config.pipeline import load_config
from reput.streaming.recover.recover import expire_output, recover_output
from reput.streaming.tail import micro_batch
from reput.streaming.tail.micro_batch import SmallBatches
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreVerification

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_a_log_that_is_written_over_under_it(spark: SparkSession, tmp_path: Path) -> None:
    """It ends with the error that names the record; `reput recover` and the next run give what the log says."""
    store, out, table = tmp_path / "store", tmp_path / "out", tmp_path / "table"
    old = messages(40)
    end = write(store, old)[-1]
    config = load_config(store, overrides=("tailGuardMs=20", "tableTriggerMs=200"))
    with tail_beside(spark, config, out, table) as tail:
        tail.wait_for_messages(len(old), "logic", "table")
        # In the last segment the old records follow the new end, the last one whole.
        last = store / "commitlog" / f"{end - end % SIZE:020d}"
        before = last.read_bytes()
        new_end = write(store, [*old[:-4], *messages(1, 100, 7)])[-1]
        last.write_bytes(last.read_bytes()[: new_end % SIZE] + before[new_end % SIZE :])
        tail.thread.join(LIMIT_S)
    (failure,) = tail.failed
    assert isinstance(failure, CommitLogRewoundError)
    assert failure.physical_offset is not None
    assert "'reput recover'" in str(failure)
    write(store, [*old[:-4], *messages(30, 100, 7)])
    recover_output(config, store, out)
    run_tail(spark, store, out)
    rebuild(config, tmp_path / "fresh")
    assert differing_bytes(tmp_path / "fresh", out) == {}


def test_files_that_expire_under_it(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An idle tail removes queue and index files when the broker deletes segments, and continues after them."""
    store, out = tmp_path / "store", tmp_path / "out"
    (tmp_path / "broker.conf").write_text("mappedFileSizeConsumeQueue=100\nmaxIndexNum=10\ncleanResourceInterval=50\n")
    config = load_config(store_of(store), broker_conf=tmp_path / "broker.conf", overrides=("tailGuardMs=20",))
    with CommitLogWriter(store / "commitlog", SIZE, preallocate=True) as writer:
        for message in messages(60):
            writer.append(message)
        with tail_beside(spark, config, out) as tail, caplog.at_level("INFO", "reput"):
            tail.wait_for_messages(60, "logic")
            for number in range(3):
                (store / "commitlog" / f"{number * SIZE:020d}").unlink()
            tail.wait_until(lambda: f"index files, log begins at {3 * SIZE}" in caplog.text)
            for message in messages(60, 60):
                writer.append(message)
            tail.wait_for_messages(120, "logic")
    assert tail.failed == []
    assert not (out / "consumequeue" / "A" / "0" / f"{0:020d}").exists()
    sections = StoreVerification(config, out).run(SerialTasks())
    assert [section.findings.first for section in sections] == [[] for _ in sections]
    assert expire_output(config, out).removed == ()
    assert run_tail(spark, store, out, "mappedFileSizeConsumeQueue=100", "maxIndexNum=10").summary() == []


def store_of(store: Path) -> Path:
    """The directory of a store, made."""
    (store / "commitlog").mkdir(parents=True)
    return store


@pytest.mark.parametrize(
    ("fail", "on_damage", "read_by"),
    [
        pytest.param("true", "quarantine", "job", marks=pytest.mark.slow),
        ("true", "quarantine", "driver"),
        pytest.param("false", "quarantine", "job", marks=pytest.mark.slow),
        pytest.param("false", "quarantine", "driver", marks=pytest.mark.slow),
        pytest.param("true", "stop", "job", marks=pytest.mark.slow),
    ],
)
def test_segments_that_go_under_it(
    fail: str, on_damage: str, read_by: str, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Between plan and read, at the front and in the middle: continued and reported, or one error; nothing twice."""
    store, out, table = tmp_path / "store", tmp_path / "out", tmp_path / "table"
    offsets = write(store, messages(160))[:-1]
    # When ranges are read for this time, and their ends are known, these segments go.
    going = {1: [0, 1, 2], 4: [6], 6: [8, 9]}
    assert max(offsets) // SIZE >= 10
    times, by_job, known = itertools.count(1), micro_batch.read_ranges, SmallBatches.ranges

    def segments_go() -> None:
        for number in going.pop(next(times), []):
            (store / "commitlog" / f"{number * SIZE:020d}").unlink()

    def read_ranges(*given: Any) -> Any:
        segments_go()
        return by_job(*given)

    def ranges(small: SmallBatches, batch_id: int) -> Any:
        found = known(small, batch_id) if read_by == "driver" else None
        if found is not None:
            segments_go()
        return found

    options = [f"onDamage={on_damage}", "maxBytesPerTrigger=5k", "tableMaxBytesPerTrigger=5k"]
    with (
        mock.patch.object(micro_batch, "read_ranges", read_ranges),
        mock.patch.object(SmallBatches, "ranges", ranges),
    ):
        if fail == "true":
            with pytest.raises(DataLossError, match="expired"):
                run_tail(spark, store, out, *options, table=table)
        reporter = run_tail(spark, store, out, "failOnDataLoss=false", *options, table=table)
    assert going == {}
    kept = [offset for offset in offsets if (store / "commitlog" / f"{offset - offset % SIZE:020d}").exists()]
    rows = spark.read.format("delta").load(str(table)).select("physical_offset").toPandas()["physical_offset"].tolist()
    queued = queued_offsets(out)
    for found in (rows, queued):
        assert len(found) == len(set(found))
        assert set(kept) <= set(found) <= set(offsets)
    if on_damage == "quarantine":
        lines = load_quarantine(out)
        assert {line.cause for line in lines} == {EXPIRED}
        gone = [range(line.physical_offset, line.physical_offset + line.length) for line in lines]
        assert set(offsets) - set(queued) == {offset for offset in offsets if any(offset in row for row in gone)}
    if fail == "false":
        assert any(", ranges expired unread: " in line for line in reporter.summary() if line.startswith("logic"))
    assert run_tail(spark, store, out, "failOnDataLoss=false", *options, table=table).summary() == []


def queued_offsets(out: Path) -> list[int]:
    """The records that the queues lead to."""
    found = []
    for path in (out / "consumequeue").glob("*/*/*"):
        data = path.read_bytes()
        units = (data[at : at + 20] for at in range(0, len(data), 20))
        # Without unwritten entries, and without those that fill the front of a queue that begins after expired records.
        found += [
            int.from_bytes(unit[:8], "big") for unit in units if unit[8:12] not in (bytes(4), b"\x7f\xff\xff\xff")
        ]
    return found
