"""Numbers, sizes, times and names for people; and HTML as a tree.

Texts stay texts, whatever is in them, since nothing is put together from pieces of markup.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Final, TypeAlias

from rich.cells import cell_len

from reput.source.printable import printable
from reput.source.times import EPOCH
from reput.streaming.status.batch_report import duration_text

#: In place of a missing number.
NOT_KNOWN: Final = "\N{EN DASH}"
_LARGE: Final = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
_FIRST: Final = datetime.min.replace(tzinfo=timezone.utc)
_LAST: Final = datetime.max.replace(tzinfo=timezone.utc)
_DAY_S: Final = 86_400
# Characters that HTML does not allow in a text.
_NO_CHARACTER: Final = re.compile(
    "[\ufdd0-\ufdef\ufffe\uffff]|["
    + "".join(chr(plane << 16 | low) for plane in range(1, 17) for low in (0xFFFE, 0xFFFF))
    + "]"
)
# Only this many characters of a long name are read: each becomes ten at most.
_NAME_MAX: Final = 1_000


def number(value: int) -> str:
    """A whole number with a comma for each thousand."""
    return f"{value:,}"


def compact(value: int) -> str:
    """Return a whole number as it is up to six digits, otherwise as three digits and a word."""
    for factor, word in _LARGE:
        if value >= factor:
            return f"{value / factor:.3g} {word}" if value < 1_000 * factor else f"{value // factor:,} {word}"
    return number(value)


def count(value: int, one: str, many: str | None = None) -> str:
    """A number and what is counted: ``1 topic``, ``2 topics``."""
    return f"{number(value)} {one if value == 1 else many or one + 's'}"


def share(part: int, whole: int) -> str:
    """A part in percent."""
    if not whole or part == whole:
        return "100 %" if whole else "0 %"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{min(percent, 99.9):.1f} %" if percent < 9.95 or percent >= 99 else f"{percent:.0f} %"


def milliseconds(value: float) -> str:
    """A duration of `value` milliseconds, with a minus if it is below 0."""
    sign, size = ("-" if value < 0 else ""), abs(value)
    return f"{sign}{size:,.0f} ms" if size < 1_000 else f"{sign}{span(size / 1_000)}"


def span(seconds: float) -> str:
    """A time of `seconds`; from two days on in whole days."""
    return f"{seconds / _DAY_S:,.0f} days" if seconds >= 2 * _DAY_S else duration_text(seconds)


def time_at(microseconds: int) -> datetime:
    """Return the time this many microseconds after 1970 in UTC, or the nearest one within the years 1 to 9999."""
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST if microseconds > 0 else _FIRST


def moment(microseconds: int, *, is_fine: bool = False) -> str:
    """A time as ``2026-01-31 12:00:00 UTC``, with milliseconds if it `is_fine`."""
    time = time_at(microseconds).replace(tzinfo=None)
    return time.isoformat(" ", "milliseconds" if is_fine else "seconds") + " UTC"


def harmless(text: str) -> str:
    """Return a text on one line in which HTML allows every character, and every character only shows itself."""
    return _NO_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", printable(text))


def name_text(text: str | None, cells: int) -> str:
    """Return a name that others chose, harmless and on one line, of at most `cells` cells of a fixed-width font.

    An ellipsis replaces the end that is cut off; None is ``(none)``, an empty text ``(empty)``.
    """
    if text is None:
        return "(none)"
    shown = harmless(text[:_NAME_MAX]) or "(empty)"
    if len(text) <= _NAME_MAX and cell_len(shown) <= cells:
        return shown
    kept = shown[: cells - 1]
    while cell_len(kept) > cells - 1:
        kept = kept[:-1]
    return kept + "\N{HORIZONTAL ELLIPSIS}"


#: The content of an element: a text, or another element.
Node: TypeAlias = str | ET.Element
# A time as `moment` gives it.
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d(?:[\d:.]*) UTC)")
# The space between a number and its unit.
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:[kMGTP]?B|ms|s|min|h|days?|[mbtr]+illion)\b|%)")
#: The longest name in a table, in cells; and the longest path or sentence.
NAME_CELLS: Final = 72
_SAID_CELLS: Final = 400


def element(tag: str, *children: Node, **attributes: str) -> ET.Element:
    """Return an element. ``_`` in an attribute's name becomes ``-``; a ``_`` at its end is left out (``class_``)."""
    made = ET.Element(tag, {name.rstrip("_").replace("_", "-"): harmless(value) for name, value in attributes.items()})
    return add(made, *children)


def add(parent: ET.Element, *children: Node) -> ET.Element:
    """Return the parent, with more children after those that it has."""
    for child in children:
        if not isinstance(child, str):
            parent.append(child)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + harmless(child)
        else:
            parent.text = (parent.text or "") + harmless(child)
    return parent


def sentence(text: str) -> list[Node]:
    """Return a text in which no line breaks within a time, or between a number and its unit."""
    parts = _TIME.split(_UNIT.sub("\N{NO-BREAK SPACE}", text))
    return [element("time", part) if place % 2 else part for place, part in enumerate(parts)]


def name(text: str | None, cells: int = NAME_CELLS) -> ET.Element:
    """Return a name that others chose; its own direction of writing cannot move it out of its place."""
    return element("bdi", name_text(text, cells), class_="name")


def said(text: str) -> ET.Element:
    """Return the words of a program of reput, which may contain names that others chose."""
    return element("bdi", name_text(text, _SAID_CELLS))


def table(
    label: str, head: Sequence[str], rows: Iterable[Sequence[Node]], *, texts: int = 1, minor: Sequence[int] = ()
) -> ET.Element:
    """Return a table that scrolls by itself if it is wider than the page.

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
    """Return a chart, under words that say what it shows."""
    return element("figure", element("figcaption", *sentence(words)), *drawn)


def numbers(shown: ET.Element) -> ET.Element:
    """Return the table of a chart's numbers, which opens on request."""
    return element("details", element("summary", "The numbers of this chart"), shown)


def document(head: Sequence[ET.Element], body: Sequence[ET.Element]) -> str:
    """Return the text of a whole page in English."""
    page = element("html", element("head", *head), element("body", *body), lang="en")
    return "<!DOCTYPE html>\n" + ET.tostring(page, encoding="unicode", method="html") + "\n"
