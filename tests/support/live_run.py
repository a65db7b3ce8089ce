"""A real broker under load with `reput tail` beside it, a stop and a start in the middle, and a comparison at the end.

By hand: ``PYTHONPATH=tests python -m support.live_run --rate 2000 --seconds 60 --work .work/live`` prints the lag in
bytes over time.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
from broker.log_contents import read_records
from broker.rocketmq import Broker, RocketMQ
from support.store_compare import differing_bytes, store_files

from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.reput_end_offset import ReputEndFinder

BROKER_CONF: dict[str, str | int | bool] = {
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 60_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
}
SINKS = ("consumequeue", "index")
SAMPLE_SECONDS = 0.1
CATCH_UP_SECONDS = 300.0  # a stuck tail, not a slow machine


@dataclass
class LiveResult:
    """The findings of a live run.

    `differences` are bytes by file. `missing` are messages without a row, acknowledged or in the log; `extra` are rows
    without a message in the log; `doubled` are rows beyond the first of one message. On a slow machine, the log may
    have a message that no producer knows: one of the `unanswered`, whose answer came too late.
    """

    acknowledged: int
    files: int
    differences: dict[str, int]
    missing: int
    extra: int
    doubled: int
    rows: int
    unanswered: int
    first_failure: str | None
    lag_bytes: list[int] = field(default_factory=list)
    restart_seconds: float = 0.0

    def lag(self, percent: int) -> int:
        """A percentile of the samples of the lag, in bytes."""
        return int(statistics.quantiles(self.lag_bytes, n=100, method="inclusive")[percent - 1])


class LiveTail:
    """`reput tail` as a process beside the broker."""

    def __init__(self, broker: Broker, work: Path) -> None:
        self.store, self.output, self.table = broker.store, work / "output", work / "messages"
        self._broker_conf = work / "tail.conf"
        self._broker_conf.write_text("".join(f"{name}={value}\n" for name, value in BROKER_CONF.items()))
        self._log = work / "tail.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it, with `options` of the configuration; it runs until `stop`."""
        command = [
            str(Path(sys.executable).with_name("reput")),
            *("tail", "--store", str(self.store), "--output", str(self.output), "--table", str(self.table)),
            *("--broker-conf", str(self._broker_conf), "--option", "tableTriggerMs=1000"),
            *(word for option in options for word in ("--option", option)),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> None:
        """SIGTERM, and wait for exit code 0."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(timeout=120)
        assert code == 0, f"reput tail ended with {code}:\n{self.log_tail()}"
        self._process = None

    def kill(self) -> None:
        """End it whatever happens."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log_tail(self) -> str:
        """The last lines that it and its Spark wrote."""
        logs = [path for path in (self._log, self.output / "reput" / "spark.log") if path.exists()]
        return "\n".join(line for path in logs for line in path.read_text(errors="replace").splitlines()[-20:])

    def end_offset(self, *sinks: str) -> int:
        """How far the slowest of the sinks is, -1 before it is ready."""
        ends = []
        for name in sinks or SINKS:
            try:
                record = json.loads((self.output / "reput" / "progress" / f"{name}.json").read_text())
            except FileNotFoundError:
                return -1
            ends.append(int(record["end_offset"]))
        return min(ends)

    def wait_for(self, offset: int, *sinks: str) -> None:
        """Wait until the sinks have the effect of every record before `offset`."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while self.end_offset(*sinks) < offset:
            assert self._process is not None
            assert self._process.poll() is None, f"reput tail died:\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"stuck at {self.end_offset(*sinks)} of {offset}:\n{self.log_tail()}"
            time.sleep(SAMPLE_SECONDS)


def log_end(finder: ReputEndFinder, store: Path) -> int:
    """The end of whole records as an outsider sees it now."""
    queue = MappedFileQueue.load([store / "commitlog"])
    return finder.find(queue, queue.min_offset).offset


def live_run(rocketmq: RocketMQ, work: Path, *, rate: int, seconds: int) -> LiveResult:
    """Run it for the given seconds, with `rate` messages a second; the tail is stopped and started in the middle."""
    with (
        rocketmq.name_server(work / "namesrv") as names,
        rocketmq.broker(work / "broker", names, BROKER_CONF) as broker,
    ):
        first_acks, acks = work / "first.jsonl", work / "acks.jsonl"
        tail = LiveTail(broker, work)
        tail.start()
        try:
            # The first messages find Spark cold; the lag is that of a tail that runs.
            first = rocketmq.workload("send", names, topics="A:4", count=200, mode="sync", acksFile=first_acks)
            tail.wait_for(log_end(ReputEndFinder(check_crc=True, tail_guard_ms=0), broker.store), *SINKS, "messages")
            with rocketmq.start_workload(
                "send", names, topics="A:4,B:8,C:1", rate=rate, seconds=seconds, threads=4, mode="async", acksFile=acks
            ) as load:
                lag, restart = watch(tail, load, seconds)
                sent = load.wait()
            end = log_end(ReputEndFinder(check_crc=True, tail_guard_ms=0), broker.store)
            tail.wait_for(end, *SINKS, "messages")
            broker.stop()
            tail.stop()
        finally:
            tail.kill()
    for count in ("acknowledged", "failed"):
        sent[count] += first[count]
    return compare(broker.store, tail, sent, [first_acks, acks], lag, restart)


def watch(tail: LiveTail, load: Any, seconds: int) -> tuple[list[int], float]:
    """Sample the lag while the load runs; stop and start the tail in the middle. Bytes, and seconds of absence."""
    finder = ReputEndFinder(check_crc=False, tail_guard_ms=0)
    lag: list[int] = []
    restarted = 0.0
    began = time.monotonic()
    while load.running:
        if not restarted and time.monotonic() - began > seconds / 2:
            stopped_at = time.monotonic()
            tail.stop()
            tail.start()
            # The lag while the tail is down says nothing of it: sample again when it has caught up.
            tail.wait_for(log_end(finder, tail.store))
            restarted = time.monotonic() - stopped_at
        behind = log_end(finder, tail.store) - tail.end_offset()
        lag.append(max(0, behind))
        time.sleep(SAMPLE_SECONDS)
    return lag, restarted


def compare(
    store: Path, tail: LiveTail, sent: dict[str, Any], acks: list[Path], lag: list[int], restart: float
) -> LiveResult:
    """Files byte for byte; the table's rows against what producers had acknowledged, and against the whole log."""
    acknowledged = {json.loads(line)["physical_offset"] for file in acks for line in file.read_text().splitlines()}
    stored = {record.offset for record in read_records(store, {})}
    found = deltalake.DeltaTable(str(tail.table)).to_pyarrow_table(columns=["physical_offset"])[0].to_pylist()
    return LiveResult(
        acknowledged=int(sent["acknowledged"]),
        files=len(store_files(store)),
        differences=differing_bytes(store, tail.output),
        missing=len((acknowledged | stored) - set(found)),
        extra=len(set(found) - stored),
        doubled=len(found) - len(set(found)),
        rows=len(found),
        unanswered=int(sent["failed"]),
        first_failure=sent["first_failure"],
        lag_bytes=lag,
        restart_seconds=restart,
    )


def main() -> None:
    """Run by hand and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=2000, help="messages a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--work", type=Path, required=True, help="a new directory")
    parser.add_argument("--version", default="4.9.3", help="of RocketMQ")
    given = parser.parse_args()
    given.work.mkdir(parents=True)
    result = live_run(RocketMQ(given.version), given.work.resolve(), rate=given.rate, seconds=given.seconds)
    print(f"acknowledged messages   {result.acknowledged}")
    print(f"unanswered              {result.unanswered} {result.first_failure or ''}")
    wrong = f"missing {result.missing}, extra {result.extra}, doubled {result.doubled}"
    print(f"rows in the table       {result.rows}, {wrong}")
    print(f"files compared          {result.files}, differing bytes {sum(result.differences.values())}")
    print(f"lag in bytes            median {result.lag(50)}, p99 {result.lag(99)}, samples {len(result.lag_bytes)}")
    print(f"stopped and started     in {result.restart_seconds:.1f} s, caught up")
    sys.exit(1 if result.differences or result.missing or result.extra or result.doubled else 0)


if __name__ == "__main__":
    main()
