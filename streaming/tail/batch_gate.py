"""The gate in front of a query's micro-batches: one at a time, none after a stop or a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark.sql import DataFrame

from reput.streaming.process.work_of_thread import at_work_for
from reput.streaming.tail.micro_batch import Dispatch


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
