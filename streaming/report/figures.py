"""All figures of the page, computed once from one version of the table.

`Selection` says which rows a report is about. Findings are sentences that a reader must know, the gravest first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from reput.sinks.quarantine import load_quarantine
from reput.sinks.table.columns import BODY_SCHEMA
from reput.sinks.table.location import TableLocation, consumption_table_path, quarantine_table_path
from reput.sinks.table.retention import RetentionRule
from reput.source.errors import OptionError, OutputError, UnknownNameError
from reput.source.options import nearest, shown
from reput.source.record.message_format import INNER_BATCH_FLAG
from reput.source.record.message_origin import DELAYED, DLQ, HALF_DISCARDED, NORMAL, RECALL, RETRY, SENT_BACK, TIMER
from reput.streaming.config.run_options import SqlOptions
from reput.streaming.output.paths import check_table
from reput.streaming.report.markup import count, milliseconds, name_text, number
from reput.streaming.sql.duckdb_query import TableStatements, table_statements, text_literal
from reput.streaming.status.batch_report import size_text
from reput.streaming.status.run_state import State
from reput.streaming.status.status_document import load_status, status_of

#: The view of the chosen rows, and that of every row of the chosen topics.
CHOSEN, OF_TOPICS = "chosen", "of_topics"
#: Whether a row has a place in a queue: the beginning and the rollback of a transaction do not.
IS_QUEUED: Final = "transaction_type IN ('none', 'commit')"

# The columns that the report reads, with DuckDB's types. Tables of earlier versions of reput lack the later ones.
_COLUMNS: Final = {
    "broker": "VARCHAR",
    "topic": "VARCHAR",
    "queue_id": "INTEGER",
    "queue_offset": "BIGINT",
    "msg_size": "INTEGER",
    "body_size": "INTEGER",
    "store_time": "TIMESTAMPTZ",
    "born_time": "TIMESTAMPTZ",
    "sys_flag": "INTEGER",
    "transaction_type": "VARCHAR",
    "reconsume_times": "INTEGER",
    "real_topic": "VARCHAR",
}
_LATER_COLUMNS: Final = {
    "kind": "VARCHAR",
    "consumer_group": "VARCHAR",
    "deliver_time": "TIMESTAMPTZ",
    "uniq_key": "VARCHAR",
    "properties": "MAP(VARCHAR, VARCHAR)",
}

_TIMES: Final = ("store_time", "deliver_time")
# The years 1 to 9999.
_FIRST_MS: Final = -62_135_596_800_000
_END_MS: Final = 253_402_300_800_000


@dataclass(frozen=True)
class Selection:
    """Rows of topics that match `topic`, in which ``*`` stands for any text, stored in ``[since_ms, until_ms)``.

    Times are milliseconds since 1970; None means no bound. A row without a store time is in no period.
    """

    topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def __post_init__(self) -> None:
        for limit in (self.since_ms, self.until_ms):
            if limit is not None and not _FIRST_MS <= limit < _END_MS:
                raise OptionError(f"a time of {limit} ms is outside the years 1 to 9999")
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise OptionError("--until must be later than --since: no time is between them")

    @property
    def is_all(self) -> bool:
        """Whether all rows are chosen."""
        return self == Selection()

    def make_views(self, table: TableStatements) -> None:
        """Make the views `CHOSEN` and `OF_TOPICS`, with the columns that a report needs.

        Raises
        ------
        OutputError
            reput did not make the table.
        UnknownNameError
            No topic of the table matches.
        """
        names = {name.lower() for name in table.version.column_names}
        if missing := [name for name in _COLUMNS if name not in names]:
            raise OutputError(
                f"this is not a message table of reput: it has no column {missing[0]}",
                advice="give the directory that 'reput tail --table' made",
                file=table.version.storage.location,
            )
        rows = ", ".join(_column(name, kind, names) for name, kind in (_COLUMNS | _LATER_COLUMNS).items())
        topics = self._topics()
        period = [
            f"messages.store_time {sign} make_timestamptz({1_000 * time})"
            for sign, time in ((">=", self.since_ms), ("<", self.until_ms))
            if time is not None
        ]
        table.run(f"CREATE TEMP VIEW {OF_TOPICS} AS SELECT {rows} FROM messages WHERE {topics}")
        if self.topic is not None and not table.rows(f"SELECT 1 FROM {OF_TOPICS} LIMIT 1"):
            known = [name for (name,) in table.rows("SELECT DISTINCT topic FROM messages WHERE topic IS NOT NULL")]
            if known:
                words = f"nothing found: no topic of the table matches {shown(self.topic)}"
                raise UnknownNameError(words, nearest=nearest(self.topic, known))
        table.run(f"CREATE TEMP VIEW {CHOSEN} AS SELECT {rows} FROM messages WHERE {' AND '.join([topics, *period])}")

    def moves(self) -> tuple[str, str]:
        """Return conditions for rows of the ledger: before the period's end, and after its begin."""
        topics = self._topics()
        if self.until_ms is not None:
            topics += f" AND seen_after < make_timestamptz({1_000 * self.until_ms})"
        return topics, "true" if self.since_ms is None else f"seen_after >= make_timestamptz({1_000 * self.since_ms})"

    def _topics(self) -> str:
        like = None if self.topic is None else RetentionRule(self.topic, None).like()
        return "true" if like is None else f"topic LIKE {text_literal(like)} ESCAPE '!'"


def _column(name: str, kind: str, names: Collection[str]) -> str:
    """Return a column of the views: NULL if it is not among `names`, and for a time outside the years 1 to 9999."""
    if name not in names:
        return f"CAST(NULL AS {kind}) AS {name}"
    if name not in _TIMES:
        return name
    return f"CASE WHEN epoch_ms({name}) BETWEEN {_FIRST_MS} AND {_END_MS - 1} THEN {name} END AS {name}"


# ----------------------------------------------------------------------------------------------------------------------
# Rows, bytes and times, by queue, topic, kind and broker.

#: The temporary table of queues, which later statements join with.
QUEUES: Final = "queues"
# One pass over the rows; this part is made of its result. A queue's bounds are those of the messages that it can hold.
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
    """A group of rows: how many, their bytes in the log, first and last store time, queues.

    Times are microseconds since 1970, None if no row has one. `name` is that of a topic, a kind or a broker; None
    stands for several together, or for an unknown name.
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

    `topics` and `brokers` are the numbers of them. `without_time` messages have no store time, `in_no_queue` a negative
    queue or queue offset.
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
    """Read the contents, with at most `shown` topics, kinds and brokers; make `QUEUES`."""
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


# ----------------------------------------------------------------------------------------------------------------------
# Messages that did not go straight to their consumers: waiting ones, and those that consumers sent back.


@dataclass(frozen=True)
class Waiting:
    """Messages of one `kind` that were to be delivered later: how long they waited, and the latest time.

    `still` are those whose time is after the last row of the selection. Without any time, `last_us` is ``None``.
    """

    kind: str
    messages: int
    waits_ms: Distribution | None
    last_us: int | None
    still: int


@dataclass(frozen=True)
class SentBack:
    """The messages that consumers of a `group` (None: several together) sent back, and those that they gave up.

    `most_times` is the most often that one came back.
    """

    group: str | None
    retries: int
    given_up: int
    most_times: int


@dataclass(frozen=True)
class Detours:
    """All detours; `discarded` are transactions that were checked in vain too often."""

    waiting: list[Waiting]
    groups: int
    largest_groups: list[SentBack]
    other_groups: SentBack | None
    retries: int
    given_up: int
    discarded: int


def detours_of(table: TableStatements, groups_shown: int) -> Detours:
    """Read the detours."""
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
    """Return those of one kind: each message once, by its first row there, without those that were recalled."""
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


# ----------------------------------------------------------------------------------------------------------------------
# Distributions: sizes of messages, and times from a producer to the log.

# If the largest value is less than this many times the least, all steps have the same width.
_EVEN_BELOW: Final = 16
_STEPS: Final = 16
_QUANTILES: Final = (0.0, 0.5, 0.9, 0.99, 1.0)
# Messages without a detour: not delayed, not in a transaction, not sent back.
_SENT_AT_ONCE: Final = f"coalesce(kind, '{NORMAL}') = '{NORMAL}' AND real_topic IS NULL AND transaction_type = 'none'"


@dataclass(frozen=True)
class Distribution:
    """`values` in ascending order, and how often each occurs."""

    values: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @property
    def total(self) -> int:
        """The number of values."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """The mean; there is at least one value."""
        return float(np.dot(self.values.astype(np.float64), self.counts)) / self.total

    def quantile(self, part: float) -> int:
        """Return the least value that at least `part` of them do not exceed; 0 gives the least of all."""
        ends = np.cumsum(self.counts)
        return int(self.values[np.searchsorted(ends, max(1, int(np.ceil(part * self.total))))])

    @property
    def quantiles(self) -> list[int]:
        """The least, the median, the bounds of 90 and 99 in 100, and the largest."""
        return [self.quantile(part) for part in _QUANTILES]

    def below(self, bound: int) -> int:
        """Return how many are less than `bound`."""
        return int(self.counts[: np.searchsorted(self.values, bound)].sum())

    def in_steps(self, edges: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return how many are in each step ``[edge, next edge)``."""
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        return np.diff(ends[np.searchsorted(self.values, np.array(edges))])


def record_sizes(table: TableStatements) -> Distribution:
    """Return the sizes of messages in the log, in bytes."""
    return distribution_of(table, "msg_size", "true")


def body_sizes(table: TableStatements) -> Distribution:
    """Return the sizes of their bodies in the log, in bytes."""
    return distribution_of(table, "body_size", "true")


def delays(table: TableStatements) -> Distribution:
    """Return the milliseconds from born to stored, of messages without a detour; negative where clocks differ."""
    return distribution_of(table, "epoch_ms(store_time) - epoch_ms(born_time)", _SENT_AT_ONCE)


def distribution_of(table: TableStatements, value: str, condition: str) -> Distribution:
    """Return the values of an expression in the chosen rows that meet a condition, without NULL."""
    found = table.arrays(
        f"SELECT CAST({value} AS BIGINT) AS value, count(*) AS messages FROM {CHOSEN} "
        f"WHERE {condition} AND {value} IS NOT NULL GROUP BY value ORDER BY value"
    )
    return Distribution(np.asarray(found["value"], np.int64), np.asarray(found["messages"], np.int64))


def size_edges(sizes: Distribution) -> list[int]:
    """Return edges of steps for a picture of sizes: even ones, or powers of two if sizes differ much."""
    low, high = int(sizes.values[0]), int(sizes.values[-1])
    if high < _EVEN_BELOW * max(1, low):
        width = _round_width((high - low) / _STEPS)
        return list(range(low // width * width, high + width + 1, width))
    first, last = max(0, low).bit_length() - 1, high.bit_length()
    return [*([0] if low < 1 else []), *(1 << power for power in range(max(0, first), last + 1))]


def delay_edges(times: Distribution) -> list[int]:
    """Return edges of steps for a picture of times in milliseconds: 0, 1, 2, 5, 10, ...; one step is below 0."""
    low, high = int(times.values[0]), int(times.values[-1])
    ladder = [0, *(n * 10**power for power in range(17) for n in (1, 2, 5))]
    first = max(0, int(np.searchsorted(ladder, max(0, low), side="right")) - 1)
    last = int(np.searchsorted(ladder, max(0, high), side="right"))
    return [*([low] if low < 0 else []), *ladder[first : last + 1]]


def _round_width(least: float) -> int:
    """Return the least of 1, 2, 5, 10, ... that is at least `least`."""
    widths = [n * int(10**power) for power in range(12) for n in (1, 2, 5)]
    return next(width for width in widths if width >= least)


# ----------------------------------------------------------------------------------------------------------------------
# Messages and bytes stored, by steps of time.

_MS, _S, _MIN, _H, _D = 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
# Widths of a step that people read easily, in microseconds; the last ones are for times given by mistake.
_WIDTHS: Final = (
    *(n * _MS for n in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(n * _S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MIN for n in (1, 2, 5, 10, 15, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    *(n * _D for n in (1, 2, 7, 14, 28, 91, 182, 364, 1_820, 3_640, 18_200, 36_400)),
)
_STEPS_MAX: Final = 120
# If two steps have all messages except this part, such as a few with a wrong clock, only these two steps are shown.
_LEFT_OUT_MAX: Final = 0.002


@dataclass(frozen=True)
class Throughput:
    """The messages and bytes stored in consecutive steps, which are `width_us` long and begin at multiples of it.

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
    """Return messages and bytes over time; None if no row has a store time."""
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
    """Return the steps from the one with the time `first` to the one with `last`."""
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
    """Return the bounds, in microseconds, of two adjacent steps with nearly all messages, if there are others."""
    if found.width_us == _WIDTHS[0] or len(found.messages) <= 2:
        return None
    pairs = found.messages[:-1] + found.messages[1:]
    best = int(pairs.argmax())
    if pairs[best] < messages * (1 - _LEFT_OUT_MAX):
        return None
    low = found.start_us + best * found.width_us
    return low, low + 2 * found.width_us


def step_width(span_us: int) -> int:
    """Return the narrowest width with which at most 120 steps cover a time of `span_us` microseconds."""
    return next((width for width in _WIDTHS if span_us < width * (_STEPS_MAX - 1)), _WIDTHS[-1])


# ----------------------------------------------------------------------------------------------------------------------
# Whether the messages of each queue are numbered without a gap or a repeat.

# Each 64 consecutive numbers of a queue are one row with a bit for each number in the table, so a queue of any length
# is read in one pass, in little memory. Rows outside the chosen period count too: between a queue's first and last
# chosen number, a number is missing only if the table does not have it. Queues of batches count several numbers a
# message.
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

    No message has the `missing` numbers; `repeated` messages have a number that another one also has.
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
    """All queues: sums, how many were read, how many are `disordered`, and the worst of these.

    `of_batches` queues were left out, because their messages take several numbers each.
    """

    queues: int
    missing: int
    repeated: int
    disordered: int
    worst: list[QueueOrder]
    of_batches: int


def order_of(table: TableStatements, queues_shown: int) -> Order:
    """Check all queues; `QUEUES` must exist."""
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


# ----------------------------------------------------------------------------------------------------------------------
# Ranges of the log that were left out, from the quarantine's table beside the message table, and from an output.


@dataclass(frozen=True)
class LeftOut:
    """The ranges of one broker's log left out for one `cause`: how many, their bytes, and the begin of the first."""

    broker: str
    cause: str
    ranges: int
    size_bytes: int
    first_offset: int


def left_out_of(
    table: TableLocation, output: Path | None, options: SqlOptions | None
) -> tuple[list[LeftOut], list[str]]:
    """Return the ranges that were left out, most bytes first, and where they were looked up.

    Raises
    ------
    OutputError
        The quarantine's table or the output cannot be read.
    """
    ranges: dict[tuple[str, int], tuple[str, int]] = {}
    looked_at = []
    beside = quarantine_table_path(table)
    if _is_there(beside):
        with table_statements(beside, options=options) as statements:
            rows = statements.rows("SELECT broker, physical_offset, cause, length FROM messages")
        ranges.update(((broker, offset), (cause, length)) for broker, offset, cause, length in rows)
        looked_at.append(str(beside))
    if output is not None:
        lines = load_quarantine(output)
        ranges.update(((each.broker, each.physical_offset), (each.cause, each.length)) for each in lines)
        looked_at.append(str(output))
    return _summed((broker, offset, *found) for (broker, offset), found in ranges.items()), looked_at


def _is_there(table: TableLocation) -> bool:
    if isinstance(table, Path):
        return table.exists()
    try:
        check_table(table)
    except OutputError:
        return False
    return True


def _summed(ranges: Iterable[tuple[str, int, str, int]]) -> list[LeftOut]:
    sums: dict[tuple[str, str], LeftOut] = {}
    for broker, offset, cause, length in ranges:
        known = sums.get((broker, cause), LeftOut(broker, cause, 0, 0, offset))
        first = min(known.first_offset, offset)
        sums[broker, cause] = LeftOut(broker, cause, known.ranges + 1, known.size_bytes + length, first)
    return sorted(sums.values(), key=lambda each: (-each.size_bytes, each.broker, each.cause))


# ----------------------------------------------------------------------------------------------------------------------
# The progress of consumer groups, from the ledger of consumption beside the message table.

# The last row of each queue, with the group's moves in the period; groups of the broker itself are left out.
_MOVES: Final = """
SELECT broker, consumer_group, topic, queue_id, arg_max_null(offset_after, seen_after) AS last_offset,
    CAST(coalesce(sum(offset_after - offset_before) FILTER (move = 'progress' AND {period}), 0) AS BIGINT) AS passed,
    count(*) FILTER (move = 'reset_back' AND {period}) AS resets, epoch_us(max(seen_after)) AS moved_us
FROM messages WHERE {condition} AND NOT starts_with(consumer_group, 'CID_RMQ_SYS_')
GROUP BY broker, consumer_group, topic, queue_id
"""
_STEPS_OF_MOVES: Final = """
SELECT epoch_us(seen_after) // {width} AS step, CAST(sum(offset_after - offset_before) AS BIGINT) AS passed
FROM messages WHERE {condition} AND {period} AND move = 'progress' AND NOT starts_with(consumer_group, 'CID_RMQ_SYS_')
    AND epoch_us(seen_after) >= 0
GROUP BY step
"""


@dataclass(frozen=True)
class GroupProgress:
    """The progress of a consumer `group` in all queues of a `topic`.

    `passed` are the messages that its offsets passed, `behind` those of the table that it has not passed, `resets` how
    often a queue went back, `moved_us` when it moved last, in microseconds since 1970.
    """

    group: str
    topic: str
    passed: int
    behind: int
    resets: int
    moved_us: int


@dataclass(frozen=True)
class Consumption:
    """The progress of all groups, the furthest behind first, from `rows` rows with a group and a topic each.

    `steps` are messages passed in consecutive steps of `width_us` from `start_us` on; a move counts when it was seen.
    """

    groups: int
    rows: int
    passed: int
    resets: int
    slowest: list[GroupProgress]
    start_us: int
    width_us: int
    steps: npt.NDArray[np.int64]


def consumption_of(
    table: TableLocation, selection: Selection, ends: Mapping[tuple[str, str, int], int], options: SqlOptions | None
) -> Consumption | None:
    """Read the ledger; `ends` are the last chosen offset of each queue. None without rows.

    Raises
    ------
    OutputError
        The ledger cannot be read.
    """
    beside = consumption_table_path(table)
    if not _is_there(beside):
        return None
    with table_statements(beside, options=options) as statements:
        condition, period = selection.moves()
        found = _progress(statements.rows(_MOVES.format(condition=condition, period=period)), ends)
        if not found:
            return None
        span = "SELECT min(epoch_us(seen_after)), max(epoch_us(seen_after)) FROM messages"
        ((first, last),) = statements.rows(f"{span} WHERE {condition} AND {period} AND epoch_us(seen_after) >= 0")
        first, last = first or 0, last or 0
        width = step_width(last - first)
        steps = np.zeros(last // width - first // width + 1, np.int64)
        for step, passed in statements.rows(_STEPS_OF_MOVES.format(condition=condition, period=period, width=width)):
            steps[step - first // width] = passed
    return Consumption(
        groups=len({each.group for each in found}),
        rows=len(found),
        passed=sum(each.passed for each in found),
        resets=sum(each.resets for each in found),
        slowest=sorted(found, key=lambda each: (-each.behind, each.group, each.topic))[:ROWS_SHOWN],
        start_us=first // width * width,
        width_us=width,
        steps=steps,
    )


def _progress(rows: Iterable[tuple[Any, ...]], ends: Mapping[tuple[str, str, int], int]) -> list[GroupProgress]:
    """Return the rows of queues as rows of topics; a queue in which the group no longer has an offset is not behind."""
    found: dict[tuple[str, str], GroupProgress] = {}
    for broker, group, topic, queue_id, last, passed, resets, moved in rows:
        end = ends.get((broker, topic, queue_id))
        behind = 0 if last is None or end is None else max(0, end + 1 - last)
        known = found.get((group, topic), GroupProgress(group, topic, 0, 0, 0, moved))
        found[group, topic] = GroupProgress(
            group,
            topic,
            known.passed + passed,
            known.behind + behind,
            known.resets + resets,
            max(known.moved_us, moved),
        )
    return list(found.values())


#: At most this many rows of each table of the page are separate; the others are one row together.
ROWS_SHOWN = 20


@dataclass(frozen=True)
class Figures:
    """The figures of `version` of `table`, computed at `made_at` (seconds since 1970).

    Attributes
    ----------
    status
        The status document of the tail that keeps the output; None without an output or without a document.
    has_bodies
        Whether the table has columns for them.
    left_out_of
        The places where ranges that were left out of the log were looked up.
    consumption
        None without a ledger beside the table, or without rows in it.
    """

    table: str
    version: int
    made_at: float
    selection: Selection
    contents: Contents
    throughput: Throughput | None
    record_sizes: Distribution
    body_sizes: Distribution
    delays: Distribution
    detours: Detours
    order: Order
    consumption: Consumption | None
    left_out: list[LeftOut]
    left_out_of: list[str]
    output: Path | None
    has_bodies: bool
    status: dict[str, Any] | None


def figures_of(
    table: TableLocation,
    selection: Selection,
    *,
    at: int | datetime | None = None,
    output: Path | None = None,
    options: SqlOptions | None = None,
    clock: Callable[[], float] = time.time,
) -> Figures:
    """Compute the figures; `at` and `options` as for ``duckdb_query``, `output` is that of a tail.

    Raises
    ------
    OutputError
        The table or the output does not exist or cannot be read.
    OptionError
        The table has no such version.
    TransientError
        There is not enough memory.
    """
    left_out, looked_at = left_out_of(table, output, options)
    with table_statements(table, at=at, options=options) as statements:
        selection.make_views(statements)
        contents = contents_of(statements, ROWS_SHOWN)
        last = statements.rows(f"SELECT broker, topic, queue_id, last_offset FROM {QUEUES} WHERE last_offset >= 0")
        ends = {(broker, topic, queue_id): end for broker, topic, queue_id, end in last}
        return Figures(
            table=str(table),
            version=statements.version.version,
            made_at=clock(),
            selection=selection,
            contents=contents,
            throughput=throughput_of(statements, contents.total),
            record_sizes=record_sizes(statements),
            body_sizes=body_sizes(statements),
            delays=delays(statements),
            detours=detours_of(statements, ROWS_SHOWN),
            order=order_of(statements, ROWS_SHOWN),
            consumption=consumption_of(table, selection, ends, options),
            left_out=left_out,
            left_out_of=looked_at,
            output=output,
            has_bodies=set(BODY_SCHEMA.names) <= set(statements.version.column_names),
            status=None if output is None or load_status(output) is None else status_of(output),
        )


_SAID_CELLS = 400
_WELL = frozenset({State.RUNNING.value, State.STARTING.value})


@dataclass(frozen=True)
class Finding:
    """A sentence about the figures; `is_grave` if an operator should look into it."""

    is_grave: bool
    text: str
    meaning: str


def findings_of(figures: Figures) -> list[Finding]:
    """Return all findings."""
    found = [*_of_queues(figures), *_of_damage(figures), *_of_consumers(figures), *_of_tail(figures)]
    found += _of_times(figures)
    return sorted(found, key=lambda each: not each.is_grave)


def _of_queues(figures: Figures) -> list[Finding]:
    order, found = figures.order, []
    if order.missing:
        text = f"{count(order.missing, 'message')} missing between others of the same queue"
        meaning = (
            "A broker numbers the messages of each queue. Some numbers are not in the table: their messages were "
            "damaged in the log, were removed from the table, or were never written."
        )
        found.append(Finding(is_grave=True, text=text, meaning=meaning))
    if order.repeated:
        text = f"{count(order.repeated, 'message')} with a number that another message of the same queue has"
        meaning = "A broker numbers so when a topic was deleted and made again, or when it lost the end of its log."
        found.append(Finding(is_grave=True, text=text, meaning=meaning))
    if figures.contents.in_no_queue:
        text = f"{count(figures.contents.in_no_queue, 'message')} with a negative queue or number"
        found.append(Finding(is_grave=True, text=text, meaning="No queue can hold them: no consumer gets them."))
    return found


def _of_damage(figures: Figures) -> list[Finding]:
    ranges = sum(each.ranges for each in figures.left_out)
    if not ranges:
        return []
    size = size_text(sum(each.size_bytes for each in figures.left_out))
    text = f"{count(ranges, 'part')} of the log left out, {size} together"
    meaning = "There the log was damaged, had expired before it was read, or had a message that no queue can take."
    return [Finding(is_grave=True, text=text, meaning=meaning)]


def _of_consumers(figures: Figures) -> list[Finding]:
    detours, found = figures.detours, []
    if detours.given_up:
        text = f"{count(detours.given_up, 'message')} that consumers gave up"
        meaning = "They failed again and again and are in dead letter topics: an operator has to decide about them."
        found.append(Finding(is_grave=True, text=text, meaning=meaning))
    if detours.discarded:
        text = f"{count(detours.discarded, 'transaction')} without an end"
        meaning = "The broker asked the producer several times whether they were to be sent, and then discarded them."
        found.append(Finding(is_grave=True, text=text, meaning=meaning))
    if figures.consumption is not None and figures.consumption.resets:
        text = f"{count(figures.consumption.resets, 'time')} that a consumer group went back in a queue"
        meaning = "An operator reset an offset, or a broker lost some: the group gets messages again."
        found.append(Finding(is_grave=False, text=text, meaning=meaning))
    if detours.retries:
        text = f"{count(detours.retries, 'delivery', 'deliveries')} sent back by consumers, to be tried again"
        found.append(
            Finding(is_grave=False, text=text, meaning="Single ones are usual; many are a consumer in trouble.")
        )
    return found


def _of_tail(figures: Figures) -> list[Finding]:
    if figures.status is None:
        return []
    found = []
    for broker in figures.status["brokers"]:
        is_over = broker["state"] == State.STOPPED.value and broker["exitCode"] == 0
        if broker["state"] not in _WELL and not is_over:
            text = f"The table is not kept as it should be: {broker['state']}"
            found.append(
                Finding(
                    is_grave=True, text=text, meaning=name_text(f"{broker['broker']}: {broker['reason']}", _SAID_CELLS)
                )
            )
    return found


def _of_times(figures: Figures) -> list[Finding]:
    found = []
    if early := figures.delays.below(0) if figures.delays.total else 0:
        text = f"{count(early, 'message')} stored before {'it was' if early == 1 else 'they were'} sent"
        worst = milliseconds(-figures.delays.quantile(0))
        meaning = f"The clocks of producers and brokers differ by at least {worst}."
        found.append(Finding(is_grave=False, text=text, meaning=meaning))
    if figures.contents.without_time:
        text = f"{count(figures.contents.without_time, 'message')} without a time that can be shown"
        found.append(Finding(is_grave=False, text=text, meaning="Their time is outside the years 1 to 9999."))
    if figures.throughput is not None and figures.throughput.outside:
        outside = figures.throughput.outside
        text = f"{count(outside, 'message')} stored far before or after all others"
        total = number(figures.contents.total.messages)
        meaning = f"The charts over time leave them out, so that the rest of the {total} can be seen."
        found.append(Finding(is_grave=False, text=text, meaning=meaning))
    return found
