"""The sinks of the `logic` query that the configuration asks for, and what tasks must compute for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.queue.batch_consume_queue import BatchConsumeQueueSink
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.queue.queue_check import QueueSettings
from reput.sinks.queue.queue_sink import QueueSink
from reput.sinks.sink import Sink
from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.streaming.config.broker import count_of_empty_index, keeps_queued_offset, logic_needs
from reput.streaming.config.pipeline import PipelineConfig


@dataclass(frozen=True)
class LogicSinks:
    """All sinks; `index` is the one among them that shares no files with the others and is written beside them.

    Attributes
    ----------
    count_of_empty
        What the store's release has in the header of an empty index file.
    keeps_queued_offset
        Whether the checkpoint of the store's release says how far the queues are on disk (``logicsPhysicalOffset``).
    files
        Those of the index, and those of the others.
    """

    sinks: tuple[Sink, ...]
    index: IndexSink | None
    needs: LogicNeeds
    count_of_empty: int
    keeps_queued_offset: bool
    files: tuple[DurableFiles, ...]

    @property
    def sync_seconds(self) -> float:
        """How long the sinks, which work side by side, were waiting for the disk at most."""
        return max((files.sync_seconds for files in self.files), default=0.0)

    def advanced(self, checkpoint: StoreCheckpoint, stored: int) -> StoreCheckpoint:
        """The store's checkpoint after what the sinks made durable; `stored` as in ``StoreCheckpoint.advanced``."""
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
        """Make the same sinks once more, with `files` of their own; the store is not asked again: it may be away."""
        return self._made(config, files, self.needs, (self.count_of_empty, self.keeps_queued_offset))

    def following(self, config: PipelineConfig, batch_topics: frozenset[bytes]) -> LogicSinks:
        """The same recovered sinks, for other topics with a BatchConsumeQueue; one for these is added where none is.

        It begins where the ConsumeQueues end: no record of these topics is before that.
        """
        sinks, needs = self.sinks, replace(self.needs, batch_topics=batch_topics)
        (plain,) = (sink for sink in sinks if isinstance(sink, ConsumeQueueSink))
        if not any(isinstance(sink, BatchConsumeQueueSink) for sink in sinks):
            added = _batch_sink(config, plain.files)
            added.recover(plain.end_offset)
            if added.end_offset < plain.end_offset:  # a record of topics that were there before
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
                ConsumeQueueSink(files, *sizes, queue.max_first_queue_offset, keeps_later_life=queue.keeps_later_life)
            )
            if needs.batch_topics:
                sinks.append(_batch_sink(config, files))
        if config.index.message_index_enable:
            sizes = config.index.max_hash_slot_num, config.index.max_index_num
            index = IndexSink(index_files, *sizes, count_of_empty=count_of_empty)
            sinks.append(index)
        return cls(tuple(sinks), index, needs, count_of_empty, keeps_offset, (files, index_files))


def queue_settings(config: PipelineConfig, root: Path) -> QueueSettings:
    """Where the queues below `root` are for whoever compares them with the log, and the sizes of their files."""
    queue = config.queue
    sizes = queue.mapped_file_size_consume_queue, queue.mapper_file_size_batch_consume_queue
    return QueueSettings(root, *sizes, queue.ext_file_size)


def _batch_sink(config: PipelineConfig, files: DurableFiles) -> BatchConsumeQueueSink:
    queue = config.queue
    size = queue.mapper_file_size_batch_consume_queue
    return BatchConsumeQueueSink(files, size, keeps_later_life=queue.keeps_later_life)
