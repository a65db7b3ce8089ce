"""The place where a broker's own recovery of its log begins, by the rules of its release (``source/releases.py``).

``CommitLog#recoverNormally``, ``#recoverAbnormally`` and ``#isMappedFileMatchedRecover``; of 5.5.0 also
``ConsumeQueueStore#isMappedFileMatchedRecover`` and that of ``IndexService``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.message_rocksdb import of_store
from reput.sinks.queue.batch_consume_queue import BATCH_KIND
from reput.sinks.queue.broker_queue import BrokerBatchQueue, BrokerQueue, QueueFile
from reput.sinks.queue.consume_queue import KIND, rounded_file_size
from reput.sinks.queue.queue_reader import load_queues
from reput.sinks.store_checkpoint import StoreCheckpoint, load_store_checkpoint
from reput.source import releases
from reput.source.log.broker_check import BrokerRules, check_at
from reput.source.log.mapped_file_queue import HEAD_SIZE, MappedFile, MappedFileQueue, read_head
from reput.source.log.range_reader import first_store_timestamp
from reput.source.record.message_format import (
    MAGIC_AT,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    PHYSICAL_OFFSET_AT,
)
from reput.source.releases import Version
from reput.streaming.config.broker import broker_version
from reput.streaming.config.broker_conf import BrokerConf
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.settings import QueueOptions

#: ``MessageStoreConfig#commitLogRecoverMaxNum``.
RECOVERED_SEGMENTS_MAX = 10
# ``CommitLog#recoverNormally`` reads the last three segments.
_NORMAL_RECOVERY_FILES = 3
# ``StoreCheckpoint#getMinTimestamp`` subtracts this.
_CHECKPOINT_MARGIN_MS = 3000


@dataclass(frozen=True)
class RecoverySettings:
    """The properties of a release and its settings that decide where recovery begins.

    Attributes
    ----------
    rules
        How recovery checks records.
    checks_first_record
        It begins by the rules since 5.4.0, which check the first record of a segment; DLedger's log never does.
    begins_at_queues_end
        Without that: normal recovery begins at the last segment that the queues reach, else at the third from the end.
    index_safe
        ``messageIndexSafe``, if there is an index: recovery also begins before the records that the index lacks.
    recovered_segments_max
        With `checks_first_record`, recovery begins at most this many segments before the end
        (``commitLogRecoverMaxNum``).
    in_rocksdb_to
        Where the last record begins that the index in RocksDB has, and the same of transactions, of those that are
        switched on: it begins at no later segment (``IndexRocksDBStore#isMappedFileMatchedRecover``).
    in_rocksdb
        The broker keeps its queues only in RocksDB: abnormal recovery asks them instead of the checkpoint.
    """

    rules: BrokerRules
    checks_first_record: bool
    begins_at_queues_end: bool
    index_safe: bool
    recovered_segments_max: int
    in_rocksdb_to: tuple[int, ...]
    in_rocksdb: bool


def broker_recovers_from(
    files: DurableFiles,
    segments: MappedFileQueue,
    config: PipelineConfig,
    *,
    unclean: bool,
    queued_to: int | None = None,
) -> int:
    """Return the offset at which recovery begins if the broker of `config` is started on an output with segments.

    `queued_to` is where the queues will end; without it, where they end now. Otherwise as `recovered_first`.
    """
    version = broker_version(config.broker.version, config.store)
    broker = BrokerConf() if config.broker_conf is None else BrokerConf.read(config.broker_conf, version)
    first = recovered_first(
        segments.files,
        load_store_checkpoint(files),
        lambda: _queued_to(files.root, config.queue) if queued_to is None else queued_to,
        recovery_settings(config, broker, version),
        unclean=unclean,
    )
    return segments.files[first].file_from_offset


def recovery_settings(
    config: PipelineConfig, broker: BrokerConf, version: Version, *, in_rocksdb: bool = False
) -> RecoverySettings:
    """Return the settings of a release's recovery; DLedger's log follows the rules of 4.9.3."""
    is_dledger = config.source.enable_dledger_commit_log
    rules = BrokerRules(
        version=version,
        check_crc=broker.switch("checkCRCOnRecover", default=True),
        verifies_property_crc=releases.VERIFIES_PROPERTY_CRC.holds(version) and broker.switch("forceVerifyPropCRC"),
        delays_ms=config.source.delays_ms,
    )
    wanted = broker.number_or("commitLogRecoverMaxNum", RECOVERED_SEGMENTS_MAX)
    return RecoverySettings(
        rules=rules,
        checks_first_record=releases.CHECKS_FIRST_RECORDS.holds(version) and not is_dledger,
        begins_at_queues_end=releases.RECOVERY_BEGINS_AT_THE_QUEUES_END.holds(version) and not is_dledger,
        index_safe=config.index.message_index_enable and broker.switch("messageIndexSafe"),
        recovered_segments_max=wanted if wanted > 0 else RECOVERED_SEGMENTS_MAX,
        in_rocksdb_to=_in_rocksdb_to(config.store, broker, version),
        in_rocksdb=in_rocksdb,
    )


def _in_rocksdb_to(store: Path, broker: BrokerConf, version: Version) -> tuple[int, ...]:
    """Return how far index and transactions are in RocksDB, if a release keeps them there."""
    if not releases.KEEPS_MORE_IN_ROCKSDB.holds(version):
        return ()
    # 5.4.0 asks its transactions only if half messages have a topic of their own.
    keeps_halves = releases.KEEPS_QUEUED_OFFSET.holds(version) or not broker.switch(
        "transWriteOriginTransHalfEnable", default=True
    )
    keeps = broker.switch("indexRocksDBEnable"), broker.switch("transRocksDBEnable") and keeps_halves
    if not any(keeps):
        return ()
    with of_store(store) as found:
        places = (0, 0) if found is None else (found.indexed_to, found.halves_to)
    return tuple(place for place, kept in zip(places, keeps, strict=True) if kept)


def _queued_to(root: Path, settings: QueueOptions) -> int:
    """Return where the last record with an entry in any queue below `root` ends, as 5.5.0 finds it; -1 without one.

    A BatchConsumeQueue gives the begin of the record instead.
    """
    last = -1
    for kind, make, size in (
        (KIND, BrokerQueue, rounded_file_size(settings.mapped_file_size_consume_queue)),
        (BATCH_KIND, BrokerBatchQueue, settings.mapper_file_size_batch_consume_queue),
    ):
        for disk in load_queues(root, kind, size):
            files = [QueueFile(begin, size, disk.path(begin), unit=kind.unit) for begin in disk.files]
            queue = make(disk.topic.decode(errors="replace"), disk.queue_id, size, files)
            queue.recover()
            last = max(last, queue.max_physic_offset)
    return last


def recovered_first(
    files: Sequence[MappedFile],
    checkpoint: StoreCheckpoint,
    queued_to: Callable[[], int],
    settings: RecoverySettings,
    *,
    unclean: bool,
) -> int:
    """Return the number of the segment at which recovery begins; there is at least one in `files`.

    `unclean` is abnormal recovery, which asks the store's checkpoint. `queued_to` returns where the last record in any
    queue ends; normal recovery asks since 5.3.2, and both with queues in RocksDB.

    Raises
    ------
    DataLossError
        A segment has gone, or is shorter than it was.
    """
    if settings.checks_first_record:
        return _first_checked(files, checkpoint, queued_to, settings, unclean=unclean and not settings.in_rocksdb)
    if not unclean and settings.begins_at_queues_end:
        end = queued_to()
        return next((n for n in range(len(files) - 1, 0, -1) if files[n].file_from_offset <= end), 0)
    if not unclean:
        return max(0, len(files) - _NORMAL_RECOVERY_FILES)
    if settings.in_rocksdb:
        end = queued_to()
        return _last_that(lambda file: _stated_offset(file) <= end, files, settings.rules.version)
    known = _known_to(checkpoint)
    if settings.index_safe:
        known = min(known, checkpoint.index_msg_timestamp)
    return _last_that(lambda file: _is_stored_by(known, file), files, settings.rules.version)


def _last_that(is_known: Callable[[MappedFile], bool], files: Sequence[MappedFile], version: Version) -> int:
    """Return the number of the last segment that begins with a record and is known; 0 if none is."""
    numbers = range(len(files) - 1, -1, -1)
    return next((n for n in numbers if _begins_with_a_record(files[n], version) and is_known(files[n])), 0)


def _is_stored_by(timestamp_ms: int, file: MappedFile) -> bool:
    """Whether a segment's first record has a store time, and one not after `timestamp_ms`."""
    first = first_store_timestamp(file)
    return first is not None and first != 0 and first <= timestamp_ms


def _stated_offset(file: MappedFile) -> int:
    at = file.frame + PHYSICAL_OFFSET_AT
    return int.from_bytes(read_head(file, HEAD_SIZE)[at : at + 8], "big", signed=True)


def _begins_with_a_record(file: MappedFile, version: Version) -> bool:
    """Whether a segment begins with the magic code of a record that the release knows."""
    at = file.frame + MAGIC_AT
    code = int.from_bytes(read_head(file, HEAD_SIZE)[at : at + 4], "big", signed=True)
    return code == MESSAGE_MAGIC_CODE or (code == MESSAGE_MAGIC_CODE_V2 and releases.READS_V2_RECORDS.holds(version))


def _known_to(checkpoint: StoreCheckpoint) -> int:
    """Do ``StoreCheckpoint#getMinTimestamp`` (ms)."""
    return max(0, min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) - _CHECKPOINT_MARGIN_MS)


def _first_checked(
    files: Sequence[MappedFile],
    checkpoint: StoreCheckpoint,
    queued_to: Callable[[], int],
    settings: RecoverySettings,
    *,
    unclean: bool,
) -> int:
    """Apply the rule since 5.4.0."""
    end = None if unclean else queued_to()
    for looked_at, number in enumerate(range(len(files) - 1, -1, -1), 1):
        if (number == 0 and not unclean) or looked_at >= settings.recovered_segments_max:
            return number
        if _may_begin_at(files[number], checkpoint, end, settings):
            return number
    return 0


def _may_begin_at(file: MappedFile, checkpoint: StoreCheckpoint, end: int | None, settings: RecoverySettings) -> bool:
    """Whether everything before a segment is known to be in queues and index; abnormal recovery has no `end`."""
    record = check_at(file, file.file_from_offset, file.end, settings.rules).record
    if record is None or record.store_timestamp == 0:
        return False
    if settings.index_safe and record.store_timestamp > checkpoint.index_msg_timestamp:
        return False
    if any(record.physical_offset > last for last in settings.in_rocksdb_to):
        return False
    if end is not None:
        return record.physical_offset <= end
    if not releases.KEEPS_QUEUED_OFFSET.holds(settings.rules.version):
        return record.store_timestamp <= _known_to(checkpoint)
    if checkpoint.logics_physical_offset <= 0:
        return record.store_timestamp <= checkpoint.logics_msg_timestamp
    return record.physical_offset <= checkpoint.logics_physical_offset
