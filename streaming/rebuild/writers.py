"""How a rebuild writes a wave's queues: side by side, in tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reput.sinks.dispatch.piece_entries import PieceEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.queue.consume_queue import QueueAppend, write_queue_appends
from reput.streaming.tasks.tasks import Tasks

# Fewer entries and queues are written here: this takes less time than a Spark job (0.2 s), and the tasks that read the
# next wave keep their cores.
_ENTRIES_A_JOB = 10_000_000
_QUEUES_A_JOB = 1_000


class QueueAppendTasks:
    """Writes a wave's queues below `root` side by side, with about the same number of entries in each task."""

    def __init__(self, tasks: Tasks, root: Path, mapped_file_size: int) -> None:
        self._tasks = tasks
        self._root = root
        self._file_size = mapped_file_size

    def __call__(self, entries: PieceEntries, appends: list[QueueAppend]) -> None:
        """Write `appends`, whose entries are in `entries`; they are durable on return."""
        root, file_size, paths = self._root, self._file_size, entries.paths

        def write(read: PieceEntries, queues: list[QueueAppend]) -> None:
            files = DurableFiles(root)
            try:
                write_queue_appends(files, file_size, read, queues)
            finally:
                files.close()

        total = sum(int(entries.counts[queue.number]) for queue in appends)
        if not paths or (total < _ENTRIES_A_JOB and len(appends) < _QUEUES_A_JOB):
            write(entries, appends)
            return
        shares = _shares(appends, entries, self._tasks.parallelism)

        def work(number: int) -> None:
            write(PieceEntries.read(paths), shares[number])

        self._tasks.run(work, len(shares))


def _shares(appends: Sequence[QueueAppend], entries: PieceEntries, count: int) -> list[list[QueueAppend]]:
    """Deal the queues into shares: the largest one left goes to the share with the fewest entries."""
    sizes = [0] * count
    shares: list[list[QueueAppend]] = [[] for _ in range(count)]
    for queue in sorted(appends, key=lambda queue: -int(entries.counts[queue.number])):
        least = sizes.index(min(sizes))
        shares[least].append(queue)
        sizes[least] += int(entries.counts[queue.number])
    return [share for share in shares if share]
