"""Processor time and peak memory of the processes that a command starts, read from /proc while they run."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.measure import Usage

# A look at all threads of a JVM takes some milliseconds, which the command lacks.
SAMPLE_SECONDS = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")
_KB_PER_MB = 1024


class Sampler:
    """Watches the tree below a process; `also` are roots that live longer than the run, such as a cluster's."""

    def __init__(self, root: int, root_kind: str, also: Sequence[int] = ()) -> None:
        self._roots = (root, *also)
        self._root_kind = root_kind
        self._cpu: dict[int, tuple[str, float]] = {}
        self._peak: dict[str, float] = {}
        self._own: dict[str, float] = {}
        self._cpu_before = {process: _cpu_seconds(process) for pid in also for process in tree(pid)}

    def sample(self) -> None:
        """Look once; processes that end meanwhile are passed over."""
        for process in (found for pid in self._roots for found in tree(pid)):
            try:
                # Read each time: a shell becomes Java.
                command = Path(f"/proc/{process}/cmdline").read_text(errors="replace").replace("\0", " ")
                memory = _memory_mb(process)
                cpu_seconds = _cpu_seconds(process)
            except (OSError, KeyError, IndexError):
                continue
            kind = self._root_kind if process == self._roots[0] else kind_of(command)
            self._cpu[process] = kind, cpu_seconds
            own = memory["RssAnon"] + memory["RssShmem"]
            self._peak[kind] = max(self._peak.get(kind, 0.0), memory["VmRSS"])
            self._own[kind] = max(self._own.get(kind, 0.0), own)

    @property
    def usage(self) -> Usage:
        """The samples' usage; for a process that ended, that in its last sample."""
        cpu: dict[str, float] = {}
        for process, (kind, seconds) in self._cpu.items():
            cpu[kind] = cpu.get(kind, 0.0) + seconds - self._cpu_before.get(process, 0.0)
        return Usage(cpu, dict(self._peak), dict(self._own))


def run_watched(
    command: Sequence[str], log: Path, root_kind: str, also: Sequence[int] = (), env: Mapping[str, str] | None = None
) -> tuple[float, str, Usage]:
    """Run to the end: seconds in all, standard output, usage. Standard error goes to `log`.

    Raises
    ------
    SystemExit
        It ended with another code than 0; the message holds the end of its log.
    """
    began = time.monotonic()
    output = log.with_suffix(".out")
    with log.open("wb") as errors, output.open("wb") as lines:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=lines, stderr=errors, env={**os.environ, **(env or {})}
        )
        try:
            sampler = Sampler(process.pid, root_kind, also)
            while process.poll() is None:
                sampler.sample()
                time.sleep(SAMPLE_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    seconds = time.monotonic() - began
    if process.returncode:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{end}")
    return seconds, output.read_text(errors="replace"), sampler.usage


def tree(root: int) -> Iterator[int]:
    """The process and all that it started, as far as they live."""
    yield root
    try:
        tasks = list(Path(f"/proc/{root}/task").iterdir())
    except OSError:
        return
    for task in tasks:
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from tree(int(child))


def kind_of(command: str) -> str:
    """The kind of a process below reput's command or in a Spark cluster, by its command line."""
    if "CoarseGrainedExecutorBackend" in command:
        return "executor JVM"
    for role in ("master", "worker"):
        if f"spark.deploy.{role}." in command:
            return f"cluster {role}"
    return "driver JVM" if "java" in command.partition(" ")[0] else "worker"


def _memory_mb(process: int) -> dict[str, float]:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return {name: int(status[name].split()[0]) / _KB_PER_MB for name in ("VmRSS", "RssAnon", "RssShmem")}


def _cpu_seconds(process: int) -> float:
    # The name in brackets may hold blanks; user and system time are the 12th and 13th field after it.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
