"""Message traces: the bodies that real clients wrote, and those that no client writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker_stores import unpack

from reput.source.log.log_reader import MessageLookup
from reput.source.record.message_decoder import Message
from reput.source.record.message_trace import MessageTrace, message_traces


class Everything(Container[str]):
    def __contains__(self, item: object) -> bool:
        return True


def traces_of(text: str) -> list[MessageTrace]:
    return list(message_traces(text.encode(), Everything()))


def messages_of(home: Path) -> Iterator[Message]:
    log, offset = MessageLookup([home / "store" / "commitlog"]), 0
    while isinstance(found := log.find(offset), Message):
        yield found
        offset += found.msg_size


@pytest.mark.parametrize(("name", "topic"), [("v4-traces", "my_traces"), ("v5-traces-pop", "RMQ_SYS_TRACE_TOPIC")])
def test_the_bodies_of_real_clients(name: str, topic: str, tmp_path: Path) -> None:
    home = unpack(name, tmp_path)
    clients: dict[str, Any] = json.loads((home / "clients.json").read_text())
    bodies = [each.body for each in messages_of(home) if each.topic == topic]
    traces = [trace for body in bodies for trace in message_traces(body, Everything())]
    assert len(traces) == sum(body.count(b"\x02") for body in bodies)
    traced = [each for each in clients["deliveries"] if each["group"].startswith("traced")]
    assert Counter(each.kind for each in traces) == {
        "Pub": 7,
        "SubBefore": len(traced),
        "SubAfter": len(traced),
        "EndTransaction": 2,
    }
    consumed = Counter((each.group, each.msg_id, each.success) for each in traces if each.kind == "SubAfter")
    assert consumed == Counter((each["group"], each["uniq_key"], each["success"]) for each in traced)
    before = Counter((each.group, each.msg_id, each.retry_times) for each in traces if each.kind == "SubBefore")
    assert before == Counter((each["group"], each["uniq_key"], each["reconsume_times"]) for each in traced)
    assert {each.result for each in traces if each.kind == "SubAfter"} == {"success", "failed", "exception"}
    assert all(each.time_ms and each.group for each in traces)
    states = [each.transaction_state for each in traces if each.kind == "EndTransaction"]
    assert states == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE"]
    assert {each.topic for each in traces if each.kind == "Pub"} == {"orders"}
    wanted = clients["sent"][0]["uniq_key"]
    assert {each.msg_id for body in bodies for each in message_traces(body, {wanted})} == {wanted}


def test_the_forms_of_other_clients() -> None:
    pub = "Pub\x015\x01region\x01group\x01T\x01ID\x01tag\x01key\x01host\x014\x017\x010"
    (old,) = traces_of(f"{pub}\x01false\x02")
    (new,) = traces_of(f"{pub}\x01offset id\x01true\x01client\x02")
    assert (old.success, new.success) == (False, True)
    assert (new.time_ms, new.group, new.topic, new.cost_ms) == (5, "group", "T", 7)
    (cloud,) = traces_of("SubAfter\x01REQUEST\x01ID\x017\x01true\x01key\x010\x01\x02")
    assert (cloud.time_ms, cloud.group, cloud.request_id, cloud.result) == (None, None, "REQUEST", "success")
    (oldest,) = traces_of("SubAfter\x01REQUEST\x01ID\x017\x01false\x01key\x02")
    assert (oldest.success, oldest.result) == (False, None)
    (recall,) = traces_of("Recall\x015\x01region\x01group\x01T\x01ID\x01true\x02")
    assert (recall.msg_id, recall.success) == ("ID", True)
    (empty,) = traces_of("SubBefore\x015\x01null\x01null\x01REQUEST\x01ID\x010\x01null")
    assert (empty.group, empty.retry_times) == (None, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Pub",
        "Pub\x01",
        "SubBefore\x01x\x01r\x01g\x01q\x01ID\x010\x01k",
        "SubBefore\x0199999999999999999999\x01r\x01g\x01q\x01ID\x010\x01k",
        "SubAfter\x01q\x01ID\x017\x01maybe\x01k",
        "SubBefore\x015\x01r\x01g\x01q\x01ID\x010",
        "Pub " + "\x01a" * 20,
    ],
)
def test_a_trace_of_another_form_is_left_out(text: str) -> None:
    assert traces_of(f"{text}\x02SubBefore\x015\x01r\x01g\x01q\x01ID\x012\x01k\x02") == [
        MessageTrace("SubBefore", "ID", 5, "g", retry_times=2, request_id="q")
    ]


@given(
    st.lists(st.sampled_from(["Pub", "SubAfter", "SubBefore", "EndTransaction", "Recall", "1", "true", "\x02", "é"]))
)
def test_no_body_fails(fields: list[str]) -> None:
    for trace in traces_of("\x01".join(fields)):
        assert trace.msg_id in fields


@given(st.binary())
def test_no_bytes_fail(body: bytes) -> None:
    assert not list(message_traces(body, Everything()))
