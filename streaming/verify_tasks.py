"""What `reput verify` does in parallel, over ranges of the log and over files: functions that give plain values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from reput.sinks.finding import Findings
from reput.sinks.index_row import IndexRow
from reput.sinks.logic_batch import LogicBatch
from reput.sinks.logic_window import LogicNeeds, encode_window
from reput.sinks.record_digest import StretchSums, compared_fields
from reput.sinks.store_files import StoreFile, digest_file
from reput.sinks.verify_index import compare_index
from reput.sinks.verify_index_file import IndexFileCheck
from reput.sinks.verify_queue import QueueSettings, QueueTally, compare_queues
from reput.sinks.verify_queue_files import LogLimits, check_queue_files
from reput.source.batch_decoder import Int64s
from reput.source.dispatch_request import OffsetRange, ranges_of
from reput.source.errors import DataLossError
from reput.source.log_reader import LogReader
from reput.source.range_reader import DecodeOptions, read_windows
from reput.streaming.config import PipelineConfig
from reput.streaming.dispatch import run_job

_RESULT_DDL = "place bigint, result string"
_PARTITIONS_MAX = 64
# A broker that puts a key meanwhile changes entry, slot and header one after the other.
_LOOKS = 3


@dataclass(frozen=True)
class VerifySettings:
    """What tasks must know; `index` is None when none is wanted, `sums` asks for what a table is compared with."""

    queues: QueueSettings
    index: IndexRow | None
    needs: LogicNeeds
    decode: DecodeOptions
    log: LogLimits
    sums: bool = False


@dataclass(frozen=True)
class RangeResult:
    """What one range found: runs as in `QueueRun` and `IndexRun`, sums by stretch, the latest store time (ms)."""

    messages: int
    queue_runs: list[list[Any]]
    index_run: list[Any] | None
    sums: list[list[int]]
    store_timestamp_max: int
    queue_findings: dict[str, Any]


def read_batch(span: OffsetRange, settings: VerifySettings) -> tuple[LogicBatch, StretchSums, int]:
    """The effects of a range's records on queues and index, their sums, and the latest store time."""
    sums, latest, rows = StretchSums(), 0, []
    for window in read_windows(span.file, span.start, span.end, settings.decode):
        rows.append(encode_window(window, settings.needs))
        if len(window.columns):
            latest = max(latest, int(window.columns.store_timestamp.max()))
            if settings.sums:
                sums.take(compared_fields(window.columns))
    return LogicBatch.merge(pa.Table.from_batches(rows)), sums, latest


def verify_range(settings: VerifySettings, span: OffsetRange) -> RangeResult:
    """Compare one range with queues and index. Memory: the range's entries (28 bytes) and keys (20 bytes), a window.

    Raises
    ------
    DataLossError
        A file expired meanwhile.
    """
    with _expiry_told():
        return _verify_range(settings, span)


def _verify_range(settings: VerifySettings, span: OffsetRange) -> RangeResult:
    batch, sums, latest = read_batch(span, settings)
    findings = Findings()
    runs = compare_queues(settings.queues, batch, findings)
    index_run = None
    if settings.index is not None:
        index_run = compare_index(replace(settings.index), batch.keys, span.start, span.end)  # headers as they are now
    return RangeResult(
        batch.messages,
        [run.as_list() for run in runs],
        None if index_run is None else index_run.as_list(),
        sums.as_list(),
        latest,
        findings.as_dict(),
    )


def fields_of_range(settings: VerifySettings, span: OffsetRange) -> Iterator[list[Int64s]]:
    """The columns that a table is compared by, window by window."""
    for window in read_windows(span.file, span.start, span.end, settings.decode):
        yield compared_fields(window.columns)


def verify_item(settings: VerifySettings, item: Sequence[Any]) -> dict[str, Any]:
    """Check what one item names: a queue's files, one index file, or a file's digest; see `verify_range` for errors."""
    with _expiry_told():
        return _verify_item(settings, item)


def _verify_item(settings: VerifySettings, item: Sequence[Any]) -> dict[str, Any]:
    findings = Findings()
    if item[0] == "queue":
        top, topic, queue_id, first, end, made_early = item[1:]
        tally = QueueTally(top, topic.encode("utf-8", "surrogateescape"), queue_id, first, end)
        units = settings.queues.units(top, tally.topic, queue_id)
        check_queue_files(units, tally, settings.log, findings, made_early)
        ext = settings.queues.ext(top, tally.topic, queue_id)
        if ext is not None:
            ext.check_files(findings)
    elif item[0] == "index":
        assert settings.index is not None
        for _ in range(_LOOKS):
            findings = Findings()
            IndexFileCheck(replace(settings.index), item[1], findings).run()
            if not findings.differences:
                break
    else:
        return asdict(digest_file(StoreFile(item[1], Path(item[2])), item[3], item[4]))
    return findings.as_dict()


@contextmanager
def _expiry_told() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        msg = f"{error.filename} is gone: it expired while the store was verified; verify it again"
        raise DataLossError(msg) from error


class Runner(Protocol):
    """Where tasks run."""

    def over_ranges(self, settings: VerifySettings) -> list[RangeResult]:
        """`verify_range` over all of ``settings.log``, in log order."""

    def over_items(self, settings: VerifySettings, items: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """`verify_item` over the items, in their order."""


class LocalRunner:
    """In this process: for stores that are read before Spark would have started."""

    def __init__(self, log: LogReader) -> None:
        self._log = log

    def over_ranges(self, settings: VerifySettings) -> list[RangeResult]:
        """See `Runner`."""
        spans = self._log.split(settings.log.least, settings.log.limit)
        return [verify_range(settings, span) for span in spans]

    def over_items(self, settings: VerifySettings, items: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """See `Runner`."""
        return [verify_item(settings, item) for item in items]


class SparkRunner:
    """Ranges side by side, files side by side."""

    def __init__(self, spark: SparkSession, config: PipelineConfig) -> None:
        self._spark = spark
        self._config = config

    def over_ranges(self, settings: VerifySettings) -> list[RangeResult]:
        """See `Runner`."""
        from reput.source.data_source import NAME, CommitLogDataSource  # noqa: PLC0415

        if settings.log.least >= settings.log.limit:
            return []
        options = self._config.source_options(
            rows="ranges",
            startingOffset=settings.log.least,
            endingOffset=settings.log.limit,
            maxBytesPerPartition=self._config["maxBytesPerPartition"],
        )
        self._spark.dataSource.register(CommitLogDataSource)
        ranges = self._spark.read.format(NAME).options(**options).load()

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for span in ranges_of(batches):
                yield _result(span.start, asdict(verify_range(settings, span)))

        results = run_job(ranges, task, _RESULT_DDL).sort_by("place")
        return [RangeResult(**json.loads(text)) for text in results["result"].to_pylist()]

    def over_items(self, settings: VerifySettings, items: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """See `Runner`."""
        if not items:
            return []
        numbers: Any = self._spark.range(0, len(items), 1, min(len(items), _PARTITIONS_MAX))
        check: Callable[[VerifySettings, Sequence[Any]], dict[str, Any]] = verify_item

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield _result(number, check(settings, items[number]))

        results = run_job(numbers, task, _RESULT_DDL).sort_by("place")
        return [json.loads(text) for text in results["result"].to_pylist()]


def _result(place: int, values: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"place": [place], "result": [json.dumps(values)]})
