"""The broker's replay of its log from where its queues end, once recovery has ended the log.

``DefaultMessageStore#start`` and ``ReputMessageService#doReput``, whose position drifts behind a record of wrong sizes.
"""

from __future__ import annotations

from reput.source.segments.broker_check import GoodRecords, OddRecord, WalkEnd, broker_walk
from reput.streaming.doctor.dispatcher import WAITS, Dispatcher
from reput.streaming.doctor.prediction import Part
from reput.streaming.doctor.start_settings import StartSettings
from reput.streaming.doctor.stored_files import NoStartError, Segment


def replay_from(segments: list[Segment], dispatcher: Dispatcher) -> int:
    """Where the replay begins: at the end of the last record that has a queue entry, or at the log's begin."""
    return max(segments[0].file.file_from_offset if segments else 0, dispatcher.max_physic_offset, 0)


def replay(segments: list[Segment], start: int, dispatcher: Dispatcher, settings: StartSettings) -> None:
    """Dispatch from `start` to the log's end.

    Raises
    ------
    NoStartError
        The replay does not get there: a segment is missing, or it cannot pass over a record.
    """
    at = start
    while segments and at < segments[-1].end:
        segment = _segment_of(segments, at)
        if segment is None:
            raise NoStartError(Part.REPLAY, f"no segment holds offset {at}, where the replay goes on: {WAITS}")
        begin = segment.file.file_from_offset + at % settings.segment_size
        if begin >= segment.end:
            raise NoStartError(
                Part.REPLAY, f"{segment.file.path} has nothing at offset {at}: {WAITS}", segment.file.path
            )
        at = _replay_buffer(segment, begin, dispatcher, settings)


def _replay_buffer(segment: Segment, begin: int, dispatcher: Dispatcher, settings: StartSettings) -> int:
    """Dispatch what is readable of a segment from `begin` on; returns where the replay goes on."""
    at = position = begin
    size = segment.end - begin
    read = 0
    rules = settings.rules.without_crc()
    while read < size:
        found: GoodRecords | OddRecord | WalkEnd | None = None
        for found in broker_walk(segment.file, position, segment.end, rules):
            if isinstance(found, WalkEnd):
                break
            dispatcher.dispatch(segment.file, found, in_replay=True)
            length = (found.end if isinstance(found, GoodRecords) else found.check.position) - found.start
            at, read, position = at + length, read + length, position + length
        if read >= size:
            break
        assert isinstance(found, WalkEnd)
        check = found.check
        if check.is_fatal:
            why = f"{check.why} at offset {position}: the replay ends, and {WAITS}"
            raise NoStartError(Part.REPLAY, why, segment.file.path)
        if check.success:
            return at + settings.segment_size - at % settings.segment_size
        if check.size <= 0:
            if settings.is_master:
                return at + size - read
            why = f"{check.why} at offset {position}: a slave does not pass over it, {WAITS}"
            raise NoStartError(Part.REPLAY, why, segment.file.path)
        # The broker goes on parsing behind the parts, and adds the stated size to its position.
        at, position = at + check.size, check.position
    return at


def _segment_of(segments: list[Segment], offset: int) -> Segment | None:
    """The segment that holds `offset` (``MappedFileQueue#findMappedFileByOffset``); for 0, the first one."""
    for segment in segments:
        if segment.file.file_from_offset <= offset < segment.file.end:
            return segment
    return segments[0] if offset == 0 else None
