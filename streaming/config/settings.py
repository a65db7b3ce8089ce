"""All options of the commands, by subject: each is one field, with its parser, limits, default and reason.

The options about how a run goes, rather than what it keeps, are in ``run_options``.

``conf/reput.toml`` is made of these fields, and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, END_BLANK_DATA_LENGTH, MIN_EXT_UNIT_SIZE
from reput.sinks.formats.index_file import ENTRY_SIZE, SLOT_SIZE, index_file_size
from reput.sinks.index.index_sink import MAX_HASH_SLOT_NUM, MAX_INDEX_NUM
from reput.sinks.queue.batch_consume_queue import MAPPED_FILE_SIZE_BATCH_CONSUME_QUEUE
from reput.sinks.queue.consume_queue import MAPPED_FILE_SIZE_CONSUME_QUEUE
from reput.sinks.queue.consume_queue_ext import MAPPED_FILE_SIZE_CONSUME_QUEUE_EXT
from reput.sinks.table.retention import ALL_FOREVER, RowRetention
from reput.source.options import (
    INT_MAX,
    WAIT_MS_MAX,
    LogOptions,
    boolean,
    byte_count,
    bytes_allowed,
    number_allowed,
    one_of,
    option,
    options_of,
    text,
    values_of,
    whole_number,
)
from reput.source.record.message_body import BODY_BYTES_MAX
from reput.source.releases import version_of
from reput.streaming.config.run_options import LogicOptions, RebuildOptions, SparkOptions, SqlOptions, TailOptions

DEFAULT_BROKER: Final = "DEFAULT_BROKER"
# The broker's release is the one that the store shows.
AUTO: Final = "auto"
CONFIG_MANAGER_V1, CONFIG_MANAGER_V2 = "v1", "v2"

_SWITCH = "true or false"
_BYTES = bytes_allowed(1)
_WAIT_MS = f"milliseconds: {number_allowed(0, WAIT_MS_MAX)}"
_BROKERS_SWITCH = "the broker's own switch and default"
_BROKERS_DEFAULT = "the broker's default"

# A broker keeps the sizes of a queue file (whole entries) and of an index file (slots and keys) in an int.
_QUEUE_FILE_MAX = INT_MAX - INT_MAX % CQ_STORE_UNIT_SIZE
_SLOTS_MIN, _KEYS_MIN = 1, 2
_SLOTS_MAX = (INT_MAX - index_file_size(0, _KEYS_MIN)) // SLOT_SIZE
_KEYS_MAX = (INT_MAX - index_file_size(_SLOTS_MIN, 0)) // ENTRY_SIZE
# A file holds at least one unit of the least size, and the mark after the last unit.
_EXT_FILE_MIN = MIN_EXT_UNIT_SIZE + END_BLANK_DATA_LENGTH
# With a million, each message has a bitmap of a megabyte, far more than a unit holds.
_CONSUMERS_MAX = 1_000_000


def _version(text: str) -> str:
    if text.strip() != AUTO and version_of(text.strip()) is None:
        raise ValueError(text)
    return text.strip()


@dataclass(frozen=True)
class BrokerOptions:
    """The broker's name, its release, and its switches for the entries and keys of a record."""

    name: str = option(
        "broker",
        text,
        "a name",
        DEFAULT_BROKER,
        "tells brokers apart in one table; brokerName of broker.conf, and RocketMQ's own word without one",
    )
    version: str = option(
        "brokerVersion",
        _version,
        "auto, or a version such as 4.9.3",
        AUTO,
        "auto takes a store with rocksdbstore/, which 5.4.0 and later make, as 5.5.0's, one with abort.bak, which "
        "5.0.0 and later leave, as 5.3.3's, and any other as 4.9.3's: 5.4.0 and later also index tags, 5.2.0 and later "
        "dispatch system topics to no further queue",
    )
    config_manager_version: str = option(
        "configManagerVersion",
        one_of(AUTO, CONFIG_MANAGER_V1, CONFIG_MANAGER_V2),
        "auto, v1 or v2",
        AUTO,
        "auto reads what the store has: config/topics.json or RocksDB in config/topics/ (v1), RocksDB in config/rdb/ "
        "(v2, a setting of brokers of 5.x); they say which topics have a BatchConsumeQueue",
    )
    enable_multi_dispatch: bool = option("enableMultiDispatch", boolean, _SWITCH, False, _BROKERS_SWITCH)
    enable_lmq: bool = option("enableLmq", boolean, _SWITCH, False, _BROKERS_SWITCH)
    rocksdb_cq_double_write_enable: bool = option(
        "rocksdbCQDoubleWriteEnable",
        boolean,
        _SWITCH,
        False,
        f"{_BROKERS_SWITCH}; from 5.4.0 on, queues are in files and in RocksDB then",
    )
    combine_cq_use_rocksdb_for_lmq: bool = option(
        "combineCQUseRocksdbForLmq",
        boolean,
        _SWITCH,
        False,
        f"{_BROKERS_SWITCH}; with rocksdbCQDoubleWriteEnable, light queues are in RocksDB alone",
    )
    enable_calc_filter_bit_map: bool = option(
        "enableCalcFilterBitMap",
        boolean,
        _SWITCH,
        False,
        f"{_BROKERS_SWITCH}; the subscriptions are those of the store's config/consumerFilter.json",
    )
    expect_consumer_num_use_filter: int = option(
        "expectConsumerNumUseFilter",
        whole_number(1, _CONSUMERS_MAX),
        number_allowed(1, _CONSUMERS_MAX),
        32,
        _BROKERS_DEFAULT,
    )
    max_error_rate_of_bloom_filter: int = option(
        "maxErrorRateOfBloomFilter",
        whole_number(1, 99),
        f"per cent: {number_allowed(1, 99)}",
        20,
        _BROKERS_DEFAULT,
    )


LATER_LIFE, REPLAY = "later", "replay"


@dataclass(frozen=True)
class QueueOptions:
    """ConsumeQueue, ConsumeQueueExt and BatchConsumeQueue."""

    consume_queue_enable: bool = option(
        "consumeQueueEnable", boolean, _SWITCH, True, "queues are what brokers and consumers miss first"
    )
    mapped_file_size_consume_queue: int = option(
        "mappedFileSizeConsumeQueue",
        byte_count(1, _QUEUE_FILE_MAX),
        bytes_allowed(1, _QUEUE_FILE_MAX),
        MAPPED_FILE_SIZE_CONSUME_QUEUE,
        "the broker's default: 300,000 entries; rounded up to whole entries as the broker does",
    )
    max_first_queue_offset: int | None = option(
        "maxFirstQueueOffset",
        whole_number(0),
        f"a queue offset: {number_allowed(0)}",
        None,
        "unset: a queue may begin anywhere, as in the broker, which fills one file's front; a bound finds lies",
    )
    queue_restart: str = option(
        "queueRestart",
        one_of(LATER_LIFE, REPLAY),
        f"{LATER_LIFE} or {REPLAY}",
        LATER_LIFE,
        "a queue whose topic was deleted and made again holds the later life, as in the broker that did so; replay: "
        "what a broker makes that has lost its queues, which leaves messages of the later life without entries",
    )
    enable_consume_queue_ext: bool = option("enableConsumeQueueExt", boolean, _SWITCH, False, _BROKERS_SWITCH)
    mapped_file_size_consume_queue_ext: int = option(
        "mappedFileSizeConsumeQueueExt",
        byte_count(_EXT_FILE_MIN, INT_MAX),
        bytes_allowed(_EXT_FILE_MIN, INT_MAX),
        MAPPED_FILE_SIZE_CONSUME_QUEUE_EXT,
        _BROKERS_DEFAULT,
    )
    mapper_file_size_batch_consume_queue: int = option(
        "mapperFileSizeBatchConsumeQueue",
        byte_count(1, INT_MAX),
        bytes_allowed(1, INT_MAX),
        MAPPED_FILE_SIZE_BATCH_CONSUME_QUEUE,
        "the broker's default (5.x): 300,000 entries; which topics have such queues is in the store's "
        "config/ (see configManagerVersion)",
    )

    @property
    def keeps_later_life(self) -> bool:
        """The same as in ``ConsumeQueueSink``."""
        return self.queue_restart == LATER_LIFE

    @property
    def ext_file_size(self) -> int | None:
        """The size of a ConsumeQueueExt file in bytes; None if the broker keeps none."""
        return self.mapped_file_size_consume_queue_ext if self.enable_consume_queue_ext else None


@dataclass(frozen=True)
class IndexOptions:
    """IndexFile."""

    message_index_enable: bool = option("messageIndexEnable", boolean, _SWITCH, True, _BROKERS_SWITCH)
    max_hash_slot_num: int = option(
        "maxHashSlotNum",
        whole_number(_SLOTS_MIN, _SLOTS_MAX),
        number_allowed(_SLOTS_MIN, _SLOTS_MAX),
        MAX_HASH_SLOT_NUM,
        "the broker's default; with maxIndexNum at most what makes a file of 2 GiB",
    )
    max_index_num: int = option(
        "maxIndexNum",
        whole_number(_KEYS_MIN, _KEYS_MAX),
        number_allowed(_KEYS_MIN, _KEYS_MAX),
        MAX_INDEX_NUM,
        _BROKERS_DEFAULT,
    )


@dataclass(frozen=True)
class TableOptions:
    """The `table` query of `reput tail`; the size of a range is also that of `reput rebuild` with a table."""

    max_bytes_per_trigger: int = option(
        "tableMaxBytesPerTrigger",
        byte_count(1),
        _BYTES,
        2 * 1024 * 1024 * 1024,
        "one commit of the table has no more of the log than this",
    )
    max_bytes_per_partition: int = option(
        "tableMaxBytesPerPartition",
        byte_count(1),
        _BYTES,
        256 * 1024 * 1024,
        "at most, one Parquet file each: few files; every core gets a range of a full batch, as with the logic query",
    )
    trigger_ms: int = option(
        "tableTriggerMs",
        whole_number(0, WAIT_MS_MAX),
        _WAIT_MS,
        10_000,
        "each micro-batch leaves a file in the table, and each file has to be opened, or merged with others",
    )
    upkeep: bool = option(
        "tableUpkeep",
        boolean,
        _SWITCH,
        True,
        "small files are merged and old ones removed between commits, for about half of tableTriggerMs; false leaves "
        "that to OPTIMIZE and VACUUM of other tools",
    )
    versions_kept: int = option(
        "tableVersionsKept",
        whole_number(20, 1_000_000),
        "a whole number from 20 to 1000000",
        1000,
        "versions of the table that can be read or restored; each has its commit in the log, and readers list all",
    )
    include_body: bool = option(
        "tableIncludeBody",
        boolean,
        _SWITCH,
        False,
        "the table has no bodies, which make it as large as the log; true adds the columns body and body_bytes",
    )
    body_bytes_max: int = option(
        "tableBodyBytesMax",
        byte_count(1, BODY_BYTES_MAX),
        bytes_allowed(1, BODY_BYTES_MAX),
        1024 * 1024,
        "of tableIncludeBody: a larger body, decompressed, is null in the table; bodies are in memory by row group",
    )
    consumption: bool = option(
        "tableConsumption",
        boolean,
        _SWITCH,
        True,
        "a tail also writes down when each consumer group's offsets moved, into the table TABLE-consumption, because a "
        "broker keeps only the present ones; false leaves that out",
    )
    retention: RowRetention = option(
        "tableRetention",
        RowRetention.parse,
        "forever, or TOPIC=DAYSd and TOPIC=forever, separated by commas, where * in TOPIC stands for any text",
        ALL_FOREVER,
        "rows outlive the log; the first TOPIC that fits a message's topic counts, and the table's upkeep removes its "
        "row when that number of whole days (UTC) has passed since the day of its store time",
    )

    @property
    def body_limit(self) -> int | None:
        """The size of the largest body that the table gets, in bytes; None for a table without bodies."""
        return self.body_bytes_max if self.include_body else None


@dataclass(frozen=True)
class Settings:
    """The options of a command, in groups."""

    broker: BrokerOptions = field(default_factory=BrokerOptions)
    source: LogOptions = field(default_factory=LogOptions)
    logic: LogicOptions = field(default_factory=LogicOptions)
    queue: QueueOptions = field(default_factory=QueueOptions)
    index: IndexOptions = field(default_factory=IndexOptions)
    table: TableOptions = field(default_factory=TableOptions)
    tail: TailOptions = field(default_factory=TailOptions)
    rebuild: RebuildOptions = field(default_factory=RebuildOptions)
    spark: SparkOptions = field(default_factory=SparkOptions)
    sql: SqlOptions = field(default_factory=SqlOptions)

    @property
    def values(self) -> dict[str, object]:
        """Every option's value by name, to be recorded or compared."""
        groups: list[Any] = [getattr(self, name) for name in GROUPS]
        return {name: value for group in groups for name, value in values_of(group).items()}


GROUPS: Final[dict[str, type[Any]]] = {each.name: each.default_factory for each in fields(Settings)}  # type: ignore[misc]
PIPELINE_OPTIONS: Final = options_of(*GROUPS.values())
