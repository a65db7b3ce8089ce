"""The table of what releases do differently, and the page that shows it."""

from __future__ import annotations

import re

from support.paths import ROOT

from reput.source.releases import CHANGING_RELEASES, FIRST, LAST, RULES, version_of, version_text


def test_the_page_shows_every_rule() -> None:
    """docs/releases.md has a row for each rule, in the order of releases, and nothing else."""
    rows = [line for line in (ROOT / "docs/releases.md").read_text().splitlines() if re.match(r"\| \d", line)]
    expected = []
    for name, rule in sorted(RULES.items(), key=lambda item: item[1].since):
        until = "" if rule.until is None else f" to before {version_text(rule.until)}"
        expected.append(f"| {version_text(rule.since)}{until} | {rule.what} | {rule.source} | {name} |")
    assert rows == expected


def test_every_rule_is_followed() -> None:
    """A rule that no module asks for would be prose."""
    code = "".join(path.read_text() for top in ("source", "sinks", "streaming") for path in (ROOT / top).rglob("*.py"))
    assert [name for name in RULES if f"releases.{name}" not in code] == []


def test_rules_by_release() -> None:
    """A rule holds from its release on, until another release ends it."""
    empty = RULES["FAILS_AT_EMPTY_QUEUE_FILES"]
    held = [version_text(version) for version in CHANGING_RELEASES if empty.holds(version)]
    assert held == ["5.0.0", "5.1.0", "5.1.1", "5.1.2", "5.1.3", "5.2.0", "5.3.2", "5.4.0"]
    assert (CHANGING_RELEASES[0], CHANGING_RELEASES[-1]) == (FIRST, LAST)
    assert [version_of(text) for text in ("5.5.1", "5.5", "auto")] == [(5, 5, 1), None, None]
