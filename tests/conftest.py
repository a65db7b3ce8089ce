"""Fixtures of every test: the stores that real brokers left, and the one Spark session of a process."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from broker.fixtures import judge, release, rocketmq  # noqa: F401
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession
from support.broker_stores import unpack
from support.few_sessions import FewSessions, starts_processes, takes_session
from support.paths import DATA
from support.proof_counts import PROPERTY, Proof, summary_lines

from reput.source.log import reput_end_offset
from reput.source.system import load_without_threads

# As `reput` does: of the processes that Spark starts each would take a tenth of a second more.
load_without_threads()

# To compile a query, cut it into partitions and plan it again costs more than to read a few rows.
FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # VACUUM lists directories by ten thousand tasks otherwise.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}

FAST, SESSION, OTHER = range(3)

# The same examples in every run: what fails is the change's doing. New ones: pytest --hypothesis-profile=nightly.
NO_CLOCK = [HealthCheck.too_slow]
settings.register_profile(
    "default", max_examples=200, deadline=None, suppress_health_check=NO_CLOCK, derandomize=True, database=None
)
settings.register_profile("nightly", max_examples=10_000, deadline=None, suppress_health_check=NO_CLOCK)
settings.load_profile("default")


def for_few_rows() -> dict[str, str]:
    """The settings of a session of tests: those of `reput tail`, for tables of a few rows and a few minutes."""
    from reput.streaming.spark.session import JAVA_OPTIONS, NO_OPTIMIZER, TAIL_SETTINGS

    return {**TAIL_SETTINGS, **FOR_FEW_ROWS, JAVA_OPTIONS: f"{NO_OPTIMIZER} -XX:+UseSerialGC"}


@dataclass(frozen=True)
class BrokerStore:
    """A store that a real broker left: its root, its broker.conf, and what tests know of it."""

    root: Path
    broker_conf: Path
    facts: dict[str, Any]


@pytest.fixture(scope="session")
def broker_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], BrokerStore]:
    """Unpack a store of tests/data, once a run; tests must not write into it."""
    unpacked: dict[str, BrokerStore] = {}

    def store_of(name: str) -> BrokerStore:
        if name not in unpacked:
            home = unpack(name, tmp_path_factory.mktemp("stores"))
            facts = json.loads((DATA / f"{name}.json").read_text())
            unpacked[name] = BrokerStore(home / "store", home / "broker.conf", facts)
        return unpacked[name]

    return store_of


@pytest.fixture
def plain_home(broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> Iterator[Path]:
    """A store of a 4.9.3 broker with small files, to be changed: segments of 1048576 bytes, 10000 a queue file."""
    home = Path(shutil.copytree(broker_store("v4-plain").root.parent, tmp_path / "home"))
    yield home
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start the session of `reput tail`, on two cores, for tables of a few rows.

    Where the point is what Spark's readers make of a table, `compiled` goes with it; the tests that start `reput` as
    a process have Spark as users have it.
    """
    from reput.streaming.spark.session import end_session, start_session

    directory = tmp_path_factory.mktemp("spark")
    session = start_session(
        "tests",
        master="local[2]",
        driver_memory="2g",
        log_file=directory / "spark.log",
        settings={**for_few_rows(), "spark.sql.warehouse.dir": str(directory / "warehouse")},
    )
    yield session
    end_session(session)


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Let Spark compile queries and read Parquet files column by column, as it does for users."""
    as_users_have = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in as_users_have}
    for name, value in as_users_have.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, str(value))


class SkippedTime:
    """The module ``time`` for what sleeps: it is later at once."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._skipped

    def sleep(self, seconds: float) -> None:
        self._skipped += seconds


@pytest.fixture
def waits_are_skipped() -> Iterator[None]:
    """Skip the wait of `tailGuardMs` for the last record of a log, because nothing writes to the log."""
    # Not by the fixture `monkeypatch`: it would end after `tmp_path`, which needs the real system to tidy up.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reput_end_offset, "time", SkippedTime())
        yield


@pytest.fixture
def hold_lock() -> Iterator[Callable[[Path], int]]:
    """Let another process hold the lock of a store, as a broker does; gives its process id."""
    holders: list[subprocess.Popen[str]] = []

    def hold(path: Path) -> int:
        code = (
            "import fcntl,os,sys\n"
            f"f=os.open({str(path)!r}, os.O_RDWR | os.O_CREAT)\n"
            "fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
            "print('held', flush=True); sys.stdin.read()\n"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        holders.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        return holder.pid

    yield hold
    for holder in holders:
        holder.communicate()


@pytest.fixture
def proof(request: pytest.FixtureRequest) -> Proof:
    """Count cases for the summary at the end of the run."""
    counted = Proof()
    request.node.user_properties.append((PROPERTY, counted.counts))
    return counted


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Freeze the collected tests, which live to the end of the run, so that the garbage collector skips them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process whole files, with as few Spark sessions as there can be."""
    return FewSessions(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files: fast ones; those with the Spark session of their process; faults, brokers, other processes.

    Of the fast ones the largest come first. Of the others those marked `long` or `broker`, whose few tests take long,
    come before those with many tests, so that short files are last.
    """
    first = {item.path: item for item in reversed(items)}
    sizes = Counter(item.path for item in items)

    def rank(path: Path) -> tuple[int, bool, int, Path]:
        kind = SESSION if takes_session(path) else OTHER if starts_processes(path) else FAST
        is_long = any(first[path].get_closest_marker(name) is not None for name in ("long", "broker"))
        return kind, not is_long, -sizes[path], path

    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and not takes_session(item.path):
            raise pytest.UsageError(f"{item.nodeid} takes the Spark session, and the text of its file does not tell")
    ranks = {path: rank(path) for path in first}
    items.sort(key=lambda item: ranks[item.path])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what the proofs of this run counted."""
    lines = summary_lines(terminalreporter.stats.get("passed", ()), terminalreporter.stats.get("failed", ()))
    if lines:
        terminalreporter.section("cases counted by proofs")
        for line in lines:
            terminalreporter.write_line(line)
