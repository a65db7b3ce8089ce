"""The files that a rebuild replaces in an output, and the progress records from which `reput tail` continues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.own_files import check_own
from reput.sinks.files.sink_progress import ProgressFile
from reput.sinks.files.store_path import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    MADE_FOR,
    REBUILD_ROOT,
    STORE_CHECKPOINT,
    RelativePath,
    batch_consume_queue_directory,
    consume_queue_directory,
    consume_queue_ext_directory,
    progress_file,
    quarantine_file,
)
from reput.sinks.files.swap import Move
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.quarantine import Quarantine, merge_quarantines
from reput.sinks.queue.batch_consume_queue import BatchConsumeQueueSink
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.queue.queue_sink import LIVES, QueueSink
from reput.sinks.store_checkpoint import load_store_checkpoint, store_checkpoint
from reput.source.errors import OptionError, OutputError
from reput.source.log.log_reader import LogReader
from reput.streaming.config.broker import batch_topics, keeps_queued_offset
from reput.streaming.config.made_for import is_store, made_for, makes_all_of, recorded_in, write_record
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.output.spark_checkpoint import SPARK_CHECKPOINT_OF_LOGIC
from reput.streaming.rebuild.plan import RebuildRequest, only_queues

_QUEUE_SINKS = (ConsumeQueueSink.name, BatchConsumeQueueSink.name)
_QUEUE_FOLDERS = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE)
_QUEUE_DIRECTORIES = (consume_queue_directory, consume_queue_ext_directory, batch_consume_queue_directory)
_QUARANTINE = (quarantine_file(), progress_file(Quarantine.name))
_MERGED = "merged"


@dataclass(frozen=True)
class OutputCounts:
    """How many queues, files of queues and index files were made."""

    queues: int = 0
    queue_files: int = 0
    index_files: int = 0


class OutputChange:
    """The change that a rebuild makes to the output below `files`."""

    def __init__(self, config: PipelineConfig, request: RebuildRequest, files: DurableFiles) -> None:
        self._config = config
        self._request = request
        self._files = files
        self._made = DurableFiles(files.root.joinpath(*REBUILD_ROOT))
        self.counts = OutputCounts()

    def check(self) -> None:
        """Check what there is before anything is made.

        Raises
        ------
        OutputError
            Only one topic is asked for and the output has no queues to put it among, or a folder that is to be
            replaced is a link or a mount point.
        """
        if self._request.makes_queues(self._config):
            check_own(self._files.root, (CONSUME_QUEUE,))
        if self._request.makes_index(self._config):
            check_own(self._files.root, (INDEX,))
        if self._request.topic is not None and not any(
            (self._files.root / folder).is_dir() for folder in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
        ):
            raise OutputError(
                f"{self._files.root} has no queues: --topic makes one topic's again in an output that has the others",
                file=self._files.root,
            )

    @property
    def makes_all(self) -> bool:
        """Whether everything in the output is replaced, so that it may be for other settings afterwards."""
        recorded = recorded_in(self._files.root, self._config.store)
        return self._request.is_whole and makes_all_of(self._config, recorded)

    def end(self, log: LogReader) -> int | None:
        """Where one topic's queues must end because the others end there; None if all queues are made."""
        if self._request.topic is None:
            return None
        is_batch = self._request.topic.encode() in batch_topics(self._config, self._config.store)
        record = ProgressFile(self._files, _QUEUE_SINKS[is_batch]).load()
        least = log.queue().min_offset
        log_end = log.settled_end(least)
        if record is None or record.end_offset >= log_end:
            return None
        # A sink that took over a broker's files may end inside a record. It has that record's entry.
        begin = log.align_down(least, max(least, record.end_offset))
        return begin if begin >= record.end_offset else log.limit(begin, log_end, 1, None)

    def prepare(self, *, keep_physic: bool = False) -> list[Move]:
        """Write the records that belong to what was made, and return what goes where (``swap``).

        `keep_physic` keeps the time in the store's checkpoint up to which the broker itself trusts its log.
        """
        queues, index = self._request.makes_queues(self._config), self._request.makes_index(self._config)
        self.counts = self._count()
        try:
            if queues and self._request.topic is not None:
                return [*self._one_topic(self._request.topic.encode()), *self._quarantine()]
            paths = self._record(queues, index)
            if queues:
                paths += [*((folder,) for folder in _QUEUE_FOLDERS), *map(progress_file, _QUEUE_SINKS)]
            if index:
                paths += [(INDEX,), progress_file(IndexSink.name)]
            if queues or index:
                # Spark's checkpoint does not fit what was made; without it, `tail` begins where the sinks end.
                paths.append(SPARK_CHECKPOINT_OF_LOGIC)
                paths += [(STORE_CHECKPOINT,)] if self._write_checkpoint(queues, index, keep_physic) else []
                if self._request.is_whole:
                    return [(path, path) for path in (*paths, *_QUARANTINE)]
            return [*((path, path) for path in paths), *self._quarantine()]
        finally:
            self._made.close()

    def _record(self, queues: bool, index: bool) -> list[RelativePath]:
        """Write the record of what the output will be made for, and return its path; nothing if it need not change."""
        if is_store(self._files.root, self._config.store) or not (queues or index):
            return []
        known = recorded_in(self._files.root, self._config.store)
        made = made_for(self._config, self._config.store, queues=queues, index=index)
        if not self.makes_all:
            made = {**made, **known} if known else known
        if made == known:
            return []
        write_record(self._made, made)
        return [MADE_FOR]

    def _one_topic(self, topic: bytes) -> list[Move]:
        queue_id = self._request.queue_id
        depth = 2 if queue_id is None else 3
        paths = [directory(topic, queue_id or 0)[:depth] for directory in _QUEUE_DIRECTORIES]
        if not any(self._made.root.joinpath(*path).exists() for path in paths):
            named = "" if queue_id is None else f" --queue-id {queue_id}"
            raise OptionError(
                f"--topic {self._request.topic}{named}: the log has no message of it; nothing was changed"
            )
        moves: list[Move] = [(path, path) for path in paths]
        merged = DurableFiles(self._made.root / _MERGED)
        for sink in LogicSinks.open(only_queues(self._config), self._files).sinks:
            record, made = (ProgressFile(files, sink.name).load() for files in (self._files, self._made))
            if record is None or made is None:
                continue  # a broker's own files: `tail` takes them over as they are
            assert isinstance(sink, QueueSink)
            takes = self._request.queue_filter.takes
            beside = sink.count_entries_beside(takes, record.end_offset)
            lives = [
                *(life for life in record.state.get(LIVES, ()) if not takes(os.fsencode(life[0]), life[1])),
                *made.state.get(LIVES, ()),
            ]
            state = {**record.state, "queue_ends": beside + made.state["queue_ends"]}
            state = {**state, LIVES: lives} if lives else {name: state[name] for name in state if name != LIVES}
            ProgressFile(merged, sink.name).store(replace(record, state=state))
            moves.append(((_MERGED, *progress_file(sink.name)), progress_file(sink.name)))
        merged.close()
        self._files.sync()
        return moves

    def _quarantine(self) -> list[Move]:
        """Merge the quarantine of the files that were made with that of the others; nothing without one."""
        if ProgressFile(self._made, Quarantine.name).load() is None:
            return []
        merged = DurableFiles(self._made.root / _MERGED)
        merge_quarantines(merged, self._files, self._made, list(self._sink_ends()))
        merged.close()
        return [((_MERGED, *path), path) for path in _QUARANTINE]

    def _sink_ends(self) -> Iterator[int]:
        """Where queues and index will end, by their progress records."""
        for name in (*_QUEUE_SINKS, IndexSink.name):
            record = ProgressFile(self._made, name).load() or ProgressFile(self._files, name).load()
            if record is not None:
                yield record.end_offset

    def _write_checkpoint(self, queues: bool, index: bool, keep_physic: bool) -> bool:
        """Write the store's checkpoint that fits what was made; False if no record was dispatched."""
        name = ConsumeQueueSink.name if queues else IndexSink.name
        record = ProgressFile(self._made, name).load()
        if record is None or record.last_record is None:
            return False
        known, store = load_store_checkpoint(self._files), self._config.store
        index_record = ProgressFile(self._made, IndexSink.name).load() if index else None
        made = known.advanced(
            record.last_record.store_timestamp,
            record.state.get("logics_msg_timestamp") if queues else None,
            index_record.state["index_msg_timestamp"] if index_record else None,
            record.state.get("logics_physical_offset") if queues and keeps_queued_offset(self._config, store) else None,
        )
        if keep_physic:
            made = replace(made, physic_msg_timestamp=known.physic_msg_timestamp)
        store_checkpoint(self._made, made)
        return True

    def _count(self) -> OutputCounts:
        root = self._made.root
        queue_files = [
            path for folder in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE) for path in (root / folder).glob("*/*/*")
        ]
        return OutputCounts(
            len({path.parent for path in queue_files}), len(queue_files), len(list((root / INDEX).glob("*")))
        )
