"""Where the log goes on behind a damaged record: a function of the segment's bytes and of nothing else.

1. A record whose place and lengths hold (what is wrong is its topic, a checksum or a number in its properties) ends
   where they say.
2. Any other tells its end more than once: by its total size and by the sum of its lengths; under DLedger also by the
   two sizes of its entry's header. An end is *proven* when a good record or the blank stands there; the nearest proven
   one counts. Good records before it count more, if they follow each other up to it without a gap: then it was a wrong
   size that leads so far. Without such a row, what looks like a record before the proven end is part of the body.
3. Without a proven end: the next good record behind which the log goes on, that is with a further good record, the
   blank, nothing but zeros, or a damaged record that still has its magic code or its place. A record behind which
   stands anything else may be part of a damaged one's body.
4. Without one: nowhere; the next segment begins with a record.

A good record is one whose magic code, own place, lengths and checksums all hold. What cannot be told apart: a row of
records inside a body, made for exactly their places, that leads to the body's record's end (2) or that has another such
behind it (3), from records of the log; and the other way round a sound record between two damaged ones, the first of
which has no proven end and the second of which has neither its magic code nor its place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from reput.source.arrays import Bytes
from reput.source.kernels.own_place import LOOKED_AT, NOT_FOUND, find_own_place
from reput.source.record import dledger_entry as dle
from reput.source.record import message_format as fmt
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_sys_flag import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG
from reput.source.segments.damage import HEAD_BYTES, DamagedRange
from reput.source.segments.mapped_file_queue import MappedFile, read_fully
from reput.source.segments.segment_scan import WINDOW_BYTES, Window, scan_record, scan_segment

#: Verdicts on records whose place and lengths hold.
SOUND_VERDICTS = frozenset(
    {Verdict.BAD_TOPIC, Verdict.BAD_CRC, Verdict.BAD_DELAY, Verdict.BAD_PROPERTY_CRC, Verdict.BAD_INNER_BATCH}
)
_MAGIC_CODES = (fmt.MESSAGE_MAGIC_CODE, fmt.MESSAGE_MAGIC_CODE_V2)
_NO_LENGTH = -1


class OpenSegment:
    """Looks at single places of a segment that is open for reading."""

    def __init__(self, descriptor: int, file: MappedFile) -> None:
        self._descriptor = descriptor
        self.file = file
        self.smallest = file.frame + fmt.FIXED_LENGTH

    def end_of_damage(self, place: int, verdict: Verdict) -> int | None:
        """Where the log goes on behind the damage at `place`; None where nothing in this segment shows it."""
        if verdict in SOUND_VERDICTS:
            return place + self.file.frame + self.i32(place + self.file.frame)
        proven = min(self._proven_ends(place), default=None)
        for candidate in self._own_places(place + 1, self.file.end if proven is None else proven):
            size = self.good_size(candidate)
            if size and (self._runs_to(candidate, proven) if proven is not None else self._goes_on(candidate + size)):
                return candidate
        return proven

    def judge(self, place: int) -> Verdict:
        """The verdict on a place, checksums included."""
        return self._record(place).verdict

    def good_size(self, place: int) -> int:
        """The size in bytes, frame included, of the good record at `place`; 0 when none is there."""
        return self._record(place).end - place

    def is_blank(self, place: int) -> bool:
        """Whether the blank stands at `place`, of exactly the size that is left."""
        if place + fmt.BLANK_SIZE > self.file.end:
            return False
        pair = self.i32(place), self.i32(place + 4)
        rest = self.file.end - place
        return pair == ((dle.ENTRY_BLANK_MAGIC_CODE, rest) if self.file.frame else (rest, fmt.BLANK_MAGIC_CODE))

    def i32(self, place: int) -> int:
        """The integer at `place`, big-endian and signed; bytes behind the segment's end count as zeros."""
        return self.integer(place, 4)

    def store_timestamp(self, place: int) -> int:
        """When the record at `place` was stored, in milliseconds."""
        record = place + self.file.frame
        shift = fmt.HOST_V6_EXTRA if self.i32(record + fmt.SYS_FLAG_AT) & BORNHOST_V6_FLAG else 0
        return self.integer(record + fmt.STORE_TIMESTAMP_AT + shift, 8)

    def damaged_range(self, start: int, end: int, cause: str) -> DamagedRange:
        """The description of a damaged range."""
        head = self._read(start, min(HEAD_BYTES, end - start)).tobytes()
        return DamagedRange(start, end, cause, self.file.path, start - self.file.file_from_offset, head)

    def integer(self, place: int, size: int) -> int:
        """The integer of `size` bytes at `place`, like `i32`."""
        data = os.pread(self._descriptor, size, place - self.file.file_from_offset)
        return int.from_bytes(data.ljust(size, b"\0"), "big", signed=True)

    def _record(self, place: int) -> Window:
        return scan_record(self._descriptor, self.file, place, self.file.end, check_crc=True)

    def _read(self, place: int, size: int) -> Bytes:
        data = np.empty(min(size, self.file.end - place), np.uint8)
        done = read_fully(self._descriptor, data, len(data), place - self.file.file_from_offset)
        return data[:done]

    def _proven_ends(self, place: int) -> Iterator[int]:
        """Where the record at `place` ends by one of its sizes, if a good record or the blank stands there."""
        frame, rest = self.file.frame, self.file.end - place
        claims = {frame + self.i32(place + frame), frame + self._lengths(place + frame)}
        if frame:
            claims |= {self.i32(place + dle.ENTRY_SIZE_AT), frame + self.i32(place + dle.ENTRY_BODY_SIZE_AT)}
        for size in claims:
            # A segment never ends with a record: the broker leaves room for the blank.
            if self.smallest <= size <= rest - fmt.BLANK_SIZE:
                end = place + size
                if self.good_size(end) or self.is_blank(end):
                    yield end

    def _lengths(self, record: int) -> int:
        """The size of the record at `record` by its lengths, `_NO_LENGTH` when they lead out of the segment."""
        sys_flag = self.i32(record + fmt.SYS_FLAG_AT)
        hosts = fmt.HOST_V6_EXTRA * (bool(sys_flag & BORNHOST_V6_FLAG) + bool(sys_flag & STOREHOSTADDRESS_V6_FLAG))
        is_v2 = self.i32(record + fmt.MAGIC_AT) == fmt.MESSAGE_MAGIC_CODE_V2
        width = fmt.TOPIC_LENGTH_V2_SIZE if is_v2 else fmt.TOPIC_LENGTH_SIZE
        body_length = self.i32(record + fmt.BODY_LENGTH_AT + hosts)
        topic = record + fmt.BODY_AT + hosts + max(0, body_length)
        topic_length = self.integer(topic, width) if topic < self.file.end else _NO_LENGTH
        if topic_length < 0 or topic + width + topic_length >= self.file.end:
            return _NO_LENGTH
        properties_length = self.integer(topic + width + topic_length, fmt.PROPERTIES_LENGTH_SIZE)
        return fmt.calc_msg_length(hosts, body_length, topic_length, properties_length, width)

    def _own_places(self, start: int, end: int) -> Iterator[int]:
        """Places of `[start, end)` where a record names its own place."""
        looked_at = self.file.frame + LOOKED_AT
        while start < end:
            data = self._read(start, min(WINDOW_BYTES, end - start + looked_at - 1))
            at = find_own_place(data, 0, len(data), start, self.file.frame)
            while at != NOT_FOUND and start + at < end:
                yield start + at
                at = find_own_place(data, at + 1, len(data), start, self.file.frame)
            if len(data) < looked_at:
                return
            start += len(data) - looked_at + 1

    def _runs_to(self, place: int, end: int) -> bool:
        """Whether good records follow each other from `place` to exactly `end`."""
        for window in scan_segment(self._descriptor, self.file, place, end, check_crc=True):
            place = window.end
        return place == end

    def _goes_on(self, place: int) -> bool:
        """Whether something stands at `place` that a log has behind a record."""
        return bool(self.good_size(place)) or self.is_blank(place) or self._is_known(place) or self._is_unused(place)

    def _is_known(self, place: int) -> bool:
        """Whether a record begins at `place` whose magic code or place is left."""
        frame = self.file.frame
        if place + self.smallest > self.file.end:
            return False
        record = place + frame
        own = self.integer(record + fmt.PHYSICAL_OFFSET_AT, 8) == record
        entry = bool(frame) and self.integer(place + dle.ENTRY_POS_AT, 8) == place
        return own or entry or self.i32(record + fmt.MAGIC_AT) in _MAGIC_CODES

    def _is_unused(self, place: int) -> bool:
        """Whether the segment holds nothing but zeros from `place` on."""
        while place < self.file.end:
            data = self._read(place, WINDOW_BYTES)
            if not len(data) or data.any():
                return False
            place += len(data)
        return True
