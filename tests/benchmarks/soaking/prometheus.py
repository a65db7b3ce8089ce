"""A real Prometheus with the project's rules, beside one tail; and what the tail itself shows at its port."""

from __future__ import annotations

import http.client
import json
import subprocess
import urllib.parse
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from broker.java_process import LOOPBACK, free_port
from prometheus_client.parser import text_string_to_metric_families
from support.paths import ROOT

from benchmarks.soaking.supervisor import wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

CONF = ROOT / "conf" / "deploy" / "prometheus"
SECONDS = 5.0
START_SECONDS = 60.0
STEP_SECONDS = 15


def get(url: str) -> bytes:
    """Return the body of a page.

    Raises
    ------
    OSError
        There is no answer, or an error.
    """
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            body: bytes = answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"no whole answer from {url}: {error}") from error
    return body


def status(port: int) -> dict[str, Any] | None:
    """Return the tail's `/status`; None without an answer."""
    try:
        document: dict[str, Any] = json.loads(get(f"http://localhost:{port}/status"))
    except OSError:
        return None
    return document


def metrics(port: int) -> dict[str, float] | None:
    """Every sample of `/metrics` that has no label but the broker and the query, by ``name/query``."""
    try:
        text = get(f"http://localhost:{port}/metrics").decode()
    except OSError:
        return None
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if set(sample.labels) <= {"broker", "query"}:
                found[f"{sample.name}/{sample.labels['query']}" if "query" in sample.labels else sample.name] = (
                    sample.value
                )
    return found


@dataclass(frozen=True)
class Firing:
    """An alert that fired from one moment to another, in seconds since the epoch."""

    alert: str
    labels: str
    begin: float
    end: float


def firings(series: list[dict[str, Any]], step: float) -> list[Firing]:
    """Stretches of a range query's answer about ``ALERTS``; a hole longer than a step ends one."""
    found = []
    for each in series:
        labels = {name: value for name, value in each["metric"].items() if name not in {"__name__", "alertstate"}}
        name = labels.pop("alertname")
        text = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        begin = last = None
        for at, _ in each["values"]:
            if begin is None or last is None or at - last > 1.5 * step:
                if begin is not None and last is not None:
                    found.append(Firing(name, text, begin, last))
                begin = at
            last = at
        if begin is not None and last is not None:
            found.append(Firing(name, text, begin, last))
    return sorted(found, key=lambda firing: (firing.begin, firing.alert))


class Prometheus:
    """Scrapes one port of this machine as `job="reput"`, with the rules and the intervals of ``conf/deploy``.

    `interval` replaces the interval of scrapes and of looks at the rules.
    """

    def __init__(self, work: Path, target_port: int, interval: str | None = None) -> None:
        self._work = work
        self._target_port = target_port
        self._interval = interval
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def configuration(self) -> dict[str, Any]:
        """The project's configuration, with this target."""
        conf: dict[str, Any] = yaml.safe_load((CONF / "prometheus.yml").read_text())
        conf["rule_files"] = [str(CONF / name) for name in conf["rule_files"]]
        conf["scrape_configs"][0]["static_configs"] = [{"targets": [f"localhost:{self._target_port}"]}]
        if self._interval is not None:
            conf["global"] = {"scrape_interval": self._interval, "evaluation_interval": self._interval}
        return conf

    def __enter__(self) -> Self:
        """Start it and wait until it is ready."""
        self._work.mkdir(parents=True)
        (self._work / "prometheus.yml").write_text(yaml.safe_dump(self.configuration()))
        with (self._work / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._work / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._work / 'data'}",
                    f"--web.listen-address={LOOPBACK}:{self.port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._is_ready, START_SECONDS, "Prometheus is ready")
        return self

    def _is_ready(self) -> bool:
        try:
            get(f"http://{LOOPBACK}:{self.port}/-/ready")
        except OSError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def ask(self, path: str, **arguments: object) -> Any:
        """The data of an answer of its HTTP API."""
        query = urllib.parse.urlencode({name: str(value) for name, value in arguments.items()})
        return json.loads(get(f"http://{LOOPBACK}:{self.port}/api/v1/{path}?{query}"))["data"]

    def fired(self, begin: float, end: float, step: int = STEP_SECONDS) -> list[Firing]:
        """All alerts that fired between two moments."""
        answer = self.ask("query_range", query='ALERTS{alertstate="firing"}', start=begin, end=end, step=step)
        return firings(answer["result"], step)

    def now(self) -> dict[str, set[str]]:
        """Names of the alerts of this moment by state: ``pending`` or ``firing``."""
        found: dict[str, set[str]] = defaultdict(set)
        for alert in self.ask("alerts")["alerts"]:
            found[alert["state"]].add(alert["labels"]["alertname"])
        return found
