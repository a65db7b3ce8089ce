"""A stop that was asked for is clean and ends with 0; whatever else ends `reput tail` is one line and a code."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.tail_process import LogWriter, TailProcess
from support.record_writer import Message, write_log

LIMIT_SECONDS = 60
_BATCH = re.compile(r" INFO (logic|table): \[\d+, \d+\): .* \d+ bytes and [\d.]+ s behind$")
_SUMMARY = re.compile(r"(logic|table): \d+ messages? in \d+ batch(?:es)?, .* \d+ bytes and [\d.]+ s behind$")


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of a short name, since Spark makes sockets in it."""
    place = Path(tempfile.mkdtemp(prefix="stops-"))
    monkeypatch.setenv("TMPDIR", str(place))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def begun(root: Path, *options: str) -> TailProcess:
    """A tail that has made its first batches, of a growing log."""
    tail = TailProcess(root, *options)
    tail.wait_beyond(0)
    return tail


def lines_of(tail: TailProcess) -> list[str]:
    """Return its output, without the lines of its batches."""
    return [line for line in tail.said.read_text().splitlines() if not _BATCH.search(line)]


def processes_in(directory: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and directory in (entry / "cwd").readlink().parents:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def nothing_is_left(root: Path, temporary: Path) -> None:
    assert processes_in(temporary) == []
    assert list(temporary.iterdir()) == []
    assert list((root / "here").iterdir()) == []


@pytest.mark.parametrize(
    ("number", "group"),
    [
        (signal.SIGINT, True),
        (signal.SIGTERM, False),
        *(pytest.param(signal.SIGHUP, group, marks=pytest.mark.slow) for group in (False, True)),
        pytest.param(signal.SIGINT, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.slow),
    ],
)
def test_a_stop_while_it_starts(number: signal.Signals, group: bool, root: Path, temporary: Path) -> None:
    """At once, and in one line; Java was being started."""
    write_log(root / "store" / "commitlog", [Message()], 4096)
    tail = TailProcess(root)
    try:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not tail.children("pyspark-shell"):
            assert time.monotonic() < deadline
            assert tail.process.poll() is None, tail.last_words()
            time.sleep(0.01)
        (os.killpg if group else os.kill)(tail.process.pid, number)
        (os.killpg if group else os.kill)(tail.process.pid, number)
        assert tail.process.wait(LIMIT_SECONDS) == 0, tail.last_words()
        assert tail.said.read_text() == "reput: stopped\n"
        nothing_is_left(root, temporary)
    finally:
        tail.end()


def test_a_stop_of_several_brokers_while_they_start(root: Path, temporary: Path) -> None:
    """Those that wait for Spark end with the one that starts it, and none starts it again."""
    sections = []
    for name in "abc":
        write_log(root / name / "commitlog", [Message()], 4096)
        sections.append(f'[[broker]]\nbroker = "{name}"\nstore = "{root / name}"\noutput = "{root / "out" / name}"\n')
    (root / "brokers.toml").write_text("".join(sections))
    tail = TailProcess(root, whose=("--config", str(root / "brokers.toml")))
    try:
        tail.wait(lambda: bool(tail.children("pyspark-shell")))
        time.sleep(0.5)  # for all to wait
        tail.process.send_signal(signal.SIGINT)
        assert tail.process.wait(LIMIT_SECONDS) == 0, tail.last_words()
        assert not re.search("WARNING|ERROR|reput: ", tail.said.read_text()), tail.last_words()
        nothing_is_left(root, temporary)
    finally:
        tail.end()


def to_the_group(tail: TailProcess, _: Path) -> None:
    """Signal the group as a terminal does, and again at once."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        os.killpg(tail.process.pid, number)
        time.sleep(0.1)


def to_all(tail: TailProcess, _: Path) -> None:
    """As a service manager does: the JVM, the daemon and its workers get it, too, and first."""
    for pid in reversed([tail.process.pid, *tail.children("")]):
        os.kill(pid, signal.SIGTERM)


def hang_up(tail: TailProcess, _: Path) -> None:
    tail.process.send_signal(signal.SIGHUP)


@pytest.mark.spark
@pytest.mark.parametrize(
    "ask", [to_the_group, *(pytest.param(ask, marks=pytest.mark.slow) for ask in (to_all, hang_up))]
)
def test_a_stop_under_load(ask: Callable[[TailProcess, Path], None], root: Path, temporary: Path) -> None:
    """After the batch under way, with a summary, exit code 0, and nothing left behind."""
    writer = LogWriter(root / "store" / "commitlog", 50.0)
    try:
        tail = begun(root)
        try:
            ask(tail, root)
            assert tail.process.wait(LIMIT_SECONDS) == 0, tail.last_words()
            # Without lines about a machine that was too busy, or about `abort`, which stays if the log has grown
            # meanwhile.
            said = [line for line in lines_of(tail) if " WARNING " not in line and "/abort stays, " not in line]
            assert [bool(_SUMMARY.match(line)) for line in said] == [True, True], tail.last_words()
            nothing_is_left(root, temporary)
        finally:
            tail.end()
    finally:
        writer.end()


def jvm_dies(tail: TailProcess, _: Path) -> None:
    os.kill(tail.jvm(), signal.SIGKILL)


def output_goes(_: TailProcess, root: Path) -> None:
    (root / "out").rename(root / "elsewhere")


def output_is_replaced(_: TailProcess, root: Path) -> None:
    shutil.copytree(root / "out", root / "copy", ignore=shutil.ignore_patterns("scratch", "spark-checkpoint"))
    (root / "out").rename(root / "elsewhere")
    (root / "copy").rename(root / "out")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("happen", "code", "words"),
    [
        (jvm_dies, 75, r"reput: Spark's Java process was killed by SIGKILL; nothing is lost: start the same command"),
        (output_goes, 1, r"reput: the output \S+/out cannot be reached while reput writes to it"),
        (output_is_replaced, 1, r"reput: the output \S+/out was replaced by another one while reput wrote to it"),
    ],
)
def test_an_end_that_nobody_asked_for(
    happen: Callable[[TailProcess, Path], None], code: int, words: str, root: Path, temporary: Path
) -> None:
    """One line at the end, and never a traceback, where nothing is waited for."""
    writer = LogWriter(root / "store" / "commitlog", 50.0)
    try:
        tail = begun(root, "--option", "retryForMs=0")
        try:
            happen(tail, root)
            assert tail.process.wait(LIMIT_SECONDS) == code, tail.last_words()
            *before, last = lines_of(tail)
            assert re.match(words, last), tail.last_words()
            assert all(" WARNING " in line for line in before), tail.last_words()
            assert all(len(line) < 1000 for line in lines_of(tail))
            nothing_is_left(root, temporary)
        finally:
            tail.end()
    finally:
        writer.end()


@pytest.mark.slow
@pytest.mark.spark
def test_a_driver_that_is_killed_takes_all_with_it(root: Path, temporary: Path) -> None:
    """Its JVM and workers end by themselves; what they leave in the temporary directory goes with the next start."""
    writer = LogWriter(root / "store" / "commitlog", 50.0)
    try:
        tail = begun(root)
        try:
            tail.process.kill()
            tail.process.wait()
            deadline = time.monotonic() + LIMIT_SECONDS
            while processes_in(temporary):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            tail.end()
    finally:
        writer.end()
    again = TailProcess(root, "--available-now")
    try:
        assert again.process.wait(300) == 0, again.last_words()
        nothing_is_left(root, temporary)
    finally:
        again.end()
