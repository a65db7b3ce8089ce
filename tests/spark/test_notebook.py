"""The data source without `register`, as a notebook has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from support.notebook import messages_by_topic, program_for

from reput.source.data_source import NAME, CommitLogDataSource

pytestmark = [pytest.mark.spark, pytest.mark.long]

GetStore = Callable[[str], BrokerStore]


def test_spark_finds_the_source_by_itself(spark: SparkSession, broker_store: GetStore, tmp_path: Path) -> None:
    """In a session that does not register it: in batches, as a stream, and beside one that registers it later."""
    store = broker_store("v4-tx-delay-retry")
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    log = session.read.format(NAME).load(str(store.root))
    counts = {row["topic"]: row["count"] for row in log.groupBy("topic").count().collect()}
    assert counts == store.facts["messagesPerTopic"]
    stream = session.readStream.format(NAME).load(str(store.root)).writeStream.format("memory").queryName("by_itself")
    stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert session.table("by_itself").count() == store.facts["totalMessages"]
    session.dataSource.register(CommitLogDataSource)
    assert session.read.format(NAME).load(str(store.root)).count() == store.facts["totalMessages"]


@pytest.mark.slow
def test_the_example(broker_store: GetStore, tmp_path: Path) -> None:
    """As a program by itself, in a Python that is not the first on the path; `make pythons` runs it in each."""
    store = broker_store("golden-b")
    program = tmp_path / "notebook.py"
    program.write_text(program_for(store.root))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert messages_by_topic(done.stdout) == store.facts["messagesPerTopic"]
    assert "|store_time" in done.stdout
