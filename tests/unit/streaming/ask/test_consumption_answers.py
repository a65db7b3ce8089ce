"""Answers of `reput ask` from the ledger of consumption: which groups passed a message, when, and what is unknown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import BrokerStore
from support.broker_table import make_table, messages_of
from support.command_line import invoke

from reput.sinks.table.columns import FIRST_SEEN, GONE, PROGRESS, RESET_BACK
from reput.sinks.table.consumption import ConsumptionTable, Move
from reput.source.errors import UNKNOWN_NAME
from reput.source.record.message_decoder import Message

Row = dict[str, Any]
SECOND = 1000


class Story:
    """A table of a broker's messages, one of which several groups treat differently."""

    def __init__(self, store: BrokerStore, root: Path) -> None:
        self.table = root / "table"
        make_table(store, self.table)
        sent = [each for each in messages_of(store) if each.topic == "RetryTopic" and each.keys]
        self.message: Message = max(sent, key=lambda each: each.queue_offset)
        self.key = str(self.message.keys).split()[0]
        self.offset, self.at = self.message.queue_offset, self.message.store_timestamp

    def tell(
        self, *moves: tuple[str, int | None, int | None, int | None, int, str], queue_id: int | None = None
    ) -> None:
        """Moves of groups in the message's queue: offsets from it, and seconds after its store time."""
        queue = self.message.queue_id if queue_id is None else queue_id
        ledger = ConsumptionTable(self.table, self.message_broker, 1000)
        rows = []
        for group, before, after, since, until, kind in moves:
            offsets = [None if each is None else self.offset + each for each in (before, after)]
            times = None if since is None else self.at + since * SECOND
            rows.append(Move(group, "RetryTopic", queue, *offsets, times, self.at + until * SECOND, kind))
        rows.sort(key=lambda row: row.seen_after_ms)
        ledger.append(rows, rows[-1].seen_after_ms)

    @property
    def message_broker(self) -> str:
        return "broker-a"

    def ask(self, *words: str) -> list[Row]:
        result = invoke(["ask", words[0], "--table", str(self.table), "--format", "json", *words[1:]])
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def made(broker_store: Callable[[str], BrokerStore], tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(broker_store("v4-tx-delay-retry"), tmp_path_factory.mktemp("consumption"))


@pytest.fixture
def story(made: Story) -> Story:
    shutil.rmtree(made.table.with_name("table-consumption"), ignore_errors=True)
    return made


def states(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["consumer_group"], row["state"], row["precision_ms"]) for row in rows if row["kind"] == "normal"]


def test_each_group_is_told_with_its_evidence(story: Story) -> None:
    story.tell(
        ("early", None, 5, None, 1, FIRST_SEEN),
        ("billing", None, -5, None, 1, FIRST_SEEN),
        ("slow", None, -5, None, 1, FIRST_SEEN),
        ("again", None, -5, None, 1, FIRST_SEEN),
        ("billing", -5, 1, 5, 11, PROGRESS),
        ("again", -5, 3, 5, 11, PROGRESS),
        ("new", None, 4, 5, 11, FIRST_SEEN),
        ("again", 3, -1, 11, 17, RESET_BACK),
        ("slow", -5, 0, 11, 17, PROGRESS),
        ("new", 4, None, 3600, 7200, GONE),
        ("again", -1, 3, 3600, 7200, PROGRESS),
    )
    story.tell(("elsewhere", None, 4, None, 7201, FIRST_SEEN), queue_id=77)
    assert states(story.ask("consumed", "--key", story.key)) == [
        ("again", "passed", 11_000),  # since it was stored
        ("again", "reset back over it", 6000),
        ("again", "passed", 7_189_000),  # no tail ran in between
        ("billing", "passed", 11_000),
        ("early", "passed before it was watched", 1000),
        ("elsewhere", "unknown", None),
        ("new", "passed or begun behind it", 11_000),
        ("new", "offset removed", 3_600_000),
        ("slow", "waits", None),
    ]
    assert states(story.ask("consumed", "--key", story.key, "--group", "billing")) == [("billing", "passed", 11_000)]
    msg_id = next(row["msg_id"] for row in story.ask("consumed", "--key", story.key) if row["kind"] == "normal")
    by_id = story.ask("consumed", "--key", msg_id, "--group", "slow")
    assert states(by_id) == [("slow", "waits", None)]
    assert by_id[0]["seen_until"] == story.ask("consumed", "--key", story.key)[0]["seen_until"]


def test_a_client_reports_later_what_it_has_consumed(story: Story) -> None:
    """It had not consumed the message when it reported the offset before; after that, it may have done so at once."""
    story.tell(
        ("billing", None, -9, None, 1, FIRST_SEEN),
        ("billing", -9, -7, 20, 26, PROGRESS),
        ("billing", -7, -2, 30, 36, PROGRESS),
        ("billing", -2, 3, 40, 46, PROGRESS),
        ("billing", 3, 9, 50, 56, PROGRESS),
    )
    (row,) = [each for each in story.ask("consumed", "--key", story.key) if each["kind"] == "normal"]
    seconds = [
        (datetime.fromisoformat(row[name]) - datetime.fromisoformat(row["store_time"])).total_seconds()
        for name in ("passed_after", "passed_before", "moved_after")
    ]
    assert seconds == [30, 46, 40]
    assert row["precision_ms"] == 16_000


def test_a_group_without_an_offset_is_unknown_and_not_waiting(story: Story) -> None:
    assert states(story.ask("consumed", "--key", story.key, "--group", "ghost")) == [("ghost", "unknown", None)]
    assert states(story.ask("consumed", "--key", story.key)) == [(None, "unknown", None)]
    story.tell(("ghost", None, 1, None, 1, FIRST_SEEN), queue_id=77)
    assert states(story.ask("consumed", "--key", story.key, "--group", "ghost")) == [("ghost", "unknown", None)]


def test_a_group_that_nobody_knows_is_said_to_be_unknown(story: Story) -> None:
    story.tell(("billing", None, 1, None, 1, FIRST_SEEN))
    result = invoke(["ask", "consumed", "--table", str(story.table), "--key", story.key, "--group", "biling"])
    assert (result.exit_code, result.stdout) == (UNKNOWN_NAME, "")
    assert "is billing meant?" in result.stderr


def test_a_message_is_not_passed_before_it_was_stored(story: Story) -> None:
    story.tell(("billing", None, -5, None, -60, FIRST_SEEN), ("billing", -5, 1, -60, 5, PROGRESS))
    (row,) = [each for each in story.ask("consumed", "--key", story.key) if each["kind"] == "normal"]
    assert row["passed_after"] == row["store_time"]


def test_an_unknown_key_is_said_to_be_unknown(story: Story) -> None:
    result = invoke(["ask", "consumed", "--table", str(story.table), "--key", "no-such-key"])
    assert (result.exit_code, result.stdout) == (UNKNOWN_NAME, "")
    assert result.stderr.endswith("has the key or id no-such-key\n")
    result = invoke(["ask", "consumed", "--table", str(story.table), "--key", story.key, "--until", "1000"])
    assert (result.exit_code, result.stdout) == (UNKNOWN_NAME, "")
    assert result.stderr.endswith(" in that time\n")


def test_progress_and_resets(story: Story) -> None:
    story.tell(
        ("billing", None, -5, None, 1, FIRST_SEEN),
        ("billing", -5, 1, 5, 11, PROGRESS),
        ("billing", 1, -2, 11, 17, RESET_BACK),
        ("stock", None, -5, None, 1, FIRST_SEEN),
    )
    moves = [(row["move"], row["messages"]) for row in story.ask("progress", "--group", "billing")]
    assert moves == [("first_seen", None), ("progress", 6), ("reset_back", -3)]
    assert [(row["consumer_group"], row["messages"]) for row in story.ask("resets")] == [("billing", 3)]
    assert story.ask("resets", "--group", "stock") == []
    result = invoke(["ask", "resets", "--table", str(story.table), "--group", "biling"])
    assert result.exit_code == UNKNOWN_NAME
    assert "billing" in result.stderr


@pytest.mark.parametrize("question", ["window", "resets"])
def test_nothing_found_says_from_when_on_offsets_are_known(question: str, story: Story) -> None:
    """A time before a tail watched the group is not a time in which the group did nothing."""
    story.tell(("early", None, 5, None, -60, FIRST_SEEN), ("billing", None, -5, None, 1, FIRST_SEEN))
    first = datetime.fromtimestamp((story.at + SECOND) / 1000, timezone.utc)
    words = ["ask", question, "--table", str(story.table), "--until", str(story.at), "--group", "billing"]
    result = invoke(words)
    assert result.exit_code == 0
    known = f"offsets of the consumer group billing are known from {first:%Y-%m-%d %H:%M:%S} UTC on"
    assert known in result.stderr


def test_the_messages_of_a_window(story: Story) -> None:
    story.tell(("billing", None, -2, None, 1, FIRST_SEEN), ("billing", -2, 1, 5, 11, PROGRESS))
    story.tell(("billing", 1, 1, 12, 13, PROGRESS))
    since, until = story.at + 4 * SECOND, story.at + 11 * SECOND
    words = "window", "--group", "billing", "--topic", "RetryTopic"
    rows = story.ask(*words, "--since", str(since), "--until", str(until + 1))
    assert [(row["queue_offset"] - story.offset, row["is_certain"]) for row in rows] == [(-2, 1), (-1, 1), (0, 1)]
    rows = story.ask(*words, "--since", str(since + 2 * SECOND))
    assert [row["is_certain"] for row in rows] == [0, 0, 0]
    assert story.ask(*words, "--until", str(since)) == []
