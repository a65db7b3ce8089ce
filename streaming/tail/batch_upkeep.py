"""When a growing table is tidied: behind micro-batches, and when a run ends with the log."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from reput.sinks.table.upkeep import TableUpkeep, UpkeepDone
from reput.source import system

#: How long a run that ends with the log may remove expired files, and merge small ones; the next run does the rest.
SECONDS_AT_END = 30.0


class BatchUpkeep:
    """When a table that grows is tidied, and for how long.

    A merge of many small files writes one in some tens of milliseconds, one of files that are merged ones themselves
    takes seconds. So that no micro-batch waits for it, a thread writes its files beside the next ones.
    """

    def __init__(
        self, table: TableUpkeep, seconds: float, full_batch: int, report: Callable[[UpkeepDone], None]
    ) -> None:
        """`table` is tidied; `report` is told what was done.

        A step begins nothing further when `seconds` are over. A batch has `full_batch` bytes of the log when the log
        goes on behind it.
        """
        self._table = table
        self._seconds = seconds
        self._full_batch = full_batch
        self._report = report
        self._writer = ThreadPoolExecutor(1, "reput-merge")

    def after_batch(self, read_bytes: int) -> None:
        """Tidy a while after a batch of so many bytes; a table that is far behind catches up first."""
        if read_bytes < self._full_batch // 2:
            self._step()

    def look(self) -> None:
        """Commit a merge whose files have been written since the last batch."""
        if self._table.has_written:
            self._step()

    def _step(self) -> None:
        done = self._table.step(self._seconds, beside=self._writer)
        if done.merges:
            system.give_back(after_s=system.BEHIND_MUCH_S)
        self._report(done)

    def at_end(self) -> None:
        """Merge small files after the last batch; there may be many when each batch had little of the log."""
        self._report(self._table.step(SECONDS_AT_END, sorts=False))

    def close(self) -> None:
        """Wait for the thread, and remove what it wrote of a merge that was not committed."""
        self._table.give_up()
        self._writer.shutdown()
