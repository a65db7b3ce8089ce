"""G6: the driver killed with -9 again and again while the log is written to; after each kill, equal bytes.

In full: ``REPUT_PROOF_KILLS=200 pytest -m slow tests/faults/test_kill_9.py``, about half a minute a cycle;
``REPUT_PROOF_SEED`` for other moments.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from faults.tail_process import LogWriter, Oracle, TailProcess
from support.proof_counts import Proof

pytestmark = [pytest.mark.slow, pytest.mark.spark]

KILLS = int(os.environ.get("REPUT_PROOF_KILLS", "5"))
SEED = int(os.environ.get("REPUT_PROOF_SEED", "9"))
RATE = 150.0
CASES = "G6 drivers killed with -9"


def wait_for_the_moment(tail: TailProcess, rng: random.Random) -> None:
    """Some time after its first batch; one time in four while it starts."""
    before = tail.end_offset()
    if rng.random() < 0.25:
        time.sleep(rng.uniform(0.2, 6))
        return
    tail.wait_beyond(before)
    time.sleep(rng.uniform(0, 2.5))


def test_killed_under_load(tmp_path: Path, proof: Proof) -> None:
    """After every kill, queues and index continue to the bytes of an undisturbed run, and rows are not repeated."""
    rng = random.Random(SEED)
    writer = LogWriter(tmp_path / "store" / "commitlog", RATE)
    oracle = Oracle(tmp_path)
    try:
        for number in range(KILLS):
            tail = TailProcess(tmp_path)
            try:
                wait_for_the_moment(tail, rng)
                # Every second time the JVM and its workers learn of it by themselves, and live a moment longer.
                tail.kill(all_at_once=number % 2 == 0)
                oracle.check()
            finally:
                tail.end()
            proof(CASES)
    finally:
        messages = writer.end()
    last = TailProcess(tmp_path, "--available-now")
    try:
        assert last.process.wait(300) == 0, last.last_words()
    finally:
        last.end()
    oracle.check_all(messages)
    proof("G6 messages under drivers killed", messages)
