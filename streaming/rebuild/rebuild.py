"""`reput rebuild`: make queues, index and table from the log side by side, then put them in place.

Tasks read the log's ranges; while they read more, the sinks write what they have read, wave by wave. Queues and index
are made in a directory of their own and stay there until all of it is durable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from reput.sinks.abort_file import LeftBy, abort_left_by, mark_abort
from reput.sinks.files.config_manager import is_rocksdb
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_lock import StoreLock
from reput.sinks.files.store_path import ABORT, CONSUME_QUEUE, REBUILD_ROOT, REPUT, SCRATCH
from reput.sinks.files.swap import Move, check_swap, finish_swap, swap
from reput.sinks.quarantine import Quarantine
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.queue.queue_reader import moved_entries
from reput.sinks.queue.queue_sink import QueueSink
from reput.sinks.queue.rocksdb_queue import RocksDBQueues, RocksDBQueueSink
from reput.sinks.table.message_table import MessageTable
from reput.source.errors import GIVE_YES, CommitLogRewoundError, OutputError, SinkError, UnexplainedError
from reput.source.log.log_reader import LogReader
from reput.source.log.store_layout import has_queue_files
from reput.source.options import shown
from reput.source.printable import counted
from reput.source.record.damage import STOP
from reput.streaming.config.made_for import check_made_for
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.stored_sizes import check_fits_files
from reput.streaming.effects.effects import (
    EffectsWriter,
    IndexPutTasks,
    IndexWriter,
    QuarantineStep,
    QueueAppendTasks,
    QueueWriter,
    TableWriter,
    open_quarantine_table,
)
from reput.streaming.output.hand_over import abort_while_changed, check_explained, doubt_of_log, hand_over
from reput.streaming.output.logic_sinks import LogicSinks, aligned, recover_sinks
from reput.streaming.output.paths import OutputPaths, refuse_paths_inside
from reput.streaming.rebuild.pipeline import RebuildPipeline, RebuildProgress, RebuildReport
from reput.streaming.rebuild.plan import OutputChange, RebuildPlan, RebuildRequest, only_index, only_queues
from reput.streaming.rebuild.table_repair import TableRepair
from reput.streaming.spark.kernels import prepare_kernels
from reput.streaming.tasks.executors import files_to_look_at
from reput.streaming.tasks.task_session import task_session
from reput.streaming.tasks.tasks import Tasks

_log = logging.getLogger("reput")
_SPARK_LOG = "spark.log"
# If reput's own processes read the log, Spark is only for a table that they cannot read.
_TABLE_READER = "local[1]"


class Rebuild:
    """One rebuild: entering locks the output and makes the plan, `run` does the work, leaving frees the output."""

    def __init__(self, config: PipelineConfig, request: RebuildRequest, progress: RebuildProgress) -> None:
        request.check(config)
        self._config = config
        self._request = request
        self._progress = progress
        self._log = LogReader(config.log_options(), meanwhile=lambda: prepare_kernels(with_rows=self.makes_rows))
        self._files = DurableFiles(request.output)
        self._root = request.output.joinpath(*REBUILD_ROOT)
        self._change = OutputChange(config, request, self._files)
        self._cleanup = ExitStack()
        self._rocksdb: RocksDBQueueSink | None = None

    def __enter__(self) -> Rebuild:
        """Check paths, store and options, and lock the output, all before Spark is needed.

        Raises
        ------
        ReputError
            With a message for the user.
        """
        refuse_paths_inside(self._config.log_directories, OutputPaths(self._request.output, self._request.table))
        if self._request.makes_queues(self._config) or self._request.makes_index(self._config):
            check_fits_files(self._config, self._request.output, replaces=True)
        # This comes first: a store that cannot be read leaves no trace in the output.
        segments = self._log.queue()
        if self._config.source.fail_on_data_loss:
            segments.check_no_hole(self._request.start or 0)
        with self._cleanup:
            self._cleanup.enter_context(StoreLock(self._request.output))
            self._cleanup.callback(self._files.close)
            if finish_swap(self._files):
                _log.info("finished putting in place what an earlier rebuild made")
            self._change.check()
            if not self._change.makes_all:
                check_made_for(self._config, self._config.store, self._request.output)
            if self._request.makes_rocksdb(self._config):
                self._check_database(self._request.output / str(self._config.rocksdb_folder))
            if self._replaces and not self._request.yes:
                check_explained(self._log, self._request.output, made=self._root)
            end = self._change.end(self._log)
            self._plan = RebuildPlan.take_up(self._files, self._config, self._request, self._log, end)
            self._cleanup = self._cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _check_database(self, directory: Path) -> None:
        """Check that queues in RocksDB may be replaced: there are no queues in files, and the log has its end."""
        if has_queue_files(directory.parent):
            raise OutputError(
                f"{directory.parent / CONSUME_QUEUE} has queues in files, and this broker keeps them in RocksDB alone",
                advice="nothing was changed: 'reput queues --to rocksdb' replaces them, or move them away",
                file=directory.parent / CONSUME_QUEUE,
            )
        if self._request.yes or not is_rocksdb(directory):
            return
        with RocksDBQueues.open(directory) as queues:
            behind = queues.dispatched_to - self._log.settled_end(self._log.queue().min_offset)
        if behind > 0:
            raise UnexplainedError(
                f"the queues in {directory} lead to {counted(behind, 'byte')} after the log's end",
                advice=f"nothing was changed: {GIVE_YES}",
                file=directory,
            )

    @property
    def makes_rows(self) -> bool:
        """Whether tasks make Arrow rows of what they read; see ``compile_kernels``."""
        return self._request.makes_table

    @property
    def is_small(self) -> bool:
        """Whether it reads no more of the log than one task of many would: further processes take longer to start."""
        return self._plan.end - self._plan.start <= self._config.rebuild.max_bytes_per_partition

    def shared(self) -> tuple[list[Path], list[Path]]:
        """Return the paths that tasks read, and the directory that they write into, for ``check_executors``."""
        scratch = self._files.make_directory(*REBUILD_ROOT, REPUT, SCRATCH)
        return files_to_look_at(self._log.queue()), [scratch]

    @property
    def spark_log(self) -> Path:
        """The file of Spark's own messages."""
        return self._files.make_directory(REPUT) / _SPARK_LOG

    def run(self, tasks: Tasks, spark: Callable[[], SparkSession] | None = None) -> RebuildReport:
        """Make everything and put it in place.

        The message table needs `spark`, and asks it for a session if only Spark reads it.

        Raises
        ------
        ReputError
            With a message for the user; the output is unchanged.
        """
        with ExitStack() as cleanup:
            try:
                writers = self._open(tasks, spark, cleanup)
            except CommitLogRewoundError as error:
                _log.warning("%s; starting the rebuild again", error)
                cleanup.close()
                RebuildPlan.drop(self._files)
                self._plan = RebuildPlan.take_up(
                    self._files, self._config, self._request, self._log, self._change.end(self._log)
                )
                writers = self._open(tasks, spark, cleanup)
            quarantine = self._open_quarantine(writers, cleanup)
            ends = _ends(writers) if quarantine is None else [*_ends(writers), quarantine.end_offset]
            start = min(self._plan.end, max(self._plan.start, aligned(self._log, min(ends))))
            self._progress.begin(self._plan.start, start, self._plan.end)
            pipeline = RebuildPipeline(
                tasks, self._config, self._request, self._log, self._root, writers, quarantine, self._progress
            )
            self._read_rows(pipeline, start)
            if self._rocksdb is not None:
                self._rocksdb.finish()
            self._refuse_joined_lives(writers)
            self._note_moved(writers)
        began = time.monotonic()
        doubt = doubt_of_log(self._files, self._log, self._config)
        moves = self._change.prepare(keep_physic=doubt is not None)
        counts = self._change.counts
        if self._rocksdb is not None:
            counts = replace(counts, queues=self._rocksdb.queue_count, queue_files=len(list(self._rocksdb.files())))
        if moves:
            self._put_in_place(moves, doubt)
        else:
            RebuildPlan.drop(self._files)
        self._progress.add_seconds("swap", time.monotonic() - began)
        return self._progress.report(counts)

    def _read_rows(self, pipeline: RebuildPipeline, start: int) -> None:
        """Read the log from `start` on; with ``failOnDataLoss=false`` it may have several rows of segments."""
        rows = self._log.queue().rows(start, self._plan.end) or [(start, self._plan.end)]
        for begin, end in rows:
            if begin > start:
                pipeline.pass_over(start, begin)
            pipeline.run(begin, end)
            start = end
        if start < self._plan.end:
            pipeline.pass_over(start, self._plan.end)

    @property
    def _replaces(self) -> bool:
        return self._request.makes_queues(self._config) or self._request.makes_index(self._config)

    def _put_in_place(self, moves: Sequence[Move], doubt: str | None) -> None:
        """Swap, with `abort` in the output meanwhile; a rebuild of all may also clear the `abort` of a broker."""
        may_empty = self._request.yes or self._plan.end > self._plan.start
        database = self._config.rocksdb_folder if self._rocksdb is not None else None
        check_swap(self._files, moves, may_empty=may_empty, database=database)
        if not (self._request.is_of_all and self._request.makes_queues(self._config)):
            with abort_while_changed(self._files):
                swap(self._files, moves, may_empty=may_empty, database=database)
            if database is not None and self._plan.end < self._log.settled_end(self._plan.start):
                # Without it, 5.5.0 passes over the record that begins where a database is dispatched to.
                mark_abort(self._files)
                _log.info("%s stays: the database ends before the log", self._files.root / ABORT)
            return
        if abort_left_by(self._files.root) is not LeftBy.BROKER:
            mark_abort(self._files)
        swap(self._files, moves, may_empty=may_empty)
        handed = hand_over(self._files, self._log, [("the rebuild", self._plan.end)], doubt)
        if handed is not None:
            _log.info("%s", handed.text())

    def _open(self, tasks: Tasks, spark: Callable[[], SparkSession] | None, cleanup: ExitStack) -> list[EffectsWriter]:
        """Return the recovered writers; each has files of its own, since each is written by its own thread."""
        writers: list[EffectsWriter] = []
        if self._request.makes_queues(self._config):
            logic = LogicSinks.open(only_queues(self._config), self._own_files(cleanup))
            write = QueueAppendTasks(tasks, self._root, self._config.queue.mapped_file_size_consume_queue)
            writers.append(QueueWriter(logic.sinks, write))
        if self._request.makes_index(self._config):
            index = LogicSinks.open(only_index(self._config), self._own_files(cleanup)).index
            assert index is not None
            put = IndexPutTasks(tasks, self._root) if tasks.is_on_cluster else None
            writers.append(IndexWriter(index, put))
        if self._request.makes_rocksdb(self._config):
            assert self._config.rocksdb_folder is not None
            self._rocksdb = RocksDBQueueSink(self._own_files(cleanup), self._config.rocksdb_folder)
            cleanup.callback(self._rocksdb.close)
            writers.append(QueueWriter([self._rocksdb]))
        for writer in writers:
            recover_sinks(writer.sinks, self._log_from_start(), fail_on_data_loss=True)
        if self._request.makes_table:
            assert spark is not None
            assert self._request.table is not None
            begin = self._log.queue().min_offset
            table = MessageTable(
                self._request.table,
                self._config.broker.name,
                self._files,
                log_begin=begin,
                body_bytes_max=self._config.table.body_limit,
            )
            if self._request.only == "table":
                restores = self._request.restore_forgotten
                repair = TableRepair(spark, tasks, self._config, table, self._files, restores_forgotten=restores)
                repair.run(self._request.start, self._request.end)
            recover_sinks([table], self._log_from_start(), fail_on_data_loss=self._config.source.fail_on_data_loss)
            writers.append(TableWriter(table))
        return writers

    def _open_quarantine(self, writers: list[EffectsWriter], cleanup: ExitStack) -> QuarantineStep | None:
        """Return the step that records what is left out; None if damage ends the rebuild."""
        policy = self._config.source.on_damage
        if policy == STOP:
            return None
        quarantine = Quarantine(self._own_files(cleanup), self._config.broker.name, policy)
        ends = _ends(writers)
        quarantine.recover(max(self._plan.start, min(ends)), max(ends))
        table = None
        if self._request.makes_table:
            assert self._request.table is not None
            table = open_quarantine_table(self._request.table, self._config.broker.name, quarantine, self._root)
        queues = (sink for writer in writers for sink in writer.sinks if isinstance(sink, ConsumeQueueSink))
        return QuarantineStep(quarantine, self._log, next(queues, None), table)

    def _refuse_joined_lives(self, writers: list[EffectsWriter]) -> None:
        """Refuse a rebuild that would remove entries from a queue that a broker made from both lives of a topic."""
        sinks = [sink for writer in writers for sink in writer.sinks if isinstance(sink, QueueSink)]
        joined = [queue for sink in sinks for queue in sink.joined_lives()]
        if not joined:
            return
        RebuildPlan.drop(self._files)
        topic, queue_id, queue_offset = joined[0]
        others = f", and {len(joined) - 1} more queues" if len(joined) > 1 else ""
        raise SinkError(
            f"queue {shown(topic.decode('utf-8', 'backslashreplace'))}-{queue_id}{others}: the topic was deleted and "
            f"made again, but a later message has queue offset {queue_offset}, where a broker continues that has made "
            "the queue again from the whole log; nothing was changed",
            advice="--option queueRestart=replay makes such queues as that broker did",
        )

    def _note_moved(self, writers: list[EffectsWriter]) -> None:
        """Note the entries that have a smaller number than their message's queue offset; refuse to move today's."""
        sinks = [sink for writer in writers for sink in writer.sinks if isinstance(sink, ConsumeQueueSink)]
        self._progress.on_moved({queue: count for sink in sinks for queue, count in sink.moved().items()})
        if self._request.yes:
            return
        counts = [
            moved_entries(replace(made, root=self._request.output), made)
            for sink in sinks
            for made in (sink.reader(*queue) for queue in sink.moved())
        ]
        if not any(counts):
            return
        RebuildPlan.drop(self._files)
        entries, way_out = counted(sum(counts), "entry", "entries"), "restore what is damaged in the log"
        why = "records before them are damaged or name another queue"
        for begin, end in self._progress.missing[:1]:
            why, way_out = f"the log lacks [{begin}, {end})", "restore the segments that are missing"
        raise UnexplainedError(
            f"{why}, so this rebuild would move {entries} of {counted(sum(map(bool, counts)), 'queue')} to smaller "
            "queue offsets than their messages have: consumers would continue after messages that they have not read",
            advice=f"nothing was changed: {way_out}, or give --yes",
            file=self._request.output,
        )

    def _own_files(self, cleanup: ExitStack) -> DurableFiles:
        files = DurableFiles(self._root, whole=True)
        cleanup.callback(files.close)
        return files

    def _log_from_start(self) -> LogReader:
        return LogReader(self._config.log_options(startingOffset=self._plan.start))


def rebuild(
    config: PipelineConfig, request: RebuildRequest, command: str, *, began: float | None = None, verbose: bool = False
) -> RebuildReport:
    """Do what `request` asks for, with the processes or the Spark session that it needs.

    Parameters
    ----------
    command
        The command's name, for Spark.
    began
        When the command began, by ``time.monotonic``; None: now.
    verbose
        Whether Spark's own messages go to the terminal.

    Raises
    ------
    ReputError
        With a message for the user.
    """
    progress = RebuildProgress(time.monotonic() if began is None else began)
    with Rebuild(config, request, progress) as job:
        read, written = job.shared()
        with task_session(
            config,
            command,
            table_master=_TABLE_READER if request.makes_table else None,
            spark_log=None if verbose else job.spark_log,
            alone=job.is_small,
            with_rows=job.makes_rows,
            table=request.table,
            read=read,
            written=written,
        ) as session:
            return job.run(session.tasks, session.spark if request.makes_table else None)


def _ends(writers: list[EffectsWriter]) -> list[int]:
    return [sink.end_offset for writer in writers for sink in writer.sinks]
