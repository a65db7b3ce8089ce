"""G2: where the very first batch began is durable before it runs, though Spark's checkpoint does not hold it."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from support.proof_counts import Proof
from support.record_writer import Message, StoredRecord, write_log
from support.tail_runs import rows, run_tail

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.table.message_table import MessageTable, TableBatch
from reput.source.errors import DataLossError

pytestmark = pytest.mark.spark

QUEUES, TABLE = ["consumeQueueEnable=true"], ["consumeQueueEnable=false", "messageIndexEnable=false"]


def write_messages(store: Path, count: int) -> list[StoredRecord]:
    return write_log(store / "commitlog", (Message(properties={"KEYS": f"k{number}"}) for number in range(count)), 1024)


@pytest.mark.parametrize("sink", ["queues", "table"])
def test_expiry_between_a_failed_first_batch_and_the_next_start(
    spark: SparkSession, tmp_path: Path, sink: str, proof: Proof
) -> None:
    """The first batch fails, the segment it began in expires: the loss is an error; allowed, the rest is taken."""
    store = tmp_path / "store"
    records = write_messages(store, 30)
    options, table = (QUEUES, None) if sink == "queues" else (TABLE, tmp_path / "table")
    what = (LogicBatch, "merge") if sink == "queues" else (TableBatch, "merge")
    with (
        mock.patch.object(*what, side_effect=ZeroDivisionError("no first batch")),
        pytest.raises(ZeroDivisionError, match="no first batch"),
    ):
        run_tail(spark, store, tmp_path / "out", *options, table=table)
    min((store / "commitlog").iterdir()).unlink()
    with pytest.raises(DataLossError, match="ends at 0 and the log begins at 1024"):
        run_tail(spark, store, tmp_path / "out", *options, table=table)
    reporter = run_tail(spark, store, tmp_path / "out", "failOnDataLoss=false", *options, table=table)
    left = sum(record.physical_offset >= 1024 for record in records)
    assert reporter.messages("logic" if sink == "queues" else "table") == left
    if table is not None:
        assert rows(spark, table) == left
    proof("G2 first starts with expiry before the next")


def test_a_tables_beginning_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    """Even until it has a row; a table that lost its rows begins where its option says."""
    table, output = tmp_path / "table", DurableFiles(tmp_path / "out")
    assert MessageTable(table, "b", output).recover(500).end_offset == 500
    assert MessageTable(table, "b", output).recover(900).end_offset == 500
    again = MessageTable(table, "b", output)
    again.recover(0)
    again.pass_over(1000)
    assert MessageTable(table, "b", output).recover(0).end_offset == 1000
    other = MessageTable(tmp_path / "other", "b", output)
    assert other.recover(700).end_offset == 700
