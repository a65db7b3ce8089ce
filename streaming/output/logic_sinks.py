"""The sinks of the `logic` query for a configuration, the work that tasks must do for them, and their start.

At start, Spark's offset, the end of each sink and the begin of the log are compared. A sink that ends before Spark's
checkpoint is brought up from the log before the stream continues. A sink ahead of it passes over what it already has.
Without a checkpoint, Spark begins where the sinks end. A difference that cannot be healed is an error with its reason.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import RecordFingerprint, SinkProgress
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.queue.batch_consume_queue import BatchConsumeQueueSink
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.queue.queue_check import QueueSettings
from reput.sinks.queue.queue_sink import QueueSink
from reput.sinks.sink import Sink
from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.sinks.table.message_table import MessageTable
from reput.source.errors import CommitLogRewoundError, DataLossError
from reput.source.log.log_reader import LogReader, StoreTimes
from reput.streaming.config.broker import count_of_empty_index, keeps_queued_offset, logic_needs
from reput.streaming.config.pipeline import PipelineConfig

_log = logging.getLogger("reput")


@dataclass(frozen=True)
class LogicSinks:
    """All sinks; `index` shares no files with the others and is written beside them.

    Attributes
    ----------
    count_of_empty
        The count in the header of an empty index file of the store's release.
    keeps_queued_offset
        Whether the checkpoint of the store's release says how far the queues are on disk (``logicsPhysicalOffset``).
    files
        The files of the index, and those of the others.
    """

    sinks: tuple[Sink, ...]
    index: IndexSink | None
    needs: LogicNeeds
    count_of_empty: int
    keeps_queued_offset: bool
    files: tuple[DurableFiles, ...]

    @property
    def sync_seconds(self) -> float:
        """The longest time for which one of the sinks, which work side by side, waited for the disk."""
        return max((files.sync_seconds for files in self.files), default=0.0)

    def advanced(self, checkpoint: StoreCheckpoint, stored: int) -> StoreCheckpoint:
        """Return the store's checkpoint after the sinks' durable writes; `stored` as in `StoreCheckpoint.advanced`."""
        queues = next((sink for sink in self.sinks if isinstance(sink, QueueSink)), None)
        index = self.index.index_msg_timestamp if self.index else None
        if queues is None:
            return checkpoint.advanced(stored, None, index)
        offset = queues.logics_physical_offset if self.keeps_queued_offset else None
        return checkpoint.advanced(stored, queues.logics_msg_timestamp, index, offset)

    @classmethod
    def open(cls, config: PipelineConfig, files: DurableFiles) -> LogicSinks:
        """Make the sinks that are switched on; none is recovered yet.

        Raises
        ------
        OptionError
            The store's ``config/`` cannot be read.
        """
        needs = logic_needs(config, config.store)
        release = count_of_empty_index(config, config.store), keeps_queued_offset(config, config.store)
        return cls._made(config, files, needs, release)

    def anew(self, config: PipelineConfig, files: DurableFiles) -> LogicSinks:
        """Make the same sinks again, with `files` of their own, without reading the store, which may be gone."""
        return self._made(config, files, self.needs, (self.count_of_empty, self.keeps_queued_offset))

    def following(self, config: PipelineConfig, batch_topics: frozenset[bytes]) -> LogicSinks:
        """Return the same recovered sinks for other topics with a BatchConsumeQueue, with a sink for these.

        A new sink begins where the ConsumeQueues end: no record of these topics is before that.
        """
        sinks, needs = self.sinks, replace(self.needs, batch_topics=batch_topics)
        (plain,) = (sink for sink in sinks if isinstance(sink, ConsumeQueueSink))
        if not any(isinstance(sink, BatchConsumeQueueSink) for sink in sinks):
            added = _batch_sink(config, plain.files)
            added.recover(plain.end_offset)
            if added.end_offset < plain.end_offset:  # a progress record for earlier topics
                added.pass_over(plain.end_offset)
            sinks = (plain, added, *(sink for sink in sinks if sink is not plain))
        return replace(self, sinks=sinks, needs=needs)

    @classmethod
    def _made(
        cls, config: PipelineConfig, files: DurableFiles, needs: LogicNeeds, release: tuple[int, bool]
    ) -> LogicSinks:
        count_of_empty, keeps_offset = release
        sinks: list[Sink] = []
        index, index_files = None, files.beside()
        queue = config.queue
        if queue.consume_queue_enable:
            sizes = queue.mapped_file_size_consume_queue, queue.ext_file_size
            sinks.append(
                ConsumeQueueSink(
                    *(files, *sizes, queue.max_first_queue_offset),
                    keeps_later_life=queue.keeps_later_life,
                    store_time_of=StoreTimes(config.log_options()),
                )
            )
            if needs.batch_topics:
                sinks.append(_batch_sink(config, files))
        if config.index.message_index_enable:
            sizes = config.index.max_hash_slot_num, config.index.max_index_num
            index = IndexSink(index_files, *sizes, count_of_empty=count_of_empty)
            sinks.append(index)
        return cls(tuple(sinks), index, needs, count_of_empty, keeps_offset, (files, index_files))


def queue_settings(config: PipelineConfig, root: Path) -> QueueSettings:
    """Return where the queues below `root` are for a comparison with the log, and the sizes of their files."""
    queue = config.queue
    sizes = queue.mapped_file_size_consume_queue, queue.mapper_file_size_batch_consume_queue
    return QueueSettings(root, *sizes, queue.ext_file_size)


def _batch_sink(config: PipelineConfig, files: DurableFiles) -> BatchConsumeQueueSink:
    queue = config.queue
    size = queue.mapper_file_size_batch_consume_queue
    return BatchConsumeQueueSink(files, size, keeps_later_life=queue.keeps_later_life)


_WAY_OUT = "give an empty --output (and --table) to derive everything from the log as it is"
_RECOVER = "'reput recover' with the same --store and --output cuts it back to the last record that still agrees"
_REPAIR = (
    "'reput rebuild --only table' with the same --store, --output and --table makes the table as the log is, from the "
    "last record that still agrees"
)
_WAYS_OUT = {
    ConsumeQueueSink.name: _RECOVER,
    BatchConsumeQueueSink.name: _RECOVER,
    IndexSink.name: _RECOVER,
    MessageTable.name: _REPAIR,
}


class Recoverable(Protocol):
    """A sink, as far as recovery needs it; see ``Sink``."""

    name: str

    def recover(self, start_offset: int) -> SinkProgress:
        """Bring the sink to the state of its progress record."""

    def pass_over(self, end_offset: int) -> None:
        """Move the sink's end to `end_offset`."""

    @property
    def end_offset(self) -> int:
        """The end of the sink."""


def recover_sinks(sinks: Sequence[Recoverable], log: LogReader, *, fail_on_data_loss: bool) -> None:
    """Recover each sink and check it against the log.

    Raises
    ------
    CommitLogRewoundError
        A sink's last record is no longer where it was.
    DataLossError
        Records after a sink's end have expired unread, and `fail_on_data_loss` is set.
    TransientError
        The log has no segment at all, and a sink has records of it.
    """
    start = None
    for sink in sinks:
        if start is None:
            start = log.initial_offset()
        progress = sink.recover(start)
        if progress.last_record is not None:
            log.find_record(progress.last_record)
            check_fingerprint(log, sink.name, progress.last_record, progress.start_offset)
        lost = check_not_expired(log, sink.name, sink.end_offset, fail_on_data_loss=fail_on_data_loss)
        if lost is not None:
            _log.warning("%s; continuing without them", lost)
            sink.pass_over(log.next_available(sink.end_offset))


def check_not_expired(log: LogReader, sink: str, end: int, *, fail_on_data_loss: bool) -> str | None:
    """Return the loss of a sink that ends at `end`, as part of a sentence; None if no record after it expired unread.

    If `fail_on_data_loss` is set, a hole between two segments does not count: another check reports it, with file
    names.

    Raises
    ------
    DataLossError
        Records expired unread, and `fail_on_data_loss` is set.
    """
    further = log.next_available(end)
    is_behind_begin = end >= log.queue().min_offset
    if further == end or (is_behind_begin and fail_on_data_loss):
        return None
    there = "continues" if is_behind_begin else "begins"
    lost = f"{sink} ends at {end} and the log {there} at {further}: records between expired unread"
    if fail_on_data_loss:
        raise DataLossError(lost, advice="set failOnDataLoss=false to continue without them", physical_offset=end)
    return lost


def check_fingerprint(log: LogReader, sink: str, known: RecordFingerprint, start_offset: int = 0) -> None:
    """Raise CommitLogRewoundError if the log has another record, or none, at the physical offset of `known`.

    After an unclean stop a broker moves its write position back and writes other records over those that a reader
    already had (``MappedFileQueue#truncateDirtyFiles``). It clears no byte: `known` may still be there whole, after the
    log's new end. So the records before it must lead to it, from its segment's begin or, if an output was begun after a
    damaged record, from `start_offset`.
    """
    file = log.queue().find(known.offset)
    if file is None and known.offset < log.queue().end_of_files:
        return  # it expired, or its segment is missing, which another check reports
    found: RecordFingerprint | None = None
    if file is not None and known.offset + known.size <= file.end and log.is_led_to(known, start_offset):
        found = fingerprint_at(log, known)
    if found != known:
        raise CommitLogRewoundError(
            f"{sink} has a record of {known.size} bytes at offset {known.offset}, stored at {known.store_timestamp}, "
            f"and the log now has {found or 'no such record'}: the broker cut the log and wrote on, or this is "
            "another store",
            advice=_WAYS_OUT.get(sink, _WAY_OUT),
            physical_offset=known.offset,
        )


def fingerprint_at(log: LogReader, known: RecordFingerprint) -> RecordFingerprint | None:
    """Return the record that the log has where `known` was; None if the log has no good record of its size there."""
    found = log.message_at(known.offset, known.size)
    if found is None:
        return None
    return RecordFingerprint(found.physical_offset, found.msg_size, found.store_timestamp, found.body_crc)


def aligned(log: LogReader, offset: int) -> int:
    """Return the last offset up to `offset` where a record begins; the end of a broker's files may be anywhere."""
    return log.align_down(0, offset)
