"""The broker's recovery of its commitlog: which records it dispatches, where it ends the log.

``CommitLog#recoverNormally`` and ``#recoverAbnormally`` of 4.9.3 and 5.5.0, with
``MappedFileQueue#truncateDirtyFiles`` and ``DefaultMessageStore#truncateDirtyLogicFiles``.
"""

from __future__ import annotations

from dataclasses import dataclass

from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.source.segments.broker_check import GoodRecords, OddRecord, WalkEnd, broker_walk
from reput.streaming.doctor.dispatcher import Dispatcher
from reput.streaming.doctor.prediction import Part
from reput.streaming.doctor.start_settings import StartSettings
from reput.streaming.doctor.stored_files import NoStartError, Segment
from reput.streaming.output.recovery_start import recovered_first

_OUT_OF_MEMORY = "no JVM makes so large an array: the broker ends with an OutOfMemoryError"


@dataclass(frozen=True)
class LogEnd:
    """Where recovery found the log to end.

    Attributes
    ----------
    offset
        The physical offset.
    segment
        The segment in which it ends.
    why
        What the broker makes of what stands there; empty behind a file's blank.
    last_store_timestamp
        The store time (ms) of the last record before; None without one.
    begins_in
        The segment at which recovery began.
    """

    offset: int
    segment: Segment
    why: str
    last_store_timestamp: int | None
    begins_in: Segment


def recover_log(
    segments: list[Segment],
    checkpoint: StoreCheckpoint,
    dispatcher: Dispatcher,
    settings: StartSettings,
    *,
    is_abnormal: bool,
) -> LogEnd:
    """Follow the log as recovery does, dispatching what it dispatches; `segments` has at least one.

    Raises
    ------
    NoStartError
        The broker does not survive a record.
    """
    queued_to = dispatcher.max_physic_offset
    files = [segment.file for segment in segments]
    at = recovered_first(files, checkpoint, lambda: queued_to, settings, unclean=is_abnormal)
    begins_in = segments[at]
    # 4.9.3 dispatches nothing in its normal recovery; its replay does.
    dispatches = is_abnormal or settings.is_v5
    behind = None if is_abnormal else queued_to
    stored = None
    while True:
        segment = segments[at]
        begin = end = segment.file.file_from_offset
        found: GoodRecords | OddRecord | WalkEnd | None = None
        for found in broker_walk(segment.file, begin, segment.file.end, settings.rules):
            if isinstance(found, WalkEnd):
                break
            if dispatches:
                dispatcher.dispatch(segment.file, found, behind)
            stored, end = _last_of(found)
        assert isinstance(found, WalkEnd)
        if found.check.is_fatal:
            raise NoStartError(Part.RECORD, f"{found.check.why} at offset {end}: {_OUT_OF_MEMORY}", segment.file.path)
        if not found.check.success:
            return LogEnd(end, segment, found.check.why, stored, begins_in)
        at += 1
        if at == len(segments):
            return LogEnd(end, segment, "", stored, begins_in)


def _last_of(found: GoodRecords | OddRecord) -> tuple[int, int]:
    """The store time of the last record, and the offset behind it."""
    if isinstance(found, GoodRecords):
        return found.last_store_timestamp, found.end
    assert found.check.record is not None
    return found.check.record.store_timestamp, found.check.position


def cut_log(segments: list[Segment], offset: int) -> list[Segment]:
    """End the log at `offset`: changes `segments`, and returns those that the broker deletes."""
    removed = []
    for segment in list(segments):
        if segment.file.end <= offset:
            continue
        if offset >= segment.file.file_from_offset:
            segment.wrote = offset - segment.file.file_from_offset
        else:
            segments.remove(segment)
            removed.append(segment)
    return removed


def cut_queues(dispatcher: Dispatcher, queued_to: int, offset: int) -> None:
    """Cut the queues of a log that ends at `offset`, if any of them reached so far when it was asked (`queued_to`)."""
    if queued_to >= offset:
        for queue in dispatcher.queues.values():
            queue.truncate(offset)
