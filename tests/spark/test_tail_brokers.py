"""Several brokers in one process, on stores of real brokers: one ends with its damaged log, the others continue."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from benchmarks.brokers import main as brokers_benchmark
from conftest import BrokerStore
from faults.tail_process import FILE_SIZES, TailProcess, end_offset
from pyspark.sql import SparkSession
from rich.console import Console
from support.delta_rows import offsets
from support.logs import log_bytes, put_bytes
from support.record_writer import Message
from support.sink_runner import dispatch_store
from support.store_compare import differing_bytes
from support.tail_runs import run_tail

from reput.sinks.dispatch.arrival import ArrivalSummary
from reput.source.errors import CorruptRecordError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.config_file import Configuration
from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.process.process_log import broker_of_thread
from reput.streaming.spark.session import Sessions
from reput.streaming.status.run_state import RunState, State, judge
from reput.streaming.status.status_document import status_of
from reput.streaming.tail.brokers import BrokerRun, Brokers
from reput.streaming.tail.tail import Tail

pytestmark = [pytest.mark.spark, pytest.mark.long]

LIMIT_SECONDS = 240
NAMES = ("v4-plain", "v4-tx-delay-retry", "v5-plain")
DAMAGED = "v5-plain"
NEW = 12
BATCHES = ("maxBytesPerTrigger=2m", "tableMaxBytesPerTrigger=2m")
SMALLER_BATCHES = ("maxBytesPerTrigger=200k", "tableMaxBytesPerTrigger=1m")
OPTIONS = ("tailGuardMs=20", "tableTriggerMs=200", *BATCHES)


@dataclass(frozen=True)
class Home:
    """One broker's store, which may be written to, and its output."""

    store: Path
    broker_conf: Path
    output: Path

    def log(self) -> LogReader:
        return LogReader(SourceOptions.parse({"path": str(self.store / "commitlog"), "tailGuardMs": "0"}))

    def put(self, offset: int, data: bytes) -> None:
        file = self.log().queue().find(offset)
        assert file is not None
        put_bytes(file.path, offset - file.file_from_offset, data)

    def add_messages(self, before: int = 0) -> None:
        """Append messages as the broker would, after its own, as many as there were `before`."""
        messages = [
            Message("TopicNew", queue_offset=number, store_timestamp=4 * 10**12, properties={"KEYS": f"new{number}"})
            for number in range(before, before + NEW)
        ]
        end = self.log().settled_end(0)
        self.put(end, log_bytes(messages, end)[0])

    def damage(self) -> int:
        """Overwrite the magic code of a record in the middle; where the record begins."""
        log = self.log()
        offset = log.align_down(0, log.settled_end(0) // 2)
        self.put(offset + 4, b"\x55")
        return offset


@pytest.fixture
def homes(broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> dict[str, Home]:
    """The stores of three brokers."""
    found = {}
    for name in NAMES:
        store = broker_store(name)
        shutil.copytree(store.root, tmp_path / name / "store")
        found[name] = Home(tmp_path / name / "store", store.broker_conf, tmp_path / name / "out")
    return found


def configuration_of(homes: dict[str, Home], path: Path) -> Path:
    """A configuration file with a section for each of them."""
    sections = [
        f'[[broker]]\nbroker = "{name}"\nstore = "{home.store}"\nbrokerConf = "{home.broker_conf}"\n'
        f'output = "{home.output}"\n'
        for name, home in homes.items()
    ]
    path.write_text("\n".join(sections))
    return path


@contextmanager
def running(
    spark: SparkSession, homes: dict[str, Home], table: Path, worked: set[tuple[str, str | None, str | None]]
) -> Iterator[dict[str, BrokerRun]]:
    """All of them, by the sections of a file, until the end of the block.

    `worked` gets for each broker what its micro-batches know of themselves: the broker, and Spark's pool.
    """

    def note(name: str, _: ArrivalSummary) -> None:
        worked.add((name, broker_of_thread(), spark.sparkContext.getLocalProperty("spark.scheduler.pool")))

    file, runs = Configuration.read(configuration_of(homes, table.with_name("brokers.toml"))), {}
    for section in file.sections:
        config = load_config(section.store, config_file=file, overrides=OPTIONS, output=section.output)
        told = partial(note, config.broker.name)
        tail = partial(Tail, config, OutputPaths(section.output, table), on_arrival=told)
        runs[config.broker.name] = BrokerRun(RunState(config.broker.name), section.output, tail)
    console = Console(file=io.StringIO())
    brokers = Brokers(list(runs.values()), lambda _: Sessions.of(spark), console, {}, available_now=False)
    thread = threading.Thread(target=brokers.run, args=(lambda: None,))
    thread.start()
    try:
        yield runs
    finally:
        brokers.stop()
        thread.join()


def wait_until(done: Callable[[], bool], runs: dict[str, BrokerRun]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not done():
        told = {name: judge(run.state).reason for name, run in runs.items()}
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


def test_one_ends_with_its_damaged_log_and_the_others_take_new_messages(
    spark: SparkSession, homes: dict[str, Home], broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    """Each output has the bytes that a tail of its broker alone leaves, and the table the messages of all."""
    table, damaged = tmp_path / "table", homes[DAMAGED]
    damaged_at = damaged.damage()
    sound = [name for name in NAMES if name != DAMAGED]
    expected = {name: broker_store(name).facts["totalMessages"] for name in sound}

    def have(name: str, run: BrokerRun, more: int) -> bool:
        queries = run.state.queries
        return all(
            query in queries and queries[query].messages == expected[name] + more for query in ("logic", "table")
        )

    worked: set[tuple[str, str | None, str | None]] = set()
    with running(spark, homes, table, worked) as runs:
        wait_until(lambda: runs[DAMAGED].failure is not None and not runs[DAMAGED].is_alive, runs)
        failure = runs[DAMAGED].failure
        assert isinstance(failure, CorruptRecordError)
        assert failure.physical_offset == damaged_at
        for name in sound:
            wait_until(lambda name=name: have(name, runs[name], 0), runs)  # type: ignore[misc]
            homes[name].add_messages()
        for name in sound:
            wait_until(lambda name=name: have(name, runs[name], NEW), runs)  # type: ignore[misc]
            assert runs[name].is_alive
            assert judge(runs[name].state).state in (State.RUNNING, State.DEGRADED)
        assert status_of(damaged.output)["state"] == State.STOPPED.value
        said = (damaged.output / "reput" / "status.json").read_bytes()
    # The rest of a large micro-batch is written in a thread that starts no job, so it has no pool.
    assert worked >= {(name, name, f"logic of {name}") for name in sound}
    assert worked <= {(name, name, pool) for name in NAMES for pool in (None, f"logic of {name}")}
    assert {name: run.failure for name, run in runs.items() if run.failure is not None} == {DAMAGED: failure}
    assert (damaged.output / "reput" / "status.json").read_bytes() == said  # it was not written after its run
    for name, home in homes.items():
        alone, status = tmp_path / "alone" / name, status_of(home.output)
        assert [(each["broker"], each["exitCode"]) for each in status["brokers"]] == [(name, int(name == DAMAGED))]
        if name == DAMAGED:  # its table may have reached the damage before its queues, which continue up to it
            for output in (alone, home.output):
                with pytest.raises(CorruptRecordError):
                    run_tail(spark, home.store, output, *BATCHES, conf=home.broker_conf)
        else:
            dispatch_store(load_config(home.store, broker_conf=home.broker_conf), alone)
        assert differing_bytes(alone, home.output) == {}
        kept = offsets(spark, table, name)
        assert len(kept) == len(set(kept)) == runs[name].state.queries["table"].messages
        if name == DAMAGED:  # its two queries ended together, with the first that came to the damage
            assert all(offset < damaged_at for offset in kept)


@pytest.mark.slow
def test_all_go_on_when_sparks_process_was_killed(
    spark: SparkSession, homes: dict[str, Home], broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    """While they catch up, and beside logs that grow: every query of each broker continues in the next session."""
    del homes[DAMAGED]
    table, path = tmp_path / "table", configuration_of(homes, tmp_path / "brokers.toml")

    def have_gone_on(times: int) -> bool:
        return tail.said.read_text().count(" continues after ") >= times * 2 * len(homes)

    def all_have_begun() -> bool:
        return all(end_offset(home.output) > 0 for home in homes.values())

    def all_are_kept() -> bool:
        return all(end_offset(home.output) >= home.log().settled_end(0) for home in homes.values())

    words = (word for option in SMALLER_BATCHES for word in ("--option", option))
    tail = TailProcess(tmp_path, *words, table=table, whose=("--config", str(path)))
    try:
        for number, is_due in enumerate((all_have_begun, all_are_kept)):
            tail.wait(is_due, LIMIT_SECONDS)
            assert not (is_due is all_have_begun and all_are_kept())
            for home in homes.values():
                home.add_messages(number * NEW)
            os.kill(tail.jvm(), signal.SIGKILL)
            tail.wait(partial(have_gone_on, number + 1), LIMIT_SECONDS)
        tail.wait(all_are_kept, LIMIT_SECONDS)
        tail.process.send_signal(signal.SIGTERM)
        assert tail.process.wait(LIMIT_SECONDS) == 0, tail.last_words()
    finally:
        tail.end()
    said = tail.said.read_text()
    assert "Traceback" not in said
    for name, home in homes.items():
        for query in ("logic", "table"):
            waits = rf"WARNING {name}: {query} waits \d+ s .*: Spark's Java process was killed by SIGKILL"
            assert len(re.findall(waits, said)) >= 2, said
            assert said.count(f"INFO {name}: {query} continues after") >= 2, said
        run_tail(spark, home.store, tmp_path / "alone" / name, *FILE_SIZES, conf=home.broker_conf)
        assert differing_bytes(tmp_path / "alone" / name, home.output) == {}
        kept = offsets(spark, table, name)
        assert len(kept) == len(set(kept)) == broker_store(name).facts["totalMessages"] + 2 * NEW


@pytest.mark.slow
def test_a_process_of_several_keeps_up_and_ends_when_asked(tmp_path: Path) -> None:
    """The benchmark in small: messages of each broker kept while they come, exit code 0 after SIGTERM."""
    assert brokers_benchmark(["--work", str(tmp_path / "work"), *("--brokers", "3", "--seconds", "10")]) == 0
    found = json.loads((tmp_path / "work" / "brokers.json").read_text())
    idle, busy = found["stretches"]
    assert {*idle["states"], *busy["states"]} <= {"running", "degraded"}
    assert idle["used"]["source processes"]["count"] == 2 * 3
    for number in range(3):
        status = status_of(tmp_path / "work" / f"b{number:02}" / "output")
        assert (status["brokers"][0]["state"], status["brokers"][0]["exitCode"]) == ("stopped", 0)
