"""A query that fails is closed, waited for and opened again, and does not delay the others; without Spark."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from support.live_log import Clock

from reput.source.errors import CorruptRecordError, OutputFailingError, ReputError, TransientError
from reput.streaming.process.failures import may_pass_in_a_run
from reput.streaming.status.run_state import QueryPhase, RunState
from reput.streaming.tail.micro_batch import Dispatch
from reput.streaming.tail.query import BatchGate, OpenQuery, Retry, SparkProgress, SupervisedQuery

LIMIT_SECONDS = 20


class SparksQuery:
    """Ends with `error` before the question of that number, counted from 0; then its answers stay."""

    lastProgress: Any = None  # noqa: N815  Spark's name

    def __init__(self, ends_before: int = 1000, error: Exception | None = None) -> None:
        self._left, self._error = ends_before, error
        self.is_stopped = False

    def _ask(self) -> bool:
        self._left -= 1
        return self._left < 0

    @property
    def isActive(self) -> bool:  # noqa: N802  Spark's name
        return not self._ask() and not self.is_stopped

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": False}

    def exception(self) -> Exception | None:
        return self._error if self._ask() else None

    def stop(self) -> None:
        self.is_stopped = True


@dataclass
class Sinks:
    """A dispatch that is as far as the test says."""

    names: tuple[str, ...] = ("table",)
    end_offset: int = 0
    unwritten: Exception | None = None
    close: Callable[[], None] = lambda: None

    def __call__(self, *_: Any) -> None:
        raise AssertionError

    def settle(self) -> None:
        """Its last wave is written, or cannot be."""
        error, self.unwritten = self.unwritten, None
        if error is not None:
            raise error


@dataclass
class Scene:
    """A query that can be opened again, as often as there are queries in `next_ones`; errors are raised instead."""

    clock: Clock = field(default_factory=Clock)
    retry_for_s: float = 600
    asked_every_s: float = 0.0
    next_ones: list[SparksQuery | Exception] = field(default_factory=list)
    sinks: Sinks = field(default_factory=Sinks)
    opened: list[OpenQuery] = field(default_factory=list)
    closed: list[OpenQuery] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = RunState()
        # They are closed in the order in which they were opened, the last one perhaps twice.
        self.sinks.close = lambda: self.closed.extend(self.opened[len(self.closed) :][:1])
        retry = Retry(self.retry_for_s, clock=self.clock)
        self.query = SupervisedQuery(
            *(("table",), self.open_next, self.judge, retry, self.state, self.clock),
            asked_every_s=self.asked_every_s,
        )

    @staticmethod
    def judge(error: BaseException, in_batch: bool) -> tuple[BaseException, bool]:
        return error, may_pass_in_a_run(error)

    def open(self, query: SparksQuery) -> OpenQuery:
        """As if it had just been opened."""
        dispatch = cast("Dispatch", self.sinks)
        gate = BatchGate(dispatch, lambda: None)
        found = OpenQuery(
            dispatch,
            gate,
            cast("Any", query),
            cast("Any", Sinks()),
            SparkProgress("table", RunState()),
            self.sinks.end_offset,
            lambda: False,
        )
        self.opened.append(found)
        return found

    def open_next(self) -> OpenQuery:
        # None is opened while another one may write.
        assert [id(each) for each in self.closed] == [id(each) for each in self.opened]
        following = self.next_ones.pop(0)
        if isinstance(following, Exception):
            raise following
        return self.open(following)

    def look_until(self, done: Callable[[], bool]) -> None:
        """Look several times a second, as a run does, though the clock stands still."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not done():
            assert time.monotonic() < deadline
            self.query.look()
            time.sleep(0.005)

    def look_for(self, seconds: float) -> None:
        """Look for this many seconds of the clock; each opening in them ends at once."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.query.look()
            if self.query._opening is not None:
                self.query._opening[0].join()
            self.clock.now += 1

    def pass_pause(self, seconds: float) -> None:
        """Let a pause of so many seconds pass, and see that nothing is opened before its end."""
        tried = len(self.next_ones)
        self.clock.now += seconds - 0.01
        assert all(self.query.look() for _ in range(3))
        assert len(self.next_ones) == tried
        assert self.query.query is None
        self.clock.now += 0.02
        self.look_until(lambda: len(self.next_ones) == tried - 1 and self.query._opening is None)


@pytest.fixture
def scene() -> Iterator[Scene]:
    found = Scene()
    yield found
    found.query.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("reput")]


def full() -> TransientError:
    return TransientError("the disk is full", advice="make room")


@pytest.mark.parametrize("ends_before", range(4))
def test_a_query_that_ended_is_looked_at_for_its_error(ends_before: int, scene: Scene) -> None:
    """Whenever it ended between two questions; what ended its batch is raised, not Spark's report of it."""
    scene.query.begin(scene.open(SparksQuery(ends_before, RuntimeError("as Spark tells it"))))
    scene.opened[0].gate.failure = ZeroDivisionError("inside") if ends_before % 2 else None
    with pytest.raises((ZeroDivisionError, RuntimeError), match="inside" if ends_before % 2 else "as Spark tells"):
        scene.look_until(lambda: False)
    assert scene.closed == scene.opened


def test_spark_is_asked_one_question_of_a_query_that_runs(scene: Scene) -> None:
    """A failure in a batch, or beside one, is known without it."""
    query = SparksQuery(1000)
    scene.query.begin(scene.open(query))
    assert all(scene.query.look() for _ in range(5))
    assert query._left == 995
    scene.opened[0].gate.failure = full()
    assert scene.query.look()
    assert scene.query.query is None


def test_a_query_that_runs_is_asked_about_now_and_then() -> None:
    """But at once after a failure, until it works: a pause is as long as it is reported to be."""
    scene = Scene(asked_every_s=0.5)
    running, again = SparksQuery(1000), SparksQuery(1000)
    scene.next_ones += [again]
    scene.query.begin(scene.open(running))
    for _ in range(14):
        assert scene.query.look()
        scene.clock.now += 0.125
    assert 1000 - running._left == 4
    scene.opened[0].gate.failure = full()
    assert scene.query.look()
    assert scene.query.query is None
    scene.pass_pause(1)
    assert all(scene.query.look() for _ in range(3))
    assert 1000 - again._left == 3
    again.lastProgress = {}
    assert all(scene.query.look() for _ in range(3))
    assert 1000 - again._left == 4
    scene.query.close()


def test_a_query_that_ends_with_the_log(scene: Scene) -> None:
    """Without an error there is nothing more to look after."""
    scene.query.begin(scene.open(SparksQuery(1)))
    assert scene.query.look()
    assert not scene.query.look()


def test_a_last_wave_that_cannot_be_written_when_spark_has_ended(scene: Scene) -> None:
    """The query waits and is opened again, as after a failure inside a batch."""
    scene.next_ones += [SparksQuery()]
    scene.sinks.unwritten = full()
    scene.query.begin(scene.open(SparksQuery(0)))
    assert scene.query.look()
    assert scene.query.query is None
    assert scene.closed[0].failed_in_batch
    scene.pass_pause(1)


def test_a_last_wave_that_cannot_be_written_at_a_stop(scene: Scene) -> None:
    """It is awaited, and what does not pass is raised."""
    scene.sinks.unwritten = CorruptRecordError("no record", file="/log")
    scene.query.begin(scene.open(SparksQuery(1)))
    with pytest.raises(CorruptRecordError):
        scene.query.settle()
    assert scene.closed == scene.opened


def test_a_batch_that_does_not_begin_after_a_stop_is_no_failure(scene: Scene) -> None:
    """Spark tells of it as of an error, once no further batch may begin."""
    query = SparksQuery()
    scene.query.begin(scene.open(query))
    settle = scene.sinks.settle

    def settle_when_stopping() -> None:
        settle()
        query._left, query._error = 0, RuntimeError("StoppedBetweenBatchesError")

    scene.sinks.settle = settle_when_stopping  # type: ignore[method-assign]
    scene.query.settle()
    scene.query.close()
    assert scene.closed == scene.opened


def test_it_waits_is_opened_again_and_goes_on(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Each failure is reported once, with the pause; the end of it once; and the state is always known."""
    caplog.set_level(logging.INFO, "reput")
    scene.next_ones += [full(), OSError(5, "Input/output error", "/out/x"), SparksQuery()]
    scene.query.begin(scene.open(SparksQuery(1, full())))
    state = scene.state.query("table")
    assert (state.phase, state.restarts) == (QueryPhase.STARTING, 0)
    scene.look_until(lambda: scene.query.query is None)
    assert state.waits_code == TransientError.code
    for seconds in (1, 2, 5):
        assert (state.phase, state.waits_since is None) == (QueryPhase.WAITING, False)
        scene.pass_pause(seconds)
    assert state.waits_for == "the system refused: Input/output error: /out/x"
    assert state.waits_code == "error"
    assert scene.query.look()
    assert state.phase is QueryPhase.WAITING  # it has yet to get anywhere
    scene.clock.now += 30
    scene.sinks.end_offset = 7
    assert scene.query.look()
    assert (state.phase, state.waits_for, state.restarts) == (QueryPhase.RUNNING, None, 3)
    refused = "the system refused: Input/output error: /out/x"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "table waits 1 s and is opened again (attempt 1, since 0 s): the disk is full"),
        ("WARNING", "table waits 2 s and is opened again (attempt 2, since 1 s): the disk is full"),
        ("WARNING", f"table waits 5 s and is opened again (attempt 3, since 3 s): {refused}"),
        ("INFO", "table continues after 38 s"),
    ]
    assert len(scene.opened) == 2


def test_a_query_without_anything_to_do_goes_on_too(scene: Scene) -> None:
    """In a log that stands still nothing advances: that Spark asked for more and had no error is enough."""
    idle = SparksQuery()
    scene.next_ones += [idle]
    scene.query.begin(scene.open(SparksQuery(1, full())))
    scene.look_until(lambda: scene.query.query is None)
    scene.pass_pause(1)
    assert scene.query.look()
    assert scene.state.query("table").phase is QueryPhase.WAITING
    idle.lastProgress = {}
    assert scene.query.look()
    assert scene.state.query("table").phase is QueryPhase.RUNNING


def test_progress_between_two_failures_gives_all_the_time_again(scene: Scene) -> None:
    """Even if the query failed before a look saw that it had worked."""
    scene.next_ones += [SparksQuery(1, full())] * 3 + [SparksQuery()]
    scene.query.begin(scene.open(SparksQuery(1, full())))
    scene.look_until(lambda: scene.query.query is None)
    for number in range(3):
        scene.pass_pause(1)
        scene.sinks.end_offset = number + 1
        scene.clock.now += 500
        scene.look_until(lambda: scene.query.query is None)
    scene.pass_pause(1)


def test_giving_up(scene: Scene) -> None:
    """Without any advance, with what it says at last."""
    scene.next_ones += [full()] * 5 + [OutputFailingError("Input/output error", file="/out")] * 20
    scene.query.begin(scene.open(SparksQuery(1, full())))
    with pytest.raises(TransientError) as raised:
        scene.look_for(3600)
    assert raised.value.cause.endswith(" times: Input/output error")
    assert raised.value.cause.startswith("table did not continue within 6")
    assert raised.value.file == "/out"


@pytest.mark.parametrize("where", ["running", "opening"])
def test_what_does_not_pass_is_raised_at_once(where: str, scene: Scene) -> None:
    """Also where it is found only when the query is opened again."""
    bad = CorruptRecordError("no record", file="/log", physical_offset=5)
    scene.next_ones += [bad]
    scene.query.begin(scene.open(SparksQuery(1, full() if where == "opening" else bad)))
    with pytest.raises(ReputError) as raised:
        scene.look_for(600)
    assert raised.value is bad


def test_a_stop_during_a_pause_needs_no_end_of_it(scene: Scene) -> None:
    """Nothing is raised, and nothing opened: the next start makes it good."""
    scene.query._retry._pauses_s = (60.0,)
    scene.query.begin(scene.open(SparksQuery(1, full())))
    scene.look_until(lambda: scene.query.query is None)
    began = time.monotonic()
    scene.query.settle()
    scene.query.close()
    assert time.monotonic() - began < 30
    assert scene.query.query is None


def test_a_stop_while_it_is_opened_waits_for_that_and_closes_it(scene: Scene) -> None:
    """Nothing is written after a run has ended."""
    is_due = threading.Event()
    opener = scene.open_next

    def slowly() -> OpenQuery:
        assert is_due.wait(LIMIT_SECONDS)
        return opener()

    scene.query._open_again = slowly
    scene.next_ones += [SparksQuery()]
    scene.query.begin(scene.open(SparksQuery(1, full())))
    scene.look_until(lambda: scene.query.query is None)
    scene.clock.now += 2
    assert all(scene.query.look() for _ in range(10))  # others are not held up meanwhile
    threading.Timer(0.2, is_due.set).start()
    scene.query.close()
    assert len(scene.closed) == len(scene.opened) == 2


@pytest.mark.parametrize("passes", [True, False])
def test_a_failure_found_at_a_stop(passes: bool, scene: Scene) -> None:
    """A failure that may pass is left to the next start; any other is reported."""
    error = full() if passes else CorruptRecordError("no record", file="/log")
    scene.query.begin(scene.open(SparksQuery(0, error)))
    if passes:
        scene.query.settle()
        assert scene.query.query is None
    else:
        with pytest.raises(CorruptRecordError):
            scene.query.settle()
    assert scene.closed == scene.opened


def test_a_query_whose_spark_does_not_answer(scene: Scene) -> None:
    """An error of Spark's on a question is a failure like any other, and Spark need not be asked to stop."""
    silent = SparksQuery()
    scene.query.begin(scene.open(silent))
    silent._ask = silent.stop = lambda: (_ for _ in ()).throw(ConnectionRefusedError(111, "Connection refused"))  # type: ignore[assignment]
    scene.look_until(lambda: scene.query.query is None)
    assert scene.state.query("table").phase is QueryPhase.WAITING
    assert scene.closed == scene.opened


def test_a_query_is_renewed_without_a_failure(scene: Scene) -> None:
    """It is closed and opened again, and no failure is reported; the run continues meanwhile."""
    scene.next_ones += [SparksQuery()]
    scene.query.begin(scene.open(SparksQuery()))
    scene.query.renew()
    assert scene.query.query is None
    scene.look_until(lambda: scene.query.query is not None)
    assert scene.query.query is scene.opened[1]
    assert scene.closed == scene.opened[:1]
    state = scene.state.query("table")
    assert (state.phase, state.restarts) == (QueryPhase.STARTING, 0)  # as it was: this scene has told nothing else


def test_a_query_that_is_being_opened_is_renewed_then(scene: Scene) -> None:
    """It may have begun to wait before it was out of date."""
    is_due, opener = threading.Event(), scene.open_next

    def slowly() -> OpenQuery:
        opened = opener()
        assert is_due.wait(LIMIT_SECONDS)
        return opened

    scene.query._open_again = slowly
    scene.next_ones += [SparksQuery(), SparksQuery()]
    scene.query.begin(scene.open(SparksQuery()))
    for _ in range(2):
        scene.query.renew()
    is_due.set()
    scene.look_until(lambda: len(scene.opened) == 3 and scene.query.query is not None)
    assert scene.closed == scene.opened[:2]
    for _ in range(10):
        assert scene.query.look()
    assert len(scene.opened) == 3


def test_a_query_that_waits_is_not_renewed(scene: Scene) -> None:
    """It is opened in its time, and waits by no time of day."""
    scene.next_ones += [SparksQuery()]
    scene.query.begin(scene.open(SparksQuery(1, full())))
    scene.look_until(lambda: scene.query.query is None)
    scene.query.renew()
    scene.pass_pause(1)
    assert len(scene.opened) == 2


def test_a_renewal_that_fails_is_a_failure(scene: Scene) -> None:
    """Which is waited for as any other."""
    scene.next_ones += [full(), SparksQuery()]
    scene.query.begin(scene.open(SparksQuery()))
    scene.query.renew()
    scene.look_until(lambda: scene.state.query("table").phase is QueryPhase.WAITING)
    scene.pass_pause(1)
    assert scene.closed == scene.opened[:1]
