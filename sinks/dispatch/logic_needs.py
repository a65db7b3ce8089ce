"""The effects of a record that tasks compute for queues and index: its entry, and more queues for one message.

More queues come from the properties INNER_MULTI_DISPATCH and INNER_MULTI_QUEUE_OFFSET:
``ConsumeQueue#multiDispatchLmqQueue``; later releases leave topics and names out (``source/releases.py``).
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass

from reput.sinks.files.store_path import LIGHT_QUEUE, consume_queue_directory
from reput.sinks.filter.consumer_filter import ConsumerFilters
from reput.source import releases
from reput.source.errors import SinkError
from reput.source.record.message_properties import SCHEDULE_TOPIC, parse_long
from reput.source.releases import Version

_log = logging.getLogger(__name__)
_WARNINGS_MAX = 20  # per process
_warnings = itertools.count()

_SEPARATOR = ","
_PATH_SEPARATOR = "/"
_RETRIES = "%RETRY%"
_SYSTEM_TOPICS = "rmq_sys_"
_TIMERS = "rmq_sys_wheel_timer"
_DEAD_LETTERS = "%DLQ%"


@dataclass(frozen=True)
class MultiDispatch:
    """The broker's settings: `enable_lmq` is ``enableLmq``; without ``enableMultiDispatch`` there is no object.

    `version` is the release, which decides about topics without further queues and names that are passed over. Queues
    in RocksDB (`in_rocksdb`) need no ``enableMultiDispatch``, may have any name, and get no messages of %DLQ%
    (``RocksDBConsumeQueueStore#dispatchLMQ``, ``MixAll#topicAllowsLMQ``).
    """

    enable_lmq: bool = False
    version: Version = releases.FIRST
    in_rocksdb: bool = False

    def queues(
        self, topic: str, queue_id: int, names: str, offsets: str, physical_offset: int
    ) -> list[tuple[bytes, int, int]]:
        """The queues that a message goes to beside its own, as (topic, queue id, queue offset), in the broker's order.

        `names` and `offsets` are the two properties; `physical_offset` is the record's, for log messages. Lists of
        different lengths give no queue. A name that cannot be a directory is left out. From an offset that is not a
        number on, the rest is left out: the broker would retry the same record for ever.
        """
        if not self.takes(topic) or not names.strip() or not offsets.strip():
            return []
        wanted, given = _java_split(names), _java_split(offsets)
        if len(wanted) != len(given):
            _warn(
                "the message at %d names %d more queues and %d offsets: it goes to none of them",
                physical_offset,
                len(wanted),
                len(given),
            )
            return []
        found = []
        for name, text in zip(wanted, given, strict=True):
            if self.passes_over_paths and not self.in_rocksdb and _is_path(name):
                _warn("the message at %d names the queue %r, which the broker passes over", physical_offset, name)
                continue
            offset = parse_long(text)
            if offset is None:
                _warn("the message at %d has %r for an offset: it goes to no further queue", physical_offset, text)
                break
            target = (name.encode(), 0 if self.enable_lmq and name.encode().startswith(LIGHT_QUEUE) else queue_id)
            try:
                if not self.in_rocksdb:
                    consume_queue_directory(*target)
            except SinkError as error:
                _warn("the message at %d: %s", physical_offset, error)
                continue
            found.append((*target, offset))
        return found

    def takes(self, topic: str) -> bool:
        """Whether messages of a topic go to further queues."""
        if topic.startswith(_RETRIES):
            return not releases.RETRIES_STAY_ALONE.holds(self.version)
        if topic in (_TIMERS, SCHEDULE_TOPIC):
            return not releases.TIMERS_STAY_ALONE.holds(self.version)
        if topic.startswith(_SYSTEM_TOPICS):
            return not releases.SYSTEM_TOPICS_STAY_ALONE.holds(self.version)
        return not (self.in_rocksdb and topic.startswith(_DEAD_LETTERS))

    @property
    def passes_over_paths(self) -> bool:
        """Whether a further queue is passed over if its name holds a path separator."""
        return releases.PASSES_OVER_PATHS.holds(self.version)

    def fails_at(self, topic: str, names: str, offsets: str) -> str | None:
        """The offset in the two properties at which the broker's own dispatch of a message ends in an exception."""
        return bad_offset(names, offsets, passes_over_paths=self.passes_over_paths) if self.takes(topic) else None


def bad_offset(names: str, offsets: str, *, passes_over_paths: bool = False) -> str | None:
    """The first offset in the two properties that Java's ``Long#parseLong`` does not accept; None without one.

    Lists of different lengths, and lists of only blanks, are not checked. With `passes_over_paths`, offsets of names
    that hold a path separator are not checked either.
    """
    if not names.strip() or not offsets.strip():
        return None
    wanted, given = _java_split(names), _java_split(offsets)
    if len(wanted) != len(given):
        return None
    texts = (text for name, text in zip(wanted, given, strict=True) if not (passes_over_paths and _is_path(name)))
    return next((text for text in texts if parse_long(text) is None), None)


def _is_path(name: str) -> bool:
    return _PATH_SEPARATOR in name


def _warn(text: str, *values: object) -> None:
    """Log a warning, but only the first few: clients write the properties, and a log may be full of bad ones."""
    if next(_warnings) < _WARNINGS_MAX:
        _log.warning(text, *values)


def _java_split(text: str) -> list[str]:
    """``String#split`` of a text that is not empty: empty fields at the end are dropped."""
    fields = text.split(_SEPARATOR)
    while fields and not fields[-1]:
        fields.pop()
    return fields


@dataclass(frozen=True)
class LogicNeeds:
    """The wanted effects of a record.

    Attributes
    ----------
    index_tags
        Also the key ``topic#T#tags`` of 5.4.0 and later.
    multi_dispatch
        How messages go to further queues; None for ``enableMultiDispatch=false``.
    ext
        The content of a ConsumeQueueExt unit for each entry.
    filters
        The subscriptions for the unit's bitmap; None for no bitmaps.
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
