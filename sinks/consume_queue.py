"""One queue's ConsumeQueue files, and the sink that keeps all of them.

``ConsumeQueue#putMessagePositionInfo`` and ``#recover`` of 4.9.3. The rules marked (A), (C), (D), (E) are the broker's:
already built, a queue that begins in the middle, repeated, a gap; ``queue_order`` has those that take a look at each
record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts, OutOfOrder
from reput.sinks.consume_queue_ext import ConsumeQueueExt
from reput.sinks.consume_queue_ext_format import MAX_ADDR
from reput.sinks.consume_queue_format import CQ_STORE_UNIT_SIZE, ENTRY, PRE_BLANK
from reput.sinks.durable_file import DurableFiles
from reput.sinks.logic_batch import ExtUnits, LogicBatch, QueueEntries
from reput.sinks.queue_admission import QueueAdmission
from reput.sinks.queue_files import QueueKind, Units, queue_directories
from reput.sinks.queue_order import RowByRow
from reput.sinks.queue_sink import Placement, Queue, QueueSink
from reput.sinks.store_path import CONSUME_QUEUE, CONSUME_QUEUE_EXT, consume_queue_directory
from reput.source.batch_decoder import Bytes, Int64s
from reput.source.errors import SinkError

_LOGIC_OFFSET_MAX = 2**63 - 1
_WAY_OUT = "onDamage=quarantine leaves such records out of the queues and records them"

KIND = QueueKind(CONSUME_QUEUE, consume_queue_directory, ENTRY, "mappedFileSizeConsumeQueue")
MAPPED_FILE_SIZE_CONSUME_QUEUE = 300_000 * CQ_STORE_UNIT_SIZE


def rounded_file_size(configured: int) -> int:
    """The size of a file in bytes: the setting rounded up to whole entries (``getMappedFileSizeConsumeQueue``)."""
    return -(-configured // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE


@dataclass
class ConsumeQueue(Queue):
    """One queue and the broker's rules for its next entry; see ``QueueAdmission`` for the bound."""

    first_queue_offset_max: int | None = None

    def place(self, incoming: QueueEntries, file_size: int) -> Placement:
        """See ``Queue.place``.

        Raises
        ------
        SinkError
            The queue is new and cannot begin where the first record says.
        """
        entries, queue_offsets = incoming.entries, incoming.queue_offsets
        begin, blanks, anomalies = self.end, 0, NO_ANOMALIES
        if not self.files:
            self.end = self._first_end(entries, queue_offsets, file_size)
            blanks = self.end % file_size // CQ_STORE_UNIT_SIZE  # (C)
            begin = self.end - self.end % file_size
            anomalies = AnomalyCounts(pre_blank=1) if self.end else NO_ANOMALIES
        empty_file = first = None
        ahead = int(queue_offsets[0]) * CQ_STORE_UNIT_SIZE - self.end
        if ahead < 0 or not self._runs_on(entries, queue_offsets):
            rows = RowByRow(self.end, self.max_physic_offset)
            rows.take(entries, queue_offsets)
            entries, first = entries[rows.accepted], rows.first_out_of_order
            anomalies += rows.anomalies
            if rows.repeated_at == rows.end and rows.end % file_size == 0 and rows.end not in self.files:
                empty_file = rows.end
        elif ahead:  # (E): behind one gap, every later record of the queue is out of place
            anomalies += AnomalyCounts(gap=len(entries))
            at = int(entries.view(ENTRY)[0, 0]["physical_offset"])
            first = OutOfOrder(at, int(queue_offsets[0]), self.end // CQ_STORE_UNIT_SIZE)
        if len(entries):
            last = entries.view(ENTRY)[-1, 0]
            self.end += len(entries) * CQ_STORE_UNIT_SIZE
            self.max_physic_offset = int(last["physical_offset"]) + int(last["msg_size"])
        if blanks:
            blank = np.full(blanks, PRE_BLANK).view(np.uint8).reshape(-1, CQ_STORE_UNIT_SIZE)
            entries = np.concatenate([blank, entries])
        return Placement(begin, entries, empty_file, anomalies, first)

    def _first_end(self, entries: Bytes, queue_offsets: Int64s, file_size: int) -> int:
        """Where the first entry of a queue goes."""
        expected = int(queue_offsets[0]) * CQ_STORE_UNIT_SIZE
        if not QueueAdmission(file_size, self.first_queue_offset_max).begins(queue_offsets[:1])[0]:
            at = int(entries.view(ENTRY)[0, 0]["physical_offset"])
            msg = (
                f"the first record of {self.topic!r}-{self.queue_id}, at offset {at}, has queue offset "
                f"{int(queue_offsets[0])}: no queue begins there, the record is damaged; {_WAY_OUT}"
            )
            raise SinkError(msg)
        return expected

    def _runs_on(self, entries: Bytes, queue_offsets: Int64s) -> bool:
        """Whether every record is new and its queue offset the one after its predecessor's."""
        view = entries.view(ENTRY)[:, 0]
        places = view["physical_offset"]
        return (
            int(places[0]) + int(view["msg_size"][0]) > self.max_physic_offset
            and int(queue_offsets[0]) <= int(queue_offsets[-1]) <= _LOGIC_OFFSET_MAX // CQ_STORE_UNIT_SIZE
            and bool((np.diff(queue_offsets) == 1).all())  # it is 1 from Long.MAX_VALUE to Long.MIN_VALUE, too
            and bool((places[1:] > places[:-1]).all())  # multi dispatch may send a message to its own queue again
        )

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
        first_queue_offset_max: int | None = None,
    ) -> None:
        """`mapped_file_size` is ``mappedFileSizeConsumeQueue`` in bytes, rounded up to whole entries.

        `ext_file_size` is ``mappedFileSizeConsumeQueueExt`` in bytes, None for ``enableConsumeQueueExt=false``;
        `first_queue_offset_max` is the largest queue offset (an index) at which a queue may begin.
        """
        super().__init__(files, KIND, rounded_file_size(mapped_file_size))
        self.admission = QueueAdmission(rounded_file_size(mapped_file_size), first_queue_offset_max)
        self._ext_file_size = ext_file_size
        self._exts: dict[tuple[bytes, int], ConsumeQueueExt] = {}

    def is_begun(self, topic: bytes, queue_id: int) -> bool:
        """Whether the queue has entries."""
        return (topic, queue_id) in self._queues

    def _new_queue(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        return ConsumeQueue(topic, queue_id, first_queue_offset_max=self.admission.first_queue_offset_max)

    def _incoming(self, batch: LogicBatch) -> Sequence[QueueEntries]:
        return batch.queues

    def _append(self, incoming: QueueEntries) -> Placement:
        try:
            consume_queue_directory(incoming.topic, incoming.queue_id)
        except SinkError as error:
            at = int(incoming.entries.view(ENTRY)[0, 0]["physical_offset"])
            msg = f"the record at offset {at}: {error}; {_WAY_OUT}"
            raise SinkError(msg) from error
        if self._ext_file_size is not None and incoming.ext is not None:
            incoming = replace(incoming, entries=self._put_ext_units(incoming, incoming.ext, self._ext_file_size))
        return super()._append(incoming)

    def _put_ext_units(self, incoming: QueueEntries, units: ExtUnits, file_size: int) -> Bytes:
        """The entries with the addresses of their units in place of the tags codes.

        A repeated record gets a unit again, which no entry points to: the broker puts it before it looks.
        """
        key = (incoming.topic, incoming.queue_id)
        if key not in self._exts:
            self._exts[key] = ConsumeQueueExt(self._durable, *key, file_size)
        entries = incoming.entries.copy()
        codes = entries.view(ENTRY)["tags_code"][:, 0]
        tags_codes = codes[units.is_put].astype(np.int64)
        bit_maps = [bits for bits, is_put in zip(units.bit_maps, units.is_put.tolist(), strict=True) if is_put]
        addresses = self._exts[key].put(tags_codes, units.store_timestamps[units.is_put], bit_maps)
        codes[units.is_put] = np.where(addresses <= MAX_ADDR, addresses, tags_codes)
        return entries

    def _load_queues(self, end_offset: int | None) -> None:
        super()._load_queues(end_offset)
        if self._ext_file_size is None:
            return
        self._exts.clear()
        for key in queue_directories(self._durable.root / CONSUME_QUEUE_EXT):
            ext = self._exts[key] = ConsumeQueueExt(self._durable, *key, self._ext_file_size)
            ext.recover()
            address = self._last_address(*key)
            if address is not None:
                ext.truncate_by_max_address(address)
            elif end_offset is not None:  # units of a batch that was not finished
                ext.destroy()
        self._durable.sync()

    def _last_address(self, topic: bytes, queue_id: int) -> int | None:
        """The address in the queue's last entry that has one."""
        queue = self._queues.get((topic, queue_id))
        for file in reversed(queue.files if queue else []):
            codes = self._files.written(topic, queue_id, file)["tags_code"]
            found = np.flatnonzero(codes <= MAX_ADDR)
            if len(found):
                return int(codes[found[-1]])
        return None
