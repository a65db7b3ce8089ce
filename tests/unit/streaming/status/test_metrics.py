"""The metrics for Prometheus: every name documented, every figure that of the run."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.paths import ROOT
from support.seen_log import SeenLog

from reput.sinks.anomalies import AnomalyCounts
from reput.source.errors import OutputFullError
from reput.streaming.status.batch_report import BatchReport, LogEnd
from reput.streaming.status.metrics import COUNTS, GAUGES, registry_of
from reput.streaming.status.run_state import RunState

HOSTILE = 'a"\n# HELP up\\ {b}'


def run_of(broker: str) -> RunState:
    state = RunState(broker, clock=lambda: 1_000.0)
    state.on_running("logic", 0)
    state.on_running("table", 0)
    state.on_read("table", 400)
    phases = {"read": 0.02, "write": 0.3, "sync": 0.2}
    state.on_batch(
        BatchReport("logic", 0, 300, 7, 0.52, AnomalyCounts(gap=2), Counter(BAD_CRC=1), phases=phases, expired_bytes=50)
    )
    state.on_batch(BatchReport("logic", 300, 350, 1, 0.1))
    state.look(SeenLog(LogEnd(500), {350: 998_500, 0: 990_000}))
    for name in COUNTS:
        state.count(name, "one", 3)
    for name in GAUGES:
        state.gauge(name, 5)
    return state


def scraped(*runs: RunState) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples by name and labels, parsed as Prometheus does."""
    text = generate_latest(registry_of(runs)).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


def test_figures_are_those_of_the_run() -> None:
    """By broker and query."""
    found = scraped(run_of("metrics-a"))
    logic, table = labels(broker="metrics-a", query="logic"), labels(broker="metrics-a", query="table")

    def value(name: str, of: tuple[tuple[str, str], ...]) -> float:
        return found["rocketmq_reput_" + name, of]

    assert value("dispatch_behind_bytes", logic) == 150
    assert value("dispatch_behind_seconds", logic) == pytest.approx(1.5)
    assert value("dispatch_behind_bytes", table) == 500
    assert value("dispatch_behind_seconds", table) == pytest.approx(10.0)
    assert (value("read_offset", logic), value("commit_offset", logic)) == (350, 350)
    assert (value("read_offset", table), value("commit_offset", table)) == (400, 0)
    assert value("messages_total", logic) == 8
    assert value("bytes_total", logic) == 350
    assert value("batches_total", logic) == 2
    assert value("expired_unread_bytes_total", logic) == 50
    assert value("quarantined_total", labels(broker="metrics-a", query="logic", cause="BAD_CRC")) == 1
    assert value("anomalies_total", labels(broker="metrics-a", query="logic", kind="gap")) == 2
    sync = labels(broker="metrics-a", query="logic", phase="sync")
    assert (value("batch_seconds_count", sync), value("batch_seconds_sum", sync)) == (1, pytest.approx(0.2))
    assert value("commitlog_maxoffset", labels(broker="metrics-a")) == 500
    assert value("state", labels(broker="metrics-a", state="running")) == 1
    assert value("state", labels(broker="metrics-a", state="lagging")) == 0
    assert value("memory_bytes", labels(process="driver")) > 10_000_000
    assert found["process_open_fds", ()] == pytest.approx(len(list(Path("/proc/self/fd").iterdir())), abs=5)


def test_what_a_query_waits_for() -> None:
    """By the code of the error; gone when the query works again."""
    state = run_of("metrics-e")
    state.on_waiting("table", "no room", 5.0, 1, OutputFullError.code)
    table = labels(broker="metrics-e", query="table")
    full = "rocketmq_reput_waiting_for", labels(broker="metrics-e", query="table", code="output-full")
    found = scraped(state)
    assert (found["rocketmq_reput_waiting", table], found[full]) == (1, 1)
    state.on_waiting("table", "IOException: No space left on device", 5.0, 2, "try-again")
    assert scraped(state)[full] == 1  # Spark's own words, of its checkpoint
    state.on_waiting("table", "no answer", 5.0, 2, "output-failing")
    assert full not in scraped(state)
    state.on_running("table", 0)
    state.on_resumed("table")
    found = scraped(state)
    assert found["rocketmq_reput_waiting", table] == 0
    assert not [name for name, _ in found if name == full[0]]


def test_several_brokers_share_each_family() -> None:
    """A hostile name of a broker is a label's value and nothing else."""
    found = scraped(run_of("metrics-b"), run_of(HOSTILE))
    behind = {of: value for (name, of), value in found.items() if name == "rocketmq_reput_dispatch_behind_bytes"}
    assert set(behind) == {
        labels(broker=broker, query=query) for broker in ("metrics-b", HOSTILE) for query in ("logic", "table")
    }


def test_what_is_not_known_is_not_told() -> None:
    """A log that cannot be read has no end of 0."""
    state = RunState("metrics-c")
    state.on_running("logic", 0)
    names = {name for name, of in scraped(state) if ("broker", "metrics-c") in of}
    assert "rocketmq_reput_commit_offset" in names
    assert not {"rocketmq_reput_dispatch_behind_bytes", "rocketmq_reput_commitlog_maxoffset"} & names


def test_each_name_is_documented_and_no_other() -> None:
    """docs/metrics.md has a line for each; those of a backup are compared beside one."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(rocketmq_reput_\w+)`", page, re.MULTILINE))
    state = run_of("metrics-d")
    state.on_waiting("table", "no room", 5.0, 1, OutputFullError.code)
    told = {name for name, _ in scraped(state) if name.startswith("rocketmq_reput_")}
    told = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in told}
    assert told == {name for name in documented if not name.startswith("rocketmq_reput_backup_")}
