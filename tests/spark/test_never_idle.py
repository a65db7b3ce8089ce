"""G15: an error raised anywhere in a run ends the run with that error, and the next run makes it good."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from support.proof_counts import Proof
from support.rebuild_runner import rebuild
from support.record_writer import CommitLogWriter, Message, write_log
from support.store_compare import differing_bytes
from support.tail_runs import rows, run_tail

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile
from reput.sinks.index.index_sink import IndexFile, IndexSink
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.queue.queue_sink import QueueFiles
from reput.sinks.table.message_table import MessageTable, TableBatch
from reput.source.log.log_reader import LogReader
from reput.streaming.config.pipeline import load_config
from reput.streaming.effects import write_step
from reput.streaming.effects.effects import Effects
from reput.streaming.process.environment import run_directory
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail import micro_batch, opening

pytestmark = pytest.mark.spark

LIMIT_SECONDS = 60
MESSAGES = 40
#: More than Spark's checkpoint keeps.
BATCHES = 15


@pytest.fixture(autouse=True)
def read_by_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read each micro-batch by a job, however small it is: a job is one of the places."""
    monkeypatch.setattr(micro_batch, "read_here", lambda *_: None)


class Struck(BaseException):
    """No ``except Exception`` catches it."""


#: The function of each module that fails; its call of this number raises.
PLACES: dict[str, tuple[Any, str, int]] = {
    "log_reader: the end": (LogReader, "end", 1),
    "log_reader: where to begin": (LogReader, "initial_offset", 1),
    "durable_file: a write": (DurableFiles, "write", 2),
    "durable_file: a sync": (DurableFiles, "sync", 3),
    "queue_files: a write": (QueueFiles, "write", 1),
    "consume_queue: a batch": (ConsumeQueueSink, "write", 1),
    "index_file: keys": (IndexFile, "put", 1),
    "index_sink: a batch": (IndexSink, "write", 1),
    "sink_progress: a record": (ProgressFile, "store", 5),
    "batch: the pieces": (LogicBatch, "merge", 1),
    "piece_entries: the results": (PieceEntries, "read", 1),
    "effects: what is left out": (Effects, "sifted", 1),
    "message_table: a commit": (MessageTable, "commit", 1),
    "message_table: the parts": (TableBatch, "merge", 1),
    "dispatch: a job": (micro_batch, "read_ranges", 1),
    "dispatch: the checkpoint": (write_step, "store_checkpoint", 1),
    "progress: a report": (ProgressReporter, "on_batch", 1),
    "progress: the lag": (ProgressReporter, "refresh", 1),
    "opening: catching up": (opening, "catch_up", 1),
}
SHORT = [("dispatch: a job", Struck), ("index_file: keys", Struck), ("message_table: a commit", ValueError)]


def strike(stack: ExitStack, place: str, error: BaseException) -> None:
    """Let the call of that place raise once."""
    owner, name, number = PLACES[place]
    original, calls = getattr(owner, name), 0

    def struck(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise error
        return original(*args, **options)

    static = isinstance(owner.__dict__.get(name), classmethod | staticmethod) if isinstance(owner, type) else True
    stack.enter_context(mock.patch.object(owner, name, staticmethod(struck) if static else struck))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    write_log(
        tmp_path / "store" / "commitlog",
        (Message("AB"[number % 2], properties={"KEYS": f"k{number}"}) for number in range(MESSAGES)),
        4096,
    )
    yield tmp_path / "store"
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("reput")] == []


def ends_with_the_error(spark: SparkSession, store: Path, tmp_path: Path, place: str, error: BaseException) -> None:
    began = time.monotonic()
    with ExitStack() as stack:
        strike(stack, place, error)
        with pytest.raises(BaseException, match="struck down"):
            run_tail(spark, store, tmp_path / "out", table=tmp_path / "table")
    assert time.monotonic() - began < LIMIT_SECONDS
    assert not [query for query in spark.streams.active if query.isActive]
    run_tail(spark, store, tmp_path / "out", table=tmp_path / "table")
    rebuild(load_config(store, overrides=("tailGuardMs=20",)), tmp_path / "fresh")
    assert differing_bytes(tmp_path / "fresh", tmp_path / "out") == {}
    assert rows(spark, tmp_path / "table") == MESSAGES


@pytest.mark.parametrize(
    ("place", "error"),
    [
        pytest.param(place, error, marks=[] if (place, error) in SHORT else pytest.mark.slow)
        for place in PLACES
        for error in (ValueError, Struck)
    ],
)
def test_an_error_ends_the_run(
    spark: SparkSession, store: Path, tmp_path: Path, place: str, error: type[BaseException], proof: Proof
) -> None:
    """Whatever is raised where, within a minute; and nothing is lost by it."""
    ends_with_the_error(spark, store, tmp_path, place, error("struck down"))
    proof("G15 errors raised inside a run")


def files_of_runs(output: Path) -> tuple[int, int]:
    """How many files and directories are in reput's folder of `output`, and in this process's run directory.

    Of the directories in which Spark spreads its blocks there are 64 at most, made one by one.
    """
    in_run = [path for path in run_directory().rglob("*") if "blockmgr" not in str(path)]
    return len(list((output / "reput").rglob("*"))), len(in_run)


def test_many_batches_leave_no_more_files_than_few(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's checkpoint keeps the last batches, and neither a batch nor a start of a query leaves a file behind."""
    seen = []
    with CommitLogWriter(tmp_path / "store" / "commitlog", 65_536) as writer:
        for number in range(1, 3):
            for _ in range(BATCHES):
                writer.append(Message("A", properties={"KEYS": "k"}))
            reporter = run_tail(
                *(spark, tmp_path / "store", tmp_path / "out", "maxMessagesPerTrigger=1"), table=tmp_path / "table"
            )
            assert reporter.state.query("logic").batches == BATCHES
            assert rows(spark, tmp_path / "table") == number * BATCHES
            seen.append(files_of_runs(tmp_path / "out"))
    checkpoints = tmp_path / "out" / "reput" / "spark-checkpoint"
    kept = {path: len(list(path.iterdir())) for path in checkpoints.glob("*/*") if path.is_dir()}
    assert {path.name for path in kept} == {"offsets", "commits"}
    assert max(kept.values()) <= 12  # minBatchesToRetain is 10
    (output, run), (output_later, run_later) = seen
    assert output_later <= output + 2
    assert run_later <= run + 1
