"""The samples of every few seconds: processes, files, and the tail's own figures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import kind_of, tree
from benchmarks.soaking import prometheus

DRIVER, JVM, WORKERS = KINDS = ("driver", "JVM", "workers")
_TICKS = os.sysconf("SC_CLK_TCK")
_KIND_OF = {"driver JVM": JVM, "worker": WORKERS}
_HEAP_EVERY_SECONDS = 300.0
_HEAP_LOOKS = 5
_HEAP = re.compile(r"total \d+K, used (\d+)K")
# Lives for a moment, with all the descriptors of the JVM that starts something through it.
_JVM_HELPER = "jspawnhelper"
MB = 1 << 20


@dataclass
class Processes:
    """All processes of a kind together; sizes in MB. CPU seconds are also those of processes that have ended."""

    count: int = 0
    rss: float = 0.0
    own: float = 0.0
    descriptors: int = 0
    threads: int = 0
    cpu: float = 0.0


@dataclass(frozen=True)
class Files:
    """Files below a directory, and their bytes as `ls` shows them."""

    files: int
    bytes: int


@dataclass
class Sample:
    """One look, `at` seconds since the epoch; `pid` is the driver's, None between two runs of the tail."""

    at: float
    pid: int | None
    processes: dict[str, Processes] = field(default_factory=dict)
    files: dict[str, Files] = field(default_factory=dict)
    shown: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    state: str | None = None
    live_heap_mb: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Sample:
        """Return the sample of an `as_dict`."""
        parts = dict(found)
        parts["processes"] = {kind: Processes(**each) for kind, each in parts["processes"].items()}
        parts["files"] = {name: Files(**each) for name, each in parts["files"].items()}
        return cls(**parts)


def load(path: Path) -> list[Sample]:
    """The samples of a run, in order."""
    return [Sample.from_dict(json.loads(line)) for line in path.read_text().splitlines()]


#: Seconds of processor time by kind, process and when it was started, as they were seen last.
CpuTimes = dict[tuple[str, int, str], float]


def look_at_processes(root: int, cpu: CpuTimes) -> dict[str, Processes]:
    """The tail's processes by kind; one that ends meanwhile is passed over. `cpu` keeps what ended ones have taken."""
    found = {kind: Processes() for kind in KINDS}
    for pid in tree(root):
        with suppress(OSError, KeyError, IndexError):
            command = _command(pid)
            if command.partition(" ")[0].endswith(_JVM_HELPER):
                continue
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            rss, anonymous, shared = (int(status[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon", "RssShmem"))
            kind = DRIVER if pid == root else _KIND_OF[kind_of(command)]
            of_kind = found[kind]
            of_kind.count += 1
            of_kind.rss += rss
            of_kind.own += anonymous + shared
            of_kind.descriptors += descriptors
            of_kind.threads += int(status["Threads"])
            # Of children that were waited for only the JVM's count: they live for a moment, and are seen nowhere else.
            cpu[kind, pid, stat[19]] = sum(map(int, stat[11 : 15 if kind == JVM else 13])) / _TICKS
    for kind, each in found.items():
        each.cpu = sum(seconds for key, seconds in cpu.items() if key[0] == kind)
    return found


def look_at_files(root: Path, leave_out: tuple[Path, ...] = ()) -> Files:
    """Files below a directory, or one file; what goes meanwhile is passed over."""
    count = size = 0
    waiting = [root]
    while waiting:
        path = waiting.pop()
        if path in leave_out:
            continue
        with suppress(OSError):
            if path.is_dir():
                with os.scandir(path) as entries:
                    for entry in entries:
                        with suppress(OSError):
                            if entry.is_dir(follow_symlinks=False):
                                waiting.append(Path(entry.path))
                            else:
                                count, size = count + 1, size + entry.stat(follow_symlinks=False).st_size
            else:
                count, size = count + 1, size + path.stat().st_size
    return Files(count, size)


def live_heap_mb(root: int) -> float | None:
    """Return the live size of the JVM's heap; None without a JVM, `jcmd` or G1.

    The JVM collects all garbage on request. Garbage that it makes before the answer also counts, up to 60 MB at 400
    messages a second, so the least of some looks is taken.
    """
    for pid in tree(root):
        with suppress(OSError, subprocess.SubprocessError):
            if kind_of(_command(pid)) == "driver JVM":
                found = [_heap_mb_behind_collection(pid) for _ in range(_HEAP_LOOKS)]
                return min((each for each in found if each is not None), default=None)
    return None


def _heap_mb_behind_collection(pid: int) -> float | None:
    _jcmd(pid, "GC.run")
    found = _HEAP.search(_jcmd(pid, "GC.heap_info"))
    return None if found is None else int(found[1]) / 1024


def _jcmd(pid: int, command: str) -> str:
    words = ["jcmd", str(pid), command]
    return subprocess.run(words, capture_output=True, text=True, timeout=20, check=False).stdout


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")


class Sampler(threading.Thread):
    """Looks every `every_s` seconds, and whenever it is asked to; each look is a line of `target`."""

    def __init__(
        self,
        pid: Callable[[], int | None],
        port: int,
        places: Mapping[str, Callable[[], Files]],
        target: Path,
        every_s: float,
    ) -> None:
        super().__init__(daemon=True)
        self._pid, self._port, self._places, self._target, self._every_s = pid, port, places, target, every_s
        self._is_over = threading.Event()
        self._one = threading.Lock()
        self._heap_at = 0.0
        self._cpu: tuple[int | None, CpuTimes] = (None, {})
        self.samples: list[Sample] = []

    def run(self) -> None:
        """Look until told to stop."""
        while not self._is_over.wait(self._every_s - time.time() % self._every_s):
            self.look()

    def look(self) -> Sample:
        """Look once."""
        with self._one:
            pid = self._pid()
            sample = Sample(time.time(), pid)
            if pid is not None:
                if self._cpu[0] != pid:
                    self._cpu = (pid, {})
                sample.processes = look_at_processes(pid, self._cpu[1])
                if sample.at - self._heap_at > _HEAP_EVERY_SECONDS:
                    self._heap_at = sample.at
                    sample.live_heap_mb = live_heap_mb(pid)
                self._look_at_port(sample)
            sample.files = {name: look() for name, look in self._places.items()}
            self.samples.append(sample)
            with self._target.open("a") as file:
                file.write(json.dumps(sample.as_dict()) + "\n")
            return sample

    def _look_at_port(self, sample: Sample) -> None:
        document, found = prometheus.status(self._port), prometheus.metrics(self._port)
        if document is not None:
            sample.state = document["state"]
            for query in document["brokers"][0]["queries"]:
                for unit, value in query["behind"].items():
                    if value is not None:
                        sample.shown[f"{query['query']} {unit}"] = value
                for name in ("messages", "batches", "restarts"):
                    sample.shown[f"{query['query']} {name}"] = query[name]
            for name, value in document["brokers"][0]["gauges"].items():
                sample.shown[name] = value
        for query in ("logic", "table"):
            for unit in ("bytes", "seconds"):
                value = (found or {}).get(f"rocketmq_reput_dispatch_behind_{unit}/{query}")
                if value is not None:
                    sample.measured[f"{query} {unit}"] = value

    def stop(self) -> None:
        """End it."""
        self._is_over.set()
        self.join()
