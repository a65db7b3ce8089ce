"""The broker's own check of a record, where 4.9.3 and 5.5.0 differ and where both believe what reput does not."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.logs import WITH_PROPERTY_CRC, varied_messages
from support.record_writer import BLANK_BYTES, MAGIC_BLANK, MAGIC_V2, Message, encode

from reput.source.log.broker_check import BrokerRules, GoodRecords, OddRecord, WalkEnd, broker_walk, check_at
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.releases import Version

SIZE = 1 << 16
BEGIN = 3 * SIZE
V4 = BrokerRules(version=(4, 9, 3), check_crc=True, verifies_property_crc=False, delays_ms=(1000, 5000))
V5 = BrokerRules(version=(5, 5, 0), check_crc=True, verifies_property_crc=False, delays_ms=(1000, 5000))
BOTH = (V4, V5)


@pytest.fixture
def segment(tmp_path: Path) -> Callable[[bytes], MappedFile]:
    def make(data: bytes) -> MappedFile:
        path = tmp_path / f"{BEGIN:020d}"
        path.write_bytes(data.ljust(SIZE, b"\0"))
        return MappedFile(BEGIN, SIZE, str(path))

    return make


def with_field(record: bytes, at: int, format_: str, value: int) -> bytes:
    data = bytearray(record)
    struct.pack_into(format_, data, at, value)
    return bytes(data)


@pytest.mark.parametrize("rules", BOTH)
def test_good_records_are_walked_as_one_stretch(rules: BrokerRules, segment: Callable[[bytes], MappedFile]) -> None:
    """Up to the zeros after them; the walk's numbers are those of the records."""
    data, count = b"", 0
    for message in varied_messages(40):
        record = encode(message, BEGIN + len(data))
        if struct.unpack_from(">I", record, 4)[0] != MAGIC_V2:
            data, count = data + record, count + 1
    file = segment(data)
    good, end = broker_walk(file, BEGIN, file.end, rules)
    assert isinstance(good, GoodRecords)
    assert (good.start, good.end, good.count) == (BEGIN, BEGIN + len(data), count)
    assert isinstance(end, WalkEnd)
    assert (end.start, end.check.success, end.check.why) == (good.end, False, "nothing was written here")


@pytest.mark.parametrize("rules", BOTH)
def test_what_only_a_broker_takes(rules: BrokerRules, segment: Callable[[bytes], MappedFile]) -> None:
    """Another record's physical offset, and no topic; the walk continues after both."""
    first = encode(Message(queue_offset=7), 12_345)
    second = encode(Message(topic=""), BEGIN + len(first))
    third = encode(Message(), BEGIN + len(first) + len(second))
    file = segment(first + second + third)
    odd, other, good, _ = broker_walk(file, BEGIN, file.end, rules)
    assert isinstance(odd, OddRecord)
    assert odd.check.record is not None
    assert (odd.check.record.physical_offset, odd.check.record.queue_offset) == (12_345, 7)
    assert isinstance(other, OddRecord)
    assert other.check.record is not None
    assert other.check.record.topic == ""
    assert isinstance(good, GoodRecords)
    assert good.count == 1


@pytest.mark.parametrize(("version", "is_an_end"), [((4, 9, 3), True), ((5, 5, 0), True), ((5, 5, 1), False)])
def test_a_negative_size_with_a_blanks_magic_code(
    version: Version, is_an_end: bool, segment: Callable[[bytes], MappedFile]
) -> None:
    """It ends a segment until 5.5.1, which takes it for damage."""
    record = encode(Message(), BEGIN)
    file = segment(record + struct.pack(">iI", -8, MAGIC_BLANK))
    check = check_at(file, BEGIN + len(record), file.end, replace(V5, version=version))
    assert (check.success, check.size) == ((True, 0) if is_an_end else (False, -1))


def test_a_v2_record_ends_a_log_for_4_9_3_alone(segment: Callable[[bytes], MappedFile]) -> None:
    record = encode(Message(), BEGIN)
    file = segment(record + encode(Message(topic="T" * 200, magic=MAGIC_V2), BEGIN + len(record)))
    good, end = broker_walk(file, BEGIN, file.end, V4)
    assert isinstance(good, GoodRecords)
    assert (good.count, end.start) == (1, BEGIN + len(record))
    (good, _) = broker_walk(file, BEGIN, file.end, V5)
    assert isinstance(good, GoodRecords)
    assert good.count == 2


@pytest.mark.parametrize(("size", "is_blank_to_v5"), [(SIZE, True), (SIZE + 1, False), (-1, True), (BLANK_BYTES, True)])
def test_a_blank_too_large_ends_a_log_for_5_5_0_alone(
    size: int, is_blank_to_v5: bool, segment: Callable[[bytes], MappedFile]
) -> None:
    file = segment(struct.pack(">iI", size, MAGIC_BLANK))
    assert check_at(file, BEGIN, file.end, V4).success
    assert check_at(file, BEGIN, file.end, V5).success is is_blank_to_v5


@pytest.mark.parametrize("rules", BOTH)
def test_a_wrong_body_is_seen_by_recovery_and_not_by_a_replay(
    rules: BrokerRules, segment: Callable[[bytes], MappedFile]
) -> None:
    file = segment(encode(Message(body_crc=1), BEGIN))
    assert check_at(file, BEGIN, file.end, rules).why == "the body does not have its checksum"
    assert check_at(file, BEGIN, file.end, rules.without_crc()).success


@pytest.mark.parametrize("rules", BOTH)
@pytest.mark.parametrize(
    ("at", "format_", "value", "size"),
    [
        (0, ">i", 150, 150),  # a size that is not the sum of its parts, and is passed on
        (0, ">i", 0, -1),
        (0, ">i", -5, -1),
        (4, ">i", 12, -1),
        (84, ">i", 1 << 30, -1),  # the body's length
        (92, ">b", -1, -1),  # the topic's
    ],
)
def test_what_no_broker_takes(
    at: int, format_: str, value: int, size: int, rules: BrokerRules, segment: Callable[[bytes], MappedFile]
) -> None:
    record = with_field(encode(Message(body=b"body"), BEGIN), at, format_, value)
    file = segment(record)
    check = check_at(file, BEGIN, file.end, rules.without_crc())
    assert (check.success, check.size) == (False, size)
    # Behind wrong sizes the broker parses where the parts end.
    assert check.position == (BEGIN + len(record) if size > 0 else BEGIN)


def test_an_array_that_no_jvm_makes(segment: Callable[[bytes], MappedFile]) -> None:
    """5.5.0 compares the size with what is left first."""
    file = segment(with_field(encode(Message(), BEGIN), 0, ">i", 2**31 - 1))
    assert check_at(file, BEGIN, file.end, V4).is_fatal
    assert not check_at(file, BEGIN, file.end, V5).is_fatal


@pytest.mark.parametrize("rules", BOTH)
def test_a_level_that_is_no_number(rules: BrokerRules, segment: Callable[[bytes], MappedFile]) -> None:
    message = Message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "soon"})
    file = segment(encode(message, BEGIN))
    assert check_at(file, BEGIN, file.end, rules).why == "DELAY is not a number"


def test_the_checksum_in_the_properties(segment: Callable[[bytes], MappedFile]) -> None:
    """With ``forceVerifyPropCRC`` it counts alone: a record without one, or changed anywhere, is damaged."""
    rules = BrokerRules(version=(5, 5, 0), check_crc=True, verifies_property_crc=True, delays_ms=())
    record = encode(WITH_PROPERTY_CRC, BEGIN)
    assert zlib.crc32(record[:-20]) & 0x7FFFFFFF == int(record[-11:-1][::-1])
    file = segment(record)
    assert check_at(file, BEGIN, file.end, rules).success
    file = segment(with_field(record, 16, ">i", 9))
    assert not check_at(file, BEGIN, file.end, rules).success
    assert check_at(file, BEGIN, file.end, V5).success
    file = segment(encode(Message(), BEGIN))
    assert not check_at(file, BEGIN, file.end, rules).success
