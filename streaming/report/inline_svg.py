"""A figure of matplotlib as an SVG element of a page, with the page's colours, light or dark, and without ids."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from matplotlib.figure import Figure

#: Colours that a figure may use, by the names of the page's classes; as such they are seen by nobody.
HUES: Final = {"series": "#010101", "second": "#020202", "soft": "#030303", "line": "#040404", "text": "#050505"}
_CLASSES: Final = {colour: name for name, colour in HUES.items()}
_LEFT_OUT: Final = frozenset({"metadata", "defs"})
_KEPT: Final = frozenset({"stroke-width", "text-anchor"})
_NO_TURN: Final = re.compile(r"rotate\(-?0(\.0*)? ")


@dataclass(frozen=True)
class Additions:
    """What a figure gets after matplotlib has drawn it, so that matplotlib sees no text that others chose.

    A text of the figure that is a key of `names` or `values` is replaced; names are in the page's font for names.
    `tips` are shown where the mouse is over a part of the figure, by its ``gid``.
    """

    tips: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)


def inline_svg(figure: Figure, label: str, class_: str, additions: Additions) -> ET.Element:
    """The figure as an element; `label` is what a screen reader tells of it."""
    written = io.StringIO()
    figure.savefig(written, format="svg")
    found = ET.fromstring(written.getvalue())  # noqa: S314  matplotlib wrote it
    made = ET.Element("svg", {"class": class_, "role": "img", "aria-label": label, "viewBox": found.attrib["viewBox"]})
    for child in _cleaned(found, additions):
        made.append(child)
    return made


def _cleaned(parent: ET.Element, additions: Additions, tip: str = "") -> list[ET.Element]:
    """The children of an element without ids and styles; groups are taken apart."""
    made: list[ET.Element] = []
    for child in parent:
        tag = child.tag.rpartition("}")[2]
        if tag in _LEFT_OUT:
            continue
        if tag == "g":
            made += _cleaned(child, additions, additions.tips.get(child.get("id", ""), tip))
            continue
        each = ET.Element(tag, _attributes(child))
        if child.text and (text := child.text.strip()):
            each.text = additions.names.get(text) or additions.values.get(text, text)
            if text in additions.names:
                each.set("class", f"{each.get('class', '')} name".strip())
        if tip:
            title = ET.SubElement(each, "title")
            title.text = tip
        made.append(each)
    return made


def _attributes(element: ET.Element) -> dict[str, str]:
    """Attributes without ids; the style is attributes and classes, so that the page may forbid styles in attributes."""
    made = {name: " ".join(value.split()) for name, value in element.attrib.items() if name not in ("style", "id")}
    if _NO_TURN.match(made.get("transform", "")):
        del made["transform"]
    classes = []
    for part in element.get("style", "").split(";"):
        name, _, value = (text.strip() for text in part.partition(":"))
        if name in ("fill", "stroke") and value in _CLASSES:
            classes.append(f"{name}-{_CLASSES[value]}")
        elif name in _KEPT or (name in ("fill", "stroke") and value == "none"):
            made[name] = value
    return made | ({"class": " ".join(classes)} if classes else {})
