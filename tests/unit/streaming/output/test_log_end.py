"""Where the log ends now, and when the first record behind an offset was stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.record_writer import CommitLogWriter, Message, StoredRecord, write_log

from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import load_config
from reput.streaming.status.batch_report import LogEnd, LogEndWatch


def watch(store: Path, *options: str) -> LogEndWatch:
    config = load_config(store, overrides=options)
    return LogEndWatch(LogReader(SourceOptions.parse(config.source_options())))


def end_of(record: StoredRecord) -> int:
    return record.physical_offset + record.msg_size


def test_the_end_moves_with_the_log(tmp_path: Path) -> None:
    """It is that of now, over segments and their blanks."""
    with CommitLogWriter(tmp_path / "commitlog", 1024) as writer:
        seen = watch(tmp_path, "tailGuardMs=0")
        for _ in range(40):
            writer.append(Message())
            end = LogEnd(end_of(writer.records[-1]))
            assert seen.look(0) == end
            assert seen.look(end.offset) == end


def test_the_first_record_behind_an_offset(tmp_path: Path) -> None:
    """A query that ends there lacks that record first: behind a segment's blank it is the next segment's first."""
    records = write_log(
        tmp_path / "commitlog", (Message(store_timestamp=1_000_000 + 250 * number) for number in range(40)), 1024
    )
    seen = watch(tmp_path)
    assert len({record.physical_offset // 1024 for record in records}) > 3
    for before, record in zip(records, records[1:], strict=False):
        assert seen.store_timestamp_at(end_of(before)) == seen.store_timestamp_at(record.physical_offset)
        assert seen.store_timestamp_at(record.physical_offset) == record.message.store_timestamp
    assert seen.store_timestamp_at(end_of(records[-1])) is None
    assert seen.store_timestamp_at(records[3].physical_offset + 1) is None  # no record begins there


def test_a_record_that_is_held_back_is_no_lag(tmp_path: Path) -> None:
    """No query may read it yet; the end is before it."""
    with CommitLogWriter(tmp_path / "commitlog", 4096) as writer:
        for _ in range(2):
            writer.append(Message())
        assert watch(tmp_path, "tailGuardMs=60000").look(0) == LogEnd(end_of(writer.records[0]))


def test_a_log_that_cannot_be_read_is_no_end(tmp_path: Path) -> None:
    """The queries say what is wrong; nothing that was seen before is taken for the end now."""
    write_log(tmp_path / "commitlog", [Message()], 4096)
    seen = watch(tmp_path, "tailGuardMs=0")
    assert seen.look(0) is not None
    (tmp_path / "commitlog").rename(tmp_path / "gone")
    assert seen.look(0) is None


def test_a_record_that_is_being_written_is_no_alarm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A look every second meets some; the queries report bytes that stay for a while."""
    records = write_log(tmp_path / "commitlog", [Message(), Message()], 4096)
    begin = records[1].physical_offset
    segment = next((tmp_path / "commitlog").iterdir())
    content = bytearray(segment.read_bytes())
    content[begin + 8 : begin + 12] = b"\1\2\3\4"  # the CRC of its body
    segment.write_bytes(content)
    seen = watch(tmp_path, "tailGuardMs=0").look(0)
    assert seen is not None
    assert (seen.offset, bool(seen.at_end)) == (begin, True)
    assert caplog.messages == []
