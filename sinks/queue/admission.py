"""Records that no queue can take: topic or queue id cannot be a directory, or no queue can begin at their offset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import QueueEntries
from reput.sinks.dispatch.runs import LOGIC_OFFSET_MAX
from reput.sinks.files.store_path import consume_queue_directory
from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, ENTRY
from reput.source.arrays import Int64s
from reput.source.errors import SinkError

HOSTILE_TOPIC = "HOSTILE_TOPIC"
NEGATIVE_QUEUE_ID = "NEGATIVE_QUEUE_ID"
BAD_QUEUE_OFFSET = "BAD_QUEUE_OFFSET"


@dataclass(frozen=True)
class RefusedRecord:
    """A sound record that gets no queue entry: its physical offset, its size in bytes, and the cause."""

    physical_offset: int
    msg_size: int
    cause: str


@dataclass(frozen=True)
class QueueAdmission:
    """Which records a queue can take.

    Attributes
    ----------
    file_size
        The size of a ConsumeQueue file in bytes; a queue's last file must still have a name.
    first_queue_offset_max
        The largest queue offset (an index) at which a queue may begin; None for any possible one.
    """

    file_size: int
    first_queue_offset_max: int | None = None

    def can_begin(self, queue_offsets: Int64s) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether a queue can begin at each of these queue offsets, bool[n]."""
        most = (LOGIC_OFFSET_MAX - self.file_size) // CQ_STORE_UNIT_SIZE
        if self.first_queue_offset_max is not None:
            most = min(most, self.first_queue_offset_max)
        return (queue_offsets >= 0) & (queue_offsets <= most)

    def sift(
        self, batch: LogicBatch, end_offset: int, is_begun: Callable[[bytes, int], bool]
    ) -> tuple[LogicBatch, tuple[RefusedRecord, ...]]:
        """The batch without the entries that no queue can take, and their records, in log order, each once.

        `end_offset` is where the queues end. `is_begun` is whether a queue has entries already; such a queue takes
        any queue offset.
        """
        refused: dict[int, RefusedRecord] = {}
        counts: dict[tuple[bytes, int], int] = {}
        later = batch.after(end_offset).entries
        begins = self.can_begin(later.first_queue_offsets)
        for number, (topic, queue_id) in enumerate(later.queues):
            # The entries of a queue that has begun are not looked at: there may be many.
            if is_begun(topic, queue_id) or (begins[number] and not _cause_of_name(topic, queue_id)):
                continue
            queue = later.queue_entries(number)
            counts[topic, queue_id], cause = self._refused_count(queue)
            refused |= {each.physical_offset: each for each in _refused(queue, counts[topic, queue_id], cause)}
        # A BatchConsumeQueue always begins at byte 0, regardless of its first record.
        nameless = [queue for queue in batch.entries.batch_queues() if _cause_of_name(queue.topic, queue.queue_id)]
        for queue in nameless:
            cause = _cause_of_name(queue.topic, queue.queue_id)
            refused |= {each.physical_offset: each for each in _refused(queue, len(queue.entries), cause)}
        if refused:
            names = [(queue.topic, queue.queue_id) for queue in nameless]
            batch = replace(batch, entries=batch.entries.without(counts, end_offset, names))
        return batch, tuple(refused[offset] for offset in sorted(refused))

    def _refused_count(self, queue: QueueEntries) -> tuple[int, str]:
        """How many of its first entries a queue that has not begun refuses, and why."""
        if cause := _cause_of_name(queue.topic, queue.queue_id):
            return len(queue.entries), cause
        good = self.can_begin(queue.queue_offsets)
        return (int(np.argmax(good)) if good.any() else len(good)), BAD_QUEUE_OFFSET


def _cause_of_name(topic: bytes, queue_id: int) -> str:
    """Why topic and queue id cannot be a directory; empty where they can."""
    if queue_id < 0:
        return NEGATIVE_QUEUE_ID
    try:
        consume_queue_directory(topic, queue_id)
    except SinkError:
        return HOSTILE_TOPIC
    return ""


def _refused(queue: QueueEntries, count: int, cause: str) -> Iterator[RefusedRecord]:
    """The records of the first `count` entries, by the two fields with which entries of every kind begin."""
    head = ENTRY["physical_offset"].itemsize + ENTRY["msg_size"].itemsize
    fields = np.dtype([(name, ENTRY[name]) for name in ("physical_offset", "msg_size")])
    for unit in np.ascontiguousarray(queue.entries[:count, :head]).view(fields)[:, 0]:
        yield RefusedRecord(int(unit["physical_offset"]), int(unit["msg_size"]), cause)
