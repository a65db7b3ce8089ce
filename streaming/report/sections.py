"""The sections of the page: a plain title, a sentence that says what is seen, a chart, a table of exact numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Final

import numpy as np

import reput
from reput.source.record import message_origin as origin
from reput.streaming.report import charts
from reput.streaming.report.charts import Bar
from reput.streaming.report.contents import Group
from reput.streaming.report.distribution import Distribution, delay_edges, size_edges
from reput.streaming.report.figures import ROWS_SHOWN, Figures
from reput.streaming.report.markup import Node, add, element, name, sentence, table
from reput.streaming.report.throughput import Throughput
from reput.streaming.report.words import (
    compact,
    count,
    milliseconds,
    moment,
    number,
    share,
    size_text,
    span,
)

# Topics with a bar of their own.
_TOPICS_DRAWN: Final = 10
_KINDS: Final = {
    origin.NORMAL: "sent by a producer",
    origin.DELAYED: "waiting for a delay level to pass",
    origin.TIMER: "waiting for a certain time",
    origin.HALF: "the beginning of a transaction",
    origin.HALF_OP: "the mark that a transaction has ended",
    origin.HALF_DISCARDED: "a transaction that never ended",
    origin.RETRY: "sent back by a consumer, to be tried again",
    origin.DLQ: "given up by consumers",
    origin.TRACE: "what clients tell of their messages",
    origin.REPLY: "an answer to a request",
    origin.SYSTEM: "the broker's own",
}
_QUANTILES: Final = ("least", "median", "90 %", "99 %", "99.9 %", "most")


def _section(title: str, *children: Node) -> ET.Element:
    return element("section", element("h2", title), *children)


def _figure(words: str, drawn: Sequence[ET.Element]) -> ET.Element:
    return element("figure", element("figcaption", *sentence(words)), *drawn)


def _numbers(shown: ET.Element) -> ET.Element:
    """A table that is opened on request."""
    return element("details", element("summary", "The numbers of this chart"), shown)


def throughput_sections(figures: Figures) -> list[ET.Element]:
    """Messages and bytes over time."""
    found = figures.throughput
    if found is None:
        return []
    step = _step(found)
    times = [moment(found.start_us + place * found.width_us, is_fine=found.seconds < 1) for place in _places(found)]

    def chart(what: str, values: Sequence[int], hue: str) -> ET.Element:
        rates = [value / found.seconds for value in values]
        text = _size_rate if what == "bytes" else _rate
        bars = [Bar(rate, f"{time}: {text(rate)} a second") for rate, time in zip(rates, times, strict=True)]
        best = int(np.argmax(rates))
        mean = sum(values) / (len(values) * found.seconds)
        label = "messages" if what == "messages" else ""
        words = (
            f"On average {text(mean)} {label} a second, at most {text(rates[best])} at {times[best]}. "
            f"A bar is the mean of {step}."
        ).replace("  ", " ")
        drawn = charts.over_time(f"{what} a second over time. {words}", bars, found.start_us, found.width_us, text, hue)
        return _figure(words, drawn)

    rows = [
        (times[place], number(int(found.messages[place])), number(int(found.size_bytes[place])))
        for place in _places(found)
    ]
    numbers = _numbers(table("Messages and bytes by time", ("from", "messages", "bytes"), rows))
    return [
        _section("Messages stored over time", chart("messages", found.messages.tolist(), "series"), numbers),
        _section("Bytes stored over time", chart("bytes", found.size_bytes.tolist(), "second")),
    ]


def _places(found: Throughput) -> range:
    return range(len(found.messages))


def _step(found: Throughput) -> str:
    """The width of a step in words."""
    seconds = found.seconds
    for size, word in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size:
            steps = int(seconds // size)
            return f"one {word}" if steps == 1 else f"{steps} {word}s"
    return f"{seconds * 1_000:.0f} ms"


def _size_rate(value: float) -> str:
    return size_text(round(value)).replace(".0 ", " ")


def _rate(value: float) -> str:
    return compact(round(value)) if value >= 10 or value == int(value) else f"{value:.2g}"


def topics_section(figures: Figures) -> ET.Element:
    """Bytes by topic."""
    contents, whole = figures.contents, figures.contents.total
    drawn = contents.largest_topics[:_TOPICS_DRAWN]
    rest = whole.size_bytes - sum(each.size_bytes for each in drawn)
    names = [each.name for each in drawn]
    sizes = [each.size_bytes for each in drawn]
    if contents.topics > len(drawn):
        names.append(f"the other {number(contents.topics - len(drawn))} together")
        sizes.append(rest)
    values = [f"{size_text(size)} · {share(size, whole.size_bytes)}" for size in sizes]
    bars = [Bar(size, value) for size, value in zip(sizes, values, strict=True)]
    words = f"Bytes in the log and their part of all bytes, of {_of_all(len(drawn), contents.topics, 'topic')}."
    chart = _figure(words, charts.by_name(f"Bytes by topic: {words}", bars, names, values))
    rows = [_topic_row(name(each.name), each, whole) for each in contents.largest_topics]
    if contents.other_topics is not None:
        others = contents.topics - len(contents.largest_topics)
        rows.append(_topic_row(f"the other {number(others)} together", contents.other_topics, whole))
    head = ("topic", "messages", "bytes", "part", "a message", "queues", "last stored")
    title = "Which topics take the most room" if contents.topics > 1 else "The topic"
    return _section(title, chart, table("Topics by bytes", head, rows, minor=(4, 5, 6)))


def _of_all(shown: int, all_: int, what: str) -> str:
    return f"the {number(shown)} largest of {count(all_, what)}" if shown < all_ else count(all_, what)


def _topic_row(label: Node, each: Group, whole: Group) -> list[Node]:
    return [
        label,
        number(each.messages),
        number(each.size_bytes),
        share(each.size_bytes, whole.size_bytes),
        size_text(round(each.size_bytes / max(1, each.messages))),
        number(each.queues),
        "–" if each.last_us is None else moment(each.last_us),
    ]


def sizes_section(figures: Figures) -> ET.Element:
    """Sizes of messages."""
    sizes, bodies = figures.record_sizes, figures.body_sizes
    edges = size_edges(sizes)
    words = (
        f"Half of the messages have at most {size_text(sizes.quantile(0.5))}, 99 of 100 at most "
        f"{size_text(sizes.quantile(0.99))}; the largest has {size_text(sizes.quantile(1))}."
    )
    rows = [
        ["in the log", *map(number, sizes.quantiles), f"{sizes.mean:,.0f}"],
        ["body alone", *map(number, bodies.quantiles), f"{bodies.mean:,.0f}"],
    ]
    head = ("bytes", *_QUANTILES, "mean")
    return _section(
        "How large the messages are",
        _histogram("Messages by size", words, sizes, edges, [_size_edge(edge) for edge in edges]),
        table("Sizes in bytes", head, rows, minor=(3, 5, 7)),
    )


def _size_edge(size: int) -> str:
    """An edge as short as it can be: ``512 B``, ``4 KiB``; those of even steps are exact."""
    for factor, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{number(size)} B"


def delays_section(figures: Figures) -> ET.Element:
    """Times from producers to the log."""
    times = figures.delays
    title = "How long messages took to be stored"
    if not times.total:
        return _section(title, element("p", "No message was sent without a detour, such as a delay or a transaction."))
    words = (
        f"From a producer's clock to the broker's: half took at most {milliseconds(times.quantile(0.5))}, 99 of 100 at "
        f"most {milliseconds(times.quantile(0.99))}; the longest took {milliseconds(times.quantile(1))}."
    )
    edges = delay_edges(times)
    labels = ["below 0" if edge < 0 else _delay_edge(edge) for edge in edges]
    head = ("time", *_QUANTILES)
    rows = [["sent to stored", *map(milliseconds, times.quantiles)]]
    return _section(
        title,
        _histogram("Messages by time", words, times, edges, labels),
        table("Times from sent to stored", head, rows, minor=(3, 5)),
        element("p", f"Of {count(times.total, 'message')} that came without a delay or a transaction.", class_="soft"),
    )


def _delay_edge(value: int) -> str:
    for factor, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if value >= factor:
            return f"{value / factor:,.3g} {unit}"
    return f"{value} ms"


def _histogram(
    label: str, words: str, values: Distribution, edges: Sequence[int], labels: Sequence[str]
) -> ET.Element:
    counts = values.in_steps(edges).tolist()
    bars = [
        Bar(messages, f"{labels[place]} to {labels[place + 1]}: {count(messages, 'message')}")
        for place, messages in enumerate(counts)
    ]
    rows = [(f"{labels[place]} to {labels[place + 1]}", number(messages)) for place, messages in enumerate(counts)]
    drawn = charts.by_step(f"{label}. {words}", bars, labels, lambda value: compact(round(value)))
    return element("div", _figure(words, drawn), _numbers(table(label, ("from, to below", "messages"), rows)))


def kinds_section(figures: Figures) -> ET.Element:
    """What kinds of messages there are."""
    whole = figures.contents.total
    rows = [
        [
            _KINDS.get(each.name or "", "not known: stored by an earlier version of reput"),
            number(each.messages),
            share(each.messages, whole.messages),
            number(each.size_bytes),
        ]
        for each in figures.contents.kinds
    ]
    words = element("p", "A broker stores more than producers send: what waits, what came back, and its own notes.")
    return _section(
        "What kinds of messages these are", words, table("Kinds", ("kind", "messages", "part", "bytes"), rows, minor=(3,))
    )


def order_section(figures: Figures) -> ET.Element:
    """Gaps, repeats and damage."""
    order = figures.order
    if order.disordered:
        words = (
            f"In {number(order.disordered)} of {count(order.queues, 'queue')} the numbers that the broker gave to the "
            f"messages do not follow each other: {number(order.missing)} are missing, {number(order.repeated)} repeated."
        )
    else:
        words = f"In {count(order.queues, 'queue')} the numbers that the broker gave to the messages follow each other."
    section = _section("Is anything missing or damaged?", element("p", *sentence(words)))
    if order.worst:
        head = ("topic", "broker", "queue", "first", "last", "missing", "repeated")
        rows = [
            [
                name(each.topic),
                name(each.broker),
                *map(number, (each.queue_id, each.first_offset, each.last_offset, each.missing, each.repeated)),
            ]
            for each in order.worst
        ]
        add(section, table("Queues with gaps or repeats", head, rows, texts=2, minor=(1, 3, 4)))
        if order.disordered > len(order.worst):
            add(section, element("p", f"{count(order.disordered - len(order.worst), 'other queue')} not shown."))
    if order.of_batches:
        words = f"{count(order.of_batches, 'queue')} of batches left out: a batch takes several numbers at once."
        add(section, element("p", words, class_="soft"))
    if not figures.left_out_of:
        words = "No list of damaged parts of the log is beside the table."
    elif not figures.left_out:
        words = "Nothing was left out of the log."
    else:
        words = "Parts of the log that were left out, in the whole time, whatever topics they were of:"
    add(section, element("p", *sentence(words)))
    if figures.left_out:
        left = [
            [name(each.broker), name(each.cause), number(each.ranges), number(each.size_bytes), number(each.first_offset)]
            for each in figures.left_out[:ROWS_SHOWN]
        ]
        head = ("broker", "cause", "parts", "bytes", "first at offset")
        add(section, table("Parts of the log that were left out", head, left, texts=2, minor=(4,)))
    return section


def retries_section(figures: Figures) -> ET.Element | None:
    """What consumers sent back, over time and by group."""
    detours, found = figures.detours, figures.throughput
    if not detours.groups:
        return None
    words = (
        f"{count(detours.groups, 'group')} of consumers sent back {count(detours.retries, 'delivery', 'deliveries')} "
        f"to be tried again, and gave up {count(detours.given_up, 'message')}."
    )
    section = _section("What consumers could not handle", element("p", *sentence(words)))
    if found is not None:
        times = [moment(found.start_us + place * found.width_us) for place in _places(found)]
        sent_back = found.sent_back.tolist()
        bars = [Bar(value, f"{time}: {number(value)}") for value, time in zip(sent_back, times, strict=True)]
        said = f"Sent back or given up, in steps of {_step(found)}."
        drawn = charts.over_time(said, bars, found.start_us, found.width_us, lambda value: compact(round(value)))
        add(section, _figure(said, drawn))
    rows = [
        [name(each.group), number(each.retries), number(each.given_up), number(each.most_times)]
        for each in detours.largest_groups
    ]
    if (other := detours.other_groups) is not None:
        label = f"the other {number(detours.groups - len(detours.largest_groups))} together"
        rows.append([label, number(other.retries), number(other.given_up), number(other.most_times)])
    head = ("consumer group", "sent back", "given up", "most often a message")
    return add(section, table("Consumer groups", head, rows, minor=(3,)))


def waiting_section(figures: Figures) -> ET.Element | None:
    """Messages that were to be delivered later."""
    waiting = figures.detours.waiting
    if not waiting:
        return None
    rows = [
        [
            _KINDS[each.kind],
            number(each.messages),
            *("–" if value is None else milliseconds(value) for value in (each.shortest_ms, each.median_ms, each.longest_ms)),
            "–" if each.last_us is None else moment(each.last_us),
            number(each.still),
        ]
        for each in waiting
    ]
    head = ("kind", "messages", "shortest", "median", "longest", "last due", "due after the last message")
    words = "How long messages were to wait before their consumers got them. Retries wait as well."
    return _section("Messages to be delivered later", element("p", *sentence(words)), table("Waiting", head, rows, minor=(2, 3, 5)))


def brokers_section(figures: Figures) -> ET.Element | None:
    """Rows by broker, where there are several."""
    contents = figures.contents
    if contents.brokers < 2:
        return None
    rows = [
        [
            name(each.name),
            number(each.messages),
            number(each.size_bytes),
            "–" if each.last_us is None else moment(each.last_us),
        ]
        for each in contents.largest_brokers
    ]
    section = _section("Brokers", table("Brokers", ("broker", "messages", "bytes", "last stored"), rows, minor=(2,)))
    if contents.brokers > len(rows):
        add(section, element("p", f"{count(contents.brokers - len(rows), 'other broker')} not shown."))
    return section


def freshness_section(figures: Figures) -> ET.Element:
    """How far the table is behind: of the newest message, and by what the tail says."""
    last = figures.contents.total.last_us
    words = "No message has a time."
    if last is not None:
        age = span(max(0.0, figures.made_at - last / 1e6))
        words = f"The newest message here was stored at {moment(last)}, {age} before this page was made."
    section = _section("Is the table up to date?", element("p", *sentence(words)))
    if figures.status is None:
        words = "How far the table is behind the log is known to whoever keeps it; this page was made without asking."
        if figures.output is not None:
            words = "No tail has left word of how far the table is behind the log."
        return add(section, element("p", *sentence(words)))
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
        add(section, element("p", "Broker ", name(broker["broker"]), f": {broker['state']}, ", name(broker["reason"])))
    add(section, table("How far each is behind the log", ("broker", "what", "state", "bytes behind", "time behind"), rows, texts=3))
    seen = moment(round(figures.status["at"] * 1e6))
    return add(section, element("p", f"As of {seen}.", class_="soft"))



def making_of(figures: Figures) -> ET.Element:
    """How the page was made."""
    chosen = figures.selection
    period = " ".join(
        f"{word} {moment(time * 1_000)}"
        for word, time in (("from", chosen.since_ms), ("until before", chosen.until_ms))
        if time is not None
    )
    facts: list[tuple[str, Node]] = [
        ("table", name(figures.table)),
        ("version", number(figures.version)),
        ("topics", name(chosen.topic) if chosen.topic is not None else "all"),
        ("period", period or "all"),
        *([("output", name(str(figures.output)))] if figures.output is not None else []),
        ("made at", moment(round(figures.made_at * 1e6))),
        ("made by", f"reput {reput.__version__}, reput report"),
    ]
    listed = [part for what, fact in facts for part in (element("dt", what), element("dd", fact))]
    words = (
        "Every number was counted from the rows of this version of the table, which has one row for each message in "
        "RocketMQ's commitlog. Bytes are those of the log. Times are UTC. Nothing was estimated."
    )
    return element("footer", element("h2", "How this page was made"), element("p", *sentence(words)), element("dl", *listed))
