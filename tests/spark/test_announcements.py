"""Announcements of tasks reach their listener while the job runs, and no one afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from reput.source.errors import SinkError
from reput.streaming.spark.job import Announce, announcements, run_job

pytestmark = pytest.mark.spark

LIMIT_SECONDS = 60


def numbers_said(spark: SparkSession, announce: Announce, gate: str = "", fails: bool = False) -> list[int]:
    """A job of two tasks, which announce their numbers; the second one waits until the file `gate` exists."""

    def say(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time
        from pathlib import Path

        for batch in batches:
            (number,) = batch["id"].to_pylist()
            while number == 1 and gate and not Path(gate).exists():
                time.sleep(0.01)
            if number == 1 and fails:
                raise SinkError("the second task fails")
            announce(str(number).encode())
            yield batch

    return sorted(run_job(spark.range(0, 2, 1, 2), say, "id bigint")["id"].to_pylist())


def test_heard_before_the_job_ends(spark: SparkSession, tmp_path: object) -> None:
    """The second task continues only after the announcement of the first."""
    gate, heard = f"{tmp_path}/gate", []

    def listen(words: bytes) -> None:
        heard.append(words)
        if words == b"0":
            with open(gate, "x"):  # noqa: PTH123
                pass

    with announcements(spark, listen) as announce:
        assert numbers_said(spark, announce, gate) == [0, 1]
    assert sorted(heard) == [b"0", b"1"]


def test_each_listener_hears_its_own_tasks(spark: SparkSession) -> None:
    """Two at a time, and none once its block has ended."""
    first: list[bytes] = []
    second: list[bytes] = []
    with announcements(spark, first.append) as announce:
        with announcements(spark, second.append) as other:
            threads = [threading.Thread(target=numbers_said, args=(spark, each)) for each in (announce, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LIMIT_SECONDS)
        numbers_said(spark, other)
    assert sorted(first) == sorted(second) == [b"0", b"1"]


def test_a_task_that_fails_is_not_heard(spark: SparkSession) -> None:
    """Announcements of others in its job count nevertheless."""
    heard: list[bytes] = []
    with announcements(spark, heard.append) as announce, pytest.raises(SinkError, match="the second task fails"):
        numbers_said(spark, announce, fails=True)
    assert b"1" not in heard
