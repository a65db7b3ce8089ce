"""`reput ask` on the stores of real brokers, against their messages, their own files and what they answered."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from conftest import BrokerStore
from support.broker_table import make_table, messages_of
from support.command_line import invoke
from support.paths import DATA, ROOT

from reput.sinks.table.columns import QUARANTINE_SCHEMA
from reput.source.record.message_decoder import Message

ANSWERS: dict[str, Any] = json.loads((DATA / "broker_queries.json").read_text(encoding="utf-8"))
HALF, OP, DISCARDED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
DELAYED, TIMER, RETRY, DLQ = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "%RETRY%retry_cg", "%DLQ%retry_cg"
SENT = ("RetryTopic", "DelayTopic", "TxTopic")
Row = dict[str, Any]


@dataclass
class Asked:
    """A broker's store, its table, and the messages of its log."""

    store: BrokerStore
    table: Path
    messages: list[Message]

    def __call__(self, question: str, *words: str, root: Path | None = None) -> list[Row]:
        """Answer a question from the table and the store, or from a copy of it."""
        store = ("--store", str(root or self.store.root), "--broker-conf", str(self.store.broker_conf))
        return rows_of(question, "--table", str(self.table), *store, *words)

    def under(self, *topics: str) -> list[Message]:
        return [message for message in self.messages if message.topic in topics]

    def config(self, name: str) -> str:
        return (self.store.root / "config" / name).read_text()


def rows_of(question: str, *words: str) -> list[Row]:
    result = invoke(["ask", question, "--format", "json", *words])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def time_of(milliseconds: int) -> str:
    time = datetime.fromtimestamp(milliseconds / 1000, timezone.utc).replace(tzinfo=None)
    return time.isoformat(sep=" ", timespec="milliseconds")


def place(message: Message) -> tuple[str, int, int]:
    return message.topic, message.queue_id, message.queue_offset


def places(rows: Iterable[Row]) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows]


@pytest.fixture(scope="module")
def asked(
    broker_store: Callable[[str], BrokerStore], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Asked]:
    known: dict[str, Asked] = {}

    def of(name: str) -> Asked:
        if name not in known:
            store, table = broker_store(name), tmp_path_factory.mktemp("asked") / "table"
            make_table(store, table)
            known[name] = Asked(store, table, messages_of(store))
            assert len(known[name].messages) == store.facts["totalMessages"]
        return known[name]

    return of


@pytest.fixture(scope="module")
def v4(asked: Callable[[str], Asked]) -> Asked:
    """Transactions, delayed messages, retries and dead letters of 4.9.3."""
    return asked("v4-tx-delay-retry")


@pytest.fixture(scope="module")
def v5(asked: Callable[[str], Asked]) -> Asked:
    """Three topics of 5.5.0, with keys that many messages have."""
    return asked("v5-propcrc")


@pytest.mark.parametrize("name", ["v4-tx-delay-retry", "v5-propcrc"])
def test_by_key(name: str, asked: Callable[[str], Asked]) -> None:
    """The same messages as the broker returned to a client, for keys and unique keys."""
    ask, found = asked(name), 0
    for _, topic, key, answer in ANSWERS[name]["queries"][::6]:
        rows = ask("by-key", "--key", key, "--topic", topic)
        wanted = sorted({tuple(each) for each in answer}, key=lambda each: -each[2])
        names = ("queue_id", "queue_offset", "physical_offset", "msg_id", "uniq_key")
        found_here = [tuple(row[name] for name in names) for row in rows]
        # A broker gives 64 messages at most.
        assert (found_here[:64] if len(wanted) == 64 else found_here) == wanted
        found += len(wanted)
    assert found > 8


def test_by_key_within_times(v4: Asked) -> None:
    """`since` is inclusive, `until` is not."""
    copies = [message for message in v4.messages if message.keys == "retry-0"]
    first, last = copies[0].store_timestamp, copies[-1].store_timestamp
    rows = v4("by-key", "--key", "retry-0", "--since", str(first), "--until", str(last))
    assert places(rows) == [place(message) for message in copies[-2::-1]]
    assert v4("by-key", "--key", "retry-0", "--since", str(last + 1)) == []


@pytest.mark.parametrize(
    ("key", "steps"),
    [
        ("retry-0", ["sent", "sent back", "tried again", "sent back", "tried again", "given up"]),
        ("tx-1", ["half", "committed"]),
        ("tx-300", ["half", "half, checked"]),
    ],
)
def test_a_life(key: str, steps: list[str], v4: Asked) -> None:
    """Every copy that the log has, in its order."""
    rows = v4("life", "--key", key)
    assert [row["step"] for row in rows] == steps
    assert places(rows) == [place(message) for message in v4.messages if message.keys == key]
    (unique,) = {row["message"] for row in rows}
    assert places(v4("life", "--key", unique)) == places(rows)


def test_lives_of_a_kind(v4: Asked) -> None:
    """Waiting messages were delivered; those checked in vain were discarded."""
    for row in (row for level in (1, 2) for row in v4("life", "--key", f"lv{level}")):
        assert row["step"] == {DELAYED: "waits", "DelayTopic": "delivered"}[row["topic"]]
    discarded = v4.under(DISCARDED)[0]
    assert discarded.uniq_key is not None
    steps = [row["step"] for row in v4("life", "--key", discarded.uniq_key)]
    assert steps == ["half", *["half, checked"] * (len(steps) - 2), "discarded"]
    assert len(steps) > 3


def test_half_messages_without_an_end(v4: Asked) -> None:
    """Those that the broker has not ended and still checks: its own consumer of the topic is before them."""
    ended = {int(offset) for message in v4.under(OP) for offset in message.body.split(b",")}
    (checked,) = map(int, re.findall(rf'"{HALF}@CID_RMQ_SYS_TRANS":{{0:(\d+)', v4.config("consumerOffset.json")))
    open_ = [half for half in v4.under(HALF) if half.queue_offset >= checked and half.queue_offset not in ended]
    rows = v4("half-open")
    assert sorted(places(rows)) == sorted(map(place, open_))
    assert len(rows) == 30
    copies = Counter(half.uniq_key for half in v4.under(HALF))
    assert all(row["copies"] == copies[row["uniq_key"]] for row in rows)
    first = {half.uniq_key: half.store_timestamp for half in reversed(v4.under(HALF))}
    assert [row["begun"] for row in rows] == [time_of(first[row["uniq_key"]]) for row in rows]
    begun = sorted(first[half.uniq_key] for half in open_)
    assert len(v4("half-open", "--until", str(begun[10]))) == sum(each < begun[10] for each in begun) > 0


def test_delayed_messages(v4: Asked) -> None:
    """The waiting ones had not been delivered, by the broker's offset in each level's queue, and by the log."""
    pairs = re.findall(r"(\d+):(\d+)", v4.config("delayOffset.json"))
    delivered = {int(level): int(offset) for level, offset in pairs}
    noted = [each for each in v4.under(DELAYED) if each.queue_offset >= delivered.get(each.queue_id + 1, 0)]
    last = {(each.topic, each.uniq_key, each.reconsume_times): each.physical_offset for each in v4.messages}
    waiting = [
        each
        for each in noted
        if last.get((each.properties["REAL_TOPIC"], each.uniq_key, each.reconsume_times), 0) < each.physical_offset
    ]
    assert len(waiting) > 400
    assert len(noted) - len(waiting) < 20  # delivered since the broker wrote its offsets
    due = sorted(message.tags_code for message in waiting)
    now = due[len(due) // 2]
    rows = v4("delayed", "--now", str(now))
    assert sorted(places(rows)) == sorted(map(place, waiting))
    assert [row["deliver_time"] for row in rows] == list(map(time_of, due))
    overdue = [row["state"] for row in rows]
    assert overdue == ["overdue"] * sum(each <= now for each in due) + ["waits"] * sum(each > now for each in due)
    of_group = v4("delayed", "--group", "retry_cg")
    assert len(of_group) == sum(each.properties["REAL_TOPIC"] == RETRY for each in waiting)


def test_timer_messages(asked: Callable[[str], Asked]) -> None:
    """Those of 5.5.0's timer wheel, as the table was after each segment of the log; in the end all are delivered."""
    ask, counts = asked("v5-longtopic"), []
    for version in range(deltalake.DeltaTable(str(ask.table)).version(), -1, -3):
        until = (version + 1) * ask.store.facts["brokerConf"]["mappedFileSizeCommitLog"]
        known = [message for message in ask.messages if message.physical_offset < until]
        delivered = {message.uniq_key for message in known if message.topic != TIMER}
        waiting = [each for each in known if each.topic == TIMER and each.uniq_key not in delivered]
        rows = ask("delayed", "--at", str(version))
        assert sorted(places(rows)) == sorted(map(place, waiting))
        assert {row["kind"] for row in rows} <= {"timer"}
        counts.append(len(rows))
    assert max(counts) > 0 == counts[0]


def test_retries(v4: Asked) -> None:
    back = [each for each in v4.under(DELAYED) if each.properties["REAL_TOPIC"] == RETRY]
    copies = [*back, *v4.under(RETRY, DLQ)]
    (row,) = v4("retries")
    counts = v4.store.facts["messagesPerTopic"]
    assert (row["tried_again"], row["given_up"], row["sent_back"]) == (counts[RETRY], counts[DLQ], len(back))
    assert row["messages"] == len({message.uniq_key for message in copies})
    assert (row["consumer_group"], row["origin_topic"], row["broker"]) == ("retry_cg", "RetryTopic", "broker-a")
    assert row["most_times"] == max(message.reconsume_times for message in copies)
    assert row["first_stored"] == time_of(min(message.store_timestamp for message in copies))
    assert v4("retries", "--group", "SELF_TEST_C_GROUP") == []


def test_the_plan_on_the_page(v4: Asked) -> None:
    """docs/commands/ask.md shows what is printed."""
    words = ("ask", "dead-letters", "--table", str(v4.table), "--group", "retry_cg", "--plan", "--format", "csv")
    shown = (ROOT / "docs" / "commands" / "ask.md").read_text(encoding="utf-8")
    assert f"--group retry_cg --plan --format csv\n{invoke(words).stdout}```" in shown


def test_dead_letters(v4: Asked) -> None:
    """The broker's whole queue of them, each with when it was sent."""
    begin, end = ANSWERS["v4-tx-delay-retry"]["queues"][DLQ]["0"]
    rows = v4("dead-letters", "--group", "retry_cg")
    assert places(rows) == [(DLQ, 0, offset) for offset in range(begin, end)]
    sent = {message.uniq_key: message.store_timestamp for message in v4.under("RetryTopic")}
    assert [row["sent"] for row in rows] == [time_of(sent[row["uniq_key"]]) for row in rows]
    (plan,) = v4("dead-letters", "--plan")
    assert plan == {
        "broker": "broker-a",
        "topic": DLQ,
        "queue_id": 0,
        "first_offset": begin,
        "last_offset": end - 1,
        "messages": end - begin,
        "first_stored_ms": v4.under(DLQ)[0].store_timestamp,
    }


def test_top_topics(v4: Asked) -> None:
    """As many as the broker counted, the largest first; all were stored within an hour."""
    bytes_: Counter[str] = Counter()
    for message in v4.messages:
        bytes_[message.topic] += message.msg_size
    rows = v4("top-topics", "--top", "4")
    assert [(row["topic"], row["bytes"]) for row in rows] == bytes_.most_common(4)
    counts = v4.store.facts["messagesPerTopic"]
    assert [row["messages"] for row in rows] == [counts[row["topic"]] for row in rows]
    assert [(row["hour_begins"], row["place"]) for row in rows] == [("2026-11-20 23:00:00.000", n) for n in range(1, 5)]


def percentile(values: list[int], part: float) -> int:
    """The least value that so large a part of all does not exceed."""
    return sorted(values)[math.ceil(part * len(values)) - 1]


def test_sizes_and_delays(v4: Asked, v5: Asked) -> None:
    """By the definition of a percentile; without delayed, retried and committed messages."""
    of_topics = defaultdict(list)
    for message in v5.messages:
        of_topics[message.topic].append(message)
    rows = v5("sizes-and-delays")
    assert [row["topic"] for row in rows] == sorted(of_topics)
    for row in rows:
        messages = of_topics[row["topic"]]
        sizes = [message.msg_size for message in messages]
        delays = [message.store_timestamp - message.born_timestamp for message in messages]
        wanted = [*(percentile(sizes, part) for part in (0.5, 0.9, 0.99)), max(sizes)]
        wanted += [*(percentile(delays, part) for part in (0.5, 0.9, 0.99)), max(delays)]
        assert list(row.values()) == [row["topic"], len(messages), *wanted]
    assert [(row["topic"], row["messages"]) for row in v4("sizes-and-delays")] == [("RetryTopic", 300)]


def test_producers(v4: Asked) -> None:
    rows = v4("producers")
    assert {(row["topic"], row["messages"], row["bytes"]) for row in rows} == {
        (topic, len(v4.under(topic)), sum(message.msg_size for message in v4.under(topic))) for topic in SENT
    }
    ports = {topic: len({message.born_host for message in v4.under(topic)}) for topic in SENT}
    assert {row["topic"]: row["connections"] for row in rows} == ports
    assert {(row["host"], row["client"]) for row in rows} == {("127.0.0.1", None)}
    assert {row["topic"]: row["producer_group"] for row in rows} == dict.fromkeys(SENT) | {"TxTopic": "tx_pg"}


def test_duplicates(v5: Asked) -> None:
    """Every key that two messages of a topic have."""
    keys: defaultdict[tuple[str, str], list[Message]] = defaultdict(list)
    for message in v5.messages:
        for key in (message.keys or "").split(" "):
            keys[message.topic, key].append(message)
    wanted = {key: found for key, found in keys.items() if len(found) > 1 and key[1]}
    rows = v5("duplicates")
    assert len(rows) == len(wanted) > 3
    for row in rows:
        found = wanted[row["topic"], row["business_key"]]
        assert (row["messages"], row["unique_keys"]) == (len(found), len({message.uniq_key for message in found}))
        assert row["first_stored"] == time_of(min(message.store_timestamp for message in found))
    assert [row["messages"] for row in rows] == sorted((row["messages"] for row in rows), reverse=True)


@pytest.mark.parametrize("name", ["v4-tx-delay-retry", "v5-propcrc", "v5-batchcq"])
def test_a_whole_log_has_no_gap(name: str, asked: Callable[[str], Asked]) -> None:
    """Not even where an inner batch takes many offsets."""
    assert asked(name)("gaps") == []


def test_gaps_and_repeats(v5: Asked, tmp_path: Path) -> None:
    """Rows that were removed, and a file that the table has twice."""
    table = tmp_path / "table"
    shutil.copytree(v5.table, table)
    delta = deltalake.DeltaTable(str(table))
    delta.delete(
        "topic = 'Crc0' AND queue_id = 1 AND queue_offset BETWEEN 10 AND 19 OR topic = 'Crc1' AND queue_offset = 5"
    )
    rows = rows_of("gaps", "--table", str(table))
    gaps = [(row["topic"], row["queue_id"], row["first_offset"], row["last_offset"], row["messages"]) for row in rows]
    assert gaps == [("Crc0", 1, 10, 19, 10), *(("Crc1", queue_id, 5, 5, 1) for queue_id in range(3))]
    behind = {place(message): message for message in v5.messages}[("Crc0", 1, 20)]
    assert (rows[0]["physical_offset"], rows[0]["store_time"]) == (
        behind.physical_offset,
        time_of(behind.store_timestamp),
    )
    once = delta.to_pyarrow_table().filter(pa.compute.field("topic") == "Crc2")
    deltalake.write_deltalake(str(table), once, mode="append")
    repeats = list(rows_of("gaps", "--table", str(table), "--topic", "Crc2"))
    assert len(repeats) == once.num_rows
    assert {(row["finding"], row["messages"]) for row in repeats} == {("repeat", 1)}


def test_what_was_left_out(v5: Asked, tmp_path: Path) -> None:
    """The rows of the quarantine's table; without one, a word on standard error."""
    table = tmp_path / "table"
    shutil.copytree(v5.table, table)
    result = invoke(["ask", "left-out", "--table", str(table), "--format", "csv"])
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)
    assert "nothing is known of ranges that were left out" in result.stderr
    ranges = [
        ("b", 900, 100, "EXPIRED", "", -1, "", "2026-01-01T00:00:00.000Z", "stop"),
        ("b", 50, 7, "BAD_CRC", "/\x1b[31m", 50, "00", "2026-01-01T00:00:00.000Z", "quarantine"),
    ]
    lines = [dict(zip(QUARANTINE_SCHEMA.names, each, strict=True)) for each in ranges]
    deltalake.write_deltalake(f"{table}-quarantine", pa.Table.from_pylist(lines, QUARANTINE_SCHEMA))
    rows = rows_of("left-out", "--table", str(table))
    assert [(row["finding"], row["physical_offset"], row["bytes"]) for row in rows] == [
        ("quarantined", 50, 7),
        ("expired unread", 900, 100),
    ]
    assert rows_of("left-out", "--table", str(table), "--broker", "broker-a") == []
    assert rows_of("left-out", "--table", str(table), "--until", "2026-01-01T00:00:00Z") == []
    assert len(rows_of("left-out", "--table", str(table), "--since", "2026-01-01T00:00:00Z")) == 2


def test_what_a_group_has_not_consumed(v4: Asked) -> None:
    """From the offsets of the broker's groups to the ends of the queues, as it told a client."""
    queues = ANSWERS["v4-tx-delay-retry"]["queues"]
    groups = re.findall(r'"([^"]*)@([^"]*)":\{([^}]*)\}', v4.config("consumerOffset.json"))
    offsets = {
        (group, topic, int(queue_id)): int(offset)
        for topic, group, table in groups
        for queue_id, offset in re.findall(r"(\d+):(\d+)", table)
    }
    assert len(offsets) == 16
    behind = {
        (group, topic, queue_id): queues.get(topic, {}).get(str(queue_id), [0, 0])[1] - offset
        for (group, topic, queue_id), offset in offsets.items()
    }
    rows = v4("lag")
    assert {(row["consumer_group"], row["topic"], row["queue_id"]): row["unconsumed"] for row in rows} == behind
    assert sum(behind.values()) > 30
    for group in {group for group, _, _ in offsets}:
        wanted = [
            message
            for message in v4.messages
            if message.queue_offset >= offsets.get((group, message.topic, message.queue_id), 1 << 60)
        ]
        found = v4("unconsumed", "--group", group)
        assert places(found) == [place(message) for message in wanted]
        plan = v4("unconsumed", "--group", group, "--plan")
        assert {(row["topic"], row["queue_id"]): row["messages"] for row in plan} == {
            (topic, queue_id): count for (of, topic, queue_id), count in behind.items() if of == group and count
        }


@pytest.fixture
def copied(v4: Asked, tmp_path: Path) -> Path:
    """A copy of the store."""
    shutil.copytree(v4.store.root, tmp_path / "store")
    return tmp_path / "store"


def test_topics_without_a_configuration(v4: Asked, copied: Path) -> None:
    """The broker knows all; a topic that it has forgotten is listed, with the rest of it."""
    assert v4("unconfigured-topics") == []
    path = copied / "config" / "topics.json"
    known = json.loads(path.read_text())
    del known["topicConfigTable"]["DelayTopic"]
    path.write_text(json.dumps(known))
    (copied / "consumequeue" / "Gone" / "0").mkdir(parents=True)
    (copied / "consumequeue" / "Gone" / "0" / f"{0:020d}").write_bytes(bytes(500))
    delayed = v4.under("DelayTopic")
    last = max(message.store_timestamp for message in delayed)
    early = v4("unconfigured-topics", "--until", str(last), root=copied)
    assert {row["topic"]: row["messages"] for row in early} == {
        "DelayTopic": sum(message.store_timestamp < last for message in delayed),
        "Gone": 0,
    }
    late = v4("unconfigured-topics", "--since", str(last), root=copied)
    assert [row["messages"] for row in late] == [len(delayed) - early[0]["messages"], 0]
    assert v4("unconfigured-topics", root=copied) == [
        {
            "topic": "DelayTopic",
            "messages": len(delayed),
            "queue_files": 4,
            "queue_bytes": 40_000,
            "bytes_in_log": sum(message.msg_size for message in delayed),
            "last_stored": time_of(max(message.store_timestamp for message in delayed)),
        },
        {"topic": "Gone", "messages": 0, "bytes_in_log": 0, "last_stored": None, "queue_files": 1, "queue_bytes": 500},
    ]


def test_retention(v4: Asked, copied: Path) -> None:
    """Of the oldest segment, by the broker's rule; of the whole log, by the rate of a day."""
    segments = sorted((copied / "commitlog").iterdir())
    changed, hour = 1_795_300_000, 3600
    os.utime(segments[0], (changed, changed))
    now = max(message.store_timestamp for message in v4.messages) + 1
    total, size = sum(message.msg_size for message in v4.messages), 262_144 * len(segments)
    most = size + 2 * total
    words = ("--now", str(now), "--reserved-hours", "48", "--log-bytes-max", str(most))
    rows = v4("retention", *words, root=copied)
    assert {row["oldest_expires"] for row in rows} == {time_of((changed + 48 * hour) * 1000)}
    assert {row["log_full"] for row in rows} == {time_of(now + 2 * 24 * hour * 1000)}
    assert {row["log_bytes"] for row in rows} == {size}
    bytes_: Counter[str] = Counter()
    for message in v4.messages:
        bytes_[message.topic] += message.msg_size
    assert [(row["topic"], row["bytes_a_day"]) for row in rows] == bytes_.most_common()
    assert [row["share"] for row in rows] == [round(count / total, 4) for _, count in bytes_.most_common()]
    # The rate of a period does not depend on `now`.
    stored = sorted(message.store_timestamp for message in v4.messages)
    since, until = stored[len(stored) // 2], stored[-1]
    some = [message for message in v4.messages if since <= message.store_timestamp < until]
    day, period = 24 * hour * 1000, ("--since", str(since), "--until", str(until))
    found = v4("retention", *period, "--now", str(now + day), "--log-bytes-max", str(most), root=copied)
    assert {row["topic"]: row["messages_a_day"] for row in found} == {
        topic: sum(message.topic == topic for message in some) * day // (until - since)
        for topic in {message.topic for message in some}
    }
    full = (most - size) * (until - since) // sum(message.msg_size for message in some)
    assert {row["log_full"] for row in found} == {time_of(now + day + full)}
    assert {row["log_full"] for row in v4("retention", "--now", str(now), root=copied)} == {None}
    assert v4("retention", "--now", str(now + 24 * hour * 1000), root=copied) == []
