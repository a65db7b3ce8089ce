"""`reput recover` and `reput expire` between two runs of `reput tail`: what follows has the bytes of a fresh output."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from support.rebuild_runner import rebuild
from support.record_writer import Message, write_log
from support.sink_runner import queue_files
from support.store_compare import differing_bytes
from support.tail_runs import quiet_reporter, run_tail

from reput.source.errors import CommitLogRewoundError, OutputError
from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.recover.recover import expire_output, recover_output
from reput.streaming.tail.tail import Tail

pytestmark = pytest.mark.spark

SIZES = ("tailGuardMs=20", "mappedFileSizeConsumeQueue=200", "maxHashSlotNum=50", "maxIndexNum=20")


def put_log(store: Path, messages: Sequence[Message]) -> None:
    shutil.rmtree(store, ignore_errors=True)
    write_log(store / "commitlog", messages, 4096)


def message(number: int, size: int = 20) -> Message:
    return Message("AB"[number % 2], body=bytes(size), properties={"KEYS": f"k{number}"}, store_timestamp=1000 * number)


@pytest.mark.parametrize("written_anew", [0, 30], ids=["cut", "cut and written anew"])
def test_a_log_that_was_cut(spark: SparkSession, tmp_path: Path, written_anew: int) -> None:
    """The tail refuses and names the command; after it the tail continues to the bytes of a new output."""
    store, output = tmp_path / "store", tmp_path / "out"
    put_log(store, [message(i) for i in range(100)])
    run_tail(spark, store, output, *SIZES)
    put_log(store, [message(i) for i in range(70)] + [message(100 + i, 33) for i in range(written_anew)])
    with pytest.raises(CommitLogRewoundError, match="'reput recover' with the same --store and --output"):
        run_tail(spark, store, output, *SIZES)
    report = recover_output(load_config(store, overrides=SIZES), store, output)
    assert report.rewound
    assert report.spark_checkpoint_removed
    run_tail(spark, store, output, *SIZES)
    rebuild(load_config(store, overrides=SIZES), tmp_path / "fresh")
    assert differing_bytes(tmp_path / "fresh", output) == {}


def test_expiry_between_two_runs(spark: SparkSession, tmp_path: Path) -> None:
    """The tail continues after it as if nothing had gone."""
    store, output = tmp_path / "store", tmp_path / "out"
    messages = [message(i) for i in range(200)]
    put_log(store, messages[:150])
    run_tail(spark, store, output, *SIZES)
    put_log(store, messages)
    rebuild(load_config(store, overrides=SIZES), tmp_path / "fresh")
    for segment in sorted((store / "commitlog").iterdir())[:2]:
        segment.unlink()
    report = expire_output(load_config(store, overrides=SIZES), output)
    assert len(report.removed) > 3
    run_tail(spark, store, output, *SIZES)
    for path in report.removed:
        if path.startswith("consumequeue/"):
            (tmp_path / "fresh" / path).unlink()
    assert queue_files(output) == queue_files(tmp_path / "fresh")


def test_a_killed_brokers_store_as_output(
    spark: SparkSession, broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    """Refused while `abort` is all there is; recovered, with queues damaged on top, it equals the rebuilt store."""
    killed, rebuilt = broker_store("v4-killed"), broker_store("v4-killed-rebuilt")
    store = tmp_path / "store"
    shutil.copytree(killed.root, store)
    lost = max((store / "consumequeue" / "Flood" / "1").iterdir())
    lost.unlink()
    config = load_config(store, broker_conf=killed.broker_conf, overrides=["tailGuardMs=20"])
    paths, reporter = OutputPaths(store), quiet_reporter()
    with pytest.raises(OutputError, match="stopped uncleanly"), Tail(config, paths, reporter):
        pass
    recover_output(config, store, store)
    with Tail(config, paths, reporter) as tail:
        tail.run(spark, available_now=True)
    assert reporter.messages("logic") > 0
    assert differing_bytes(rebuilt.root, store) == {}
