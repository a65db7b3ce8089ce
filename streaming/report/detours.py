"""Messages that did not go straight to their consumers: those that wait, and those that consumers sent back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reput.source.record.message_origin import DELAYED, DLQ, HALF_DISCARDED, RETRY, TIMER
from reput.streaming.report.selection import CHOSEN
from reput.streaming.sql.duckdb_query import TableStatements

_WAIT_MS: Final = "epoch_ms(deliver_time) - epoch_ms(store_time)"


@dataclass(frozen=True)
class Waiting:
    """Messages of one `kind` that were to be delivered later: how long in milliseconds, and until when at the latest.

    `still` are those whose time is after the last row of the selection.
    """

    kind: str
    messages: int
    shortest_ms: int | None
    median_ms: int | None
    longest_ms: int | None
    last_us: int | None
    still: int


@dataclass(frozen=True)
class SentBack:
    """What consumers of a `group` sent back, and what they gave up; `most_times` is the most that one came back.

    `group` is None for several together.
    """

    group: str | None
    retries: int
    given_up: int
    most_times: int


@dataclass(frozen=True)
class Detours:
    """All of them; `discarded` are transactions that were checked in vain too often."""

    waiting: list[Waiting]
    groups: int
    largest_groups: list[SentBack]
    other_groups: SentBack | None
    retries: int
    given_up: int
    discarded: int


def detours_of(table: TableStatements, groups_shown: int) -> Detours:
    """Read them."""
    waiting = table.rows(
        f"SELECT kind, count(*), min({_WAIT_MS}), CAST(quantile_disc({_WAIT_MS}, 0.5) AS BIGINT), max({_WAIT_MS}), "
        f"epoch_us(max(deliver_time)), count(*) FILTER (deliver_time > (SELECT max(store_time) FROM {CHOSEN})) "
        f"FROM {CHOSEN} WHERE kind IN (?, ?) GROUP BY kind ORDER BY kind",
        DELAYED,
        TIMER,
    )
    table.run(
        "CREATE TEMP TABLE groups AS SELECT consumer_group AS name, count(*) FILTER (kind = ?) AS retries, "
        f"count(*) FILTER (kind = ?) AS given_up, max(reconsume_times) AS most_times FROM {CHOSEN} "
        "WHERE kind IN (?, ?) GROUP BY consumer_group",
        *(RETRY, DLQ, RETRY, DLQ),
    )
    order = "ORDER BY given_up DESC, retries DESC, name"
    largest = [SentBack(*row) for row in table.rows(f"FROM groups {order} LIMIT ?", groups_shown)]
    sums = "CAST(coalesce(sum(retries), 0) AS BIGINT), CAST(coalesce(sum(given_up), 0) AS BIGINT), max(most_times)"
    (others,) = table.rows(
        f"SELECT {sums}, count(*) FROM (FROM groups {order} OFFSET ?)",
        groups_shown,
    )
    ((retries, given_up, _, groups),) = table.rows(f"SELECT {sums}, count(*) FROM groups")
    ((discarded,),) = table.rows(f"SELECT count(*) FROM {CHOSEN} WHERE kind = ?", HALF_DISCARDED)
    return Detours(
        waiting=[Waiting(*row) for row in waiting],
        groups=groups,
        largest_groups=largest,
        other_groups=SentBack(None, *others[:3]) if others[3] else None,
        retries=retries,
        given_up=given_up,
        discarded=discarded,
    )
