"""The broker's settings beyond sizes: its version, multi dispatch, ConsumeQueueExt, and what its ``config/`` holds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.dispatch.multi_dispatch import MultiDispatch
from reput.sinks.filter.bloom_filter import BloomFilter
from reput.sinks.filter.consumer_filter import load_consumer_filters
from reput.sinks.formats.consume_queue_ext import END_BLANK_DATA_LENGTH, MIN_EXT_UNIT_SIZE
from reput.sinks.queue.batch_consume_queue import MAPPED_FILE_SIZE_BATCH_CONSUME_QUEUE
from reput.sinks.queue.consume_queue_ext import MAPPED_FILE_SIZE_CONSUME_QUEUE_EXT
from reput.source.errors import OptionError
from reput.source.options import INT_MAX, Option, boolean, byte_count, bytes_allowed, number_allowed, whole_number

_AUTO = "auto"
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")
Version = tuple[int, int, int]
# What tells them apart where nobody says: 5.0.0 and later leave abort.bak, 5.4.0 and later rocksdbstore/.
_SHOWN_BY: tuple[tuple[str, Version], ...] = (("rocksdbstore", (5, 5, 0)), ("abort.bak", (5, 3, 3)))
_OLDEST: Version = (4, 9, 3)
# Since when a broker does what is marked by it.
_FLUSHES_INDEX_AT_STOP: Version = (5, 0, 0)
_LMQ_TOPICS_ONLY: Version = (5, 3, 2)
_SQL_CONTAINS: Version = (5, 1, 3)
_INDEX_TAGS: Version = (5, 4, 0)

_CONFIG = "config"
_TOPICS = "topics.json"
_CONSUMER_FILTER = "consumerFilter.json"
_QUEUE_TYPE, _BATCH_CQ = "queue.type", "BatchCQ"

# A file has at least one unit of its least size, and the mark behind the last one.
_EXT_FILE_MIN = MIN_EXT_UNIT_SIZE + END_BLANK_DATA_LENGTH
# A million makes a bitmap of a megabyte a message, far more than a unit holds.
_CONSUMERS_MAX = 1_000_000
_SWITCH = "true or false"
_BROKERS_DEFAULT = "the broker's own switch and default"


def _version(text: str) -> str:
    if text.strip() != _AUTO and not _VERSION.fullmatch(text.strip()):
        raise ValueError(text)
    return text.strip()


BROKER_OPTIONS = (
    Option(
        "brokerVersion",
        _version,
        "auto, or a version such as 4.9.3",
        _AUTO,
        "auto takes a store with rocksdbstore/, which 5.4.0 and later make, as 5.5.0's, one with abort.bak, which "
        "5.0.0 and later leave, as 5.3.3's, and any other as 4.9.3's: 5.4.0 and later also index tags, 5.3.2 and later "
        "dispatch system topics to no further queue",
    ),
    Option("enableMultiDispatch", boolean, _SWITCH, False, _BROKERS_DEFAULT),
    Option("enableLmq", boolean, _SWITCH, False, _BROKERS_DEFAULT),
    Option("enableConsumeQueueExt", boolean, _SWITCH, False, _BROKERS_DEFAULT),
    Option(
        "mappedFileSizeConsumeQueueExt",
        byte_count(_EXT_FILE_MIN, INT_MAX),
        bytes_allowed(_EXT_FILE_MIN, INT_MAX),
        MAPPED_FILE_SIZE_CONSUME_QUEUE_EXT,
        "the broker's default",
    ),
    Option(
        "enableCalcFilterBitMap",
        boolean,
        _SWITCH,
        False,
        "the broker's own switch and default; the subscriptions are those of the store's config/consumerFilter.json",
    ),
    Option(
        "expectConsumerNumUseFilter",
        whole_number(1, _CONSUMERS_MAX),
        number_allowed(1, _CONSUMERS_MAX),
        32,
        "the broker's default",
    ),
    Option(
        "maxErrorRateOfBloomFilter",
        whole_number(1, 99),
        f"per cent: {number_allowed(1, 99)}",
        20,
        "the broker's default",
    ),
    Option(
        "mapperFileSizeBatchConsumeQueue",
        byte_count(1, INT_MAX),
        bytes_allowed(1, INT_MAX),
        MAPPED_FILE_SIZE_BATCH_CONSUME_QUEUE,
        "the broker's default (5.x): 300,000 entries; which topics have such queues is in the store's "
        "config/topics.json",
    ),
)


def broker_version(text: str, store: Path) -> Version:
    """The version that the option `text` says, or that the store shows."""
    match = _VERSION.fullmatch(text)
    if match:
        return int(match[1]), int(match[2]), int(match[3])
    return next((version for name, version in _SHOWN_BY if (store / name).exists()), _OLDEST)


def logic_needs(values: Mapping[str, Any], store: Path) -> LogicNeeds:
    """Which effects the broker that wrote `store` gives to each record.

    Raises
    ------
    OptionError, StoreError
        A file of the store's ``config/`` that matters cannot be read.
    """
    version = broker_version(values["brokerVersion"], store)
    multi_dispatch = None
    if values["enableMultiDispatch"]:
        multi_dispatch = MultiDispatch(values["enableLmq"], version >= _LMQ_TOPICS_ONLY)
    filters = None
    if values["enableConsumeQueueExt"] and values["enableCalcFilterBitMap"]:
        bloom = BloomFilter(values["maxErrorRateOfBloomFilter"], values["expectConsumerNumUseFilter"])
        path = store / _CONFIG / _CONSUMER_FILTER
        filters = load_consumer_filters(path, bloom, contains=version >= _SQL_CONTAINS)
    return LogicNeeds(
        consume_queue=values["consumeQueueEnable"],
        index=values["messageIndexEnable"],
        index_tags=version >= _INDEX_TAGS,
        multi_dispatch=multi_dispatch,
        ext=values["enableConsumeQueueExt"],
        filters=filters,
        batch_topics=batch_topics(store),
    )


def count_of_empty_index(values: Mapping[str, Any], store: Path) -> int:
    """The count in the header of an index file without keys, after a clean stop of the broker."""
    return int(broker_version(values["brokerVersion"], store) >= _FLUSHES_INDEX_AT_STOP)


def batch_topics(store: Path) -> frozenset[bytes]:
    """The topics with a BatchConsumeQueue: those whose attribute ``queue.type`` is ``BatchCQ`` (5.x).

    Raises
    ------
    OptionError
        ``config/topics.json`` cannot be read: without it, their messages would go to the wrong kind of queue.
    """
    path = store / _CONFIG / _TOPICS
    try:
        table = json.loads(path.read_text(encoding="utf-8"))["topicConfigTable"]
        return frozenset(
            topic.encode()
            for topic, config in table.items()
            if (config.get("attributes") or {}).get(_QUEUE_TYPE, "").lower() == _BATCH_CQ.lower()
        )
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"cannot read the topics' attributes from {path}: {error!r}; restore it, or move it away if all are plain"
        raise OptionError(msg) from error
