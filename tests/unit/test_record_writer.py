"""The writer, the model and make_log against bytes that brokers left behind."""

from __future__ import annotations

import functools
import ipaddress
import itertools
import json
import struct
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model import IndexFile, Settings, consume_queue_files, index_file_contents, java_hash, java_string
from record_writer import CommitLogWriter, Message, StoredRecord, encode, write_store

TESTS = Path(__file__).parents[1]
GOLDEN = ["golden-a", "golden-b"]
LIVE = ["v4-plain", "v4-tx-delay-retry", "v4-killed", "v4-killed-rebuilt", "v4-expired", "v4-expired-rebuilt"]

# --- reading archives and records, by a parser of the tests' own ------------------------------------------

Files = Mapping[str, bytes]


@functools.cache
def archive(name: str) -> Files:
    """Every file below the archive's ``store/``, by its relative path."""
    with tarfile.open(TESTS / "data" / f"{name}.tar.gz") as tar:
        contents = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        prefix = f"{name}/store/"
        return {path.removeprefix(prefix): content.read() for path, content in contents.items() if content}


def facts(name: str) -> dict[str, Any]:
    """What is known of an archive beside its bytes."""
    known: dict[str, Any] = json.loads((TESTS / "data" / f"{name}.json").read_text(encoding="utf-8"))
    return known


def settings_of(name: str) -> Settings:
    conf = facts(name)["brokerConf"]
    return Settings(conf["mappedFileSizeConsumeQueue"], conf["maxHashSlotNum"], conf["maxIndexNum"])


class Fields:
    """Takes field after field from a record."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def host(self, *, v6: bool) -> tuple[str, int]:
        return str(ipaddress.ip_address(self.take(16 if v6 else 4))), self.number(4)


def parse(record: bytes) -> tuple[int, Message]:
    """A record's own physical offset and its message; the body CRC is left for ``encode`` to compute."""
    fields = Fields(record)
    fields.take(12)
    queue_id, flag, queue_offset = fields.number(4), fields.number(4), fields.number(8)
    physical_offset, sys_flag = fields.number(8), fields.number(4)
    message = Message(
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        born_timestamp=fields.number(8),
        born_host=fields.host(v6=bool(sys_flag & 0x10)),
        store_timestamp=fields.number(8),
        store_host=fields.host(v6=bool(sys_flag & 0x20)),
        reconsume_times=fields.number(4),
        prepared_transaction_offset=fields.number(8),
        body=fields.take(fields.number(4)),
        topic=fields.take(fields.number(1)).decode(),
        properties=fields.take(fields.number(2)),
    )
    assert fields.at == len(record)
    return physical_offset, message


def segments(files: Files) -> dict[int, bytes]:
    return {int(path[10:]): data for path, data in sorted(files.items()) if path.startswith("commitlog/")}


def read_log(files: Files) -> Iterator[StoredRecord]:
    """Every record up to the zeros, blanks checked on the way."""
    for from_offset, segment in segments(files).items():
        at = 0
        while (size := int.from_bytes(segment[at : at + 4], "big")) and segment[at + 4] != 0xCB:
            physical_offset, message = parse(segment[at : at + size])
            assert physical_offset == from_offset + at
            yield StoredRecord(physical_offset, message, size)
            at += size
        assert size in {0, len(segment) - at}


@functools.cache
def records_of(name: str) -> list[StoredRecord]:
    return list(read_log(archive(name)))


def written(store: Path) -> dict[str, bytes]:
    """The files of a store directory, as `archive` gives them."""
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


# --- encode ----------------------------------------------------------------------------------------------

T0 = 0x1A1FB8215C9
T1 = 0x1A1FB821824
IN_A = Message("TopicA", flag=7, born_timestamp=0x174876E8000, born_host=("10.1.2.3", 1234))
BATCH_A = replace(
    IN_A, flag=0, born_timestamp=0x174876E8001, born_host=("10.1.2.3", 1), store_timestamp=T1 + 7
)


def in_a(body: bytes, millis: int, **fields: Any) -> Message:
    return replace(IN_A, body=body, store_timestamp=T1 + millis, **fields)


def keyed(keys: str, uniq_key: str) -> dict[str, str]:
    return {"KEYS": keys, "UNIQ_KEY": uniq_key, "TAGS": "T"}


def batched(keys: str) -> dict[str, str]:
    return {"KEYS": keys, "WAIT": "true", "TAGS": "BT", "BATCHP": "v"}


DELAYED = {"REAL_TOPIC": "TopicB", "UNIQ_KEY": "U2", "DELAY": "3", "TAGS": "T", "REAL_QID": "0"}
V6_HOST = ("1050::5:600:300c:326b", 1234)
MESSAGES_A = [
    replace(
        IN_A,
        body=b"hello",
        store_timestamp=T0,
        properties={"KEYS": "k1 k2", "UNIQ_KEY": f"7F000001{1:022d}", "TAGS": "TAG1"},
    ),
    in_a(b"world", 0, queue_id=1),
    in_a(b"v6", 1, born_host=V6_HOST, properties={"KEYS": " k3  k4 ", "TAGS": "中文"}),
    in_a(b"delay", 2, topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=DELAYED),
    in_a(b"prep", 2, topic="HALF", sys_flag=0x4, properties=keyed("kp", "U3")),
    in_a(b"commit", 2, sys_flag=0x8, properties=keyed("kc", "U4")),
    in_a(b"roll", 2, sys_flag=0xC, properties=keyed("kr", "U5")),
    replace(BATCH_A, body=b"b0", properties=batched("bk0")),
    replace(BATCH_A, body=b"b1", properties=batched("bk1")),
    replace(BATCH_A, body=b"nb", properties={"BATCHP": "v"}),
]
#: Each record's hex, as the reference of the store format gives it.
VECTORS_A = """
000000a2daa320a73610a6860000000000000007000000000000000000000000000000000000000000000174876e8000
0a010203000004d2000001a1fb8215c97f00000100002a9f0000000000000000000000000000000568656c6c6f06546f
70696341003c4b455953016b31206b3202554e49515f4b45590137463030303030313030303030303030303030303030
303030303030303102544147530154414731

00000066daa320a73a7711430000000100000007000000000000000000000000000000a20000000000000174876e8000
0a010203000004d2000001a1fb8218247f00000100002a9f00000000000000000000000000000005776f726c6406546f
706963410000

00000088daa320a7770659160000000000000007000000000000000100000000000001080000001000000174876e8000
105000000000000000050600300c326b000004d2000001a1fb8218257f00000100002a9f000000000000000000000000
00000002763606546f7069634100194b45595301206b3320206b3420025441475301e4b8ade69687

000000aadaa320a7329a809b0000000200000007000000000000000000000000000001900000000000000174876e8000
0a010203000004d2000001a1fb8218267f00000100002a9f0000000000000000000000000000000564656c6179135343
484544554c455f544f5049435f5858585800375245414c5f544f50494301546f7069634202554e49515f4b4559015532
0244454c4159013302544147530154025245414c5f5149440130

0000007ddaa320a755812d6000000000000000070000000000000000000000000000023a0000000400000174876e8000
0a010203000004d2000001a1fb8218267f00000100002a9f00000000000000000000000000000004707265700448414c
46001a4b455953016b7002554e49515f4b455901553302544147530154

00000081daa320a74ed42ead0000000000000007000000000000000200000000000002b70000000800000174876e8000
0a010203000004d2000001a1fb8218267f00000100002a9f00000000000000000000000000000006636f6d6d69740654
6f70696341001a4b455953016b6302554e49515f4b455901553402544147530154

0000007fdaa320a72eb532ce0000000000000007000000000000000000000000000003380000000c00000174876e8000
0a010203000004d2000001a1fb8218267f00000100002a9f00000000000000000000000000000004726f6c6c06546f70
696341001a4b455953016b7202554e49515f4b455901553502544147530154

00000086daa320a730cb2b760000000000000000000000000000000300000000000003b70000000000000174876e8001
0a01020300000001000001a1fb82182b7f00000100002a9f00000000000000000000000000000002623006546f706963
4100234b45595301626b30025741495401747275650254414753014254024241544348500176

00000086daa320a747cc1be000000000000000000000000000000004000000000000043d0000000000000174876e8001
0a01020300000001000001a1fb82182b7f00000100002a9f00000000000000000000000000000002623106546f706963
4100234b45595301626b31025741495401747275650254414753014254024241544348500176

0000006bdaa320a7191b54a20000000000000000000000000000000500000000000004c30000000000000174876e8001
0a01020300000001000001a1fb82182b7f00000100002a9f000000000000000000000000000000026e6206546f706963
4100084241544348500176
"""
OFFSETS_A = [0, 162, 264, 400, 570, 695, 824, 951, 1085, 1219]
QUEUE_OFFSETS_A = [0, 0, 1, 0, 0, 2, 0, 3, 4, 5]


@pytest.mark.parametrize("number", range(10))
def test_encode_gives_the_brokers_bytes(number: int) -> None:
    message = replace(MESSAGES_A[number], queue_offset=QUEUE_OFFSETS_A[number])
    expected = bytes.fromhex(VECTORS_A.strip().split("\n\n")[number])
    assert encode(message, OFFSETS_A[number]) == expected
    assert parse(expected) == (
        OFFSETS_A[number],
        replace(message, properties=message.properties_bytes, sys_flag=message.stored_sys_flag),
    )


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


@pytest.mark.parametrize("name", GOLDEN + LIVE)
def test_the_writer_lays_out_a_brokers_log(name: str, tmp_path: Path) -> None:
    """Every record of a real log, appended again and queue offsets counted anew, makes the same files."""
    known = facts(name)
    records = records_of(name)
    expected = {at: data for at, data in segments(archive(name)).items() if any(data)}
    first = {}
    for _, message, _ in reversed(records):
        first[message.topic, message.queue_id] = message.queue_offset or 0
    with CommitLogWriter(
        tmp_path,
        known["brokerConf"]["mappedFileSizeCommitLog"],
        start_offset=known["minOffset"],
        first_queue_offsets=first,
    ) as writer:
        for _, message, _ in records:
            writer.append(replace(message, queue_offset=None))
    assert writer.records == records
    assert writer.max_offset == known["maxOffset"]
    assert {int(path.name): path.read_bytes() for path in sorted(tmp_path.iterdir())} == expected


@pytest.mark.parametrize("name", GOLDEN + LIVE)
def test_the_facts_of_an_archive_are_those_of_its_log(name: str) -> None:
    known = facts(name)
    assert Counter(message.topic for _, message, _ in records_of(name)) == known["messagesPerTopic"]
    assert len(records_of(name)) == known["totalMessages"]


def test_roll_over_of_store_b(tmp_path: Path) -> None:
    golden = records_of("golden-b")
    with CommitLogWriter(tmp_path, 4096) as writer:
        for i, (_, stored, _) in enumerate(golden):
            properties = {"KEYS": f"key{i}", "UNIQ_KEY": f"UQ{i}", "TAGS": f"TAG{i % 3}"}
            writer.append(replace(stored, queue_offset=None, body=b"x" * 500, properties=properties))
    expected = [0, 629, 1258, 1887, 2516, 3145, 4096, 4725, 5354, 5983, 6612, 7243]
    assert [record.physical_offset for record in writer.records] == expected
    blank = (tmp_path / f"{0:020d}").read_bytes()[3774:]
    assert blank == bytes.fromhex("00000142cbd43194") + bytes(314)
    assert segments(archive("golden-b"))[4096] == (tmp_path / f"{4096:020d}").read_bytes()


def fill_to_3774(writer: CommitLogWriter) -> None:
    writer.append_raw(b"\x01" * 3774)


@pytest.mark.parametrize(("size", "expected"), [(314, 3774), (315, 4096)])
def test_blank_boundary(size: int, expected: int, tmp_path: Path) -> None:
    """322 bytes are left: a record and 8 bytes more must fit."""
    with CommitLogWriter(tmp_path, 4096) as writer:
        fill_to_3774(writer)
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
        fill_to_3774(writer)
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
    assert list(read_log(written(tmp_path))) == [
        record._replace(message=replace(record.message, properties=b"")) for record in records
    ]
    conf = (tmp_path / "broker.conf").read_text(encoding="utf-8").splitlines()
    assert conf[1:] == ["storePathCommitLog=commitlog", "mappedFileSizeCommitLog=4096", "maxIndexNum=8"]


# --- the model -------------------------------------------------------------------------------------------

#: v4-expired itself holds what its log no longer does; v4-killed was dispatched live, up to the kill.
DISPATCHED = [*GOLDEN, *(name for name in LIVE if name != "v4-expired")]


@pytest.mark.parametrize("name", DISPATCHED)
def test_model_equals_the_brokers_consume_queues(name: str) -> None:
    actual = {
        f"consumequeue/{topic}/{queue_id}/{offset:020d}": content
        for (topic, queue_id), files in consume_queue_files(records_of(name), settings_of(name)).items()
        for offset, content in files.items()
    }
    expected = {p: data for p, data in archive(name).items() if p.startswith("consumequeue/")}
    assert actual == expected


@pytest.mark.parametrize("name", DISPATCHED)
def test_model_equals_the_brokers_index_files(name: str) -> None:
    expected = [data for path, data in sorted(archive(name).items()) if path.startswith("index/")]
    assert index_file_contents(records_of(name), settings_of(name)) == expected
