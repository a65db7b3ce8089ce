"""A range's entries compared with the queue files, and the results of all ranges joined queue by queue.

An entry's number is its record's queue offset as long as the records of the queue run on, and only all records of the
queue show whether they do. So each range reports what it saw, and queues that do not run on are walked record by record
(``queue_walk``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reput.sinks.dispatch.entries import QueueEntries
from reput.sinks.dispatch.piece_entries import PieceEntries
from reput.sinks.dispatch.runs import run_of
from reput.sinks.queue.batch_consume_queue import KIND as BATCH_KIND
from reput.sinks.queue.consume_queue import KIND, rounded_file_size
from reput.sinks.queue.queue_reader import QueueKind, QueueReader, Units
from reput.sinks.verify.ext_units import ExtFiles, codes_agree, note_ext_units
from reput.sinks.verify.findings import Findings

KINDS = {kind.top: kind for kind in (KIND, BATCH_KIND)}


@dataclass(frozen=True)
class QueueSettings:
    """Where the queues of both kinds are, and the sizes of their files in bytes; None for no ConsumeQueueExt."""

    root: Path
    mapped_file_size: int
    batch_file_size: int
    ext_file_size: int | None = None

    def units(self, top: str, topic: bytes, queue_id: int) -> QueueReader:
        """A reader of the queue's units; `top` is the directory of its kind."""
        size = rounded_file_size(self.mapped_file_size) if KINDS[top] is KIND else self.batch_file_size
        return QueueReader(self.root, KINDS[top], size, topic, queue_id)

    def ext(self, top: str, topic: bytes, queue_id: int) -> ExtFiles | None:
        """The queue's ext units; None where the settings exclude them."""
        if self.ext_file_size is None or KINDS[top] is not KIND:
            return None
        return ExtFiles(self.root, self.ext_file_size, topic, queue_id)


@dataclass(frozen=True)
class ComparedEntries:
    """What a range found in one queue: `count` entries from number `first` on, of records from `start` of the log on.

    `agrees` says that the records' queue offsets run on, that the records come in log order, and that the files hold
    exactly their entries from the first one's queue offset on.
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
    for kind, queues in ((KIND, entries.all_queues()), (BATCH_KIND, entries.batch_queues())):
        for incoming in queues:
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


def units_agree(
    found: Units, expected: Units, incoming: QueueEntries, ext: ExtFiles | None
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which units on disk equal the expected ones, which belong to the rows of `incoming`, bool[n]."""
    names = [name for name in expected.dtype.names or () if name != "tags_code"]
    same = codes_agree(found, expected, incoming.ext, ext)
    for name in names:
        same &= found[name] == expected[name]
    return same


@dataclass
class QueueTally:
    """One queue of the store: as long as `is_plain`, the entries numbered `[first, end)` agree with their records."""

    top: str
    topic: bytes
    queue_id: int
    first: int | None = None
    end: int = 0
    entries: int = 0
    is_plain: bool = True

    def take(self, compared: ComparedEntries) -> None:
        """Go on with the next range's entries, in log order."""
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
        """Go on with the entries of the next range, in log order."""
        for compared in entries:
            key = (compared.top, compared.topic, compared.queue_id)
            self.queues.setdefault(key, QueueTally(*key)).take(compared)

    @property
    def out_of_order(self) -> list[QueueTally]:
        """The queues that must be walked."""
        return [tally for tally in self.queues.values() if not tally.is_plain]
