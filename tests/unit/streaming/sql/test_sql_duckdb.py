"""`reput sql` without Spark: what runs, what is refused, what is read, and how it ends."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command_line import invoke
from support.proof_counts import Proof
from support.sql_corpus import statements

from reput.sinks.table.data_file import write_key_filter_of
from reput.sinks.table.log import read_snapshot
from reput.sinks.table.message_file import TABLE_SCHEMA
from reput.sinks.table.storage import table_storage
from reput.source.errors import OptionError
from reput.streaming.sql import duckdb_check as allowed
from reput.streaming.sql import duckdb_query as module
from reput.streaming.sql.duckdb_check import check_query
from reput.streaming.sql.duckdb_query import duckdb_query

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
# Rows for hours.
ENDLESS = "SELECT range, repeat('x', 1000) FROM range(100000000000)"


def rows_of(first: int, count: int) -> pa.Table:
    rows: list[dict[str, Any]] = [
        dict.fromkeys(TABLE_SCHEMA.names)
        | {
            "broker": "b",
            "topic": f"T{number % 3}",
            "queue_id": number % 2,
            "queue_offset": number // 2,
            "physical_offset": number * 100,
            "msg_size": 100,
            "store_time": BEGIN + timedelta(seconds=number),
            "born_time": BEGIN,
            "tags": [None, "", "A"][number % 3],
            "keys": [f"k{number}", "all"],
            "first_key": f"k{number}",
            "uniq_key": f"u{number}",
            "properties": [("KEYS", f"k{number}")],
        }
        for number in range(first, first + count)
    ]
    return pa.Table.from_pylist(rows, TABLE_SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of four versions, a file of ten rows with its key filter each."""
    path = tmp_path_factory.mktemp("duckdb") / "it's a table"
    for number in range(4):
        deltalake.write_deltalake(str(path), rows_of(number * 10, 10), mode="append")
    for name in (file.path for file in read_snapshot(path).files()):
        write_key_filter_of(table_storage(path), name)
    return path


def state(directory: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in directory.rglob("*")
    }


def ask(table: Path, statement: str, **how: Any) -> list[tuple[Any, ...]]:
    with duckdb_query(table, statement, **how) as result:
        return [tuple(row) for row in result.rows()]


@pytest.fixture(scope="module")
def connection(table: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """As each query has it."""
    version = read_snapshot(table)
    with duckdb.connect(":memory:", config=module._CONFIG) as con:
        module._make_view(con, version, list(version.files()))
        yield con


def test_every_read_runs(table: Path, connection: duckdb.DuckDBPyConnection, proof: Proof) -> None:
    """Each to its last row, and the table stays as it was."""
    reads, before, wrong = statements("sql_reads_duckdb.sql"), state(table), []
    for kind, statement in reads:
        try:
            connection.sql(check_query(connection, statement).text).fetchall()
        except (OptionError, duckdb.Error) as error:
            wrong.append(f"{kind}: {statement}: {error}")
    assert wrong == []
    assert state(table) == before
    proof("sql statements that read, run by DuckDB", len(reads))


def quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def test_everything_else_is_refused(
    table: Path, connection: duckdb.DuckDBPyConnection, tmp_path: Path, proof: Proof
) -> None:
    """By what it is made of, or by DuckDB's parser; nothing is made, and the table stays as it was."""
    part = min(table.glob("*.parquet"))
    refused = statements("sql_refused_duckdb.sql", TABLE=quoted(table), FILE=tmp_path / "written", PART=quoted(part))
    assert len(refused) >= 240
    before, wrong = state(table), []
    for kind, statement in refused:
        try:
            check_query(connection, statement)
            wrong.append(f"let through: {kind}: {statement}")
        except OptionError as error:
            if not str(error).startswith(("refused: ", "cannot run the query: syntax error")):
                wrong.append(f"refused for another reason: {statement}: {error}")
    assert wrong == []
    assert state(table) == before
    assert list(tmp_path.iterdir()) == []
    proof("sql statements refused without Spark", len(refused))


def test_what_spark_refuses_is_refused(connection: duckdb.DuckDBPyConnection) -> None:
    """Spark's own corpus: nothing of it gets through here, but for functions that only compute in DuckDB."""
    harmless = []
    for _, statement in statements("sql_refused.sql", TABLE=Path("/t"), FILE=Path("/f")):
        try:
            check_query(connection, statement)
            harmless.append(statement)
        except OptionError:
            pass
    assert harmless == [
        "SELECT /*+ REPARTITION(reflect('java.lang.System', 'getenv', 'x')) */ * FROM messages",  # a comment here
        "SELECT make_time(1, 2, 3)",
        "EXPLAIN DESCRIBE messages",
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_parquet('{other}')",
        "SELECT * FROM glob('/etc/*')",
        "COPY (SELECT 1) TO '{other}'",
        "COPY (SELECT 1) TO '{part}x'",
        "ATTACH '{other}'",
        "EXPORT DATABASE '{other}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '{other}'",
        "SELECT * FROM 'http://127.0.0.1/x.parquet'",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET allowed_paths = ['/etc/passwd']",
        "SET memory_limit = '100GB'",
        "SET temp_directory = '{other}'",
        "RESET threads",
        "PRAGMA threads = 1",
    ],
)
def test_the_wall_behind_the_check(
    table: Path, connection: duckdb.DuckDBPyConnection, tmp_path: Path, statement: str
) -> None:
    """DuckDB itself refuses everything outside the table's files, even without the check."""
    part = quoted(min(table.glob("*.parquet")))
    with pytest.raises(duckdb.Error):
        connection.execute(statement.format(other=tmp_path / "other", part=part)).fetchall()
    assert connection.execute("SELECT count(*) FROM messages").fetchone() == (40,)
    assert list(tmp_path.iterdir()) == []


def test_every_function_is_decided(proof: Proof) -> None:
    """A function that a new DuckDB brings fails here until it is in one of the lists."""
    known = {name for (name,) in duckdb.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()}
    refused = frozenset[str]().union(*allowed.FUNCTIONS_REFUSED.values())
    mine = allowed.ALLOWED_FUNCTIONS | allowed.TABLE_FUNCTIONS
    undecided = {
        name for name in known if name.lower() not in mine | refused and not name.startswith(allowed.REFUSED_BEGINNINGS)
    }
    assert undecided == set()
    assert not refused & mine
    assert sum(map(len, allowed.FUNCTIONS.values())) == len(allowed.ALLOWED_FUNCTIONS)
    proof("sql functions of DuckDB", len(known))


@pytest.mark.parametrize(
    ("condition", "rows", "files"),
    [
        ("list_contains(keys, 'k13')", 1, 1),
        ("array_contains(m.keys, 'k13') AND queue_id >= 0", 1, 1),
        ("'u25' = uniq_key", 1, 1),
        ("first_key = 'k3' AND topic = 'T0'", 1, 1),
        ("uniq_key IN ('u1', 'u38')", 2, 2),
        ("uniq_key = 'none'", 0, 0),
        ("list_contains(keys, 'all')", 40, 4),
        ("list_contains(keys, 'k13') OR uniq_key = 'u1'", 2, 2),
        ("list_contains(keys, 'k13') OR uniq_key = 'u1' OR queue_id >= 0", 40, 4),
        ("uniq_key = 'u1' OR (uniq_key = 'u38' AND queue_id >= 0)", 2, 4),
        ("NOT list_contains(keys, 'k13')", 39, 4),
        ("uniq_key = tags", 0, 4),
        ("uniq_key > 'u38'", 7, 4),
    ],
)
def test_key_filters_leave_files_out(table: Path, condition: str, rows: int, files: int) -> None:
    """A key, or one of some, that every row must have leaves the files that have it; any other condition leaves all."""
    statement = f"SELECT * FROM messages m WHERE {condition}"
    assert len(ask(table, statement)) == rows
    assert len(module._files(read_snapshot(table), check_query(duckdb.connect(), statement).keys)) == files


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("SELECT count(*) FROM messages WHERE uniq_key = 'u1' UNION ALL SELECT count(*) FROM messages", 41),
        ("SELECT (SELECT count(*) FROM messages WHERE uniq_key = 'u1') + count(*) FROM messages", 41),
        ("SELECT count(*) FROM messages a, (SELECT * FROM messages WHERE uniq_key = 'u1') b", 40),
        ("WITH messages AS (SELECT 'u1' AS uniq_key) SELECT count(*) FROM messages WHERE uniq_key = 'u1'", 1),
        ("WITH x AS (SELECT * FROM messages) SELECT count(*) FROM x WHERE uniq_key = 'u1'", 1),
        ("SELECT count(*) FROM messages AS m(uniq_key) WHERE uniq_key = 'b'", 40),
        ("SELECT count(*) FROM messages WHERE uniq_key = 'u1' AND EXISTS (FROM messages WHERE first_key = 'k39')", 1),
    ],
)
def test_a_key_of_one_place_hides_nothing_from_another(table: Path, statement: str, value: int) -> None:
    """A key in one part of a statement does not narrow the rows of the other parts."""
    assert sum(row[0] for row in ask(table, statement)) == value


def test_values(table: Path) -> None:
    """Times are UTC's, sums of whole numbers are whole, maps and structs are dicts, intervals are texts."""
    row = ask(
        table,
        "SELECT max(store_time), sum(physical_offset), any_value(properties), {'a': keys}, "
        "max(store_time - born_time), tags, NULL FROM messages WHERE uniq_key = 'u0' GROUP BY keys, tags",
    )[0]
    assert row == (BEGIN, 0, {"KEYS": "k0"}, {"a": ["k0", "all"]}, "00:00:00", None, None)
    assert type(row[1]) is int
    order = "SELECT DISTINCT tags FROM messages ORDER BY tags"
    assert ask(table, order) == [(None,), ("",), ("A",)]  # as Spark orders NULL
    assert ask(table, f"{order} DESC") == [("A",), ("",), (None,)]


def test_the_table_as_it_was(table: Path) -> None:
    """By version, and by a time at which a version was the newest; a version that never existed is an error."""
    assert [ask(table, "SELECT count(*) FROM messages", at=version) for version in range(4)] == [
        [(10 * (version + 1),)] for version in range(4)
    ]
    now = datetime.now(timezone.utc)
    assert ask(table, "SELECT count(*) FROM messages", at=now) == [(40,)]
    with pytest.raises(OptionError, match="has no version 9 to read: its newest is 3"):
        ask(table, "SELECT 1", at=9)
    with pytest.raises(OptionError, match="had no version at 2020-01-01"):
        ask(table, "SELECT 1", at=datetime(2020, 1, 1, tzinfo=timezone.utc))


def test_a_limit(table: Path) -> None:
    """The first rows of the order, up to the limit; also of an endless result."""
    ordered = "SELECT queue_offset FROM messages ORDER BY queue_offset DESC, queue_id"
    assert ask(table, ordered, limit=3) == [(19,), (19,), (18,)]
    assert len(ask(table, ENDLESS, limit=5)) == 5


def test_columns_that_came_later_and_no_files(tmp_path: Path) -> None:
    """Rows of older files have NULL there; a table without files has its columns."""
    path = tmp_path / "t"
    old = rows_of(0, 2)
    deltalake.write_deltalake(str(path), old.drop_columns(["store_time", "properties"]))
    deltalake.write_deltalake(str(path), old, mode="append", schema_mode="merge")
    rows = ask(path, "SELECT count(*), count(store_time), count(properties['KEYS']) FROM messages")
    assert rows == [(4, 2, 2)]
    deltalake.DeltaTable(str(path)).delete()
    with duckdb_query(path, "SELECT * FROM messages") as result:
        assert sorted(result.names) == sorted(TABLE_SCHEMA.names)
        assert list(result.rows()) == []


def reput(*words: str | Path) -> Any:
    return invoke(["sql", *map(str, words)])


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC" (line 1, column 1)'),
        ("SELECT 1\nFROM", "(line 2, column "),
        ("", "the statement is empty"),
        ("SELECT nope FROM messages", 'Referenced column "nope" not found'),
        ("SELECT CAST(topic AS INT) FROM messages", "Could not convert string 'T"),
        ("SELECT error('a\x1b[31mb')", r"a\x1b[31mb"),
        ("SELECT 'infinity'::TIMESTAMP", "a value of the result cannot be shown"),
        ("DELETE FROM messages", "refused: only queries"),
        (
            "SELECT len(properties) FROM messages",
            "'len(MAP(VARCHAR, VARCHAR))'; there are len(string VARCHAR) -> BIGINT, len(\"bit\" BIT) -> BIGINT, ",
        ),
        ("SELECT topic + 1 FROM messages", '"+"(x SMALLINT, /) -> SMALLINT and '),
        ("SELECT 1 AS " + "a" * 600 + " FROM " + "b" * 600, "bbb"),
        pytest.param("SELECT " + "(" * 3000 + "1" + ")" * 3000, "epth", id="deep"),
    ],
)
def test_a_wrong_statement_is_told_in_one_line(table: Path, statement: str, words: str) -> None:
    """It is the user's to change."""
    result = reput("--table", table, "--format", "csv", statement)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert len(result.stderr) < 700


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_damaged_file_is_told(tmp_path: Path, damage: str) -> None:
    """With its name, and the exit code of what a person must look at."""
    deltalake.write_deltalake(str(tmp_path), rows_of(0, 5))
    file = next(tmp_path.glob("*.parquet"))
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:100])
    result = reput("--table", tmp_path, "SELECT * FROM messages")
    assert result.exit_code == 1
    assert f"cannot read the table {tmp_path}" in result.stderr
    assert file.name in result.stderr


def test_forms_in_files(table: Path, tmp_path: Path) -> None:
    """A file has the whole answer in each form; Parquet has the types."""
    statement = "SELECT topic, tags, keys, sum(msg_size) AS n FROM messages WHERE uniq_key IN ('u0', 'u1') "
    statement += "GROUP BY ALL ORDER BY 1"
    for form in ("csv", "json", "markdown", "parquet", "table"):
        out = tmp_path / f"out.{form}"
        out.write_text("old")
        assert reput("--table", table, "--format", form, "--output", out, statement).exit_code == 0
    assert (tmp_path / "out.csv").read_bytes() == (
        b'topic,tags,keys,n\nT0,,"[""k0"", ""all""]",100\nT1,"","[""k1"", ""all""]",100\n'
    )
    assert [json.loads(line)["tags"] for line in (tmp_path / "out.json").read_text().splitlines()] == [None, ""]
    assert (tmp_path / "out.markdown").read_text().splitlines()[:3] == [
        "| topic | tags | keys | n |",
        "|---|---|---|---|",
        r'| T0 | NULL | \["k0", "all"\] | 100 |',
    ]
    parquet = pq.read_table(tmp_path / "out.parquet")
    assert parquet.schema.field("n").type == pa.int64()
    assert parquet["keys"].to_pylist() == [["k0", "all"], ["k1", "all"]]
    assert "2 rows" in (tmp_path / "out.table").read_text()


def test_a_file_is_whole_or_as_it_was(table: Path, tmp_path: Path) -> None:
    """A failure in the middle leaves only the old file; nothing is written into the table."""
    out = tmp_path / "out.csv"
    out.write_text("old")
    late = "SELECT CASE WHEN range < 500000 THEN range ELSE error('late') END FROM range(1000000)"
    assert reput("--table", table, "--format", "csv", "--output", out, late).exit_code == 2
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    for inside in (table / "x.csv", table / "_delta_log" / "x.json", min(table.glob("*.parquet"))):
        before = state(table)
        result = reput("--table", table, "--output", inside, "SELECT 1")
        assert (result.exit_code, state(table)) == (2, before)
    (tmp_path / "link").symlink_to(table, target_is_directory=True)
    assert reput("--table", table, "--output", tmp_path / "link" / "x", "SELECT 1").exit_code == 2
    assert reput("--table", table, "--output", tmp_path, "SELECT 1").exit_code == 2


def command(table: Path, *words: str | Path) -> list[str]:
    return [str(Path(sys.executable).parent / "reput"), "sql", "--table", str(table), *map(str, words)]


def test_it_loads_neither_spark_nor_what_it_does_not_need(table: Path) -> None:
    """A start takes a third of a second because none of these is loaded."""
    code = "import atexit, sys; from reput.streaming.cli.main import main\n"
    code += "atexit.register(lambda: print([name for name in 'pyspark pandas numba py4j prompt_toolkit'.split()"
    code += " if name in sys.modules])); main()"
    words = [sys.executable, "-c", code, *command(table, "SELECT store_time, properties FROM messages")[1:]]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_statement_from_standard_input(table: Path) -> None:
    """If no statement is given and standard input is not a terminal."""
    done = subprocess.run(
        command(table, "--format", "csv"),
        input="SELECT count(*) AS n\nFROM messages;\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("n\n40\n", "")


def test_a_reader_that_has_enough(table: Path) -> None:
    """It is done: no word, exit code 0."""
    with subprocess.Popen(
        command(table, "--format", "csv", ENDLESS), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"range,")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize(
    "statement", [ENDLESS, "SELECT count(*) FROM range(100000000000) WHERE range % 7 = 3"], ids=["rows", "no row"]
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_it_runs(table: Path, tmp_path: Path, number: signal.Signals, statement: str) -> None:
    """One line and the exit code say that there is no answer, and no file is left."""
    out = tmp_path / "out.csv"
    process = subprocess.Popen(
        command(table, "--format", "csv", "--output", out, statement), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    while not list(tmp_path.iterdir()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    error = process.communicate(timeout=60)[1].decode()
    assert (error, process.returncode) == ("reput: stopped\n", 128 + number)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_full(table: Path) -> None:
    """The error names the failure, and standard output."""
    with Path("/dev/full").open("wb") as out:
        done = subprocess.run(
            command(table, "--format", "csv", ENDLESS), stdout=out, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode() == "reput: cannot write the result to standard output: No space left on device\n"


def test_memory_is_bounded(table: Path) -> None:
    """A query that needs more ends with one line and the code of what may succeed with more."""
    greedy = "SELECT * FROM range(100000000) ORDER BY hash(range)"
    done = subprocess.run(command(table, "-o", "sqlMaxMemory=64m", greedy), capture_output=True, text=True, check=False)
    assert done.returncode == 75
    assert "more memory than it may take" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_wrong_usage(table: Path) -> None:
    """Each in one line."""
    for words in (["--engine", "x"], ["--format", "xml"], ["--at", "yesterday"], ["--csv-safe"], ["-o", "nope=1"]):
        result = reput("--table", table, *words, "SELECT 1")
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
