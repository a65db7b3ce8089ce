"""`reput sql` over a table that `reput tail` made."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from support.record_writer import Message, write_log
from support.tail_runs import tail_of

from reput.source.errors import OptionError, OutputError
from reput.streaming.config.pipeline import load_config
from reput.streaming.sql.output import write_result
from reput.streaming.sql.spark_query import SparkResult, query, spark_failures_as_errors

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of four messages."""
    return make_table(spark, tmp_path_factory.mktemp("sql"))


def make_table(spark: SparkSession, root: Path) -> Path:
    """The same, below `root`."""
    write_log(
        root / "store" / "commitlog",
        (Message(properties={"TAGS": tags, "KEYS": "k, 1"}) for tags in ("A", "B", "A", "A")),
        4096,
    )
    config = load_config(root / "store", overrides=["tailGuardMs=10", "consumeQueueEnable=false"])
    with tail_of(config, root / "out", root / "table") as tail:
        tail.run(spark, available_now=True)
    return root / "table"


STATEMENT = "SELECT tags, count(*) n, first(keys) keys, min(store_time) t FROM messages GROUP BY tags ORDER BY tags"


@pytest.mark.parametrize("output_format", ["csv", "json", "table"])
def test_formats(spark: SparkSession, table: Path, output_format: str) -> None:
    """The same rows as CSV with a header, as a JSON object a line, as a drawn table."""
    out, screen = io.StringIO(), io.StringIO()
    rows = SparkResult(query(spark, table, STATEMENT))
    count = write_result(rows, output_format, out, console=Console(file=screen, width=200))
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
    ("statement", "words"),
    [
        ("DELETE FROM messages", "refused: DeleteFromTable is not among"),
        ("WITH x AS (SELECT 1) INSERT INTO delta.`{}` SELECT * FROM messages", "refused: InsertIntoStatement is not"),
        ("SELECT reflect('java.lang.System', 'getenv', 'HOME')", "refused: function reflect is not among"),
        ("SELECT * FROM text.`/etc/passwd`", "refused: the only tables are messages"),
        ("SELEC 1", "Syntax error at or near 'SELEC'. (line 1, column 1)"),
        ("", "Syntax error, unexpected empty statement. (line 1, column 1)"),
        ("SELECT nope FROM messages", "with name `nope` cannot be resolved"),
        ("SELECT 1 / 0", "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead."),
        ("SELECT CAST(topic AS INT) FROM messages", "The value 'TopicTest' of the type \"STRING\" cannot be cast"),
        ("SELECT array(1)[5]", "The index 5 is out of bounds"),
        ("SELECT raise_error('a\x1b[31mb') FROM messages", r"a\x1b[31mb"),
        ("SELECT from_json('{', 'a INT', map('mode', 'FAILFAST'))", "Malformed records are detected"),
        ("SELECT TIMESTAMP'0000-01-01 00:00:00'", "a value of the result cannot be shown: year 0 is out of range"),
        pytest.param("SELECT " + "(" * 3000 + "1" + ")" * 3000, "nested too deeply", id="deep"),
    ],
)
def test_a_wrong_statement_is_told_in_one_line(
    spark: SparkSession, table: Path, statement: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is the user's to change; nothing else reaches the terminal."""
    with pytest.raises(OptionError) as raised, spark_failures_as_errors(table):
        query(spark, table, statement.replace("{}", str(table))).collect()
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "SQLSTATE" not in str(raised.value)
    assert capfd.readouterr().err == ""
    assert query(spark, table, "SELECT * FROM messages").count() == 4


def test_variables_stay_text(spark: SparkSession, table: Path) -> None:
    """Neither the environment nor a setting gets into a statement, and the session's own setting is as it was."""
    before = spark.conf.get("spark.sql.variable.substitute")
    rows = query(spark, table, "SELECT '${env:HOME}' a, '${system:user.home}' b, '${spark.app.name}' c").collect()
    assert tuple(rows[0]) == ("${env:HOME}", "${system:user.home}", "${spark.app.name}")
    assert spark.conf.get("spark.sql.variable.substitute") == before


def missing(file: Path) -> None:
    file.unlink()


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


@pytest.mark.parametrize("damage", [missing, truncated])
@pytest.mark.parametrize("part", ["*.parquet", "_delta_log/*.json"])
def test_a_damaged_table_is_told_with_its_file(
    spark: SparkSession, table: Path, tmp_path: Path, damage: Callable[[Path], None], part: str
) -> None:
    """Which file cannot be read, in one line; a person must look."""
    copy = tmp_path / "table"
    shutil.copytree(table, copy)
    file = min(copy.glob(part))
    damage(file)
    for checksum in copy.glob("**/*.crc"):
        checksum.unlink()
    with pytest.raises(OutputError) as raised, spark_failures_as_errors(copy):
        query(spark, copy, "SELECT * FROM messages").collect()
    assert str(copy) in str(raised.value)
    if damage is truncated:
        assert file.name in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "REFRESH" not in str(raised.value)


def test_intervals_and_variants_are_shown(spark: SparkSession, table: Path) -> None:
    """Also those that Python has no value for."""
    statement = "SELECT INTERVAL 3 MONTHS a, make_interval(1) b, INTERVAL '1' DAY c, parse_json('{\"x\": 1}') d, NULL e"
    out = io.StringIO()
    write_result(SparkResult(query(spark, table, statement)), "csv", out)
    assert out.getvalue() == 'a,b,c,d,e\nINTERVAL \'3\' MONTH,1 years,INTERVAL \'1\' DAY,"{""x"": 1}",\n'


def test_a_path_without_a_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The path and what makes a table are named."""
    with pytest.raises(OutputError, match="is empty: give the directory"):
        query(spark, tmp_path, "SELECT 1")
