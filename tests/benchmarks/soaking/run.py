"""A soak: broker, load, `reput tail` under a supervisor, Prometheus, events, and the comparison at the end."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.java_process import free_port
from broker.rocketmq import RocketMQ
from faults.live_break.disk import Disk
from faults.live_break.live_broker import LiveBroker
from faults.live_break.processes import end_all, survivors
from faults.live_break.tail import Paths, run_reput, ugly_lines
from support.paths import ROOT

from benchmarks import machine
from benchmarks.soaking.equality import Equality, Keeper, compare_files, compare_rows
from benchmarks.soaking.plan import EXPIRE, EXTRAS, FULL, KILL, QUIET, RESTART, Event, Planned, plan
from benchmarks.soaking.prometheus import Firing, Prometheus
from benchmarks.soaking.samples import Files, Sampler, look_at_files
from benchmarks.soaking.supervisor import REPUT, Supervisor, tail_words, wait_until
from reput.sinks.files.store_path import REPUT as REPUT_FOLDER
from reput.sinks.files.store_path import SPARK_CHECKPOINT

if TYPE_CHECKING:
    from typing_extensions import Self

DISK_BYTES = 3 << 29
SEGMENT_BYTES = 8 << 20
BROKER_CONF: dict[str, str | int | bool] = {"mappedFileSizeCommitLog": SEGMENT_BYTES}
# Of a smaller heap the JVM collects old garbage several times in an hour: its memory is judged over whole rounds.
HEAP_MB = 1024
OPTIONS: dict[str, object] = {
    "tableTriggerMs": 1000,
    "failOnDataLoss": "false",
    "sparkDriverMemory": f"{HEAP_MB}m",
}
SAMPLE_SECONDS = 10.0
FOLLOW_SECONDS = 300.0
SEGMENTS_LEAST = 1
LAST_SEGMENT_FILLED_MAX = 0.6
GONE_SECONDS = 20.0
_EXPIRED_UNREAD = re.compile(
    r"WARNING table ends at (\d+) and the log continues at (\d+): the \d+ bytes between expired"
)
#: The files that a run leaves in its directory, enough to judge it.
SAMPLES, RECORD = "samples.jsonl", "record.json"


@dataclass
class Record:
    """Everything about a run but its samples."""

    machine: dict[str, str]
    release: str
    rate: int
    minutes: float
    begin: float = 0.0
    end: float = 0.0
    events: list[Event] = field(default_factory=list)
    starts: list[dict[str, Any]] = field(default_factory=list)
    alerts: list[Firing] = field(default_factory=list)
    equality: Equality = field(default_factory=Equality)
    exit_code: int | None = None
    verify_code: int | None = None
    complaints: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def load(cls, path: Path) -> Record:
        """Load the record of a run that has ended."""
        found = json.loads(path.read_text())
        found["events"] = [Event(**each) for each in found["events"]]
        found["alerts"] = [Firing(**each) for each in found["alerts"]]
        found["equality"] = Equality(**found["equality"])
        return cls(**found)


class Soak:
    """Everything that runs; leaving `with` ends it.

    Parameters
    ----------
    work
        A new directory for all files, on a disk with room for every segment of the run.
    restart_s
        The pause of the supervisor before it starts the tail again: RestartSec of the unit.
    """

    def __init__(
        self,
        work: Path,
        release: str,
        rate: int,
        minutes: float,
        restart_s: float,
        say: Callable[[str], None],
    ) -> None:
        self.work = work.resolve()
        self._say = say
        self._cleanup = ExitStack()
        self._port = free_port()
        self.record = Record(machine.facts(work), release, rate, minutes)
        self.broker = LiveBroker(RocketMQ(release), self.work, rate, BROKER_CONF)
        self.disk = Disk(self.work / "disk", str(self.work), DISK_BYTES)
        root = self.disk.root
        self.paths = Paths(
            self.work, self.broker.store, self.work / "broker.conf", root / "out", root / "messages", has_own_tmp=False
        )
        self._log = self.work / "tail.log"
        self._began = 0.0
        words = {
            "store": self.paths.store,
            "broker-conf": self.paths.broker_conf,
            "output": self.paths.output,
            "table": self.paths.table,
        }
        self.tail = Supervisor(
            tail_words(REPUT, words, {**OPTIONS, "metricsPort": self._port}),
            self._log,
            self.paths.cwd,
            self._environment(),
            restart_s,
        )
        self.prometheus = Prometheus(self.work / "prometheus", self._port)
        self.sampler = Sampler(lambda: self.tail.pid, self._port, self._places(), self.work / SAMPLES, SAMPLE_SECONDS)
        kept = root / "kept"
        self._keepers = {
            "broker": Keeper(self.broker.store, self.work / "kept", lambda: self.broker.min_offset),
            "output": Keeper(self.paths.output, kept, lambda: self.broker.min_offset),
        }
        self._kept = {"broker": self.work / "kept", "output": kept}

    def _environment(self) -> dict[str, str]:
        return {**self.paths.environment(), "PYTHONPATH": str(ROOT / "reput")}

    def _places(self) -> dict[str, Callable[[], Files]]:
        own = self.paths.output / REPUT_FOLDER
        checkpoint = own / SPARK_CHECKPOINT

        def logs() -> Files:
            found = [look_at_files(path) for path in (*own.glob("spark.log*"), self._log)]
            return Files(sum(each.files for each in found), sum(each.bytes for each in found))

        def output() -> Files:
            return look_at_files(self.paths.output, (checkpoint, *own.glob("spark.log*")))

        return {
            "output": output,
            "table": lambda: look_at_files(self.paths.table),
            "checkpoint": lambda: look_at_files(checkpoint),
            "logs": logs,
        }

    def __enter__(self) -> Self:
        """Start all of it and wait until the tail follows the log."""
        with self._cleanup:
            self._cleanup.callback(self.disk.end)
            self._cleanup.callback(end_all, self.paths.mark)
            self._cleanup.callback(self.tail.end)
            self._cleanup.callback(self.broker.end)
            for directory in (self.paths.cwd, self.paths.tmp):
                directory.mkdir()
            self.broker.start()
            self.broker.copy_conf(self.paths.broker_conf)
            self._cleanup.enter_context(self.prometheus)
            self.tail.start()
            self._follow()
            for keeper in self._keepers.values():
                keeper.start()
            self._cleanup = self._cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing running and nothing mounted."""
        self._cleanup.close()

    def _follow(self) -> None:
        """Wait until every sink has what is in the log at this moment."""
        target = self.broker.log_end()
        wait_until(
            lambda: self.tail.gave_up or min(self.paths.progress().values()) >= target,
            FOLLOW_SECONDS,
            "the tail follows",
        )

    # --- events ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """All events at their times, the end, and the comparison."""
        self.record.begin = time.time()
        self.sampler.start()
        for planned in plan(self.record.minutes):
            time.sleep(max(0.0, self.record.begin + planned.at - time.time()))
            self._happen(planned)
        time.sleep(max(0.0, self.record.begin + 60 * self.record.minutes - time.time()))
        self.record.end = time.time()
        self._finish()

    def _happen(self, planned: Planned) -> None:
        self._began = time.time()
        try:
            words = self._events()[planned.kind](planned.seconds)
        except (TimeoutError, AssertionError) as error:
            words = f"failed: {error}"
            self.record.complaints.append(f"{planned.kind}: {error}")
        self.record.events.append(Event(planned.kind, self._began, time.time(), words))
        self._say(f"{(self._began - self.record.begin) / 60:5.1f} min  {planned.kind}: {words}")
        self._write()

    def _events(self) -> dict[str, Callable[[float], str]]:
        return {
            EXTRAS: self._extras,
            EXPIRE: self._expire,
            KILL: self._kill,
            QUIET: self._quiet,
            RESTART: self._restart,
            FULL: self._fill,
        }

    def _extras(self, _: float) -> str:
        delayed = self.broker.workload("delay", count=100, levelMin=1, levelMax=4)
        half = self.broker.workload("transactions", commit=60, rollback=30, unknown=0)
        done = delayed.wait()["acknowledged"], half.wait()
        return f"{done[0]} delayed messages, {done[1]['committed']} committed and {done[1]['rolled_back']} rolled back"

    def _expire(self, _: float) -> str:
        self.broker.wait_until_it_deletes()
        wait_until(self._may_expire, FOLLOW_SECONDS, "segments to expire")
        self._began = time.time()
        before = begin = self.broker.min_offset
        # One pass of the broker deletes ten segments at most.
        while self._may_expire():
            begin = self.broker.expire()
        return f"{(begin - before) // SEGMENT_BYTES} segments, the log begins at {begin:,}"

    def _may_expire(self) -> bool:
        """Whether there is something to expire, and all of it is read.

        For a moment the broker keeps nothing but its last segment: another must not begin meanwhile.
        """
        end, last = self.broker.log_end(), self._last_segment()
        is_read = min(self.paths.progress().values()) >= last
        return (
            is_read
            and self._whole_segments() >= SEGMENTS_LEAST
            and end - last < LAST_SEGMENT_FILLED_MAX * SEGMENT_BYTES
        )

    def _last_segment(self) -> int:
        """The begin of the segment that the broker writes; the files after it were made in advance."""
        end = self.broker.log_end()
        return end - end % SEGMENT_BYTES

    def _whole_segments(self) -> int:
        """How many segments are before that one."""
        return (self._last_segment() - self.broker.min_offset) // SEGMENT_BYTES

    def _kill(self, _: float) -> str:
        starts = len(self.tail.starts)
        self.tail.kill()
        wait_until(lambda: self.tail.gave_up or len(self.tail.starts) > starts, FOLLOW_SECONDS, "started again")
        self._follow()
        return "the tail follows again"

    def _quiet(self, seconds: float) -> str:
        self.broker.stop_load()
        before = self.broker.log_end()
        time.sleep(seconds)
        grown = self.broker.log_end() - before
        self.broker.start_load()
        return f"the producer was stopped for {seconds:.0f} s, in which the log grew by {grown} bytes"

    def _restart(self, _: float) -> str:
        said = self.broker.stop()
        self.broker.restart()
        self._follow()
        return said or "stopped and started"

    def _fill(self, seconds: float) -> str:
        self.disk.fill()
        time.sleep(seconds)
        self.disk.free()
        self._follow()
        return f"no byte was free for {seconds:.0f} s"

    # --- the end -----------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Stop the load, let the tail catch up, stop all, compare."""
        self.broker.stop_load()
        time.sleep(2)
        with suppress(TimeoutError):
            self._follow()
        target = self.broker.log_end()
        if (behind := target - min(self.paths.progress().values())) > 0:
            self._complain(f"at the end the tail is {behind} bytes behind: {self.paths.progress()}, the log {target}")
        self.sampler.stop()
        self.record.alerts = self.prometheus.fired(self.record.begin, time.time())
        if (said := self.broker.stop()) is not None:
            self._complain(f"the broker's stop was not clean: {said}")
        self.record.exit_code = self.tail.stop()
        self.record.starts = [asdict(start) for start in self.tail.starts]
        for process in survivors(self.paths.mark, GONE_SECONDS):
            self._complain(f"a process outlived the tail: {process.command[:150]}")
        self._write()
        self._compare()
        for line in ugly_lines(self._log.read_text(errors="replace"))[:5]:
            self._complain(f"the tail printed: {line}")
        self._write()

    def _compare(self) -> None:
        for keeper in self._keepers.values():
            keeper.stop()
        self.broker.settle_archive()
        found = self.record.equality
        compare_files(self._kept["broker"], self._kept["output"], found)
        compare_rows(self.broker.archive, self.paths.table, self._expired_unread(), found)
        words = ["verify", "--store", str(self.paths.store), "--output", str(self.paths.output)]
        words += ["--broker-conf", str(self.paths.broker_conf), "--table", str(self.paths.table)]
        done = run_reput(self.paths, self._log, *words)
        self.record.verify_code = done.code
        if done.code != 0:
            self._complain(f"reput verify ended with {done.code}: {' | '.join(done.said.splitlines()[-8:])}")
        if self.record.equality.wrong or self.record.complaints:
            shutil.copytree(self.disk.root, self.work / "kept-disk", symlinks=True)

    def _expired_unread(self) -> list[tuple[int, int]]:
        """The bytes that the table had missed, according to the tail."""
        said = self._log.read_text(errors="replace")
        return [(int(found[1]), int(found[2])) for found in _EXPIRED_UNREAD.finditer(said)]

    def _complain(self, words: str) -> None:
        self._say(words)
        self.record.complaints.append(words)

    def _write(self) -> None:
        self.record.starts = [asdict(start) for start in self.tail.starts]
        (self.work / RECORD).write_text(json.dumps(self.record.as_dict(), indent=1))
