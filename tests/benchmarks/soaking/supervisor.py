"""`reput tail` as a service: started again as ``conf/deploy/systemd/reput@.service`` says, and ended from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: RestartPreventExitStatus of the unit, and the end that was asked for.
PREVENT = frozenset({0, 1, 2, 70})
STOP_SECONDS = 120.0


@dataclass(frozen=True)
class Start:
    """One start of the tail: when, as what process, and how it ended; None while it runs."""

    at: float
    pid: int
    ended_at: float | None = None
    code: int | None = None


class Supervisor:
    """Starts a command again and again, `restart_s` after it has ended, unless its exit code forbids it."""

    def __init__(
        self, words: Sequence[str], log: Path, directory: Path, environment: Mapping[str, str], restart_s: float
    ) -> None:
        self._words, self._log, self._directory, self._environment = words, log, directory, environment
        self._restart_s = restart_s
        self._is_over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.starts: list[Start] = []

    def start(self) -> None:
        """Start it for the first time."""
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            with self._log.open("ab") as log:
                process = subprocess.Popen(
                    self._words,
                    cwd=self._directory,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._process = process
            self.starts.append(Start(time.time(), process.pid))
            code = process.wait()
            begun = self.starts[-1]
            self.starts[-1] = Start(begun.at, begun.pid, time.time(), code)
            if code in PREVENT or self._is_over.wait(self._restart_s):
                return

    @property
    def pid(self) -> int | None:
        """Of the tail that runs; None between two."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def gave_up(self) -> bool:
        """Whether the tail has ended with a code after which a person must look."""
        return bool(self.starts) and self.starts[-1].code in PREVENT and not self._is_over.is_set()

    def kill(self) -> None:
        """SIGKILL to the driver alone, as `kill -9` does; what it had started must go by itself."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> int | None:
        """SIGTERM, and the exit code; None if it had to be killed. It is not started again."""
        self._is_over.set()
        process = self._process
        if process is not None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            if process.poll() is None:
                process.kill()
                return None
        self._thread.join(STOP_SECONDS)
        return None if process is None else process.returncode

    def end(self) -> None:
        """Leave nothing of it behind, whatever happened."""
        self._is_over.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()


def tail_words(reput: Sequence[str], paths: Mapping[str, Path], options: Mapping[str, object]) -> list[str]:
    """The command line of `reput tail`."""
    words = [*reput, "tail"]
    for name, path in paths.items():
        words += [f"--{name}", str(path)]
    return [*words, *(word for name, value in options.items() for word in ("--option", f"{name}={value}"))]


#: `reput` of the tree that this module belongs to, whatever is installed.
REPUT = (sys.executable, "-m", "reput.streaming.cli.main")


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for a condition.

    Raises
    ------
    TimeoutError
        It did not come true in time; the message names `what`.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {seconds:g} s: {what}")
        time.sleep(0.2)
