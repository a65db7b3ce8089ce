"""Sections on what may need a person: gaps, damage, retries, messages that wait, lag."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from reput.streaming.report import charts
from reput.streaming.report.charts import Bar
from reput.streaming.report.distribution import Distribution
from reput.streaming.report.figures import ROWS_SHOWN, Figures
from reput.streaming.report.markup import Node, add, element, figure, name, said, section, sentence, table
from reput.streaming.report.traffic_sections import KINDS, step_text, step_times
from reput.streaming.report.words import NOT_KNOWN, compact, count, milliseconds, moment, number, span
from reput.streaming.status.batch_report import size_text

# Of what a tail found.
_FINDINGS_SHOWN = 5


def order_section(figures: Figures) -> ET.Element:
    """Gaps, repeats and damage."""
    order = figures.order
    if order.disordered:
        words = (
            f"In {number(order.disordered)} of {count(order.queues, 'queue')} the numbers that the broker gave to the "
            f"messages do not follow each other: {number(order.missing)} are missing, "
            f"{number(order.repeated)} are there again."
        )
    else:
        words = f"In {count(order.queues, 'queue')} the numbers that the broker gave to the messages follow each other."
    made = section("Is anything missing or damaged?", element("p", *sentence(words)))
    if order.worst:
        head = ("topic", "broker", "queue", "first", "last", "missing", "repeated")
        rows: list[list[Node]] = [
            [
                name(each.topic),
                name(each.broker),
                *map(number, (each.queue_id, each.first_offset, each.last_offset, each.missing, each.repeated)),
            ]
            for each in order.worst
        ]
        add(made, table("Queues with gaps or repeats", head, rows, texts=2, minor=(1, 3, 4)))
        if order.disordered > len(order.worst):
            add(made, element("p", f"{count(order.disordered - len(order.worst), 'other queue')} not shown."))
    if order.of_batches:
        words = f"{count(order.of_batches, 'queue')} of batches left out: a batch takes several numbers at once."
        add(made, element("p", words, class_="soft"))
    if not figures.left_out_of:
        words = "No list of damaged parts of the log is beside the table."
    elif not figures.left_out:
        words = "Nothing was left out of the log."
    else:
        words = "Parts of the log that were left out, in the whole time, whatever topics they were of:"
    add(made, element("p", *sentence(words)))
    if figures.left_out:
        left: list[list[Node]] = [
            [
                name(each.broker),
                name(each.cause),
                number(each.ranges),
                number(each.size_bytes),
                number(each.first_offset),
            ]
            for each in figures.left_out[:ROWS_SHOWN]
        ]
        columns = ("broker", "cause", "parts", "bytes", "first at offset")
        add(made, table("Parts of the log that were left out", columns, left, texts=2, minor=(4,)))
    return made


def retries_section(figures: Figures) -> ET.Element | None:
    """What consumers sent back, over time and by group."""
    detours, found = figures.detours, figures.throughput
    if not detours.groups:
        return None
    words = (
        f"{count(detours.groups, 'group')} of consumers sent back {count(detours.retries, 'delivery', 'deliveries')} "
        f"to be tried again, and gave up {count(detours.given_up, 'message')}."
    )
    made = section("What consumers could not handle", element("p", *sentence(words)))
    if found is not None:
        times = step_times(found)
        sent_back = found.sent_back.tolist()
        bars = [Bar(value, f"{time}: {number(value)}") for value, time in zip(sent_back, times, strict=True)]
        said = f"Sent back or given up, in steps of {step_text(found)}."
        drawn = charts.over_time(said, bars, found.start_us, found.width_us, lambda value: compact(round(value)))
        add(made, figure(said, drawn))
    rows: list[list[Node]] = [
        [name(each.group), number(each.retries), number(each.given_up), number(each.most_times)]
        for each in detours.largest_groups
    ]
    if (other := detours.other_groups) is not None:
        label = f"the other {number(detours.groups - len(detours.largest_groups))} together"
        rows.append([label, number(other.retries), number(other.given_up), number(other.most_times)])
    head = ("consumer group", "sent back", "given up", "most for one message")
    return add(made, table("Consumer groups", head, rows, minor=(3,)))


def waiting_section(figures: Figures) -> ET.Element | None:
    """Messages that were to be delivered later."""
    waiting = figures.detours.waiting
    if not waiting:
        return None
    rows: list[list[Node]] = [
        [
            KINDS[each.kind],
            number(each.messages),
            *_waits(each.waits_ms),
            NOT_KNOWN if each.last_us is None else moment(each.last_us),
            number(each.still),
        ]
        for each in waiting
    ]
    head = ("kind", "messages", "shortest", "median", "longest", "last due", "due after the last message")
    words = "How long messages were to wait before their consumers got them. Retries wait as well."
    return section(
        "Messages to be delivered later", element("p", *sentence(words)), table("Waiting", head, rows, minor=(2, 3, 5))
    )


def _waits(waits: Distribution | None) -> list[str]:
    """The shortest, the median and the longest."""
    return [NOT_KNOWN] * 3 if waits is None else [milliseconds(waits.quantile(part)) for part in (0, 0.5, 1)]


def freshness_section(figures: Figures) -> ET.Element:
    """How far the table is behind: of the newest message, and by what the tail says."""
    last = figures.contents.total.last_us
    words = "No message has a time."
    if last is not None:
        age = span(max(0.0, figures.made_at - last / 1e6))
        words = f"The newest message here was stored at {moment(last)}, {age} before this page was made."
    made = section("Is the table up to date?", element("p", *sentence(words)))
    if figures.status is None:
        words = (
            "How far the table is behind the broker's log is not said here: the page was made without asking the "
            "process that keeps the table (--output)."
        )
        if figures.output is not None:
            words = "No tail has left word of how far the table is behind the log."
        return add(made, element("p", *sentence(words)))
    rows: list[list[Node]] = []
    for broker in figures.status["brokers"]:
        for query in broker["queries"]:
            behind = query["behind"]
            what = "the table" if query["query"] == "table" else "queues and index"
            rows.append(
                [
                    name(broker["broker"]),
                    what,
                    query["phase"],
                    size_text(behind["bytes"]),
                    "?" if behind["seconds"] is None else span(behind["seconds"]),
                ]
            )
        add(made, element("p", "Broker ", name(broker["broker"]), f": {broker['state']}, ", said(broker["reason"])))
        if found := broker["findings"][:_FINDINGS_SHOWN]:
            items = [
                element("li", *sentence(moment(round(each["at"] * 1e6))), f" {each['query']}: ", said(each["text"]))
                for each in found
            ]
            add(made, element("p", "What it found last:"), element("ul", *items))
    add(
        made,
        table(
            "How far each is behind the log", ("broker", "what", "state", "bytes behind", "time behind"), rows, texts=3
        ),
    )
    seen = moment(round(figures.status["at"] * 1e6))
    return add(made, element("p", f"As of {seen}.", class_="soft"))
