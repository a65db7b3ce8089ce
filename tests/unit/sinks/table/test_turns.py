"""Turns at a directory: one at a time, in the order of their coming, and none waits for ever."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from reput.sinks.table import storage
from reput.sinks.table.storage import turn

LIMIT_SECONDS = 60.0


def test_one_at_a_time_in_the_order_of_coming(tmp_path: Path) -> None:
    """Who asks again is behind all who have come meanwhile."""
    order: list[int] = []
    inside: list[int] = []

    def work(number: int) -> None:
        with turn(tmp_path, LIMIT_SECONDS) as is_ours:
            assert is_ours
            inside.append(number)
            time.sleep(0.002)
            assert inside == [number]
            inside.remove(number)
            order.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    with turn(tmp_path, LIMIT_SECONDS):
        for number, thread in enumerate(threads):
            thread.start()
            waits_for(tmp_path, number + 2)
    work(6)
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert order == list(range(7))


def waits_for(directory: Path, count: int) -> None:
    """Wait until this many have come."""
    status = directory.stat()
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(storage._lines[status.st_dev, status.st_ino]._waiting) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_who_does_not_leave_is_not_waited_for(tmp_path: Path) -> None:
    """Those after it continue without the lock, and the next ones have it when it is free."""
    with turn(tmp_path, LIMIT_SECONDS), turn(tmp_path, 0.05) as is_ours:
        assert not is_ours
    with turn(tmp_path, LIMIT_SECONDS) as is_ours:
        assert is_ours


def test_another_process_is_waited_for(tmp_path: Path) -> None:
    """For the given time, or until it ends."""
    code = (
        f"from pathlib import Path\nfrom reput.sinks.table.storage import turn\n"
        f"with turn(Path({str(tmp_path)!r}), 60) as is_ours:\n    print(is_ours, flush=True); input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with turn(tmp_path, 0.05) as is_ours:
            assert not is_ours
        other.kill()
        with turn(tmp_path, LIMIT_SECONDS) as is_ours:
            assert is_ours
