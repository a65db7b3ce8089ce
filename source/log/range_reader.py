"""Walk over the records of a range of one segment, window by window, in bounded memory; or read a single record.

There is one walk, and two ways to end it. `scan_windows` looks for where the good records end: that is no error.
`read_windows` reads a range that was planned, both of whose ends are where a record or the blank begins: whatever ends
it before is an error.

Damage in the middle of the log is passed over where that is asked for, the same bytes whatever the range: where the log
goes on is a function of the segment (``segment_scan``, ``broker_goes_on_at``), and ranges are never cut inside a
damaged one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from reput.source.errors import CorruptRecordError
from reput.source.log.broker_check import BrokerRules, check_open
from reput.source.log.mapped_file_queue import MappedFile, open_segment, read_head
from reput.source.log.segment_scan import SOUND_VERDICTS, WINDOW_BYTES, OpenSegment, Window, scan_record, scan_segment
from reput.source.record import message_format as fmt
from reput.source.record.damage import BROKER, QUARANTINE, STOP, DamagedRange
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_properties import DEFAULT_MESSAGE_DELAY_LEVEL, parse_delay_levels


@dataclass(frozen=True)
class DecodeOptions:
    """How records are read.

    Attributes
    ----------
    check_crc
        Whether every body is compared with its checksum.
    delays_ms
        Delay levels in milliseconds, level 1 first.
    on_damage
        What is done where no good record stands in the middle of the log; see ``damage``.
    """

    check_crc: bool = False
    delays_ms: tuple[int, ...] = parse_delay_levels(DEFAULT_MESSAGE_DELAY_LEVEL)
    on_damage: str = STOP


def scan_windows(
    file: MappedFile, start: int, end: int, options: DecodeOptions, window_bytes: int = WINDOW_BYTES
) -> Iterator[Window]:
    """Follow the records of `[start, end)` of one segment to the first that is not a good one.

    `start` is where a record begins. The verdict of the last window says what ended the walk; for a record that crosses
    `end` that is UNDERFLOW. Unless `options.on_damage` is ``stop``, a damaged range is a window of its own and the walk
    goes on behind it; one that crosses `end` is not entered.

    The parts of a window are valid until the next one is asked for. Memory: one window, and never less than the largest
    record.

    Raises
    ------
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    # A broker reads nothing behind a record whose properties it cannot parse; to anybody else its lengths are enough.
    decodes = options.on_damage == BROKER
    return _walk(file, start, end, options, window_bytes, decodes=decodes, passes_over=True, is_planned=False)


def read_windows(
    file: MappedFile,
    start: int,
    end: int,
    options: DecodeOptions,
    window_bytes: int = WINDOW_BYTES,
    *,
    decodes: bool = True,
    passes_over: bool = True,
) -> Iterator[Window]:
    """Read the records of `[start, end)` of one segment; both are where a record or the blank begins.

    The windows follow each other without a gap, and the last one ends where the range ends, behind the blank if the
    range ends with the file. Damage is passed over as with `scan_windows`; unless the read `passes_over` it, damage is
    an error, and `options.on_damage` says only what counts as damage.

    The columns of a window are valid until the next one is asked for; there are none unless the read `decodes`. Memory:
    one window and its columns.

    Raises
    ------
    CorruptRecordError
        A record of the range fails its checks, and that is not to be passed over, or `options.on_damage` is ``stop``.
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    return _walk(file, start, end, options, window_bytes, decodes=decodes, passes_over=passes_over, is_planned=True)


def read_record(file: MappedFile, start: int, end: int, options: DecodeOptions, *, decodes: bool = False) -> Window:
    """The good record at `start` alone, or a window without records, whose verdict says what stands there.

    `start` is where its frame begins; a record that crosses `end` is UNDERFLOW. Damage is never passed over.

    Raises
    ------
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    with open_segment(file, f"[{start}, {end}) was still to be read") as descriptor:
        found = scan_record(descriptor, file, start, end, check_crc=options.check_crc)
    return found.decode(np.array(options.delays_ms, np.int64)) if decodes or options.on_damage == BROKER else found


def _walk(
    file: MappedFile,
    start: int,
    end: int,
    options: DecodeOptions,
    window_bytes: int,
    *,
    decodes: bool,
    passes_over: bool,
    is_planned: bool,
) -> Iterator[Window]:
    """The walk of `scan_windows`, and of `read_windows` where the range `is_planned`."""
    delays = np.array(options.delays_ms, np.int64)
    with open_segment(file, f"[{start}, {end}) was still to be read") as descriptor:
        # The system takes this for the whole file: of a log that is not in memory it reads twice as far ahead.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while start < end:
            scan = scan_segment(descriptor, file, start, end, check_crc=options.check_crc, window_bytes=window_bytes)
            for window in (found.decode(delays) if decodes else found for found in scan):
                start, verdict = window.end, window.verdict
                if start == end or (len(window) and verdict in (Verdict.UNDERFLOW, Verdict.MESSAGE)):
                    yield window
                    continue
                damaged = None
                if passes_over or verdict is Verdict.BLANK:
                    damaged = find_damage(descriptor, file, start, verdict, options.on_damage)
                is_end = damaged is None and verdict is Verdict.BLANK and end == file.end
                if is_planned and not is_end and (damaged is None or not passes_over):
                    raise corrupt_record(file, start, verdict)
                if len(window) or not is_planned:
                    yield window
                if not is_planned and (damaged is None or damaged.end > end):
                    return
                # A range that was planned under another policy may end inside.
                start = end if damaged is None else min(damaged.end, end)
                yield window.gap(start, damaged and replace(damaged, end=start))
                break


def find_damage(descriptor: int, file: MappedFile, start: int, verdict: Verdict, on_damage: str) -> DamagedRange | None:
    """The damaged range that begins at `start`, where a scan ended with `verdict`, by `on_damage`.

    None when the walk ends there: at a blank, at a record that crosses the end of what is read, and with ``stop``
    anywhere. Where nothing in the segment shows where the log goes on, the range is the rest of the segment.
    """
    if on_damage == STOP or verdict is Verdict.MESSAGE:
        return None
    segment = OpenSegment(descriptor, file)
    if verdict is Verdict.UNDERFLOW:  # the whole segment decides: a wrong size leads out of a range, too
        verdict = segment.judge(start)
        if verdict is Verdict.MESSAGE or verdict in SOUND_VERDICTS:
            return None
    if verdict is Verdict.BLANK:
        # No reader compares a blank's size, but a blank at a wrong offset has a wrong one.
        if on_damage == BROKER or segment.is_blank(start):
            return None
        end = segment.end_of_damage(start, verdict)
        return None if end is None else segment.damaged_range(start, end, Verdict.BAD_BLANK.name)
    if on_damage == QUARANTINE:
        end = segment.end_of_damage(start, verdict)
    else:
        end = broker_goes_on_at(segment, start, verdict)
    return segment.damaged_range(start, file.end if end is None else end, verdict.name)


def corrupt_record(file: MappedFile, offset: int, verdict: Verdict) -> CorruptRecordError:
    """The error for an offset in the middle of the log where no good record stands."""
    return CorruptRecordError(
        no_good_record(file, offset, verdict),
        advice="set onDamage=quarantine to leave out and record what is damaged, onDamage=broker to leave out what a "
        "broker's replay leaves out, or startingOffset to a later record to go on behind it",
        file=file.path,
        physical_offset=offset,
    )


def no_good_record(file: MappedFile, offset: int, verdict: Verdict) -> str:
    """The text for an offset on which the verdict is `verdict`: the file, the byte of it, and the bytes there."""
    at = offset - file.file_from_offset
    found = read_head(file, 16, at).hex(" ", 4)
    return (
        f"{file.path}: no good record at offset {offset} (byte {at} of the file): {verdict.name}, the bytes there are "
        f"{found}"
    )


# ----------------------------------------------------------------------------------------------------------------------
# Where a broker's replay goes on behind a record that it does not dispatch, in a segment that is complete.
#
# ``DefaultMessageStore.ReputMessageService#doReput`` with ``CommitLog#checkMessageAndReturnSize`` of 4.9.3, of a
# master; ``DLedgerCommitLog#checkMessageAndReturnSize`` under DLedger. Two things are not copied. The broker dispatches
# a record that names another physical offset, or that has no topic: here it is left out, and the log goes on behind it,
# as it does there. And after a record whose sizes differ, the broker's own position is wrong by the difference, and by
# the record's size for what it skips later in the same read: it then loses records of the next segments, too, and how
# many depends on how much was readable at that instant.

# 4.9.3, and 5.5.0 for the records that only 5.x writes; what a delay level means moves no end.
_V4 = BrokerRules(is_v5=False, check_crc=False, verifies_property_crc=False, delays_ms=())
_V5 = BrokerRules(is_v5=True, check_crc=False, verifies_property_crc=False, delays_ms=())


def broker_goes_on_at(segment: OpenSegment, offset: int, verdict: Verdict) -> int:
    """The offset where the replay parses its next record, or the segment's end, to which it passes what it refuses."""
    file, record = segment.file, offset + segment.file.frame
    if verdict is Verdict.BAD_INNER_BATCH:  # 5.x refuses it, whichever its magic code
        return file.end
    is_v2 = segment.i32(record + fmt.MAGIC_AT) == fmt.MESSAGE_MAGIC_CODE_V2
    check = check_open(segment.descriptor, file, record, file.end, _V5 if is_v2 else _V4)
    # A size of 0 that does not fit counts as what cannot be parsed.
    return check.position if check.size > 0 else file.end
