"""Micro-batches that hold little: the driver reads them itself, since a job of Spark's takes longer than that."""

from __future__ import annotations

from pathlib import Path

from reput.source.errors import ReputError
from reput.source.log.log_reader import LogReader
from reput.source.log.offset_range import OffsetRange
from reput.streaming.output.spark_checkpoint import end_of_batch

# One core reads and decodes so much in less time than a job takes that has nothing to read.
SMALL_BYTES = 8 * 1024 * 1024
# And so much in less time than Spark takes to start its workers. Later batches of this size are better read by these:
# the driver's Python would keep the other query waiting.
SMALL_FIRST_BYTES = 32 * 1024 * 1024


def is_first_small(log: LogReader, start: int) -> bool:
    """Whether a start of a query that goes on at `start` finds so little in the log that it takes no job.

    Raises what ``LogReader.reaches_beyond`` raises.
    """
    return not log.reaches_beyond(start + SMALL_FIRST_BYTES)


class SmallBatches:
    """Knows which of a query's micro-batches are small, and their ranges.

    Attributes
    ----------
    begin
        Where Spark's first batch begins, which Spark does not note: what the source was told; None if unknown.
    """

    def __init__(self, checkpoint: Path, log: LogReader) -> None:
        """`checkpoint` is the query's Spark checkpoint; `log` is only asked for its options."""
        self.begin: int | None = None
        self._checkpoint = checkpoint
        self._log = LogReader(log.options)
        # The batch that was asked for last, and its end.
        self._last: tuple[int, int] | None = None
        # The batch that was asked for first; Spark numbers it on from its checkpoint.
        self._first_id: int | None = None

    def ranges(self, batch_id: int) -> list[OffsetRange] | None:
        """The ranges of one of Spark's batches, in log order; None if a job is to read them.

        Spark notes where a batch ends before it begins with it. Whatever is wrong with that, or with the log, the job
        meets as well, and says so.
        """
        if self._first_id is None:
            self._first_id = batch_id
        bytes_max = SMALL_FIRST_BYTES if batch_id == self._first_id else SMALL_BYTES
        try:
            start = self.begin if batch_id == 0 else self._end(batch_id - 1)
            end = self._end(batch_id)
            if start is None or not 0 < end - start <= bytes_max:
                return None
            return list(self._log.split(start, end))
        except ReputError:
            return None

    def _end(self, batch_id: int) -> int:
        if self._last is None or self._last[0] != batch_id:
            self._last = batch_id, end_of_batch(self._checkpoint, batch_id)
        return self._last[1]
