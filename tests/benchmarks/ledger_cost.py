"""The cost of the ledger of consumption: two tails of one store side by side, one of them without it.

    PYTHONPATH=tests python -m benchmarks.ledger_cost --work .work/ledger-cost --seconds 120

1,000 consumer groups with 16 queues each are in the broker's file, which is written every 5 s. First nothing happens,
then a tenth of the groups moves each time while 2,000 messages a second come.
"""

from __future__ import annotations

import argparse
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from faults.log_writer import message
from faults.tail_process import TailProcess
from support.record_writer import CommitLogWriter

from benchmarks.brokers import Used, used_by

GROUPS, QUEUES, MOVING = 1000, 16, 100
RATE = 2000
WRITTEN_EVERY_S = 5.0
STARTS_WITHIN_S = 120.0


class Broker:
    """A log and the offsets of its groups, both written by threads of this process."""

    def __init__(self, store: Path) -> None:
        (store / "config").mkdir(parents=True)
        self._file = store / "config" / "consumerOffset.json"
        self._groups = [(f"topic-{number % 50}@group-{number}", [1_000_000] * QUEUES) for number in range(GROUPS)]
        self._writer = CommitLogWriter(store / "commitlog", 64 << 20, preallocate=True)
        self._written = 0
        self._append(1)
        self.write_offsets(0)

    def write_offsets(self, moving: int) -> None:
        """Write the file as a broker does, after some groups have moved in all their queues."""
        for _, offsets in self._groups[:moving]:
            offsets[:] = [offset + 7 for offset in offsets]
        named = ",\n".join(
            f'\t\t"{name}":{{{",".join(f"{queue}:{offset}" for queue, offset in enumerate(offsets))}\n\t\t}}'
            for name, offsets in self._groups
        )
        new = self._file.with_suffix(".tmp")
        counter = f'\t"dataVersion":{{"counter":{time.monotonic_ns()}}},\n'
        new.write_text(f'{{\n{counter}\t"offsetTable":{{\n{named}\n\t}}\n}}')
        new.replace(self._file)

    def _append(self, count: int) -> None:
        for _ in range(count):
            self._writer.append(message(self._written))
            self._written += 1

    @contextmanager
    def running(self, rate: int, moving: int) -> Iterator[None]:
        """Write this many messages a second meanwhile, and let this many groups move each time."""
        stopped = threading.Event()

        def messages() -> None:
            began, done = time.monotonic(), 0
            while not stopped.wait(0.05):
                due = int(rate * (time.monotonic() - began))
                self._append(due - done)
                done = due

        def offsets() -> None:
            while not stopped.wait(WRITTEN_EVERY_S):
                self.write_offsets(moving)

        threads = [threading.Thread(target=each) for each in (messages, offsets)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stopped.set()
            for thread in threads:
                thread.join()


def tail_of(store: Path, root: Path, *, has_ledger: bool) -> TailProcess:
    """A tail of the store, with its output and table below `root`."""
    root.mkdir()
    words = ("--option", f"tableConsumption={str(has_ledger).lower()}")
    whose = ("--store", str(store), "--output", str(root / "out"))
    return TailProcess(root, *words, "--option", "mappedFileSizeCommitLog=67108864", whose=whose)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a directory for the run's files; emptied first")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each stretch")
    given = parser.parse_args(words)
    work = given.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    broker = Broker(work / "store")
    with ExitStack() as cleanup:
        tails = {}
        for name in ("with", "without"):
            tails[name] = tail_of(work / "store", work / name, has_ledger=name == "with")
            cleanup.callback(tails[name].end)
        for tail in tails.values():
            tail.wait_beyond(0, STARTS_WITHIN_S)
        for title, rate, moving in (("warming up", RATE, MOVING), ("idle", 0, 0), ("busy", RATE, MOVING)):
            with broker.running(rate, moving):
                time.sleep(10)
                before = {name: used_by(tail.process.pid) for name, tail in tails.items()}
                time.sleep(given.seconds)
                after = {name: used_by(tail.process.pid) for name, tail in tails.items()}
            for name in tails:
                print(f"{title}, {name} the ledger: {_told(before[name], after[name], given.seconds)}", flush=True)


def _told(before: dict[str, Used], after: dict[str, Used], seconds: float) -> str:
    parts = []
    for kind in sorted(after):
        share = 100 * (after[kind].cpu_s - before.get(kind, Used()).cpu_s) / seconds
        parts.append(f"{kind} {share:.2f} % of a core, {after[kind].own_mb:.0f} MB")
    return "; ".join(parts)


if __name__ == "__main__":
    main()
