"""Plans to consume or send messages again, and files of messages with their bodies."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.outputs import config_of
from support.record_writer import Message, StoredRecord, write_store

from reput.source.errors import DataLossError, OptionError
from reput.streaming.ask.replay import replay_plan, write_messages

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NAMES = ["broker", "topic", "queue_id", "queue_offset", "physical_offset"]
COMPRESSED = 0x1


def test_a_plan() -> None:
    """Consecutive offsets are a range; what comes twice counts once."""
    names = ["queue_offset", "store_time", "topic", "queue_id", "broker"]
    rows = [
        (offset, None if stored is None else EPOCH + timedelta(milliseconds=stored), topic, queue_id, broker)
        for broker, topic, queue_id, offset, stored in [
            ("b", "T", 1, 4, 40),
            ("b", "T", 0, 7, 70),
            ("b", "T", 0, 6, None),
            ("b", "T", 0, 8, 60),
            ("b", "T", 0, 10, 100),
            ("b", "T", 0, 7, 71),
            ("a", "T", 0, 9, None),
        ]
    ]
    plan = replay_plan(names, rows)
    wanted = ["broker", "topic", "queue_id", "first_offset", "last_offset", "messages", "first_stored_ms"]
    assert plan.names == wanted
    assert [tuple(row) for row in plan.rows()] == [
        ("a", "T", 0, 9, 9, 1, None),
        ("b", "T", 0, 6, 8, 3, 60),
        ("b", "T", 0, 10, 10, 1, 100),
        ("b", "T", 1, 4, 4, 1, 40),
    ]
    schema, batches = plan.batches()
    assert schema.names == wanted
    assert sum(batch.num_rows for batch in batches) == 4


def test_a_plan_of_nothing() -> None:
    plan = replay_plan(NAMES, [])
    assert list(plan.rows()) == []
    assert plan.batches()[0].names == plan.names


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("TU"), st.integers(0, 1), st.integers(0, 12))))
def test_a_plan_has_each_message_once(places: list[tuple[str, str, int, int]]) -> None:
    """And no other; two ranges of a queue never touch."""
    plan = [tuple(row) for row in replay_plan(NAMES[:4], places).rows()]
    spread = [(*row[:3], offset) for row in plan for offset in range(row[3], row[4] + 1)]
    assert spread == sorted(set(places))
    assert all(row[5] == row[4] - row[3] + 1 for row in plan)
    for one, other in zip(plan, plan[1:], strict=False):
        assert one[:3] != other[:3] or one[4] + 1 < other[3]


def test_rows_that_are_no_messages() -> None:
    with pytest.raises(OptionError, match="this one has no queue_id, queue_offset"):
        replay_plan(["broker", "topic"], [])
    with pytest.raises(OptionError, match=r"--bodies is for .* this one has no physical_offset"):
        write_messages(Path("f"), Path("t"), NAMES[:4], [], None)  # type: ignore[arg-type]


def rows_of(records: Sequence[StoredRecord]) -> list[tuple[Any, ...]]:
    return [
        ("b", each.message.topic, each.message.queue_id, each.message.queue_offset, each.physical_offset)
        for each in records
    ]


def test_bodies(tmp_path: Path) -> None:
    """As the producer gave them: decompressed, and also bytes that are not text; each message once."""
    bodies = [b"text", b"\xff\x00", b"", "\u4f53".encode()]
    messages = [Message("T", body=body, properties={"KEYS": "a b", "x": "\x1b[31m"}) for body in bodies]
    messages.append(Message("T", body=zlib.compress(b"long" * 100), sys_flag=COMPRESSED))
    records = write_store(tmp_path / "store", messages, 1 << 16)
    rows = rows_of(records)
    told = write_messages(tmp_path / "f", tmp_path / "t", NAMES, [*rows[::-1], rows[0]], config_of(tmp_path / "store"))
    assert told == f"5 messages with their bodies are in {tmp_path / 'f'}"
    text = (tmp_path / "f").read_text()
    assert "\x1b" not in text
    lines = [json.loads(line) for line in text.splitlines()][::-1]
    assert [base64.b64decode(line["body_base64"]) for line in lines] == [*bodies, b"long" * 100]
    assert [line["queue_offset"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines[0]["properties"] == {"KEYS": "a b", "x": "\x1b[31m"}
    assert lines[0]["keys"] == ["a", "b"]


def test_messages_that_the_log_has_not(tmp_path: Path) -> None:
    """They are counted by cause, and the file has the others."""
    store = tmp_path / "store"
    records = write_store(store, [Message("T", body=bytes([n]) * 100) for n in range(12)], 700)
    rows = rows_of(records)
    first, second, *_ = sorted((store / "commitlog").iterdir())
    first.unlink()
    data = bytearray(second.read_bytes())
    data[100] ^= 1  # in the body of its first record
    second.write_bytes(data)
    expired = sum(each.physical_offset < int(second.name) for each in records)
    last = rows[-1]
    rows[-1] = (*last[:3], last[3] + 1, last[4])
    with pytest.raises(DataLossError) as caught:
        write_messages(tmp_path / "f", tmp_path / "t", NAMES, rows, config_of(store))
    assert str(caught.value).startswith(
        f"{expired + 2} of 12 messages are not in the log (another message has the offset: 1, "
    )
    assert f"expired: {expired}, no good record (BAD_CRC): 1); {10 - expired} messages with" in str(caught.value)
    assert len((tmp_path / "f").read_text().splitlines()) == 10 - expired


def test_the_file_is_not_in_the_table(tmp_path: Path) -> None:
    write_store(tmp_path / "store", [Message()], 1 << 16)
    (tmp_path / "table").mkdir()
    with pytest.raises(OptionError, match="is in the table that is read"):
        write_messages(tmp_path / "table" / "f", tmp_path / "table", NAMES, [], config_of(tmp_path / "store"))
