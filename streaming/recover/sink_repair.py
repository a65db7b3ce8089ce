"""The queues and the index of an output, as `reput recover` compares them with the log and repairs them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.files.directory import names_in
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile, SinkProgress
from reput.sinks.files.store_path import RelativePath, index_file
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.queue.batch_consume_queue import queues_of_wrong_kind
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.queue.queue_sink import LIVES, emptied
from reput.sinks.recover.index_recovery import IndexCheck, IndexState
from reput.sinks.recover.queue_recovery import BeginsLife, QueueCheck, cut_queues
from reput.streaming.config.pipeline import PipelineConfig


@dataclass(frozen=True)
class SinkFiles:
    """Files to remove and to mend, as paths below the output.

    `entries_dropped` counts queue entries, or keys of the newest index file that is kept.
    """

    removed: tuple[str, ...]
    mended: tuple[str, ...]
    entries_dropped: int


@dataclass(frozen=True)
class QueueReport:
    """One queue, by queue offsets: the first entry whose record the log has, and the queue's end (exclusive)."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


class SinkRepair:
    """Compares one sink's files with `[start, limit)` of the log, batch by batch in log order, and repairs them."""

    name: str
    start: int
    limit: int
    disagrees_at: int | None = None
    _check: QueueCheck | IndexCheck

    def __init__(self, config: PipelineConfig, files: DurableFiles) -> None:
        self.config = config
        self.files = files
        self.record = ProgressFile(files, self.name).load()

    @property
    def agrees(self) -> bool:
        """Whether everything compared so far agrees."""
        return self.disagrees_at is None

    @property
    def end(self) -> int:
        """The offset up to which files and log agree."""
        return self.limit if self.disagrees_at is None else self.disagrees_at

    @property
    def trusted_until(self) -> int:
        """The end of the last record before `start` that has an effect on disk; 0 without one."""
        return self._check.trusted_until

    @property
    def is_empty(self) -> bool:
        """Whether the sink has neither files nor a progress record."""
        return self.record is None and self._check.has_no_files

    def open(self, start: int) -> None:
        """Read the files on disk; what was derived from records before `start` is trusted."""
        raise NotImplementedError

    @property
    def looks_further(self) -> bool:
        """Whether `look_further` needs batches behind those that are compared."""
        return False

    def compare(self, batch: LogicBatch) -> None:
        """Compare the next batch, and set `disagrees_at` if something differs."""
        raise NotImplementedError

    def look_further(self, batch: LogicBatch) -> None:
        """Look at a batch behind those that are compared."""

    def plan(self, last_record: int, store_timestamp: Callable[[int], int | None]) -> tuple[int, dict[str, Any]]:
        """Return where the sink continues after the cut, and the state of its progress record there.

        See ``IndexCheck.cut`` for the arguments.
        """
        raise NotImplementedError

    def changes(self) -> SinkFiles:
        """The files that `apply` changes."""
        raise NotImplementedError

    def apply(self, planned: SinkProgress) -> None:
        """Store the progress record `planned`, and cut the files to where it ends."""
        raise NotImplementedError


class QueueRepair(SinkRepair):
    """``consumequeue/``."""

    name = ConsumeQueueSink.name
    _check: QueueCheck

    def __init__(
        self, config: PipelineConfig, files: DurableFiles, begins_life: BeginsLife, batch_topics: frozenset[bytes]
    ) -> None:
        """`begins_life` as in ``QueueCheck``.

        Topics of `batch_topics` have another kind of queue: what is left of theirs are empty directories.
        """
        super().__init__(config, files)
        self._begins_life = begins_life
        self._batch_topics = batch_topics

    def open(self, start: int) -> None:
        """Read the queues' files; entries of records before `start` are trusted."""
        self.start = start
        size = self.config.queue.mapped_file_size_consume_queue
        self._check = QueueCheck.load(self.files.root, size, start, self._begins_life, emptied(self.record))

    def compare(self, batch: LogicBatch) -> None:
        """Compare the batch's entries with those of the queues."""
        self._check.compare(batch)
        self.disagrees_at = self._check.disagrees_at

    @property
    def looks_further(self) -> bool:
        """Whether some queue has only entries of expired records so far."""
        return self._check.has_open_heads

    def look_further(self, batch: LogicBatch) -> None:
        """Find in the batch where queues with expired entries continue."""
        self._check.look_at_heads(batch)

    def plan(self, last_record: int, store_timestamp: Callable[[int], int | None]) -> tuple[int, dict[str, Any]]:
        """Where the queues end once cut, and the state of their progress record there."""
        del last_record, store_timestamp
        self._check.check_queues()
        if self.record is not None and self.end >= self.record.end_offset:
            return self.end, {**self.record.state, "queue_ends": self._check.entries}
        lives = self._check.lives
        return self.end, {"queue_ends": self._check.entries, **({LIVES: lives} if lives else {})}

    def changes(self) -> SinkFiles:
        """The queues' files that `apply` removes and mends."""
        states = self._check.queues.values()
        removed = ["/".join(state.disk.relative_path(file)) for state in states for file in state.files_to_remove]
        mended = ["/".join(state.disk.relative_path(file)) for state in states for file in state.files_to_mend]
        removed += ["/".join(directory) for directory in self._emptied(removed)]
        return SinkFiles(tuple(sorted(removed)), tuple(mended), sum(state.dropped for state in states))

    def _emptied(self, removed: Collection[str]) -> list[RelativePath]:
        """The directories of queues of the wrong kind that have no file but those that are `removed`."""
        found: list[RelativePath] = []
        for kind, topic, queue_id in queues_of_wrong_kind(self.files.root, self._batch_topics):
            directory = kind.directory(topic, queue_id)
            names = names_in(self.files.root.joinpath(*directory))
            if all("/".join((*directory, name)) in removed for name in names):
                found.append(directory)
        return found

    def apply(self, planned: SinkProgress) -> None:
        """Store the progress record, and cut the queues."""
        ProgressFile(self.files, self.name).store(planned)
        cut_queues(self.files, self._check)
        for directory in self._emptied(()):
            self.files.remove_directory(*directory)
            self.files.remove_directory(*directory[:-1])
        self.files.sync()
        ConsumeQueueSink(self.files, self.config.queue.mapped_file_size_consume_queue).recover(self.start)

    def queues(self, min_physic_offset: int) -> tuple[QueueReport, ...]:
        """The queues that remain (``DefaultMessageStore#recoverTopicQueueTable``)."""
        return tuple(
            QueueReport(
                state.disk.topic.decode("utf-8", "backslashreplace"),
                state.disk.queue_id,
                state.disk.min_offset(min_physic_offset, state.end // CQ_STORE_UNIT_SIZE),
                state.end // CQ_STORE_UNIT_SIZE,
            )
            for state in self._check.queues.values()
            if state.has_entries
        )


class IndexRepair(SinkRepair):
    """``index/``."""

    name = IndexSink.name
    _check: IndexCheck
    _state: IndexState

    def open(self, start: int) -> None:
        """Read the index files; keys of records before `start` are trusted."""
        self.start = start
        sizes = self.config.index.max_hash_slot_num, self.config.index.max_index_num
        self._check = IndexCheck(self.files.root, *sizes, start)

    def compare(self, batch: LogicBatch) -> None:
        """Compare the batch's keys with those of the index, up to the first that differs."""
        for keys in batch.entries.keys_by_piece():
            if self.agrees:
                self._check.compare(keys)
                self.disagrees_at = self._check.disagrees_at

    def plan(self, last_record: int, store_timestamp: Callable[[int], int | None]) -> tuple[int, dict[str, Any]]:
        """Where the index ends once cut, and the state of its progress record there."""
        known = None if self.record is None else self.record.state
        self._state = self._check.cut(self.end, last_record, store_timestamp, known)
        return self._state.end, self._state.state

    def changes(self) -> SinkFiles:
        """The index files that `apply` removes, and the one that it mends."""
        removed = tuple("/".join(index_file(name)) for name in self._state.removed)
        mended = ("/".join(index_file(self._state.state["file"])),) if self._state.is_mended else ()
        return SinkFiles(removed, mended, self._state.entries_dropped)

    def apply(self, planned: SinkProgress) -> None:
        """Store the progress record, and cut the index."""
        ProgressFile(self.files, self.name).store(planned)
        sizes = self.config.index.max_hash_slot_num, self.config.index.max_index_num
        IndexSink(self.files, *sizes).recover(self.start)
