"""The tasks of `reput verify`, over ranges of the log and over files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from reput.sinks.dispatch.entries import KeyEntries
from reput.sinks.dispatch.piece_entries import PieceEntries
from reput.sinks.index.index_reader import IndexReader
from reput.sinks.table.record_digest import RecordRows, StretchSums
from reput.sinks.verify.findings import Findings
from reput.sinks.verify.index_file import IndexFileCheck
from reput.sinks.verify.index_keys import ComparedKeys, compare_index, compare_untagged
from reput.sinks.verify.log_limits import LogLimits
from reput.sinks.verify.manifest import FileDigest, StoreFile, digest_file
from reput.sinks.verify.queue_entries import ComparedEntries, QueueSettings, QueueTally, compare_queues
from reput.sinks.verify.queue_files import check_queue_files
from reput.source.errors import DataLossError
from reput.source.log.offset_range import OffsetRange
from reput.source.segments.range_reader import read_windows
from reput.streaming.effects.range_task import RangeTask
from reput.streaming.tasks.tasks import Tasks, run_over

# How often a file is checked: a broker that puts a key meanwhile changes entry, slot and header one after the other.
_LOOKS = 3


@dataclass(frozen=True)
class VerifySettings:
    """What tasks must know; `index` is None if none is compared, and `task` reads a range of the log."""

    queues: QueueSettings
    index: IndexReader | None
    task: RangeTask
    log: LogLimits


@dataclass(frozen=True)
class VerifiedRange:
    """What was found in one range, from the offset `start` on.

    `store_timestamp_max` is the latest store time in ms, `queued_offset` where the last record with a queue entry
    begins; None without one. `damaged` are the stretches of it without a record, where damage is passed over.
    """

    start: int
    messages: int
    compared_entries: list[ComparedEntries]
    compared_keys: ComparedKeys | None
    sums: StretchSums
    store_timestamp_max: int
    queued_offset: int | None
    queue_findings: Findings
    damaged: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class QueueItem:
    """A queue whose files are to be checked; `made_early` is as in ``check_queue_files``."""

    tally: QueueTally
    made_early: int | None


@dataclass(frozen=True)
class IndexItem:
    """An index file that is to be checked, by its number in the sequence of files."""

    file: int


def verify_range(settings: VerifySettings, span: OffsetRange) -> VerifiedRange:
    """Compare one range with queues and index.

    Memory: the range's entries (28 bytes each) and keys (20 bytes each), and a window.

    Raises
    ------
    DataLossError
        A file expired meanwhile.
    """
    with _expiry_as_error():
        return _verify_range(settings, span)


def _verify_range(settings: VerifySettings, span: OffsetRange) -> VerifiedRange:
    read = settings.task.read(span)
    entries = PieceEntries.read(piece["arrays"] for piece in read.pieces)
    findings = Findings()
    compared_entries = compare_queues(settings.queues, entries, findings)
    compared_keys = None
    if settings.index is not None:
        row, keys = replace(settings.index), entries.keys()  # headers as they are now
        compared_keys = compare_index(row, keys, span.start, span.end)
        if not compared_keys.agrees and (plain := plain_keys(settings, span)) is not None:
            compared_keys = compare_untagged(row, keys, plain, span.start, span.end) or compared_keys
    latest = max(piece["latest_store_time"] for piece in read.pieces)
    queued = (piece["queued_offset"] for piece in read.pieces if piece["queued_offset"] is not None)
    return VerifiedRange(
        span.start,
        sum(piece["messages"] for piece in read.pieces),
        compared_entries,
        compared_keys,
        read.sums,
        latest,
        max(queued, default=None),
        findings,
        tuple((each.start, each.end) for each in read.damaged),
    )


def plain_keys(settings: VerifySettings, span: OffsetRange) -> KeyEntries | None:
    """The keys of a range without those of tags; None where the release puts none of those."""
    needs = settings.task.needs
    if needs is None or not needs.index_tags:
        return None
    task = replace(settings.task, needs=replace(needs, consume_queue=False, index_tags=False), with_sums=False)
    return PieceEntries.read(piece["arrays"] for piece in task.read(span).pieces).keys()


def rows_of_range(settings: VerifySettings, span: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The rows that a table must have of a range's records; each batch is valid until the next."""
    windows = read_windows(span.file, span.start, span.end, settings.task.decode)
    yield from RecordRows(settings.task.limits, settings.task.forgotten).batches(windows)


def verify_item(settings: VerifySettings, item: QueueItem | IndexItem) -> Findings:
    """Check a queue's files, or an index file; see `verify_range` for errors."""
    with _expiry_as_error():
        return _verify_queue(settings, item) if isinstance(item, QueueItem) else _verify_index(settings, item)


def _verify_queue(settings: VerifySettings, item: QueueItem) -> Findings:
    findings, tally = Findings(), item.tally
    units = settings.queues.units(tally.top, tally.topic, tally.queue_id)
    check_queue_files(units, tally, settings.log, findings, item.made_early)
    ext = settings.queues.ext(tally.top, tally.topic, tally.queue_id)
    if ext is not None:
        ext.check_files(findings)
    return findings


def _verify_index(settings: VerifySettings, item: IndexItem) -> Findings:
    assert settings.index is not None
    findings = Findings()
    for _ in range(_LOOKS):
        findings = Findings()
        IndexFileCheck(replace(settings.index), item.file, findings).run()
        if not findings.differences:
            break
    return findings


def _digest(file: StoreFile, max_hash_slot_num: int, max_index_num: int) -> FileDigest:
    with _expiry_as_error():
        return digest_file(file, max_hash_slot_num, max_index_num)


@contextmanager
def _expiry_as_error() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DataLossError(
            f"{error.filename} is gone: it expired while the store was verified",
            advice="verify it again",
            file=error.filename,
        ) from error


def verify_ranges(tasks: Tasks, settings: VerifySettings, spans: Sequence[OffsetRange]) -> list[VerifiedRange]:
    """The results of `verify_range`, in the order of `spans`."""
    return run_over(tasks, lambda span: verify_range(settings, span), spans)


def verify_items(tasks: Tasks, settings: VerifySettings, items: Sequence[QueueItem | IndexItem]) -> list[Findings]:
    """The results of `verify_item`, in the order of `items`."""
    return run_over(tasks, lambda item: verify_item(settings, item), items)


def digest_files(
    tasks: Tasks, files: Sequence[StoreFile], max_hash_slot_num: int, max_index_num: int
) -> list[FileDigest]:
    """The results of ``digest_file``, in the order of `files`; see `verify_range` for errors."""
    return run_over(tasks, lambda file: _digest(file, max_hash_slot_num, max_index_num), files)
