"""A walk record by record along one queue, by the rules with which a broker appends entries.

It names what differs, also in queues whose records do not run on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.dispatch.entries import ExtUnits, QueueEntries
from reput.sinks.formats.consume_queue import is_pre_blank
from reput.sinks.queue.batch_consume_queue import BatchConsumeQueue
from reput.sinks.queue.consume_queue import KIND, ConsumeQueue
from reput.sinks.queue.queue_lives import QueueLives
from reput.sinks.queue.queue_reader import QueueReader, Units
from reput.sinks.queue.queue_sink import Append, Queue
from reput.sinks.verify.ext_units import ext_problem, note_ext_units
from reput.sinks.verify.findings import FIRST_MAX, Difference, Findings
from reput.sinks.verify.log_limits import LogLimits
from reput.sinks.verify.queue_entries import QueueSettings, QueueTally, units_agree
from reput.source.arrays import Int64s, leading
from reput.source.errors import SinkError

_WORDS = {
    "physical_offset": "physical offset",
    "msg_size": "size",
    "tags_code": "tags code",
    "store_timestamp": "store time",
    "msg_base_offset": "base offset",
    "batch_size": "batch size",
    "compacted_offset": "compacted offset",
    "reserved": "reserved",
}


class QueueWalk:
    """Walks along one queue; give it the queue's entries in log order, then `close` it.

    Where queue offset 0 comes again, the queue may have been deleted with its topic and made again. A broker that did
    so keeps the later life. One that has lost its queues since joins both (docs/anomalies.md). The files show which.
    """

    def __init__(
        self, settings: QueueSettings, tally: QueueTally, log: LogLimits, findings: Findings, *, may_join: bool = False
    ) -> None:
        """Begin behind the entries of records before the log's begin, which it no longer has.

        With `may_join`, joined lives are right although messages of the later one have no entries.
        """
        self._tally, self._findings, self._may_join = tally, findings, may_join
        self._lives = QueueLives(_Walk(settings, tally, log), lambda: _Walk(settings, tally, log, begins_empty=True))
        self._chosen = self._lives.replay

    @property
    def made_early(self) -> int | None:
        """Where a file begins that the broker made for a repeated record."""
        return self._chosen.made_early

    @property
    def moved(self) -> int:
        """How many entries stand before the queue offset of their message."""
        return self._chosen.moved

    @property
    def first_moved(self) -> str:
        """The first of these in words."""
        return self._chosen.first_moved

    def take(self, incoming: QueueEntries) -> None:
        """Go on with the next entries."""
        self._lives.take(incoming, self._lives.replay.unit_size)

    def close(self) -> None:
        """Put the walk's result into the tally, and what it found into the findings."""
        self._chosen = self._choose()
        self._tally.first, self._tally.end = self._chosen.first, self._chosen.end
        self._findings.note("entries_moved", self._chosen.moved)
        self._findings.add(self._chosen.findings)

    def _choose(self) -> _Walk:
        """The walk that agrees with the files; otherwise the one from which they differ least."""
        lives, replay = self._lives, self._lives.replay
        name = f"{self._tally.topic.decode('utf-8', 'backslashreplace')}-{self._tally.queue_id}"
        for life in lives.later:
            walk = life.follower
            if not walk.findings.differences:
                walk.findings.note("queue_restart")
                walk.findings.tell(
                    f"queue {name} started over at offset {life.began_at}: the topic was deleted and made again, and "
                    "the files hold the later life"
                )
                return walk
        if replay.findings.differences or lives.proven is None:
            walks = (*(life.follower for life in lives.later), replay)
            return min(walks, key=lambda walk: walk.findings.differences)
        proven, count = lives.proven, lives.passed_over
        text = f"{name} started over at offset {proven.began_at}: its topic was deleted and made again"
        if count and not (lives.goes_on_joined or self._may_join):
            text += f"; the files join both lives, so {count} messages of the later one have no entry"
            top = "/".join(replay.directory)
            replay.findings.differ(Difference("lives_joined", text, top, None, proven.queue_offset, proven.began_at))
        else:
            replay.findings.tell(f"queue {text}; a broker has joined both lives since")
        return replay


class _Walk:
    """Walks along one life of a queue, or along all of them as one."""

    def __init__(
        self, settings: QueueSettings, tally: QueueTally, log: LogLimits, *, begins_empty: bool = False
    ) -> None:
        """Begin behind the entries of records that the log no longer has, or at the queue's very beginning."""
        self._units = settings.units(tally.top, tally.topic, tally.queue_id)
        self._ext = settings.ext(tally.top, tally.topic, tally.queue_id)
        queue_type = ConsumeQueue if self._units.kind is KIND else BatchConsumeQueue
        self.queue: Queue = queue_type(tally.topic, tally.queue_id)
        self._name = f"{tally.topic.decode('utf-8', 'backslashreplace')}-{tally.queue_id}"
        self.findings = Findings()
        self.first: int | None = None
        # How many entries stand before the queue offset of their message, and the first of them in words.
        self.moved, self.first_moved = 0, ""
        self.made_early: int | None = None  # where a file begins that the broker made for a repeated record
        self._log = log
        # How many of the stretches that the log lacks have been passed; None until the first entry of an empty queue.
        self._passed: int | None = None
        if not begins_empty:
            self._passed = 0
            self._begin_behind_expired(log.least)

    @property
    def unit_size(self) -> int:
        """The size of an entry in bytes."""
        return self._units.unit_size

    @property
    def directory(self) -> tuple[str, ...]:
        """The queue's directory below the output."""
        return self._units.directory.parts[-3:]

    @property
    def end(self) -> int:
        """The number behind the last entry that the queue should have."""
        return self.queue.end // self._units.unit_size

    def take(self, incoming: QueueEntries) -> AnomalyCounts:
        """Go on with the next entries; returns what was met."""
        physical_offsets = incoming.entries.view(self._units.kind.unit)["physical_offset"][:, 0].astype(np.int64)
        ends = np.searchsorted(physical_offsets, [end for _, end in self._log.missing])
        met, cuts = NO_ANOMALIES, sorted({0, *ends.tolist(), len(physical_offsets)})
        for row, after in zip(cuts, cuts[1:], strict=False):
            self._pass_over_missing(int(physical_offsets[row]))
            met += self._take(incoming.rows(row, after))
        return met

    def _pass_over_missing(self, before: int) -> None:
        """Pass over entries that lead to what the log lacks before the offset `before`: nobody can judge them.

        A broker that made them while it had the records goes on behind them; one that replays the log has none.
        """
        stretches = self._log.missing_before(before)
        if self._passed is not None and stretches > self._passed:
            self._pass_over_entries(before)
        self._passed = stretches

    def _pass_over_entries(self, before: int) -> None:
        units, queue = self._units, self.queue
        if not units.files:
            return
        number, last = (self.end, self._last_offset) if queue.files else (units.files[0] // units.unit_size, -1)
        begin = number
        for at, chunk in units.chunks(number, (units.files[-1] + units.file_size) // units.unit_size):
            blanks = 0
            if at == begin and not queue.files and units.kind is KIND:
                blanks = leading(is_pre_blank(chunk))
            count = self._log.unjudged(chunk[blanks:], last, before)
            if count:
                unit = chunk[blanks + count - 1]
                number, last = at + blanks + count, int(unit["physical_offset"])
                queue.max_physic_offset = last + (int(unit["msg_size"]) if units.kind is KIND else 0)
            if blanks + count < len(chunk):
                break
        if number > begin and not queue.files:
            queue.files.append(units.files[0])
        elif number > begin and self.first is not None:  # before the first one they are checked with the front
            self.findings.note("entries_not_judged", number - begin)
        if number > begin:
            queue.end = number * units.unit_size

    @property
    def _last_offset(self) -> int:
        """Where the record of the queue's last entry begins."""
        return int(self._units.read(self.end - 1, 1)["physical_offset"][0]) if self.end else -1

    def _take(self, incoming: QueueEntries) -> AnomalyCounts:
        try:
            append = self.queue.plan_append(incoming, self._units.file_size)
        except SinkError as error:
            self.findings.differ(Difference("queue_begin", str(error), "/".join(self.directory)))
            return NO_ANOMALIES
        if not self.queue.files and len(append.entries):
            self.queue.files.append(append.begin - append.begin % self._units.file_size)
        if append.empty_file is not None:
            self.made_early = append.empty_file
        for cause, count in vars(append.anomalies).items():
            self.findings.note(cause, count)
        if len(append.entries):
            self._compare(append, incoming)
        return append.anomalies

    def _begin_behind_expired(self, least: int) -> None:
        front, last = expired_front(self._units, least)
        if last:
            self.queue.files.append(self._units.files[0])
            self.queue.end = front * self._units.unit_size
            self.queue.max_physic_offset = last

    def _compare(self, append: Append, incoming: QueueEntries) -> None:
        kind, begin = self._units.kind, append.begin // self._units.unit_size
        expected: Units = append.entries.view(kind.unit)[:, 0]
        if self.first is None:
            # Blanks at the queue's beginning belong to the front.
            self.first = begin + int(np.count_nonzero(is_pre_blank(expected))) if kind is KIND else begin
        found = self._units.read(begin, len(expected))
        rows = self._rows(expected, incoming)
        aligned = replace(incoming, ext=_select(incoming.ext, rows))
        agrees = units_agree(found, expected, aligned, self._ext)
        if kind is KIND:
            self._note_places(begin, expected, incoming.queue_offsets[rows])
        # Units that fill the front are checked elsewhere, with all that stands before the first entry.
        wrong = np.flatnonzero(~agrees & ~is_pre_blank(expected)) if kind is KIND else np.flatnonzero(~agrees)
        for row in wrong.tolist():
            if len(self.findings.first) >= FIRST_MAX:
                missing = int(np.count_nonzero(found["msg_size"][wrong[wrong >= row]] == 0))
                self.findings.counts["entry_missing"] += missing
                self.findings.counts["entry_changed"] += int(np.count_nonzero(wrong >= row)) - missing
                break
            self._report(begin + row, found[row : row + 1], expected[row : row + 1], aligned.ext, row, incoming)
        if self._ext is not None and aligned.ext is not None and agrees.all():
            note_ext_units(found, aligned.ext, self._ext, self.findings)

    def _note_places(self, begin: int, expected: Units, queue_offsets: Int64s) -> None:
        """Count the entries that stand before the queue offset of their message; units from number `begin` on."""
        places = np.arange(begin, begin + len(expected))
        moved = np.flatnonzero((places < queue_offsets) & ~is_pre_blank(expected))
        if not self.moved and len(moved):
            row = int(moved[0])
            self.first_moved = (
                f"{self._name}, entry {places[row]}: the message at {expected['physical_offset'][row]} has queue "
                f"offset {queue_offsets[row]}"
            )
        self.moved += len(moved)

    def _rows(self, expected: Units, incoming: QueueEntries) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The row of `incoming` for each appended entry; a blank gets any row."""
        physical_offsets = incoming.entries.view(self._units.kind.unit)["physical_offset"][:, 0].astype(np.int64)
        rows = np.searchsorted(physical_offsets, expected["physical_offset"].astype(np.int64))
        return np.minimum(rows, len(physical_offsets) - 1).astype(np.int64)

    def _report(
        self, number: int, found: Units, expected: Units, ext: ExtUnits | None, row: int, incoming: QueueEntries
    ) -> None:
        file, at = self._units.where(number)
        physical_offset = int(expected["physical_offset"][0])
        kind, text = "entry_changed", f"{self._name}, entry {number}: {self._fields(found, expected, ext, row)}"
        if not found.tobytes().strip(b"\0"):
            kind, text = "entry_missing", f"{self._name}, entry {number} is missing: its record is at {physical_offset}"
        elif self._units.kind is KIND and is_pre_blank(found)[0]:
            kind = "entry_missing"
            text = f"{self._name}, entry {number} is missing, its place is filled: its record is at {physical_offset}"
        elif "ConsumeQueueExt" in text:
            kind = "ext_unit"
        elif found["physical_offset"][0] != physical_offset:
            text += self._other(found, incoming)
        self.findings.differ(
            Difference(kind, text, file, at, number, physical_offset, _describe(expected), _describe(found))
        )

    def _fields(self, found: Units, expected: Units, ext: ExtUnits | None, row: int) -> str:
        names = [name for name in found.dtype.names or () if found[name][0] != expected[name][0]]
        if names == ["tags_code"] and self._ext is not None and ext is not None and ext.is_put[row]:
            address = int(found["tags_code"][0])
            unit = self._ext.unit(address)
            problem = "no unit there" if unit is None else ext_problem(unit, int(expected["tags_code"][0]), ext, row)
            if unit is not None or address < -(2**62):
                return f"its ConsumeQueueExt unit at {address}: {problem}"
        differences = (f"{_WORDS[name]} {expected[name][0]} expected, {found[name][0]} found" for name in names)
        return "; ".join(differences)

    def _other(self, found: Units, incoming: QueueEntries) -> str:
        """Whose entry was found, if it belongs to one of the `incoming` records."""
        units = incoming.entries.view(self._units.kind.unit)[:, 0]
        same = np.flatnonzero(units["physical_offset"] == found["physical_offset"][0])
        return f" (the entry of queue offset {int(incoming.queue_offsets[same[0]])})" if len(same) else ""


def expired_front(units: QueueReader, least: int) -> tuple[int, int]:
    """The number behind the queue's front, and where the front's last record ended; both are 0 without entries there.

    Units that only fill the front come first, then entries of records before `least`, which the log no longer has.
    """
    if not units.files:
        return 0, 0
    first = units.files[0] // units.unit_size
    number, last, has_entries = first, 0, False
    for begin, chunk in units.chunks(first, (units.files[-1] + units.file_size) // units.unit_size):
        blanks = is_pre_blank(chunk)
        expired = (chunk["physical_offset"] >= 0) & (chunk["physical_offset"] < least) & (chunk["msg_size"] > 0)
        leading = expired | blanks
        count = len(chunk) if leading.all() else int(np.argmin(leading))
        real = np.flatnonzero(~blanks[:count])
        if len(real):
            at = chunk[int(real[-1])]
            has_entries, last = True, int(at["physical_offset"]) + int(at["msg_size"])
        number = begin + count
        if count < len(chunk):
            break
    return (number, last) if has_entries else (0, 0)


def _select(ext: ExtUnits | None, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> ExtUnits | None:
    if ext is None:
        return None
    bit_maps = tuple(ext.bit_maps[row] for row in rows.tolist())
    return ExtUnits(ext.store_timestamps[rows], bit_maps, ext.is_put[rows])


def _describe(unit: Units) -> str:
    return ", ".join(f"{_WORDS[name]} {unit[name][0]}" for name in unit.dtype.names or ())
