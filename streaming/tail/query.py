"""A query of the stream: opened, watched, closed after a failure, and opened anew while that may pass.

`SupervisedQuery` is its whole life, `OpenQuery` the time between an opening and the closing after it, and `BatchGate`
the door through which its micro-batches come.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from reput.source.errors import remote_error
from reput.streaming.process.failures import failure_of, one_line, text_of
from reput.streaming.process.process_log import at_work_for
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail.micro_batch import Dispatch
from reput.streaming.tail.retry import Retry
from reput.streaming.tail.spark_progress import SparkProgress

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
        """`check` raises if nothing may be written just now; it is asked before each batch.

        `broker` is who the threads work for that call it; Spark's know nobody. `at_first` is called before the first
        batch.
        """
        self._dispatch = dispatch
        self._broker = broker
        self._check = check
        self._at_first = at_first
        self._stopping = threading.Event()
        self._idle = threading.Lock()
        #: What ended a batch, or the idle work after it, halfway: sinks may have some of the effects, and must be
        #: recovered before the next batch.
        self.failure: BaseException | None = None

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        """Process the batch, or after a request to stop end the query with StoppedBetweenBatchesError."""
        with at_work_for(self._broker, self._dispatch.names[0]), self._idle:
            if self._stopping.is_set():
                # The previous batch is committed. This one is planned, and will be done after the next start.
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
                # py4j does not catch these: its thread would end, and the JVM would wait for its answer for ever.
                msg = f"{type(error).__name__} in a micro-batch: {error}"
                raise RuntimeError(msg) from error

    def while_idle(self) -> None:
        """Let the dispatch tidy, unless it is busy with a batch, has failed, or a stop was asked for."""
        self._if_idle(self._dispatch.while_idle)

    def look(self) -> None:
        """Let the dispatch do what is due each second, under the conditions of `while_idle`."""
        self._if_idle(self._dispatch.look)

    def _if_idle(self, action: Callable[[], None]) -> None:
        if self._idle.acquire(blocking=False):
            try:
                if self.failure is None and not self._stopping.is_set() and not self._dispatch.is_writing:
                    with at_work_for(self._broker, self._dispatch.names[0]):
                        self._check()
                        self._dispatch.settle()
                        action()
            except Exception as error:  # noqa: BLE001  whoever looks after the query finds it
                self.failure = error
            finally:
                self._idle.release()

    def settle(self) -> None:
        """Wait for the current batch, and until all that was read is written; what fails is noted as `failure`."""
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

# How long a stopped query may take to note that its last batch is done.
_STOP_SECONDS = 10.0
# Between two polls of an idle log, Spark is at rest only for its `pollingDelay`, which must not be missed.
_STOP_POLL_SECONDS = 0.003


@dataclass
class OpenQuery:
    """A query that was started.

    Attributes
    ----------
    progress
        Asks Spark what it says of the query.
    began_at
        Where the dispatch ended when its sinks had been recovered.
    has_died
        Whether Spark's JVM has died, so that there is nothing to stop.
    """

    dispatch: Dispatch
    gate: BatchGate
    query: StreamingQuery
    progress: SparkProgress
    began_at: int
    has_died: Callable[[], bool]

    @property
    def is_active(self) -> bool:
        """Whether Spark still runs it. Ask this before `failure`, so that the error of one that ends is seen."""
        return bool(self.query.isActive)

    def failure(self) -> BaseException | None:
        """What ended it: what a batch or the source raised, as it was, or else Spark's error; None if nothing did."""
        error = self.query.exception()
        if self.gate.failure is not None:
            return self.gate.failure
        return None if error is None else remote_error(text_of(error)) or error

    @property
    def has_advanced(self) -> bool:
        """Whether its sinks have got further than where they were recovered."""
        return self.dispatch.end_offset > self.began_at

    @property
    def goes_on(self) -> bool:
        """Whether it got anywhere since it was opened: by a batch, or by finding, again and again, that none is due."""
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
            self.dispatch.close()


def stop_between_batches(query: StreamingQuery, gate: BatchGate, has_died: Callable[[], bool]) -> None:
    """Stop a query after the current batch, giving Spark time to note that it is done; not if its JVM `has_died`."""
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
# A query's life: it is opened in a thread of its own. Meanwhile the run goes on: the other query, and the answer to a
# stop.

#: What is behind an error of a query, in a batch or not, and whether the run waits for that to pass.
Judge = Callable[[BaseException, bool], tuple[BaseException, bool]]


class SupervisedQuery:
    """Keeps one query going; `names` are what it keeps, the first one is its name.

    All methods are for one thread, which calls `look` several times a second.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        open_again: Callable[[], OpenQuery],
        judge: Judge,
        retry: Retry,
        reporter: ProgressReporter,
        clock: Callable[[], float] = time.monotonic,
        *,
        asked_every_s: float = 0.0,
    ) -> None:
        """`open_again` opens it anew, in another thread; `clock` is monotonic, in seconds, as that of `retry`.

        Spark is asked about a query that is well only every `asked_every_s` seconds: each question takes processor time
        of this process and of the JVM, also where nothing comes.
        """
        self.names = names
        self._open_again = open_again
        self._judge = judge
        self._retry = retry
        self._reporter = reporter
        self._clock = clock
        self._query: OpenQuery | None = None
        self._opens_at = 0.0
        self._asked_every_s = asked_every_s
        self._asked_at = float("-inf")
        self._opening: tuple[threading.Thread, Future[OpenQuery]] | None = None
        self._is_out_of_date = False  # what is being opened

    @property
    def name(self) -> str:
        """What the query is called."""
        return self.names[0]

    @property
    def query(self) -> OpenQuery | None:
        """The query, whose sinks are recovered and have not failed since; None while it waits."""
        return self._query

    def begin(self, query: OpenQuery) -> None:
        """Look after `query`, which was opened for the first time."""
        self._query = query

    def look(self) -> bool:
        """Go on with what is due; returns whether there is anything to look after: False once it ended by itself.

        Raises
        ------
        BaseException
            What ended it, if that does not pass, or has lasted too long.
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
        """Whether nothing has failed, and the query has got on since it was opened."""
        return query.gate.failure is None and not self._retry.is_in_row

    def fail(self, error: BaseException) -> None:
        """Close the query after `error`, and wait until it is opened again; without an open query, do nothing.

        Raises
        ------
        BaseException
            What is behind `error`, if that does not pass, or has lasted too long.
        """
        if self._query is None:
            return
        # First it ends: nothing may be written beside its successor.
        query = self._close()
        if self._retry.is_in_row and query.has_advanced:
            self._resume()
        self._pause(error, in_batch=query.failed_in_batch)

    def renew(self) -> None:
        """Close the query after its current batch and open it again, in another thread; nothing has failed.

        One that is being opened is closed and opened again when it is open; one that waits is opened in its time.
        """
        query, self._query = self._query, None
        if query is None:
            self._is_out_of_date = self._opening is not None
            return
        self._begin_opening(lambda: self._opened_after(query))

    def settle(self) -> None:
        """Look after a stop was asked for: what may pass is left to the next start, any other failure is raised."""
        if self._query is None:
            return
        try:
            error = self._query.failure()
            if error is None:  # behind that Spark may tell of a batch that did not begin any more
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
            # Its gate is closed first, so it writes nothing any more, even if Spark cannot stop it.
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
        text = one_line(failure.cause)  # what to do about it is for who reads that the run ended
        pause = self._retry.after(text)
        if pause is None:
            raise self._retry.given_up(self.name, failure) from error
        self._opens_at = self._clock() + pause.seconds
        for name in self.names:
            self._reporter.on_waiting(name, text, pause.seconds, pause.attempt, failure.code)
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
            self._reporter.on_resumed(name)
        _log.info("%s goes on after %.0f s", self.name, lasted, extra={"query": self.name})


def _run(open_query: Callable[[], OpenQuery], opening: Future[OpenQuery]) -> None:
    try:
        opening.set_result(open_query())
    except BaseException as error:  # noqa: BLE001  whoever looks after the query raises it
        opening.set_exception(error)
