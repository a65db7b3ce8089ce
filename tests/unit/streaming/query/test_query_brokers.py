"""Look-ups in the stores that real brokers left give what the brokers answered, and what a scan of the log finds."""

from __future__ import annotations

import functools
import json
import random
import shutil
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.broker_stores import unpack
from support.model import Record, Settings, index_keys, parse_properties, read_log
from support.paths import DATA
from support.record_writer import Message as Written
from support.sink_runner import LogBatches, no_fsync, record_bounds, run_sinks

from reput.source.errors import SinkError
from reput.source.record.message_decoder import Message
from reput.streaming.config.pipeline import load_config
from reput.streaming.query.store_lookup import StoreLookup

ANSWERS: dict[str, Any] = json.loads((DATA / "broker_queries.json").read_text(encoding="utf-8"))
REBUILT = {"v4-killed-rebuilt": "v4-killed", "v4-expired-rebuilt": "v4-expired"}
STORES = [*ANSWERS, *REBUILT]
#: How many messages the brokers' answers hold, each once, and how many queues.
COUNTS = {
    "v4-plain": (614, 44),
    "v4-tx-delay-retry": (160, 35),
    "v4-killed": (249, 6),
    "v4-expired": (186, 11),
    "v4-sql92": (97, 8),
    "v4-dledger": (186, 12),
    "v4-lmq": (60, 32),
    "v5-propcrc": (186, 9),
}
GetStore = Callable[[str], StoreLookup]


def opened(store: Path, broker_conf: Path, output: Path | None = None) -> StoreLookup:
    """As `reput query` opens a store."""
    return StoreLookup(load_config(store, broker_conf=broker_conf, only_reads=True), output)


def answers_of(name: str) -> Any:
    return ANSWERS[REBUILT.get(name, name)]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a store of tests/data, unpacked once; tests must not write into it."""
    return functools.cache(lambda name: unpack(name, tmp_path_factory.mktemp("stores")))


@pytest.fixture(scope="module")
def lookup(unpacked: Callable[[str], Path]) -> GetStore:
    return functools.cache(lambda name: opened(unpacked(name) / "store", unpacked(name) / "broker.conf"))


def check_keys(name: str, store: StoreLookup) -> None:
    """Compare with each answer to a key; a broker gives a message twice that has a key twice."""
    count = 0
    for kind, topic, key, rows in answers_of(name)["queries"]:
        answer = (store.by_key if kind == "K" else store.by_unique_key)(topic, key)
        wanted = sorted({tuple(row) for row in rows}, key=lambda row: -row[2])
        assert [place_of(found.message) for found in answer.found] == wanted, (kind, topic, key)
        count += len(wanted)
        if kind == "U":
            first = min(wanted, key=lambda row: row[2])  # the clocks of these brokers went forward only
            assert [place_of(found.message) for found in answer.found if found.chosen] == [first]
    assert count == COUNTS[REBUILT.get(name, name)][0]


def place_of(message: Message) -> tuple[Any, ...]:
    host, port = message.store_host
    msg_id = (host + port.to_bytes(4, "big") + message.physical_offset.to_bytes(8, "big")).hex().upper()
    return message.queue_id, message.queue_offset, message.physical_offset, msg_id, message.uniq_key


@pytest.mark.parametrize("name", STORES)
def test_keys(name: str, lookup: GetStore) -> None:
    """Every key and unique key that the broker was asked for."""
    check_keys(name, lookup(name))


@pytest.mark.parametrize("name", ["v4-plain", "v4-tx-delay-retry", "v4-expired"])
def test_keys_from_reputs_own_index(
    name: str, lookup: GetStore, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    """The index that reput derives answers as the broker did from its own."""
    log, conf = unpacked(name) / "store" / "commitlog", unpacked(name) / "broker.conf"
    with no_fsync():
        run_sinks(tmp_path, LogBatches(log, 100_000, 40_000), ends(records_of(log)), settings_of(conf))
    check_keys(name, opened(unpacked(name) / "store", conf, tmp_path))


def ends(records: list[Record]) -> list[int]:
    allowed = record_bounds(records)
    return [allowed[0], allowed[-1]]


def settings_of(conf: Path) -> Settings:
    lines = dict(line.split("=", 1) for line in conf.read_text(encoding="utf-8").splitlines() if "=" in line)
    return Settings(*(int(lines[name]) for name in ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")))


@functools.cache
def records_of(log: Path) -> list[Record]:
    return list(read_log({int(path.name): path.read_bytes() for path in sorted(log.iterdir())}))


@pytest.mark.parametrize("name", STORES)
def test_message_ids(name: str, lookup: GetStore) -> None:
    """Every message of the answers by its offset message id, in either case."""
    ids = {row[3]: tuple(row) for _, _, _, rows in answers_of(name)["queries"] for row in rows}
    assert len(ids) > 50
    for msg_id, wanted in ids.items():
        for text in (msg_id, msg_id.lower()):
            (found,) = lookup(name).by_msg_id(text).found
            assert place_of(found.message) == wanted


@pytest.mark.parametrize("name", STORES)
def test_queues(name: str, lookup: GetStore) -> None:
    """Each queue begins and ends where the broker said; its entries lead to its messages."""
    queues, count = answers_of(name)["queues"], 0
    rng = random.Random(1)
    for topic, by_id in queues.items():
        for queue_id, (low, high) in by_id.items():
            count += 1
            for offset in {low, high - 1, rng.randrange(low, high)}:
                answer = lookup(name).by_queue_offset(topic, int(queue_id), offset)
                assert answer.notes == []
                (found,) = answer.found
                assert found.entry is not None
                assert found.entry.queue_offset == offset
                if not topic.startswith("%LMQ%"):
                    assert (found.message.topic, found.message.queue_offset) == (topic, offset)
            start = max(low, high - 100)
            assert len(lookup(name).by_queue_offset(topic, int(queue_id), start, 10**9).found) == high - start
            for offset, words in ((high, "OFFSET_OVERFLOW_ONE"), (high + 1, "OFFSET_OVERFLOW_BADLY")):
                with pytest.raises(SinkError, match=rf"{words}: .* has the entries \[{low}, {high}\)"):
                    lookup(name).by_queue_offset(topic, int(queue_id), offset)
            if low:
                with pytest.raises(SinkError, match="OFFSET_TOO_SMALL"):
                    lookup(name).by_queue_offset(topic, int(queue_id), low - 1)
    assert count == COUNTS[REBUILT.get(name, name)][1]


def keys_of(record: Written) -> set[str]:
    """The keys under which a message is found, the unique key left out."""
    assert isinstance(record.properties, bytes)
    return set(filter(None, parse_properties(record.properties).get("KEYS", "").split(" ")))


@pytest.mark.parametrize("name", ["v4-plain", "v4-tx-delay-retry", "v4-killed-rebuilt", "v4-expired-rebuilt"])
def test_random_keys_and_times_equal_a_scan_of_the_log(
    name: str, lookup: GetStore, unpacked: Callable[[str], Path]
) -> None:
    """By any key, with and without times, exactly the messages that a scan finds, newest first."""
    by_key: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for at, message, _ in records_of(unpacked(name) / "store" / "commitlog"):
        if index_keys(message):
            for key in keys_of(message):
                by_key[message.topic, key].append((at, message.store_timestamp))
    rng, found = random.Random(2), 0
    often = [key for key, hits in by_key.items() if len(hits) > 1]
    for topic, key in rng.choices(list(by_key), k=200) + rng.choices(often, k=100):
        hits = by_key[topic, key]
        begin = rng.choice([0, rng.choice(hits)[1] + rng.randint(-2, 2)])
        wanted = [at for at, time in reversed(hits) if time >= begin]
        answer = lookup(name).by_key(topic, key, begin=begin, max_num=10**6)
        assert [one.message.physical_offset for one in answer.found] == wanted, (topic, key, begin)
        found += len(wanted)
    assert found > 300


@pytest.mark.parametrize("name", ["v4-plain", "v4-killed", "v4-expired", "v4-expired-rebuilt"])
def test_times_equal_a_scan_of_the_log(name: str, lookup: GetStore, unpacked: Callable[[str], Path]) -> None:
    """At any time, the first message of the queue that was stored then or later."""
    queues: dict[tuple[str, int], list[int]] = defaultdict(list)
    for _, message, _ in records_of(unpacked(name) / "store" / "commitlog"):
        queues[message.topic, message.queue_id].append(message.store_timestamp)
    rng, count = random.Random(3), 0
    for (topic, queue_id), times in queues.items():
        low, high = answers_of(name)["queues"][topic][str(queue_id)]
        assert high - low == len(times)
        for _ in range(12):
            time = rng.choice([rng.choice(times) + rng.randint(-1, 1), rng.randint(times[0] - 5, times[-1] + 5)])
            answer = lookup(name).by_time(topic, queue_id, time, 3)
            first = low + bisect_left(times, time)
            wanted = list(range(first, min(first + 3, high)))
            assert [one.message.queue_offset for one in answer.found] == wanted
            assert f"offset {first} at {time}" in answer.notes[0]
            count += 1
    assert count > 70


def test_inner_batches(lookup: GetStore) -> None:
    """A BatchConsumeQueue is found by its own folder, and each queue offset of a batch finds the batch."""
    store = lookup("v5-batchcq")
    found = store.by_queue_offset("BatchQ", 2, 0, 10_000).found
    firsts = [each.message.queue_offset for each in found]
    assert firsts == sorted(firsts)
    assert {each.message.topic for each in found} == {"BatchQ"}
    for each, behind in zip(found, firsts[1:], strict=False):
        for offset in (each.message.queue_offset, behind - 1):
            (one,) = store.by_queue_offset("BatchQ", 2, offset).found
            assert (one.message, one.entry) == (each.message, each.entry)
    assert [each.message for each in store.by_queue_offset("BatchQ", 2, firsts[3] + 1, 2).found] == [
        each.message for each in (found[3], found[4])
    ]
    times = [each.message.store_timestamp for each in found]
    (first,) = store.by_time("BatchQ", 2, times[5]).found
    assert first.message.queue_offset == firsts[times.index(times[5])]
    assert store.by_time("BatchQ", 2, times[-1] + 1).found == []
    with pytest.raises(SinkError, match="OFFSET_OVERFLOW_BADLY"):
        store.by_queue_offset("BatchQ", 2, 10**9)
    assert store.by_queue_offset("BatchQ", 2, 0, 10_000).notes == []


def test_a_queue_of_both_kinds(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    """The topic's kind decides."""
    home = shutil.copytree(unpacked("v5-batchcq"), tmp_path / "home")
    (home / "store" / "consumequeue" / "BatchQ" / "2").mkdir(parents=True)
    store = opened(home / "store", home / "broker.conf")
    assert store.by_queue_offset("BatchQ", 2, 0).found[0].message.topic == "BatchQ"
