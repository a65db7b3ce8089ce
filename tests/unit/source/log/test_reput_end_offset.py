"""How far it is safe to read: never past the end, never a torn record, and nothing withheld for ever."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.live_log import FIRST, GUARD_MS, SIZE, LiveLog
from support.logs import SHAPES, V6_BORN, varied_messages
from support.record_writer import Message, encode

from reput.source.log import reput_end_offset
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.log.range_reader import DecodeOptions
from reput.source.log.reput_end_offset import ReputEnd, ReputEndFinder, begins_with_record
from reput.source.log.segment_scan import Window
from reput.source.record.message_decoder import Verdict


@pytest.fixture
def log(tmp_path: Path) -> LiveLog:
    return LiveLog(tmp_path)


# --- the last record -------------------------------------------------------------------------------------


def test_the_last_record_is_held_back_until_the_guard(log: LiveLog) -> None:
    """A whole last record counts once it was unchanged for tailGuardMs, not before."""
    end = log.append()
    assert ReputEnd(0, Verdict.EMPTY, end) == log.end()
    assert ReputEnd(0, Verdict.EMPTY, end) == log.end(GUARD_MS - 1)
    assert ReputEnd(end, Verdict.EMPTY) == log.end(1)
    assert ReputEnd(end, Verdict.EMPTY) == log.end()


def test_a_successor_settles_a_record_at_once(log: LiveLog) -> None:
    """A whole record after it proves that the writer had finished."""
    first = log.append()
    assert log.end().offset == 0
    second = log.append()
    assert ReputEnd(first, Verdict.EMPTY, second - first) == log.end()


def test_a_record_seen_for_the_first_time_late_is_guarded_too(log: LiveLog) -> None:
    """The guard runs from when a record was seen, not from when the log was last looked at."""
    first = log.append()
    assert log.settled().offset == first
    log.clock.now += 60
    second = log.append()
    assert (first, first) == (log.end().offset, log.end(GUARD_MS - 1).offset)
    assert log.end(1).offset == second


def test_a_record_that_changes_is_guarded_anew(log: LiveLog) -> None:
    """A change of the last record, though it was whole before and is after, starts the guard again."""
    end = log.append(Message(properties={"TAGS": "abc"}))
    assert log.end().offset == 0
    log.put(end - 3, b"abX")
    assert log.end(GUARD_MS - 1).offset == 0
    assert log.end(GUARD_MS - 1).offset == 0
    assert log.end(1).offset == end


def test_a_guard_of_0_trusts_at_once(tmp_path: Path) -> None:
    """With that setting the last record is read as soon as it is whole."""
    log = LiveLog(tmp_path, guard_ms=0)
    end = log.append()
    assert ReputEnd(end, Verdict.EMPTY) == log.end()


@pytest.mark.parametrize("name", SHAPES)
def test_a_torn_record_at_every_byte(name: str, log: LiveLog) -> None:
    """Cut at any byte it does not appear within the guard; complete, it appears after one more guard."""
    first = log.append()
    record = encode(SHAPES[name], first)
    for cut in range(1, len(record)):
        log.finder = ReputEndFinder(check_crc=True, tail_guard_ms=GUARD_MS, clock=log.clock)
        torn = record[:cut] + bytes(len(record) - cut)
        log.put(first, torn)
        ends = [log.end(), log.end(GUARD_MS - 1)]
        assert max(end.offset for end in ends) <= first, cut
        if ends[-1].held_back != len(record):  # its lengths do not add up, so that no time will make it a record
            assert log.end(10 * GUARD_MS).offset == first, cut
        log.put(first, record)
        if torn != record:
            assert [log.end().offset, log.end(GUARD_MS - 1).offset] == [first, first], cut
        assert log.end(GUARD_MS).offset == first + len(record), cut


def test_bytes_that_come_in_any_order(log: LiveLog) -> None:
    """While any byte of the record is missing and bytes still come, it is not there."""
    first = log.append()
    assert log.settled().offset == first
    record = encode(SHAPES["plain"], first)
    for missing in range(len(record)):
        log.put(first, record[:missing] + b"\0" + record[missing + 1 :])
        if record[missing]:
            assert log.end(GUARD_MS - 1).offset == first, missing
    log.put(first, record)
    assert log.end().offset == first
    assert log.end(GUARD_MS).offset == first + len(record)


@pytest.mark.parametrize(("check_crc", "is_whole"), [(True, False), (False, True)])
def test_a_body_that_is_not_there_yet(check_crc: bool, is_whole: bool, log: LiveLog) -> None:
    """The body's checksum is checked at the tail, unless that is switched off."""
    log.finder = ReputEndFinder(check_crc=check_crc, tail_guard_ms=0, clock=log.clock)
    end = log.append(Message(body_crc=1))
    expected = ReputEnd(end, Verdict.EMPTY) if is_whole else ReputEnd(0, Verdict.BAD_CRC)
    assert expected == log.end()


# --- segments --------------------------------------------------------------------------------------------


def fill(log: LiveLog) -> int:
    """Append until the log has rolled over; returns where the first segment's blank is."""
    blank = 0
    while log.writer.max_offset <= SIZE:
        blank = log.writer.max_offset
        log.writer.append(FIRST)
    log.writer.close()
    return blank


def remove(log: LiveLog, offset: int) -> None:
    (log.directory / f"{offset:020d}").unlink()


def test_a_blank_without_next_file_ends_the_log(log: LiveLog) -> None:
    """A blank settles the record before it; the log waits there for its next file."""
    blank = fill(log)
    remove(log, SIZE)
    assert ReputEnd(blank, Verdict.BLANK) == log.end()
    assert ReputEnd(blank, Verdict.BLANK) == log.end(start=blank)


@pytest.mark.parametrize("start_at_blank", [False, True])
def test_a_blank_rolls_to_a_next_file_of_zeros(start_at_blank: bool, log: LiveLog) -> None:
    """A file that the broker made in advance is where the next record will be."""
    blank = fill(log)
    log.put(SIZE, bytes(SIZE))
    assert ReputEnd(SIZE, Verdict.EMPTY) == log.end(start=blank if start_at_blank else 0)
    assert ReputEnd(SIZE, Verdict.EMPTY) == log.end(start=SIZE)


def test_a_next_file_that_has_begun_settles_this_one(log: LiveLog) -> None:
    """The end is in the last file that has begun, and nothing before is walked again."""
    fill(log)
    end = log.writer.max_offset
    assert ReputEnd(SIZE, Verdict.EMPTY, end - SIZE) == log.end()
    assert ReputEnd(end, Verdict.EMPTY) == log.end(GUARD_MS)


def test_files_made_in_advance_do_not_end_the_log(tmp_path: Path) -> None:
    """The next file exists while this one is written: it says nothing."""
    log = LiveLog(tmp_path, preallocate=True)
    end = log.append()
    assert len(log.queue().files) == 2
    assert ReputEnd(0, Verdict.EMPTY, end) == log.end()
    assert ReputEnd(end, Verdict.EMPTY) == log.end(GUARD_MS)


def test_a_log_that_is_only_a_blank(log: LiveLog) -> None:
    """A record that no file could hold leaves files of one blank each."""
    with pytest.raises(ValueError, match="never fit"):
        log.append(Message(body=bytes(SIZE)))
    assert ReputEnd(SIZE, Verdict.BLANK) == log.end()
    end = log.append()
    assert ReputEnd(2 * SIZE, Verdict.EMPTY, end - 2 * SIZE) == log.end()


def test_an_empty_log(log: LiveLog) -> None:
    """No file, then a file of zeros: nothing to read, wherever one asks."""
    assert [ReputEnd(0, Verdict.EMPTY), ReputEnd(77, Verdict.EMPTY)] == [log.end(), log.end(start=77)]
    log.writer.append_raw(b"")
    log.writer.close()
    assert ReputEnd(0, Verdict.EMPTY) == log.end()


def test_a_log_that_begins_above_0(tmp_path: Path) -> None:
    """After expiry the log begins at any segment."""
    log = LiveLog(tmp_path, start_offset=5 * SIZE)
    end = log.append()
    assert ReputEnd(5 * SIZE, Verdict.EMPTY, end - 5 * SIZE) == log.end(start=5 * SIZE)
    assert ReputEnd(end, Verdict.EMPTY) == log.end(GUARD_MS, start=5 * SIZE)


def test_a_hole_is_not_jumped(log: LiveLog) -> None:
    """The end is before a missing file, whatever files come after it."""
    fill(log)
    for message in varied_messages(30):
        log.append(message)
    remove(log, SIZE)
    assert log.settled().offset < SIZE


@pytest.mark.parametrize("born", [("127.0.0.1", 1), V6_BORN])
def test_begins_with_record(born: tuple[str, int], log: LiveLog) -> None:
    """A file has begun with a record of its own offset or a blank; zeros and stale records do not count."""
    log.append(replace(FIRST, born_host=born))
    (file,) = log.queue().files
    assert begins_with_record(file)
    for head in (bytes(100), encode(FIRST, SIZE), encode(FIRST, 8)):
        log.put(0, head)
        assert not begins_with_record(file)
    log.put(0, b"\0\0\4\0\xcb\xd4\x31\x94")
    assert begins_with_record(file)


# --- stale bytes -----------------------------------------------------------------------------------------


def test_an_old_record_of_another_offset_ends_the_log(log: LiveLog) -> None:
    """A whole record with a good checksum that was written for another offset is stale, and no successor."""
    end = log.append()
    log.put(end, encode(FIRST, end + SIZE) * 3)
    assert ReputEnd(0, Verdict.BAD_PHYSICAL_OFFSET, end) == log.end()
    assert ReputEnd(end, Verdict.BAD_PHYSICAL_OFFSET) == log.end(GUARD_MS)
    assert ReputEnd(end, Verdict.BAD_PHYSICAL_OFFSET) == log.end(100 * GUARD_MS)
    after = log.append()
    assert log.settled().offset == after


def test_an_old_record_behind_the_end_is_not_looked_for(log: LiveLog) -> None:
    """The bytes after the end are not searched, even for a record of its own right offset."""
    end = log.append()
    log.put(end + 40, encode(FIRST, end + 40))
    assert ReputEnd(end, Verdict.EMPTY) == log.settled()


def test_the_middle_of_an_old_record_ends_the_log(log: LiveLog) -> None:
    """A log that was cut and written again ends where its last record ends."""
    for _ in range(4):
        log.append()
    new = encode(Message(topic="T"), 0)
    log.put(0, new)
    end = log.settled()
    assert (len(new), True) == (end.offset, end.verdict >= Verdict.BAD_MAGIC)


def test_a_stale_next_file_has_not_begun(log: LiveLog) -> None:
    """A reused file holds old records: not its own offsets, so this file is still the last."""
    end = log.append()
    (log.directory / f"{SIZE:020d}").write_bytes(encode(FIRST, 77 * SIZE).ljust(SIZE, b"\0"))
    assert ReputEnd(0, Verdict.EMPTY, end) == log.end()


# --- growing ---------------------------------------------------------------------------------------------


def test_what_was_trusted_is_not_walked_again(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at a growing file begins where the last one ended."""
    walks = []
    scan_windows = reput_end_offset.scan_windows

    def noted(file: MappedFile, start: int, end: int, options: DecodeOptions) -> Iterator[Window]:
        walks.append(start)
        return scan_windows(file, start, end, options)

    monkeypatch.setattr(reput_end_offset, "scan_windows", noted)
    ends = [0]
    for _ in range(4):
        ends.append(log.append())
        assert log.settled().offset == ends[-1]
    assert [offset for end in ends[:-1] for offset in (end, end)] == walks
