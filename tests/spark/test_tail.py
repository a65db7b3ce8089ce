"""The whole pipeline on stores of real brokers, in one Spark session."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from support.owned_files import share_no_files
from support.rebuild_runner import rebuild
from support.record_writer import CommitLogWriter, Message, write_log
from support.store_compare import differing_bytes
from support.tail_runs import quiet_reporter, rows, run_tail

from reput.sinks.dispatch.arrival import ArrivalSummary
from reput.sinks.formats.consume_queue import ENTRY
from reput.source.errors import CommitLogRewoundError, DataLossError, OutputError, ReputError, StoreLockedError
from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail.micro_batch import Dispatch
from reput.streaming.tail.opening import QueryOpener
from reput.streaming.tail.tail import Tail

pytestmark = pytest.mark.spark

Unpack = Callable[[str], BrokerStore]


@dataclass(frozen=True)
class Run:
    """A run to the end of a broker's log: `out` and `table` below `root`."""

    root: Path
    store: BrokerStore
    #: Each file of the log as it was before: name, time of its last change, bytes.
    log_before: tuple[tuple[str, int, bytes], ...]

    def copied(self, root: Path) -> None:
        """Its output and table below another directory, which may be written to."""
        for name in ("out", "table"):
            shutil.copytree(self.root / name, root / name)


def files_of_log(store: BrokerStore) -> tuple[tuple[str, int, bytes], ...]:
    files = sorted((store.root / "commitlog").iterdir())
    return tuple((path.name, path.stat().st_mtime_ns, path.read_bytes()) for path in files)


def run_to_the_end(spark: SparkSession, store: BrokerStore, root: Path, *options: str) -> Run:
    """ConsumeQueue and IndexFile are the broker's byte for byte, rows = messages."""
    run = Run(root, store, files_of_log(store))
    run_tail(spark, store.root, root / "out", *options, table=root / "table", conf=store.broker_conf)
    assert differing_bytes(store.root, root / "out") == {}
    assert rows(spark, root / "table") == store.facts["totalMessages"]
    return run


SMALL_BATCHES = ("maxBytesPerTrigger=200k", "tableMaxBytesPerTrigger=200k")
SEVERAL_BATCHES = ("maxBytesPerTrigger=3m", "maxBytesPerPartition=900k", "tableMaxBytesPerTrigger=5m")


@pytest.fixture(scope="module")
def complete(spark: SparkSession, broker_store: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of transactions, delayed messages and retries, in several micro-batches; tests must not write into it."""
    store = broker_store("v4-tx-delay-retry")
    return run_to_the_end(spark, store, tmp_path_factory.mktemp("complete"), *SMALL_BATCHES)


@pytest.fixture(scope="module")
def plain(spark: SparkSession, broker_store: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of plain messages, in several micro-batches; tests must not write into it."""
    return run_to_the_end(spark, broker_store("v4-plain"), tmp_path_factory.mktemp("plain"), *SEVERAL_BATCHES)


@pytest.mark.parametrize(
    "name",
    [
        *("v4-plain", "v5-batchcq"),
        # Queues and index of all stores are made without Spark, too (unit/sinks/test_broker_stores.py).
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("v4-killed-rebuilt", "v4-expired-rebuilt", "v4-lmq")),
        pytest.param("v4-tx-delay-retry", marks=pytest.mark.slow),  # as in the fixture `complete`
    ],
)
def test_files_equal_the_brokers_and_the_table_has_each_message_once(
    spark: SparkSession, broker_store: Unpack, tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    """ConsumeQueue and IndexFile byte for byte, rows = messages, in several micro-batches."""
    store = broker_store(name)
    if name == "v4-plain":
        run: Run = request.getfixturevalue("plain")
    else:
        run = run_to_the_end(spark, store, tmp_path, *SEVERAL_BATCHES)
    frame = spark.read.format("delta").load(str(run.root / "table"))
    assert frame.select("physical_offset").distinct().count() == store.facts["totalMessages"]
    found = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert found == store.facts["messagesPerTopic"]


def test_a_subscriber_is_told_what_arrived(spark: SparkSession, broker_store: Unpack, tmp_path: Path) -> None:
    """After each durable micro-batch: the queues' next offsets, and all messages counted by topic."""
    store = broker_store("v4-lmq")
    config = load_config(
        store.root, broker_conf=store.broker_conf, overrides=("tailGuardMs=20", "maxBytesPerTrigger=500k")
    )
    told: list[ArrivalSummary] = []
    with Tail(config, OutputPaths(tmp_path), quiet_reporter(), told.append) as tail:
        tail.run(spark, available_now=True)
    assert len(told) > 1
    assert [summary.end for summary in told[:-1]] == [summary.start for summary in told[1:]]
    counts: Counter[str] = Counter()
    for summary in told:
        counts.update({topic.topic: topic.messages for topic in summary.topics})
    assert dict(counts) == store.facts["messagesPerTopic"]
    queues = {(arrival.topic, arrival.queue_id): arrival for summary in told for arrival in summary.queues}
    assert sum(topic.startswith("%LMQ%") for topic, _ in queues) > 1
    for (topic, queue_id), arrival in queues.items():
        directory = store.root / "consumequeue" / topic / str(queue_id)
        entries = np.frombuffer(b"".join(path.read_bytes() for path in sorted(directory.iterdir())), ENTRY)
        entries = entries[entries["msg_size"] > 0]
        assert arrival.next_offset == len(entries)
        assert arrival.tags_code == entries["tags_code"][-1]


def test_a_second_run_adds_only_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    """The log grows between two runs: queues and table continue where they were."""
    with CommitLogWriter(tmp_path / "store" / "commitlog", 4096) as writer:
        for number in range(20):
            writer.append(Message(properties={"KEYS": f"k{number}"}))
        run_tail(spark, tmp_path / "store", tmp_path / "out", table=tmp_path / "table")
        first = rows(spark, tmp_path / "table")
        for number in range(20, 50):
            writer.append(Message(properties={"KEYS": f"k{number}"}))
    reporter = run_tail(spark, tmp_path / "store", tmp_path / "out", table=tmp_path / "table")
    assert (first, rows(spark, tmp_path / "table")) == (20, 50)
    assert (reporter.messages("logic"), reporter.messages("table")) == (30, 30)
    rebuild(load_config(tmp_path / "store", overrides=("tailGuardMs=20",)), tmp_path / "fresh")
    assert differing_bytes(tmp_path / "fresh", tmp_path / "out") == {}


@pytest.mark.parametrize(
    "lost",
    [
        "reput/spark-checkpoint",
        "reput",
        pytest.param("consumequeue", marks=pytest.mark.slow),
        pytest.param("index", marks=pytest.mark.slow),
        # More such are in test_any_restart.
        pytest.param("reput/progress", marks=pytest.mark.slow),
        pytest.param("reput/progress/index.json", marks=pytest.mark.slow),
        pytest.param("reput/progress/consumequeue.json", marks=pytest.mark.slow),
        pytest.param("reput/progress/messages.json", marks=pytest.mark.slow),
    ],
)
def test_whatever_is_lost_is_made_again(spark: SparkSession, complete: Run, tmp_path: Path, lost: str) -> None:
    """Lost checkpoints, progress records or files: healed to equal bytes, and no row twice."""
    complete.copied(tmp_path)
    store, out, table = complete.store, tmp_path / "out", tmp_path / "table"
    target = out / lost
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    run_tail(spark, store.root, out, table=table, conf=store.broker_conf)
    assert differing_bytes(store.root, out) == {}
    assert rows(spark, table) == store.facts["totalMessages"]


@pytest.mark.parametrize("query", ["logic", "table"])
def test_a_replayed_batch_changes_nothing(spark: SparkSession, complete: Run, tmp_path: Path, query: str) -> None:
    """Spark forgets that its last batch was done and plans it again: no byte and no row changes."""
    store, out, table = complete.store, tmp_path / "out", tmp_path / "table"
    options = [*SMALL_BATCHES]
    if query == "table":  # one query for both has the other's checkpoint
        options += ["consumeQueueEnable=false", "messageIndexEnable=false"]
        run_tail(spark, store.root, out, *options, table=table, conf=store.broker_conf)
    else:
        complete.copied(tmp_path)
    commits = out / "reput" / "spark-checkpoint" / query / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    run_tail(spark, store.root, out, *options, table=table, conf=store.broker_conf)
    assert query == "table" or differing_bytes(store.root, out) == {}
    assert rows(spark, table) == store.facts["totalMessages"]


def test_one_query_for_both_where_they_stand_at_the_same_offset(
    spark: SparkSession, broker_store: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read once for queues, index and table; where the table is behind, it has a query of its own."""
    store = broker_store("v4-tx-delay-retry")
    out, table, queries = tmp_path / "out", tmp_path / "table", list[tuple[str, ...]]()
    start = QueryOpener._start

    def noting(opener: QueryOpener, session: SparkSession, dispatch: Dispatch, *given: Any) -> Any:
        queries.append(dispatch.names)
        if len(dispatch.names) == 2:
            assert share_no_files(*dispatch._step._writers)
        return start(opener, session, dispatch, *given)

    monkeypatch.setattr(QueryOpener, "_start", noting)
    options = ("maxBytesPerTrigger=200k", "tableMaxBytesPerTrigger=150k")
    reporter = run_tail(spark, store.root, out, *options, table=table, conf=store.broker_conf)
    messages = store.facts["totalMessages"]
    assert queries == [("logic", "table")]
    assert {path.name for path in (out / "reput" / "spark-checkpoint").iterdir()} == {"logic"}
    assert [reporter.messages(name) for name in queries[0]] == [messages, messages]
    assert all(" in 1 batch," not in line for line in reporter.summary())
    assert differing_bytes(store.root, out) == {}
    assert rows(spark, table) == messages

    run_tail(spark, store.root, out, *options, table=tmp_path / "second", conf=store.broker_conf)
    assert queries[1:] == [("logic",), ("table",)]
    run_tail(spark, store.root, out, *options, table=tmp_path / "second", conf=store.broker_conf)
    assert queries[3:] == [("logic", "table")]
    assert {path.name for path in (out / "reput" / "spark-checkpoint").iterdir()} == {"logic"}
    assert [rows(spark, tmp_path / name) for name in ("table", "second")] == [messages, messages]


def test_a_new_sink_catches_up_with_the_checkpoint(spark: SparkSession, broker_store: Unpack, tmp_path: Path) -> None:
    """The index is switched on after Spark's checkpoint has passed the log: it is filled all the same.

    Before, with messageIndexEnable=false, there is no index, and the queues are the same.
    """
    store = broker_store("v4-tx-delay-retry")
    run_tail(spark, store.root, tmp_path / "out", "messageIndexEnable=false", conf=store.broker_conf)
    assert not (tmp_path / "out" / "index").exists()
    assert differing_bytes(store.root, tmp_path / "out", index=False) == {}
    run_tail(spark, store.root, tmp_path / "out", conf=store.broker_conf)
    assert differing_bytes(store.root, tmp_path / "out") == {}


def test_what_catches_up_takes_batches_of_its_querys_size(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new table behind Spark's checkpoint is filled by ``tableMaxBytesPerTrigger``, not by the other query's size."""
    records = write_log(
        tmp_path / "store" / "commitlog",
        (Message(body=bytes(100), properties={"KEYS": f"k{number}"}) for number in range(200)),
        1 << 20,
    )
    size = records[-1].physical_offset // 4
    run_tail(spark, tmp_path / "store", tmp_path / "out", table=tmp_path / "first")
    batches: list[tuple[str, int]] = []
    monkeypatch.setattr(
        ProgressReporter, "on_batch", lambda _, batch: batches.append((batch.query, batch.end - batch.start))
    )
    sizes = (f"tableMaxBytesPerTrigger={size}", "maxMessagesPerTrigger=30")
    run_tail(spark, tmp_path / "store", tmp_path / "out", *sizes, table=tmp_path / "second")
    assert {query for query, _ in batches} == {"table"}
    assert len(batches) == 200 // 30 + 1
    assert all(bytes_of <= size for _, bytes_of in batches)
    assert rows(spark, tmp_path / "second") == 200


def test_the_brokers_own_files_are_taken_over(spark: SparkSession, broker_store: Unpack, tmp_path: Path) -> None:
    """An output with a broker's complete files is left as it is, byte for byte."""
    store = broker_store("v4-plain")
    copy = tmp_path / "store"
    shutil.copytree(store.root, copy)
    reporter = run_tail(spark, copy, copy, conf=store.broker_conf)
    assert differing_bytes(store.root, copy) == {}
    # The queues end with the log; the index ends with the last record that has a key.
    assert reporter.messages("logic") < 10


def test_the_log_is_not_touched(complete: Run) -> None:
    """Sizes, times and bytes of the commitlog are the same before and after."""
    assert len(complete.log_before) > 0
    assert files_of_log(complete.store) == complete.log_before


def test_a_log_that_was_cut_and_written_on_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    """Another record at the place of the last one that was dispatched stops the run."""
    with CommitLogWriter(tmp_path / "store" / "commitlog", 4096) as writer:
        writer.append(Message(body=b"one"))
        writer.append(Message(body=b"two"))
    run_tail(spark, tmp_path / "store", tmp_path / "out")
    shutil.rmtree(tmp_path / "store")
    with CommitLogWriter(tmp_path / "store" / "commitlog", 4096) as writer:
        writer.append(Message(body=b"one"))
        writer.append(Message(body=b"six"))
        writer.append(Message(body=b"ten"))
    with pytest.raises(CommitLogRewoundError, match="cut the log and wrote on"):
        run_tail(spark, tmp_path / "store", tmp_path / "out")


def test_expired_records_are_a_loss_unless_allowed(spark: SparkSession, tmp_path: Path) -> None:
    """The first segment expires unread: an error, and with failOnDataLoss=false a jump."""
    store = tmp_path / "store"
    with CommitLogWriter(store / "commitlog", 1024) as writer:
        for number in range(3):
            writer.append(Message(properties={"KEYS": f"k{number}"}))
        run_tail(spark, store, tmp_path / "out", table=tmp_path / "table")
        for number in range(3, 40):
            writer.append(Message(properties={"KEYS": f"k{number}"}))
        expired = sorted((store / "commitlog").iterdir())[:2]
        kept = [record for record in writer.records if record.physical_offset >= 2048]
    for path in expired:
        path.unlink()
    with pytest.raises(DataLossError, match="failOnDataLoss=false"):
        run_tail(spark, store, tmp_path / "out", table=tmp_path / "table")
    run_tail(spark, store, tmp_path / "out", "failOnDataLoss=false", table=tmp_path / "table")
    assert rows(spark, tmp_path / "table") == 3 + len(kept)


def test_a_broker_on_the_output_is_refused(
    broker_store: Unpack, tmp_path: Path, hold_lock: Callable[[Path], int]
) -> None:
    """The lock of the output is held: the message names the process, nothing is written."""
    store = broker_store("v4-plain")
    (tmp_path / "out").mkdir()
    holder = hold_lock(tmp_path / "out" / "lock")
    config = load_config(store.root, broker_conf=store.broker_conf)
    reporter = quiet_reporter()
    with (
        pytest.raises(StoreLockedError, match=f"by process {holder}"),
        Tail(config, OutputPaths(tmp_path / "out"), reporter),
    ):
        pass
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["lock"]


def test_another_store_with_the_same_checkpoint_is_refused(
    spark: SparkSession, broker_store: Unpack, plain: Run, tmp_path: Path
) -> None:
    """A checkpoint that was made for one store is not used for another."""
    killed = broker_store("v4-killed-rebuilt")
    plain.copied(tmp_path)
    with pytest.raises(ReputError, match="another"):
        run_tail(spark, killed.root, tmp_path / "out", conf=killed.broker_conf)


def test_a_table_of_another_store_is_refused(
    spark: SparkSession, broker_store: Unpack, plain: Run, tmp_path: Path
) -> None:
    """Two stores under one broker name cannot share a table: the second would look like rows already there."""
    killed = broker_store("v4-killed-rebuilt")
    plain.copied(tmp_path)
    with pytest.raises(CommitLogRewoundError, match="messages has a record"):
        run_tail(spark, killed.root, tmp_path / "two", table=tmp_path / "table", conf=killed.broker_conf)
    run_tail(spark, killed.root, tmp_path / "two", "broker=b", table=tmp_path / "table", conf=killed.broker_conf)
    assert rows(spark, tmp_path / "table") == plain.store.facts["totalMessages"] + killed.facts["totalMessages"]


def test_output_inside_the_commitlog_is_refused(tmp_path: Path) -> None:
    """Nothing is written below a commitlog, whatever the user says."""
    write_log(tmp_path / "store" / "commitlog", [Message()], 4096)
    inside = tmp_path / "store" / "commitlog" / "out"
    for paths in (OutputPaths(inside), OutputPaths(tmp_path / "o", inside)):
        with (
            pytest.raises(OutputError, match="inside the commitlog"),
            Tail(load_config(tmp_path / "store"), paths, quiet_reporter()),
        ):
            pass
    assert not inside.exists()


def test_the_progress_record_is_keyed_by_physical_offset(plain: Run) -> None:
    """Each sink's record ends where the log ends, and names the last record."""
    for name in ("consumequeue", "index", "messages"):
        record = json.loads((plain.root / "out" / "reput" / "progress" / f"{name}.json").read_text())
        last = record["last_record"]
        assert (record["start_offset"], record["end_offset"]) == (0, last["offset"] + last["size"])
