"""`reput recover` and `reput expire`: what they do to an output, and their reports. They start no Spark.

``DefaultMessageStore#recover`` with ``#recoverTopicQueueTable``, and ``DefaultMessageStore.CleanConsumeQueueService``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from reput.sinks.abort_file import LeftBy, abort_left_by
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.own_files import remove_own
from reput.sinks.files.sink_progress import ProgressFile
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
)
from reput.sinks.files.swap import finish_swap
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.queue.batch_consume_queue import KIND as BATCH_CONSUME_QUEUE_KIND
from reput.sinks.queue.batch_consume_queue import BatchConsumeQueueSink
from reput.sinks.queue.consume_queue import KIND as CONSUME_QUEUE_KIND
from reput.sinks.queue.consume_queue import ConsumeQueueSink, rounded_file_size
from reput.sinks.queue.queue_reader import load_queues
from reput.sinks.retention import QueueRetention, expire_queue, expired_index_files, remove_in_order
from reput.source.errors import GIVE_YES, OutputError, UnexplainedError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.source.printable import counted, printable
from reput.streaming.config.broker import batch_topics
from reput.streaming.config.made_for import check_made_for
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.stored_sizes import check_fits_files
from reput.streaming.output.hand_over import HandOver, abort_while_changed, doubt_of_log, hand_over
from reput.streaming.output.log_explains import Gap, check_explained, find_unexplained
from reput.streaming.output.paths import OutputPaths, refuse_paths_inside
from reput.streaming.output.recovery_start import broker_recovers_from
from reput.streaming.recover.output_recovery import OutputRecovery, QueueReport, SinkFiles, SinkReport

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
    """Return the files that expire of the queues of both kinds."""
    queue = config.queue
    kinds = [
        (ConsumeQueueSink.name, CONSUME_QUEUE_KIND, rounded_file_size(queue.mapped_file_size_consume_queue)),
        (BatchConsumeQueueSink.name, BATCH_CONSUME_QUEUE_KIND, queue.mapper_file_size_batch_consume_queue),
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
    log = LogReader(SourceOptions.parse(config.source_options()))
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
    if report.abort is not None:
        lines.append(report.abort.text(dry_run=dry_run))
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
