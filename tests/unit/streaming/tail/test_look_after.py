"""How often a run that waits for new messages asks Spark about its queries; without Spark."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from support.live_log import Clock
from support.outputs import Output

from reput.streaming.output.paths import OutputPaths
from reput.streaming.spark.sessions import Sessions
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail import tail as module
from reput.streaming.tail.tail import Tail

RUNS_S = 60.0


class Query:
    """Runs until the log's end, if it has one, and counts how often it is looked at."""

    def __init__(self, looks: int | None = None) -> None:
        self.query = None
        self.looked = 0
        self._left = looks

    def look(self) -> bool:
        self.looked += 1
        return self._left is None or self.looked < self._left

    def settle(self) -> None:
        pass


class Stop:
    """A stop that is asked for when the clock has gone on for so long; to wait takes none of the test's time."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._at = clock, clock.now + RUNS_S

    def is_set(self) -> bool:
        return self._clock.now >= self._at

    def wait(self, seconds: float) -> None:
        self._clock.now += seconds


def looked_after(root: Path, queries: list[Query], every_s: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """How long a run lasts that looks after `queries`, in seconds of the clock."""
    clock = Clock()
    began = clock.now
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock))
    output = Output.make(root, Random(3))
    tail = Tail(output.config, OutputPaths(output.out), ProgressReporter(Console(file=io.StringIO())))
    tail._stop = cast("Any", Stop(clock))
    tail._queries = cast("Any", queries)
    tail._look_after(cast("Sessions", SimpleNamespace(has_died=lambda: False)), every_s)
    return clock.now - began


def test_how_often_spark_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail that goes on: twice a second at most. One that ends with the log sees its end at the next poll."""
    queries = [Query(), Query()]
    assert looked_after(tmp_path / "a", queries, module._ASKED_EVERY_S, monkeypatch) == pytest.approx(RUNS_S, abs=1)
    assert all(RUNS_S <= query.looked <= 2 * RUNS_S for query in queries)
    queries = [Query(3), Query(2)]
    assert looked_after(tmp_path / "b", queries, 0.0, monkeypatch) == pytest.approx(2 * module._POLL_SECONDS)
    assert [query.looked for query in queries] == [3, 3]
