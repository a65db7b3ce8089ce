"""The charts, drawn by matplotlib: each for a desk and for a phone, of which the page shows the one that fits.

Positions are in pixels of the page (72 dots an inch), so that texts have the size of the page's texts.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reput.streaming.report.inline_svg import HUES, Additions, inline_svg
from reput.streaming.report.words import name_text

#: Pixels of a chart over the whole page, over half of it, and on a phone.
WHOLE, HALF, PHONE = 1040, 496, 340
_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 200, 60, 22, 10, 40
_TEXT: Final = 12
_DOTS: Final = 72
# Of a row with a name and a bar: its height, the bar's, and a cell of the names' font.
_ROW, _BAR, _CELL, _VALUE = 42, 10, 7.9, 130
_LABELS: Final = {WHOLE: 9, HALF: 6, PHONE: 4}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Room for so many bars at least, so that a single one does not look like a wall.
_BARS_LEAST: Final = 4
# The least that a bar of something is high, so that it is seen.
_LEAST: Final = 1.5


@dataclass(frozen=True)
class Bar:
    """One bar of a chart: its value, and what is said of it where the mouse is."""

    value: float
    tip: str


def over_time(
    label: str, bars: Sequence[Bar], start_us: int, width_us: int, unit: Callable[[float], str], hue: str = "series"
) -> list[ET.Element]:
    """A bar for each of consecutive steps of time; `unit` gives a value as a text."""

    def draw(width: int) -> ET.Element:
        with _axes(width) as axes:
            edges = [date2num(_time(start_us + place * width_us)) for place in range(len(bars) + 1)]
            axes.set_xlim(edges[0], edges[-1])
            locator = AutoDateLocator(tz=timezone.utc, minticks=2, maxticks=_LABELS[width])
            axes.xaxis.set_major_locator(locator)
            axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=timezone.utc))
            wide = [end - begin for begin, end in zip(edges, edges[1:], strict=False)]
            _draw_bars(axes, edges[:-1], wide, bars, hue, unit)
            return inline_svg(axes.figure, label, _class(width), Additions(_tips(bars)))  # type: ignore[arg-type]

    return [draw(WHOLE), draw(PHONE)]


def by_step(label: str, bars: Sequence[Bar], edges: Sequence[str], unit: Callable[[float], str]) -> list[ET.Element]:
    """A bar for each of consecutive steps of values; `edges` are their bounds as texts, one more than bars."""

    def draw(width: int) -> ET.Element:
        with _axes(width) as axes:
            axes.set_xlim(0, max(len(bars), _BARS_LEAST))
            every = -(-len(edges) // _LABELS[width])
            places = list(range(0, len(edges), every))
            axes.set_xticks(places, [edges[place] for place in places])
            _draw_bars(axes, list(range(len(bars))), [1.0] * len(bars), bars, "series", unit, is_whole=True)
            return inline_svg(axes.figure, label, _class(width), Additions(_tips(bars)))  # type: ignore[arg-type]

    return [draw(HALF), draw(PHONE)]


def by_name(label: str, bars: Sequence[Bar], names: Sequence[str], values: Sequence[str]) -> list[ET.Element]:
    """A line for each name: the name and its value as a text, and under them a bar."""
    most = max((bar.value for bar in bars), default=0) or 1

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
                size = max(_LEAST, bar.value / most * width) if bar.value else 0
                for part, long, hue in (("track", width, "line"), ("bar", size, "series")):
                    axes.barh(top + 30, long, _BAR, color=HUES[hue], clip_on=False)[0].set_gid(f"{part}{place}")
            shown = {f"name{place}": name_text(name, cells) for place, name in enumerate(names)}
            said = {f"value{place}": value for place, value in enumerate(values)}
            return inline_svg(figure, label, _class(width) + " names", Additions(_tips(bars), shown, said))

    return [draw(WHOLE), draw(PHONE)]


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
    axes.set_yticks(ticks)
    axes.set_ylim(0, ticks[-1])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: unit(value)))
    least = _LEAST / (_HEIGHT - _TOP - _BOTTOM) * most
    gap = 0.0 if len(bars) > 60 else 0.06
    for place, (at, width, bar) in enumerate(zip(places, widths, bars, strict=True)):
        if bar.value:
            height = max(least, bar.value)
            (drawn,) = axes.bar(
                at + width * gap, height, width * (1 - 2 * gap), align="edge", color=HUES[hue], clip_on=False, zorder=2
            )
            drawn.set_gid(f"bar{place}")


@contextmanager
def _figure(width: int, height: int) -> Iterator[Figure]:
    """A figure of so many pixels without a ground, in matplotlib's own defaults whatever a user has changed."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", "font.size": _TEXT, "text.parse_math": False})
        figure = Figure(figsize=(width / _DOTS, height / _DOTS), dpi=_DOTS, facecolor="none")
        FigureCanvasSVG(figure)
        yield figure


@contextmanager
def _axes(width: int) -> Iterator[Axes]:
    """Axes with lines across and without a frame."""
    with _figure(width, _HEIGHT) as figure:
        size = (width - _LEFT - _RIGHT) / width, (_HEIGHT - _TOP - _BOTTOM) / _HEIGHT
        axes = figure.add_axes((_LEFT / width, _BOTTOM / _HEIGHT, *size), facecolor="none")
        for side in ("top", "left", "right"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set(color=HUES["soft"], linewidth=1)
        axes.tick_params(length=0, labelcolor=HUES["soft"], pad=6)
        axes.xaxis.get_offset_text().set_color(HUES["soft"])
        axes.grid(visible=True, axis="y", color=HUES["line"], linewidth=1, clip_on=False)
        axes.set_axisbelow(True)
        yield axes


def _tips(bars: Sequence[Bar]) -> dict[str, str]:
    return {f"bar{place}": bar.tip for place, bar in enumerate(bars)}


def _class(width: int) -> str:
    return "phone" if width == PHONE else "desk"


def _time(microseconds: int) -> datetime:
    """The time, or the last one that there is."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return (datetime.max if microseconds > 0 else datetime.min).replace(tzinfo=timezone.utc)

