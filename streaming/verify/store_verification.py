"""`reput verify`: check that log, queues, index and table agree. Nothing is written, and no lock is taken.

A difference is a contradiction between a record of the log and a file of the store. These are *notes* instead, counted
by cause, because a healthy broker leaves them:

* ``expired_entries``, ``expired_keys``, ``expired_rows``: of records whose segments have expired;
* ``entries_behind_the_end``, ``keys_behind_the_end``, ``rows_behind_the_end``: of records at the log's end or later,
  which a recovery cut off, or which came after the check began. A unit after a queue's end whose physical offset is
  *inside* the log is a difference: the next recovery of a broker takes it for an entry;
* ``bytes_missing``, ``entries_not_judged``, ``keys_not_judged``: bytes that the log lacks, because segments are missing
  or damage is passed over, and entries and keys that lead to them;
* ``entries_moved``: entries before the queue offset of their message, where a replay put them after a loss;
* ``not_dispatched_yet`` (bytes), ``not_indexed_yet`` (keys): after the end of an unclean store, of a sink's progress or
  of a database of queues;
* ``key_indexed_twice``: a record's keys that a recovery put again; each of their entries is right;
* ``entries_not_counted_yet``: in the newest index file, from a put that is in progress or whose broker died;
* ``slots_counted_as_until_4.7.0``: hashSlotCount counts keys;
* ``queues_walked``, ``already_built``, ``pre_blank``, ``repeated``, ``gap``, ``queue_restart``: queue offsets are not
  consecutive, and the entries are where the broker's own rules put them (docs/anomalies.md);
* ``queue_restart`` with a remark: the queue started over, because its topic was deleted and made again; the files hold
  the later life, or a broker's replay has joined both lives and the queue grew from there;
* ``next_file_made_early``: an empty file after a full one;
* ``queues_not_checked``: a topic's directory has a name for which reput makes no directory;
* ``bit_map_of_other_subscriptions``, ``entry_without_ext_unit``: ConsumeQueueExt depends on when it was dispatched;
* ``rows_of_an_earlier_version``: of a table; they lack the columns that reput added later, and these are not compared;
* ``no_checkpoint``: the store has none, which a broker reads as zeros;
* ``behind_the_last_entry``, ``bytes_behind_the_end``: of queues in RocksDB; entries of a topic's earlier life, and
  bytes dispatched to the database beyond the log's end.
"""

from __future__ import annotations

import shlex
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reput.sinks.abort_file import LeftBy, abort_left_by
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import KeyEntries
from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.dispatch.piece import PieceEntries, QueueFilter, make_pieces
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile, SinkProgress
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, LIGHT_QUEUE, STORE_CHECKPOINT
from reput.sinks.findings import Difference, Findings
from reput.sinks.index.index_check import (
    ComparedKeys,
    IndexFileCheck,
    IndexWalk,
    compare_index,
    compare_untagged,
    keys_join,
)
from reput.sinks.index.index_reader import IndexReader
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.index.rocksdb_index import ComparedIndex, IndexExtent, RocksDBIndex
from reput.sinks.queue import rocksdb_check
from reput.sinks.queue.batch_consume_queue import BatchConsumeQueueSink, queues_of_wrong_kind
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.queue.queue_check import (
    KINDS,
    ComparedEntries,
    LogLimits,
    QueueSettings,
    QueueTallies,
    QueueTally,
    QueueWalk,
    check_queue_files,
    compare_queues,
    queues_of,
)
from reput.sinks.store_checkpoint import CHECKPOINT_SIZE, StoreCheckpoint
from reput.sinks.store_comparison import FileDigest, StoreFile, digest_file
from reput.sinks.table.comparison import RecordRows, StretchSums
from reput.sinks.table.forgotten_rows import NONE_FORGOTTEN, ForgottenRows
from reput.source.errors import DataLossError, OutputError
from reput.source.log.log_reader import LogReader
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import read_record, read_windows
from reput.source.printable import counted
from reput.streaming.config.broker import (
    NO_INDEX_FILES,
    broker_version,
    light_queues_in_rocksdb,
    logic_needs,
    rocksdb_needs,
    unseen_queues,
)
from reput.streaming.config.pipeline import RANGES_OF_A_LOG_MAX, PipelineConfig, check_range_count
from reput.streaming.effects.range_task import RangeTask
from reput.streaming.output.logic_sinks import queue_settings
from reput.streaming.spark.kernels import prepare_kernels
from reput.streaming.tasks.tasks import Tasks, run_over

# ----------------------------------------------------------------------------------------------------------------------
# The tasks of `reput verify`, over ranges of the log and over files.

# A file is checked this often: a broker that puts a key meanwhile changes entry, slot and header one after the other.
_LOOKS = 3


@dataclass(frozen=True)
class VerifySettings:
    """The settings of the tasks: `task` reads a range of the log, `index` is the index to compare, if any.

    `rocksdb` is the database with queues to compare, `rocksdb_needs` the entries that it has of records, and
    `rocksdb_index` the extent of the index in RocksDB of the output `root`; each may be ``None``.
    """

    queues: QueueSettings
    index: IndexReader | None
    task: RangeTask
    log: LogLimits
    rocksdb: Path | None = None
    rocksdb_needs: LogicNeeds | None = None
    rocksdb_index: IndexExtent | None = None
    root: Path | None = None

    @property
    def has_queue_files(self) -> bool:
        """Whether the broker keeps files of queues."""
        return self.task.needs is not None and self.task.needs.consume_queue

    @property
    def joint_needs(self) -> LogicNeeds | None:
        """The effects of one read for queue files, index and RocksDB; None if RocksDB has other entries, or none."""
        files = self.task.needs
        if self.rocksdb is None or self.rocksdb_needs is None or files is None:
            return None
        joint = replace(self.rocksdb_needs, index=files.index, index_tags=files.index_tags)
        return joint if not files.consume_queue or joint == replace(files, ext=True) else None


@dataclass(frozen=True)
class VerifiedRange:
    """The findings about one range, from the offset `start` on.

    `store_timestamp_max` is the latest store time in ms, `queued_offset` where the last record with a queue entry
    begins; None without one. `damaged` are the stretches of it without a record, if damage is passed over.
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
    rocksdb: rocksdb_check.ComparedRange | None = None
    rocksdb_index: ComparedIndex | None = None


@dataclass(frozen=True)
class QueueItem:
    """A queue with files to check; `made_early` is as in ``check_queue_files``."""

    tally: QueueTally
    made_early: int | None


@dataclass(frozen=True)
class IndexItem:
    """An index file to check, by its number in the sequence of files."""

    file: int


@contextmanager
def _expiry_as_error() -> Iterator[None]:
    """As a decorator, treat a missing file as expired."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataLossError(
            f"{error.filename} is gone: it expired while the store was verified",
            advice="verify it again",
            file=error.filename,
        ) from error


@_expiry_as_error()
def verify_range(settings: VerifySettings, span: OffsetRange) -> VerifiedRange:
    """Compare one range with queues and index.

    Memory: the range's entries (28 bytes each) and keys (20 bytes each), and a window.

    Raises
    ------
    DataLossError
        A file expired meanwhile.
    """
    joint = settings.joint_needs
    read = (settings.task if joint is None else replace(settings.task, needs=joint)).read(span)
    entries = PieceEntries.read(piece["arrays"] for piece in read.pieces)
    findings = Findings()
    compared_entries = compare_queues(settings.queues, entries, findings) if settings.has_queue_files else []
    compared_keys = None
    if settings.index is not None:
        row, keys = replace(settings.index), entries.keys()  # a copy reads the present headers
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
        None if settings.rocksdb is None else _compare_rocksdb(settings, settings.rocksdb, span, entries),
        None if settings.rocksdb_index is None else _compare_index(settings, settings.rocksdb_index, span),
    )


def _compare_index(settings: VerifySettings, extent: IndexExtent, span: OffsetRange) -> ComparedIndex:
    assert settings.root is not None
    windows = read_windows(span.file, span.start, span.end, settings.task.decode)
    messages = (message for window in windows for message in window.columns.messages())
    with RocksDBIndex.open(settings.root) as index:
        assert index is not None
        return index.compare(messages, extent.first)


def _compare_rocksdb(
    settings: VerifySettings, database: Path, span: OffsetRange, entries: PieceEntries
) -> rocksdb_check.ComparedRange:
    if settings.joint_needs is None:
        task = replace(settings.task, needs=settings.rocksdb_needs, with_sums=False)
        entries = PieceEntries.read(piece["arrays"] for piece in task.read(span).pieces)
    return rocksdb_check.compare_range(database, entries)


def plain_keys(settings: VerifySettings, span: OffsetRange) -> KeyEntries | None:
    """Return the keys of a range without those of tags; None if the release does not index tags."""
    needs = settings.task.needs
    if needs is None or not needs.index_tags:
        return None
    task = replace(settings.task, needs=replace(needs, consume_queue=False, index_tags=False), with_sums=False)
    return PieceEntries.read(piece["arrays"] for piece in task.read(span).pieces).keys()


def rows_of_range(settings: VerifySettings, span: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a table must have of a range's records; each batch is valid until the next."""
    windows = read_windows(span.file, span.start, span.end, settings.task.decode)
    yield from RecordRows(settings.task.limits, settings.task.forgotten).batches(windows)


@_expiry_as_error()
def verify_item(settings: VerifySettings, item: QueueItem | IndexItem) -> Findings:
    """Check a queue's files, or an index file; see `verify_range` for errors."""
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


@_expiry_as_error()
def _digest(file: StoreFile, max_hash_slot_num: int, max_index_num: int) -> FileDigest:
    return digest_file(file, max_hash_slot_num, max_index_num)


def digest_files(
    tasks: Tasks, files: Sequence[StoreFile], max_hash_slot_num: int, max_index_num: int
) -> list[FileDigest]:
    """Return the results of ``digest_file``, in the order of `files`; see `verify_range` for errors."""
    return run_over(tasks, lambda file: _digest(file, max_hash_slot_num, max_index_num), files)


@dataclass
class StoreSection:
    """One section of a store: the counts of what was compared, findings, advice, and what was not checked."""

    name: str
    compared: dict[str, int] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    advice: str = ""
    not_seen: str = ""

    def advise_rebuild(self, only: str, output: Path) -> None:
        """Name the command that makes these files again, if one of them differs."""
        if self.findings.differences:
            self.advice = (
                f"'reput rebuild --only {only} --output {shlex.quote(str(output))}' with the same --store and options "
                "makes them again from the log; stop a broker or tail of that output first"
            )


@dataclass(frozen=True)
class VerifyReport:
    """The result of a comparison of the records of `[log_start, limit)`, in a log that ends at `log_end`.

    `holder` describes the process that ran on the output when the comparison began; None if there was none.
    """

    store: Path
    output: Path
    log_start: int
    limit: int
    log_end: int
    messages: int
    sections: tuple[StoreSection, ...]
    digests: Mapping[str, str] = field(default_factory=dict)
    holder: str | None = None

    @property
    def differences(self) -> int:
        """The number of differences in all sections."""
        return sum(section.findings.differences for section in self.sections)


class StoreVerification:
    """One check of an output against its log; see `run`."""

    def __init__(
        self,
        config: PipelineConfig,
        output: Path,
        *,
        sums: bool = False,
        forgotten: ForgottenRows = NONE_FORGOTTEN,
    ) -> None:
        """Find the log's end, and how much of it the output claims to have; `sums` are needed to compare a table.

        Rows that are `forgotten` are not in the sums.

        Raises
        ------
        ReputError
            The log cannot be read, or there is no output.
        """
        if not output.is_dir():
            raise OutputError(
                f"no output at {output}: the directory does not exist",
                advice="give what holds consumequeue/ and index/",
                file=output,
            )
        options = config.log_options(maxBytesPerPartition=config.logic.max_bytes_per_partition)
        self.log = LogReader(options, meanwhile=lambda: prepare_kernels(with_rows=sums))
        self.output = output
        self._config = config
        self._checkpoint = _read(output / STORE_CHECKPOINT)
        progress = [self._progress(sink) for sink in (ConsumeQueueSink, BatchConsumeQueueSink, IndexSink)]
        records = [record for record in progress if record is not None]
        self.unclean = LeftBy.BROKER in (abort_left_by(config.store), abort_left_by(output))
        segments = self._segments = self.log.queue()
        self.log_start = segments.min_offset
        self.log_end = self.log.settled_end(self.log_start)
        needs = logic_needs(config, config.store)
        version = broker_version(config.broker.version, config.store)
        # There may also be entries after the records that are compared.
        ends = [record.end_offset for record in progress[:2] if record is not None]
        self._queued_to = max(ends, default=0) if needs.consume_queue else self.log_end + 1
        self._light_queues_elsewhere = light_queues_in_rocksdb(config, version)
        self._queues = queue_settings(config, output)
        self.limit = self._limit(records, consume_queue=needs.consume_queue)
        start = self._start(records)
        index = None
        if needs.index:
            sizes = config.index.max_hash_slot_num, config.index.max_index_num
            index = IndexReader(output, *sizes, may_follow_expired=self.log_start > 0)
        limits = LogLimits(start, max(start, self.limit), segments.mapped_file_size)
        #: Which rows have expired from the table.
        self.expired = config.table.retention.limits(time.time())
        task = RangeTask(self.log.decode_options, needs, with_sums=sums, limits=self.expired, forgotten=forgotten)
        rocksdb = None if config.rocksdb_folder is None else output / config.rocksdb_folder
        with RocksDBIndex.open(output) as opened:
            extent = None if opened is None else IndexExtent.of(opened, limits.least, limits.limit)
        needs_of_rocksdb = rocksdb_needs(config, config.store)
        self.settings = VerifySettings(self._queues, index, task, limits, rocksdb, needs_of_rocksdb, extent, output)
        self.results: list[VerifiedRange] = []

    def run(self, tasks: Tasks) -> list[StoreSection]:
        """Compare, and check the files; the sections are ``log``, ``queues``, ``index``, ``checkpoint``.

        With queues in RocksDB there is also a section ``rocksdb``.
        """
        limits = self.settings.log
        name, size = "maxBytesPerPartition", self._config.logic.max_bytes_per_partition
        check_range_count(name, size, limits.limit - limits.least, RANGES_OF_A_LOG_MAX)
        spans = list(self.log.split(limits.least, limits.limit))
        self.results = run_over(tasks, partial(verify_range, self.settings), spans)
        log = StoreSection("log", {"messages": sum(result.messages for result in self.results)})
        self._note_missing(log.findings)
        log.findings.note("not_dispatched_yet", self.log_end - self.limit)
        queues = StoreSection("queues", not_seen=self._unseen_queues())
        index = StoreSection("index")
        if self.settings.index is None:
            index.not_seen = f"no index files are expected ({NO_INDEX_FILES})"
        tallies = QueueTallies()
        for result in self.results:
            tallies.take(result.compared_entries)
        row = self.settings.index
        compared_keys = [result.compared_keys for result in self.results if result.compared_keys is not None]
        untagged = [compared.untagged_until for compared in compared_keys]
        upgraded = self._untagged_until(untagged)
        if row is not None and row.names and upgraded > limits.least:
            name = row.names[row.file_of(max(0, row.search(upgraded) - 1))]
            index.findings.tell(
                f"index files up to {name}, record {upgraded}, were written by a release that does not index tags"
            )
        # If later keys of tags are missing, an upgrade is not the cause.
        is_prefix = all(until <= upgraded for until in untagged)
        joins = row is None or (is_prefix and keys_join(row, compared_keys, self.settings.log, index.findings))
        made_early = self._walk(tallies, None if joins else row, queues.findings, index.findings, upgraded)
        if not tallies.out_of_order:
            self._take_notes(queues.findings)
        elif not queues.findings.differences:
            queues.findings.note("queues_walked", len(tallies.out_of_order))
        self._check_files(tasks, tallies, made_early, (queues, index))
        queues.compared = {
            "queues": len(tallies.queues),
            "entries": sum(tally.entries for tally in tallies.queues.values()),
        }
        index.compared = {
            "files": len(row.names) if row is not None else 0,
            "keys": sum(compared.keys for compared in compared_keys),
        }
        checkpoint = StoreSection("checkpoint")
        latest = max((result.store_timestamp_max for result in self.results), default=0)
        check_checkpoint(self._checkpoint, latest, self.log_end, self._queued_offset(), row, checkpoint.findings)
        queues.advise_rebuild("consumequeue", self.output)
        index.advise_rebuild("index", self.output)
        rocksdb = [self._check_rocksdb(self.settings.rocksdb)] if self.settings.rocksdb is not None else []
        if (extent := self.settings.rocksdb_index) is not None:
            rocksdb.append(self._check_rocksdb_index(extent))
        return [log, queues, index, checkpoint, *rocksdb]

    def _unseen_queues(self) -> str:
        if self.settings.rocksdb is None:
            return unseen_queues(self._config, self._config.store)
        return "" if self._config.queue.consume_queue_enable else "the broker keeps its queues in RocksDB alone"

    def _check_rocksdb(self, database: Path) -> StoreSection:
        section, totals = StoreSection("rocksdb"), rocksdb_check.RocksDBTotals()
        ranges = (result.rocksdb for result in self.results if result.rocksdb is not None)
        totals.take(ranges, section.findings)
        section.compared = totals.check(database, self.settings.log, self.limit, section.findings)
        section.advise_rebuild("consumequeue", self.output)
        return section

    def _check_rocksdb_index(self, extent: IndexExtent) -> StoreSection:
        section, ranges = StoreSection("rocksdb index"), [each.rocksdb_index for each in self.results]
        found = [each for each in ranges if each is not None]
        for each in found:
            section.findings.add(each.findings)
        section.compared = {"keys": sum(each.keys for each in found)}
        section.findings.note("expired_keys", extent.expired)
        section.findings.note("keys_behind_the_end", extent.behind)
        unexplained = extent.inside - sum(each.right for each in found) - section.findings.counts["key_differs"]
        if self.settings.log.missing:
            section.findings.note("keys_not_judged", unexplained)
        elif unexplained > 0:
            text = f"{counted(unexplained, 'key leads', 'keys lead')} to no record that has it"
            section.findings.differ(Difference("key_unexplained", text), unexplained)
        if section.findings.differences:
            section.advice = (
                "no command makes it again; 'reput rebuild --only index --option messageIndexEnable=true' makes index "
                "files, which a broker reads with indexFileReadEnable=true"
            )
        return section

    def _note_missing(self, findings: Findings) -> None:
        """Note which stretches of the log have no records: entries and keys that lead there cannot be judged."""
        limits = self.settings.log
        rows = self._segments.rows(limits.least, limits.limit)
        holes = [(end, begin) for (_, end), (begin, _) in zip(rows, rows[1:], strict=False)]
        damaged = [stretch for result in self.results for stretch in result.damaged]
        self.settings = replace(self.settings, log=replace(limits, missing=tuple(sorted({*holes, *damaged}))))
        for begin, end in self.settings.log.missing:
            findings.note("bytes_missing", end - begin)
            why = "its segments are missing" if (begin, end) in holes else "damage is passed over"
            findings.tell(f"the log lacks [{begin}, {end}), {why}: entries and keys that lead there cannot be judged")

    # --- how much of the log --------------------------------------------------------------------------------

    def _progress(self, sink: type[Any]) -> SinkProgress | None:
        return ProgressFile(DurableFiles(self.output), sink.name).load()

    def _limit(self, records: list[SinkProgress], *, consume_queue: bool) -> int:
        """Return the end of the records whose effects must exist, by reput's own record or a dead broker's queues."""
        ends = [record.end_offset for record in records]
        if not ends and self.unclean and consume_queue:
            ends = [max((self._queues.units(*key).end_of_last() for key in self._on_disk()), default=0)]
        limit = max(self.log_start, min([self.log_end, *ends]))
        return self.log.align_down(self.log_start, limit) if limit < self.log_end else limit

    def _queued_offset(self) -> int:
        """Return the begin of the last record whose entry the queues must have, even if it is after those compared."""
        if self._queued_to > self.limit:
            return self._queued_to
        queued = (result.queued_offset for result in self.results if result.queued_offset is not None)
        return max(queued, default=self.log_start)

    def _start(self, records: list[SinkProgress]) -> int:
        """Return the begin of these records: the log's begin, unless reput began later in an empty output."""
        start = max((record.start_offset for record in records), default=0)
        if start <= self.log_start:
            return self.log_start
        for key in self._on_disk():
            units = self._queues.units(*key)
            first = units.read(units.files[0] // units.unit_size, 1)["physical_offset"][0] if units.files else start
            if self.log_start <= first < start:
                return self.log_start
        return min(self.log.align_down(self.log_start, min(start, self.log_end)), self.log_end)

    def _on_disk(self) -> Iterator[tuple[str, bytes, int]]:
        for top, kind in KINDS.items():
            for topic, queue_id in kind.queues(self.output):
                # Older than the change to RocksDB: a broker leaves them as they are.
                if not (self._light_queues_elsewhere and topic.startswith(LIGHT_QUEUE)):
                    yield top, topic, queue_id

    # --- queues and keys that whole ranges did not settle ---------------------------------------------------

    def _take_notes(self, findings: Findings) -> None:
        for result in self.results:
            findings.add(result.queue_findings)

    def _walk(
        self, tallies: QueueTallies, row: IndexReader | None, queues: Findings, index: Findings, upgraded: int
    ) -> dict[tuple[str, bytes, int], int]:
        """Walk the queues that are out of order, and the index if `row` is given; this reads the log again.

        Records before `upgraded` have no keys of tags. Return, by queue, the files that a broker made early for a
        repeated record.
        """
        limits = self.settings.log
        may_join = not self._config.queue.keeps_later_life
        walks = {
            (tally.top, tally.topic, tally.queue_id): QueueWalk(self._queues, tally, limits, queues, may_join=may_join)
            for tally in tallies.out_of_order
        }
        index_walk = None
        if row is not None:
            first = row.search(limits.least)
            index.note("expired_keys", first)
            index_walk = IndexWalk(row, first, self._hashes_at, limits, index, may_lag=self.unclean)
        if not walks and index_walk is None:
            return {}
        for span in self.log.split(limits.least, limits.limit):
            batch = replace(self.settings.task, with_sums=False).read(span).batch()
            assert batch is not None
            for kind, incoming in queues_of(batch.entries):
                walk = walks.get((kind.top, incoming.topic, incoming.queue_id))
                if walk is not None:
                    walk.take(incoming)
            if index_walk is not None:
                index_walk.take(self._keys(span, batch.entries.keys(), upgraded))
        for walk in walks.values():
            walk.close()
        moved = [walk for walk in walks.values() if walk.moved]
        if moved:
            entries = counted(sum(walk.moved for walk in moved), "entry is", "entries are")
            queues.tell(
                f"{entries} before the queue offset of the message, in {counted(len(moved), 'queue')}, as a replay "
                f"puts entries after a message that is lost; the first: {moved[0].first_moved}"
            )
        if index_walk is not None:
            index_walk.close()
        return {key: walk.made_early for key, walk in walks.items() if walk.made_early is not None}

    def _keys(self, span: OffsetRange, keys: KeyEntries, upgraded: int) -> KeyEntries:
        """Return the keys of a range, without those of tags of records before `upgraded`."""
        plain = plain_keys(self.settings, span) if span.start < upgraded else None
        if plain is None:
            return keys
        kept, omitted = (int(np.searchsorted(each.offsets, upgraded)) for each in (plain, keys))
        return plain.between(0, kept).before(keys.between(omitted, len(keys.hashes)))

    def _untagged_until(self, untagged: Sequence[int]) -> int:
        """Return the end of the records, from the first one on, whose tags are not in the index."""
        upgraded = self.settings.log.least
        for result, until in zip(self.results, untagged, strict=False):
            if until > upgraded and (result.start <= upgraded or not self._has_tags(upgraded, result.start)):
                upgraded = until
        return upgraded

    def _has_tags(self, start: int, end: int) -> bool:
        for span in self.log.split(start, end):
            keys = self.settings.task.read(span).batch()
            plain = plain_keys(self.settings, span)
            if keys is not None and plain is not None and keys.entries.key_count != len(plain.hashes):
                return True
        return False

    def _hashes_at(self, physical_offset: int) -> frozenset[int]:
        """Return the hashes of the keys of the record at a physical offset; none if there is no record."""
        file = self._segments.find(physical_offset)
        if file is None or physical_offset >= self.limit:
            return frozenset()
        decode, needs = self.settings.task.decode, self.settings.task.needs
        assert needs is not None
        record = read_record(file, physical_offset - file.frame, min(file.end, self.log_end), decode, decodes=True)
        only_keys = LogicNeeds(consume_queue=False, index_tags=needs.index_tags)
        pieces = make_pieces([record], file, only_keys, decode.delays_ms, QueueFilter(), None)
        keys = LogicBatch.merge(list(pieces)).entries.keys()
        return frozenset(keys.hashes[keys.offsets == physical_offset].tolist())

    # --- files ----------------------------------------------------------------------------------------------

    def _check_files(
        self,
        tasks: Tasks,
        tallies: QueueTallies,
        made_early: Mapping[tuple[str, bytes, int], int],
        sections: tuple[StoreSection, StoreSection],
    ) -> None:
        items: list[QueueItem | IndexItem] = []
        row, needs = self.settings.index, self.settings.task.needs
        assert needs is not None
        if row is not None:
            items += [IndexItem(file) for file in range(len(row.names))]
        if self.settings.has_queue_files:
            self._check_kinds(needs.batch_topics, sections[0].findings)
            for key in dict.fromkeys([*tallies.queues, *self._on_disk()]):
                tally = tallies.queues.get(key) or QueueTally(*key)
                items.append(QueueItem(tally, made_early.get(key)))
        queues, index = sections
        for kind in KINDS.values() if self.settings.has_queue_files else ():
            for path in kind.not_made(self.output):
                queues.findings.note("queues_not_checked")
                queues.findings.tell(f"{path} is not checked: reput makes no queue of this name")
        for item, result in zip(items, run_over(tasks, partial(verify_item, self.settings), items), strict=True):
            (index if isinstance(item, IndexItem) else queues).findings.add(result)

    def _check_kinds(self, batch_topics: frozenset[bytes], findings: Findings) -> None:
        for kind, topic, queue_id in queues_of_wrong_kind(self.output, batch_topics):
            expected = BATCH_CONSUME_QUEUE if topic in batch_topics else CONSUME_QUEUE
            directory = "/".join(kind.directory(topic, queue_id))
            text = (
                f"a queue of the wrong kind, with which a broker does not start: the topic's queues are in {expected}/"
            )
            findings.differ(Difference("queue_kind", text, directory, expected=expected, found=kind.top))


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


# Physical offsets that 5.x keeps after the three times.
_CONFIRMED_AT, _QUEUED_AT = 32, 40


def check_checkpoint(
    data: bytes | None,
    store_timestamp_max: int,
    log_end: int,
    queued_offset: int,
    row: IndexReader | None,
    findings: Findings,
) -> None:
    """Compare the file's bytes with the latest store time in the log (ms), the log's end, the queues and the index.

    `queued_offset` is the physical offset where the last record begins that the queues must have. A store without the
    file has no `data`, which is only a note: a broker reads zeros.
    """
    if data is None:
        findings.note("no_checkpoint")
        return
    if len(data) != CHECKPOINT_SIZE:
        text = f"{len(data)} bytes where a checkpoint has {CHECKPOINT_SIZE}"
        findings.differ(Difference("file_size", text, STORE_CHECKPOINT, len(data)))
    known = StoreCheckpoint.decode(data)
    index_end = _last_full_end(row) if row is not None else store_timestamp_max
    times = (
        (0, "physicMsgTimestamp", known.physic_msg_timestamp, store_timestamp_max, "the log's last record"),
        (8, "logicsMsgTimestamp", known.logics_msg_timestamp, store_timestamp_max, "the log's last record"),
        (16, "indexMsgTimestamp", known.index_msg_timestamp, index_end, "the end of the last full index file"),
    )
    for at, name, found, greatest, what in times:
        _check(at, name, found, greatest, what, findings)
    (confirmed,) = struct.unpack_from(">q", data.ljust(CHECKPOINT_SIZE, b"\0"), _CONFIRMED_AT)
    _check(_CONFIRMED_AT, "confirmPhyOffset", confirmed, log_end, "the log's end", findings)
    # If it is 0, a broker takes the time instead.
    what = "the last record with a queue entry"
    _check(_QUEUED_AT, "logicsPhysicalOffset", known.logics_physical_offset, queued_offset, what, findings)


def _check(at: int, name: str, found: int, greatest: int, what: str, findings: Findings) -> None:
    if found > greatest:
        text = f"{name} is {found}, ahead of {what}, {greatest}"
        findings.differ(
            Difference("checkpoint_ahead", text, STORE_CHECKPOINT, at, expected=f"<= {greatest}", found=str(found))
        )


def _last_full_end(row: IndexReader) -> int:
    """Return the end time of the last full file, 0 without any file.

    If the full ones have expired, they ended before the one that is left begins.
    """
    headers = row.headers
    ends = [header.end_timestamp for header in headers if header.index_count >= row.max_index_num]
    return ends[-1] if ends else headers[0].begin_timestamp if headers else 0
