"""A micro-batch that is written wave by wave while it is read: equal bytes, also after a failure between two waves."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.delta_rows import offsets
from support.rebuild_runner import rebuild
from support.record_writer import Message, write_log
from support.store_compare import differing_bytes
from support.tail_runs import run_tail

from reput.sinks.files.store_path import REPUT, SCRATCH, SPARK_CHECKPOINT
from reput.source.errors import SinkError
from reput.streaming.config.pipeline import load_config
from reput.streaming.effects.write_step import WriteStep
from reput.streaming.output.paths import LOGIC
from reput.streaming.tail import micro_batch
from reput.streaming.tail.micro_batch import LogContinuity

pytestmark = pytest.mark.spark

MESSAGES = 60
LIMIT_SECONDS = 60
SIZES = ("mappedFileSizeConsumeQueue=200", "maxHashSlotNum=7", "maxIndexNum=20", "tailGuardMs=20")
# One micro-batch of many ranges, each of which is enough for a wave.
OPTIONS = (*SIZES, "maxBytesPerPartition=600", "tableMaxBytesPerPartition=600")


@pytest.fixture(autouse=True)
def read_by_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read each micro-batch by a job, however small it is."""
    monkeypatch.setattr(micro_batch, "read_here", lambda *_: None)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("waves")
    write_log(
        root / "store" / "commitlog",
        (
            Message("ABC"[number % 3], number % 2, properties={"KEYS": f"k{number}", "TAGS": "t"})
            for number in range(MESSAGES)
        ),
        4096,
    )
    rebuild(load_config(root / "store", overrides=SIZES), root / "fresh")
    return root / "store"


def check(spark: SparkSession, store: Path, root: Path) -> None:
    assert differing_bytes(store.parent / "fresh", root / "out") == {}
    found = offsets(spark, root / "table")
    assert len(found) == len(set(found)) == MESSAGES


def test_written_while_the_job_runs(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job and one report; waves are durable before the job ends, each after a look at whether the log was cut."""
    jobs: list[str] = []
    read, write, look = micro_batch.read_ranges, WriteStep.write, LogContinuity.check

    def checking(*given: Any) -> None:
        jobs.append("checks")
        look(*given)

    def reading(*given: Any) -> Any:
        jobs.append("begins")
        try:
            return read(*given)
        finally:
            jobs.append("ends")

    def writing(*given: Any, **named: Any) -> Any:
        jobs.append("writes")
        return write(*given, **named)

    monkeypatch.setattr(micro_batch, "read_ranges", reading)
    monkeypatch.setattr(WriteStep, "write", writing)
    monkeypatch.setattr(LogContinuity, "check", checking)
    reporter = run_tail(spark, store, tmp_path / "out", *OPTIONS, table=tmp_path / "table")
    assert jobs.count("begins") == 1
    assert "writes" in jobs[: jobs.index("ends")]
    assert all(jobs[number - 1] == "checks" for number, what in enumerate(jobs) if what == "writes")
    assert [f"{MESSAGES} messages in 1 batch," in line for line in reporter.summary()] == [True, True]
    check(spark, store, tmp_path)


@pytest.mark.parametrize("fails", [False, True])
def test_what_waits_for_the_last_wave_is_written_without_one(
    spark: SparkSession, store: Path, tmp_path: Path, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots of the index, which waves leave for later: all is written when the job ends, well or badly."""
    read, write, ends, waited = micro_batch.read_ranges, WriteStep.write, [0], []

    def reading(*given: Any) -> Any:
        results, deadline = read(*given), time.monotonic() + LIMIT_SECONDS
        while ends[-1] < results[-1].end:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if fails:
            raise SinkError("no more of it can be read")
        return results

    def writing(step: WriteStep, effects: Any, **named: Any) -> Any:
        done = write(step, effects, **named)
        waited.append(named["more_follow"])
        ends.append(effects.end)
        return done

    monkeypatch.setattr(micro_batch, "worth_a_wave", lambda *_: 1)
    monkeypatch.setattr(micro_batch, "read_ranges", reading)
    monkeypatch.setattr(WriteStep, "write", writing)
    with pytest.raises(SinkError, match="no more of it") if fails else nullcontext():
        run_tail(spark, store, tmp_path / "out", *OPTIONS, table=tmp_path / "table")
    assert set(waited) == {True}
    check(spark, store, tmp_path)


@pytest.mark.parametrize(("failing", "range_bytes"), [(1, 600), (2, 1500)])
def test_a_failure_between_two_waves(
    spark: SparkSession,
    store: Path,
    tmp_path: Path,
    failing: int,
    range_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The waves before it stay; the next start continues there, even if it cuts other ranges."""
    read, write = micro_batch.read_ranges, WriteStep.write
    calls, has_begun, is_read = 0, threading.Event(), threading.Event()

    def reading(*given: Any) -> Any:
        results = read(*given)
        assert has_begun.wait(LIMIT_SECONDS)
        is_read.set()
        return results

    def writing(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        has_begun.set()
        assert is_read.wait(LIMIT_SECONDS)  # so the first wave is not the last one
        if calls == failing:
            raise SinkError("this wave cannot be written")
        return write(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(micro_batch, "read_ranges", reading)
        patched.setattr(WriteStep, "write", writing)
        with pytest.raises(SinkError, match="this wave cannot be written"):
            run_tail(spark, store, tmp_path / "out", *OPTIONS, table=tmp_path / "table")
    others = (*SIZES, f"maxBytesPerPartition={range_bytes}", f"tableMaxBytesPerPartition={range_bytes}")
    run_tail(spark, store, tmp_path / "out", *others, table=tmp_path / "table")
    check(spark, store, tmp_path)


def test_the_last_wave_is_written_while_spark_goes_on(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next micro-batch is read before the last wave of the one before is written; it is written before the next."""
    read, write, jobs, is_next_read, waves = micro_batch.read_ranges, WriteStep.write, 0, threading.Event(), []

    def reading(*given: Any) -> Any:
        nonlocal jobs
        jobs += 1
        if jobs == 2:
            is_next_read.set()
        return read(*given)

    def writing(step: WriteStep, effects: Any, **named: Any) -> Any:
        if not waves:
            assert is_next_read.wait(LIMIT_SECONDS)
        waves.append((effects.start, effects.end))
        return write(step, effects, **named)

    monkeypatch.setattr(micro_batch, "read_ranges", reading)
    monkeypatch.setattr(WriteStep, "write", writing)
    # A wave is as large as a micro-batch: each has its last one alone.
    options = (*SIZES, "maxMessagesPerTrigger=20")
    reporter = run_tail(spark, store, tmp_path / "out", *options, table=tmp_path / "table")
    assert jobs == 3
    assert [one[1] for one in waves[:-1]] == [after[0] for after in waves[1:]]
    assert [f"{MESSAGES} messages in 3 batches" in line for line in reporter.summary()] == [True, True]
    check(spark, store, tmp_path)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_last_wave_that_fails_when_spark_has_noted_its_batch(
    spark: SparkSession, store: Path, tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that of the last micro-batch, which no other follows; the next start brings the sinks up to Spark."""
    write, waves = WriteStep.write, 0
    commits = tmp_path / "out" / REPUT / SPARK_CHECKPOINT / LOGIC / "commits"

    def writing(*given: Any, **named: Any) -> Any:
        nonlocal waves
        waves += 1
        if waves == failing:
            deadline = time.monotonic() + LIMIT_SECONDS
            while not (commits / str(failing - 1)).exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            raise SinkError("the last wave cannot be written")
        return write(*given, **named)

    options = (*SIZES, "maxMessagesPerTrigger=20")
    with monkeypatch.context() as patched:
        patched.setattr(WriteStep, "write", writing)
        with pytest.raises(SinkError, match="the last wave cannot be written"):
            run_tail(spark, store, tmp_path / "out", *options, table=tmp_path / "table")
    run_tail(spark, store, tmp_path / "out", *options, table=tmp_path / "table")
    check(spark, store, tmp_path)
    assert not list((tmp_path / "out" / REPUT / SCRATCH).iterdir())
