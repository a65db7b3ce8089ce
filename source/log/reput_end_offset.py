"""How far it is safe to read: the end of a live log is a judgement.

The broker's write position is only in its memory, segments are preallocated with zeros, and bytes behind the end may
be old records with good checksums. A record counts when its magic, size, lengths, own place and body CRC hold; the
last one also needs a successor, or to be unchanged for a while, because its last bytes may still be zeros that pass
every test.

The end of a DLedger log is judged in the same way. How far the group has committed is only in the broker's memory, too
(its ``checkpoint`` file tells it late). What lies behind that may be written anew by another leader, as what a broker
had not flushed may be after a crash: ``tailGuardMs`` makes it rare, and the fingerprint of the last record that an
output has tells it at the next start.

A place that is no good record is the end of the log, unless a later segment was begun: then it is in the middle, see
``damage``. With ``onDamage=quarantine`` it is in the middle of the last segment, too, when the log goes on behind it
(``resync``) with a good record or the blank, the place has stood as it is for ``tailGuardMs``, and the record behind it
was stored no earlier than the last one before it: whole older records lie behind the end of a log that was cut after a
crash, and the broker is about to write over them.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from reput.source.record.message_decoder import Verdict
from reput.source.segments.damage import BROKER, QUARANTINE, STOP
from reput.source.segments.mapped_file_queue import MappedFile, MappedFileQueue, open_segment, read_head
from reput.source.segments.range_reader import DecodeOptions, scan_windows
from reput.source.segments.resync import OpenSegment
from reput.source.segments.segment_head import HEAD_SIZE, is_begun

# Looking for what follows a doubtful place may read a whole segment: again after so many times what it took.
_SEARCH_AGAIN_FACTOR = 100
_LOOKS_AT_LEAST = 3


@dataclass(frozen=True)
class ReputEnd:
    """The end of what may be read: every record before `offset` is whole.

    `verdict` says what stands behind the last whole record; `held_back` is the size in bytes of a record that is whole
    but not yet trusted.
    """

    offset: int
    verdict: Verdict
    held_back: int = 0


@dataclass(frozen=True)
class _LastRecord:
    """The last good record before the end, or before a doubt: what stands there, and since when."""

    digest: int
    seen_at: float


@dataclass
class _Doubt:
    """A place of the last segment that is no good record: what stands there, since when, when to search behind it.

    `further` is where the log goes on behind it, once that was found.
    """

    head: bytes
    seen_at: float
    search_at: float
    further: int | None = None


def begins_with_record(file: MappedFile) -> bool:
    """Whether the broker has begun to write this segment, and so has finished the one before it."""
    return is_begun(read_head(file, HEAD_SIZE), file.file_from_offset, file.frame)


class ReputEndFinder:
    """Finds the end again and again as the log grows; remembers only what saves reading the same bytes twice."""

    def __init__(
        self,
        *,
        check_crc: bool,
        tail_guard_ms: int,
        clock: Callable[[], float] = time.monotonic,
        on_boundary: Callable[[int], None] | None = None,
        on_damage: str = STOP,
        over_holes: bool = False,
    ) -> None:
        """`tail_guard_ms` is how long the last record must stay unchanged; `clock` is monotonic, in seconds.

        `on_boundary` is told places where ranges may be cut, now and then along the walk; `on_damage` says whether the
        log goes on behind what is no good record in its last segment. With `over_holes` the log
        goes on behind segments that are missing: those in front of the hole end where it begins.
        """
        self._check_crc = check_crc
        self._tail_guard_ms = tail_guard_ms
        self._clock = clock
        self._on_boundary = on_boundary or (lambda _: None)
        self._on_damage = on_damage
        self._over_holes = over_holes
        self._queue: MappedFileQueue | None = None
        self._begun: set[int] = set()  # segments of `_queue` that were begun
        self._walked = -1  # a place behind a trusted record, up to which the active segment was walked
        # By place, what the look before met: where it walked over damage it met several.
        self._known_last: dict[int, _LastRecord] = {}
        self._known_doubts: dict[int, _Doubt] = {}
        self._last: dict[int, _LastRecord] = {}
        self._doubts: dict[int, _Doubt] = {}
        self._met: _Doubt | None = None  # the last that a look met
        self._passed = 0  # doubtful places that turned out to be in the middle of the log

    def find(self, queue: MappedFileQueue, start: int) -> ReputEnd:
        """The end of whole records at or behind `start`, which is a place where a record or a blank begins."""
        if queue is not self._queue:
            self._queue, self._begun = queue, set()
        self._met = None
        self._known_last, self._last = self._last, {}
        self._known_doubts, self._doubts = self._doubts, {}
        file = queue.find(start)
        if file is None:
            return ReputEnd(start, Verdict.EMPTY)
        place = start
        last = file
        while (after := queue.following(last)) is not None:
            last = after
            if self._is_begun(after):
                file, place = after, after.file_from_offset
        if self._over_holes and self._is_begun(queue.find(queue.next_available(last.end))):
            return ReputEnd(last.end, Verdict.EMPTY)
        if file.file_from_offset <= self._walked < file.end:
            place = max(place, self._walked)
        end = self._walk(file, place)
        if end.verdict is Verdict.BLANK and (after := queue.following(file)) is not None:
            begun = self._behind_doubt(after, after.file_from_offset)
            end = ReputEnd(file.end, Verdict.EMPTY) if begun is None else self._walk(after, begun)
        self._walked = end.offset
        return end

    def settle(self, load: Callable[[], MappedFileQueue], start: int) -> ReputEnd:
        """The end as it stands now, with the last record waited for as long as the guard asks."""
        end = self.find(load(), start)
        deadline = self._clock() + 2 * self._tail_guard_ms / 1000
        looks = 1
        # A busy machine may oversleep the time: what was completed at the second look is trusted at the third.
        while (end.held_back or self._is_young_doubt()) and (self._clock() < deadline or looks < _LOOKS_AT_LEAST):
            time.sleep(max(self._tail_guard_ms, 1) / 1000)
            looks += 1
            passed = self._passed
            end = self.find(load(), start)
            if self._passed > passed:  # behind a damaged place there may be another, with a guard of its own
                deadline = self._clock() + 2 * self._tail_guard_ms / 1000
        return end

    def _is_begun(self, file: MappedFile | None) -> bool:
        if file is None:
            return False
        if file.file_from_offset not in self._begun and begins_with_record(file):
            self._begun.add(file.file_from_offset)
        return file.file_from_offset in self._begun

    def _walk(self, file: MappedFile, place: int) -> ReputEnd:
        """Where the good records of the last segment end, and behind damage in its middle where they end at last."""
        while True:
            end = self._walk_good(file, place)
            further = self._behind_doubt(file, end.offset + end.held_back)
            if further is None:
                return end
            place = further

    def _walk_good(self, file: MappedFile, place: int) -> ReputEnd:
        # What a broker's replay passes over has good records in it, at which no range may be cut.
        note = self._on_boundary if self._on_damage != BROKER else None
        end, verdict, last = place, Verdict.EMPTY, -1
        digest = 0
        for window in scan_windows(file, place, file.end, DecodeOptions(self._check_crc)):
            end, verdict = window.end, window.verdict
            if len(window):
                last = window.offset_of(-1)
                if note is not None:
                    note(last)
                digest = zlib.crc32(window.data[last - window.start : end - window.start].data)
        if last < 0 or verdict is Verdict.BLANK or self._is_settled(last, digest):
            return ReputEnd(end, verdict)
        return ReputEnd(last, verdict, end - last)

    def _is_settled(self, offset: int, digest: int) -> bool:
        now = self._clock()
        known = self._known_last.get(offset)
        if known is None or known.digest != digest:
            known = _LastRecord(digest, now)
        self._last[offset] = known
        return (now - known.seen_at) * 1000 >= self._tail_guard_ms

    def _behind_doubt(self, file: MappedFile, place: int) -> int | None:
        """Where the log goes on behind `place`, None when `place` is where it ends, or may be."""
        if self._on_damage != QUARANTINE or place >= file.end:
            return None
        with open_segment(file) as descriptor:
            segment = OpenSegment(descriptor, file)
            if segment.is_blank(place):
                return None
            now = self._clock()
            head = segment.damaged_range(place, file.end, "").head
            known = self._known_doubts.get(place)
            if known is None or known.head != head:
                known = _Doubt(head, now, now)
            self._met = self._doubts[place] = known
            if known.further is not None:
                return known.further
            if self._is_young_doubt() or now < known.search_at:
                return None
            further = _good_place_behind(segment, place)
            if further is not None and not segment.is_blank(further) and _is_older(segment, further, place):
                further = None
            known.search_at = self._clock() + _SEARCH_AGAIN_FACTOR * (self._clock() - now)
            known.further = further
            self._passed += further is not None
            return further

    def _is_young_doubt(self) -> bool:
        return self._met is not None and (self._clock() - self._met.seen_at) * 1000 < self._tail_guard_ms


def _good_place_behind(segment: OpenSegment, place: int) -> int | None:
    """The next place behind the damage at `place` where a good record or the blank stands."""
    while True:
        verdict = segment.judge(place)
        if verdict is Verdict.MESSAGE or segment.is_blank(place):
            return place
        further = segment.end_of_damage(place, verdict)
        if further is None:
            return None
        place = further


def _is_older(segment: OpenSegment, place: int, damaged: int) -> bool:
    """Whether the record at `place` was stored before the last good one before `damaged`."""
    before, options = None, DecodeOptions(on_damage=QUARANTINE)
    for window in scan_windows(segment.file, segment.file.file_from_offset, damaged, options):
        if len(window):
            before = segment.store_timestamp(window.offset_of(-1))
    return before is not None and segment.store_timestamp(place) < before
