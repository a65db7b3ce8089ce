"""Several brokers in one process: one that waits or ends leaves the others alone; Spark is started once; without it."""

from __future__ import annotations

import io
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from reput.source.errors import CorruptRecordError, EnvironmentSetupError, OptionError, ReputError, TransientError
from reput.streaming.process.process_log import broker_of_thread
from reput.streaming.spark.session import Sessions
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.status.run_state import RunState, State, judge
from reput.streaming.status.status_document import status_of
from reput.streaming.tail.brokers import BrokerRun, Brokers
from reput.streaming.tail.tail import Tail

LIMIT_SECONDS = 20


@dataclass
class SparksSessions:
    """Counts how often Spark is started; each start raises the next of `errors`, if there is one.

    A start lasts until it `may_go_on`.
    """

    errors: list[ReputError] = field(default_factory=list)
    may_go_on: threading.Event | None = None
    starts: int = 0
    ends: int = 0
    logs: list[Path] = field(default_factory=list)

    def make(self, spark_log: Path) -> Sessions:
        self.logs.append(spark_log)
        return cast("Sessions", self)

    def current(self) -> None:
        self.starts += 1
        if self.may_go_on is not None:
            self.may_go_on.wait()
        if self.errors:
            raise self.errors.pop(0)

    def end(self) -> None:
        self.ends += 1


@dataclass
class Scene:
    """A broker whose tails end one after the other with what is in `ends`; the last one runs until it is stopped.

    An error in `refusals` is raised before the output is locked.
    """

    name: str
    root: Path
    ends: list[ReputError] = field(default_factory=list)
    refusals: list[ReputError] = field(default_factory=list)
    began: list[bool] = field(default_factory=list)
    worked_for: set[str | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.output = self.root / self.name
        self.output.joinpath("reput").mkdir(parents=True)
        self.run = BrokerRun(RunState(self.name), self.output, cast("Callable[[ProgressReporter], Tail]", self.tail))

    def tail(self, reporter: ProgressReporter) -> RunningTail:
        if self.refusals:
            raise self.refusals.pop(0)
        return RunningTail(self, reporter)


class RunningTail:
    """The part of `Tail` that its caller uses."""

    def __init__(self, scene: Scene, reporter: ProgressReporter) -> None:
        self._scene = scene
        self._reporter = reporter
        self._stop = threading.Event()
        self.spark_log = scene.output / "reput" / "spark.log"

    def __enter__(self) -> RunningTail:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        self._stop.set()

    def run(self, _sessions: Any, *, available_now: bool, prepares: bool) -> None:
        self._scene.began.append(prepares)
        self._scene.worked_for.add(broker_of_thread())
        self._reporter.state.on_running("logic", 0)
        if self._scene.ends:
            raise self._scene.ends.pop(0)
        while not available_now and not self._stop.wait(0.01):
            self._reporter.refresh()


@contextmanager
def running(*scenes: Scene, spark: SparksSessions | None = None, again_after_s: float = 0.01) -> Iterator[Brokers]:
    sessions = spark or SparksSessions()
    console = Console(file=io.StringIO())
    runs = [scene.run for scene in scenes]
    brokers = Brokers(runs, sessions.make, console, {}, available_now=False, begins_again_after_s=again_after_s)
    thread = threading.Thread(target=brokers.run, args=(lambda: None,))
    thread.start()
    try:
        yield brokers
    finally:
        brokers.stop()
        thread.join()
        brokers.end_spark()


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def state_of(scene: Scene) -> State:
    return judge(scene.run.state).state


@pytest.fixture
def scenes(tmp_path: Path) -> list[Scene]:
    return [Scene(name, tmp_path) for name in ("a", "b", "c")]


def test_one_that_ends_leaves_the_others_alone(scenes: list[Scene], caplog: pytest.LogCaptureFixture) -> None:
    """Its state, its status file, a line of the log and the exit code say that it ended and why; the others run on."""
    a, b, c = scenes
    b.ends.append(CorruptRecordError("the record at 17 is damaged"))
    spark = SparksSessions()
    with caplog.at_level(logging.ERROR, logger="reput"), running(*scenes, spark=spark) as brokers:
        wait_until(lambda: not b.run.is_alive and a.began != [] and c.began != [])
        assert (state_of(a), state_of(b), state_of(c)) == (State.RUNNING, State.STOPPED, State.RUNNING)
        assert status_of(b.output)["reason"] == "the record at 17 is damaged"
        assert a.run.is_alive
        assert c.run.is_alive
    assert [record.getMessage() for record in caplog.records] == ["ended: the record at 17 is damaged"]
    assert (a.run.failure, str(b.run.failure), c.run.failure) == (None, "the record at 17 is damaged", None)
    assert brokers.exit_code == CorruptRecordError.exit_code
    assert [status_of(scene.output)["brokers"][0]["exitCode"] for scene in scenes] == [0, 1, 0]
    assert sorted(began for scene in scenes for began in scene.began) == [False, False, True]
    assert (spark.starts, spark.ends, len(spark.logs)) == (1, 1, 1)
    assert [scene.worked_for for scene in scenes] == [{"a"}, {"b"}, {"c"}]


def test_one_that_may_pass_begins_again(scenes: list[Scene]) -> None:
    """As a supervisor has a process of one broker begin again; what was counted stays, and nothing is left to tell."""
    a, b, _ = scenes
    b.refusals.append(TransientError("the log is away"))
    b.ends.append(TransientError("no room"))
    with running(a, b) as brokers:
        wait_until(lambda: len(b.began) == 2 and state_of(b) is State.RUNNING)
        assert a.began + b.began in ([True, False, False], [False, True, False])
    assert b.run.failure is None
    assert brokers.exit_code == 0


def test_a_pause_ends_with_a_stop(scenes: list[Scene]) -> None:
    """Then the error that ended it is reported."""
    a, b, _ = scenes
    b.ends.append(TransientError("no room"))
    with running(a, b, again_after_s=600) as brokers:
        wait_until(lambda: state_of(b) is State.STOPPED and state_of(a) is State.RUNNING)
        assert b.run.is_alive
    assert len(b.began) == 1
    assert brokers.exit_code == TransientError.exit_code


def test_the_end_of_all_ends_the_process(scenes: list[Scene]) -> None:
    """With the code that needs a person most: a start would help the third alone."""
    a, b, c = scenes
    a.ends.append(CorruptRecordError("damaged"))
    b.refusals.append(OptionError("the output was made with other sizes"))
    c.ends.append(TransientError("no room"))
    runs = [scene.run for scene in scenes]
    spark = SparksSessions()
    brokers = Brokers(runs, spark.make, Console(file=io.StringIO()), {}, available_now=True)
    brokers.run(lambda: None)
    assert [run.failure.exit_code for run in runs if run.failure is not None] == [1, 2, 75]
    assert brokers.exit_code == 2
    assert not (b.output / "reput" / "status.json").exists()  # its output was not locked


def test_spark_that_does_not_start_ends_all_and_is_tried_once(scenes: list[Scene]) -> None:
    """Each reports the reason; none repeats the attempt of another that has just failed."""
    spark = SparksSessions([EnvironmentSetupError("no Java")])
    runs = [scene.run for scene in scenes]
    brokers = Brokers(runs, spark.make, Console(file=io.StringIO()), {}, available_now=False)
    brokers.run(lambda: None)
    assert {str(run.failure) for run in runs} == {"no Java"}
    assert {judge(run.state).reason for run in runs} == {"no Java"}
    assert brokers.exit_code == EnvironmentSetupError.exit_code
    brokers.end_spark()
    assert (spark.starts, spark.ends) == (1, 0)


def test_spark_that_starts_later(scenes: list[Scene]) -> None:
    """The broker that begins again starts it again, for all."""
    a, b, _ = scenes
    spark = SparksSessions([TransientError("too busy")])
    with running(a, b, spark=spark):
        wait_until(lambda: state_of(a) is State.RUNNING and state_of(b) is State.RUNNING)
    assert (spark.starts, spark.ends) == (2, 1)


def test_a_stop_before_spark_runs(scenes: list[Scene]) -> None:
    """None begins, and that is not a failure."""
    a, b, _ = scenes
    with running(a, b) as brokers:
        brokers.stop()
    assert a.run.failure is b.run.failure is None
    assert brokers.exit_code == 0


def test_a_stop_while_spark_starts(scenes: list[Scene]) -> None:
    """It kills what starts; that is a failure neither for the broker that starts it nor for those that wait."""
    spark = SparksSessions([TransientError("Spark's Java process was killed")], may_go_on=threading.Event())
    with running(*scenes, spark=spark) as brokers:
        wait_until(lambda: {scene.run.state.stage for scene in scenes} == {"starts Spark"} and spark.starts == 1)
        time.sleep(0.1)  # for the others to begin to wait
        brokers.stop()
        assert spark.may_go_on is not None
        spark.may_go_on.set()
    assert [scene.run.failure for scene in scenes] == [None, None, None]
    assert brokers.exit_code == 0
