"""The page: one HTML file without a script, a font or a picture, its own or from another host."""

from __future__ import annotations

import base64
import hashlib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Final

import numpy as np

import reput
from reput.source.record import message_origin as origin
from reput.streaming.report import charts
from reput.streaming.report.charts import Bar
from reput.streaming.report.figures import (
    ROWS_SHOWN,
    Distribution,
    Figures,
    Finding,
    Group,
    Throughput,
    delay_edges,
    findings_of,
    size_edges,
)
from reput.streaming.report.markup import (
    NOT_KNOWN,
    Node,
    add,
    compact,
    count,
    document,
    element,
    figure,
    milliseconds,
    moment,
    name,
    name_text,
    number,
    numbers,
    said,
    section,
    sentence,
    share,
    span,
    table,
)
from reput.streaming.status.batch_report import size_text

# ----------------------------------------------------------------------------------------------------------------------
# Sections on things that may need an operator: gaps, damage, retries, waiting messages, lag.

# Of a tail's findings, at most this many are shown.
_FINDINGS_SHOWN = 5


def order_section(figures: Figures) -> ET.Element:
    """Gaps, repeats and damage."""
    order = figures.order
    if order.disordered:
        words = (
            f"In {number(order.disordered)} of {count(order.queues, 'queue')} the numbers that the broker gave to the "
            f"messages do not follow each other: {number(order.missing)} are missing, "
            f"{number(order.repeated)} come twice."
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
    """Messages that consumers sent back, over time and by group."""
    detours, found = figures.detours, figures.throughput
    if not detours.groups:
        return None
    words = (
        f"{count(detours.groups, 'group')} of consumers sent back {count(detours.retries, 'delivery', 'deliveries')} "
        f"to be tried again, and gave up {count(detours.given_up, 'message')}."
    )
    made = section("Messages that consumers could not handle", element("p", *sentence(words)))
    if found is not None:
        times = step_times(found)
        sent_back = found.sent_back.tolist()
        bars = [Bar(value, f"{time}: {number(value)}") for value, time in zip(sent_back, times, strict=True)]
        said = f"Sent back or given up, in steps of {step_text(found.seconds)}."
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


def consumption_section(figures: Figures) -> ET.Element | None:
    """The progress of consumer groups, by the ledger: over time, and the groups furthest behind."""
    found = figures.consumption
    if found is None:
        return None
    resets = f"went back in a queue {count(found.resets, 'time')}" if found.resets else "never went back"
    words = (
        f"{count(found.groups, 'consumer group')} passed {count(found.passed, 'message')}, and {resets}. Passed is "
        "consumed, filtered out, or skipped; behind are messages of the table that a group has not passed."
    )
    made = section("Work of consumer groups", element("p", *sentence(words)))
    times = [moment(found.start_us + place * found.width_us) for place in range(len(found.steps))]
    bars = [Bar(value, f"{time}: {number(value)}") for value, time in zip(found.steps.tolist(), times, strict=True)]
    label = f"Messages that groups passed, in steps of {step_text(found.width_us / 1e6)}."
    drawn = charts.over_time(label, bars, found.start_us, found.width_us, lambda value: compact(round(value)), "second")
    add(made, figure(label, drawn))
    rows: list[list[Node]] = [
        [
            name(each.group),
            name(each.topic),
            *map(number, (each.behind, each.passed, each.resets)),
            moment(each.moved_us),
        ]
        for each in found.slowest
    ]
    head = ("consumer group", "topic", "behind", "passed", "reset back", "moved last")
    add(made, table("Consumer groups by topic", head, rows, texts=2, minor=(4, 5)))
    if hidden := found.rows - len(found.slowest):
        add(made, element("p", f"{count(hidden, 'other row')}, less behind, not shown.", class_="soft"))
    return made


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
    words = "How long messages were to wait before their consumers got them. Retries wait, too."
    return section(
        "Messages to be delivered later", element("p", *sentence(words)), table("Waiting", head, rows, minor=(2, 3, 5))
    )


def _waits(waits: Distribution | None) -> list[str]:
    """The shortest, the median and the longest."""
    return [NOT_KNOWN] * 3 if waits is None else [milliseconds(waits.quantile(part)) for part in (0, 0.5, 1)]


def freshness_section(figures: Figures) -> ET.Element:
    """The lag of the table: by its newest message, and by the tail's own figures."""
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
            add(made, element("p", "Its last findings:"), element("ul", *items))
    add(
        made,
        table(
            "How far each is behind the log", ("broker", "what", "state", "bytes behind", "time behind"), rows, texts=3
        ),
    )
    seen = moment(round(figures.status["at"] * 1e6))
    return add(made, element("p", f"As of {seen}.", class_="soft"))


# ----------------------------------------------------------------------------------------------------------------------
# Sections on the distribution of sizes and times.

_QUANTILES: Final = ("least", "median", "90 %", "99 %", "most")


def sizes_section(figures: Figures) -> ET.Element:
    """Sizes of messages."""
    sizes, bodies = figures.record_sizes, figures.body_sizes
    title = "How large the messages are"
    if not (sizes.total and bodies.total):
        return section(title, element("p", "No message has a size."))
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
    return section(
        title,
        _histogram("Messages by size", words, sizes, edges, [_size_edge(edge) for edge in edges]),
        table("Sizes in bytes", head, rows, minor=(3, 6)),
    )


def _size_edge(size: int) -> str:
    """Return an edge in its shortest form: ``512 B``, ``4 KiB``; edges of even steps are exact."""
    for factor, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{number(size)} B"


def delays_section(figures: Figures) -> ET.Element:
    """Times from producers to the log."""
    times = figures.delays
    title = "How long messages took to be stored"
    if not times.total:
        return section(title, element("p", "No message was sent without a detour, such as a delay or a transaction."))
    words = (
        f"From a producer's clock to the broker's: half took at most {milliseconds(times.quantile(0.5))}, 99 of 100 at "
        f"most {milliseconds(times.quantile(0.99))}; the longest took {milliseconds(times.quantile(1))}."
    )
    edges = delay_edges(times)
    labels = ["below 0" if edge < 0 else _delay_edge(edge) for edge in edges]
    head = ("time", *_QUANTILES)
    rows = [["sent to stored", *map(milliseconds, times.quantiles)]]
    return section(
        title,
        _histogram("Messages by time", words, times, edges, labels),
        table("Times from sent to stored", head, rows, minor=(3,)),
        element("p", f"Of {count(times.total, 'message')} that came without a delay or a transaction.", class_="soft"),
    )


def _delay_edge(value: int) -> str:
    for factor, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if value >= factor:
            return f"{value / factor:,.3g} {unit}"
    return f"{value} ms"


def _histogram(label: str, words: str, values: Distribution, edges: Sequence[int], labels: Sequence[str]) -> ET.Element:
    counts = values.in_steps(edges).tolist()
    bars = [
        Bar(messages, f"{labels[place]} to {labels[place + 1]}: {count(messages, 'message')}")
        for place, messages in enumerate(counts)
    ]
    rows = [(f"{labels[place]} to {labels[place + 1]}", number(messages)) for place, messages in enumerate(counts)]
    drawn = charts.by_step(f"{label}. {words}", bars, labels, lambda value: compact(round(value)))
    return element("div", figure(words, drawn), numbers(table(label, ("from, to below", "messages"), rows)))


# ----------------------------------------------------------------------------------------------------------------------
# Sections on messages and bytes: over time, by topic, kind and broker.

# Topics with a bar of their own.
_TOPICS_DRAWN: Final = 10
_UNITS: Final = ((1, "second"), (60, "minute"), (3_600, "hour"), (86_400, "day"))
#: Each kind of messages, in words.
KINDS: Final = {
    origin.NORMAL: "sent by producers",
    origin.DELAYED: "to be delivered later, after a delay",
    origin.TIMER: "to be delivered later, at a certain time",
    origin.RECALL: "the mark that a message of the kind timer was recalled",
    origin.HALF: "the beginning of a transaction",
    origin.HALF_OP: "the mark that a transaction has ended",
    origin.HALF_DISCARDED: "a transaction that never ended",
    origin.RETRY: "sent back by consumers, to be tried again",
    origin.DLQ: "given up by consumers",
    origin.TRACE: "what clients tell of their messages",
    origin.REPLY: "an answer to a request",
    origin.SYSTEM: "the broker's own",
}


def throughput_sections(figures: Figures) -> list[ET.Element]:
    """Messages and bytes over time."""
    found = figures.throughput
    if found is None:
        return []
    messages, sizes = found.messages.tolist(), found.size_bytes.tolist()
    rows = [
        (time, number(count_), number(size))
        for time, count_, size in zip(step_times(found), messages, sizes, strict=True)
    ]
    exact = numbers(table("Messages and bytes by time", ("from", "messages", "bytes"), rows))
    return [
        section("Messages stored over time", _rates(found, messages, " messages", _rate, "series"), exact),
        section("Bytes stored over time", _rates(found, sizes, "", _size_rate, "second")),
    ]


def _rates(found: Throughput, values: Sequence[int], what: str, text: Callable[[float], str], hue: str) -> ET.Element:
    """Draw values a second, or over the shortest longer time that has at least one message on average."""
    whole = len(values) * found.seconds
    mean = float(found.messages.sum()) / whole
    unit_s, unit = next((each for each in _UNITS if mean * each[0] >= 1), _UNITS[-1])
    times = step_times(found)
    rates = [value / found.seconds * unit_s for value in values]
    best = int(np.argmax(rates))
    words = (
        f"On average {text(sum(values) / whole * unit_s)}{what} a {unit}, at most {text(rates[best])} at "
        f"{times[best]}. A bar is the mean of {step_text(found.seconds)}."
    )
    bars = [Bar(rate, f"{time}: {text(rate)} a {unit}") for rate, time in zip(rates, times, strict=True)]
    return figure(words, charts.over_time(words, bars, found.start_us, found.width_us, text, hue))


def step_times(found: Throughput) -> list[str]:
    """Return the beginning of each step."""
    places = range(len(found.messages))
    return [moment(found.start_us + place * found.width_us, is_fine=found.seconds < 1) for place in places]


def step_text(seconds: float) -> str:
    """Return the width of a step in words."""
    for size, word in reversed(_UNITS):
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
    names = [each.name or "" for each in drawn]
    sizes = [each.size_bytes for each in drawn]
    if contents.topics > len(drawn):
        names.append(f"the other {number(contents.topics - len(drawn))} together")
        sizes.append(rest)
    values = [f"{size_text(size)} · {share(size, whole.size_bytes)}" for size in sizes]
    bars = [Bar(size, value) for size, value in zip(sizes, values, strict=True)]
    words = f"Bytes in the log and their part of all bytes, of {_of_all(len(drawn), contents.topics, 'topic')}."
    has_others = contents.topics > len(drawn)
    drawing = charts.by_name(words, bars, names, values, whole.size_bytes, ends_with_others=has_others)
    chart = figure(words, drawing)
    rows = [_topic_row(name(each.name), each, whole) for each in contents.largest_topics]
    if contents.other_topics is not None:
        others = contents.topics - len(contents.largest_topics)
        rows.append(_topic_row(f"the other {number(others)} together", contents.other_topics, whole))
    head = ("topic", "messages", "bytes", "part", "a message", "queues", "last stored")
    title = "Which topics take the most room" if contents.topics > 1 else "The topic"
    return section(title, chart, table("Topics by bytes", head, rows, minor=(4, 5, 6)))


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
        NOT_KNOWN if each.last_us is None else moment(each.last_us),
    ]


def kinds_section(figures: Figures) -> ET.Element:
    """The kinds of messages."""
    whole = figures.contents.total
    rows: list[list[Node]] = [
        [
            KINDS.get(each.name or "", "not known: stored by an earlier version of reput"),
            number(each.messages),
            share(each.messages, whole.messages),
            number(each.size_bytes),
        ]
        for each in figures.contents.kinds
    ]
    words = element("p", "A broker stores more than producers send: what waits, what came back, and its own notes.")
    return section(
        "Kinds of messages",
        words,
        table("Kinds", ("kind", "messages", "part", "bytes"), rows, minor=(3,)),
    )


def brokers_section(figures: Figures) -> ET.Element | None:
    """Rows by broker; None for a single one."""
    contents = figures.contents
    if contents.brokers < 2:
        return None
    rows: list[list[Node]] = [
        [
            name(each.name),
            number(each.messages),
            number(each.size_bytes),
            NOT_KNOWN if each.last_us is None else moment(each.last_us),
        ]
        for each in contents.largest_brokers
    ]
    made = section("Brokers", table("Brokers", ("broker", "messages", "bytes", "last stored"), rows, minor=(2,)))
    if contents.brokers > len(rows):
        add(made, element("p", f"{count(contents.brokers - len(rows), 'other broker')} not shown."))
    return made


_CSS = "page.css"
_TITLE_CELLS = 200


def page_of(figures: Figures, title: str | None = None) -> str:
    """Return the page's text; `title` is its heading."""
    findings = findings_of(figures)
    heading = name_text(title or "Contents of this message table", _TITLE_CELLS)
    body = element("main", _header(figures, heading, findings), _tiles(figures, findings))
    if figures.contents.total.messages:
        add(body, _findings_section(figures, findings), *_sections(figures))
    add(body, _making_of(figures))
    return document(_head(heading), [body])


def _head(title: str) -> list[ET.Element]:
    style = "\n" + files(__package__).joinpath(_CSS).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        _style(style),
    ]


def _style(text: str) -> ET.Element:
    made = element("style")
    made.text = text  # with its line ends, not escaped
    return made


def _header(figures: Figures, title: str, findings: list[Finding]) -> ET.Element:
    bodies = "and what it says, which this page does not show" if figures.has_bodies else "not what it says"
    about = f"Each row of the table is one message: where it was stored, when, and how large it is; {bodies}."
    return element(
        "header",
        element("h1", title),
        element("p", *_lead(figures, findings), class_="lead"),
        element("p", about, class_="soft"),
    )


def _lead(figures: Figures, findings: list[Finding]) -> list[Node]:
    """Return the whole report in two sentences."""
    contents, total = figures.contents, figures.contents.total
    if not total.messages:
        why = "The table is empty" if figures.selection.is_all else "No message of the table is in this selection"
        return [f"{why}: there is nothing to show."]
    stored = "were" if total.messages > 1 else "was"
    brokers = "a RocketMQ broker" if contents.brokers == 1 else f"{number(contents.brokers)} RocketMQ brokers"
    words: list[Node] = [
        element("strong", f"{compact(total.messages)} message{'s' if total.messages > 1 else ''}"),
        f" ({size_text(total.size_bytes)}) in {count(contents.topics, 'topic')} {stored} stored by {brokers}",
    ]
    if total.first_us is not None and total.last_us is not None:
        words += sentence(f" between {moment(total.first_us)} and {moment(total.last_us)}")
    grave = sum(each.is_grave for each in findings)
    words.append(". ")
    if grave:
        words.append(element("strong", f"{count(grave, 'thing')} should be looked into.", class_="grave"))
    else:
        words.append(element("strong", "Nothing needs to be looked into.", class_="good"))
    return words


def _tiles(figures: Figures, findings: list[Finding]) -> ET.Element:
    contents, total = figures.contents, figures.contents.total
    grave = sum(each.is_grave for each in findings)
    if total.first_us is None or total.last_us is None:
        long, times = NOT_KNOWN, "no time is known"
    else:
        long = span((total.last_us - total.first_us) / 1e6)
        times = _period(moment(total.first_us), moment(total.last_us))
    found = f"{number(grave)} to look into" if grave else "nothing to look into"
    tiles = [
        ("Messages", compact(total.messages), number(total.messages) if total.messages >= 1_000_000 else "", ""),
        ("Size in the log", size_text(total.size_bytes), f"{number(total.size_bytes)} bytes", ""),
        ("Period", long, times, ""),
        ("Topics", number(contents.topics), count(total.queues, "queue"), ""),
        ("Findings", number(len(findings)), found, "grave" if grave else ("note" if findings else "good")),
    ]
    made = [
        element(
            "div",
            element("dt", what),
            element("dd", element("div", big, class_=f"big {kind}".strip()), element("div", more, class_="more")),
        )
        for what, big, more, kind in tiles
    ]
    return element("dl", *made, class_="tiles")


def _period(first: str, last: str) -> str:
    """Return both ends of a period, to the minute; the day appears once if it is the same."""
    day, last_day = first[:10], last[:10]
    return f"{day}, {first[11:16]} to {last[11:16]} UTC" if day == last_day else f"{first[:16]} to {last[:16]} UTC"


def _findings_section(figures: Figures, findings: list[Finding]) -> ET.Element:
    section = element("section", element("h2", "Findings"))
    if not findings:
        looked = (
            f"The numbers of all messages in {count(figures.order.queues, 'queue')} follow each other, no consumer "
            "gave a message up, and nothing is known to have been left out of the log."
        )
        return add(section, element("p", looked))
    items = [
        element(
            "li",
            element("b", "to look into" if each.is_grave else "to know", class_="grave" if each.is_grave else "note"),
            element("strong", each.text),
            element("span", each.meaning),
        )
        for each in findings
    ]
    return add(section, element("ul", *items, class_="findings"))


def _sections(figures: Figures) -> list[ET.Element]:
    """Return all sections that have something to show, in the order of the page."""
    made = [
        *throughput_sections(figures),
        topics_section(figures),
        element("div", sizes_section(figures), delays_section(figures), class_="pair"),
        kinds_section(figures),
        order_section(figures),
        consumption_section(figures),
        retries_section(figures),
        waiting_section(figures),
        brokers_section(figures),
        freshness_section(figures),
    ]
    return [each for each in made if each is not None]


def _making_of(figures: Figures) -> ET.Element:
    chosen = figures.selection
    period = " ".join(
        f"{word} {moment(time * 1_000)}"
        for word, time in (("from", chosen.since_ms), ("until before", chosen.until_ms))
        if time is not None
    )
    facts: list[tuple[str, Node]] = [
        ("table", said(figures.table)),
        ("version", number(figures.version)),
        ("topics", name(chosen.topic) if chosen.topic is not None else "all"),
        ("period", period or "all"),
        *([("output", said(str(figures.output)))] if figures.output is not None else []),
        ("made at", moment(round(figures.made_at * 1e6))),
        ("made by", f"reput {reput.__version__}"),
    ]
    listed = [part for what, fact in facts for part in (element("dt", what), element("dd", fact))]
    words = (
        "Every number was counted from the rows of this version of the table, which has one row for each message in "
        "RocketMQ's commitlog. Bytes are those of the log. Times are UTC. Nothing was estimated."
    )
    return element(
        "footer", element("h2", "How this page was made"), element("p", *sentence(words)), element("dl", *listed)
    )
