"""The effects of a stretch of the log on queues, index and table, and their writers.

Tasks that read the stretch leave its effects. Before the sinks of queues and index get them, the driver records what is
left out of them (``QuarantineStep``). Each writer works on its own, so that queues, index and table are written side by
side.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.index.index_sink import IndexPut, IndexPutDone, IndexSink, put_keys_into_file
from reput.sinks.quarantine import EXPIRED, Quarantine, QuarantinedRange, load_quarantine
from reput.sinks.queue.consume_queue import (
    ConsumeQueueSink,
    QueueAppend,
    RefusedRecord,
    WriteAppends,
    write_queue_appends,
)
from reput.sinks.sink import Sink
from reput.sinks.table.location import TableLocation
from reput.sinks.table.message_table import MessageTable, TableBatch
from reput.sinks.table.quarantine_table import QuarantineTable
from reput.source.log.log_reader import LogReader
from reput.source.record.damage import HEAD_BYTES, DamagedRange
from reput.streaming.effects.range_task import RangeEffects
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.tasks.tasks import Tasks

_log = logging.getLogger("reput")


@dataclass(frozen=True)
class Effects:
    """The effects of `[start, end)` of the log.

    Attributes
    ----------
    batch
        Its records, entries and keys; None if neither queues nor index are made.
    table_files
        The table's files (``TABLE_FILE_SCHEMA``), None without a table.
    damaged
        The ranges that were passed over, in log order.
    """

    start: int
    end: int
    batch: LogicBatch | None
    table_files: pa.Table | None
    damaged: tuple[DamagedRange, ...] = ()

    @classmethod
    def of(cls, read: RangeEffects) -> Effects:
        """Return the effects of a range that was read."""
        table_files = read.table_file_rows() if read.table_files else None
        return cls(read.start, read.end, read.batch(), table_files, tuple(read.damaged))

    def sifted(self, quarantine: QuarantineStep | None) -> tuple[Effects, Lines]:
        """Return the effects that queues can take, and the quarantine's new lines; called before sinks write."""
        if quarantine is None:
            return self, ()
        if self.batch is None:
            return self, quarantine.write(self.end, self.damaged)
        batch, lines = quarantine(self.batch, self.damaged)
        return replace(self, batch=batch), lines

    @property
    def messages(self) -> int:
        """The number of records."""
        return self.batch.messages if self.batch else self.rows

    @property
    def rows(self) -> int:
        """The number of records that have a row in the table's files."""
        return 0 if self.table_files is None else sum(self.table_files["messages"].to_pylist())

    @property
    def keys(self) -> int:
        """The number of keys for the index."""
        return self.batch.entries.key_count if self.batch else 0


Lines = tuple[QuarantinedRange, ...]


def open_quarantine_table(
    table: TableLocation,
    broker: str,
    quarantine: Quarantine,
    output: Path,
    *,
    must_exist: bool = False,
) -> QuarantineTable:
    """Open the quarantine's table beside the message table `table`, and add the lines that it lacks.

    A run that died may have written lines only to `output`, which has those of `quarantine`. `must_exist` is as in
    ``DeltaTable.open_or_create``.
    """
    found = QuarantineTable(table, broker, must_exist=must_exist)
    lines = load_quarantine(output)
    found.repair(lines)
    found.write(quarantine.end_offset, lines)
    return found


@dataclass(frozen=True)
class QuarantineStep:
    """Records what is left out of a stretch of the log; each call returns the new lines.

    `queues` finds the records that queues cannot take; there is none without queues. `table` gets the same rows once
    they are in the output.
    """

    quarantine: Quarantine
    log: LogReader
    queues: ConsumeQueueSink | None
    table: QuarantineTable | None

    @property
    def end_offset(self) -> int:
        """The physical offset before which everything that was left out is on disk."""
        return self.quarantine.end_offset

    def __call__(self, batch: LogicBatch, damaged: tuple[DamagedRange, ...]) -> tuple[LogicBatch, Lines]:
        """Return the batch without what the queues cannot take, and the new lines."""
        refused: tuple[RefusedRecord, ...] = ()
        if self.queues is not None:
            batch, refused = self.queues.admission.sift(batch, self.queues.end_offset, self.queues.is_begun)
        return batch, self.write(batch.end, damaged, refused)

    def write(self, end: int, damaged: tuple[DamagedRange, ...], refused: Iterable[RefusedRecord] = ()) -> Lines:
        """Record what is left out of a stretch of the log that ends at `end`; return the new lines."""
        for record in refused:
            if record.physical_offset >= self.end_offset:
                begin, stop = record.physical_offset, record.physical_offset + record.msg_size
                damaged += (DamagedRange(begin, stop, record.cause, *self.log.look_at(begin, HEAD_BYTES)),)
        lines = self.quarantine.write(end, damaged)
        for line in lines:
            if line.cause == EXPIRED:  # the code that passes over it logs it
                continue
            _log.warning(
                "left out of the log at %d: %d bytes, %s, in %s",
                line.physical_offset,
                line.length,
                line.cause,
                line.file,
            )
        if self.table is not None and lines:
            self.table.write(end, lines)
        return lines


def writers_of(logic: LogicSinks) -> list[EffectsWriter]:
    """Return writers for the sinks that are switched on; each completes every batch on disk."""
    queues = [sink for sink in logic.sinks if sink is not logic.index]
    index = [] if logic.index is None else [IndexWriter(logic.index)]
    return [*([QueueWriter(queues)] if queues else []), *index]


def write_side_by_side(
    writers: Sequence[EffectsWriter], effects: Effects, *, more_follow: bool = False
) -> AnomalyCounts:
    """Have several writers add the same effects at the same time, durably, once; they must not share files.

    `more_follow` is as in ``EffectsWriter.write``. If one fails, its error is raised after all have ended.
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
        """The sinks to recover before the first effects (``logic_sinks.Recoverable``)."""

    def write(self, effects: Effects, *, more_follow: bool = False) -> AnomalyCounts:
        """Add effects, durably, once; see ``Sink.write``.

        With `more_follow`, a part that a recovery would make again may wait for a later call without it, or for
        `finish`.
        """

    def finish(self) -> None:
        """Complete, durably, what was left for the end."""


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
        """Do nothing: every write is complete."""


class IndexWriter:
    """Writes IndexFile."""

    def __init__(self, sink: IndexSink, tasks: IndexPutTasks | None = None) -> None:
        """`tasks` put many keys side by side; they leave the last file's slots for later."""
        self.sinks = (sink,)
        self._tasks = tasks

    def write(self, effects: Effects, *, more_follow: bool = False) -> AnomalyCounts:
        """Write the keys to the index; with `more_follow`, the last file's slots wait, because keys hit any of them."""
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
        """Do nothing: every write is complete."""


# ----------------------------------------------------------------------------------------------------------------------
# Writing a wave's queues and index files side by side, in tasks.

# The driver writes fewer entries, queues and keys than these itself: this takes less time than a Spark job (0.2 s), and
# the tasks that read the next wave keep their cores.
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
        """Whether there are so many keys that tasks put them sooner than the driver."""
        return entries.key_count >= _KEYS_A_JOB

    def __call__(self, entries: PieceEntries, puts: list[IndexPut]) -> list[IndexPutDone]:
        """Do ``put_keys_into_file`` for each of `puts`, whose keys are in `entries`; they are durable on return."""
        root = self._root
        # A task reads only the files of pieces that have its keys.
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
