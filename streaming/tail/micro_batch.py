"""What a query does with a micro-batch, and whom it tells; ``logic_dispatch`` and ``table_dispatch`` do it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from reput.streaming.config.master import processes_of
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.spark_checkpoint import TABLE
from reput.streaming.process.work_of_thread import at_work_for
from reput.streaming.status.batch_report import BatchReport

#: Is told of each batch that was written.
Report = Callable[[BatchReport], None]
#: Is told a query and the physical offset before which it has read everything.
OnRead = Callable[[str, int], None]


def ignored(_query: str, _end: int) -> None:
    """Tell nobody how far a query has read."""


class Dispatch(Protocol):
    """What a query does with a micro-batch, and how far its sinks are."""

    @property
    def names(self) -> tuple[str, ...]:
        """What it keeps, LOGIC or TABLE or both; the first is the query's name."""

    @property
    def end_offset(self) -> int:
        """Every sink has the effect of every record before this physical offset."""

    @property
    def is_writing(self) -> bool:
        """Whether effects of the last batch are still written, and nothing has failed yet."""

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        """Process the batch's ranges; the effects are durable when `settle` returns.

        The batch id serves to look up what Spark planned, never to know what is done.
        """

    def settle(self) -> None:
        """Wait until the effects of all batches are durable; raise what kept some from it."""

    def while_idle(self) -> None:
        """Do a little of what can wait, between batches."""

    def look(self) -> None:
        """Do what a look each second finds to be due, between batches."""

    def finish(self) -> None:
        """Do what is left to be done after the last batch of a run that ends with the log."""

    def close(self) -> None:
        """Give up what was begun beside the batches; no batch follows."""


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
# How much of the log one micro-batch of a query takes, in the stream and while sinks catch up with it.

_WORTH_A_TASK = 32 * 1024 * 1024


@dataclass(frozen=True)
class BatchSizes:
    """Limits of a micro-batch: its bytes, its messages (None for any number) and the bytes of one of its ranges.

    `bytes_a_wave` is what is written, at least, while more of the batch is read.
    """

    bytes_a_batch: int
    messages_a_batch: int | None
    bytes_a_range: int
    bytes_a_wave: int

    @classmethod
    def of(cls, config: PipelineConfig, names: Sequence[str]) -> BatchSizes:
        """The sizes of a query that keeps all of `names` (LOGIC, TABLE): the lesser ones."""
        sizes = [config.table if name == TABLE else config.logic for name in names]
        bytes_a_batch = min(each.max_bytes_per_trigger for each in sizes)
        # No core is without a range of a full batch, unless that makes ranges that are not worth a task.
        bytes_a_core = max(_WORTH_A_TASK, bytes_a_batch // (processes_of(config.spark.master) or 1))
        bytes_a_range = min(bytes_a_core, *(each.max_bytes_per_partition for each in sizes))
        # Each wave is a commit of the table.
        bytes_a_wave = bytes_a_range * (2 if TABLE in names else 1)
        return cls(bytes_a_batch, config.source.max_messages_per_trigger, bytes_a_range, bytes_a_wave)
