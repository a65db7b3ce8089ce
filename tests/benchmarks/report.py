"""Results as Markdown, put between the marks of a page, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Summary, ratio

COLUMNS = (
    "case",
    "messages/s",
    "slowest to fastest",
    "µs",
    "of its base",
    "messages/s with start-up",
    "CPU µs",
    "memory: own (with mapped files), MB",
    "files equal",
)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of which all columns but the first are numbers, to the right."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary_table(summaries: Sequence[Summary]) -> str:
    """A row a case; "of its base" is the ratio of the rates without start-up, and tells the base."""
    return markdown_table(COLUMNS, [_row(summary, summaries) for summary in summaries])


def _row(summary: Summary, summaries: Sequence[Summary]) -> list[str]:
    times = ratio(summary, summaries)
    memory = [f"{kind} {own:,.0f} ({summary.peak_mb[kind]:,.0f})" for kind, own in summary.own_mb.items()]
    return [
        summary.case,
        f"{summary.rate:,.0f}",
        f"{summary.rate_min:,.0f} to {summary.rate_max:,.0f}",
        f"{summary.micros:.2f}",
        "-" if times is None or summary.base == summary.case else f"{times:.2f} of {summary.base}",
        f"{summary.rate_in_all:,.0f}",
        f"{summary.cpu_micros:.2f}",
        ", ".join(memory),
        f"{summary.files_equal:,}" if summary.files_equal else "not compared",
    ]


def with_block(page: str, name: str, block: str) -> str:
    """The page with `block` between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.

    Raises
    ------
    ValueError
        The page has no such marks, or not once.
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page must have {begin} and {end} once each")
    head, rest = page.split(begin)
    return f"{head}{begin}\n{block.strip()}\n{end}{rest.split(end)[1]}"


def save(
    results: Mapping[str, Any],
    block: str,
    name: str,
    work: Path,
    docs: Path | None,
    page: str,
    plot_title: str | None = None,
) -> Path:
    """Write NAME.json and NAME.md below `work`, or with `docs` NAME.json there and the block into its page.

    `plot_title` is of NAME.png, which the caller puts beside the JSON file; the page shows it. Returns that directory.
    """
    directory = work / "results" if docs is None else docs / "benchmarks"
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    (directory / f"{name}.json").write_text(text, encoding="utf-8")
    if docs is None:
        (directory / f"{name}.md").write_text(f"{block}\n", encoding="utf-8")
    else:
        if plot_title is not None:
            block = f"![{plot_title}](benchmarks/{name}.png)\n\n{block}"
        path = docs / page
        path.write_text(with_block(path.read_text(encoding="utf-8"), name, block), encoding="utf-8")
    return directory
