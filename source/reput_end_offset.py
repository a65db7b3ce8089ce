"""How far it is safe to read: the end of a live log is a judgement.

The broker's write position is only in its memory, segments are preallocated with zeros, and bytes behind the end may
be old records with good checksums. A record counts when its magic, size, lengths, own place and body CRC hold; the
last one also needs a successor, or to be unchanged for a while, because its last bytes may still be zeros that pass
every test.

The end of a DLedger log is judged in the same way. How far the group has committed is only in the broker's memory, too
(its ``checkpoint`` file tells it late). What lies behind that may be written anew by another leader, as what a broker
had not flushed may be after a crash: ``tailGuardMs`` makes it rare, and the fingerprint of the last record that an
output has tells it at the next start.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from reput.source.mapped_file_queue import MappedFile, MappedFileQueue, read_head
from reput.source.message_decoder import Verdict
from reput.source.range_reader import scan_windows
from reput.source.segment_head import HEAD_SIZE, is_begun


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
    offset: int
    digest: int
    seen_at: float


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
    ) -> None:
        """`tail_guard_ms` is how long the last record must stay unchanged; `clock` is monotonic, in seconds.

        `on_boundary` is told places where records begin, now and then along the walk.
        """
        self._check_crc = check_crc
        self._tail_guard_ms = tail_guard_ms
        self._clock = clock
        self._on_boundary = on_boundary or (lambda _: None)
        self._walked = -1  # a place behind a trusted record, up to which the active segment was walked
        self._last: _LastRecord | None = None

    def find(self, queue: MappedFileQueue, start: int) -> ReputEnd:
        """The end of whole records at or behind `start`, which is a place where a record or a blank begins."""
        file = queue.find(start)
        if file is None:
            return ReputEnd(start, Verdict.EMPTY)
        place = start
        while (after := queue.following(file)) is not None and begins_with_record(after):
            file, place = after, after.file_from_offset
        if file.file_from_offset <= self._walked < file.end:
            place = max(place, self._walked)
        end = self._walk(file, place)
        if end.verdict is Verdict.BLANK and queue.following(file) is not None:
            end = ReputEnd(file.end, Verdict.EMPTY)
        self._walked = end.offset
        return end

    def settle(self, load: Callable[[], MappedFileQueue], start: int) -> ReputEnd:
        """The end as it stands now, with the last record waited for as long as the guard asks."""
        end = self.find(load(), start)
        deadline = self._clock() + 2 * self._tail_guard_ms / 1000
        while end.held_back and self._clock() < deadline:
            time.sleep(max(self._tail_guard_ms, 1) / 1000)
            end = self.find(load(), start)
        return end

    def _walk(self, file: MappedFile, place: int) -> ReputEnd:
        stop, verdict, last = place, Verdict.EMPTY, -1
        digest = 0
        for scan in scan_windows(file, place, file.end, check_crc=self._check_crc):
            stop, verdict = scan.stop, scan.verdict
            if len(scan):
                last = scan.place_of(-1)
                self._on_boundary(last)
                digest = zlib.crc32(scan.data[last - scan.start : stop - scan.start].data)
        if last < 0 or verdict is Verdict.BLANK or self._is_settled(last, digest):
            return ReputEnd(stop, verdict)
        return ReputEnd(last, verdict, stop - last)

    def _is_settled(self, offset: int, digest: int) -> bool:
        now = self._clock()
        known = self._last
        if known is None or (known.offset, known.digest) != (offset, digest):
            self._last = known = _LastRecord(offset, digest, now)
        return (now - known.seen_at) * 1000 >= self._tail_guard_ms
