"""G15, G7: a part of a running `reput tail` dies or its disk is full: it ends with an error, or goes on; never idle."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults.tail_process import LogWriter, Oracle, TailProcess
from support.proof_counts import Proof

pytestmark = [pytest.mark.slow, pytest.mark.spark]

LIMIT_SECONDS = 60
RATE = 150.0


@contextmanager
def under_load(root: Path) -> Iterator[TailProcess]:
    """A tail beyond its first batches, and a log that goes on; afterwards all is made good and compared."""
    writer = LogWriter(root / "store" / "commitlog", RATE)
    tail = TailProcess(root)
    try:
        tail.wait_beyond(0)
        yield tail
    finally:
        tail.end()
        messages = writer.end()
    last = TailProcess(root, "--available-now")
    try:
        assert last.process.wait(300) == 0, last.last_words()
    finally:
        last.end()
    Oracle(root).check_all(messages)


def ends_or_goes_on(tail: TailProcess) -> str:
    """Within the limit."""
    before = tail.end_offset()
    try:
        code = tail.process.wait(LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        assert tail.end_offset() > before, f"neither ended nor went on:\n{tail.last_words()}"
        return "G15 dead workers got over"
    assert code > 0, f"ended with {code}:\n{tail.last_words()}"
    return "G15 dead parts that ended the run with an error"


def test_the_jvm_dies(tmp_path: Path, proof: Proof) -> None:
    """The driver notices, and says so by its exit code."""
    with under_load(tmp_path) as tail:
        (jvm,) = (pid for pid in tail.children("") if Path(f"/proc/{pid}/exe").readlink().name == "java")
        os.kill(jvm, signal.SIGKILL)
        assert tail.process.wait(LIMIT_SECONDS) > 0, tail.last_words()
        proof("G15 dead parts that ended the run with an error")


@pytest.mark.parametrize("which", ["daemon", "newest"])
def test_a_python_worker_dies(which: str, tmp_path: Path, proof: Proof) -> None:
    """The parent of all workers, or the youngest of them."""
    with under_load(tmp_path) as tail:
        workers = tail.children("-m reput.streaming.tail.worker_daemon")
        os.kill(workers[0 if which == "daemon" else -1], signal.SIGKILL)
        proof(ends_or_goes_on(tail))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("full", ["out", "table"])
def test_the_disk_is_full(full: str, tmp_path: Path, proof: Proof) -> None:
    """On a disk of its own: it ends with an error, and with room it goes on by itself at the next start."""
    mounted = tmp_path / full
    mounted.mkdir()
    # Room for what is written before it is filled, however slow the start is.
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(mounted)], check=False).returncode:
        pytest.skip("no mounts here")
    try:
        filler = mounted / "filler"
        writer, tail = LogWriter(tmp_path / "store" / "commitlog", 2000), TailProcess(tmp_path)
        try:
            tail.wait_beyond(0)
            fill(filler)
            assert tail.process.wait(2 * LIMIT_SECONDS) > 0, tail.last_words()
        finally:
            tail.end()
            messages = writer.end()
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=200m", str(mounted)], check=True)
        last = TailProcess(tmp_path, "--available-now")
        try:
            assert last.process.wait(300) == 0, last.last_words()
        finally:
            last.end()
        Oracle(tmp_path).check_all(messages)
        proof("G7 full disks under a whole run")
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True)


def fill(path: Path) -> None:
    """Leave no byte free."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
