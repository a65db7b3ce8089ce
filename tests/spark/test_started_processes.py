"""Which processes Spark's JVM starts for micro-batches: each takes longer than the records of a small one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faults.tail_process import TailProcess
from support.record_writer import CommitLogWriter, Message, write_log

pytestmark = [pytest.mark.spark, pytest.mark.long]

BATCHES = 25


def test_none_but_a_chmod_for_each_of_its_two_files(tmp_path: Path) -> None:
    """Spark notes where a micro-batch ends before it, and that it is done after it."""
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    for name in ("chmod", "readlink", "stat", "ls"):
        real = shutil.which(name)
        assert real is not None
        (programs / name).write_text(f'#!/bin/sh\necho {name} >> {calls}\nexec {real} "$@"\n')
        (programs / name).chmod(0o755)
    write_log(
        tmp_path / "store" / "commitlog",
        (Message("A", properties={"KEYS": f"k{number}"}) for number in range(BATCHES)),
        1 << 16,
    )
    reput = Path(sys.executable).with_name("reput")
    words = ["tail", "--available-now", "--store", str(tmp_path / "store"), "--output", str(tmp_path / "out")]
    done = subprocess.run(
        [reput, *words, "-o", "maxMessagesPerTrigger=1", "-o", "tailGuardMs=20"],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{BATCHES} messages in {BATCHES} batches" in done.stdout
    started = calls.read_text().split()
    assert set(started) == {"chmod"}
    # And for the checkpoint's directories and its own description.
    assert 2 * BATCHES <= len(started) <= 2 * BATCHES + 10


def maps(pid: int) -> str:
    """Return the files that a process has mapped into its memory; compiled kernels need llvmlite."""
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize(("messages", "are_needed"), [(300, False), pytest.param(350, True, marks=pytest.mark.slow)])
def test_workers_only_for_a_first_batch_that_takes_a_job(messages: int, are_needed: bool, tmp_path: Path) -> None:
    """The driver itself reads 32 MiB, so a start that is not further behind leaves the processors to the rest.

    The processes that plan its reads then load no kernels.
    """
    with CommitLogWriter(tmp_path / "store" / "commitlog", 1 << 24) as writer:
        for number in range(messages):
            writer.append(Message("A", queue_offset=number, body=bytes(range(1, 101)) * 1000))
        end = writer.max_offset
    tail = TailProcess(tmp_path)
    try:
        tail.wait_beyond(end - 1)
        assert bool(tail.children("-m reput.streaming.tail.worker_daemon")) == are_needed
        planners = tail.children("pyspark.sql.worker.plan_data_source_read")
        assert len(planners) > 1  # a daemon, and what it has started
        assert any("llvmlite" in maps(planner) for planner in planners) == are_needed
    finally:
        tail.end()
