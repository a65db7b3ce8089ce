"""What `reput verify` does side by side, over ranges of the log and over files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.window import LogicNeeds, encode_window
from reput.sinks.index.index_reader import IndexReader
from reput.sinks.table.record_digest import StretchSums, compared_fields
from reput.sinks.verify.findings import Findings
from reput.sinks.verify.index_file import IndexFileCheck
from reput.sinks.verify.index_keys import compare_index
from reput.sinks.verify.manifest import StoreFile, digest_file
from reput.sinks.verify.queue_entries import QueueSettings, QueueTally, compare_queues
from reput.sinks.verify.queue_files import LogLimits, check_queue_files
from reput.source.arrays import Int64s
from reput.source.errors import DataLossError
from reput.source.log.offset_range import OffsetRange
from reput.source.segments.range_reader import DecodeOptions, read_windows
from reput.streaming.tasks.tasks import Tasks, run_over

# A broker that puts a key meanwhile changes entry, slot and header one after the other.
_LOOKS = 3


@dataclass(frozen=True)
class VerifySettings:
    """What tasks must know; `index` is None when none is wanted, `sums` asks for what a table is compared with."""

    queues: QueueSettings
    index: IndexReader | None
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


def verify_ranges(tasks: Tasks, settings: VerifySettings, spans: Sequence[OffsetRange]) -> list[RangeResult]:
    """`verify_range` of each, in their order."""
    results = run_over(tasks, lambda span: asdict(verify_range(settings, span)), spans)
    return [RangeResult(**result) for result in results]


def verify_items(tasks: Tasks, settings: VerifySettings, items: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """`verify_item` of each, in their order."""
    return run_over(tasks, lambda item: verify_item(settings, item), items)
