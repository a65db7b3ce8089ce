"""Repair of the message table in place: rows that differ from the log are replaced, in one commit.

Rows of records that have expired from the log stay; rows after the end of a log that was cut are removed. Rows that
have expired from the table by ``tableRetention`` may be there or not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import REPUT, SPARK_CHECKPOINT
from reput.sinks.table.comparison import STRETCH_BYTES, RecordRows, StretchSums, identities, plain_rows, row_digests
from reput.sinks.table.data_file import DataFile
from reput.sinks.table.forgotten_rows import NONE_FORGOTTEN, ForgottenRows
from reput.sinks.table.log import transaction_id
from reput.sinks.table.message_table import MessageTable, TableBatch
from reput.sinks.table.replace import LogRanges, RowReplacement
from reput.sinks.table.retention import ExpiryLimits
from reput.source.errors import OptionError, OutputError
from reput.source.log.log_reader import LogReader
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import DecodeOptions, read_windows
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.logic_sinks import fingerprint_at
from reput.streaming.output.table_rows import ComparedRows, compared_rows
from reput.streaming.tasks.tasks import Tasks, run_over

_log = logging.getLogger("reput")

_FOR_EVER = 2**63 - 1
# At most this many differing stretches are searched for a record that log and table agree on.
_SEARCHED = 16
# The rows are counted at this many offsets afterwards.
_MARKS = 32
_LISTED_MAX = 5


class TableRepair:
    """Repairs one broker's rows in a table; the output is locked meanwhile."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        tasks: Tasks,
        config: PipelineConfig,
        table: MessageTable,
        output: DurableFiles,
        *,
        restores_forgotten: bool = False,
    ) -> None:
        """Rows that were forgotten are made again only if it `restores_forgotten` ones.

        `spark` gives a session for a table that only Spark reads.
        """
        self._spark = spark
        self._tasks = tasks
        self._config = config
        self._table = table
        self._output = output
        self._log = self._reader(config.logic.max_bytes_per_partition)
        self._least = self._log.queue().min_offset
        self._expired = config.table.retention.limits(time.time())
        self._restores_forgotten = restores_forgotten
        self._forgotten = NONE_FORGOTTEN if restores_forgotten else table.forgotten

    def run(self, start: int | None, end: int | None) -> None:
        """Replace the rows of `[start, end)`, at both of which records begin; without either, the rows that differ.

        Rows behind the table's end are not made here. If the log was cut and no `end` is given, the table ends
        afterwards where the log ends.

        Raises
        ------
        OptionError
            An `end` is given, and the log was cut.
        OutputError
            Log and table have no record in common, or the log may be damaged rather than cut, and nothing was changed;
            or the table cannot be written.
        """
        log_end = self._log.settled_end(self._least)
        committed = self._table.committed
        bad = self._table.watch.bad_files()
        if committed is None:
            start = end = None  # it may have rows, but no transaction says up to where they are complete
            if not (bad or self._table.count()):
                return
        limit = log_end if committed is None else self._limit(committed, log_end)
        is_cut = committed is not None and committed > max(limit, self._least)
        if start is None and end is None:
            if is_cut:
                self._check_cut(limit)
            ranges = self._differing(limit, is_cut=is_cut)
        else:
            if is_cut and end is not None:
                raise OptionError(
                    f"--to {end}: the log was cut and the table ends after that, at {committed}",
                    advice="leave --to out",
                )
            begin, stop = start or self._least, limit if end is None else min(end, limit)
            stop = _FOR_EVER if is_cut and end is None else stop
            ranges = [(begin, stop)] if begin < stop else []
        if committed is not None and committed < self._least:
            limit = committed  # all rows of the table are of expired records
        if start is not None or end is not None:
            bad = []  # bad files outside of the range are reported later
        if ranges or bad or committed is None:
            self._report_removed_on_purpose()
            self._replace(ranges, bad, limit)
        elif start is None and end is None:
            _log.info("table: its rows of [%d, %d) are those of the log", self._least, limit)
        self._settle_forgotten(self._least if start is None else start, _FOR_EVER if end is None else end)
        self._table.accept_as_is(self._mark_offsets(ranges, limit), self._least if start is None else start)
        self._output.remove_tree(REPUT, SPARK_CHECKPOINT, "table")  # `tail` begins where the table ends

    def _settle_forgotten(self, start: int, end: int) -> None:
        if self._restores_forgotten:
            self._table.restore_forgotten(start, end)
        elif count := self._forgotten.between(start, end):
            text = "table: %d rows that were forgotten are not made again; --restore-forgotten brings them back"
            _log.info(text, count)

    def _limit(self, committed: int, log_end: int) -> int:
        """Return the end of the comparison: the table's end, or the begin of the record around it."""
        if committed >= log_end or committed <= self._least:
            return max(self._least, min(committed, log_end))
        before = self._log.align_down(self._least, committed)
        return before if self._log.limit(before, log_end, 1, None) > committed else committed

    def _check_cut(self, limit: int) -> None:
        """Raise OutputError if the table's last record is still after the log's end: the log may be damaged there."""
        known = self._table.record_of_last_row()
        file = None if known is None else self._log.queue().find(known.offset)
        if known is None or known.offset < limit or file is None or known.offset + known.size > file.end:
            return
        if fingerprint_at(self._log, known) == known:
            raise OutputError(
                f"{self._table.path}: the log ends at {limit}, and the table's last record is after that, "
                f"at {known.offset}: the log is damaged (onDamage=quarantine passes over it), or it was cut and the "
                "broker has not written on",
                advice=f"'--from {limit}' removes the table's rows from there on",
                file=self._table.path,
                physical_offset=limit,
            )

    def _replace(self, ranges: Sequence[tuple[int, int]], bad: Sequence[DataFile], limit: int) -> None:
        reader = self._reader(self._config.table.max_bytes_per_partition)
        writer = self._table.file_writer(0, reader.decode_options, self._forgotten)
        spans = [span for begin, end in ranges for span in reader.split(begin, min(end, limit)) if begin < limit]
        rows = run_over(self._tasks, writer.write, spans)
        batches = [TableBatch.merge(pa.Table.from_batches([row])) for row in rows]
        files = [file for batch in batches for file in batch.files]
        replacement = RowReplacement(self._table.delta, self._config.broker.name, LogRanges(ranges), files, bad)
        version = replacement.commit(transaction_id(self._config.broker.name), limit)
        listed = ", ".join(f"[{begin}, {min(end, limit)})" for begin, end in ranges[:_LISTED_MAX] if begin < limit)
        more = f" and {len(ranges) - _LISTED_MAX} more" if len(ranges) > _LISTED_MAX else ""
        messages = sum(batch.messages for batch in batches)
        _log.info("table: %d rows of %s%s made again, in version %d", messages, listed or "no range", more, version)

    def _report_removed_on_purpose(self) -> None:
        wanted = self._table.watch.removed_on_purpose()
        if wanted:
            text = "table: rows that were changed on purpose are made as the log has them; do it again if need be: %s"
            _log.warning(text, "; ".join(wanted[-_LISTED_MAX:]))

    # --- where log and table differ ---------------------------------------------------------------------------

    def _differing(self, limit: int, *, is_cut: bool) -> list[tuple[int, int]]:
        """Return the ranges, between whole records, in which the table differs from the log."""
        path, broker = self._table.path, self._config.broker.name
        rows = compared_rows(path, broker, self._expired, self._tasks, self._spark, least=self._least)
        found, _ = rows.sums()
        expected = self._log_sums(limit)
        differing = expected.differing(found)
        agrees = len(expected.sums.keys() - set(differing)) > 0
        contradicted = [stretch for stretch in differing if stretch in found.sums]
        if contradicted and not agrees and not self._have_common(rows, contradicted, limit):
            raise OutputError(
                f"{path}: no row of broker {broker!r} is of a record of the log [{self._least}, {limit}): this is "
                "another store, or its log is empty; nothing was changed",
                file=path,
            )
        ranges = _joined([(stretch * STRETCH_BYTES, (stretch + 1) * STRETCH_BYTES) for stretch in differing])
        aligned = [(self._begin(begin, limit), self._end(end, limit)) for begin, end in ranges]
        if is_cut:
            aligned.append((limit, _FOR_EVER))
        return _joined([(begin, end) for begin, end in aligned if begin < end])

    def _log_sums(self, limit: int) -> StretchSums:
        decode, limits, forgotten = self._log.decode_options, self._expired, self._forgotten
        spans = list(self._log.split(self._least, limit))
        results = run_over(self._tasks, lambda span: _sums_of(span, decode, limits, forgotten), spans)
        sums = StretchSums()
        for result in results:
            sums.add_all(result)
        return sums

    def _have_common(self, rows: ComparedRows, stretches: Sequence[int], limit: int) -> bool:
        """Whether some row in these stretches is of a record of the log."""
        for stretch in stretches[:_SEARCHED]:
            low, high = stretch * STRETCH_BYTES, (stretch + 1) * STRETCH_BYTES
            there = {each for batch in rows.between(low, high) for each in identities(plain_rows(batch))}
            begin, end = self._begin(low, limit), min(self._end(high, limit), limit)
            for span in self._log.split(begin, end) if begin < end else ():
                windows = read_windows(span.file, span.start, span.end, self._log.decode_options)
                for records in RecordRows(None, NONE_FORGOTTEN).batches(windows):
                    if there & identities(plain_rows(records)):
                        return True
        return False

    def _begin(self, offset: int, limit: int) -> int:
        return self._log.align_down(self._least, max(self._least, offset)) if offset < limit else limit

    def _end(self, offset: int, limit: int) -> int:
        """Return the begin of the first record at `offset` or later; after the log's end, `offset` itself."""
        if offset >= limit:
            return max(offset, limit)
        begin = self._begin(offset, limit)
        return begin if begin >= offset else self._log.limit(begin, limit, 1, None)

    # --- afterwards -------------------------------------------------------------------------------------------

    def _mark_offsets(self, ranges: Sequence[tuple[int, int]], limit: int) -> list[int]:
        """Return the offsets at which rows will be counted: bounds of `ranges`, and beginnings of segments."""
        ends = [offset for each in ranges for offset in each if offset < limit]
        segments = [file.file_from_offset for file in self._log.queue().files if file.file_from_offset < limit]
        step = max(1, len(segments) // _MARKS)
        return sorted({self._least, *segments[::step], *ends[:_MARKS]} - {0})

    def _reader(self, bytes_a_range: int) -> LogReader:
        return LogReader(self._config.log_options(maxBytesPerPartition=bytes_a_range))


def _sums_of(span: OffsetRange, decode: DecodeOptions, limits: ExpiryLimits, forgotten: ForgottenRows) -> StretchSums:
    sums = StretchSums()
    for rows in RecordRows(limits, forgotten).batches(read_windows(span.file, span.start, span.end, decode)):
        sums.take(row_digests(rows))
    return sums


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges, sorted, with those that touch or overlap joined."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined
