"""`reput` as a user runs it during the live break test: one run, what it said, and what it asked a person to do."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from faults.live_break.processes import MARK, POLL_SECONDS, Process, marked

SINKS = ("consumequeue", "index", "messages")
LINE_MAX = 1000
COMMAND_SECONDS = 600.0
# Nothing of this kind may reach a user's terminal.
_UGLY = re.compile(r"Traceback \(most recent|^\s+at [\w.$/]+\(|at org\.apache|Exception in thread|\w+Warning: |Py4J")
_SAID = "reput: "
_WAY_OUT = re.compile(r"\breput (?P<command>recover|rebuild)\b(?P<words>[^;`']*)")
_PATHS = {"--store", "--output", "--table", "--broker-conf"}
_FLAGS = {"--yes"}


@dataclass(frozen=True)
class Paths:
    """Where a run of the test keeps everything; `output` and `table` are on disks that can be filled."""

    work: Path
    store: Path
    broker_conf: Path
    output: Path
    table: Path
    has_own_tmp: bool

    @property
    def cwd(self) -> Path:
        """The current directory of each command: it stays empty."""
        return self.work / "cwd"

    @property
    def tmp(self) -> Path:
        """The temporary directory of each command: empty when all has ended."""
        return self.work / "tmp"

    @property
    def mark(self) -> str:
        """The mark in the environment of this run's processes."""
        return str(self.work)

    def command(self, *words: str) -> list[str]:
        """`reput` with these words; with a temporary directory of its own where that is possible."""
        reput = [str(Path(sys.executable).with_name("reput")), *words]
        if not self.has_own_tmp:
            return reput
        mount = 'mount --bind "$0" /tmp && exec "$@"'
        return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", mount, str(self.tmp), *reput]

    def environment(self) -> dict[str, str]:
        """The user's, with the mark."""
        own = {name: value for name, value in os.environ.items() if name not in {"TMPDIR", "PYTHONPATH"}}
        return {**own, MARK: self.mark, **({} if self.has_own_tmp else {"TMPDIR": str(self.tmp)})}

    def progress(self) -> dict[str, int]:
        """How far each sink is, 0 before it has begun."""
        ends = {}
        for name in SINKS:
            ends[name] = 0
            with suppress(OSError, ValueError, KeyError):
                record = json.loads((self.output / "reput" / "progress" / f"{name}.json").read_text())
                ends[name] = int(record["end_offset"])
        return ends


def ugly_lines(text: str) -> list[str]:
    """Return lines that users should not see: of tracebacks, of Java, of warnings, and endless ones."""
    lines = [line for line in text.splitlines() if _UGLY.search(line) or len(line) > LINE_MAX]
    return [line[:200] for line in lines]


def way_out(line: str, paths: Paths) -> list[str] | None:
    """The words of the command that a line tells a person to run, with this run's paths; None when it tells none."""
    found = _WAY_OUT.search(line)
    if found is None:
        return None
    given = found["words"].split()
    words = [found["command"], "--store", str(paths.store), "--output", str(paths.output)]
    words += ["--broker-conf", str(paths.broker_conf)]
    is_table = False
    while given:
        word = given.pop(0)
        if word in _FLAGS:
            words.append(word)
        elif word in _PATHS and given:
            is_table |= word == "--table"
            given.pop(0)
        elif word.startswith("-") and given:
            is_table |= given[0] == "table"
            words += [word, given.pop(0)]
        else:
            break
    return [*words, "--table", str(paths.table)] if is_table else words


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    words: Sequence[str]
    code: int
    said: str

    @property
    def last_line(self) -> str:
        """The line that it ended with, empty when it said none."""
        lines = [line for line in self.said.splitlines() if line.startswith(_SAID)]
        return lines[-1].removeprefix(_SAID) if lines else ""

    @property
    def is_one_line(self) -> bool:
        """Whether it said exactly one line of its own about how it ended."""
        return sum(line.startswith(_SAID) for line in self.said.splitlines()) == 1


def run_reput(paths: Paths, log: Path, *words: str) -> Done:
    """Run a command of `reput` to its end; also write its output to `log`."""
    done = subprocess.run(
        paths.command(*words),
        cwd=paths.cwd,
        env=paths.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=COMMAND_SECONDS,
        check=False,
    )
    with log.open("a") as file:
        file.write(f"$ reput {shlex.join(words)}\n{done.stdout}")
    return Done(words, done.returncode, done.stdout)


class Tail:
    """One run of `reput tail` in a session of its own."""

    def __init__(self, paths: Paths, log: Path, options: Sequence[str]) -> None:
        self._paths = paths
        self._log = log
        words = ["tail", "--store", str(paths.store), "--broker-conf", str(paths.broker_conf)]
        words += ["--output", str(paths.output), "--table", str(paths.table)]
        words += [word for option in options for word in ("--option", option)]
        self._words = words
        # A pipe, so that limits and full disks never keep its words from the log.
        self._process = subprocess.Popen(
            paths.command(*words),
            cwd=paths.cwd,
            env=paths.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._parts: list[bytes] = []
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, pipe: IO[bytes]) -> None:
        with self._log.open("ab") as log:
            log.write(f"$ reput {shlex.join(self._words)}\n".encode())
            while part := os.read(pipe.fileno(), 1 << 16):
                self._parts.append(part)
                log.write(part)
                log.flush()

    @property
    def pid(self) -> int:
        """Of the driver; also the id of its group."""
        return self._process.pid

    @property
    def said(self) -> str:
        """Everything it has said so far."""
        return b"".join(self._parts).decode(errors="replace")

    @property
    def running(self) -> bool:
        """Whether the driver lives."""
        return self._process.poll() is None

    def processes(self) -> list[Process]:
        """All living processes of the run."""
        return marked(self._paths.mark)

    def signal(self, number: int) -> None:
        """To the driver alone."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def signal_group(self, number: int) -> None:
        """To the driver's process group at once, as a terminal does."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self, seconds: float) -> Done | None:
        """How it ended, None when it still runs after so long."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        # A process that outlives the driver may hold the pipe; the driver's output has come by then.
        self._reader.join(2)
        return Done(self._words, code, self.said)

    def wait_beyond(self, target: int, seconds: float) -> bool:
        """Whether every sink reached `target` in time while the driver lived."""
        deadline = time.monotonic() + seconds
        while min(self._paths.progress().values()) < target:
            if not self.running or time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def close(self) -> None:
        """End whatever is left of the driver and let its words go to the log."""
        self._process.kill()
        self._process.wait()
        self._reader.join(2)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()

    def kill_group(self) -> None:
        """SIGKILL to all of it at once."""
        self.signal_group(signal.SIGKILL)
        self._process.wait()
