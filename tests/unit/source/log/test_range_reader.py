"""Reading a range window by window: the same records whatever the window, and errors that name the offset."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.decoders import expected_message
from support.logs import SHAPES, end_of, load_log, put_bytes, varied_messages
from support.record_writer import Message, StoredRecord, encode

from reput.source.errors import CorruptRecordError, DataLossError
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.log.range_reader import DecodeOptions, read_record, read_windows, scan_windows
from reput.source.log.segment_scan import WINDOW_BYTES
from reput.source.record.message_decoder import Message as Decoded
from reput.source.record.message_decoder import Verdict

WINDOWS = [1, 7, 8, 9, 91, 92, 93, 200, 500, 1000, 4096, WINDOW_BYTES]
CHECKED = DecodeOptions(check_crc=True)
LARGE = Message(topic="Large", body=bytes(range(256)) * 40)


def one_segment(tmp_path: Path, messages: list[Message], size: int = 1 << 16) -> tuple[MappedFile, list[StoredRecord]]:
    """The messages in one segment that has room left."""
    queue, records = load_log(tmp_path, messages, size, size)
    (file,) = queue.files
    return file, records


def read(file: MappedFile, start: int, end: int, window_bytes: int) -> list[Decoded]:
    """All messages of a range, after checking that the windows tile it."""
    messages, offset = [], start
    for window in read_windows(file, start, end, CHECKED, window_bytes):
        assert window.start == offset
        offset = window.end
        messages += list(window.columns.messages())
    assert offset == end
    return messages


@pytest.mark.parametrize("window_bytes", WINDOWS)
def test_windows_of_any_size_give_the_same_messages(window_bytes: int, tmp_path: Path) -> None:
    """Windows end anywhere in a record, and no record is lost, repeated or cut."""
    messages = [*varied_messages(40), *varied_messages(40, body_bytes_max=0), *varied_messages(20)]
    file, records = one_segment(tmp_path, messages)
    expected = [expected_message(record.physical_offset, record.message) for record in records]
    assert expected == read(file, file.file_from_offset, end_of(records), window_bytes)
    assert expected[7:60] == read(file, records[7].physical_offset, records[60].physical_offset, window_bytes)


@pytest.mark.parametrize("window_bytes", WINDOWS)
def test_a_record_larger_than_the_window(window_bytes: int, tmp_path: Path) -> None:
    """The window grows to the record's size, and the small records after it still come, however many."""
    small = Message(topic="T", body=b"")
    file, records = one_segment(tmp_path, [small, LARGE, *[small] * 300, LARGE, LARGE, small])
    expected = [expected_message(record.physical_offset, record.message) for record in records]
    assert expected == read(file, file.file_from_offset, end_of(records), window_bytes)


def test_a_record_larger_than_the_default_window(tmp_path: Path) -> None:
    """Small records behind a record of more than 2 MiB are records, not damage."""
    large = encode(Message(body=bytes(WINDOW_BYTES)), 0)
    small = np.tile(np.frombuffer(encode(Message(topic="T", body=b""), 0), np.uint8), (60_000, 1))
    offsets = len(large) + np.arange(len(small)) * small.shape[1]
    small[:, 28:36] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    path = tmp_path / f"{0:020d}"
    path.write_bytes(large + small.tobytes())
    file = MappedFile(0, path.stat().st_size, str(path))
    assert sum(len(window.columns) for window in read_windows(file, 0, file.end, CHECKED)) == 60_001


@pytest.mark.parametrize("window_bytes", WINDOWS)
def test_a_range_may_end_with_its_segment(window_bytes: int, tmp_path: Path) -> None:
    """The blank ends the records, and the last window ends where the segment ends."""
    queue, records = load_log(tmp_path, varied_messages(60))
    first = [record for record in records if record.physical_offset < 4096]
    expected = [expected_message(record.physical_offset, record.message) for record in first]
    assert expected == read(queue.files[0], 0, 4096, window_bytes)
    assert read(queue.files[0], end_of(first), 4096, window_bytes) == []


def test_an_empty_range_reads_nothing(tmp_path: Path) -> None:
    """No bytes, no window."""
    file, records = one_segment(tmp_path, varied_messages(2))
    assert list(read_windows(file, end_of(records), end_of(records), CHECKED)) == []


# --- a single record -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dledger", [False, True])
def test_a_single_record_is_what_a_walk_meets_first(dledger: bool, tmp_path: Path) -> None:
    """At every offset of a log: the same record, or none for the same reason."""
    queue, records = load_log(tmp_path, [*SHAPES.values(), LARGE, Message()], 1 << 14, dledger=dledger)
    (file,) = queue.files
    begins = {record.physical_offset - file.frame for record in records}
    for offset in range(end_of(records) + 9):
        one = read_record(file, offset, file.end, CHECKED)
        first = next(scan_windows(file, offset, file.end, CHECKED, 1))
        assert len(one) == (offset in begins)
        assert (len(one), one.end) == (len(first), first.end)
        assert len(one) or one.verdict is first.verdict


def test_a_single_record_ends_where_it_may(tmp_path: Path) -> None:
    """A record that crosses the given end does not count, however large it is; nothing after the end is read."""
    file, records = one_segment(tmp_path, [LARGE, Message()])
    (begin, _, size), _ = records
    assert read_record(file, begin, begin + size, CHECKED, decodes=True).columns.msg_size.tolist() == [size]
    for short in (0, 7, 8, 100, 4096, size - 1):
        assert read_record(file, begin, begin + short, CHECKED).verdict is Verdict.UNDERFLOW
    put_bytes(file.path, size - 2000, b"XX")
    assert read_record(file, begin, begin + size, CHECKED).verdict is Verdict.BAD_CRC


def test_a_single_record_is_decoded_on_request(tmp_path: Path) -> None:
    """A property that is not a number counts for a decoder, and for a broker."""
    file, records = one_segment(tmp_path, [Message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "x"})])
    begin, end = file.file_from_offset, end_of(records)
    assert len(read_record(file, begin, end, DecodeOptions())) == 1
    for options, decodes in ((DecodeOptions(), True), (DecodeOptions(on_damage="broker"), False)):
        found = read_record(file, begin, end, options, decodes=decodes)
        assert (len(found), found.end, found.verdict) == (0, begin, Verdict.BAD_DELAY)


# --- damage ----------------------------------------------------------------------------------------------


def corrupt(file: MappedFile, start: int, end: int, options: DecodeOptions, window_bytes: int) -> tuple[int, str]:
    """How many records come before the error, and what it says."""
    counts: list[int] = []
    with pytest.raises(CorruptRecordError) as raised:
        counts.extend(len(window.columns) for window in read_windows(file, start, end, options, window_bytes))
    return sum(counts), str(raised.value)


@pytest.mark.parametrize(
    ("at", "data", "verdict"),
    [
        (4, b"\0\0\0\1", "BAD_MAGIC"),
        (0, b"\0\0\0\0\0\0\0\0", "EMPTY"),
        (4, b"\xcb\xd4\x31\x94", "BLANK"),
        (0, b"\x7f\xff\xff\xff", "BAD_SIZE"),
        (0, b"\x00\x00\xff\x00", "BAD_SIZE"),
        (28, b"\xff" * 8, "BAD_PHYSICAL_OFFSET"),
        (84, b"\x00\x00\x10\x00", "BAD_LENGTH"),
        (8, b"\x7f\xff\xff\xff", "BAD_CRC"),
    ],
)
@pytest.mark.parametrize("window_bytes", [1, 200, WINDOW_BYTES])
def test_a_corrupt_record_is_named(at: int, data: bytes, verdict: str, window_bytes: int, tmp_path: Path) -> None:
    """The error has file, offset, byte, verdict and the bytes there, and no record after it is returned."""
    plain = [Message(body=b"x" * 50)] * 9
    file, records = one_segment(tmp_path, plain)
    bad = records[5].physical_offset
    put_bytes(file.path, bad - file.file_from_offset + at, data)
    head = Path(file.path).read_bytes()[bad - file.file_from_offset :][:16]
    count, text = corrupt(file, file.file_from_offset, end_of(records), CHECKED, window_bytes)
    assert count <= 5
    assert text == (
        f"{file.path}: no good record at offset {bad} (byte {bad - file.file_from_offset} of the file): {verdict}, the "
        f"bytes there are {head.hex(' ', 4)}; set onDamage=quarantine to leave out and record what is damaged, "
        "onDamage=broker to leave out what a broker's replay leaves out, or startingOffset to a later record to "
        "continue there"
    )


@pytest.mark.parametrize("window_bytes", [1, 200, WINDOW_BYTES])
def test_a_delay_that_is_no_number_is_corrupt(window_bytes: int, tmp_path: Path) -> None:
    """A record that the broker refuses while it computes the tags code counts as damaged."""
    good = Message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "1"})
    file, records = one_segment(tmp_path, [good, good, replace(good, properties={"DELAY": "x"}), good])
    _, text = corrupt(file, file.file_from_offset, end_of(records), DecodeOptions(), window_bytes)
    assert f"offset {records[2].physical_offset} " in text
    assert "BAD_DELAY" in text


def test_bodies_are_checked_on_request(tmp_path: Path) -> None:
    """By default no body is compared with its checksum."""
    file, records = one_segment(tmp_path, [Message(body_crc=1)] * 3)
    windows = list(read_windows(file, file.file_from_offset, end_of(records), DecodeOptions()))
    assert [len(window.columns) for window in windows] == [3]
    assert corrupt(file, file.file_from_offset, end_of(records), CHECKED, WINDOW_BYTES)[0] == 0


@pytest.mark.parametrize("window_bytes", [1, 200, WINDOW_BYTES])
def test_an_end_inside_a_record_is_corrupt(window_bytes: int, tmp_path: Path) -> None:
    """A range that does not end on a record is refused, not shortened."""
    file, records = one_segment(tmp_path, varied_messages(9))
    _, text = corrupt(file, file.file_from_offset, records[5].physical_offset + 50, CHECKED, window_bytes)
    assert f"offset {records[5].physical_offset} " in text
    assert "UNDERFLOW" in text


def test_delay_levels_are_an_option(tmp_path: Path) -> None:
    """The broker's messageDelayLevel decides the delivery time."""
    message = Message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "2"}, store_timestamp=1000)
    file, records = one_segment(tmp_path, [message])
    (window,) = read_windows(file, file.file_from_offset, end_of(records), DecodeOptions(delays_ms=(1, 7)))
    assert window.columns.tags_code.tolist() == [1007]


# --- loss ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window_bytes", [200, WINDOW_BYTES])
def test_a_segment_that_was_cut_is_a_loss(window_bytes: int, tmp_path: Path) -> None:
    """The error names the file, its size and the range."""
    file, records = one_segment(tmp_path, varied_messages(9))
    end = end_of(records)
    os.truncate(file.path, records[5].physical_offset - file.file_from_offset + 10)
    with pytest.raises(DataLossError) as raised:
        list(read_windows(file, file.file_from_offset, end, CHECKED, window_bytes))
    text = str(raised.value)
    assert text.startswith(f"{file.path} is shorter than its 65536 bytes: it was cut while [")
    assert text.endswith(f", {end}) was read")
    assert raised.value.file == file.path
    assert raised.value.physical_offset == int(text.rpartition("[")[2].partition(",")[0])


def test_a_segment_that_is_gone_is_a_loss(tmp_path: Path) -> None:
    """A segment that expired between plan and read is named with the range that was lost."""
    file, records = one_segment(tmp_path, varied_messages(9))
    Path(file.path).unlink()
    with pytest.raises(DataLossError) as raised:
        list(read_windows(file, 65_536, end_of(records), CHECKED))
    assert str(raised.value) == (
        f"{file.path} is gone: the log expired while [65536, {end_of(records)}) was still to be read"
    )


def test_a_segment_removed_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    """An open file keeps its bytes."""
    file, records = one_segment(tmp_path, varied_messages(30))
    windows = read_windows(file, file.file_from_offset, end_of(records), CHECKED, 500)
    count = len(next(windows).columns)
    Path(file.path).unlink()
    assert len(records) == count + sum(len(window.columns) for window in windows)


def test_descriptors_are_closed(tmp_path: Path) -> None:
    """Neither a finished nor an abandoned nor a failed read leaves a file open."""
    file, records = one_segment(tmp_path, varied_messages(30))
    before = set(Path("/proc/self/fd").iterdir())
    list(read_windows(file, file.file_from_offset, end_of(records), CHECKED))
    abandoned = scan_windows(file, file.file_from_offset, end_of(records), DecodeOptions(), 500)
    assert next(abandoned).verdict is Verdict.UNDERFLOW
    abandoned.close()
    corrupt(file, file.file_from_offset, end_of(records) - 1, CHECKED, 500)
    assert before == set(Path("/proc/self/fd").iterdir())
