"""Checkpoints and acknowledgements of POP consumers: bodies that a broker wrote, and those that no broker writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker_stores import unpack
from unit.source.record.test_message_trace import messages_of

from reput.source.record.pop_record import REVIVE_TOPIC_PREFIX, PopRecord, pop_record

CHECKPOINT = {"bm": 0, "bn": "b", "c": "g", "d": [0, 3], "it": 60, "n": 2, "pt": 5, "q": 1, "ro": 0, "so": 7, "t": "T"}
ACK = {"ao": 8, "bn": "b", "c": "g", "pt": 5, "q": 1, "so": 7, "t": "T"}


def record(tag: str, body: object) -> PopRecord | None:
    return pop_record(tag, json.dumps(body).encode())


def test_the_bodies_of_a_broker(tmp_path: Path) -> None:
    """Each says in its unique key what it is about."""
    home = unpack("v5-traces-pop", tmp_path)
    seen = set()
    for message in messages_of(home):
        if not message.properties.get("REAL_TOPIC", "").startswith(REVIVE_TOPIC_PREFIX):
            continue
        found = pop_record(message.tags, message.body)
        assert found is not None
        place = f"{found.topic}@{found.queue_id}@{found.offsets[0]}"
        assert message.uniq_key == f"{place}@{found.group}@{found.pop_time_ms}@broker-a@{message.tags}"
        assert found.is_ack == (message.tags == "ack") == (found.invisible_ms is None)
        seen.add((found.is_ack, len(found.offsets)))
    assert seen == {(True, 1), (False, 1), (False, 6)}


def test_the_forms_of_other_brokers() -> None:
    checkpoint = record("ck", CHECKPOINT)
    assert checkpoint == PopRecord(False, "T", 1, (7, 10), "g", 5, 60, ())
    old = record("ck", {name: value for name, value in CHECKPOINT.items() if name != "d"})
    assert old is not None
    assert old.offsets == (7, 8)
    merged = record("ck", CHECKPOINT | {"bm": 2})
    assert merged is not None
    assert merged.acked == (10,)
    assert record("ack", ACK) == PopRecord(True, "T", 1, (8,), "g", 5)
    names = {
        "ao": "ackOffset",
        "so": "startOffset",
        "c": "consumerGroup",
        "t": "topic",
        "q": "queueId",
        "pt": "popTime",
    }
    assert record("ack", {names.get(name, name): value for name, value in ACK.items()}) == record("ack", ACK)
    several = record("bAck", ACK | {"ao": -1, "aol": [7, 10]})
    assert several is not None
    assert several.offsets == (7, 10)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"ck"',
        b"[" * 30_000,
        b"9" * 10_000,
        json.dumps(CHECKPOINT | {"n": 128}).encode(),
        json.dumps(CHECKPOINT | {"so": -1}).encode(),
        json.dumps(CHECKPOINT | {"so": 2**63}).encode(),
        json.dumps(CHECKPOINT | {"so": True}).encode(),
        json.dumps(CHECKPOINT | {"pt": 1.5}).encode(),
        json.dumps(CHECKPOINT | {"d": {"a": 1}}).encode(),
        json.dumps(CHECKPOINT | {"c": None}).encode(),
        json.dumps(CHECKPOINT | {"x": "x" * 70_000}).encode(),
    ],
)
def test_a_body_of_another_form_is_none(body: bytes) -> None:
    assert pop_record("ck", body) is None


def test_another_tag_is_none() -> None:
    assert record("", ACK) is record("rp", ACK) is pop_record(None, json.dumps(ACK).encode()) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    st.sampled_from(["ck", "ack", "bAck"]),
    st.dictionaries(st.sampled_from(["ao", "aol", *CHECKPOINT]), VALUES),
)
def test_no_body_fails(tag: str, changed: dict[str, object]) -> None:
    found = record(tag, CHECKPOINT | ACK | changed)
    assert found is None or all(isinstance(offset, int) for offset in found.offsets)
