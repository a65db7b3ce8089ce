"""The lag that reput shows, beside the lag by the broker, the files and the table.

The broker says where each queue ends. The messages in `OUTPUT/consumequeue` and in the table's files are counted by
queue. The first message that one of them lacks is found through the broker's own queue: its place in the log gives the
bytes, its store timestamp the seconds. `/status` is asked just before and just after.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from broker import remoting
from broker.java_process import free_port
from broker.rocketmq import RocketMQ
from faults.live_break.live_broker import CONF, LiveBroker
from faults.live_break.processes import end_all
from faults.live_break.tail import Paths
from support.paths import ROOT

from benchmarks import machine, report
from benchmarks.latency_watch import QueueFollower
from benchmarks.soaking import prometheus
from benchmarks.soaking.supervisor import REPUT, Supervisor, tail_words, wait_until

RATES = (100, 2_000)
SECONDS = 180.0
EVERY_SECONDS = 0.5
SETTLE_SECONDS = 30.0
FOLLOW_SECONDS = 300.0
#: In all but this many of a hundred looks, shown and real lag must differ by a second and a batch at most.
TOLERANCE_SECONDS = 1.0
OUTSIDE_SHARE_MAX = 0.01
QUERIES = ("logic", "table")
SEGMENT_BYTES = 8 << 20
QUEUE_FILE_BYTES = int(CONF["mappedFileSizeConsumeQueue"])
UNIT = struct.Struct(">qiq")
STORE_TIMESTAMP_AT = 56
COLUMNS = (
    "query",
    "looks",
    "seconds behind: shown",
    "seconds behind: seen",
    "seconds apart at most",
    "bytes behind: shown",
    "bytes behind: seen",
    "within a second and a batch",
)
PAGE, NAME = "soak.md", "soak-lag"

Queue = tuple[str, int]
Place = tuple[int, int]
"""Physical offset and size of a record."""


@dataclass(frozen=True)
class Lag:
    """Bytes of the log that are not kept, and the age in seconds of the first message that is not."""

    bytes: float
    seconds: float


class TableFollower:
    """The end of each queue in a Delta table, exclusive, from the files that its commits brought."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._version = 0
        self.ends: dict[Queue, int] = {}

    def look(self) -> None:
        """Read the commits that are new."""
        while (commit := self._table / "_delta_log" / f"{self._version:020d}.json").exists():
            for line in commit.read_text().splitlines():
                action = json.loads(line)
                if "add" in action and action["add"]["dataChange"]:
                    self._read(self._table / unquote(action["add"]["path"]))
            self._version += 1

    def _read(self, path: Path) -> None:
        rows = pq.ParquetFile(path).read(columns=["topic", "queue_id", "queue_offset"])
        most = rows.group_by(["topic", "queue_id"]).aggregate([("queue_offset", "max")])
        for row in most.to_pylist():
            queue = row["topic"], row["queue_id"]
            self.ends[queue] = max(self.ends.get(queue, 0), row["queue_offset_max"] + 1)


class Outside:
    """The state of things without asking reput.

    `max_offset` is the broker's answer for a topic and a queue id, `store` is the path of its files.
    """

    def __init__(self, store: Path, max_offset: Callable[[str, int], int], output: Path, table: Path) -> None:
        self._store = store
        self._max_offset = max_offset
        self._output = output
        self._followers: dict[Queue, QueueFollower] = {}
        self._entries: dict[Queue, int] = {}
        self._table = TableFollower(table)

    def look(self) -> dict[str, Lag]:
        """The lag of each query; what reput keeps is looked at first, and the broker asked then."""
        for directory in self._output.glob("consumequeue/*/*"):
            queue = directory.parent.name, int(directory.name)
            if queue not in self._followers:
                self._followers[queue] = QueueFollower(directory, QUEUE_FILE_BYTES)
                self._entries[queue] = 0
            self._entries[queue] += self._followers[queue].new_offsets().size
        self._table.look()
        ends = {queue: self._max_offset(*queue) for queue in self._queues()}
        now = time.time()
        kept = {"logic": self._entries, "table": self._table.ends}
        return {query: self._behind(ends, kept[query], now) for query in QUERIES}

    def _queues(self) -> list[Queue]:
        root = self._store / "consumequeue"
        return [(path.parent.name, int(path.name)) for path in root.glob("*/*")]

    def _behind(self, ends: Mapping[Queue, int], kept: Mapping[Queue, int], now: float) -> Lag:
        there = {queue: end for queue, end in ends.items() if end > 0}
        log_end = max(sum(self._place(queue, end - 1)) for queue, end in there.items())
        missing = [
            self._place(queue, kept.get(queue, 0))[0] for queue, end in there.items() if kept.get(queue, 0) < end
        ]
        if not missing:
            return Lag(0.0, 0.0)
        first = min(missing)
        return Lag(log_end - first, now - self._stored_at(first))

    def _place(self, queue: Queue, queue_offset: int) -> Place:
        """Where the broker's own queue says that a message is."""
        at = queue_offset * UNIT.size
        place = at % QUEUE_FILE_BYTES
        path = self._store / "consumequeue" / queue[0] / str(queue[1]) / f"{at - place:020d}"
        offset, size, _ = UNIT.unpack(_read(path, place, UNIT.size))
        return offset, size

    def _stored_at(self, offset: int) -> float:
        """The store timestamp of a record, in seconds."""
        place = offset % SEGMENT_BYTES
        segment = self._store / "commitlog" / f"{offset - place:020d}"
        (stored,) = struct.unpack(">q", _read(segment, place + STORE_TIMESTAMP_AT, 8))
        return float(stored) / 1000


def _read(path: Path, at: int, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, size, at)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Look:
    """The displayed lag of one query just before and just after the real one; `batch` is the largest of late.

    The batch's seconds are those from the end of one to the end of the next: what is shown belongs to an end.
    """

    query: str
    at: float
    before: Lag
    seen: Lag
    after: Lag
    batch: Lag
    took_s: float

    def apart(self, unit: str) -> float:
        """How far what was seen is outside of what was shown before and after."""
        low, high = sorted((getattr(self.before, unit), getattr(self.after, unit)))
        return max(low - getattr(self.seen, unit), getattr(self.seen, unit) - high, 0.0)

    def is_within(self, bytes_a_second: float) -> bool:
        """Whether they differ by a second and a batch at most, in seconds and in bytes."""
        seconds = TOLERANCE_SECONDS + self.batch.seconds
        room = bytes_a_second * TOLERANCE_SECONDS + self.batch.bytes
        return self.apart("seconds") <= seconds and self.apart("bytes") <= room


def shown(document: Mapping[str, Any]) -> dict[str, tuple[Lag, Lag]]:
    """The lag of each query as `/status` tells it, and the largest batch that it still knows."""
    found = {}
    for query in document["brokers"][0]["queries"]:
        recent = query["recent"]
        periods = [after["at"] - before["at"] for after, before in zip(recent, recent[1:], strict=False)]
        batch = Lag(
            max((each["end"] - each["start"] for each in recent), default=0),
            max([*periods, *(each["seconds"] for each in recent)], default=0.0),
        )
        found[query["query"]] = Lag(query["behind"]["bytes"], query["behind"]["seconds"]), batch
    return found


def measure(release: str, rate: int, seconds: float, work: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """One rate, on a broker, an output and a table of its own."""
    work.mkdir(parents=True)
    port = free_port()
    broker = LiveBroker(RocketMQ(release), work, rate, {"mappedFileSizeCommitLog": SEGMENT_BYTES})
    paths = Paths(work, broker.store, work / "broker.conf", work / "out", work / "messages", has_own_tmp=False)
    words = {"store": paths.store, "broker-conf": paths.broker_conf, "output": paths.output, "table": paths.table}
    environment = {**paths.environment(), "PYTHONPATH": str(ROOT / "reput")}
    options = {"tableTriggerMs": 1000, "metricsPort": port, "cleanResourceInterval": 0}
    tail = Supervisor(tail_words(REPUT, words, options), work / "tail.log", paths.cwd, environment, 1.0)
    looks: list[Look] = []
    with ExitStack() as stack:
        stack.callback(end_all, paths.mark)
        stack.callback(tail.end)
        stack.callback(broker.end)
        for directory in (paths.cwd, paths.tmp):
            directory.mkdir()
        broker.start()
        broker.copy_conf(paths.broker_conf)
        tail.start()
        end = broker.log_end()
        wait_until(lambda: min(paths.progress().values()) >= end, FOLLOW_SECONDS, "the tail follows")
        time.sleep(SETTLE_SECONDS)
        outside = Outside(broker.store, partial(remoting.max_offset, broker.port), paths.output, paths.table)
        outside.look()
        begin, begin_end = time.time(), broker.log_end()
        while time.time() < begin + seconds:
            before, at = prometheus.status(port), time.time()
            seen = outside.look()
            took, after = time.time() - at, prometheus.status(port)
            assert before is not None, "nobody answers at /status"
            assert after is not None, "nobody answers at /status"
            first, then = shown(before), shown(after)
            looks += [
                Look(query, at, first[query][0], seen[query], then[query][0], then[query][1], took) for query in QUERIES
            ]
            time.sleep(max(0.0, EVERY_SECONDS - (time.time() - at)))
        bytes_a_second = (broker.log_end() - begin_end) / (time.time() - begin)
        broker.stop_load()
    say(f"{rate} messages/s: {len(looks)} looks")
    return {
        "rate": rate,
        "bytes_a_second": bytes_a_second,
        "looks": [asdict(look) for look in looks],
        **judge(looks, bytes_a_second),
    }


def judge(looks: Sequence[Look], bytes_a_second: float) -> dict[str, Any]:
    """For each query the medians, the most that shown and seen were apart, and the share that was near enough."""
    found = {}
    for query in QUERIES:
        own = [look for look in looks if look.query == query]
        within = [look.is_within(bytes_a_second) for look in own]
        found[query] = {
            "looks": len(own),
            "shown_seconds": statistics.median(look.before.seconds for look in own),
            "seen_seconds": statistics.median(look.seen.seconds for look in own),
            "apart_seconds": max(look.apart("seconds") for look in own),
            "shown_bytes": statistics.median(look.before.bytes for look in own),
            "seen_bytes": statistics.median(look.seen.bytes for look in own),
            "within": sum(within) / len(within),
        }
    return {"queries": found}


def run(
    release: str, rates: Sequence[int], seconds: float, work: Path, docs: Path | None, say: Callable[[str], None]
) -> list[str]:
    """Measure each rate; what was further apart than asked, in sentences."""
    found_on = machine.facts(work)
    results = [measure(release, rate, seconds, work / f"rate-{rate}", say) for rate in rates]
    rows, wrong = [], []
    for result in results:
        for query, found in result["queries"].items():
            rows.append(
                [
                    f"`{query}`, {result['rate']:,}/s",
                    f"{found['looks']:,}",
                    f"{found['shown_seconds']:.1f}",
                    f"{found['seen_seconds']:.1f}",
                    f"{found['apart_seconds']:.1f}",
                    f"{found['shown_bytes']:,.0f}",
                    f"{found['seen_bytes']:,.0f}",
                    f"{100 * found['within']:.1f} %",
                ]
            )
            if found["within"] < 1 - OUTSIDE_SHARE_MAX:
                wrong.append(f"at {result['rate']} messages/s {query} shows another lag than is seen: {found}")
    block = f"{seconds:.0f} s a rate; {machine.sentence(found_on)}.\n\n{report.markdown_table(COLUMNS, rows)}"
    # A look every half second is for the work directory; the page's file has what was made of them.
    (work / "looks.json").write_text(json.dumps(results))
    short = [{name: value for name, value in result.items() if name != "looks"} for result in results]
    report.save({"machine": found_on, "failed": wrong, "rates": short}, block, NAME, work, docs, PAGE)
    say(block)
    return wrong
