"""Messages that go to more queues than their own, and the summary of what arrived."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.model import Settings
from support.record_writer import TRANSACTION_PREPARED, Message, StoredRecord, write_log
from support.sink_runner import LogBatches, SinkRun, no_fsync, queue_files

from reput.sinks.dispatch.arrival import Arrival, ArrivalSummary, TopicCount
from reput.sinks.dispatch.logic_needs import LogicNeeds, MultiDispatch
from reput.source.releases import Version

SETTINGS = Settings(mapped_file_size_consume_queue=60, max_hash_slot_num=7, max_index_num=10)


@pytest.mark.parametrize(
    ("names", "offsets", "expected"),
    [
        ("%LMQ%a", "7", [("%LMQ%a", 0, 7)]),
        ("%LMQ%a,%LMQ%b", "1,2", [("%LMQ%a", 0, 1), ("%LMQ%b", 0, 2)]),
        ("%LMQ%灯", "+3", [("%LMQ%灯", 0, 3)]),
        ("plain,%LMQ%b", "1,2", [("plain", 5, 1), ("%LMQ%b", 0, 2)]),
        ("%LMQ%a,", "1,", [("%LMQ%a", 0, 1)]),  # Java's split drops what is empty at the end
        ("%LMQ%a", "1,,", [("%LMQ%a", 0, 1)]),
        ("%LMQ%a,%LMQ%b", "1", []),
        (",", "1", []),
        (",", ",", []),
        (" ", "1", []),
        ("%LMQ%a", " ", []),
        ("%LMQ%a,%LMQ%b,%LMQ%c", "1,x,3", [("%LMQ%a", 0, 1)]),
        ("%LMQ%a", "9223372036854775808", []),
        ("%LMQ%a,..,../../x,%LMQ%b/../..,%LMQ%c", "1,2,3,4,5", [("%LMQ%a", 0, 1), ("%LMQ%c", 0, 5)]),
        ("%LMQ%\n,%LMQ%,%LMQ%" + "x" * 251, "1,2,3", [("%LMQ%", 0, 2)]),
        ("%LMQ%" + "x" * 250, "1", [("%LMQ%" + "x" * 250, 0, 1)]),
    ],
)
def test_queues_of_a_message(names: str, offsets: str, expected: list[tuple[str, int, int]]) -> None:
    """The broker's reading of the two properties; a name that cannot be a directory's is left out."""
    found = MultiDispatch(enable_lmq=True).queues("T", 5, names, offsets, 0)
    assert [(topic.decode(), queue_id, offset) for topic, queue_id, offset in found] == expected


@pytest.mark.parametrize(
    ("topic", "before", "since"),
    [
        ("%RETRY%group", (5, 1, 0), (5, 1, 1)),
        ("rmq_sys_wheel_timer", (5, 1, 1), (5, 1, 2)),
        ("SCHEDULE_TOPIC_XXXX", (5, 1, 1), (5, 1, 2)),
        ("rmq_sys_X", (5, 1, 3), (5, 2, 0)),
    ],
)
def test_system_topics_go_to_no_further_queue_since(topic: str, before: Version, since: Version) -> None:
    """And did before."""
    assert MultiDispatch(version=since).queues(topic, 0, "%LMQ%a", "0", 0) == []
    assert len(MultiDispatch(version=before).queues(topic, 0, "%LMQ%a", "0", 0)) == 1


def test_without_enable_lmq_the_queue_id_is_the_messages() -> None:
    """``enableLmq`` alone makes it 0."""
    assert MultiDispatch().queues("T", 5, "%LMQ%a", "0", 0) == [(b"%LMQ%a", 5, 0)]


def random_messages(seed: int) -> list[Message]:
    """Messages of two topics; some go to light queues, to each other's topic, or to their own a second time."""
    choose = random.Random(seed)
    counts: dict[tuple[str, int], int] = {}
    messages = []
    for number in range(60):
        topic, queue_id = choose.choice(["A", "B"]), choose.randrange(2)
        prepared = choose.random() < 0.1
        own = counts.get((topic, queue_id), 0)
        if not prepared:
            counts[topic, queue_id] = own + 1
        names = choose.sample(["%LMQ%x", "%LMQ%y", "A", "B"], choose.randrange(4))
        offsets = []
        for name in names:
            queue = (name, 0 if name.startswith("%LMQ%") else queue_id)
            offsets.append(counts.get(queue, 0))
            if not prepared:
                counts[queue] = offsets[-1] + 1
        properties = {"TAGS": f"t{number}"}
        if names:
            properties["INNER_MULTI_DISPATCH"] = ",".join(names)
            properties["INNER_MULTI_QUEUE_OFFSET"] = ",".join(map(str, offsets))
        sys_flag = TRANSACTION_PREPARED if prepared else 0
        messages.append(
            Message(topic, queue_id, queue_offset=0 if prepared else own, sys_flag=sys_flag, properties=properties)
        )
    return messages


def expected_queues(records: Sequence[StoredRecord]) -> dict[str, bytes]:
    """The queues by ``ConsumeQueue#putMessagePositionInfo``, one entry after the other."""
    queues: dict[tuple[str, int], list[bytes]] = {}
    reached: dict[tuple[str, int], int] = {}
    for record in records:
        message = record.message
        if not message.is_queued:
            continue
        assert isinstance(message.properties, dict)
        names = [name for name in message.properties.get("INNER_MULTI_DISPATCH", "").split(",") if name]
        offsets = message.properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
        targets = [((message.topic, message.queue_id), message.queue_offset)]
        for name, offset in zip(names, offsets, strict=False):
            targets.append(((name, 0 if name.startswith("%LMQ%") else message.queue_id), int(offset)))
        code = 0
        for char in message.properties["TAGS"]:
            code = 31 * code + ord(char)
        for queue, offset in targets:
            entries = queues.setdefault(queue, [])
            if record.physical_offset + record.msg_size <= reached.get(queue, 0):
                continue
            if offset and offset < len(entries):
                continue
            reached[queue] = record.physical_offset + record.msg_size
            entries.append(struct.pack(">qiq", record.physical_offset, record.msg_size, code))
    files = {}
    for (topic, queue_id), entries in queues.items():
        for first in range(0, len(entries), 3):
            name = f"consumequeue/{topic}/{queue_id}/{first * 20:020d}"
            files[name] = b"".join(entries[first : first + 3]).ljust(60, b"\0")
    return files


@pytest.mark.parametrize("step", [1, 7, 100])
@pytest.mark.parametrize("seed", range(5))
def test_entries_stand_in_log_order(tmp_path: Path, seed: int, step: int) -> None:
    """Own and further entries of one queue mixed, wherever batches end."""
    records = write_log(tmp_path / "commitlog", random_messages(seed))
    physical_offsets = [record.physical_offset for record in records]
    cuts = [*physical_offsets[::step], records[-1].physical_offset + records[-1].msg_size]
    needs = LogicNeeds(multi_dispatch=MultiDispatch(enable_lmq=True))
    batches = LogBatches(tmp_path / "commitlog", needs=needs)
    with no_fsync(), SinkRun(tmp_path / "output", SETTINGS) as run:
        for start, end in itertools.pairwise(cuts):
            run.write(batches(start, end))
    expected = expected_queues(records)
    assert any("%LMQ%" in name for name in expected)
    assert queue_files(tmp_path / "output") == expected


@pytest.mark.parametrize(
    "needs",
    [
        LogicNeeds(multi_dispatch=MultiDispatch(enable_lmq=True)),
        LogicNeeds(),  # further queues are listed whether they are kept or not
        LogicNeeds(consume_queue=False),
    ],
    ids=["multi dispatch", "none", "no queues"],
)
@pytest.mark.parametrize("window_bytes", [10_000, 200])
def test_arrivals_of_a_batch(needs: LogicNeeds, window_bytes: int, tmp_path: Path) -> None:
    """The last message by queue, further queues told too; a prepared one counts only where the queue got no other."""
    further = {"INNER_MULTI_DISPATCH": "%LMQ%x", "INNER_MULTI_QUEUE_OFFSET": "41"}
    messages = [
        Message("A", 0, queue_offset=10, store_timestamp=1_000, properties={"TAGS": "a", **further}),
        Message("A", 1, queue_offset=20, store_timestamp=2_000),
        Message("A", 0, queue_offset=11, store_timestamp=3_000, properties={"TAGS": "b"}),
        Message("A", 0, queue_offset=0, store_timestamp=4_000, sys_flag=TRANSACTION_PREPARED),
        Message("P", 0, queue_offset=0, store_timestamp=5_000, sys_flag=TRANSACTION_PREPARED),
    ]
    records = write_log(tmp_path, messages)
    end = records[-1].physical_offset + records[-1].msg_size
    needs = replace(needs, arrivals=True)
    arrived = LogBatches(tmp_path, range_bytes=10_000, window_bytes=window_bytes, needs=needs)(0, end).arrivals
    assert isinstance(arrived, ArrivalSummary)
    assert {(arrival.topic, arrival.queue_id): arrival for arrival in arrived.queues} == {
        ("A", 0): Arrival("A", 0, 12, ord("b"), 3_000),
        ("A", 1): Arrival("A", 1, 21, 0, 2_000),
        ("P", 0): Arrival("P", 0, 1, 0, 5_000),
        ("%LMQ%x", 0): Arrival("%LMQ%x", 0, 42, ord("a"), 1_000),
    }
    sizes = [record.msg_size for record in records]
    assert arrived.topics == (TopicCount("A", 4, sum(sizes[:4])), TopicCount("P", 1, sizes[4]))
    assert (arrived.start, arrived.end) == (0, end)
