"""PNG plots of results; without matplotlib (the extra `bench`) a line says that none are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Summary
from reput.source.system import pip_install

_BROKER, _REPUT = "#8c8c8c", "#1f77b4"


def rates(summaries: Sequence[Summary], path: Path, title: str) -> None:
    """Bars of messages a second without start-up, from the slowest to the fastest run, and a mark with start-up."""
    figure, axes = _figure(len(summaries) * 0.4 + 1.2)
    if figure is None:
        return
    for place, summary in enumerate(reversed(summaries)):
        color = _BROKER if summary.case.startswith("broker") else _REPUT
        spread = [[summary.rate - summary.rate_min], [summary.rate_max - summary.rate]]
        axes.barh(place, summary.rate, color=color, xerr=spread, ecolor="black", capsize=3)
        axes.plot(summary.rate_in_all, place, "k|", markersize=12)
    axes.set_yticks(range(len(summaries)), [summary.case for summary in reversed(summaries)])
    _with_prefixes(axes.xaxis)
    axes.set_xlabel("messages/s without start-up; | with start-up")
    _save(figure, axes, path, title)


def shapes(found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """For each shape, messages a second of the first two cases: broker and reput."""
    figure, axes = _figure(len(found) * 0.5 + 1.2)
    if figure is None:
        return
    for place, shape in enumerate(reversed(list(found.values()))):
        for case, shift, color in zip(shape["cases"], (0.2, -0.2), (_BROKER, _REPUT), strict=False):
            axes.barh(place + shift, case["rate"], 0.4, color=color, label=case["case"] if not place else None)
    axes.set_yticks(range(len(found)), list(found)[::-1])
    _with_prefixes(axes.xaxis)
    axes.set_xlabel("messages/s without start-up")
    axes.legend(loc="lower right")
    _save(figure, axes, path, "Reput of logs of several shapes")


def curves(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    path: Path,
    title: str,
    labels: tuple[str, str],
    *,
    logarithmic: str = "x",
) -> None:
    """Lines through measured points; one axis is logarithmic, "x" or "y", and the other begins at 0."""
    figure, axes = _figure(4)
    if figure is None:
        return
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    if logarithmic == "x":
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        _with_prefixes(axes.yaxis)
    else:
        axes.set_yscale("log")
        axes.set_xlim(left=0)
    figure.legend(loc="outside right upper")
    _save(figure, axes, path, title)


def over_time(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    marks: Sequence[tuple[str, float, float]],
    path: Path,
    title: str,
) -> None:
    """Panels below each other over the same minutes, each from 0 on, named by its unit, with a line for each name.

    A mark is what happened from one minute to another; each kind has its color.
    """
    figure, axes = _figure(1.7 * len(panels) + 1, len(panels))
    if figure is None:
        return
    kinds = list(dict.fromkeys(kind for kind, _, _ in marks))
    for axis, (unit, lines) in zip(axes, panels.items(), strict=True):
        for kind, begin, end in marks:
            color = f"C{kinds.index(kind) + 3}"
            axis.axvspan(begin, max(end, begin + 0.15), color=color, alpha=0.25, linewidth=0)
        for name, points in lines.items():
            axis.plot(*zip(*points, strict=True), label=name, linewidth=1)
        axis.set_ylabel(unit)
        axis.set_ylim(bottom=0)
        axis.margins(x=0.01)
        if len(lines) > 1:
            axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    axes[-1].set_xlabel("minutes")
    from matplotlib.patches import Patch

    handles = [Patch(color=f"C{number + 3}", alpha=0.25, label=kind) for number, kind in enumerate(kinds)]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=len(kinds), frameon=False)
    _save(figure, axes[0], path, title)


def _figure(height: float, rows: int = 1) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print(f"no plot: {pip_install('matplotlib')}", flush=True)
        return None, None
    figure = Figure(figsize=(9, height), layout="constrained")
    return figure, figure.subplots(rows, sharex=True)


def _with_prefixes(axis: Any) -> None:
    """Mark 2,000,000 as 2 M."""
    from matplotlib.ticker import EngFormatter

    axis.set_major_formatter(EngFormatter())


def _save(figure: Any, axes: Any, path: Path, title: str) -> None:
    axes.set_title(title)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=110)
    print(f"wrote {path}", flush=True)
