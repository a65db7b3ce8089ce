"""Decoded records as Arrow columns: each value is the one that the record's `Message` has."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.decoders import DELAYS_MS
from support.logs import ORIGINS, SHAPES, load_log, log_bytes, varied_messages
from support.message_row import TYPES, YEAR_1, YEAR_10000, micros, row_of
from support.record_writer import Message, encode

from reput.source.errors import CorruptRecordError
from reput.source.kernels.batch_decoder import RecordColumns, decode_records
from reput.source.log.offset_range import OffsetRange
from reput.source.options import SourceOptions
from reput.source.record.message_properties import parse_int, split_keys
from reput.source.rows.message_rows import message_batch, read_messages
from reput.source.rows.message_schema import MESSAGE_SCHEMA, message_schema


def columns_of(messages: Iterable[Message], offset: int = 0, data: bytes | None = None) -> RecordColumns:
    """The records as the decoder gives them; `data` replaces their bytes."""
    log = log_bytes(messages, offset)[0] if data is None else data
    buffer = np.frombuffer(bytearray(log), np.uint8)
    decoded = decode_records(
        buffer, 0, len(log), offset, offset + len(log), check_crc=True, delays_ms=np.array(DELAYS_MS, np.int64)
    )
    assert decoded.stop_at == len(log)
    return decoded.columns


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The batch's rows, after Arrow's own check; times as microseconds, properties sorted."""
    batch.validate(full=True)
    assert [field.name for field in batch.schema if not field.nullable and batch[field.name].null_count] == []
    for name in ("store_time", "born_time", "deliver_time"):
        index = batch.schema.get_field_index(name)
        batch = batch.set_column(index, name, batch[name].cast(pa.int64()))
    return [row | {"properties": sorted(row["properties"])} for row in batch.to_pylist()]


def check(messages: Iterable[Message], offset: int = 0) -> list[dict[str, Any]]:
    """Assert that columns and messages say the same; returns the rows."""
    columns = columns_of(messages, offset)
    expected = [row_of(message) for message in columns.messages()]
    batch = message_batch(columns)
    assert batch.schema.equals(MESSAGE_SCHEMA)
    rows = rows_of(batch)
    assert expected == rows
    return rows


@pytest.mark.parametrize("name", SHAPES)
def test_rows_of_each_shape(name: str) -> None:
    """A record of each shape makes the row of its fields."""
    assert len(check([SHAPES[name]], 4096)) == 1


def test_rows_of_all_shapes_together() -> None:
    """Hosts of both widths, missing and malformed values side by side keep to their rows."""
    assert len(check(varied_messages(200), 2**40)) == 200


def test_rows_of_brokers_own_topics() -> None:
    """All together, and each alone, where a batch has few texts and names."""
    check(ORIGINS)
    for message in ORIGINS:
        check([message])


WORDS = st.sampled_from(
    [
        "T",
        "S",
        "%RETRY%g",
        "%RETRY%g+S",
        "%DLQ%g",
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_wheel_timer",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "17",
        "x",
        "2",
    ]
)
NAMES = ["REAL_TOPIC", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC", "DELAY", "TIMER_OUT_MS", "ORIGIN_MESSAGE_ID", "KEYS"]
NAMES += ["DLQ_ORIGIN_MESSAGE_ID", "PGROUP", "UNIQ_KEY", "__transactionId__", "__BORNHOST"]


@given(st.lists(st.tuples(WORDS, st.dictionaries(st.sampled_from(NAMES), WORDS)), max_size=12))
def test_rows_of_any_origin(messages: list[tuple[str, dict[str, str]]]) -> None:
    """The rules for many rows are those for one message, whatever its properties claim."""
    for _, properties in messages:
        if properties.get("DELAY", "0") not in ("17", "2"):  # else no broker stores it
            properties.pop("DELAY", None)
    check([Message(topic, properties=properties) for topic, properties in messages])


def test_no_rows() -> None:
    """No records make a batch of no rows."""
    assert check([]) == []


def test_extreme_numbers() -> None:
    """Every integer comes with its sign, and the message id has a negative port's bits."""
    low, high = -(2**31), 2**63 - 1
    message = Message(queue_id=low, flag=low, queue_offset=high, reconsume_times=low, prepared_transaction_offset=-high)
    (row,) = check([replace(message, store_host=("0.0.0.0", -1), born_host=("255.255.255.255", low))])
    assert (row["msg_id"], row["born_host"]) == ("00000000FFFFFFFF" + "0" * 16, "255.255.255.255:-2147483648")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (("127.0.0.1", 10_911), "7F00000100002A9F0000011F71FB04CB"),
        (("1050::5:600:300c:326b", 10_911), "105000000000000000050600300C326B00002A9F0000011F71FB04CB"),
    ],
)
def test_message_ids_of_the_reference(host: tuple[str, int], expected: str) -> None:
    """The offset message id is upper-case hex: 32 digits with an IPv4 host, 56 with an IPv6 one."""
    (row,) = check([Message(store_host=host)], 0x11F71FB04CB)
    assert expected == row["msg_id"]


@pytest.mark.parametrize("sys_flag", [0x0, 0x4, 0x8, 0xC, -1 & ~0x30, 0x7F3])
def test_transaction_types(sys_flag: int) -> None:
    """The two bits have a name, whatever the others are."""
    (row,) = check([Message(sys_flag=sys_flag)])
    assert TYPES[sys_flag & 0xC] == row["transaction_type"]


@pytest.mark.parametrize("time", [0, 1, -1, YEAR_1, YEAR_1 - 1, YEAR_10000 - 1, YEAR_10000, 2**63 - 1, -(2**63)])
def test_times_that_sql_has_no_word_for_are_null(time: int) -> None:
    """Times of the years 1 to 9999 come to the millisecond, others are null."""
    (row,) = check([Message(store_timestamp=time, born_timestamp=time)])
    assert (micros(time), micros(time)) == (row["store_time"], row["born_time"])


@pytest.mark.parametrize("level", ["3", "+3", "-1", "x", " 3", "2147483648", "\uff13", "\u00b2"])
def test_integers_in_properties(level: str) -> None:
    """DELAY and REAL_QID are integers where Java reads one, else null; the property keeps its text."""
    (row,) = check([Message(properties={"DELAY": level, "REAL_QID": level, "REAL_TOPIC": "A"})])
    assert (parse_int(level), parse_int(level)) == (row["delay_level"], row["real_queue_id"])


@pytest.mark.parametrize("keys", ["", " ", "k1 k2", " k3  k4 ", "k k", "ä 😀", "a\tb", " ".join(map(str, range(500)))])
def test_keys_are_lists(keys: str) -> None:
    """One element a key in the order of the text, none without keys."""
    rows = check([Message(properties={"KEYS": keys}), Message(), Message(properties={"KEYS": keys})])
    assert [split_keys(keys), [], split_keys(keys)] == [row["keys"] for row in rows]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 18, 31, 32, 33, 100, 1200])
@pytest.mark.parametrize("repeated", [False, True])
def test_many_properties(count: int, repeated: bool) -> None:
    """A record may have any number of properties; each name appears once, with its last value."""
    names = [f"n{i:x}" for i in range(count)]
    names += random.Random(count).choices(names, k=count) if repeated else []
    text = "\x02".join(f"{name}\x01{i}" for i, name in enumerate(names))
    other = Message(properties={"n0": "other", "TAGS": "T"})
    (_, row, _) = check([other, Message(properties=text.encode()), other])
    assert count == len(row["properties"])


@pytest.mark.parametrize("name", ["a", "n5", "n15", "n16"])
def test_as_many_properties_as_fit(name: str) -> None:
    """The smallest property repeated to the end of the text, with and without room left in a short list of names."""
    first = "".join(f"n{i}\x01{i}\x02" for i in range(16))
    text = first + f"{name}\x01v\x02" * ((32_767 - len(first)) // (len(name) + 3))
    check([Message(properties=text.encode())])


@pytest.mark.parametrize(
    "malformed",
    [
        b"TAGS\x01\xff\x02KEYS\x01a\xed\xa0\x80 \xe4\xb8 b\x02UNIQ_KEY\x01\xf0\x9f\x98\x02REAL_TOPIC\x01\xc0\xaf",
        b"n\xff\x01v\xff\x02KEYS\x01\xff \xff",
        b"TAGS\x01\xed\xa0\x02KEYS\x01\xe4",
    ],
)
def test_malformed_text_reads_as_in_java(malformed: bytes) -> None:
    """Malformed bytes in any text column become U+FFFD, and the rows round it keep theirs."""
    sound = Message(properties={"TAGS": "中", "KEYS": "ä b"})
    topic = bytearray(encode(Message(topic="Topic", body=b""), 0))
    topic[89:94] = b"T\xed\xa0\x80\xff"
    log = bytes(topic) + log_bytes([sound, Message(properties=malformed), sound], len(topic))[0]
    columns = columns_of([], data=log)
    rows = rows_of(message_batch(columns))
    assert [row_of(message) for message in columns.messages()] == rows
    assert "T\ufffd\ufffd" == rows[0]["topic"]


@pytest.mark.parametrize("names", [(b"\xff", b"\xfe"), (b"\xed\xa0", b"\xef\xbf\xbd"), (b"a\xff", b"b", b"a\xfe")])
def test_names_that_decode_alike_are_one(names: tuple[bytes, ...]) -> None:
    """A map has no name twice, even where only the malformed bytes of two differ: the last value wins."""
    check([Message(properties=b"\x02".join(b"%s\x01%d" % (name, i) for i, name in enumerate(names)))])


@given(st.lists(st.tuples(st.integers(1, 26), st.integers(0, 26), st.sampled_from("ab")), min_size=1, max_size=12))
def test_names_are_told_apart_in_each_byte(names: list[tuple[int, int, str]]) -> None:
    """Texts of any length that differ in length or one byte only, before and at the end of the buffer."""
    texts = [("x" * size)[:at] + char + ("x" * size)[at + 1 :] for size, at, char in names]
    properties = "\x02".join(f"{text}\x01{text}{i}" for i, text in enumerate(texts))
    check([Message(topic=text, properties={"TAGS": text, "KEYS": " ".join(texts)}) for text in texts])
    check([Message(topic=text, properties=properties.encode()) for text in texts])


PIECES = [
    b"\x01",
    b"\x02",
    b"\x02",
    b"a",
    b"b",
    b"KEYS\x01",
    b"TAGS\x01",
    b" ",
    b"\xc3\xa4",
    b"\x02a\x01",
    b"\x02REAL_QID\x01",
]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join), max_size=5))
def test_rows_of_any_properties(texts: list[bytes]) -> None:
    """Whatever the order of separators, columns and messages agree."""
    check([Message(properties=text) for text in texts])


def test_the_batch_outlives_the_buffer() -> None:
    """A batch copies what it needs: the buffer is read into again."""
    columns = columns_of(varied_messages(50))
    batch = message_batch(columns)
    expected = rows_of(batch)
    columns.data[:] = 0xFF
    for array in (columns.parts, columns.spans):
        array[:] = 0
    assert expected == rows_of(batch)


@pytest.mark.parametrize("include_body", [False, True])
def test_read_messages(include_body: bool, tmp_path: Path) -> None:
    """A range's rows have the body as stored, on request."""
    queue, records = load_log(tmp_path, [*varied_messages(5), Message(body=b"")])
    options = SourceOptions.parse({"path": str(tmp_path), "includeBody": str(include_body)})
    span = OffsetRange(records[1].physical_offset, queue.files[0].end, queue.files[0])
    with pytest.raises(StopIteration):
        next(read_messages(replace(span, end=span.start), options))
    end = records[-1].physical_offset + records[-1].msg_size
    batches = list(read_messages(replace(span, end=end), options))
    assert all(batch.schema.equals(message_schema(include_body=include_body)) for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [record.physical_offset for record in records[1:]] == [row["physical_offset"] for row in rows]
    expected = [record.message.body if include_body else None for record in records[1:]]
    assert expected == [row.get("body") for row in rows]


@pytest.mark.parametrize(("check_crc", "fails"), [("all", True), ("tail", False), ("none", False)])
def test_read_messages_checks_bodies_on_request(check_crc: str, fails: bool, tmp_path: Path) -> None:
    """Only checkCrc=all reads every body's checksum."""
    queue, records = load_log(tmp_path, [Message(body_crc=1)] * 2)
    options = SourceOptions.parse({"path": str(tmp_path), "checkCrc": check_crc})
    span = OffsetRange(0, 2 * records[0].msg_size, queue.files[0])
    rows = read_messages(span, options)
    if fails:
        with pytest.raises(CorruptRecordError, match="BAD_CRC"):
            list(rows)
    else:
        assert sum(batch.num_rows for batch in rows) == 2
