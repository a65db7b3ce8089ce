"""Collecting cyclic garbage in a process that runs for years.

pyspark leaves its objects in cycles, and each that is not collected keeps an object in the JVM alive. A command sets
Python's own threshold so high that it would find them after hours.
"""

from __future__ import annotations

import gc
import time

_COLLECTED_EVERY_S = 30.0


class GarbageCollector:
    """Collects at a steady pace; made when all that stays is loaded, which is not looked at."""

    def __init__(self) -> None:
        gc.freeze()  # without a collection, which would take 0.2 s of the first micro-batch
        self._collected_at = time.monotonic()

    def step(self) -> None:
        """Collect, if it is time: some milliseconds."""
        if time.monotonic() - self._collected_at >= _COLLECTED_EVERY_S:
            gc.collect()
            self._collected_at = time.monotonic()
