"""HTML as a tree: texts become texts whatever they hold, since nothing is ever put together from pieces of markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from reput.streaming.report.words import harmless, name_text

#: What an element may hold: a text, or another element.
Node: TypeAlias = str | ET.Element
# A time as ``words.moment`` gives it.
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d(?:[\d:.]*) UTC)")
# What stands between a number and its unit.
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:[kMGTP]?B|ms|s|min|h|days?|[mbtr]+illion)\b|%)")
#: Of a name in a table, in cells; and of a whole path or sentence.
NAME_CELLS: Final = 72
_SAID_CELLS: Final = 400


def element(tag: str, *children: Node, **attributes: str) -> ET.Element:
    """An element. ``_`` in an attribute's name is ``-``; a ``_`` at its end is left out (``class_``)."""
    made = ET.Element(tag, {name.rstrip("_").replace("_", "-"): harmless(value) for name, value in attributes.items()})
    return add(made, *children)


def add(parent: ET.Element, *children: Node) -> ET.Element:
    """The parent, with more children behind those that it has."""
    for child in children:
        if not isinstance(child, str):
            parent.append(child)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + harmless(child)
        else:
            parent.text = (parent.text or "") + harmless(child)
    return parent


def sentence(text: str) -> list[Node]:
    """A text in which no line breaks within a time, or between a number and its unit."""
    parts = _TIME.split(_UNIT.sub("\N{NO-BREAK SPACE}", text))
    return [element("time", part) if place % 2 else part for place, part in enumerate(parts)]


def name(text: str | None, cells: int = NAME_CELLS) -> ET.Element:
    """A name that others chose, which no direction of writing of its own moves out of its place."""
    return element("bdi", name_text(text, cells), class_="name")


def said(text: str) -> ET.Element:
    """What a program of reput said, with texts of others in it."""
    return element("bdi", name_text(text, _SAID_CELLS))


def table(
    label: str, head: Sequence[str], rows: Iterable[Sequence[Node]], *, texts: int = 1, minor: Sequence[int] = ()
) -> ET.Element:
    """A table that scrolls by itself where it is wider than the page.

    The first `texts` columns are texts, the others numbers; those whose numbers are in `minor` are left out on a phone.
    """

    def kind(place: int) -> dict[str, str]:
        words = [*(["text"] if place < texts else []), *(["minor"] if place in minor else [])]
        return {"class_": " ".join(words)} if words else {}

    heads = [element("th", text, scope="col", **kind(place)) for place, text in enumerate(head)]
    body = [element("tr", *(element("td", cell, **kind(place)) for place, cell in enumerate(row))) for row in rows]
    whole = element(
        "table",
        element("caption", label, class_="hidden"),
        element("thead", element("tr", *heads)),
        element("tbody", *body),
    )
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=label)


def section(title: str, *children: Node) -> ET.Element:
    """A part of the page."""
    return element("section", element("h2", title), *children)


def figure(words: str, drawn: Sequence[ET.Element]) -> ET.Element:
    """A chart, under the words that say what is seen."""
    return element("figure", element("figcaption", *sentence(words)), *drawn)


def numbers(shown: ET.Element) -> ET.Element:
    """The table of a chart's numbers, which is opened on request."""
    return element("details", element("summary", "The numbers of this chart"), shown)


def document(head: Sequence[ET.Element], body: Sequence[ET.Element]) -> str:
    """The text of a whole page in English."""
    page = element("html", element("head", *head), element("body", *body), lang="en")
    return "<!DOCTYPE html>\n" + ET.tostring(page, encoding="unicode", method="html") + "\n"
