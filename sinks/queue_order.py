"""Where the broker's rules put a queue's entries (``ConsumeQueue#putMessagePositionInfo`` of 4.9.3).

The rules marked (A), (C), (D), (E) are the broker's: already built, a queue that begins in the middle, repeated, a gap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts, OutOfOrder
from reput.sinks.consume_queue_format import CQ_STORE_UNIT_SIZE, ENTRY, PRE_BLANK
from reput.source.batch_decoder import Bytes, Int64s
from reput.source.errors import SinkError

_LOGIC_OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True)
class Placement:
    """What is written to a queue: `entries` (uint8[n, 20]) from byte `begin` of the queue on.

    `empty_file` is where a file begins that gets no entry: the broker makes a full queue's next file before it finds
    that the record is a repeated one. `anomalies` counts what was not in order, `first_out_of_order` says where.
    """

    begin: int
    entries: Bytes
    empty_file: int | None = None
    anomalies: AnomalyCounts = NO_ANOMALIES
    first_out_of_order: OutOfOrder | None = None


@dataclass
class ConsumeQueue:
    """Where one queue's next entry goes. Offsets in bytes of the queue, but `max_physic_offset` in the log."""

    topic: bytes
    queue_id: int
    end: int = 0
    files: list[int] = field(default_factory=list)  # where each file begins
    max_physic_offset: int = 0

    def place(self, entries: Bytes, queue_offsets: Int64s, file_size: int) -> Placement:
        """Decide where `entries` (uint8[n, 20], in log order) go, and move `end` and `max_physic_offset`.

        Raises
        ------
        SinkError
            The queue is empty, and none can begin at the first queue offset.
        """
        begin, blanks, anomalies = self.end, 0, NO_ANOMALIES
        if not self.files:
            self.end = self._first_end(entries, queue_offsets, file_size)
            blanks = self.end % file_size // CQ_STORE_UNIT_SIZE  # (C)
            begin = self.end - self.end % file_size
            anomalies = AnomalyCounts(pre_blank=1) if self.end else NO_ANOMALIES
        empty_file, first = None, None
        ahead = int(queue_offsets[0]) * CQ_STORE_UNIT_SIZE - self.end
        if ahead < 0 or not self._runs_on(entries, queue_offsets):
            rows = _OneByOne(self.end, self.max_physic_offset)
            rows.take(entries, queue_offsets)
            entries, first = entries[rows.accepted], rows.first_out_of_order
            anomalies += rows.anomalies
            after = rows.end
            if rows.repeated_at == after and after % file_size == 0 and after not in self.files:
                empty_file = after
        elif ahead:  # (E): behind one gap, every later record of the queue is out of place
            anomalies += AnomalyCounts(gap=len(entries))
            first = _out_of_order(entries, queue_offsets, self.end)
        if len(entries):
            last = entries.view(ENTRY)[-1, 0]
            self.end += len(entries) * CQ_STORE_UNIT_SIZE
            self.max_physic_offset = int(last["physical_offset"]) + int(last["msg_size"])
        if blanks:
            blank = np.full(blanks, PRE_BLANK).view(np.uint8).reshape(-1, CQ_STORE_UNIT_SIZE)
            entries = np.concatenate([blank, entries])
        return Placement(begin, entries, empty_file, anomalies, first)

    def _first_end(self, entries: Bytes, queue_offsets: Int64s, file_size: int) -> int:
        """Where the first entry of an empty queue goes."""
        expected = int(queue_offsets[0]) * CQ_STORE_UNIT_SIZE
        if not 0 <= expected <= _LOGIC_OFFSET_MAX - file_size:
            at = int(entries.view(ENTRY)[0, 0]["physical_offset"])
            msg = (
                f"the first record of {self.topic!r}-{self.queue_id}, at offset {at}, has queue offset "
                f"{int(queue_offsets[0])}: no queue begins there, the record is damaged"
            )
            raise SinkError(msg)
        return expected

    def _runs_on(self, entries: Bytes, queue_offsets: Int64s) -> bool:
        """Whether every record is new and its queue offset the one after its predecessor's."""
        first = entries.view(ENTRY)[0, 0]
        return (
            int(first["physical_offset"]) + int(first["msg_size"]) > self.max_physic_offset
            and int(queue_offsets[-1]) * CQ_STORE_UNIT_SIZE <= _LOGIC_OFFSET_MAX
            and bool((np.diff(queue_offsets) == 1).all())
        )


def _out_of_order(entries: Bytes, queue_offsets: Int64s, end: int, row: int = 0) -> OutOfOrder:
    place = int(entries.view(ENTRY)[row, 0]["physical_offset"])
    return OutOfOrder(place, int(queue_offsets[row]), end // CQ_STORE_UNIT_SIZE)


class _OneByOne:
    """The rows the broker would append, where the queue offsets do not simply run on."""

    def __init__(self, end: int, max_physic_offset: int) -> None:
        self.end = end
        self.accepted: list[int] = []
        self.repeated_at = -1  # where the queue ended when the last repeated record came
        self.first_out_of_order: OutOfOrder | None = None
        self._reached = max_physic_offset
        self._already_built = self._repeated = self._gap = self._queue_restart = 0

    @property
    def anomalies(self) -> AnomalyCounts:
        """What the rows taken so far count as."""
        return AnomalyCounts(
            already_built=self._already_built,
            repeated=self._repeated,
            gap=self._gap,
            queue_restart=self._queue_restart,
        )

    def take(self, entries: Bytes, queue_offsets: Int64s) -> None:
        """Take the rows in log order."""
        view: np.ndarray[Any, Any] = entries.view(ENTRY)[:, 0]
        places = view["physical_offset"].tolist()
        sizes = view["msg_size"].tolist()
        # As in Java, a product beyond 64 bits wraps.
        expected = (queue_offsets * CQ_STORE_UNIT_SIZE).tolist()
        for row, queue_offset in enumerate(queue_offsets.tolist()):
            after = places[row] + sizes[row]
            if after <= self._reached:  # (A)
                self._already_built += 1
                continue
            if expected[row] != self.end:
                if self.first_out_of_order is None:
                    self.first_out_of_order = _out_of_order(entries, queue_offsets, self.end, row)
                if queue_offset == 0:
                    self._queue_restart += 1
                elif expected[row] < self.end:  # (D)
                    self.repeated_at = self.end
                    self._repeated += 1
                    continue
                else:  # (E)
                    self._gap += 1
            self.accepted.append(row)
            self._reached = after
            self.end += CQ_STORE_UNIT_SIZE
