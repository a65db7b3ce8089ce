"""One commitlog by its options: where to begin, where it ends, which log it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from support.logs import end_of, load_log, put_bytes, varied_messages
from support.record_writer import CommitLogWriter, Message, StoredRecord, write_log

from reput.source.errors import CommitLogRewoundError, DataLossError, OptionError, SegmentError, StoreError
from reput.source.log import log_reader
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.reput_end_offset import ReputEnd, ReputEndFinder
from reput.source.options import SourceOptions
from reput.source.record.message_properties import parse_delay_levels

SIZE = 4096


def reader(path: Path, **options: object) -> LogReader:
    given = {"path": str(path), "tailGuardMs": "0"} | {name: str(value) for name, value in options.items()}
    return LogReader(SourceOptions.parse(given))


@pytest.fixture
def records(tmp_path: Path) -> list[StoredRecord]:
    """The records of a log of several segments from 8192 on."""
    return write_log(tmp_path, varied_messages(80), SIZE, start_offset=2 * SIZE)


def test_where_to_begin(records: list[StoredRecord], tmp_path: Path) -> None:
    """Words, numbers and times are offsets in the log."""
    third, end = records[3], end_of(records)
    assert reader(tmp_path).initial_offset() == 2 * SIZE
    assert reader(tmp_path, startingOffset="earliest").initial_offset() == 2 * SIZE
    assert end == reader(tmp_path, startingOffset="latest").initial_offset()
    assert third.physical_offset == reader(tmp_path, startingOffset=third.physical_offset).initial_offset()
    found = reader(tmp_path, startingTimestamp=third.message.store_timestamp - 3, startingOffset="latest")
    assert third.physical_offset == found.initial_offset()
    assert end == reader(tmp_path, startingTimestamp=2**60).initial_offset()


def test_whether_the_log_reaches_beyond_an_offset(tmp_path: Path) -> None:
    """One look at the byte and one at the segment after it decide, wherever the log ends."""
    records = write_log(tmp_path / "log", varied_messages(80), SIZE)
    log, end = reader(tmp_path / "log"), end_of(records)
    begins = [record.physical_offset for record in records]
    assert all(log.reaches_beyond(offset) for offset in [*begins, end - 1])
    assert not any(log.reaches_beyond(offset) for offset in (end, end + 1, log.queue().end_of_files, 2**40))
    # In the empty rest of a segment, when a broker has begun the next one.
    assert all(log.reaches_beyond(file.file_from_offset - 1) for file in log.queue().files[1:])
    (tmp_path / "log" / f"{log.queue().end_of_files:020d}").write_bytes(bytes(SIZE))  # made ahead
    log.look_anew()
    assert not log.reaches_beyond(end)


def test_an_idle_log_is_looked_at_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until something comes: then often, and what comes is seen at the next look."""
    pauses: list[float] = []
    now = 1000.0

    def sleep(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += seconds

    def monotonic() -> float:
        nonlocal now
        now += 0.001
        return now

    monkeypatch.setattr(log_reader.time, "monotonic", monotonic)
    monkeypatch.setattr(log_reader.time, "sleep", sleep)
    with CommitLogWriter(tmp_path / "log", SIZE, preallocate=True) as writer:
        writer.append(Message())
        log, end = reader(tmp_path / "log"), writer.max_offset
        while now < 1010:
            assert log.end(end) == end
            log.wait_at(end, 0.5)
        assert set(pauses) == {0.02, 0.1}
        assert pauses == sorted(pauses)
        assert pauses.count(0.02) == pytest.approx(5 / 0.02, rel=0.3)
        pauses.clear()
        writer.append(Message())
        end = log.end(end)
        assert (end, log.end(end)) == (writer.max_offset, end)
        log.wait_at(end, 0.5)
        assert set(pauses) == {0.02}


def test_an_offset_that_has_expired(
    records: list[StoredRecord], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A loss stops the reader, or is logged where that was asked for."""
    with pytest.raises(DataLossError) as raised:
        reader(tmp_path, startingOffset=100).initial_offset()
    assert str(raised.value) == (
        "startingOffset=100, and the log begins at 8192: older records have expired; "
        "set failOnDataLoss=false to begin at the log's beginning"
    )
    with caplog.at_level(logging.WARNING):
        assert reader(tmp_path, startingOffset=100, failOnDataLoss="false").initial_offset() == 2 * SIZE
    assert "older records have expired; beginning at the log's beginning" in caplog.text


def test_an_offset_inside_a_record(records: list[StoredRecord], tmp_path: Path) -> None:
    """A number that is not where a record begins is refused."""
    with pytest.raises(OptionError, match="is not where a record begins"):
        reader(tmp_path, startingOffset=records[3].physical_offset + 1).initial_offset()


def test_a_begin_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sink of a run begins where the log ended when it was first asked, however it grows meanwhile."""
    with CommitLogWriter(tmp_path, 1 << 20) as writer:
        for number in range(5):
            writer.append(Message(store_timestamp=1000 * number))
        log, timed = reader(tmp_path, startingOffset="latest"), reader(tmp_path, startingTimestamp=3000)
        begins = log.initial_offset(), timed.initial_offset()
        assert begins == (writer.max_offset, writer.records[3].physical_offset)
        writer.append(Message(store_timestamp=5000))
    monkeypatch.setattr(LogReader, "settled_end", lambda *_: pytest.fail("the end is asked for again"))
    assert (log.initial_offset(), timed.initial_offset()) == begins


@pytest.mark.parametrize("gone", [[0, 1], [3], [0, 2]], ids=["at the front", "in the middle", "both"])
def test_the_end_is_behind_segments_that_go_meanwhile(
    gone: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they may: an end in front of what is left would end a run that takes what there is."""
    queue, records = load_log(tmp_path, varied_messages(60), 2000)
    assert len(queue.files) > 5
    settle, left = ReputEndFinder.settle, list(gone)

    def expired(finder: ReputEndFinder, load: Callable[[], MappedFileQueue], start: int) -> ReputEnd:
        while left:
            Path(queue.files[left.pop()].path).unlink()
        return settle(finder, load, start)

    log = reader(tmp_path, failOnDataLoss="false")
    begin = log.queue().min_offset
    monkeypatch.setattr(ReputEndFinder, "settle", expired)
    assert log.settled_end(begin) == end_of(records)


def test_latest_waits_for_the_last_record(records: list[StoredRecord], tmp_path: Path) -> None:
    """Beginning at the end is not beginning before a record that was only held back."""
    guarded = reader(tmp_path, startingOffset="latest", tailGuardMs=20)
    assert records[-1].physical_offset == guarded.end(2 * SIZE)
    assert end_of(records) == guarded.initial_offset()
    assert end_of(records) == guarded.last_end


def test_an_empty_log(tmp_path: Path) -> None:
    """A directory without segments begins and ends at 0 and has no identity."""
    log = reader(tmp_path)
    assert (log.initial_offset(), log.end(0), log.settled_end(0)) == (0, 0, 0)
    assert log.identity(0) == {"fileFromOffset": -1, "firstStoreTimestamp": -1}
    log.check_identity(0, {"fileFromOffset": -1, "firstStoreTimestamp": -1})


def test_a_missing_log_is_an_error_at_the_first_question(tmp_path: Path) -> None:
    """Making a reader touches nothing; asking it does."""
    log = reader(tmp_path / "nothing")
    with pytest.raises(StoreError, match="no commitlog at"):
        log.queue()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_hole(fail: str, records: list[StoredRecord], tmp_path: Path) -> None:
    """A missing segment stops the reader; with failOnDataLoss=false it reads to the hole."""
    (tmp_path / f"{3 * SIZE:020d}").unlink()
    log = reader(tmp_path, failOnDataLoss=fail)
    if fail == "true":
        with pytest.raises(SegmentError, match="hole in the commitlog") as raised:
            log.end(2 * SIZE)
        error = raised.value
        assert (error.file, error.physical_offset) == (str(tmp_path / f"{2 * SIZE:020d}"), 3 * SIZE)
        assert error.advice == "restore the missing files, or set failOnDataLoss=false to continue after them"
        with pytest.raises(SegmentError, match="hole in the commitlog"):
            log.settled_end(2 * SIZE)
    else:
        assert 2 * SIZE < log.end(2 * SIZE) <= 3 * SIZE
    assert end_of(records) == log.end(4 * SIZE)


@pytest.mark.parametrize(("check_crc", "counts"), [("tail", False), ("all", False), ("none", True)])
def test_bodies_at_the_tail(check_crc: str, counts: bool, tmp_path: Path) -> None:
    """The last records' bodies are checked unless that is switched off; those of all records on request."""
    load_log(tmp_path, [Message(body_crc=1)])
    log = reader(tmp_path, checkCrc=check_crc, messageDelayLevel="1s 7s")
    assert (log.end(0) > 0) == counts
    assert log.decode_options.check_crc == (check_crc == "all")
    assert parse_delay_levels("1s 7s") == log.decode_options.delays_ms


def test_what_stands_at_the_end_is_worth_one_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that are not a record are logged once for each offset; zeros and blanks are not."""
    _, records = load_log(tmp_path, [Message()])
    log = reader(tmp_path)
    with caplog.at_level(logging.WARNING):
        log.end(0)
        assert caplog.messages == []
        put_bytes(tmp_path / f"{0:020d}", end_of(records), b"\1" * 200)
        log.end(0)
        log.end(0)
    expected = (
        f"waiting at offset {end_of(records)}: the bytes there are not a record yet (BAD_MAGIC); if the log continues "
        "after them, that record is damaged, and onDamage=quarantine passes over it"
    )
    assert [expected] == caplog.messages


def test_align_down_limit_and_split(records: list[StoredRecord], tmp_path: Path) -> None:
    """The offsets are those of the log as it is now, the ranges as long as the option says."""
    log = reader(tmp_path, maxBytesPerPartition=500)
    start, end = 2 * SIZE, end_of(records)
    assert records[3].physical_offset == log.align_down(start, records[3].physical_offset + 5)
    assert records[70].physical_offset == log.align_down(start, records[70].physical_offset + 5)
    assert log.align_down(start, 2**40) == 2**40
    assert records[2].physical_offset == log.limit(start, end, None, 2)
    spans = list(log.split(start, end))
    assert (start, end) == (spans[0].start, spans[-1].end)
    assert max(span.end - span.start for span in spans[:-1]) <= 750


def test_no_range_is_cut_in_what_a_broker_passes_over(tmp_path: Path) -> None:
    """After a delay level that is not a number it reads nothing more; the walk to the log's end met good records."""
    bad = Message("SCHEDULE_TOPIC_XXXX", properties={"DELAY": ":"})
    records = write_log(tmp_path, [Message(), bad, Message(), Message()], SIZE)
    log = reader(tmp_path, onDamage="broker", maxBytesPerPartition=50)
    end = log.settled_end(0)
    assert end == end_of(records)
    first = records[1].physical_offset
    assert log.limit(0, end, 200, None) == log.align_down(0, end - 1) == first
    assert log.limit(first, end, 200, None) == end
    assert [(span.start, span.end) for span in log.split(0, end)] == [(0, first), (first, end)]


# --- identity --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dledger", [False, True])
def test_the_message_at_an_offset(dledger: bool, tmp_path: Path) -> None:
    """A good record of just the size that is given, at its very offset and before the log's end."""
    records = write_log(tmp_path, varied_messages(8), SIZE, dledger=dledger)
    log = reader(tmp_path, enableDLegerCommitLog=str(dledger).lower(), checkCrc="all", onDamage="quarantine")
    for offset, message, size in records:
        found = log.message_at(offset, size)
        assert found is not None
        assert (found.physical_offset, found.msg_size, found.body) == (offset, size, message.body)
        assert log.message_at(offset, size - 1) is log.message_at(offset, size + 1) is None
        assert log.message_at(offset + 1, size) is None
    put_bytes(tmp_path / f"{0:020d}", records[2].physical_offset + 90, b"?")
    assert log.message_at(records[2].physical_offset, 2 * SIZE) is None
    assert log.message_at(0 if dledger else 1, SIZE) is log.message_at(10 * SIZE, SIZE) is None


def test_identity_is_of_the_segment_before(records: list[StoredRecord], tmp_path: Path) -> None:
    """An offset belongs to the segment of the byte before it, and its first record's store time."""
    log = reader(tmp_path)
    times = {record.physical_offset: record.message.store_timestamp for record in records}
    for offset, file in ((2 * SIZE + 1, 2 * SIZE), (3 * SIZE, 2 * SIZE), (3 * SIZE + 1, 3 * SIZE)):
        assert {"fileFromOffset": file, "firstStoreTimestamp": times[file]} == log.identity(offset)
    for offset in (0, 2 * SIZE, 2**40):
        assert log.identity(offset) == {"fileFromOffset": -1, "firstStoreTimestamp": -1}


def test_another_log_is_noticed(records: list[StoredRecord], tmp_path: Path) -> None:
    """An offset of a log whose segment began with another record is refused; an expired segment proves nothing."""
    log = reader(tmp_path)
    known = log.identity(3 * SIZE)
    log.check_identity(3 * SIZE, known)
    put_bytes(tmp_path / f"{2 * SIZE:020d}", 56, b"\0\0\1\2\3\4\5\6")
    with pytest.raises(
        CommitLogRewoundError, match="the checkpoint is of another log: the segment before offset 12288"
    ):
        log.check_identity(3 * SIZE, known)
    (tmp_path / f"{2 * SIZE:020d}").unlink()
    log.check_identity(3 * SIZE, known)
