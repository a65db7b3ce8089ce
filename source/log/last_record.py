"""The last record that a reader has of the log, and whether the log still has it.

After an unclean stop a broker sets its write position back and writes other records over those that a reader already
had (``MappedFileQueue#truncateDirtyFiles``). It clears no byte: a record may still stand whole at its offset, behind
the log's new end. So it counts only when its own bytes are as they were and the records before it lead to it. The first
test is one small read, and enough as soon as the broker has written that far; the second reads the segment up to the
record, and is made now and then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reput.source.errors import DataLossError
from reput.source.kernels import record_kernels as rk
from reput.source.log.boundaries import Boundaries, store_timestamp_at
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue, read_head
from reput.source.log.range_reader import DecodeOptions, scan_windows
from reput.source.record.damage import STOP
from reput.source.record.message_decoder import FINGERPRINTED_BYTES, RecordFingerprint, fingerprint_of

# Following a segment's records takes a while, so an idle log is followed seldom enough to make that a small part of the
# time, and more often when the file's time of change is another one. A file may change without that.
_IDLE_S = 1.0
_CHANGED_S, _CHANGED_FACTOR = 2.0, 20
_UNCHANGED_S, _UNCHANGED_FACTOR = 10.0, 200


def last_record_before(queue: MappedFileQueue, end: int, on_damage: str, known: Boundaries) -> RecordFingerprint | None:
    """The last record of the segment that holds the byte before `end`; at `end`, a record may begin.

    None when there is no such segment, or it has no record before `end`.
    """
    file = queue.find(end - 1)
    if file is None:
        return None
    begin = end
    while begin > file.file_from_offset:
        begin = known.before(file.file_from_offset, begin - 1)
        last = -1
        for window in scan_windows(file, begin, end, DecodeOptions(on_damage=on_damage)):
            known.note(window.end)
            if len(window):
                last = window.offset_of(-1)
        if last >= 0:
            return record_at(file, last + file.frame)
    return None


def record_at(file: MappedFile, offset: int) -> RecordFingerprint | None:
    """The record whose first bytes stand at `offset` of the log, inside `file`; None when no record's do.

    Raises
    ------
    DataLossError
        The segment has gone.
    """
    head = read_head(file, FINGERPRINTED_BYTES, offset - file.file_from_offset)
    return fingerprint_of(head, offset)


def find_record(queue: MappedFileQueue, known: RecordFingerprint) -> RecordFingerprint | None:
    """The record that the log has at the offset of `known`; `known` itself where its segment expired or is missing.

    A segment counts as missing when there are some behind it: a broker that cuts its log leaves none there.
    """
    file = queue.find(known.offset)
    if file is None:
        return known if known.offset < queue.end_of_files else None
    try:
        return record_at(file, known.offset)
    except DataLossError:
        return known  # the next listing shows whether it expired


def is_led_to(queue: MappedFileQueue, known: RecordFingerprint, begins: Iterable[int], on_damage: str) -> bool:
    """Whether records follow each other to `known` from its segment's begin, or from one of the offsets `begins`.

    Damage is passed over where `on_damage` says so, unless the record behind it was stored before the last one in front
    of it: then the log was cut there, and old records stand behind its new end.
    """
    file = queue.find(known.offset)
    if file is None:
        return known.offset < queue.end_of_files
    offset = known.offset - file.frame
    allowed = {file.file_from_offset, *(begin for begin in begins if file.file_from_offset < begin <= offset)}
    return any(_leads(file, begin, offset, on_damage) for begin in sorted(allowed))


def _leads(file: MappedFile, begin: int, offset: int, on_damage: str) -> bool:
    end, before, is_behind_damage = begin, None, False
    for window in scan_windows(file, begin, offset, DecodeOptions(on_damage=on_damage)):
        end = window.end
        if len(window):
            first, last = (store_timestamp_at(window.data, int(window.parts[row, rk.AT])) for row in (0, -1))
            if is_behind_damage and before is not None and first < before:
                return False
            before, is_behind_damage = last, False
        else:
            is_behind_damage = is_behind_damage or window.end > window.start
    if end != offset or not is_behind_damage or before is None:
        return end == offset
    record = record_at(file, offset + file.frame)
    return record is not None and record.store_timestamp >= before


@dataclass
class _Watched:
    """The record that is watched, how its segment looked when its records were followed, and when to do so again."""

    record: RecordFingerprint
    stamp: tuple[int, int] | None
    is_followed: bool
    look_at: float
    look_anyhow_at: float


class LastRecordWatch:
    """Looks, cheaply and as often as it is asked, whether the last record is still the log's."""

    def __init__(self, on_damage: str = STOP, clock: Callable[[], float] = time.monotonic) -> None:
        """`on_damage` as in `is_led_to`; `clock` is monotonic, in seconds."""
        self._on_damage = on_damage
        self._clock = clock
        self._watched: _Watched | None = None
        self._found: RecordFingerprint | None = None
        self._took = 0.0

    def note_found(self, record: RecordFingerprint) -> None:
        """Take note of a record that was just found by following the records that lead to it."""
        self._found = record

    def is_there(
        self, queue: MappedFileQueue, known: RecordFingerprint, begins: Iterable[int], *, is_idle: bool
    ) -> bool:
        """Whether the log has `known`; the records that lead to it are followed at first, and while `is_idle`.

        `begins` are the offsets where reading began: behind a damaged record nothing else leads to `known`.
        """
        if find_record(queue, known) != known:
            return False
        now, stamp = self._clock(), _stamp(queue.find(known.offset))
        watched = self._watched
        if watched is None and known != self._found:  # another process may have read as far, and any time ago
            self._watched = watched = _Watched(known, None, False, now, now)
        elif watched is None or watched.record != known:
            # The log has gone on behind the record before: it was not cut until now.
            anyhow_at = now + max(_UNCHANGED_S, _UNCHANGED_FACTOR * self._took)
            self._watched = watched = _Watched(known, stamp, True, now + _IDLE_S, anyhow_at)
        if watched.is_followed and (not is_idle or now < watched.look_at):
            return True
        if watched.is_followed and stamp == watched.stamp and now < watched.look_anyhow_at:
            return True
        found = is_led_to(queue, known, begins, self._on_damage)
        ended = self._clock()
        self._took = ended - now
        watched.stamp, watched.is_followed = stamp, True
        watched.look_at = ended + max(_CHANGED_S, _CHANGED_FACTOR * self._took)
        watched.look_anyhow_at = ended + max(_UNCHANGED_S, _UNCHANGED_FACTOR * self._took)
        return found


def _stamp(file: MappedFile | None) -> tuple[int, int] | None:
    if file is None:
        return None
    try:
        status = os.stat(file.path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
