"""What of the log a store is compared with, and what the log lacks of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reput.sinks.queue.queue_reader import Units
from reput.source.arrays import Int64s, leading


@dataclass(frozen=True)
class LogLimits:
    """The compared stretch of the log: records of `[least, limit)`; a record has at most `size_max` bytes.

    `missing` are the stretches of it without a record that can be read, in log order: segments that are gone, and
    damage that is passed over. Nothing tells whether an entry or key that leads there is right.
    """

    least: int
    limit: int
    size_max: int
    missing: tuple[tuple[int, int], ...] = ()

    def lacks(self, physical_offsets: Int64s) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which offsets are in a stretch that is missing, bool[n]."""
        if not self.missing:
            return np.zeros(len(physical_offsets), bool)
        begins, ends = np.array(self.missing, np.int64).T
        at = np.searchsorted(begins, physical_offsets, "right") - 1
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (at >= 0) & (physical_offsets < ends[at])
        return found

    def missing_before(self, physical_offset: int) -> int:
        """How many stretches that are missing end at `physical_offset` or before it."""
        return sum(end <= physical_offset for _, end in self.missing)

    def unjudged(self, units: Units, after: int, before: int) -> int:
        """How many of the first units lead to missing stretches in `(after, before)`, each further than the one before.

        After these there is one that leads somewhere else, or none.
        """
        offsets = units["physical_offset"].astype(np.int64)
        is_next = (np.diff(offsets, prepend=after) > 0) & (offsets < before) & (units["msg_size"] > 0)
        return leading(is_next & self.lacks(offsets))
