"""One query of Spark at work: its sinks, its gate, the files it writes; and how it is stopped and closed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.streaming.query import StreamingQuery

from reput.source.errors import remote_error
from reput.streaming.process.failures import text_of
from reput.streaming.tail.batch_gate import BatchGate
from reput.streaming.tail.micro_batch import Dispatch
from reput.streaming.tail.spark_progress import SparkProgress

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
    close_files
        Closes what the dispatch has open.
    """

    dispatch: Dispatch
    gate: BatchGate
    query: StreamingQuery
    progress: SparkProgress
    began_at: int
    has_died: Callable[[], bool]
    close_files: Callable[[], None]

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
        """Stop it after the current batch, and close its files."""
        try:
            stop_between_batches(self.query, self.gate, self.has_died)
        finally:
            self.close_files()


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
