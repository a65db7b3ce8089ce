"""The work of a query on a micro-batch: read its ranges, check the log, write wave by wave, report, tidy.

This corresponds to ``doReput`` for one read. A query keeps queues and index (`logic`), the message table (`table`), or
both by the same read of the log. A job of Spark's reads the ranges, or the driver itself if they are small. Before
anything is written, `LogContinuity` checks whether the log still has the sinks' last records, and which records have
expired.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from reput.sinks.anomalies import NO_ANOMALIES
from reput.sinks.dispatch.arrival import ArrivalListener
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import RecordFingerprint
from reput.sinks.quarantine import EXPIRED, count_causes
from reput.source.errors import CorruptRecordError, DataLossError, ReputError, TransientError
from reput.source.log.log_reader import LogReader, rewound
from reput.source.log.offset_range import OffsetRange, ranges_of
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.run_options import processes_of
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.effects.waves import OnRange, Waves, beside, worth_a_wave
from reput.streaming.effects.write_step import WriteStep
from reput.streaming.output.paths import LOGIC, TABLE, OutputPaths
from reput.streaming.output.spark_checkpoint import end_of_batch
from reput.streaming.spark.job import announcements, outcome, outcome_of, run_job
from reput.streaming.status.batch_report import BatchReport
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail.logic_output import LogicOutput
from reput.streaming.tail.upkeep import SECONDS_AT_END, BatchUpkeep, CleanConsumeQueueService

_log = logging.getLogger("reput")


class Dispatch:
    """The work of one query on its micro-batches, and the ends of its sinks.

    Attributes
    ----------
    names
        LOGIC or TABLE or both: the sinks that it keeps; the first is the query's name.
    log
        The query's own reader of the log, since queries run side by side.
    small
        Knows the batches that are read in this process.
    """

    def __init__(
        self,
        config: PipelineConfig,
        paths: OutputPaths,
        reporter: ProgressReporter,
        log: LogReader,
        step: WriteStep,
        files: Sequence[DurableFiles],
        *,
        topics: LogicOutput | None = None,
        clean: CleanConsumeQueueService | None = None,
        upkeep: BatchUpkeep | None = None,
        on_arrival: ArrivalListener | None = None,
    ) -> None:
        """Take the recovered sinks of `step`, and their `files`.

        `topics` has the queues and the index of `step`, and follows the store's topics; `clean` removes their expired
        files; neither is given if only the table is kept. Without `upkeep` no table is tidied. `on_arrival` is called
        with each batch's arrivals once they are durable, and again if the batch is replayed.
        """
        self.names = tuple(step.ends)
        self.log = log
        self.small = SmallBatches(paths.checkpoint_of(self.names[0]), log)
        self._step = step
        self._continuity = LogContinuity(self.names[0], log, fail_on_data_loss=config.source.fail_on_data_loss)
        self._reporter = reporter
        self._files = files
        self._bytes_a_wave = BatchSizes.of(config, self.names).bytes_a_wave
        self._topics = topics
        self._clean = clean
        self._upkeep = upkeep
        self._on_arrival = on_arrival
        # The end of a large micro-batch, which is written while Spark begins the next one.
        self._ending: Future[None] | None = None
        # Everything before this offset is written or queued for writing.
        self._handed_on = 0
        self._is_swept = True
        # Since the last report, how often expired log was passed over, and how many bytes, by sink.
        self._passed_over: Counter[str] = Counter()
        self._expired_bytes: Counter[str] = Counter()
        # The report of one micro-batch so far, by sink, and when its last part was durable.
        self._reports: dict[str, BatchReport] = {}
        self._written_at = 0.0

    @property
    def end_offset(self) -> int:
        """The physical offset before which every sink has the effect of every record."""
        return min(self._step.ends.values())

    @property
    def is_writing(self) -> bool:
        """Whether effects of the last batch are still being written without a failure so far."""
        return self._ending is not None and not self._ending.done()

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        """Process the batch's ranges, which are read once; the effects are durable when `settle` returns.

        The last wave of a large batch is written while Spark begins the next one. The batch id serves to look up
        Spark's plan, never to know what is done.
        """
        if not self.is_writing:
            self._written_at = time.monotonic()
        self._follow_topics()
        try:
            rest, may_wait = self._read(ranges, batch_id)
        except BaseException:
            self._end_badly()
            raise
        if may_wait:
            self._ending = beside(partial(self._end_batch, rest))
        else:
            self._end_batch(rest)

    # --- read ---------------------------------------------------------------------------------------------------------

    def _read(self, ranges: DataFrame, batch_id: int) -> tuple[list[RangeEffects], bool]:
        """Read the ranges: in this process if they are small, else by a job, whose waves are written meanwhile.

        Return the effects that are left to be written, and whether Spark may continue before that is done. With
        ``failOnDataLoss=false`` ranges that expired before they were read are left out.
        """
        task, planned = self._step.task, ranges
        while True:
            try:
                read = read_here(self.small, batch_id, task) if ranges is planned else None
                if read is None:
                    return self._read_by_job(ranges, task)
                self._wait_for_ending()
            except Exception as error:  # noqa: BLE001  raised again where reading what is left does not help
                ranges = self._continuity.left_after(error, ranges, self._step.last_records)
            else:
                return read, False

    def _read_by_job(self, ranges: DataFrame, task: RangeTask) -> tuple[list[RangeEffects], bool]:
        if LOGIC not in self.names:  # each wave would be a commit
            return read_ranges(ranges, task), False
        self._is_swept = False
        start = max(self.end_offset, self._handed_on)
        waves = Waves(start, lambda: worth_a_wave(self._bytes_a_wave, self._step.sinks))
        # A batch that follows a live log has smaller ranges, which are not worth an announcement.
        least_bytes = self._bytes_a_wave // 16
        with waves.written_beside(partial(self._write_waves, waves)):
            read = read_announced(ranges, task, waves.put, least_bytes)
        rest = waves.rest_of(read)
        if rest:
            self._handed_on = rest[-1].end
        return rest, bool(rest)

    # --- check and write ----------------------------------------------------------------------------------------------

    def _write_waves(self, waves: Waves) -> None:
        """Wait for the end of the batch before, then write this one's waves while it is read."""
        self._wait_for_ending()
        for wave in waves:
            self._continuity.check(self._step.last_records)
            self._write(wave, more_follow=True)

    def _end_batch(self, rest: Sequence[RangeEffects]) -> None:
        """Write the rest of a micro-batch after its ranges have been read; report the whole batch, and tidy."""
        try:
            if rest:
                self._continuity.check(self._step.last_records)
                for each in self._continuity.rows_of(rest):
                    self._write(each)
            elif not self._reports:  # the whole batch has expired from the log
                self._pass_over(self._continuity.next_available(self.end_offset))
            self._step.complete()
        except BaseException:
            self._end_badly()
            raise
        self._report()
        self._tidy(sum(each.end - each.start for each in rest))

    def _write(self, read: RangeEffects, *, more_follow: bool = False) -> None:
        """Write the effects of consecutive ranges, durably, and note it for the batch's report."""
        read_at = time.monotonic()
        for name in self.names:
            self._reporter.state.on_read(name, read.end)
        self._pass_over(read.start)
        done = self._step.write(read, more_follow=more_follow)
        now = time.monotonic()
        phases = {"read": read_at - self._written_at}
        if LOGIC in self.names:
            phases |= {"write": now - read_at - done.sync_seconds, "sync": done.sync_seconds}
        else:
            phases["commit"] = now - read_at
        seconds, self._written_at = now - self._written_at, now
        for name, messages in done.messages.items():
            found = (done.anomalies, count_causes(done.quarantined)) if name == LOGIC else (NO_ANOMALIES, Counter())
            self._note(
                BatchReport(
                    *(name, done.start, done.end, messages, seconds),
                    anomalies=found[0],
                    quarantined=found[1] + Counter({EXPIRED: self._passed_over.pop(name, 0)}),
                    phases=phases,
                    expired_bytes=self._expired_bytes.pop(name, 0),
                )
            )
        if self._on_arrival is not None and done.arrivals is not None:
            self._on_arrival(done.arrivals)

    def _pass_over(self, start: int) -> None:
        """Move the sinks to `start`, durably, if everything in the log from their ends up to there has expired."""
        for name, end in self._step.ends.items():
            if self._continuity.is_gone(end, start):
                self._continuity.report_expired(name, end, start)
                self._passed_over[name] += 1
                self._expired_bytes[name] += start - end
                self._step.pass_over(name, start)

    def settle(self) -> None:
        """Wait until the effects of all batches are durable; raise the failure if some cannot be."""
        self._wait_for_ending()
        if not self._is_swept:
            self._is_swept = True
            self._step.clear_scratch()

    def _wait_for_ending(self) -> None:
        """Wait until the end of the batch before is written; its error is raised, once."""
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.result()

    def _follow_topics(self) -> None:
        """Have the batch's records written to queues of the kinds that its broker has now.

        The records are in the log already, and a broker stores a topic before it takes a message of it.
        """
        if self._topics is None or not self._topics.has_topics_to_follow():
            return
        self.settle()
        if self._topics.follow_topics():
            self._step.follow(self._topics.logic)
            assert self._clean is not None
            self._clean.sinks = self._topics.logic.sinks

    # --- report and tidy ----------------------------------------------------------------------------------------------

    def _note(self, report: BatchReport) -> None:
        """Add a part that was written to the micro-batch's report."""
        before = self._reports.get(report.query)
        self._reports[report.query] = report if before is None else before.followed_by(report)

    def _report(self) -> None:
        """Report the parts of a micro-batch that were written."""
        reports, self._reports = self._reports, {}
        for report in reports.values():
            self._reporter.on_batch(report)

    def _end_badly(self) -> None:
        """Leave the files of a micro-batch that failed as complete as those of one that ends there, and report it."""
        with suppress(Exception):  # perhaps nothing can be written
            self._step.complete()
        self._report()

    def _tidy(self, read_bytes: int) -> None:
        """Remove expired files, or tidy the table for a while; if both are kept, the table is tidied at the end."""
        if self._clean is not None:
            self._clean.step()
        elif self._upkeep is not None:
            self._upkeep.after_batch(read_bytes)

    def while_idle(self) -> None:
        """Tidy the table for a while: rows also expire if no message comes."""
        if self._upkeep is not None:
            self._upkeep.after_batch(0)

    def look(self) -> None:
        """Remove some expired files, and commit a merge whose files have been written since the last batch."""
        if self._clean is not None:
            self._clean.step()
        if self._upkeep is not None:
            self._upkeep.look()

    def finish(self) -> None:
        """Do the work that is left after the last batch of a run that ends with the log."""
        self.settle()
        if self._clean is not None:
            self._clean.step(SECONDS_AT_END)
        if self._upkeep is not None:
            self._upkeep.at_end()

    def close(self) -> None:
        """Abandon work that was begun beside the batches, and close the files; no batch follows."""
        if self._upkeep is not None:
            self._upkeep.close()
        for each in self._files:
            each.close()


# ----------------------------------------------------------------------------------------------------------------------
# The sizes of a query's micro-batches, in the stream and while sinks catch up with it.

_WORTH_A_TASK = 32 * 1024 * 1024


@dataclass(frozen=True)
class BatchSizes:
    """Limits of a micro-batch: its bytes, its messages (None for any number) and the bytes of one of its ranges.

    While more of the batch is read, at least `bytes_a_wave` are written together.
    """

    bytes_a_batch: int
    messages_a_batch: int | None
    bytes_a_range: int
    bytes_a_wave: int

    @classmethod
    def of(cls, config: PipelineConfig, names: Sequence[str]) -> BatchSizes:
        """Return the sizes for a query that keeps all of `names` (LOGIC, TABLE): the lesser ones."""
        sizes = [config.table if name == TABLE else config.logic for name in names]
        bytes_a_batch = min(each.max_bytes_per_trigger for each in sizes)
        # Every core gets a range of a full batch, unless the ranges would then be too small for a task.
        bytes_a_core = max(_WORTH_A_TASK, bytes_a_batch // (processes_of(config.spark.master) or 1))
        bytes_a_range = min(bytes_a_core, *(each.max_bytes_per_partition for each in sizes))
        # Each wave is a commit of the table.
        bytes_a_wave = bytes_a_range * (2 if TABLE in names else 1)
        return cls(bytes_a_batch, config.source.max_messages_per_trigger, bytes_a_range, bytes_a_wave)


_RESULT_DDL = "start bigint, effects binary"
_RESULT_SCHEMA = pa.schema([("start", pa.int64()), ("effects", pa.binary())])


def read_ranges(
    ranges: DataFrame,
    task: RangeTask,
    prepare: Callable[[], None] | None = None,
    announce: Callable[[OffsetRange, bytes], None] | None = None,
) -> list[RangeEffects]:
    """Return the effects of the batch's ranges, in log order, as `task` reads them; raise the first range's error.

    Each of Spark's tasks calls `prepare` first, and `announce` with each range and its outcome (``outcome_of``).
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if prepare is not None:
            prepare()
        for span in ranges_of(batches):
            effects = outcome_of(partial(task.read, span))
            if announce is not None:
                announce(span, effects)
            yield pa.RecordBatch.from_pylist([{"start": span.start, "effects": effects}], _RESULT_SCHEMA)

    rows = run_job(ranges, read, _RESULT_DDL).sort_by("start")
    return [outcome(effects) for effects in rows["effects"].to_pylist()]


def read_announced(ranges: DataFrame, task: RangeTask, on_range: OnRange, least_bytes: int) -> list[RangeEffects]:
    """Do `read_ranges`; `on_range` gets ranges of `least_bytes` or more while other ranges are still read."""

    def heard(words: bytes) -> None:
        read = pickle.loads(words)  # noqa: S301
        if isinstance(read, RangeEffects):  # errors are in the job's result
            on_range(read)

    with announcements(ranges.sparkSession, heard) as announce:

        def announce_large(span: OffsetRange, effects: bytes) -> None:
            if span.end - span.start >= least_bytes:
                announce(effects)

        return read_ranges(ranges, task, None, announce_large)


def read_here(small: SmallBatches | None, batch_id: int, task: RangeTask) -> list[RangeEffects] | None:
    """Read the batch's ranges with `task` in this process, in log order; None if a job is to read them.

    The arrays of pieces stay in memory.
    """
    ranges = None if small is None else small.ranges(batch_id)
    return None if ranges is None else [replace(task, scratch=None).read(span) for span in ranges]


# ----------------------------------------------------------------------------------------------------------------------
# Small micro-batches: the driver reads them itself, since a job of Spark's takes longer.

# A single core decodes this much faster than an empty Spark job runs.
SMALL_BYTES = 8 * 1024 * 1024
# And this much faster than Spark starts its workers. Later batches of this size are better read by the workers:
# the driver's Python would keep the other query waiting.
SMALL_FIRST_BYTES = 32 * 1024 * 1024


def is_first_small(log: LogReader, start: int) -> bool:
    """Whether a query that starts at `start` finds so little in the log that it takes no job.

    Errors are those of ``LogReader.reaches_beyond``.
    """
    return not log.reaches_beyond(start + SMALL_FIRST_BYTES)


class SmallBatches:
    """Knows which of a query's micro-batches are small, and their ranges.

    Attributes
    ----------
    begin
        The begin of Spark's first batch, which Spark does not note; None if unknown.
    """

    def __init__(self, checkpoint: Path, log: LogReader) -> None:
        """Take the query's Spark `checkpoint`, and the options of `log`."""
        self.begin: int | None = None
        self._checkpoint = checkpoint
        self._log = LogReader(log.options)
        # The last batch that `ranges` was called for, and its end.
        self._last: tuple[int, int] | None = None
        # The first batch that `ranges` was called for; Spark continues the numbers of its checkpoint.
        self._first_id: int | None = None

    def ranges(self, batch_id: int) -> list[OffsetRange] | None:
        """Return the ranges of one of Spark's batches, in log order; None if a job is to read them.

        Spark notes the end of a batch before it begins the batch. If anything is wrong with the note, or with the log,
        the job meets it and reports it.
        """
        if self._first_id is None:
            self._first_id = batch_id
        bytes_max = SMALL_FIRST_BYTES if batch_id == self._first_id else SMALL_BYTES
        try:
            start = self.begin if batch_id == 0 else self._end(batch_id - 1)
            end = self._end(batch_id)
            if start is None or not 0 < end - start <= bytes_max:
                return None
            return list(self._log.split(start, end))
        except ReputError:
            return None

    def _end(self, batch_id: int) -> int:
        if self._last is None or self._last[0] != batch_id:
            self._last = batch_id, end_of_batch(self._checkpoint, batch_id)
        return self._last[1]


# A record that is being written looks like a bad one for a moment, so a bad one must last this long.
_STANDS_S = 5.0


class LogContinuity:
    """The checks for one query; it has its own reader of the log, since queries run side by side."""

    def __init__(self, name: str, log: LogReader, *, fail_on_data_loss: bool) -> None:
        """Check the query `name`; with `fail_on_data_loss`, as the option has it, no record may be passed over."""
        self._name = name
        self._log = LogReader(log.options)
        self._fail_on_data_loss = fail_on_data_loss

    def check(self, records: Iterable[RecordFingerprint | None]) -> None:
        """Raise CommitLogRewoundError unless the log has each of the `records`, the sinks' last ones.

        Call this after a batch was read and before any of it is written: a broker that cuts its log overwrites these
        records before it writes anything after them.

        Raises
        ------
        TransientError
            The log has no segment at all.
        """
        for known in {record for record in records if record is not None}:
            found = self._log.find_record(known)
            if found != known:
                raise rewound(known, found, self._name)

    def left_after(self, error: Exception, ranges: DataFrame, records: Iterable[RecordFingerprint | None]) -> DataFrame:
        """Return the ranges of a batch that are left to read after `error`: with ``failOnDataLoss=false`` some expired.

        Raises
        ------
        CommitLogRewoundError, TransientError
            The log was cut, or cannot be reached. `records` are the sinks' last ones.
        Exception
            The error itself: reading fewer ranges would not help.
        """
        self.check(records)
        if isinstance(error, CorruptRecordError):  # a cut may be the cause: the batch was valid when it was planned
            rows = ranges.collect()
            self.check_reaches(min(row["start"] for row in rows), max(row["end"] for row in rows))
        if self._fail_on_data_loss or not isinstance(error, DataLossError):
            raise error
        self._log.look_anew()
        rows, queue = ranges.collect(), self._log.queue()
        left = [row for row in rows if queue.find(row["start"]) is not None]
        if len(left) == len(rows):
            raise error
        return ranges.sparkSession.createDataFrame(left, ranges.schema)

    def check_reaches(self, start: int, stop: int) -> None:
        """Check that the log's records still lead from `start` to `stop`, the end of a batch that was planned.

        Damage in a segment that another one follows does not end the log; a later read reports it.

        Raises
        ------
        TransientError
            The log ends before `stop`: it was cut. The next start forgets the batch.
        """
        end = LogReader(self._log.options).end(start)
        if end < stop:
            raise TransientError(
                f"{self._name}: the log was cut: it reached {stop} when a batch was planned, and ends at {end} now",
                advice="nothing after that end was written: start the same command again",
                physical_offset=end,
            )

    def rows_of(self, results: Sequence[RangeEffects]) -> list[RangeEffects]:
        """Join the results (at least one, in log order), except where records between two of them have expired.

        Raises
        ------
        SinkError
            Two are not consecutive, and the log has what is between them.
        """
        rows = [[results[0]]]
        for each in results[1:]:
            end = rows[-1][-1].end
            if not self._fail_on_data_loss and end < each.start and self.is_gone(end, each.start):
                rows.append([])
            rows[-1].append(each)
        return [RangeEffects.join(row) for row in rows]

    def next_available(self, end_offset: int) -> int:
        """Return where sinks that end at `end_offset` continue: there, or after expired records that they may skip."""
        return end_offset if self._fail_on_data_loss else self._log.next_available(end_offset)

    def is_gone(self, end_offset: int, start: int) -> bool:
        """Whether all of `[end_offset, start)` has expired from the log and may be passed over."""
        return end_offset < start <= self.next_available(end_offset)

    def report_expired(self, name: str, end_offset: int, start: int) -> None:
        """Warn that the sinks of `name` continue without `[end_offset, start)`."""
        _log.warning(
            "%s ends at %d and the log continues at %d: the %d bytes between expired unread; continuing without them",
            name,
            end_offset,
            start,
            start - end_offset,
        )


class BadEndWatch:
    """Warns, once for each offset, that a query waits at bytes that are not a record, and says what can be done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is monotonic, in seconds."""
        self._clock = clock
        self._since: dict[str, tuple[int, str | None, float]] = {}
        self._warned: dict[str, tuple[int, str]] = {}

    def note(self, query: str, offset: int, verdict: str | None) -> str | None:
        """Note that the query saw the log's end at `offset`, with a bad record of this verdict there, or None.

        Return the cause of the wait once it has lasted for a while; None otherwise.
        """
        now = self._clock()
        known = self._since.get(query)
        if known is None or known[:2] != (offset, verdict):
            self._since[query] = offset, verdict, now
            return None
        if verdict is None or now - known[2] < _STANDS_S:
            return None
        if query not in self._warned or self._warned[query] != (offset, verdict):
            self._warned[query] = offset, verdict
            _log.warning(
                "%s: waiting at offset %d: the bytes there are not a record (%s); if the log continues after them, "
                "that record is damaged, and onDamage=quarantine passes over it",
                query,
                offset,
                verdict,
            )
        return f"the bytes at offset {offset} are not a record ({verdict})"
