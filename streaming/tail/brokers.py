"""Several brokers in one process: a tail each, in a thread of its own, on one session of Spark.

Each has its own lock, sinks, queries and attempts, so one that waits or ends leaves the others alone. They share Spark
with its workers, the table, and the main thread, which shows the brokers and passes a stop on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from reput.source.errors import TRY_AGAIN, ReputError
from reput.streaming.process.failures import failure_of, one_line
from reput.streaming.process.interruption import is_set_within
from reput.streaming.process.jvm import kill_jvm
from reput.streaming.process.process_log import work_for
from reput.streaming.spark.session import Sessions
from reput.streaming.status.progress import ProgressReporter, Screen, has_screen
from reput.streaming.status.run_state import RunState
from reput.streaming.status.status_document import StatusFile
from reput.streaming.tail.tail import Tail

_log = logging.getLogger("reput")
_POLL_SECONDS = 0.2
#: A broker that ended for a reason that may pass is started again after this time, as a supervisor starts a process.
BEGINS_AGAIN_AFTER_S: Final = 30.0
# The first of these exit codes that a broker ended with is the process's. Only with the last one does a start help all.
_GRAVEST_FIRST = (70, 2, 1, TRY_AGAIN)

#: Makes a broker's tail, which reports to the given reporter.
MakeTail = Callable[[ProgressReporter], Tail]
#: Makes what starts Spark, whose own messages go to the given file.
MakeSessions = Callable[[Path], Sessions]


class Brokers:
    """The brokers of one process; `run` runs them all."""

    def __init__(
        self,
        runs: Sequence[BrokerRun],
        make_sessions: MakeSessions,
        console: Console,
        facts: Mapping[str, Any],
        *,
        available_now: bool,
        begins_again_after_s: float = BEGINS_AGAIN_AFTER_S,
    ) -> None:
        """`facts` are true of all brokers; with `available_now` each ends at the end of its log as it is then."""
        self.console = console
        self.facts = dict(facts)
        self.available_now = available_now
        self.begins_again_after_s = begins_again_after_s
        self.stopped = threading.Event()
        self._make_sessions = make_sessions
        self._runs = runs
        self._spark: Future[Sessions] | None = None
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Ask all for a stop between batches; a signal handler may call this."""
        self.stopped.set()
        for each in self._runs:
            each.stop()

    def run(self, turn: Callable[[], None]) -> None:
        """Run until every broker has ended; `turn` is called several times a second meanwhile."""
        with self._shown():
            for each in self._runs:
                each.begin(self)
            while any(each.is_alive for each in self._runs):
                turn()
                if self.stopped.is_set() and self._is_starting_spark():
                    kill_jvm()
                time.sleep(_POLL_SECONDS)

    def end_spark(self) -> None:
        """End Spark, if it was started; no broker runs any more."""
        spark = self._spark
        if spark is not None and spark.done() and spark.exception() is None:
            spark.result().end()

    @property
    def exit_code(self) -> int:
        """The exit code of the process: 0 if every broker ended as it was asked to."""
        codes = {each.failure.exit_code for each in self._runs if each.failure is not None}
        return next((code for code in _GRAVEST_FIRST if code in codes), min(codes, default=0))

    def sessions(self, spark_log: Path) -> tuple[Sessions, bool] | None:
        """Return Spark, and whether the caller is the first to get it; None if a stop was asked for.

        The first caller starts it, with its messages in `spark_log`; the others wait for that, or share its failure,
        until one of them begins again (`forget_failed_start`).
        """
        with self._lock:
            is_first = self._spark is None
            spark = self._spark = self._spark or Future()
        if is_first:
            try:
                sessions = self._make_sessions(spark_log)
                sessions.current()
                spark.set_result(sessions)
            except BaseException as error:  # noqa: BLE001  each caller raises it
                spark.set_exception(error)
        wait([spark])
        if self.stopped.is_set():  # a stop kills a start, which is not a failure
            return None
        return spark.result(), is_first

    def forget_failed_start(self) -> None:
        """Have the next caller of `sessions` start Spark again, if its start has failed."""
        with self._lock:
            if self._spark is not None and self._spark.done() and self._spark.exception() is not None:
                self._spark = None

    def _is_starting_spark(self) -> bool:
        return self._spark is not None and not self._spark.done()

    @contextmanager
    def _shown(self) -> Iterator[None]:
        if not has_screen(self.console):
            yield
            return
        screen = Screen(self.console, *(each.state for each in self._runs))
        screen.start()
        try:
            yield
        finally:
            screen.stop()


class BrokerRun:
    """One broker of a process that keeps several.

    Attributes
    ----------
    state
        The facts about its run.
    failure
        The error that ended it; None while it runs, and if it ended as it was asked to.
    summary
        A line for each of its queries, once it has ended.
    """

    def __init__(self, state: RunState, output: Path, make_tail: MakeTail, *, line_every_s: float = 0.0) -> None:
        """Write the tail's status file to `output`; `line_every_s` as in ``ProgressReporter``."""
        self.state = state
        self.failure: ReputError | None = None
        self.summary: list[str] = []
        self._output = output
        self._make_tail = make_tail
        self._line_every_s = line_every_s
        self._tail: Tail | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or will be started again."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, brokers: Brokers) -> None:
        """Run in a daemon thread, so that a disk that never answers does not keep the process alive."""
        self._thread = threading.Thread(
            target=self._run, args=(brokers,), name=f"reput-{self.state.broker}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ask its tail, if there is one, for a stop between batches."""
        tail = self._tail
        if tail is not None:
            tail.stop()

    def _run(self, brokers: Brokers) -> None:
        work_for(self.state.broker)
        while True:
            self.failure = self._run_once(brokers)
            if self.failure is None:
                return
            may_begin = self.failure.exit_code == TRY_AGAIN and not brokers.available_now
            begins_again = may_begin and not brokers.stopped.is_set()
            again = f" and begins again in {brokers.begins_again_after_s:.0f} s" if begins_again else ""
            _log.error("ended%s: %s", again, one_line(str(self.failure)))
            if not begins_again or is_set_within(brokers.stopped, brokers.begins_again_after_s):
                return
            brokers.forget_failed_start()
            self.failure = None
            self.state.on_begun_again()

    def _run_once(self, brokers: Brokers) -> ReputError | None:
        """Run to the end; return the error that ended it, if that was not asked for."""
        status: list[StatusFile] = []

        def write_status(*, at_once: bool = False) -> None:
            for each in status:
                each.write(brokers.facts, time.monotonic(), at_once=at_once)

        reporter = ProgressReporter(
            brokers.console, self.state, line_every_s=self._line_every_s, turn=write_status, is_alone=False
        )
        try:
            with reporter:
                reporter.starting("looks at the log and recovers the output")
                with self._make_tail(reporter) as tail:
                    status.append(StatusFile(self._output, self.state))  # the only writer: the output is locked
                    self._run_tail(brokers, tail, reporter)
        except Exception as error:  # noqa: BLE001  it ends this broker alone
            return failure_of(error)
        finally:
            self._tail = None
            self.summary = reporter.summary()
            with suppress(OSError):  # its disk may fail
                write_status(at_once=True)
        return None

    def _run_tail(self, brokers: Brokers, tail: Tail, reporter: ProgressReporter) -> None:
        reporter.starting("starts Spark")
        spark = brokers.sessions(tail.spark_log)
        if spark is None:
            return
        reporter.starting("starts the queries")
        self._tail = tail
        if brokers.stopped.is_set():  # the stop came before the tail existed
            tail.stop()
        sessions, is_first = spark
        tail.run(sessions, available_now=brokers.available_now, prepares=is_first)
