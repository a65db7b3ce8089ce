"""A large message table: its load with upkeep and without, and how long one message among all takes to be found.

    PYTHONPATH=tests python -m benchmarks.table_load --work .work/load --docs docs --messages 30000000

The log is loaded by `reput tail --available-now`, in turn with upkeep and without. Then `reput table optimize` does
what a running tail does in idle moments, and messages are looked up by `reput query --table`, a process each.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import machine
from benchmarks.shapes import SHAPES, MadeLog, made_log
from benchmarks.subjects import TAIL
from benchmarks.table_questions import Question, reading
from reput.sinks.table.log import read_snapshot
from reput.sinks.table.lookup import TableLookup

REPUT = str(Path(sys.executable).with_name("reput"))
ASKED = 20
OPENED = re.compile(r"(\d+) of (\d+) data files opened")
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Load:
    """One load of the log; messages a second from the first micro-batch to the end of the last."""

    has_upkeep: bool
    rate: float
    seconds_in_all: float


@dataclass(frozen=True)
class Files:
    """The files of a table."""

    data_files: int
    data_bytes: int
    filter_bytes: int
    log_bytes: int


@dataclass(frozen=True)
class LookUp:
    """A look-up: milliseconds of the whole process, and of a call in a running one, which reads the log again."""

    kind: str
    process_ms: float
    call_ms: float
    opened: int


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of reput that must succeed."""
    done = subprocess.run([REPUT, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"reput {words[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done


def load(log: MadeLog, work: Path, *, has_upkeep: bool) -> Load:
    """Load the log into ``table`` below `work`, which is emptied first."""
    for name in ("out", "table"):
        shutil.rmtree(work / name, ignore_errors=True)
    began = time.perf_counter()
    switch = f"tableUpkeep={'true' if has_upkeep else 'false'}"
    done = run(*TAIL.words(log.store, work / "out", work / "table"), "-o", switch)
    messages, seconds = TAIL.figures(done.stdout, done.stderr)
    assert messages == log.messages
    return Load(has_upkeep, messages / seconds, time.perf_counter() - began)


def files_of(table: Path) -> Files:
    """The files of the present version."""
    listed = list(read_snapshot(table).files())
    filters = sum(path.stat().st_size for path in (table / "_keys").rglob("*.bloom"))
    log_bytes = sum(path.stat().st_size for path in (table / "_delta_log").iterdir())
    return Files(len(listed), sum(file.size_bytes for file in listed), filters, log_bytes)


def some_rows(table: Path) -> list[dict[str, Any]]:
    """Rows from files all over the table."""
    rng, rows = random.Random(1), []
    names = [file.path for file in read_snapshot(table).files()]
    for name in rng.choices(names, k=ASKED):
        with pq.ParquetFile(table / name) as file:
            group = file.read_row_group(rng.randrange(file.num_row_groups), ["keys", "uniq_key", "msg_id", "topic"])
            rows += group.slice(rng.randrange(len(group)), 1).to_pylist()
    return rows


def look_ups(table: Path, rows: list[dict[str, Any]]) -> list[LookUp]:
    """Each row by key, unique key and id, and keys that no row has."""
    kinds = {
        "key": ("--key", [row["keys"][0] for row in rows], lambda look, text: look.by_key(text, max_num=64)),
        "unique key": (
            "--uniq-key",
            [row["uniq_key"] for row in rows],
            lambda look, text: look.by_unique_key(text, max_num=32),
        ),
        "id": ("--msg-id", [row["msg_id"] for row in rows], lambda look, text: look.by_msg_id(text)),
        "no such key": (
            "--key",
            [f"none{number}" for number in range(ASKED)],
            lambda look, text: look.by_key(text, max_num=64),
        ),
    }
    found = []
    for kind, (option, texts, ask) in kinds.items():
        for text in texts:
            began = time.perf_counter()
            done = run("query", "--table", table, option, text)
            asked = time.perf_counter()
            answer = ask(TableLookup(table), text)
            called = time.perf_counter()
            assert (len(answer.rows) > 0) == (kind != "no such key"), text
            told = OPENED.search(done.stderr)
            assert told is not None
            assert int(told[1]) == answer.opened
            found.append(LookUp(kind, (asked - began) * 1000, (called - asked) * 1000, answer.opened))
    return found


def hour_of_a_topic(table: Path, topic: str) -> dict[str, int]:
    """The files that one topic and one hour in the middle need."""
    version = read_snapshot(table)
    times = [time for file in version.files() for time in file.bounds.store_times if time is not None]
    least, greatest = min(times), max(times)
    begin = least + (greatest - least) / 2
    every = tuple(version.column_names)
    bounds = {"topic": (topic, topic), "store_time": (begin, begin + HOUR)}
    return asdict(reading(table, Question("topic and one hour", every, bounds)))


def measure(work: Path, messages: int, rounds: int) -> dict[str, Any]:
    """All figures."""
    log = made_log(work, "day", replace(SHAPES["day"], messages=messages))
    loads = [load(log, work, has_upkeep=switch) for _ in range(rounds) for switch in (False, True)]
    table = work / "table"
    after_load = files_of(table)
    began = time.perf_counter()
    run("table", "optimize", "--table", table)
    optimize_s = time.perf_counter() - began
    rows = some_rows(table)
    found = look_ups(table, rows)
    return {
        "messages": messages,
        "loads": [asdict(each) for each in loads],
        "after load": asdict(after_load),
        "optimize seconds": optimize_s,
        "tidy": asdict(files_of(table)),
        "look-ups": [asdict(each) for each in found],
        "topic and one hour": hour_of_a_topic(table, rows[0]["topic"]),
    }


def summary(facts: dict[str, Any]) -> str:
    """The figures in short."""
    rates = {
        switch: [each["rate"] for each in facts["loads"] if each["has_upkeep"] is switch] for switch in (True, False)
    }
    lines = [
        f"messages/s with upkeep {statistics.median(rates[True]):,.0f}, without {statistics.median(rates[False]):,.0f}"
    ]
    for name in ("after load", "tidy"):
        files = facts[name]
        size = {kind: files[f"{kind}_bytes"] / facts["messages"] for kind in ("data", "filter")}
        lines.append(
            f"{name}: {files['data_files']} files, {size['data']:.1f} and {size['filter']:.1f} bytes a message"
        )
    for kind in dict.fromkeys(each["kind"] for each in facts["look-ups"]):
        some = [each for each in facts["look-ups"] if each["kind"] == kind]
        process, call = ([each[name] for each in some] for name in ("process_ms", "call_ms"))
        opened = max(each["opened"] for each in some)
        lines.append(
            f"{kind}: process median {statistics.median(process):.0f}, most {max(process):.0f} ms; "
            f"call median {statistics.median(call):.0f}, most {max(call):.0f} ms; at most {opened} files opened"
        )
    hour = facts["topic and one hour"]
    lines.append(
        f"topic and one hour: {hour['files']} files, {100 * hour['bytes'] / hour['of_bytes']:.1f} % of the bytes"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure, print the figures, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--messages", type=int, default=30_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    facts = {"machine": machine.facts(given.work), **measure(given.work, given.messages, given.rounds)}
    print(summary(facts))
    if given.docs is not None:
        (given.docs / "benchmarks" / "table-load.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
