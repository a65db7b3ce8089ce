"""Benchmarks that no command of `make` runs still run: each in its small form, to its last line.

The others are run for their figures again and again. These were written once, and a new release of Delta or RocketMQ
may end them unnoticed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def run(name: str, *words: str | Path) -> str:
    """Run a benchmark, which must succeed; return its output."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_many_commits(tmp_path: Path) -> None:
    """One point for each step of commits, with a snapshot by Spark and by deltalake."""
    (tmp_path / "benchmarks").mkdir()
    run("table_growth", "--work", tmp_path / "work", "--docs", tmp_path, "--commits", "60", "--every", "20")
    facts = json.loads((tmp_path / "benchmarks" / "table-growth.json").read_text())
    assert [point["commits"] for point in facts["points"]] == [20, 40, 60]
    assert all(value > 0 for point in facts["points"] for value in point.values())


@pytest.mark.slow
def test_a_large_table(tmp_path: Path) -> None:
    """Loads with and without upkeep, sorting, look-ups of four kinds."""
    (tmp_path / "benchmarks").mkdir()
    run("table_load", "--work", tmp_path / "work", "--docs", tmp_path, "--messages", "60000", "--rounds", "1")
    facts = json.loads((tmp_path / "benchmarks" / "table-load.json").read_text())
    assert sorted(each["has_upkeep"] for each in facts["loads"]) == [False, True]
    assert {each["kind"] for each in facts["look-ups"]} == {"key", "unique key", "id", "no such key"}


@pytest.mark.slow
@pytest.mark.broker
def test_queues_into_rocksdb(tmp_path: Path) -> None:
    """The broker's own double write, and `reput queues`, on the same queues."""
    printed = run("queues_to_rocksdb", "--work", tmp_path / "work", "--messages", "20000")
    assert re.search(r"reput queues --to rocksdb: .* 20000 entries", printed)
