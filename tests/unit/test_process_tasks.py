"""Pieces of work in processes of this machine: results, errors, and processes that die."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reput.source.errors import CorruptRecordError, TransientError
from reput.streaming.process_tasks import ProcessTasks

_GONE_WITHIN_S = 10.0
_A_RANGES_BYTES = [megabytes * 1024 * 1024 for megabytes in (1, 2, 4, 8, 16, 16, 8, 4, 2, 1)]


def test_results_are_in_order_whatever_the_work_closes_over() -> None:
    """Functions made on the spot are work, too; all processes take part."""
    factor = 7
    with ProcessTasks(2) as tasks:
        assert tasks.parallelism == 2
        assert tasks.run(lambda number: str(factor * number), 50) == [str(7 * number) for number in range(50)]
        assert tasks.run(str, 0) == []

        def slowly(_: int) -> str:
            time.sleep(0.05)
            return str(os.getpid())

        assert len({os.getpid(), *map(int, tasks.run(slowly, 20))}) == 3


def test_an_error_arrives_as_it_was_and_nothing_goes_on(tmp_path: Path) -> None:
    """With its class and message; pieces that had not begun are not begun."""

    def fail(number: int) -> str:
        (tmp_path / str(number)).touch()
        if number == 3:
            msg = "at offset 5"
            raise CorruptRecordError(msg)
        time.sleep(0.01)
        return ""

    with ProcessTasks(2) as tasks:
        with pytest.raises(CorruptRecordError, match=r"^at offset 5$"):
            tasks.run(fail, 10_000)
        assert tasks.run(str, 2) == ["0", "1"]
    assert 4 <= len(list(tmp_path.iterdir())) < 10_000


def test_memory_that_is_freed_stays_with_the_process() -> None:
    """What a range took is there for the next one, and no page of it is cleared again."""

    def faults(_: int) -> str:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(3):
            [bytearray(size) for size in _A_RANGES_BYTES]
        return str(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

    with ProcessTasks(1) as tasks:
        first, *others = map(int, tasks.run(faults, 4))
    assert first > 2 * sum(others)


def test_a_process_that_dies_is_told() -> None:
    """Killed, or out of memory: no waiting, and what to do."""

    def die(number: int) -> str:
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return ""

    with (
        ProcessTasks(2) as tasks,
        pytest.raises(TransientError, match=r"a process of reput died: .*; run the same command again"),
    ):
        tasks.run(die, 10)


_PARENT = """
import os, sys, time
from reput.streaming.process_tasks import ProcessTasks

def pid(number):
    time.sleep(0.1)
    return str(os.getpid())

tasks = ProcessTasks(3)
print(*set(tasks.run(pid, 12)), flush=True)
time.sleep(60)
"""


def test_they_end_with_a_parent_that_is_killed() -> None:
    """Nobody else would end them."""
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(workers) == 3
    deadline = time.monotonic() + _GONE_WITHIN_S
    while any(_is_alive(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)


_INTERRUPTED = """
import time
from reput.streaming.process_tasks import ProcessTasks

with ProcessTasks(2) as tasks:
    print("begun", flush=True)
    tasks.run(lambda number: time.sleep(600), 8)
"""


def test_ctrl_c_waits_for_no_piece() -> None:
    """A piece may be minutes of work."""
    code = [sys.executable, "-c", _INTERRUPTED]
    with subprocess.Popen(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "begun\n"
        time.sleep(0.3)
        parent.send_signal(signal.SIGINT)
        try:
            _, told = parent.communicate(timeout=60)
        finally:
            parent.kill()
    assert told.rstrip().endswith("KeyboardInterrupt")


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
