"""Whether the messages of each queue are numbered without a gap or a repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reput.streaming.report.contents import QUEUES
from reput.streaming.report.selection import IS_QUEUED, OF_TOPICS
from reput.streaming.sql.duckdb_query import TableStatements

# Each 64 consecutive numbers of a queue are one row with a bit for each that is there, so a queue of any length is
# looked at in one pass, in little memory. Rows outside the chosen period count as well: between a queue's first and
# last chosen number nothing is missing that the table has. Queues of batches count several numbers a message.
_MAKE_ORDER: Final = f"""
CREATE TEMP TABLE queue_order AS
WITH numbers AS (
    SELECT broker, topic, queue_id, queue_offset // 64 AS part, count(*) AS messages,
        bit_or(CAST(1 AS UBIGINT) << (queue_offset % 64)) AS bits
    FROM (SELECT r.broker, r.topic, r.queue_id, r.queue_offset
        FROM {OF_TOPICS} AS r JOIN {QUEUES} AS q
        ON r.broker = q.broker AND r.topic = q.topic AND r.queue_id = q.queue_id
        WHERE {IS_QUEUED} AND NOT q.has_batches AND q.queue_id >= 0
            AND r.queue_offset BETWEEN q.first_offset AND q.last_offset)
    GROUP BY broker, topic, queue_id, part)
SELECT broker, topic, queue_id, any_value(first_offset) AS first_offset, any_value(last_offset) AS last_offset,
    any_value(last_offset) - any_value(first_offset) + 1 - CAST(sum(bit_count(bits)) AS HUGEINT) AS missing,
    CAST(sum(numbers.messages) AS HUGEINT) - CAST(sum(bit_count(bits)) AS HUGEINT) AS repeated
FROM numbers JOIN {QUEUES} USING (broker, topic, queue_id)
GROUP BY broker, topic, queue_id
"""


@dataclass(frozen=True)
class QueueOrder:
    """One queue between the first and the last number, both inclusive, of its chosen messages.

    `missing` numbers are of no message; `repeated` messages have a number that another one has, too.
    """

    broker: str
    topic: str
    queue_id: int
    first_offset: int
    last_offset: int
    missing: int
    repeated: int


@dataclass(frozen=True)
class Order:
    """All queues: sums, how many were looked at, how many are `disordered`, and the worst of these.

    `of_batches` queues were left out, as their messages take several numbers each.
    """

    queues: int
    missing: int
    repeated: int
    disordered: int
    worst: list[QueueOrder]
    of_batches: int


def order_of(table: TableStatements, queues_shown: int) -> Order:
    """Look at all queues; `QUEUES` must be there."""
    table.run(_MAKE_ORDER)
    is_disordered = "missing > 0 OR repeated > 0"
    ((queues, missing, repeated, disordered),) = table.rows(
        "SELECT count(*), coalesce(sum(missing), 0), coalesce(sum(repeated), 0), "
        f"count(*) FILTER ({is_disordered}) FROM queue_order"
    )
    worst = table.rows(
        f"FROM queue_order WHERE {is_disordered} ORDER BY missing + repeated DESC, broker, topic, queue_id LIMIT ?",
        queues_shown,
    )
    ((of_batches,),) = table.rows(f"SELECT count(*) FROM {QUEUES} WHERE has_batches")
    return Order(
        queues=queues,
        missing=int(missing),
        repeated=int(repeated),
        disordered=disordered,
        worst=[QueueOrder(*row[:5], *map(int, row[5:])) for row in worst],
        of_batches=of_batches,
    )
