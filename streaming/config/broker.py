"""The broker's settings beyond sizes: its version, multi dispatch, ConsumeQueueExt, and what its ``config/`` holds."""

from __future__ import annotations

from pathlib import Path

from reput.sinks.dispatch.logic_needs import LogicNeeds, MultiDispatch
from reput.sinks.filter.consumer_filter import BloomFilter, load_consumer_filters
from reput.source.log.store_layout import rocksdb_queues
from reput.streaming.config.settings import VERSION, Settings
from reput.streaming.config.topics import CONFIG, read_topics

Version = tuple[int, int, int]
#: The settings by which a broker keeps no index files.
NO_INDEX_FILES = "messageIndexEnable=false, or indexFileWriteEnable=false from 5.4.0 on"
# How a store shows its version if that is not stated: 5.0.0 and later leave abort.bak, 5.4.0 and later rocksdbstore/.
_SHOWN_BY: tuple[tuple[str, Version], ...] = (("rocksdbstore", (5, 5, 0)), ("abort.bak", (5, 3, 3)))
_OLDEST: Version = (4, 9, 3)
#: The first version with ``CombineConsumeQueueStore``, which keeps queues in files and in RocksDB.
QUEUES_IN_BOTH: Version = (5, 4, 0)
# The first versions of brokers that do these things.
_FLUSHES_INDEX_AT_STOP: Version = (5, 0, 0)
_LMQ_TOPICS_ONLY: Version = (5, 3, 2)
_SQL_CONTAINS: Version = (5, 1, 3)
_INDEX_TAGS: Version = (5, 4, 0)
_KEEPS_QUEUED_OFFSET: Version = (5, 5, 0)
_CHANGES = (_FLUSHES_INDEX_AT_STOP, _SQL_CONTAINS, _LMQ_TOPICS_ONLY, _INDEX_TAGS)

_CONSUMER_FILTER = "consumerFilter.json"


def broker_version(text: str, store: Path) -> Version:
    """The version that the option `text` states, or that the store shows."""
    match = VERSION.fullmatch(text)
    if match:
        return int(match[1]), int(match[2]), int(match[3])
    return next((version for name, version in _SHOWN_BY if (store / name).exists()), _OLDEST)


def version_text(version: Version) -> str:
    """A version as the option's text."""
    return ".".join(map(str, version))


def release_of(version: Version) -> int:
    """A number that is the same for all versions that treat every record alike, and higher for later ones."""
    return sum(version >= change for change in _CHANGES)


def logic_needs(settings: Settings, store: Path) -> LogicNeeds:
    """What the broker that wrote `store` makes of each record.

    Raises
    ------
    OptionError, StoreError
        A file of the store's ``config/`` that matters here cannot be read.
    """
    broker = settings.broker
    version = broker_version(broker.version, store)
    multi_dispatch = None
    if broker.enable_multi_dispatch and not light_queues_in_rocksdb(settings, version):
        multi_dispatch = MultiDispatch(broker.enable_lmq, version >= _LMQ_TOPICS_ONLY)
    filters = None
    if settings.queue.enable_consume_queue_ext and broker.enable_calc_filter_bit_map:
        bloom = BloomFilter(broker.max_error_rate_of_bloom_filter, broker.expect_consumer_num_use_filter)
        path = store / CONFIG / _CONSUMER_FILTER
        filters = load_consumer_filters(path, bloom, contains=version >= _SQL_CONTAINS)
    return LogicNeeds(
        consume_queue=settings.queue.consume_queue_enable,
        index=settings.index.message_index_enable,
        index_tags=version >= _INDEX_TAGS,
        multi_dispatch=multi_dispatch,
        ext=settings.queue.enable_consume_queue_ext,
        filters=filters,
        batch_topics=batch_topics(settings, store),
    )


def queues_in_both(settings: Settings, version: Version) -> bool:
    """Whether a broker keeps its queues in RocksDB and in files (``CombineConsumeQueueStore``)."""
    return version >= QUEUES_IN_BOTH and settings.broker.rocksdb_cq_double_write_enable


def light_queues_in_rocksdb(settings: Settings, version: Version) -> bool:
    """Whether a broker writes no file for further queues of a message (``MultiDispatchUtils``): RocksDB has them."""
    return queues_in_both(settings, version) and settings.broker.combine_cq_use_rocksdb_for_lmq


def unseen_queues(settings: Settings, store: Path) -> str:
    """Which queues of a store reput cannot see, and why, in a sentence; nothing where all are files."""
    version = broker_version(settings.broker.version, store)
    if light_queues_in_rocksdb(settings, version):
        return (
            "light queues (%LMQ%...) are in RocksDB alone (combineCQUseRocksdbForLmq), which reput does not see; of "
            "the other queues it sees the files (rocksdbCQDoubleWriteEnable)"
        )
    if queues_in_both(settings, version):
        return "the queues are in RocksDB, too (rocksdbCQDoubleWriteEnable): reput sees their files alone"
    if (database := rocksdb_queues(store)) is not None:
        return (
            f"{database} has a RocksDB database, too, which reput does not see; broker.conf (--broker-conf) says which "
            "queues are there"
        )
    return ""


def count_of_empty_index(settings: Settings, store: Path) -> int:
    """The count in an index file's header without keys, after a clean stop of the broker."""
    return int(broker_version(settings.broker.version, store) >= _FLUSHES_INDEX_AT_STOP)


def keeps_queued_offset(settings: Settings, store: Path) -> bool:
    """Whether the store's checkpoint says how far the queues are on disk (``logicsPhysicalOffset``)."""
    return broker_version(settings.broker.version, store) >= _KEEPS_QUEUED_OFFSET


def batch_topics(settings: Settings, store: Path) -> frozenset[bytes]:
    """The topics (UTF-8) with a BatchConsumeQueue, if queues are wanted; raises what ``read_topics`` raises."""
    return read_topics(settings, store).batch if settings.queue.consume_queue_enable else frozenset()
