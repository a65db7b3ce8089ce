"""Messages per second of the decoder alone, of `logic` and of `table` through `reput tail`; peak memory by process.

``python tests/benchmarks/throughput.py --work .work/bench`` makes a log of 10 million messages (once).
"Once started" is wall time from the end of the first micro-batch to the end of the last, so that starting Java, Spark
and the workers is left out and all that is between micro-batches is not.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from reput.sinks.logic_window import LogicNeeds, encode_window
from reput.source.mapped_file_queue import MappedFileQueue
from reput.source.message_columns import message_batch
from reput.source.range_reader import DecodeOptions, read_windows, scan_windows
from reput.source.reput_end_offset import ReputEndFinder
from reput.streaming.warm_up import compile_kernels

HERE = Path(__file__).parent
BATCH = re.compile(r"^(\S+ \S+) INFO (\w+): \[\d+, \d+\): (\d+) messages, (\d+) messages/s")
SAMPLE_SECONDS = 0.1
SAMPLED_BYTES = 400_000_000


@dataclass
class Run:
    """One `reput tail --available-now`: seconds in all, its micro-batches, peak memory in MB by kind of process."""

    seconds: float
    batches: list[tuple[datetime, int]]
    peak_mb: dict[str, int]

    @property
    def messages(self) -> int:
        """Messages in all."""
        return sum(count for _, count in self.batches)

    @property
    def once_started(self) -> float:
        """Messages a second from the end of the first micro-batch on."""
        (first, _), (last, _) = self.batches[0], self.batches[-1]
        return sum(count for _, count in self.batches[1:]) / (last - first).total_seconds()


def run_tail(store: Path, output: Path, *arguments: str) -> Run:
    """Run the command line into an empty output, watching its processes."""
    shutil.rmtree(output, ignore_errors=True)
    command = [str(Path(sys.executable).with_name("reput")), "tail", "--store", str(store), "--output", str(output)]
    began = time.monotonic()
    log = output.with_suffix(".log")
    peak: dict[str, int] = {}
    with log.open("w") as file:
        process = subprocess.Popen([*command, "--available-now", *arguments], stderr=file, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            for kind, megabytes in memory_of(process.pid).items():
                peak[kind] = max(peak.get(kind, 0), megabytes)
            time.sleep(SAMPLE_SECONDS)
    if process.returncode:
        raise SystemExit(f"reput tail failed:\n{log.read_text()}")
    found = [match for line in log.read_text().splitlines() if (match := BATCH.match(line))]
    batches = [(datetime.fromisoformat(match[1].replace(",", ".")), int(match[3])) for match in found]
    return Run(time.monotonic() - began, batches, peak)


def hold_in_memory(directory: Path) -> list[np.ndarray]:
    """Lock the log's pages in memory for as long as the result lives.

    Machines that reclaim idle pages early would make a run read from the disk what another found in memory.
    """
    held, libc = [], ctypes.CDLL(None, use_errno=True)
    for path in sorted(directory.iterdir()):
        with path.open("rb") as file:
            pages = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        if libc.mlock(ctypes.c_void_p(pages.ctypes.data), ctypes.c_size_t(len(pages))):
            print(f"cannot lock {path} in memory (ulimit -l): runs may read it from the disk")
        held.append(pages)
    return held


def memory_of(root: int) -> dict[str, int]:
    """Resident memory in MB of the processes below `root`, the largest of each kind."""
    parents, sizes, names = {}, {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(line.split(":", 1) for line in (path / "status").read_text().splitlines())
            names[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")
            parents[int(path.name)] = int(status["PPid"])
            sizes[int(path.name)] = int(status.get("VmRSS", "0").split()[0]) // 1024
        except (OSError, KeyError, ValueError):
            continue
    found: dict[str, int] = {}
    for process, size in sizes.items():
        above = process
        while above not in (0, 1, root):
            above = parents.get(above, 0)
        if above == root:
            kind = "driver Python" if process == root else "driver JVM" if "java" in names[process][:80] else "worker"
            found[kind] = max(found.get(kind, 0), size)
    return found


def decoder_rates(store: Path) -> list[tuple[str, float]]:
    """Microseconds a message, one core, warm cache, over the first 400 MB of the log."""
    compile_kernels()
    file = MappedFileQueue.load([store / "commitlog"]).files[0]
    queue = MappedFileQueue((file,), ())
    end = min(ReputEndFinder(check_crc=False, tail_guard_ms=0).find(queue, 0).offset, SAMPLED_BYTES)
    stop = [scan.stop for scan in scan_windows(file, 0, end, check_crc=False)][-1]
    options = DecodeOptions()

    def windows(work: Callable[[object], object]) -> Callable[[], int]:
        def run() -> int:
            count = 0
            for window in read_windows(file, 0, stop, options):
                work(window)
                count += len(window.columns)
            return count

        return run

    steps: list[tuple[str, Callable[[], int]]] = [
        ("walk the records", lambda: sum(len(scan) for scan in scan_windows(file, 0, stop, check_crc=False))),
        ("walk, body CRC checked", lambda: sum(len(scan) for scan in scan_windows(file, 0, stop, check_crc=True))),
        ("decode for dispatch", windows(lambda _: None)),
        ("decode, queue entries, key hashes", windows(lambda window: encode_window(window, LogicNeeds()))),  # type: ignore[arg-type]
        ("decode to Arrow, all columns", windows(lambda window: message_batch(window.columns))),  # type: ignore[attr-defined]
    ]
    return [(name, best_of(step)) for name, step in steps]


def best_of(step: Callable[[], int], rounds: int = 3) -> float:
    """Microseconds a message, the best of some rounds: what the machine can do undisturbed."""
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        count = step()
        best = min(best, (time.perf_counter() - began) / count * 1e6)
    return best


def main() -> None:
    """Make the log, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--trigger", default="512m", help="bytes of the log in a micro-batch")
    given = parser.parse_args()
    store, output = given.work / f"store-{given.messages}", given.work / "output"
    if not (store / "broker.conf").exists():
        maker = [sys.executable, str(HERE / "make_log.py"), "--store", str(store), "--messages", str(given.messages)]
        shape = ["--body-bytes=347", "--queues=64", "--topics=8", "--keys=1", "--seed=1"]
        subprocess.run([*maker, *shape], check=True)
        subprocess.run(["sync"], check=True)

    _held = hold_in_memory(store / "commitlog")
    print("one core, decoder alone                    us/message   messages/s")
    for name, micros in decoder_rates(store):
        print(f"  {name:<40} {micros:10.3f} {1e6 / micros:12,.0f}")
    table = given.work / "messages"
    runs = {
        "logic": [f"--option=maxBytesPerTrigger={given.trigger}"],
        "logic, queues only": [f"--option=maxBytesPerTrigger={given.trigger}", "--option=messageIndexEnable=false"],
        "table": [
            *(f"--table={table}", f"--option=tableMaxBytesPerTrigger={given.trigger}"),
            *("--option=consumeQueueEnable=false", "--option=messageIndexEnable=false"),
        ],
    }
    print("reput tail --available-now     messages  once started/s  seconds in all  peak memory in MB")
    for name, arguments in runs.items():
        shutil.rmtree(table, ignore_errors=True)
        run = run_tail(store, output, *arguments)
        memory = ", ".join(f"{kind} {size}" for kind, size in sorted(run.peak_mb.items()))
        print(f"  {name:<25} {run.messages:11,} {run.once_started:15,.0f} {run.seconds:15.1f}  {memory}", flush=True)


if __name__ == "__main__":
    main()
