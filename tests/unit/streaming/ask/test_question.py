"""The files of the questions, and what is made of their comments and of values."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hostile_texts import HOSTILE_TEXTS
from support.paths import ROOT

from reput.source.errors import OptionError
from reput.streaming.ask.question import Question, questions
from reput.streaming.ask.relations import CONSUMPTION, COPIES, EVIDENCE, QUARANTINE, empty_relations
from reput.streaming.ask.store_relations import STORE_RELATIONS
from reput.streaming.ask.values import literal, statement_of, values_of, with_relations
from reput.streaming.sql.duckdb_check import check_query

CONNECTION = duckdb.connect()
NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
REQUIRED = {"key": "k", "group": "g"}
SIMPLE = """-- What there is.
--
-- :topic text, required: the topic,
--   whole.
-- :top integer = 10: so many.
-- :since time: from then on.
--
-- Reads log_segments, topic_configs.
--
-- A note with :topic in it
-- that goes on.
--
-- Another.
SELECT ':top' AS a, queue_id -- :since
FROM messages WHERE topic = :topic AND store_time > :since LIMIT :top
"""


def test_a_file() -> None:
    question = Question.parse("simple", SIMPLE)
    assert question.summary == "What there is"
    assert [(each.name, each.kind, each.default, each.is_required) for each in question.parameters] == [
        ("topic", "text", None, True),
        ("top", "integer", "10", False),
        ("since", "time", None, False),
    ]
    assert question.parameters[0].meaning == "the topic, whole."
    assert question.reads == ("log_segments", "topic_configs")
    assert question.notes == ("A note with :topic in it that goes on.", "Another.")


def test_values_stand_where_they_belong() -> None:
    """Neither in comments nor in texts, and a value is not looked at again."""
    question = Question.parse("simple", SIMPLE)
    values = values_of(question, {"topic": "a ':top' b", "since": "90m"}, lambda: NOW)
    assert values == {"topic": "a ':top' b", "top": 10, "since": NOW - timedelta(minutes=90)}
    assert statement_of(question, values, for_spark=False) == SIMPLE.replace(
        "topic = :topic AND store_time > :since LIMIT :top",
        "topic = 'a '':top'' b' AND store_time > TIMESTAMP '2026-01-31 10:30:00.000' LIMIT CAST(10 AS BIGINT)",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT 1", "must begin with one line"),
        ("-- Two lines\n-- of words.\nSELECT 1", "must begin with one line"),
        ("-- A.\n--\n-- :x word: what.\nSELECT :x", "describes no parameter"),
        ("-- A.\n--\n-- :x text: what.\nSELECT 1", r"described are \['x'\], the statement has \[\]"),
        ("-- A.\nSELECT :x", r"described are \[\], the statement has \['x'\]"),
    ],
)
def test_a_file_that_is_none(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Question.parse("wrong", text)


@pytest.mark.parametrize("name", questions())
def test_each_question_only_reads(name: str) -> None:
    """By the rules of `reput sql`, the messages and what it says it reads; and what it says fits on a line."""
    question = questions()[name]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    assert len(f"-- {question.summary}.") <= 120
    assert set(question.reads) <= {*STORE_RELATIONS, QUARANTINE, CONSUMPTION, COPIES, EVIDENCE}
    values = values_of(question, {each.name: REQUIRED.get(each.name) for each in question.parameters}, lambda: NOW)
    statement = statement_of(question, values, for_spark=False)
    with duckdb.connect() as connection:
        check_query(connection, statement, question.reads)
        if question.reads:
            with pytest.raises(OptionError, match="the only tables are messages and"):
                check_query(connection, statement)
        check_query(connection, with_relations(statement, empty_relations(question), for_spark=False))


@pytest.mark.parametrize("name", ["by-key", "life"])
def test_a_question_for_a_key_reads_the_files_that_have_it(name: str) -> None:
    """By the table's key filters, as `reput sql` does: each row that it needs has the key."""
    statement = statement_of(
        questions()[name], values_of(questions()[name], {"key": "it's"}, lambda: NOW), for_spark=False
    )
    assert check_query(CONNECTION, statement).keys == {"it's"}


def test_all_files_are_questions() -> None:
    """There is no other file, and each has its place in the page."""
    files = {path.name for path in (ROOT / "streaming" / "ask" / "questions").iterdir()}
    assert files == {f"{name}.sql" for name in questions()}
    page = (ROOT / "docs" / "commands" / "ask.md").read_text(encoding="utf-8")
    listed = page.partition("## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", listed, re.MULTILINE) == [*questions()]
    columns = {f"`{column}`" for relation in STORE_RELATIONS.values() for column in relation.columns}
    assert [column for column in columns if column not in page] == []


def value_in_duckdb(text: str) -> object:
    return CONNECTION.execute(f"SELECT {literal('text', text, for_spark=False)}").fetchall()[0][0]


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_hostile_text_is_a_value(text: str) -> None:
    assert value_in_duckdb(text) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_any_text_is_a_value(text: str) -> None:
    assert value_in_duckdb(text) == text


@given(st.text(st.characters(codec="utf-8")))
def test_no_text_ends_a_literal_of_sparks(text: str) -> None:
    """Between its quotes there is no quote, no control character, and no backslash but those of escapes."""
    inside = literal("text", text, for_spark=True)[1:-1]
    assert not re.search(r"['\x00-\x1f\x7f]", inside)
    assert "\\" not in re.sub(r"\\u[0-9a-f]{4}", "", inside)


def test_a_quote_that_is_doubled_is_no_marker() -> None:
    """Which a text of a question's own may have."""
    question = Question.parse("quoted", "-- A.\n--\n-- :x text: what.\nSELECT 'it''s :x', :x")
    assert statement_of(question, {"x": "1"}, for_spark=False).endswith("SELECT 'it''s :x', '1'")


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("now", NOW),
        ("0s", NOW),
        ("2h", NOW - timedelta(hours=2)),
        ("7d", NOW - timedelta(days=7)),
        ("1767225600123", datetime(2026, 1, 1, 0, 0, 0, 123000, timezone.utc)),
        ("2026-01-01", datetime(2026, 1, 1, tzinfo=timezone.utc)),
        ("2026-01-01T01:00:00+02:00", datetime(2025, 12, 31, 23, tzinfo=timezone.utc)),
    ],
)
def test_times(text: str, time: datetime) -> None:
    question = questions()["retries"]
    assert values_of(question, {"since": text}, lambda: NOW)["since"] == time


@pytest.mark.parametrize(
    ("name", "given_", "words"),
    [
        ("by-key", {}, "by-key needs --key: one of the message's keys"),
        ("by-key", {"key": "\ud800"}, "no text that a message can have"),
        ("by-key", {"key": "a\0b"}, "no text that a message can have"),
        ("retries", {"since": "2 hours"}, "--since: time '2 hours': .* or how long ago"),
        ("retries", {"since": "999999999d"}, "no time of the years 1 to 9999"),
        ("retries", {"since": "9" * 20}, "no time of the years 1 to 9999"),
        ("retries", {"since": "1h", "until": "2h"}, "--until is before --since: no time is between them"),
        ("top-topics", {"top": "1 OR 1=1"}, "--top 1 OR 1=1: a whole number wanted"),
        ("top-topics", {"top": "\u0661"}, "a whole number wanted"),
        ("retention", {"log_bytes_max": "9" * 19}, "--log-bytes-max 9+: a whole number wanted"),
    ],
)
def test_a_wrong_value_is_told(name: str, given_: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        values_of(questions()[name], given_, lambda: NOW)


def test_the_package_has_the_files() -> None:
    """Installed with setuptools, too."""
    assert '"reput.streaming.ask" = ["questions/*.sql"]' in Path(ROOT / "pyproject.toml").read_text(encoding="utf-8")
