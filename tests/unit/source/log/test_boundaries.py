"""Places where records begin: ranges, limits, times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.logs import V6_BORN, end_of, load_log, put_bytes, varied_messages
from support.record_writer import CommitLogWriter, Message, StoredRecord

from reput.source.errors import DataLossError, OptionError
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.offset_range import RANGE_SCHEMA, OffsetRange, ranges_of
from reput.source.log.range_reader import (
    DecodeOptions,
    align_down,
    check_begins_record,
    find_timestamp,
    first_store_timestamp,
    limit,
    read_windows,
    split,
)
from reput.source.record.damage import QUARANTINE

SIZE = 4096
Log = tuple[MappedFileQueue, list[StoredRecord]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Several segments of varied records, from 8192 on; nothing writes into it."""
    return load_log(tmp_path_factory.mktemp("log"), varied_messages(120), SIZE, 2 * SIZE)


def begins(records: list[StoredRecord]) -> list[int]:
    return [record.physical_offset for record in records]


def ends(records: list[StoredRecord]) -> list[int]:
    return [record.physical_offset + record.msg_size for record in records]


# --- split -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_max", [1, 8, 91, 92, 150, 200, 333, 500, 1000, 2000, 4096, 10_000, 1 << 40])
def test_split_tiles_and_never_cuts_a_record(bytes_max: int, log: Log) -> None:
    """Ranges follow each other, each in one segment, begin on a record or the blank, and are as long as asked."""
    queue, records = log
    start, end = begins(records)[0], end_of(records)
    spans = list(split(queue, start, end, bytes_max))
    assert [start, *(span.end for span in spans)] == [*(span.start for span in spans), end]
    offsets = {*begins(records), *ends(records)}
    for span in spans:
        assert span.start in offsets
        assert span.start < span.end
        assert span.file.file_from_offset <= span.start < span.end <= span.file.end
        inside = [offset for offset in begins(records) if span.start <= offset < span.end]
        assert span.end - span.start <= bytes_max * 3 // 2 or len(inside) <= 1
    read = [
        message.physical_offset
        for span in spans
        for window in read_windows(span.file, span.start, span.end, DecodeOptions(check_crc=True))
        for message in window.columns.messages()
    ]
    assert begins(records) == read


@pytest.mark.parametrize("first", [0, 1, 25, 60])
@pytest.mark.parametrize("last", [61, 100, 118])
def test_split_of_any_part(first: int, last: int, log: Log) -> None:
    """A split from a record to a record has exactly the records between."""
    queue, records = log
    start, end = records[first].physical_offset, records[last].physical_offset
    spans = list(split(queue, start, end, 700))
    assert (start, end) == (spans[0].start, spans[-1].end)
    assert all(one.end == two.start for one, two in zip(spans, spans[1:], strict=False))


def test_split_of_nothing(log: Log) -> None:
    """No bytes make no range."""
    queue, records = log
    assert list(split(queue, end_of(records), end_of(records), 1)) == []


def test_a_record_larger_than_a_range_is_one_range(tmp_path: Path) -> None:
    """A large record is not cut, and the small ones round it are not drawn in."""
    queue, records = load_log(tmp_path, [Message(), Message(body=bytes(2000)), Message(), Message()])
    found = [(span.start, span.end) for span in split(queue, 0, end_of(records), 110)]
    assert list(zip(begins(records), ends(records), strict=True)) == found


def test_blank_segments_are_ranges_too(tmp_path: Path) -> None:
    """A segment that is only a blank is passed over."""
    with CommitLogWriter(tmp_path, SIZE) as writer:
        writer.append(Message())
        with pytest.raises(ValueError, match="never fit"):
            writer.append(Message(body=bytes(SIZE)))
        writer.append(Message())
    queue = MappedFileQueue.load([tmp_path])
    spans = list(split(queue, 0, end_of(writer.records), 1 << 20))
    assert [(span.start, span.end) for span in spans] == [(0, SIZE), (SIZE, 2 * SIZE), (2 * SIZE, 2 * SIZE + 104)]


def test_split_names_a_lost_segment(tmp_path: Path) -> None:
    """A range whose segment has expired is a loss, not a shorter range."""
    queue, records = load_log(tmp_path, varied_messages(60))
    Path(queue.files[1].path).unlink()
    end = end_of(records)
    spans = split(MappedFileQueue.load([tmp_path]), 0, end, 1 << 20)
    assert next(spans).end == SIZE
    with pytest.raises(DataLossError) as raised:
        next(spans)
    assert str(raised.value) == (
        f"the log has no file with offset {SIZE} any more, [{SIZE}, {end}) was still to be read"
    )
    assert (raised.value.file, raised.value.physical_offset) == (None, SIZE)


def test_ranges_of_rows(log: Log) -> None:
    """Rows of RANGE_SCHEMA and ranges say the same."""
    queue, records = log
    spans = list(split(queue, begins(records)[0], end_of(records), 1000))
    rows = [
        {
            "start": span.start,
            "end": span.end,
            "file": span.file.path,
            "file_from_offset": span.file.file_from_offset,
            "file_size": span.file.size,
            "frame": span.file.frame,
        }
        for span in spans
    ]
    batches = [pa.RecordBatch.from_pylist(rows[at : at + 2], RANGE_SCHEMA) for at in range(0, len(rows), 2)]
    assert spans == list(ranges_of(batches))
    assert isinstance(spans[0], OffsetRange)


@pytest.mark.parametrize("bytes_max", [1, 100, 700])
def test_behind_a_damaged_range_that_is_larger(bytes_max: int, tmp_path: Path) -> None:
    """The limit is where the log continues, and never after the end, though the segment is longer."""
    queue, records = load_log(tmp_path, varied_messages(12), SIZE)
    offsets = begins(records)
    put_bytes(queue.files[0].path, offsets[2], bytes(offsets[7] - offsets[2]))
    assert limit(queue, offsets[2], offsets[9], bytes_max, None, QUARANTINE) == offsets[7]
    assert [span.end for span in split(queue, offsets[1], offsets[7], 1, QUARANTINE)] == [offsets[2], offsets[7]]
    put_bytes(queue.files[0].path, offsets[7] + 4, b"\x55")
    assert limit(queue, offsets[7], offsets[8] - 1, 1, None, QUARANTINE) == offsets[8] - 1


# --- align_down and limit --------------------------------------------------------------------------------


def test_align_down_to_every_byte(log: Log) -> None:
    """The nearest boundary up to any byte, where a record begins or the records end."""
    queue, records = log
    file = queue.files[1]
    boundaries = sorted({*begins(records), *ends(records)})
    for offset in range(file.file_from_offset, file.end + 1):
        expected = max(boundary for boundary in boundaries if boundary <= min(offset, file.end - 1))
        assert expected == align_down(file, file.file_from_offset, offset), offset


@pytest.mark.parametrize("bytes_max", [1, 91, 200, 1000, SIZE, 3 * SIZE + 77, 1 << 40, None])
def test_limit_by_bytes(bytes_max: int | None, log: Log) -> None:
    """Batches of a number of bytes end after a record, have at least one, and reach the end."""
    queue, records = log
    offset, end = begins(records)[0], end_of(records)
    allowed = {*begins(records), *ends(records), *(file.end for file in queue.files)}
    while offset < end:
        after = limit(queue, offset, end, bytes_max, None)
        assert offset < after <= end
        assert after in allowed
        if bytes_max is None:
            assert after == end
        elif after - offset > bytes_max:
            assert sum(offset <= begin < after for begin in begins(records)) <= 1
        offset = after


@pytest.mark.parametrize("messages_max", [1, 2, 7, 119, 120, 121, 1 << 40])
def test_limit_by_messages(messages_max: int, log: Log) -> None:
    """Each batch has exactly the number of messages, and the last one the rest."""
    queue, records = log
    offset, end, counts = begins(records)[0], end_of(records), []
    while offset < end:
        after = limit(queue, offset, end, None, messages_max)
        counts.append(sum(offset <= begin < after for begin in begins(records)))
        assert after in set(ends(records))
        offset = after
    expected = [messages_max] * (120 // messages_max) + [120 % messages_max] * (120 % messages_max > 0)
    assert expected == counts


@pytest.mark.parametrize(("bytes_max", "messages_max", "count"), [(10_000, 3, 3), (1, 3, 1), (None, None, 120)])
def test_the_narrower_limit_counts(bytes_max: int | None, messages_max: int | None, count: int, log: Log) -> None:
    """With limits of bytes and of messages, neither is exceeded."""
    queue, records = log
    end = limit(queue, begins(records)[0], end_of(records), bytes_max, messages_max)
    assert ends(records)[count - 1] == end


def test_an_exact_limit_of_bytes_is_used_up(log: Log) -> None:
    """A record that ends at the limit is in; with a byte less it is out, unless it is the first."""
    queue, records = log
    start, before = begins(records)[0], ends(records)[0]
    for end in ends(records)[:5]:
        assert end == limit(queue, start, end_of(records), end - start, None)
        assert before == limit(queue, start, end_of(records), end - start - 1, None)
        before = end


# --- check_begins_record ---------------------------------------------------------------------------------


def test_check_begins_record(log: Log) -> None:
    """Records, blanks, ends and what lies beyond may be begun at."""
    queue, records = log
    for offset in {*begins(records), *ends(records), 0, queue.end_of_files, queue.end_of_files + 1}:
        check_begins_record(queue, offset)


def test_check_begins_record_names_the_nearest(log: Log) -> None:
    """Any other byte is refused; the error describes it and the nearest record before it."""
    queue, records = log
    for record in records[1:4]:
        for offset in range(record.physical_offset + 1, record.physical_offset + record.msg_size):
            with pytest.raises(OptionError) as raised:
                check_begins_record(queue, offset)
            text = str(raised.value)
            assert text.startswith(f"startingOffset={offset} is not where a record begins (")
            assert text.endswith(f"the nearest before it is {record.physical_offset} in {queue.find(offset).path}")
            assert (raised.value.file, raised.value.physical_offset) == (queue.find(offset).path, offset)


def test_check_begins_record_says_the_verdict(log: Log) -> None:
    """The error describes the bytes there in the verdict's words."""
    queue, records = log
    offset = records[1].physical_offset + 4
    with pytest.raises(OptionError, match=r"\(BAD_MAGIC\)"):
        check_begins_record(queue, offset)


# --- times -----------------------------------------------------------------------------------------------


def test_first_store_timestamp(log: Log, tmp_path: Path) -> None:
    """The store time of a segment's first record, with any host; none for zeros and a blank."""
    queue, records = log
    times = {record.physical_offset: record.message.store_timestamp for record in records}
    assert [times[file.file_from_offset] for file in queue.files] == list(map(first_store_timestamp, queue.files))
    for name, first in {"v6": Message(born_host=V6_BORN, store_timestamp=-5), "none": None}.items():
        with CommitLogWriter(tmp_path / name, SIZE) as writer:
            writer.append(first) if first else writer.append_raw(b"")
        assert (first and -5) == first_store_timestamp(MappedFileQueue.load([tmp_path / name]).files[0])


def test_first_store_timestamp_of_a_segment_that_is_gone(tmp_path: Path) -> None:
    """A segment that expires between listing and look is a loss that says so."""
    queue, _ = load_log(tmp_path, [Message()])
    Path(queue.files[0].path).unlink()
    with pytest.raises(DataLossError, match="00000000000000000000 is gone"):
        first_store_timestamp(queue.files[0])


def test_find_timestamp(log: Log) -> None:
    """The first record stored at or after a time; the end when there is none."""
    queue, records = log
    end = end_of(records)
    for record in records:
        assert record.physical_offset == find_timestamp(queue, end, record.message.store_timestamp)
        assert record.physical_offset == find_timestamp(queue, end, record.message.store_timestamp - 9)
    assert begins(records)[0] == find_timestamp(queue, end, 0)
    assert end == find_timestamp(queue, end, records[-1].message.store_timestamp + 1)
    middle = records[50]
    assert middle.physical_offset == find_timestamp(queue, middle.physical_offset, middle.message.store_timestamp)


def test_find_timestamp_of_equal_times(tmp_path: Path) -> None:
    """Of many records of one time, over two segments, the first counts."""
    messages = [replace(message, store_timestamp=1000 + (i >= 5)) for i, message in enumerate(varied_messages(40))]
    queue, records = load_log(tmp_path, messages)
    assert records[5].physical_offset == find_timestamp(queue, end_of(records), 1001)
    assert records[0].physical_offset == find_timestamp(queue, end_of(records), 1000)


@pytest.mark.parametrize("damage", ["blank", "magic"])
def test_find_timestamp_passes_over_a_segment_without_first_record(damage: str, tmp_path: Path) -> None:
    """The records before a segment whose first record has no time are not skipped."""
    times = iter(range(1000, 10_000, 10))
    with CommitLogWriter(tmp_path, SIZE) as writer:
        for _ in range(60):
            writer.append(Message(body=bytes(200), store_timestamp=next(times)))
        if damage == "blank":
            with pytest.raises(ValueError, match="never fit"):
                writer.append(Message(body=bytes(SIZE)))
        for _ in range(60):
            writer.append(Message(body=bytes(200), store_timestamp=next(times)))
    queue = MappedFileQueue.load([tmp_path])
    if damage == "magic":
        put_bytes(queue.files[3].path, 4, b"\0\0\0\1")
    wanted = writer.records[5]
    assert wanted.physical_offset == find_timestamp(queue, end_of(writer.records), wanted.message.store_timestamp)


def test_find_timestamp_of_an_empty_log(tmp_path: Path) -> None:
    """An empty log begins and ends at 0."""
    assert find_timestamp(MappedFileQueue.load([tmp_path]), 0, 5) == 0
