"""The BatchConsumeQueue of 5.x: a 46-byte entry for each inner batch, for topics with ``queue.type=BatchCQ``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts, BatchAnomalies
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import QueueEntries
from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, batch_consume_queue_directory
from reput.sinks.formats.consume_queue import BATCH_ENTRY, BATCH_STORE_UNIT_SIZE
from reput.sinks.queue.consume_queue import KIND
from reput.sinks.queue.queue_reader import QueueKind, QueueReader, Units
from reput.sinks.queue.queue_sink import Append, Queue, QueueSink
from reput.sinks.sink import not_yet_written
from reput.source.arrays import Int64s
from reput.source.errors import OptionError

_log = logging.getLogger(__name__)

MAPPED_FILE_SIZE_BATCH_CONSUME_QUEUE = 300_000 * BATCH_STORE_UNIT_SIZE

_SETTING = "mapperFileSizeBatchConsumeQueue"
BATCH_KIND = QueueKind(BATCH_CONSUME_QUEUE, batch_consume_queue_directory, BATCH_ENTRY, _SETTING)


def queues_of_wrong_kind(root: Path, batch_topics: frozenset[bytes]) -> Iterator[tuple[QueueKind, bytes, int]]:
    """The directories of queues below `root` whose kind is not their topic's, in order, also empty ones.

    With one of them a broker of 5.x does not start (``ConsumeQueueStore#queueTypeShouldBe``).
    """
    for kind, is_batch in ((KIND, False), (BATCH_KIND, True)):
        for topic, queue_id in kind.queues(root):
            if (topic in batch_topics) != is_batch:
                yield kind, topic, queue_id


def queues_of_kind(kind: QueueKind, entries: PieceEntries) -> Iterator[QueueEntries]:
    """The entries of each queue of one kind."""
    return entries.batch_queues() if kind is BATCH_KIND else entries.all_queues()


def offsets_of_batches(disk: QueueReader, first: int, least: int, end: int) -> tuple[int, int]:
    """The queue offsets of the units `[least, end)` of a queue whose first remaining file begins with unit `first`.

    An inner batch has several. The last unit before `least`, if it exists, shows where they begin
    (``BatchConsumeQueue#correctMinOffset`` and ``#reviseMaxOffsetInQueue``). Without a unit both are 0.
    """
    if end <= first:
        return 0, 0
    before, last = disk.read(max(first, least - 1), 1)[0], disk.read(end - 1, 1)[0]
    begin = int(before["msg_base_offset"])
    if least > first:
        begin += int(before["batch_size"])
    return begin, int(last["msg_base_offset"]) + int(last["batch_size"])


@dataclass
class BatchConsumeQueue(Queue):
    """One queue; its first file begins at byte 0. `max_physic_offset` is where the last record begins, not its end."""

    max_physic_offset: int = -1

    def plan_append(self, incoming: QueueEntries, file_size: int) -> Append:  # noqa: ARG002  begins are never computed
        """Append all entries that are not built yet (``#putBatchMessagePositionInfo``)."""
        begin = self.end
        physical_offsets = incoming.entries.view(BATCH_ENTRY)["physical_offset"][:, 0]
        entries = incoming.entries[physical_offsets > self.max_physic_offset]
        if len(entries):
            self.max_physic_offset = int(physical_offsets[-1])
            self.end += entries.size
        return Append(begin, entries, anomalies=AnomalyCounts(already_built=len(physical_offsets) - len(entries)))

    def unbuilt(self, incoming: QueueEntries) -> tuple[Int64s, Int64s]:
        """See ``Queue.unbuilt``: an entry takes as many queue offsets as its batch has messages."""
        units = incoming.entries.view(BATCH_ENTRY)[:, 0]
        rows = np.flatnonzero(units["physical_offset"] > self.max_physic_offset)
        return rows, units["batch_size"][rows].astype(np.int64)

    def adopt(self, units: Units) -> bool:
        """Take `max_physic_offset` from the last unit; False without one."""
        if len(units):
            self.max_physic_offset = int(units["physical_offset"][-1])
        return bool(len(units))


class BatchConsumeQueueSink(QueueSink):
    """Keeps ``batchconsumequeue/`` from the log."""

    name = "batchconsumequeue"

    def __init__(
        self,
        files: DurableFiles,
        mapped_file_size: int = MAPPED_FILE_SIZE_BATCH_CONSUME_QUEUE,
        *,
        keeps_later_life: bool = False,
    ) -> None:
        """Take ``mapperFileSizeBatchConsumeQueue`` in bytes; `keeps_later_life` as in ``ConsumeQueueSink``.

        Raises
        ------
        OptionError
            `mapped_file_size` is not a multiple of 46: a broker cannot fill such a file.
        """
        if mapped_file_size % BATCH_STORE_UNIT_SIZE:
            raise OptionError(f"{_SETTING}={mapped_file_size}: a multiple of {BATCH_STORE_UNIT_SIZE} bytes wanted")
        super().__init__(files, BATCH_KIND, mapped_file_size, keeps_later_life=keeps_later_life)

    def _new_queue(self, topic: bytes, queue_id: int) -> BatchConsumeQueue:
        return BatchConsumeQueue(topic, queue_id)

    def write(self, batch: LogicBatch) -> AnomalyCounts:
        """Append the batch's inner batches; see ``Sink.write``."""
        rest = not_yet_written(self.name, self.end_offset, batch)
        if rest is None:
            return NO_ANOMALIES
        met = BatchAnomalies(_log)
        self._announce_removal(rest.entries.batch_queues())
        for incoming in rest.entries.batch_queues():
            self._append_noting(incoming, met)
        self._commit(batch)
        return met.close()
