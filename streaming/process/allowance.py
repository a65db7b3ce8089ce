"""An allowance for what may happen often and is worth a line now and then: some at once, then one in a while."""

from __future__ import annotations

import time
from collections.abc import Callable


class Allowance:
    """Allows `burst` at once; each is allowed again `renewed_after_s` seconds later, so at most one in that time."""

    def __init__(self, burst: int, renewed_after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is monotonic, in seconds."""
        self._burst = float(burst)
        self._renewed_after_s = renewed_after_s
        self._clock = clock
        self._left, self._asked_at = self._burst, clock()

    def take(self) -> bool:
        """Whether one more is allowed now."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._asked_at) / self._renewed_after_s)
        self._asked_at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
