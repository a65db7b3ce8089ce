"""The offset up to which it is safe to read: the end of a live log is a judgement.

The broker's write position is only in its memory, segments are preallocated with zeros, and the bytes after the end may
be old records with good checksums. A record counts if its magic, size, lengths, own physical offset and body CRC are
right. The last one also needs a successor, or must stay unchanged for a while, because its last bytes may still be
zeros that pass every test.

The end of a DLedger log is judged in the same way. How far the group has committed is also only in the broker's memory
(its ``checkpoint`` file shows it late). Another leader may overwrite later bytes, and a broker those that it had not
flushed before a crash. ``tailGuardMs`` makes this rare, and at the next start the fingerprint of the last record that
an output has reveals it.

The log ends where no good record follows, unless a later segment was begun: then that offset is in the middle, see
``damage``. With ``onDamage=quarantine`` an offset of the last segment may also be in the middle. This is so if the log
continues after it (``resync``) with a good record or the blank, the bytes at it have been the same for ``tailGuardMs``,
and the record after them was stored no earlier than the last one before them. The last condition is needed because
complete older records follow the end of a log that was cut after a crash, and the broker is about to overwrite them.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from reput.source.log.early_look import seen_early
from reput.source.log.mapped_file_queue import HEAD_SIZE, MappedFile, MappedFileQueue, is_begun, open_segment, read_head
from reput.source.log.range_reader import DecodeOptions, scan_windows
from reput.source.log.segment_scan import OpenSegment
from reput.source.record.damage import BROKER, QUARANTINE, STOP
from reput.source.record.message_decoder import Verdict

# The search after a doubtful offset may read a whole segment. It is repeated after this many times its duration.
_SEARCH_AGAIN_FACTOR = 100
_LOOKS_AT_LEAST = 3


@dataclass(frozen=True)
class ReputEnd:
    """The end of what may be read: every record before `offset` is complete.

    `verdict` is the verdict on the bytes after the last complete record. `held_back` is the size in bytes of a record
    that is complete but not yet trusted.
    """

    offset: int
    verdict: Verdict
    held_back: int = 0


@dataclass(frozen=True)
class _LastRecord:
    """The last good record before the end, or before a doubt: the digest of its bytes, and since when it is this."""

    digest: int
    seen_at: float


@dataclass
class _Doubt:
    """An offset of the last segment without a good record: its first bytes, since when, and when to search after it.

    `further` is the offset where the log continues, once that has been found.
    """

    head: bytes
    seen_at: float
    search_at: float
    further: int | None = None


def begins_with_record(file: MappedFile) -> bool:
    """Whether the broker has begun to write this segment, and so has finished the one before it."""
    return is_begun(read_head(file, HEAD_SIZE), file.file_from_offset, file.frame)


def _now() -> float:
    """The default clock; it looks up ``time.monotonic`` at each call, so that tests can skip waits."""
    return time.monotonic()


class ReputEndFinder:
    """Finds the end repeatedly as the log grows; remembers only what saves reading the same bytes twice."""

    def __init__(
        self,
        *,
        check_crc: bool,
        tail_guard_ms: int,
        clock: Callable[[], float] = _now,
        on_boundary: Callable[[int], None] | None = None,
        on_damage: str = STOP,
        over_holes: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        """Take how long the last record must stay unchanged (`tail_guard_ms`) and a monotonic `clock` in seconds.

        `on_boundary` is called now and then along the walk, with an offset where ranges may be cut. `on_damage` decides
        whether the log may continue after a bad record in its last segment. With `over_holes` the log continues after
        missing segments: records before a hole are read up to where it begins. `meanwhile` is called in the first wait
        for the last record, and counts as part of it.
        """
        self._check_crc = check_crc
        self._tail_guard_ms = tail_guard_ms
        self._clock = clock
        self._on_boundary = on_boundary or (lambda _: None)
        self._on_damage = on_damage
        self._over_holes = over_holes
        self._meanwhile = meanwhile
        self._queue: MappedFileQueue | None = None
        self._begun: set[int] = set()  # segments of `_queue` that were begun
        self._walked = -1  # the end of a trusted record, up to which the active segment was walked
        # By offset, the records and doubts of the previous look; several if it passed over damage.
        self._known_last: dict[int, _LastRecord] = {}
        self._known_doubts: dict[int, _Doubt] = {}
        self._last: dict[int, _LastRecord] = {}
        self._doubts: dict[int, _Doubt] = {}
        self._met: _Doubt | None = None  # the last doubt of this look
        self._passed = 0  # how many doubtful offsets turned out to be in the middle of the log

    def find(self, queue: MappedFileQueue, start: int) -> ReputEnd:
        """The end of complete records at or after `start`, where a record or a blank begins."""
        if queue.known_end is not None:
            row = next(iter(queue.rows(start, queue.known_end)), (start, start))
            return ReputEnd(row[1], Verdict.EMPTY)
        if queue is not self._queue:
            self._queue, self._begun = queue, set()
        self._met = None
        self._known_last, self._last = self._last, {}
        self._known_doubts, self._doubts = self._doubts, {}
        file = queue.find(start)
        if file is None:
            return ReputEnd(start, Verdict.EMPTY)
        offset = start
        last = file
        while (after := queue.following(last)) is not None:
            last = after
            if self._is_begun(after):
                file, offset = after, after.file_from_offset
        if self._over_holes and self._is_begun(queue.find(queue.next_available(last.end))):
            return ReputEnd(last.end, Verdict.EMPTY)
        if file.file_from_offset <= self._walked < file.end:
            offset = max(offset, self._walked)
        end = self._walk(file, offset)
        if end.verdict is Verdict.BLANK and (after := queue.following(file)) is not None:
            begun = self._behind_doubt(after, after.file_from_offset)
            end = ReputEnd(file.end, Verdict.EMPTY) if begun is None else self._walk(after, begun)
        self._walked = end.offset
        return end

    def settle(self, load: Callable[[], MappedFileQueue], start: int) -> ReputEnd:
        """The end as it is now, after waiting for the last record as long as the guard requires."""
        end = self.find(load(), start)
        deadline = self._clock() + 2 * self._tail_guard_ms / 1000
        looks = 1
        # A busy machine may sleep too long: what was complete at the second look is trusted at the third.
        while (end.held_back or self._is_young_doubt()) and (self._clock() < deadline or looks < _LOOKS_AT_LEAST):
            self._meanwhile()
            self._meanwhile = lambda: None
            seen = [known.seen_at for known in self._last.values()] + [doubt.seen_at for doubt in self._doubts.values()]
            time.sleep(max(0.0, max(seen) + max(self._tail_guard_ms, 1) / 1000 - self._clock()))
            looks += 1
            passed = self._passed
            end = self.find(load(), start)
            if self._passed > passed:  # more damage may follow, with a guard of its own
                deadline = self._clock() + 2 * self._tail_guard_ms / 1000
        return end

    def _is_begun(self, file: MappedFile | None) -> bool:
        if file is None:
            return False
        if file.file_from_offset not in self._begun and begins_with_record(file):
            self._begun.add(file.file_from_offset)
        return file.file_from_offset in self._begun

    def _walk(self, file: MappedFile, offset: int) -> ReputEnd:
        """The end of the last segment's good records, including those after damage in its middle."""
        while True:
            end = self._walk_good(file, offset)
            further = self._behind_doubt(file, end.offset + end.held_back)
            if further is None:
                return end
            offset = further

    def _walk_good(self, file: MappedFile, offset: int) -> ReputEnd:
        # The bytes that a broker's replay passes over may contain good records; no range may be cut at these.
        note = self._on_boundary if self._on_damage != BROKER else None
        end, verdict, last = offset, Verdict.EMPTY, -1
        digest = 0
        for window in scan_windows(file, offset, file.end, DecodeOptions(self._check_crc)):
            end, verdict = window.end, window.verdict
            if len(window):
                last = window.offset_of(-1)
                if note is not None:
                    note(last)
                digest = zlib.crc32(window.data[last - window.start : end - window.start].data)
        if last < 0 or verdict is Verdict.BLANK or self._is_settled(file, last, end, digest):
            return ReputEnd(end, verdict)
        return ReputEnd(last, verdict, end - last)

    def _is_settled(self, file: MappedFile, offset: int, end: int, digest: int) -> bool:
        now = self._clock()
        known = self._known_last.get(offset)
        if known is None or known.digest != digest:
            begin = file.file_from_offset
            seen_at = seen_early(file.path, offset - begin, end - begin, digest)
            known = _LastRecord(digest, now if seen_at is None else seen_at)
        self._last[offset] = known
        return (now - known.seen_at) * 1000 >= self._tail_guard_ms

    def _behind_doubt(self, file: MappedFile, offset: int) -> int | None:
        """The offset where the log continues after `offset`; None if it ends, or may end, at `offset`."""
        if self._on_damage != QUARANTINE or offset >= file.end:
            return None
        with open_segment(file) as opened:
            segment = OpenSegment(opened, file)
            if segment.is_blank(offset):
                return None
            head = segment.damaged_range(offset, file.end, "").head
            now = self._clock()
            known = self._known_doubts.get(offset)
            if known is None or known.head != head:
                known = _Doubt(head, now, now)
            self._met = self._doubts[offset] = known
            if known.further is not None:
                return known.further
            if self._is_young_doubt() or now < known.search_at:
                return None
            further = _good_offset_behind(segment, offset)
            if further is not None and not segment.is_blank(further) and _is_older(segment, further, offset):
                further = None
            known.search_at = self._clock() + _SEARCH_AGAIN_FACTOR * (self._clock() - now)
            known.further = further
            self._passed += further is not None
            return further

    def _is_young_doubt(self) -> bool:
        return self._met is not None and (self._clock() - self._met.seen_at) * 1000 < self._tail_guard_ms


def _good_offset_behind(segment: OpenSegment, offset: int) -> int | None:
    """The first offset after the damage at `offset` where a good record or the blank begins; None if there is none."""
    while True:
        verdict = segment.judge(offset)
        if verdict is Verdict.MESSAGE or segment.is_blank(offset):
            return offset
        further = segment.end_of_damage(offset, verdict)
        if further is None:
            return None
        offset = further


def _is_older(segment: OpenSegment, offset: int, damaged: int) -> bool:
    """Whether the record at `offset` was stored before the last good one before `damaged`."""
    before, options = None, DecodeOptions(on_damage=QUARANTINE)
    for window in scan_windows(segment.file, segment.file.file_from_offset, damaged, options):
        if len(window):
            before = segment.store_timestamp(window.offset_of(-1))
    return before is not None and segment.store_timestamp(offset) < before
