"""The programs that are measured: the broker's reput and reput's command line, each run once into an empty output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from broker.artifacts import HarnessError
from broker.java_process import free_port, tail
from broker.rocketmq import RocketMQ

from benchmarks.measure import Run
from benchmarks.processes import Sampler, run_watched
from benchmarks.run_files import clear
from benchmarks.shapes import MadeLog

# The heap fits the machine that is measured; the collector is the one of RocketMQ's own runbroker.sh.
BROKER_JVM = (
    "-server",
    "-Xms2g",
    "-Xmx2g",
    "-XX:+UseG1GC",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
)
# The broker's own settings but for those that would let it remove segments.
BROKER_SETTINGS = {"fileReservedTime": "87600", "cleanFileForciblyEnable": "false", "diskMaxUsedSpaceRatio": "99"}
BROKER_TIMEOUT_S = 3600.0
POLL_S = 0.1
BATCH = re.compile(r"^(\S+ \S+) INFO \w+: \[\d+, \d+\): (\d+) messages?, (\d+) messages/s")


@dataclass(frozen=True)
class Result:
    """A run, and where its files are."""

    run: Run
    output: Path


@dataclass(frozen=True)
class BrokerCase:
    """The reput of one release, with settings of MessageStoreConfig. `base` names the case it is compared with."""

    name: str
    base: str
    version: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def has_index(self) -> bool:
        """Whether it writes index files."""
        return ("messageIndexEnable", "false") not in self.settings

    def measure(self, log: MadeLog, work: Path) -> Result:
        """Open a store of hard links to the log's segments, so that nothing the broker does can remove them."""
        home = work / "broker"
        clear(home)
        store = home / "store"
        (store / "commitlog").mkdir(parents=True)
        for segment in log.commit_log.iterdir():
            os.link(segment, store / "commitlog" / segment.name)
        before = _segment_facts(log)
        settings = {
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "haListenPort": str(free_port()),
            **BROKER_SETTINGS,
            **dict(self.settings),
        }
        words = [f"{name}={value}" for name, value in settings.items()]
        process = RocketMQ(self.version, is_short_lived=False).launch(home, BROKER_JVM, "BrokerReput", *words)
        sampler = Sampler(process.pid, "broker JVM")
        deadline = time.monotonic() + BROKER_TIMEOUT_S
        try:
            while (code := process.wait(POLL_S)) is None and time.monotonic() < deadline:
                sampler.sample()
        finally:
            process.end()
        if code != 0:
            why = tail(home / "rocketmq.log", process.stderr)
            raise HarnessError(f"{self.name} ended with {code} (None: not in time)\n{why}")
        if before != _segment_facts(log):
            raise SystemExit(f"{self.name} changed {log.commit_log}")
        said = json.loads(process.stdout.read_text().splitlines()[-1])
        run = Run(
            messages=said["messages"],
            seconds=said["seconds"],
            # Until nothing is left to dispatch: closing waits by the clock, which does not measure speed.
            seconds_in_all=said["jvm_seconds"],
            usage=sampler.usage,
            details=said,
        )
        return Result(run, store)


class Command(Protocol):
    """One command of reput that makes everything from a log."""

    def words(self, store: Path, output: Path, table: Path | None) -> list[str]:
        """The command line without options."""

    def figures(self, output: str, log: str) -> tuple[int, float]:
        """Messages and seconds without start-up, from standard output and from what was logged."""


class RebuildCommand:
    """`reput rebuild`."""

    def words(self, store: Path, output: Path, table: Path | None) -> list[str]:
        """See `Command`."""
        return ["rebuild", "--json", *_paths(store, output, table)]

    def figures(self, output: str, log: str) -> tuple[int, float]:
        """See `Command`; the start-up ends when the first record is read."""
        report = json.loads(output)
        return report["messages"], report["seconds"]["all"] - report["seconds"]["start_up"]


class TailCommand:
    """`reput tail --available-now`."""

    def words(self, store: Path, output: Path, table: Path | None) -> list[str]:
        """See `Command`."""
        return ["tail", "--available-now", *_paths(store, output, table)]

    def figures(self, output: str, log: str) -> tuple[int, float]:
        """See `Command` and `batch_seconds`."""
        counts = {int(count) for count in re.findall(r"^\w+: (\d+) messages? in ", output, re.MULTILINE)}
        if len(counts) != 1:
            raise SystemExit(f"the queries disagree on the number of messages: {output}")
        return counts.pop(), batch_seconds(log.splitlines())


def _paths(store: Path, output: Path, table: Path | None) -> list[str]:
    words = ["--store", str(store), "--broker-conf", str(store / "broker.conf"), "--output", str(output)]
    return [*words, *([f"--table={table}"] if table else [])]


def batch_seconds(lines: Sequence[str]) -> float:
    """Seconds from the begin of the first micro-batch to the end of the last, as a log of `reput tail` tells them."""
    batches = [
        (datetime.fromisoformat(found[1].replace(",", ".")).timestamp(), int(found[2]) / max(int(found[3]), 1))
        for line in lines
        if (found := BATCH.match(line))
    ]
    return max(end for end, _ in batches) - min(end - seconds for end, seconds in batches)


TAIL, REBUILD = TailCommand(), RebuildCommand()
#: The command that is measured: the batch rebuild where this reput has it.
COMMAND: Command = REBUILD if find_spec("reput.streaming.cli.repair") else TAIL


@dataclass(frozen=True)
class ReputCase:
    """The command line with options. `index_of` is the release whose index it writes, None for no index."""

    name: str
    base: str
    options: tuple[tuple[str, str], ...] = ()
    index_of: str | None = "4.9.3"
    has_table: bool = False
    command: Command = COMMAND
    #: Processes of a cluster that work for it.
    also: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def has_index(self) -> bool:
        """Whether it writes index files."""
        return self.index_of is not None

    def measure(self, log: MadeLog, work: Path) -> Result:
        """Run the command into an empty output."""
        output, table = work / "output", work / "messages"
        for path in (output, table):
            clear(path)
        words = self.command.words(log.store, output, table if self.has_table else None)
        words += [f"--option={name}={value}" for name, value in self._settings().items()]
        errors = work / "output.log"
        seconds_in_all, said, usage = run_watched(
            [_reput(), *words], errors, "driver Python", self.also, self.environment
        )
        messages, seconds = self.command.figures(said, errors.read_text())
        return Result(Run(messages, seconds, seconds_in_all, usage), output)

    def prove(self, log: MadeLog, output: Path) -> None:
        """Where no broker made such files: compare them with the log.

        Raises
        ------
        SystemExit
            Something differs.
        """
        words = _paths(log.store, output, None)
        words += [f"--option={name}={value}" for name, value in self._settings().items()]
        done = subprocess.run([_reput(), "verify", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{self.name}: verify finds differences from the log\n{done.stdout}{done.stderr}")

    def _settings(self) -> dict[str, str]:
        """Options of configuration."""
        settings = dict(self.options)
        if self.index_of is None:
            settings["messageIndexEnable"] = "false"
        elif self.index_of != "4.9.3":
            settings["brokerVersion"] = self.index_of
        return settings


def _reput() -> str:
    return str(Path(sys.executable).with_name("reput"))


def _segment_facts(log: MadeLog) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in log.commit_log.iterdir()}
