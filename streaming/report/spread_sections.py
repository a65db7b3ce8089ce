"""Sections on how sizes and times are spread."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Final

from reput.streaming.report import charts
from reput.streaming.report.charts import Bar
from reput.streaming.report.distribution import Distribution, delay_edges, size_edges
from reput.streaming.report.figures import Figures
from reput.streaming.report.markup import element, figure, numbers, section, table
from reput.streaming.report.words import compact, count, milliseconds, number
from reput.streaming.status.batch_report import size_text

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
