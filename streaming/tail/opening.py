"""Opening the queries of a run, at the start and after a failure: sinks, recovered and checked, then Spark.

An opening is always the same; after the first one, it never makes a table or a setting of the store again that existed
before.

While Spark starts a query, the work that its first micro-batch would otherwise wait for is rehearsed. The first job of
a session takes half a second longer than later ones: Spark loads and compiles the code for such jobs, and every core
starts its workers. A first micro-batch without a job does not wait for that, and a start has no processor to spare:
then only the processes for planning are started.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from reput.sinks.dispatch.arrival import ArrivalListener
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import REPUT, SCRATCH
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.table.delta_table import is_table
from reput.sinks.table.message_file import TableFileWriter
from reput.sinks.table.message_table import MessageTable
from reput.sinks.table.storage import table_storage
from reput.sinks.table.upkeep import TableUpkeep
from reput.source.data_source import CommitLogStreamReader
from reput.source.errors import CommitLogRewoundError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.source.stream_answers import StreamAnswers
from reput.source.system import take_memory
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.effects.effects import QuarantineStep, open_quarantine_table
from reput.streaming.effects.range_task import RangeTask
from reput.streaming.effects.write_step import WriteStep
from reput.streaming.output.logic_sinks import aligned, recover_sinks
from reput.streaming.output.paths import LOGIC, TABLE, OutputPaths
from reput.streaming.output.spark_checkpoint import forget, forget_planned_batch, path_for_spark, spark_offset
from reput.streaming.process.environment import run_directory
from reput.streaming.process.process_log import at_work_for, broker_of_thread
from reput.streaming.spark.session import Sessions
from reput.streaming.spark.warm_up import small_record, write_small_log
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail.logic_output import LogicOutput
from reput.streaming.tail.micro_batch import BatchSizes, Dispatch, read_ranges
from reput.streaming.tail.query import BatchGate, OpenQuery, SparkProgress, StoppedBetweenBatchesError
from reput.streaming.tail.ranges import no_ranges, plan_without_code, ranges_between, stream_ranges
from reput.streaming.tail.upkeep import BatchUpkeep, CleanConsumeQueueService
from reput.streaming.tasks.executors import check_executors, files_to_look_at, runs_elsewhere

_log = logging.getLogger("reput")
# The table's upkeep gets at least this time after a batch, however short the trigger.
_UPKEEP_SECONDS_MIN = 0.5
_POOL = "spark.scheduler.pool"
# Names of the sockets where this process answers Spark's questions about its queries' logs.
_sockets = count(1)


def check_shared(
    spark: SparkSession,
    paths: OutputPaths,
    log: LogReader,
    names: Sequence[str],
    is_stopped: Callable[[], bool],
    *,
    must_exist: bool,
) -> None:
    """Check that a cluster has what tasks for `names` (LOGIC, TABLE) need; errors as in `check_executors`.

    If a table that `must_exist` cannot be reached, the caller that opens it reports that.

    Raises
    ------
    StoppedBetweenBatchesError
        It `is_stopped` meanwhile.
    """
    if not runs_elsewhere(spark):
        return
    written, table = [], paths.table if TABLE in names else None
    if must_exist and table is not None and not is_table(table):
        table = None
    if LOGIC in names:
        with closing(DurableFiles(paths.output)) as files:
            written.append(files.make_directory(REPUT, SCRATCH))
    read = files_to_look_at(log.queue())
    if not check_executors(spark, read, written, table, is_stopped):
        raise StoppedBetweenBatchesError


@dataclass(frozen=True)
class OpenTable:
    """The message table, recovered; its own reader of the log; the files of its progress record."""

    messages: MessageTable
    log: LogReader
    files: DurableFiles

    def close(self) -> None:
        """Close the files."""
        self.files.close()


class QueryOpener:
    """Opens the queries of one run, each as often as needed.

    Attributes
    ----------
    logic
        The queues and the index of the last opening, recovered.
    """

    def __init__(
        self,
        config: PipelineConfig,
        paths: OutputPaths,
        logic: LogicOutput,
        reporter: ProgressReporter,
        on_arrival: ArrivalListener | None,
        *,
        check_output: Callable[[], None],
        is_stopped: Callable[[], bool],
        available_now: bool,
    ) -> None:
        """Take `logic`, recovered and not used yet; `check_output` raises if nothing may be written to the output."""
        self._config = config
        self._paths = paths
        self.logic = logic
        self._reporter = reporter
        self._on_arrival = on_arrival
        self._check_output = check_output
        self._is_stopped = is_stopped
        self._available_now = available_now
        self._begin = logic.log.initial_offset()
        self._fails = config.source.fail_on_data_loss

    def first(self) -> list[Dispatch]:
        """Open each query's sinks: one query for queues with index and one for the table, or one for both.

        One query for both reads the log once. For that both must end at the same physical offset, and the run must end
        with the log; otherwise each would delay the other.
        """
        with ExitStack() as stack:
            table = None
            if self._paths.table is not None:
                table = self._table(must_exist=False)
                stack.callback(table.close)
            dispatches = self._first(table)
            stack.pop_all()
        return dispatches

    def _first(self, table: OpenTable | None) -> list[Dispatch]:
        logic, quarantine = self.logic.logic, self.logic.quarantine
        if not logic.sinks and quarantine is None:
            return [] if table is None else [self._table_dispatch(table)]
        if table is None:
            return [self._logic_dispatch(must_exist=False)]
        ends = [*(sink.end_offset for sink in logic.sinks), table.messages.end_offset]
        if quarantine is not None:
            ends.append(quarantine.end_offset)
        if self._available_now and len({aligned(self.logic.log, end) for end in ends}) == 1:
            forget(self._paths.checkpoint_of(TABLE))  # it would fall behind, and a later start would begin there
            return [self._logic_dispatch(must_exist=False, table=table)]
        return [self._logic_dispatch(must_exist=False), self._table_dispatch(table)]

    def again(self, sessions: Sessions, names: Sequence[str]) -> OpenQuery:
        """Open the query that keeps `names` (LOGIC, TABLE) again; the one before must be closed.

        Raises
        ------
        ReputError
            As at a start, or from ``StoreLock.check_in_place``.
        """
        self._check_output()
        spark = sessions.current()
        check_shared(spark, self._paths, self.logic.log, names, self._is_stopped, must_exist=True)
        with at_work_for(broker_of_thread(), names[0]), ExitStack() as stack:
            table = None
            if TABLE in names:
                table = self._table(must_exist=True)
                stack.callback(table.close)
            if LOGIC in names:
                self.logic = self.logic.anew(self.logic.log.beginning_at(self._begin))
                stack.callback(self.logic.close)
                self.logic.check_taken_over()
                self.logic.recover_sinks()
                self.logic.recover_quarantine()
                dispatch = self._logic_dispatch(must_exist=True, table=table)
            else:
                assert table is not None
                dispatch = self._table_dispatch(table)
            opened = self.start(sessions, spark, dispatch)
            stack.pop_all()
        return opened

    def start(self, sessions: Sessions, spark: SparkSession, dispatch: Dispatch) -> OpenQuery:
        """Bring the sinks up to Spark's checkpoint, and start Spark's query.

        Raises
        ------
        StoppedBetweenBatchesError
            A stop was asked for meanwhile.
        """
        checkpoint = self._paths.checkpoint_of(dispatch.names[0])
        began_at, broker = dispatch.end_offset, broker_of_thread()
        if broker is not None:  # Spark's query keeps the pool of the thread that starts it
            spark.sparkContext.setLocalProperty(_POOL, _called(dispatch.names[0], broker))
        forget_planned_batch(checkpoint, dispatch.log)
        with at_work_for(broker, dispatch.names[0]):
            catch_up(spark, self._config, dispatch, checkpoint, self._is_stopped)
        if self._is_stopped():  # the sinks may not have reached the checkpoint
            raise StoppedBetweenBatchesError
        self._check_output()
        progress = SparkProgress(dispatch.names[0], self._reporter.state)

        def before_batch() -> None:
            self._check_output()
            progress.note()

        gate = BatchGate(dispatch, before_batch, broker, plan_without_code)
        query, answers = self._start(spark, dispatch, gate)
        progress.watch(query)
        for name in dispatch.names:
            self._reporter.state.on_running(name, aligned(dispatch.log, dispatch.end_offset))
        return OpenQuery(dispatch, gate, query, answers, progress, began_at, partial(sessions.is_lost, spark))

    def _start(self, spark: SparkSession, dispatch: Dispatch, gate: BatchGate) -> tuple[StreamingQuery, StreamAnswers]:
        name, sizes = dispatch.names[0], BatchSizes.of(self._config, dispatch.names)
        dispatch.small.begin = aligned(dispatch.log, dispatch.end_offset)
        options = self._config.source_options(
            # Only a first batch needs this: the sinks, not Spark's checkpoint, record where batch 0 begins.
            startingOffset=dispatch.small.begin,
            maxBytesPerTrigger=sizes.bytes_a_batch,
            maxMessagesPerTrigger=sizes.messages_a_batch,
            maxBytesPerPartition=sizes.bytes_a_range,
        )
        called = _called(name, broker_of_thread())
        path = run_directory() / f"{next(_sockets)}.socket"
        with ExitStack() as stack:
            reader = partial(CommitLogStreamReader, SourceOptions.parse(options), warns=False)
            answers = StreamAnswers(path, reader)
            stack.callback(answers.close)
            ranges = stream_ranges(spark, {**options, "answersAt": path})
            writer = ranges.writeStream.queryName(called).foreachBatch(gate)
            writer = writer.option("checkpointLocation", str(path_for_spark(self._paths.checkpoint_of(name))))
            if self._available_now:
                writer = writer.trigger(availableNow=True)
            else:
                period_ms = (self._config.table if name == TABLE else self._config.logic).trigger_ms
                writer = writer.trigger(processingTime=f"{period_ms} milliseconds")
            query = writer.start()
            stack.pop_all()
        return query, answers

    def _logic_dispatch(self, *, must_exist: bool, table: OpenTable | None = None) -> Dispatch:
        """Return the dispatch for queues and index, and for the table, if that is given."""
        output, quarantine = self.logic, None
        if output.quarantine is not None:
            quarantine = self._quarantine_step(must_exist=must_exist)
        step = WriteStep(
            *(output.logic, output.files, output.log.decode_options),
            arrivals=self._on_arrival is not None,
            quarantine=quarantine,
            table=None if table is None else table.messages,
        )
        clean = CleanConsumeQueueService(
            *(output.logic.sinks, output.log, self._config.logic.clean_resource_interval),
            report=lambda report: self._reporter.on_clean(report.removed),
        )
        return Dispatch(
            *(self._config, self._paths, self._reporter, output.log, step),
            [output.files, *([] if table is None else [table.files])],
            topics=output,
            clean=clean,
            upkeep=None if table is None else self._upkeep(table.messages),
            on_arrival=self._on_arrival,
        )

    def _table_dispatch(self, table: OpenTable) -> Dispatch:
        step = WriteStep(None, table.files, table.log.decode_options, table=table.messages)
        return Dispatch(
            *(self._config, self._paths, self._reporter, table.log, step, [table.files]),
            upkeep=self._upkeep(table.messages),
        )

    def _table(self, *, must_exist: bool) -> OpenTable:
        """Open the table and find its end."""
        assert self._paths.table is not None
        log, files = self.logic.log.beginning_at(self._begin), DurableFiles(self._paths.output)
        with at_work_for(broker_of_thread(), TABLE), ExitStack() as stack:
            stack.callback(files.close)
            table = MessageTable(
                self._paths.table,
                self._config.broker.name,
                files,
                log_begin=log.queue().min_offset,
                accepts_loss=not self._fails,
                body_bytes_max=self._config.table.body_limit,
                must_exist=must_exist,
            )
            recover_sinks([table], log, fail_on_data_loss=self._fails)
            stack.pop_all()
        return OpenTable(table, log, files)

    def _upkeep(self, table: MessageTable) -> BatchUpkeep | None:
        config = self._config.table
        if not config.upkeep:
            return None
        upkeep = TableUpkeep(table.delta, self._config.broker.name, config.versions_kept, config.retention)
        seconds = max(config.trigger_ms / 2000, _UPKEEP_SECONDS_MIN)
        full_batch = BatchSizes.of(self._config, (TABLE,)).bytes_a_batch
        return BatchUpkeep(upkeep, seconds, full_batch, self._reporter.on_upkeep)

    def _quarantine_step(self, *, must_exist: bool) -> QuarantineStep:
        quarantine, table = self.logic.quarantine, None
        assert quarantine is not None
        if self._paths.table is not None:
            broker, output = self._config.broker.name, self._paths.output
            table = open_quarantine_table(self._paths.table, broker, quarantine, output, must_exist=must_exist)
        queues = [sink for sink in self.logic.logic.sinks if isinstance(sink, ConsumeQueueSink)]
        return QuarantineStep(quarantine, self.logic.log, queues[0] if queues else None, table)


def _called(query: str, broker: str | None) -> str:
    """Return the name of a query, and of its pool, in Spark: the names in one session differ."""
    return query if broker is None else f"{query} of {broker}"


# ----------------------------------------------------------------------------------------------------------------------
# Bringing sinks up to Spark's checkpoint.


def catch_up(
    spark: SparkSession,
    config: PipelineConfig,
    dispatch: Dispatch,
    checkpoint: Path,
    is_stopped: Callable[[], bool],
) -> None:
    """Bring a query's sinks up to Spark's checkpoint, reading the log in batches of the query's size.

    It ends earlier, between two batches, when `is_stopped`.
    """
    target, sizes, log = spark_offset(checkpoint), BatchSizes.of(config, dispatch.names), dispatch.log
    while target is not None and dispatch.end_offset < target and not is_stopped():
        start = aligned(log, dispatch.end_offset)
        end = log.limit(start, target, sizes.bytes_a_batch, sizes.messages_a_batch)
        _log.info("%s: bringing the sinks from %d to %d, where Spark's checkpoint is", dispatch.names[0], start, end)
        options = config.source_options(
            startingOffset=start,
            endingOffset=end,
            maxBytesPerPartition=sizes.bytes_a_range,
        )
        before = dispatch.end_offset
        dispatch(ranges_between(spark, options), -1)
        dispatch.settle()
        if dispatch.end_offset <= before:
            raise CommitLogRewoundError(
                f"Spark's checkpoint {checkpoint} is at offset {target}, and the log has nothing behind {before}: it "
                "was cut, or the checkpoint is another log's",
                advice="'reput recover' brings queues and index back to the log and forgets their checkpoint; 'reput "
                "rebuild --only table' does so for the table",
                file=checkpoint,
                physical_offset=before,
            )


_SEGMENT_BYTES = 64 * 1024
# The memory for a range of 256 MiB with small records, see `take_memory`.
_BLOCKS, _BLOCKS_WITH_TABLE = 1, 3


def rehearse_planning(spark: SparkSession) -> None:
    """Have Spark start the Python processes with which it plans a read; no job runs."""
    no_ranges(spark).rdd.getNumPartitions()


def rehearse(spark: SparkSession, task: RangeTask, broker: str, *, with_table: bool, is_far_behind: bool) -> None:
    """Read a log of one record per core with `task`, and `with_table` write files of a table from it.

    If the first batch `is_far_behind` the log's end, the workers also take the memory that full ranges need. All files
    are in this run's directory, which only the processes of this machine see; they are removed on return.
    """
    decode = replace(task.decode, check_crc=False)
    with _small_log(spark.sparkContext.defaultParallelism) as options:
        writer = None
        if with_table:
            table = Path(options["path"]).with_name("messages")
            writer = TableFileWriter(table_storage(table), broker, 0, decode)
        task = replace(task, decode=decode, file_writer=writer)
        prepare = partial(take_memory, _BLOCKS_WITH_TABLE if with_table else _BLOCKS) if is_far_behind else None
        ranges = ranges_between(spark, options)
        # A core has two workers, which take turns: one gives a task its range and one reads it.
        for _ in range(2):
            read_ranges(ranges, task, prepare)


@contextmanager
def _small_log(records: int) -> Iterator[dict[str, Any]]:
    """Make a log in this run's directory for a ``with`` block; yield the source's options: a range a record."""
    with tempfile.TemporaryDirectory(dir=run_directory(), prefix="rehearsal-") as directory:
        commit_log = Path(directory, "commitlog")
        write_small_log(commit_log, _SEGMENT_BYTES, records)
        yield {
            "path": commit_log,
            "mappedFileSizeCommitLog": _SEGMENT_BYTES,
            "maxBytesPerPartition": len(small_record()),
            "tailGuardMs": 0,
        }
