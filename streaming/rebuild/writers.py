"""The sinks of a rebuild: each takes a wave on its own, so that queues, index and table are written side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reput.sinks.dispatch.piece_entries import PieceEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.queue.consume_queue import PlacedQueue, write_placed_queues
from reput.streaming.tasks.tasks import Tasks

# Below so many entries and queues, writing them here takes less than a Spark job (0.2 s), and the tasks that read the
# next wave keep their cores.
_ENTRIES_A_JOB = 10_000_000
_QUEUES_A_JOB = 1_000


class PlacedQueueTasks:
    """Writes a wave's queues below `root` side by side, about the same number of entries in each task."""

    def __init__(self, tasks: Tasks, root: Path, mapped_file_size: int) -> None:
        self._tasks = tasks
        self._root = root
        self._file_size = mapped_file_size

    def __call__(self, entries: PieceEntries, placed: list[PlacedQueue]) -> None:
        """Write; durable on return."""
        root, file_size, paths = self._root, self._file_size, entries.paths

        def write(read: PieceEntries, queues: list[PlacedQueue]) -> None:
            files = DurableFiles(root)
            try:
                write_placed_queues(files, file_size, read, queues)
            finally:
                files.close()

        total = sum(int(entries.counts[queue.number]) for queue in placed)
        if not paths or (total < _ENTRIES_A_JOB and len(placed) < _QUEUES_A_JOB):
            write(entries, placed)
            return
        shares = _shares(placed, entries, self._tasks.parallelism)

        def work(number: int) -> None:
            write(PieceEntries.read(paths), shares[number])

        self._tasks.run(work, len(shares))


def _shares(placed: Sequence[PlacedQueue], entries: PieceEntries, count: int) -> list[list[PlacedQueue]]:
    """Give the largest queue left to the share with the fewest entries."""
    sizes = [0] * count
    shares: list[list[PlacedQueue]] = [[] for _ in range(count)]
    for queue in sorted(placed, key=lambda queue: -int(entries.counts[queue.number])):
        least = sizes.index(min(sizes))
        shares[least].append(queue)
        sizes[least] += int(entries.counts[queue.number])
    return [share for share in shares if share]
