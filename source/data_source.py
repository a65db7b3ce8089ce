"""The Spark data source ``rocketmq-commitlog``: thin adapters over the segments, the end, the ranges, the decoder.

Offsets are exclusive ends: an offset of 1000 means that every record before byte 1000 of the log was read. Each offset
also names the last record before it. So any process notices that a log was cut and overwritten before it reads more of
it. Spark compares offsets as JSON text, so one function builds them, with plain integers and a fixed order of keys.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from reput.source.errors import DataLossError, OptionError, TransientError, check_format, reported_through_spark
from reput.source.log.offset_range import RANGE_SCHEMA, OffsetRange
from reput.source.log.store_layout import given_commit_logs, log_ends_full, names_backup, other_size, row_of
from reput.source.options import LATEST, SourceOptions
from reput.source.record.message_decoder import RecordFingerprint
from reput.source.rows.message_schema import message_schema, spark_schema
from reput.source.stream_answers import StreamQuestions
from reput.source.system import settle_worker

if TYPE_CHECKING:
    from reput.source.log.log_reader import LogReader

_log = logging.getLogger(__name__)

NAME = "rocketmq-commitlog"
#: The format of the stream's offsets.
OFFSET_VERSION = 1
_LAST_RECORD = ("lastRecordOffset", "lastRecordSize", "lastRecordStoreTimestamp", "lastRecordBodyCrc")
# How long `latestOffset` may wait at the end of an idle log if Spark asks again immediately, as it does by the default
# of logicTriggerMs: most of the cost of a question is Spark's.
_IDLE_S = 0.5
_ASKED_AGAIN_WITHIN_S = 0.1
# Segments expire one after the other, but not at each of this many attempts.
_ATTEMPTS = 20

Answer = TypeVar("Answer")


@dataclass
class RangePartition(InputPartition):
    """One range of the log, for one task."""

    range: OffsetRange


class CommitLogDataSource(DataSource):
    """A RocketMQ commitlog as rows of messages, or as ranges of physical offsets; batch and streaming.

    Register it once per session, then read; options are in ``options.SOURCE_OPTIONS``:

    >>> spark.dataSource.register(CommitLogDataSource)  # doctest: +SKIP >>>
    spark.read.format("rocketmq-commitlog").load("/data/store/commitlog").count()  # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def _options(self) -> SourceOptions:
        return SourceOptions.parse(self.options)

    @reported_through_spark()
    def schema(self) -> StructType:
        """Columns of ``message_schema``: messages (with the body on request) or ranges."""
        options = self._options()
        if options.rows == "ranges":
            return spark_schema(RANGE_SCHEMA)
        return spark_schema(message_schema(include_body=options.include_body))

    @reported_through_spark()
    def reader(self, schema: StructType) -> CommitLogReader:  # noqa: ARG002  Spark's signature
        """The batch reader."""
        return CommitLogReader(self._with_commit_logs(self._options()))

    @reported_through_spark()
    def streamReader(self, schema: StructType) -> CommitLogStreamReader | AskingStreamReader:  # noqa: N802, ARG002
        """The micro-batch reader."""
        options = self._options()
        if options.answers_at is not None:
            return AskingStreamReader(options)
        if options.ending_offset != LATEST:
            raise OptionError("endingOffset is for batch reads; a stream has no end")
        return CommitLogStreamReader(self._with_commit_logs(options))

    def _with_commit_logs(self, options: SourceOptions) -> SourceOptions:
        """Put the log's directories in place of store roots; options for ranges, which only reput reads, have no roots.

        A mappedFileSizeCommitLog that all segments contradict is dropped, with a warning: the segments' own size is
        right.
        """
        if options.rows == "ranges":
            return options
        paths = given_commit_logs(options.path, dledger=options.enable_dledger_commit_log)
        size = options.mapped_file_size
        found = None if size is None else other_size([row_of(paths)], size, is_stated=True, ends_full=log_ends_full)
        if found is None:
            return replace(options, path=paths)
        _log.warning(
            "mappedFileSizeCommitLog=%d does not fit %s: %s; the log is read by that size",
            size,
            ", ".join(map(str, paths)),
            found.words("segment"),
        )
        return replace(options, path=paths, mapped_file_size=None)


def names_log_of_backup(options: Mapping[str, str]) -> bool:
    """Whether the options' path names a backup, which `sinks.backup.backup_source` reads."""
    given = next((text for name, text in options.items() if name.lower() == "path"), "")
    return names_backup(Path(given))


def _log_reader(options: SourceOptions) -> LogReader:
    from reput.source.log.log_reader import LogReader  # noqa: PLC0415

    return LogReader(options)


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, RangePartition)
    span = partition.range
    if options.rows == "ranges":
        row = {
            "start": span.start,
            "end": span.end,
            "file": span.file.path,
            "file_from_offset": span.file.file_from_offset,
            "file_size": span.file.size,
            "frame": span.file.frame,
        }
        yield pa.RecordBatch.from_pylist([row], RANGE_SCHEMA)
        settle_worker()
        return
    from reput.source.rows.message_rows import read_messages  # noqa: PLC0415

    with reported_through_spark():
        yield from read_messages(span, options)


class CommitLogReader(DataSourceReader):
    """One read of `[startingOffset, endingOffset)`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @reported_through_spark()
    def partitions(self) -> Sequence[InputPartition]:
        """Ranges that begin on a record; none for an empty log."""
        log = _log_reader(self._options)
        start = log.initial_offset()
        end = log.settled_end(start)
        if self._options.ending_offset != LATEST:
            assert isinstance(self._options.ending_offset, int)
            end = log.align_down(start, min(end, self._options.ending_offset))
        # Without a partition Spark reads the partition None; an empty one of our own has the same rows.
        return [RangePartition(span) for span in log.split(start, end)] or [_EmptyPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one range."""
        return iter(()) if isinstance(partition, _EmptyPartition) else _read(self._options, partition)


class _EmptyPartition(InputPartition):
    pass


def last_record_of_offset(offset: dict[str, Any]) -> RecordFingerprint | None:
    """The last record before an offset of this source, or None if the offset names none."""
    numbers = [int(offset.get(name, -1)) for name in _LAST_RECORD]
    return None if numbers[0] < 0 else RecordFingerprint(*numbers)


class CommitLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Advances ``reputFromOffset`` in micro-batches."""

    def __init__(self, options: SourceOptions, *, warns: bool = True) -> None:
        """Without `warns` this reader logs no warnings: the tasks that read the ranges report what is left out."""
        self._options = options
        self._warns = warns
        self._available_now_end: int | None = None
        self._initial_offset: dict[str, Any] | None = None
        self._identified: dict[str, Any] | None = None
        self._warned_of: tuple[int, int] | None = None
        self._answered_at = 0.0
        self._ahead: threading.Thread | None = None

    @cached_property
    def _log(self) -> LogReader:
        """The log, opened at first use: a process that only plans a read, or passes ranges on, loads no kernels."""
        log = _log_reader(self._options)
        log.warns = self._warns
        return log

    @reported_through_spark()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offset where a first batch begins; the same one at every call."""
        if self._initial_offset is None:
            begin = self._log.initial_offset()
            self._initial_offset = self._offset(begin, begin)
        return self._initial_offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit from the options; if both are set, bytes here and messages in `latestOffset`."""
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.max_messages_per_trigger is not None:
            return ReadMaxRows(self._options.max_messages_per_trigger)
        return ReadAllAvailable()

    @reported_through_spark()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself if there is nothing new.

        If Spark asks again immediately, this waits a moment for an idle log.

        Raises
        ------
        CommitLogRewoundError
            The log no longer has the record that was the last before `start`: it was cut and overwritten.
        DataLossError, SegmentError
            Records after `start` are no longer in the log, and `failOnDataLoss` is on.
        """
        waits = self._available_now_end is None and time.monotonic() - self._answered_at < _ASKED_AGAIN_WITHIN_S
        end = self._while_segments_go(lambda: self._end_of_batch(start, limit))
        if end == start and waits:
            self._log.wait_at(int(start["physicOffset"]), _IDLE_S)
            end = self._while_segments_go(lambda: self._end_of_batch(start, limit))
        self._answered_at = time.monotonic()
        return end

    def _end_of_batch(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = self._checked(start)
        end = self._log.end(begin)
        if self._available_now_end is not None:
            end = max(begin, min(end, self._available_now_end))
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        messages_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if bytes_max is not None and messages_max is None:
            messages_max = self._options.max_messages_per_trigger
        end = self._log.limit(begin, end, bytes_max, messages_max)
        # Only now: the bytes after the last record are the log's if it still has that record after they were read.
        self._check_last_record(start, is_idle=end <= begin)
        # Paranoia as in Kafka's source: never go back, and keep the text of an offset that did not move.
        return start if end <= begin else self._offset(end, int(start.get("startOffset", begin)))

    @reported_through_spark()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run: the log's end as it is now, after a wait for the last record."""
        self._available_now_end = self._while_segments_go(lambda: self._log.settled_end(self._log.queue().min_offset))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the log, for the lag in the query's progress; None before the first look.

        If the bytes there are neither a record nor empty space, `badEnd` is the verdict's name.
        """
        end, bad_end = self._log.last_end, self._log.bad_end
        if end is None:
            return None
        named = {"version": OFFSET_VERSION, "physicOffset": end}
        return named | ({} if bad_end is None else {"badEnd": bad_end.name})

    @reported_through_spark()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Ranges of `[start, end)` that begin on a record; none if the two are equal.

        Raises
        ------
        CommitLogRewoundError, DataLossError
            For the reasons of `latestOffset`.
        TransientError
            The log was cut after `start` since `end` was its end.
        """
        stop = int(end["physicOffset"])
        spans = self._while_segments_go(lambda: list(self._log.split(self._checked(start), stop)))
        last = last_record_of_offset(end)
        if last is not None and self._log.find_record(last) != last:
            raise TransientError(
                f"the log was cut before [{start['physicOffset']}, {stop}) of it was read: it no longer has the record "
                f"at offset {last.offset}",
                advice="start the same command again (a stream of your own needs a new checkpoint)",
                physical_offset=last.offset,
            )
        self._look_ahead(stop)
        return [RangePartition(span) for span in spans]

    def _look_ahead(self, start: int) -> None:
        """Follow the records of the next batch while the tasks read this one."""
        if (bytes_max := self._options.max_bytes_per_trigger) is not None:
            self._ahead = threading.Thread(target=self._log.look_ahead, args=(start, bytes_max), daemon=True)
            self._ahead.start()

    def _wait_for_look_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.join()
            self._ahead = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one range."""
        return _read(self._options, partition)

    def _while_segments_go(self, ask: Callable[[], Answer]) -> Answer:
        """The result of `ask`; with ``failOnDataLoss=false`` it is called again if segments expire meanwhile."""
        self._wait_for_look_ahead()
        for left in reversed(range(_ATTEMPTS)):
            try:
                return ask()
            except DataLossError:
                if self._options.fail_on_data_loss or not left:
                    raise
                self._log.look_anew()
        raise AssertionError

    def _offset(self, offset: int, start_offset: int) -> dict[str, Any]:
        """Spark's offset for `offset` of the log; `start_offset` is where the stream began to read."""
        last = self._log.last_record_before(offset)
        numbers = (-1,) * len(_LAST_RECORD) if last is None else astuple(last)
        return {
            "version": OFFSET_VERSION,
            "physicOffset": offset,
            **self._log.identity(offset),
            "startOffset": start_offset,
            **dict(zip(_LAST_RECORD, numbers, strict=True)),
        }

    def _checked(self, offset: dict[str, Any]) -> int:
        """The physical offset in a checkpoint's offset, after a check that this is still the same log."""
        try:
            check_format("the checkpoint's offset", offset.get("version"), OFFSET_VERSION)
        except ValueError as error:
            raise OptionError(
                f"the checkpoint's offset is {offset}, which this source did not write: {error}"
            ) from error
        begin = int(offset["physicOffset"])
        self._check_last_record(offset, is_idle=False)
        if self._identified != offset:
            self._log.check_identity(begin, offset)
            self._identified = offset
        queue = self._log.queue()
        further = queue.next_available(begin)
        # `LogReader.end` raises the error for segments that end before a hole.
        if further == begin or (self._options.fail_on_data_loss and begin >= queue.min_offset):
            return begin
        if begin < queue.min_offset:
            gone = f"the log begins at {further}, records from {begin} on have expired unread"
            goes_on = "at the log's beginning"
        else:
            gone = f"the segments of [{begin}, {further}) are missing, their records are unread"
            goes_on = "after them"
        if self._options.fail_on_data_loss:
            raise DataLossError(gone, advice=f"set failOnDataLoss=false to continue {goes_on}", physical_offset=begin)
        if self._warns and self._warned_of != (begin, further):
            self._warned_of = begin, further
            _log.warning("%s; continuing %s", gone, goes_on)
        return further

    def _check_last_record(self, offset: dict[str, Any], *, is_idle: bool) -> None:
        if (last := last_record_of_offset(offset)) is not None:
            begin = int(offset.get("startOffset", offset["physicOffset"]))
            self._log.check_last_record(last, begin, is_idle=is_idle)


class AskingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Passes Spark's calls on to a `CommitLogStreamReader` of another process, and loads no compiled code."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.answers_at is not None
        self._options = options
        self._questions = StreamQuestions(Path(options.answers_at))

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """As the other reader's."""
        return self._questions.ask(CommitLogStreamReader.initialOffset)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As the other reader's."""
        return self._questions.ask(CommitLogStreamReader.getDefaultReadLimit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """As the other reader's."""
        return self._questions.ask(CommitLogStreamReader.latestOffset, start, limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """As the other reader's."""
        self._questions.ask(CommitLogStreamReader.prepareForTriggerAvailableNow)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """As the other reader's."""
        return self._questions.ask(CommitLogStreamReader.reportLatestOffset)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """As the other reader's."""
        return self._questions.ask(CommitLogStreamReader.partitions, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one range."""
        return _read(self._options, partition)
