"""The Hive statements of docs/catalogs.md, run unchanged, beside the process that keeps the table."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession
from support.hive_session import HiveSession
from support.kept_table import KeptTable
from support.paths import ROOT

from reput.sinks.table.retention import RowRetention
from reput.sinks.table.upkeep import TableUpkeep
from reput.source.errors import OutputError

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = (ROOT / "docs/catalogs.md").read_text(encoding="utf-8")
(HIVE,) = re.findall(r"^## Hive metastore, with Spark\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
SERVICE = "spark.hadoop.hive.metastore.uris"
NAME = "rocketmq.messages"


def blocks(language: str) -> list[str]:
    """The code of one language in the page's part on Spark."""
    return re.findall(rf"^```{language}\n(.*?)^```$", HIVE, re.DOTALL | re.MULTILINE)


def settings() -> dict[str, str]:
    """The page's, without the metastore's address: its place is taken by Derby within the process."""
    (block,) = blocks("properties")
    found = dict(line.split("=", 1) for line in block.splitlines())
    assert found.pop(SERVICE)
    return found


def statements(table: Path) -> list[str]:
    return [
        statement.strip().replace("/data/messages", str(table))
        for block in blocks("sql")
        for statement in block.split(";")
        if statement.strip()
    ]


def contents(table: Path) -> dict[str, bytes]:
    """Every file of the table, log and all."""
    return {str(path.relative_to(table)): path.read_bytes() for path in table.rglob("*") if path.is_file()}


def topics(count: int) -> dict[str, int]:
    """Return messages by topic among the first ones, up to a number."""
    return Counter("AB"[number % 2] for number in range(count))


def test_the_statements_of_the_page(spark: SparkSession, tmp_path: Path) -> None:
    """Commits of reput are visible by name without a refresh, and no statement writes to the table."""
    kept = KeptTable(spark, tmp_path)
    table = kept.open()
    kept.fill(table, range(2, 21, 2))
    database, create, select, detail = statements(kept.path)
    drop = f"DROP TABLE {NAME}"
    assert f"`{drop}`" in HIVE

    with HiveSession(tmp_path / "hive", settings()) as hive:

        def seen() -> dict[str, int]:
            return {row["topic"]: row["messages"] for row in hive.sql(select)}

        def columns() -> list[str]:
            return [row["col_name"] for row in hive.sql(f"DESCRIBE {NAME}")]

        before = contents(kept.path)
        hive.sql(database)
        hive.sql(create)
        (row,) = hive.sql(detail)
        assert (row["location"], row["minReaderVersion"], row["minWriterVersion"]) == (f"file:{kept.path}", 1, 2)
        assert seen() == topics(20)
        assert "body" not in columns()
        assert contents(kept.path) == before

        kept.fill(table, [22])
        assert seen() == topics(22)
        table = kept.open("tableIncludeBody=true")
        kept.fill(table, [24])
        assert columns()[-2:] == ["body", "body_bytes"]
        assert hive.sql(f"SELECT count(body) AS bodies FROM {NAME}") == [{"bodies": 2}]
        upkeep = TableUpkeep(table.delta, "b", 3)
        assert upkeep.step(60.0).merges == 1
        assert seen() == topics(24)
        upkeep = TableUpkeep(table.delta, "b", 3, RowRetention.parse("A=forever, *=30d"))
        assert upkeep.step(60.0).expired.rows == 12
        assert seen() == {"A": 12}

        before = contents(kept.path)
        with pytest.raises(ValueError, match="MSCK REPAIR TABLE is not supported"):
            hive.sql(f"MSCK REPAIR TABLE {NAME}")
        hive.sql("SET spark.databricks.delta.properties.defaults.enableDeletionVectors=true")
        hive.sql("SET spark.databricks.delta.properties.defaults.columnMapping.mode=name")
        hive.sql(create.replace(NAME, "rocketmq.again"))
        with pytest.raises(ValueError, match="DELTA_CREATE_TABLE_SCHEME_MISMATCH"):
            hive.sql(create.replace(NAME, "rocketmq.other (x int)"))
        hive.sql(drop)
        assert [row["tableName"] for row in hive.sql("SHOW TABLES IN rocketmq")] == ["again"]
        hive.sql("DROP DATABASE rocketmq CASCADE")
        assert contents(kept.path) == before
    kept.fill(kept.open(), [26])
    assert len(deltalake.DeltaTable(str(kept.path)).to_pyarrow_table()) == 14


def test_a_later_session_has_the_name(spark: SparkSession, tmp_path: Path) -> None:
    """The name leads to what reput committed meanwhile, with its new columns; a REPLACE by name stops reput."""
    kept = KeptTable(spark, tmp_path)
    kept.fill(kept.open(), [10])
    database, create, select, *_ = statements(kept.path)
    with HiveSession(tmp_path / "hive", settings()) as hive:
        hive.sql(database)
        hive.sql(create)
    kept.fill(kept.open("tableIncludeBody=true"), [20])
    with HiveSession(tmp_path / "hive", settings()) as hive:
        assert {row["topic"]: row["messages"] for row in hive.sql(select)} == topics(20)
        assert hive.sql(f"SELECT count(body) AS bodies FROM {NAME}") == [{"bodies": 10}]
        hive.sql(create.replace("CREATE", "CREATE OR REPLACE").replace(NAME, f"{NAME} (x int)"))
        assert hive.sql(f"SELECT * FROM {NAME}") == []
    with pytest.raises(OutputError):
        kept.open()


def test_a_name_for_a_table_that_is_not_there_yet(spark: SparkSession, tmp_path: Path) -> None:
    """An empty one is made in its place, which reput refuses."""
    kept = KeptTable(spark, tmp_path)
    database, create, *_ = statements(kept.path)
    with HiveSession(tmp_path / "hive", settings()) as hive:
        hive.sql(database)
        hive.sql(create)
        with pytest.raises(OutputError, match="a Delta table with other columns"):
            kept.open()
