"""The checks of the log for a micro-batch: whether it has the sinks' last record, and which records have gone."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.live_log import Clock
from support.logs import put_bytes, varied_messages
from support.record_writer import CommitLogWriter, Message, write_log

from reput.source.errors import CommitLogRewoundError, SinkError, TransientError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.effects.range_task import RangeEffects
from reput.streaming.output.spark_checkpoint import forget_planned_batch
from reput.streaming.tail.micro_batch import BadEndWatch, LogContinuity

SIZE = 4096


def continuity(log: Path, *, fail: bool) -> LogContinuity:
    given = {"path": str(log), "tailGuardMs": "0", "failOnDataLoss": str(fail).lower()}
    return LogContinuity("logic", LogReader(SourceOptions.parse(given)), fail_on_data_loss=fail)


@pytest.fixture
def offsets(tmp_path: Path) -> list[int]:
    """Where the records begin of a log of several segments."""
    records = write_log(tmp_path, varied_messages(80), SIZE)
    return [record.physical_offset for record in records]


@pytest.mark.parametrize("fail", [True, False])
def test_the_sinks_last_record(fail: bool, offsets: list[int], tmp_path: Path) -> None:
    """It must be there, unless it expired; a log that is gone may come back."""
    log = LogReader(SourceOptions.parse({"path": str(tmp_path)}))
    known = log.last_record_before(offsets[50])
    assert known is not None
    assert known.offset == offsets[49]
    asked = continuity(tmp_path, fail=fail)
    asked.check([known, None, known])
    name, at = f"{known.offset - known.offset % SIZE:020d}", known.offset % SIZE
    put_bytes(tmp_path / name, at + 60, b"\7\7")  # its store time
    with pytest.raises(CommitLogRewoundError, match=f"logic: a record of {known.size} bytes at offset {known.offset}"):
        asked.check([known])
    put_bytes(tmp_path / name, at, bytes(90))
    with pytest.raises(CommitLogRewoundError, match="the log now has no such record") as raised:
        asked.check([known])
    assert raised.value.physical_offset == known.offset
    assert str(raised.value.advice).startswith("'reput recover' with the same --store and --output cuts")
    for path in sorted(tmp_path.iterdir())[:-1]:
        path.unlink()
    asked.check([known])
    max(tmp_path.iterdir()).unlink()
    with pytest.raises(TransientError, match="volume"):
        asked.check([known])


def test_a_log_that_was_cut_before_a_planned_end(offsets: list[int], tmp_path: Path) -> None:
    """In the last segment that was begun, bytes that are not a record are the log's end; before it, they are damage."""
    asked = continuity(tmp_path, fail=True)
    last = 2 * SIZE
    for path in tmp_path.iterdir():
        if int(path.name) > last:
            path.unlink()
    inside = [physical_offset for physical_offset in offsets if last < physical_offset < last + SIZE]
    asked.check_reaches(offsets[3], inside[1])
    put_bytes(tmp_path / f"{0:020d}", offsets[5], b"\0\0\0\x01")  # damage, with later segments after it
    asked.check_reaches(offsets[3], inside[1])
    put_bytes(tmp_path / f"{last:020d}", inside[0] - last, bytes(60))
    asked.check_reaches(offsets[3], inside[0])
    with pytest.raises(TransientError, match=f"logic: the log was cut: it reached {inside[1]} .* ends at {inside[0]}"):
        asked.check_reaches(offsets[3], inside[1])


def results(*spans: tuple[int, int]) -> list[RangeEffects]:
    return [RangeEffects(start, end, is_whole=True) for start, end in spans]


def test_what_is_gone_is_told_from_what_is_missing(offsets: list[int], tmp_path: Path) -> None:
    """Results are cut at a hole that the log has, and at no other; only failOnDataLoss=false passes over one."""
    found = results((0, 40), (40, SIZE), (3 * SIZE, 3 * SIZE + 50))
    for number in (1, 2):
        (tmp_path / f"{number * SIZE:020d}").unlink()
    lenient, strict = continuity(tmp_path, fail=False), continuity(tmp_path, fail=True)
    assert lenient.rows_of(found) == results((0, SIZE), (3 * SIZE, 3 * SIZE + 50))
    with pytest.raises(SinkError, match=f"do not follow each other: one ends at {SIZE}, the next is {3 * SIZE}"):
        strict.rows_of(found)
    assert lenient.is_gone(SIZE, 3 * SIZE)
    assert lenient.is_gone(2 * SIZE, 3 * SIZE)
    for end, start in ((SIZE - 1, 3 * SIZE), (SIZE, 3 * SIZE + 1), (3 * SIZE, 3 * SIZE)):
        assert not lenient.is_gone(end, start)
    assert not strict.is_gone(SIZE, 3 * SIZE)
    for each in (lenient, strict):  # a result that is missing, though the log has its records
        with pytest.raises(SinkError, match="do not follow each other: one ends at 40, the next is 50"):
            each.rows_of(results((0, 40), (50, SIZE)))


def test_a_place_that_stands_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not a record that is being written, and not again; another place is."""
    clock = Clock()
    watch = BadEndWatch(clock)
    with caplog.at_level(logging.WARNING):
        for offset, verdict, seconds in [(5, "BAD_CRC", 1.0), (5, None, 9.0), (7, "BAD_MAGIC", 4.0)]:
            watch.note("logic", offset, verdict)
            clock.now += seconds
        assert caplog.messages == []
        for _ in range(30):
            watch.note("logic", 7, "BAD_MAGIC")
            clock.now += 1
        assert len(caplog.messages) == 1
        assert "logic: waiting at offset 7: the bytes there are not a record (BAD_MAGIC)" in caplog.messages[0]


def test_a_batch_that_was_planned_for_a_log_that_was_cut(tmp_path: Path) -> None:
    """Spark's checkpoint goes when the log has not that batch's last record; else it stays."""
    log = tmp_path / "log"
    with CommitLogWriter(log, 16 * SIZE) as writer:
        for message in varied_messages(20):
            writer.append(message)
    reader = LogReader(SourceOptions.parse({"path": str(log), "tailGuardMs": "0"}))
    last = reader.last_record_before(writer.max_offset)
    assert last is not None
    numbers = dict(zip(("Offset", "Size", "StoreTimestamp", "BodyCrc"), vars(last).values(), strict=True))
    offset = {"version": 1, "physicOffset": writer.max_offset, "startOffset": 0}
    offset |= {f"lastRecord{name}": number for name, number in numbers.items()}
    checkpoint = tmp_path / "checkpoint" / "logic"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    text = "v1\n{}\n" + str(offset).replace("'", '"')
    (checkpoint / "offsets" / "0").write_text(text)
    forget_planned_batch(checkpoint, reader)
    assert checkpoint.exists()
    with CommitLogWriter(tmp_path / "other", 16 * SIZE) as writer:
        for message in [*varied_messages(10), Message(body=bytes(30))]:
            writer.append(message)
    segment = log / f"{0:020d}"
    segment.write_bytes((tmp_path / "other" / segment.name).read_bytes())
    (checkpoint / "commits" / "0").touch()
    forget_planned_batch(checkpoint, reader)
    assert checkpoint.exists()  # it was done: that the log was cut is for the sinks' own check
    (checkpoint / "commits" / "0").unlink()
    forget_planned_batch(checkpoint, reader)
    assert not checkpoint.exists()
