"""What there is: rows, bytes and times, by queue, topic, kind and broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from reput.source.record.message_sys_flag import INNER_BATCH_FLAG
from reput.streaming.report.selection import CHOSEN, IS_QUEUED
from reput.streaming.sql.duckdb_query import TableStatements

#: The temporary table of queues, which later statements join with.
QUEUES: Final = "queues"
# One pass over the rows; all that is here is made of its result. A queue's bounds are those of what it can hold.
_MAKE_QUEUES: Final = f"""
CREATE TEMP TABLE {QUEUES} AS
SELECT broker, topic, queue_id, any_value(kind) AS kind, count(*) AS messages, sum(msg_size) AS size_bytes,
    min(store_time) AS first_time, max(store_time) AS last_time, count(store_time) AS with_time,
    min(queue_offset) FILTER (queue_offset >= 0 AND {IS_QUEUED}) AS first_offset,
    max(queue_offset) FILTER (queue_offset >= 0 AND {IS_QUEUED}) AS last_offset,
    count(*) FILTER ((queue_id < 0 OR queue_offset < 0) AND {IS_QUEUED}) AS in_no_queue,
    bool_or(sys_flag & {INNER_BATCH_FLAG} != 0) AS has_batches
FROM {CHOSEN} GROUP BY broker, topic, queue_id
"""
_LARGEST: Final = "ORDER BY sum(size_bytes) DESC, topic"
_SUMS: Final = (
    "CAST(sum(messages) AS BIGINT), CAST(sum(size_bytes) AS BIGINT), epoch_us(min(first_time)), "
    "epoch_us(max(last_time)), count(DISTINCT (broker, topic, queue_id))"
)


@dataclass(frozen=True)
class Group:
    """Rows that belong together: how many, their bytes in the log, first and last store time, queues.

    Times are microseconds since 1970, None where no row has one. `name` is a topic's, a kind's or a broker's; None
    stands for several together, or for what is not known.
    """

    name: str | None
    messages: int
    size_bytes: int
    first_us: int | None
    last_us: int | None
    queues: int


@dataclass(frozen=True)
class Contents:
    """All rows of a selection: the largest topics by bytes, and all others together; kinds and brokers by messages.

    `topics` and `brokers` are how many there are. `without_time` messages have no store time, `in_no_queue` a negative
    queue or number.
    """

    total: Group
    topics: int
    largest_topics: list[Group]
    other_topics: Group | None
    kinds: list[Group]
    largest_brokers: list[Group]
    brokers: int
    without_time: int
    in_no_queue: int


def contents_of(table: TableStatements, shown: int) -> Contents:
    """Read the contents, with so many topics, kinds and brokers; makes `QUEUES`."""
    table.run(_MAKE_QUEUES)
    ((topics, brokers, without_time, in_no_queue),) = table.rows(
        "SELECT count(DISTINCT topic), count(DISTINCT broker), CAST(coalesce(sum(messages - with_time), 0) AS BIGINT), "
        f"CAST(coalesce(sum(in_no_queue), 0) AS BIGINT) FROM {QUEUES}"
    )

    def most(column: str) -> list[Group]:
        order = f"ORDER BY sum(messages) DESC, {column} LIMIT ?"
        return _groups(table, f"SELECT {column}, {_SUMS} FROM {QUEUES} GROUP BY {column} {order}", shown)

    (total,) = _groups(table, f"SELECT NULL, {_SUMS} FROM {QUEUES}")
    largest = _groups(table, f"SELECT topic, {_SUMS} FROM {QUEUES} GROUP BY topic {_LARGEST} LIMIT ?", shown)
    others = _groups(
        table,
        f"WITH others AS (SELECT topic FROM {QUEUES} GROUP BY topic {_LARGEST} OFFSET ?) "
        f"SELECT NULL, {_SUMS} FROM {QUEUES} JOIN others USING (topic) HAVING count(*) > 0",
        shown,
    )
    return Contents(
        total=total,
        topics=topics,
        largest_topics=largest,
        other_topics=others[0] if others else None,
        kinds=most("kind"),
        largest_brokers=most("broker"),
        brokers=brokers,
        without_time=without_time,
        in_no_queue=in_no_queue,
    )


def _groups(table: TableStatements, text: str, *values: object) -> list[Group]:
    def group(row: tuple[Any, ...]) -> Group:
        name, messages, size_bytes, first, last, queues = row
        return Group(name, messages or 0, size_bytes or 0, first, last, queues)

    return [group(row) for row in table.rows(text, *values)]
