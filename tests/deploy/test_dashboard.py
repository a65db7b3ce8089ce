"""Each query of the dashboard, asked of a real Prometheus that scrapes a real `StatusServer`."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import ROOT
from support.seen_log import SeenLog

from reput.sinks.anomalies import AnomalyCounts
from reput.source.errors import OutputFullError
from reput.streaming.status.batch_report import PHASES, BatchReport, LogEnd
from reput.streaming.status.metrics import COUNTS, GAUGES
from reput.streaming.status.publisher import StatusPublisher
from reput.streaming.status.run_state import RunState

pytestmark = pytest.mark.deploy

DASHBOARD = json.loads((ROOT / "conf" / "deploy" / "grafana" / "reput.json").read_text())
TARGETS = [
    pytest.param(target, id=f"{panel['title']} {target['refId']}")
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
SCRAPES = 6
WITHIN_S = 60.0


def advance(state: RunState) -> None:
    """One batch more of each query, with something of every kind."""
    for query in ("logic", "table"):
        start = state.query(query).end or 0
        phases = dict.fromkeys(PHASES, 0.01)
        found = AnomalyCounts(gap=1), Counter(BAD_CRC=1)
        state.on_batch(BatchReport(query, start, start + 100, 5, 0.1, *found, phases=phases, expired_bytes=10))
    for name in COUNTS:
        state.count(name, "one")
    for name in GAUGES:
        state.gauge(name, 1)
    end = state.query("logic").end or 0
    state.look(SeenLog(LogEnd(end + 50), {end: 0}))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has scraped a run for some seconds, by the configuration of conf/deploy."""
    home = tmp_path_factory.mktemp("prometheus")
    state = RunState("broker-a")
    for query in ("logic", "table"):
        state.on_running(query, 0)
    advance(state)
    state.on_waiting("table", "no room", 5.0, 1, OutputFullError.code)
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    with StatusPublisher([(state, Path("nowhere"))], {}, port=0) as publisher:
        source = ROOT / "conf" / "deploy" / "prometheus"
        configuration = yaml.safe_load((source / "prometheus.yml").read_text())
        configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        configuration["scrape_configs"][0]["static_configs"][0]["targets"] = [f"localhost:{publisher.port}"]
        (home / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        (home / "reput.rules.yml").write_text((source / "reput.rules.yml").read_text())
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *("prometheus", f"--config.file={home / 'prometheus.yml'}", f"--storage.tsdb.path={home / 'data'}"),
                    f"--web.listen-address=localhost:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            address, deadline = f"http://localhost:{port}", time.monotonic() + WITHIN_S
            while _scrapes(address) < SCRAPES:
                assert time.monotonic() < deadline, (home / "log").read_text()[-2_000:]
                time.sleep(0.5)
                advance(state)
            yield address
        finally:
            process.terminate()
            process.wait()


def asked(address: str, expression: str) -> list[dict[str, Any]]:
    """Return the answer of Prometheus, which refuses expressions that it cannot compute."""
    with urllib.request.urlopen(f"{address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}") as answer:
        found = json.load(answer)
    assert found["status"] == "success"
    result: list[dict[str, Any]] = found["data"]["result"]
    return result


def _scrapes(address: str) -> int:
    try:
        found = asked(address, 'count_over_time(up{job="reput"}[1h])')
    except OSError:
        return 0
    return int(found[0]["value"][1]) if found else 0


@pytest.mark.parametrize("target", TARGETS)
def test_a_panel_shows_something(target: dict[str, Any], prometheus: str) -> None:
    """Of a run in which everything happens, with each label that its legend names."""
    expression = target["expr"].replace("$__rate_interval", "1m").replace("$broker", ".*").replace("$instance", ".*")
    found = asked(prometheus, expression)
    assert found
    for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
        assert all(series["metric"].get(label) for series in found), label


@pytest.mark.parametrize("variable", [each for each in DASHBOARD["templating"]["list"] if each["type"] == "query"])
def test_a_variable_has_values(variable: dict[str, Any], prometheus: str) -> None:
    """As Grafana asks for them."""
    name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
    assert {series["metric"][label] for series in asked(prometheus, name)}


def test_prometheus_found_the_alerts(prometheus: str) -> None:
    """Those of the rules, none of them with an error."""
    with urllib.request.urlopen(f"{prometheus}/api/v1/rules") as answer:
        (group,) = json.load(answer)["data"]["groups"]
    assert len(group["rules"]) == 11
    assert {(rule["health"], rule.get("lastError")) for rule in group["rules"]} == {("ok", None)}
