"""Index files' names are a clock's and the order of the files, whatever the clock does."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.model import Settings, index_file_contents
from support.record_writer import Message, write_log
from support.sink_runner import LogBatches, files_below, index_contents, no_fsync, record_bounds

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.index.index_sink import IndexSink, index_file_name

NOW = 1_700_000_000.25
HOUR, YEAR = 3600, 365 * 24 * 3600
CLOCKS: dict[str, Callable[[], Iterator[float]]] = {
    "stuck": lambda: itertools.repeat(NOW),
    "stuck at 0": lambda: itertools.repeat(0.0),
    "ticking": lambda: itertools.count(NOW, 0.3),
    "an hour back": lambda: itertools.chain([NOW] * 3, itertools.repeat(NOW - HOUR)),
    "running back": lambda: itertools.count(NOW, -1.5),
    "ten years on and back": lambda: itertools.chain([NOW, NOW + 10 * YEAR], itertools.repeat(NOW)),
    "back and forth inside a roll": lambda: itertools.cycle([NOW, NOW + 5, NOW - 5]),
}
SETTINGS = Settings(max_hash_slot_num=3, max_index_num=3)


@pytest.mark.parametrize("restarts", [False, True], ids=["one run", "a run a batch"])
@pytest.mark.parametrize("clock", CLOCKS)
def test_names_rise_and_contents_know_no_clock(clock: str, restarts: bool, tmp_path: Path) -> None:
    """G14: a clock that stops, runs back or jumps gives no name twice and none before the last, and equal bytes."""
    records = write_log(tmp_path / "log", [Message(properties={"KEYS": "a b c"})] * 8)
    batches = LogBatches(tmp_path / "log")
    ticks = CLOCKS[clock]()
    made: list[str] = []
    with closing(DurableFiles(tmp_path / "out")) as files, no_fsync():
        sink = None
        for start, end in itertools.pairwise(record_bounds(records)):
            if sink is None or restarts:
                sink = IndexSink(files, 3, 3, lambda: next(ticks))
                sink.recover(0)
            sink.write(batches(start, end))
            names = sorted(path.name for path in (tmp_path / "out" / "index").iterdir())
            assert names[: len(made)] == made  # new files come behind the old
            made = names
    assert len(made) == 12
    assert {len(name) for name in made} == {17}
    assert index_contents(tmp_path / "out") == index_file_contents(records, SETTINGS)


@given(st.lists(st.floats(0, 4e9) | st.sampled_from([NOW, NOW + 0.001, 0.0]), min_size=1, max_size=20))
def test_any_clock_gives_rising_names(ticks: list[float]) -> None:
    """A name follows the last one, at once when the clock allows no other."""
    names: list[str] = []
    for now in ticks:
        names.append(index_file_name(now, names[-1] if names else None))
        assert len(names[-1]) == 17
        assert names[-1].isdecimal()
    assert names == sorted(set(names))


@pytest.mark.parametrize("fraction", [0, 0.001, 0.25, 0.5, 0.999, 0.9994, 0.9996, 0.9999998])
def test_a_name_is_the_local_time_to_the_millisecond(fraction: float) -> None:
    """``yyyyMMddHHmmssSSS`` of the time given, cut as Java cuts it, not rounded."""
    now = 1_700_000_000 + fraction
    expected = time.strftime("%Y%m%d%H%M%S", time.localtime(int(now))) + f"{int(now * 1000) % 1000:03d}"
    assert index_file_name(now, None) == expected


@pytest.mark.parametrize(
    ("last", "following"),
    [
        ("20231231235959999", "20240101000000000"),
        ("20240228235959999", "20240229000000000"),
        ("20990101000000000", "20990101000000001"),
    ],
)
def test_the_name_after_one_the_clock_has_not_reached(last: str, following: str) -> None:
    """A millisecond later, over the end of a second, a month and a year."""
    assert index_file_name(NOW, last) == following


def test_no_file_is_written_under_a_name_that_exists(tmp_path: Path) -> None:
    """A clock that tells an old file's time again leaves that file alone."""
    records = write_log(tmp_path / "log", [Message(properties={"KEYS": "a b"})] * 4)
    batches = LogBatches(tmp_path / "log")
    cut = records[2].physical_offset
    with closing(DurableFiles(tmp_path / "out")) as files:
        sink = IndexSink(files, 3, 3, itertools.count(NOW).__next__)
        sink.recover(0)
        sink.write(batches(0, cut))
        first = files_below(tmp_path / "out" / "index")
        assert len(first) == 2
        sink = IndexSink(files, 3, 3, itertools.repeat(NOW).__next__)
        sink.recover(0)
        sink.write(batches(cut, record_bounds(records)[-1]))
    after = files_below(tmp_path / "out" / "index")
    assert {name: after[name] for name in first} == first
    assert len(after) == 4
