"""What surrounds a queue's entries: its files' names and sizes, the front, and what lies behind the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reput.sinks.consume_queue import KIND
from reput.sinks.consume_queue_format import PRE_BLANK
from reput.sinks.finding import Difference, Findings
from reput.sinks.queue_files import Units
from reput.sinks.queue_on_disk import is_file_name
from reput.sinks.queue_units import QueueUnits, is_blank
from reput.sinks.verify_queue import QueueTally


@dataclass(frozen=True)
class LogLimits:
    """The part of the log that is compared: records of `[least, limit)`; a record has at most `size_max` bytes."""

    least: int
    limit: int
    size_max: int


def check_queue_files(
    units: QueueUnits, tally: QueueTally, log: LogLimits, findings: Findings, made_early: int | None = None
) -> None:
    """Check all of a queue but its entries of `[tally.first, tally.end)`, which are proved.

    Before them: units that fill the front, then entries of records before `log.least` (counted as ``expired_entries``).
    Behind them nothing, but for two things that a broker leaves: units of records at `log.limit` or later
    (``entries_behind_the_end``: a recovery cut the log, or the record came since the check began), and an empty next
    file (``next_file_made_early``).
    """
    _check_names(units, tally, findings, made_early)
    first = tally.first
    end = _check_front(units, first, log, findings) if units.files else 0
    _check_tail(units, tally.end if first is not None else end, log, findings)


def _check_names(units: QueueUnits, tally: QueueTally, findings: Findings, made_early: int | None) -> None:
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
                Difference(
                    "file_size", text, f"{top}/{name}", size, expected=str(units.file_size), found=str(size)
                )
            )
    wanted = set(range(units.files[0], units.files[-1] + 1, units.file_size)) if units.files else set()
    if tally.first is not None and tally.end > tally.first:
        begin = tally.first * units.unit_size
        wanted |= set(range(begin - begin % units.file_size, tally.end * units.unit_size, units.file_size))
    for file in sorted(wanted - set(units.files)):
        findings.differ(
            Difference("file_missing", "the file is missing", f"{top}/{file:020d}", queue_offset=file // units.unit_size)
        )
    behind = [file for file in units.files if file >= tally.end * units.unit_size and file != made_early]
    if tally.first is not None and behind and next(units.written(tally.end), None) is None:
        findings.note("next_file_made_early", len(behind))


def _check_front(units: QueueUnits, first: int | None, log: LogLimits, findings: Findings) -> int:
    """Check the units before number `first` (None: as far as they reach); returns where they end."""
    begin = number = units.files[0] // units.unit_size
    stop = first if first is not None else (units.files[-1] + units.file_size) // units.unit_size
    blanks_over, last = False, -1
    for at, block in units.blocks(begin, stop):
        good = _is_front(units, block, log)
        count = len(block) if good.all() else int(np.argmin(good))
        if first is None and count < len(block):
            stop = at + count
            block = block[:count]
        blank = is_blank(block) if units.kind is KIND else np.zeros(len(block), bool)
        for row in np.flatnonzero(~good[: len(block)]).tolist():
            _differ(units, at + row, block[row : row + 1], "pre_blank", "no unit that fills the front", findings)
        for row in np.flatnonzero(blank).tolist() if blanks_over or not blank.all() else ():
            if blanks_over or not blank[:row].all():
                _differ(units, at + row, block[row : row + 1], "pre_blank", "it may stand at the front only", findings)
        entries = block[~blank & good[: len(block)]]
        places = entries["physical_offset"].astype(np.int64)
        ends = places + entries["msg_size"]
        if (np.diff(places) <= 0).any() or (len(places) and places[0] <= last):
            row = int(np.argmax(np.diff(places) <= 0)) + 1 if (np.diff(places) <= 0).any() else 0
            text = "an expired record's entry, and the one before it is of the same record or of a later one"
            _differ(units, at + row, entries[row : row + 1], "entry_order", text, findings)
        findings.note("expired_entries", len(entries))
        blanks_over |= bool(len(entries))
        last = int(ends[-1]) - 1 if len(ends) else last
        number = at + len(block)
        if number == stop:
            break
    return number


def _is_front(units: QueueUnits, block: Units, log: LogLimits) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    places, sizes = block["physical_offset"], block["msg_size"]
    expired: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        (places >= 0) & (places < log.least) & (sizes > 0) & (sizes <= log.size_max)
    )
    return expired | is_blank(block) if units.kind is KIND else expired


def _check_tail(units: QueueUnits, end: int, log: LogLimits, findings: Findings) -> None:
    for at, block in units.written(end):
        filled = np.flatnonzero(block.view(np.uint8).reshape(len(block), -1).any(axis=1))
        later = (block["physical_offset"] >= log.limit) & (block["msg_size"] > 0)
        findings.note("entries_behind_the_end", int(np.count_nonzero(later)))
        for row in filled[~later[filled]].tolist():
            unit = block[row : row + 1]
            is_unit = unit["physical_offset"][0] >= 0 and unit["msg_size"][0] > 0
            kind = "entry_without_record" if is_unit else "bytes_behind_the_end"
            text = "an entry to which the log has no record" if is_unit else "bytes behind the queue's end"
            if is_unit and unit["msg_size"][0] == PRE_BLANK["msg_size"]:
                text = "a unit that fills the front, behind the queue's end"
            _differ(units, at + row, unit, kind, text, findings)


def _differ(units: QueueUnits, number: int, unit: Units, kind: str, text: str, findings: Findings) -> None:
    file, at = units.where(number)
    place = int(unit["physical_offset"][0])
    found = f"physical offset {place}, size {unit['msg_size'][0]}, tags code {unit['tags_code'][0]}"
    name = f"{units.topic.decode('utf-8', 'backslashreplace')}-{units.queue_id}"
    findings.differ(Difference(kind, f"{name}, unit {number}: {text} ({found})", file, at, number, place, None, found))
