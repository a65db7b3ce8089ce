"""The charts, drawn by matplotlib: each for a desk and for a phone; the page shows the one that fits.

Positions are in pixels of the page (72 dots an inch), so that texts have the size of the page's texts.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, date2num, num2date
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reput.streaming.report.markup import name_text, time_at

# ----------------------------------------------------------------------------------------------------------------------
# A figure of matplotlib as an SVG element of a page, with the page's colours, light or dark, and without ids.

#: Colours that a figure may use, by the names of the page's classes, which replace them.
HUES: Final = {"series": "#010101", "second": "#020202", "soft": "#030303", "line": "#040404", "text": "#050505"}
_CLASSES: Final = {colour: name for name, colour in HUES.items()}
_LEFT_OUT: Final = frozenset({"metadata", "defs"})
_KEPT: Final = frozenset({"stroke-width", "text-anchor"})
_NO_TURN: Final = re.compile(r"rotate\(-?0(\.0*)? ")


@dataclass(frozen=True)
class Additions:
    """Changes to a figure after matplotlib has drawn it, so that matplotlib gets no text that others chose.

    A text of the figure that is a key of `names` or `values` is replaced; names are in the page's font for names.
    `tips` are shown where the mouse is over a part of the figure, by its ``gid``.
    """

    tips: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)


def inline_svg(figure: Figure, label: str, class_: str, additions: Additions) -> ET.Element:
    """Return the figure as an element; a screen reader reads `label`."""
    written = io.StringIO()
    figure.savefig(written, format="svg")
    found = ET.fromstring(written.getvalue())  # noqa: S314  matplotlib wrote it
    made = ET.Element("svg", {"class": class_, "role": "img", "aria-label": label, "viewBox": found.attrib["viewBox"]})
    for child in _cleaned(found, additions):
        made.append(child)
    return made


def _cleaned(parent: ET.Element, additions: Additions, tip: str = "") -> list[ET.Element]:
    """Return the children of an element without ids and styles; groups are dissolved."""
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
    """Return attributes without ids; a style becomes attributes and classes, so that the page may forbid styles."""
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


#: Pixels of a chart over the whole page, over half of it, and on a phone.
WHOLE, HALF, PHONE = 1040, 496, 340
_BARS, _LEFT, _RIGHT, _TOP, _PAD, _LINE, _TICK_PAD = 150, 60, 22, 10, 10, 15, 6
# The size of texts, and the width of one of their letters.
_TEXT: Final = 12
_LETTER: Final = 7
_DOTS: Final = 72
# Of a row with a name and a bar: its height, the bar's, a cell of the names' font, and the room for the value.
_ROW, _BAR, _CELL, _VALUE = 42, 10, 7.9, 130
_LABELS: Final = {WHOLE: 9, HALF: 6, PHONE: 4}
# The form of times by the least distance between them: a day or more, and less.
_LONG_FORMS: Final = ((timedelta(360), "%Y"), (timedelta(27), "%b %Y"), (timedelta(1), "%-d %b %Y"))
_DAY_FORMS: Final = ((timedelta(minutes=1), "%H:%M"), (timedelta(seconds=1), "%H:%M:%S"), (timedelta(0), "%H:%M:%S.%f"))
# A chart has room for at least this many bars, so that a single one does not look like a wall.
_BARS_LEAST: Final = 4
# The least height of a bar that is not zero, so that it is visible.
_LEAST: Final = 1.5


@dataclass(frozen=True)
class Bar:
    """A bar of a chart: its value, and the words that the mouse shows."""

    value: float
    tip: str


def over_time(
    label: str, bars: Sequence[Bar], start_us: int, width_us: int, unit: Callable[[float], str], hue: str = "series"
) -> list[ET.Element]:
    """Draw a bar for each of consecutive steps of time; `unit` returns a value as text."""
    end_us = start_us + len(bars) * width_us
    edges = [date2num(time_at(start_us + place * width_us)) for place in range(len(bars) + 1)]

    def draw(width: int) -> ET.Element:
        locator = AutoDateLocator(tz=timezone.utc, minticks=2, maxticks=_LABELS[width])
        times = [num2date(place) for place in locator.tick_values(time_at(start_us), time_at(end_us))]
        times = [time for time in times if edges[0] <= date2num(time) <= edges[-1]]
        labels = _time_labels(times)
        with _axes(width, lines=2 if any("\n" in text for text in labels) else 1) as axes:
            axes.set_xlim(edges[0], edges[-1])
            axes.set_xticks(date2num(times), labels)
            wide = [end - begin for begin, end in zip(edges, edges[1:], strict=False)]
            _draw_bars(axes, edges[:-1], wide, bars, hue, unit)
            _keep_inside(axes)
            return inline_svg(axes.figure, label, _class(width), Additions(_tips(bars)))  # type: ignore[arg-type]

    return [draw(WHOLE), draw(PHONE)]


def by_step(label: str, bars: Sequence[Bar], edges: Sequence[str], unit: Callable[[float], str]) -> list[ET.Element]:
    """Draw a bar for each of consecutive steps of values; `edges` are their bounds as texts, one more than bars."""

    def draw(width: int) -> ET.Element:
        with _axes(width) as axes:
            axes.set_xlim(0, max(len(bars), _BARS_LEAST))
            every = -(-len(edges) // _LABELS[width])
            places = list(range(0, len(edges), every))
            axes.set_xticks(places, [edges[place] for place in places])
            _draw_bars(axes, list(range(len(bars))), [1.0] * len(bars), bars, "series", unit, is_whole=True)
            _keep_inside(axes)
            return inline_svg(axes.figure, label, _class(width), Additions(_tips(bars)))  # type: ignore[arg-type]

    return [draw(HALF), draw(PHONE)]


def by_name(
    label: str,
    bars: Sequence[Bar],
    names: Sequence[str],
    values: Sequence[str],
    whole: float,
    *,
    ends_with_others: bool,
) -> list[ET.Element]:
    """Draw a line for each name: the name and its value as text, and under them a bar, as a part of the `whole`.

    If the chart `ends_with_others`, its last bar is the sum of several.
    """

    def draw(width: int) -> ET.Element:
        height = _ROW * len(bars)
        cells = int((width - _VALUE) / _CELL)
        with _figure(width, height) as figure:
            axes = figure.add_axes((0, 0, 1, 1))
            axes.set_axis_off()
            axes.set_xlim(0, width)
            axes.set_ylim(height, 0)
            for place, bar in enumerate(bars):
                top = place * _ROW
                axes.text(0, top + 18, f"name{place}", color=HUES["text"])
                axes.text(width, top + 18, f"value{place}", color=HUES["text"], ha="right")
                size = max(_LEAST, bar.value / whole * width) if bar.value else 0
                is_others = ends_with_others and place == len(bars) - 1
                for part, long, hue in (("track", width, "line"), ("bar", size, "soft" if is_others else "series")):
                    axes.barh(top + 30, long, _BAR, color=HUES[hue], clip_on=False)[0].set_gid(f"{part}{place}")
            shown = {f"name{place}": name_text(name, cells) for place, name in enumerate(names)}
            said = {f"value{place}": value for place, value in enumerate(values)}
            return inline_svg(figure, label, _class(width) + " names", Additions(_tips(bars), shown, said))

    return [draw(WHOLE), draw(PHONE)]


def _time_labels(times: Sequence[datetime]) -> list[str]:
    """Return labels as fine as the times are apart; the day is under the first time of each day."""
    apart = min((end - begin for begin, end in zip(times, times[1:], strict=False)), default=timedelta(1))
    for least, form in _LONG_FORMS:
        if apart >= least:
            return [time.strftime(form) for time in times]
    form = next(form for least, form in _DAY_FORMS if apart >= least)
    labels, day = [], None
    for time in times:
        clock = time.strftime(form)[:12]  # three digits of the microseconds
        labels.append(clock if time.date() == day else f"{clock}\n{time.day} {time:%b %Y}")
        day = time.date()
    return labels


def _draw_bars(
    axes: Axes,
    places: Sequence[float],
    widths: Sequence[float],
    bars: Sequence[Bar],
    hue: str,
    unit: Callable[[float], str],
    *,
    is_whole: bool = False,
) -> None:
    """Draw the bars and a scale that begins at 0; `is_whole` scales have no fractions."""
    most = max((bar.value for bar in bars), default=0) or 1
    ticks = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=is_whole).tick_values(0, most)
    labels = [unit(value) for value in ticks]
    axes.set_yticks(ticks, labels)
    axes.set_ylim(0, ticks[-1])
    _make_room(axes, max(map(len, labels)))
    least = _LEAST / _BARS * ticks[-1]
    gap = 0.0 if len(bars) > 60 else 0.06
    for place, (at, width, bar) in enumerate(zip(places, widths, bars, strict=True)):
        if bar.value:
            height = max(least, bar.value)
            (drawn,) = axes.bar(
                at + width * gap, height, width * (1 - 2 * gap), align="edge", color=HUES[hue], clip_on=False, zorder=2
            )
            drawn.set_gid(f"bar{place}")


def _make_room(axes: Axes, letters: int) -> None:
    """Leave room on the left for labels of `letters` letters."""
    place = axes.get_position()
    width = axes.get_window_extent().width / place.width
    left = max(_LEFT, letters * _LETTER + _TICK_PAD)
    axes.set_position((left / width, place.y0, (width - left - _RIGHT) / width, place.height))


def _keep_inside(axes: Axes) -> None:
    """Have a label that would stick out on the right end at its place."""
    begin, end = axes.get_xlim()
    pixels = axes.get_window_extent().width / (end - begin)
    for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
        half = max(map(len, label.get_text().split("\n"))) * _LETTER / 2
        if (end - place) * pixels + _RIGHT < half:
            label.set_horizontalalignment("right")


@contextmanager
def _figure(width: int, height: int) -> Iterator[Figure]:
    """Yield a transparent figure, in pixels, with matplotlib's own defaults whatever a user has changed."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", "font.size": _TEXT, "text.parse_math": False})
        figure = Figure(figsize=(width / _DOTS, height / _DOTS), dpi=_DOTS, facecolor="none")
        FigureCanvasSVG(figure)
        yield figure


@contextmanager
def _axes(width: int, lines: int = 1) -> Iterator[Axes]:
    """Yield axes with lines across, without a frame, and with room for labels of `lines` lines."""
    below = _PAD + lines * _LINE + 4
    height = _TOP + _BARS + below
    with _figure(width, height) as figure:
        size = (width - _LEFT - _RIGHT) / width, _BARS / height
        axes = figure.add_axes((_LEFT / width, below / height, *size), facecolor="none")
        for side in ("top", "left", "right"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set(color=HUES["soft"], linewidth=1)
        axes.tick_params(length=0, labelcolor=HUES["soft"], pad=_TICK_PAD)
        axes.tick_params(axis="x", pad=_PAD)
        axes.grid(visible=True, axis="y", color=HUES["line"], linewidth=1, clip_on=False)
        axes.set_axisbelow(True)
        yield axes


def _tips(bars: Sequence[Bar]) -> dict[str, str]:
    return {f"bar{place}": bar.tip for place, bar in enumerate(bars)}


def _class(width: int) -> str:
    return "phone" if width == PHONE else "desk"
