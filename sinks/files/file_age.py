"""What time it is where the age of files decides what may be removed: no file is older for it than it is."""

from __future__ import annotations

import time
from collections.abc import Callable

# The time of day when this process began, as the clock that nobody sets counts from.
_BEGAN_AT = time.time() - time.monotonic()


def now_for_ages(
    time_of_day: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
    began_at: float = _BEGAN_AT,
) -> float:
    """Seconds since the epoch, as they went by since this process began: not as the time of day was set since.

    Set three days forwards, it would make a file that a writer is about to commit three days old. While the machine was
    suspended nobody could go on, so that does not count. Set back, the time of day itself is earlier, and counts.
    """
    return min(time_of_day(), began_at + clock())
