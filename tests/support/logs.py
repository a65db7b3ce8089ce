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

_RETRY, _HALF, _TIMER = "%RETRY%g", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"
#: Messages that a broker puts under topics of its own, and those that only look like them.
ORIGINS = [
    Message("T", properties={"RETRY_TOPIC": "no", "REAL_TOPIC": "no", "PGROUP": "p", "UNIQ_KEY": "U", "KEYS": "a b"}),
    Message("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "T", "DELAY": "1", "KEYS": "a"}),
    Message("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": _RETRY, "RETRY_TOPIC": "S", "DELAY": "3"}),
    Message("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": _RETRY, "DELAY": "0"}),
    Message("SCHEDULE_TOPIC_XXXX", properties={"TAGS": "x"}),
    Message("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "T", "DELAY": "1"}, store_timestamp=2**62),
    Message("rmq_sys_wheel_timer", properties={"REAL_TOPIC": "T", "TIMER_OUT_MS": "1700000012345"}),
    Message("rmq_sys_wheel_timer", properties={"REAL_TOPIC": _RETRY, "TIMER_OUT_MS": "+\u0661", "RETRY_TOPIC": "S"}),
    Message("rmq_sys_wheel_timer", properties={"REAL_TOPIC": "T", "TIMER_OUT_MS": "9223372036854775808"}),
    Message("rmq_sys_wheel_timer"),
    *(
        Message(_TIMER, properties={"REAL_TOPIC": "T", "TIMER_OUT_MS": out, **asked}, store_timestamp=stored)
        for stored in (1_700_000_000_000, 2**62)
        for out in ("1700000012000", str(2**63 - 1), str(-(2**63)), "0")
        for asked in (
            {"TIMER_DELIVER_MS": "1700000013000"},
            {"TIMER_DELIVER_MS": "1700000012345", "TIMER_DELAY_SEC": "x"},
            {"TIMER_DELIVER_MS": "1", "TIMER_DELAY_MS": "12500", "TIMER_ROLL_TIMES": "1"},
            {"TIMER_DELAY_MS": "7", "TIMER_DELAY_SEC": "12"},
            {"TIMER_DELAY_SEC": str(2**62)},
            {"TIMER_DEL_UNIQKEY": "U", "UNIQ_KEY": "U", "PGROUP": "p", "BORN_TIMESTAMP": "1"},
        )
    ),
    Message("T", properties={"PGROUP": "T", "__BORNHOST": "h"}),
    Message("T", properties={"PGROUP": "T", "BORN_TIMESTAMP": "1"}),
    Message("T", properties={"PGROUP": "T"}),
    Message("T", properties={"PGROUP": "p", "__BORNHOST": "h"}),
    Message(_TIMER, properties={"PGROUP": "T", "REAL_TOPIC": "T", "TIMER_DEL_UNIQKEY": "", "BORN_TIMESTAMP": "1"}),
    Message(_RETRY, properties={"PGROUP": "S", "RETRY_TOPIC": "S", "__BORNHOST": "h"}),
    Message("%DLQ%g", properties={"__BORNHOST": "h", "PGROUP": "T"}),
    Message("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", properties={"REAL_TOPIC": "T", "PGROUP": "p", "UNIQ_KEY": "U"}),
    Message(
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        properties={"__transactionId__": "I", "UNIQ_KEY": "V", "TRANS_OFFSET": "3", "REAL_TOPIC": "T"},
    ),
    Message(_HALF, properties={"REAL_TOPIC": "T", "PGROUP": "p", "UNIQ_KEY": "U"}),
    Message(_HALF, properties={"REAL_TOPIC": "T", "__transactionId__": "I", "UNIQ_KEY": "U"}),
    Message(_HALF, properties={"__transactionId__": "I"}),
    Message("RMQ_SYS_TRANS_OP_HALF_TOPIC", properties={"TAGS": "d"}),
    Message("TRANS_CHECK_MAX_TIME_TOPIC", properties={"REAL_TOPIC": "T", "UNIQ_KEY": "V"}),
    Message("T", properties={"UNIQ_KEY": "U"}, sys_flag=8, prepared_transaction_offset=7),
    Message(_RETRY, properties={"RETRY_TOPIC": "S", "ORIGIN_MESSAGE_ID": "M", "DLQ_ORIGIN_MESSAGE_ID": "N"}),
    Message(_RETRY, properties={"RETRY_TOPIC": "%RETRY%g+S", "DLQ_ORIGIN_TOPIC": "R"}),
    Message("%RETRY%g+S", properties={"DLQ_ORIGIN_MESSAGE_ID": "N"}),
    Message("%RETRY%", properties={"TAGS": "x"}),
    Message("%DLQ%g", properties={"DLQ_ORIGIN_TOPIC": "S", "RETRY_TOPIC": "SCHEDULE_TOPIC_XXXX"}),
    Message("%DLQ%g", properties={"RETRY_TOPIC": "S", "DLQ_ORIGIN_TOPIC": "R"}),
    Message("%DLQ%g"),
    Message("RMQ_SYS_TRACE_TOPIC", properties={"KEYS": "U"}),
    Message("c_REPLY_TOPIC", properties={"__BORNHOST": "10.0.0.1:80"}),
    Message("rmq_sys_REVIVE_LOG_c"),
]

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
    """Return the offset after the last record."""
    return records[-1].physical_offset + records[-1].msg_size
