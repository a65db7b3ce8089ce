"""What a query does with a micro-batch, and whom it tells; ``logic_dispatch`` and ``table_dispatch`` do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyspark.sql import DataFrame

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
