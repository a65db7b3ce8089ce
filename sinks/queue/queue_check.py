"""Queues compared with the log: entries range by range, a walk record by record, the bytes around them, ext units.

A topic that was deleted and created again gives a queue several lives. A broker removes a queue's files with the topic,
and queue offsets begin at 0 again: it keeps the later life. A broker that has lost its queues since, and makes them
again from the log, appends the first record of the later life to the earlier one and drops the records after it. The
log alone does not say which of the two a store has, so both are followed (``QueueLives``).

`reput verify` reports what differs. `reput recover` finds how far the queues of one kind agree (`QueueCheck`), and cuts
off the rest.

The broker trusts queue files up to their first unwritten unit, and cuts only entries after the log's end
(``ConsumeQueue#recover``, ``#truncateDirtyLogicFiles``, and the same of ``BatchConsumeQueue``). Here every entry whose
record the log still has is compared with the entry that the record makes. This finds stale units, lost pages, missing
files and a rewritten log in the same way. There are two more differences. Units that are cut off are zeroed, because
4.9.3's next recovery would read stale units as valid again. And a file whose first unit is not written is removed; the
broker keeps any such unit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import BEFORE, ExtUnits, QueueEntries, run_of
from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import data_extents, names_in
from reput.sinks.files.store_path import LIGHT_QUEUE, consume_queue_ext_directory
from reput.sinks.findings import FIRST_MAX, Difference, Findings
from reput.sinks.formats.consume_queue import (
    MAX_ADDR,
    PRE_BLANK,
    CqExtUnit,
    is_ext_addr,
    is_pre_blank,
    is_written,
    skip_units,
    un_decorate,
)
from reput.sinks.queue.batch_consume_queue import BATCH_KIND, BatchConsumeQueue, queues_of_kind
from reput.sinks.queue.consume_queue import KIND, ConsumeQueue, rounded_file_size
from reput.sinks.queue.queue_reader import QueueKind, QueueReader, Units, load_queues
from reput.sinks.queue.queue_sink import Append, Queue, queue_name
from reput.source.arrays import Bools, Int64s, leading
from reput.source.errors import SinkError
from reput.source.log.mapped_file_queue import open_for_reading
from reput.source.log.store_layout import file_name, is_file_name
from reput.source.printable import counted


@dataclass(frozen=True)
class LogLimits:
    """The compared stretch of the log: records of `[least, limit)`; a record has at most `size_max` bytes.

    `missing` are its stretches without a readable record, in log order: segments that are gone, and damage that is
    passed over. An entry or key that leads there cannot be judged.
    """

    least: int
    limit: int
    size_max: int
    missing: tuple[tuple[int, int], ...] = ()

    def lacks(self, physical_offsets: Int64s) -> Bools:
        """Which offsets are in a missing stretch, bool[n]."""
        if not self.missing:
            return np.zeros(len(physical_offsets), bool)
        begins, ends = np.array(self.missing, np.int64).T
        at = np.searchsorted(begins, physical_offsets, "right") - 1
        found: Bools = (at >= 0) & (physical_offsets < ends[at])
        return found

    def missing_before(self, physical_offset: int) -> int:
        """The number of missing stretches that end at or before `physical_offset`."""
        return sum(end <= physical_offset for _, end in self.missing)

    def unjudged(self, units: Units, after: int, before: int) -> int:
        """The number of first units that lead to missing stretches in `(after, before)`, in rising order.

        The unit after them leads somewhere else, or does not exist.
        """
        offsets = units["physical_offset"].astype(np.int64)
        is_next = (np.diff(offsets, prepend=after) > 0) & (offsets < before) & (units["msg_size"] > 0)
        return leading(is_next & self.lacks(offsets))


class Follower(Protocol):
    """Follows one life of the queue, or all of them as one."""

    @property
    def queue(self) -> Queue:
        """The queue as it is at the moment."""

    def take(self, incoming: QueueEntries) -> AnomalyCounts:
        """Add the next entries, in log order; return their anomalies."""


Followed = TypeVar("Followed", bound=Follower)


@dataclass(frozen=True)
class Life(Generic[Followed]):
    """A life that begins with the record at `began_at` of the log, which a replay appends as entry `queue_offset`."""

    follower: Followed
    began_at: int
    queue_offset: int


class QueueLives(Generic[Followed]):
    """Gives a queue's entries, in log order, to a follower of all lives and to those of the later ones.

    Attributes
    ----------
    replay
        Follows all lives as one, as a broker's replay of the log does.
    proven
        The last life that the log proves (``last_life``), or None.
    latest
        The life that a later record of queue offset 0 may begin, or None.
    passed_over
        The number of records of the proven life that a replay drops.
    """

    def __init__(self, replay: Followed, follow: Callable[[], Followed]) -> None:
        """`follow` makes a follower of a queue without entries."""
        self.replay = replay
        self.proven: Life[Followed] | None = None
        self.latest: Life[Followed] | None = None
        self.passed_over = 0
        self._follow = follow

    @property
    def later(self) -> list[Life[Followed]]:
        """The later lives, the last one first."""
        return [life for life in (self.latest, self.proven) if life is not None]

    @property
    def goes_on_joined(self) -> bool:
        """Whether a record shows that a broker has joined the lives: it continues where the joined queue ends."""
        return self.proven is not None and self.proven.follower.queue.is_joined

    def take(self, incoming: QueueEntries, unit_size: int) -> None:
        """Add the next entries, in log order; their units have `unit_size` bytes."""
        queue = self.replay.queue
        found, (rows, _) = queue.last_life(incoming), queue.unbuilt(incoming)
        if found.row == BEFORE:
            self.proven, self.latest = self.latest, None
        zeros = rows[incoming.queue_offsets[rows] == 0].tolist()
        if zeros and zeros[0] == rows[0] and not queue.files:
            del zeros[0]
        done = 0
        for row in sorted({*zeros[-1:], *(() if found.row in (None, BEFORE) else (found.row,))}):
            self._take_all(incoming.rows(done, row))
            self.latest, done = self._begin(incoming.rows(row), unit_size), row
            if row == found.row:
                self.proven, self.latest, self.passed_over = self.latest, None, 0
        self._take_all(incoming.rows(done))
        queue.awaited = found.awaited

    def _begin(self, incoming: QueueEntries, unit_size: int) -> Life[Followed]:
        follower, end = self._follow(), self.replay.queue.end
        follower.queue.replay_end = end + unit_size
        return Life(follower, incoming.first_physical_offset, end // unit_size)

    def _take_all(self, incoming: QueueEntries) -> None:
        if not len(incoming.entries):
            return
        self.passed_over += self.replay.take(incoming).repeated
        for life in self.later:
            life.follower.take(incoming)


# ----------------------------------------------------------------------------------------------------------------------
# A range's entries compared with the queue files, and the results of all ranges joined queue by queue.
#
# An entry's number is its record's queue offset if the queue offsets of the queue's records are consecutive, and only
# all records of the queue show whether they are. So each range reports its own part, and other queues are walked record
# by record (``QueueWalk``).

KINDS = {kind.top: kind for kind in (KIND, BATCH_KIND)}


@dataclass(frozen=True)
class QueueSettings:
    """The root of the queues of both kinds, and the sizes of their files in bytes; None without ConsumeQueueExt."""

    root: Path
    mapped_file_size: int
    batch_file_size: int
    ext_file_size: int | None = None

    def units(self, top: str, topic: bytes, queue_id: int) -> QueueReader:
        """A reader of the queue's units; `top` is the directory of its kind."""
        return QueueReader(self.root, KINDS[top], self.file_size(KINDS[top]), topic, queue_id)

    def file_size(self, kind: QueueKind) -> int:
        """The size of a file of that kind in bytes, a multiple of a unit's."""
        return rounded_file_size(self.mapped_file_size) if kind is KIND else self.batch_file_size

    def ext(self, top: str, topic: bytes, queue_id: int) -> ExtFiles | None:
        """The queue's ext units; None if the settings exclude them."""
        if self.ext_file_size is None or KINDS[top] is not KIND:
            return None
        return ExtFiles(self.root, self.ext_file_size, topic, queue_id)


@dataclass(frozen=True)
class ComparedEntries:
    """The result of a range for one queue: `count` entries from number `first`, of records from `start` of the log.

    `agrees` says that the records' queue offsets are consecutive, that the records come in log order, and that the
    files hold exactly their entries from the first one's queue offset on.
    """

    top: str
    topic: bytes
    queue_id: int
    first: int
    count: int
    start: int
    agrees: bool


def compare_queues(settings: QueueSettings, entries: PieceEntries, findings: Findings) -> list[ComparedEntries]:
    """Compare entries with the files, as a whole if they are in order; other queues only count as disagreeing."""
    return [_compare(settings, kind, incoming, findings) for kind, incoming in queues_of(entries)]


def queues_of(entries: PieceEntries) -> Iterator[tuple[QueueKind, QueueEntries]]:
    """Each queue's entries, with the kind of the queue."""
    for kind in KINDS.values():
        for incoming in queues_of_kind(kind, entries):
            yield kind, incoming


def _compare(settings: QueueSettings, kind: QueueKind, incoming: QueueEntries, findings: Findings) -> ComparedEntries:
    expected: Units = incoming.entries.view(kind.unit)[:, 0]
    physical_offsets = expected["physical_offset"]
    queue = settings.units(kind.top, incoming.topic, incoming.queue_id)
    if kind is KIND:
        run = run_of(incoming.entries, incoming.queue_offsets)
        in_order = run is not None and run.first_queue_offset >= 0
        first = int(incoming.queue_offsets[0])
    else:
        in_order = bool((physical_offsets[1:] > physical_offsets[:-1]).all())
        first = queue.search(int(physical_offsets[0]))
    agrees = False
    if in_order:
        found = queue.read(first, len(expected))
        ext = settings.ext(kind.top, incoming.topic, incoming.queue_id)
        agrees = bool(units_agree(found, expected, incoming, ext).all())
        if agrees and ext is not None and incoming.ext is not None:
            note_ext_units(found, incoming.ext, ext, findings)
    return ComparedEntries(
        kind.top, incoming.topic, incoming.queue_id, first, len(expected), int(physical_offsets[0]), agrees
    )


def units_agree(found: Units, expected: Units, incoming: QueueEntries, ext: ExtFiles | None) -> Bools:
    """Which units on disk equal the expected ones, which belong to the rows of `incoming`, bool[n]."""
    names = [name for name in expected.dtype.names or () if name != "tags_code"]
    same = codes_agree(found, expected, incoming.ext, ext)
    for name in names:
        same &= found[name] == expected[name]
    return same


@dataclass
class QueueTally:
    """One queue of the store: while `is_plain`, the entries numbered `[first, end)` agree with their records."""

    top: str
    topic: bytes
    queue_id: int
    first: int | None = None
    end: int = 0
    entries: int = 0
    is_plain: bool = True

    def take(self, compared: ComparedEntries) -> None:
        """Add the entries of the next range, in log order."""
        self.entries += compared.count
        self.is_plain &= compared.agrees and (self.first is None or compared.first == self.end)
        if self.first is None:
            self.first = compared.first
        self.end = compared.first + compared.count


@dataclass
class QueueTallies:
    """All queues, by their kind's directory, topic and queue id."""

    queues: dict[tuple[str, bytes, int], QueueTally] = field(default_factory=dict)

    def take(self, entries: Iterable[ComparedEntries]) -> None:
        """Add the entries of the next range, in log order."""
        for compared in entries:
            key = (compared.top, compared.topic, compared.queue_id)
            self.queues.setdefault(key, QueueTally(*key)).take(compared)

    @property
    def out_of_order(self) -> list[QueueTally]:
        """The queues that must be walked."""
        return [tally for tally in self.queues.values() if not tally.is_plain]


# ----------------------------------------------------------------------------------------------------------------------
# A walk record by record along one queue, by the rules with which a broker appends entries.
#
# It names each difference, also in queues whose queue offsets are not consecutive.

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

    If queue offset 0 comes again, the queue may have been deleted with its topic and created again. A broker that did
    so keeps the later life. A broker that has lost its queues since joins both (docs/anomalies.md). The files show
    which.
    """

    def __init__(
        self, settings: QueueSettings, tally: QueueTally, log: LogLimits, findings: Findings, *, may_join: bool = False
    ) -> None:
        """Begin after the entries of records before the log's begin, which it no longer has.

        With `may_join`, joined lives are right although messages of the later one have no entries.
        """
        self._tally, self._findings, self._may_join = tally, findings, may_join
        self._lives = QueueLives(_Walk(settings, tally, log), lambda: _Walk(settings, tally, log, begins_empty=True))
        self._chosen = self._lives.replay

    @property
    def made_early(self) -> int | None:
        """The first byte of a file that the broker made for a repeated record; None without one."""
        return self._chosen.made_early

    @property
    def moved(self) -> int:
        """The number of entries before the queue offset of their message."""
        return self._chosen.moved

    @property
    def first_moved(self) -> str:
        """The first entry before the queue offset of its message, in words."""
        return self._chosen.first_moved

    def take(self, incoming: QueueEntries) -> None:
        """Add the queue's next entries, in log order."""
        self._lives.take(incoming, self._lives.replay.unit_size)

    def close(self) -> None:
        """Put the walk's result into the tally, and its differences and notes into the findings."""
        self._chosen = self._choose()
        self._tally.first, self._tally.end = self._chosen.first, self._chosen.end
        self._findings.note("entries_moved", self._chosen.moved)
        self._findings.add(self._chosen.findings)

    def _choose(self) -> _Walk:
        """The walk that agrees with the files, or else the one with the fewest differences."""
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
            missing = counted(count, "message of the later one has", "messages of the later one have")
            text += f"; the files join both lives, so {missing} no entry"
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
        """Begin after the entries of records that the log no longer has, or at the queue's very beginning."""
        self._units = settings.units(tally.top, tally.topic, tally.queue_id)
        self._ext = settings.ext(tally.top, tally.topic, tally.queue_id)
        queue_type = ConsumeQueue if self._units.kind is KIND else BatchConsumeQueue
        self.queue: Queue = queue_type(tally.topic, tally.queue_id)
        self._name = f"{tally.topic.decode('utf-8', 'backslashreplace')}-{tally.queue_id}"
        self.findings = Findings()
        self.first: int | None = None
        # The number of entries before the queue offset of their message, and the first of them in words.
        self.moved, self.first_moved = 0, ""
        self.made_early: int | None = None  # first byte of a file that the broker made for a repeated record
        self._log = log
        # The number of missing stretches before the last record; None until the first entry of an empty queue.
        self._passed: int | None = None
        if not begins_empty:
            self._passed = 0
            self._begin_behind_expired(log.least)

    @property
    def unit_size(self) -> int:
        return self._units.unit_size

    @property
    def directory(self) -> tuple[str, ...]:
        return self._units.directory.parts[-3:]

    @property
    def end(self) -> int:
        """The number after the last entry that the queue should have."""
        return self.queue.end // self._units.unit_size

    def take(self, incoming: QueueEntries) -> AnomalyCounts:
        """Add the next entries, in log order; return their anomalies."""
        physical_offsets = incoming.entries.view(self._units.kind.unit)["physical_offset"][:, 0].astype(np.int64)
        ends = np.searchsorted(physical_offsets, [end for _, end in self._log.missing])
        met, cuts = NO_ANOMALIES, sorted({0, *ends.tolist(), len(physical_offsets)})
        for row, after in zip(cuts, cuts[1:], strict=False):
            self._pass_over_missing(int(physical_offsets[row]))
            met += self._take(incoming.rows(row, after))
        return met

    def _pass_over_missing(self, before: int) -> None:
        """Pass over entries that lead to missing stretches of the log before the offset `before`, without judging them.

        A broker that made them while it had the records continues after them; a broker that replays the log has none.
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
        elif number > begin and self.first is not None:  # before the first entry, `_check_front` notes them
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
        # `_check_front` checks units that fill the front, with everything else before the first entry.
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
        """Count the entries before the queue offset of their message; units from number `begin` on."""
        places = np.arange(begin, begin + len(expected))
        moved = np.flatnonzero((places < queue_offsets) & ~is_pre_blank(expected))
        if not self.moved and len(moved):
            row = int(moved[0])
            self.first_moved = (
                f"{self._name}, entry {places[row]}: the message at {expected['physical_offset'][row]} has queue "
                f"offset {queue_offsets[row]}"
            )
        self.moved += len(moved)

    def _rows(self, expected: Units, incoming: QueueEntries) -> Int64s:
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
        """The queue offset of the found entry, in words, if it belongs to one of the `incoming` records."""
        units = incoming.entries.view(self._units.kind.unit)[:, 0]
        same = np.flatnonzero(units["physical_offset"] == found["physical_offset"][0])
        return f" (the entry of queue offset {int(incoming.queue_offsets[same[0]])})" if len(same) else ""


def expired_front(units: QueueReader, least: int) -> tuple[int, int]:
    """The number after the queue's front, and the end of the front's last record; both 0 if it has no entries.

    Units that only fill the front come first, then entries of records before `least`, which the log no longer has.
    """
    if not units.files:
        return 0, 0
    first = units.files[0] // units.unit_size
    number, last, has_entries = first, 0, False
    for begin, chunk in units.chunks(first, (units.files[-1] + units.file_size) // units.unit_size):
        blanks = is_pre_blank(chunk)
        expired = (chunk["physical_offset"] >= 0) & (chunk["physical_offset"] < least) & (chunk["msg_size"] > 0)
        count = leading(expired | blanks)
        real = np.flatnonzero(~blanks[:count])
        if len(real):
            at = chunk[int(real[-1])]
            has_entries, last = True, int(at["physical_offset"]) + int(at["msg_size"])
        number = begin + count
        if count < len(chunk):
            break
    return (number, last) if has_entries else (0, 0)


def _select(ext: ExtUnits | None, rows: Int64s) -> ExtUnits | None:
    if ext is None:
        return None
    bit_maps = tuple(ext.bit_maps[row] for row in rows.tolist())
    return ExtUnits(ext.store_timestamps[rows], bit_maps, ext.is_put[rows])


def _describe(unit: Units) -> str:
    return ", ".join(f"{_WORDS[name]} {unit[name][0]}" for name in unit.dtype.names or ())


# ----------------------------------------------------------------------------------------------------------------------
# Everything around a queue's entries: the names and sizes of its files, its front, and the bytes after its end.


def check_queue_files(
    units: QueueReader, tally: QueueTally, log: LogLimits, findings: Findings, made_early: int | None = None
) -> None:
    """Check all of a queue except its entries `[tally.first, tally.end)`, which are already proved.

    Before them may be units that fill the front, then entries of records before `log.least` (``expired_entries``).
    After them may be only what a broker leaves: units of records at `log.limit` or later (``entries_behind_the_end``: a
    recovery cut the log, or the record came since the check began), and an empty next file (``next_file_made_early``).
    On both sides may be entries that lead to missing stretches of the log (``entries_not_judged``).
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
    """Check the units before number `first` (None: as far as such units reach); return where they end."""
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
            number = stop = at + leading(good)
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


def _is_expired(chunk: Units, log: LogLimits) -> Bools:
    """Which units may belong to records that the log no longer has."""
    physical_offsets, sizes = chunk["physical_offset"], chunk["msg_size"]
    expired: Bools = (physical_offsets >= 0) & (physical_offsets < log.least) & (sizes > 0) & (sizes <= log.size_max)
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


# ----------------------------------------------------------------------------------------------------------------------
# ConsumeQueueExt units on disk, compared with those that the records make; nothing is written.
#
# A unit's bitmap says which groups' expressions the message matched when it was dispatched, and no disk holds the
# subscriptions of that moment. So a bitmap that differs from today's subscriptions is only a note; a different tags
# code or store time is a difference.

_READ_BYTES = 256 * 1024
_UNIT_BYTES_MAX = 2**16


@dataclass
class ExtFiles:
    """The units of one queue below `root`; `file_size` is ``mappedFileSizeConsumeQueueExt`` in bytes."""

    root: Path
    file_size: int
    topic: bytes
    queue_id: int
    _parts: tuple[str, str, str] = field(init=False)
    _at: int = 0
    _data: bytes = b""

    def __post_init__(self) -> None:
        self._parts = consume_queue_ext_directory(self.topic, self.queue_id)

    def unit(self, address: int) -> CqExtUnit | None:
        """The unit at an address, or None."""
        offset = un_decorate(address)
        data = self._bytes(offset)
        try:
            return CqExtUnit.read(data)
        except ValueError:
            return None

    def check_files(self, findings: Findings) -> None:
        """Check each file's name and size, and that its last unit does not run over its end."""
        directory = self.root.joinpath(*self._parts)
        for name in sorted(names_in(directory)):
            path, shown = directory / name, "/".join((*self._parts, name))
            size = path.stat().st_size
            if not is_file_name(name) or size != self.file_size or int(name) % self.file_size:
                text = f"no file of mappedFileSizeConsumeQueueExt={self.file_size}: its name or its {size} bytes say so"
                findings.differ(Difference("ext_file", text, shown))
                continue
            with open_for_reading(str(path)) as descriptor:
                end = max((end for _, end in data_extents(descriptor)), default=0)
                data = np.frombuffer(os.pread(descriptor, end, 0), np.uint8)
            units_end = skip_units(data, self.file_size)
            if units_end < 0:
                text = "a unit runs over the file's end"
                findings.differ(Difference("ext_file", text, shown, byte_offset=-1 - units_end))

    def _bytes(self, offset: int) -> bytes:
        """The bytes from `offset`: the largest size of a unit, at most to the end of the file."""
        left = self.file_size - offset % self.file_size
        wanted = min(_UNIT_BYTES_MAX, left)
        if not self._at <= offset <= offset + wanted <= self._at + len(self._data):
            self._at, self._data = offset, b""
            path = self.root.joinpath(*self._parts, file_name(offset - offset % self.file_size))
            try:
                with open_for_reading(str(path)) as descriptor:
                    self._data = os.pread(descriptor, min(_READ_BYTES, left), offset % self.file_size)
            except FileNotFoundError:
                return b""
        begin = offset - self._at
        return self._data[begin : begin + wanted]


def codes_agree(found: Units, expected: Units, ext: ExtUnits | None, files: ExtFiles | None) -> Bools:
    """Whether each unit's third field is its record's tags code, or the address of the record's ext unit."""
    same: Bools = found["tags_code"] == expected["tags_code"]
    if files is None or ext is None:
        return same
    for row in np.flatnonzero(~same & ext.is_put).tolist():
        address = int(found["tags_code"][row])
        unit = files.unit(address) if is_ext_addr(address) else None
        same[row] = unit is not None and not ext_problem(unit, int(expected["tags_code"][row]), ext, row)
    return same


def ext_problem(unit: CqExtUnit, tags_code: int, ext: ExtUnits, row: int) -> str:
    """The fault of the unit of an entry, in words; empty if there is none."""
    store_time, maps = int(ext.store_timestamps[row]), unit.filter_bit_map or b""
    if unit.tags_code != tags_code:
        return f"tags code {tags_code} expected, {unit.tags_code} found"
    if unit.msg_store_time != store_time:
        return f"store time {store_time} expected, {unit.msg_store_time} found"
    if unit.size != 20 + len(maps):
        return f"a size of {20 + len(maps)} bytes expected, {unit.size} found"
    return ""


def note_ext_units(found: Units, ext: ExtUnits, files: ExtFiles, findings: Findings) -> None:
    """Count, among entries that agree, those without a unit and those whose bitmap differs from today's."""
    for row in np.flatnonzero(ext.is_put).tolist():
        address = int(found["tags_code"][row])
        unit = files.unit(address) if is_ext_addr(address) else None
        if unit is None:
            findings.note("entry_without_ext_unit")
        elif (unit.filter_bit_map or b"") != (ext.bit_maps[row] or b""):
            findings.note("bit_map_of_other_subscriptions")


# Its arguments are topic, queue id and physical offset; see `QueueCheck`.
BeginsLife = Callable[[bytes, int, int], bool]


@dataclass
class QueueState:
    """One queue: `end` (bytes of the queue) is where its agreeing entries end.

    `begin` is where the contiguous files begin. `has_entries` is whether any entry in them agrees. `empty_file` is the
    first byte of a file that the broker made for a repeated record (see `Append`). `trusted_until` is the end of the
    last record whose entry is trusted without a comparison.
    """

    disk: QueueReader
    begin: int
    end: int
    has_entries: bool = False
    empty_file: int | None = None
    was_derived: bool = False
    trusted_until: int = 0
    life_begin: int = -1
    awaited: int = 0

    @property
    def end_number(self) -> int:
        """The number of the unit after the agreeing ones."""
        return self.end // self.disk.unit_size

    def may_start_over_behind(self, physical_offset: int) -> int | None:
        """The offset of the record of the queue's very first entry if it is after `physical_offset`; otherwise None."""
        if self.has_entries or self.begin or self.life_begin >= 0:
            return None
        first = self.disk.read_written(0, 1)
        return (
            int(first["physical_offset"][0]) if len(first) and first["physical_offset"][0] > physical_offset else None
        )

    def check_head(self, found: Units, incoming: QueueEntries, ext: ExtFiles | None) -> None:
        """Reject the entries of expired records if the queue's first record in the log does not follow them.

        Some of them were lost, and continuing after the rest would shift every later entry. An entry of a
        BatchConsumeQueue holds its queue offset itself.
        """
        if self.disk.kind is not KIND:
            return
        follows = incoming.queue_offsets[0] == self.end_number
        if self.has_entries and not follows and not (len(found) and agree(found[:1], incoming.rows(0, 1), ext).all()):
            self.has_entries, self.end = False, -1

    @property
    def files_to_remove(self) -> list[int]:
        """The first bytes of the files without an agreeing entry, newest first."""
        if not self.has_entries:
            return self.disk.files[::-1]
        outside = (file for file in self.disk.files[::-1] if not self.begin <= file < self.end)
        return [file for file in outside if file != self.empty_file]

    @property
    def files_to_mend(self) -> list[int]:
        """The first bytes of the files that have stale units after the end or are too short."""
        kept = [file for file in self.disk.files if file not in self.files_to_remove]
        return [
            file
            for file in kept
            if self.disk.sizes[file] != self.disk.file_size
            or (file + self.disk.file_size > self.end and any(self.disk.extents(file, max(0, self.end - file))))
        ]

    @property
    def dropped(self) -> int:
        """The number of written units after the end."""
        count = 0
        for file in self.disk.files:
            units = self.disk.units(file, max(0, self.end - file) if self.has_entries and file >= self.begin else 0)
            count += int(np.count_nonzero(is_written(units) & ~is_pre_blank(units)))
        return count


def never(_: bytes, __: int, ___: int) -> bool:
    """A ``BeginsLife`` that holds for no record."""
    return False


@dataclass
class QueueCheck:
    """Compares queues with batches of the log, in log order, up to the first record whose entry is missing or wrong.

    `begins_life` is whether the record at an offset has queue offset 0 in a queue. If that record makes the queue's
    first entry, entries of earlier records were removed with their topic. The queues in `emptied` are not compared:
    they were emptied for a later life.
    """

    settings: QueueSettings
    kind: QueueKind
    queues: dict[tuple[bytes, int], QueueState] = field(default_factory=dict)
    disagrees_at: int | None = None
    begins_life: BeginsLife = never
    emptied: Collection[tuple[bytes, int]] = ()

    @classmethod
    def load(
        cls,
        settings: QueueSettings,
        kind: QueueKind,
        start: int,
        begins_life: BeginsLife = never,
        emptied: Collection[tuple[bytes, int]] = (),
    ) -> QueueCheck:
        """Load the queues of a kind; entries of records before `start`, which the log no longer has, are trusted.

        Raises
        ------
        SinkError
            A broker with these settings would not make such a directory or file.
        """
        disks = load_queues(settings.root, kind, settings.file_size(kind))
        states = (_after_expired(disk, start) for disk in disks)
        queues = {(state.disk.topic, state.disk.queue_id): state for state in states}
        return cls(settings, kind, queues, None, begins_life, emptied)

    def compare(self, batch: LogicBatch) -> None:
        """Compare the next batch; set `disagrees_at` to the physical offset of the first record that disagrees."""
        assert self.disagrees_at is None
        matches = [self._match(incoming) for incoming in queues_of_kind(self.kind, batch.entries)]
        unmatched = [match.unmatched for match in matches if match.unmatched is not None]
        self.disagrees_at = min(unmatched, default=None)
        until = batch.end if self.disagrees_at is None else self.disagrees_at
        for match in matches:
            match.take(until)

    @property
    def has_open_heads(self) -> bool:
        """Whether a queue has only entries of expired records, and the log has shown no record of it yet."""
        return any(state.has_entries and not state.was_derived for state in self.queues.values())

    def look_at_heads(self, batch: LogicBatch) -> None:
        """Take a batch after the compared ones, to see where queues with only expired entries continue."""
        for incoming in queues_of_kind(self.kind, batch.entries):
            state = self.queues.get((incoming.topic, incoming.queue_id))
            if state is not None and not state.was_derived:
                state.was_derived = True
                state.check_head(state.disk.read_written(state.end_number, 1), incoming, self._ext(incoming))

    def check_queues(self) -> None:
        """Raise SinkError if there are queues that the present settings do not derive from the log."""
        for (topic, queue_id), state in self.queues.items():
            if topic.startswith(LIGHT_QUEUE) and state.disk.files and not state.was_derived:
                raise SinkError(
                    f"{state.disk.directory} is a queue of multi dispatch, which the settings at hand do not "
                    f"derive: {topic!r}-{queue_id} would be removed",
                    advice="give the broker's settings (--broker-conf), or remove the queue",
                    file=state.disk.directory,
                )

    @property
    def has_no_files(self) -> bool:
        """Whether the output has no queue at all."""
        return not self.queues

    @property
    def trusted_until(self) -> int:
        """The end of the last record whose entry is trusted because it is before the start; 0 without any."""
        return max((state.trusted_until for state in self.queues.values()), default=0)

    @property
    def lives(self) -> list[list[Any]]:
        """The queues that may just have started over, as a progress record has them (``queue_sink.LIVES``)."""
        return sorted(
            [*queue_name(*key), state.awaited, 0, False]
            for key, state in self.queues.items()
            if state.has_entries and state.awaited
        )

    @property
    def entries(self) -> int:
        """The sum of the queues' agreeing ends, in entries: what a progress record counts."""
        return sum(state.end_number for state in self.queues.values() if state.has_entries)

    def _match(self, incoming: QueueEntries) -> _Match:
        key = (incoming.topic, incoming.queue_id)
        state = self.queues.get(key)
        if key in self.emptied:
            return _NOTHING
        if state is not None:
            incoming = self._of_later_life(state, incoming)
            if not len(incoming.entries):
                return _NOTHING
        derived: Units = incoming.entries.view(self.kind.unit)[:, 0]
        if state is None:
            return _Match(None, np.empty(0, np.int64), [], int(derived["physical_offset"][0]))
        found, ext = state.disk.read_written(state.end_number, len(derived)), self._ext(incoming)
        if not state.was_derived:
            state.was_derived = True
            state.check_head(found, incoming, ext)
        if self.kind is KIND and not state.has_entries and state.end_number != int(incoming.queue_offsets[0]):
            return _Match(state, np.empty(0, np.int64), [], int(derived["physical_offset"][0]))
        if len(found) == len(derived) and agree(found, incoming, ext).all():
            return _Match(state, derived["physical_offset"].astype(np.int64), [], None, incoming.queue_offsets)
        return _match_one_by_one(state, found, incoming, ext)

    def _ext(self, incoming: QueueEntries) -> ExtFiles | None:
        return self.settings.ext(self.kind.top, incoming.topic, incoming.queue_id)

    def _of_later_life(self, state: QueueState, incoming: QueueEntries) -> QueueEntries:
        """The entries without those of a life that ended before the queue's first entry."""
        begin = state.may_start_over_behind(incoming.first_physical_offset)
        if begin is not None and self.begins_life(state.disk.topic, state.disk.queue_id, begin):
            state.life_begin = begin
            state.was_derived = True
        if state.life_begin < 0:
            return incoming
        offsets = incoming.entries.view(self.kind.unit)["physical_offset"][:, 0]
        return incoming.rows(int(np.searchsorted(offsets, state.life_begin)))


@dataclass(frozen=True)
class _Match:
    """How a batch's records match a queue: the offsets of `matched` records and of the first `unmatched` one.

    `queue_offsets` are those of the matched records. `repeated` are records that the broker drops, each with the
    queue's end at that moment.
    """

    state: QueueState | None
    matched: Int64s
    repeated: Sequence[tuple[int, int]]
    unmatched: int | None
    queue_offsets: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def take(self, until: int) -> None:
        """Count the records before `until` as agreeing."""
        state = self.state
        if state is None:
            return
        count = int(np.searchsorted(self.matched, until))
        state.end += count * state.disk.unit_size
        state.has_entries |= count > 0
        if count:
            begins_anew = state.end_number > 1 and self.queue_offsets[count - 1] == 0
            state.awaited = messages_of(state.disk, state.end_number - 1) if begins_anew else 0
        for physical_offset, end in self.repeated:
            if physical_offset < until and end % state.disk.file_size == 0 and end in state.disk.sizes:
                state.empty_file = end


_NOTHING = _Match(None, np.empty(0, np.int64), [], None)


def _match_one_by_one(state: QueueState, found: Units, incoming: QueueEntries, ext: ExtFiles | None) -> _Match:
    offsets = incoming.entries.view(state.disk.kind.unit)["physical_offset"][:, 0].tolist()
    queue_offsets = incoming.queue_offsets
    matched: list[int] = []
    rows: list[int] = []
    repeated: list[tuple[int, int]] = []
    for row, queue_offset in enumerate(queue_offsets.tolist()):
        physical_offset = offsets[row]
        at = len(matched)
        end = state.end + at * state.disk.unit_size
        if at < len(found) and agree(found[at : at + 1], incoming.rows(row, row + 1), ext).all():
            matched.append(physical_offset)
            rows.append(row)
        elif state.disk.kind is KIND and queue_offset != 0 and queue_offset * state.disk.unit_size < end:  # (D)
            repeated.append((physical_offset, end))
        else:
            return _Match(state, np.array(matched, np.int64), repeated, physical_offset, queue_offsets[rows])
    return _Match(state, np.array(matched, np.int64), repeated, None, queue_offsets[rows])


def agree(found: Units, incoming: QueueEntries, ext: ExtFiles | None) -> Bools:
    """Which entries on disk equal the log's, bool[n]; without `ext` an address of a unit agrees with any tags code."""
    expected: Units = incoming.entries[: len(found)].view(found.dtype)[:, 0]
    is_address = found["tags_code"] <= MAX_ADDR
    if ext is None and is_address.any():
        found = found.copy()
        found["tags_code"][is_address] = expected["tags_code"][is_address]
    return units_agree(found, expected, incoming, ext)


def messages_of(disk: QueueReader, number: int) -> int:
    """The number of queue offsets that the entry of that number takes."""
    return 1 if disk.kind is KIND else int(disk.read(number, 1)["batch_size"][0])


def _after_expired(disk: QueueReader, start: int) -> QueueState:
    """The state after the pre-blank units and the entries of records before `start`, whose offsets must rise."""
    first = disk.files[0] if disk.files else 0
    state = QueueState(disk, first, first)
    reached = 0
    for file in disk.files:
        if file != state.end:  # everything before a hole has expired
            state = QueueState(disk, file, file)
        units = disk.units(file)
        blanks = leading(is_pre_blank(units) & is_written(units)) if file == first and len(units) else 0
        real = units[blanks:]
        offsets, ends = real["physical_offset"], real["physical_offset"] + real["msg_size"]
        rising = is_written(real) & (offsets >= np.concatenate([[reached], ends[:-1]])) & (offsets < start)
        count = leading(rising)
        state.end = file + (blanks + count) * disk.unit_size
        if count:
            state.has_entries = True
            state.trusted_until = reached = int(ends[count - 1])
        if state.end != file + disk.file_size:
            break
    return state


def cut_queues(files: DurableFiles, check: QueueCheck) -> None:
    """Bring the files to the state that `check` found, durably: remove, zero or extend them."""
    for state in check.queues.values():
        disk = state.disk
        mend = state.files_to_mend
        for file in state.files_to_remove:
            files.remove(*disk.relative_path(file))
        for file in mend:
            if disk.sizes[file] < disk.file_size:
                files.write(*disk.relative_path(file), offset=disk.file_size - 1, data=b"\0")
            for begin, end in disk.extents(file, max(0, state.end - file)):
                files.write(*disk.relative_path(file), offset=begin, data=bytes(end - begin))
    files.sync()
