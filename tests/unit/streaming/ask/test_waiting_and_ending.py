"""Timer messages that were recalled or stored again to keep waiting, transactions in RocksDB, clients of a proxy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pytest
from conftest import BrokerStore
from support.broker_stores import unpack
from support.broker_table import make_table as table_of_broker
from support.command_line import invoke
from support.record_writer import Message
from support.store_table import make_table

from reput.streaming.ask.question import questions

TIMER, DAY_MS, START = "rmq_sys_wheel_timer", 86_400_000, 1_700_000_000_000
# Where the logs of the stores of brokers end.
ENDS = {"v5-recalled-timer": 49_611, "v5-rocksdb-transactions": 4_062}


def rows(question: str, table: Path, *words: str) -> list[dict[str, Any]]:
    result = invoke(["ask", question, "--table", str(table), "--format", "json", *words])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def broker_table(name: str, root: Path) -> tuple[Path, tuple[str, ...]]:
    """The table of a broker's store, and the options that name the store."""
    home = unpack(name, root)
    store = BrokerStore(home / "store", home / "broker.conf", {"minOffset": 0, "maxOffset": ENDS[name]})
    table_of_broker(store, root / "table")
    return root / "table", ("--store", str(store.root), "--broker-conf", str(store.broker_conf))


def test_a_recalled_message_of_a_broker(tmp_path: Path) -> None:
    """Neither it nor its mark waits; a message is due when its producer wanted it, not a second earlier."""
    table, store = broker_table("v5-recalled-timer", tmp_path)
    (left,) = rows("delayed", table, *store, "--now", "1795744495999")
    assert (left["keys"], left["state"], left["kind"]) == (["tk2"], "waits", "timer")
    assert left["deliver_time"] == "2026-11-27 01:54:56.000"
    assert rows("delayed", table, *store, "--now", "1795744496000")[0]["state"] == "overdue"
    (sent,) = rows("life", table, *store, "--key", "recallme")
    life = rows("life", table, *store, "--key", sent["message"])
    assert [(row["step"], row["queue_offset"]) for row in life] == [("waits", 3), ("recalled", 4)]
    assert [row["step"] for row in rows("life", table, "--key", "tk0")] == ["waits", "delivered"]
    kinds = (
        deltalake.DeltaTable(str(table))
        .to_pyarrow_table(columns=["topic", "kind", "deliver_time", "body_size"])
        .to_pylist()
    )
    marks = [row for row in kinds if row["topic"] == TIMER and row["kind"] != "timer"]
    assert [(row["kind"], row["deliver_time"], row["body_size"]) for row in marks] == [("recall", None, 1)]


def test_transactions_in_rocksdb(tmp_path: Path) -> None:
    """Half messages are of their kind, and end by a record that names their physical offset."""
    table, store = broker_table("v5-rocksdb-transactions", tmp_path)
    assert rows("half-open", table, *store) == []
    assert [row["step"] for row in rows("life", table, "--key", "commit1")] == ["half", "committed"]
    assert [row["step"] for row in rows("life", table, "--key", "rollback1")] == ["half"]
    kinds = deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=["kind", "transaction_id"]).to_pylist()
    assert [row["kind"] for row in kinds].count("half") == [row["kind"] for row in kinds].count("half_op") == 4
    assert all(row["transaction_id"] for row in kinds)
    deltalake.DeltaTable(str(table)).delete("physical_offset = 1922")
    (left,) = rows("half-open", table, *store)
    assert (left["keys"], left["physical_offset"], left["copies"]) == (["rollback1"], 1088, 1)
    assert (left["origin_topic"], left["producer_group"]) == ("Tx", "txg")
    assert rows("half-open", table, *store, "--topic", "Tx") == [left]


def test_rows_of_earlier_versions(tmp_path: Path) -> None:
    """They have the kinds that these gave them; questions about transactions and waiting messages go by topics."""
    table, store = broker_table("v5-rocksdb-transactions", tmp_path)
    delta = deltalake.DeltaTable(str(table))
    delta.update(
        {"kind": "'normal'", "transaction_id": "NULL", "origin_topic": "topic"}, predicate="topic LIKE 'RMQ_SYS%'"
    )
    delta.delete("physical_offset = 1922")
    assert [row["keys"] for row in rows("half-open", table, *store, "--topic", "Tx")] == [["rollback1"]]
    assert [row["step"] for row in rows("life", table, "--key", "commit1")] == ["half", "committed"]
    timers, _ = broker_table("v5-recalled-timer", tmp_path / "timer")
    deltalake.DeltaTable(str(timers)).update({"kind": "'timer'"}, predicate="kind = 'recall'")
    assert [row["keys"] for row in rows("delayed", timers)] == [["tk2"]]


def timer(key: str, roll: int, **more: str) -> Message:
    properties = {"REAL_TOPIC": "T", "UNIQ_KEY": key, "KEYS": f"k{key}", "TIMER_OUT_MS": str(START + 9 * DAY_MS)}
    rolled = {"TIMER_ROLL_TIMES": str(roll)} if roll else {}
    return Message(
        TIMER, body=key.encode(), properties={**properties, **rolled, **more}, store_timestamp=START + roll * DAY_MS
    )


def test_a_message_that_is_stored_again_to_wait_on(tmp_path: Path) -> None:
    """One row for a message, its last one; none once it was delivered, or recalled in whichever of its rows."""
    mark = {"TIMER_DEL_UNIQKEY": "C", "KEYS": ""}
    messages = [
        *(timer(key, roll) for roll in range(3) for key in "AB"),
        timer("C", 0),
        timer("C", 0, **mark),
        timer("C", 1, **mark),
        timer("C", 1),
        Message("T", body=b"B", properties={"UNIQ_KEY": "B", "KEYS": "kB"}, store_timestamp=START + 9 * DAY_MS),
    ]
    table = make_table(tmp_path, messages)
    (left,) = rows("delayed", table)
    assert (left["uniq_key"], left["rolls"], left["store_time"]) == ("A", 2, "2023-11-16 22:13:20.000")
    steps = [row["step"] for row in rows("life", table, "--key", "kB")]
    assert steps == ["waits", "rolled on", "rolled on", "delivered"]
    assert [row["step"] for row in rows("life", table, "--key", "C")].count("recalled") == 2


def test_clients_behind_a_proxy(tmp_path: Path) -> None:
    """They have no group: a proxy stores the topic in its place."""
    by_proxy = {"PGROUP": "T", "__BORNHOST": "10.0.0.9:80", "BORN_TIMESTAMP": "1"}
    table = make_table(tmp_path, [Message("T", properties=by_proxy), Message("T", properties={"PGROUP": "T"})])
    found = {(row["client"], row["producer_group"]) for row in rows("producers", table)}
    assert found == {("10.0.0.9", None), (None, "T")}
    deltalake.DeltaTable(str(table)).update({"producer_group": "'T'"})
    assert {(row["client"], row["producer_group"]) for row in rows("producers", table)} == found


@pytest.mark.parametrize("name", sorted(questions()))
def test_every_question_takes_a_period(name: str) -> None:
    assert {"since", "until"} <= {each.name for each in questions()[name].parameters}


def test_what_was_stored_within_a_period(tmp_path: Path) -> None:
    """`since` is inclusive, `until` is not, whatever is asked."""
    messages = [
        *(Message("T", queue_offset=n + n // 3, store_timestamp=START + n, properties={"KEYS": "k"}) for n in range(6)),
        *(timer(key, roll) for roll, key in enumerate("AB")),
    ]
    table = make_table(tmp_path, messages)
    config = tmp_path / "store" / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:1}}}')
    store, period = ("--store", str(tmp_path / "store")), ("--since", str(START + 2), "--until", str(START + 4))
    assert [row["queue_offset"] for row in rows("unconsumed", table, *store, "--group", "g", *period)] == [2, 4]
    (lag,) = rows("lag", table, *store, *period)
    assert (lag["unconsumed"], lag["next_offset"]) == (2, 7)
    assert len(rows("life", table, "--key", "k", *period)) == 2
    assert [row["first_offset"] for row in rows("gaps", table, *period)] == [3]
    assert rows("gaps", table, "--until", str(START + 3)) == []
    assert [row["uniq_key"] for row in rows("delayed", table, "--since", str(START + 1))] == ["B"]
    assert [row["uniq_key"] for row in rows("delayed", table, "--until", str(START + 1))] == ["A"]
