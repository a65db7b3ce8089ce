"""The offsets of consumer groups at a time, from the ledger of consumption, beside their present ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from reput.sinks.table.location import TableLocation, consumption_table_path
from reput.source.errors import OptionError, OutputError
from reput.source.log.store_layout import COMMIT_LOG
from reput.source.options import nearest, shown
from reput.source.times import time_of, utc_text
from reput.streaming.ask.store_relations import consumer_offsets
from reput.streaming.ask.values import literal
from reput.streaming.config.consumer_offsets import CONSUMER_OFFSETS
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.sql.duckdb_query import duckdb_query
from reput.streaming.sql.output import ListedResult

_COLUMNS: Final = (
    "broker",
    "consumer_group",
    "topic",
    "queue_id",
    "consumer_offset",
    "reached_by",
    "offset_now",
    "messages",
)
_QUEUE: Final = "broker, consumer_group, topic, queue_id"
# An offset counts if it was seen by the time. Where the group may have been reset back by then, the lesser one counts.
_STATEMENT: Final = """
WITH reached AS (
  SELECT *, row_number() OVER (PARTITION BY {queue} ORDER BY seen_after DESC) AS from_last
  FROM messages WHERE seen_after <= {at}
), in_doubt AS (
  SELECT {queue}, min(offset_after) AS least FROM messages
  WHERE seen_after > {at} AND (seen_before IS NULL OR seen_before < {at}) AND move = 'reset_back'
  GROUP BY {queue}
)
SELECT reached.broker, reached.consumer_group, reached.topic, reached.queue_id,
  CASE WHEN in_doubt.least < reached.offset_after THEN in_doubt.least ELSE reached.offset_after END AS consumer_offset,
  reached.seen_after AS reached_by
FROM reached
LEFT JOIN in_doubt ON in_doubt.broker = reached.broker AND in_doubt.consumer_group = reached.consumer_group
  AND in_doubt.topic = reached.topic AND in_doubt.queue_id = reached.queue_id
WHERE reached.from_last = 1 AND reached.offset_after IS NOT NULL
ORDER BY reached.broker, reached.consumer_group, reached.topic, reached.queue_id
"""


class OffsetAt(NamedTuple):
    """The offset of a group in a queue at a time, never ahead of what was seen by then. It was seen at `reached_by`."""

    broker: str
    group: str
    topic: str
    queue_id: int
    offset: int
    reached_by: datetime


def offsets_at(table: TableLocation, at_ms: int, broker: str | None) -> list[OffsetAt]:
    """Return the offsets at `at_ms`, milliseconds since 1970, from the ledger beside the message table `table`.

    Raises
    ------
    OptionError
        The broker is not in the ledger, or was not watched yet.
    OutputError
        There is no ledger, or it cannot be read.
    """
    path = consumption_table_path(table)
    known = "SELECT broker, min(seen_after) AS begin FROM messages GROUP BY broker ORDER BY broker"
    with duckdb_query(path, known) as result:
        begins = {str(name): begin for name, begin in result.rows()}
    if not begins:
        raise OutputError(f"{path} has no rows: no consumer group was seen", file=path)
    if broker is not None and broker not in begins:
        raise OptionError(
            f"the ledger has no offset of the broker {shown(broker)}", advice=_meant(nearest(broker, begins), begins)
        )
    begin = min(begins.values()) if broker is None else begins[broker]
    at = time_of(at_ms)
    if at < begin:
        words = f"the offsets of that time are unknown: they are watched since {utc_text(begin)}"
        raise OptionError(words, advice="give a later --at")
    statement = _STATEMENT.format(queue=_QUEUE, at=literal("time", at, for_spark=False))
    with duckdb_query(path, statement) as result:
        found = [OffsetAt(*row) for row in result.rows()]
    return [each for each in found if broker in (None, each.broker)]


def _meant(found: Sequence[str], known: Iterable[str]) -> str:
    return f"is {' or '.join(map(shown, found))} meant?" if found else f"it has {', '.join(map(shown, known))}"


def offsets_now(config: PipelineConfig) -> dict[tuple[str, str, int], int]:
    """Return the present offsets in a store, by group, topic and queue; empty if the store lost the file."""
    if not any((config.store / "config" / name).exists() for name in (CONSUMER_OFFSETS, f"{CONSUMER_OFFSETS}.bak")):
        return {}
    rows = consumer_offsets(config.store, enable_lmq=config.broker.enable_lmq)
    return {(group, topic, queue_id): offset for group, topic, queue_id, offset in rows}


def one_broker(offsets: Sequence[OffsetAt]) -> str:
    """Return the broker of the offsets; raise OptionError if there are several, because a file is of one broker."""
    names = sorted({each.broker for each in offsets})
    if len(names) > 1:
        raise OptionError(f"the ledger has offsets of {', '.join(map(shown, names))}", advice="give --broker")
    return names[0] if names else ""


def as_rows(offsets: Sequence[OffsetAt], now: dict[tuple[str, str, int], int] | None) -> ListedResult:
    """Return a row for each offset, with the present one and the number of messages between them."""
    return ListedResult(_COLUMNS, [*_rows(offsets, {} if now is None else now)])


def _rows(offsets: Sequence[OffsetAt], now: dict[tuple[str, str, int], int]) -> Iterator[Sequence[Any]]:
    left = dict(now)
    for each in offsets:
        present = left.pop(each[1:4], None)
        yield *each, present, None if present is None else present - each.offset
    broker = one_broker(offsets) if left else ""
    for (group, topic, queue_id), offset in sorted(left.items()):
        yield broker, group, topic, queue_id, None, None, offset, None


def difference(offsets: Sequence[OffsetAt], now: dict[tuple[str, str, int], int]) -> str:
    """Summarise, in a few words, how the offsets differ from those of `now`."""
    rows = [*_rows(offsets, now)]
    behind = sum(row[7] is not None and row[7] > 0 for row in rows)
    ahead = sum(row[7] is not None and row[7] < 0 for row in rows)
    missing, more = sum(row[6] is None for row in rows), sum(row[4] is None for row in rows)
    same = len(rows) - behind - ahead - missing - more
    return (
        f"against the store: {same} queues have the same offset, {behind} have a smaller one than the store, {ahead} a "
        f"larger one, {missing} have none in the store, {more} have one in the store alone"
    )


def write_consumer_offsets(offsets: Sequence[OffsetAt], out: TextIO) -> None:
    """Write the offsets of one broker as the ``consumerOffset.json`` that it reads at its start."""
    groups: dict[str, list[str]] = {}
    for each in offsets:
        groups.setdefault(f"{each.topic}@{each.group}", []).append(f"{each.queue_id}:{each.offset}")
    lines = (f"\t\t{json.dumps(name)}:{{{','.join(queues)}\n\t\t}}" for name, queues in groups.items())
    table = ",\n".join(lines)
    out.write(f'{{\n\t"offsetTable":{{\n{table}\n\t}}\n}}')


def check_not_in_a_store(path: Path) -> None:
    """Raise OptionError for a file in a broker's store: an operator puts it there while the broker is stopped."""
    if any((directory / COMMIT_LOG).is_dir() for directory in path.resolve().parents):
        raise OptionError(
            f"--result {path} is in a broker's store, where nothing is written",
            advice="write it elsewhere, and copy it to config/ while the broker is stopped",
        )
