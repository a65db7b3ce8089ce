"""How much was stored when: messages and bytes by steps of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from reput.source.record.message_origin import SENT_BACK
from reput.streaming.report.contents import Group
from reput.streaming.report.selection import CHOSEN
from reput.streaming.sql.duckdb_query import TableStatements

_MS, _S, _MIN, _H, _D = 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
# Widths of a step that people read easily, in microseconds; the last ones are for times that nobody meant.
_WIDTHS: Final = (
    *(n * _MS for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(n * _S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MIN for n in (1, 2, 5, 10, 15, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    *(n * _D for n in (1, 2, 7, 14, 28, 91, 182, 364, 1_820, 3_640, 18_200, 36_400)),
)
_STEPS_MAX: Final = 120
# Where two steps have all messages but this part, such as few with a wrong clock, the picture is of these two steps.
_LEFT_OUT_MAX: Final = 0.002


@dataclass(frozen=True)
class Throughput:
    """What was stored in each of consecutive steps, which are `width_us` long and begin at multiples of it.

    `outside` messages were stored before the first step or after the last one.
    """

    start_us: int
    width_us: int
    messages: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]
    sent_back: npt.NDArray[np.int64]
    outside: int

    @property
    def seconds(self) -> float:
        """The width of a step in seconds."""
        return self.width_us / 1e6


def throughput_of(table: TableStatements, total: Group) -> Throughput | None:
    """Messages and bytes over time; None if no row has a store time."""
    if total.first_us is None or total.last_us is None:
        return None
    found = _between(table, total.first_us, total.last_us)
    while (core := _core(found, total.messages)) is not None:
        low, high = core
        ((first, last),) = table.rows(
            f"SELECT min(epoch_us(store_time)), max(epoch_us(store_time)) FROM {CHOSEN} "
            f"WHERE epoch_us(store_time) >= {low} AND epoch_us(store_time) < {high}"
        )
        found = _between(table, first, last)
    return found


def _between(table: TableStatements, first: int, last: int) -> Throughput:
    """Steps from the one with the time `first` to the one with `last`."""
    width = step_width(last - first)
    start, count = first // width, last // width - first // width + 1
    kinds = ", ".join(f"'{kind}'" for kind in sorted(SENT_BACK))
    # DuckDB's division of whole numbers rounds towards 0.
    found = table.arrays(
        f"SELECT epoch_us(store_time) // {width} - CAST(epoch_us(store_time) % {width} < 0 AS BIGINT) AS step, "
        f"count(*) AS messages, CAST(coalesce(sum(msg_size), 0) AS BIGINT) AS size_bytes, "
        f"count(*) FILTER (kind IN ({kinds})) AS sent_back FROM {CHOSEN} "
        "WHERE store_time IS NOT NULL GROUP BY step"
    )
    step = found["step"] - start
    is_inside = (step >= 0) & (step < count)

    def placed(name: str) -> npt.NDArray[np.int64]:
        values = np.zeros(count, np.int64)
        values[step[is_inside]] = found[name][is_inside]
        return values

    outside = int(found["messages"][~is_inside].sum())
    return Throughput(start * width, width, placed("messages"), placed("size_bytes"), placed("sent_back"), outside)


def _core(found: Throughput, messages: int) -> tuple[int, int] | None:
    """The bounds in microseconds of two steps in a row that have nearly all messages, if others are beside them."""
    if found.width_us == _WIDTHS[0] or len(found.messages) <= 2:
        return None
    pairs = found.messages[:-1] + found.messages[1:]
    best = int(pairs.argmax())
    if pairs[best] < messages * (1 - _LEFT_OUT_MAX):
        return None
    low = found.start_us + best * found.width_us
    return low, low + 2 * found.width_us


def step_width(span_us: int) -> int:
    """The narrowest width of which at most 120 steps cover a time of `span_us` microseconds."""
    return next((width for width in _WIDTHS if span_us < width * (_STEPS_MAX - 1)), _WIDTHS[-1])
