"""One micro-batch: a Spark job over its ranges, then each sink in turn. What ``doReput`` does for one read."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from reput.sinks.dispatch.arrival import ArrivalListener
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.window import WINDOW_SCHEMA, encode_window
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.scratch import SCRATCH_DDL, Scratch, hand_over
from reput.sinks.files.sink_progress import RecordFingerprint
from reput.sinks.quarantine import (
    EXPIRED,
    QuarantinedRange,
    count_causes,
    damage_of,
    expired_range,
    with_damage,
    with_damage_schema,
)
from reput.sinks.store_checkpoint import StoreCheckpoint, load_store_checkpoint, store_checkpoint
from reput.sinks.table.message_file import PART_DDL, PartWriter
from reput.sinks.table.message_table import MessageTable, TableBatch
from reput.source.log.offset_range import ranges_of
from reput.source.segments.range_reader import DecodeOptions, read_windows
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.output.progress import BatchReport
from reput.streaming.output.quarantine_step import QuarantineStep
from reput.streaming.output.spark_checkpoint import LOGIC, TABLE
from reput.streaming.spark.job import run_job
from reput.streaming.tail.log_continuity import LogContinuity

Report = Callable[[BatchReport], None]
_log = logging.getLogger("reput")


class Dispatch(Protocol):
    """What a query does with a micro-batch, and how far its sinks are."""

    name: str

    @property
    def end_offset(self) -> int:
        """Every sink has the effect of every record before this place."""

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        """Process the batch's ranges; durable on return. The batch id means nothing here."""


class LogicDispatch:
    """The quarantine, ConsumeQueue, IndexFile and the store's checkpoint, in this order."""

    name = LOGIC

    def __init__(
        self,
        logic: LogicSinks,
        files: DurableFiles,
        decode: DecodeOptions,
        continuity: LogContinuity,
        report: Report,
        on_arrival: ArrivalListener | None = None,
        quarantine: QuarantineStep | None = None,
    ) -> None:
        """`on_arrival` is told what each batch brought, once it is durable; a batch that is replayed tells it again.

        `quarantine` is None where damage ends the run.
        """
        self._sinks = logic.sinks
        self._index = logic.index
        self._files = files
        self._decode = decode
        self._continuity = continuity
        self._report = report
        self._needs = replace(logic.needs, arrivals=on_arrival is not None)
        self._on_arrival = on_arrival
        self._quarantine = quarantine
        self._scratch = Scratch(files)
        self._scratch.clear()
        # The batch before in this run: only then is the record before a batch known.
        self._last_end = -1
        self._last_record: RecordFingerprint | None = None
        # What was passed over since the last report.
        self._passed_over: Counter[str] = Counter()

    @property
    def end_offset(self) -> int:
        """The least of the sinks' ends."""
        ends = [sink.end_offset for sink in self._sinks]
        return min(ends if self._quarantine is None else [*ends, self._quarantine.end_offset])

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:  # noqa: ARG002
        """See `Dispatch`; one job: the ranges are read once."""
        began = time.monotonic()
        needs, decode, scratch = self._needs, self._decode, self._scratch.directory
        schema = with_damage_schema(WINDOW_SCHEMA)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for span in ranges_of(batches):
                windows = read_windows(span.file, span.start, span.end, decode)
                rows = (with_damage(encode_window(window, needs), window.damaged) for window in windows)
                yield hand_over(scratch, rows, schema)

        records = [sink.last_record for sink in self._sinks]
        results = self._continuity.results(ranges, lambda some: run_job(some, task, SCRATCH_DDL), records)
        if not results.num_rows:
            self._pass_over(self._continuity.next_available(self.end_offset))
            return
        rows = self._scratch.take(results["path"].to_pylist())
        self._continuity.check(records)
        for piece in self._continuity.pieces(rows):
            self._write(piece, began)
            began = time.monotonic()

    def _write(self, rows: pa.Table, began: float) -> None:
        batch = LogicBatch.merge(rows)
        self._pass_over(batch.start)
        quarantined: tuple[QuarantinedRange, ...] = ()
        if self._quarantine is not None:
            batch, quarantined = self._quarantine(batch, damage_of(rows))
        before = self._last_record if self._last_end == batch.start else None
        anomalies = batch.anomalies(before)
        for sink in self._sinks:
            anomalies += sink.write(batch)
        self._last_end, self._last_record = batch.end, batch.last_record or before
        if batch.last_record is not None and self._sinks:
            self._write_checkpoint(batch.last_record.store_timestamp)
        seconds = time.monotonic() - began
        causes, self._passed_over = count_causes(quarantined) + self._passed_over, Counter()
        stored = None if batch.last_record is None else batch.last_record.store_timestamp
        self._report(BatchReport(self.name, batch.start, batch.end, batch.messages, seconds, anomalies, causes, stored))
        if self._on_arrival is not None and batch.arrivals is not None:
            self._on_arrival(batch.arrivals)

    def _pass_over(self, start: int) -> None:
        """Go on at `start`, durably, where nothing is left of the log between the sinks' end and there."""
        end = self.end_offset
        if not self._continuity.is_gone(end, start):
            return
        self._continuity.tell(end, start)
        self._passed_over[EXPIRED] += 1
        if self._quarantine is not None and self._quarantine.end_offset < start:
            self._quarantine.write(start, (expired_range(self._quarantine.end_offset, start),))
        for sink in self._sinks:
            if sink.end_offset < start:
                sink.pass_over(start)

    def _write_checkpoint(self, store_timestamp: int) -> None:
        known = load_store_checkpoint(self._files)
        index = self._index.index_msg_timestamp if self._index else known.index_msg_timestamp
        # The record was read from the log, so the log has it; the broker's own value may be older.
        physic = max(known.physic_msg_timestamp, store_timestamp)
        store_checkpoint(self._files, StoreCheckpoint(physic, store_timestamp, index, known.others))


class TableDispatch:
    """The message table: tasks write its files, the driver commits them."""

    name = TABLE

    def __init__(
        self, table: MessageTable, broker: str, decode: DecodeOptions, continuity: LogContinuity, report: Report
    ) -> None:
        self._table = table
        self._broker = broker
        self._decode = decode
        self._continuity = continuity
        self._report = report
        # What was passed over since the last report.
        self._passed_over: Counter[str] = Counter()

    @property
    def end_offset(self) -> int:
        """Every record before this place is in the table."""
        return self._table.end_offset

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:  # noqa: ARG002
        """See `Dispatch`."""
        began = time.monotonic()
        writer = PartWriter(str(self._table.path), self._broker, self._table.end_offset, self._decode)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for span in ranges_of(batches):
                yield writer.write(span)

        records = [self._table.last_record]
        parts = self._continuity.results(ranges, lambda some: run_job(some, task, PART_DDL), records)
        if not parts.num_rows:
            self._pass_over(self._continuity.next_available(self.end_offset))
            return
        self._continuity.check(records)
        for piece in self._continuity.pieces(parts):
            batch = TableBatch.merge(piece)
            self._pass_over(batch.start)
            self._table.commit(batch)
            seconds, began = time.monotonic() - began, time.monotonic()
            self._report_batch(batch, seconds)

    def _report_batch(self, batch: TableBatch, seconds: float) -> None:
        causes, self._passed_over = self._passed_over, Counter()
        stored = None if batch.last_record is None else batch.last_record.store_timestamp
        self._report(
            BatchReport(
                *(self.name, batch.start, batch.end, batch.messages, seconds),
                quarantined=causes,
                store_timestamp=stored,
            )
        )

    def _pass_over(self, start: int) -> None:
        """Go on at `start`, durably, where nothing is left of the log between the table's end and there."""
        if self._continuity.is_gone(self.end_offset, start):
            self._continuity.tell(self.end_offset, start)
            self._passed_over[EXPIRED] += 1
            self._table.pass_over(start)


class BatchGate:
    """Lets a stop wait for the batch under way: `query.stop()` alone would cut it off."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._stopping = threading.Event()
        self._idle = threading.Lock()
        #: What ended a batch inside: its sinks may have a part of it, and are to be recovered before the next one.
        self.failure: BaseException | None = None

    def __call__(self, ranges: DataFrame, batch_id: int) -> None:
        """Process the batch, unless a stop was asked for: then end the query with StoppedBetweenBatchesError."""
        with self._idle:
            if self._stopping.is_set():
                # The batch before is committed, and this one is planned: it is done after the next start.
                raise StoppedBetweenBatchesError
            try:
                self._dispatch(ranges, batch_id)
            except Exception as error:
                self.failure = error
                raise
            except BaseException as error:
                self.failure = error
                # py4j catches none of these: its thread would end, and the JVM wait for its answer for ever.
                msg = f"{type(error).__name__} in a micro-batch: {error}"
                raise RuntimeError(msg) from error

    def close(self) -> None:
        """Let no further batch begin, and wait for the one under way."""
        self._stopping.set()
        with self._idle:
            pass


class StoppedBetweenBatchesError(Exception):
    """Ends a query whose stop was asked for, before its next batch begins."""
