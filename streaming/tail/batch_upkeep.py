"""When a growing table is tidied: between micro-batches, and when a run ends with the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reput.sinks.table.upkeep import TableUpkeep, UpkeepDone
from reput.streaming.process import memory

#: How long a run that ends with the log may remove expired files, and merge small ones; the next run does the rest.
SECONDS_AT_END = 30.0


@dataclass(frozen=True)
class BatchUpkeep:
    """When a table that grows is tidied, and for how long.

    Attributes
    ----------
    table
        What is tidied.
    seconds
        After these, following a batch, no further merge is begun.
    full_batch
        How many bytes of the log a batch has when the log goes on behind it.
    report
        Is told what was done.
    """

    table: TableUpkeep
    seconds: float
    full_batch: int
    report: Callable[[UpkeepDone], None]

    def after_batch(self, read_bytes: int) -> None:
        """Tidy a while after a batch of so many bytes; a table that is far behind catches up first."""
        if read_bytes < self.full_batch // 2:
            done = self.table.step(self.seconds)
            if done.merges:
                memory.give_back(after_s=memory.BEHIND_MUCH_S)
            self.report(done)

    def at_end(self) -> None:
        """Merge small files after the last batch; there may be many when each batch had little of the log."""
        self.report(self.table.step(SECONDS_AT_END, sorts=False))
