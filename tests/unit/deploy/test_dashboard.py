"""The dashboard asks for metrics that there are, and for nearly all; tests/deploy/ asks a real Prometheus."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from support.paths import ROOT
from support.promql import documented, histograms, mistakes, selected

DASHBOARD = json.loads((ROOT / "conf" / "deploy" / "grafana" / "reput.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions(panel: dict[str, Any]) -> list[str]:
    """Return the expressions of a panel."""
    return [target["expr"] for target in panel["targets"]]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_what_there_is(panel: dict[str, Any]) -> None:
    """Names and labels, also those in its legends."""
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    for target in panel["targets"]:
        assert mistakes(target["expr"]) == []
        assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables
        names = [re.sub(r"_(bucket|sum)$", "", name) for name, _ in selected(target["expr"])]
        labels = {"instance"}.union(*(documented().get(name, ()) for name in names))
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels


def test_every_metric_is_shown() -> None:
    """But for those that say the same as another one."""
    shown = {name for panel in PANELS for expression in expressions(panel) for name, _ in selected(expression)}
    shown = {re.sub(r"_(bucket|sum)$", "", name) for name in shown}
    untold = {
        "rocketmq_reput_commitlog_looked_at_timestamp_seconds",  # an alert's
        "rocketmq_reput_waiting",  # part of the state
        "rocketmq_reput_bad_end",
    }
    of_a_backup = {name for name in documented() if name.startswith("rocketmq_reput_backup_")}
    assert set(documented()) - shown == untold | of_a_backup
    assert histograms() <= shown


def test_grafana_can_place_it() -> None:
    """A schema of Grafana 10.4 and later, panels with numbers of their own beside and below each other."""
    assert DASHBOARD["schemaVersion"] >= 39
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    for panel in PANELS:
        refs = [target["refId"] for target in panel["targets"]]
        assert all(first < second for first, second in pairwise(refs))
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
