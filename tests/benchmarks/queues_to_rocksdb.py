"""Queues of a log moved into RocksDB: by a broker's own double write, and by `reput queues --to rocksdb`.

    PYTHONPATH=tests python -m benchmarks.queues_to_rocksdb --work .work/queues --messages 3000000

One store with queues in files is made, and copied. A message store of 5.5.0 is started on the copy with
``rocksdbCQDoubleWriteEnable`` and a recovery of the whole log, which is how a broker gets old messages into RocksDB.
Its time is that of the whole process, until it has stopped: what it keeps in memory before is not on disk. Then reput
moves the queues of the other one. Both databases are read, and their entries counted.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import javaproperties
from broker.artifacts import STORE
from broker.recovery import start_stores
from broker.release import Release

from benchmarks import make_log
from reput.sinks.queue.rocksdb_queue import QueueKey, RocksDBQueues

RELEASE = "5.5.0"
START_S = 3600.0
SHAPE = make_log.Shape(
    messages=3_000_000,
    body_bytes=380,
    queues=64,
    topics=8,
    keys=1,
    seed=1,
    # One segment: a start after a clean stop dispatches from the last segment on that the queues reach, and no earlier.
    mapped_file_size=2_000_000_000,
    ipv6=False,
    non_ascii=False,
)
DOUBLE_WRITE = {"rocksdbCQDoubleWriteEnable": "true", "commitLogRecoverMaxNum": "1000000"}
# A start after a clean stop passes over the first message of the log (findings/switched-to-rocksdb.sh).
MISSED_MAX = 1
# A question that has no answer: a store that is asked is stopped cleanly.
PLAN = "queue\tNobody\t0\n"


def reput(*words: str) -> None:
    """Run a command of reput; its output is shown if it fails."""
    command = [str(Path(sys.executable).with_name("reput")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"reput {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def seconds_of(work: Callable[[], object]) -> float:
    """How long something takes."""
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def entries_of(database: Path) -> dict[QueueKey, int]:
    """How many entries a database has in each queue."""
    with RocksDBQueues.open(database) as queues:
        return {queue: sum(len(units) for _, units in queues.entries(queue)) for queue in queues.last}


def broker_writes(store: Path, conf: dict[str, str], work: Path) -> None:
    """Start a message store that writes queues to both, and stop it."""
    (happened,) = start_stores(
        Release(RELEASE, part=STORE, is_short_lived=False),
        [(store, {**conf, **DOUBLE_WRITE})],
        work,
        start_ms=int(START_S * 1000),
        plans=[PLAN],
        seconds_a_store=START_S,
    )
    if not happened.facts["started"]:
        raise SystemExit(f"the message store did not start: {happened.facts['error']}")


def main(arguments: list[str] | None = None) -> None:
    """Make the stores, move both, and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="A directory for the stores; it must not exist.")
    parser.add_argument("--messages", type=int, default=SHAPE.messages)
    options = parser.parse_args(arguments)
    options.work = options.work.resolve()  # the broker runs elsewhere
    ours, theirs = options.work / "reput", options.work / "broker"
    make_log.make_log(ours, replace(SHAPE, messages=options.messages))
    of_store = ["--store", str(ours), "--broker-conf", str(ours / "broker.conf"), "-o", f"brokerVersion={RELEASE}"]
    reput("rebuild", *of_store, "--only", "consumequeue", "--output", str(ours))
    shutil.copytree(ours, theirs)
    conf = dict(javaproperties.loads((ours / "broker.conf").read_text()))
    broker = seconds_of(lambda: broker_writes(theirs, conf, options.work / "java"))
    mine = seconds_of(lambda: reput("queues", *of_store, "--to", "rocksdb"))
    found, made = entries_of(theirs / "consumequeue"), entries_of(ours / "consumequeue")
    if sum(made.values()) != options.messages or sum(found.values()) < options.messages - MISSED_MAX:
        raise SystemExit(f"entries are missing: the broker has {sum(found.values())}, reput {sum(made.values())}")
    print(f"{options.messages} messages in {len(made)} queues, from files into RocksDB")
    print(f"{RELEASE} with rocksdbCQDoubleWriteEnable, start to stop: {broker:.1f} s, {sum(found.values())} entries")
    print(f"reput queues --to rocksdb: {mine:.1f} s, {sum(made.values())} entries")


if __name__ == "__main__":
    main()
