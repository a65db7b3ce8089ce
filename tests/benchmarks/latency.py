"""The time of a message from the broker's store timestamp to reput's queue entry and to its row in the table.

A real 4.9.3 broker on loopback, a client that sends at a rate, and `reput tail`, which is started when both have sent
and stored for a while. Queue files are examined every few milliseconds, as a consumer would see them; the table has a
row when its commit is in ``_delta_log``. Messages are counted from the moment when the tail has caught up.
"""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from broker.rocketmq import Broker, RocketMQ
from numpy.typing import NDArray
from support.live_run import SINKS, LiveTail, log_end

from benchmarks import machine, report
from benchmarks.latency_watch import CommitWatch, DurableWatch, QueueWatch
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, read_windows
from reput.source.log.reput_end_offset import ReputEndFinder

RATES = (100, 2_000, 20_000)
TOPICS, QUEUES = 2, 4
# With more topics, each has this many queues, and the queues are not watched one by one.
TOPICS_FEW, QUEUES_OF_MANY = 16, 8
BODY_BYTES = 350
QUEUE_FILE_BYTES = 6_000_000
SINGLES_MAX = 5000
SETTLE_S = 0.5
# So long broker and client run before the tail starts: their JVMs compile on the same cores.
WARM_UP_S = 20
# It has caught up when it has, so soon, what was the log's end; the table's trigger is a second.
QUEUES_CAUGHT_UP_S, TABLE_CAUGHT_UP_S = 0.5, 1.5
START_S_MAX = 120
PERCENTILES = (50, 95, 99)
PAGE = "benchmarks.md"
# A line for each micro-batch.
TAIL_OPTIONS = ("progressEveryMs=0",)
# The tail has just caught up; and it has done its work for a while.
FIRST, STEADY = "first 10 s", "from 20 s on"
PARTS_S = {FIRST: (0.0, 10.0), STEADY: (20.0, float("inf"))}
COLUMNS = (
    *("sent/s", "of the minute", "messages", "reached/s"),
    *("queue entry: median, ms", "p95", "p99"),
    *("row: median, ms", "p95", "p99"),
    *("micro-batch of its period, `logic`: median, ms", "`table`"),
)
BATCH = re.compile(r"(\S+ \S+) INFO (\w+): \[(\d+), \d+\): (\d+) messages?, (\d+) messages/s")

Int64s = NDArray[np.int64]


class Tail(LiveTail):
    """`reput tail` beside a broker that runs on defaults."""

    def __init__(self, broker: Broker, work: Path) -> None:
        super().__init__(broker, work)
        self._broker_conf.write_text("")

    def pace(self, query: str, start: int) -> Pace:
        """The query's pace from `start` of the log on."""
        return pace(self._log.read_text(), query, start)


@dataclass(frozen=True)
class Pace:
    """Medians in milliseconds: of a micro-batch itself, and from the end of one to the end of the next.

    The difference is Spark's work between two micro-batches, and waiting for messages.
    """

    batch_ms: float
    period_ms: float


def pace(log: str, query: str, start: int) -> Pace:
    """The pace of a query's micro-batches that began at `start` or behind, from the log of `reput tail`."""
    found = [match for match in BATCH.finditer(log) if match[2] == query and int(match[3]) >= start]
    ends = [datetime.fromisoformat(match[1].replace(",", ".")).timestamp() * 1000 for match in found]
    batches = [1000 * int(match[4]) / max(int(match[5]), 1) for match in found]
    periods = [after - before for before, after in itertools.pairwise(ends)]
    return Pace(*(statistics.median(values) if values else float("nan") for values in (batches, periods)))


@dataclass(frozen=True)
class Delays:
    """Milliseconds by percentile of one rate, and what was sent; the delays are those of messages of one part each."""

    rate: int
    messages: dict[str, int]
    reached: float
    queue_ms: dict[str, dict[int, float]]
    row_ms: dict[str, dict[int, float]]
    logic: Pace
    table: Pace

    def rows(self) -> list[list[str]]:
        """The figures in the order of `COLUMNS`; the pace of micro-batches is that of the whole minute."""
        return [
            [
                *(f"{self.rate:,}", part, f"{self.messages[part]:,}", f"{self.reached:,.0f}"),
                *(f"{self.queue_ms[part][percent]:,.0f}" for percent in PERCENTILES),
                *(f"{self.row_ms[part][percent]:,.0f}" for percent in PERCENTILES),
                *(f"{pace.batch_ms:,.0f} of {pace.period_ms:,.0f}" for pace in (self.logic, self.table)),
            ]
            for part in PARTS_S
        ]


def percentiles(delays: NDArray[np.float64]) -> dict[int, float]:
    """The percentiles of at least one delay."""
    return dict(zip(PERCENTILES, np.percentile(delays, PERCENTILES).tolist(), strict=True))


def parts_of(times: Int64s) -> dict[str, NDArray[np.bool_]]:
    """Which messages belong to which part, by when they were stored (ms)."""
    seconds = (times - times.min()) / 1000
    return {name: (start <= seconds) & (seconds < end) for name, (start, end) in PARTS_S.items()}


def stored(store: Path, start: int, end: int) -> tuple[Int64s, Int64s]:
    """Physical offsets and store timestamps (ms) of the log's messages in ``[start, end)``."""
    offsets, times = [], []
    for file in MappedFileQueue.load([store / "commitlog"]).files:
        first, last = max(start, file.file_from_offset), min(end, file.file_from_offset + file.size)
        if first < last:
            for window in read_windows(file, first, last, DecodeOptions()):
                offsets.append(window.columns.physical_offset)
                times.append(window.columns.store_timestamp)
    return np.concatenate(offsets), np.concatenate(times)


def catch_up(tail: Tail, guard: ReputEndFinder) -> None:
    """Wait until the tail, which has just been started, keeps up with the log's end: each sink within its period."""
    while True:
        end, began = log_end(guard, tail.store), time.monotonic()
        tail.wait_for(end, *SINKS)
        queues_s = time.monotonic() - began
        tail.wait_for(end, "messages")
        if queues_s < QUEUES_CAUGHT_UP_S and time.monotonic() - began < TABLE_CAUGHT_UP_S:
            return


def measure(rocketmq: RocketMQ, work: Path, rate: int, seconds: int, topic_count: int = TOPICS) -> Delays:
    """One rate, on a broker, an output and a table of its own."""
    work.mkdir(parents=True)
    is_few = topic_count <= TOPICS_FEW
    topics = ",".join(f"Latency{number}:{QUEUES if is_few else QUEUES_OF_MANY}" for number in range(topic_count))
    with ExitStack() as stack:
        names = stack.enter_context(rocketmq.name_server(work / "namesrv"))
        broker = stack.enter_context(rocketmq.broker(work / "broker", names, {}))
        tail = Tail(broker, work)
        guard = ReputEndFinder(check_crc=False, tail_guard_ms=0)
        try:
            first = max(2000, topic_count * QUEUES_OF_MANY)
            rocketmq.workload("send", names, topics=topics, count=first, mode="sync", bodyMax=BODY_BYTES)
            sender = stack.enter_context(
                rocketmq.start_workload(
                    *("send", names),
                    topics=topics,
                    rate=rate,
                    seconds=WARM_UP_S + START_S_MAX + seconds,
                    threads=2,
                    mode="async",
                    # Above a few thousand sends a second the client is what is measured: batches then.
                    batch=0.9 if rate > SINGLES_MAX else 0,
                    batchMax=32,
                    bodyMax=BODY_BYTES,
                )
            )
            time.sleep(WARM_UP_S)
            tail.start(*TAIL_OPTIONS)
            catch_up(tail, guard)
            entries = (
                QueueWatch(tail.output / "consumequeue", QUEUE_FILE_BYTES)
                if is_few
                else DurableWatch(tail.output / "reput" / "progress" / "consumequeue.json")
            )
            commits = CommitWatch(tail.table)
            with entries, commits:
                start = log_end(guard, broker.store)
                time.sleep(seconds)
                assert sender.running, "the client ended too early"
                end = log_end(guard, broker.store)
                sender.kill()
                tail.wait_for(end, *SINKS, "messages")
                time.sleep(SETTLE_S)
            offsets, times = stored(broker.store, start, end)
            broker.stop()
            tail.stop()
        finally:
            tail.kill()
    queue_ms, row_ms, parts = entries.delays(offsets, times), commits.delays(offsets, times), parts_of(times)
    return Delays(
        rate=rate,
        messages={name: int(part.sum()) for name, part in parts.items()},
        reached=1000 * times.size / float(times.max() - times.min()),
        queue_ms={name: percentiles(queue_ms[part]) for name, part in parts.items()},
        row_ms={name: percentiles(row_ms[part]) for name, part in parts.items()},
        logic=tail.pace("logic", start),
        table=tail.pace("table", start),
    )


def results_of(delays: Sequence[Delays]) -> list[dict[str, Any]]:
    """Everything, for JSON."""
    return [asdict(found) for found in delays]


def main() -> None:
    """Measure each rate and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="a directory; each rate gets a new one below it")
    parser.add_argument("--rates", type=int, nargs="*", default=list(RATES), help="messages a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--topics", type=int, default=TOPICS, help="to which the messages go in turn")
    parser.add_argument("--version", default="4.9.3", help="of RocketMQ")
    parser.add_argument("--docs", type=Path, help="put results into the pages of this directory")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    found_on = machine.facts(given.work)
    rocketmq, found = RocketMQ(given.version, is_short_lived=False), []
    for rate in given.rates:
        with tempfile.TemporaryDirectory(dir=given.work.resolve(), prefix=f"rate-{rate}-") as scratch:
            found.append(measure(rocketmq, Path(scratch) / "run", rate, given.seconds, given.topics))
        for row in found[-1].rows():
            print(" | ".join(row), flush=True)
    head = f"{given.seconds} s each; {given.topics} topics; table trigger 1 s; {machine.sentence(found_on)}."
    block = f"{head}\n\n{report.markdown_table(COLUMNS, [row for delays in found for row in delays.rows()])}"
    print(block)
    results = {"machine": found_on, "rates": results_of(found)}
    name = "latency" if given.topics == TOPICS else "latency-topics"
    report.save(results, block, name, given.work, given.docs, PAGE)


if __name__ == "__main__":
    main()
