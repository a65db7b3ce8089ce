"""The promises of every sink of the `logic` query."""

from __future__ import annotations

from typing import Protocol

from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.files.sink_progress import RecordFingerprint, SinkProgress
from reput.source.errors import SinkError


class Sink(Protocol):
    """A set of files kept from the log. Call `recover` first, then `write` for batches in log order, then `close`."""

    name: str

    def recover(self, start_offset: int) -> SinkProgress:
        """Bring the files to the state of the progress record, and return the record.

        A sink without a record begins at `start_offset`, which becomes durable before anything else is written. A sink
        that finds a broker's files continues where they end.

        Raises
        ------
        SinkError
            The files contradict the record, and writing the following records cannot repair them.
        """

    @property
    def end_offset(self) -> int:
        """The effect of every record before this physical offset is durable."""

    @property
    def last_record(self) -> RecordFingerprint | None:
        """The last record whose effect is durable; None before the first, and after records that expired unread."""

    def write(self, batch: LogicBatch) -> AnomalyCounts:
        """Add the batch's effects, durably and once: records before `end_offset` are passed over.

        Returns the anomalies of the records that are new to the sink.

        Raises
        ------
        SinkError
            The batch begins after `end_offset`: records would be skipped.
        """

    def pass_over(self, end_offset: int) -> None:
        """Continue at `end_offset`, durably: the records before it expired unread."""


def not_yet_written(name: str, end_offset: int, batch: LogicBatch) -> LogicBatch | None:
    """The part of `batch` that a sink that ends at `end_offset` still needs; None if it has all of it."""
    if batch.end <= end_offset:
        return None
    if batch.start > end_offset:
        raise SinkError(
            f"{name} ends at {end_offset} and the batch begins at {batch.start}: writing it would skip the records "
            "between",
            advice="start reput again, it fills the gap from the log",
            physical_offset=end_offset,
        )
    return batch.after(end_offset)
