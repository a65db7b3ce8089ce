"""A micro-batch from its ranges to its report, with real sinks; a job is what the test does instead of Spark's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from support.outputs import config_of
from support.rebuild_runner import rebuild
from support.record_writer import Message, write_log
from support.sink_runner import SMALL
from support.store_compare import differing_bytes

from reput.sinks.files.durable_file import DurableFiles
from reput.source.errors import OutputFullError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.effects.range_task import RangeTask
from reput.streaming.effects.waves import OnRange
from reput.streaming.effects.write_step import StepReport, WriteStep
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.output.paths import OutputPaths
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail import micro_batch
from reput.streaming.tail.micro_batch import Dispatch

LIMIT_SECONDS = 20
BATCHES = 3


class Query:
    """Queues and index of a log of `BATCHES` micro-batches, each of which is one wave, the last of its batch."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        records = write_log(root / "commitlog", [Message("AB"[n % 2], properties={"KEYS": f"k{n}"}) for n in range(12)])
        self.config = config_of(root, SMALL)
        self.log = LogReader(SourceOptions.parse(self.config.source_options()))
        self.ends = [*(each.physical_offset for each in records[4::4]), self.log.settled_end(0)]
        files = DurableFiles(root / "out")
        logic = LogicSinks.open(self.config, files)
        for sink in logic.sinks:
            sink.recover(0)
        self.written: list[int] = []
        self.before_write: Callable[[int], None] = lambda _end: None
        self.after_read: Callable[[OnRange, list[Any]], None] = lambda _on_range, _read: None
        step = WriteStep(logic, files, self.log.decode_options)
        monkeypatch.setattr(WriteStep, "write", self._noted(WriteStep.write))
        monkeypatch.setattr(micro_batch, "read_announced", self._read)
        self.reporter = ProgressReporter(Console(quiet=True))
        paths = OutputPaths(root / "out")
        self.dispatch = Dispatch(self.config, paths, self.reporter, self.log, step, [files])

    def take(self, number: int) -> None:
        """Dispatch the micro-batch of that number, counted from 0."""
        start = 0 if number == 0 else self.ends[number - 1]
        self.dispatch(cast("Any", (start, self.ends[number])), number)

    def _read(self, ranges: Any, task: RangeTask, on_range: OnRange, _least_bytes: int) -> list[Any]:
        read = [task.read(span) for span in self.log.split(*ranges)]
        self.after_read(on_range, read)
        return read

    def _noted(self, write: Callable[..., StepReport]) -> Callable[..., StepReport]:
        def noted(step: WriteStep, read: Any, **named: Any) -> StepReport:
            self.before_write(read.end)
            done = write(step, read, **named)
            self.written.append(read.end)
            return done

        return noted


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(tmp_path, monkeypatch)


def test_the_end_of_a_batch_is_written_while_the_next_one_is_planned(query: Query, tmp_path: Path) -> None:
    """And before anything of the next one; after `settle` everything is on disk, and each batch has one report."""
    may_write = threading.Event()

    def wait(_end: int) -> None:
        assert may_write.wait(LIMIT_SECONDS)

    query.before_write = wait
    query.take(0)
    assert query.dispatch.is_writing
    assert query.written == []
    may_write.set()
    for number in range(1, BATCHES):
        query.take(number)
    query.dispatch.settle()
    assert not query.dispatch.is_writing
    assert query.written == query.ends
    assert query.dispatch.end_offset == query.ends[-1]
    assert query.reporter.messages("logic") == 12
    rebuild(query.config, tmp_path / "fresh")
    assert differing_bytes(tmp_path / "fresh", tmp_path / "out") == {}


def test_a_wave_waits_for_the_end_of_the_batch_before(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading continues meanwhile."""
    monkeypatch.setattr(micro_batch, "worth_a_wave", lambda *_: 1)
    may_write = threading.Event()

    def announce(on_range: OnRange, read: list[Any]) -> None:
        for each in read:
            on_range(each)
        time.sleep(0.1)  # a wave that does not wait is written by then
        assert query.written == []
        may_write.set()

    def wait(end: int) -> None:
        assert end > query.ends[0] or may_write.wait(LIMIT_SECONDS)

    query.before_write = wait
    query.take(0)
    query.after_read = announce
    query.take(1)
    query.dispatch.settle()
    assert query.written == query.ends[:2]


@pytest.mark.parametrize("what_comes_next", ["settle", "a batch"])
def test_an_end_that_cannot_be_written_is_told_once_and_nothing_is_written_behind_it(
    query: Query, what_comes_next: str
) -> None:
    """The next call gets the error; after that the sinks have to be opened again, and there is no further call."""

    def fail(end: int) -> None:
        if end == query.ends[1]:
            raise OutputFullError("no room")

    query.before_write = fail
    query.take(0)
    query.take(1)
    with pytest.raises(OutputFullError, match="no room"):
        query.dispatch.settle() if what_comes_next == "settle" else query.take(2)
    query.dispatch.settle()
    assert query.written == query.ends[:1]
    assert query.reporter.messages("logic") == 4
