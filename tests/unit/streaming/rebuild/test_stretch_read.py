"""The ranges that a rebuild reads are handed on in log order, as soon as it is certain where each begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.record_writer import Message, write_log

from reput.source.log.log_reader import LogReader
from reput.source.log.range_reader import cut_ranges
from reput.source.options import SourceOptions
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.rebuild.pipeline import StretchRead
from reput.streaming.tasks.tasks import OnResult, Results, Tasks

END = 4000


class ToldTasks(Tasks):
    """Gives the `results` that it was made with, and tells of them in the order that a test wants."""

    parallelism = 1

    def __init__(self, results: list[RangeEffects]) -> None:
        self.results = results
        self.on_result: OnResult[Any] | None = None

    def start(self, work: Callable[[int], Any], count: int, on_result: OnResult[Any] | None = None) -> Results[Any]:
        self.on_result = on_result or self.on_result
        given = [work(number) for number in range(count)] if on_result is None else self.results
        return lambda: given

    def tell(self, number: int) -> None:
        assert self.on_result is not None
        self.on_result(number, self.results[number])


def effects(start: int, end: int, *, is_whole: bool = True) -> RangeEffects:
    return RangeEffects(start, end, is_whole)


def stretch(tmp_path: Path, results: list[RangeEffects]) -> tuple[StretchRead, ToldTasks, list[tuple[int, int]]]:
    """A stretch of a log of END bytes that is being read, and the ranges that it has handed on."""
    write_log(tmp_path / "commitlog", (Message(body=b"x" * 100) for _ in range(END // 200)), 1 << 20)
    reader = LogReader(SourceOptions.parse({"path": str(tmp_path / "commitlog"), "tailGuardMs": "0"}))
    end = reader.settled_end(0)
    cuts = cut_ranges(reader.queue(), 0, end, -(-end // len(results)), end)
    assert len(cuts) == len(results)
    tasks, told = ToldTasks(results), []
    task = RangeTask(reader.decode_options, None)

    def on_range(read: RangeEffects) -> None:
        told.append((read.start, read.end))

    return StretchRead(tasks, reader.queue(), cuts, task, 1000, on_range), tasks, told


def test_in_log_order_and_once(tmp_path: Path) -> None:
    """A range waits for those before it; one without a record is not handed on; nothing is handed on twice."""
    ranges = [effects(0, 900), effects(900, 900), effects(900, 2000), effects(2000, END)]
    read, tasks, told = stretch(tmp_path, ranges)
    tasks.tell(2)
    assert told == []
    tasks.tell(0)
    assert told == [(0, 900)]
    tasks.tell(1)
    tasks.tell(2)
    assert told == [(0, 900), (900, 2000)]
    assert read.results() == ranges
    tasks.tell(3)
    assert told == [(0, 900), (900, 2000), (2000, END)]


def test_nothing_is_handed_on_behind_a_range_that_is_not_whole(tmp_path: Path) -> None:
    """Its end, where the next one begins, may be wrong: both are read again, and only that counts."""
    read, tasks, told = stretch(tmp_path, [effects(0, 900, is_whole=False), effects(901, 2000), effects(2000, END)])
    for number in (2, 1, 0):
        tasks.tell(number)
    assert told == []
    again = read.results()
    assert again[0].start == 0
    assert told == [(each.start, each.end) for each in again]
    tasks.tell(1)
    assert told == [(each.start, each.end) for each in again]
