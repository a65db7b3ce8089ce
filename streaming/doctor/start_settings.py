"""The settings of a broker that decide what it does with its store at a start, and the releases that are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.queue.consume_queue import rounded_file_size
from reput.source.errors import OptionError
from reput.source.log.store_layout import has_queue_files, rocksdb_queues
from reput.streaming.config.broker import (
    Version,
    broker_version,
    logic_needs,
    queues_in_both,
    unseen_queues,
    version_text,
)
from reput.streaming.config.broker_conf import BrokerConf
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.recovery_start import RecoverySettings, recovery_settings

V4: Version = (4, 9, 3)
V5: Version = (5, 5, 0)
RELEASES: tuple[Version, ...] = (V4, V5)

_MASTER_ID = 0
_SLAVE = "SLAVE"
_ROCKSDB_QUEUES = "defaultrocksdb"
# With these a broker of 5.x starts in other ways, which are not followed.
_OTHER_STARTS = (
    "duplicationEnable",
    "enableControllerMode",
    "enableAcceleratedRecovery",
    "checkCommitLogOffsetOnRecover",
)


@dataclass(frozen=True)
class StartSettings(RecoverySettings):
    """What one release would start with.

    Attributes
    ----------
    version
        The release.
    needs
        What is made of a dispatched record.
    segment_size, queue_file_size, batch_file_size, ext_file_size
        The sizes of files in bytes; None for no ConsumeQueueExt.
    max_hash_slot_num, max_index_num
        The hash slots of an index file; how many keys it holds, and one more.
    replays_from_queues
        The replay begins where the queues end: 4.9.3 always, 5.x with ``recheckReputOffsetFromCq``.
    is_master
        ``brokerId`` is 0: the replay passes over what it cannot parse.
    notifies
        The replay tells waiting consumers of each record, and of its further queues (``longPollingEnable``).
    reads_rocksdb
        The broker keeps queues in files and in RocksDB, reads RocksDB, and does not start where the two differ
        (``CombineConsumeQueueStore#start``).
    not_seen
        Which queues are in RocksDB, where nothing is looked at, in a sentence; empty where all are files.
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

    @property
    def release(self) -> str:
        """The release as text."""
        return version_text(self.version)

    @property
    def is_v5(self) -> bool:
        """Whether it is 5.5.0."""
        return self.rules.is_v5


def start_settings(config: PipelineConfig, broker_conf: Path | None, version: Version) -> StartSettings:
    """The settings with which a broker of one of `RELEASES` would start on the store of `config`.

    Raises
    ------
    OptionError
        The broker would start in a way that is not known here.
    """
    broker = (
        BrokerConf()
        if broker_conf is None
        else BrokerConf.read(broker_conf, broker_version(version_text(version), config.store))
    )
    is_v5 = version >= (5, 0, 0)
    needs = logic_needs(_of_version(config, version, broker), config.store)
    _check_known(config, broker, needs, is_v5=is_v5)
    recovery = recovery_settings(config, broker, version)
    return StartSettings(
        version=version,
        rules=recovery.rules,
        checks_first_record=recovery.checks_first_record,
        needs=replace(needs, ext=False, filters=None),
        segment_size=_segment_size(config),
        queue_file_size=rounded_file_size(config.queue.mapped_file_size_consume_queue),
        batch_file_size=config.queue.mapper_file_size_batch_consume_queue,
        ext_file_size=config.queue.ext_file_size,
        max_hash_slot_num=config.index.max_hash_slot_num,
        max_index_num=config.index.max_index_num,
        index_safe=recovery.index_safe,
        recovered_segments_max=recovery.recovered_segments_max,
        replays_from_queues=not is_v5 or broker.switch("recheckReputOffsetFromCq"),
        is_master=broker.number_or("brokerId", _MASTER_ID) == _MASTER_ID,
        notifies=broker.switch("longPollingEnable", default=True)
        and (is_v5 or broker.text("brokerRole").upper() != _SLAVE),
        reads_rocksdb=queues_in_both(config, version)
        and broker.text("combineCQPreferCQType").lower() == _ROCKSDB_QUEUES
        and broker.text("combineAssignOffsetCQType").lower() != _ROCKSDB_QUEUES,
        not_seen=unseen_queues(_of_version(config, version, broker), config.store) if is_v5 else "",
    )


def _of_version(config: PipelineConfig, version: Version, broker: BrokerConf) -> PipelineConfig:
    """The configuration as this release has it: one before 5.4.0 does not know ``indexFileWriteEnable``."""
    index = config.index
    if broker.writes_index_files and "indexFileWriteEnable" in broker and not index.message_index_enable:
        index = replace(index, message_index_enable=broker.switch("messageIndexEnable", default=True))
    own = replace(config.broker, version=version_text(version))
    return replace(config, broker=own, index=index, queue=replace(config.queue, consume_queue_enable=True))


def _check_known(config: PipelineConfig, broker: BrokerConf, needs: LogicNeeds, *, is_v5: bool) -> None:
    """Raise OptionError for what a broker does in another way than is known here."""
    what = None
    if config.source.enable_dledger_commit_log:
        what = "a DLedger store (enableDLegerCommitLog)"
    elif broker.without_queue_files() or _has_rocksdb_alone(config, is_v5=is_v5):
        what = "queues in RocksDB alone"
    elif not is_v5 and needs.batch_topics:
        what = "topics with a BatchConsumeQueue"
    elif is_v5 and (name := next((name for name in _OTHER_STARTS if broker.switch(name)), None)):
        what = f"{name}=true"
    if what is not None:
        raise not_known(V5 if is_v5 else V4, what, config.store)


def _has_rocksdb_alone(config: PipelineConfig, *, is_v5: bool) -> bool:
    """Whether RocksDB has the queues and no file has, though no setting asks for both."""
    if rocksdb_queues(config.store) is None or has_queue_files(config.store):
        return False
    return not queues_in_both(config, V5 if is_v5 else V4)


def not_known(version: Version, what: str, store: Path) -> OptionError:
    """The error for what a broker does in another way than is known here."""
    return OptionError(
        f"reput doctor does not know what {version_text(version)} does at its start with {what}",
        advice="reput verify compares queues and index with the log",
        file=store,
    )


def _segment_size(config: PipelineConfig) -> int:
    """The setting where it is stated, else the size that most segments have: only one of another size is damaged."""
    if config.source.mapped_file_size is not None:
        return config.source.mapped_file_size
    sizes = [
        path.stat().st_size for each in config.commit_log if each.is_dir() for path in each.iterdir() if path.is_file()
    ]
    return max(set(sizes), key=sizes.count, default=1024 * 1024 * 1024)
