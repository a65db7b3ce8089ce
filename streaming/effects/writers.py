"""The writers of effects: each works on its own, so that queues, index and table are written side by side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.index.index_sink import IndexPut, IndexPutDone, IndexSink, put_keys_into_file
from reput.sinks.queue.consume_queue import ConsumeQueueSink, QueueAppend, WriteAppends, write_queue_appends
from reput.sinks.sink import Sink
from reput.sinks.table.message_table import MessageTable, TableBatch
from reput.streaming.effects.effects import Effects
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.tasks.tasks import Tasks


def writers_of(logic: LogicSinks) -> list[EffectsWriter]:
    """Writers for the sinks that are switched on, each of which completes every batch on disk."""
    queues = [sink for sink in logic.sinks if sink is not logic.index]
    index = [] if logic.index is None else [IndexWriter(logic.index)]
    return [*([QueueWriter(queues)] if queues else []), *index]


def write_side_by_side(
    writers: Sequence[EffectsWriter], effects: Effects, *, more_follow: bool = False
) -> AnomalyCounts:
    """Have several writers add the same effects at the same time, durably, once; no two of them may share their files.

    `more_follow` as in ``EffectsWriter.write``. If one fails, its error is raised once all have ended.
    """
    if not writers:
        return NO_ANOMALIES
    first, *others = writers
    with ThreadPoolExecutor(max(1, len(others)), "reput-writer") as pool:
        writes = [partial(writer.write, effects, more_follow=more_follow) for writer in others]
        written = [pool.submit(copy_context().run, write) for write in writes]
        anomalies = first.write(effects, more_follow=more_follow)
    return sum((each.result() for each in written), anomalies)


class EffectsWriter(Protocol):
    """Writes one kind of files."""

    @property
    def sinks(self) -> Sequence[Any]:
        """The sinks to recover before the first effects (``startup.Recoverable``)."""

    def write(self, effects: Effects, *, more_follow: bool = False) -> AnomalyCounts:
        """Add effects, durably, once; see ``Sink.write``.

        Where `more_follow`, a part may wait for a later call without it, or for `finish`: what a recovery makes again.
        """

    def finish(self) -> None:
        """Complete what was left for the end, durably."""


class QueueWriter:
    """Writes ConsumeQueue and its kin."""

    def __init__(self, sinks: Sequence[Sink], write_appends: WriteAppends | None = None) -> None:
        """`write_appends` as in ``ConsumeQueueSink.write``."""
        self.sinks = sinks
        self._write_appends = write_appends

    def write(self, effects: Effects, *, more_follow: bool = False) -> AnomalyCounts:  # noqa: ARG002
        """Write the effects to each queue sink."""
        assert effects.batch is not None
        anomalies = NO_ANOMALIES
        for sink in self.sinks:
            if isinstance(sink, ConsumeQueueSink):
                anomalies += sink.write(effects.batch, self._write_appends)
            else:
                anomalies += sink.write(effects.batch)
        return anomalies

    def finish(self) -> None:
        """Nothing is left for the end."""


class IndexWriter:
    """Writes IndexFile."""

    def __init__(self, sink: IndexSink, tasks: IndexPutTasks | None = None) -> None:
        """`tasks` put many keys side by side; they leave the last file's slots for later."""
        self.sinks = (sink,)
        self._tasks = tasks

    def write(self, effects: Effects, *, more_follow: bool = False) -> AnomalyCounts:
        """Write the keys to the index; where `more_follow`, the last file's slots wait, of which keys hit any."""
        assert effects.batch is not None
        put_keys = self._tasks if self._tasks and self._tasks.take(effects.batch.entries) else None
        for sink in self.sinks:
            sink.write(effects.batch, slots_later=more_follow, put_keys=put_keys)
        return NO_ANOMALIES

    def finish(self) -> None:
        """Write the slots that were left for the end."""
        for sink in self.sinks:
            sink.finish()


class TableWriter:
    """Commits the message table's files, which the tasks that read the log have written."""

    def __init__(self, table: MessageTable) -> None:
        self.table = table
        self.sinks = (table,)

    def write(self, effects: Effects, *, more_follow: bool = False) -> AnomalyCounts:  # noqa: ARG002
        """Commit the files of the effects."""
        if effects.table_files is not None:
            self.table.commit(TableBatch.merge(effects.table_files))
        return NO_ANOMALIES

    def finish(self) -> None:
        """Nothing is left for the end."""


# ----------------------------------------------------------------------------------------------------------------------
# Writing a wave's queues and index files side by side, in tasks.

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
