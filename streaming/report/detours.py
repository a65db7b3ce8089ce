"""Messages that did not go straight to their consumers: those that wait, and those that consumers sent back."""

from __future__ import annotations

from dataclasses import dataclass

from reput.source.record.message_origin import DELAYED, DLQ, HALF_DISCARDED, RECALL, RETRY, TIMER
from reput.streaming.report.distribution import Distribution, distribution_of
from reput.streaming.report.selection import CHOSEN
from reput.streaming.sql.duckdb_query import TableStatements


@dataclass(frozen=True)
class Waiting:
    """Messages of one `kind` that were to be delivered later: how long, and until when at the latest.

    `still` are those whose time is after the last row of the selection; None is without a time.
    """

    kind: str
    messages: int
    waits_ms: Distribution | None
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
        waiting=[found for kind in (DELAYED, TIMER) if (found := _waiting(table, kind)) is not None],
        groups=groups,
        largest_groups=largest,
        other_groups=SentBack(None, *others[:3]) if others[3] else None,
        retries=retries,
        given_up=given_up,
        discarded=discarded,
    )


def _waiting(table: TableStatements, kind: str) -> Waiting | None:
    """Those of one kind: each message once, by the first row that it has there, without those that were recalled."""
    is_one = f"kind = '{kind}' AND properties['TIMER_ROLL_TIMES'] IS NULL"
    recalled = f"SELECT uniq_key FROM {CHOSEN} WHERE kind = '{RECALL}' AND uniq_key IS NOT NULL"
    is_one += f" AND (uniq_key IS NULL OR uniq_key NOT IN ({recalled}))"
    ((messages, last, still),) = table.rows(
        f"SELECT count(*), epoch_us(max(deliver_time)), "
        f"count(*) FILTER (deliver_time > (SELECT max(store_time) FROM {CHOSEN})) FROM {CHOSEN} WHERE {is_one}",
    )
    if not messages:
        return None
    waits = distribution_of(table, "epoch_ms(deliver_time) - epoch_ms(store_time)", is_one)
    return Waiting(kind, messages, waits if waits.total else None, last, still)
