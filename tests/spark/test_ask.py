"""`reput ask`: both engines give the same rows of each question, and take the same texts for values."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timezone
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from support.broker_table import make_table
from support.hostile_texts import HOSTILE_TEXTS
from support.proof_counts import Proof

from reput.sinks.table.columns import FIRST_SEEN, PROGRESS, QUARANTINE_SCHEMA, RESET_BACK
from reput.sinks.table.consumption import ConsumptionTable, Move
from reput.streaming.ask.question import questions
from reput.streaming.ask.relations import relations_of
from reput.streaming.ask.values import literal, statement_of, values_of, with_relations
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.sql.duckdb_query import duckdb_query
from reput.streaming.sql.output import Relations, Result, write_result
from reput.streaming.sql.spark_query import SparkResult, query, spark_failures_as_errors

pytestmark = pytest.mark.spark

# In short, every third question.
SHARES = [3, pytest.param(1, marks=pytest.mark.slow)]
NOW = datetime(2026, 11, 20, 23, 59, 30, tzinfo=timezone.utc)
# Beside what is required, so that each condition is asked.
GIVEN: Mapping[str, Mapping[str, str]] = {
    "by-key": {"key": "retry-0", "topic": "%RETRY%retry_cg", "since": "5m", "until": "now", "broker": "broker-a"},
    "life": {"key": "tx-300"},
    "consumed": {"key": "retry-0"},
    "window": {"group": "retry_cg", "topic": "RetryTopic"},
    "unconsumed": {"group": "delay_cg", "topic": "DelayTopic"},
    "retention": {"log_bytes_max": "3000000"},
    "delayed": {"topic": "RetryTopic", "group": "retry_cg"},
}


@pytest.fixture(scope="module")
def store(broker_store: Callable[[str], BrokerStore]) -> BrokerStore:
    return broker_store("v4-tx-delay-retry")


@pytest.fixture(scope="module")
def config(store: BrokerStore, tmp_path_factory: pytest.TempPathFactory) -> PipelineConfig:
    """Of a copy of the store, whose broker has forgotten a topic."""
    root = tmp_path_factory.mktemp("forgetful") / "store"
    shutil.copytree(store.root, root)
    topics = json.loads((root / "config" / "topics.json").read_text())
    del topics["topicConfigTable"]["DelayTopic"]
    (root / "config" / "topics.json").write_text(json.dumps(topics))
    return load_config(root, overrides=["broker=broker-a"], only_reads=True)


@pytest.fixture(scope="module")
def table(store: BrokerStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store's messages, less some and some twice, so that there are gaps and repeats; and its quarantine."""
    path = tmp_path_factory.mktemp("asked") / "table"
    make_table(store, path)
    delta = deltalake.DeltaTable(str(path))
    delta.delete("topic = 'RetryTopic' AND queue_offset BETWEEN 30 AND 33")
    rows = delta.to_pyarrow_table()
    deltalake.write_deltalake(str(path), rows.filter(pa.compute.equal(rows["topic"], "DelayTopic")), mode="append")
    left_out = ["broker-a", 70, 10, "BAD_MAGIC", "0", 70, "00ff", "2026-11-20T23:59:00.000Z", "quarantine"]
    lines = pa.Table.from_pylist([dict(zip(QUARANTINE_SCHEMA.names, left_out, strict=True))], QUARANTINE_SCHEMA)
    deltalake.write_deltalake(f"{path}-quarantine", lines)
    at = NOW.timestamp() * 1000
    moves = [
        Move("retry_cg", "RetryTopic", queue_id, before, after, since and int(at) + since, int(at) + until, kind)
        for before, after, since, until, kind in [
            (None, 0, None, 1, FIRST_SEEN),
            (0, 500, 2, 3, PROGRESS),
            (500, 0, 4, 5, RESET_BACK),
        ]
        for queue_id in range(8)
    ]
    ConsumptionTable(path, "broker-a", 1000).append(moves, 1)
    return path


def shown(result: AbstractContextManager[Result]) -> list[str]:
    out = io.StringIO()
    with result as rows:
        write_result(rows, "csv", out)
    return out.getvalue().splitlines()


def by_spark(spark: SparkSession, table: Path, statement: str, relations: Relations) -> list[str]:
    with spark_failures_as_errors(table):
        return shown(nullcontext(SparkResult(query(spark, table, statement, relations=relations))))


@pytest.mark.parametrize("share", SHARES)
def test_the_same_rows_of_each_question(
    share: int, spark: SparkSession, table: Path, config: PipelineConfig, proof: Proof
) -> None:
    """In the same order, under the same names."""
    counts = {}
    for name, question in list(questions().items())[::share]:
        values = values_of(question, GIVEN.get(name, {}), lambda: NOW)
        relations = relations_of(question, table, config, print, values)
        of_spark = by_spark(spark, table, statement_of(question, values, for_spark=True), relations)
        of_duckdb = shown(duckdb_query(table, statement_of(question, values, for_spark=False), relations=relations))
        assert of_spark == of_duckdb, name
        counts[name] = len(of_duckdb) - 1
    assert min(counts.values()) > 0, counts
    proof("questions of which both engines give the same rows", len(counts))


def test_a_question_with_its_relations_written_out(spark: SparkSession, table: Path, config: PipelineConfig) -> None:
    """The output of --show-sql gives the same rows by itself."""
    question = questions()["lag"]
    relations = relations_of(question, table, config, print)
    values = values_of(question, {}, lambda: NOW)
    statement = statement_of(question, values, for_spark=True)
    alone = with_relations(statement, relations, for_spark=True)
    assert by_spark(spark, table, alone, {}) == by_spark(spark, table, statement, relations)


def test_any_text_is_a_value(spark: SparkSession, table: Path) -> None:
    """Of a quote, a backslash, a comment, a variable, a line end: Spark takes it for the text that it is."""
    columns = ", ".join(literal("text", text, for_spark=True) for text in HOSTILE_TEXTS)
    assert query(spark, table, f"SELECT {columns}").collect() == [HOSTILE_TEXTS]
