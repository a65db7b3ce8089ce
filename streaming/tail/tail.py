"""The continuous queries: `logic` for queues and index, `table` for the message table, in one process.

A query is started again if the time of day was set back (`TimeOfDay`), because Spark's trigger waits until a time of
day. If an operator, or a time server, sets that back while a query waits or a micro-batch runs, the query waits longer
by as much: for days, without a word. A time that is set forwards, or a machine that was suspended, makes no query wait
longer.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

from pyspark.sql import SparkSession

from reput.sinks.dispatch.arrival import ArrivalListener
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_lock import StoreLock
from reput.sinks.files.store_path import REPUT
from reput.sinks.files.swap import finish_swap
from reput.sinks.sink import Sink
from reput.source import system
from reput.source.errors import OptionError, OutputError, ReputError
from reput.source.log.log_reader import LogReader
from reput.streaming.config.made_for import check_made_for, record_in
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.run_options import processes_of
from reput.streaming.config.stored_sizes import check_fits_files
from reput.streaming.effects.range_task import RangeTask
from reput.streaming.output.hand_over import abort_while_written
from reput.streaming.output.logic_sinks import LogicSinks, aligned
from reput.streaming.output.paths import LOGIC, TABLE, OutputPaths, refuse_paths_inside
from reput.streaming.process.failures import is_passing, jvm_death
from reput.streaming.process.interruption import StopFlag
from reput.streaming.process.jvm import has_jvm_died
from reput.streaming.spark.job import Beside, start_workers
from reput.streaming.spark.session import Sessions
from reput.streaming.status.batch_report import LogEndWatch, duration_text
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail.consumption import consumption_watched
from reput.streaming.tail.logic_output import LogicOutput
from reput.streaming.tail.micro_batch import BadEndWatch, is_first_small
from reput.streaming.tail.opening import QueryOpener, check_shared, rehearse, rehearse_planning
from reput.streaming.tail.query import Causes, OpenQuery, Retry, StoppedBetweenBatchesError, SupervisedQuery

_log = logging.getLogger("reput")
_POLL_SECONDS = 0.2
# How often to ask Spark about a query that has no failure; a run that ends with the log asks at each poll.
_ASKED_EVERY_S = 0.5
_SPARK_LOG = "spark.log"
# How often to check that the output is still the one that was locked, and whether a query waits at a bad record.
_LOOKED_AT_S = 1.0
# How often a table without new rows is tidied; rows expire at midnight.
_TIDIED_AFTER_S = 1800.0
# The user waits for a run that ends with the log, so it makes few attempts.
_FEW_PAUSES_S = (1.0, 5.0, 15.0)


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
        options = config.log_options(startingOffset=start, startingTimestamp=since)
        self._log = LogReader(options)
        self._log_end = LogEndWatch(LogReader(options))
        self._lock: StoreLock | None = None
        # The run's own files; the sinks have others, which are opened again after a failure.
        self._files = DurableFiles(paths.output)
        files = DurableFiles(paths.output)
        self._logic = LogicOutput(config, LogicSinks.open(config, files), files, LogReader(options))
        self._opener: QueryOpener | None = None
        self._queries: list[SupervisedQuery] = []
        self._bad_end = BadEndWatch()
        self._time_of_day = TimeOfDay()
        self._stop = StopFlag()
        self._cleanup = ExitStack()

    def __enter__(self) -> Tail:
        """Check the paths and the store, lock the output and recover its files, all before Spark is needed.

        Raises
        ------
        ReputError
            With a message for the user.
        """
        if not self._logic.logic.sinks and self._paths.table is None:
            raise OptionError(
                "nothing to keep: consumeQueueEnable and messageIndexEnable are off, and there is no --table"
            )
        refuse_paths_inside(self._config.log_directories, self._paths)
        if self._logic.logic.sinks:
            check_fits_files(self._config, self._paths.output)
        self._log.queue()
        self._logic.log.initial_offset()  # this comes first: a store that cannot be read leaves no trace in the output
        with self._cleanup:
            self._lock = self._cleanup.enter_context(StoreLock(self._paths.output))
            self._cleanup.callback(self._files.close)
            self._cleanup.callback(self._logic.close)
            finish_swap(self._files)
            check_made_for(self._config, self._config.store, self._paths.output)
            self._logic.check_taken_over()
            if self._logic.logic.sinks:
                self._cleanup.enter_context(abort_while_written(self._files, self._ending_sinks, self._log))
            self._logic.recover_sinks()
            # A new output has no file before its first batch; the files of an older one fit these settings.
            record_in(self._files, self._config, self._config.store)
            self._logic.recover_quarantine()  # raises for a hole in the log before Spark starts
            self._cleanup = self._cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock and the files; a failure is passed on to ``abort_while_written``."""
        self._cleanup.__exit__(kind, error, trace)

    @property
    def spark_log(self) -> Path:
        """The file of Spark's own messages."""
        return self._files.make_directory(REPUT) / _SPARK_LOG

    def stop(self) -> None:
        """Ask for a stop between batches; a signal handler may call this."""
        self._stop.set()

    def run(self, spark: SparkSession | Sessions, *, available_now: bool, prepares: bool = True) -> None:
        """Run until the end of the log (`available_now`) or until `stop`.

        `prepares` is False if another tail of the same session prepares Spark's workers for all.

        A query that failed for a reason that may pass is opened again, for ``retryForMs`` (see ``Retry``). If Spark's
        JVM has died, Spark is started again for that, provided that it is given as `Sessions`.

        Raises
        ------
        ReputError
            With a message for the user; a query's own exception otherwise.
        """
        sessions = spark if isinstance(spark, Sessions) else Sessions.of(spark)
        session = sessions.current()
        try:
            check_shared(session, self._paths, self._log, self._names, self._stop.is_set, must_exist=False)
        except StoppedBetweenBatchesError:
            return
        preparation = Beside(*(self._preparations(session) if prepares else ()))
        try:
            self._run_queries(sessions, session, available_now=available_now)
        finally:
            preparation.join()

    @property
    def _names(self) -> list[str]:
        """The sinks of this run."""
        keeps_logic = bool(self._logic.logic.sinks) or self._logic.quarantine is not None
        return [*([LOGIC] if keeps_logic else []), *([TABLE] if self._paths.table is not None else [])]

    def _preparations(self, spark: SparkSession) -> Iterable[Callable[[], None]]:
        """Return actions to run beside the start of the queries, so that their first micro-batches wait less."""
        if processes_of(self._config.spark.master) is None:
            return [partial(start_workers, spark)]
        logic = self._logic.logic
        start = min((sink.end_offset for sink in logic.sinks), default=0)
        try:
            if is_first_small(self._log, start):
                return [partial(rehearse_planning, spark)]
            behind = self._log.queue().end_of_files - start
        except (ReputError, OSError):
            return []  # the queries meet the error, and report it
        task = RangeTask(self._log.decode_options, logic.needs if logic.sinks else None)
        rehearsal = partial(
            rehearse,
            *(spark, task, self._config.broker.name),
            with_table=self._paths.table is not None,
            is_far_behind=behind > self._config.logic.max_bytes_per_trigger,
        )
        return [partial(start_workers, spark), rehearsal]

    def _run_queries(self, sessions: Sessions, session: SparkSession, *, available_now: bool) -> None:
        self._reporter.start(self._log_end)
        try:
            with ExitStack() as stack:
                self._open(sessions, session, stack, available_now=available_now)
                stack.enter_context(consumption_watched(self._config, self._paths, self._reporter.state))
                self._look_after(sessions, has_trigger=not available_now)
                if available_now and not self._stop.is_set():
                    for each in self._queries:
                        if each.query is not None:
                            each.query.dispatch.finish()
        except Exception as error:
            # If the output is gone, everything fails; the error names that cause.
            self._check_output()
            # The sender of the stop may also have ended Spark's processes.
            is_due_to_stop = has_jvm_died() or is_passing(error) or isinstance(error, StoppedBetweenBatchesError)
            if not (self._stop.is_set() and is_due_to_stop):
                raise
        finally:
            self._reporter.stop()

    def _open(self, sessions: Sessions, session: SparkSession, stack: ExitStack, *, available_now: bool) -> None:
        """Open each query for the first time; `stack` closes them."""
        opener = self._opener = self._new_opener(available_now=available_now)
        first = opener.first()
        for dispatch in first:
            stack.callback(dispatch.close)
            for name in dispatch.names:
                self._reporter.state.query(name)  # the run counts as starting until each of them runs
        self._log_end.look_ahead(aligned(self._log, min(dispatch.end_offset for dispatch in first)))
        causes = Causes(self._check_output, self._log, sessions, self._paths.table, available_now=available_now)
        for dispatch in first:
            names = dispatch.names

            def judge(error: BaseException, in_batch: bool, names: Sequence[str] = names) -> tuple[BaseException, bool]:
                return causes.judge(names, error, in_batch=in_batch)

            retry = Retry(self._config.tail.retry_for_ms / 1000)
            if available_now:
                retry = Retry(sum(_FEW_PAUSES_S), _FEW_PAUSES_S)
            query = SupervisedQuery(
                *(names, partial(opener.again, sessions, names), judge, retry, self._reporter.state),
                asked_every_s=0.0 if available_now else _ASKED_EVERY_S,
            )
            query.begin(opener.start(sessions, session, dispatch))
            stack.callback(query.close)
            self._queries.append(query)

    def _new_opener(self, *, available_now: bool) -> QueryOpener:
        return QueryOpener(
            *(self._config, self._paths, self._logic, self._reporter, self._on_arrival),
            check_output=self._check_output,
            is_stopped=self._stop.is_set,
            available_now=available_now,
        )

    def _look_after(self, sessions: Sessions, *, has_trigger: bool) -> None:
        """Keep the queries running until they end with the log, or a stop is asked for.

        If it `has_trigger`, Spark waits between their micro-batches, by the time of day.
        """
        looked_at = tidied_at = time.monotonic()
        system.keep_small()
        while not self._stop.is_set():
            if sessions.has_died():
                self._fail_all(jvm_death())
            for each in self._queries:  # another broker's tail may have started the next session by now
                if each.query is not None and each.query.has_died():
                    each.fail(jvm_death())
            if has_trigger:
                self._renew_if_set_back()
            if sum(each.look() for each in self._queries) == 0:  # `any` would skip some of them
                break
            if time.monotonic() - looked_at >= _LOOKED_AT_S:
                looked_at = time.monotonic()
                self._look_at_output()
                for each in self._queries:
                    if each.query is not None:
                        self._note_bad_end(each.name, each.query)
                        each.query.gate.look()
            if time.monotonic() - tidied_at >= _TIDIED_AFTER_S:
                tidied_at = time.monotonic()
                for each in self._queries:
                    if each.query is not None:
                        each.query.gate.while_idle()
            system.give_back()
            self._reporter.refresh()
            self._stop.wait(_POLL_SECONDS)
        for each in self._queries:
            each.settle()

    def _renew_if_set_back(self) -> None:
        set_back_by = self._time_of_day.set_back_by()
        if set_back_by:
            names = " and ".join(each.name for each in self._queries)
            words = "the time of day was set back by %s: %s opened again, since Spark waits by it"
            _log.warning(words, duration_text(set_back_by), f"{names} {'is' if len(self._queries) == 1 else 'are'}")
            for each in self._queries:
                each.renew()

    def _fail_all(self, error: BaseException) -> None:
        for each in self._queries:
            each.fail(error)

    def _look_at_output(self) -> None:
        try:
            self._check_output()
        except OutputError as error:
            self._fail_all(error)

    def _ending_sinks(self) -> Sequence[Sink] | None:
        """Return the sinks of queues and index as the run left them; None if they failed and were not recovered."""
        for each in self._queries:
            if LOGIC in each.names and (each.query is None or each.query.failed_in_batch):
                return None
        return (self._logic if self._opener is None else self._opener.logic).logic.sinks

    def _check_output(self) -> None:
        """Raise OutputError if the output was removed or replaced meanwhile, or cannot be reached."""
        if self._lock is not None:
            self._lock.check_in_place()

    def _note_bad_end(self, name: str, query: OpenQuery) -> None:
        """Note where the query waits at bytes that are not a record."""
        try:
            progress = query.progress.note()
        except Exception:  # noqa: BLE001  Spark has died, which the next look at the query finds
            return
        for source in progress["sources"] if progress else ():
            latest = json.loads(source["latestOffset"] or "null")  # null until the log was read
            if latest is not None:
                words = self._bad_end.note(name, int(latest["physicOffset"]), latest.get("badEnd"))
                self._reporter.state.on_bad_end(name, words)


#: A shorter time is waited for: to open a query again takes about as long.
NOTICED_FROM_S: Final = 1.0


class TimeOfDay:
    """Compares the time of day with a monotonic clock, both in seconds, from the moment when it is made."""

    def __init__(
        self, time_of_day: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._time_of_day = time_of_day
        self._clock = clock
        self._ahead_at_least = self._ahead()[0]

    def set_back_by(self) -> float:
        """Return how many seconds the time was set back by since the last look; 0.0 below `NOTICED_FROM_S`."""
        least, most = self._ahead()
        by = self._ahead_at_least - most
        self._ahead_at_least = least
        return by if by >= NOTICED_FROM_S else 0.0

    def _ahead(self) -> tuple[float, float]:
        """Return the least and the most by which the time of day is ahead: a thread may rest between both readings."""
        before, now, after = self._clock(), self._time_of_day(), self._clock()
        return now - after, now - before
