"""One queue's ConsumeQueue files, and the sink that keeps all of them.

``ConsumeQueue#putMessagePositionInfo`` and ``#recover`` of 4.9.3. The rules marked (A), (C), (D), (E) are the broker's:
already built, a queue that begins in the middle, repeated, a gap.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reput.sinks.consume_queue_format import CQ_STORE_UNIT_SIZE, ENTRY, PRE_BLANK
from reput.sinks.durable_file import DurableFiles
from reput.sinks.logic_batch import LogicBatch, QueueEntries
from reput.sinks.queue_files import QueueKind, Units
from reput.sinks.queue_sink import Placement, Queue, QueueSink
from reput.sinks.store_path import CONSUME_QUEUE, consume_queue_directory
from reput.source.batch_decoder import Int64s
from reput.source.errors import SinkError

_log = logging.getLogger(__name__)

_LOGIC_OFFSET_MAX = 2**63 - 1

_KIND = QueueKind(CONSUME_QUEUE, consume_queue_directory, ENTRY, "mappedFileSizeConsumeQueue")
MAPPED_FILE_SIZE_CONSUME_QUEUE = 300_000 * CQ_STORE_UNIT_SIZE


def rounded_file_size(configured: int) -> int:
    """The size of a file in bytes: the setting rounded up to whole entries (``getMappedFileSizeConsumeQueue``)."""
    return -(-configured // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE


@dataclass
class ConsumeQueue(Queue):
    """One queue and the broker's rules for its next entry."""

    def place(self, incoming: QueueEntries, file_size: int) -> Placement:
        """See ``Queue.place``.

        Raises
        ------
        SinkError
            The queue is new and cannot begin where the first record says.
        """
        entries, queue_offsets = incoming.entries, incoming.queue_offsets
        view = entries.view(ENTRY)[:, 0]
        begin, blanks, empty_file = self.end, 0, None
        if not self.files:
            expected = int(queue_offsets[0]) * CQ_STORE_UNIT_SIZE
            if not 0 <= expected <= _LOGIC_OFFSET_MAX - file_size:
                msg = (
                    f"the first record of {self.topic!r}-{self.queue_id}, at offset {int(view['physical_offset'][0])}, "
                    f"has queue offset {int(queue_offsets[0])}: no queue begins there, the record is damaged"
                )
                raise SinkError(msg)
            blanks = expected % file_size // CQ_STORE_UNIT_SIZE  # (C)
            begin = expected - expected % file_size
            self.end = expected
        if not self._is_regular(view, queue_offsets):
            accepted, repeated_at = self._accepted(view, queue_offsets)
            entries = entries[accepted]
            view = entries.view(ENTRY)[:, 0]
            after = self.end + len(view) * CQ_STORE_UNIT_SIZE
            if repeated_at == after and after % file_size == 0 and after not in self.files:
                empty_file = after
        if len(view):
            self.end += len(view) * CQ_STORE_UNIT_SIZE
            self.max_physic_offset = int(view["physical_offset"][-1]) + int(view["msg_size"][-1])
        if blanks:
            blank = np.full(blanks, PRE_BLANK).view(np.uint8).reshape(-1, CQ_STORE_UNIT_SIZE)
            entries = np.concatenate([blank, entries])
        return Placement(begin, entries, empty_file)

    def _is_regular(self, view: np.ndarray[Any, Any], queue_offsets: Int64s) -> bool:
        places = view["physical_offset"]
        return (
            int(queue_offsets[0]) * CQ_STORE_UNIT_SIZE == self.end
            and int(places[0]) + int(view["msg_size"][0]) > self.max_physic_offset
            and bool((np.diff(queue_offsets) == 1).all())
            and bool((places[1:] > places[:-1]).all())  # multi dispatch may send a message to its own queue again
        )

    def _accepted(self, view: np.ndarray[Any, Any], queue_offsets: Int64s) -> tuple[list[int], int]:
        """The rows the broker would append, one by one, when the queue offsets do not simply run on.

        And where the queue ended when the last repeated record came, -1 without one.
        """
        accepted, repeated_at = [], -1
        end, reached = self.end, self.max_physic_offset
        for row, queue_offset in enumerate(queue_offsets.tolist()):
            after = int(view["physical_offset"][row]) + int(view["msg_size"][row])
            if after <= reached:  # (A)
                continue
            expected = queue_offset * CQ_STORE_UNIT_SIZE
            if queue_offset != 0 and expected < end:  # (D)
                repeated_at = end
                continue
            if queue_offset != 0 and expected != end:  # (E)
                _log.warning(
                    "queue order of %r-%d: the record at %d has queue offset %d, the queue ends at %d",
                    self.topic,
                    self.queue_id,
                    int(view["physical_offset"][row]),
                    queue_offset,
                    end // CQ_STORE_UNIT_SIZE,
                )
            accepted.append(row)
            reached, end = after, end + CQ_STORE_UNIT_SIZE
        return accepted, repeated_at

    def adopt(self, units: Units) -> bool:
        """See ``Queue.adopt``."""
        real = np.flatnonzero(units["msg_size"] != PRE_BLANK["msg_size"])
        if not len(real):
            return False
        last = units[int(real[-1])]
        self.max_physic_offset = int(last["physical_offset"]) + int(last["msg_size"])
        return True


class ConsumeQueueSink(QueueSink):
    """Keeps ``consumequeue/`` from the log."""

    name = "consumequeue"

    def __init__(
        self,
        files: DurableFiles,
        mapped_file_size: int = MAPPED_FILE_SIZE_CONSUME_QUEUE,
        ext_file_size: int | None = None,
    ) -> None:
        """`mapped_file_size` is ``mappedFileSizeConsumeQueue`` in bytes, rounded up to whole entries.

        `ext_file_size` is ``mappedFileSizeConsumeQueueExt`` in bytes, None for ``enableConsumeQueueExt=false``.
        """
        super().__init__(files, _KIND, rounded_file_size(mapped_file_size))

    def _new_queue(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        return ConsumeQueue(topic, queue_id)

    def _incoming(self, batch: LogicBatch) -> Sequence[QueueEntries]:
        return batch.queues
