"""`reput resurrect`: lost files of real brokers' ``config/`` made again, beside what the brokers themselves had."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BrokerStore
from support.broker_stores import unpack
from support.broker_table import messages_of
from support.command_line import run_reput
from support.store_table import add_store

from reput.sinks.files.config_manager import json_of
from reput.sinks.table.columns import FIRST_SEEN
from reput.sinks.table.consumption import ConsumptionTable, Move

Stores = Callable[[str], BrokerStore]
FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
PERMANENT = ("v4-plain", "v4-tx-delay-retry", "v4-dledger", "v5-plain", "v5-batchcq", "v5-longtopic")
# Topics that a broker makes at its start, or for what it does itself.
MADE_BY_BROKERS = (
    *("TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "DefaultCluster", "SCHEDULE_TOPIC_XXXX"),
    *("TRANS_CHECK_MAX_TIME_TOPIC", "broker-a", "DefaultHeartBeatSyncerTopic", "rmq_sys_wheel_timer"),
)


class Lost:
    """A copy of a store of a real broker, whose files of ``config/`` are to be lost."""

    def __init__(self, store: BrokerStore, root: Path) -> None:
        self.store, self.conf, self.original = root / "store", store.broker_conf, store
        shutil.copytree(store.root, self.store)
        self.config, self.result = self.store / "config", root / "result"

    def lose(self, *names: str) -> None:
        for name in names:
            for file in (self.config / name, self.config / f"{name}.bak"):
                file.unlink(missing_ok=True)

    def resurrect(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        """The rows that are shown; the files are in `result`."""
        shutil.rmtree(self.result, ignore_errors=True)
        at = ("--store", str(self.store), "--broker-conf", str(self.conf), "--result", str(self.result))
        before = {path: path.read_bytes() for path in self.store.rglob("*") if path.is_file()}
        result = run_reput(["resurrect", *at, "--json", *words], code)
        assert {path: path.read_bytes() for path in self.store.rglob("*") if path.is_file()} == before
        self.said = result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    def made(self, name: str) -> dict[str, Any]:
        """The table of a file that was made."""
        return self.table_of(self.result / name)

    def was(self, name: str) -> dict[str, Any]:
        """The table of the broker's own file."""
        return self.table_of(self.original.root / "config" / name)

    @staticmethod
    def table_of(path: Path) -> dict[str, Any]:
        found = json_of(path.read_bytes())
        names = ("topicConfigTable", "subscriptionGroupTable", "offsetTable")
        return dict(next(found[name] for name in names if name in found))


@pytest.fixture
def lost(broker_store: Stores, tmp_path: Path) -> Callable[[str], Lost]:
    return lambda name: Lost(broker_store(name), tmp_path / name)


def is_made_by_brokers(topic: str) -> bool:
    return topic.startswith(("RMQ_SYS_", "rmq_sys_", "DefaultCluster_")) or topic in MADE_BY_BROKERS


@pytest.mark.parametrize("name", PERMANENT)
def test_topics_are_those_that_the_broker_had(name: str, lost: Callable[[str], Lost]) -> None:
    """Each with as many queues as have messages, with the fields that its release writes, and of its kind."""
    store = lost(name)
    store.lose(*FILES)
    store.resurrect()
    had, made = store.was("topics.json"), store.made("topics.json")
    used = {
        path.parent.name for kind in ("consumequeue", "batchconsumequeue") for path in store.store.glob(f"{kind}/*/*")
    }
    wanted = {topic for topic in had if topic in used and not is_made_by_brokers(topic)}
    assert wanted
    assert made.keys() == wanted
    for topic, config in made.items():
        assert config == had[topic], topic


def test_a_topic_has_no_more_queues_than_are_seen(lost: Callable[[str], Lost]) -> None:
    store = lost("v4-plain")
    store.lose(*FILES)
    topic, config = next((name, each) for name, each in store.was("topics.json").items() if name == "TopicA")
    last = config["writeQueueNums"] - 1
    shutil.rmtree(store.store / "consumequeue" / topic / str(last))
    row = next(row for row in store.resurrect() if row["name"] == topic)
    assert row["evidence"] == f"queue {last - 1} on disk; it may have had more queues; permission guessed"
    assert store.made("topics.json")[topic]["writeQueueNums"] == last


def test_the_backup_beside_a_file_has_what_no_queue_tells(lost: Callable[[str], Lost]) -> None:
    """Permissions, and topics without a message; a topic that was made later is added."""
    store = lost("v4-plain")
    topics = store.was("topics.json")
    shutil.copy(store.original.root / "config" / "topics.json", store.config / "topics.json.bak")
    old = json_of((store.config / "topics.json.bak").read_bytes())
    del old["topicConfigTable"]["TopicB"]
    old["topicConfigTable"]["TopicA"] |= {"perm": 4, "writeQueueNums": 1, "readQueueNums": 1}
    (store.config / "topics.json.bak").write_text(json.dumps(old))
    (store.config / "topics.json").write_bytes(b'{"topicConf')
    rows = {row["name"]: row for row in store.resurrect() if row["file"] == "topics.json"}
    made = store.made("topics.json")
    assert made == {**topics, "TopicA": {**topics["TopicA"], "perm": 4}}
    queues = topics["TopicA"]["writeQueueNums"]
    assert rows["TopicA"]["evidence"] == f"topics.json.bak; queue {queues - 1} on disk"
    assert rows["TopicB"]["evidence"].startswith("queue ")
    assert rows["SELF_TEST_TOPIC"]["evidence"] == "topics.json.bak"


def test_a_whole_file_stays_as_it_is(lost: Callable[[str], Lost]) -> None:
    for name in ("v4-plain", "v5-plain"):
        store = lost(name)
        assert [row for row in store.resurrect() if row["file"] != "subscriptionGroup.json"] == []
        for file in FILES:
            had, made = (json_of((root / file).read_bytes()) for root in (store.config, store.result))
            assert {**had, "dataVersion": None} == {**made, "dataVersion": None} or file == "subscriptionGroup.json"


def test_what_else_a_file_has_stays(lost: Callable[[str], Lost]) -> None:
    """Forbidden groups, and offsets of consumers that pull."""
    store = lost("v5-plain")
    path = store.config / "subscriptionGroup.json"
    path.write_text(json.dumps({**json_of(path.read_bytes()), "forbiddenTable": {"plain_cg": {"TopicA": 1}}}))
    (store.config / "consumerOffset.json").rename(store.config / "consumerOffset.json.bak")
    store.resurrect()
    assert json_of((store.result / path.name).read_bytes())["forbiddenTable"] == {"plain_cg": {"TopicA": 1}}
    had, made = (
        json_of(file.read_bytes())
        for file in (store.config / "consumerOffset.json.bak", store.result / "consumerOffset.json")
    )
    assert had["pullOffsetTable"]
    assert (made["pullOffsetTable"], made["groupTopicMap"]) == (had["pullOffsetTable"], had["groupTopicMap"])


def test_groups_come_from_their_topics_and_offsets(lost: Callable[[str], Lost]) -> None:
    store = lost("v4-tx-delay-retry")
    store.lose("subscriptionGroup.json")
    rows = {row["name"]: row["evidence"] for row in store.resurrect() if row["file"] == "subscriptionGroup.json"}
    assert rows == {
        "delay_cg": "its offsets; its settings are guessed",
        "retry_cg": "its offsets; its settings are guessed",
    }
    had, made = store.was("subscriptionGroup.json"), store.made("subscriptionGroup.json")
    assert made == {name: had[name] for name in rows}
    store.lose("consumerOffset.json")
    rows = {row["name"]: row["evidence"] for row in store.resurrect() if row["file"] == "subscriptionGroup.json"}
    assert rows == {"retry_cg": "the topic %DLQ%retry_cg; its settings are guessed"}


def test_delayed_messages_go_on_behind_the_last_that_was_delivered(lost: Callable[[str], Lost]) -> None:
    """By all messages of the log, read one by one; a broker writes its own file some seconds late."""
    store = lost("v4-tx-delay-retry")
    messages = messages_of(store.original)
    waiting = [message for message in messages if message.topic == "SCHEDULE_TOPIC_XXXX"]
    delivered = dict.fromkeys((message.queue_id + 1 for message in waiting), 0)
    for message in waiting:
        if any(
            other.topic == message.properties["REAL_TOPIC"]
            and other.uniq_key == message.uniq_key
            and other.physical_offset > message.physical_offset
            for other in messages
        ):
            delivered[message.queue_id + 1] = max(delivered[message.queue_id + 1], message.queue_offset + 1)
    assert 0 in delivered.values()  # levels of which nothing was delivered, and others
    assert max(delivered.values()) > 0
    store.lose("delayOffset.json")
    store.resurrect()
    made = {int(level): offset for level, offset in store.made("delayOffset.json").items()}
    assert made == delivered
    assert all(delivered[int(level)] >= offset for level, offset in store.was("delayOffset.json").items())
    shutil.rmtree(store.store / "index")
    rows = {row["name"]: row for row in store.resurrect() if row["file"] == "delayOffset.json"}
    assert {row["value"] for row in rows.values()} == {"0"}
    assert {row["evidence"] for row in rows.values()} == {"no copy of a message was delivered"}


NOW_MS = time.time_ns() // 1_000_000


def ledger_of(store: Lost, table: Path, at_ms: int) -> None:
    """A table with the store's messages, and a ledger in which a group was seen at a time."""
    add_store(table, store.store, "broker-a", broker_conf=store.conf)
    moves = [Move("plain_cg", "TopicA", queue_id, None, 5 + queue_id, None, at_ms, FIRST_SEEN) for queue_id in range(2)]
    ConsumptionTable(table, "broker-a", 0).append(moves, at_ms)


def test_offsets_come_from_the_ledger_or_from_a_later_backup(lost: Callable[[str], Lost], tmp_path: Path) -> None:
    store, table = lost("v5-plain"), tmp_path / "messages"
    ledger_of(store, table, NOW_MS)
    words = ("--table", str(table))
    bak = store.config / "consumerOffset.json.bak"
    (store.config / "consumerOffset.json").write_bytes(b"")
    rows = {row["name"]: row for row in store.resurrect(*words) if row["file"] == "consumerOffset.json"}
    assert (rows["TopicA@plain_cg 1"]["value"], rows["TopicA@plain_cg 1"]["evidence"][:20]) == (
        "6",
        "the ledger, seen by ",
    )
    assert rows["TopicA@plain_cg 2"]["evidence"] == "consumerOffset.json.bak"
    made = store.made("consumerOffset.json")["TopicA@plain_cg"]
    assert (made["0"], made["1"], len(made)) == (5, 6, 8)
    os.utime(bak, (NOW_MS / 1000 + 60,) * 2)
    rows = {row["name"]: row for row in store.resurrect(*words) if row["file"] == "consumerOffset.json"}
    assert rows["TopicA@plain_cg 1"]["evidence"] == "consumerOffset.json.bak"
    bak.unlink()
    store.resurrect(*words)
    assert store.made("consumerOffset.json") == {"TopicA@plain_cg": {"0": 5, "1": 6}}


def test_a_file_of_another_broker(lost: Callable[[str], Lost], tmp_path: Path) -> None:
    """Offsets beyond the ends of the queues tell it: the ledger counts first then, and no offset is beyond an end."""
    store, table = lost("v5-plain"), tmp_path / "messages"
    ledger_of(store, table, NOW_MS)
    there = {"TopicA@plain_cg": {"0": 10**6, "1": 7, "2": 10**6}, "Elsewhere@other": {"0": 12}}
    (store.config / "consumerOffset.json").write_text(json.dumps({"offsetTable": there, "pullOffsetTable": there}))
    rows = {row["name"]: row for row in store.resurrect("--table", str(table)) if row["file"] == "consumerOffset.json"}
    assert "has 3 offsets beyond the end of the queue, the first of TopicA@plain_cg" in store.said
    end = {int(queue): offset for queue, offset in store.was("consumerOffset.json")["TopicA@plain_cg"].items()}
    made = store.made("consumerOffset.json")
    assert made == {"TopicA@plain_cg": {"0": 5, "1": 6, "2": end[2]}, "Elsewhere@other": {"0": 0}}
    assert "pullOffsetTable" not in json_of((store.result / "consumerOffset.json").read_bytes())
    assert rows["TopicA@plain_cg 2"]["now"] == str(10**6)
    assert rows["TopicA@plain_cg 2"]["evidence"].endswith(f": {10**6}; the queue ends before")


def test_what_nothing_tells_is_said(lost: Callable[[str], Lost]) -> None:
    store = lost("v5-plain")
    store.lose(*FILES)
    store.resurrect()
    assert sorted(path.name for path in store.result.iterdir()) == ["topics.json"]
    assert "consumerOffset.json is missing and consumerOffset.json.bak is missing" in store.said
    assert "nothing tells what consumerOffset.json had: it is not made" in store.said


def test_a_damaged_file_of_which_nothing_tells_is_made_empty(lost: Callable[[str], Lost]) -> None:
    """A broker does not start with the damaged one."""
    store = lost("v5-plain")
    store.lose("consumerOffset.json")
    (store.config / "consumerOffset.json").write_bytes(b'{"offsetTable":{')
    store.resurrect()
    assert "nothing tells what consumerOffset.json had: it is made empty" in store.said
    assert store.made("consumerOffset.json") == {}


def test_bad_places_and_names(lost: Callable[[str], Lost], tmp_path: Path) -> None:
    """Nothing is written into a store or over files; a table of another broker is refused."""
    store, table = lost("v4-plain"), tmp_path / "messages"
    ledger_of(store, table, NOW_MS)
    at = ["resurrect", "--store", str(store.store), "--broker-conf", str(store.conf)]
    said = run_reput([*at, "--result", str(store.config)], 2).output
    assert "is in a broker's store, where nothing is written" in said
    assert "is not an empty directory" in run_reput([*at, "--result", str(tmp_path)], 2).output
    said = run_reput([*at, "--table", str(table), "-o", "broker=other"], 2).output
    assert "has messages of broker-a, and none of other" in said
    assert "--format yaml: one of table, csv, json" in run_reput([*at, "--format", "yaml"], 2).output
    told = run_reput(at)
    assert "nothing is lost: the files of config/ have all that the store tells" in told.stderr
    assert told.stdout == ""
    (store.config / "rdb").mkdir()
    (store.config / "rdb" / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    assert "keeps its configuration in RocksDB" in run_reput(at, 2).output


def test_the_checkpoint_of_timers(tmp_path: Path) -> None:
    """It is made if it is lost or empty, and otherwise left alone."""
    home = unpack("v5-recalled-timer", tmp_path / "home")
    lost = Lost(BrokerStore(home / "store", home / "broker.conf", {}), tmp_path)
    assert [row for row in lost.resurrect() if row["file"] == "timercheck"] == []
    assert not (lost.result / "timercheck").exists()
    size = (lost.config / "timercheck").stat().st_size
    for damage in (lambda: (lost.config / "timercheck").write_bytes(bytes(size)), lambda: lost.lose("timercheck")):
        damage()
        rows = [row for row in lost.resurrect() if row["file"] == "timercheck"]
        assert [(row["name"], row["now"]) for row in rows] == [("read to", None), ("queue offset", None)]
        assert {row["evidence"] for row in rows} == {
            "1 message waits, by the wheel, and by the copies that were delivered"
        }
        assert (lost.result / "timercheck").stat().st_size == size
