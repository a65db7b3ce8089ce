"""The live break test in short: a real broker under load, four events; in full, of every kind: ``make break``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from broker.rocketmq import RocketMQ
from faults.live_break.run import LiveBreak
from support.proof_counts import Proof

pytestmark = [pytest.mark.broker, pytest.mark.spark]

SEED = 14
SHORT = ("kill JVM", "SIGTERM group", "torn header", "full output")


def test_every_promise_is_kept(release: Callable[[str], RocketMQ], tmp_path: Path, proof: Proof) -> None:
    """Each message once in queues, index and table; exit codes as promised, no traceback, nothing left behind."""
    release("4.9.3")  # skipped without Java and Maven
    work = tmp_path / "run"
    work.mkdir()
    with LiveBreak(work, "4.9.3", SEED, 300) as run:
        report = run.run(SHORT)
    assert report.wrong == [], report.table()
    assert report.verdict.rows == report.verdict.messages > 0
    proof("G15 events around a live tail", len(SHORT))
