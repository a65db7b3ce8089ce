"""How values are spread: sizes of messages, and times from a producer to the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from reput.source.record.message_origin import NORMAL
from reput.streaming.report.selection import CHOSEN
from reput.streaming.sql.duckdb_query import TableStatements

# Of the values between two that differ less than so many times, there are steps of one width.
_EVEN_BELOW: Final = 16
_STEPS: Final = 16
_QUANTILES: Final = (0.0, 0.5, 0.9, 0.99, 1.0)
# What came without a detour: no delivery after a delay, no transaction, nothing that was sent back.
_SENT_AT_ONCE: Final = f"coalesce(kind, '{NORMAL}') = '{NORMAL}' AND real_topic IS NULL AND transaction_type = 'none'"


@dataclass(frozen=True)
class Distribution:
    """`values` in ascending order, and how often there is each."""

    values: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @property
    def total(self) -> int:
        """How many there are."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """The mean; there is at least one value."""
        return float(np.dot(self.values.astype(np.float64), self.counts)) / self.total

    def quantile(self, part: float) -> int:
        """The least value that at least `part` of them do not exceed; 0 gives the least of all."""
        ends = np.cumsum(self.counts)
        return int(self.values[np.searchsorted(ends, max(1, int(np.ceil(part * self.total))))])

    @property
    def quantiles(self) -> list[int]:
        """The least, the median, what 90 and 99 of 100 do not exceed, and the largest."""
        return [self.quantile(part) for part in _QUANTILES]

    def below(self, bound: int) -> int:
        """How many are less than `bound`."""
        return int(self.counts[: np.searchsorted(self.values, bound)].sum())

    def in_steps(self, edges: Sequence[int]) -> npt.NDArray[np.int64]:
        """How many are in each step ``[edge, next edge)``."""
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        return np.diff(ends[np.searchsorted(self.values, np.array(edges))])


def record_sizes(table: TableStatements) -> Distribution:
    """Sizes of messages in the log, in bytes."""
    return distribution_of(table, "msg_size", "true")


def body_sizes(table: TableStatements) -> Distribution:
    """Sizes of their bodies, as they are in the log, in bytes."""
    return distribution_of(table, "body_size", "true")


def delays(table: TableStatements) -> Distribution:
    """Milliseconds from born to stored, of messages that came without a detour; negative where clocks differ."""
    return distribution_of(table, "epoch_ms(store_time) - epoch_ms(born_time)", _SENT_AT_ONCE)


def distribution_of(table: TableStatements, value: str, condition: str) -> Distribution:
    """The values of an expression in the chosen rows that meet a condition, without NULL."""
    found = table.arrays(
        f"SELECT CAST({value} AS BIGINT) AS value, count(*) AS messages FROM {CHOSEN} "
        f"WHERE {condition} AND {value} IS NOT NULL GROUP BY value ORDER BY value"
    )
    return Distribution(np.asarray(found["value"], np.int64), np.asarray(found["messages"], np.int64))


def size_edges(sizes: Distribution) -> list[int]:
    """Edges of steps for a picture of sizes: even ones, or powers of two where sizes differ much."""
    low, high = int(sizes.values[0]), int(sizes.values[-1])
    if high < _EVEN_BELOW * max(1, low):
        width = _round_width((high - low) / _STEPS)
        return list(range(low // width * width, high + width + 1, width))
    first, last = max(0, low).bit_length() - 1, high.bit_length()
    return [*([0] if low < 1 else []), *(1 << power for power in range(max(0, first), last + 1))]


def delay_edges(times: Distribution) -> list[int]:
    """Edges of steps for a picture of times in milliseconds: 0, 1, 2, 5, 10, ...; what is below 0 is one step."""
    low, high = int(times.values[0]), int(times.values[-1])
    ladder = [0, *(n * 10**power for power in range(17) for n in (1, 2, 5))]
    first = max(0, int(np.searchsorted(ladder, max(0, low), side="right")) - 1)
    last = int(np.searchsorted(ladder, max(0, high), side="right"))
    return [*([low] if low < 0 else []), *ladder[first : last + 1]]


def _round_width(least: float) -> int:
    """The least of 1, 2, 5, 10, ... that is no less than `least`."""
    widths = [n * int(10**power) for power in range(12) for n in (1, 2, 5)]
    return next(width for width in widths if width >= least)
