"""Tasks in processes of this machine: results, errors, and processes that die."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.record_writer import Message, write_log

from reput.source.errors import CorruptRecordError, TransientError
from reput.streaming.tasks.tasks import ProcessTasks

_GONE_WITHIN_S = 60.0
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

        taken_part: set[int] = set()
        deadline = time.monotonic() + 60
        while len(taken_part) < 2:
            assert time.monotonic() < deadline
            taken_part |= set(map(int, tasks.run(slowly, 20)))
        assert os.getpid() not in taken_part


def test_results_are_told_while_others_are_made(tmp_path: Path) -> None:
    """The first one here lets the last one end; errors are only for who waits."""
    told: dict[int, str] = {}

    def work(number: int) -> str:
        if number == 2:
            raise CorruptRecordError("at offset 5")
        while number == 1 and not (tmp_path / "told").exists():
            time.sleep(0.01)
        return str(number)

    def on_result(number: int, result: str) -> None:
        told[number] = result
        (tmp_path / "told").touch()

    with ProcessTasks(2) as tasks:
        results = tasks.start(work, 2, on_result)
        assert results() == ["0", "1"]
        with pytest.raises(CorruptRecordError):
            tasks.start(work, 3, on_result)()
    assert told == {0: "0", 1: "1"}


def test_an_error_arrives_as_it_was_and_nothing_goes_on(tmp_path: Path) -> None:
    """With its class and message; tasks that had not begun are not begun."""

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
    """The memory of a range is kept for the next one, and its pages are not cleared again."""

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


def test_one_that_died_idle_holds_up_nobody() -> None:
    """It had no work any more; the others would wait for a lock that it held."""
    with ProcessTasks(2) as tasks:
        killed = tasks.run(lambda _: os.getpid(), 4)[0]
        os.kill(killed, signal.SIGKILL)
    assert not Path(f"/proc/{killed}").exists()


_PARENT = """
import os, sys, time
from reput.streaming.tasks.task_session import ProcessTasks

def pid(number):
    time.sleep(0.1)
    return str(os.getpid())

tasks, pids = ProcessTasks(3), set()
while len(pids) < 3:
    pids |= set(tasks.run(pid, 12))
print(*pids, flush=True)
time.sleep(600)
"""


def test_they_end_with_a_parent_that_is_killed() -> None:
    """No other process would end them."""
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
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in the background without it
from reput.streaming.tasks.task_session import ProcessTasks

with ProcessTasks(2) as tasks:
    print("begun", flush=True)
    tasks.run(lambda number: time.sleep(600), 8)
"""


def test_ctrl_c_waits_for_no_task() -> None:
    """A task may take minutes."""
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


_DIES_AMID = """
import os, signal, threading, time
from reput.source.system import load_without_threads
load_without_threads()  # as each command does
from reput.streaming.tasks.task_session import ProcessTasks

def work(number):
    time.sleep(0.3)
    return "x" * 1_000_000

tasks = ProcessTasks(2)
threading.Timer(0.9, os.kill, (os.getpid(), signal.SIGKILL)).start()
tasks.run(work, 100)
"""


def test_a_parent_that_is_killed_leaves_no_words() -> None:
    """The results have no reader any more: the processes print no tracebacks."""
    done = subprocess.run([sys.executable, "-c", _DIES_AMID], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")


_COUNTS_THREADS = """
import os, sys
from pathlib import Path
count = lambda: print("threads", len(list(Path("/proc/self/task").iterdir())), flush=True)
os.register_at_fork(before=count)
from reput.streaming.cli.main import main
main()
"""


def test_a_command_forks_while_it_has_a_single_thread(tmp_path: Path) -> None:
    """Later versions of Python warn of anything else: a lock that another thread holds stays locked in the fork."""
    write_log(tmp_path / "store" / "commitlog", [Message()], 4096)
    known = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    words = ["rebuild", "--store", str(tmp_path / "store"), "--output", str(tmp_path / "out"), "--master", "local[2]"]
    words += ["-o", "rebuildMaxBytesPerPartition=50"]  # less than the log: else one process does it all
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _COUNTS_THREADS, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=known,
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"threads (\d+)", done.stdout) == ["1", "1"]


def test_in_a_process_with_threads_they_are_forks_of_a_server() -> None:
    """As in a notebook, or under a test runner."""
    going_on = threading.Event()
    other = threading.Thread(target=going_on.wait)
    other.start()
    try:
        with ProcessTasks(2) as tasks:
            parents = set(tasks.run(lambda _: str(os.getppid()), 4))
    finally:
        going_on.set()
        other.join()
    assert parents.isdisjoint({str(os.getpid())})
