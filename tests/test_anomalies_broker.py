"""A real broker replays crafted logs: its queues and index are ours, and what it does with damage is on record."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from broker.rocketmq import NameServer, RocketMQ
from support.anomaly_logs import CASES, MAPPED_FILE_SIZE, SETTINGS, write_all_cases
from support.logs import end_of, put_bytes
from support.model import anomalies
from support.record_writer import CommitLogWriter, Message, StoredRecord, encode
from support.sink_runner import LogBatches, SinkRun, record_bounds
from support.store_compare import differing_bytes

from reput.sinks.anomalies import AnomalyCounts
from reput.source.errors import CorruptRecordError, SinkError
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, read_windows

pytestmark = pytest.mark.broker

#: The broker's log lines, once for each record (for the last, each queue).
SAID = {
    "gap": "[BUG]logic queue order maybe wrong",
    "repeated": "Build  consume queue repeatedly",
    "pre_blank": "fill pre blank space",
}


@pytest.fixture(scope="module")
def name_server(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    if rocketmq.version != "4.9.3":
        pytest.skip("what is compared here are the bytes and the log of 4.9.3")
    server = rocketmq.name_server(tmp_path_factory.mktemp("namesrv"))
    try:
        yield server.start()
    finally:
        server.kill()


def rebuilt(rocketmq: RocketMQ, name_server: NameServer, home: Path, mapped_file_size: int) -> Path:
    """Let a broker derive everything from ``home/store/commitlog`` and stop; returns the store.

    Without ``abort`` it recovers as after a clean stop, so that all is done by its reput.
    """
    settings: dict[str, str | int | bool] = {
        "mappedFileSizeCommitLog": mapped_file_size,
        "mappedFileSizeConsumeQueue": SETTINGS.mapped_file_size_consume_queue,
        "maxHashSlotNum": SETTINGS.max_hash_slot_num,
        "maxIndexNum": SETTINGS.max_index_num,
    }
    broker = rocketmq.broker(home, name_server, settings)
    try:
        # It answers when its reput has caught up with the log.
        broker.start()
        broker.stop()
    finally:
        broker.kill()
    return broker.store


def test_all_cases_in_one_log(rocketmq: RocketMQ, name_server: NameServer, tmp_path: Path) -> None:
    """Gaps, repeats, restarts, odd keys, times and segments: no byte of queues and index differs from the broker's."""
    records = write_all_cases(tmp_path / "broker" / "store" / "commitlog")
    allowed = record_bounds(records)
    for name, cuts in (("one", [allowed[0], allowed[-1]]), ("each", allowed)):
        batches = LogBatches(tmp_path / "broker" / "store" / "commitlog")
        with SinkRun(tmp_path / name, SETTINGS) as run:
            for start, end in itertools.pairwise(cuts):
                run.write(batches(start, end))
            assert run.anomalies == AnomalyCounts(**anomalies(records, SETTINGS))
    store = rebuilt(rocketmq, name_server, tmp_path / "broker", MAPPED_FILE_SIZE)
    assert {path.name for path in (store / "consumequeue").iterdir()} == set(CASES)
    assert differing_bytes(store, tmp_path / "one") == {}
    assert differing_bytes(store, tmp_path / "each") == {}
    said = (tmp_path / "broker" / "rocketmq.log").read_text(encoding="utf-8")
    counts = anomalies(records, SETTINGS)
    assert {cause: said.count(line) for cause, line in SAID.items()} == {cause: counts[cause] for cause in SAID}


# --- damage ----------------------------------------------------------------------------------------------

SIZE = 1024
#: Records of a segment; the one that is damaged.
COUNT, BAD = 6, 2
#: How far behind its place a record says it is.
LATER = 250
PRE_BLANK = (0, 0x7FFFFFFF)


def resized(message: Message, at: int, more: int) -> bytes:
    record = encode(message, at)
    return struct.pack(">i", len(record) + more) + record[4:]


#: How the record at a place is damaged, and which of its segment's records the broker queues, by number.
DAMAGE: dict[str, tuple[Callable[[Message, int], bytes], list[int]]] = {
    "BadMagic": (lambda message, at: encode(replace(message, magic=0x12345678), at), [0, 1]),
    "Zeros": (lambda message, at: bytes(len(encode(message, at))), [0, 1]),
    "NegativeSize": (lambda message, at: b"\xff" * 4 + encode(message, at)[4:], [0, 1]),
    "SizeTooLarge": (lambda message, at: resized(message, at, 10), [0, 1, 3, 4, 5]),
    "SizeTooSmall": (lambda message, at: resized(message, at, -10), [0, 1, 3, 4, 5]),
    "SizeOfABeginning": (lambda message, at: struct.pack(">i", 20) + encode(message, at)[4:], [0, 1, 3, 4, 5]),
    # From beyond the segment the broker rolls to a file further on: see LOST.
    "SizeBeyond": (lambda message, at: resized(message, at, 1500), [0, 1, 3, 4, 5]),
    # As long as before. It is queued, as the queue of no topic.
    "EmptyTopic": (
        lambda message, at: encode(replace(message, topic="", body=message.body + message.topic.encode()), at),
        [0, 1, 3, 4, 5],
    ),
    "BodyDiffers": (lambda message, at: encode(replace(message, body_crc=1), at), [0, 1, 2, 3, 4, 5]),
    # The broker believes the record: it ends before the queue's last one, so it is taken for one already built.
    "OfAnEarlierPlace": (lambda message, at: encode(message, at - SIZE), [0, 1, 3, 4, 5]),
    # Believed too, and the records up to that place are then taken for ones already built.
    "OfALaterPlace": (lambda message, at: encode(message, at + LATER), [0, 1, 2, 5]),
}


#: The sound records behind ``SizeBeyond``, none of which is queued.
LOST = "LostBehindSizeBeyond"

#: Sound records of queues that no producer can make: what reput says, and the records that the broker queues.
IMPOSSIBLE = {
    "NegativeFirst": ("has queue offset -1: no queue begins there", [1, 2, 3, 4, 5]),
    "NegativeQueue": ("queue id -1 of topic 'NegativeQueue' is negative", [0, 1, 2, 3, 4, 5]),
}


def message_of(topic: str, number: int) -> Message:
    message = Message(topic, body=b"0123456789", properties={"KEYS": f"k{number}"})
    if topic == "NegativeFirst":
        return replace(message, queue_offset=number - 1)
    return replace(message, queue_id=-1) if topic == "NegativeQueue" else message


def write_damaged(directory: Path) -> dict[str, list[StoredRecord]]:
    """One segment a kind of damage behind a sound one, then enough sound ones that recovery looks at no damage."""
    stored: dict[str, list[StoredRecord]] = {}
    with CommitLogWriter(directory, SIZE) as writer:
        topics = list(DAMAGE)
        topics.insert(topics.index("SizeBeyond") + 1, LOST)
        for topic in ("First", *topics, *IMPOSSIBLE, "Last1", "Last2", "Last3"):
            for number in range(COUNT):
                writer.append(message_of(topic, number))
            stored[topic] = writer.records[-COUNT:]
            with suppress(ValueError):
                writer.append(Message(body=bytes(SIZE)))  # the next topic begins a segment
    for topic, (damage, _) in DAMAGE.items():
        at = stored[topic][BAD].physical_offset
        put_bytes(directory / f"{at - at % SIZE:020d}", at % SIZE, damage(stored[topic][BAD].message, at))
    return stored


@pytest.mark.slow
def test_what_the_broker_does_with_damage(rocketmq: RocketMQ, name_server: NameServer, tmp_path: Path) -> None:
    """Which records of a damaged segment it queues; reput stops at the damaged record and says where that is."""
    commitlog = tmp_path / "broker" / "store" / "commitlog"
    stored = write_damaged(commitlog)
    batches = LogBatches(commitlog)
    for topic in DAMAGE.keys() - {"BodyDiffers"}:
        bad = stored[topic][BAD].physical_offset
        with pytest.raises(CorruptRecordError, match=f"no good record at offset {bad} "):
            batches(stored[topic][0].physical_offset, end_of(stored[topic]))
    for topic, (message, _) in IMPOSSIBLE.items():
        begin, end = stored[topic][0].physical_offset, end_of(stored[topic])
        with SinkRun(tmp_path / topic, SETTINGS, begin) as run, pytest.raises(SinkError, match=message):
            run.write(batches(begin, end))

    store = rebuilt(rocketmq, name_server, tmp_path / "broker", SIZE)
    expected = {topic: [entry(record) for record in records] for topic, records in stored.items()}
    for topic, (_, queued) in (DAMAGE | IMPOSSIBLE).items():
        expected[topic] = [expected[topic][number] for number in queued]
    expected[LOST] = []
    at, size = expected["OfALaterPlace"][BAD]
    expected["OfALaterPlace"][BAD] = (at + LATER, size)
    assert {topic: queue_entries(store / "consumequeue" / topic) for topic in stored} == expected
    assert left_out_as_a_broker(commitlog, stored) == {
        # The broker dispatches these two; and it loses everything after a size that leads out of the segment.
        **{topic: expected[topic] for topic in (DAMAGE.keys() - {"EmptyTopic", "OfALaterPlace"})},
        "EmptyTopic": expected["EmptyTopic"],
        "OfALaterPlace": [entry(record) for number, record in enumerate(stored["OfALaterPlace"]) if number != BAD],
        LOST: [entry(record) for record in stored[LOST]],
    }
    no_topic = entries_of(store / "consumequeue" / "0")
    assert no_topic == [PRE_BLANK] * BAD + [entry(stored["EmptyTopic"][BAD])]


def left_out_as_a_broker(commitlog: Path, stored: dict[str, list[StoredRecord]]) -> dict[str, list[tuple[int, int]]]:
    """By topic, place and size of the records that reput reads of the damaged segments with onDamage=broker."""
    found: dict[str, list[tuple[int, int]]] = {}
    for topic in (*DAMAGE, LOST):
        begin = stored[topic][0].physical_offset
        file = MappedFileQueue.load([commitlog]).find(begin)
        assert file is not None
        windows = read_windows(file, begin, file.end, DecodeOptions(on_damage="broker"))
        columns = [window.columns for window in windows]
        found[topic] = [
            pair for part in columns for pair in zip(part.physical_offset.tolist(), part.msg_size.tolist(), strict=True)
        ]
    return found


def entry(record: StoredRecord) -> tuple[int, int]:
    return record.physical_offset, record.msg_size


def queue_entries(topic: Path) -> list[tuple[int, int]]:
    """Return the entries of a topic's only queue; none if there is no such topic."""
    queues = list(topic.iterdir()) if topic.exists() else []
    assert len(queues) <= 1
    return [found for queue in queues for found in entries_of(queue)]


def entries_of(queue: Path) -> list[tuple[int, int]]:
    """Place and size of each entry."""
    units = struct.iter_unpack(">qiq", b"".join(path.read_bytes() for path in sorted(queue.iterdir())))
    return [(at, size) for at, size, _ in units if size]
