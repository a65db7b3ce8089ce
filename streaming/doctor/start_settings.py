"""The settings with which a broker of one release would start on a store, and which of them can be tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.files.store_path import CONSUME_QUEUE
from reput.sinks.queue.consume_queue import rounded_file_size
from reput.source import releases
from reput.source.errors import OptionError
from reput.source.log.store_layout import has_queue_files, rocksdb_queues
from reput.source.releases import V4, V5, Rule, Version, version_text
from reput.streaming.config.broker import (
    logic_needs,
    queues_in_both,
    rocksdb_needs,
    unseen_queues,
)
from reput.streaming.config.broker_conf import FILE_STORE, ROCKSDB_STORE, BrokerConf
from reput.streaming.config.consumer_offsets import ConsumerOffsetsWatch
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.recovery_start import RecoverySettings, recovery_settings

#: Settings of ``broker.conf`` that can be tried, because their effect on a start is known.
KNOWN_CHANGES = (
    *("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mapperFileSizeBatchConsumeQueue"),
    *("maxHashSlotNum", "maxIndexNum", "messageIndexEnable", "messageIndexSafe"),
    *("enableMultiDispatch", "enableLmq", "longPollingEnable", "storeType", "enableDLegerCommitLog"),
    *("checkCRCOnRecover", "forceVerifyPropCRC", "commitLogRecoverMaxNum", "recheckReputOffsetFromCq"),
    *("timerWheelEnable", "timerRocksDBEnable", "transRocksDBEnable", "indexRocksDBEnable"),
)
#: The releases to ask about if none is named.
RELEASES: tuple[Version, ...] = (V4, V5)

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
# The consumer group of the broker that checks half messages (``TransactionalMessageUtil#buildConsumerGroup``).
_CHECKS = "CID_RMQ_SYS_TRANS"
_MASTER_ID = 0
_SLAVE = "SLAVE"
_VERIFY = "reput verify compares queues and index with the log"
_EMPTY_ROCKSDB = (
    "they are made in RocksDB (storeType=defaultRocksDB), and those in files are not read: 'reput queues --to rocksdb' "
    "moves them first"
)
_SWITCHED = (
    "the queues are in files: 'reput queues --to rocksdb' moves them first; a broker that is only switched makes "
    "queues of its last ten segments, without the first message of the log"
)
# With these settings a broker of 5.x starts in ways that are not modelled.
_OTHER_STARTS = (
    "duplicationEnable",
    "enableControllerMode",
    "enableAcceleratedRecovery",
    "checkCommitLogOffsetOnRecover",
)


@dataclass(frozen=True)
class WaitingSettings:
    """The settings about timer messages and half messages.

    Attributes
    ----------
    sends_timers
        Whether the broker sends timer messages.
    timers_in_rocksdb, transactions_in_rocksdb
        Whether it keeps new ones in RocksDB.
    takes_snapshots
        Of the wheel: ``timerWheelSnapshotFlush``.
    precision_ms, timer_log_size
        ``timerPrecisionMs``, and ``mappedFileSizeTimerLog`` in bytes.
    checked_to
        The queue offset from which half messages are checked.
    recalls_by_topic
        Whether a recall of a timer message also names its topic.
    """

    sends_timers: bool = True
    timers_in_rocksdb: bool = False
    transactions_in_rocksdb: bool = False
    takes_snapshots: bool = False
    precision_ms: int = 1000
    timer_log_size: int = 100 * 1024 * 1024
    checked_to: int = 0
    recalls_by_topic: bool = False

    @classmethod
    def of(cls, config: PipelineConfig, broker: BrokerConf, version: Version) -> WaitingSettings:
        """Return those of a ``broker.conf`` and the store's ``config/`` under a release."""
        seen = ConsumerOffsetsWatch(config, config.store).look(takes_backup=True)
        keeps_more = releases.KEEPS_MORE_IN_ROCKSDB.holds(version)
        sends = releases.KEEPS_TIMERS.holds(version) and broker.switch("timerWheelEnable", default=True)
        return cls(
            sends_timers=sends,
            timers_in_rocksdb=sends and keeps_more and broker.switch("timerRocksDBEnable"),
            transactions_in_rocksdb=keeps_more and broker.switch("transRocksDBEnable"),
            takes_snapshots=keeps_more and broker.switch("timerWheelSnapshotFlush"),
            precision_ms=broker.number_or("timerPrecisionMs", cls.precision_ms),
            timer_log_size=broker.number_or("mappedFileSizeTimerLog", cls.timer_log_size),
            recalls_by_topic=releases.RECALLS_BY_TOPIC.holds(version)
            or (keeps_more and broker.switch("appendTopicForTimerDeleteKey")),
            checked_to=0 if seen is None else seen.offsets.get((_CHECKS, HALF_TOPIC), {}).get(0, 0),
        )


@dataclass(frozen=True)
class StartSettings(RecoverySettings):
    """The settings that one release would start with.

    Attributes
    ----------
    version
        The release.
    needs
        Which entries and keys it makes of a dispatched record.
    segment_size, queue_file_size, batch_file_size, ext_file_size
        The sizes of files in bytes; None for no ConsumeQueueExt.
    max_hash_slot_num, max_index_num
        The hash slots of an index file; the number of keys it holds, plus one.
    replays_from_queues
        The replay begins where the queues end: 4.9.x always, 5.x with ``recheckReputOffsetFromCq``.
    is_master
        ``brokerId`` is 0: the replay passes over what it cannot parse.
    notifies
        The replay tells waiting consumers of each record, and of its further queues (``longPollingEnable``).
    reads_rocksdb
        The broker keeps queues in files and in RocksDB, reads RocksDB, and does not start where the two differ
        (``CombineConsumeQueueStore#start``).
    not_seen
        A sentence about queues in RocksDB that reput does not read; empty if all are files.
    database
        The RocksDB database, if the broker keeps its queues only there and it exists.
    waiting
        The settings about timer messages and half messages.
    unknown_batch_topics
        Topics (UTF-8) with a BatchConsumeQueue, if the release does not know that kind.
    misses_keys
        Whether records with keys that are not in the index count as missing, even if the index is switched off by now.
    """

    version: Version
    needs: LogicNeeds
    segment_size: int
    queue_file_size: int
    batch_file_size: int
    ext_file_size: int | None
    max_hash_slot_num: int
    max_index_num: int
    replays_from_queues: bool
    is_master: bool
    notifies: bool
    reads_rocksdb: bool = False
    not_seen: str = ""
    misses_keys: bool = True
    unknown_batch_topics: frozenset[bytes] = frozenset()
    database: Path | None = None
    waiting: WaitingSettings = WaitingSettings()

    @property
    def release(self) -> str:
        """The release as text."""
        return version_text(self.version)

    def does(self, rule: Rule) -> bool:
        """Whether the release follows a rule."""
        return rule.holds(self.version)


def start_settings(config: PipelineConfig, broker_conf: Path | None, version: Version) -> StartSettings:
    """Return the settings with which a broker of a release would start on the store of `config`.

    Raises
    ------
    OptionError
        It is not known how the broker would start.
    """
    broker = BrokerConf.read(broker_conf, version, config.changes)
    needs = logic_needs(_of_version(config, version, broker), config.store)
    unknown_batch_topics = frozenset[bytes]()
    if not releases.KEEPS_BATCH_QUEUES.holds(version):
        unknown_batch_topics = needs.batch_topics
        # Such a release treats these topics like others, and does not look for their queues.
        needs = replace(needs, batch_topics=frozenset())
    _check_known(config, broker, needs, version)
    in_rocksdb = _keeps_rocksdb_alone(config, broker, needs, version)
    if in_rocksdb:
        of_rocksdb = rocksdb_needs(_of_version(config, version, broker), config.store)
        needs = replace(of_rocksdb, index=needs.index, index_tags=needs.index_tags)
    recovery = recovery_settings(config, broker, version, in_rocksdb=in_rocksdb)
    return StartSettings(
        version=version,
        rules=recovery.rules,
        checks_first_record=recovery.checks_first_record,
        begins_at_queues_end=recovery.begins_at_queues_end,
        needs=replace(needs, ext=False, filters=None),
        segment_size=_segment_size(config),
        queue_file_size=rounded_file_size(config.queue.mapped_file_size_consume_queue),
        batch_file_size=config.queue.mapper_file_size_batch_consume_queue,
        ext_file_size=config.queue.ext_file_size,
        max_hash_slot_num=config.index.max_hash_slot_num,
        max_index_num=config.index.max_index_num,
        index_safe=recovery.index_safe,
        recovered_segments_max=recovery.recovered_segments_max,
        in_rocksdb_to=recovery.in_rocksdb_to,
        replays_from_queues=not releases.REPLAYS_FROM_THE_LOGS_END.holds(version)
        or broker.switch("recheckReputOffsetFromCq"),
        is_master=broker.number_or("brokerId", _MASTER_ID) == _MASTER_ID,
        # RocksDB's own code notifies consumers, and skips records at which it fails.
        notifies=not in_rocksdb
        and broker.switch("longPollingEnable", default=True)
        and (releases.SLAVES_NOTIFY.holds(version) or broker.text("brokerRole").upper() != _SLAVE),
        in_rocksdb=in_rocksdb,
        waiting=WaitingSettings.of(config, broker, version),
        database=rocksdb_queues(config.store) if in_rocksdb else None,
        unknown_batch_topics=unknown_batch_topics,
        misses_keys=needs.index or "messageIndexEnable" in config.changes,
        reads_rocksdb=queues_in_both(config, version)
        and broker.text("combineCQPreferCQType").lower() == ROCKSDB_STORE
        and broker.text("combineAssignOffsetCQType").lower() != ROCKSDB_STORE,
        not_seen=_EMPTY_ROCKSDB * (rocksdb_queues(config.store) is None)
        if in_rocksdb
        else unseen_queues(_of_version(config, version, broker), config.store)
        if releases.KEEPS_QUEUES_IN_ROCKSDB.holds(version)
        else "",
    )


def _of_version(config: PipelineConfig, version: Version, broker: BrokerConf) -> PipelineConfig:
    """Return the configuration as this release reads it: before 5.4.0 there is no ``indexFileWriteEnable``."""
    index = config.index
    if broker.writes_index_files and "indexFileWriteEnable" in broker and not index.message_index_enable:
        index = replace(index, message_index_enable=broker.switch("messageIndexEnable", default=True))
    own = replace(config.broker, version=version_text(version))
    return replace(config, broker=own, index=index, queue=replace(config.queue, consume_queue_enable=True))


def _check_known(config: PipelineConfig, broker: BrokerConf, needs: LogicNeeds, version: Version) -> None:
    """Raise OptionError if it is not known how the broker starts."""
    what = None
    if config.source.enable_dledger_commit_log:
        what = "a DLedger store (enableDLegerCommitLog)"
    elif _has_unknown_rocksdb(config, broker, needs, version):
        what = "queues in RocksDB alone"
    elif version > V4 and (name := next((name for name in _OTHER_STARTS if broker.switch(name)), None)):
        what = f"{name}=true"
    if what is not None:
        is_switched = bool(broker.without_queue_files()) and has_queue_files(config.store)
        advice = _SWITCHED if is_switched and rocksdb_queues(config.store) is None else _VERIFY
        raise not_known(version, what, config.store, advice)


def _keeps_rocksdb_alone(config: PipelineConfig, broker: BrokerConf, needs: LogicNeeds, version: Version) -> bool:
    """Whether the broker keeps queues only in RocksDB, and it is known how it starts with them."""
    folder, database = broker.rocksdb_folder, rocksdb_queues(config.store)
    if not releases.KEEPS_ROCKSDB_APART.holds(version):
        folder = CONSUME_QUEUE  # a release that is only tried ignores the setting
    return (
        releases.KEEPS_QUEUES_IN_ROCKSDB.holds(version)
        and broker.text("storeType").lower() == ROCKSDB_STORE
        and not queues_in_both(config, version)
        and not broker.switch("recheckReputOffsetFromCq")
        and not needs.batch_topics
        and (database is None or database.name == folder)
    )


def _has_unknown_rocksdb(config: PipelineConfig, broker: BrokerConf, needs: LogicNeeds, version: Version) -> bool:
    """Whether the broker keeps queues only in RocksDB, or may, and it is not known how it starts with them."""
    if not releases.KEEPS_QUEUES_IN_ROCKSDB.holds(version):
        return False
    if broker.without_queue_files():
        return not _keeps_rocksdb_alone(config, broker, needs, version)
    return broker.text("storeType").lower() != FILE_STORE and _has_rocksdb_alone(config, version)


def _has_rocksdb_alone(config: PipelineConfig, version: Version) -> bool:
    """Whether only RocksDB has the queues, although no setting asks for files and RocksDB."""
    if rocksdb_queues(config.store) is None or has_queue_files(config.store):
        return False
    return not queues_in_both(config, version)


def not_known(version: Version, what: str, store: Path, advice: str = _VERIFY) -> OptionError:
    """Return the error for a start that is not modelled."""
    return OptionError(
        f"reput doctor does not know what {version_text(version)} does at its start with {what}",
        advice=advice,
        file=store,
    )


def _segment_size(config: PipelineConfig) -> int:
    """Return the stated setting, or the size of most segments: then only a segment of another size is damaged."""
    if config.source.mapped_file_size is not None:
        return config.source.mapped_file_size
    sizes = [
        path.stat().st_size for each in config.commit_log if each.is_dir() for path in each.iterdir() if path.is_file()
    ]
    return max(set(sizes), key=sizes.count, default=1024 * 1024 * 1024)
