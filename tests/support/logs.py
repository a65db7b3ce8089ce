"""Records of many shapes, as bytes and as segment files."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from support.record_writer import MAGIC_V2, Message, StoredRecord, encode, encode_entry, write_log

from reput.source.log.mapped_file_queue import MappedFileQueue

V6_BORN = ("1050::5:600:300c:326b", 1234)
V6_STORE = ("fe80::1", 10_911)

#: One record of each shape that the layout and the dispatch rules tell apart.
SHAPES = {
    "plain": Message(properties={"KEYS": "k1 k2", "UNIQ_KEY": "7F00000100002A9F", "TAGS": "TagA"}),
    "no properties": Message(topic="TopicA", body=b"world"),
    "empty body": Message(body=b"", properties={"TAGS": "T"}),
    "nothing but a topic": Message(topic="T", body=b""),
    "v6 born": Message(born_host=V6_BORN, properties={"TAGS": "TAG1", "KEYS": "a"}),
    "v6 both": Message(born_host=V6_BORN, store_host=V6_STORE, properties={"TAGS": "TAG1"}),
    "prepared": Message(
        sys_flag=0x4, topic="RMQ_SYS_TRANS_HALF_TOPIC", properties={"REAL_TOPIC": "A", "REAL_QID": "3"}
    ),
    "commit": Message(sys_flag=0x8, prepared_transaction_offset=570, properties={"UNIQ_KEY": "U4", "TAGS": "T"}),
    "rollback": Message(sys_flag=0xC, properties={"KEYS": "kr"}),
    "delayed": Message(
        topic="SCHEDULE_TOPIC_XXXX",
        queue_id=2,
        born_host=V6_BORN,
        properties={"REAL_TOPIC": "TopicB", "DELAY": "3", "TAGS": "T", "REAL_QID": "0"},
    ),
    "non-ASCII": Message(topic="主题", body="体".encode(), properties={"TAGS": "中文", "KEYS": "ä 😀", "é": "ß"}),
    "long topic": Message(
        topic="t" * 127, store_host=V6_STORE, properties=b"A\x01x\x01y\x02AA\x02\x01v\x02TAGS\x01Z\x02"
    ),
    "V2": Message(topic="%RETRY%" + "t" * 125, magic=MAGIC_V2, properties={"TAGS": "TagA", "KEYS": "k"}),
    "inner batch": Message(sys_flag=0xC0, properties={"INNER_NUM": "11", "INNER_BASE": "4294967296", "TAGS": "T"}),
}

#: A record that ends in its own checksum (5.2.0 and later).
WITH_PROPERTY_CRC = Message(properties={"KEYS": "k1 k2", "TAGS": "TagA"}, append_property_crc=True)


def log_bytes(messages: Iterable[Message], offset: int = 0) -> tuple[bytes, list[int]]:
    """The records one behind the other from `offset` on, and the offset of each."""
    log, offsets = b"", []
    for message in messages:
        offsets.append(offset + len(log))
        log += encode(message, offsets[-1])
    return log, offsets


def entry_bytes(messages: Iterable[Message], offset: int = 0) -> tuple[bytes, list[int]]:
    """The same as DLedger entries; the offsets are the entries'."""
    log, offsets = b"", []
    for number, message in enumerate(messages):
        offsets.append(offset + len(log))
        log += encode_entry(encode(message, offsets[-1] + 48), offsets[-1], number)
    return log, offsets


def varied_messages(count: int, *, body_bytes_max: int = 300, seed: int = 0) -> list[Message]:
    """Messages of all shapes with bodies of random sizes; store times rise by 10 ms."""
    rng = random.Random(seed)
    shapes = list(SHAPES.values())
    return [
        replace(
            shapes[i % len(shapes)],
            body=rng.randbytes(rng.randint(0, body_bytes_max)),
            store_timestamp=1_700_000_000_000 + 10 * i,
        )
        for i in range(count)
    ]


def load_log(
    directory: Path,
    messages: Iterable[Message],
    mapped_file_size: int = 4096,
    start_offset: int = 0,
    *,
    dledger: bool = False,
) -> tuple[MappedFileQueue, list[StoredRecord]]:
    """`write_log`; its segments, and what was stored."""
    records = write_log(directory, messages, mapped_file_size, start_offset=start_offset, dledger=dledger)
    return MappedFileQueue.load([directory], dledger=dledger), records


def put_bytes(path: str | Path, at: int, data: bytes) -> None:
    """Overwrite bytes of a file in place."""
    with Path(path).open("r+b") as file:
        file.seek(at)
        file.write(data)


def end_of(records: list[StoredRecord]) -> int:
    """The offset behind the last record."""
    return records[-1].physical_offset + records[-1].msg_size
