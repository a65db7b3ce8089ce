"""`reput query --table`: the rows of the table are those of the log, and nothing of Spark is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import pytest
from support.command_line import invoke
from support.logs import SHAPES
from support.record_writer import Message
from support.store_table import make_table
from typer.testing import Result
from unit.streaming.query.test_query import make_store

START = 1_700_000_000_000
SIMPLE = [
    Message("T", properties={"KEYS": f"k{i % 3} all", "UNIQ_KEY": f"U{i // 2}"}, store_timestamp=START + i)
    for i in range(10)
]


def query(*words: str) -> Result:
    return invoke(["query", *words])


def found(*words: str) -> list[dict[str, Any]]:
    result = query("--format", "json", *words)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_rows_of_the_table_are_those_of_the_log(tmp_path: Path) -> None:
    """Messages of many kinds, by their ids from the log and from the table: the same JSON but for the broker."""
    table = make_table(tmp_path, list(SHAPES.values()))
    rows = deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=["msg_id"])
    assert rows.num_rows == len(SHAPES)
    for msg_id in rows["msg_id"].to_pylist():
        (of_table,) = found("--table", str(table), "--msg-id", msg_id)
        (of_log,) = found("--store", str(tmp_path / "store"), "--msg-id", msg_id)
        assert of_table.pop("broker") == "b"
        assert of_table == of_log


def test_bodies(tmp_path: Path) -> None:
    """Those of a table that has them, as those of the log; without being asked for, they are not read."""
    messages = [Message(body=body) for body in (b"text", b"\xff\x00", b"", b"x" * 100)]
    table = make_table(tmp_path, messages, body_bytes_max=50)
    for msg_id in deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=["msg_id"])["msg_id"].to_pylist():
        (of_table,) = found("--table", str(table), "--msg-id", msg_id, "--body")
        (of_log,) = found("--store", str(tmp_path / "store"), "--msg-id", msg_id, "--body")
        if of_log["body_size"] > 50:
            del of_log["body"]
        assert of_table == of_log | {"broker": "b"}
        (plain,) = found("--table", str(table), "--msg-id", msg_id)
        assert not plain.keys() & {"body", "body_bytes", "body_base64"}


def test_questions(tmp_path: Path) -> None:
    table = ("--table", str(make_table(tmp_path, SIMPLE)))
    assert [row["queue_offset"] for row in found(*table, "--key", "k1")] == [7, 4, 1]
    assert [row["queue_offset"] for row in found(*table, "--key", "all", "--limit", "2", "--topic", "T")] == [9, 8]
    assert query(*table, "--key", "all", "--topic", "t").exit_code == 4
    times = ("--since", str(START + 2), "--end", "2023-11-14T22:13:20.004Z")
    assert [row["queue_offset"] for row in found(*table, "--key", "all", *times)] == [4, 3, 2]
    twice = found(*table, "--uniq-key", "U2")
    assert [(row["queue_offset"], row["chosen"]) for row in twice] == [(5, False), (4, True)]
    queue = ("--topic", "T", "--queue-id", "0")
    assert [row["queue_offset"] for row in found(*table, *queue, "--queue-offset", "3", "--limit", "2")] == [3, 4]
    assert [row["queue_offset"] for row in found(*table, *queue, "--time", str(START + 6))] == [6]
    assert query(*table, "--key", "k1", "--broker", "c").exit_code == 4
    shown = query(*table, "--uniq-key", "U2")
    assert shown.stdout.splitlines()[0].split()[-2:] == ["msg_id", "chosen"]
    assert "1 of 1 data files opened" in shown.stderr
    assert "1 of them have no key filter" in shown.stderr
    assert "2 messages found" in shown.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--key", "k"], "exactly one of --store and --table"),
        (["--table", "TABLE", "--store", "TABLE", "--key", "k"], "exactly one of --store and --table"),
        (["--table", "TABLE", "--key", "k", "-o", "a=b", "--dledger"], "--table does not go with --option, --dledger"),
        (["--table", "TABLE", "--key", "k", "--body"], "has no bodies"),
        (["--table", "TABLE", "--key", "k", "--output", "x"], "--table does not go with --output"),
        (["--table", "TABLE", "--key", "a b"], "a key is a text without any"),
        (["--table", "TABLE", "--uniq-key", ""], "is empty"),
        (["--table", "TABLE", "--queue-offset", "1"], "--queue-offset needs --queue-id and --topic"),
        (["--table", "TABLE", "--key", "k", "--queue-id", "1"], "--key does not go with --queue-id"),
        (["--table", "TABLE", "--key", "k", "--format", "xml"], "one of table, json wanted"),
        (["--table", "NONE", "--key", "k"], "does not exist: give the directory"),
        (["--table", "STORE", "--key", "k"], "is not a Delta table"),
        (["--store", "STORE", "--key", "k", "--topic", "T", "--broker", "b"], "--key does not go with --broker"),
    ],
)
def test_refusals(tmp_path: Path, words: list[str], told: str) -> None:
    """One line each."""
    table = make_table(tmp_path, SIMPLE[:1])
    paths = {"TABLE": table, "STORE": tmp_path / "store", "NONE": tmp_path / "none"}
    result = query(*(str(paths.get(word, word)) for word in words))
    is_no_table = words[0] == "--table" and words[1] != "TABLE"
    assert result.exit_code == (1 if is_no_table else 2)
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_nothing_slow_is_loaded(tmp_path: Path) -> None:
    """Neither pyspark, pandas nor numba: they take longer to load than the answer takes."""
    table = make_table(tmp_path, SIMPLE)
    code = (
        "import sys\n"
        "from reput.streaming.cli.main import main\n"
        "slow = {'pyspark', 'py4j', 'pandas', 'numba', 'rich.console', 'duckdb'}\n"
        "try:\n    main()\n"
        "finally:\n    print(sorted(slow & set(sys.modules)))\n"
    )
    by_time = ["--topic", "T", "--queue-id", "0", "--time", "0"]
    # Only where a name may be a typo are the names in the table looked up, by DuckDB.
    for words in (["--key", "k1"], ["--uniq-key", "U1", "--since", "0"], by_time, ["--key", "none"]):
        command = [sys.executable, "-c", code, "query", "--table", str(table), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"
        assert len(done.stdout.splitlines()) > 2 or "none" in words


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        ("0A0B0C0D1F2E3D4C5B6Aabcdef012345", "0A0B0C0D1F2E3D4C5B6AABCDEF012345"),
        ("0A0B0C0D1F2E3D4C5B6Aabcdef012345", "0a0b0c0d1f2e3d4c5b6aabcdef012345"),
        ("7F0000010BC818B4AAC2A1B2C3D40000", "7f0000010bc818b4aac2a1b2c3d40000"),
        ("0156f7e71c361b21bc024ccdbe00000000", "0156F7E71C361B21BC024CCDBE00000000"),
    ],
)
def test_a_unique_key_in_another_case(stored: str, given: str, tmp_path: Path) -> None:
    """It is found as clients write it, in the table and in a store, and standard error says how it is written."""
    message = Message("T", properties={"UNIQ_KEY": stored})
    table = make_table(tmp_path, [message])
    make_store(tmp_path / "indexed", [message])
    conf = ("--broker-conf", str(tmp_path / "indexed" / "broker.conf"))
    for place in (("--table", str(table)), ("--store", str(tmp_path / "indexed"), *conf)):
        (row,) = found(*place, "--topic", "T", "--uniq-key", given)
        assert (row["uniq_key"], row["chosen"]) == (stored, True)
        assert f"the unique key is {stored}" in query(*place, "--topic", "T", "--uniq-key", given).stderr
        assert "cases" not in query(*place, "--topic", "T", "--uniq-key", stored).stderr
        assert found(*place, "--topic", "T", "--uniq-key", given[:-1]) == []
