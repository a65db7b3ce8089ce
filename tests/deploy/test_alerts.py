"""Each fault fires its own alert and no other, and hours in which all is well fire none: asked of promtool."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from deploy.simulated_run import SimulatedRun
from support.paths import ROOT

from reput.source.errors import OutputFullError, TransientError

pytestmark = pytest.mark.deploy

PROMETHEUS = ROOT / "conf" / "deploy" / "prometheus"
RULES = PROMETHEUS / "reput.rules.yml"
WARM_UP = 60.0


@dataclass(frozen=True)
class Fault:
    """A fault after an hour without any; the alert must fire from one minute to another at least.

    `over_by` is when it must have ended, in minutes after the fault began; None if it lasts.
    """

    alert: str
    happens: Callable[[SimulatedRun], None]
    fires_by: float
    fires_until: float
    over_by: float | None = None


def stopped(run: SimulatedRun) -> None:
    run.is_down = True
    run.live(20)
    run.is_down = False
    run.start()
    run.live(40)


def never_there(run: SimulatedRun) -> None:
    run._samples.clear()
    run.is_down = True
    run.live(20)
    run._samples.clear()


def restarted(run: SimulatedRun) -> None:
    """The process ends with 75 every five minutes, and is started again 30 s later."""
    for _ in range(8):
        run.is_down = True
        run.live(0.5)
        run.is_down = False
        run.start(at_once=False)
        run.live(0.5)
        run.open()
        run.live(4)
    run.live(80)


def opened_again(run: SimulatedRun) -> None:
    """A worker dies every two minutes; the query works in between."""
    for _ in range(20):
        run.wait("logic", TransientError, 10)
        run.live(2)
    run.live(70)


def starting(run: SimulatedRun) -> None:
    run.start(at_once=False)
    run.live(50)
    run.open()
    run.live(10)


def hung(run: SimulatedRun) -> None:
    run.is_hung = True
    run.live(20)
    run.is_hung = False
    run.live(20)


def hung_and_behind(run: SimulatedRun) -> None:
    run.behind_s["logic"] = 20.0
    run.live(5)
    hung(run)


def stalled(run: SimulatedRun) -> None:
    run.keeps.discard("table")
    run.live(30)
    run.keeps.add("table")
    run.live(30)


def lagging(run: SimulatedRun) -> None:
    run.behind_s["logic"] = 300.0
    run.live(40)
    run.behind_s["logic"] = 0.0
    run.live(20)


def waiting(run: SimulatedRun) -> None:
    run.wait("table", TransientError, 30 * 60)
    run.live(90)


def both_waiting(run: SimulatedRun) -> None:
    run.state.on_waiting("logic", "it fails", 60.0, 1, TransientError.code)
    run.keeps.discard("logic")
    run.wait("table", TransientError, 30 * 60)
    run.state.on_resumed("logic")
    run.keeps.add("logic")
    run.live(20)


def bad_end(run: SimulatedRun) -> None:
    run.keeps.discard("logic")
    run.state.on_bad_end("logic", "the bytes there are not a record")
    run.live(30)
    run.state.on_bad_end("logic", None)
    run.keeps.add("logic")
    run.live(20)


def full(run: SimulatedRun) -> None:
    run.wait("logic", OutputFullError, 40 * 60)
    run.live(90)


def damaged(run: SimulatedRun) -> None:
    run.find("logic", "BAD_CRC")
    run.live(60)


def gap(run: SimulatedRun) -> None:
    run.find("table", "EXPIRED", expired_bytes=5_000)
    run.live(60)


def gap_at_the_start(run: SimulatedRun) -> None:
    run.is_down = True
    run.live(1)
    run.is_down = False
    run.start()
    run.find("table", "EXPIRED", expired_bytes=5_000)
    run.live(60)


def refused(run: SimulatedRun) -> None:
    run.state.gauge("table_upkeep_refused", 1)
    run.live(60)


def many_small_files(run: SimulatedRun) -> None:
    run.state.gauge("table_small_files", 301)
    run.live(60)
    run.state.gauge("table_small_files", 20)
    run.live(10)


FAULTS = [
    Fault("ReputStopped", stopped, 4, 19, 22),
    Fault("ReputStopped", never_there, 9, 19),
    Fault("ReputRestartLoop", restarted, 30, 60, 110),
    Fault("ReputRestartLoop", opened_again, 35, 60, 115),
    Fault("ReputStarting", starting, 32, 49, 52),
    Fault("ReputHung", hung, 6, 19, 22),
    Fault("ReputHung", hung_and_behind, 11, 24, 27),
    Fault("ReputStalled", stalled, 8, 29, 32),
    Fault("ReputLagging", lagging, 18, 39, 43),
    Fault("ReputWaiting", waiting, 7, 29, 32),
    Fault("ReputWaiting", both_waiting, 7, 29, 32),
    Fault("ReputWaiting", bad_end, 7, 29, 32),
    Fault("ReputOutputFull", full, 3, 39, 42),
    Fault("ReputDamage", damaged, 1, 13, 18),
    Fault("ReputGap", gap, 1, 13, 18),
    Fault("ReputGap", gap_at_the_start, 2, 13, 20),
    Fault("ReputTableUpkeep", refused, 32, 59),
    Fault("ReputTableUpkeep", many_small_files, 32, 59, 62),
]


def quiet_hours(run: SimulatedRun) -> None:
    """A night without messages, a busy day, an upgrade, faults that passed at once, a pause that was caught up."""
    run.rate = 0.0
    run.live(120)
    run.rate = 50_000.0

    def saw(minute: float) -> None:
        run.behind_s["table"] = 60 * minute % 100  # a table with a long trigger
        run.state.gauge("table_small_files", 20 + 60 * minute % 60)

    run.live(120, saw)
    run.is_down = True
    run.live(1)
    run.is_down = False
    run.start(at_once=False)
    run.live(2)
    run.open()
    run.live(30)
    for seconds in (5, 60, 180):
        run.wait("logic", TransientError, seconds)
        run.live(30)
    run.wait("table", OutputFullError, 30)
    run.behind_s["logic"] = 200.0
    run.live(6)
    run.behind_s["logic"] = 0.0
    run.state.on_bad_end("logic", "the last record is not whole yet")
    run.live(2)
    run.state.on_bad_end("logic", None)
    run.rate = 0.0
    run.live(60)


def firing(at: float, alerts: str, *, is_expected: bool) -> dict[str, object]:
    """A question to promtool: which alerts fire at a minute, of those that a matcher selects."""
    name = alerts.rpartition('"')[0].rpartition('"')[2]
    found = [{"labels": f'{{alertname="{name}"}}', "value": 1}] if is_expected else []
    matcher = f'alertname{alerts}, alertstate="firing"'
    return {
        "expr": f"count by (alertname) (count by (alertname, instance) (ALERTS{{{matcher}}}))",
        "eval_time": f"{round(at * 60)}s",
        "exp_samples": found,
    }


def ask_promtool(run: SimulatedRun, questions: list[dict[str, object]], tmp_path: Path) -> None:
    """Fail with promtool's words if an answer is another."""
    test = {"interval": "30s", "input_series": run.series(), "promql_expr_test": questions}
    page = {"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": [test]}
    (tmp_path / "test.yml").write_text(json.dumps(page))
    done = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.happens.__name__)
def test_a_fault_fires_its_own_alert(fault: Fault, tmp_path: Path) -> None:
    """In time, as long as it lasts, and no other at any minute."""
    run = SimulatedRun()
    run.live(WARM_UP)
    begin = WARM_UP
    fault.happens(run)
    others = [firing(minute, f'!="{fault.alert}"', is_expected=False) for minute in range(1, run.minutes)]
    own = f'="{fault.alert}"'
    before = [] if fault.happens is never_there else [firing(at, own, is_expected=False) for at in range(10, 60, 10)]
    during = [
        firing(begin + at, own, is_expected=True) for at in range(round(fault.fires_by), round(fault.fires_until) + 1)
    ]
    after = [] if fault.over_by is None else [firing(begin + fault.over_by, own, is_expected=False)]
    ask_promtool(run, [*others, *before, *during, *after], tmp_path)


def test_each_alert_has_its_fault() -> None:
    """None is without a test."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert {rule["alert"] for rule in group["rules"]} == {fault.alert for fault in FAULTS}


def test_a_second_damage_of_a_kind_is_seen(tmp_path: Path) -> None:
    """The counter of that cause has begun long before."""
    run = SimulatedRun()
    run.live(5)
    run.find("logic", "BAD_CRC")
    run.live(60)
    run.find("logic", "BAD_CRC")
    run.live(60)
    own = '="ReputDamage"'
    expected = [(4, False), (7, True), (30, False), (60, False), (68, True), (90, False)]
    ask_promtool(run, [firing(at, own, is_expected=is_expected) for at, is_expected in expected], tmp_path)


def test_quiet_hours_are_quiet(tmp_path: Path) -> None:
    """No alert at any minute."""
    run = SimulatedRun()
    run.live(10)
    quiet_hours(run)
    assert run.minutes > 6 * 60
    ask_promtool(run, [firing(minute, '!=""', is_expected=False) for minute in range(1, run.minutes)], tmp_path)


def test_prometheus_takes_the_files() -> None:
    """The configuration, and the rules with all their templates."""
    for what, path in (("config", PROMETHEUS / "prometheus.yml"), ("rules", RULES)):
        done = subprocess.run(["promtool", "check", what, path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "11 rules found" in done.stdout


def test_prometheus_takes_what_the_collector_asks(tmp_path: Path) -> None:
    """The part of the OpenTelemetry Collector's configuration that is Prometheus' own."""
    collector = yaml.safe_load((PROMETHEUS.parent / "opentelemetry" / "collector.yaml").read_text())
    (tmp_path / "scrape.yml").write_text(yaml.safe_dump(collector["receivers"]["prometheus"]["config"]))
    command = ["promtool", "check", "config", tmp_path / "scrape.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
