"""What to do at start: compare Spark's offset, each sink's, and what the log still has; heal, or refuse with a reason.

Each sink knows where it is. A sink behind Spark's checkpoint is brought up from the log before the stream goes on; one
ahead of it passes over what it has; a checkpoint that is gone begins where the sinks end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession

from reput.sinks.consume_queue import ConsumeQueueSink
from reput.sinks.durable_file import DurableFiles
from reput.sinks.index_service import IndexSink
from reput.sinks.sink_progress import RecordFingerprint, SinkProgress
from reput.sinks.store_path import ABORT, CONSUME_QUEUE, INDEX, progress_file
from reput.source.data_source import NAME, last_record_of_offset
from reput.source.errors import CommitLogRewoundError, CorruptRecordError, DataLossError, OutputError
from reput.source.log_reader import LogReader
from reput.source.range_reader import read_windows
from reput.streaming.config import PipelineConfig
from reput.streaming.dispatch import Dispatch

_log = logging.getLogger("reput")

_WAY_OUT = "give an empty --output (and --table) to derive everything from the log as it is"
_RECOVER = "'reput recover' with the same --store and --output cuts it back to the last record that still agrees"
_WAYS_OUT = {ConsumeQueueSink.name: _RECOVER, IndexSink.name: _RECOVER}
_FOLDERS = {ConsumeQueueSink.name: CONSUME_QUEUE, IndexSink.name: INDEX}


class Recoverable(Protocol):
    """The part of a sink that recovery needs; see ``Sink``."""

    name: str

    def recover(self, start_offset: int) -> SinkProgress:
        """Bring the sink to what its progress record says."""

    def pass_over(self, end_offset: int) -> None:
        """Go on at `end_offset`."""

    @property
    def end_offset(self) -> int:
        """Where the sink ends."""


def recover_sinks(sinks: Sequence[Recoverable], log: LogReader, *, fail_on_data_loss: bool) -> None:
    """Recover each sink and check it against the log.

    Raises
    ------
    CommitLogRewoundError
        The last record a sink has is no longer where it was.
    DataLossError
        Records after a sink's end have expired unread, and `fail_on_data_loss` is set.
    TransientError
        The log has no segment at all, and a sink has records of it.
    """
    start = None
    for sink in sinks:
        if start is None:
            start = log.initial_offset()
        progress = sink.recover(start)
        if progress.last_record is not None:
            log.find_record(progress.last_record)
            check_fingerprint(log, sink.name, progress.last_record, progress.start_offset)
        further = log.next_available(sink.end_offset)
        is_behind_begin = sink.end_offset >= log.queue().min_offset
        if further == sink.end_offset or (is_behind_begin and fail_on_data_loss):  # a hole is told by name
            continue
        there = "goes on" if is_behind_begin else "begins"
        lost = f"{sink.name} ends at {sink.end_offset} and the log {there} at {further}: records between expired unread"
        if fail_on_data_loss:
            msg = f"{lost}; set failOnDataLoss=false to go on without them"
            raise DataLossError(msg)
        _log.warning("%s; going on without them", lost)
        sink.pass_over(further)


def check_taken_over(output: Path, sinks: Sequence[str]) -> None:
    """Raise OutputError when a sink would take over files that a broker left when it stopped uncleanly.

    Their last pages may be missing, and their index headers behind (``DefaultMessageStore#load`` does not trust them
    either); a sink's own progress record tells what is whole.
    """
    if not (output / ABORT).exists():
        return
    for sink in sinks:
        folder = output / _FOLDERS[sink]
        if not output.joinpath(*progress_file(sink)).exists() and folder.is_dir() and any(folder.iterdir()):
            msg = (
                f"{output / ABORT} says that the broker which left {folder} stopped uncleanly: its last writes may be "
                "missing or torn; 'reput recover' with the same --store and --output brings it into agreement with "
                "the log"
            )
            raise OutputError(msg)


def check_fingerprint(log: LogReader, sink: str, known: RecordFingerprint, start_offset: int = 0) -> None:
    """Raise CommitLogRewoundError when the log has another record, or none, at the place of `known`.

    After an unclean stop a broker sets its write position back and writes other records over those that a reader
    already had (``MappedFileQueue#truncateDirtyFiles``). It clears no byte: `known` may still stand whole at its place,
    behind the log's new end. So the records before it must lead to it, from its segment's begin or, where an output was
    begun behind a damaged record, from `start_offset`.
    """
    file = log.queue().find(known.offset)
    if file is None and known.offset < log.queue().end_of_files:
        return  # it expired, or is missing in the middle, which is told as that
    found: RecordFingerprint | None = None
    if file is not None and known.offset + known.size <= file.end and log.is_led_to(known, start_offset):
        found = fingerprint_at(log, known)
    if found != known:
        msg = (
            f"{sink} has a record of {known.size} bytes at offset {known.offset}, stored at {known.store_timestamp}, "
            f"and the log now has {found or 'no such record'}: the broker cut the log and wrote on, or this is "
            f"another store; {_WAYS_OUT.get(sink, _WAY_OUT)}"
        )
        raise CommitLogRewoundError(msg)


def fingerprint_at(log: LogReader, known: RecordFingerprint) -> RecordFingerprint | None:
    """The record that the log has where `known` was, None when no good one of its size is there."""
    file = log.queue().find(known.offset)
    assert file is not None
    try:
        begin, end = known.offset - file.frame, known.offset + known.size
        for window in read_windows(file, begin, end, log.decode_options):
            for message in window.columns.messages():
                return RecordFingerprint(
                    message.physical_offset, message.msg_size, message.store_timestamp, message.body_crc
                )
    except CorruptRecordError:
        return None
    return None


def spark_offset(checkpoint: Path) -> int | None:
    """The physical offset up to which a query's Spark checkpoint says that all is done; None without one."""
    commits = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdecimal()]
    if not commits:
        return None
    lines = (checkpoint / "offsets" / str(max(commits))).read_text().splitlines()
    return int(json.loads(lines[-1])["physicOffset"])


def forget_planned_batch(checkpoint: Path, log: LogReader) -> None:
    """Remove a query's Spark checkpoint when its next batch was planned for a log that has been cut since.

    Spark would ask for that very batch again and again. The sinks know where they end, and Spark begins there anew.
    """
    planned = [int(path.name) for path in checkpoint.glob("offsets/*") if path.name.isdecimal()]
    if not planned or (checkpoint / "commits" / str(max(planned))).exists():
        return
    lines = (checkpoint / "offsets" / str(max(planned))).read_text().splitlines()
    offset = json.loads(lines[-1])
    last = last_record_of_offset(offset)
    if last is None or (log.find_record(last) == last and log.is_led_to(last, int(offset["startOffset"]))):
        return
    _log.warning(
        "the log was cut before a planned micro-batch was read: it no longer has the record at offset %d; removing "
        "Spark's checkpoint %s, the sinks know where they end",
        last.offset,
        checkpoint,
    )
    files = DurableFiles(checkpoint.parent)
    files.remove_tree(checkpoint.name)
    files.close()


def catch_up(spark: SparkSession, config: PipelineConfig, dispatch: Dispatch, checkpoint: Path, log: LogReader) -> None:
    """Bring a query's sinks up to Spark's checkpoint, reading the log in batches of the query's size."""
    target = spark_offset(checkpoint)
    while target is not None and dispatch.end_offset < target:
        start = aligned(log, dispatch.end_offset)
        end = log.limit(start, target, config["maxBytesPerTrigger"], None)
        _log.info("%s: bringing the sinks from %d to %d, where Spark's checkpoint is", dispatch.name, start, end)
        options = config.source_options(
            rows="ranges",
            startingOffset=start,
            endingOffset=end,
            maxBytesPerPartition=config["maxBytesPerPartition"],
        )
        before = dispatch.end_offset
        dispatch(spark.read.format(NAME).options(**options).load(), -1)
        if dispatch.end_offset <= before:
            msg = (
                f"Spark's checkpoint {checkpoint} is at offset {target}, and the log has nothing behind {before}: it "
                "was cut, or the checkpoint is another log's; 'reput recover' brings queues and index back to the log "
                "and forgets their checkpoint; for the table give another --checkpoint and an empty --table"
            )
            raise CommitLogRewoundError(msg)


def aligned(log: LogReader, offset: int) -> int:
    """The last place up to `offset` where a record begins: a sink that took over a broker's files ends anywhere."""
    return log.align_down(0, offset)
