"""`reput sql` over a table that `reput tail` made."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from record_writer import CommitLogWriter, Message
from rich.console import Console

from reput.source.errors import OptionError, OutputError
from reput.streaming.config import load_config
from reput.streaming.progress import ProgressReporter
from reput.streaming.sql import query, write_result
from reput.streaming.tail import Tail, TailPaths

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of four messages."""
    root = tmp_path_factory.mktemp("sql")
    with CommitLogWriter(root / "store" / "commitlog", 4096) as writer:
        for tags in ("A", "B", "A", "A"):
            writer.append(Message(properties={"TAGS": tags, "KEYS": "k, 1"}))
    config = load_config(root / "store", overrides=["tailGuardMs=10", "consumeQueueEnable=false"])
    with Tail(
        config, TailPaths(root / "out", root / "table", None), ProgressReporter(Console(file=io.StringIO()))
    ) as tail:
        tail.run(spark, available_now=True)
    return root / "table"


STATEMENT = "SELECT tags, count(*) n, first(keys) keys, min(store_time) t FROM messages GROUP BY tags ORDER BY tags"


@pytest.mark.parametrize("output_format", ["csv", "json", "table"])
def test_formats(spark: SparkSession, table: Path, output_format: str) -> None:
    """The same rows as CSV with a header, as a JSON object a line, as a drawn table."""
    out, screen = io.StringIO(), io.StringIO()
    count = write_result(query(spark, table, STATEMENT), output_format, out, Console(file=screen, width=200))
    assert count == 2
    if output_format == "csv":
        assert out.getvalue().splitlines() == [
            "tags,n,keys,t",
            'A,3,"[""k,"", ""1""]",2023-11-14 22:13:20.001',
            'B,1,"[""k,"", ""1""]",2023-11-14 22:13:20.001',
        ]
    elif output_format == "json":
        first, second = (json.loads(line) for line in out.getvalue().splitlines())
        assert first == {"tags": "A", "n": 3, "keys": ["k,", "1"], "t": "2023-11-14 22:13:20.001"}
        assert second["n"] == 1
    else:
        assert "2 rows" in screen.getvalue()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM messages",
        "DROP VIEW messages",
        "INSERT INTO messages SELECT * FROM messages",
        "SELEKT 1",
        "SELECT x FROM y",
    ],
)
def test_only_queries_are_run(spark: SparkSession, table: Path, statement: str) -> None:
    """Anything that would change the table, and anything that Spark does not understand."""
    with pytest.raises(OptionError):
        query(spark, table, statement)
    assert query(spark, table, "SELECT * FROM messages").count() == 4


def test_a_path_without_a_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The path and what makes a table are named."""
    with pytest.raises(OutputError, match="is no Delta table"):
        query(spark, tmp_path, "SELECT 1")
