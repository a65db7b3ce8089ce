"""Entries of one queue, and keys, in the form that sinks and checks take; and whether queue offsets are consecutive.

If they are not, the broker's rules decide (``ConsumeQueue#putMessagePositionInfo``); their letters are those of
``consume_queue``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reput.sinks.anomalies import AnomalyCounts, OutOfOrder
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, ENTRY
from reput.source.arrays import Bools, Bytes, Int32s, Int64s


@dataclass(frozen=True)
class ExtUnits:
    """The content of each entry's ConsumeQueueExt unit, without its tags code.

    `bit_maps` has None for no bitmap. `is_put` (bool[n]) is False for entries without a unit, those of further queues.
    `store_timestamps` are in milliseconds.
    """

    store_timestamps: Int64s
    bit_maps: tuple[bytes | None, ...]
    is_put: Bools


@dataclass(frozen=True)
class QueueEntries:
    """Entries of one queue in log order: uint8[n, unit], the records' queue offsets, int64[n], and their ext units."""

    topic: bytes
    queue_id: int
    entries: Bytes
    queue_offsets: Int64s
    ext: ExtUnits | None = None

    @property
    def first_physical_offset(self) -> int:
        """The physical offset of the first entry's record."""
        return int.from_bytes(self.entries[0, :8].tobytes(), "big", signed=True)

    def rows(self, begin: int, end: int | None = None) -> QueueEntries:
        """The rows `[begin, end)`; with None all rows from `begin`."""
        rows, ext = slice(begin, end), self.ext
        if ext is not None:
            ext = ExtUnits(ext.store_timestamps[rows], ext.bit_maps[rows], ext.is_put[rows])
        return QueueEntries(self.topic, self.queue_id, self.entries[rows], self.queue_offsets[rows], ext)

    def behind(self, first: QueueEntries) -> QueueEntries:
        """The entries of `first`, of the same queue, and then these."""
        ext = self.ext
        if ext is not None and first.ext is not None:
            ext = ExtUnits(
                np.concatenate([first.ext.store_timestamps, ext.store_timestamps]),
                first.ext.bit_maps + ext.bit_maps,
                np.concatenate([first.ext.is_put, ext.is_put]),
            )
        return QueueEntries(
            self.topic,
            self.queue_id,
            np.concatenate([first.entries, self.entries]),
            np.concatenate([first.queue_offsets, self.queue_offsets]),
            ext,
        )


@dataclass(frozen=True)
class KeyEntries:
    """Keys in log order: the hash, and the record's physical offset and store timestamp (ms)."""

    hashes: Int32s
    offsets: Int64s
    timestamps: Int64s

    def between(self, begin: int, end: int) -> KeyEntries:
        """The keys `[begin, end)` of these, numbered from 0."""
        return KeyEntries(self.hashes[begin:end], self.offsets[begin:end], self.timestamps[begin:end])

    def before(self, others: KeyEntries) -> KeyEntries:
        """These keys and then `others`."""
        mine, theirs = (vars(keys).values() for keys in (self, others))
        return KeyEntries(*(np.concatenate(parts) for parts in zip(mine, theirs, strict=True)))

    @property
    def first(self) -> tuple[int, int]:
        """Physical offset and store timestamp of the first key."""
        return int(self.offsets[0]), int(self.timestamps[0])

    @property
    def last(self) -> tuple[int, int]:
        """Physical offset and store timestamp of the last key."""
        return int(self.offsets[-1]), int(self.timestamps[-1])


LOGIC_OFFSET_MAX = 2**63 - 1

RUN = np.dtype(
    [
        ("first_queue_offset", "<i8"),
        ("first_physical_offset", "<i8"),
        ("first_end", "<i8"),
        ("last_end", "<i8"),
        ("runs_on", "?"),
    ]
)


@dataclass(frozen=True)
class Run:
    """`count` records of one queue with consecutive queue offsets, in log order.

    `first_queue_offset` and `first_physical_offset` are the first record's; `first_end` and `last_end` are the physical
    offsets where the first and the last record end.
    """

    first_queue_offset: int
    count: int
    first_physical_offset: int
    first_end: int
    last_end: int


def find_runs(entries: Bytes, queue_offsets: Int64s, counts: Int64s) -> np.ndarray[Any, Any]:
    """Whether each block of entries is a run, and the fields of its `Run`: `RUN` [blocks].

    The blocks follow each other in `entries` (uint8[n, 20]) and `queue_offsets`; each has at least one entry.
    """
    view: np.ndarray[Any, Any] = entries.view(ENTRY)[:, 0]
    physical_offsets = view["physical_offset"].astype(np.int64)
    ends = np.cumsum(counts)
    first, last = ends - counts, ends - 1
    follows = np.ones(len(entries), bool)
    # Multi dispatch may send a message to its own queue again.
    follows[1:] = (queue_offsets[1:] - queue_offsets[:-1] == 1) & (physical_offsets[1:] > physical_offsets[:-1])
    follows[first] = True
    runs = np.empty(len(counts), RUN)
    runs["first_queue_offset"], runs["first_physical_offset"] = queue_offsets[first], physical_offsets[first]
    runs["first_end"] = physical_offsets[first] + view["msg_size"][first]
    runs["last_end"] = physical_offsets[last] + view["msg_size"][last]
    # From Long.MAX_VALUE to Long.MIN_VALUE the difference is also 1.
    in_range = (queue_offsets[first] <= queue_offsets[last]) & (
        queue_offsets[last] <= LOGIC_OFFSET_MAX // CQ_STORE_UNIT_SIZE
    )
    runs["runs_on"] = in_range & (np.logical_and.reduceat(follows, first) if len(counts) else True)
    return runs


def run_of(entries: Bytes, queue_offsets: Int64s) -> Run | None:
    """The entries of one queue as a run; None if they are not one."""
    *facts, runs_on = find_runs(entries, queue_offsets, np.array([len(entries)]))[0].tolist()
    return Run(facts[0], len(entries), *facts[1:]) if runs_on else None


@dataclass(frozen=True)
class LifeBegin:
    """Where a queue starts over: its topic was deleted and created again, so its queue offsets begin at 0 again.

    Attributes
    ----------
    row
        The row of the later life's first entry; `BEFORE` for the queue's last entry so far, None if no life begins.
    awaited
        The queue offset with which the next record would prove that the last row begins a life; 0 for none.
    """

    row: int | None
    awaited: int


BEFORE = -1


def last_life(queue_offsets: Int64s, steps: Int64s, *, has_entries: bool, awaited: int) -> LifeBegin:
    """Find the last row where the queue starts over.

    A broker gives queue offset 0 only to a queue without entries, but a damaged field may also hold it. So a life
    begins only if the next record of the queue has the queue offset after 0.

    Parameters
    ----------
    queue_offsets, steps
        int64[n], of rows in log order that are not built already, and the number of queue offsets that each takes.
    has_entries
        Whether the queue has entries before these rows.
    awaited
        The `LifeBegin.awaited` of the previous rows.
    """
    if not len(queue_offsets):
        return LifeBegin(None, awaited)
    begins = queue_offsets == 0
    begins[0] &= has_entries
    wanted = np.concatenate([[awaited], np.where(begins, steps, 0)])
    proofs = np.flatnonzero((wanted[:-1] > 0) & (queue_offsets == wanted[:-1]))
    return LifeBegin(int(proofs[-1]) - 1 if len(proofs) else None, int(wanted[-1]))


class RowByRow:
    """The rows of one queue that the broker would append, and their anomalies.

    Attributes
    ----------
    accepted
        The rows that get an entry.
    end
        Where the queue ends after them, in bytes.
    repeated_at
        Where the queue ended when the last repeated record came; -1 without one.
    first_out_of_order
        The first record whose queue offset is not the queue's end; None without one.
    """

    def __init__(self, end: int, max_physic_offset: int) -> None:
        self.accepted: list[int] = []
        self.end = end
        self.repeated_at = -1
        self.first_out_of_order: OutOfOrder | None = None
        self._reached = max_physic_offset
        self._already_built = self._repeated = self._gap = self._queue_restart = 0

    @property
    def anomalies(self) -> AnomalyCounts:
        """The anomalies of the rows taken so far."""
        return AnomalyCounts(
            already_built=self._already_built,
            repeated=self._repeated,
            gap=self._gap,
            queue_restart=self._queue_restart,
        )

    def take(self, entries: Bytes, queue_offsets: Int64s) -> None:
        """Take `entries` (uint8[n, 20]) in log order."""
        view: np.ndarray[Any, Any] = entries.view(ENTRY)[:, 0]
        physical_offsets = view["physical_offset"].tolist()
        sizes = view["msg_size"].tolist()
        # As in Java, a product beyond 64 bits wraps.
        expected = (queue_offsets * CQ_STORE_UNIT_SIZE).tolist()
        for row, queue_offset in enumerate(queue_offsets.tolist()):
            after = physical_offsets[row] + sizes[row]
            if after <= self._reached:  # (A)
                self._already_built += 1
                continue
            if expected[row] != self.end:
                if self.first_out_of_order is None:
                    queue_end = self.end // CQ_STORE_UNIT_SIZE
                    self.first_out_of_order = OutOfOrder(physical_offsets[row], queue_offset, queue_end)
                if queue_offset == 0:
                    self._queue_restart += 1
                elif expected[row] < self.end:  # (D)
                    self.repeated_at = self.end
                    self._repeated += 1
                    continue
                else:  # (E)
                    self._gap += 1
            self.accepted.append(row)
            self._reached = after
            self.end += CQ_STORE_UNIT_SIZE
