"""The page: one HTML file without a script, a font or a picture of its own or of another host."""

from __future__ import annotations

import base64
import hashlib
import xml.etree.ElementTree as ET
from importlib.resources import files

import reput
from reput.streaming.report.figures import Figures
from reput.streaming.report.findings import Finding, findings_of
from reput.streaming.report.health_sections import (
    freshness_section,
    order_section,
    retries_section,
    waiting_section,
)
from reput.streaming.report.markup import Node, add, document, element, name, said, sentence
from reput.streaming.report.spread_sections import delays_section, sizes_section
from reput.streaming.report.traffic_sections import brokers_section, kinds_section, throughput_sections, topics_section
from reput.streaming.report.words import NOT_KNOWN, compact, count, moment, name_text, number, span
from reput.streaming.status.batch_report import size_text

_CSS = "page.css"
_TITLE_CELLS = 200


def page_of(figures: Figures, title: str | None = None) -> str:
    """The page's text; `title` is its heading."""
    findings = findings_of(figures)
    heading = name_text(title or "What this message table holds", _TITLE_CELLS)
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
    made.text = text  # with its line ends, and not escaped
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
    """The whole report in two sentences."""
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
    """From and until when, to the minute; the day once if it is the same."""
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
    """All sections that have something to show, in the order of the page."""
    made = [
        *throughput_sections(figures),
        topics_section(figures),
        element("div", sizes_section(figures), delays_section(figures), class_="pair"),
        kinds_section(figures),
        order_section(figures),
        retries_section(figures),
        waiting_section(figures),
        brokers_section(figures),
        freshness_section(figures),
    ]
    return [each for each in made if each is not None]


def _making_of(figures: Figures) -> ET.Element:
    """How the page was made."""
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
