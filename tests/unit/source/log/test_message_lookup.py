"""The message at an offset: good records at their own offsets, and nothing anywhere else."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.logs import SHAPES, V6_STORE, end_of, load_log, put_bytes, varied_messages
from support.record_writer import Message as Written
from support.record_writer import encode, write_log

from reput.source.errors import OptionError, StoreError
from reput.source.log.log_reader import Absence, MessageLookup
from reput.source.record.message_decoder import Message, MessageId, host_text


def found(lookup: MessageLookup, offset: int) -> Message:
    message = lookup.find(offset)
    assert isinstance(message, Message)
    return message


def absence(lookup: MessageLookup, offset: int) -> Absence:
    missing = lookup.find(offset)
    assert isinstance(missing, Absence)
    return missing


def test_every_record_at_its_offset_and_nothing_between(tmp_path: Path) -> None:
    """Each offset of a log over several segments, blanks and zeros at the end included."""
    queue, records = load_log(tmp_path, SHAPES.values(), 1024)
    lookup = MessageLookup([tmp_path])
    by_offset = {record.physical_offset: record for record in records}
    assert len(queue.files) > 1
    for offset in range(-2, queue.end_of_files + 2):
        if offset in by_offset:
            message, written = found(lookup, offset), by_offset[offset].message
            assert (message.topic, message.body, message.queue_id) == (written.topic, written.body, written.queue_id)
        else:
            assert absence(lookup, offset).offset == offset


def test_large_records_are_read_whole(tmp_path: Path) -> None:
    """Records around the size of the first read."""
    sizes = [0, 3000, 3998, 3999, 4000, 4005, 4006, 20_000]
    records = write_log(tmp_path, [Written(body=b"b" * size) for size in sizes], 1 << 16)
    lookup = MessageLookup([tmp_path])
    assert [len(found(lookup, record.physical_offset).body) for record in records] == sizes


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        (4, b"\0\0\0\1", "BAD_MAGIC"),
        (0, struct.pack(">i", 2**31 - 1), "BAD_SIZE"),
        (0, struct.pack(">i", 50_000), "BAD_LENGTH"),
        (28, struct.pack(">q", 7), "BAD_PHYSICAL_OFFSET"),
        (90, b"X", "BAD_CRC"),
        (4, struct.pack(">I", 0xCBD43194), "BLANK"),
        (0, bytes(8), "EMPTY"),
    ],
)
def test_bytes_that_are_no_record(at: int, data: bytes, reason: str, tmp_path: Path) -> None:
    """The error has the verdict, the file, the offset and the bytes."""
    queue, (record, _) = load_log(tmp_path, [Written(), Written()], 1 << 16, start_offset=1 << 16)
    path = queue.files[0].path
    put_bytes(path, at, data)
    missing = absence(MessageLookup([tmp_path]), record.physical_offset)
    assert missing.reason == f"no good record ({reason})"
    assert (
        f"{path}: no good record at offset 65536 (byte 0 of the file): {reason}, the bytes there are" in missing.detail
    )


def test_a_huge_size_is_not_believed_of_stale_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of another offset is recognized by its head, whatever size it gives."""
    size = 1 << 24
    write_log(tmp_path, [Written()], size)
    stale = bytearray(encode(Written(), 5))
    stale[:4] = struct.pack(">i", size - 5000)
    put_bytes(tmp_path / f"{0:020d}", 4096, bytes(stale))
    assert absence(MessageLookup([tmp_path]), 4096).reason == "no good record (BAD_PHYSICAL_OFFSET)"


def test_outside_the_log(tmp_path: Path) -> None:
    """Before its beginning, behind its end, and in a hole, are three things."""
    queue, records = load_log(tmp_path, varied_messages(60), 4096, start_offset=8192)
    middle = queue.files[1]
    Path(middle.path).unlink()
    lookup = MessageLookup([tmp_path])
    assert lookup.min_offset == 8192
    assert absence(lookup, 100).reason == "expired"
    assert "offset 100 is outside the log, whose files hold [8192, " in absence(lookup, 100).detail
    assert absence(lookup, middle.file_from_offset).reason == "in a missing segment"
    for offset in (-1, -(2**63), queue.end_of_files, 2**63 - 1):
        assert absence(lookup, offset).reason == "outside the log"
    assert found(lookup, records[-1].physical_offset).physical_offset < end_of(records)


def test_a_segment_that_expires_meanwhile(tmp_path: Path) -> None:
    """Gone since it was listed: an absence, no traceback."""
    queue, _ = load_log(tmp_path, varied_messages(60))
    lookup = MessageLookup([tmp_path])
    Path(queue.files[0].path).unlink()
    assert absence(lookup, 0).reason == "expired"


def test_a_segment_that_cannot_be_read(tmp_path: Path) -> None:
    """A directory in its place since it was listed."""
    queue, _ = load_log(tmp_path, varied_messages(60))
    lookup = MessageLookup([tmp_path])
    path = Path(queue.files[0].path)
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match=f"cannot read {path} at offset 0: Is a directory") as raised:
        lookup.find(0)
    assert (raised.value.file, raised.value.physical_offset, raised.value.advice) == (str(path), 0, None)


def test_message_ids_of_both_kinds(tmp_path: Path) -> None:
    """IPv4 and IPv6: from message to text and back."""
    _, (v4, v6) = load_log(tmp_path, [Written(), Written(store_host=V6_STORE)])
    lookup = MessageLookup([tmp_path])
    ids = [MessageId.of(found(lookup, record.physical_offset)) for record in (v4, v6)]
    assert str(ids[0]) == "7F00000100002A9F0000000000000000"
    assert str(ids[1]) == f"FE80000000000000000000000000000100002A9F{v6.physical_offset:016X}"
    for one in ids:
        assert MessageId.parse(str(one)) == MessageId.parse(str(one).lower()) == one
    assert MessageId.parse("7F00000100002A9F0000011F71FB04CB").offset == 0x11F71FB04CB
    assert [host_text((one.address, one.port)) for one in ids] == ["127.0.0.1:10911", "[fe80::1]:10911"]


@pytest.mark.parametrize("text", ["", "7F", "7F00000100002A9F0000011F71FB04C", "g" * 32, "0" * 33, "0" * 55, " " * 32])
def test_texts_that_are_no_message_id(text: str) -> None:
    """Told what one looks like."""
    with pytest.raises(OptionError, match="not an offset message id: 32 hexadecimal digits wanted"):
        MessageId.parse(text)
