"""The numbers of `reput report`: those of the page of a real broker's store, and each figure against a slow count."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from conftest import BrokerStore
from support.command_line import run_reput
from support.model import Record, parse_properties, read_entries, read_log
from support.report_page import ReportPage
from support.report_tables import START, row_of, write_rows
from support.store_table import add_store

from reput.sinks.table.columns import FIRST_SEEN, GONE, PROGRESS, RESET_BACK
from reput.sinks.table.consumption import ConsumptionTable, Move
from reput.sinks.table.message_file import TABLE_SCHEMA
from reput.source.errors import UnknownNameError
from reput.streaming.report.figures import (
    Distribution,
    Figures,
    Selection,
    delay_edges,
    figures_of,
    size_edges,
    step_width,
)

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def page_of(table: Path, html: Path, *words: str) -> ReportPage:
    run_reput(["report", "--table", str(table), "--html", str(html), *words])
    return ReportPage(html.read_text())


def utc(milliseconds: int) -> str:
    return (EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%d %H:%M:%S UTC")


def records_of(store: BrokerStore) -> list[Record]:
    """Return the records of the log, by a reader that shares no code with reput."""
    logs = [store.root / "commitlog", *store.root.glob("dledger-*/data")]
    (log,) = (each for each in logs if each.is_dir() and any(each.iterdir()))
    segments = {int(path.name): path.read_bytes() for path in sorted(log.iterdir()) if path.name.isdecimal()}
    return list((read_log if log.name == "commitlog" else read_entries)(segments))


@pytest.mark.parametrize("name", ["v4-tx-delay-retry", "v4-dledger", "v5-longtopic"])
def test_the_page_of_a_real_store(name: str, broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> None:
    """Totals, topics, time, sizes, delays, consumers and queues are those of the log."""
    store = broker_store(name)
    add_store(tmp_path / "table", store.root, "b", broker_conf=store.broker_conf)
    page, records = page_of(tmp_path / "table", tmp_path / "page.html"), records_of(store)
    messages = [message for _, message, _ in records]

    sizes = [size for _, _, size in records]
    times = [message.store_timestamp for message in messages]
    topics = Counter(message.topic for message in messages)
    assert page.tiles["Messages"][0] == f"{len(records):,}"
    assert page.tiles["Size in the log"][1] == f"{sum(sizes):,} bytes"
    assert page.tiles["Topics"][0] == str(len(topics)) == str(len(store.facts["messagesPerTopic"]))
    assert f"between {utc(min(times))} and {utc(max(times))}" in page.text

    by_topic: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    for _, message, size in records:
        by_topic[message.topic].append((message, size))
    found = page.rows("Topics by bytes")
    assert {row["topic"].rstrip("\N{HORIZONTAL ELLIPSIS}")[:70]: (row["messages"], row["bytes"]) for row in found} == {
        topic[:70]: (len(each), sum(size for _, size in each)) for topic, each in by_topic.items()
    }
    assert [row["bytes"] for row in found] == sorted((row["bytes"] for row in found), reverse=True)
    assert [row["queues"] for row in found] == [
        len({message.queue_id for message, _ in by_topic[_whole(row["topic"], topics)]}) for row in found
    ]

    steps = page.rows("Messages and bytes by time")
    assert sum(step["messages"] for step in steps) == len(records)
    assert sum(step["bytes"] for step in steps) == sum(sizes)

    least, median, ninety, most_of_all, largest = np.quantile(
        sizes, [0, 0.5, 0.9, 0.99, 1], method="inverted_cdf"
    ).tolist()
    in_log = page.rows("Sizes in bytes")[0]
    assert (in_log["least"], in_log["median"], in_log["90 %"]) == (least, median, ninety)
    assert (in_log["99 %"], in_log["most"]) == (most_of_all, largest)
    assert sum(row["messages"] for row in page.rows("Messages by size")) == len(records)
    bodies = page.rows("Sizes in bytes")[1]
    assert bodies["most"] == max(len(message.body) for message in messages)

    direct = [
        message.store_timestamp - message.born_timestamp
        for message in messages
        if message.topic in _of_producers(topics)
        and message.sys_flag & 0xC == 0
        and "REAL_TOPIC" not in parse_properties(message.properties_bytes)
    ]
    assert sum(row["messages"] for row in page.rows("Messages by time")) == len(direct)
    assert page.rows("Times from sent to stored")[0]["median"] == _ms(sorted(direct)[math.ceil(len(direct) / 2) - 1])

    retries = sum(count for topic, count in topics.items() if topic.startswith("%RETRY%"))
    given_up = sum(count for topic, count in topics.items() if topic.startswith("%DLQ%"))
    if retries or given_up:
        groups = page.rows("Consumer groups")
        assert sum(row["sent back"] for row in groups) == retries
        assert sum(row["given up"] for row in groups) == given_up
        assert (f"{given_up} messages that consumers gave up" in page.text) == bool(given_up)
    else:
        assert "Consumer groups" not in page.tables
    assert "missing between" not in page.text
    assert "Queues with gaps or repeats" not in page.tables


def _whole(shown: str, topics: Counter[str]) -> str:
    (found,) = (topic for topic in topics if topic[:70] == shown.rstrip("\N{HORIZONTAL ELLIPSIS}")[:70])
    return found


def _of_producers(topics: Counter[str]) -> set[str]:
    system = ("RMQ_SYS_", "SCHEDULE_", "TRANS_CHECK", "%RETRY%", "%DLQ%", "rmq_sys_")
    return {topic for topic in topics if not topic.startswith(system)}


def _ms(value: int) -> str:
    return f"{value} ms"


def queue_rows(rng: Random) -> list[dict[str, Any]]:
    """Queues of which some have gaps, repeats, begin late, or have rows that no queue can hold."""
    rows = []
    for broker in "bc":
        for queue in range(rng.randrange(1, 4)):
            at = rng.choice([0, 5, 63, 64, 1_000_000])
            for number in range(rng.randrange(1, 300)):
                at += rng.choice([1] * 60 + [0, 2, 70])
                kind = rng.choice(["none"] * 20 + ["commit", "prepared", "rollback"])
                time = START + timedelta(seconds=number + rng.randrange(-2, 3))
                rows.append(
                    row_of(broker=broker, queue_id=queue, queue_offset=at, transaction_type=kind, store_time=time)
                )
    rows.append(row_of(queue_id=-1, queue_offset=3))
    rows.append(row_of(queue_id=0, queue_offset=-7))
    rng.shuffle(rows)
    return rows


def slow_order(rows: list[dict[str, Any]], since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """Missing and repeated numbers between the first and the last chosen one of each queue."""
    missing = repeated = 0
    queues = defaultdict(list)
    for row in rows:
        if row["transaction_type"] in ("none", "commit") and row["queue_offset"] >= 0 and row["queue_id"] >= 0:
            queues[row["broker"], row["queue_id"]].append(row)
    for each in queues.values():
        chosen = [
            row["queue_offset"]
            for row in each
            if (since is None or row["store_time"] >= since) and (until is None or row["store_time"] < until)
        ]
        if chosen:
            there = Counter(row["queue_offset"] for row in each if min(chosen) <= row["queue_offset"] <= max(chosen))
            missing += max(chosen) - min(chosen) + 1 - len(there)
            repeated += sum(there.values()) - len(there)
    return missing, repeated


@pytest.mark.parametrize("seed", range(4))
def test_gaps_and_repeats_of_queues(seed: int, tmp_path: Path) -> None:
    """As a slow count finds them, in all rows and in a period, whose ends make no gap."""
    rng = Random(seed)
    rows = queue_rows(rng)
    table = write_rows(tmp_path / "table", rows)
    since, until = START + timedelta(seconds=rng.randrange(50)), START + timedelta(seconds=rng.randrange(60, 200))
    for low, high in ((None, None), (since, until)):
        bounds = (None if each is None else round(each.timestamp() * 1000) for each in (low, high))
        found = figures_of(table, Selection(None, *bounds))
        assert (found.order.missing, found.order.repeated) == slow_order(rows, low, high)
    assert figures_of(table, Selection()).contents.in_no_queue == 2


def test_queues_of_batches_are_left_out(broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> None:
    """A batch takes several numbers at once, which is not a gap."""
    store = broker_store("v5-batchcq")
    add_store(tmp_path / "table", store.root, broker_conf=store.broker_conf)
    found = figures_of(tmp_path / "table", Selection("BatchQ")).order
    assert (found.queues, found.of_batches, found.missing, found.repeated) == (0, 3, 0, 0)


def figures(tmp_path: Path, rows: Sequence[dict[str, Any]], selection: Selection | None = None) -> Figures:
    return figures_of(write_rows(tmp_path / "table", rows), selection or Selection())


@pytest.mark.parametrize("span_s", [0, 0.004, 59, 86_400 * 400, 86_400 * 365 * 1_900])
@pytest.mark.parametrize("begin", [START, EPOCH - timedelta(days=9, microseconds=1)])
def test_messages_over_time(span_s: float, begin: datetime, tmp_path: Path) -> None:
    """Each message is in the step of its time, also before 1970; there are not too many steps."""
    rng = Random(str(span_s))
    times = [begin, begin + timedelta(seconds=span_s)]
    times += [begin + timedelta(seconds=rng.random() * span_s) for _ in range(40)]
    kinds = [rng.choice(["normal", "retry", "dlq"]) for _ in times]
    found = figures(tmp_path, [row_of(store_time=time, kind=kind) for time, kind in zip(times, kinds, strict=True)])
    steps = found.throughput
    assert steps is not None
    assert 1 <= len(steps.messages) <= 120
    micro = [(time - EPOCH) // timedelta(microseconds=1) for time in times]
    expected = Counter((each - steps.start_us) // steps.width_us for each in micro)
    assert {place: int(count) for place, count in enumerate(steps.messages) if count} == expected
    assert steps.outside == 0
    assert steps.size_bytes.sum() == 100 * len(times)
    assert steps.sent_back.sum() == sum(kind != "normal" for kind in kinds)


def test_a_few_wrong_clocks_do_not_flatten_the_charts(tmp_path: Path) -> None:
    """They are left out and told; many would be shown."""
    rows = [row_of(store_time=START + timedelta(seconds=number / 2)) for number in range(1_000)]
    far = [datetime(1, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)]
    strange = [row_of(store_time=time) for time in far]
    found = figures(tmp_path / "few", [*rows, *strange])
    assert found.throughput is not None
    assert found.throughput.outside == 2
    assert found.throughput.seconds == 5
    assert found.throughput.messages.sum() == 1_000
    page = page_of(tmp_path / "few" / "table", tmp_path / "page.html")
    assert "2 messages stored far before or after all others" in page.text
    many = figures(tmp_path / "many", [*rows, *strange * 10])
    assert many.throughput is not None
    assert many.throughput.outside == 0
    steps = page_of(tmp_path / "many" / "table", tmp_path / "page.html").rows("Messages and bytes by time")
    assert steps[0] == {"from": "0001-01-01 00:00:00 UTC", "messages": 10, "bytes": 1_000}


def test_no_time_at_all(tmp_path: Path) -> None:
    """Rows without a store time are counted and told; there is no chart over time."""
    late = pa.array([2**62, None, -(2**62)]).cast(pa.timestamp("us", "UTC"))  # as others may write
    rows = pa.Table.from_pylist([row_of()] * 3, TABLE_SCHEMA)
    at = TABLE_SCHEMA.get_field_index("store_time")
    deltalake.write_deltalake(str(tmp_path / "table"), rows.set_column(at, TABLE_SCHEMA.field(at), late))
    page = page_of(tmp_path / "table", tmp_path / "page.html")
    assert "3 messages without a time that can be shown" in page.text
    assert "Messages and bytes by time" not in page.tables
    assert page.rows("Topics by bytes")[0]["last stored"] == "\N{EN DASH}"


@pytest.mark.parametrize("seed", range(20))
def test_quantiles_and_steps_of_values(seed: int) -> None:
    """As numpy has them of the single values; every value is in a step."""
    rng = Random(seed)
    base = rng.choice([0, 1, 200, 4_000_000])
    single = [base + int(rng.lognormvariate(3, rng.random() * 4)) for _ in range(rng.randrange(1, 400))]
    single += [-5] if seed % 3 == 0 else []
    values, counts = np.unique(single, return_counts=True)
    found = Distribution(values.astype(np.int64), counts.astype(np.int64))
    expected = np.quantile(single, [0, 0.5, 0.9, 0.99, 1], method="inverted_cdf")
    assert found.quantiles == expected.tolist()
    assert found.mean == pytest.approx(np.mean(single))
    assert found.below(base + 3) == sum(value < base + 3 for value in single)
    for edges in (delay_edges(found), size_edges(found) if min(single) >= 0 else delay_edges(found)):
        assert edges == sorted(set(edges))
        assert len(edges) <= 60
        steps = found.in_steps(edges)
        assert steps.sum() == len(single)
        assert steps[0] > 0
        assert steps[-1] > 0 or len(steps) <= 2
        for place, count in enumerate(steps):
            assert count == sum(edges[place] <= value < edges[place + 1] for value in single)


def test_widths_of_steps() -> None:
    """At most 120 steps cover any time from the year 1 to 9999, wherever it begins."""
    for span in [0, *(2**power for power in range(58)), 9_999 * 366 * 86_400_000_000]:
        assert span // step_width(span) + 2 <= 120


def test_a_selection_is_what_it_says(tmp_path: Path) -> None:
    """Topics by a pattern, times from and until before; % and _ stand for themselves."""
    rows = [
        row_of(topic=topic, store_time=START + timedelta(seconds=number), queue_offset=number)
        for topic in ("orders-eu", "orders_us", "%RETRY%g", "it's")
        for number in range(10)
    ]
    table, since = write_rows(tmp_path / "table", rows), round(START.timestamp() * 1000) + 2_000
    for topic, topics in (("orders*", 2), ("orders_*", 1), ("%RETRY%*", 1), ("*", 4), ("it's", 1)):
        found = figures_of(table, Selection(topic, since, since + 3_000)).contents
        assert (found.topics, found.total.messages) == (topics, 3 * topics)
    with pytest.raises(
        UnknownNameError, match="no topic of the table matches order-eu; is orders-eu or orders_us meant"
    ):
        figures_of(table, Selection("order-eu"))


def test_waiting_and_consumers(tmp_path: Path) -> None:
    """How long messages were to wait, what is still due, and the groups beyond those that are shown."""
    rows = [
        row_of(kind="delayed", topic="SCHEDULE_TOPIC_XXXX", deliver_time=START + timedelta(seconds=10 * number))
        for number in range(1, 6)
    ]
    rows.append(row_of(store_time=START + timedelta(seconds=30)))
    rows += [
        row_of(kind="dlq" if number % 5 == 0 else "retry", consumer_group=f"g{number % 25}", reconsume_times=number % 7)
        for number in range(250)
    ]
    found = figures(tmp_path, rows).detours
    (waiting,) = found.waiting
    assert (waiting.messages, waiting.still) == (5, 2)
    assert waiting.waits_ms is not None
    assert [waiting.waits_ms.quantile(part) for part in (0, 0.5, 1)] == [10_000, 30_000, 50_000]
    assert (found.groups, found.retries, found.given_up) == (25, 200, 50)
    assert len(found.largest_groups) == 20
    assert found.other_groups is not None
    shown = [*found.largest_groups, found.other_groups]
    assert (sum(each.retries for each in shown), sum(each.given_up for each in shown)) == (200, 50)
    assert max(each.most_times for each in shown) == 6


def test_what_consumer_groups_did(tmp_path: Path) -> None:
    """Passed and behind by group and topic, in the chosen period and topics; the broker's own groups are left out."""
    rows = [row_of(topic=topic, queue_offset=number) for topic in ("orders", "other") for number in range(10)]
    table, at = write_rows(tmp_path / "table", rows), round(START.timestamp() * 1000)
    assert figures_of(table, Selection()).consumption is None
    moves = [
        ("billing", "orders", None, 2, 1, FIRST_SEEN),
        ("slow", "orders", None, 0, 1, FIRST_SEEN),
        ("CID_RMQ_SYS_X", "orders", None, 0, 1, FIRST_SEEN),
        ("left", "other", None, 0, 1, FIRST_SEEN),
        ("billing", "orders", 2, 8, 10, PROGRESS),
        ("billing", "orders", 8, 3, 20, RESET_BACK),
        ("left", "other", 0, None, 20, GONE),
        ("billing", "orders", 3, 9, 30, PROGRESS),
    ]
    ledger = [
        Move(group, topic, 0, before, after, None if before is None else at, at + 1000 * until, kind)
        for group, topic, before, after, until, kind in moves
    ]
    ConsumptionTable(table, "b", 1000).append(ledger, 1)
    found = figures_of(table, Selection()).consumption
    assert found is not None
    assert (found.groups, found.passed, found.resets, int(found.steps.sum())) == (3, 12, 1, 12)
    told = [(each.group, each.topic, each.behind, each.passed, each.resets) for each in found.slowest]
    assert told == [("slow", "orders", 10, 0, 0), ("billing", "orders", 1, 12, 1), ("left", "other", 0, 0, 0)]
    assert found.slowest[1].moved_us == (at + 30_000) * 1000
    within = figures_of(table, Selection("orders", at + 15_000, at + 25_000)).consumption
    assert within is not None
    assert (within.groups, within.passed, within.resets) == (2, 0, 1)
    late = figures_of(table, Selection("orders", at + 25_000)).consumption
    assert late is not None
    assert (late.passed, late.resets, int(late.steps.sum())) == (6, 0, 6)
    page = page_of(table, tmp_path / "page.html")
    (slow, billing, _) = page.rows("Consumer groups by topic")
    assert (slow["behind"], billing["reset back"]) == (10, 1)
    assert "1 time that a consumer group went back in a queue" in page.text


def test_columns_that_others_left_empty(tmp_path: Path) -> None:
    """Rows of another writer, of which only the topic is known."""
    rows = [dict.fromkeys(TABLE_SCHEMA.names) | {"topic": "T", "kind": "mine"}] * 2
    page = page_of(write_rows(tmp_path / "table", rows), tmp_path / "page.html")
    assert page.tiles["Messages"][0] == "2"
    assert "No message has a size." in page.text


def test_a_table_of_an_earlier_version(tmp_path: Path) -> None:
    """It has no column with kinds; the report has all other figures."""
    rows = pa.Table.from_pylist([row_of(queue_offset=number) for number in range(5)], TABLE_SCHEMA)
    old = rows.drop_columns(["kind", "consumer_group", "deliver_time", "first_key"])
    deltalake.write_deltalake(str(tmp_path / "table"), old)
    page = page_of(tmp_path / "table", tmp_path / "page.html")
    (kind,) = page.rows("Kinds")
    assert (kind["kind"], kind["messages"]) == ("not known: stored by an earlier version of reput", 5)
    assert page.rows("Times from sent to stored")[0]["median"] == "0 ms"
