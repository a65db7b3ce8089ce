"""Whether the time of day was set back, measured against a clock that nobody sets.

Spark's trigger waits until a time of day. Where somebody, or a time server, sets that back while it waits, or while a
micro-batch runs, it waits for as much longer: for days, without a word. A query that is started anew begins to wait
anew. Nothing waits longer because the time was set forwards, or because the machine was suspended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: What is less is waited for: a query that is opened again stands still for about as long.
NOTICED_FROM_S: Final = 1.0


class TimeOfDay:
    """Compares the time of day with a monotonic clock, both in seconds, from the moment when it is made."""

    def __init__(
        self, time_of_day: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._time_of_day = time_of_day
        self._clock = clock
        self._ahead_at_least = self._ahead()[0]

    def set_back_by(self) -> float:
        """By how many seconds the time was set back since the last look; 0.0 if by less than `NOTICED_FROM_S`."""
        least, most = self._ahead()
        by = self._ahead_at_least - most
        self._ahead_at_least = least
        return by if by >= NOTICED_FROM_S else 0.0

    def _ahead(self) -> tuple[float, float]:
        """How far the time of day is ahead of the clock: at least and at most, since a thread may rest between both."""
        before, now, after = self._clock(), self._time_of_day(), self._clock()
        return now - after, now - before
