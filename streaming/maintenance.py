"""`reput recover` and `reput expire`: what they do to an output, and what they tell. No Spark is started.

``DefaultMessageStore#recover`` with ``#recoverTopicQueueTable``, and ``DefaultMessageStore.CleanConsumeQueueService``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reput.sinks.consume_queue import ConsumeQueueSink, rounded_file_size
from reput.sinks.durable_file import DurableFiles
from reput.sinks.index_service import IndexSink
from reput.sinks.queue_on_disk import load_queues_on_disk
from reput.sinks.retention import QueueRetention, expire_queue, expired_index_files
from reput.sinks.sink_progress import ProgressFile
from reput.sinks.store_checkpoint import StoreCheckpoint, load_store_checkpoint
from reput.sinks.store_lock import StoreLock
from reput.sinks.store_path import ABORT, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, LOCK, REPUT, SPARK_CHECKPOINT
from reput.sinks.swap import finish_swap
from reput.source.errors import DataLossError, OutputError, StoreError
from reput.source.log_reader import LogReader
from reput.source.mapped_file_queue import MappedFileQueue
from reput.source.offset_range import first_store_timestamp
from reput.source.options import SourceOptions
from reput.streaming.config import PipelineConfig
from reput.streaming.output_recovery import OutputRecovery, SinkReport
from reput.streaming.output_sides import QueueReport, SinkFiles
from reput.streaming.recovery import check_fingerprint
from reput.streaming.tail import TailPaths, check_paths

# ``CommitLog#recoverNormally`` looks at the last three segments, ``StoreCheckpoint#getMinTimestamp`` keeps 3 s away.
_NORMAL_RECOVERY_FILES = 3
_CHECKPOINT_MARGIN_MS = 3000


@dataclass(frozen=True)
class RecoveryReport:
    """What `reput recover` found and did; offsets in the log unless said otherwise.

    Attributes
    ----------
    unclean
        An `abort` file says that a broker stopped uncleanly: it would do its abnormal recovery.
    rewound
        A record that was dispatched is no longer at its place.
    log_start, log_end
        What the log has: its first segment's begin, and the end of its whole records.
    broker_recovers_from
        The segment at which a broker's own recovery would begin.
    sinks
        What each sink was brought back to.
    queues
        Every queue that is left, with its numbers of entries.
    spark_checkpoint_removed
        Spark's checkpoint was ahead of the sinks and is forgotten.
    is_changed
        Whether anything is, or in a dry run would be, written.
    """

    unclean: bool
    rewound: bool
    log_start: int
    log_end: int
    broker_recovers_from: int
    sinks: tuple[SinkReport, ...]
    queues: tuple[QueueReport, ...]
    spark_checkpoint_removed: bool
    is_changed: bool


@dataclass(frozen=True)
class RetentionReport:
    """What `reput expire` removed, or would: paths below the output; `min_physic_offset` is the log's beginning."""

    min_physic_offset: int
    queues: tuple[QueueRetention, ...]
    index_files: tuple[str, ...]
    removed: tuple[str, ...]


def recover_output(
    config: PipelineConfig, store: Path, output: Path, *, dry_run: bool = False, yes: bool = False
) -> RecoveryReport:
    """Bring the output's queues and index into agreement with the log as it is; the log is only read.

    `dry_run` writes nothing. `yes` lets everything be removed when the log is gone.

    Raises
    ------
    ReputError
        The store or the output cannot be read, the output is locked, or the log is gone and `yes` is not given.
    """
    with _opened(config, output, dry_run=dry_run) as (files, log):
        segments = log.queue()
        unclean = (store / ABORT).exists() or (output / ABORT).exists()
        if not segments.files:
            return _destroy(config, files, unclean=unclean, dry_run=dry_run, yes=yes)
        recovery = OutputRecovery(config, files, log)
        report = RecoveryReport(
            unclean=unclean,
            rewound=recovery.rewound,
            log_start=segments.min_offset,
            log_end=recovery.log_end,
            broker_recovers_from=_broker_recovers_from(segments, load_store_checkpoint(files), unclean=unclean),
            sinks=recovery.sinks,
            queues=recovery.queues,
            spark_checkpoint_removed=recovery.spark_checkpoint_removed,
            is_changed=recovery.is_changed,
        )
        if not dry_run:
            recovery.apply()
        return report


def _destroy(config: PipelineConfig, files: DurableFiles, *, unclean: bool, dry_run: bool, yes: bool) -> RecoveryReport:
    """Remove what was derived from a log that has no segment any more (``DefaultMessageStore#destroyLogics``)."""
    if not yes and not dry_run:
        where = ", ".join(str(path) for path in config.commit_log)
        msg = (
            f"{where} has no segment: the log is gone, and a broker would remove every queue; give --yes to remove "
            f"{CONSUME_QUEUE}/, {CONSUME_QUEUE_EXT}/ and {INDEX}/ below {files.root}, or give the right --store"
        )
        raise StoreError(msg)
    sinks, removed = [], False
    for sink, folders in ((ConsumeQueueSink.name, (CONSUME_QUEUE, CONSUME_QUEUE_EXT)), (IndexSink.name, (INDEX,))):
        record = ProgressFile(files, sink)
        known = record.load()
        gone = [folder for folder in folders if (files.root / folder).is_dir()]
        sinks.append(SinkReport(sink, known.end_offset if known else None, 0, SinkFiles(tuple(gone), (), 0)))
        removed |= bool(gone) or known is not None
        if not dry_run:
            for folder in gone:
                files.remove_tree(folder)
            record.remove()
            files.sync()
    has_checkpoint = files.root.joinpath(REPUT, SPARK_CHECKPOINT).is_dir()
    if has_checkpoint and not dry_run:
        files.remove_tree(REPUT, SPARK_CHECKPOINT)
    return RecoveryReport(unclean, True, 0, 0, 0, tuple(sinks), (), has_checkpoint, removed or has_checkpoint)


def expire_output(config: PipelineConfig, output: Path, *, dry_run: bool = False) -> RetentionReport:
    """Remove the output's leading files of which the log has no record any more; the log is only read.

    Raises
    ------
    ReputError
        The store or the output cannot be read, the output is locked, or it was made from another log.
    """
    with _opened(config, output, dry_run=dry_run) as (files, log):
        segments = log.queue()
        if not segments.files:
            msg = f"{segments.paths[0]} has no segment: nothing tells what has expired; see 'reput recover'"
            raise DataLossError(msg)
        for sink in (ConsumeQueueSink.name, IndexSink.name):
            record = ProgressFile(files, sink).load()
            if record is not None and record.last_record is not None:
                check_fingerprint(log, sink, record.last_record, record.start_offset)
        size = rounded_file_size(config["mappedFileSizeConsumeQueue"])
        queues = [expire_queue(disk, segments.min_offset) for disk in load_queues_on_disk(output, size)]
        index_files = expired_index_files(output, segments.min_offset)
        removed = [parts for queue in queues for parts in queue.removed] + index_files
        if not dry_run:
            for parts in removed:
                files.remove(*parts)
            files.sync()
        return RetentionReport(
            segments.min_offset,
            tuple(queues),
            tuple("/".join(parts) for parts in index_files),
            tuple("/".join(parts) for parts in removed),
        )


@contextmanager
def _opened(config: PipelineConfig, output: Path, *, dry_run: bool) -> Iterator[tuple[DurableFiles, LogReader]]:
    """The output, locked, and the log; a dry run makes no lock file where there is none."""
    check_paths(config.commit_log, TailPaths(output, None, None))
    if not output.is_dir():
        msg = f"no output at {output}: the directory does not exist; give the --output of 'reput tail'"
        raise OutputError(msg)
    log = LogReader(SourceOptions.parse(config.source_options()))
    log.queue()  # a store that cannot be read leaves no trace in the output
    files = DurableFiles(output)
    lock = output / LOCK
    held = None if dry_run and not (lock.exists() and lock.stat().st_size) else StoreLock(output)
    try:
        if not dry_run:
            finish_swap(files)
        yield files, log
    finally:
        files.close()
        if held is not None:
            held.close()


def _broker_recovers_from(segments: MappedFileQueue, checkpoint: StoreCheckpoint, *, unclean: bool) -> int:
    """Where a broker's recovery begins (``CommitLog#recoverNormally``, ``#isMappedFileMatchedRecover``)."""
    files = segments.files
    if not unclean:
        return files[-_NORMAL_RECOVERY_FILES:][0].file_from_offset
    known = min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) - _CHECKPOINT_MARGIN_MS
    for file in reversed(files):
        first = first_store_timestamp(file)
        if first and first <= max(0, known):
            return file.file_from_offset
    return files[0].file_from_offset
