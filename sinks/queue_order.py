"""The broker's rules for records whose queue offsets do not simply run on (``ConsumeQueue#putMessagePositionInfo``).

The letters are those of ``consume_queue``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reput.sinks.anomalies import AnomalyCounts, OutOfOrder
from reput.sinks.consume_queue_format import CQ_STORE_UNIT_SIZE, ENTRY
from reput.source.batch_decoder import Bytes, Int64s


class RowByRow:
    """Which rows of one queue the broker would append, and what they count as.

    Attributes
    ----------
    accepted
        The rows that get an entry.
    end
        Where the queue ends behind them, in bytes.
    repeated_at
        Where the queue ended when the last repeated record came, -1 without one.
    first_out_of_order
        The first record whose queue offset is not where the queue ended; None without one.
    """

    def __init__(self, end: int, max_physic_offset: int) -> None:
        self.accepted: list[int] = []
        self.end = end
        self.repeated_at = -1
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
        """Take `entries` (uint8[n, 20]) in log order."""
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
                    self.first_out_of_order = OutOfOrder(places[row], queue_offset, self.end // CQ_STORE_UNIT_SIZE)
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
