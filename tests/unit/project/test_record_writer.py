"""The writer, the model and make_log against bytes that brokers left behind."""

from __future__ import annotations

import functools
import itertools
import json
import struct
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.model import (
    IndexFile,
    Record,
    Settings,
    consume_queue_files,
    index_file_contents,
    java_hash,
    java_string,
    parse_record,
    read_log,
)
from support.paths import TESTS
from support.record_writer import CommitLogWriter, Message, encode, write_store

GOLDEN = ["golden-a", "golden-b"]
LIVE = ["v4-plain", "v4-tx-delay-retry", "v4-killed", "v4-killed-rebuilt", "v4-expired", "v4-expired-rebuilt"]

# --- the archives ----------------------------------------------------------------------------------------

Files = Mapping[str, bytes]


@functools.cache
def archive(name: str) -> Files:
    """Every file below the archive's ``store/``, by its relative path."""
    with tarfile.open(TESTS / "data" / f"{name}.tar.gz") as tar:
        contents = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        prefix = f"{name}/store/"
        return {path.removeprefix(prefix): content.read() for path, content in contents.items() if content}


def facts(name: str) -> dict[str, Any]:
    """Return the facts about an archive that are not in its bytes."""
    known: dict[str, Any] = json.loads((TESTS / "data" / f"{name}.json").read_text(encoding="utf-8"))
    return known


def settings_of(name: str) -> Settings:
    conf = facts(name)["brokerConf"]
    return Settings(conf["mappedFileSizeConsumeQueue"], conf["maxHashSlotNum"], conf["maxIndexNum"])


def segments(files: Files) -> dict[int, bytes]:
    return {int(path[10:]): data for path, data in sorted(files.items()) if path.startswith("commitlog/")}


@functools.cache
def records_of(name: str) -> list[Record]:
    return list(read_log(segments(archive(name))))


def written(store: Path) -> dict[str, bytes]:
    """The files of a store directory, as `archive` gives them."""
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


# --- encode ----------------------------------------------------------------------------------------------

T1 = 0x1A1FB821824
IN_A = Message("TopicA", flag=7, born_timestamp=0x174876E8000, born_host=("10.1.2.3", 1234))
BATCH_A = replace(IN_A, flag=0, born_timestamp=0x174876E8001, born_host=("10.1.2.3", 1), store_timestamp=T1 + 7)


def in_a(body: bytes, millis: int, **fields: Any) -> Message:
    return replace(IN_A, body=body, store_timestamp=T1 + millis, **fields)


BATCHED = {"WAIT": "true", "TAGS": "BT", "BATCHP": "v"}
DELAYED = {"REAL_TOPIC": "TopicB", "UNIQ_KEY": "U2", "DELAY": "3", "TAGS": "T", "REAL_QID": "0"}
V6_HOST = ("1050::5:600:300c:326b", 1234)
MESSAGES_A = [
    in_a(b"hello", -603, properties={"KEYS": "k1 k2", "UNIQ_KEY": f"7F000001{1:022d}", "TAGS": "TAG1"}),
    in_a(b"world", 0, queue_id=1),
    in_a(b"v6", 1, born_host=V6_HOST, properties={"KEYS": " k3  k4 ", "TAGS": "中文"}),
    in_a(b"delay", 2, topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=DELAYED),
    in_a(b"prep", 2, topic="HALF", sys_flag=0x4, properties={"KEYS": "kp", "UNIQ_KEY": "U3", "TAGS": "T"}),
    in_a(b"commit", 2, sys_flag=0x8, properties={"KEYS": "kc", "UNIQ_KEY": "U4", "TAGS": "T"}),
    in_a(b"roll", 2, sys_flag=0xC, properties={"KEYS": "kr", "UNIQ_KEY": "U5", "TAGS": "T"}),
    replace(BATCH_A, body=b"b0", properties={"KEYS": "bk0"} | BATCHED),
    replace(BATCH_A, body=b"b1", properties={"KEYS": "bk1"} | BATCHED),
    replace(BATCH_A, body=b"nb", properties={"BATCHP": "v"}),
]
#: Each record's hex, as the reference of the store format gives it.
VECTORS_A = """
000000a2daa320a73610a6860000000000000007000000000000000000000000000000000000000000000174876e80000a010203000004d2000001a1
fb8215c97f00000100002a9f0000000000000000000000000000000568656c6c6f06546f70696341003c4b455953016b31206b3202554e49515f4b45
590137463030303030313030303030303030303030303030303030303030303102544147530154414731

00000066daa320a73a7711430000000100000007000000000000000000000000000000a20000000000000174876e80000a010203000004d2000001a1
fb8218247f00000100002a9f00000000000000000000000000000005776f726c6406546f706963410000

00000088daa320a7770659160000000000000007000000000000000100000000000001080000001000000174876e8000105000000000000000050600
300c326b000004d2000001a1fb8218257f00000100002a9f00000000000000000000000000000002763606546f7069634100194b45595301206b3320
206b3420025441475301e4b8ade69687

000000aadaa320a7329a809b0000000200000007000000000000000000000000000001900000000000000174876e80000a010203000004d2000001a1
fb8218267f00000100002a9f0000000000000000000000000000000564656c6179135343484544554c455f544f5049435f5858585800375245414c5f
544f50494301546f7069634202554e49515f4b45590155320244454c4159013302544147530154025245414c5f5149440130

0000007ddaa320a755812d6000000000000000070000000000000000000000000000023a0000000400000174876e80000a010203000004d2000001a1
fb8218267f00000100002a9f00000000000000000000000000000004707265700448414c46001a4b455953016b7002554e49515f4b45590155330254
4147530154

00000081daa320a74ed42ead0000000000000007000000000000000200000000000002b70000000800000174876e80000a010203000004d2000001a1
fb8218267f00000100002a9f00000000000000000000000000000006636f6d6d697406546f70696341001a4b455953016b6302554e49515f4b455901
553402544147530154

0000007fdaa320a72eb532ce0000000000000007000000000000000000000000000003380000000c00000174876e80000a010203000004d2000001a1
fb8218267f00000100002a9f00000000000000000000000000000004726f6c6c06546f70696341001a4b455953016b7202554e49515f4b4559015535
02544147530154

00000086daa320a730cb2b760000000000000000000000000000000300000000000003b70000000000000174876e80010a01020300000001000001a1
fb82182b7f00000100002a9f00000000000000000000000000000002623006546f7069634100234b45595301626b3002574149540174727565025441
4753014254024241544348500176

00000086daa320a747cc1be000000000000000000000000000000004000000000000043d0000000000000174876e80010a01020300000001000001a1
fb82182b7f00000100002a9f00000000000000000000000000000002623106546f7069634100234b45595301626b3102574149540174727565025441
4753014254024241544348500176

0000006bdaa320a7191b54a20000000000000000000000000000000500000000000004c30000000000000174876e80010a01020300000001000001a1
fb82182b7f00000100002a9f000000000000000000000000000000026e6206546f7069634100084241544348500176
"""
OFFSETS_A = [0, 162, 264, 400, 570, 695, 824, 951, 1085, 1219]
QUEUE_OFFSETS_A = [0, 0, 1, 0, 0, 2, 0, 3, 4, 5]


@pytest.mark.parametrize("number", range(10))
def test_encode_gives_the_brokers_bytes(number: int) -> None:
    message = replace(MESSAGES_A[number], queue_offset=QUEUE_OFFSETS_A[number])
    expected = bytes.fromhex(VECTORS_A.strip().split("\n\n")[number])
    assert encode(message, OFFSETS_A[number]) == expected
    stored = replace(message, properties=message.properties_bytes, sys_flag=message.stored_sys_flag)
    assert parse_record(expected) == (OFFSETS_A[number], stored)


def test_version_2_has_a_two_byte_topic_length() -> None:
    long_topic = Message(topic="t" * 200, magic=0xDAA320AB, body=b"")
    record = encode(long_topic, 0)
    assert len(record) == 91 + 1 + 200
    assert record[4:12] == bytes.fromhex("daa320ab00000000")
    assert record[88:90] == (200).to_bytes(2, "big")
    with pytest.raises(struct.error):
        encode(replace(long_topic, magic=0xDAA320A7), 0)


def test_hosts_set_their_own_sys_flag_bit_and_width() -> None:
    v4 = Message(sys_flag=0x10)
    assert v4.stored_sys_flag == 0
    v6 = replace(v4, born_host=("::1", 1), store_host=("::2", 2), sys_flag=0x8)
    assert v6.stored_sys_flag == 0x38
    assert len(encode(v6, 0)) == len(encode(v4, 0)) + 24


# --- the segment files -----------------------------------------------------------------------------------


def batch_of(message: Message) -> tuple[object, ...]:
    """Equal for the records of one client batch: only they keep WAIT; they share queue, host and times."""
    batch = (message.topic, message.queue_id, message.born_host, message.born_timestamp, message.store_timestamp)
    return batch if b"WAIT\x01" in message.properties_bytes else (id(message),)


@pytest.mark.parametrize("name", GOLDEN + LIVE)
def test_the_writer_lays_out_a_brokers_log(name: str, tmp_path: Path) -> None:
    """Every record of a real log, appended again with queue offsets counted again, makes the same files."""
    known = facts(name)
    records = records_of(name)
    assert len(records) == known["totalMessages"]
    assert Counter(message.topic for _, message, _ in records) == known["messagesPerTopic"]
    expected = {at: data for at, data in segments(archive(name)).items() if any(data)}
    first = {}
    for _, message, _ in reversed(records):
        first[message.topic, message.queue_id] = message.queue_offset or 0
    size, start = known["brokerConf"]["mappedFileSizeCommitLog"], known["minOffset"]
    with CommitLogWriter(tmp_path, size, start_offset=start, first_queue_offsets=first) as writer:
        for _, batch in itertools.groupby((message for _, message, _ in records), key=batch_of):
            writer.append_batch([replace(message, queue_offset=None) for message in batch])
    assert writer.records == records
    assert writer.max_offset == known["maxOffset"]
    assert {int(path.name): path.read_bytes() for path in sorted(tmp_path.iterdir())} == expected


def test_roll_over_of_store_b(tmp_path: Path) -> None:
    with CommitLogWriter(tmp_path, 4096) as writer:
        for i, (_, stored, _) in enumerate(records_of("golden-b")):
            properties = {"KEYS": f"key{i}", "UNIQ_KEY": f"UQ{i}", "TAGS": f"TAG{i % 3}"}
            writer.append(replace(stored, queue_offset=None, body=b"x" * 500, properties=properties))
    expected = [0, 629, 1258, 1887, 2516, 3145, 4096, 4725, 5354, 5983, 6612, 7243]
    assert [record.physical_offset for record in writer.records] == expected
    first, second = (path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert first[3774:] == bytes.fromhex("00000142cbd43194") + bytes(314)
    assert second == segments(archive("golden-b"))[4096]


@pytest.mark.parametrize(("size", "expected"), [(314, 3774), (315, 4096)])
def test_blank_boundary(size: int, expected: int, tmp_path: Path) -> None:
    """322 bytes are left: a record and 8 bytes more must fit."""
    with CommitLogWriter(tmp_path, 4096) as writer:
        writer.append_raw(b"\x01" * 3774)
        message = Message(topic="T", body=b"b" * (size - 92))
        assert writer.append(message) == expected
        assert writer.records[0].msg_size == size
        writer.append(message)
    blank_at = 4088 if expected == 3774 else 3774
    first = (tmp_path / f"{0:020d}").read_bytes()
    assert first[blank_at : blank_at + 8] == struct.pack(">iI", 4096 - blank_at, 0xCBD43194)
    assert not any(first[blank_at + 8 :])


def test_a_batch_rolls_as_a_whole(tmp_path: Path) -> None:
    with CommitLogWriter(tmp_path, 4096) as writer:
        writer.append_raw(b"\x01" * 3774)
        assert writer.append_batch([Message(body=bytes(100))] * 2) == [4096, 4096 + 200]
        assert writer.next_queue_offset("TopicTest", 0) == 2


def test_a_record_that_never_fits_leaves_blank_segments(tmp_path: Path) -> None:
    with CommitLogWriter(tmp_path, 4096, start_offset=8192) as writer:
        with pytest.raises(ValueError, match="never fit"):
            writer.append(Message(body=bytes(4096)))
        assert writer.append(Message()) == 16384
    blank = struct.pack(">iI", 4096, 0xCBD43194) + bytes(4088)
    assert [path.read_bytes() == blank for path in sorted(tmp_path.iterdir())] == [True, True, False]


def test_a_torn_record_is_completed_in_place(tmp_path: Path) -> None:
    message = Message(body=b"torn")
    whole = encode(replace(message, queue_offset=1), 4096)
    with CommitLogWriter(tmp_path, 4096, preallocate=True) as writer:
        writer.append(message)
        writer.append_raw(bytes(3900))
        assert writer.append_torn(message, 90) == 4096
        second = tmp_path / f"{4096:020d}"
        assert second.read_bytes() == whole[:90].ljust(4096, b"\x00")
        assert not any((tmp_path / f"{8192:020d}").read_bytes())
        assert writer.max_offset == 4096
        assert writer.append(message) == 4096
        assert second.read_bytes() == whole.ljust(4096, b"\x00")


def test_write_store_names_the_store(tmp_path: Path) -> None:
    records = write_store(tmp_path, [Message()] * 3, 4096, start_offset=4096, broker_conf={"maxIndexNum": 8})
    assert [record.message.queue_offset for record in records] == [0, 1, 2]
    assert list(read_log(segments(written(tmp_path)))) == [
        record._replace(message=replace(record.message, properties=b"")) for record in records
    ]
    assert (tmp_path / "broker.conf").read_text(encoding="utf-8") == (
        "storePathRootDir=.\nstorePathCommitLog=commitlog\nmappedFileSizeCommitLog=4096\nmaxIndexNum=8\n"
    )


# --- the model -------------------------------------------------------------------------------------------

#: v4-expired itself holds what its log no longer does; v4-killed was dispatched live, up to the kill.
DISPATCHED = [*GOLDEN, *(name for name in LIVE if name != "v4-expired")]


@pytest.mark.parametrize("name", DISPATCHED)
def test_model_equals_the_brokers_consume_queues(name: str) -> None:
    queues = consume_queue_files(records_of(name), settings_of(name))
    expected = {path: data for path, data in archive(name).items() if path.startswith("consumequeue/")}
    assert expected == {
        f"consumequeue/{topic}/{queue_id}/{offset:020d}": content
        for (topic, queue_id), files in queues.items()
        for offset, content in files.items()
    }


@pytest.mark.parametrize("name", DISPATCHED)
def test_model_equals_the_brokers_index_files(name: str) -> None:
    expected = [data for path, data in sorted(archive(name).items()) if path.startswith("index/")]
    assert index_file_contents(records_of(name), settings_of(name)) == expected


ZERO = (0, 0, 0)
PRE_BLANK = (0, 0x7FFFFFFF, 0)


@pytest.mark.parametrize(
    ("placed", "expected"),
    [
        ([(0, 0), (0, 1)], {0: [(0, 100, 0), ZERO, ZERO]}),  # (A) not beyond the last one
        ([(0, 4)], {60: [PRE_BLANK, (0, 100, 0), ZERO]}),  # (C) begins in the middle
        ([(0, 3)], {60: [(0, 100, 0), ZERO, ZERO]}),  # (C) on a file's first unit
        ([(0, 0), (100, 1), (200, 1)], {0: [(0, 100, 0), (100, 100, 0), ZERO]}),  # (D) repeated
        ([(0, 0), (100, 5), (200, 1)], {0: [(0, 100, 0), (100, 100, 0), ZERO]}),  # (E) gap, then (D)
        ([(0, 0), (100, 5), (200, 0)], {0: [(0, 100, 0), (100, 100, 0), (200, 100, 0)]}),  # 0 is unchecked
        ([(0, 0), (100, 1), (200, 2), (300, 1)], {0: [(at, 100, 0) for at in (0, 100, 200)], 60: [ZERO] * 3}),
    ],
)
def test_model_follows_each_queue_rule(
    placed: list[tuple[int, int]], expected: dict[int, list[tuple[int, ...]]]
) -> None:
    """The units of files of 3 units, from (physical offset, queue offset) of 100-byte records."""
    records = [(physical, Message(queue_offset=queue_offset), 100) for physical, queue_offset in placed]
    (files,) = consume_queue_files(records, Settings(mapped_file_size_consume_queue=55)).values()
    assert {at: list(struct.iter_unpack(">qiq", content)) for at, content in files.items()} == expected


def test_model_gives_the_index_files_of_the_reference() -> None:
    index_file = IndexFile(max_hash_slot_num=5, max_index_num=4)
    puts = [("T#a", 100, 1000000000000), ("T#b", 200, 1000000001500), ("T#a", 300, 1000000003000)]
    assert [index_file.put_key(*put) for put in [*puts, ("T#c", 400, 1)]] == [True, True, True, False]
    assert index_file.to_bytes() == bytes.fromhex(
        "000000E8D4A51000 000000E8D4A51BB8 0000000000000064 000000000000012C 00000002 00000004"
        "00000000 00000003 00000002 00000000 00000000" + "00" * 20 + "00013FF2 0000000000000064 00000000 00000000"
        "00013FF3 00000000000000C8 00000001 00000000 00013FF2 000000000000012C 00000003 00000001"
    )


def test_model_inherits_into_the_next_file_and_leaves_it_without_a_count() -> None:
    keys = [("a", 1000000000000), ("b", 1000000001500), ("a", 1000000003000), ("", 0), ("a", 1000000008000)]
    records = [
        (100 * i, Message("T", properties={"KEYS": key}, store_timestamp=time), 100)
        for i, (key, time) in enumerate(keys)
    ]
    settings = Settings(max_hash_slot_num=5, max_index_num=4)
    assert len(index_file_contents(records[:3], settings)) == 1
    empty = index_file_contents(records[:4], settings)[1]
    inherited = struct.pack(">qqqqii", 1000000003000, 1000000003000, 200, 200, 0, 0)
    assert empty == inherited.ljust(140, b"\x00")
    second = index_file_contents(records, settings)[1]
    assert struct.unpack_from(">qqqqii", second) == (1000000008000, 1000000008000, 400, 400, 1, 2)
    assert struct.unpack_from(">iqii", second, 40 + 20 + 20) == (0x13FF2, 400, 5, 0)


def test_model_knows_javas_strings() -> None:
    hashes = {"TagA||TagB": 1789476431, "中文": 646394, "😀": 1772899, "polygenelubricants": -(2**31)}
    assert {text: java_hash(text) for text in hashes} == hashes
    assert java_string(b"a\xed\xa0\x80b\xff\xed\xa0") == "a\ufffdb\ufffd\ufffd"


# --- make_log --------------------------------------------------------------------------------------------

SHAPES = {
    "default": (2000, 65536, {}),
    "few": (7, 4096, {"--body-bytes": "100", "--queues": "1"}),
    "wide": (2000, 1 << 20, {"--ipv6": "", "--non-ascii": "", "--keys": "10", "--queues": "10000", "--topics": "9"}),
    "large": (300, 1 << 20, {"--body-bytes": "65536", "--keys": "0", "--queues": "3", "--seed": "7"}),
    "repeated": (40000, 10_000_000, {"--body-bytes": "100", "--queues": "5", "--topics": "2"}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_make_log_writes_what_the_writer_writes(shape: str, tmp_path: Path) -> None:
    """Parsed, and appended again with offsets, counts and CRCs computed again, the log has the same files."""
    messages, mapped_file_size, options = SHAPES[shape]
    command = [sys.executable, str(TESTS / "benchmarks" / "make_log.py"), "--store", str(tmp_path / "made")]
    command += ["--messages", str(messages), "--mapped-file-size", str(mapped_file_size)]
    command += [word for option in options.items() for word in option if word]
    assert f"{messages:,} messages" in subprocess.run(command, check=True, capture_output=True, text=True).stdout

    made = written(tmp_path / "made")
    records = list(read_log(segments(made)))
    assert len(records) == messages
    again = [replace(message, queue_offset=None) for _, message, _ in records]
    assert write_store(tmp_path / "again", again, mapped_file_size) == records
    assert written(tmp_path / "again") == made
    check_variety([message for _, message, _ in records], options)


def check_variety(messages: list[Message], options: Mapping[str, str]) -> None:
    properties = [dict(item.split(b"\x01") for item in m.properties_bytes.split(b"\x02")) for m in messages]
    keys = [key for found in properties for key in found.get(b"KEYS", b"").split()]
    assert len(keys) == len(set(keys)) == len(messages) * int(options.get("--keys", "1"))
    assert len({found[b"UNIQ_KEY"] for found in properties}) == len(messages)
    times = [message.store_timestamp for message in messages]
    assert times == sorted(times)
    queues = {(message.topic, message.queue_id) for message in messages}
    assert len(queues) <= int(options.get("--queues", "64"))
    body_bytes = int(options.get("--body-bytes", "380"))
    assert all(abs(len(message.body) - body_bytes) <= body_bytes / 4 + 1 for message in messages)
    if len(messages) >= 1000:
        assert len({found[b"TAGS"] for found in properties}) >= 6
        assert len(queues) >= min(int(options.get("--queues", "64")), 1000)
    assert any(message.sys_flag == 0x30 for message in messages) == ("--ipv6" in options)
    assert any(not key.isascii() for key in keys) == ("--non-ascii" in options)
