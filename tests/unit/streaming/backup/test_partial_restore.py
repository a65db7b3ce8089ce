"""A restore of some topics, or of messages since a time: these messages, all of them, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.backups import FIRST_MS, OPTIONS, GrowingStore
from support.command_line import invoke, run_reput

from reput.source.log.log_reader import MessageLookup
from reput.source.record.message_decoder import Message

GIVEN = [word for each in OPTIONS for word in ("-o", each)]


def messages_of(store: Path) -> list[Message]:
    """The messages of a log, one behind the other."""
    log, found = MessageLookup([store / "commitlog"]), list[Message]()
    offset = log.min_offset
    while True:
        message = log.find(offset)
        if isinstance(message, Message):
            found.append(message)
            offset += message.msg_size
        elif offset % 4096 and (store / "commitlog" / f"{offset - offset % -4096:020d}").exists():
            offset -= offset % -4096
        else:
            return found


def what_stays(message: Message) -> tuple[object, ...]:
    """All of a message but its place in the log, and what it says of other places there."""
    return message.topic, message.queue_id, message.queue_offset, message.store_timestamp, message.body, message.keys


def restore(growing: GrowingStore, target: Path, *words: str) -> dict[str, object]:
    given = ["restore", "--from", str(growing.root / "backup"), "--to", str(target), *words, *GIVEN, "--json"]
    found: dict[str, object] = json.loads(run_reput(given).stdout)
    return found


@pytest.mark.parametrize(("count", "since"), [(0, True), (1, False), (1, True), (2, False), (2, True)])
def test_these_messages_and_no_others(growing: GrowingStore, tmp_path: Path, count: int, since: bool) -> None:
    """Topics alone, a time alone, and both; every message is as it was, at its queue offset."""
    whole = messages_of(growing.store)
    topics = sorted({each.topic for each in whole})[:count]
    since_ms, at_ms = FIRST_MS + 10 * growing.count // 3, FIRST_MS + 10 * growing.count * 2 // 3
    words = [word for topic in topics for word in ("--topic", topic)] + ["--since", str(since_ms)] * since
    made = restore(growing, tmp_path / "part", "--at", str(at_ms), *words)
    wanted = [
        each
        for each in whole
        if (not topics or each.topic in topics) and (since_ms if since else 0) <= each.store_timestamp <= at_ms
    ]
    found = messages_of(tmp_path / "part")
    assert 0 < len(wanted) < len(whole)
    assert [what_stays(each) for each in found] == [what_stays(each) for each in wanted]
    assert made["messages"] == len(found)
    assert not (tmp_path / "part" / "reput" / "rebuild").exists()
    check_offsets(growing, tmp_path / "part", found)


def check_offsets(growing: GrowingStore, target: Path, found: list[Message]) -> None:
    """No offset of a consumer leads beyond its queue, or further than before."""
    ends: dict[tuple[str, int], int] = {}
    for each in found:
        queue = each.topic, each.queue_id
        ends[queue] = max(ends.get(queue, 0), each.queue_offset + max(1, each.batch_num))
    before = json.loads((growing.store / "config" / "consumerOffset.json").read_text())["offsetTable"]
    after = json.loads((target / "config" / "consumerOffset.json").read_text())["offsetTable"]
    assert after
    for key, queues in after.items():
        for queue_id, offset in queues.items():
            end = ends.get((key.partition("@")[0], int(queue_id)), 0)
            assert offset <= min(end, before[key][queue_id])


def test_a_topic_that_is_not_there(growing: GrowingStore, tmp_path: Path) -> None:
    """It is an unknown name, and nothing is restored."""
    topic = messages_of(growing.store)[0].topic
    given = ["restore", "--from", str(growing.root / "backup"), "--to", str(tmp_path / "part"), *GIVEN]
    result = invoke([*given, "--topic", topic.swapcase()])
    assert result.exit_code == 4
    assert f"is {topic}" in result.stderr
    late = invoke([*given, "--since", str(FIRST_MS + 10 * growing.count)])
    assert late.exit_code == 2
    assert "the log has no messages stored since" in late.stderr
    assert sorted(path.name for path in (tmp_path / "part").iterdir()) == ["lock", "reput"]
    # Neither keeps another one from being made there.
    assert restore(growing, tmp_path / "part", "--topic", topic)["messages"]
