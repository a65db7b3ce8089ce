"""The continuous queries: `logic` for queues and index, `table` for the message table, in one process."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from reput.sinks.dispatch.arrival import ArrivalListener
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_lock import StoreLock
from reput.sinks.files.store_path import REPUT
from reput.sinks.files.swap import finish_swap
from reput.sinks.quarantine import Quarantine, expired_range
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.table.message_table import MessageTable
from reput.sinks.table.upkeep import TableUpkeep
from reput.source.errors import OptionError, remote_error
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.source.segments.damage import STOP
from reput.streaming.config.made_for import check_made_for, record_in
from reput.streaming.config.master import processes_of
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.effects.range_task import RangeTask
from reput.streaming.output.hand_over import abort_while_written, check_taken_over
from reput.streaming.output.log_end import LogEndWatch
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.output.paths import OutputPaths, refuse_paths_inside
from reput.streaming.output.quarantine_step import QuarantineStep, open_quarantine_table
from reput.streaming.output.spark_checkpoint import LOGIC, TABLE, forget, forget_planned_batch
from reput.streaming.output.startup import aligned, recover_sinks
from reput.streaming.process.failures import failure_of, first_line, is_passing, text_of
from reput.streaming.process.jvm import has_jvm_died
from reput.streaming.spark.job import Beside, start_workers
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail.batch_sizes import BatchSizes
from reput.streaming.tail.catch_up import catch_up
from reput.streaming.tail.clean_consume_queue import CleanConsumeQueueService
from reput.streaming.tail.log_continuity import BadEndWatch, LogContinuity
from reput.streaming.tail.micro_batch import BatchGate, BatchUpkeep, Dispatch, LogicDispatch, TableDispatch
from reput.streaming.tail.ranges import stream_ranges
from reput.streaming.tail.rehearsal import rehearse

_POLL_SECONDS = 0.2
_SPARK_LOG = "spark.log"
# How long a stopped query may take to note that its last batch is done.
_STOP_SECONDS = 10.0
# Between two polls of an idle log, Spark is at rest only for its `pollingDelay`, which must not be missed.
_STOP_POLL_SECONDS = 0.003
# How often to check that the output is still the one that was locked, and what a query waits at.
_LOOKED_AT_S = 1.0
# How often a table is tidied to which nothing comes; rows expire at midnight.
_TIDIED_AFTER_S = 1800.0
# Pauses before a query that Spark ended for a reason that may pass is started again; after the last, the run ends.
_PAUSES_S = (1.0, 5.0, 15.0)
# What the table's upkeep gets after a batch, however short the trigger.
_UPKEEP_SECONDS_MIN = 0.5
_log = logging.getLogger("reput")


@dataclass
class RunningQuery:
    """One query: what it does, and how often it was restarted since its dispatch last advanced."""

    dispatch: Dispatch
    gate: BatchGate
    query: StreamingQuery
    restarts: int = 0
    restarted_at: int = -1

    def failure(self, error: Exception) -> BaseException:
        """What ended the query with Spark's `error`: what a batch or the source raised, as it was, or else `error`."""
        return self.gate.failure or remote_error(text_of(error)) or error


class Tail:
    """One run: entering locks and recovers the output, `run` runs the queries, leaving frees the output."""

    def __init__(
        self,
        config: PipelineConfig,
        paths: OutputPaths,
        reporter: ProgressReporter,
        on_arrival: ArrivalListener | None = None,
    ) -> None:
        """`on_arrival` is called after each micro-batch of `logic`, with the queues that got messages (``arrival``)."""
        self._config = config
        self._paths = paths
        self._reporter = reporter
        self._on_arrival = on_arrival
        start, since = config.source.starting_offset, config.source.starting_timestamp
        options = SourceOptions.parse(config.source_options(startingOffset=start, startingTimestamp=since))
        self._log = LogReader(options)
        self._log_end = LogEndWatch(LogReader(options))
        self._lock: StoreLock | None = None
        self._files = DurableFiles(paths.output)
        self._bad_end = BadEndWatch()
        self._stop = threading.Event()
        self._cleanup = ExitStack()
        self._logic = LogicSinks.open(config, self._files)
        policy = config.source.on_damage
        self._quarantine = None if policy == STOP else Quarantine(self._files, config.broker.name, policy)

    def __enter__(self) -> Tail:
        """Check the paths and the store, lock the output and recover its files, all before Spark is needed.

        Raises
        ------
        ReputError
            With a message for the user.
        """
        if not self._logic.sinks and self._paths.table is None:
            raise OptionError(
                "nothing to keep: consumeQueueEnable and messageIndexEnable are off, and there is no --table"
            )
        refuse_paths_inside(self._config.log_directories, self._paths)
        self._log.initial_offset()  # this comes first: a store that cannot be read leaves no trace in the output
        with self._cleanup:
            self._lock = self._cleanup.enter_context(StoreLock(self._paths.output))
            self._cleanup.callback(self._files.close)
            finish_swap(self._files)
            check_made_for(self._config, self._config.store, self._paths.output)
            fail_on_data_loss = self._config.source.fail_on_data_loss
            names = [sink.name for sink in self._logic.sinks]
            check_taken_over(self._paths.output, names, self._log, fail_on_data_loss=fail_on_data_loss)
            self._cleanup.enter_context(abort_while_written(self._files, self._logic.sinks, self._log))
            recover_sinks(self._logic.sinks, self._log, fail_on_data_loss=fail_on_data_loss)
            # A new output has no file before its first batch; the files of an older one fit these settings.
            record_in(self._files, self._config, self._config.store)
            ends = [sink.end_offset for sink in self._logic.sinks]
            start = min(ends, default=self._log.initial_offset())
            if self._quarantine is not None:
                # If there is only a table, where it ends is known only with Spark.
                self._recover_quarantine(self._quarantine, start, max(ends, default=self._log.queue().end_of_files))
            self._log.end(aligned(self._log, start))  # a hole in the log is an error before Spark starts
            self._cleanup = self._cleanup.pop_all()
        return self

    def _recover_quarantine(self, quarantine: Quarantine, least_end: int, most_end: int) -> None:
        quarantine.recover(least_end, most_end)
        # The sinks passed over what has expired (or there are none, and all begins where the log begins).
        least = self._log.queue().min_offset
        if not self._config.source.fail_on_data_loss:
            least = self._log.next_available(quarantine.end_offset)
        if quarantine.end_offset < least:
            quarantine.write(least, [expired_range(quarantine.end_offset, least)])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock and the files; a failure is passed on to ``abort_while_written``."""
        self._cleanup.__exit__(kind, error, trace)

    @property
    def spark_log(self) -> Path:
        """Where Spark's own messages go."""
        return self._files.make_directory(REPUT) / _SPARK_LOG

    def stop(self) -> None:
        """Ask for a stop between batches; a signal handler may call this."""
        self._stop.set()

    def run(self, spark: SparkSession, *, available_now: bool) -> None:
        """Run until the end of the log (`available_now`) or until `stop`.

        Raises
        ------
        ReputError
            With a message for the user; a query's own exception otherwise.
        """
        preparation = Beside(partial(start_workers, spark), partial(self._rehearse, spark))
        try:
            dispatches = self._dispatches(spark, available_now=available_now)
            self._run_queries(spark, dispatches, available_now=available_now)
        finally:
            preparation.join()

    def _rehearse(self, spark: SparkSession) -> None:
        if processes_of(self._config.spark.master) is None:
            return
        task = RangeTask(self._log.decode_options, self._logic.needs if self._logic.sinks else None)
        start = min((sink.end_offset for sink in self._logic.sinks), default=0)
        rehearse(
            *(spark, task, self._config.broker.name),
            with_table=self._paths.table is not None,
            is_far_behind=self._log.queue().end_of_files - start > self._config.logic.max_bytes_per_trigger,
        )

    def _dispatches(self, spark: SparkSession, *, available_now: bool) -> list[Dispatch]:
        """What the queries do: one each for queues with index and for the table, or one for both.

        One query for both reads the log once. They must stand at the same physical offset, and both want nothing but
        to get to the log's end; otherwise neither holds the other up.
        """
        table = self._table_dispatch(spark)
        if not self._logic.sinks and self._quarantine is None:
            return [] if table is None else [table]
        quarantine = None if self._quarantine is None else self._quarantine_step(spark, self._quarantine)
        logic = partial(
            LogicDispatch,
            *(self._logic, self._files, self._log.decode_options, self._continuity(LOGIC), self._reporter.on_batch),
            *(self._on_arrival, quarantine),
            clean=CleanConsumeQueueService(
                *(self._logic.sinks, self._log, self._config.logic.clean_resource_interval),
                report=lambda report: self._reporter.on_clean(report.removed),
            ),
        )
        if table is None:
            return [logic()]
        ends = [*(sink.end_offset for sink in self._logic.sinks), table.end_offset]
        if self._quarantine is not None:
            ends.append(self._quarantine.end_offset)
        if available_now and len({aligned(self._log, end) for end in ends}) == 1:
            forget(self._paths.checkpoint_of(TABLE))  # Spark would begin where it is, and it stays behind
            return [logic(table=table)]
        return [logic(), table]

    def _table_dispatch(self, spark: SparkSession) -> TableDispatch | None:
        if self._paths.table is None:
            return None
        fails = self._config.source.fail_on_data_loss
        begin = self._log.queue().min_offset
        files = self._files.beside()  # another thread writes the queues meanwhile
        table = MessageTable(
            spark,
            self._paths.table,
            self._config.broker.name,
            files,
            log_begin=begin,
            accepts_loss=not fails,
            body_bytes_max=self._config.table.body_limit,
        )
        recover_sinks([table], self._log, fail_on_data_loss=fails)
        decode, report = self._log.decode_options, self._reporter.on_batch
        return TableDispatch(table, decode, self._continuity(TABLE), report, self._upkeep(table))

    def _upkeep(self, table: MessageTable) -> BatchUpkeep | None:
        config = self._config.table
        if not config.upkeep:
            return None
        upkeep = TableUpkeep(table.delta, self._config.broker.name, config.versions_kept, config.retention)
        seconds = max(config.trigger_ms / 2000, _UPKEEP_SECONDS_MIN)
        full_batch = BatchSizes.of(self._config, (TABLE,)).bytes_a_batch
        return BatchUpkeep(upkeep, seconds, full_batch, self._reporter.on_upkeep)

    def _continuity(self, query: str) -> LogContinuity:
        return LogContinuity(query, self._log, fail_on_data_loss=self._config.source.fail_on_data_loss)

    def _quarantine_step(self, spark: SparkSession, quarantine: Quarantine) -> QuarantineStep:
        table = None
        if self._paths.table is not None:
            broker, output = self._config.broker.name, self._paths.output
            table = open_quarantine_table(spark, self._paths.table, broker, quarantine, output)
        queues = [sink for sink in self._logic.sinks if isinstance(sink, ConsumeQueueSink)]
        return QuarantineStep(quarantine, self._log, queues[0] if queues else None, table)

    def _run_queries(self, spark: SparkSession, dispatches: Sequence[Dispatch], *, available_now: bool) -> None:
        self._reporter.start(self._log_end)
        running: list[RunningQuery] = []
        try:
            self._log_end.look_ahead(aligned(self._log, min(each.end_offset for each in dispatches)))
            for dispatch in dispatches:
                checkpoint = self._paths.checkpoint_of(dispatch.names[0])
                forget_planned_batch(checkpoint, self._log)
                catch_up(spark, self._config, dispatch, checkpoint, self._log)
                gate = BatchGate(dispatch)
                query = self._start(spark, dispatch, gate, available_now=available_now)
                running.append(RunningQuery(dispatch, gate, query))
                for name in dispatch.names:
                    self._reporter.state.on_running(name, dispatch.end_offset)
            self._wait(spark, running, available_now=available_now)
            if available_now and not self._stop.is_set():
                for dispatch in dispatches:
                    dispatch.finish()
        except Exception as error:
            # If the output is gone or the JVM has died, everything fails; the error names that cause.
            self._check_output()
            is_whole = all(each.gate.failure is None for each in running)
            # What asked for the stop may have ended Spark's processes as well.
            if not (self._stop.is_set() and (has_jvm_died() or (is_whole and is_passing(error)))):
                raise
        finally:
            for each in running:
                stop_between_batches(each.query, each.gate)
            self._reporter.stop()

    def _start(
        self, spark: SparkSession, dispatch: Dispatch, gate: BatchGate, *, available_now: bool
    ) -> StreamingQuery:
        name = dispatch.names[0]
        sizes = BatchSizes.of(self._config, dispatch.names)
        options = self._config.source_options(
            # Only a first batch asks for it: where batch 0 begins is recorded in the sinks, not in Spark's checkpoint.
            startingOffset=aligned(self._log, dispatch.end_offset),
            maxBytesPerTrigger=sizes.bytes_a_batch,
            maxMessagesPerTrigger=sizes.messages_a_batch,
            maxBytesPerPartition=sizes.bytes_a_range,
        )
        writer = stream_ranges(spark, options).writeStream.queryName(name).foreachBatch(gate)
        writer = writer.option("checkpointLocation", str(self._paths.checkpoint_of(name)))
        if available_now:
            return writer.trigger(availableNow=True).start()
        period_ms = (self._config.table if name == TABLE else self._config.logic).trigger_ms
        return writer.trigger(processingTime=f"{period_ms} milliseconds").start()

    def _wait(self, spark: SparkSession, running: Sequence[RunningQuery], *, available_now: bool) -> None:
        looked_at = tidied_at = time.monotonic()
        while not self._stop.is_set():
            if has_jvm_died():
                raise failure_of(RuntimeError())
            # This is read first, so that the error of a query that ends in between is still seen.
            is_active = any(each.query.isActive for each in running)
            for each in running:
                if (error := each.query.exception()) is not None:
                    self._start_again(spark, each, error, available_now=available_now)
                    is_active = True
            if not is_active:
                break
            if time.monotonic() - looked_at >= _LOOKED_AT_S:
                looked_at = time.monotonic()
                self._check_output()
                for each in running:
                    self._note_bad_end(each.query)
                    each.gate.clean()
            if time.monotonic() - tidied_at >= _TIDIED_AFTER_S:
                tidied_at = time.monotonic()
                for each in running:
                    each.gate.while_idle()
            self._reporter.refresh()
            self._stop.wait(_POLL_SECONDS)
        for each in running:
            if (error := each.query.exception()) is not None:
                raise each.failure(error)

    def _start_again(self, spark: SparkSession, each: RunningQuery, error: Exception, *, available_now: bool) -> None:
        """Start a query again that ended between two batches, for a reason that may pass; else raise `error`."""
        end = each.dispatch.end_offset
        if end > each.restarted_at:
            each.restarts, each.restarted_at = 0, end
        if each.gate.failure is not None or each.restarts >= len(_PAUSES_S) or not is_passing(error):
            raise each.failure(error)
        pause = _PAUSES_S[each.restarts]
        each.restarts += 1
        _log.warning("%s stopped and is started again in %.0f s: %s", each.dispatch.names[0], pause, first_line(error))
        if not self._stop.wait(pause):
            each.query = self._start(spark, each.dispatch, each.gate, available_now=available_now)

    def _check_output(self) -> None:
        """Raise OutputError if the output was removed or replaced meanwhile."""
        if self._lock is not None:
            self._lock.check_in_place()

    def _note_bad_end(self, query: StreamingQuery) -> None:
        """Note where the query waits at something that is no record."""
        progress: Any = query.lastProgress
        for source in progress["sources"] if progress else ():
            latest = json.loads(source["latestOffset"] or "null")  # null until the log was read
            if latest is not None:
                words = self._bad_end.note(query.name, int(latest["physicOffset"]), latest.get("badEnd"))
                self._reporter.state.on_bad_end(query.name, words)


def stop_between_batches(query: StreamingQuery, gate: BatchGate) -> None:
    """Stop a query after the current batch, giving Spark time to note that it is done.

    If Spark's JVM has died there is nothing to stop.
    """
    gate.close()
    waited = threading.Event()
    deadline = time.monotonic() + _STOP_SECONDS
    try:
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            waited.wait(_STOP_POLL_SECONDS)
        query.stop()
    except Exception:
        if not has_jvm_died():
            raise
