"""The arrivals of a micro-batch, for waiting programs: ``doReput``'s notification, a slave's statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reput.source.record.message_properties import decode_utf8


@dataclass(frozen=True)
class Arrival:
    """The last message of one queue in a micro-batch, with the arguments of ``MessageArrivingListener#arriving``.

    `next_offset` is the queue offset after it; `store_timestamp` is in milliseconds. A prepared or rolled-back message
    counts only if the queue got no other.
    """

    topic: str
    queue_id: int
    next_offset: int
    tags_code: int
    store_timestamp: int


@dataclass(frozen=True)
class TopicCount:
    """The number and bytes of the messages that one topic got, as a slave counts them (``StoreStatsService``)."""

    topic: str
    messages: int
    size_bytes: int


@dataclass(frozen=True)
class QueueArrivals:
    """The arrivals of one queue in a stretch of the log: its last message as in `Arrival`, and the count of all.

    `is_queued` is whether the last message has an entry. `messages` and `size_bytes` leave out messages that came only
    by multi dispatch.
    """

    topic: bytes
    queue_id: int
    next_offset: int
    tags_code: int
    store_timestamp: int
    is_queued: bool
    messages: int
    size_bytes: int


@dataclass(frozen=True)
class ArrivalSummary:
    """The arrivals of `[start, end)` of the log, by queue and by topic, in order of first appearance."""

    start: int
    end: int
    queues: tuple[Arrival, ...]
    topics: tuple[TopicCount, ...]

    @classmethod
    def merge(cls, start: int, end: int, arrivals: Iterable[QueueArrivals]) -> ArrivalSummary | None:
        """Sum up the arrivals of `[start, end)`, given in log order; None without any."""
        last: dict[tuple[bytes, int], QueueArrivals] = {}
        counts: dict[bytes, tuple[int, int]] = {}
        for each in arrivals:
            known = last.get((each.topic, each.queue_id))
            if each.is_queued or known is None or not known.is_queued:
                last[each.topic, each.queue_id] = each
            if each.messages:
                messages, size_bytes = counts.get(each.topic, (0, 0))
                counts[each.topic] = messages + each.messages, size_bytes + each.size_bytes
        queues = (
            Arrival(decode_utf8(each.topic), each.queue_id, each.next_offset, each.tags_code, each.store_timestamp)
            for each in last.values()
        )
        topics = (TopicCount(decode_utf8(topic), *count) for topic, count in counts.items())
        return cls(start, end, tuple(queues), tuple(topics)) if last else None


ArrivalListener = Callable[[ArrivalSummary], None]
