"""Traces and POP records in `reput ask consumed`: of real clients, and of clients that write anything."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest
from conftest import BrokerStore
from support.broker_stores import unpack
from support.broker_table import make_table as table_of_broker
from support.command_line import invoke
from support.deliveries import ask_consumed, check_deliveries
from support.record_writer import Message
from support.store_table import make_table

from reput.sinks.table.columns import FIRST_SEEN
from reput.sinks.table.consumption import ConsumptionTable, Move
from reput.source.errors import UNKNOWN_NAME

START = 1_700_000_000_000
TRACES, TIMER, REVIVE = "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_c"
ORDER = Message("T", properties={"KEYS": "order", "UNIQ_KEY": "ID"}, store_timestamp=START)


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("v5-pop-grpc", {"given": 5, "acknowledged": 4, "postponed": 1}),
        ("v4-traces", {"sent": 6, "committed": 1, "given": 16, "consumed": 12, "failed": 4}),
        (
            "v5-traces-pop",
            {"sent": 6, "committed": 1, "given": 24, "consumed": 12, "failed": 4, "acknowledged": 6, "postponed": 2},
        ),
    ],
)
def test_each_delivery_of_real_clients(name: str, states: dict[str, int], tmp_path: Path) -> None:
    home = unpack(name, tmp_path)
    clients: dict[str, Any] = json.loads((home / "clients.json").read_text())
    store = BrokerStore(home / "store", home / "broker.conf", {"minOffset": 0, "maxOffset": clients["maxOffset"]})
    table = tmp_path / "table"
    table_of_broker(store, table)
    words = "--store", str(store.root), "--broker-conf", str(store.broker_conf)
    assert check_deliveries(clients, table, *words) == states
    key = clients["sent"][0]["uniq_key"]
    without = invoke(["ask", "consumed", "--table", str(table), "--key", key])
    assert "not read: give --store to read them from the log" in without.stderr
    (msg_id,) = {row["msg_id"] for row in ask_consumed(table, key, *words) if row["kind"] == "normal"}
    rows = ask_consumed(table, msg_id, *words)
    assert "given" in [row["state"] for row in rows]
    group = rows[-1]["consumer_group"]
    (of_group,) = {row["consumer_group"] for row in ask_consumed(table, key, *words, "--group", group)} - {None}
    assert of_group == group


def trace(*fields: object) -> bytes:
    return "\x01".join(map(str, fields)).encode() + b"\x02"


def given(at: int, group: str = "g", request: str = "q", retries: int = 0, unit: str = "ID") -> bytes:
    return trace("SubBefore", START + at, "region", group, request, unit, retries, "order")


def traced(*bodies: bytes, at: int = 60_000, topic: str = TRACES) -> Message:
    return Message(topic, body=b"".join(bodies), properties={"KEYS": "ID order"}, store_timestamp=START + at)


def pop(tag: str, at: int, topic: str = TIMER, **body: object) -> Message:
    found: dict[str, object] = {"bn": "b", "c": "g", "pt": START + 10, "q": 0, "so": 0, "t": "T", **body}
    number = found.get("ao", found["so"])
    key = f"T@0@{number}@g@{found['pt']}@b@{tag}"
    properties = {"TAGS": tag, "UNIQ_KEY": key, "REAL_TOPIC": REVIVE, "TIMER_OUT_MS": "1"}
    return Message(topic, body=json.dumps(found).encode(), properties=properties, store_timestamp=START + at)


def checkpoint(at: int, **body: object) -> Message:
    fields: dict[str, Any] = {"bm": 0, "d": [0], "it": 60_000, "n": 1, "ro": 0, **body}
    return pop("ck", at, **fields)


class Told:
    """The answer about the message `ORDER`, which is the log's first, and the notes beside it."""

    def __init__(self, root: Path, *messages: Message, bodies_in_table: bool = False) -> None:
        table = make_table(root, [ORDER, *messages], body_bytes_max=1 << 20 if bodies_in_table else None)
        words = [] if bodies_in_table else ["--store", str(root / "store")]
        result = invoke(["ask", "consumed", "--table", str(table), "--format", "json", "--key", "order", *words])
        assert result.exit_code == 0, result.output
        self.notes = result.stderr
        assert not [each for each in result.output if unicodedata.category(each) in ("Cc", "Cf") and each != "\n"]
        self.rows = [json.loads(line) for line in result.stdout.splitlines()]

    @property
    def states(self) -> list[tuple[Any, ...]]:
        """Group, state, and both times in milliseconds after the message was stored."""
        return [
            (row["consumer_group"], row["state"], self._after(row["passed_after"]), self._after(row["passed_before"]))
            for row in self.rows
        ]

    def _after(self, text: str | None) -> int | None:
        assert text is None or text.startswith("2023-11-14 22:1")
        return None if text is None else int(text[15]) * 60_000 + round(float(text[17:]) * 1000) - 3 * 60_000 - 20_000


def test_a_client_whose_clock_is_wrong_is_told_by_the_brokers(tmp_path: Path) -> None:
    told = Told(tmp_path, traced(given(-1), given(60_001, "late"), given(5, "right"), given(2**62, "far")))
    assert told.states == [
        ("far", "given", 0, 60_000),
        ("g", "given", 0, 60_000),
        ("late", "given", 0, 60_000),
        ("right", "given", 5, 5),
    ]
    assert [row["detail"] for row in told.rows] == ["the client's clock differs"] * 3 + [None]


def test_a_trace_that_is_sent_twice_counts_once_and_one_without_a_group_has_that_of_its_request(tmp_path: Path) -> None:
    after = trace("SubAfter", "q", "ID", 3, "false", "order", 4, "")
    told = Told(tmp_path, traced(given(5), given(5)), traced(given(5), after, at=70_000))
    assert told.states == [("g", "given", 5, 5), ("g", "failed", 0, 70_000)]
    assert told.rows[1]["detail"] == "failed, 3 ms"
    assert "2 trace messages or POP records name these messages; all were read" in told.notes


def test_a_trace_belongs_to_the_retry_that_the_group_got(tmp_path: Path) -> None:
    retry = Message(
        "%RETRY%g", properties={"UNIQ_KEY": "ID", "KEYS": "order"}, reconsume_times=1, store_timestamp=START
    )
    told = Told(tmp_path, retry, traced(given(5), given(6, retries=1), given(7, "orderly", retries=1)))
    places = [(row["consumer_group"], row["kind"], row["detail"]) for row in told.rows]
    assert places == [("g", "normal", None), ("orderly", "normal", "retry 1"), ("g", "retry", "retry 1")]


def test_a_custom_trace_topic_is_read_and_left_out(tmp_path: Path) -> None:
    told = Told(tmp_path, traced(given(5), topic="mine"))
    assert told.states == [("g", "given", 5, 5)]
    assert "left out: 1 message of mine that are traces" in told.notes


def test_bodies_of_the_table_need_no_store(tmp_path: Path) -> None:
    told = Told(tmp_path, traced(given(5)), checkpoint(20), bodies_in_table=True)
    assert [state[:2] for state in told.states] == [("g", "given"), ("g", "given")]


def test_an_acknowledgement_counts_once_and_at_its_first_copy(tmp_path: Path) -> None:
    ack = pop("ack", 30, ao=0)
    told = Told(tmp_path, checkpoint(20), ack, checkpoint(59_000, topic=REVIVE), pop("ack", 60_000, REVIVE, ao=0))
    assert told.states == [("g", "given", 10, 10), ("g", "acknowledged", 30, 30)]
    assert told.rows[0]["detail"] == "shown again after 60000 ms if not acknowledged"
    late = Told(tmp_path / "late", pop("ack", 60_000, REVIVE, ao=0))
    assert late.states == [("g", "given", 10, 10), ("g", "acknowledged", 10, 60_000)]


def test_a_message_that_is_shown_later_was_not_acknowledged(tmp_path: Path) -> None:
    """The broker replaces the checkpoint, and acknowledges the old one."""
    later = checkpoint(40, pt=START + 35, it=30_000)
    told = Told(tmp_path, checkpoint(20, n=2, d=[0, 1]), later, pop("ack", 41, ao=0))
    assert told.states == [("g", "given", 10, 10), ("g", "postponed", 35, 35)]
    again = Told(tmp_path / "again", checkpoint(20), pop("ack", 41, ao=0), checkpoint(50, pt=START + 45))
    assert [state[1] for state in again.states] == ["given", "acknowledged", "given"]


def test_lists_and_bits_of_acknowledgements(tmp_path: Path) -> None:
    several = pop("bAck", 30, ao=-1, aol=[0, 1])
    assert [state[1:] for state in Told(tmp_path, checkpoint(20), several).states] == [
        ("given", 10, 10),
        ("acknowledged", 30, 30),
    ]
    merged = Told(tmp_path / "merged", checkpoint(20, bm=1))
    assert [state[1:] for state in merged.states] == [("given", 10, 10), ("acknowledged", 10, 20)]
    others = Told(tmp_path / "others", checkpoint(20, d=[1]), pop("ack", 30, ao=1), pop("bAck", 30, ao=-1, aol=[4]))
    assert [state[1] for state in others.states] == ["unknown"]


def test_bodies_that_no_client_writes(tmp_path: Path) -> None:
    """They are never more than text: nothing fails, and no character of them moves a cursor."""
    escape = "\x1b[31m\u202e\x9b" + "x" * 10_000
    texts = [given(5, escape), given(6)]
    messages = [
        traced(*texts, b"\xff\x01\xfe\x02" * 100, b"Pub\x01" * 1000),
        traced(trace("Pub", START, "r", escape, "T", "ID", "t", "k", "h", 4, 7, 0, "o", "true")),
        traced(trace("EndTransaction", START, "r", "p", "T", "ID", "t", "k", "h", 2, "x", escape, "false")),
        checkpoint(20, c=escape, n=127, d=None),
        replace(checkpoint(20), body=b"[" * 30_000),
    ]
    told = Told(tmp_path, *messages)
    assert sorted(state[1] for state in told.states) == ["given", "given", "given", "left open", "sent"]
    words = "--table", str(tmp_path / "table"), "--store", str(tmp_path / "store"), "--key", "order", "--show-sql"
    shown = invoke(["ask", "consumed", *words])
    assert shown.exit_code == 0
    assert shown.stdout.count("CAST(NULL AS STRING)") > 1
    assert not [each for each in shown.stdout if unicodedata.category(each) in ("Cc", "Cf") and each != "\n"]


def test_the_log_does_not_have_them_any_more(tmp_path: Path) -> None:
    table = make_table(tmp_path, [ORDER, traced(given(5))])
    delta = deltalake.DeltaTable(str(table))
    delta.update({"physical_offset": "0"}, predicate=f"topic = '{TRACES}'")  # where another message is
    result = invoke(["ask", "consumed", "--table", str(table), "--store", str(tmp_path / "store"), "--key", "order"])
    assert "1 not read: the log does not have them any more" in result.stderr
    delta.delete(f"topic = '{TRACES}'")
    result = invoke(["ask", "consumed", "--table", str(table), "--store", str(tmp_path / "store"), "--key", "order"])
    assert "the table has no message trace and no POP record of these messages" in result.stderr


def test_a_group_that_only_a_trace_names_is_known(tmp_path: Path) -> None:
    table = make_table(tmp_path, [ORDER, traced(given(5))])
    ledger = ConsumptionTable(table, "b", 1000)
    ledger.append([Move("other", "T", 0, None, 5, None, START + 1, FIRST_SEEN)], START + 1)
    words = "--store", str(tmp_path / "store"), "--group"
    assert [row["state"] for row in ask_consumed(table, "order", *words, "g")] == ["given"]
    result = invoke(["ask", "consumed", "--table", str(table), "--key", "order", *words, "gg"])
    assert (result.exit_code, result.stdout) == (UNKNOWN_NAME, "")
    assert "is g meant?" in result.stderr
