"""How far the queues of one kind on disk agree with the log, and cutting off what does not.

The broker trusts queue files up to their first unwritten unit, and cuts only what points behind the log's end
(``ConsumeQueue#recover``, ``#truncateDirtyLogicFiles``, and the same of ``BatchConsumeQueue``). Here every entry whose
record the log still has is compared with the entry that the record makes, so stale units, lost pages, missing files and
a rewritten log are all found in the same way. There are two more differences. What is cut off is zeroed, because
4.9.3's next recovery would read stale units as valid again. And a file whose first unit is not written is removed; the
broker keeps any such unit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import QueueEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.formats.consume_queue import MAX_ADDR, is_pre_blank, is_written
from reput.sinks.queue.batch_consume_queue import queues_of_kind
from reput.sinks.queue.consume_queue import KIND
from reput.sinks.queue.queue_check import ExtFiles, QueueSettings, units_agree
from reput.sinks.queue.queue_reader import QueueKind, QueueReader, Units, load_queues
from reput.sinks.queue.queue_sink import queue_name
from reput.source.arrays import Int64s, leading
from reput.source.errors import SinkError

_LMQ_PREFIX = b"%LMQ%"

# Topic, queue id and physical offset.
BeginsLife = Callable[[bytes, int, int], bool]


@dataclass
class QueueState:
    """One queue: `end` (bytes of the queue) is where its agreeing entries end.

    `begin` is where the contiguous files begin. `has_entries` is whether any entry in them agrees. `empty_file` is
    where a file begins that the broker made for a repeated record (see `Append`). `trusted_until` is the end of the
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
        """The number of the unit behind the agreeing ones."""
        return self.end // self.disk.unit_size

    def may_start_over_behind(self, physical_offset: int) -> int | None:
        """Where the record is of the queue's very first entry, if that is a later one than this; otherwise None."""
        if self.has_entries or self.begin or self.life_begin >= 0:
            return None
        first = self.disk.read_written(0, 1)
        return (
            int(first["physical_offset"][0]) if len(first) and first["physical_offset"][0] > physical_offset else None
        )

    def check_head(self, found: Units, incoming: QueueEntries, ext: ExtFiles | None) -> None:
        """Give up the entries of expired records if the queue's first record in the log does not follow them.

        Some of them were lost, and going on behind the rest would shift every later entry. An entry of a
        BatchConsumeQueue says its queue offset itself.
        """
        if self.disk.kind is not KIND:
            return
        follows = incoming.queue_offsets[0] == self.end_number
        if self.has_entries and not follows and not (len(found) and agree(found[:1], incoming.rows(0, 1), ext).all()):
            self.has_entries, self.end = False, -1

    @property
    def files_to_remove(self) -> list[int]:
        """Where the files without an agreeing entry begin, newest first."""
        if not self.has_entries:
            return self.disk.files[::-1]
        outside = (file for file in self.disk.files[::-1] if not self.begin <= file < self.end)
        return [file for file in outside if file != self.empty_file]

    @property
    def files_to_mend(self) -> list[int]:
        """Where the files begin that have stale units behind the end or are too short."""
        kept = [file for file in self.disk.files if file not in self.files_to_remove]
        return [
            file
            for file in kept
            if self.disk.sizes[file] != self.disk.file_size
            or (file + self.disk.file_size > self.end and any(self.disk.extents(file, max(0, self.end - file))))
        ]

    @property
    def dropped(self) -> int:
        """The number of written units behind the end."""
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

    `begins_life` is whether the record at an offset has queue offset 0 in a queue: entries of records before it went
    with their topic, if that is the queue's first entry. Of the queues in `emptied` nothing is expected: they were
    emptied for a later life.
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
        """Go on with the next batch; sets `disagrees_at` to the physical offset of the first record that disagrees."""
        assert self.disagrees_at is None
        matches = [self._match(incoming) for incoming in queues_of_kind(self.kind, batch.entries)]
        unmatched = [match.unmatched for match in matches if match.unmatched is not None]
        self.disagrees_at = min(unmatched, default=None)
        until = batch.end if self.disagrees_at is None else self.disagrees_at
        for match in matches:
            match.take(until)

    @property
    def has_open_heads(self) -> bool:
        """Whether a queue has only entries of expired records, and no record of it was met in the log yet."""
        return any(state.has_entries and not state.was_derived for state in self.queues.values())

    def look_at_heads(self, batch: LogicBatch) -> None:
        """Go on with a batch behind what is compared, to see where queues with expired entries go on."""
        for incoming in queues_of_kind(self.kind, batch.entries):
            state = self.queues.get((incoming.topic, incoming.queue_id))
            if state is not None and not state.was_derived:
                state.was_derived = True
                state.check_head(state.disk.read_written(state.end_number, 1), incoming, self._ext(incoming))

    def check_queues(self) -> None:
        """Raise SinkError if there are queues that the present settings do not derive from the log."""
        for (topic, queue_id), state in self.queues.items():
            if topic.startswith(_LMQ_PREFIX) and state.disk.files and not state.was_derived:
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
        """The end of the last record whose entry is trusted, since it lies before the start; 0 without any."""
        return max((state.trusted_until for state in self.queues.values()), default=0)

    @property
    def lives(self) -> list[list[Any]]:
        """The queues that may just have started over, as a progress record has them (``queue_sink.LIVES``)."""
        return [
            [*queue_name(*key), state.awaited, 0, False]
            for key, state in self.queues.items()
            if state.has_entries and state.awaited
        ]

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
    """How a batch's records match a queue: the offsets of `matched` records, and of the first `unmatched` one.

    `queue_offsets` are those of the matched records. `repeated` are records that the broker passes over, each with the
    queue's end when it came.
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


def agree(found: Units, incoming: QueueEntries, ext: ExtFiles | None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which entries on disk equal the log's, bool[n]; without `ext` an address of a unit agrees with any tags code."""
    expected: Units = incoming.entries[: len(found)].view(found.dtype)[:, 0]
    is_address = found["tags_code"] <= MAX_ADDR
    if ext is None and is_address.any():
        found = found.copy()
        found["tags_code"][is_address] = expected["tags_code"][is_address]
    return units_agree(found, expected, incoming, ext)


def messages_of(disk: QueueReader, number: int) -> int:
    """How many queue offsets the entry of that number takes."""
    return 1 if disk.kind is KIND else int(disk.read(number, 1)["batch_size"][0])


def _after_expired(disk: QueueReader, start: int) -> QueueState:
    """The state behind the pre-blank units and the entries of records before `start`, whose offsets must rise."""
    first = disk.files[0] if disk.files else 0
    state = QueueState(disk, first, first)
    reached = 0
    for file in disk.files:
        if file != state.end:  # behind a hole, all before it has expired
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
    """Bring the files to what `check` found, durably: remove later files, zero stale units, extend short files."""
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
