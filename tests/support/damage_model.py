"""Where a log continues after damage, slowly and obviously: the rule of ``resync`` over a segment in memory.

Uses the reference decoder alone, an offset at a time.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from support.record_writer import ENTRY_HEADER_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2

from reput.source.record.dledger_entry import decode_entry
from reput.source.record.message_decoder import Verdict, decode_message

#: The walk over offsets skips these: the parts of a record that are numbers in its properties.
_NUMBERS = (Verdict.BAD_DELAY, Verdict.BAD_INNER_BATCH)
_SOUND = (*_NUMBERS, Verdict.BAD_TOPIC, Verdict.BAD_CRC, Verdict.BAD_PROPERTY_CRC)
DELAYS_MS = (1000,)


@dataclass(frozen=True)
class Part:
    """`[start, end)` of the log: one record (no cause), or one damaged range."""

    start: int
    end: int
    cause: str | None


@dataclass(frozen=True)
class Segment:
    """One segment's bytes and the offset of its first."""

    data: bytes
    begin: int
    dledger: bool

    @property
    def end(self) -> int:
        return self.begin + len(self.data)

    @property
    def frame(self) -> int:
        return ENTRY_HEADER_BYTES if self.dledger else 0

    def verdict(self, offset: int, *, check_crc: bool) -> Verdict:
        decode = decode_entry if self.dledger else decode_message
        at = offset - self.begin
        return decode(memoryview(self.data), at, offset, self.end, check_crc=check_crc, delays_ms=DELAYS_MS)[0]

    def size(self, offset: int) -> int:
        return self.frame + self.i32(offset + self.frame)

    def good(self, offset: int) -> bool:
        return self.begin <= offset < self.end and self.verdict(offset, check_crc=True) in (Verdict.MESSAGE, *_NUMBERS)

    def blank(self, offset: int) -> bool:
        rest = self.end - offset
        magic = MAGIC_BLANK - 2**32
        blank = struct.pack(">ii", *((-1, rest) if self.dledger else (rest, magic)))
        return rest >= 8 and self.data[offset - self.begin :].startswith(blank)

    def i32(self, offset: int) -> int:
        return self._integer(offset, 4)

    def _integer(self, offset: int, size: int) -> int:
        at = offset - self.begin
        return int.from_bytes(self.data[at : at + size].ljust(size, b"\0"), "big", signed=True)

    def behind(self, offset: int, verdict: Verdict) -> int | None:
        """Return where the log continues after the damage at `offset`."""
        if verdict in _SOUND:
            return offset + self.size(offset)
        claims = [self.size(offset), self.frame + self.sum_of_lengths(offset + self.frame)]
        if self.dledger:
            claims += [self.i32(offset + 4), self.frame + self.i32(offset + 44)]
        room = self.end - 8 - offset
        proven = [offset + size for size in claims if self.frame + 91 <= size <= room]
        proven = [end for end in proven if self.good(end) or self.blank(end)]
        if proven:
            nearest = min(proven)
            rows = (at for at in range(offset + 1, nearest) if self.good(at) and self.leads_to(at, nearest))
            return next(rows, nearest)
        return next((at for at in range(offset + 1, self.end) if self.good(at) and self.goes_on(at)), None)

    def leads_to(self, offset: int, end: int) -> bool:
        while offset < end and self.good(offset):
            offset += self.size(offset)
        return offset == end

    def goes_on(self, offset: int) -> bool:
        after = offset + self.size(offset)
        record = after + self.frame
        has_offset = self._integer(record + 28, 8) == record or (self.dledger and self._integer(after + 24, 8) == after)
        has_magic = self.i32(record + 4) % 2**32 in (MAGIC_V1, MAGIC_V2)
        is_known = after + self.frame + 91 <= self.end and (has_offset or has_magic)
        return self.good(after) or self.blank(after) or is_known or not self.data[after - self.begin :].strip(b"\0")

    def sum_of_lengths(self, record: int) -> int:
        sys_flag = self.i32(record + 36)
        hosts = 12 * bool(sys_flag & 0x10) + 12 * bool(sys_flag & 0x20)
        width = 2 if self.i32(record + 4) % 2**32 == MAGIC_V2 else 1
        body = max(0, self.i32(record + 84 + hosts))
        topic_at = record + 88 + hosts + body
        topic = self._integer(topic_at, width) if topic_at < self.end else -1
        if topic < 0 or topic_at + width + topic >= self.end:
            return -1
        properties = max(0, self._integer(topic_at + width + topic, 2))
        return 88 + hosts + body + width + topic + 2 + properties

    def parts(self, offset: int, *, check_crc: bool) -> list[Part]:
        """Return the parts of a complete segment from `offset` on."""
        found: list[Part] = []
        while offset < self.end:
            verdict = self.verdict(offset, check_crc=check_crc)
            if verdict is Verdict.MESSAGE:
                found.append(Part(offset, offset + self.size(offset), None))
            elif verdict is Verdict.BLANK and (self.blank(offset) or self.behind(offset, verdict) is None):
                break
            else:
                cause = Verdict.BAD_BLANK if verdict is Verdict.BLANK else verdict
                found.append(Part(offset, self.behind(offset, verdict) or self.end, cause.name))
            offset = found[-1].end
        return found

    def live_end(self, offset: int, *, check_crc: bool) -> int:
        """Return the end of the last segment from `offset` on: the first offset without a good record after it."""
        while offset < self.end and not self.blank(offset):
            if self.verdict(offset, check_crc=check_crc) in (Verdict.MESSAGE, *_NUMBERS):
                offset += self.size(offset)
                continue
            further = self.next_good(offset)
            if further is None or (not self.blank(further) and self.store_time(further) < self.time_before(offset)):
                return offset
            offset = further
        return offset

    def store_time(self, offset: int) -> int:
        record = offset + self.frame
        return self._integer(record + 56 + 12 * bool(self.i32(record + 36) & 0x10), 8)

    def time_before(self, offset: int) -> int:
        """When the last record before `offset` was stored, whatever its checksums say."""
        time = -(2**63)
        for part in self.parts(self.begin, check_crc=False):
            if part.end <= offset and part.cause in (None, *(verdict.name for verdict in _NUMBERS)):
                time = self.store_time(part.start)
        return time

    def next_good(self, offset: int) -> int | None:
        """Return the next offset after `offset`, by the rule, with a good record or the blank."""
        at: int | None = offset
        while at is not None and not self.good(at) and not self.blank(at):
            at = self.behind(at, self.verdict(at, check_crc=True)) if at < self.end else None
        return at
