"""The Delta table of message metadata: opened or created, and kept in step with the log.

Tasks write its files (``message_file``), and the driver commits them. The transaction's version is the end offset in
the log, so a replayed batch, a lost checkpoint or other batch boundaries can neither lose nor double a row. Whenever
another writer has committed, ``watch`` checks that the table still has the committed rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeGuard

import pyarrow as pa

from reput.sinks.dispatch.batch import in_log_order, last_fingerprint
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import KeepsProgress, ProgressFile, RecordFingerprint, SinkProgress
from reput.sinks.table.columns import BODY_SCHEMA, COLUMN_COMMENTS, commented
from reput.sinks.table.data_file import DataFile, last_row
from reput.sinks.table.delta_table import DeltaTable, Note
from reput.sinks.table.forgotten_rows import ForgottenRows, forgotten_rows, no_longer_forgotten
from reput.sinks.table.history import DISPATCHED
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import Snapshot, commit_digest, transaction_id
from reput.sinks.table.message_file import FILE_COLUMNS, STATISTICS_COLUMNS, TableFileWriter, table_schema
from reput.sinks.table.storage import output_errors
from reput.sinks.table.watch import RowLedger, TableWatch
from reput.source.errors import SinkError
from reput.source.log.range_reader import DecodeOptions
from reput.source.rows.message_schema import LATER_NAMES

_COMMENT = "Metadata of the messages in RocketMQ's commitlogs, a row each, kept by reput"
_PROPERTIES = {
    "delta.dataSkippingStatsColumns": ",".join(STATISTICS_COLUMNS),
    # Fewer checkpoints than by default, because there is a commit every ten seconds and each checkpoint copies the
    # whole file list.
    "delta.checkpointInterval": "50",
    # Each checkpoint names the files removed in this time, and merges of small files remove many.
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
# How far before an offset the last record may begin: the size of a record and of the blank after it.
_LOOK_BACK_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class TableBatch:
    """The files that a micro-batch's tasks wrote for `[start, end)` of the log."""

    start: int
    end: int
    messages: int
    last_record: RecordFingerprint | None
    files: tuple[DataFile, ...]

    @classmethod
    def merge(cls, rows: pa.Table) -> TableBatch:
        """Merge the tasks' rows (``message_file.TABLE_FILE_SCHEMA``); raises SinkError if one is missing."""
        rows = in_log_order(rows)
        files = [
            DataFile(**{name: row[name] for name in FILE_COLUMNS})
            for row in rows.to_pylist()
            if row["path"] is not None
        ]
        return cls(
            start=rows["start"][0].as_py(),
            end=rows["end"][-1].as_py(),
            messages=sum(rows["messages"].to_pylist()),
            last_record=last_fingerprint(rows["last_record"].to_pylist()),
            files=tuple(files),
        )


class MessageTable(KeepsProgress):
    """Keeps one broker's messages in the table; several brokers may share one."""

    name = "messages"

    def __init__(
        self,
        path: TableLocation,
        broker: str,
        output: DurableFiles,
        *,
        log_begin: int = 0,
        accepts_loss: bool = False,
        body_bytes_max: int | None = None,
        must_exist: bool = False,
    ) -> None:
        """Open the table at `path` or create it, by `must_exist` and with the errors of ``DeltaTable.open_or_create``.

        `log_begin` is where the log begins; with `accepts_loss`, lost rows from before `log_begin` are not an error.
        `body_bytes_max` is that of its file writers: a table that should have bodies gets their columns.
        """
        #: The table itself.
        self.delta = DeltaTable.open_or_create(
            path,
            commented(table_schema(include_body=body_bytes_max is not None), COLUMN_COMMENTS),
            properties=_PROPERTIES,
            comment=_COMMENT,
            later={*LATER_NAMES, *BODY_SCHEMA.names},
            must_exist=must_exist,
        )
        self.path = self.delta.path
        self._broker = broker
        self._body_bytes_max = body_bytes_max
        self._app_id = transaction_id(broker)
        #: Checks the effects of other writers on the broker's rows.
        self.watch = TableWatch(self.delta, self._app_id, broker, log_begin=log_begin, accepts_loss=accepts_loss)
        self._ledger = RowLedger(-1, None, ())
        self._record = ProgressFile(output, self.name)

    @cached_property
    def forgotten(self) -> ForgottenRows:
        """The broker's rows that had been forgotten at the first use of this; raises OutputError."""
        return forgotten_rows(self.delta.storage, self._broker)

    def restore_forgotten(self, start: int, end: int) -> None:
        """Record that the table has forgotten rows with offsets in `[start, end)` again; raises OutputError."""
        no_longer_forgotten(self.delta.storage, self._broker, start, end)
        self.__dict__.pop("forgotten", None)  # it is read again

    def file_writer(
        self, trim_from: int, decode: DecodeOptions, forgotten: ForgottenRows | None = None
    ) -> TableFileWriter:
        """The writer of the table's files, for tasks: all rows but the `forgotten` ones, by default the table's."""
        forgotten = self.forgotten if forgotten is None else forgotten
        return TableFileWriter(self.delta.storage, self._broker, trim_from, decode, self._body_bytes_max, forgotten)

    def recover(self, start_offset: int) -> SinkProgress:
        """Find out from the table's own transactions how far it has come; a first start begins at `start_offset`.

        A start whose first batch was never committed keeps its beginning, even if the log has changed since.

        Raises
        ------
        RowsLostError
            Committed rows are gone that were not removed on purpose.
        """
        record = self._record.load()
        committed = self.delta.last_transaction_version(self._app_id)
        ledger = None if record is None else RowLedger.from_state(record.state, self._record.path)
        self._ledger = self.watch.check_at_start(ledger, committed)
        if committed is None and not self.is_first_start(record):
            record = SinkProgress(start_offset, start_offset)
        elif committed is not None and (record is None or record.end_offset != committed):
            start = start_offset if record is None else record.start_offset
            record = SinkProgress(start, committed, self._last_row(committed))
        assert record is not None
        self._store(record)
        return record

    @property
    def committed(self) -> int | None:
        """The version of the broker's last transaction, where its rows should end; None before the first."""
        return self.delta.last_transaction_version(self._app_id)

    def record_of_last_row(self) -> RecordFingerprint | None:
        """The broker's last record with a row in a file that can be read."""
        return None if self.committed is None else self._last_row(self.committed, passes_over=True)

    def count(self) -> int:
        """The number of the broker's rows in the table."""
        return self.watch.count_at([2**63 - 1]).rows

    def accept_as_is(self, offsets: Sequence[int], start_offset: int) -> None:
        """Record that the table must have the rows that it has now, counted at `offsets`, and how far it has come.

        Its rows from `start_offset` on are those of the log. Rows that it should have had, and that no log can bring
        again, are reported. The broker must have a transaction.
        """
        record = self._record.load()
        end = self.committed
        assert end is not None
        self._ledger = self.watch.count_at([offset for offset in offsets if offset < end] + [end])
        ledger = None if record is None else RowLedger.from_state(record.state, self._record.path)
        if ledger is not None:
            self.watch.report_lost_rows(ledger.until(end))
        start = start_offset if record is None else min(record.start_offset, start_offset)
        self._store(SinkProgress(min(start, end), end, self._last_row(end)))

    def _store(self, progress: SinkProgress) -> None:
        self._record.store(replace(progress, state=self._ledger.to_state()))

    @staticmethod
    def is_first_start(record: SinkProgress | None) -> TypeGuard[SinkProgress]:
        """Whether the record is of a table without a row; if not, the table was removed or replaced."""
        return record is not None and record.start_offset == record.end_offset and record.last_record is None

    def commit(self, batch: TableBatch) -> None:
        """Commit a batch's files in one transaction, durably; a batch that the table already has is ignored.

        Raises
        ------
        SinkError
            The batch begins after `end_offset`: records would be skipped.
        RowsLostError
            Another writer's commit removed rows; nothing was written.
        """
        if batch.end <= self.end_offset:
            return
        if batch.start > self.end_offset:
            raise SinkError(
                f"the table ends at {self.end_offset}, the batch begins at {batch.start}: records between are missing",
                file=self.path,
                physical_offset=self.end_offset,
            )
        self._append(batch.files, batch.end, batch.messages, DISPATCHED)
        self._record.advance(batch.end, batch.last_record, self._ledger.to_state())

    def pass_over(self, end_offset: int) -> None:
        """Continue at `end_offset`: the records before it expired unread."""
        self._append((), end_offset, 0, "expired unread")
        self._record.pass_over(end_offset, self._ledger.to_state())

    def _append(self, files: Sequence[DataFile], end: int, rows: int, what: str) -> None:
        note: Note = {
            "broker": self._broker,
            "what": what,
            "start": self.end_offset,
            "end": end,
            "messages": rows,
        }
        version = self.delta.append(files, app_id=self._app_id, version=end, check=self._check, note=note)
        digest = commit_digest(self.delta.storage, version)
        self._ledger = self._ledger.with_batch(end, rows).seen_at(version, digest)

    def _check(self, version: int) -> None:
        self._ledger = self.watch.check_before_commit(self._ledger, version)

    def _last_row(self, before: int, *, passes_over: bool = False) -> RecordFingerprint | None:
        """The record of the broker's last row before an offset; `passes_over` files that cannot be read."""
        path, storage = self.path, self.delta.storage

        def find(snapshot: Snapshot) -> tuple[int, ...] | None:
            files = self.delta.files_between(snapshot, before - _LOOK_BACK_BYTES, before)
            return last_row(storage, files, self._broker, before - _LOOK_BACK_BYTES, before, passes_over=passes_over)

        with output_errors(f"{path}: cannot read the last row of broker {self._broker!r}", path):
            row = self.delta.of_snapshot(find)
        return None if row is None else RecordFingerprint(*row)
