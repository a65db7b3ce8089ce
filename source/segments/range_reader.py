"""Read a range of one segment, window by window, in bounded memory: scan it, or decode it to columns.

Damage in the middle of the log is passed over where that is asked for, the same bytes whatever the range: where the log
goes on is a function of the segment (``resync``, ``broker_skip``), and ranges are never cut inside a damaged one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from reput.source.arrays import Int64s
from reput.source.errors import CorruptRecordError
from reput.source.kernels.batch_decoder import RecordColumns, decode_columns
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_properties import DEFAULT_MESSAGE_DELAY_LEVEL, parse_delay_levels
from reput.source.segments.broker_skip import broker_goes_on_at
from reput.source.segments.damage import BROKER, QUARANTINE, STOP, DamagedRange
from reput.source.segments.mapped_file_queue import MappedFile, open_segment
from reput.source.segments.resync import SOUND_VERDICTS, OpenSegment
from reput.source.segments.segment_scan import WINDOW_BYTES, Scan, scan_segment

# Whether a record's numbers are good does not depend on the delays themselves.
_NO_DELAYS = np.zeros(1, np.int64)


@dataclass(frozen=True)
class DecodeOptions:
    """How records are decoded: `check_crc` of every body; delays in milliseconds, level 1 first; see ``damage``."""

    check_crc: bool = False
    delays_ms: tuple[int, ...] = parse_delay_levels(DEFAULT_MESSAGE_DELAY_LEVEL)
    on_damage: str = STOP


@dataclass(frozen=True)
class Window:
    """Consecutive records of a range: the columns of `[start, end)`, places in the log.

    The windows of a range follow each other without a gap, and the last one ends where the range ends, behind the
    blank if the range ends with the file. `damaged` says that there is no good record in the window, and why.
    """

    start: int
    end: int
    columns: RecordColumns
    damaged: DamagedRange | None = None


def scan_windows(
    file: MappedFile,
    start: int,
    end: int,
    *,
    check_crc: bool,
    on_damage: str,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[Scan]:
    """Follow the records of `[start, end)` of one segment to the first that is not a good one.

    `start` is where a record begins; one that crosses `end` ends the scan as UNDERFLOW. Memory: one window, and never
    less than the largest record. Unless `on_damage` is ``stop``, a damaged range is a scan of its own and the
    walk goes on behind it; one that crosses `end` is not entered.

    Raises
    ------
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    with _opened(file, start, end) as descriptor:
        while start < end:
            last = None
            for scan in scan_segment(descriptor, file, start, end, check_crc=check_crc, window_bytes=window_bytes):
                last = _as_a_broker_reads(scan) if on_damage == BROKER else scan
                yield last
                if last is not scan:
                    break
            assert last is not None
            damaged = find_damage(descriptor, file, last.stop, last.verdict, on_damage) if last.stop < end else None
            if damaged is None or damaged.end > end:
                return
            yield Scan(last.data, damaged.start, last.parts[:0], damaged.end, last.verdict, file.frame)
            start = damaged.end


def _as_a_broker_reads(scan: Scan) -> Scan:
    """The scan, cut before a record whose properties a broker cannot parse: behind that it reads nothing more."""
    columns, bad = decode_columns(scan.data, scan.start, scan.parts, _NO_DELAYS)
    if bad is Verdict.MESSAGE:
        return scan
    return replace(scan, parts=scan.parts[: len(columns)], stop=scan.place_of(len(columns)), verdict=bad)


@contextmanager
def _opened(file: MappedFile, start: int, end: int) -> Iterator[int]:
    with open_segment(file, f"[{start}, {end}) was still to be read") as descriptor:
        # Of a log that is not in memory the system reads twice as far ahead: it takes this for the whole file.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        yield descriptor


def find_damage(descriptor: int, file: MappedFile, place: int, verdict: Verdict, on_damage: str) -> DamagedRange | None:
    """The damaged range that begins at `place`, where a scan ended with `verdict`, by `on_damage`.

    None when the walk ends there: at a blank, at a record that crosses the end of what is read, at any place with
    ``stop``. Where nothing in the segment shows where the log goes on, the range is the rest of the segment.
    """
    if on_damage == STOP or verdict is Verdict.MESSAGE:
        return None
    segment = OpenSegment(descriptor, file)
    if verdict is Verdict.UNDERFLOW:  # by what the whole segment says: a wrong size leads out of a range, too
        verdict = segment.judge(place)
        if verdict is Verdict.MESSAGE or verdict in SOUND_VERDICTS:
            return None
    if verdict is Verdict.BLANK:
        # No reader compares a blank's size, but a blank in the wrong place has a wrong one.
        if on_damage == BROKER or segment.is_blank(place):
            return None
        end = segment.end_of_damage(place, verdict)
        return None if end is None else segment.damaged_range(place, end, Verdict.BAD_BLANK.name)
    if on_damage == QUARANTINE:
        end = segment.end_of_damage(place, verdict)
    else:
        end = broker_goes_on_at(segment, place, verdict)
    return segment.damaged_range(place, file.end if end is None else end, verdict.name)


def read_scans(
    file: MappedFile, start: int, end: int, options: DecodeOptions, window_bytes: int = WINDOW_BYTES
) -> Iterator[Scan]:
    """The records of `[start, end)` of one segment, not decoded; both are places where a record or the blank begins.

    The scans follow each other without a gap; the last ends behind the blank if the range ends with the file. Memory:
    one window. Damage ends it, whatever `options.on_damage` says; what that counts as damage does.

    Raises
    ------
    CorruptRecordError
        A record of the range fails its checks.
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    with _opened(file, start, end) as descriptor:
        for scan in scan_segment(descriptor, file, start, end, check_crc=options.check_crc, window_bytes=window_bytes):
            if not _stops_short(scan, scan.stop, scan.verdict, end):
                yield scan
                continue
            if not _ends_segment(descriptor, file, scan.stop, scan.verdict, end, options.on_damage):
                raise corrupt_record(file, scan.stop, scan.verdict)
            yield replace(scan, stop=end)


def _stops_short(scan: Scan, stop: int, verdict: Verdict, end: int) -> bool:
    """Whether the walk to `end` is over at `stop` for what stands there, and not because a window ended."""
    return stop < end and (verdict not in (Verdict.UNDERFLOW, Verdict.MESSAGE) or not len(scan))


def _ends_segment(descriptor: int, file: MappedFile, place: int, verdict: Verdict, end: int, on_damage: str) -> bool:
    """Whether the range rightly ends behind the blank at `place`: by `on_damage` that may be damage, too."""
    if verdict is not Verdict.BLANK or end != file.end:
        return False
    return find_damage(descriptor, file, place, verdict, on_damage) is None


def read_windows(
    file: MappedFile,
    start: int,
    end: int,
    options: DecodeOptions,
    window_bytes: int = WINDOW_BYTES,
    *,
    passes_over: bool = True,
) -> Iterator[Window]:
    """Decode the records of `[start, end)` of one segment; both are places where a record or the blank begins.

    The columns of a window are valid until the next one is asked for. Memory: one window and its columns. Unless it
    `passes_over` damage, that ends it, as with `read_scans`.

    Raises
    ------
    CorruptRecordError
        A record of the range fails its checks, and that is not to be passed over, or `options.on_damage` is ``stop``.
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    on_damage = options.on_damage if passes_over else STOP
    delays = np.array(options.delays_ms, np.int64)
    with _opened(file, start, end) as descriptor:
        while start < end:
            for window, verdict in _decoded(descriptor, file, start, end, options.check_crc, delays, window_bytes):
                if verdict is not None:
                    damaged = find_damage(descriptor, file, window.end, verdict, on_damage)
                    at_end = descriptor, file, window.end, verdict, end, options.on_damage
                    if damaged is None and not _ends_segment(*at_end):
                        raise corrupt_record(file, window.end, verdict)
                if window.start < window.end:
                    yield window
                start = window.end
                if verdict is not None:
                    # A range that was planned under another policy may end inside.
                    stop = end if damaged is None else min(damaged.end, end)
                    no_columns, _ = decode_columns(window.columns.data, start, window.columns.parts[:0], delays)
                    yield Window(start, stop, no_columns, damaged and replace(damaged, end=stop))
                    start = stop
                    break


def _decoded(
    descriptor: int, file: MappedFile, start: int, end: int, check_crc: bool, delays: Int64s, window_bytes: int
) -> Iterator[tuple[Window, Verdict | None]]:
    """Windows of good records from `start` on; the last has the verdict on its end, if that is before `end`."""
    for scan in scan_segment(descriptor, file, start, end, check_crc=check_crc, window_bytes=window_bytes):
        columns, bad = decode_columns(scan.data, scan.start, scan.parts, delays)
        stop, verdict = scan.stop, scan.verdict
        if bad is not Verdict.MESSAGE:
            stop, verdict = scan.place_of(len(columns)), bad
        if _stops_short(scan, stop, verdict, end):
            yield Window(scan.start, stop, columns), verdict
            return
        yield Window(scan.start, stop, columns), None


def corrupt_record(file: MappedFile, offset: int, verdict: Verdict) -> CorruptRecordError:
    """The error for a place in the middle of the log that is not a good record."""
    at = offset - file.file_from_offset
    with open_segment(file) as descriptor:
        found = os.pread(descriptor, 16, at)
    return CorruptRecordError(
        f"{file.path}: no good record at offset {offset} (byte {at} of the file): {verdict.name}, the bytes there are "
        f"{found.hex(' ', 4)}",
        advice="set onDamage=quarantine to leave out and record what is damaged, onDamage=broker to leave out what a "
        "broker's replay leaves out, or startingOffset to a later record to go on behind it",
        file=file.path,
        physical_offset=offset,
    )
