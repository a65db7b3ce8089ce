"""The live break test in short: a real broker under load, an event; in full, of every kind: ``make break``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from broker.rocketmq import RocketMQ
from faults.live_break.run import LiveBreak
from support.proof_counts import Proof

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

SEED = 14
# A stop by SIGTERM under load is at the end of each run.
SHORT = ("broker killed",)
LONGER = ("SIGTERM group", "kill JVM", "torn header", "full output")


@pytest.mark.parametrize(("rate", "events"), [(100, SHORT), pytest.param(300, LONGER, marks=pytest.mark.slow)])
def test_every_promise_is_kept(
    rate: int, events: tuple[str, ...], release: Callable[[str], RocketMQ], tmp_path: Path, proof: Proof
) -> None:
    """Each message once in queues, index and table; exit codes as promised, no traceback, nothing left behind."""
    release("4.9.3")  # skipped without Java and Maven
    work = tmp_path / "run"
    work.mkdir()
    with LiveBreak(work, "4.9.3", SEED, rate) as run:
        report = run.run(events)
    assert report.wrong == [], report.table()
    assert report.verdict.rows == report.verdict.messages > 0
    proof("G15 events around a live tail", len(events))
