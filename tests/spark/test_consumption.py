"""A tail writes where a broker's consumer groups are into the ledger beside its table, and nothing while none moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from support.tail_runs import run_tail

from reput.sinks.table.consumption import ConsumptionTable
from reput.streaming.ask.store_relations import consumer_offsets

pytestmark = pytest.mark.spark


def test_the_ledger_has_the_offsets_of_the_broker(
    spark: SparkSession, broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    store, table = broker_store("v4-tx-delay-retry"), tmp_path / "table"
    for _ in range(2):
        run_tail(spark, store.root, tmp_path / "out", table=table, conf=store.broker_conf)
    found, _ = ConsumptionTable(table, "broker-a", 1000).state()
    rows = [(group, topic, *each) for (group, topic), queues in found.items() for each in queues.items()]
    assert sorted(rows) == sorted(consumer_offsets(store.root)) != []
    log = tmp_path / "table-consumption" / "_delta_log"
    assert len(list(log.glob("*.json"))) == 2  # the table, and one commit


def test_no_ledger_without_a_table(
    spark: SparkSession, broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    store = broker_store("v4-tx-delay-retry")
    run_tail(spark, store.root, tmp_path / "out", conf=store.broker_conf)
    assert not (tmp_path / "out" / "reput" / "consumption.json").exists()
