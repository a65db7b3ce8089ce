"""What surrounds a queue's entries: the names and sizes of its files, its front, and what lies behind its end."""

from __future__ import annotations

import numpy as np

from reput.sinks.formats.consume_queue import PRE_BLANK, is_pre_blank
from reput.sinks.queue.consume_queue import KIND
from reput.sinks.queue.queue_reader import QueueReader, Units
from reput.sinks.verify.findings import Difference, Findings
from reput.sinks.verify.log_limits import LogLimits
from reput.sinks.verify.queue_entries import QueueTally
from reput.source.segments.mapped_file_name import is_file_name


def check_queue_files(
    units: QueueReader, tally: QueueTally, log: LogLimits, findings: Findings, made_early: int | None = None
) -> None:
    """Check all of a queue except for its entries `[tally.first, tally.end)`, which are proved already.

    Before them may be units that fill the front, then entries of records before `log.least` (``expired_entries``).
    Behind them may be only what a broker leaves: units of records at `log.limit` or later (``entries_behind_the_end``:
    a recovery cut the log, or the record came since the check began), and an empty next file
    (``next_file_made_early``). On both sides may be entries that lead to what the log lacks (``entries_not_judged``).
    """
    _check_names(units, tally, findings, made_early)
    first = tally.first
    end = _check_front(units, first, log, findings) if units.files else 0
    _check_tail(units, tally.end if first is not None else end, log, findings)


def _check_names(units: QueueReader, tally: QueueTally, findings: Findings, made_early: int | None) -> None:
    top = "/".join(units.directory.parts[-3:])
    for name in units.names:
        path = units.directory / name
        size = path.stat().st_size
        if not is_file_name(name):
            findings.differ(Difference("stray_file", "no file of a queue is called so", f"{top}/{name}"))
        elif int(name) % units.file_size:
            text = f"a queue's file does not begin at byte {int(name)}: {units.kind.setting} is {units.file_size}"
            findings.differ(Difference("file_name", text, f"{top}/{name}"))
        elif size != units.file_size:
            text = f"{size} bytes where {units.kind.setting} is {units.file_size}"
            findings.differ(
                Difference("file_size", text, f"{top}/{name}", size, expected=str(units.file_size), found=str(size))
            )
    wanted = set(range(units.files[0], units.files[-1] + 1, units.file_size)) if units.files else set()
    if tally.first is not None and tally.end > tally.first:
        begin = tally.first * units.unit_size
        wanted |= set(range(begin - begin % units.file_size, tally.end * units.unit_size, units.file_size))
    for file in sorted(wanted - set(units.files)):
        findings.differ(
            Difference(
                "file_missing", "the file is missing", f"{top}/{file:020d}", queue_offset=file // units.unit_size
            )
        )
    behind = [file for file in units.files if file >= tally.end * units.unit_size and file != made_early]
    if tally.first is not None and behind and next(units.filled(tally.end), None) is None:
        findings.note("next_file_made_early", len(behind))


def _check_front(units: QueueReader, first: int | None, log: LogLimits, findings: Findings) -> int:
    """Check the units before number `first` (None: as far as such units reach); returns where they end."""
    begin = number = units.files[0] // units.unit_size
    stop = first if first is not None else (units.files[-1] + units.file_size) // units.unit_size
    offset_before = -1
    for at, chunk in units.chunks(begin, stop):
        expired, blank = _is_expired(chunk, log), np.zeros(len(chunk), bool)
        lacking = log.lacks(chunk["physical_offset"].astype(np.int64)) & (chunk["msg_size"] > 0)
        if units.kind is KIND:
            blank = is_pre_blank(chunk)
        good = expired | lacking | blank
        number = at + len(chunk)
        if first is None and not good.all():
            number = stop = at + int(np.argmin(good))
            good, expired, lacking, blank = (each[: stop - at] for each in (good, expired, lacking, blank))
        for row in np.flatnonzero(~good).tolist():
            _differ(units, at + row, chunk[row : row + 1], "pre_blank", "no unit that fills the front", findings)
        rows = np.flatnonzero(expired | lacking)
        findings.note("expired_entries", int(np.count_nonzero(expired)))
        findings.note("entries_not_judged", int(np.count_nonzero(lacking)))
        if offset_before >= 0 or len(rows):
            begin_of_entries = at if offset_before >= 0 else at + int(rows[0])
            for row in np.flatnonzero(blank[begin_of_entries - at :]).tolist():
                number_there = begin_of_entries + row
                unit = chunk[number_there - at : number_there - at + 1]
                _differ(units, number_there, unit, "pre_blank", "a unit that fills the front, behind entries", findings)
        physical_offsets = np.concatenate([[offset_before], chunk["physical_offset"][rows].astype(np.int64)])
        for row in rows[np.diff(physical_offsets) <= 0].tolist():
            text = "the entry of a record that the log has no more, and that is not behind the one before"
            _differ(units, at + row, chunk[row : row + 1], "entry_order", text, findings)
        offset_before = int(physical_offsets[-1])
        if number >= stop:
            break
    return number


def _is_expired(chunk: Units, log: LogLimits) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which units may belong to records that the log no longer has."""
    physical_offsets, sizes = chunk["physical_offset"], chunk["msg_size"]
    expired: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        (physical_offsets >= 0) & (physical_offsets < log.least) & (sizes > 0) & (sizes <= log.size_max)
    )
    return expired


def _check_tail(units: QueueReader, end: int, log: LogLimits, findings: Findings) -> None:
    last = int(units.read(end - 1, 1)["physical_offset"][0]) if end and log.missing else -1
    for at, chunk in units.filled(end):
        unjudged = log.unjudged(chunk, last, log.limit) if at == end else 0
        if unjudged:
            findings.note("entries_not_judged", unjudged)
            last, end = int(chunk["physical_offset"][unjudged - 1]), end + unjudged
        filled = np.flatnonzero(chunk.view(np.uint8).reshape(len(chunk), -1).any(axis=1))
        later = (chunk["physical_offset"] >= log.limit) & (chunk["msg_size"] > 0)
        findings.note("entries_behind_the_end", int(np.count_nonzero(later)))
        for row in filled[~later[filled] & (filled >= unjudged)].tolist():
            unit = chunk[row : row + 1]
            is_unit = unit["physical_offset"][0] >= 0 and unit["msg_size"][0] > 0
            kind = "entry_without_record" if is_unit else "bytes_behind_the_end"
            text = "an entry to which the log has no record" if is_unit else "bytes behind the queue's end"
            if is_unit and unit["msg_size"][0] == PRE_BLANK["msg_size"]:
                text = "a unit that fills the front, behind the queue's end"
            _differ(units, at + row, unit, kind, text, findings)


def _differ(units: QueueReader, number: int, unit: Units, kind: str, text: str, findings: Findings) -> None:
    file, at = units.where(number)
    physical_offset = int(unit["physical_offset"][0])
    found = f"physical offset {physical_offset}, size {unit['msg_size'][0]}, tags code {unit['tags_code'][0]}"
    name = f"{units.topic.decode('utf-8', 'backslashreplace')}-{units.queue_id}"
    findings.differ(
        Difference(kind, f"{name}, unit {number}: {text} ({found})", file, at, number, physical_offset, None, found)
    )
