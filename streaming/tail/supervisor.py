"""One query of a run, looked after: opened, watched, closed after a failure, and opened anew while that may pass.

It is opened in a thread of its own, so that the run goes on meanwhile: the other query, and its answer to a stop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context

from reput.streaming.process.failures import failure_of, one_line
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail.open_query import OpenQuery
from reput.streaming.tail.retry import Retry

_log = logging.getLogger("reput")


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
