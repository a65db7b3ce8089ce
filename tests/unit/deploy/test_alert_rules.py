"""The alert rules ask for metrics that there are; what they do is in tests/deploy/test_alerts.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import ROOT
from support.promql import ADDED, documented, mistakes, selected

from reput.sinks.quarantine import EXPIRED
from reput.source.errors import OutputFullError
from reput.streaming.status.run_state import State

PROMETHEUS = ROOT / "conf" / "deploy" / "prometheus"
(GROUP,) = yaml.safe_load((PROMETHEUS / "reput.rules.yml").read_text())["groups"]
RULES: list[dict[str, Any]] = GROUP["rules"]
# The values of labels that reput chooses.
VALUES = {"state": {state.value for state in State}, "cause": {EXPIRED}, "code": {OutputFullError.code}}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    """Names and labels of docs/metrics.md, values that reput gives them, and the job of the configuration."""
    assert mistakes(rule["expr"]) == []
    for name, matchers in selected(rule["expr"]):
        if name != "ALERTS":
            assert matchers["job"] == "reput", name
        for label, value in matchers.items():
            assert value in VALUES.get(label, {value})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_says_what_to_do(rule: dict[str, Any]) -> None:
    """How bad it is, what it is about, and where the page has it."""
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    names = {name for name, _ in selected(rule["expr"])} & set(documented())
    labels = ADDED.union(*(documented()[name] for name in names))
    for text in rule["annotations"].values():
        assert set(re.findall(r"\{\{ \$labels\.(\w+) \}\}", text)) <= labels
        assert text.count("{{") == len(re.findall(r"\{\{ \$labels\.\w+ \}\}", text))
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^## (\w+)$", Path(ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor == rule["alert"].lower()
    assert rule["alert"] in headings


def test_the_configuration_has_the_job() -> None:
    """That the rules ask for, and the rules."""
    configuration = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert [job["job_name"] for job in configuration["scrape_configs"]] == ["reput"]
    assert configuration["rule_files"] == ["reput.rules.yml"]
    assert (PROMETHEUS / "reput.rules.yml").is_file()


@pytest.mark.parametrize(
    ("expression", "mistake"),
    [
        ("rocketmq_reput_nothing > 0", "no metric rocketmq_reput_nothing"),
        ('rocketmq_reput_state{query="logic"}', "rocketmq_reput_state has no label query"),
        ("sum by (kind) (rocketmq_reput_waiting)", "nothing has the label kind"),
        ("histogram_quantile(0.9, rate(rocketmq_reput_messages_total_bucket[5m]))", "no metric"),
    ],
)
def test_a_mistake_is_found(expression: str, mistake: str) -> None:
    """So the tests of rules and dashboard can fail."""
    assert any(mistake in found for found in mistakes(expression))
