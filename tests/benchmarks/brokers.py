"""`make bench-brokers`: what several brokers in one process of `reput tail` take, and how far behind they are.

    PYTHONPATH=tests python -m benchmarks.brokers --work .work/brokers --brokers 20 --rate 20 --seconds 120

Each broker's log is written to by this process, at the same rate; first by none for a while, then all at once. Every
two seconds the page's figures are noted, and at the end of each stretch memory and processor time by kind of process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from faults.log_writer import message
from support.record_writer import CommitLogWriter

from benchmarks import machine
from benchmarks.processes import tree

PORT = 19_470
FIRST_MESSAGES = 100
STARTS_WITHIN_S, STOPS_WITHIN_S = 900.0, 300.0
LOOKED_EVERY_S = 2.0
SEGMENT_BYTES = 4 << 20
QUERIES = ("logic", "table")
#: The name of each kind of process, by what its command line has.
KINDS = (
    ("java", "JVM"),
    ("python_streaming_source_runner", "source processes"),
    ("reput.streaming.tail.worker_daemon", "workers"),
    ("pyspark.daemon", "planners"),
)
_TICKS = os.sysconf("SC_CLK_TCK")
_MEMORY = re.compile(r"^(Pss|Private_Clean|Private_Dirty):\s+(\d+) kB", re.MULTILINE)


@dataclass
class Used:
    """All processes of a kind: MB with each shared page's part, MB of their own, seconds of a processor."""

    count: int = 0
    mb: float = 0.0
    own_mb: float = 0.0
    cpu_s: float = 0.0


@dataclass
class Stretch:
    """Some time of the run: the lags that were seen, in seconds, the processors that each kind took, and memory."""

    name: str
    seconds: float = 0.0
    lags: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in QUERIES})
    cores: dict[str, float] = field(default_factory=dict)
    used: dict[str, Used] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """For people."""
        memory = sum(each.mb for each in self.used.values())
        yield f"{self.name}, {self.seconds:.0f} s: {sum(self.cores.values()):.2f} cores, {memory:,.0f} MB"
        for kind, used in sorted(self.used.items()):
            cores = self.cores.get(kind, 0.0)
            yield f"  {kind}: {used.count}, {used.mb:,.0f} MB, {used.own_mb:,.0f} MB their own, {cores:.2f} cores"
        for query, lags in self.lags.items():
            if len(lags) > 1:
                median, p99 = statistics.median(lags), statistics.quantiles(lags, n=100)[98]
                yield f"  {query} behind: median {median:.2f} s, p99 {p99:.2f} s, most {max(lags):.2f} s"
        yield f"  states seen: {self.states}"


class Logs:
    """The logs of all brokers, which a thread writes to at one rate."""

    def __init__(self, root: Path, count: int) -> None:
        self.stores = [root / f"b{number:02}" / "store" for number in range(count)]
        self._writers = [CommitLogWriter(store / "commitlog", SEGMENT_BYTES, preallocate=True) for store in self.stores]
        self.written = 0
        for _ in range(FIRST_MESSAGES):
            self._write_each()

    def _write_each(self) -> None:
        for writer in self._writers:
            writer.append(message(self.written))
        self.written += 1

    @contextmanager
    def written_to(self, rate: float) -> Iterator[None]:
        """Write this many messages a second to each log meanwhile."""
        stopped = threading.Event()

        def write() -> None:
            began, number = time.monotonic(), 0
            while not stopped.wait(max(0.0, began + number / rate - time.monotonic())):
                self._write_each()
                number += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers:
            writer.close()


def configuration(root: Path, stores: Sequence[Path], cores: int) -> Path:
    """The file with a section for each store."""
    sections = [
        f'[[broker]]\nbroker = "{store.parent.name}"\nstore = "{store}"\noutput = "{store.parent}/output"\n'
        for store in stores
    ]
    path = root / "brokers.toml"
    path.write_text(f'sparkMaster = "local[{cores}]"\nmetricsPort = {PORT}\n\n' + "\n".join(sections))
    return path


def used_by(root: int) -> dict[str, Used]:
    """The processes below `root`, by kind."""
    found: dict[str, Used] = {}
    for pid in tree(root):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
            sizes = Path(f"/proc/{pid}/smaps_rollup").read_text()
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        kind = next((kind for mark, kind in KINDS if any(mark in word for word in (words[0], *words[1:4]))), "driver")
        used, memory = found.setdefault(kind, Used()), Counter[str]()
        for name, size in _MEMORY.findall(sizes):
            memory[name] += int(size)
        used.count += 1
        used.mb += memory["Pss"] / 1024
        used.own_mb += (memory["Private_Clean"] + memory["Private_Dirty"]) / 1024
        used.cpu_s += (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def status() -> dict[str, Any] | None:
    """Return the status document of the page; None before it is served."""
    try:
        with urllib.request.urlopen(f"http://localhost:{PORT}/status", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except OSError:
        return None


def observed(name: str, tail: subprocess.Popen[bytes], seconds: float) -> Stretch:
    """Look at the tail for a while."""
    stretch, began, before = Stretch(name), time.monotonic(), used_by(tail.pid)
    while time.monotonic() - began < seconds:
        time.sleep(LOOKED_EVERY_S)
        shown = status()
        for broker in () if shown is None else shown["brokers"]:
            stretch.states[broker["state"]] = stretch.states.get(broker["state"], 0) + 1
            for query in broker["queries"]:
                if query["behind"]["seconds"] is not None:
                    stretch.lags[query["query"]].append(query["behind"]["seconds"])
    stretch.used, stretch.seconds = used_by(tail.pid), time.monotonic() - began
    for kind, used in stretch.used.items():
        stretch.cores[kind] = max(0.0, used.cpu_s - before.get(kind, Used()).cpu_s) / stretch.seconds
    return stretch


def wait_for_all(tail: subprocess.Popen[bytes], messages: int) -> None:
    """Wait until every query of every broker has this many messages.

    Raises
    ------
    SystemExit
        The tail has ended, or takes too long.
    """
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        shown = status()
        ends = (
            [] if shown is None else [[each["messages"] for each in broker["queries"]] for broker in shown["brokers"]]
        )
        if ends and all(len(each) == len(QUERIES) and min(each) >= messages for each in ends):
            return
        if tail.poll() is not None or time.monotonic() > deadline:
            reason = "no page" if shown is None else shown["reason"]
            raise SystemExit(f"the tail did not get so far: {reason}, exit code {tail.poll()}")
        time.sleep(LOOKED_EVERY_S)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when every broker's queries got to the end of its log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a directory for the run's files; emptied first")
    parser.add_argument("--brokers", type=int, default=20)
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second of each broker")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each stretch")
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args(words)
    work = given.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with ExitStack() as stack:
        logs = Logs(work, given.brokers)
        stack.callback(logs.close)
        command = [
            *(str(Path(sys.executable).with_name("reput")), "tail"),
            *("--config", str(configuration(work, logs.stores, given.cores)), "--table", str(work / "messages")),
        ]
        said = stack.enter_context((work / "tail.log").open("wb"))
        began = time.monotonic()
        tail = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        stack.callback(tail.kill)
        wait_for_all(tail, FIRST_MESSAGES)
        began = time.monotonic() - began
        print(f"{given.brokers} brokers, all messages kept {began:.0f} s after the start", flush=True)
        stretches = [observed("idle", tail, given.seconds)]
        with logs.written_to(given.rate):
            stretches.append(observed(f"{given.rate:g} messages/s each", tail, given.seconds))
        wait_for_all(tail, logs.written)
        stopped = time.monotonic()
        tail.terminate()
        code = tail.wait(STOPS_WITHIN_S)
        print(f"{logs.written} messages of each kept; stopped in {time.monotonic() - stopped:.1f} s with code {code}")
    print("\n".join(line for stretch in stretches for line in stretch.lines()))
    found = {"machine": machine.facts(work), "stretches": [asdict(stretch) for stretch in stretches]}
    (work / "brokers.json").write_text(json.dumps(found, indent=1))
    return code


if __name__ == "__main__":
    sys.exit(main())
