"""The effects of a stretch of the log on queues and index: the tasks' pieces (``piece``) put together, in log order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.dispatch.arrival import ArrivalSummary
from reput.sinks.dispatch.piece import PieceEntries, PieceRow
from reput.sinks.files.sink_progress import RecordFingerprint
from reput.source.errors import SinkError
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.kernels.byte_kernels import load_i32
from reput.source.record.message_format import BODY_CRC_AT

# ----------------------------------------------------------------------------------------------------------------------
# The fields that a task of any sink returns about its stretch of the log: its ends, its count, its last record.

# `[start, end)` of the log, the messages in it, and the last one: offset, size, store timestamp, body CRC.
RESULT_FIELDS = (
    pa.field("start", pa.int64(), nullable=False),
    pa.field("end", pa.int64(), nullable=False),
    pa.field("messages", pa.int64(), nullable=False),
    pa.field("last_record", pa.list_(pa.int64())),
)


def last_record_of(columns: RecordColumns) -> list[int] | None:
    """The last record's fingerprint as a list; None without records."""
    if not len(columns):
        return None
    at = int(columns.parts[-1, rk.AT])
    crc = int(load_i32(columns.data, at + BODY_CRC_AT))
    return [columns.data_offset + at, int(columns.msg_size[-1]), int(columns.store_timestamp[-1]), crc]


def in_log_order(results: pa.Table) -> pa.Table:
    """The tasks' rows in log order; Spark gives them in order, so a copy is rarely made.

    Raises
    ------
    SinkError
        Rows overlap or leave a gap: a result is missing or came twice.
    """
    if results["start"].to_pylist() != sorted(results["start"].to_pylist()):
        results = results.sort_by("start")
    check_no_gap(results["start"].to_pylist(), results["end"].to_pylist())
    return results


def check_no_gap(starts: Sequence[int], ends: Sequence[int]) -> None:
    """Check that each result begins where the one before it ended.

    Raises
    ------
    SinkError
        A result is missing or came twice.
    """
    for end, start in zip(ends, starts[1:], strict=False):
        if end != start:
            msg = f"the tasks' results leave [{end}, {start}) of the log out, or have it twice"
            raise SinkError(msg)


def last_fingerprint(last_records: Iterable[list[int] | None]) -> RecordFingerprint | None:
    """The last record of all results, given in log order; None without any."""
    known = [record for record in last_records if record is not None]
    return RecordFingerprint(*known[-1]) if known else None


@dataclass(frozen=True)
class LogicBatch:
    """The effects of `[start, end)` of the log on queues and index.

    `first_store_timestamp` (ms) is the first record's. `store_time_backwards` counts the records that were stored
    earlier than the one before them. `last_queued_timestamp` (ms) is that of the last record with a queue entry, and
    `last_queued_offset` is the physical offset where it begins.
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
        """The batch without entries and keys of records before `offset`, for a sink that ends there."""
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
