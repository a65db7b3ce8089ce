"""The OpenTelemetry Collector's configuration: every name in its pipeline exists, and it asks like Prometheus."""

from __future__ import annotations

from typing import Any

import yaml
from support.paths import ROOT

DEPLOY = ROOT / "conf" / "deploy"
CONFIGURATION: dict[str, Any] = yaml.safe_load((DEPLOY / "opentelemetry" / "collector.yaml").read_text())


def test_a_pipeline_has_all_that_is_configured() -> None:
    """And nothing else; the collector refuses a name that is not there, and starts nothing that is in no pipeline."""
    (pipeline,) = CONFIGURATION["service"]["pipelines"].values()
    assert {kind: list(CONFIGURATION[kind]) for kind in pipeline} == pipeline
    assert CONFIGURATION.keys() == {*pipeline, "service"}
    assert [*CONFIGURATION["service"]["pipelines"]] == ["metrics"]


def test_it_asks_what_prometheus_asks() -> None:
    """The same job, targets and interval."""
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    interval = prometheus["global"]["scrape_interval"]
    expected = [{**job, "scrape_interval": interval} for job in prometheus["scrape_configs"]]
    assert CONFIGURATION["receivers"]["prometheus"]["config"] == {"scrape_configs": expected}
