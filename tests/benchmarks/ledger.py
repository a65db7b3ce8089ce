"""A month of the ledger of consumption beside a message table, and how long `reput ask consumed` takes then.

    PYTHONPATH=tests python -m benchmarks.ledger --table .work/bench/messages --days 30

200 groups consume the topics of the table, a move of each every 5 s, as a broker of one day writes them. The ledger is
written and merged by the product itself; most of it in large commits, and the last hour in commits of 5 s.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reput.sinks.table.columns import CONSUMPTION_SCHEMA, PROGRESS
from reput.sinks.table.consumption import ConsumptionTable
from reput.sinks.table.location import consumption_table_path
from reput.sinks.table.log import read_snapshot
from reput.streaming.sql.duckdb_query import duckdb_query

STEP_MS = 5000
AT_ONCE, LAST = 256, 720  # steps in a large commit, and steps that have a commit each
SEED = 46


class Month:
    """The moves of the groups: each step, every group moves in one queue of its topic, by 0 to 9 messages."""

    def __init__(self, table: Path, groups: int, steps: int) -> None:
        statement = (
            "SELECT broker, topic, count(DISTINCT queue_id), max(queue_offset), min(epoch_ms(store_time)) "
            "FROM messages GROUP BY ALL ORDER BY topic"
        )
        with duckdb_query(table, statement) as found:
            rows = list(found.rows())
        self.broker, self.begin_ms = str(rows[0][0]), int(rows[0][4])
        self._topics = pa.array([str(row[1]) for row in rows])
        self._queues = np.array([row[2] for row in rows])
        self._groups, self.steps = groups, steps
        self._names = pa.array([f"group-{number:04}" for number in range(groups)])
        self._topic_of = np.arange(groups) % len(rows)
        ends = np.array([row[3] for row in rows])[self._topic_of] * self._queues[self._topic_of]
        #: Messages that a group passes in one step, so that it is at the end of its topic after the month.
        self._rate = ends / steps
        self._offsets = np.zeros((groups, int(self._queues.max())), np.int64)
        self._rng = np.random.default_rng(SEED)
        self._seen_ms = self.begin_ms

    def rows(self, first: int, steps: int) -> pa.Table:
        """The moves of some steps, in the order of their times."""
        parts = []
        for step in range(first, first + steps):
            groups = np.arange(self._groups)
            queues = (step + groups) % self._queues[self._topic_of]
            before = self._offsets[groups, queues]
            after = before + self._rng.poisson(self._rate)
            self._offsets[groups, queues] = after
            seen = self.begin_ms + step * STEP_MS + int(self._rng.integers(0, 40))
            times = np.full(self._groups, self._seen_ms - 1000), np.full(self._groups, seen)
            parts.append((groups, queues, before, after, *times))
            self._seen_ms = seen
        groups, queues, before, after, since, until = (np.concatenate(each) for each in zip(*parts, strict=True))
        moved = before < after
        columns: dict[str, Any] = {
            "broker": pa.repeat(self.broker, int(moved.sum())),
            "consumer_group": self._names.take(pa.array(groups[moved])),
            "topic": self._topics.take(pa.array(self._topic_of[groups[moved]])),
            "queue_id": pa.array(queues[moved]),
            "offset_before": pa.array(before[moved]),
            "offset_after": pa.array(after[moved]),
            "seen_before": pa.array(since[moved] * 1000).cast(pa.timestamp("us", "UTC")),
            "seen_after": pa.array(until[moved] * 1000).cast(pa.timestamp("us", "UTC")),
            "move": pa.repeat(PROGRESS, int(moved.sum())),
        }
        return pa.table(columns).cast(CONSUMPTION_SCHEMA)

    def commits(self) -> Iterator[pa.Table]:
        """The rows of each commit, the first sight of each queue first."""
        yield self._first_seen()
        step = 0
        while step < self.steps:
            count = AT_ONCE if step < self.steps - LAST - AT_ONCE else 1
            yield self.rows(step, count)
            step += count

    def _first_seen(self) -> pa.Table:
        named = [
            (self.broker, self._names[group].as_py(), self._topics[int(topic)].as_py(), queue)
            for group, topic in enumerate(self._topic_of)
            for queue in range(int(self._queues[topic]))
        ]
        rows = [dict(zip(CONSUMPTION_SCHEMA.names[:4], each, strict=True)) for each in named]
        seen = {"offset_after": 0, "seen_after": self.begin_ms * 1000 - 1, "move": "first_seen"}
        return pa.Table.from_pylist([row | seen for row in rows], CONSUMPTION_SCHEMA)


def write(table: Path, groups: int, days: float) -> None:
    """Make the ledger again."""
    shutil.rmtree(consumption_table_path(table), ignore_errors=True)
    month = Month(table, groups, int(days * 86_400_000 / STEP_MS))
    ledger = ConsumptionTable(table, month.broker, 100)
    began = time.monotonic()
    for rows in month.commits():
        if rows.num_rows:
            ledger.append_rows(rows, max(rows["seen_after"].cast(pa.int64()).to_pylist()[-1] // 1000, 1))
            ledger.tidy()
    print(f"written in {time.monotonic() - began:.0f} s", flush=True)


def ask(table: Path, times: int) -> list[float]:
    """Seconds from exec to exit of `reput ask consumed`, each time for another message."""
    statement = f"SELECT keys[1] FROM messages USING SAMPLE {times} ROWS (reservoir, {SEED})"
    with duckdb_query(table, statement) as found:
        keys = [str(key) for (key,) in found.rows()]
    seconds = []
    for key in keys:
        command = [str(Path(sys.executable).with_name("reput")), "ask", "consumed", "--table", str(table), "--key", key]
        began = time.monotonic()
        done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=True)
        seconds.append(time.monotonic() - began)
        states = [json.loads(line)["state"] for line in done.stdout.splitlines()]
        assert states, done.stderr
        print(f"{seconds[-1]:.2f} s: {len(states)} rows, {states.count('passed')} passed", flush=True)
    return seconds


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, required=True, help="a message table; its ledger is made anew")
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--times", type=int, default=5, help="questions")
    parser.add_argument("--ask", action="store_true", help="only ask, with the ledger that is there")
    given = parser.parse_args(words)
    if not given.ask:
        write(given.table, given.groups, given.days)
    files = list(read_snapshot(consumption_table_path(given.table)).files())
    size = sum(file.size_bytes for file in files)
    print(f"{len(files)} files, {size / 1e6:.1f} MB, {size / 1e6 / given.days:.2f} MB a day")
    ask(given.table, given.times)


if __name__ == "__main__":
    main()
