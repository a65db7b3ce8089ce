"""G7, G15: one running `reput tail` gets over what passes: disks that fail, directories away, processes that die."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from faults import failing_tail
from faults.tail_process import LogWriter, Oracle, TailProcess
from pyspark.sql import SparkSession
from support.proof_counts import Proof
from support.small_log import messages, write
from support.tail_runs import TailBeside, tail_beside

from reput.source.errors import TRY_AGAIN, CommitLogRewoundError, ReputError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import load_config

pytestmark = [pytest.mark.spark, pytest.mark.long]

LIMIT_SECONDS = 120
RATE = 100.0
_POOL = "tokio-rt-worker"
_BEGINS = re.compile(r"WARNING (logic|table) waits \d+ s and is opened again \(attempt 1, since 0 s\): (.*)")
_TURNS = re.compile(r"(?:WARNING|INFO) (logic|table) (waits|continues after) \d+ s")


# --- one process, many faults --------------------------------------------------------------------------------


class Stage:
    """A tail under load, on disks that can be filled and unmounted where this user may mount."""

    def __init__(self, root: Path, stack: ExitStack, attempts: int) -> None:
        self.root = root
        self.attempts = attempts
        self.eio = root / "eio"
        self.out = root / "out"
        self.disk: Path | None = None
        if os.geteuid() == 0:
            disk = root / "disk"
            disk.mkdir()
            if mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)):
                stack.callback(unmount, disk)
                self.disk = disk
                (disk / "out").mkdir()
                self.out.mkdir()
                assert mount("--bind", str(disk / "out"), str(self.out))
                stack.callback(unmount, self.out)
        self.writer = LogWriter(root / "store" / "commitlog", RATE)
        stack.callback(self.writer.kill)
        environment = {"REPUT_TEST_EIO": str(self.eio)}
        os.environ.update(environment)
        stack.callback(os.environ.pop, "REPUT_TEST_EIO")
        self.tail = TailProcess(root, "-o", "tableUpkeep=false", program=(sys.executable, failing_tail.__file__))
        stack.callback(self.tail.end)
        self._seen = 0

    def lines(self, pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
        """Return the tail's lines with this pattern since the last fault began."""
        return [tuple(found.groups()) for found in pattern.finditer(self.tail.said.read_text()[self._seen :])]

    def nobody_waits(self) -> bool:
        """Whether each query that ever waited has continued since."""
        return "waits" not in dict(_TURNS.findall(self.tail.said.read_text())).values()

    def wait(self, done: Callable[[], bool]) -> None:
        self.tail.wait(done, LIMIT_SECONDS)

    def reaches(self, offset: int) -> None:
        """Until every sink has the log up to an offset."""
        self.wait(lambda: self.tail.end_offset() >= offset)

    @contextmanager
    def fault(self, who: set[str], words: str) -> Iterator[None]:
        """A fault: in its course `who` begins to wait, once each, with `words` in the log; then all continue."""
        self._seen = len(self.tail.said.read_text())
        before = self.tail.end_offset()
        yield
        self.wait(lambda: {query for query, _ in self.lines(_BEGINS)} >= who)
        self.wait(self.nobody_waits)
        self.tail.wait_beyond(before)
        begun = self.lines(_BEGINS)
        assert sorted(query for query, _ in begun) == sorted(who), self.tail.last_words()
        assert all(re.search(words, failure) for _, failure in begun), begun

    def waits(self, *who: str, attempts: int | None = None) -> None:
        """Until each of them waits for at least that attempt; by default, for the stage's."""
        least = self.attempts if attempts is None else attempts
        text = rf"WARNING (logic|table) waits \d+ s and is opened again \(attempt [{least}-9]"
        self.wait(lambda: {query for (query,) in self.lines(re.compile(text))} >= set(who))


def mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], check=False, capture_output=True).returncode == 0


def unmount(path: Path) -> None:
    subprocess.run(["umount", "-l", str(path)], check=False, capture_output=True)


@contextmanager
def away(path: Path) -> Iterator[None]:
    """A directory that has another name meanwhile."""
    elsewhere = path.with_name(f"{path.name}-elsewhere")
    path.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(path)


@contextmanager
def filled(path: Path) -> Iterator[None]:
    """A disk with no byte free meanwhile."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    try:
        yield
    finally:
        path.unlink()


def held(pid: int) -> tuple[int, int, int]:
    """How many threads a process has, without and with those of deltalake's pool, and how many descriptors.

    The pool reads a table's log with dozens of threads, each of which ends when it was idle for ten seconds.
    """
    names = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has just ended
            names.append((thread / "comm").read_text().strip())
    return len(names) - names.count(_POOL), len(names), len(list(Path(f"/proc/{pid}/fd").iterdir()))


def log_end(oracle: Oracle) -> int:
    """Where the last complete record of the log ends now."""
    return LogReader(SourceOptions.parse(oracle.config.source_options())).settled_end(0)


@pytest.mark.parametrize(("deaths", "attempts"), [(1, 1), pytest.param(3, 2, marks=pytest.mark.slow)])
def test_what_passes(deaths: int, attempts: int, tmp_path: Path, proof: Proof) -> None:
    """It waits, reports it once, continues by itself; at the end nothing is lost or doubled, and it stops."""
    with ExitStack() as stack:
        stage = Stage(tmp_path, stack, attempts)
        stage.tail.wait_beyond(0)
        disks_fail(stage)
        directories_go(stage)
        processes_die(stage, deaths)
        written = stage.writer.end()
        oracle = Oracle(tmp_path)
        stage.reaches(log_end(oracle))
        stage.tail.process.send_signal(signal.SIGTERM)
        assert stage.tail.process.wait(LIMIT_SECONDS) == 0, stage.tail.last_words()
        assert "Traceback" not in stage.tail.said.read_text()
        oracle.check_all(written)
        proof("G15 faults that a running tail got over", 6 + deaths)


def disks_fail(stage: Stage) -> None:
    with stage.fault({"logic", "table"}, "Input/output error"):
        stage.eio.touch()
        stage.waits("logic", "table", attempts=2)
        stage.eio.unlink()
    if stage.disk is not None:
        with stage.fault({"logic", "table"}, "No space left on device"), filled(stage.disk / "filler"):
            stage.waits("logic", "table")


def directories_go(stage: Stage) -> None:
    log, table = stage.root / "store" / "commitlog", stage.root / "table"
    with stage.fault({"logic", "table"}, "is gone|no commitlog at"), stage.writer.suspended(), away(log):
        stage.waits("logic", "table")
    with stage.fault({"table"}, "there is no Delta table any more"), away(table):
        before = stage.tail.end_offset("consumequeue")
        stage.waits("table")
        stage.wait(lambda: stage.tail.end_offset("consumequeue") > before)
        assert not table.exists()
    if stage.disk is not None:
        with stage.fault({"logic", "table"}, "cannot be reached while reput writes to it"):
            unmount(stage.out)
            stage.waits("logic", "table")
            assert list(stage.out.iterdir()) == []
            assert mount("--bind", str(stage.disk / "out"), str(stage.out))


def processes_die(stage: Stage, deaths: int) -> None:
    stage._seen = len(stage.tail.said.read_text())
    # One of those that tell Spark where the log ends. Its query meets the death when it asks again, and a micro-batch
    # that was planned before may end first: so it is over when all is dispatched that the log has now.
    os.kill(stage.tail.children("-m pyspark.sql.streaming.python_streaming_source_runner")[-1], signal.SIGKILL)
    stage.reaches(log_end(Oracle(stage.root)) + 1)  # Spark may have made it good by itself
    stage.wait(stage.nobody_waits)
    counts = [held(stage.tail.process.pid)]
    for _ in range(deaths):
        with stage.fault({"logic", "table"}, "Spark's Java process was killed by SIGKILL"):
            os.kill(stage.tail.jvm(), signal.SIGKILL)
        time.sleep(3)
        counts.append(held(stage.tail.process.pid))
    threads, all_threads, descriptors = zip(*counts, strict=True)
    assert max(threads) <= threads[0] + 2, counts
    assert max(descriptors) <= descriptors[0] + 5, counts
    stage.wait(lambda: held(stage.tail.process.pid)[1] <= all_threads[0] + 2)


# --- what does not pass --------------------------------------------------------------------------------------


@contextmanager
def running(spark: SparkSession, root: Path, *options: str) -> Iterator[TailBeside]:
    """A tail with queues, index and table that has read all of a small log."""
    write(root / "store", messages(40))
    config = load_config(root / "store", overrides=("tailGuardMs=20", "tableTriggerMs=200", *options))
    with tail_beside(spark, config, root / "out", root / "table") as tail:
        tail.wait_for_messages(40, "logic", "table")
        yield tail


def test_giving_up(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After `retryForMs` without the log, with the code for a supervisor; what there was is as before."""
    with running(spark, tmp_path, "retryForMs=2500") as tail, away(tmp_path / "store" / "commitlog"):
        began = time.monotonic()
        tail.thread.join(LIMIT_SECONDS)
        lasted = time.monotonic() - began
    (failure,) = tail.failed
    assert isinstance(failure, ReputError)
    assert failure.exit_code == TRY_AGAIN
    said = r"(logic|table) did not continue within \d+ s and was opened again (once|\d+ times): "
    gave_up = re.match(said, failure.cause)
    assert gave_up
    # How often there is time for it depends on the machine; the output has what was done.
    attempts = re.findall(rf"{gave_up[1]} waits \d+ s and is opened again \(attempt (\d+)", caplog.text)
    assert attempts == [str(number) for number in range(1, len(attempts) + 1)]
    assert gave_up[2] == ("once" if len(attempts) == 1 else f"{len(attempts)} times")
    assert 2.5 <= lasted < 30
    assert (tmp_path / "out" / "abort").exists()


def test_a_log_that_comes_back_as_another(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty directory is waited for, as for a volume that is not mounted; another store ends the run at once."""
    with running(spark, tmp_path) as tail:
        log = tmp_path / "store" / "commitlog"
        log.rename(tmp_path / "store" / "elsewhere")
        log.mkdir()
        tail.wait_until(lambda: "opened again (attempt 2" in caplog.text)
        log.rmdir()
        write(tmp_path / "other", messages(60, 500))
        shutil.move(tmp_path / "other" / "commitlog", log)
        tail.thread.join(LIMIT_SECONDS)
    (failure,) = tail.failed
    assert isinstance(failure, CommitLogRewoundError)
