"""The work of a rebuild, and the files that it replaces in an output.

The plan is written to disk first, so that the same command resumes a rebuild that was stopped. With the files come the
progress records from which `reput tail` continues.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reput.sinks.dispatch.piece import QueueFilter
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.own_files import check_own
from reput.sinks.files.sink_progress import ProgressFile
from reput.sinks.files.store_path import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    MADE_FOR,
    REBUILD_PLAN,
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
from reput.sinks.table.location import TableLocation
from reput.source.errors import FIRST_FORMAT, OptionError, OutputError, check_format
from reput.source.log.log_reader import LogReader
from reput.streaming.config.broker import batch_topics, keeps_queued_offset
from reput.streaming.config.made_for import is_store, made_for, makes_all_of, recorded_in, write_record
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.output.spark_checkpoint import SPARK_CHECKPOINT_OF_LOGIC

_log = logging.getLogger("reput")
# The version of the plan's format; the plan names it from the second version on.
_VERSION = 1
# Options that change no byte of the result.
_FREE = {
    *("sparkMaster", "sparkDriverMemory", "sparkLogMaxBytes", "tailGuardMs", "logicTriggerMs", "tableTriggerMs"),
    *("rebuildMaxBytesPerWave", "rebuildMaxBytesPerPartition"),
    *("maxBytesPerPartition", "tableMaxBytesPerPartition", "maxBytesPerTrigger", "tableMaxBytesPerTrigger"),
}
# Fields that may differ when a rebuild is resumed: the place of the output, and the consent to begin.
_NOT_OF_PLAN = {"output", "yes"}


@dataclass(frozen=True)
class RebuildPlan:
    """The range `[start, end)` of the log, between whole records, and the command that it is for."""

    start: int
    end: int
    command: dict[str, Any]

    @classmethod
    def take_up(
        cls, files: DurableFiles, config: PipelineConfig, request: RebuildRequest, log: LogReader, end: int | None
    ) -> RebuildPlan:
        """Return the plan of the same command if that was stopped, or a new one; remove the files of another command.

        `end` is where the rebuild ends, None for the current end of the log.

        Raises
        ------
        OptionError
            No record begins or ends at the request's `start` or `end`.
        """
        queue = log.queue()
        least = queue.min_offset
        log_end = log.settled_end(least)
        start = least if request.start is None else request.start
        check_record_offset(log, "--from", start, least, log_end)
        if request.end is not None:
            check_record_offset(log, "--to", request.end, start, log_end)
        command = _command(config, request, log.identity(start + 1) if start < queue.end_of_files else {})
        plan = _load(files)
        if plan is not None and plan.command == command and plan.start == start and plan.end <= log_end:
            _log.info("continuing the rebuild of [%d, %d) that was stopped", plan.start, plan.end)
            return plan
        if plan is not None:
            _log.warning("the rebuild that was stopped had other options or another log: starting again")
        files.remove_tree(*REBUILD_ROOT)
        if end is None:
            end = log_end if request.end is None else request.end
        plan = cls(start, min(end, log_end), command)
        files.replace(*REBUILD_PLAN, data=json.dumps(vars(plan)).encode())
        return plan

    @staticmethod
    def drop(files: DurableFiles) -> None:
        """Remove a rebuild's plan and all that it made."""
        files.remove_tree(*REBUILD_ROOT)


def check_record_offset(log: LogReader, name: str, offset: int, least: int, most: int) -> None:
    """Raise OptionError unless `offset` is in `[least, most]` and a record begins or ends there."""
    if not least <= offset <= most:
        raise OptionError(
            f"{name} {offset}: an offset from {least} to {most} wanted, where whole records of the log begin and end"
        )
    before = log.align_down(least, offset)
    if before not in (offset, most):
        after = log.limit(before, most, 1, None)
        raise OptionError(
            f"{name} {offset} is inside the record at {before}; records begin or end at {before} and at {after}",
            physical_offset=before,
        )


def _command(config: PipelineConfig, request: RebuildRequest, identity: dict[str, int]) -> dict[str, Any]:
    values = {name: value for name, value in config.values.items() if name not in _FREE}
    # In the form in which it is read back from JSON.
    command: dict[str, Any] = json.loads(
        json.dumps(
            {
                "store": str(config.store.resolve()),
                "values": values,
                "request": {name: value for name, value in vars(request).items() if name not in _NOT_OF_PLAN},
                "log": identity,
            },
            default=str,
        )
    )
    return command


def _load(files: DurableFiles) -> RebuildPlan | None:
    path = files.root.joinpath(*REBUILD_PLAN)
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        check_format(path, found.pop("version", FIRST_FORMAT), _VERSION, file=path)
        return RebuildPlan(**found)
    except FileNotFoundError:
        # Without a plan, anything left there is useless.
        return None
    except (ValueError, TypeError, AttributeError):
        return RebuildPlan(-1, -1, {})


# ----------------------------------------------------------------------------------------------------------------------
# The request of a `reput rebuild`, and what it makes again in an output.

ONLY = ("consumequeue", "index", "table")


@dataclass(frozen=True)
class RebuildRequest:
    """The command's options; see ``cli.rebuild``.

    `start` (inclusive) and `end` (exclusive) are physical offsets, None for all the log has. `yes` replaces what is in
    the output even if the log does not explain it. `restore_forgotten` makes rows again that were forgotten.
    """

    output: Path
    table: TableLocation | None = None
    topic: str | None = None
    queue_id: int | None = None
    exclude: tuple[str, ...] = ()
    only: str | None = None
    start: int | None = None
    end: int | None = None
    yes: bool = False
    restore_forgotten: bool = False

    def check(self, config: PipelineConfig) -> None:
        """Raise OptionError if options contradict each other, or nothing is left to make."""
        if self.only not in (None, *ONLY):
            raise OptionError(f"--only {self.only}: {', '.join(ONLY[:-1])} or {ONLY[-1]} wanted")
        if self.only == "table" and self.table is None:
            raise OptionError("--only table needs --table DIR")
        if self.restore_forgotten and self.only != "table":
            raise OptionError("--restore-forgotten needs --only table")
        if self.queue_id is not None and self.topic is None:
            raise OptionError("--queue-id needs --topic")
        if self.topic is not None:
            self._check_topic(self.topic)
        if self.topic is not None and config.makes_rocksdb:
            raise OptionError("--topic makes files, and this broker keeps its queues in RocksDB: rebuild all queues")
        makes_queues = self.makes_queues(config) or self.makes_rocksdb(config)
        if not (makes_queues or self.makes_index(config) or self.makes_table):
            raise OptionError(
                "nothing to make: consumeQueueEnable and messageIndexEnable are off, or --only asks for one of them"
            )

    def _check_topic(self, topic: str) -> None:
        if self.exclude or self.table is not None or self.only not in (None, "consumequeue"):
            raise OptionError("--topic makes queues of one topic only: leave out --exclude, --table and --only")
        if self.start is not None or self.end is not None:
            raise OptionError(
                "--topic takes the log from its beginning to where the output's other queues end: no --from, no --to"
            )
        consume_queue_directory(topic.encode(), self.queue_id or 0)

    def makes_queues(self, config: PipelineConfig) -> bool:
        """Whether queues are made."""
        return self.only in (None, "consumequeue") and config.queue.consume_queue_enable

    def makes_rocksdb(self, config: PipelineConfig) -> bool:
        """Whether a RocksDB database of queues is made, instead of files."""
        return self.only in (None, "consumequeue") and config.makes_rocksdb

    def makes_index(self, config: PipelineConfig) -> bool:
        """Whether the index is made."""
        return self.only in (None, "index") and self.topic is None and config.index.message_index_enable

    @property
    def is_whole(self) -> bool:
        """Whether all that the configuration asks for is made again, and the quarantine with it."""
        return self.only is None and self.topic is None

    @property
    def is_of_all(self) -> bool:
        """Whether every queue and key of the log is made again."""
        return self.is_whole and not self.exclude and self.start is None and self.end is None

    @property
    def makes_table(self) -> bool:
        """Whether rows go to the table."""
        return self.only in (None, "table") and self.table is not None

    @property
    def queue_filter(self) -> QueueFilter:
        """The queues that are made."""
        topic = None if self.topic is None else self.topic.encode()
        return QueueFilter(topic, self.queue_id, frozenset(name.encode() for name in self.exclude))


def only_queues(config: PipelineConfig) -> PipelineConfig:
    """Return the same configuration without the index."""
    return replace(config, index=replace(config.index, message_index_enable=False))


def only_index(config: PipelineConfig) -> PipelineConfig:
    """Return the same configuration without queues."""
    return replace(config, queue=replace(config.queue, consume_queue_enable=False))


_QUEUE_SINKS = (ConsumeQueueSink.name, BatchConsumeQueueSink.name)
_QUEUE_FOLDERS = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE)
_QUEUE_DIRECTORIES = (consume_queue_directory, consume_queue_ext_directory, batch_consume_queue_directory)
_QUARANTINE = (quarantine_file(), progress_file(Quarantine.name))
_MERGED = "merged"


@dataclass(frozen=True)
class OutputCounts:
    """The numbers of queues, files of queues and index files that were made."""

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
        """Return the offset where one topic's queues must end, because the others end there; None for all queues."""
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
            if self._request.makes_rocksdb(self._config):
                assert self._config.rocksdb_folder is not None
                paths.append((self._config.rocksdb_folder,))
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
        """Write the record of the settings of the output, and return its path; return none if it need not change."""
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
            state = {**state, LIVES: sorted(lives)} if lives else {name: state[name] for name in state if name != LIVES}
            ProgressFile(merged, sink.name).store(replace(record, state=state))
            moves.append(((_MERGED, *progress_file(sink.name)), progress_file(sink.name)))
        merged.close()
        self._files.sync()
        return moves

    def _quarantine(self) -> list[Move]:
        """Merge the quarantine of the new files with that of the others; return none without one."""
        if ProgressFile(self._made, Quarantine.name).load() is None:
            return []
        merged = DurableFiles(self._made.root / _MERGED)
        merge_quarantines(merged, self._files, self._made, list(self._sink_ends()))
        merged.close()
        return [((_MERGED, *path), path) for path in _QUARANTINE]

    def _sink_ends(self) -> Iterator[int]:
        """Yield the future ends of queues and index, by their progress records."""
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
