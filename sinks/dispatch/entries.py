"""Entries of one queue, and keys, as sinks and checks take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reput.source.arrays import Bytes, Int32s, Int64s


@dataclass(frozen=True)
class ExtUnits:
    """What the ConsumeQueueExt unit of each entry holds beside its tags code.

    `bit_maps` has None for no bitmap. `is_put` (bool[n]) is False for entries without a unit, those of further queues.
    `store_timestamps` are in milliseconds.
    """

    store_timestamps: Int64s
    bit_maps: tuple[bytes | None, ...]
    is_put: np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class QueueEntries:
    """Entries of one queue in log order: uint8[n, unit], the records' queue offsets, int64[n], and their ext units."""

    topic: bytes
    queue_id: int
    entries: Bytes
    queue_offsets: Int64s
    ext: ExtUnits | None = None


@dataclass(frozen=True)
class KeyEntries:
    """Keys in log order: the hash, and the record's physical offset and store timestamp (ms)."""

    hashes: Int32s
    offsets: Int64s
    timestamps: Int64s

    def between(self, begin: int, end: int) -> KeyEntries:
        """The keys `[begin, end)` of these, numbered from 0."""
        return KeyEntries(self.hashes[begin:end], self.offsets[begin:end], self.timestamps[begin:end])

    @property
    def first(self) -> tuple[int, int]:
        """Physical offset and store timestamp of the first key."""
        return int(self.offsets[0]), int(self.timestamps[0])

    @property
    def last(self) -> tuple[int, int]:
        """Physical offset and store timestamp of the last key."""
        return int(self.offsets[-1]), int(self.timestamps[-1])
