"""The output of `reput table` with texts of others, and with remains of forgotten rows."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from reput.sinks.table.forget import Forgotten, Traces
from reput.sinks.table.history import LogEntry, log_entries, rows_before
from reput.sinks.table.storage import table_storage
from reput.streaming.table import commands

HOSTILE = "x\x1b]0;x\x07\u202e\u2028forged\x85line\u2029\n"
CLEAN = Traces(3, {}, {}, [], [])


def is_harmless(text: str) -> bool:
    return not any(unicodedata.category(each) in {"Cc", "Cf", "Zl", "Zp"} for each in text.replace("\n", ""))


def commit(path: Path, version: int, engine: str = "E", note: object = None, **info: object) -> None:
    told = {"engineInfo": engine, "userMetadata": json.dumps(note), **info}
    log = path / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020d}.json").write_text(
        json.dumps({"commitInfo": told}, ensure_ascii=False) + "\n"  # as Delta writes it
    )


def test_history_of_others(tmp_path: Path) -> None:
    """Whatever a commit says of itself; and times that no calendar has."""
    commit(tmp_path, 0, HOSTILE, HOSTILE, operation=HOSTILE, timestamp=10**18)
    commit(tmp_path, 1, "/reput/1", {"what": HOSTILE, "broker": HOSTILE, "start": "5", "end": 7}, operation=["x"])
    commit(tmp_path, 2, "E", {"what": "forgotten", "before": {}}, operation="DELETE", timestamp="now")
    entries = list(log_entries(table_storage(tmp_path), 2, 50))
    assert [entry.version for entry in entries] == [2, 1, 0]
    assert [(entry.what, entry.operation) for entry in entries] == [(None, "DELETE"), (HOSTILE, None), (None, HOSTILE)]
    assert (entries[1].start, entries[1].end) == (None, 7)
    lines = commands.history_lines(entries)
    assert len(lines) == 4
    assert all(is_harmless(line) for line in lines)
    for line, entry in zip(commands.history_json(entries), entries, strict=True):
        assert is_harmless(line)
        assert json.loads(line)["broker"] == entry.broker
        assert json.loads(line)["time"] is None
    assert list(log_entries(table_storage(tmp_path), 5, 50)) == []


def test_what_the_removed_log_told(tmp_path: Path) -> None:
    """Only what reput noted in the first commit that is left, and only if the version asked for is gone."""
    note = {"what": "forgotten", "before": {"b": {"rows": 5, "end": 70, "on_purpose": True}}}
    commit(tmp_path, 4, "Kernel/reput/1", note)
    commit(tmp_path, 5, "Kernel/reput/1", {"what": "dispatched"})
    found = rows_before(table_storage(tmp_path), 2, 5, "b")
    assert found is not None
    assert (found.version, found.rows, found.end, found.on_purpose) == (4, 5, 70, True)
    other = rows_before(table_storage(tmp_path), 2, 5, "c")
    assert other is not None
    assert (other.rows, other.end, other.on_purpose) == (0, None, False)
    assert rows_before(table_storage(tmp_path), 4, 5, "b") is None
    assert rows_before(table_storage(tmp_path), 6, 9, "b") is None
    for broken in (
        {"what": "merged"},
        {"what": "forgotten"},
        {"what": "forgotten", "before": []},
        {"what": "forgotten", "before": {"b": 5}},
    ):
        commit(tmp_path, 4, "Kernel/reput/1", broken)
        assert rows_before(table_storage(tmp_path), 2, 5, "b") is None
    commit(tmp_path, 4, "Somebody", note)
    assert rows_before(table_storage(tmp_path), 2, 5, "b") is None


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (CLEAN, "none left in 3 data files"),
        (replace(CLEAN, rows={HOSTILE: 4}), "still has 4 such rows"),
        (replace(CLEAN, log_files=["_delta_log/1.json"]), "_delta_log/1.json still has such a text"),
        (replace(CLEAN, unreadable=[HOSTILE]), "cannot be looked into"),
        (replace(CLEAN, mentions={HOSTILE: 2, "b": 1}), "3 rows of other messages have the same text"),
        (replace(CLEAN, mentions={"b": 1}), "1 row of another message has the same text in a property, and stays"),
    ],
)
def test_what_is_left_is_told(left: Traces, said: str) -> None:
    """By name, harmless, and never beside the word that nothing is left."""
    text = commands.forgotten_text(Forgotten(rows=7, version=3, left=left))
    assert said in text
    assert text.startswith("7 rows forgotten in version 3")
    assert ("none left" in text) == left.is_clean
    assert is_harmless(text)
    assert is_harmless(commands.plan_text(commands.ForgetPlan(1, 1, 1, left)))
    assert json.loads(commands.as_json(Forgotten(left=left)))["left"]["files"] == 3


def test_an_entry_without_a_note() -> None:
    """The least that a commit can be."""
    entry = LogEntry.of(7, [{"add": {"path": "x", "size": 5}}])
    assert (entry.files_added, entry.rows, entry.size_bytes, entry.operation) == (1, 0, 5, None)
