"""`make lifeline`: live brokers with `reput backup --follow`, all killed at random; stores restored at random times.

    PYTHONPATH=tests python -m broker.lifeline_run --work .work/lifeline --minutes 30 --rate 2000 --restores 50

A broker of 4.9.3 whose backup is a folder, and one of 5.5.0 whose backup is on S3. The folder is full for a while; the
S3 server has errors, loses answers, and is down for a while. Then each restored store is compared with the log of its
broker, byte for byte, verified, and started by a real broker, which must serve the messages that were stored up to the
moment and no other.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from support.s3_server import BUCKET, S3Server, s3_server
from support.small_disk import mounted

from broker.java_process import free_port
from broker.log_contents import read_records
from broker.rocketmq import NameServer, RocketMQ, Workload
from broker.server import Broker, ConfValue, write_conf

TOPICS: Final = "A:4,B:8"
CONF: Final[dict[str, ConfValue]] = {
    "mappedFileSizeCommitLog": 32 << 20,
    "mappedFileSizeConsumeQueue": 600_000,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
}
# Pulls of a megabyte, so that reading everything again takes less of the proof.
SERVING: Final[dict[str, ConfValue]] = {"maxTransferBytesOnMessageInMemory": 1 << 20}
MINUTES_A_KILL: Final = 3
WAIT_S: Final = 120
#: This long after a fault of its target, a backup may still be behind.
CATCHES_UP_S: Final = 20.0
Fault = Callable[[], AbstractContextManager[object]]


@dataclass
class Target:
    """Where a backup is, what a process needs to find it, and what may happen to it."""

    name: str
    place: str
    environment: Mapping[str, str]
    faults: Mapping[str, Fault]


@contextmanager
def folder(root: Path) -> Iterator[Target]:
    """A folder on a disk of its own."""
    with mounted(root / "disk", size="6g") as disk:
        yield Target("a folder", str(disk / "backup"), {}, {"disk full": partial(_full, disk)})


@contextmanager
def _full(disk: Path) -> Iterator[None]:
    found = os.statvfs(disk)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize

    def resize(size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)

    resize(used + 65536)
    try:
        yield
    finally:
        resize(found.f_blocks * found.f_frsize)


@contextmanager
def on_s3(_: Path) -> Iterator[Target]:
    """A folder on S3."""
    with s3_server() as server:
        bad = {f"S3 {kind}": partial(_of_kind, server, kind) for kind in ("flaky", "lossy")}
        yield Target("S3", f"s3://{BUCKET}/backup", server.environment, {**bad, "S3 away": server.down})


@contextmanager
def _of_kind(server: S3Server, kind: str) -> Iterator[None]:
    server.kind = kind
    try:
        yield
    finally:
        server.kind = ""


class Following:
    """`reput backup --follow` as a process beside a broker."""

    def __init__(self, store: Path, root: Path, release: str, target: Target) -> None:
        self._log, self._port = root / "follow.log", free_port()
        given = ["--broker-conf", str(root / "broker.conf"), "-o", f"brokerVersion={release}"]
        place = ["--store", str(store), "--to", target.place, "-o", f"metricsPort={self._port}"]
        self._command = [_reput(), "backup", "--follow", *place, *given]
        self._environment = {**os.environ, **target.environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it was never started, or has ended."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        assert self._process is not None
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it with SIGKILL; it must have run until then."""
        assert self.end(signal.SIGKILL) == -signal.SIGKILL, f"the backup had ended:\n{self.said()}"

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; returns its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(timeout=WAIT_S)

    def said(self) -> str:
        """All that it and those before it have logged."""
        return self._log.read_text()

    def unprotected_s(self) -> float | None:
        """The age of the first message without a restore point, as it says itself; None while it says nothing."""
        with suppress(OSError), urllib.request.urlopen(f"http://localhost:{self._port}/status", timeout=5) as found:
            seconds = json.load(found)["unprotectedSeconds"]
            return None if seconds is None else float(seconds)
        return None


def _reput() -> str:
    return str(Path(sys.executable).with_name("reput"))


@dataclass(frozen=True)
class Restore:
    """The findings about one restored store; `wrong` has its mistakes."""

    at: str
    messages: int
    bytes: int
    restore_s: float
    serve_s: float
    wrong: Sequence[str]

    def line(self, release: str) -> str:
        """A row of the table of all restores."""
        times = f"{self.restore_s:.1f} | {self.serve_s:.1f}"
        return f"| {release} | {self.at} | {self.messages:,} | {self.bytes:,} | {len(self.wrong)} | {times} |"

    HEAD = "| broker | moment | messages | bytes of the log | differences | restored in s | served all after s |"


@dataclass
class World:
    """A broker with its backup; `counts` is how often each thing happened, `unprotected` in seconds of each second."""

    release: str
    root: Path
    counts: dict[str, int] = field(default_factory=dict)
    unprotected: list[float] = field(default_factory=list)
    restores: list[Restore] = field(default_factory=list)

    def open(self, cleanup: ExitStack, target: AbstractContextManager[Target]) -> None:
        """Start name server, broker and backup."""
        self.root.mkdir(parents=True)
        write_conf(self.root / "broker.conf", CONF)
        self._rocketmq = RocketMQ(self.release)
        self.target = cleanup.enter_context(target)
        self.names: NameServer = cleanup.enter_context(self._rocketmq.name_server(self.root / "names"))
        self.broker: Broker = cleanup.enter_context(self._rocketmq.broker(self.root / "home", self.names, CONF))
        # A store without a message has nothing to back up.
        self._rocketmq.workload("send", self.names, topics=TOPICS, count=50, mode="sync")
        self.following = Following(self.broker.store, self.root, self.release, self.target)
        self.following.start()
        cleanup.callback(self._end)

    def _end(self) -> None:
        self.following.end(signal.SIGKILL)

    def load(self, rate: float, seconds: float) -> Workload:
        """Start a producer."""
        words = {"topics": TOPICS, "rate": rate, "seconds": seconds, "threads": 2, "mode": "async", "bodyMax": 300}
        return self._rocketmq.start_workload("send", self.names, **words, seed=2)

    def live(self, seconds: float, rng: random.Random, say: Callable[[str], None]) -> None:
        """Let things happen at random moments until the time is over."""
        began = time.monotonic()
        kills = max(2, round(seconds / 60 / MINUTES_A_KILL))
        happenings = ["broker killed", "backup killed"] * kills + [*self.target.faults] * max(1, kills // 5)
        rng.shuffle(happenings)
        moments = sorted(rng.uniform(0.05, 0.95) * seconds for _ in happenings)
        for moment, what in zip(moments, happenings, strict=True):
            self._watch_until(began + moment)
            self.counts[what] = self.counts.get(what, 0) + 1
            say(f"{time.monotonic() - began:6.0f} s: {self.release}: {what}")
            self._happens(what, min(30.0, seconds / 8))
        self._watch_until(began + seconds)

    def _happens(self, what: str, fault_s: float) -> None:
        if what == "broker killed":
            self.broker.kill()
            self.broker.start()
        elif what == "backup killed":
            self._restart()
        else:
            with self.target.faults[what]():
                time.sleep(fault_s / 2)
                self._restart()
                time.sleep(fault_s / 2)
            # As a service manager does: a backup that finds no target at its start ends, when it has tried for a while.
            for _ in range(int(CATCHES_UP_S)):
                if self.following.has_ended:
                    self.following.start()
                time.sleep(1)

    def _restart(self) -> None:
        self.following.kill()
        self.following.start()

    def _watch_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            if (seconds := self.following.unprotected_s()) is not None:
                self.unprotected.append(seconds)
            time.sleep(min(1.0, left))

    def finish(self) -> None:
        """Stop the broker when all is in the backup, prove the backup, and read the log."""
        deadline = time.monotonic() + WAIT_S
        status = ["backup", "status", "--store", str(self.broker.store), "--within", "0"]
        # A backup that gets a stop before its first restore point has not succeeded.
        while self.run(*status, "--from", self.target.place).returncode or self.following.unprotected_s() is None:
            assert time.monotonic() < deadline, self.following.said()
            time.sleep(1)
        assert self.following.end() == 0, self.following.said()
        self.broker.stop()
        proof = json.loads(self.must("backup", "verify", "--from", self.target.place, "--json"))
        assert not proof["faults"], proof["faults"]
        self.counts["restore points"] = proof["points"]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of reput."""
        environment = {**os.environ, **self.target.environment}
        return subprocess.run([_reput(), *words], capture_output=True, text=True, env=environment, check=False)

    def must(self, *words: str) -> str:
        """Run one that must end with 0; returns what it printed."""
        done = self.run(*words)
        assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def restore(self, at_ms: int, log: Log) -> Restore:
        """Restore the store as of a moment, verify it, and let a real broker serve it."""
        home = self.root / "restored"
        home.mkdir()
        store, given = home / "store", ["--broker-conf", str(self.root / "broker.conf")]
        given += ["-o", f"brokerVersion={self.release}"]
        wrong: list[str] = []
        began = time.monotonic()
        done = self.run("restore", "--from", self.target.place, "--to", str(store), "--at", str(at_ms), *given)
        restored = time.monotonic()
        if done.returncode:
            wrong.append(f"restore: {done.returncode}, {done.stdout} {done.stderr}")
        expected, end = log.up_to(at_ms)
        wrong += differences(self.broker.store, store, end)
        verified = self.run("verify", "--store", str(store), *given)
        if verified.returncode:
            wrong.append(f"verify: {verified.returncode}, {verified.stdout} {verified.stderr}")
        served = time.monotonic()
        wrong += self._served(home, expected)
        result = Restore(at_text(at_ms), len(expected), end, restored - began, time.monotonic() - served, wrong)
        shutil.rmtree(home)
        return result

    def _served(self, home: Path, expected: np.ndarray[Any, Any]) -> list[str]:
        """Start a broker on the store and consume everything from it; what is wrong."""
        offsets = home / "offsets"
        broker = self._rocketmq.broker(home, self.names, {**CONF, **SERVING}).start()
        try:
            words = {"topics": TOPICS, "timeoutSeconds": 600, "offsetsFile": offsets}
            told = self._rocketmq.workload("consume", self.names, **words)
        finally:
            broker.kill()
        found = np.sort(np.fromfile(offsets, ">i8").astype(np.int64))
        if not told["complete"] or not np.array_equal(found, expected):
            return [f"served {len(found)} of {len(expected)} messages, complete: {told['complete']}"]
        return []


@dataclass(frozen=True)
class Log:
    """The messages of a broker's log: offset, end, and time of each."""

    offsets: np.ndarray[Any, Any]
    ends: np.ndarray[Any, Any]
    times_ms: np.ndarray[Any, Any]

    @classmethod
    def of(cls, store: Path) -> Log:
        """Read the log of a store."""
        offsets, ends, times_ms = array("q"), array("q"), array("q")
        for record in read_records(store, {}):
            offsets.append(record.offset)
            ends.append(record.offset + record.size)
            times_ms.append(record.store_timestamp)
        return cls(*(np.array(each, dtype=np.int64) for each in (offsets, ends, times_ms)))

    def up_to(self, at_ms: int) -> tuple[np.ndarray[Any, Any], int]:
        """The offsets of the messages that were stored up to a moment, and the end of the last one."""
        is_in = self.times_ms <= at_ms
        return self.offsets[is_in], int(self.ends[is_in][-1])


def differences(store: Path, restored: Path, end: int) -> list[str]:
    """Compare the log of two stores up to an offset, after which the second must have none; what is wrong."""
    wrong = []
    names = sorted(path.name for path in (restored / "commitlog").iterdir())
    if not names or int(names[0]) != int(min(path.name for path in (store / "commitlog").iterdir())):
        wrong.append("the logs do not begin at the same offset")
    for name in names:
        size = max(0, end - int(name))
        ours, theirs = ((each / "commitlog" / name).read_bytes() for each in (restored, store))
        if ours[:size] != theirs[:size]:
            wrong.append(f"commitlog/{name} is another one")
        if ours[size:].strip(b"\0"):
            wrong.append(f"commitlog/{name} has bytes after the moment")
    return wrong


def at_text(at_ms: int) -> str:
    """A time of day, for people."""
    return time.strftime("%H:%M:%S", time.gmtime(at_ms / 1000)) + f".{at_ms % 1000:03d}"


class Lifeline:
    """The whole run; its files are below `root`."""

    def __init__(self, root: Path, seconds: float, rate: float, seed: int, say: Callable[[str], None]) -> None:
        self._seconds, self._rate, self._rng, self._say = seconds, rate, random.Random(seed), say
        self.worlds = [World("4.9.3", root / "4.9.3"), World("5.5.0", root / "5.5.0")]

    def run(self, restores: int) -> None:
        """Until all is restored; half of the restores are of each broker."""
        with ExitStack() as cleanup:
            for world, target in zip(self.worlds, (folder, on_s3), strict=True):
                world.root.parent.mkdir(exist_ok=True)
                world.open(cleanup, target(world.root))
            loads = [cleanup.enter_context(world.load(self._rate, self._seconds)) for world in self.worlds]
            with ThreadPoolExecutor(2) as threads:
                list(threads.map(self._live, self.worlds, [self._rng.random() for _ in self.worlds]))
                for load in loads:
                    sent = load.wait(self._seconds + WAIT_S)
                    self._say(f"{sent['acknowledged']:,} messages acknowledged, {sent['failed']:,} not")
                list(threads.map(World.finish, self.worlds))
                with ProcessPoolExecutor(2) as processes:
                    logs = list(processes.map(Log.of, [world.broker.store for world in self.worlds]))
                self._say(Restore.HEAD)
                counts = [restores - restores // 2, restores // 2]
                list(threads.map(self._restore, self.worlds, logs, counts, [self._rng.random() for _ in counts]))

    def _live(self, world: World, seed: float) -> None:
        world.live(self._seconds, random.Random(seed), self._say)

    def _restore(self, world: World, log: Log, count: int, seed: float) -> None:
        rng = random.Random(seed)
        for _ in range(count):
            found = world.restore(rng.randint(int(log.times_ms[0]), int(log.times_ms[-1])), log)
            world.restores.append(found)
            self._say("\n".join([found.line(world.release), *found.wrong]))


def summary(worlds: Sequence[World]) -> Iterator[str]:
    """Lines with a table of both brokers."""
    yield "| broker | backup | what happened | restores | messages | differences | restore in s | served after s |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    for world in worlds:
        counts = ", ".join(f"{what} {count}" for what, count in sorted(world.counts.items()))
        sizes = [each.messages for each in world.restores]
        spans = [
            f"{median(values):.1f}, at most {max(values):.1f}"
            for values in ([each.restore_s for each in world.restores], [each.serve_s for each in world.restores])
        ]
        yield (
            f"| {world.release} | {world.target.name} | {counts} | {len(world.restores)} "
            f"| {min(sizes):,} to {max(sizes):,} | {sum(len(each.wrong) for each in world.restores)} "
            f"| {spans[0]} | {spans[1]} |"
        )
    for world in worlds:
        seen = np.array(world.unprotected or [0.0])
        yield (
            f"{world.release}: messages unprotected while the target was well, in seconds: "
            f"median {np.median(seen):.1f}, 99 % {np.quantile(seen, 0.99):.1f}, at most {seen.max():.1f}"
        )


def run(
    root: Path, seconds: float, rate: float, restores: int, seed: int = 1, say: Callable[[str], None] = print
) -> list[World]:
    """Run for this many seconds, with `rate` messages a second to each broker, and then restore this many stores."""
    lifeline = Lifeline(root, seconds, rate, seed, say)
    lifeline.run(restores)
    return lifeline.worlds


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when no restored store differed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a directory for the run's files; emptied first")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=2000.0, help="messages a second to each broker")
    parser.add_argument("--restores", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(words)
    work = given.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    say = partial(print, flush=True)
    worlds = run(work, 60 * given.minutes, given.rate, given.restores, given.seed, say)
    for line in summary(worlds):
        say(line)
    return 1 if any(each.wrong for world in worlds for each in world.restores) else 0


if __name__ == "__main__":
    sys.exit(main())
