"""DLedger logs, alone and behind an older plain one: files, ranges, limits, times, the end; what is refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.live_log import Clock
from support.logs import end_of, load_log, put_bytes, varied_messages
from support.record_writer import CommitLogWriter, Message, StoredRecord, encode, encode_entry, write_log

from reput.source.errors import CorruptRecordError, OptionError, SegmentError
from reput.source.log.log_reader import LogReader, MessageLookup
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.offset_range import OffsetRange
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
from reput.source.log.reput_end_offset import ReputEnd, ReputEndFinder
from reput.source.options import SourceOptions
from reput.source.record.message_decoder import Verdict

SIZE = 4096
FRAME = 48
CHECKED = DecodeOptions(check_crc=True)


def found_in(span: OffsetRange, window_bytes: int = 600) -> list[tuple[int, str, int]]:
    """Place, topic and size of each message of a range; its windows follow each other without a gap."""
    found, offset = [], span.start
    for window in read_windows(span.file, span.start, span.end, CHECKED, window_bytes):
        assert window.start == offset
        offset = window.end
        found += [(m.physical_offset, m.topic, m.msg_size) for m in window.columns.messages()]
    assert offset == span.end
    return found


def stored(records: list[StoredRecord]) -> list[tuple[int, str, int]]:
    return [(record.physical_offset, record.message.topic, record.msg_size) for record in records]


@pytest.fixture
def mixed(tmp_path: Path) -> tuple[list[Path], list[StoredRecord]]:
    """Make a plain log of several files that DLedger continues; return it, and the records of both."""
    plain, framed = tmp_path / "commitlog", tmp_path / "dledger-n0" / "data"
    queue, before = load_log(plain, varied_messages(40), SIZE)
    divide = queue.end_of_files
    rest = divide - end_of(before)
    put_bytes(queue.files[-1].path, SIZE - rest, struct.pack(">iI", rest, 0xCBD43194))
    records = write_log(framed, varied_messages(40, seed=1), SIZE, start_offset=divide, dledger=True)
    return [plain, framed], before + records


@given(st.integers(0, 10_000), st.integers(300, 5000), st.integers(100, 900))
def test_ranges_hold_each_message_once(
    tmp_path_factory: pytest.TempPathFactory, seed: int, bytes_max: int, window_bytes: int
) -> None:
    """Ranges of any size begin at entries or a file's end; each message is in one, at its entry's offset and 48."""
    queue, records = load_log(tmp_path_factory.mktemp("log"), varied_messages(40, seed=seed), SIZE, dledger=True)
    spans = list(split(queue, 0, end_of(records), bytes_max))
    begins = {record.physical_offset - FRAME for record in records}
    blanks = {record.physical_offset + record.msg_size for record in records}
    assert begins | blanks >= {span.start for span in spans}
    assert stored(records) == [message for span in spans for message in found_in(span, window_bytes)]


def test_a_log_that_dledger_goes_on_with(mixed: tuple[list[Path], list[StoredRecord]]) -> None:
    """Plain below the divide, framed above, and one row of offsets."""
    paths, records = mixed
    queue = MappedFileQueue.load(list(reversed(paths)), dledger=True)
    assert [0] * 3 == [file.frame for file in queue.files][:3]
    assert {0, FRAME} == {file.frame for file in queue.files}
    end = ReputEndFinder(check_crc=True, tail_guard_ms=0).find(queue, 0)
    assert ReputEnd(end_of(records), Verdict.EMPTY) == end
    for bytes_max in (500, 3000, 1 << 20):
        spans = split(queue, 0, end.offset, bytes_max)
        assert stored(records) == [message for span in spans for message in found_in(span)]
    lookup = MessageLookup(paths, dledger=True)
    assert [found.physical_offset for record in records if (found := lookup.find(record.physical_offset))] == [
        record.physical_offset for record in records
    ]


def test_offsets_in_a_dledger_log(mixed: tuple[list[Path], list[StoredRecord]]) -> None:
    """Limits, times and starting offsets are offsets of entries, walked from anywhere."""
    paths, records = mixed
    queue = MappedFileQueue.load(paths, dledger=True)
    end, rng = end_of(records), random.Random(3)
    divide = next(file.file_from_offset for file in queue.files if file.frame)
    offsets = [record.physical_offset - (FRAME if record.physical_offset >= divide else 0) for record in records]
    for number in rng.sample(range(len(records)), 25):
        record, offset = records[number], offsets[number]
        file = queue.find(offset)
        assert file is not None
        assert offset == align_down(file, file.file_from_offset, offset + rng.randrange(record.msg_size))
        assert limit(queue, offset, end, 1, None) == record.physical_offset + record.msg_size
        assert limit(queue, 0, end, None, number + 1) == record.physical_offset + record.msg_size
        check_begins_record(queue, offset)
        if offset not in (record.physical_offset, file.file_from_offset):
            with pytest.raises(OptionError, match=rf"the nearest before it is {offset} in "):
                check_begins_record(queue, record.physical_offset)
    later = [(record, offset) for record, offset in zip(records, offsets, strict=True) if offset >= divide]
    only = MappedFileQueue.load(paths[1:], dledger=True)
    for record, offset in later:
        assert offset == find_timestamp(only, end, record.message.store_timestamp)
    assert first_store_timestamp(only.files[0]) == later[0][0].message.store_timestamp


@pytest.mark.parametrize("first", [Message(topic="T" * 127), Message(body=b""), None])
def test_a_file_that_was_begun_ends_the_one_before(first: Message | None, tmp_path: Path) -> None:
    """An entry, or a file that holds nothing but its end, says that the file before is finished."""
    queue, _ = load_log(tmp_path, varied_messages(40), SIZE, dledger=True)
    last = Path(queue.files[-1].path)
    offset = queue.files[-1].file_from_offset
    begin = bytes(SIZE) if first is None else encode_entry(encode(first, offset + FRAME), offset).ljust(SIZE, b"\0")
    last.write_bytes(begin)

    def end_now() -> ReputEnd:
        finder = ReputEndFinder(check_crc=True, tail_guard_ms=0)
        return finder.find(MappedFileQueue.load([tmp_path], dledger=True), 0)

    expected = offset if first is None else offset + FRAME + len(encode(first, 0))
    assert ReputEnd(expected, Verdict.EMPTY) == end_now()
    last.write_bytes(struct.pack(">ii", -1, SIZE).ljust(SIZE, b"\0"))
    assert ReputEnd(offset, Verdict.BLANK) == end_now()


def test_an_entry_that_is_being_written(tmp_path: Path) -> None:
    """It appears when all its bytes exist and have stayed for the guard, not before."""
    message, clock = Message(properties={"TAGS": "abc"}), Clock()
    with CommitLogWriter(tmp_path, SIZE, dledger=True) as writer:
        writer.append(message)
        size, first = len(encode(message, 0)), writer.max_offset
        for visible in range(1, FRAME + size):
            finder = ReputEndFinder(check_crc=True, tail_guard_ms=500, clock=clock)
            writer.append_torn(message, visible)
            for _ in range(2):
                end = finder.find(MappedFileQueue.load([tmp_path], dledger=True), 0)
                assert end.offset <= first, visible
                clock.now += 0.4
        writer.append(message)
        assert ReputEnd(first, Verdict.EMPTY, FRAME + size) == finder.find(
            MappedFileQueue.load([tmp_path], dledger=True), 0
        )
        clock.now += 0.5
        assert ReputEnd(writer.max_offset, Verdict.EMPTY) == finder.find(
            MappedFileQueue.load([tmp_path], dledger=True), 0
        )


def test_another_leader_writes_over_the_end(tmp_path: Path) -> None:
    """An entry that changed within the guard was never there; its successor is, after a guard of its own."""
    clock = Clock()
    finder = ReputEndFinder(check_crc=True, tail_guard_ms=500, clock=clock)
    with CommitLogWriter(tmp_path, SIZE, dledger=True) as writer:
        writer.append(Message(body=b"old leader"))
    assert finder.find(MappedFileQueue.load([tmp_path], dledger=True), 0).offset == 0
    clock.now += 0.4
    with CommitLogWriter(tmp_path, SIZE, dledger=True) as writer:
        writer.append(Message(body=b"new leader, other text"))
        for expected in (0, 0, writer.max_offset):
            assert expected == finder.find(MappedFileQueue.load([tmp_path], dledger=True), 0).offset
            clock.now += 0.25


def test_damage_in_the_middle_names_the_entry(tmp_path: Path) -> None:
    """The error has the entry's offset, not the record's."""
    queue, records = load_log(tmp_path, varied_messages(10), 1 << 20, dledger=True)
    offset = records[4].physical_offset - FRAME
    put_bytes(queue.files[0].path, records[4].physical_offset + 28, bytes(8))
    with pytest.raises(CorruptRecordError, match=f"no good record at offset {offset} .*BAD_PHYSICAL_OFFSET"):
        list(read_windows(queue.files[0], 0, end_of(records), CHECKED))
    delayed = Message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "x"})
    queue, records = load_log(tmp_path / "other", [Message(), delayed], SIZE, dledger=True)
    offset = records[1].physical_offset - FRAME
    with pytest.raises(CorruptRecordError, match=f"no good record at offset {offset} .*BAD_DELAY"):
        list(read_windows(queue.files[0], 0, end_of(records), CHECKED))


# --- What is refused -------------------------------------------------------------------------------------


def refused(kind: type[Exception], load: Callable[[], object]) -> str:
    """The message of the error."""
    with pytest.raises(kind) as raised:
        load()
    return str(raised.value)


def test_a_dledger_log_read_as_a_plain_one(tmp_path: Path) -> None:
    """The sentence names the option; also when a file that tells nothing comes first."""
    queue, _ = load_log(tmp_path, varied_messages(40), SIZE, dledger=True)
    expected = f"{tmp_path} is a DLedger commitlog: set enableDLegerCommitLog=true to read it (reput tail --dledger)"
    assert expected == refused(OptionError, lambda: MappedFileQueue.load([tmp_path]))
    Path(queue.files[0].path).write_bytes(bytes(SIZE))
    assert expected == refused(OptionError, lambda: MappedFileQueue.load([tmp_path]))
    options = SourceOptions.parse({"path": str(tmp_path)})
    assert expected == refused(OptionError, LogReader(options).initial_offset)


def test_a_plain_log_read_as_dledgers(tmp_path: Path) -> None:
    """One directory or several: without an entry anywhere it is not a DLedger log."""
    write_log(tmp_path / "a", varied_messages(10), 1 << 20)
    write_log(tmp_path / "b", varied_messages(10), 1 << 20, start_offset=1 << 20)
    for paths in ([tmp_path / "a"], [tmp_path / "a", tmp_path / "b"]):
        assert refused(OptionError, lambda paths=paths: MappedFileQueue.load(paths, dledger=True)) == (
            f"enableDLegerCommitLog is on, and {tmp_path / 'a'} holds plain records: leave it off, or also give "
            "DLedger's directory (dledger-SELFID/data in the store)"
        )


def test_a_dledger_log_that_is_still_empty(tmp_path: Path) -> None:
    """No file, or one of zeros, alone and behind a plain log: nothing to refuse, nothing to read."""
    empty = tmp_path / "empty"
    empty.mkdir()
    assert MappedFileQueue.load([empty], dledger=True).files == ()
    with CommitLogWriter(tmp_path / "zeros", SIZE, start_offset=8 * SIZE, dledger=True) as writer:
        writer.append_raw(b"")
    queue = MappedFileQueue.load([tmp_path / "zeros"], dledger=True)
    assert [FRAME] == [file.frame for file in queue.files]
    assert ReputEndFinder(check_crc=True, tail_guard_ms=0).find(queue, 8 * SIZE) == ReputEnd(8 * SIZE, Verdict.EMPTY)
    write_log(tmp_path / "plain", varied_messages(5), SIZE)
    assert [0, FRAME] == [
        file.frame for file in MappedFileQueue.load([tmp_path / "plain", tmp_path / "zeros"], dledger=True).files
    ]


def test_plain_records_behind_dledgers(tmp_path: Path) -> None:
    """A broker goes over to DLedger, not back."""
    write_log(tmp_path / "framed", varied_messages(5), SIZE, dledger=True)
    write_log(tmp_path / "plain", varied_messages(5), SIZE, start_offset=SIZE)
    assert refused(
        SegmentError, lambda: MappedFileQueue.load([tmp_path / "framed", tmp_path / "plain"], dledger=True)
    ) == (
        f"{tmp_path}/plain/{SIZE:020d} holds plain records and lies behind {tmp_path}/framed/{0:020d}, which is "
        "DLedger's; remove one of them"
    )
