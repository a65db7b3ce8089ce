"""A query that ended is always looked at for its error, whenever it ended between two questions; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from support.sink_runner import write_log

from reput.source.errors import TransientError
from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail import tail as tail_module
from reput.streaming.tail.micro_batch import BatchGate, LogicDispatch
from reput.streaming.tail.tail import RunningQuery, Tail


class EndingQuery:
    """Ends with `error` before the question of that number, counted from 0; then its answers stay."""

    lastProgress = None  # noqa: N815  Spark's name
    name = "logic"

    def __init__(self, ends_before: int, error: Exception) -> None:
        self._left, self._error = ends_before, error

    def _ask(self) -> bool:
        self._left -= 1
        return self._left < 0

    @property
    def isActive(self) -> bool:  # noqa: N802  Spark's name
        return not self._ask()

    def exception(self) -> Exception | None:
        return self._error if self._ask() else None


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    write_log(tmp_path / "commitlog", [])
    (tmp_path / "commitlog").mkdir(exist_ok=True)
    reporter = ProgressReporter(Console(quiet=True))
    return Tail(load_config(tmp_path), OutputPaths(tmp_path / "out"), reporter)


def running(query: Any) -> RunningQuery:
    dispatch = create_autospec(LogicDispatch, instance=True)
    dispatch.names, dispatch.end_offset = ("logic",), 0
    return RunningQuery(dispatch, BatchGate(dispatch), query)


@pytest.mark.parametrize("ends_before", range(8))
def test_what_ended_a_batch_is_raised(ends_before: int, tail: Tail) -> None:
    """And not Spark's report of it."""
    each = running(EndingQuery(ends_before, RuntimeError("as Spark tells it")))
    each.gate.failure = ZeroDivisionError("inside")
    with pytest.raises(ZeroDivisionError, match="inside"):
        tail._wait(create_autospec(SparkSession, instance=True), [each], available_now=True)


@pytest.mark.parametrize("ends_before", range(8))
def test_a_query_that_may_go_on_is_started_again(ends_before: int, tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it was the only one, and had ended before anybody asked."""
    started: list[str] = []

    def start(*_: Any, **__: Any) -> EndingQuery:
        started.append("again")
        tail.stop()
        return EndingQuery(1000, RuntimeError())

    monkeypatch.setattr(tail_module, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(tail, "_start", start)
    each = running(EndingQuery(ends_before, TransientError("a worker died")))
    tail._wait(create_autospec(SparkSession, instance=True), [each], available_now=True)
    assert started == ["again"]
