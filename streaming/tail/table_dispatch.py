"""What the query of the message table does with a micro-batch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from pyspark.sql import DataFrame

from reput.sinks.quarantine import EXPIRED
from reput.sinks.table.message_file import TableFileWriter
from reput.sinks.table.message_table import MessageTable, TableBatch
from reput.source.log.range_reader import DecodeOptions
from reput.source.record.message_decoder import RecordFingerprint
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.output.spark_checkpoint import TABLE
from reput.streaming.status.batch_report import BatchReport
from reput.streaming.tail import batch_reading
from reput.streaming.tail.batch_reading import SmallBatches
from reput.streaming.tail.batch_upkeep import BatchUpkeep
from reput.streaming.tail.log_continuity import LogContinuity
from reput.streaming.tail.micro_batch import OnRead, Report, ignored


class TableDispatch:
    """The message table: tasks write its files, the driver commits them."""

    names = (TABLE,)

    def __init__(
        self,
        table: MessageTable,
        decode: DecodeOptions,
        continuity: LogContinuity,
        report: Report,
        upkeep: BatchUpkeep | None = None,
        on_read: OnRead = ignored,
        small: SmallBatches | None = None,
    ) -> None:
        """`upkeep` is None if the table is not tidied; `on_read` and `small` as those of `LogicDispatch`."""
        self.table = table
        self._on_read = on_read
        self._small = small
        self._upkeep = upkeep
        self._decode = decode
        self._continuity = continuity
        self._report = report
        # What was passed over since the last report.
        self._passed_over: Counter[str] = Counter()
        self._expired_bytes = 0

    @property
    def end_offset(self) -> int:
        """Every record before this physical offset is in the table."""
        return self.table.end_offset

    @property
    def last_record(self) -> RecordFingerprint | None:
        """The last record that the table has."""
        return self.table.last_record

    def file_writer(self) -> TableFileWriter:
        """What writes the files of the next batch."""
        return self.table.file_writer(self.end_offset, self._decode)

    @property
    def is_writing(self) -> bool:
        """Never between batches."""
        return False

    def settle(self) -> None:
        """Nothing is left to be waited for."""

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        """Commit the table's files that are written for the batch's ranges."""
        began = time.monotonic()
        task = RangeTask(self._decode, None, file_writer=self.file_writer())

        def job(some: DataFrame) -> list[RangeEffects]:
            read = batch_reading.read_here(self._small, batch_id, task) if some is ranges else None
            return batch_reading.read_ranges(some, task) if read is None else read

        results = self._continuity.results(ranges, job, lambda: [self.last_record])
        if not results:
            self.pass_over(self._continuity.next_available(self.end_offset))
            return
        self._continuity.check([self.last_record])
        self._on_read(TABLE, results[-1].end)
        read_at = time.monotonic()
        for row in self._continuity.rows_of(results):
            batch = TableBatch.merge(row.table_file_rows())
            self.pass_over(batch.start)
            self.table.commit(batch)
            now = time.monotonic()
            self._report(self.report(batch, now - began, {"read": read_at - began, "commit": now - read_at}))
            began = read_at = now
        if self._upkeep is not None:
            self._upkeep.after_batch(sum(row.end - row.start for row in results))

    def while_idle(self) -> None:
        """Tidy the table a while: rows expire, too, where no message comes."""
        if self._upkeep is not None:
            self._upkeep.after_batch(0)

    def look(self) -> None:
        """Commit a merge whose files have been written since the last batch."""
        if self._upkeep is not None:
            self._upkeep.look()

    def finish(self) -> None:
        """Tidy the table."""
        if self._upkeep is not None:
            self._upkeep.at_end()

    def close(self) -> None:
        """Wait until nothing is written of a merge that is not committed, and remove it."""
        if self._upkeep is not None:
            self._upkeep.close()

    def report(self, batch: TableBatch, seconds: float, phases: Mapping[str, float]) -> BatchReport:
        """The report of a batch that was committed."""
        causes, self._passed_over = self._passed_over, Counter()
        expired, self._expired_bytes = self._expired_bytes, 0
        return BatchReport(
            *(TABLE, batch.start, batch.end, batch.messages, seconds),
            quarantined=causes,
            phases=phases,
            expired_bytes=expired,
        )

    def pass_over(self, start: int) -> None:
        """Go on at `start`, durably, if everything in the log from the table's end up to there has expired."""
        if self._continuity.is_gone(self.end_offset, start):
            self._continuity.report_expired(self.end_offset, start)
            self._passed_over[EXPIRED] += 1
            self._expired_bytes += start - self.end_offset
            self.table.pass_over(start)
