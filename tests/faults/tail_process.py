"""`reput tail` in processes of its own beside a log that is written to, to be killed at any moment; and its oracle."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from faults import log_writer
from support.sink_runner import no_fsync, take_step
from support.store_compare import differing_bytes

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.table.location import TableLocation
from reput.source.log.log_reader import LogReader
from reput.source.log.range_reader import DecodeOptions, scan_windows
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.effects.write_step import WriteStep
from reput.streaming.output.logic_sinks import LogicSinks, recover_sinks

FILE_SIZES = ("mappedFileSizeConsumeQueue=6000", "maxHashSlotNum=500", "maxIndexNum=2000")
SETTINGS = (*FILE_SIZES, "tailGuardMs=50")
SINKS = ("consumequeue", "index", "messages")
START_SECONDS = 120.0


def environment() -> dict[str, str]:
    """The environment in which a process finds the project and the tests' modules."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def program_of(pid: int) -> str:
    """The name of a process's program; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


def parent_of(pid: int) -> int | None:
    """The process id of a process's parent; None if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def end_offset(output: Path, *sinks: str) -> int:
    """How far the slowest of an output's sinks, or of these, is; -1 before all have begun."""
    ends = []
    for name in sinks or SINKS:
        try:
            record = json.loads((output / "reput" / "progress" / f"{name}.json").read_text())
        except FileNotFoundError:
            return -1
        ends.append(int(record["end_offset"]))
    return min(ends)


class LogWriter:
    """A running `log_writer`."""

    def __init__(self, log: Path, rate: float) -> None:
        command = [sys.executable, log_writer.__file__, str(log), str(rate)]
        self._process = subprocess.Popen(
            command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "begun\n"

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Let it write nothing meanwhile."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def suspend(self) -> None:
        """Let it write nothing any more, until it is killed."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it, whatever it has written."""
        self._process.kill()
        self._process.communicate()

    def end(self) -> int:
        """Stop it; how many messages it wrote."""
        said, _ = self._process.communicate()
        return int(said)


# Tests that are run in the background may ignore these, and with them whatever they start.
HEARS_SIGNALS = ("env", "--default-signal=INT,HUP")


class TailProcess:
    """One run of `reput tail` in a process group of its own; what it says goes to `said`.

    `table` is another table than the one below `root`; `program` runs instead of ``reput``. `whose` are the words for
    other brokers than the one whose store and output are below `root`.
    """

    def __init__(
        self,
        root: Path,
        *options: str,
        wrapper: Sequence[str] = (),
        table: TableLocation | None = None,
        program: Sequence[str] = (str(Path(sys.executable).with_name("reput")),),
        whose: Sequence[str] = (),
    ) -> None:
        self.root = root
        self.said = root / "tail.log"
        settings = [word for setting in SETTINGS for word in ("--option", setting)]
        command = [
            *(*HEARS_SIGNALS, *wrapper, *program, "tail"),
            *(whose or ("--store", str(root / "store"), "--output", str(root / "out"))),
            *("--table", str(table or root / "table")),
            *("--option", "sparkDriverMemory=600m", "--option", "tableTriggerMs=500", *settings, *options),
        ]
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                command, env=environment(), stdout=said, stderr=said, start_new_session=True
            )

    def end_offset(self, *sinks: str) -> int:
        """How far the slowest of the sinks, or of these, is; -1 before all have begun."""
        return end_offset(self.root / "out", *sinks)

    def wait_beyond(self, offset: int, seconds: float = START_SECONDS) -> None:
        """Until every sink is beyond `offset`."""
        self.wait(lambda: self.end_offset() > offset, seconds)

    def wait(self, done: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Until something is `done` while it runs."""
        deadline = time.monotonic() + seconds
        while not done():
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.last_words()}"
            assert time.monotonic() < deadline, f"stuck:\n{self.last_words()}"
            time.sleep(0.05)

    def last_words(self) -> str:
        """The end of what it said."""
        return self.said.read_text()[-3000:]

    def jvm(self) -> int:
        """The process id of its JVM."""
        # A process that the JVM is about to start is another one of its program for a moment.
        found = [pid for pid in self.children("") if program_of(pid) == "java"]
        (jvm,) = (pid for pid in found if parent_of(pid) not in (None, *found))
        return jvm

    def children(self, word: str) -> list[int]:
        """Process ids of its descendants that have `word` in their command line."""
        parents: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and (parent := parent_of(int(entry.name))) is not None:
                parents[int(entry.name)] = parent
        found, below = [], {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in below} - below:
            below |= more
        for pid in sorted(below - {self.process.pid}):
            with suppress(OSError):
                if word in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                    found.append(pid)
        return found

    def kill(self, *, all_at_once: bool = True) -> None:
        """SIGKILL to the driver, and at the same moment to its JVM and workers unless told otherwise."""
        if all_at_once:
            self._kill_all()
        else:
            self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Leave nothing of it behind."""
        self._kill_all()
        self.process.wait()

    def _kill_all(self) -> None:
        """The JVM is in a session of its own, and so are the workers."""
        for pid in [self.process.pid, *self.children("")]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@dataclass
class Oracle:
    """The right output and table: kept from the same log, without Spark and without a fault."""

    root: Path
    offsets: set[int] = field(default_factory=set)
    _offsets: dict[str, list[int]] = field(default_factory=dict)
    _walked: int = 0

    @property
    def config(self) -> PipelineConfig:
        return load_config(self.root / "store", overrides=SETTINGS)

    def check(self) -> int:
        """Continue a copy of the output to the log's end; compare it, and the table as it is; return that end."""
        log = LogReader(SourceOptions.parse(self.config.source_options()))
        end = log.end(0)  # the last record is held back: its writer may be at work
        self._walk(log, end)
        copy = self.root / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        if (self.root / "out").exists():
            shutil.copytree(self.root / "out", copy, ignore=shutil.ignore_patterns("spark*", "scratch"))
        with no_fsync():
            for output in (copy, self.root / "undisturbed"):
                self._go_on(output, log, end)
        assert differing_bytes(self.root / "undisturbed", copy) == {}
        self._check_table()
        return end

    def check_all(self, messages: int) -> None:
        """The output and the table as they are, after a last run to the log's end."""
        log = LogReader(SourceOptions.parse(self.config.source_options()))
        end = log.settled_end(0)
        self._walk(log, end)
        assert len(self.offsets) == messages
        with no_fsync():
            self._go_on(self.root / "undisturbed", log, end)
        assert differing_bytes(self.root / "undisturbed", self.root / "out") == {}
        assert self._check_table() == messages

    def _go_on(self, output: Path, log: LogReader, end: int) -> None:
        with closing(DurableFiles(output)) as files:
            logic = LogicSinks.open(self.config, files)
            recover_sinks(logic.sinks, log, fail_on_data_loss=True)
            start = min(sink.end_offset for sink in logic.sinks)
            if start < end:
                take_step(WriteStep(logic, files, log.decode_options), log, start, end)

    def _walk(self, log: LogReader, end: int) -> None:
        for span in log.split(self._walked, end):
            for window in scan_windows(span.file, span.start, span.end, DecodeOptions()):
                self.offsets.update(window.offset_of(row) for row in range(len(window)))
        self._walked = end

    def _check_table(self) -> int:
        """Every record up to the table's end once, none twice; the number of rows."""
        live: set[str] = set()
        for commit in sorted((self.root / "table" / "_delta_log").glob("*.json")):
            for line in commit.read_text().splitlines():
                action = json.loads(line)
                live |= {action["add"]["path"]} if "add" in action else set()
                live -= {action["remove"]["path"]} if "remove" in action else set()
        for name in live - self._offsets.keys():
            table = pq.read_table(self.root / "table" / name, columns=["physical_offset"])
            self._offsets[name] = table["physical_offset"].to_pylist()
        found = [offset for name in live for offset in self._offsets[name]]
        assert len(found) == len(set(found)), "rows twice in the table"
        last = max(found, default=-1)
        assert set(found) == {offset for offset in self.offsets if offset <= last}, "rows missing from the table"
        return len(found)
