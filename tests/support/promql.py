"""The names of metrics and the labels in an expression of Prometheus, compared with docs/metrics.md."""

from __future__ import annotations

import re
from collections.abc import Iterator

from support.paths import ROOT

#: Labels that Prometheus adds.
ADDED = frozenset({"job", "instance"})
_OF_A_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}|\b(rocketmq_reput_\w+|process_\w+|python_\w+)\b(?!\s*\{)")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')


def documented() -> dict[str, frozenset[str]]:
    """The labels of each metric by its name, as docs/metrics.md has them."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(rocketmq_reput_\w+)` \|([^|]*)\|", page, re.MULTILINE)
    return {name: frozenset(labels.replace(" ", "").split(",")) - {""} for name, labels in rows}


def histograms() -> frozenset[str]:
    """The metrics that docs/metrics.md calls histograms."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^\| `(rocketmq_reput_\w+)` \| [^|]* \| [^|]*histogram", page, re.MULTILINE))


def selected(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each metric that is asked for, and its matchers: labels and values."""
    for name, matchers, bare in _SELECTOR.findall(expression):
        yield (name or bare), dict(_MATCHER.findall(matchers))


def grouped_by(expression: str) -> set[str]:
    """The labels in clauses such as ``by`` and ``on``."""
    return {label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",")} - {""}


def mistakes(expression: str) -> list[str]:
    """Return the parts of an expression about reput that are not in docs/metrics.md."""
    metrics, found = documented(), []
    seen: set[str] = {*ADDED}
    for name, matchers in selected(expression):
        if name in ("up", "ALERTS") or name.startswith(("process_", "python_")):  # others' own
            seen |= {"alertname", "alertstate"} if name == "ALERTS" else set()
            continue
        base = _OF_A_HISTOGRAM.sub("", name)
        base = base if base in histograms() else name
        if base not in metrics or name in histograms():
            found.append(f"no metric {name}")
            continue
        labels = metrics[base] | ({"le"} if name.endswith("_bucket") and base != name else set())
        seen |= labels
        found += [f"{name} has no label {label}" for label in matchers if label not in labels | ADDED]
    found += [f"nothing has the label {label}" for label in sorted(grouped_by(expression) - seen)]
    return found
