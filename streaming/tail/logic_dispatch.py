"""What the query of queues and index does with a micro-batch: what ``doReput`` does for one read, and the table's part.

The table is kept by the same read where both stand at the same offset; otherwise it has a query of its own.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame

from reput.sinks.dispatch.arrival import ArrivalListener
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.quarantine import EXPIRED, count_causes, expired_range
from reput.sinks.table.message_table import TableBatch
from reput.source.log.range_reader import DecodeOptions
from reput.source.record.message_decoder import RecordFingerprint
from reput.streaming.effects.logic_step import LogicStep
from reput.streaming.effects.range_task import RangeEffects
from reput.streaming.effects.waves import Waves, worth_a_wave
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.output.quarantine_step import QuarantineStep
from reput.streaming.output.spark_checkpoint import LOGIC, TABLE
from reput.streaming.status.batch_report import BatchReport
from reput.streaming.tail import batch_reading
from reput.streaming.tail.batch_reading import SmallBatches
from reput.streaming.tail.batch_upkeep import SECONDS_AT_END
from reput.streaming.tail.clean_consume_queue import CleanConsumeQueueService
from reput.streaming.tail.log_continuity import LogContinuity
from reput.streaming.tail.logic_output import LogicOutput
from reput.streaming.tail.micro_batch import OnRead, Report, ignored
from reput.streaming.tail.table_dispatch import TableDispatch


class LogicDispatch:
    """The quarantine, then ConsumeQueue, IndexFile and perhaps the table beside each other, then the checkpoint."""

    def __init__(
        self,
        logic: LogicSinks,
        files: DurableFiles,
        decode: DecodeOptions,
        continuity: LogContinuity,
        report: Report,
        on_arrival: ArrivalListener | None = None,
        quarantine: QuarantineStep | None = None,
        table: TableDispatch | None = None,
        *,
        clean: CleanConsumeQueueService,
        bytes_a_wave: int,
        on_read: OnRead = ignored,
        small: SmallBatches | None = None,
        topics: LogicOutput | None = None,
    ) -> None:
        """`on_arrival` is called with each batch's arrivals once they are durable, and again if the batch is replayed.

        `quarantine` is None if damage ends the run. `table` is kept, too, by the same read of the log. `clean` removes
        what expires of the sinks of `logic`. `bytes_a_wave` as in ``BatchSizes``. `on_read` is told how far a query has
        read, before that is durable. `small` knows the batches that are read in this process; None for none.
        `topics` has the sinks of `logic`, and follows the store's topics; None where these stay as they are.
        """
        self._step = LogicStep(
            *(logic, files, decode),
            arrivals=on_arrival is not None,
            quarantine=quarantine,
            table=None if table is None else table.table,
        )
        self._table = table
        self._continuity = continuity
        self._report = report
        self._on_arrival = on_arrival
        self._clean = clean
        self._on_read = on_read
        self._small = small
        self._topics = topics
        self._bytes_a_wave = bytes_a_wave
        self._waves = Waves(self._write_checked, lambda: worth_a_wave(bytes_a_wave, self._step.sinks))
        # Up to here all was written, or was left to be written.
        self._handed_on = 0
        self._is_swept = True
        # What was passed over since the last report.
        self._passed_over: Counter[str] = Counter()
        self._expired_bytes = 0
        # What has been written of one micro-batch, by query, and when the last of it was durable.
        self._reports: dict[str, BatchReport] = {}
        self._written_at = 0.0

    @property
    def end_offset(self) -> int:
        """The least end offset of the sinks."""
        end = self._step.end_offset
        return end if self._table is None else min(end, self._table.end_offset)

    @property
    def names(self) -> tuple[str, ...]:
        """LOGIC, and TABLE if the table is kept by the same read."""
        return (LOGIC,) if self._table is None else (LOGIC, TABLE)

    @property
    def is_writing(self) -> bool:
        """Whether the last wave of a large micro-batch is still written."""
        return self._waves.is_writing

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        """Write the effects of the batch's ranges, which are read once; those of large batches wave by wave.

        The last wave of a large one is written while Spark goes on to the next micro-batch.
        """
        if not self.is_writing:
            self._written_at = time.monotonic()
        self._follow_topics()
        is_job, task, least_bytes = False, self._step.task, self._bytes_a_wave // 16
        if self._table is not None:
            task = replace(task, file_writer=self._table.file_writer())

        def job(some: DataFrame) -> list[RangeEffects]:
            nonlocal is_job
            read = batch_reading.read_here(self._small, batch_id, task) if some is ranges else None
            if read is not None:
                self._waves.settle()
                return read
            is_job, self._is_swept = True, False
            start = max(self.end_offset, self._handed_on)
            # A batch that follows a live log has smaller ranges: nothing is gained by hearing of them early.
            return self._waves.during(start, lambda on: batch_reading.read_announced(some, task, on, least_bytes))

        try:
            results = self._continuity.results(ranges, job, self._records)
        except BaseException:
            self._end_badly()
            raise
        if is_job and results:
            self._handed_on = results[-1].end
            self._waves.leave_behind(partial(self._write_rest, results))
        else:
            self._write_rest(results)

    def _follow_topics(self) -> None:
        """Have the batch's records written to queues of the kinds that its broker has now.

        The records are in the log already, and a broker stores a topic before it takes a message of it.
        """
        if self._topics is None or not self._topics.has_topics_to_follow():
            return
        self.settle()
        if self._topics.follow_topics():
            self._step.follow(self._topics.logic)
            self._clean.sinks = self._topics.logic.sinks

    def settle(self) -> None:
        """Wait until the last wave is written; remove what lost tasks left."""
        self._waves.settle()
        if not self._is_swept:
            self._is_swept = True
            self._step.clear_scratch()

    def _write_rest(self, results: list[RangeEffects]) -> None:
        """Write what is left of a micro-batch when its ranges have been read, and report the whole of it."""
        try:
            if results:
                self._continuity.check(self._records())
                for row in self._continuity.rows_of(results):
                    self._write(row)
            elif not self._reports:  # nothing of the batch is left in the log
                self._pass_over(self._continuity.next_available(self.end_offset))
            self._step.complete()
        except BaseException:
            self._end_badly()
            raise
        self._report_written()
        self._clean.step()

    def _end_badly(self) -> None:
        """Leave the files of a micro-batch that failed as complete as those of one that ends there, and report it."""
        with suppress(Exception):  # the failure may be that nothing can be written
            self._step.complete()
        self._report_written()

    def _report_written(self) -> None:
        """Report what was written of a micro-batch."""
        reports, self._reports = self._reports, {}
        for report in reports.values():
            self._report(report)

    def _records(self) -> list[RecordFingerprint | None]:
        """The last record of each sink."""
        return [each.last_record for each in (*self._step.sinks, *(() if self._table is None else (self._table,)))]

    def _write_checked(self, read: RangeEffects) -> None:
        self._continuity.check(self._records())
        self._write(read, more_follow=True)

    def while_idle(self) -> None:
        """Tidy the table a while, if there is one."""
        if self._table is not None:
            self._table.while_idle()

    def look(self) -> None:
        """Remove some of the files that have expired with the log, and look at the table, if there is one."""
        self._clean.step()
        if self._table is not None:
            self._table.look()

    def finish(self) -> None:
        """Remove what has expired, and tidy the table, if there is one."""
        self.settle()
        self._clean.step(SECONDS_AT_END)
        if self._table is not None:
            self._table.finish()

    def close(self) -> None:
        """Close the table, if there is one."""
        if self._table is not None:
            self._table.close()

    def _write(self, read: RangeEffects, *, more_follow: bool = False) -> None:
        read_at = time.monotonic()
        self._on_read(LOGIC, read.end)
        self._pass_over(read.start)
        done = self._step.write(read, more_follow=more_follow)
        batch, now = done.batch, time.monotonic()
        phases = {
            "read": read_at - self._written_at,
            "write": now - read_at - done.sync_seconds,
            "sync": done.sync_seconds,
        }
        seconds, self._written_at = now - self._written_at, now
        causes, self._passed_over = count_causes(done.quarantined) + self._passed_over, Counter()
        expired, self._expired_bytes = self._expired_bytes, 0
        self._note(
            BatchReport(
                *(LOGIC, batch.start, batch.end, batch.messages, seconds, done.anomalies, causes),
                phases=phases,
                expired_bytes=expired,
            )
        )
        if self._table is not None:
            self._note(self._table.report(TableBatch.merge(read.table_file_rows()), seconds, phases))
        if self._on_arrival is not None and batch.arrivals is not None:
            self._on_arrival(batch.arrivals)

    def _note(self, report: BatchReport) -> None:
        """Add what was written to the micro-batch's report."""
        before = self._reports.get(report.query)
        self._reports[report.query] = report if before is None else before.followed_by(report)

    def _pass_over(self, start: int) -> None:
        """Go on at `start`, durably, if everything in the log from the sinks' end up to there has expired."""
        if self._table is not None:
            self._table.pass_over(start)
        end, quarantine = self._step.end_offset, self._step.quarantine
        if not self._continuity.is_gone(end, start):
            return
        self._continuity.report_expired(end, start)
        self._passed_over[EXPIRED] += 1
        self._expired_bytes += start - end
        if quarantine is not None and quarantine.end_offset < start:
            quarantine.write(start, (expired_range(quarantine.end_offset, start),))
        for sink in self._step.sinks:
            if sink.end_offset < start:
                sink.pass_over(start)
