"""`reput verify --table`: the moves of consumer groups in the ledger beside the table, compared with each other."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from support.command_line import invoke, run_reput
from support.record_writer import Message, write_log
from support.store_table import add_store
from unit.streaming.tail.test_consumption import Broker, now_ms

from reput.sinks.table.columns import CONSUMPTION_SCHEMA
from reput.sinks.table.consumption import ConsumptionTable, Move
from reput.sinks.table.location import consumption_table_path
from reput.sinks.table.log import read_snapshot
from reput.sinks.table.retention import RowRetention
from reput.source.times import milliseconds_of, utc_text

STATES: list[dict[int, int]] = [{0: 10, 1: 5}, {0: 20, 1: 5}, {0: 7, 1: 5}, {0: 7}, {0: 30, 1: 9}]
MOVES = 11


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A table with the rows of a store, and a ledger of all kinds of moves, a file for each look; of two brokers."""
    broker = Broker(tmp_path)
    write_log(broker.store / "commitlog", [Message("orders", store_timestamp=now_ms())])
    add_store(broker.table, broker.store, "broker-a")
    other = broker.start(broker="broker-b")
    for queues in STATES:
        broker.write({"orders@billing": queues, "stock@billing": {0: queues[0]}})
        broker.watch.look()
    other.look()
    return broker


def verified(broker: Broker) -> dict[str, Any]:
    """Return the report's section about the ledger; the exit code agrees with it."""
    words = ["verify", "--store", str(broker.store), "--table", str(broker.table), "--json"]
    for option in ("broker=broker-a", "consumeQueueEnable=false", "messageIndexEnable=false"):
        words += ["-o", option]
    result = invoke(words)
    assert result.stdout, (result.output, result.exception)
    found: dict[str, Any] = json.loads(result.stdout)["parts"]["consumption"]
    assert result.exit_code == int(found["differences"] > 0), result.output
    return found


def test_the_report_has_a_line_for_it(broker: Broker) -> None:
    words = ["verify", "--store", str(broker.store), "--table", str(broker.table), "-o", "broker=broker-a"]
    told = run_reput([*words, "-o", "consumeQueueEnable=false", "-o", "messageIndexEnable=false"]).stdout
    assert f"\nconsumption {MOVES} moves: agrees\n" in told


def ledger(broker: Broker) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(consumption_table_path(broker.table))


def test_the_moves_of_a_broker_follow_each_other(broker: Broker) -> None:
    """One of each kind; also when files are merged, and when the first moves have expired."""
    assert {row["move"] for row in broker.rows()} == {"first_seen", "progress", "reset_back", "gone"}
    assert verified(broker)["compared"] == {"moves": MOVES}
    table = ConsumptionTable(broker.table, "broker-a", 0, RowRetention.parse("orders=1d"))
    assert table.expire(time.time() + 2 * 86_400).rows > 0
    after = verified(broker)["compared"]["moves"]
    assert 0 < after < MOVES
    ledger(broker).optimize.compact()  # rows of both brokers in one file
    assert verified(broker)["compared"] == {"moves": after}


def test_moves_that_come_back_to_the_same_offset_between_files_of_others_are_no_difference(broker: Broker) -> None:
    """Two moves in one file join, and yet two of another file lie between them."""
    last = broker.rows()[-1]["seen_after"]
    times = [milliseconds_of(last) + 1000 * number for number in range(1, 5)]
    offsets = [30, 40, 30, 40, 50]
    moves = [
        Move("billing", "orders", 0, before, after, None, at, "progress" if after > before else "reset_back")
        for before, after, at in zip(offsets, offsets[1:], times, strict=False)
    ]
    table = ConsumptionTable(broker.table, "broker-a", 0)
    table.append([moves[0], moves[3]], times[3])
    table.append([moves[1], moves[2]], times[3] + 1)
    assert verified(broker)["differences"] == 0


def test_a_move_is_lost(broker: Broker) -> None:
    ledger(broker).delete("move = 'reset_back' AND topic = 'orders'")
    found = verified(broker)
    assert found["by_kind"] == {"move_missing": 1}
    text = found["first"][0]["text"]
    assert text.startswith("billing in orders-0: the move by ")
    assert text.endswith(" begins at 7, and the one before it ends at 20")
    assert f"--table {consumption_table_path(broker.table)}" in found["advice"]


def test_the_first_move_is_lost(broker: Broker) -> None:
    ledger(broker).delete("move = 'first_seen' AND topic = 'stock'")
    found = verified(broker)
    assert found["by_kind"] == {"move_missing": 1}
    assert found["first"][0]["text"].endswith(" begins at 10, and is the first")


@pytest.mark.parametrize("moves", [MOVES, 1])
def test_moves_are_there_twice(broker: Broker, moves: int) -> None:
    rows = pa.Table.from_pylist([row for row in broker.rows() if row["broker"] == "broker-a"], CONSUMPTION_SCHEMA)
    deltalake.write_deltalake(ledger(broker), rows.slice(0, moves), mode="append")
    found = verified(broker)
    assert found["by_kind"] == {"move_twice": moves}
    assert found["first"][0]["text"].endswith(" is repeated, or too late")


@pytest.mark.parametrize(
    ("kind", "before", "after", "seconds", "difference"),
    [
        ("progress", 30, 40, 1, None),
        ("gone", 30, 40, 1, "move_kind"),
        ("progress", 30, 20, 1, "move_kind"),
        ("reset_back", 30, 40, 1, "move_kind"),
        ("progress", 30, None, 1, "move_kind"),
        ("progress", 30, 30, 1, "move_kind"),
        ("first_seen", None, 40, 1, "move_missing"),
        ("progress", 31, 40, 1, "move_missing"),
        ("progress", 30, 40, -1, "move_times"),
    ],
)
def test_a_move_is_added(
    broker: Broker, kind: str, before: int | None, after: int | None, seconds: int, difference: str | None
) -> None:
    at = milliseconds_of(broker.rows()[-1]["seen_after"]) + 10_000
    move = Move("billing", "orders", 0, before, after, at - 1000 * seconds, at, kind)
    ConsumptionTable(broker.table, "broker-a", 0).append([move], at)
    assert verified(broker)["by_kind"] == ({difference: 1} if difference else {})


def test_rows_behind_the_last_transaction(broker: Broker) -> None:
    """A tail would write them again, because it continues from its transaction."""
    at = broker.rows()[-1]["seen_after"] + timedelta(seconds=10)
    row = {"broker": "broker-a", "consumer_group": "billing", "topic": "orders", "queue_id": 0, "offset_before": 30}
    row |= {"offset_after": 40, "seen_after": at, "move": "progress"}
    deltalake.write_deltalake(ledger(broker), pa.Table.from_pylist([row], CONSUMPTION_SCHEMA), mode="append")
    found = verified(broker)
    assert found["by_kind"] == {"transaction_behind": 1}
    assert utc_text(at) in found["first"][0]["text"]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(bytes(path.stat().st_size))])
def test_a_file_cannot_be_read(broker: Broker, damage: Callable[[Path], object]) -> None:
    of_broker = (file for file in read_snapshot(consumption_table_path(broker.table)).files_of("broker-a"))
    name = next(of_broker).path
    damage(consumption_table_path(broker.table) / name)
    found = verified(broker)
    assert found["by_kind"] == {"file_unreadable": 1}
    assert name in found["first"][0]["file"]
    assert "not compared" in found["remarks"][0]


def test_a_table_without_a_ledger_has_no_such_section(broker: Broker) -> None:
    shutil.rmtree(consumption_table_path(broker.table))
    with pytest.raises(KeyError):
        verified(broker)
