"""The command `reput ask`: its list, its help, its options, and what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command_line import invoke
from support.hostile_texts import HOSTILE_TEXTS
from support.record_writer import Message
from support.store_table import make_table

from reput.streaming.ask.question import questions

START = 1_700_000_000_000
HOUR_MS = 3_600_000
MESSAGES = [
    Message("TUV"[number % 3], properties={"KEYS": f"k{number} all"}, store_timestamp=START + number * HOUR_MS // 4)
    for number in range(12)
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and its table, and what a broker would have below config/."""
    path = tmp_path_factory.mktemp("ask")
    make_table(path, MESSAGES)
    config = path / "store" / "config"
    config.mkdir()
    (config / "topics.json").write_text('{"topicConfigTable":{"T":{"perm":6}}}')
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:1},"U@it\'s":{0:3}}}')
    return path


def reput(*words: str | Path) -> Any:
    return invoke([*map(str, words)])


def ask(root: Path, *words: str | Path) -> list[dict[str, Any]]:
    result = reput("ask", *words, "--table", root / "table", "--store", root / "store", "--format", "json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_list() -> None:
    """A line each, with what it answers."""
    lines = reput("ask").stdout.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [[name, each.title] for name, each in questions().items()]


def test_a_unique_key_may_have_the_name_that_query_gives_it(root: Path) -> None:
    assert ask(root, "life", "--uniq-key", "k1") == ask(root, "life", "--key", "k1") != []


@pytest.mark.parametrize("name", questions())
def test_the_help_of_a_question(name: str) -> None:
    """Its own options, and whether one must be given."""
    text = " ".join(reput("ask", name, "--help").stdout.split())
    question = questions()[name]
    assert f"{question.summary}." in text
    for parameter in question.parameters:
        assert f"--{parameter.name.replace('_', '-')} <" in text
    assert text.count("[required]") == sum(each.is_required for each in question.parameters)


@pytest.mark.parametrize("name", sorted(set(questions()) - {"half-open", "left-out"}))
def test_what_is_shown_can_be_asked(name: str, root: Path) -> None:
    """`reput sql` gives the same rows for the statement that --show-sql prints, with the store's files in it."""
    required = {"key": "k1", "group": "it's"}
    given = [
        word
        for each in questions()[name].parameters
        if each.is_required
        for word in (f"--{each.name}", required[each.name])
    ]
    given += ["--now", "2023-11-15"] if name in ("delayed", "retention") else []
    rows = ask(root, name, *given)
    shown = reput("ask", name, *given, "--table", root / "table", "--store", root / "store", "--show-sql")
    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"-- {questions()[name].summary}.\n--\n")
    words = ["sql", "--table", str(root / "table"), "--format", "json"]
    asked = invoke(words, shown.stdout)
    assert asked.exit_code == 0, asked.output
    assert [json.loads(line) for line in asked.stdout.splitlines()] == rows


def test_the_file_alone() -> None:
    """Without a table and a store, for users who want to read or change it; its relations are empty."""
    shown = reput("ask", "lag", "--show-sql", "--group", "g")
    assert shown.exit_code == 0
    assert (
        "WITH consumer_offsets(consumer_group, topic, queue_id, consumer_offset) AS (SELECT CAST(NULL" in shown.stdout
    )
    assert "('g' IS NULL OR consumer_offsets.consumer_group = 'g')" in shown.stdout


def test_hours(root: Path) -> None:
    """Each hour has its places."""
    rows = ask(root, "top-topics", "--top", "1")
    assert [(row["place"], row["messages"]) for row in rows] == [(1, 2)] * 3
    assert [row["hour_begins"][11:13] for row in rows] == ["22", "23", "00"]


def test_rows_go_where_those_of_sql_go(root: Path, tmp_path: Path) -> None:
    """In each form, in a file, with a limit, of an earlier version."""
    out = tmp_path / "out.csv"
    words = ("ask", "by-key", "--key", "all", "--table", root / "table")
    assert reput(*words, "--format", "csv", "--csv-safe", "--limit", "2", "--output", out).exit_code == 0
    assert len(out.read_text().splitlines()) == 3
    assert "12 rows" in reput(*words).stdout
    assert "has no version 9 to read" in reput(*words, "--at", "9").stderr


@pytest.mark.parametrize("text", HOSTILE_TEXTS[::3])
def test_a_hostile_value_finds_nothing(text: str, root: Path) -> None:
    """It is a text that no message has, as a key, and a broker that nothing names."""
    assert ask(root, "by-key", f"--key={text}") == []
    unknown = reput("ask", "top-topics", f"--broker={text}", "--table", root / "table")
    assert (unknown.exit_code, unknown.stdout) == (4, "")
    assert len(unknown.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["life"], 2, "Missing option '--key'"),
        (["gaps"], 2, "Missing option '--table'"),
        (["nothing"], 2, "No such command 'nothing'"),
        (["gaps", "--table", "NONE"], 1, "does not exist"),
        (["gaps", "--table", "TABLE", "--engine", "x"], 2, "duckdb or spark wanted"),
        (["gaps", "--table", "TABLE", "--format", "xml"], 2, "one of table, csv, json, markdown, parquet wanted"),
        (["gaps", "--table", "TABLE", "--csv-safe"], 2, "--csv-safe goes with --format csv"),
        (["retention", "--table", "TABLE", "--key", "k"], 2, "No such option"),
        (["retries", "--table", "TABLE", "--since", "soon"], 2, "or how long ago, such as 30m, 2h or 7d"),
        (["lag", "--table", "TABLE"], 2, "lag reads consumer_offsets, which is where a consumer group continues"),
        (["half-open", "--table", "TABLE", "--store", "NONE"], 1, "NONE"),
        (["gaps", "--table", "TABLE", "--plan"], 2, "this one has no queue_offset"),
        (
            ["by-key", "--key", "k", "--table", "TABLE", "--bodies", "f"],
            2,
            "--bodies FILE goes with --plan and --store",
        ),
        (["by-key", "--key", "k", "--table", "TABLE", "--plan", "--bodies", "f"], 2, "goes with --plan and --store"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(words: list[str], code: int, told: str, root: Path) -> None:
    places = {"TABLE": str(root / "table"), "NONE": str(root / "NONE")}
    result = reput("ask", *(places.get(word, word) for word in words))
    assert result.exit_code == code, result.output
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_a_plan_with_its_bodies(root: Path, tmp_path: Path) -> None:
    """Ranges on standard output, messages in the file, a word on standard error."""
    words = ("--key", "all", "--topic", "T", "--plan", "--bodies", tmp_path / "f")
    table = ("--table", root / "table", "--store", root / "store")
    result = reput("ask", "by-key", *words, *table, "--format", "csv")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:] == [f"b,T,0,0,3,4,{START}"]
    assert result.stderr == f"reput: 4 messages with their bodies are in {tmp_path / 'f'}\n"
    lines = [json.loads(line) for line in (tmp_path / "f").read_text().splitlines()]
    assert [line["keys"] for line in lines] == [[f"k{number}", "all"] for number in (9, 6, 3, 0)]


def test_it_loads_neither_spark_nor_pandas(root: Path) -> None:
    """As `reput sql` does not."""
    code = "import atexit, sys; from reput.streaming.cli.main import main\n"
    code += "atexit.register(lambda: print([name for name in 'pyspark pandas numba py4j prompt_toolkit'.split()"
    code += " if name in sys.modules])); main()"
    words = [sys.executable, "-c", code, "ask", "by-key", "--key", "k1", "--table", str(root / "table")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
