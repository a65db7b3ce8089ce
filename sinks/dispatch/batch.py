"""What a stretch of the log does to queues and index: the tasks' pieces (``piece``) put together, in log order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.dispatch.arrival import ArrivalSummary
from reput.sinks.dispatch.piece import PieceRow
from reput.sinks.dispatch.piece_entries import PieceEntries
from reput.sinks.dispatch.task_result import check_no_gap, last_fingerprint
from reput.sinks.files.sink_progress import RecordFingerprint


@dataclass(frozen=True)
class LogicBatch:
    """The effects of `[start, end)` of the log on queues and index.

    `first_store_timestamp` (ms) is the first record's. `store_time_backwards` counts the records that were stored
    earlier than the one before them. `last_queued_timestamp` (ms) is that of the last record with a queue entry,
    and `last_queued_offset` where it begins, a physical offset.
    """

    start: int
    end: int
    messages: int
    last_record: RecordFingerprint | None
    entries: PieceEntries
    arrivals: ArrivalSummary | None = None
    first_store_timestamp: int | None = None
    store_time_backwards: int = 0
    last_queued_timestamp: int | None = None
    last_queued_offset: int | None = None

    @classmethod
    def merge(cls, pieces: Sequence[PieceRow]) -> LogicBatch:
        """Put pieces together, given in log order.

        Raises
        ------
        SinkError
            Pieces overlap or leave a gap: a task's result is missing or came twice.
        """
        check_no_gap([piece["start"] for piece in pieces], [piece["end"] for piece in pieces])
        start, end = pieces[0]["start"], pieces[-1]["end"]
        queued = [piece["queued_offset"] for piece in pieces if piece["queued_offset"] is not None]
        first_store_timestamp, backwards, last_queued_timestamp = _merge_store_times(pieces)
        return cls(
            start=start,
            end=end,
            messages=sum(piece["messages"] for piece in pieces),
            last_record=last_fingerprint(piece["last_record"] for piece in pieces),
            entries=PieceEntries.read([piece["arrays"] for piece in pieces]),
            arrivals=ArrivalSummary.merge(start, end, (each for piece in pieces for each in piece["arrivals"])),
            first_store_timestamp=first_store_timestamp,
            store_time_backwards=backwards,
            last_queued_timestamp=last_queued_timestamp,
            last_queued_offset=max(queued, default=None),
        )

    def anomalies(self, before: RecordFingerprint | None) -> AnomalyCounts:
        """The anomalies of the records alone, whatever the queues hold; `before` is the record before the batch."""
        first = self.first_store_timestamp
        backwards = before is not None and first is not None and first < before.store_timestamp
        return AnomalyCounts(store_time_backwards=self.store_time_backwards + backwards)

    def after(self, offset: int) -> LogicBatch:
        """The batch without entries and keys of records before `offset`: what a sink that ends there still needs."""
        return self if offset <= self.start else replace(self, start=offset, entries=self.entries.after(offset))


def _merge_store_times(pieces: Iterable[PieceRow]) -> tuple[int | None, int, int | None]:
    """The first record's store timestamp, how often the time went back, and the last queued record's timestamp."""
    first = before = last_queued = None
    backwards = 0
    for piece in pieces:
        if not piece["store_times"] or piece["last_record"] is None:
            continue
        piece_first, inside, queued = piece["store_times"]
        assert piece_first is not None
        assert inside is not None
        last_queued = last_queued if queued is None else queued
        backwards += inside + (before is not None and piece_first < before)
        first = piece_first if first is None else first
        before = RecordFingerprint(*piece["last_record"]).store_timestamp
    return first, backwards, last_queued
