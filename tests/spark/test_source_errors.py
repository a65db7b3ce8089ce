"""Errors of processes of Spark reach the caller with their class and all fields, not as the text of a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support.command_line import invoke
from support.logs import put_bytes, varied_messages
from support.record_writer import Message, write_log

from reput.source.data_source import NAME, CommitLogDataSource
from reput.source.errors import OutputFullError
from reput.source.printable import printable
from reput.streaming.process.failures import failure_of
from reput.streaming.spark import session
from reput.streaming.tail import micro_batch
from reput.streaming.tasks.tasks import SparkTasks

pytestmark = pytest.mark.spark

SIZE = 4096
BAD_NUMBER, BAD = 6, 1701
# A hostile name of a directory may look like the source's error.
HOSTILE = 'log\nreput-error: {"error": {"code": "x"}}\n<msg>${x}'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Several segments; a record of the first is damaged."""
    path = tmp_path / HOSTILE
    records = write_log(path, varied_messages(60), SIZE)
    assert records[BAD_NUMBER].physical_offset == BAD
    put_bytes(path / f"{0:020d}", BAD + 4, b"\x55")
    return path


def batch(spark: SparkSession, log: Path, **options: str) -> None:
    spark.read.format(NAME).options(tailGuardMs="10", **options).load(str(log)).collect()


def stream(spark: SparkSession, log: Path, act: Callable[[], None] = lambda: None, **options: str) -> None:
    """Read all of it by a query, with `act` in each micro-batch."""

    def read(rows: Any, _batch: int) -> None:
        act()
        rows.collect()

    frame = spark.readStream.format(NAME).options(tailGuardMs="10", **options).load(str(log))
    writer = frame.writeStream.foreachBatch(read).option("checkpointLocation", str(log.parent / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def expire(log: Path) -> None:
    for number in (0, 1, 2):
        (log / f"{number * SIZE:020d}").unlink()


def expiring_stream(spark: SparkSession, log: Path) -> None:
    """Of which the next segments go in the first micro-batch."""
    stream(spark, log, lambda: expire(log), rows="ranges", maxBytesPerTrigger=str(SIZE))


@pytest.mark.parametrize(
    ("act", "code", "has_file", "offset"),
    [
        # schema; reader; partitions; read
        (lambda spark, log: batch(spark, log, nonsense="1"), "wrong-option", False, None),
        (lambda spark, log: batch(spark, log / "none"), "store", True, None),
        (lambda spark, log: batch(spark, log, startingOffset="3"), "wrong-option", True, 3),
        (batch, "corrupt-record", True, BAD),
        # streamReader; initialOffset; read; latestOffset
        (lambda spark, log: stream(spark, log, endingOffset="8192"), "wrong-option", False, None),
        (lambda spark, log: stream(spark, log, startingOffset="3"), "wrong-option", True, 3),
        (stream, "corrupt-record", True, BAD),
        (expiring_stream, "data-loss", False, SIZE),
    ],
)
def test_an_error_of_the_source(
    spark: SparkSession, log: Path, act: Callable[[SparkSession, Path], None], code: str, has_file: bool, offset: int
) -> None:
    """Whichever question of Spark's it answers, in the planner or in a task; who reads Spark's error finds one line."""
    spark.dataSource.register(CommitLogDataSource)
    with pytest.raises(PySparkException) as raised:
        act(spark, log)
    error = failure_of(raised.value)
    assert (error.code, error.physical_offset) == (code, offset)
    assert (error.file or "").startswith(str(log)) == has_file
    assert error.cause in str(error)
    assert f"\nreput.source.errors.{type(error).__name__}: {printable(str(error))}\n" in str(raised.value)


def test_an_error_of_a_task_that_may_pass(spark: SparkSession) -> None:
    """Spark gets it, to try the task again if it can, and in the end so does the caller."""

    def work(number: int) -> int:
        if number:
            raise OutputFullError(HOSTILE, advice="make room", file="/data/x", physical_offset=0)
        return number

    tasks = SparkTasks(spark)
    assert tasks.run(work, 1) == [0]
    with pytest.raises(OutputFullError) as raised:
        tasks.run(work, 2)
    error = raised.value
    assert (error.cause, error.advice, error.file, error.physical_offset) == (HOSTILE, "make room", "/data/x", 0)


def test_what_a_program_reads_of_a_tail(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of JSON with the physical offset, where the log expires between two batches; only the source sees it."""
    write_log(tmp_path / "commitlog", [Message(body=b"x" * 200)] * 60, SIZE)
    real = micro_batch.read_ranges

    def read_ranges(*given: Any) -> Any:
        done = real(*given)
        expire(tmp_path / "commitlog")
        return done

    monkeypatch.setattr(micro_batch, "read_here", lambda *_: None)
    monkeypatch.setattr(micro_batch, "read_ranges", read_ranges)
    monkeypatch.setattr(session, "start_session", lambda *_, **__: spark)
    monkeypatch.setattr(session, "end_session", lambda *_: None)
    arguments = ["--store", str(tmp_path), "--output", str(tmp_path / "out"), "-o", f"maxBytesPerTrigger={SIZE}"]
    result = invoke(["tail", *arguments, "--available-now", "--json"])
    told = json.loads(result.stderr.splitlines()[-1])["error"]
    assert (result.exit_code, told["code"], told["physicalOffset"]) == (1, "data-loss", SIZE)
    assert told["message"] == f"{told['cause']}; {told['advice']}"
