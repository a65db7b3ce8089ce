"""Each alert by its real fault: a real tail of a growing log, a real Prometheus with the rules, in real time.

``test_alerts.py`` tests the rules with metrics of hours; here the fault itself must show in the metrics.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from benchmarks.soaking import prometheus
from benchmarks.soaking.prometheus import Prometheus
from benchmarks.soaking.supervisor import REPUT, wait_until
from broker.java_process import free_port
from faults.live_break.disk import Disk
from faults.live_break.live_broker import record_positions
from faults.log_writer import SEGMENT_BYTES
from faults.tail_process import LogWriter, TailProcess
from support.paths import ROOT

if TYPE_CHECKING:
    from typing_extensions import Self

pytestmark = [pytest.mark.deploy, pytest.mark.slow]

RULES = ROOT / "conf" / "deploy" / "prometheus" / "reput.rules.yml"
RATE = 50
START_SECONDS = 300.0
#: On a machine with other work an alert may take this much longer than the rule's own time.
SLACK_SECONDS = 180.0
QUIET_SECONDS = 45.0
#: How long it is looked for other alerts once the fault's own fires.
ALONE_SECONDS = 45.0
DISK_BYTES = 64 << 20
JVM = "org.apache.spark.deploy.SparkSubmit"
ATTACH, DETACH, ALL_THREADS = 16, 17, 0x40000000


class Service:
    """A growing log, its `reput tail`, and Prometheus, all below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "store" / "commitlog"
        self.port = free_port()
        self.disk = Disk(root / "out", str(root), DISK_BYTES)
        self.prometheus = Prometheus(root / "prometheus", self.port)
        self._cleanup = ExitStack()
        self._tail: TailProcess | None = None
        self.lift: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        """Start all of it and wait until the tail follows."""
        with self._cleanup:
            self._cleanup.callback(self.disk.end)
            self._cleanup.callback(self._end_tail)
            self.writer = LogWriter(self.log, RATE)
            self._cleanup.callback(self.writer.kill)
            self.start()
            self.wait_until_ready()
            self._cleanup.enter_context(self.prometheus)
            self._cleanup = self._cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End all of it."""
        with contextlib.suppress(OSError):
            self.lift()
        self._cleanup.close()

    def _end_tail(self) -> None:
        if self._tail is not None:
            self._tail.end()

    @property
    def tail(self) -> TailProcess:
        """The newest run of the tail."""
        assert self._tail is not None
        return self._tail

    def start(self, *options: str) -> None:
        """Start the tail; one that ran has ended."""
        words = [word for option in (f"metricsPort={self.port}", *options) for word in ("--option", option)]
        self._tail = TailProcess(self.root, *words, program=REPUT)

    def restart(self, *options: str) -> None:
        """As a crash does, and a supervisor."""
        self.kill()
        self.start(*options)

    def kill(self) -> None:
        """All of the tail, at once."""
        self.tail.kill()

    def wait_until_ready(self) -> None:
        """Until its queries run and have what was in the log."""
        end = self.log_end()
        self.tail.wait_beyond(end - 1, START_SECONDS)

    def log_end(self) -> int:
        """The offset after the last record."""
        for segment in sorted(self.log.iterdir(), reverse=True):
            if positions := list(record_positions(segment)):
                return int(segment.name) + sum(positions[-1])
        return 0

    def started_at(self) -> float | None:
        """When the run began that Prometheus has scraped last."""
        found = self.prometheus.ask("query", query="rocketmq_reput_start_timestamp_seconds")["result"]
        return float(found[0]["value"][1]) if found else None


@dataclass(frozen=True)
class RealFault:
    """A fault of a service, and the alert for it."""

    alert: str
    happens: Callable[[Service], None]

    @property
    def fires_after(self) -> float:
        """Seconds that the rule's `for:` takes."""
        (group,) = yaml.safe_load(RULES.read_text())["groups"]
        (words,) = (rule.get("for", "0m") for rule in group["rules"] if rule["alert"] == self.alert)
        return float(words.removesuffix("m")) * 60


def stopped(service: Service) -> None:
    service.kill()


def restart_loop(service: Service) -> None:
    """Killed four times, and started again each time; Prometheus sees each start."""
    for _ in range(4):
        before = service.started_at()
        service.restart()
        service.wait_until_ready()
        wait_until(lambda: service.started_at() not in (None, before), START_SECONDS, "the start is seen")  # noqa: B023


def start_hangs(service: Service) -> None:
    """Its JVM stands still before Spark has started."""
    service.restart()
    wait_until(lambda: bool(service.tail.children(JVM)), START_SECONDS, "a JVM")
    stand_still(service, service.tail.children(JVM))
    assert "running" not in str(prometheus.status(service.port)), "it stands still too late"


def main_loop_hangs(service: Service) -> None:
    """The main thread alone stands still, as when a disk does not answer; the port does answer."""
    pid = service.tail.process.pid
    tracer = Tracer(pid)
    for _ in range(20):
        tracer.attach()
        if prometheus.status(service.port) is not None:
            break
        tracer.detach()  # it held the interpreter's lock
        time.sleep(0.1)
    else:
        raise AssertionError("the main thread is never without the lock")
    service.lift = tracer.detach


class Tracer:
    """Lets one thread of a process stand still, and no other."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._libc = ctypes.CDLL(None, use_errno=True)

    def attach(self) -> None:
        """Stop it."""
        assert self._libc.ptrace(ATTACH, self._thread, None, None) == 0, os.strerror(ctypes.get_errno())
        os.waitpid(self._thread, ALL_THREADS)

    def detach(self) -> None:
        """Let it continue."""
        self._libc.ptrace(DETACH, self._thread, None, None)


def workers_hang(service: Service) -> None:
    """Spark's Python processes stand still, and Spark waits for them."""
    stand_still(service, service.tail.children("daemon"))


def stand_still(service: Service, processes: list[int]) -> None:
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    service.lift = go_on


def too_slow(service: Service) -> None:
    """It reads a fifth of what is written."""
    service.restart(f"maxMessagesPerTrigger={RATE // 5}", "logicTriggerMs=1000")


def log_is_away(service: Service) -> None:
    """As when its volume is not mounted."""
    service.writer.suspend()
    away = service.log.with_name("away")
    service.log.rename(away)
    service.lift = lambda: away.rename(service.log) and None


def disk_full(service: Service) -> None:
    service.disk.fill()
    service.lift = service.disk.free


def damage(service: Service) -> None:
    """A record that is not read yet loses its magic code, while the tail is down."""
    service.kill()
    end = service.tail.end_offset()
    wait_until(lambda: service.log_end() > end + 50_000, START_SECONDS, "more records")
    segment = service.log / f"{end - end % SEGMENT_BYTES:020d}"
    unread = [at for at, _ in record_positions(segment) if int(segment.name) + at > end]
    if not unread:  # the segment ended there
        segment = segment.with_name(f"{int(segment.name) + SEGMENT_BYTES:020d}")
        unread = [at for at, _ in record_positions(segment)]
    with segment.open("r+b") as file:
        file.seek(unread[len(unread) // 2] + 4)
        file.write(bytes(4))
    service.start("onDamage=quarantine")


def gap(service: Service) -> None:
    """Segments are removed before they are read, while the tail is down."""
    service.kill()
    end = service.tail.end_offset()
    wait_until(lambda: service.log_end() > end + 2 * SEGMENT_BYTES, START_SECONDS, "two segments more")
    for segment in sorted(service.log.iterdir()):
        if int(segment.name) <= end:
            segment.unlink()
    service.start("failOnDataLoss=false")


def table_file_damaged(service: Service) -> None:
    """Upkeep cannot read one of the files that it merges."""
    newest = max((service.root / "table").glob("part-*.parquet"), key=lambda path: path.name)
    with newest.open("r+b") as file:
        file.seek(-16, os.SEEK_END)
        file.write(bytes(16))


FAULTS = [
    RealFault("ReputStopped", stopped),
    RealFault("ReputRestartLoop", restart_loop),
    RealFault("ReputStarting", start_hangs),
    RealFault("ReputHung", main_loop_hangs),
    RealFault("ReputStalled", workers_hang),
    RealFault("ReputLagging", too_slow),
    RealFault("ReputWaiting", log_is_away),
    RealFault("ReputOutputFull", disk_full),
    RealFault("ReputDamage", damage),
    RealFault("ReputGap", gap),
    RealFault("ReputTableUpkeep", table_file_damaged),
]
#: Of what the rules look at, the longest stretch before their `for:` begins.
RANGE_SECONDS = 360.0


def test_each_alert_has_its_real_fault() -> None:
    """None is without."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert {rule["alert"] for rule in group["rules"]} == {fault.alert for fault in FAULTS}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.alert)
def test_a_real_fault_fires_its_alert_alone(fault: RealFault, tmp_path: Path) -> None:
    """None while all is well, its own in time, and no other all along."""
    with Service(tmp_path) as service:
        begin = time.time()
        time.sleep(QUIET_SECONDS)
        assert service.prometheus.now() == {}
        fault.happens(service)
        seconds = fault.fires_after + RANGE_SECONDS + SLACK_SECONDS
        wait_until(
            lambda: "firing" in service.prometheus.now(), seconds, f"an alert fires: {service.tail.last_words()}"
        )
        time.sleep(ALONE_SECONDS)
        assert {firing.alert for firing in service.prometheus.fired(begin, time.time())} == {fault.alert}
