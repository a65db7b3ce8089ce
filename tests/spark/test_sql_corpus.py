"""Every statement and function of Spark and Delta, read or refused by `reput sql`: by running it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark.sql_corpus import (
    DELTA_PARSER,
    SPARK_PARSER,
    classes_of,
    examples_of,
    registered_functions,
    statement_classes,
)
from spark.test_sql import make_table
from support.proof_counts import Proof
from support.sql_corpus import statements

from reput.source.errors import OptionError, ReputError
from reput.streaming.sql import spark_query as sql
from reput.streaming.sql import spark_query as sql_allowed
from reput.streaming.sql.output import write_result
from reput.streaming.sql.spark_query import SparkResult, parse_query, spark_failures_as_errors

pytestmark = pytest.mark.spark

# Spark's own parser does not take these in 4.2, in any form; the corpus has each all the same.
PARSER_REFUSES = "what Spark's parser refuses itself"


# Hundreds of queries over four rows: do not list the table again for each.
LIGHT = {"spark.databricks.delta.stalenessLimit": "1h"}

# In short, every eighth statement or function; all of them are decided by name all the same.
SHARES = [16, pytest.param(1, marks=pytest.mark.slow)]


@pytest.fixture
def light(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in LIGHT}
    for name, value in LIGHT.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(spark, tmp_path_factory.mktemp("corpus"))


def state(directory: Path) -> dict[str, str]:
    return {
        f"{path.relative_to(directory)}": hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in directory.rglob("*")
    }


def run(spark: SparkSession, table: Path, statement: str, form: str = "csv") -> str | None:
    """Run a statement to its last row; return the error, or None."""
    try:
        with spark_failures_as_errors(table):
            result = sql.run_plan(spark, parse_query(spark, statement))
            write_result(SparkResult(result), form, io.StringIO())
    except ReputError as error:
        return str(error)
    return None


def functions_of(spark: SparkSession) -> dict[str, Any]:
    """Every function of Spark's two registries, by name."""
    state_ = spark._jsparkSession.sessionState()
    return registered_functions(state_.functionRegistry()) | registered_functions(state_.tableFunctionRegistry())


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("share", SHARES)
def test_every_read_runs(
    share: int, spark: SparkSession, table: Path, proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is run to its last row, in one of the three forms in turn, and leaves everything as it was."""
    monkeypatch.chdir(table.parent)
    reads = statements("sql_reads.sql")[::share]
    before, wrong = state(table.parent), []
    sql.query(spark, table, "SELECT 1")  # the view
    for number, (kind, statement) in enumerate(reads):
        if error := run(spark, table, statement, ("csv", "csv", "table")[number % 3]):
            wrong.append(f"{kind}: {statement}: {error}")
    assert wrong == []
    assert state(table.parent) == before
    proof("sql statements that read, run", len(reads))


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("share", SHARES)
def test_every_allowed_function_runs(
    share: int, spark: SparkSession, table: Path, proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an example of Spark's own documentation, or where that shows none that runs, by a statement of the corpus."""
    monkeypatch.chdir(table.parent)
    before, ran = state(table.parent), 0
    sql.query(spark, table, "SELECT 1")
    known = " ".join(statement for _, statement in statements("sql_reads.sql"))
    wrong = []
    allowed = sql_allowed.ALLOWED_FUNCTIONS | sql_allowed.TABLE_FUNCTIONS
    functions = sorted((each for each in functions_of(spark).items() if each[0] in allowed), key=itemgetter(0))
    for name, function in functions[::share]:
        has_run = any(run(spark, table, example) is None for example in examples_of(function))
        ran += has_run
        if not has_run and f"{name}(" not in known:
            wrong.append(name)
    assert wrong == []
    assert ran >= 500 // share
    assert state(table.parent) == before
    proof("sql functions run by their examples", ran)


def test_everything_else_is_refused(
    spark: SparkSession, table: Path, proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is refused by what it is made of; the table, the working directory and all else stay as they were."""
    monkeypatch.chdir(table.parent)
    refused = statements("sql_refused.sql", TABLE=table, FILE=table.parent / "written")
    assert len(refused) >= 300
    before, wrong = state(table.parent), []
    views = spark.sql("SHOW TABLES").collect()
    settings = spark.conf.getAll
    for kind, statement in refused:
        try:
            sql.query(spark, table, statement)
            wrong.append(f"ran: {kind}: {statement}")
        except OptionError as error:
            if kind != PARSER_REFUSES and not str(error).startswith("refused: "):
                wrong.append(f"refused for another reason: {statement}: {error}")
    assert wrong == []
    assert state(table.parent) == before
    assert spark.conf.getAll == settings
    assert spark.sql("SHOW TABLES").collect() == views
    proof("sql statements refused", len(refused))


@pytest.mark.parametrize("parser", [SPARK_PARSER, DELTA_PARSER], ids=["spark", "delta"])
def test_no_kind_of_statement_is_missing(spark: SparkSession, parser: str, proof: Proof) -> None:
    """Each kind that the generated parser knows is in the corpus, by that parser's own tree of a statement there."""
    paths = {"TABLE": Path("/t"), "FILE": Path("/f")}
    told = [text for kind, text in statements("sql_reads.sql") if "tell about" in kind or "columns chosen" in kind]
    seen: set[str] = set()
    for text in [*told, *(text for _, text in statements("sql_refused.sql", **paths))]:
        seen |= classes_of(spark, parser, text)
    known = statement_classes(spark, parser)
    assert known - seen == set()
    proof("sql kinds of statement", len(known))


def test_every_function_is_decided(spark: SparkSession, proof: Proof) -> None:
    """A function that a new Spark brings fails here until it is in one of the lists."""
    tables = registered_functions(spark._jsparkSession.sessionState().tableFunctionRegistry()).keys()
    names = functions_of(spark).keys()
    refused = frozenset[str]().union(*sql_allowed.FUNCTIONS_REFUSED.values())
    assert names == sql_allowed.ALLOWED_FUNCTIONS | sql_allowed.TABLE_FUNCTIONS | refused
    assert tables - refused == sql_allowed.TABLE_FUNCTIONS
    assert not refused & (sql_allowed.ALLOWED_FUNCTIONS | sql_allowed.TABLE_FUNCTIONS)
    assert sum(map(len, sql_allowed.FUNCTIONS.values())) == len(sql_allowed.ALLOWED_FUNCTIONS)
    text = "\n".join(statement for _, statement in statements("sql_refused.sql")).lower()
    assert [name for name in sorted(refused) if name not in text] == []
    proof("sql functions", len(names))
