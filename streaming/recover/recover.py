"""`reput recover` and `reput expire`: what they do to an output, and their reports. They start no Spark.

``DefaultMessageStore#recover`` with ``#recoverTopicQueueTable``, and ``DefaultMessageStore.CleanConsumeQueueService``.
An output is compared with its log and brought into agreement.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from reput.sinks.abort_file import LeftBy, abort_left_by
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import names_in
from reput.sinks.files.own_files import remove_own
from reput.sinks.files.sink_progress import ProgressFile, RecordFingerprint, SinkProgress
from reput.sinks.files.store_lock import StoreLock
from reput.sinks.files.store_path import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    LOCK,
    MADE_FOR,
    REPUT,
    SPARK_CHECKPOINT,
    STORE_CHECKPOINT,
    RelativePath,
    index_file,
)
from reput.sinks.files.swap import finish_swap
from reput.sinks.index.index_check import IndexCheck, IndexState
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.queue.batch_consume_queue import (
    BATCH_KIND,
    BatchConsumeQueueSink,
    offsets_of_batches,
    queues_of_kind,
    queues_of_wrong_kind,
)
from reput.sinks.queue.consume_queue import KIND, ConsumeQueueSink, rounded_file_size
from reput.sinks.queue.queue_check import QueueCheck, QueueState, cut_queues
from reput.sinks.queue.queue_reader import QueueKind, load_queues
from reput.sinks.queue.queue_sink import LIVES, QueueSink, emptied
from reput.sinks.retention import QueueRetention, expire_queue, expired_index_files, remove_in_order
from reput.sinks.store_checkpoint import StoreCheckpoint, load_store_checkpoint, store_checkpoint
from reput.source.errors import GIVE_YES, OutputError, UnexplainedError
from reput.source.log.log_reader import LogReader
from reput.source.printable import counted, printable
from reput.streaming.config.broker import batch_topics, logic_needs
from reput.streaming.config.made_for import check_made_for
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.stored_sizes import check_fits_files
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.output.hand_over import (
    Gap,
    HandOver,
    abort_while_changed,
    check_explained,
    doubt_of_log,
    find_unexplained,
    hand_over,
)
from reput.streaming.output.logic_sinks import fingerprint_at, queue_settings
from reput.streaming.output.paths import OutputPaths, refuse_paths_inside
from reput.streaming.output.recovery_start import broker_recovers_from
from reput.streaming.output.spark_checkpoint import SPARK_CHECKPOINT_OF_LOGIC, spark_offset

_EMPTY_LOG = "nothing tells what has expired; 'reput recover --yes' removes what an empty log leaves"


@dataclass(frozen=True)
class RecoveryReport:
    """The result of `reput recover`; offsets are physical offsets.

    Attributes
    ----------
    unclean
        An `abort` file says that a broker stopped uncleanly: it would do its abnormal recovery.
    rewound
        A record that was dispatched is no longer at its physical offset.
    log_start, log_end
        Where the log's first segment begins, and where its whole records end.
    broker_recovers_from
        The segment at which the own recovery of the broker, of the release that the output is made for, would begin.
    sinks
        Where each sink was brought back to.
    queues
        The queues that remain, with their queue offsets.
    spark_checkpoint_removed
        Spark's checkpoint was ahead of the sinks and is removed.
    is_changed
        Whether anything is written, or would be in a dry run; `abort` does not count.
    abort
        What becomes of the output's `abort` file, None without one.
    unexplained
        Why ``--yes`` is required; None if it is not.
    """

    unclean: bool
    rewound: bool
    log_start: int
    log_end: int
    broker_recovers_from: int
    sinks: tuple[SinkReport, ...]
    queues: tuple[QueueReport, ...]
    spark_checkpoint_removed: bool
    is_changed: bool
    abort: HandOver | None = None
    unexplained: str | None = None


@dataclass(frozen=True)
class RetentionReport:
    """The files that `reput expire` removes, as paths below the output; the log begins at `min_physic_offset`."""

    min_physic_offset: int
    queues: tuple[QueueRetention, ...]
    index_files: tuple[str, ...]
    removed: tuple[str, ...]


def recover_output(
    config: PipelineConfig, store: Path, output: Path, *, dry_run: bool = False, yes: bool = False
) -> RecoveryReport:
    """Bring the output's queues and index into agreement with the log as it is; the log is only read.

    With `dry_run` nothing is written. `yes` allows everything to be removed if the log is gone, or is another one.

    Raises
    ------
    ReputError
        The store or the output cannot be read, the output is locked, or the log explains nothing of the output and
        `yes` is not given.
    """
    with _opened(config, output, dry_run=dry_run) as (files, log):
        segments = log.queue()
        unclean = LeftBy.BROKER in (abort_left_by(store), abort_left_by(output))
        # If the log was cut, some of the output still agrees with it; going back to that is the command's purpose.
        found = find_unexplained(log, output)
        unexplained = found.text if found is not None and found.gap in (Gap.GONE, Gap.OTHER) else None
        if unexplained is not None and not yes and not dry_run:
            raise UnexplainedError(unexplained, advice=f"nothing was changed: {GIVE_YES}", file=output)
        if not segments.files:
            return replace(_destroy(files, unclean=unclean, dry_run=dry_run), unexplained=unexplained)
        recovery = OutputRecovery(config, files, log)
        doubt = doubt_of_log(files, log, config)
        report = RecoveryReport(
            unclean=unclean,
            rewound=recovery.rewound,
            log_start=segments.min_offset,
            log_end=recovery.log_end,
            broker_recovers_from=broker_recovers_from(files, segments, config, unclean=unclean),
            sinks=recovery.sinks,
            queues=recovery.queues,
            spark_checkpoint_removed=recovery.spark_checkpoint_removed,
            is_changed=recovery.is_changed,
            unexplained=unexplained,
        )
        if not dry_run and recovery.is_changed:
            with abort_while_changed(files):
                recovery.apply()
        return replace(report, abort=_hand_over(config, files, log, report.sinks, doubt, dry_run=dry_run))


def _hand_over(
    config: PipelineConfig,
    files: DurableFiles,
    log: LogReader,
    sinks: Sequence[SinkReport],
    doubt: str | None,
    *,
    dry_run: bool,
) -> HandOver | None:
    if abort_left_by(files.root) is LeftBy.NOBODY:
        return None
    queues = config.queue.consume_queue_enable
    wanted = {
        ConsumeQueueSink.name: queues,
        BatchConsumeQueueSink.name: queues and bool(batch_topics(config, config.store)),
        IndexSink.name: config.index.message_index_enable,
    }
    ends = {sink: log.queue().min_offset for sink, is_on in wanted.items() if is_on}
    ends.update((sink.name, sink.end_after) for sink in sinks)
    return hand_over(files, log, list(ends.items()), doubt, dry_run=dry_run)


def _destroy(files: DurableFiles, *, unclean: bool, dry_run: bool) -> RecoveryReport:
    """Remove what was derived from a log that no longer has a segment (``DefaultMessageStore#destroyLogics``)."""
    sinks, removed = [], False
    for sink, folders in (
        (ConsumeQueueSink.name, (CONSUME_QUEUE, CONSUME_QUEUE_EXT)),
        (BatchConsumeQueueSink.name, (BATCH_CONSUME_QUEUE,)),
        (IndexSink.name, (INDEX,)),
    ):
        record = ProgressFile(files, sink)
        known = record.load()
        gone = [folder for folder in folders if (files.root / folder).is_dir()]
        if sink == BatchConsumeQueueSink.name and known is None and not gone:
            continue
        sinks.append(SinkReport(sink, known.end_offset if known else None, 0, SinkFiles(tuple(gone), (), 0)))
        removed |= bool(gone) or known is not None
        if not dry_run:
            for folder in gone:
                remove_own(files, folder)
            record.remove()
            files.remove(*MADE_FOR)
            files.sync()
    has_checkpoint = files.root.joinpath(REPUT, SPARK_CHECKPOINT).is_dir()
    if has_checkpoint and not dry_run:
        files.remove_tree(REPUT, SPARK_CHECKPOINT)
    return RecoveryReport(unclean, True, 0, 0, 0, tuple(sinks), (), has_checkpoint, removed or has_checkpoint)


def expire_output(config: PipelineConfig, output: Path, *, dry_run: bool = False, yes: bool = False) -> RetentionReport:
    """Remove the output's leading files whose records have all expired from the log; the log is only read.

    With `yes`, where the log begins decides even if the output was made from another log.

    Raises
    ------
    ReputError
        The store or the output cannot be read, the output is locked, the log has no record, or the log does not
        explain the output and `yes` is not given.
    """
    with _opened(config, output, dry_run=dry_run) as (files, log):
        segments = log.queue()
        check_explained(log, output, [Gap.GONE], way_out=_EMPTY_LOG)
        if not yes:
            check_explained(log, output)
        queues = tuple(_expired_queues(config, files, segments.min_offset))
        index = ProgressFile(files, IndexSink.name).load()
        last = None if index is None else index.state["file"]
        index_files = expired_index_files(output, segments.min_offset, last)
        rows = [*(queue.removed for queue in queues), index_files]
        if not dry_run:
            for row in rows:
                remove_in_order(files, row)
        return RetentionReport(
            segments.min_offset,
            queues,
            tuple("/".join(parts) for parts in index_files),
            tuple("/".join(parts) for row in rows for parts in row),
        )


def _expired_queues(config: PipelineConfig, files: DurableFiles, min_physic_offset: int) -> Iterator[QueueRetention]:
    """Yield the files that expire of the queues of both kinds."""
    queue = config.queue
    kinds = [
        (ConsumeQueueSink.name, KIND, rounded_file_size(queue.mapped_file_size_consume_queue)),
        (BatchConsumeQueueSink.name, BATCH_KIND, queue.mapper_file_size_batch_consume_queue),
    ]
    for sink, kind, size in kinds:
        record = ProgressFile(files, sink).load()
        for disk in load_queues(files.root, kind, size):
            yield expire_queue(disk, min_physic_offset, None if record is None else record.end_offset)


@contextmanager
def _opened(config: PipelineConfig, output: Path, *, dry_run: bool) -> Iterator[tuple[DurableFiles, LogReader]]:
    """Yield the output, locked, and the log; a dry run makes no lock file if there is none."""
    refuse_paths_inside(config.commit_log, OutputPaths(output))
    if not output.is_dir():
        raise OutputError(
            f"no output at {output}: the directory does not exist",
            advice="give the --output of 'reput tail'",
            file=output,
        )
    check_fits_files(config, output)
    log = LogReader(config.log_options())
    log.queue()  # a store that cannot be read leaves no trace in the output
    files = DurableFiles(output)
    lock = output / LOCK
    held = None if dry_run and not (lock.exists() and lock.stat().st_size) else StoreLock(output)
    try:
        if not dry_run:
            finish_swap(files)
        check_made_for(config, config.store, output)
        yield files, log
    finally:
        files.close()
        if held is not None:
            held.close()


# ----------------------------------------------------------------------------------------------------------------------
# The output of `reput recover` and `reput expire`.


def as_json(report: RecoveryReport | RetentionReport) -> str:
    """The report's fields, as one JSON object."""
    return json.dumps(asdict(report), indent=1)


def recovery_text(report: RecoveryReport, *, dry_run: bool) -> str:
    """Return a line for every queue, then one for each finding and each repair."""
    kind = "abnormal (a broker left its abort file)" if report.unclean else "normal"
    lines = [
        *_queue_lines(report.queues),
        f"log [{report.log_start}, {report.log_end})",
        f"a broker's recovery would be {kind}, from {report.broker_recovers_from}",
    ]
    if dry_run and report.unexplained:
        lines.append(f"would be done with --yes only: {report.unexplained}")
    if report.rewound:
        lines.append("the log was cut and written again: the last record dispatched is no longer at its place")
    verbs = ("would remove", "would mend") if dry_run else ("removed", "mended")
    for sink in report.sinks:
        before = "no progress record" if sink.end_before is None else f"ended at {sink.end_before}"
        after = "would continue" if dry_run else "continues"
        line = f"{sink.name}: {before}, {after} at {sink.end_after}"
        dropped = f", {counted(sink.files.entries_dropped, 'entry')} dropped" if sink.files.entries_dropped else ""
        lines.append(line + dropped)
        lines += [f"{verbs[0]} {path}" for path in sink.files.removed]
        lines += [f"{verbs[1]} {path}" for path in sink.files.mended]
    if report.spark_checkpoint_removed:
        lines.append(f"{verbs[0]} Spark's checkpoint of the logic query, which is ahead of the sinks")
    if not report.is_changed:
        lines.append("queues and index agree with the log: nothing to do")
    first = min(report.sinks, key=lambda sink: sink.end_after, default=None)
    if report.abort is not None:
        lines.append(report.abort.text(dry_run=dry_run))
    elif first is not None and first.end_after < report.log_end:
        ends = "would end" if dry_run else "ends"
        lines.append(
            f"{first.name} {ends} at {first.end_after}, the log at {report.log_end}; 'reput tail --available-now' with "
            "the same --store and --output writes the rest"
        )
    return _text(lines)


def retention_text(report: RetentionReport, *, dry_run: bool) -> str:
    """Return a line for every queue, then one for each file that was removed."""
    verb = "would remove" if dry_run else "removed"
    lines = [*_queue_lines(report.queues), f"the log begins at {report.min_physic_offset}"]
    lines += [f"{verb} {path}" for path in report.removed] or ["nothing has expired"]
    return _text(lines)


def _text(lines: Iterable[str]) -> str:
    """The lines made harmless for a terminal, since the names of queues and files contain topics."""
    return "\n".join(map(printable, lines))


def _queue_lines(queues: Iterable[QueueReport | QueueRetention]) -> list[str]:
    return [f"{queue.topic}-{queue.queue_id}: min {queue.min_offset}, max {queue.max_offset}" for queue in queues]


# How much of the log is compared at once.
_BATCH_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class SinkReport:
    """One sink: the present and future end of its progress record (None without one), and the fate of its files."""

    name: str
    end_before: int | None
    end_after: int
    files: SinkFiles


class OutputRecovery:
    """Compares on construction, and changes nothing before `apply`.

    The log's records are the truth from its first segment on; what was derived from expired records stays.
    """

    def __init__(self, config: PipelineConfig, files: DurableFiles, log: LogReader) -> None:
        """Read the log once, from its beginning to the first record that queues or index disagree with.

        Raises
        ------
        ReputError
            The log cannot be read to its end, or the output's files were made with other settings.
        """
        self._files = files
        self._log = log
        self._least = log.queue().min_offset
        self.log_end = log.settled_end(self._least)
        needs = replace(logic_needs(config, config.store), filters=None)
        self._task = RangeTask(log.decode_options, needs)
        self._batches: list[tuple[int, int, RecordFingerprint | None]] = []
        wanted: list[SinkRepair] = []
        if needs.consume_queue:
            wanted.append(QueueRepair(config, files, self._begins_life, needs.batch_topics))
            if needs.batch_topics:
                wanted.append(BatchQueueRepair(config, files, self._begins_life, needs.batch_topics))
        if needs.index:
            wanted.append(IndexRepair(config, files))
        self._repairs = [repair for repair in wanted if self._open(repair)]
        self._compare()
        self._planned = [self._plan(repair) for repair in self._repairs]
        self._checkpoint = self._planned_checkpoint()

    # --- findings --------------------------------------------------------------------------------------------

    @property
    def rewound(self) -> bool:
        """Whether the last record that a sink has is no longer in the log."""
        known = [repair.record.last_record for repair in self._repairs if repair.record is not None]
        return any(record is not None and not self._is_in_log(record) for record in known)

    @property
    def spark_checkpoint_removed(self) -> bool:
        """Whether Spark's checkpoint of the `logic` query is ahead of the sinks, or cannot be read."""
        checkpoint = self._files.root.joinpath(*SPARK_CHECKPOINT_OF_LOGIC)
        if not checkpoint.is_dir() or not self._planned:
            return False
        try:
            offset = spark_offset(checkpoint)
        except OutputError:
            return True
        return offset is not None and offset > min(progress.end_offset for progress in self._planned)

    @property
    def sinks(self) -> tuple[SinkReport, ...]:
        """The new end of each sink."""
        return tuple(
            SinkReport(
                repair.name, repair.record.end_offset if repair.record else None, progress.end_offset, repair.changes()
            )
            for repair, progress in zip(self._repairs, self._planned, strict=True)
        )

    @property
    def queues(self) -> tuple[QueueReport, ...]:
        """The queues that remain."""
        repairs = (repair for repair in self._repairs if isinstance(repair, QueueRepair))
        return tuple(queue for repair in repairs for queue in repair.queues(self._least))

    @property
    def is_changed(self) -> bool:
        """Whether `apply` writes anything."""
        sinks = any(map(self._is_changed, self._repairs, self._planned))
        return sinks or self.spark_checkpoint_removed or self._checkpoint is not None

    def apply(self) -> None:
        """Write what was planned, durably; if it is stopped anywhere, it can be run again.

        Spark's checkpoint is removed first: the next run would continue from it, after a record that no longer exists.
        """
        if self.spark_checkpoint_removed:
            self._files.remove_tree(*SPARK_CHECKPOINT_OF_LOGIC)
        for repair, progress in zip(self._repairs, self._planned, strict=True):
            if self._is_changed(repair, progress):
                repair.apply(progress)
        if self._checkpoint is not None:
            store_checkpoint(self._files, self._checkpoint)

    # --- comparing -------------------------------------------------------------------------------------------

    def _open(self, repair: SinkRepair) -> bool:
        repair.open(self._start(repair.record))
        if repair.start > self._least and repair.trusted_until > self._least:
            repair.open(self._least)  # a broker's files were taken over: they have entries before the record's start
        repair.limit = self._limit(repair.record)
        return not repair.is_empty

    def _start(self, record: SinkProgress | None) -> int:
        if record is None or record.start_offset <= self._least:
            return self._least
        return self._log.align_down(self._least, min(record.start_offset, self.log_end))

    def _limit(self, record: SinkProgress | None) -> int:
        """Return the end of a sink's effects: the end of the record that its progress reaches into, or of the log."""
        if record is None or record.end_offset >= self.log_end:
            return self.log_end
        if record.end_offset <= self._least:
            return self._least
        begin = self._log.align_down(self._least, record.end_offset)
        return begin if begin == record.end_offset else self._log.limit(begin, self.log_end, 1, None)

    def _compare(self) -> None:
        start = self._least
        while start < self.log_end:
            repairs = [
                repair for repair in self._repairs if repair.looks_further or (start < repair.limit and repair.agrees)
            ]
            if not repairs:
                return
            stop = min(at for repair in repairs for at in (repair.start, repair.limit, self.log_end) if at > start)
            end = self._log.limit(start, stop, _BATCH_BYTES, None)
            batch = self._batch(start, end)
            self._batches.append((start, end, batch.last_record))
            for repair in repairs:
                if repair.agrees and repair.start <= start < repair.limit:
                    repair.compare(batch)
                elif start >= repair.start:
                    repair.look_further(batch)
            start = end

    def _batch(self, start: int, end: int) -> LogicBatch:
        batch = RangeEffects.join([self._task.read(span) for span in self._log.split(start, end)]).batch()
        assert batch is not None
        return batch

    def _begins_life(self, kind: QueueKind, topic: bytes, queue_id: int, offset: int) -> bool:
        """See ``QueueCheck.begins_life``."""
        # The log takes an offset that it was asked to read from for the begin of a record, so check it first.
        if not (self._least <= offset < self.log_end and self._log.align_down(self._least, offset) == offset):
            return False
        entries = self._batch(offset, self._log.limit(offset, self.log_end, 1, None)).entries
        queues = queues_of_kind(kind, entries)
        found = (queue for queue in queues if (queue.topic, queue.queue_id) == (topic, queue_id))
        return any(queue.first_physical_offset == offset and queue.queue_offsets[0] == 0 for queue in found)

    # --- planning --------------------------------------------------------------------------------------------

    def _plan(self, repair: SinkRepair) -> SinkProgress:
        last = self._last_before(repair.end)
        last_offset = last.offset if last is not None and last.offset >= repair.start else -1
        end, state = repair.plan(last_offset, self._store_timestamp)
        record = repair.record
        if record is None:
            return SinkProgress(min(repair.start, end), end, self._last_before(end), state)
        start = min(record.start_offset, end)
        if end < record.end_offset or record.end_offset < self._least:
            return SinkProgress(start, end, self._last_before(end), state)
        known = record.last_record
        if known is not None and not self._is_in_log(known):
            known = self._last_before(record.end_offset)
        return SinkProgress(start, record.end_offset, known, state)

    def _is_in_log(self, known: RecordFingerprint) -> bool:
        if known.offset < self._least:
            return True  # expired
        return known.offset + known.size <= self.log_end and fingerprint_at(self._log, known) == known

    def _last_before(self, end: int) -> RecordFingerprint | None:
        last = None
        end = self._log.align_down(self._least, end)
        for start, stop, record in self._batches:
            if stop <= end:
                last = record or last
            elif start < end:
                last = self._batch(start, end).last_record or last
        return last

    def _store_timestamp(self, offset: int) -> int | None:
        if offset < self._least:
            return None
        record = self._batch(offset, self._log.limit(offset, self.log_end, 1, None)).last_record
        return None if record is None else record.store_timestamp

    def _planned_checkpoint(self) -> StoreCheckpoint | None:
        """Return the new store checkpoint if the present one is ahead of the rest, None if it may stay."""
        if not (self._files.root / STORE_CHECKPOINT).exists():
            return None
        known = planned = load_store_checkpoint(self._files)
        for repair, progress in zip(self._repairs, self._planned, strict=True):
            if repair.disagrees_at is None and not (repair.record and progress.end_offset < repair.record.end_offset):
                continue
            if isinstance(repair, QueueRepair):
                logics = progress.last_record.store_timestamp if progress.last_record else 0
                last = progress.last_record.offset if progress.last_record else 0
                planned = planned.with_logics_physical_offset(min(planned.logics_physical_offset, last))
                planned = replace(
                    planned,
                    logics_msg_timestamp=min(planned.logics_msg_timestamp, logics),
                    physic_msg_timestamp=min(planned.physic_msg_timestamp, logics),
                )
            else:
                index = min(known.index_msg_timestamp, progress.state["index_msg_timestamp"])
                planned = replace(planned, index_msg_timestamp=index)
        return planned if planned != known else None

    def _is_changed(self, repair: SinkRepair, planned: SinkProgress) -> bool:
        changes = repair.changes()
        return repair.record != planned or bool(changes.removed or changes.mended)


# ----------------------------------------------------------------------------------------------------------------------
# The queues and the index of an output, as `reput recover` compares them with the log and repairs them.


@dataclass(frozen=True)
class SinkFiles:
    """Files to remove and to mend, as paths below the output.

    `entries_dropped` counts queue entries, or keys of the newest index file that is kept.
    """

    removed: tuple[str, ...]
    mended: tuple[str, ...]
    entries_dropped: int


@dataclass(frozen=True)
class QueueReport:
    """One queue, by queue offsets: the first entry whose record the log has, and the queue's end (exclusive)."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


class SinkRepair:
    """Compares one sink's files with `[start, limit)` of the log, batch by batch in log order, and repairs them."""

    name: str
    start: int
    limit: int
    disagrees_at: int | None = None
    _check: QueueCheck | IndexCheck

    def __init__(self, config: PipelineConfig, files: DurableFiles) -> None:
        self.config = config
        self.files = files
        self.record = ProgressFile(files, self.name).load()

    @property
    def agrees(self) -> bool:
        """Whether everything compared so far agrees."""
        return self.disagrees_at is None

    @property
    def end(self) -> int:
        """The offset up to which files and log agree."""
        return self.limit if self.disagrees_at is None else self.disagrees_at

    @property
    def trusted_until(self) -> int:
        """The end of the last record before `start` that has an effect on disk; 0 without one."""
        return self._check.trusted_until

    @property
    def is_empty(self) -> bool:
        """Whether the sink has neither files nor a progress record."""
        return self.record is None and self._check.has_no_files

    def open(self, start: int) -> None:
        """Read the files on disk; what was derived from records before `start` is trusted."""
        raise NotImplementedError

    @property
    def looks_further(self) -> bool:
        """Whether `look_further` needs batches after those that are compared."""
        return False

    def compare(self, batch: LogicBatch) -> None:
        """Compare the next batch, and set `disagrees_at` if something differs."""
        raise NotImplementedError

    def look_further(self, batch: LogicBatch) -> None:
        """Look at a batch after those that are compared."""

    def plan(self, last_record: int, store_timestamp: Callable[[int], int | None]) -> tuple[int, dict[str, Any]]:
        """Return where the sink continues after the cut, and the state of its progress record there.

        See ``IndexCheck.cut`` for the arguments.
        """
        raise NotImplementedError

    def changes(self) -> SinkFiles:
        """The files that `apply` changes."""
        raise NotImplementedError

    def apply(self, planned: SinkProgress) -> None:
        """Store the progress record `planned`, and cut the files to its end."""
        raise NotImplementedError


class QueueRepair(SinkRepair):
    """``consumequeue/``, and what is left of queues that should be of another kind."""

    name = ConsumeQueueSink.name
    kind = KIND
    _check: QueueCheck

    def __init__(
        self,
        config: PipelineConfig,
        files: DurableFiles,
        begins_life: Callable[[QueueKind, bytes, int, int], bool],
        batch_topics: frozenset[bytes],
    ) -> None:
        """`begins_life` as in ``QueueCheck``, with the kind of the queue before all else.

        Topics of `batch_topics` have another kind of queue: what is left of theirs are empty directories.
        """
        super().__init__(config, files)
        self._begins_life = partial(begins_life, self.kind)
        self._batch_topics = batch_topics

    def open(self, start: int) -> None:
        """Read the queues' files; entries of records before `start` are trusted."""
        self.start = start
        settings = queue_settings(self.config, self.files.root)
        self._check = QueueCheck.load(settings, self.kind, start, self._begins_life, emptied(self.record))

    def _sink(self) -> QueueSink:
        queue = self.config.queue
        return ConsumeQueueSink(self.files, queue.mapped_file_size_consume_queue, queue.ext_file_size)

    def compare(self, batch: LogicBatch) -> None:
        """Compare the batch's entries with those of the queues."""
        self._check.compare(batch)
        self.disagrees_at = self._check.disagrees_at

    @property
    def looks_further(self) -> bool:
        """Whether some queue has only entries of expired records so far."""
        return self._check.has_open_heads

    def look_further(self, batch: LogicBatch) -> None:
        """Find in the batch where queues with expired entries continue."""
        self._check.look_at_heads(batch)

    def plan(self, last_record: int, store_timestamp: Callable[[int], int | None]) -> tuple[int, dict[str, Any]]:
        """Return the end of the queues after the cut, and the state of their progress record there."""
        del last_record, store_timestamp
        self._check.check_queues()
        if self.record is not None and self.end >= self.record.end_offset:
            return self.end, {**self.record.state, "queue_ends": self._check.entries}
        lives = self._check.lives
        return self.end, {"queue_ends": self._check.entries, **({LIVES: lives} if lives else {})}

    def changes(self) -> SinkFiles:
        """The queues' files that `apply` removes and mends."""
        states = self._check.queues.values()
        removed = ["/".join(state.disk.relative_path(file)) for state in states for file in state.files_to_remove]
        mended = ["/".join(state.disk.relative_path(file)) for state in states for file in state.files_to_mend]
        removed += ["/".join(directory) for directory in self._emptied(removed)]
        return SinkFiles(tuple(sorted(removed)), tuple(mended), sum(state.dropped for state in states))

    def _emptied(self, removed: Collection[str]) -> list[RelativePath]:
        """The directories of queues of the wrong kind that have no file but those that are `removed`."""
        found: list[RelativePath] = []
        for kind, topic, queue_id in queues_of_wrong_kind(self.files.root, self._batch_topics):
            directory = kind.directory(topic, queue_id)
            names = names_in(self.files.root.joinpath(*directory))
            if all("/".join((*directory, name)) in removed for name in names):
                found.append(directory)
        return found

    def apply(self, planned: SinkProgress) -> None:
        """Store the progress record, and cut the queues."""
        ProgressFile(self.files, self.name).store(planned)
        cut_queues(self.files, self._check)
        for directory in self._emptied(()):
            self.files.remove_directory(*directory)
            self.files.remove_directory(*directory[:-1])
        self.files.sync()
        self._sink().recover(self.start)

    def queues(self, min_physic_offset: int) -> tuple[QueueReport, ...]:
        """The queues that remain (``DefaultMessageStore#recoverTopicQueueTable``)."""
        return tuple(
            QueueReport(
                state.disk.topic.decode("utf-8", "backslashreplace"),
                state.disk.queue_id,
                *self._offsets(state, state.disk.min_offset(min_physic_offset, state.end_number)),
            )
            for state in self._check.queues.values()
            if state.has_entries
        )

    def _offsets(self, state: QueueState, least: int) -> tuple[int, int]:
        """The queue offsets of the units from number `least` on, end exclusive."""
        return least, state.end_number


class BatchQueueRepair(QueueRepair):
    """``batchconsumequeue/``."""

    name = BatchConsumeQueueSink.name
    kind = BATCH_KIND

    def _sink(self) -> QueueSink:
        return BatchConsumeQueueSink(self.files, self.config.queue.mapper_file_size_batch_consume_queue)

    def _offsets(self, state: QueueState, least: int) -> tuple[int, int]:
        return offsets_of_batches(state.disk, state.begin // state.disk.unit_size, least, state.end_number)

    def _emptied(self, removed: Collection[str]) -> list[RelativePath]:
        """Return none: the other repair removes those of the wrong kind."""
        del removed
        return []


class IndexRepair(SinkRepair):
    """``index/``."""

    name = IndexSink.name
    _check: IndexCheck
    _state: IndexState

    def open(self, start: int) -> None:
        """Read the index files; keys of records before `start` are trusted."""
        self.start = start
        sizes = self.config.index.max_hash_slot_num, self.config.index.max_index_num
        self._check = IndexCheck(self.files.root, *sizes, start)

    def compare(self, batch: LogicBatch) -> None:
        """Compare the batch's keys with those of the index, up to the first that differs."""
        for keys in batch.entries.keys_by_piece():
            if self.agrees:
                self._check.compare(keys)
                self.disagrees_at = self._check.disagrees_at

    def plan(self, last_record: int, store_timestamp: Callable[[int], int | None]) -> tuple[int, dict[str, Any]]:
        """Return the end of the index after the cut, and the state of its progress record there."""
        known = None if self.record is None else self.record.state
        self._state = self._check.cut(self.end, last_record, store_timestamp, known)
        return self._state.end, self._state.state

    def changes(self) -> SinkFiles:
        """The index files that `apply` removes, and the one that it mends."""
        removed = tuple("/".join(index_file(name)) for name in self._state.removed)
        mended = ("/".join(index_file(self._state.state["file"])),) if self._state.is_mended else ()
        return SinkFiles(removed, mended, self._state.entries_dropped)

    def apply(self, planned: SinkProgress) -> None:
        """Store the progress record, and cut the index."""
        ProgressFile(self.files, self.name).store(planned)
        sizes = self.config.index.max_hash_slot_num, self.config.index.max_index_num
        IndexSink(self.files, *sizes).recover(self.start)
