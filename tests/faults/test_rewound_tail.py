"""G4 while it runs: a log that is cut, written over or gone under a stream is reported at once, in any process.

The stream's reader gets Spark's calls, and every record that it hands out is checked as in a task.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import StructType
from support.proof_counts import Proof
from support.record_writer import CommitLogWriter, Message

from reput.source import data_source
from reput.source.data_source import CommitLogDataSource, CommitLogStreamReader, last_record_of_offset
from reput.source.errors import CommitLogRewoundError, SegmentError, TransientError
from reput.source.log import log_reader

SIZE = 2000
ALL = ReadAllAvailable()
Offset = dict[str, Any]


def messages(count: int, first: int = 0, body: int = 20) -> list[Message]:
    """All of one size, each stored later than the one before."""
    return [
        Message(body=bytes([number % 251]) * body, store_timestamp=1_700_000_000_000 + 1000 * number)
        for number in range(first, first + count)
    ]


def write(log: Path, content: list[Message], *, size: int = SIZE, preallocate: bool = True) -> list[int]:
    """The log as a broker would have written it from the start; where each record begins, and where the last ends."""
    with CommitLogWriter(log, size, preallocate=preallocate) as writer:
        for message in content:
            writer.append(message)
    return [*(record.physical_offset for record in writer.records), writer.max_offset]


def leave_old_bytes(log: Path, before: dict[str, bytes], end: int) -> None:
    """Behind its new end the last segment keeps what it had, as when a broker sets its write position back."""
    name = f"{end - end % SIZE:020d}"
    path = log / name
    path.write_bytes(path.read_bytes()[: end % SIZE] + before[name][end % SIZE :])


def contents(log: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log.iterdir()}


class Stream:
    """A stream's reader with the offset that Spark has of it."""

    def __init__(self, log: Path, **options: str) -> None:
        self._given = {"path": str(log), "tailGuardMs": "0"} | options
        self.reader = self._open()
        self.offset: Offset = self.reader.initialOffset()

    def _open(self) -> CommitLogStreamReader:
        return CommitLogDataSource(self._given).streamReader(StructType())

    def restart(self) -> None:
        """Continue from the checkpoint in another process."""
        self.reader, self.offset = self._open(), json.loads(json.dumps(self.offset))

    def read_all(self, bytes_max: int | None = None) -> int:
        """Micro-batches until there is nothing new; where it is then."""
        limit = ALL if bytes_max is None else ReadMaxBytes(bytes_max)
        while (end := self.reader.latestOffset(self.offset, limit)) != self.offset:
            self.reader.partitions(self.offset, end)
            self.offset = end
        return int(self.offset["physicOffset"])


@pytest.fixture(autouse=True)
def no_wait_for_new_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer at once if the log has nothing new: nothing is written meanwhile."""
    monkeypatch.setattr(data_source, "_IDLE_S", 0.0)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow the records at every idle look, as a stream does that has waited for some seconds."""
    for name in ("_IDLE_S", "_CHANGED_S", "_UNCHANGED_S"):
        monkeypatch.setattr(log_reader, name, 0.0)
    for name in ("_CHANGED_FACTOR", "_UNCHANGED_FACTOR"):
        monkeypatch.setattr(log_reader, name, 0)


def rewrite(log: Path, content: list[Message], *, keep: bool = False) -> None:
    before = contents(log)
    shutil.rmtree(log)
    end = write(log, content)[-1]
    if keep:
        leave_old_bytes(log, before, end)


def remove_last(log: Path) -> None:
    for path in sorted(log.iterdir())[-2:]:
        path.unlink()


OLD = messages(40)
# The log after the broker's restart: how many records it kept, what it wrote afterwards, whether old bytes follow the
# new end. Records of another size leave a false seam; those of one size lie as the old ones did.
CASES: dict[str, Callable[[Path], None]] = {
    "shorter": lambda log: rewrite(log, OLD[:37] + messages(1, 100, 7)),
    "shorter, old bytes behind it": lambda log: rewrite(log, OLD[:37] + messages(1, 100, 7), keep=True),
    "longer": lambda log: rewrite(log, OLD[:37] + messages(30, 100, 33)),
    "longer, records of the same size": lambda log: rewrite(log, OLD[:37] + messages(30, 100)),
    "as long, other content": lambda log: rewrite(log, OLD[:39] + messages(1, 100)),
    "cut at a record, zeros behind it": lambda log: rewrite(log, OLD[:39]),
    "cut into an earlier segment": lambda log: rewrite(log, OLD[:5]),
    "cut into an earlier segment, written on": lambda log: rewrite(log, OLD[:5] + messages(60, 100, 25)),
    "last segments removed": remove_last,
    "another store": lambda log: rewrite(log, messages(45, 500, 30)),
    "another store, shorter": lambda log: rewrite(log, messages(3, 500)),
}


@pytest.mark.parametrize("by", ["the same process", "another process", "available now"])
@pytest.mark.parametrize("case", CASES)
def test_a_log_that_is_written_over(case: str, by: str, at_once: None, tmp_path: Path, proof: Proof) -> None:
    """The stream was at the end; the next look reports that the log is another, and where."""
    log = tmp_path / "commitlog"
    write(log, OLD)
    stream = Stream(log)
    stream.read_all()
    last = last_record_of_offset(stream.offset)
    assert last is not None
    CASES[case](log)
    if by != "the same process":
        stream.restart()
    if by == "available now":
        stream.reader.prepareForTriggerAvailableNow()
    with pytest.raises(CommitLogRewoundError) as raised:
        stream.read_all()
    assert f"a record of {last.size} bytes at offset {last.offset}, " in str(raised.value)
    assert "'reput recover'" in str(raised.value)
    assert "\n" not in raised.value.cause
    proof("G4 logs written over under a stream")


@pytest.mark.parametrize("bytes_max", [300, 1000])
@pytest.mark.parametrize("kept", [6, 20, 39])
def test_behind_the_end_too(kept: int, bytes_max: int, tmp_path: Path) -> None:
    """A stream that is still catching up never begins a batch behind a record that is no more."""
    log = tmp_path / "commitlog"
    write(log, OLD)
    for steps in range(1, 8):
        shutil.rmtree(log)
        offsets = write(log, OLD)
        stream = Stream(log)
        for _ in range(steps):
            stream.offset = stream.reader.latestOffset(stream.offset, ReadMaxBytes(bytes_max))
        here = int(stream.offset["physicOffset"])
        rewrite(log, OLD[:kept] + messages(60, 100))
        if here > offsets[kept]:
            with pytest.raises(CommitLogRewoundError):
                stream.read_all(bytes_max)
        else:
            stream.restart()  # the records behind were never read
            stream.read_all(bytes_max)


def test_a_log_that_only_grows_is_no_other(at_once: None, tmp_path: Path) -> None:
    """Rolled, with segments made in advance and expired, at every size of a batch: nothing is reported."""
    for bytes_max in (100, 700, None):
        log = tmp_path / f"{bytes_max}" / "commitlog"
        with CommitLogWriter(log, SIZE, preallocate=True) as writer:
            stream = Stream(log)
            for number, message in enumerate(messages(60)):
                writer.append(replace(message, body=message.body * (1 + number % 5)))
                assert stream.read_all(bytes_max) == writer.max_offset
                if number % 20 == 19:
                    min(log.iterdir()).unlink()
                if number % 7 == 6:
                    stream.restart()
            assert stream.read_all(bytes_max) == writer.max_offset


def test_a_batch_that_was_planned_before_the_cut(tmp_path: Path) -> None:
    """A batch that was planned but not read is dropped, not taken from the present bytes."""
    log = tmp_path / "commitlog"
    offsets = write(log, OLD)
    stream = Stream(log)
    stream.offset = stream.reader.latestOffset(stream.offset, ReadMaxBytes(500))
    planned = stream.reader.latestOffset(stream.offset, ALL)
    assert int(planned["physicOffset"]) == offsets[-1]
    rewrite(log, OLD[:20] + messages(60, 100))
    stream.restart()
    with pytest.raises(TransientError, match="the log was cut before"):
        stream.reader.partitions(stream.offset, planned)


@pytest.mark.parametrize(
    ("how", "by"),
    [
        ("emptied", "the same process"),
        ("removed", "the same process"),
        ("another directory", "the same process"),
        ("emptied", "another process"),
    ],
)
def test_a_log_that_is_gone_may_come_back(how: str, by: str, tmp_path: Path) -> None:
    """No segment at all does not mean expiry, whatever failOnDataLoss says: a broker keeps its last segment."""
    for fail in ("true", "false"):
        log, away = tmp_path / "commitlog", tmp_path / "away"
        shutil.rmtree(log, ignore_errors=True)
        end = write(log, OLD)[-1]
        stream = Stream(log, failOnDataLoss=fail)
        stream.read_all()
        if by != "the same process":
            stream.restart()
        shutil.copytree(log, away)
        if how == "emptied":
            for path in log.iterdir():
                path.unlink()
        else:
            shutil.rmtree(log)
            if how == "another directory":
                log.mkdir()
        with pytest.raises(TransientError, match="volume"):
            stream.read_all()
        shutil.rmtree(log, ignore_errors=True)
        away.rename(log)
        stream.restart()
        assert stream.read_all() == end


def test_a_segment_that_is_cut_short(tmp_path: Path) -> None:
    """The running stream says that its last record is gone, a new one that the file has not its size."""
    log = tmp_path / "commitlog"
    write(log, OLD)
    stream = Stream(log)
    stream.read_all()
    path = sorted(log.iterdir())[-2]
    path.write_bytes(path.read_bytes().rstrip(b"\0")[:-100])
    with pytest.raises(CommitLogRewoundError):
        stream.read_all()
    stream.restart()
    with pytest.raises(SegmentError, match="every segment must have the same size"):
        stream.read_all()


def test_a_segment_that_is_being_copied(tmp_path: Path) -> None:
    """A running stream waits for its size; a record in it appears when it is whole."""
    log = tmp_path / "commitlog"
    write(log, OLD, preallocate=False)
    stream = Stream(log)
    end = stream.read_all()
    copied = tmp_path / "whole"
    offsets = write(copied, OLD + messages(20, 100), preallocate=False)
    for path in sorted(copied.iterdir()):
        content = path.read_bytes()
        for size in (0, 900, SIZE):
            if size == SIZE or not (log / path.name).exists() or (log / path.name).stat().st_size < SIZE:
                (log / path.name).write_bytes(content[:size])
                assert end <= stream.read_all() <= offsets[-1]
    assert stream.read_all() == offsets[-1]
