"""What a micro-batch brought, for those who wait for messages: ``doReput``'s notification and a slave's statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Arrival:
    """The last message of one queue in a micro-batch, as ``MessageArrivingListener#arriving`` is told it.

    `next_offset` is the queue offset behind it; `store_timestamp` in milliseconds. A prepared or rolled-back message
    counts only where the queue got no other.
    """

    topic: str
    queue_id: int
    next_offset: int
    tags_code: int
    store_timestamp: int


@dataclass(frozen=True)
class TopicCount:
    """The messages that one topic got, and their bytes, as a slave counts them (``StoreStatsService``)."""

    topic: str
    messages: int
    size_bytes: int


@dataclass(frozen=True)
class ArrivalSummary:
    """The arrivals of `[start, end)` of the log, by queue and by topic, in order of first appearance."""

    start: int
    end: int
    queues: tuple[Arrival, ...]
    topics: tuple[TopicCount, ...]


ArrivalListener = Callable[[ArrivalSummary], None]
