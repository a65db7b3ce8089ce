"""The processes of a run, found by a mark in their environment, whatever group or session they are in."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "REPUT_LIVE_BREAK"
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Process:
    """One living process."""

    pid: int
    parent: int
    command: str

    @property
    def is_jvm(self) -> bool:
        """Whether it is Spark's Java process."""
        return "org.apache.spark.deploy.SparkSubmit" in self.command

    @property
    def is_python(self) -> bool:
        """Whether it is the daemon that starts Python workers, or one of these."""
        return "daemon" in self.command and not self.is_jvm


def marked(mark: str) -> list[Process]:
    """Every living process that has the mark in its environment, oldest first."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        # It may end at any moment, or belong to another user.
        with suppress(OSError, IndexError, ValueError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(Process(int(entry.name), parent, words))
    return sorted(found, key=lambda process: process.pid)


def daemons(processes: Sequence[Process]) -> list[Process]:
    """The parents of the Python workers."""
    python = {process.pid for process in processes if process.is_python}
    return [process for process in processes if process.is_python and process.parent not in python]


def workers(processes: Sequence[Process]) -> list[Process]:
    """The Python workers."""
    python = {process.pid for process in processes if process.is_python}
    return [process for process in processes if process.is_python and process.parent in python]


def send(processes: Sequence[Process], number: int) -> None:
    """A signal to each that still lives."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def survivors(mark: str, seconds: float) -> list[Process]:
    """Return the processes that are still alive after this wait for all to end."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return left


def end_all(mark: str) -> None:
    """Kill whatever is left."""
    while left := marked(mark):
        send(left, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
