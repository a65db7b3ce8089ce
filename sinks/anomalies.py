"""Anomalies, which a broker never writes into a log in one undisturbed life: counted by cause, logged in a few lines.

The causes are those of docs/anomalies.md; other modules decide about the records.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields

from reput.source.record.message_decoder import Verdict

# At most this many of a batch's queues that are out of order get a line of their own.
_LINES_A_BATCH = 5


@dataclass(frozen=True)
class AnomalyCounts:
    """How often each anomaly was met; one count per record unless stated otherwise. Add them up with ``+``.

    Attributes
    ----------
    already_built
        The record ends at or before the last one its queue has: no entry (A).
    pre_blank
        Queues that begin at another queue offset than 0; the first file's front is filled (C).
    repeated
        The queue offset is before the queue's end: no entry (D).
    gap
        The queue offset is after the queue's end: the entry goes to the end, and is found under another offset (E).
    queue_restart
        Queue offset 0 in a queue that has entries, as after a topic was deleted and created again: appended at the end.
    store_time_backwards
        The record was stored earlier than the one before it in the log.
    bad_magic, size_mismatch, stale, torn
        One count per offset, not per record: the bytes at the log's end are not a record yet.
    """

    already_built: int = 0
    pre_blank: int = 0
    repeated: int = 0
    gap: int = 0
    queue_restart: int = 0
    store_time_backwards: int = 0
    bad_magic: int = 0
    size_mismatch: int = 0
    stale: int = 0
    torn: int = 0

    def __add__(self, other: AnomalyCounts) -> AnomalyCounts:
        return AnomalyCounts(*(mine + theirs for mine, theirs in zip(self._values(), other._values(), strict=True)))

    def __bool__(self) -> bool:
        return any(self._values())

    def __str__(self) -> str:
        """The counts above 0, as ``3 gap, 1 repeated``; empty without any."""
        named = zip((field.name for field in fields(self)), self._values(), strict=True)
        return ", ".join(f"{count} {name}" for name, count in named if count)

    def as_dict(self) -> dict[str, int]:
        """The counts by the anomaly's name."""
        return dict(vars(self))

    def _values(self) -> tuple[int, ...]:
        # Not ``astuple``, which copies deeply: this runs once per queue and batch.
        return tuple(vars(self).values())


NO_ANOMALIES = AnomalyCounts()

_AT_END = {
    Verdict.BAD_MAGIC: AnomalyCounts(bad_magic=1),
    Verdict.BAD_SIZE: AnomalyCounts(size_mismatch=1),
    Verdict.BAD_LENGTH: AnomalyCounts(size_mismatch=1),
    Verdict.BAD_PHYSICAL_OFFSET: AnomalyCounts(stale=1),
    Verdict.BAD_TOPIC: AnomalyCounts(torn=1),
    Verdict.BAD_CRC: AnomalyCounts(torn=1),
    Verdict.BAD_DELAY: AnomalyCounts(torn=1),
    Verdict.BAD_PROPERTY_CRC: AnomalyCounts(torn=1),
    Verdict.BAD_INNER_BATCH: AnomalyCounts(torn=1),
}


def anomaly_at_end(verdict: Verdict) -> AnomalyCounts:
    """The anomaly for the verdict on the log's end; none for verdicts that every growing log has there."""
    return _AT_END.get(verdict, NO_ANOMALIES)


@dataclass(frozen=True)
class OutOfOrder:
    """The first record of a queue and batch whose queue offset is not where the queue ended (an index)."""

    physical_offset: int
    queue_offset: int
    queue_end: int


class BatchAnomalies:
    """Adds up the anomalies of one batch's queues, and logs a bounded number of lines about them."""

    def __init__(self, log: logging.Logger) -> None:
        self.counts = NO_ANOMALIES
        self._log = log
        self._queues = 0

    def note(self, topic: bytes, queue_id: int, counts: AnomalyCounts, first: OutOfOrder | None) -> None:
        """Count one queue's anomalies, and log the first record out of order while such queues are few."""
        if counts is not NO_ANOMALIES:
            self.counts += counts
        if first is None:
            return
        self._queues += 1
        if self._queues <= _LINES_A_BATCH:
            self._log.warning(
                "queue order of %r-%d: %s; first, the record at %d has queue offset %d, the queue ended at %d",
                topic,
                queue_id,
                counts,
                first.physical_offset,
                first.queue_offset,
                first.queue_end,
            )

    def close(self) -> AnomalyCounts:
        """Log how many queues got no line, and return the sum."""
        if self._queues > _LINES_A_BATCH:
            self._log.warning("queue order: %d more queues in this batch", self._queues - _LINES_A_BATCH)
        return self.counts
