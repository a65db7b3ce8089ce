"""A query of the stream: opened, watched, closed after a failure, and opened again while the failure may pass.

`SupervisedQuery` is its whole life, `OpenQuery` the time between an opening and the closing after it, and `BatchGate`
the door through which its micro-batches come. `Retry` decides whether a query that failed is opened again, and when:
pauses grow, and `Causes` find the cause of a failure. `SparkProgress` asks Spark before the next micro-batch. A
listener would get micro-batches later, and miss some if there are several a second.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from reput.sinks.table.delta_table import is_table
from reput.sinks.table.location import TableLocation, table_away
from reput.source.errors import DataLossError, OutputAwayError, ReputError, TransientError, remote_error
from reput.source.log.log_reader import LogReader
from reput.source.stream_answers import StreamAnswers
from reput.streaming.output.paths import LOGIC, TABLE
from reput.streaming.process.failures import (
    JVM_ENDS_WITHIN_S,
    failure_of,
    is_passing,
    jvm_death,
    may_pass_in_a_run,
    one_line,
    text_of,
)
from reput.streaming.process.jvm import has_jvm_died
from reput.streaming.process.process_log import at_work_for
from reput.streaming.spark.session import Sessions
from reput.streaming.status.run_state import RunState
from reput.streaming.tail.micro_batch import Dispatch

_log = logging.getLogger("reput")
# ----------------------------------------------------------------------------------------------------------------------
# The gate in front of a query's micro-batches: one at a time, none after a stop or a failure.


class BatchGate:
    """Lets a stop wait for the current batch, which `query.stop()` alone would interrupt."""

    def __init__(
        self,
        dispatch: Dispatch,
        check: Callable[[], None],
        broker: str | None = None,
        at_first: Callable[[DataFrame], None] | None = None,
    ) -> None:
        """Call `check` before each batch; it raises if nothing may be written now.

        The threads that call the gate work for `broker`; Spark's threads have none. `at_first` is called before the
        first batch.
        """
        self._dispatch = dispatch
        self._broker = broker
        self._check = check
        self._at_first = at_first
        self._stopping = threading.Event()
        self._idle = threading.Lock()
        #: The error that ended a batch, or the idle work after it, halfway: sinks may have some of the effects, and
        #: must be recovered before the next batch.
        self.failure: BaseException | None = None

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        """Process the batch; after a request to stop, end the query with StoppedBetweenBatchesError instead."""
        with at_work_for(self._broker, self._dispatch.names[0]), self._idle:
            if self._stopping.is_set():
                # The previous batch is committed. This one is planned, and runs after the next start.
                raise StoppedBetweenBatchesError
            try:
                self._check()
                if self._at_first is not None:
                    self._at_first(ranges)
                    self._at_first = None
                self._dispatch(ranges, batch_id)
            except Exception as error:
                self.failure = error
                raise
            except BaseException as error:
                self.failure = error
                # py4j does not catch these: its thread would end, and the JVM would wait for an answer for ever.
                msg = f"{type(error).__name__} in a micro-batch: {error}"
                raise RuntimeError(msg) from error

    def while_idle(self) -> None:
        """Let the dispatch tidy, unless it is busy with a batch, has failed, or a stop was asked for."""
        self._if_idle(self._dispatch.while_idle)

    def look(self) -> None:
        """Let the dispatch do the work of each second, under the conditions of `while_idle`."""
        self._if_idle(self._dispatch.look)

    def _if_idle(self, action: Callable[[], None]) -> None:
        if self._idle.acquire(blocking=False):
            try:
                if self.failure is None and not self._stopping.is_set() and not self._dispatch.is_writing:
                    with at_work_for(self._broker, self._dispatch.names[0]):
                        self._check()
                        self._dispatch.settle()
                        action()
            except Exception as error:  # noqa: BLE001  the thread that looks after the query finds it
                self.failure = error
            finally:
                self._idle.release()

    def settle(self) -> None:
        """Wait for the current batch, and until everything that was read is written; note an error as `failure`."""
        with self._idle:
            try:
                self._dispatch.settle()
            except Exception as error:  # noqa: BLE001  as above
                self.failure = self.failure or error

    def close(self) -> None:
        """Let no further batch begin, and `settle`."""
        self._stopping.set()
        self.settle()


class StoppedBetweenBatchesError(Exception):
    """Ends a query that was asked to stop, before its next batch begins."""


# ----------------------------------------------------------------------------------------------------------------------
# One query of Spark at work: its sinks, its gate, the files it writes; and how it is stopped and closed.

# The longest time for a stopped query to note that its last batch is done.
_STOP_SECONDS = 10.0
# Between two polls of an idle log, Spark is at rest only for its `pollingDelay`, which must not be missed.
_STOP_POLL_SECONDS = 0.003


@dataclass
class OpenQuery:
    """A query that was started.

    Attributes
    ----------
    answers
        Answers the questions about the log of the query's process in Spark.
    progress
        Asks Spark about the query.
    began_at
        The end of the dispatch after its sinks had been recovered.
    has_died
        Whether Spark's JVM has died, so that there is nothing to stop.
    """

    dispatch: Dispatch
    gate: BatchGate
    query: StreamingQuery
    answers: StreamAnswers
    progress: SparkProgress
    began_at: int
    has_died: Callable[[], bool]

    @property
    def is_active(self) -> bool:
        """Whether Spark still runs it. Ask this before `failure`, so that the error of one that ends is seen."""
        return bool(self.query.isActive)

    def failure(self) -> BaseException | None:
        """The error that ended it: that of a batch or of the source, or else Spark's error; None without one."""
        error = self.query.exception()
        if self.gate.failure is not None:
            return self.gate.failure
        return None if error is None else remote_error(text_of(error)) or error

    @property
    def has_advanced(self) -> bool:
        """Whether its sinks end further on than when they were recovered."""
        return self.dispatch.end_offset > self.began_at

    @property
    def goes_on(self) -> bool:
        """Whether it works since it was opened: a batch succeeded, or it found repeatedly that none is due."""
        return self.has_advanced or self.query.lastProgress is not None

    @property
    def failed_in_batch(self) -> bool:
        """Whether a batch failed, rather than Spark between two of them."""
        return self.gate.failure is not None

    def close(self) -> None:
        """Stop it after the current batch, and close the dispatch."""
        try:
            stop_between_batches(self.query, self.gate, self.has_died)
        finally:
            self.answers.close()
            self.dispatch.close()


def stop_between_batches(query: StreamingQuery, gate: BatchGate, has_died: Callable[[], bool]) -> None:
    """Stop a query after the current batch, giving Spark time to note that it is done, unless its JVM `has_died`."""
    gate.close()
    deadline = time.monotonic() + _STOP_SECONDS
    try:
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(_STOP_POLL_SECONDS)
        query.stop()
    except Exception:
        if not has_died():
            raise


# ----------------------------------------------------------------------------------------------------------------------
# A query's life: it is opened in a thread of its own. Meanwhile the other query works, and a stop is answered.

#: Returns the cause of an error of a query, in a batch or not, and whether the run waits for it to pass.
Judge = Callable[[BaseException, bool], tuple[BaseException, bool]]


class SupervisedQuery:
    """Keeps one query running; `names` are its sinks, the first one is its name.

    All methods are for one thread, which calls `look` several times a second.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        open_again: Callable[[], OpenQuery],
        judge: Judge,
        retry: Retry,
        state: RunState,
        clock: Callable[[], float] = time.monotonic,
        *,
        asked_every_s: float = 0.0,
    ) -> None:
        """`open_again` opens it again, in another thread; `clock` is monotonic, in seconds, and also that of `retry`.

        Spark is asked about a query without a failure only every `asked_every_s` seconds: each question takes processor
        time of this process and of the JVM, even if no message comes.
        """
        self.names = names
        self._open_again = open_again
        self._judge = judge
        self._retry = retry
        self._state = state
        self._clock = clock
        self._query: OpenQuery | None = None
        self._opens_at = 0.0
        self._asked_every_s = asked_every_s
        self._asked_at = float("-inf")
        self._opening: tuple[threading.Thread, Future[OpenQuery]] | None = None
        self._is_out_of_date = False  # whether to open again the query that is being opened

    @property
    def name(self) -> str:
        """The query's name."""
        return self.names[0]

    @property
    def query(self) -> OpenQuery | None:
        """The query, whose sinks are recovered and have not failed since; None while it waits."""
        return self._query

    def begin(self, query: OpenQuery) -> None:
        """Take over `query`, which was opened for the first time."""
        self._query = query

    def look(self) -> bool:
        """Do what is due; return whether the query still needs this: False once it has ended by itself.

        Raises
        ------
        BaseException
            The error that ended it, if it does not pass, or has lasted too long.
        """
        if self._query is None:
            self._wait()
            return True
        now = self._clock()
        if self._is_well(self._query) and now - self._asked_at < self._asked_every_s:
            return True
        self._asked_at = now
        try:
            is_active = self._query.is_active
            if not is_active:
                self._query.gate.settle()
            error = self._query.gate.failure if is_active else self._query.failure()
            goes_on = error is None and self._retry.is_in_row and self._query.goes_on
        except Exception as failed:  # noqa: BLE001  such as Spark's, if the JVM has died
            is_active, error, goes_on = False, failed, False
        if error is not None:
            self.fail(error)
            return True
        if goes_on:
            self._resume()
        return is_active

    def _is_well(self, query: OpenQuery) -> bool:
        """Whether nothing has failed, and the query works since it was opened."""
        return query.gate.failure is None and not self._retry.is_in_row

    def fail(self, error: BaseException) -> None:
        """Close the query after `error`, and wait until it is opened again; without an open query, do nothing.

        Raises
        ------
        BaseException
            The cause of `error`, if that does not pass, or has lasted too long.
        """
        if self._query is None:
            return
        # It must end first: nothing may be written beside its successor.
        query = self._close()
        if self._retry.is_in_row and query.has_advanced:
            self._resume()
        self._pause(error, in_batch=query.failed_in_batch)

    def renew(self) -> None:
        """Close the query after its current batch and open it again, in another thread, although nothing has failed.

        A query that is being opened is closed and opened again after that; a waiting one is opened in its time.
        """
        query, self._query = self._query, None
        if query is None:
            self._is_out_of_date = self._opening is not None
            return
        self._begin_opening(lambda: self._opened_after(query))

    def settle(self) -> None:
        """Finish after a request to stop: leave a failure that may pass to the next start, and raise any other."""
        if self._query is None:
            return
        try:
            error = self._query.failure()
            if error is None:  # after an error Spark may report a batch that never began
                self._query.gate.close()
                error = self._query.gate.failure
        except Exception as failed:  # noqa: BLE001  as in `look`
            error = failed
        if error is not None:
            cause, passes = self._judge(error, self._close().failed_in_batch)
            if not passes:
                raise cause

    def close(self) -> None:
        """Wait for an opening that is under way, and stop the query between two batches."""
        if self._opening is not None:
            thread, opening = self._opening
            thread.join()
            self._opening = None
            if opening.exception() is None:
                self._query = opening.result()
        if self._query is not None:
            self._query.close()

    def _close(self) -> OpenQuery:
        """Close the query after a failure."""
        assert self._query is not None
        query, self._query = self._query, None
        self._close_query(query)
        return query

    def _close_query(self, query: OpenQuery) -> None:
        try:
            query.close()
        except Exception as error:
            # Its gate is closed first, so it writes nothing more, even if Spark cannot stop it.
            if not self._judge(error, False)[1]:
                raise

    def _opened_after(self, before: OpenQuery) -> OpenQuery:
        self._close_query(before)
        return self._open_again()

    def _begin_opening(self, open_query: Callable[[], OpenQuery]) -> None:
        opening: Future[OpenQuery] = Future()
        thread = threading.Thread(
            target=copy_context().run, args=(_run, open_query, opening), name=f"reput-open-{self.name}", daemon=True
        )
        self._opening = thread, opening
        thread.start()

    def _wait(self) -> None:
        """Open the query when its pause is over, and take it over once it is open."""
        if self._opening is None:
            if self._clock() >= self._opens_at:
                self._begin_opening(self._open_again)
            return
        thread, opening = self._opening
        if not opening.done():
            return
        thread.join()
        self._opening = None
        error = opening.exception()
        is_out_of_date, self._is_out_of_date = self._is_out_of_date, False
        if error is not None:
            self._pause(error, in_batch=False)
            return
        self._query = opening.result()
        if is_out_of_date:
            self.renew()

    def _pause(self, error: BaseException, *, in_batch: bool) -> None:
        cause, passes = self._judge(error, in_batch)
        if not passes:
            raise cause
        failure = failure_of(cause)
        text = one_line(failure.cause)  # advice is for the reader of the run's end
        pause = self._retry.after(text)
        if pause is None:
            raise self._retry.given_up(self.name, failure) from error
        self._opens_at = self._clock() + pause.seconds
        for name in self.names:
            self._state.on_waiting(name, text, pause.seconds, pause.attempt, failure.code)
        if pause.is_news:
            _log.warning(
                "%s waits %.0f s and is opened again (attempt %d, since %.0f s): %s",
                self.name,
                pause.seconds,
                pause.attempt,
                pause.since_s,
                text,
                extra={"query": self.name},
            )

    def _resume(self) -> None:
        lasted = self._retry.went_on()
        for name in self.names:
            self._state.on_resumed(name)
        _log.info("%s continues after %.0f s", self.name, lasted, extra={"query": self.name})


def _run(open_query: Callable[[], OpenQuery], opening: Future[OpenQuery]) -> None:
    try:
        opening.set_result(open_query())
    except BaseException as error:  # noqa: BLE001  the thread that looks after the query raises it
        opening.set_exception(error)


#: Pauses before the first, the second and later attempts, in seconds; the last one is repeated.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True)
class Pause:
    """The pause before an attempt.

    Attributes
    ----------
    seconds
        Its length.
    attempt
        The number of the attempt after it in this row, counted from 1.
    since_s
        The seconds since the first failure in this row.
    is_news
        Whether it differs from the pause before: it is longer, or the failure is another.
    """

    seconds: float
    attempt: int
    since_s: float
    is_news: bool


class Retry:
    """The attempts of one query. They are in a row as long as the query does not work between two failures."""

    def __init__(
        self,
        retry_for_s: float,
        pauses_s: Sequence[float] = PAUSES_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A row lasts for `retry_for_s` seconds at most; `clock` is monotonic, in seconds."""
        self._retry_for_s = retry_for_s
        self._pauses_s = pauses_s
        self._clock = clock
        self._since: float | None = None
        self._attempts = 0
        self._told: str | None = None

    @property
    def is_in_row(self) -> bool:
        """Whether the query failed, and has not been seen to work since."""
        return self._since is not None

    def after(self, failure: str) -> Pause | None:
        """Return the pause after a failure, given as its text; None to give up."""
        now = self._clock()
        if self._since is None:
            self._since = now
        left = self._since + self._retry_for_s - now
        if left <= 0:
            return None
        self._attempts += 1
        # The last attempt comes at the very end.
        seconds = min(self._pauses_s[min(self._attempts, len(self._pauses_s)) - 1], left)
        is_news = self._attempts <= len(self._pauses_s) or failure != self._told
        self._told = failure
        return Pause(seconds, self._attempts, now - self._since, is_news)

    def went_on(self) -> float:
        """End the row; return how many seconds it lasted."""
        lasted = 0.0 if self._since is None else self._clock() - self._since
        self._since, self._attempts, self._told = None, 0, None
        return lasted

    def given_up(self, query: str, failure: ReputError) -> ReputError:
        """Return the error that ends a run in which `query` could not get over `failure`.

        A supervisor starts the same command again, unless a directory of the output is missing: a start would make a
        new one there.
        """
        kind = type(failure) if isinstance(failure, TransientError | OutputAwayError) else TransientError
        cause, lasted = failure.cause, 0.0 if self._since is None else self._clock() - self._since
        if self._attempts:
            times = "once" if self._attempts == 1 else f"{self._attempts} times"
            cause = f"{query} did not continue within {lasted:.0f} s and was opened again {times}: {cause}"
        return kind(cause, advice=failure.advice, file=failure.file, physical_offset=failure.physical_offset)


# ----------------------------------------------------------------------------------------------------------------------
# The cause of a failure of a query, and whether the run waits for that to pass.
#
# Without the output, Spark, the log or the table everything fails, in many ways: the cause is whichever is gone.


class Causes:
    """Judges the failures of one run; for one thread."""

    def __init__(
        self,
        check_output: Callable[[], None],
        log: LogReader,
        sessions: Sessions,
        table: TableLocation | None,
        *,
        available_now: bool,
    ) -> None:
        """`check_output` raises if the output is gone; `log` has listed the log before.

        A run that ends with the log (`available_now`) waits for little: the user waits for its end.
        """
        self._check_output = check_output
        self._log = log
        self._sessions = sessions
        self._table = table
        self._available_now = available_now

    def judge(self, names: Sequence[str], error: BaseException, *, in_batch: bool) -> tuple[BaseException, bool]:
        """Return the cause of `error` of the query that keeps `names`, and whether to wait for it to pass.

        `in_batch` means that it ended a batch, not Spark's own work between two of them.
        """
        cause = self._cause(names, error)
        if self._available_now:
            return cause, not (in_batch or self._sessions.has_died()) and is_passing(cause)
        if self._sessions.has_died() and not self._sessions.can_start:
            return cause, False
        return cause, may_pass_in_a_run(cause)

    def _cause(self, names: Sequence[str], error: BaseException) -> BaseException:
        try:
            self._check_output()
        except ReputError as away:
            return away
        self._sessions.look()
        if has_jvm_died(within_s=JVM_ENDS_WITHIN_S) or self._sessions.has_died():
            return jvm_death()
        try:
            self._log.queue()
        except (ReputError, OSError) as away:
            return away
        if isinstance(error, DataLossError) and error.file is not None and os.path.exists(error.file):  # noqa: PTH110
            return TransientError(f"{error.file} could not be reached for a moment", file=error.file)
        if TABLE in names and isinstance(self._table, Path):
            try:
                if not is_table(self._table):
                    return table_away(self._table)
            except ReputError as away:
                return away
        return error


_PLANNING = ("latestOffset", "getBatch", "queryPlanning", "walCommit")
_COMMIT = "commitOffsets"


class SparkProgress:
    """Notes Spark's part of each micro-batch of one query in a `RunState`, once each."""

    def __init__(self, name: str, state: RunState) -> None:
        self._name = name
        self._state = state
        self._query: StreamingQuery | None = None
        self._noted = -1
        self._lock = threading.Lock()

    def watch(self, query: StreamingQuery) -> None:
        """Begin to ask `query`, which has just been started."""
        self._query = query

    def note(self) -> Any:
        """Note Spark's report on the last batch that it has ended, and return its progress; None if there is none.

        Any thread may call this.
        """
        with self._lock:
            progress: Any = None if self._query is None else self._query.lastProgress
            if progress is None:
                return None
            took = progress["durationMs"]
            if progress["batchId"] <= self._noted or "addBatch" not in took:  # nothing was read
                return progress
            self._noted = progress["batchId"]
        planned = sum(took.get(name, 0) for name in _PLANNING) / 1000
        committed = took.get(_COMMIT, 0) / 1000
        # The table's commit is the one to its own log.
        phases = {"plan": planned, "commit": committed} if self._name == LOGIC else {"plan": planned + committed}
        self._state.on_phases(self._name, phases)
        return progress
