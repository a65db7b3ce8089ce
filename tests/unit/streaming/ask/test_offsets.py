"""`reput offsets`: where groups were at a time, never ahead of what was seen, and nothing is written into a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.command_line import invoke

from reput.sinks.table.columns import FIRST_SEEN, GONE, PROGRESS, RESET_BACK
from reput.sinks.table.consumption import ConsumptionTable, Move
from reput.streaming.ask.store_relations import consumer_offsets

AT = 1_800_000_000_000
HOSTILE = 'qu"ote\n'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "messages"

    def move(group: str, before: int | None, after: int | None, since: int | None, until: int, kind: str) -> Move:
        return Move(group, "orders", 0, before, after, None if since is None else AT + since, AT + until, kind)

    ledger = ConsumptionTable(path, "broker-a", 1000)
    ledger.append(
        [
            *(move(name, None, 10, None, 0, FIRST_SEEN) for name in ("billing", "reset", "gone", HOSTILE)),
            move("billing", 10, 20, 1000, 2000, PROGRESS),
            move("gone", 10, None, 1000, 2000, GONE),
            move("late", None, 5, 1000, 9000, FIRST_SEEN),
            move("billing", 20, 30, 3000, 9000, PROGRESS),
            move("reset", 10, 4, 3000, 9000, RESET_BACK),
        ],
        AT + 9000,
    )
    return path


def ask(table: Path, *words: str) -> list[dict[str, Any]]:
    result = invoke(["offsets", "--table", str(table), "--format", "json", *words])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def at(table: Path, milliseconds: int) -> dict[str, int]:
    rows = ask(table, "--at", str(AT + milliseconds))
    return {row["consumer_group"]: row["consumer_offset"] for row in rows}


def test_no_offset_is_ahead_of_what_was_seen_by_then(table: Path) -> None:
    assert at(table, 1500) == {"billing": 10, "reset": 10, "gone": 10, HOSTILE: 10}
    assert at(table, 2500) == {"billing": 20, "reset": 10, HOSTILE: 10}
    assert at(table, 4000) == {"billing": 20, "reset": 4, HOSTILE: 10}  # it may have been reset by then
    assert at(table, 9000) == {"billing": 30, "reset": 4, "late": 5, HOSTILE: 10}


def test_a_time_before_the_ledger_is_unknown(table: Path) -> None:
    result = invoke(["offsets", "--table", str(table), "--at", str(AT - 1)])
    assert result.exit_code == 2
    assert "they are watched since 2027-01-15T08:00:00.000Z" in result.stderr
    result = invoke(["offsets", "--table", str(table), "--at", str(AT), "--broker", "broker-b"])
    assert (result.exit_code, "is broker-a meant?" in result.stderr) == (2, True)


def store_of(root: Path, table: dict[str, dict[int, int]]) -> Path:
    (root / "config").mkdir(parents=True)
    (root / "commitlog").mkdir()
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    return root


def test_the_file_is_what_a_broker_reads_and_is_compared_with_the_present_one(table: Path, tmp_path: Path) -> None:
    now = {"orders@billing": {0: 35}, "orders@reset": {0: 4}, "orders@late": {0: 3}, "orders@new": {0: 1}}
    store, out = store_of(tmp_path / "store", now), tmp_path / "offsets.json"
    before = (store / "config" / "consumerOffset.json").read_bytes()
    words = ["--table", str(table), "--at", str(AT + 9000), "--store", str(store)]
    result = invoke(["offsets", *words, "--format", "consumerOffset.json", "--result", str(out)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert (
        "1 queues have the same offset, 1 have a smaller one than the store, 1 a larger one, 1 have none in the store, "
        "1 have one in the store alone" in result.stderr
    )
    restored = tmp_path / "restored"
    (restored / "config").mkdir(parents=True)
    out.rename(restored / "config" / "consumerOffset.json")
    found = sorted(consumer_offsets(restored))
    assert found == sorted([(group, "orders", 0, offset) for group, offset in at(table, 9000).items()])
    assert (store / "config" / "consumerOffset.json").read_bytes() == before
    rows = ask(table, "--at", str(AT + 9000), "--store", str(store))
    assert {row["consumer_group"]: row["messages"] for row in rows} == {
        "billing": 5,
        "reset": 0,
        "late": -2,
        "new": None,
        HOSTILE: None,
    }


def test_nothing_is_written_into_a_store(table: Path, tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", {})
    out = store / "config" / "consumerOffset.json"
    before = out.read_bytes()
    result = invoke(["offsets", "--table", str(table), "--at", str(AT), "--result", str(out)])
    assert (result.exit_code, out.read_bytes()) == (2, before)
    assert "in a broker's store" in result.stderr


def test_a_file_is_one_brokers(table: Path) -> None:
    ConsumptionTable(table, "broker-b", 1000).append([Move("g", "orders", 0, None, 1, None, AT, FIRST_SEEN)], AT)
    words = ["offsets", "--table", str(table), "--at", str(AT), "--format", "consumerOffset.json"]
    result = invoke(words)
    assert (result.exit_code, "broker-a, broker-b" in result.stderr) == (2, True)
    assert json.loads(invoke([*words, "--broker", "broker-b"]).stdout.replace("{0:", '{"0":')) == {
        "offsetTable": {"orders@g": {"0": 1}}
    }


def test_a_table_without_a_ledger(tmp_path: Path) -> None:
    result = invoke(["offsets", "--table", str(tmp_path / "messages"), "--at", "0"])
    assert (result.exit_code, "messages-consumption does not exist" in result.stderr) == (1, True)
