"""Both engines of `reput sql` give the same rows of one question, in the same form."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from support.proof_counts import Proof
from support.sql_corpus import statements
from support.tail_runs import run_tail

from reput.sinks.table.log import read_snapshot
from reput.source.errors import ReputError
from reput.streaming.sql.duckdb_query import duckdb_query
from reput.streaming.sql.output import write_result
from reput.streaming.sql.spark_query import SparkResult, query, spark_failures_as_errors

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]

BOTH = statements("sql_both.sql")
# In short, every fourth statement.
SHARES = [4, pytest.param(1, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def table(
    spark: SparkSession, broker_store: Callable[[str], BrokerStore], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The table of a real broker's store with messages of many kinds."""
    store, root = broker_store("v4-tx-delay-retry"), tmp_path_factory.mktemp("engines")
    options = ("consumeQueueEnable=false", "messageIndexEnable=false", "tableIncludeBody=true")
    run_tail(spark, store.root, root / "out", *options, table=root / "table", conf=store.broker_conf)
    return root / "table"


def by_spark(spark: SparkSession, table: Path, statement: str, version: int | None = None) -> list[str]:
    out = io.StringIO()
    with spark_failures_as_errors(table):
        write_result(SparkResult(query(spark, table, statement, version)), "csv", out)
    return out.getvalue().splitlines()[1:]  # each engine has names of its own for what has none


def by_duckdb(table: Path, statement: str, version: int | None = None) -> list[str]:
    out = io.StringIO()
    with duckdb_query(table, statement, at=version) as result:
        write_result(result, "csv", out)
    return out.getvalue().splitlines()[1:]


def canonical(lines: list[str]) -> list[str]:
    """The lines with the entries of each map sorted: Spark's come in no order."""
    return [
        "\t".join(json.dumps(json.loads(cell), sort_keys=True) if cell.startswith("{") else cell for cell in row)
        for row in csv.reader(lines)
    ]


@pytest.mark.parametrize("share", SHARES)
def test_the_same_rows(share: int, spark: SparkSession, table: Path, proof: Proof) -> None:
    """Of a table of a real broker's store, in the same order where the question has one."""
    asked, wrong = BOTH[::share], []
    assert len(BOTH) >= 50
    for _, statement in asked:
        try:
            rows = by_spark(spark, table, statement), by_duckdb(table, statement)
        except ReputError as error:
            wrong.append(f"{statement}: {error}")
            continue
        assert rows[0], statement
        rows = canonical(rows[0]), canonical(rows[1])
        if "ORDER BY" not in statement.rpartition(")")[2]:
            rows = sorted(rows[0]), sorted(rows[1])
        wrong += [f"{statement}: {one} {other}" for one, other in zip(*rows, strict=False) if one != other][:1]
        wrong += [statement] if len(rows[0]) != len(rows[1]) else []
    assert wrong == []
    proof("sql questions of which both engines give the same rows", len(asked))


def test_deletion_vectors_and_earlier_versions(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    """Rows that a deletion vector removes are gone for both; the version before has them."""
    copy = tmp_path / "table"
    shutil.copytree(table, copy)
    spark.sql(f"ALTER TABLE delta.`{copy}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    before = read_snapshot(copy).version
    spark.sql(f"DELETE FROM delta.`{copy}` WHERE physical_offset % 2 = 0 OR kind = 'retry'")
    statement = "SELECT physical_offset, uniq_key, keys FROM messages ORDER BY physical_offset"
    now, then = by_duckdb(copy, statement), by_duckdb(copy, statement, before)
    assert next(read_snapshot(copy).files()).vector is not None
    assert 0 < len(now) < len(then)
    assert now == by_spark(spark, copy, statement)
    assert then == by_spark(spark, copy, statement, before) == by_duckdb(table, statement)
