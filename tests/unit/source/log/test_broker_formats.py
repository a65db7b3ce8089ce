"""Records of brokers beyond 4.9.3's plain ones, read from the stores that the brokers left."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.decoders import batch_decoder, reference_decoder
from support.model import java_hash
from support.record_writer import MAGIC_V2

from reput.source.log.log_reader import LogReader
from reput.source.log.range_reader import read_windows
from reput.source.log.segment_scan import Window
from reput.source.options import SourceOptions
from reput.source.record.message_body import decompress_body
from reput.source.record.message_decoder import Message, Verdict
from reput.streaming.config.pipeline import load_config

if TYPE_CHECKING:
    from conftest import BrokerStore

GetStore = Callable[[str], "BrokerStore"]


def log_of(store: BrokerStore) -> LogReader:
    """The store's log by its own broker.conf, every checksum checked."""
    config = load_config(store.root, broker_conf=store.broker_conf, overrides=["checkCrc=all", "tailGuardMs=0"])
    return LogReader(SourceOptions.parse(config.source_options()))


def windows(store: BrokerStore) -> Iterator[Window]:
    """The whole log."""
    log = log_of(store)
    for span in log.split(log.initial_offset(), log.settled_end(log.initial_offset())):
        yield from read_windows(span.file, span.start, span.end, log.decode_options)


def messages(store: BrokerStore) -> Iterator[Message]:
    """Every message of the log."""
    for window in windows(store):
        yield from window.columns.messages()


@pytest.mark.parametrize("name", ["v4-dledger", "v5-plain", "v5-longtopic", "v5-batchcq", "v5-propcrc"])
def test_a_log_is_read_whole(name: str, broker_store: GetStore) -> None:
    """Every record, as many of each topic as the broker gave to clients, to the broker's own end of the log."""
    store = broker_store(name)
    found = Counter(message.topic for message in messages(store))
    assert store.facts["messagesPerTopic"] == found
    assert store.facts["totalMessages"] == found.total()
    log = log_of(store)
    assert (store.facts["minOffset"], store.facts["maxOffset"]) == (log.initial_offset(), log.settled_end(0))


@pytest.mark.parametrize("name", ["v4-dledger", "v5-longtopic", "v5-propcrc"])
def test_the_decoders_agree_on_it(name: str, broker_store: GetStore) -> None:
    """Segment by segment, with and without checksums."""
    store = broker_store(name)
    dledger = name == "v4-dledger"
    directory = store.root / ("dledger-n0/data" if dledger else "commitlog")
    count = 0
    for path in sorted(directory.iterdir()):
        segment = path.read_bytes()
        expected = reference_decoder(segment, int(path.name), dledger=dledger)
        assert expected == batch_decoder(segment, int(path.name), dledger=dledger)
        assert expected == batch_decoder(segment, int(path.name), dledger=dledger, check_crc=False)
        assert expected.verdict in (Verdict.BLANK, Verdict.EMPTY)
        count += len(expected.messages)
    assert store.facts["totalMessages"] == count


def test_v2_records_are_those_with_long_topics(broker_store: GetStore) -> None:
    """The retry topic of a long group and a long topic; V1 records are between them."""
    magic_codes: dict[str, set[int]] = {}
    count = 0
    for window in windows(broker_store("v5-longtopic")):
        for at, message in zip(window.columns.parts[:, 0].tolist(), window.columns.messages(), strict=True):
            magic = int.from_bytes(window.columns.data[at + 4 : at + 8].tobytes(), "big")
            magic_codes.setdefault(message.topic, set()).add(magic)
            count += magic == MAGIC_V2
    assert count == 225
    for topic, found in magic_codes.items():
        assert ({MAGIC_V2} == found) == (len(topic) > 127), topic


def test_timer_messages_are_ordinary_records(broker_store: GetStore) -> None:
    """Messages that wait in the timer wheel are records of a system topic, with queue offsets without a gap."""
    waiting = [message for message in messages(broker_store("v5-longtopic")) if message.topic == "rmq_sys_wheel_timer"]
    assert len(waiting) == 1393
    assert list(range(1393)) == [message.queue_offset for message in waiting]
    assert {(1, -1)} == {(message.batch_num, message.msg_base_offset) for message in waiting}
    assert all(message.tags_code == java_hash(message.tags or "") for message in waiting)
    assert all({"REAL_TOPIC", "TIMER_OUT_MS"} <= message.properties.keys() for message in waiting)


def test_inner_batches(broker_store: GetStore) -> None:
    """1,500 records hold 16,500 messages, each queue's one behind the other; the plain topic's records hold one."""
    next_offset: Counter[int] = Counter()
    count = plain = 0
    for window in windows(broker_store("v5-batchcq")):
        batches = window.columns.inner_batches()
        assert (np.dtype(np.int32), np.dtype(np.int64)) == (batches.batch_num.dtype, batches.msg_base_offset.dtype)
        rows = zip(window.columns.messages(), batches.batch_num.tolist(), batches.msg_base_offset.tolist(), strict=True)
        for message, number, base in rows:
            assert (number, base) == (message.batch_num, message.msg_base_offset)
            if message.topic == "Simple":
                assert (number, base) == (1, -1)
                plain += 1
                continue
            assert base == next_offset[message.queue_id] == message.queue_offset
            next_offset[message.queue_id] += number
            count += 1
    assert (count, plain, next_offset.total()) == (1500, 500, 16_500)


def test_every_record_ends_in_its_checksum(broker_store: GetStore) -> None:
    """With enabledAppendPropCRC it is a property like others, and tags, keys and unique keys are as sent."""
    found = list(messages(broker_store("v5-propcrc")))
    assert all(len(message.properties["__CRC32#"]) == 10 for message in found)
    assert {"__CRC32#"} == set.intersection(*({*message.properties} for message in found)) - {
        "CLUSTER",
        "MSG_REGION",
        "TRACE_ON",
        "UNIQ_KEY",
        "WAIT",
    }
    assert Counter(message.tags is not None for message in found)[True] > 1000
    assert Counter(message.keys is not None for message in found)[True] > 1000


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_of_a_record_with_its_checksum_is_found(seed: int, broker_store: GetStore) -> None:
    """Anywhere in it, by both decoders, but for the name of the property that makes it one."""
    rng = random.Random(seed)
    segment = (broker_store("v5-propcrc").root / "commitlog" / f"{262_144:020d}").read_bytes()
    found = batch_decoder(segment, 262_144).messages
    for message in rng.sample(found, 30):
        at = message.physical_offset - 262_144
        record = bytearray(segment[at : at + message.msg_size])
        name = range(8 * (len(record) - 20), 8 * (len(record) - 11))
        bit = rng.choice([bit for bit in range(8 * len(record)) if bit not in name])
        record[bit // 8] ^= 1 << bit % 8
        file_end = 2 * 262_144
        expected = reference_decoder(bytes(record), message.physical_offset, file_end)
        assert expected.messages == [], bit
        assert expected == batch_decoder(bytes(record), message.physical_offset, file_end)


def test_compressed_bodies(broker_store: GetStore) -> None:
    """zlib, LZ4 and Zstandard of RocketMQ's own compressors, and every body that is not compressed as it is."""
    sizes: dict[int, Counter[int]] = {}
    for message in messages(broker_store("v5-plain")):
        body = decompress_body(message.body, message.sys_flag)
        if not message.sys_flag & 1:
            assert body is message.body
            continue
        sizes.setdefault(message.sys_flag, Counter())[len(body)] += 1
        if len(message.body) < 1000:
            words = body.split(b" ", 1)[1].rsplit(b" ", 1)[0].split(b" ")
            assert set(words) == {b"lorem", b"ipsum", b"dolor", b"sit", b"amet"}
    assert {0x101: 140, 0x201: 158, 0x301: 146} == {flag: counts.total() for flag, counts in sizes.items()}
    assert {5000, 6000, 20_000} == {size for counts in sizes.values() for size in counts}


def test_compressed_bodies_of_4x(broker_store: GetStore) -> None:
    """No type in sysFlag: zlib."""
    found = [message for message in messages(broker_store("v4-dledger")) if message.sys_flag == 0x1]
    assert len(found) == 82
    assert all(len(decompress_body(message.body, 0x1)) > 4096 for message in found)
