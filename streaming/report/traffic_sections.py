"""Sections on what there is: over time, by topic, kind and broker."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from reput.source.record import message_origin as origin
from reput.streaming.report import charts
from reput.streaming.report.charts import Bar
from reput.streaming.report.contents import Group
from reput.streaming.report.figures import Figures
from reput.streaming.report.markup import Node, add, element, figure, name, numbers, section, table
from reput.streaming.report.throughput import Throughput
from reput.streaming.report.words import NOT_KNOWN, compact, count, moment, number, share
from reput.streaming.status.batch_report import size_text

# Topics with a bar of their own.
_TOPICS_DRAWN: Final = 10
_UNITS: Final = ((1, "second"), (60, "minute"), (3_600, "hour"), (86_400, "day"))
#: What each kind of messages is.
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
    """A chart of values a second, or a longer time in which there is a message at least on average."""
    whole = len(values) * found.seconds
    mean = float(found.messages.sum()) / whole
    unit_s, unit = next((each for each in _UNITS if mean * each[0] >= 1), _UNITS[-1])
    times = step_times(found)
    rates = [value / found.seconds * unit_s for value in values]
    best = int(np.argmax(rates))
    words = (
        f"On average {text(sum(values) / whole * unit_s)}{what} a {unit}, at most {text(rates[best])} at "
        f"{times[best]}. A bar is the mean of {step_text(found)}."
    )
    bars = [Bar(rate, f"{time}: {text(rate)} a {unit}") for rate, time in zip(rates, times, strict=True)]
    return figure(words, charts.over_time(words, bars, found.start_us, found.width_us, text, hue))


def step_times(found: Throughput) -> list[str]:
    """The beginning of each step."""
    places = range(len(found.messages))
    return [moment(found.start_us + place * found.width_us, is_fine=found.seconds < 1) for place in places]


def step_text(found: Throughput) -> str:
    """The width of a step in words."""
    seconds = found.seconds
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
    """What kinds of messages there are."""
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
        "What kinds of messages these are",
        words,
        table("Kinds", ("kind", "messages", "part", "bytes"), rows, minor=(3,)),
    )


def brokers_section(figures: Figures) -> ET.Element | None:
    """Rows by broker, where there are several."""
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
