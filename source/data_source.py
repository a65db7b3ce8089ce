"""The Spark data source ``rocketmq-commitlog``: thin adapters over the segments, the end, the ranges, the decoder.

Offsets are exclusive ends: an offset of 1000 says that every record before byte 1000 of the log was read. Spark
compares offsets as JSON text, so they are built in one place, with plain integers and a fixed order of keys.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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

from reput.source.commit_log_path import given_commit_logs
from reput.source.dispatch_request import RANGE_SCHEMA, OffsetRange, message_schema, spark_schema
from reput.source.errors import DataLossError, OptionError
from reput.source.options import LATEST, SourceOptions
from reput.source.worker_process import settle_worker

if TYPE_CHECKING:
    from reput.source.log_reader import LogReader

_log = logging.getLogger(__name__)

NAME = "rocketmq-commitlog"
_OFFSET_VERSION = 1


@dataclass
class RangePartition(InputPartition):
    """One range of the log, for one task."""

    range: OffsetRange


class CommitLogDataSource(DataSource):
    """A RocketMQ commitlog as rows of messages, or as ranges of places; batch and streaming.

    Register it once a session, then read; options are in ``options.SOURCE_OPTIONS``:

    >>> spark.dataSource.register(CommitLogDataSource)  # doctest: +SKIP
    >>> spark.read.format("rocketmq-commitlog").load("/data/store/commitlog").count()  # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def _options(self) -> SourceOptions:
        return SourceOptions.parse(self.options)

    def schema(self) -> StructType:
        """Columns of ``dispatch_request``: messages (with the body on request) or ranges."""
        options = self._options()
        if options.rows == "ranges":
            return spark_schema(RANGE_SCHEMA)
        return spark_schema(message_schema(include_body=options.include_body))

    def reader(self, schema: StructType) -> CommitLogReader:  # noqa: ARG002  Spark's signature
        """The batch reader."""
        return CommitLogReader(_with_commit_logs(self._options()))

    def streamReader(self, schema: StructType) -> CommitLogStreamReader:  # noqa: N802, ARG002
        """The micro-batch reader."""
        options = self._options()
        if options.ending_offset != LATEST:
            msg = "endingOffset is for batch reads; a stream has no end"
            raise OptionError(msg)
        return CommitLogStreamReader(_with_commit_logs(options))


def _with_commit_logs(options: SourceOptions) -> SourceOptions:
    """With the directories that hold the log where store roots were given; ranges are asked for by reput itself."""
    if options.rows == "ranges":
        return options
    return replace(options, path=given_commit_logs(options.path, dledger=options.enable_dledger_commit_log))


def _log_reader(options: SourceOptions) -> LogReader:
    # Workers that only pass ranges on need not load the compiled decoder.
    from reput.source.log_reader import LogReader  # noqa: PLC0415

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
    from reput.source.message_columns import read_messages  # noqa: PLC0415

    yield from read_messages(span, options)


class CommitLogReader(DataSourceReader):
    """One read of `[startingOffset, endingOffset)`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges that begin on a record; none for an empty log."""
        log = _log_reader(self._options)
        start = log.initial_offset()
        end = log.settled_end(start)
        if self._options.ending_offset != LATEST:
            assert isinstance(self._options.ending_offset, int)
            end = log.align_down(start, min(end, self._options.ending_offset))
        # Spark reads one partition of None when it gets none; an empty range says the same and is ours.
        return [RangePartition(span) for span in log.split(start, end)] or [_EmptyPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one range."""
        return iter(()) if isinstance(partition, _EmptyPartition) else _read(self._options, partition)


class _EmptyPartition(InputPartition):
    pass


class CommitLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Advances ``reputFromOffset`` in micro-batches."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._log = _log_reader(options)
        self._available_now_end: int | None = None
        self._initial_offset: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a first batch begins; the same answer however often Spark asks."""
        if self._initial_offset is None:
            self._initial_offset = self._offset(self._log.initial_offset())
        return self._initial_offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit from the options; with both, the bytes here and the messages in `latestOffset`."""
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.max_messages_per_trigger is not None:
            return ReadMaxRows(self._options.max_messages_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch, `start` itself when there is nothing new."""
        begin = self._checked(start)
        end = self._log.end(begin)
        if self._available_now_end is not None:
            end = max(begin, min(end, self._available_now_end))
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        messages_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if bytes_max is not None and messages_max is None:
            messages_max = self._options.max_messages_per_trigger
        end = self._log.limit(begin, end, bytes_max, messages_max)
        # Paranoia as in Kafka's source: never go back, and keep the text of an offset that did not move.
        return start if end <= begin else self._offset(end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the run: the log as it stands, its last record waited for."""
        self._available_now_end = self._log.settled_end(self._log.queue().min_offset)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the log, for the lag in the query's progress; None before the first look.

        Where what stands there is no record and no empty space, `badEnd` is the verdict's name.
        """
        end, bad_end = self._log.last_end, self._log.bad_end
        if end is None:
            return None
        return self._offset(end) | ({} if bad_end is None else {"badEnd": bad_end.name})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Ranges of `[start, end)` that begin on a record; none when they are equal."""
        begin, stop = self._checked(start), int(end["physicOffset"])
        return [RangePartition(span) for span in self._log.split(begin, stop)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one range."""
        return _read(self._options, partition)

    def _offset(self, offset: int) -> dict[str, Any]:
        identity = self._log.identity(offset)
        return {"version": _OFFSET_VERSION, "physicOffset": offset, **identity}

    def _checked(self, offset: dict[str, Any]) -> int:
        """The place that a checkpoint's offset names, after checking that this is still the same log."""
        if offset.get("version") != _OFFSET_VERSION:
            msg = f"the checkpoint's offset is {offset}, which is not of version {_OFFSET_VERSION} of this source"
            raise OptionError(msg)
        begin = int(offset["physicOffset"])
        self._log.check_identity(begin, offset)
        least = self._log.queue().min_offset
        if begin >= least:
            return begin
        msg = f"the log begins at {least}, records from {begin} on have expired unread"
        if self._options.fail_on_data_loss:
            msg += "; set failOnDataLoss=false to go on at the log's beginning"
            raise DataLossError(msg)
        _log.warning("%s; going on at the log's beginning", msg)
        return least
