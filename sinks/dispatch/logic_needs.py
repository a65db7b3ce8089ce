"""What tasks compute of a record for queues and index."""

from __future__ import annotations

from dataclasses import dataclass

from reput.sinks.dispatch.multi_dispatch import MultiDispatch
from reput.sinks.filter.consumer_filter import ConsumerFilters


@dataclass(frozen=True)
class LogicNeeds:
    """Which effects of a record are wanted.

    Attributes
    ----------
    index_tags
        Also the key ``topic#T#tags`` of 5.4.0 and later.
    multi_dispatch
        How messages go to further queues; None for ``enableMultiDispatch=false``.
    ext
        What a ConsumeQueueExt unit holds, for each entry.
    filters
        The subscriptions that the unit's bitmap is made of; None for no bitmaps.
    batch_topics
        Topics (UTF-8) with a BatchConsumeQueue; their records get no ConsumeQueue entry.
    arrivals
        Whether to count arrivals; see ``arrival``.
    """

    consume_queue: bool = True
    index: bool = True
    index_tags: bool = False
    multi_dispatch: MultiDispatch | None = None
    ext: bool = False
    filters: ConsumerFilters | None = None
    batch_topics: frozenset[bytes] = frozenset()
    arrivals: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether only ConsumeQueue entries and keys are wanted, each message to its own queue."""
        more_entries = self.ext or self.batch_topics or self.multi_dispatch
        return not (self.arrivals or (self.consume_queue and more_entries))
