"""The sinks of a rebuild: each takes a wave on its own, so that queues, index and table are written side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.wave import WaveEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.queue.consume_queue import ConsumeQueueSink, PlacedQueue, write_placed_queues
from reput.sinks.sink import Sink
from reput.sinks.table.message_table import MessageTable, TableBatch
from reput.streaming.tasks.tasks import Tasks

# Below so many entries and queues, writing them here takes less than a Spark job (0.2 s), and the tasks that read the
# next wave keep their cores.
_ENTRIES_A_JOB = 10_000_000
_QUEUES_A_JOB = 1_000

Write = Callable[[WaveEntries, list[PlacedQueue]], None]


@dataclass(frozen=True)
class WaveEffects:
    """What a wave does.

    Attributes
    ----------
    batch
        Its place and its records; None when neither queues nor index are made. Without `entries`, its effects too.
    entries
        Entries and keys.
    parts
        The table's files (``PART_SCHEMA``), None without a table.
    refused
        What queues do not take of `entries`; see ``QueueAdmission.refused_of_wave``.
    """

    batch: LogicBatch | None
    entries: WaveEntries | None
    parts: pa.Table | None
    refused: Mapping[int, int] = field(default_factory=dict)


class WaveWriter(Protocol):
    """One sink of a rebuild."""

    @property
    def sinks(self) -> Sequence[Any]:
        """What is recovered before the first wave (``startup.Recoverable``)."""

    def write(self, effects: WaveEffects) -> AnomalyCounts:
        """Add a wave's effects, durably, once; see ``Sink.write``."""

    def finish(self) -> None:
        """Complete what was left for the end, durably."""


class QueueWriter:
    """ConsumeQueue and what belongs to it."""

    def __init__(self, sinks: Sequence[Sink], write: Write) -> None:
        self.sinks = sinks
        self._write = write

    def write(self, effects: WaveEffects) -> AnomalyCounts:
        """See `WaveWriter`."""
        batch, entries = effects.batch, effects.entries
        assert batch is not None
        anomalies = NO_ANOMALIES
        for sink in self.sinks:
            if entries is None:
                anomalies += sink.write(batch)
            else:
                assert isinstance(sink, ConsumeQueueSink)
                refused = effects.refused
                anomalies += sink.write_wave(batch, entries, refused, lambda placed: self._write(entries, placed))
        return anomalies

    def finish(self) -> None:
        """See `WaveWriter`."""


class IndexWriter:
    """IndexFile."""

    def __init__(self, sink: IndexSink) -> None:
        self.sinks = (sink,)

    def write(self, effects: WaveEffects) -> AnomalyCounts:
        """See `WaveWriter`."""
        batch, entries = effects.batch, effects.entries
        assert batch is not None
        for sink in self.sinks:
            if entries is None:
                sink.write(batch)
            else:
                sink.write_wave(batch, entries.keys())
        return NO_ANOMALIES

    def finish(self) -> None:
        """See `WaveWriter`."""
        for sink in self.sinks:
            sink.finish()


class TableWriter:
    """The message table: its files are written by the tasks that read the log."""

    def __init__(self, table: MessageTable) -> None:
        self.table = table
        self.sinks = (table,)

    def write(self, effects: WaveEffects) -> AnomalyCounts:
        """See `WaveWriter`."""
        if effects.parts is not None:
            self.table.commit(TableBatch.merge(effects.parts))
        return NO_ANOMALIES

    def finish(self) -> None:
        """See `WaveWriter`."""


class PlacedQueueTasks:
    """Writes a wave's queues below `root` side by side, about the same number of entries in each task."""

    def __init__(self, tasks: Tasks, root: Path, mapped_file_size: int) -> None:
        self._tasks = tasks
        self._root = root
        self._file_size = mapped_file_size

    def __call__(self, entries: WaveEntries, placed: list[PlacedQueue]) -> None:
        """Write; durable on return."""
        root, file_size, paths = self._root, self._file_size, entries.paths

        def write(wave: WaveEntries, queues: list[PlacedQueue]) -> None:
            files = DurableFiles(root)
            try:
                write_placed_queues(files, file_size, wave, queues)
            finally:
                files.close()

        total = sum(int(entries.counts[queue.number]) for queue in placed)
        if total < _ENTRIES_A_JOB and len(placed) < _QUEUES_A_JOB:
            write(entries, placed)
            return
        shares = _shares(placed, entries, self._tasks.parallelism)

        def work(number: int) -> None:
            write(WaveEntries(paths), shares[number])

        self._tasks.run(work, len(shares))


def _shares(placed: Sequence[PlacedQueue], entries: WaveEntries, count: int) -> list[list[PlacedQueue]]:
    """Give the largest queue left to the share with the fewest entries."""
    sizes = [0] * count
    shares: list[list[PlacedQueue]] = [[] for _ in range(count)]
    for queue in sorted(placed, key=lambda queue: -int(entries.counts[queue.number])):
        least = sizes.index(min(sizes))
        shares[least].append(queue)
        sizes[least] += int(entries.counts[queue.number])
    return [share for share in shares if share]
