"""Writing a wave's queues and index files side by side, in tasks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from reput.sinks.dispatch.piece_entries import PieceEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.index.index_sink import IndexPut, IndexPutDone, put_keys_into_file
from reput.sinks.queue.consume_queue import QueueAppend, write_queue_appends
from reput.streaming.tasks.tasks import Tasks

# Fewer entries and queues, and fewer keys, are written here: this takes less time than a Spark job (0.2 s), and the
# tasks that read the next wave keep their cores.
_ENTRIES_A_JOB = 10_000_000
_QUEUES_A_JOB = 1_000
_KEYS_A_JOB = 2_000_000


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
            with closing(DurableFiles(root, whole=True)) as files:
                write_queue_appends(files, file_size, read, queues)

        total = sum(int(entries.counts[queue.number]) for queue in appends)
        if not paths or (total < _ENTRIES_A_JOB and len(appends) < _QUEUES_A_JOB):
            write(entries, appends)
            return
        shares = _shares(appends, entries, self._tasks.parallelism)

        def work(number: int) -> None:
            write(PieceEntries.read(paths), shares[number])

        self._tasks.run(work, len(shares))


class IndexPutTasks:
    """Puts a wave's keys into the index files below `root` side by side, those of each file in one task."""

    def __init__(self, tasks: Tasks, root: Path) -> None:
        self._tasks = tasks
        self._root = root

    def take(self, entries: PieceEntries) -> bool:
        """Whether the keys are so many that tasks put them sooner than the driver."""
        return entries.key_count >= _KEYS_A_JOB

    def __call__(self, entries: PieceEntries, puts: list[IndexPut]) -> list[IndexPutDone]:
        """Do ``put_keys_into_file`` for each of `puts`, whose keys are in `entries`; they are durable on return."""
        root = self._root
        # A task reads the files of pieces that have its keys, and no others.
        shares = [(put, *entries.paths_of_keys(put.begin, put.end)) for put in puts]

        def work(number: int) -> IndexPutDone:
            put, paths, before = shares[number]
            own = replace(put, begin=put.begin - before, end=put.end - before)
            with closing(DurableFiles(root, whole=True)) as files:
                return put_keys_into_file(files, PieceEntries.read(paths), own)

        return self._tasks.run(work, len(shares))


def _shares(appends: Sequence[QueueAppend], entries: PieceEntries, count: int) -> list[list[QueueAppend]]:
    """Deal the queues into shares: the largest one left goes to the share with the fewest entries."""
    sizes = [0] * count
    shares: list[list[QueueAppend]] = [[] for _ in range(count)]
    for queue in sorted(appends, key=lambda queue: -int(entries.counts[queue.number])):
        least = sizes.index(min(sizes))
        shares[least].append(queue)
        sizes[least] += int(entries.counts[queue.number])
    return [share for share in shares if share]
