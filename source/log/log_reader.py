"""One commitlog as the data source and the pipeline see it: its begin, its end, its identity, a message at an offset.

A log is still the same one if it has the last record that a reader had. After an unclean stop a broker sets its write
position back and writes other records over those that a reader already had (``MappedFileQueue#truncateDirtyFiles``).
It clears no byte, so after the log's new end an old record may still be complete at its offset. A record therefore
counts only when its own bytes are unchanged and the records before it lead to it. The first test is one small read, and
is enough as soon as the broker has written that far. The second one reads the segment up to the record, and is made now
and then (``LastRecordWatch``).
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reput.source.errors import CommitLogRewoundError, DataLossError, ReputError, TransientError
from reput.source.kernels import record_kernels as rk
from reput.source.log import range_reader
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue, SegmentListing, open_segment, read_head
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import Boundaries, DecodeOptions, no_good_record, scan_windows, store_timestamp_at
from reput.source.log.reput_end_offset import ReputEnd, ReputEndFinder, begins_with_record
from reput.source.log.segment_scan import read_record_bytes
from reput.source.options import EARLIEST, LATEST, SourceOptions
from reput.source.record.damage import STOP
from reput.source.record.dledger_entry import decode_entry
from reput.source.record.message_decoder import (
    FINGERPRINTED_BYTES,
    Message,
    RecordFingerprint,
    Verdict,
    decode_message,
    fingerprint_of,
)
from reput.source.record.message_properties import DEFAULT_MESSAGE_DELAY_LEVEL, parse_delay_levels

_log = logging.getLogger(__name__)
# Verdicts that are normal at the end of a log that is being written; any other one gets a warning.
_QUIET_VERDICTS = (Verdict.EMPTY, Verdict.BLANK, Verdict.UNDERFLOW, Verdict.MESSAGE)

# An end that is followed by zeros stays the end while its first bytes are zeros. Once a second all segments are looked
# at.
_HEAD_BYTES = 8
_FULL_LOOK_EVERY_S = 1.0
_LOOK_EVERY_S = 0.02
# These looks are most of the cost of an idle tail. After seconds without records, a tenth of a second more is little.
_IDLE_AFTER_S = 5.0
_LOOK_SELDOM_S = 0.1
# Where a guess is enough, this many zeros count as the end of the log.
_LOOK_BYTES = 4096
_WAY_OUT = (
    "'reput recover' with the same --store and --output cuts queues and index back to the last record that still "
    "agrees; a stream of your own needs a new checkpoint"
)


class LogReader:
    """Reads one commitlog by its options; each call sees the log as it is at that time. Not thread-safe."""

    def __init__(self, options: SourceOptions, *, meanwhile: Callable[[], object] = lambda: None) -> None:
        """`meanwhile` is called once, in the first wait of `settled_end` for the last record."""
        self.options = options
        self._listing = SegmentListing(
            options.path,
            options.mapped_file_size,
            dledger=options.enable_dledger_commit_log,
        )
        self._boundaries = Boundaries()
        self._finder = ReputEndFinder(
            check_crc=options.check_crc != "none",
            tail_guard_ms=options.tail_guard_ms,
            on_boundary=self._boundaries.note,
            on_damage=options.on_damage,
            over_holes=not options.fail_on_data_loss,
            meanwhile=meanwhile,
        )
        self._watch = LastRecordWatch(options.on_damage)
        # The initial offset, once it has been found in the log.
        self._begin: int | None = None
        self._began_at: int | None = None
        # The last end, if zeros followed it; the segments at that time, and the time of the last look at the whole log.
        self._empty_end: tuple[int, MappedFileQueue, float] | None = None
        # The end of the last wait, and when waiting there began.
        self._waited_at = (-1, 0.0)
        self._found: tuple[ReputEnd, float] | None = None
        self.last_end: int | None = None
        #: The verdict on the last end, if it is one that a growing log does not have there.
        self.bad_end: Verdict | None = None
        self._warned_at = -1
        #: Whether a bad record at the end gets a warning. Callers that look often meet records that are being written.
        self.warns = True

    def beginning_at(self, offset: int) -> LogReader:
        """A reader of the same log, for another thread, that begins at `offset`, an earlier `initial_offset`.

        It does not search for a time or for the log's end again. It does not check a number again either, because the
        record there may have expired meanwhile.
        """
        reader = LogReader(self.options)
        reader._began_at = offset
        return reader

    @property
    def decode_options(self) -> DecodeOptions:
        """How tasks decode this log's records."""
        return DecodeOptions(self.options.check_crc == "all", self.options.delays_ms, self.options.on_damage)

    def queue(self) -> MappedFileQueue:
        """The segments as they are now; raises the errors of ``SegmentListing.load``."""
        return self._listing.load()

    def initial_offset(self) -> int:
        """The offset where the options say to begin, within the segments that the log still has.

        A time, or the log's end, is searched for once: later calls return the same offset.

        Raises
        ------
        OptionError
            No record begins at the given number.
        DataLossError
            The given number has expired, and `failOnDataLoss` is on.
        """
        queue = self.queue()
        if self._began_at is not None:
            return max(self._began_at, queue.min_offset)
        wanted, timestamp = self.options.starting_offset, self.options.starting_timestamp
        if timestamp is not None or wanted == LATEST:
            if self._begin is None:
                end = self.settled_end(queue.min_offset)
                self._begin = end
                if timestamp is not None:
                    self._begin = range_reader.find_timestamp(queue, end, timestamp, self.options.on_damage)
            return max(self._begin, queue.min_offset)
        if wanted == EARLIEST:
            return queue.min_offset
        assert isinstance(wanted, int)
        if wanted < queue.min_offset:
            gone = f"startingOffset={wanted}, and the log begins at {queue.min_offset}: older records have expired"
            if self.options.fail_on_data_loss:
                advice = "set failOnDataLoss=false to begin at the log's beginning"
                raise DataLossError(gone, advice=advice, physical_offset=wanted)
            _log.warning("%s; beginning at the log's beginning", gone)
            return queue.min_offset
        range_reader.check_begins_record(queue, wanted, self.options.on_damage)
        return wanted

    def end(self, start: int) -> int:
        """The end of complete records at or after `start`, where a record begins.

        With `failOnDataLoss=false` it is at most where the first missing segment begins, if later segments exist.
        """
        queue = self.queue()
        begin = max(start, queue.min_offset)
        if self._is_still_empty(queue, begin):
            return begin
        now = time.monotonic()
        self._check_no_hole(queue, start)
        found = self._finder.find(queue, begin)
        is_empty = (found.offset, found.verdict, found.held_back) == (begin, Verdict.EMPTY, 0)
        self._empty_end = (begin, queue, now) if is_empty else None
        if self._found is None or self._found[0] != found:
            self._found = found, now
        return self._note_end(found)

    def wait_at(self, end: int, seconds: float) -> None:
        """Wait for about `seconds` at most until bytes are written at `end`, where the log was found to end.

        New bytes are noticed within a fiftieth of a second, or a tenth if none have come for seconds. If bytes that are
        not a record have been at `end` for a while, this always waits for `seconds`.
        """
        now = time.monotonic()
        deadline = now + seconds
        if self._waited_at[0] != end:
            self._waited_at = end, now
        pause = _LOOK_EVERY_S if now - self._waited_at[1] < _IDLE_AFTER_S else _LOOK_SELDOM_S
        if self._empty_end is None and self._found is not None and now - self._found[1] >= _FULL_LOOK_EVERY_S:
            time.sleep(seconds)
        while time.monotonic() < deadline and self._is_still_empty(self.queue(), end):
            time.sleep(pause)

    def _is_still_empty(self, queue: MappedFileQueue, end: int) -> bool:
        """Whether the last look found the log's end at `end` followed by zeros, and the bytes there are still zeros."""
        if self._empty_end is None or self._empty_end[0] != end or self._empty_end[1] is not queue:
            return False
        if time.monotonic() - self._empty_end[2] >= _FULL_LOOK_EVERY_S:
            return False
        file = queue.find(end)
        return file is None or not any(read_head(file, _HEAD_BYTES, end - file.file_from_offset))

    def settled_end(self, start: int) -> int:
        """The end as it is now, after a wait for the last record.

        With `failOnDataLoss=false` it is after all missing segments.
        """
        while True:
            queue = self.queue()
            self._check_no_hole(queue, start)
            begin = start if self.options.fail_on_data_loss else max(start, queue.last_row_begin)
            found = self._finder.settle(self.queue, begin)
            # If segments went during the search, `found` is where they began, and not the log's end.
            if self.options.fail_on_data_loss or self.queue().last_row_begin <= begin:
                return self._note_end(found)

    def align_down(self, start: int, offset: int) -> int:
        """The last offset up to `offset` where a record begins, on a walk from `start` or a segment's beginning."""
        file = self.queue().find(offset)
        if file is None:
            return offset
        begin = max(start, file.file_from_offset)
        return range_reader.align_down(file, begin, offset, self.options.on_damage, self._boundaries)

    def limit(self, start: int, end: int, bytes_max: int | None, messages_max: int | None) -> int:
        """The last boundary up to `end` within `bytes_max` and `messages_max` of `start`; always after one record."""
        on_damage = self.options.on_damage
        return range_reader.limit(self.queue(), start, end, bytes_max, messages_max, on_damage, self._boundaries)

    def split(self, start: int, end: int) -> Iterator[OffsetRange]:
        """Cut `[start, end)` at segments, and between records into ranges of about `maxBytesPerPartition` bytes.

        Raises
        ------
        DataLossError
            A segment of the range has gone, and `failOnDataLoss` is on.
        """
        return range_reader.split(
            self.queue(),
            start,
            end,
            self.options.max_bytes_per_partition,
            self.options.on_damage,
            self._boundaries,
            over_holes=not self.options.fail_on_data_loss,
        )

    def look_at(self, offset: int, size: int) -> tuple[str, int, bytes]:
        """The path of the segment that holds `offset`, the position in that file, and at most `size` bytes from there.

        Raises
        ------
        DataLossError
            The log no longer has such a segment.
        """
        file = self.queue().find(offset)
        if file is None:
            raise range_reader.no_file_with(offset)
        position = offset - file.file_from_offset
        return file.path, position, read_head(file, size, position)

    def message_at(self, offset: int, size: int) -> Message | None:
        """The message of `size` bytes that begins at `offset`; None if there is no such good record."""
        file = self.queue().find(offset)
        if file is None:
            return None
        found = read_message(file, offset, min(offset + size, file.end), self.decode_options)
        return found if isinstance(found, Message) and found.msg_size == size else None

    def next_available(self, offset: int) -> int:
        """`offset`, or the begin of the next segment if the one that held `offset` is gone."""
        return self.queue().next_available(offset)

    def reaches_beyond(self, offset: int) -> bool:
        """Whether the log has bytes at `offset` or after it, by two reads; a long row of zeros there counts as none.

        Raises the errors of ``SegmentListing.load`` and of ``read_head``.
        """
        queue = self.queue()
        further = queue.next_available(offset)
        file = queue.find(further)
        if file is None:
            return False
        after = queue.following(file)
        begun = after is not None and begins_with_record(after)
        return begun or any(read_head(file, _LOOK_BYTES, further - file.file_from_offset))

    def look_anew(self) -> None:
        """List the segments again at the next call."""
        self._listing.forget()

    def last_record_before(self, end: int) -> RecordFingerprint | None:
        """The last record before the boundary `end`; None when its segment has no record there."""
        record = last_record_before(self.queue(), end, self.options.on_damage, self._boundaries)
        if record is not None:
            self._watch.note_found(record)
        return record

    def look_ahead(self, start: int, bytes_max: int) -> None:
        """Follow the records of the next batch from `start`, so that planning it takes no time.

        Errors of reading the log are ignored here: planning the batch raises them.
        """
        if self.last_end is None or self.last_end <= start:
            return
        with suppress(ReputError, OSError):
            end = self.limit(start, self.last_end, bytes_max, None)
            deque(self.split(start, end), maxlen=0)
            last_record_before(self.queue(), end, self.options.on_damage, self._boundaries)

    def find_record(self, known: RecordFingerprint) -> RecordFingerprint | None:
        """The record at the offset of `known`, by its first bytes; `known` itself if it has expired.

        Raises
        ------
        TransientError
            The log has no segment at all.
        """
        queue = self.queue()
        self._check_not_empty(queue, known)
        return find_record(queue, known)

    def is_led_to(self, known: RecordFingerprint, *begins: int) -> bool:
        """Whether the records before `known` lead to it from its segment's begin, or from one of `begins`."""
        return is_led_to(self.queue(), known, begins, self.options.on_damage)

    def check_last_record(self, known: RecordFingerprint, begin: int, *, is_idle: bool) -> None:
        """Raise CommitLogRewoundError if the log no longer has `known`, the last record that was read.

        `begin` is where reading began. `is_idle` says that there is time to follow the records that lead to `known`.

        Raises
        ------
        TransientError
            The log has no segment at all.
        """
        queue = self.queue()
        self._check_not_empty(queue, known)
        if not self._watch.is_there(queue, known, [begin], is_idle=is_idle):
            found = find_record(queue, known)
            raise rewound(known, found if found != known else None)

    def _check_not_empty(self, queue: MappedFileQueue, known: RecordFingerprint) -> None:
        if not queue.files:
            where = ", ".join(map(str, self.options.path))
            end = known.offset + known.size
            raise TransientError(
                f"{where} holds no segment, and the log was read as far as offset {end}: its volume is not mounted, or "
                "its files were removed",
                advice="start the same command again when the log is back",
                physical_offset=end,
            )

    def identity(self, offset: int) -> dict[str, int]:
        """Values that tell this log from another: begin and first store time of the segment before `offset`.

        That is the segment with the byte before `offset`. Both are -1 if the log has no such byte.
        """
        file = self.queue().find(offset - 1) if offset > 0 else None
        first = range_reader.first_store_timestamp(file) if file is not None else None
        if file is None or first is None:
            return {"fileFromOffset": -1, "firstStoreTimestamp": -1}
        return {"fileFromOffset": file.file_from_offset, "firstStoreTimestamp": first}

    def check_identity(self, offset: int, known: dict[str, Any]) -> None:
        """Raise CommitLogRewoundError if `known`, an earlier `identity` of `offset`, is of another log."""
        now = self.identity(offset)
        if -1 in (now["fileFromOffset"], known["fileFromOffset"]):
            return
        if any(now[name] != known[name] for name in now):
            raise CommitLogRewoundError(
                f"the checkpoint is of another log: the segment before offset {offset} began at "
                f"{known['fileFromOffset']} with a record stored at {known['firstStoreTimestamp']}, and now it is "
                f"{now}",
                advice="give the store that the checkpoint was made for, or a new checkpoint and output",
                physical_offset=offset,
            )

    def _check_no_hole(self, queue: MappedFileQueue, start: int) -> None:
        if self.options.fail_on_data_loss:
            queue.check_no_hole(start)

    def _note_end(self, end: ReputEnd) -> int:
        """Remember the end, warn of bytes there that are not a record, and return its offset."""
        self.bad_end = end.verdict if end.verdict not in _QUIET_VERDICTS else None
        if self.warns and self.bad_end is not None and end.offset != self._warned_at:
            self._warned_at = end.offset
            _log.warning(
                "waiting at offset %d: the bytes there are not a record yet (%s); if the log continues after them, "
                "that record is damaged, and onDamage=quarantine passes over it",
                end.offset + end.held_back,
                end.verdict.name,
            )
        self.last_end = end.offset
        return end.offset


def rewound(
    known: RecordFingerprint, found: RecordFingerprint | None, reader: str | None = None
) -> CommitLogRewoundError:
    """The error for a record that was read, by `reader` if another process reports it, and is no longer the log's."""
    who = "" if reader is None else f"{reader}: "
    now = "no such record" if found is None else f"one of {found.size} bytes, stored at {found.store_timestamp}"
    return CommitLogRewoundError(
        f"{who}a record of {known.size} bytes at offset {known.offset}, stored at {known.store_timestamp}, was read, "
        f"and the log now has {now}: the broker cut the log and wrote on, or this is another store",
        advice=_WAY_OUT,
        physical_offset=known.offset,
    )


# Following a segment's records takes a while. So an idle log is followed seldom enough that this is a small part of the
# time, and more often after the file's time of change has changed. A file may change without it.
_IDLE_S = 1.0
_CHANGED_S, _CHANGED_FACTOR = 2.0, 20
_UNCHANGED_S, _UNCHANGED_FACTOR = 10.0, 200


def last_record_before(queue: MappedFileQueue, end: int, on_damage: str, known: Boundaries) -> RecordFingerprint | None:
    """The last record of the segment that holds the byte before `end`, where a record may begin.

    None if there is no such segment, or if it has no record before `end`.
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
    """The record whose first bytes are at `offset` of the log, inside `file`; None if the bytes are not a record's.

    Raises
    ------
    DataLossError
        The segment has gone.
    """
    head = read_head(file, FINGERPRINTED_BYTES, offset - file.file_from_offset)
    return fingerprint_of(head, offset)


class StoreTimes:
    """The store timestamps of single records of a log, which may grow; segments are listed again for later offsets."""

    def __init__(self, options: SourceOptions) -> None:
        self._log = LogReader(options)
        self._queue: MappedFileQueue | None = None

    def __call__(self, offset: int) -> int | None:
        """Return the store timestamp (ms) of the record at a physical offset; None if there is none to read."""
        try:
            if self._queue is None or offset >= self._queue.end_of_files:
                self._queue = self._log.queue()
            file = self._queue.find(offset)
            record = None if file is None else record_at(file, offset)
        except (ReputError, OSError):
            return None
        return None if record is None else record.store_timestamp


def find_record(queue: MappedFileQueue, known: RecordFingerprint) -> RecordFingerprint | None:
    """The record at the offset of `known`; `known` itself if its segment has expired or is missing.

    A segment counts as missing if later ones exist: a broker that cuts its log leaves none after the cut.
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

    Damage is passed over if `on_damage` says so, unless the record after it was stored before the last one in front
    of it: then the log was cut there, and the records after its new end are old ones.
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
    """The watched record, its segment's state when its records were last followed, and when to do so again."""

    record: RecordFingerprint
    stamp: tuple[int, int] | None
    is_followed: bool
    look_at: float
    look_anyhow_at: float


class LastRecordWatch:
    """Checks, cheaply and as often as it is called, whether the last record is still the log's."""

    def __init__(self, on_damage: str = STOP, clock: Callable[[], float] = time.monotonic) -> None:
        """`on_damage` as in `is_led_to`; `clock` is monotonic, in seconds."""
        self._on_damage = on_damage
        self._clock = clock
        self._watched: _Watched | None = None
        self._found: RecordFingerprint | None = None
        self._took = 0.0

    def note_found(self, record: RecordFingerprint) -> None:
        """Note a record that was just found by following the records that lead to it."""
        self._found = record

    def is_there(
        self, queue: MappedFileQueue, known: RecordFingerprint, begins: Iterable[int], *, is_idle: bool
    ) -> bool:
        """Whether the log has `known`. The records that lead to it are followed at the first call, and while `is_idle`.

        `begins` are the offsets where reading began: after a damaged record no other offset leads to `known`.
        """
        if find_record(queue, known) != known:
            return False
        now, stamp = self._clock(), _stamp(queue.find(known.offset))
        watched = self._watched
        if watched is None and known != self._found:  # another process may have read up to it, at any time
            self._watched = watched = _Watched(known, None, False, now, now)
        elif watched is None or watched.record != known:
            # The log continued after the previous record, so it has not been cut until now.
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


def read_message(file: MappedFile, offset: int, end: int, options: DecodeOptions) -> Message | Verdict:
    """The message at `offset` of the log, inside `file`, or the verdict on the bytes there.

    A record that crosses `end` is UNDERFLOW.

    Raises
    ------
    DataLossError
        The segment has gone, or is shorter than it was.
    StoreError, TransientError
        The segment cannot be read; see ``read_error``.
    """
    start = offset - file.frame
    if start < file.file_from_offset:  # inside the frame of the first record
        return Verdict.BAD_PHYSICAL_OFFSET
    decode = decode_entry if file.frame else decode_message
    with open_segment(file, offset=offset) as opened:
        data = read_record_bytes(opened, file, start, end)
    verdict, message = decode(data.data, 0, start, file.end, check_crc=options.check_crc, delays_ms=options.delays_ms)
    if message is not None:
        return message
    return Verdict.BAD_PHYSICAL_OFFSET if verdict is Verdict.UNDERFLOW and len(data) < end - start else verdict


@dataclass(frozen=True)
class Absence:
    """Why there is no message at an offset: a short `reason` to count by, and the complete `detail`."""

    offset: int
    reason: str
    detail: str


class MessageLookup:
    """Messages of one commitlog by physical offset, each judged as the replay judges it, body checksum included.

    Parameters
    ----------
    paths
        The commitlog's directories.
    mapped_file_size
        Bytes of a segment; None infers it.
    dledger
        Whether the log is DLedger's; offsets are the records', not their entries'.
    delays_ms
        Delay levels in milliseconds, level 1 first.

    Raises
    ------
    StoreError
        The directories hold no row of segments.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        mapped_file_size: int | None = None,
        dledger: bool = False,
        delays_ms: tuple[int, ...] = parse_delay_levels(DEFAULT_MESSAGE_DELAY_LEVEL),
    ) -> None:
        self._queue = MappedFileQueue.load(paths, mapped_file_size, dledger=dledger)
        self._options = DecodeOptions(check_crc=True, delays_ms=delays_ms)

    @property
    def min_offset(self) -> int:
        """The first physical offset that the log still has; 0 without segments."""
        return self._queue.min_offset

    def find(self, offset: int) -> Message | Absence:
        """The message that begins at `offset`, or why there is none.

        It is stricter than the broker, which returns any bytes at `offset` as a message
        (``DefaultMessageStore#lookMessageByOffset``): magic, lengths, the record's own physical offset and the body's
        checksum must be right, and under DLedger the header of its entry.

        Raises
        ------
        StoreError, TransientError
            The segment exists and cannot be read; see ``read_error``.
        """
        file = self._queue.find(offset)
        if file is None:
            return self._outside(offset)
        try:
            found = read_message(file, offset, file.end, self._options)
            if isinstance(found, Message):
                return found
            return Absence(offset, f"no good record ({found.name})", no_good_record(file, offset, found))
        except DataLossError as error:
            return Absence(offset, "expired", str(error))

    def _outside(self, offset: int) -> Absence:
        begin, end = self._queue.min_offset, self._queue.end_of_files
        detail = f"offset {offset} is outside the log, whose files hold [{begin}, {end})"
        if offset < 0 or offset >= end:
            return Absence(offset, "outside the log", detail)
        if offset < begin:
            return Absence(offset, "expired", f"{detail}: it expired")
        return Absence(offset, "in a missing segment", f"offset {offset} is in a segment that is missing from the log")
