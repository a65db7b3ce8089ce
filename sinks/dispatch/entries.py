"""Entries of one queue, and keys, as sinks and checks take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reput.source.arrays import Bools, Bytes, Int32s, Int64s


@dataclass(frozen=True)
class ExtUnits:
    """What the ConsumeQueueExt unit of each entry holds beside its tags code.

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
        """The rows `[begin, end)`; None for all from `begin` on."""
        rows, ext = slice(begin, end), self.ext
        if ext is not None:
            ext = ExtUnits(ext.store_timestamps[rows], ext.bit_maps[rows], ext.is_put[rows])
        return QueueEntries(self.topic, self.queue_id, self.entries[rows], self.queue_offsets[rows], ext)

    def behind(self, first: QueueEntries) -> QueueEntries:
        """These entries behind those of the same queue in `first`."""
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
        """These keys, and behind them `others`."""
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
