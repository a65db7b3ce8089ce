"""One writer: the lock keeps out a second reput and a broker, both ways, and dies with its holder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reput.sinks.files.store_lock import StoreLock
from reput.source.errors import MayPassError, OutputAwayError, OutputError, StoreLockedError

#: Takes the lock, or tells the error, and holds it until its input ends.
HOLDER = """
import sys
from pathlib import Path
from reput.sinks.files.store_lock import StoreLock
try:
    lock = StoreLock(Path(sys.argv[1]))
except Exception as error:
    print(type(error).__name__, error, flush=True)
else:
    print("locked", flush=True)
    sys.stdin.read()
"""
#: As `DefaultMessageStore#start` takes it.
JAVA_HOLDER = """
import java.io.RandomAccessFile;
import java.nio.channels.FileLock;

public class Lock {
    public static void main(String[] args) throws Exception {
        RandomAccessFile file = new RandomAccessFile(args[0], "rw");
        FileLock lock = file.getChannel().tryLock(0, 1, false);
        System.out.println(lock == null ? "refused" : "locked");
        System.in.read();
    }
}
"""


@contextmanager
def running(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and the first line it says; ended by the end of its input."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process, process.stdout.readline().strip()


def holder(root: Path) -> list[str]:
    return [sys.executable, "-c", HOLDER, str(root)]


@pytest.fixture(scope="module")
def java_holder(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if shutil.which("javac") is None:
        pytest.skip("needs a JDK")
    source = tmp_path_factory.mktemp("java") / "Lock.java"
    source.write_text(JAVA_HOLDER)
    return ["java", str(source)]


def test_the_file_is_what_a_broker_leaves(tmp_path: Path) -> None:
    """It holds "lock", stays when the lock is given back, and the output is made if missing."""
    root = tmp_path / "a" / "b"
    with StoreLock(root):
        assert (root / "lock").read_bytes() == b"lock"
    assert (root / "lock").read_bytes() == b"lock"
    (root / "lock").write_bytes(b"lock, longer")
    StoreLock(root).close()
    assert (root / "lock").read_bytes() == b"lock, longer"
    assert list(root.iterdir()) == [root / "lock"]


def test_a_second_process_is_refused_with_the_holders_number(tmp_path: Path) -> None:
    """The second process gets the holder's number and advice; after the release the lock is free."""
    with running(holder(tmp_path)) as (process, said):
        assert said == "locked"
        with pytest.raises(StoreLockedError) as caught:
            StoreLock(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/lock is locked by process {process.pid}: a broker or another reput works on this output; "
        "stop it first, or give another --output"
    )
    assert (caught.value.file, caught.value.advice) == (
        f"{tmp_path}/lock",
        "stop it first, or give another --output",
    )
    with StoreLock(tmp_path), running(holder(tmp_path)) as (_, said):
        assert said.startswith(f"StoreLockedError {tmp_path}/lock is locked by process {os.getpid()}:")
    with running(holder(tmp_path)) as (_, said):
        assert said == "locked"


def test_a_refused_try_takes_nothing_from_the_holder(tmp_path: Path) -> None:
    """Any number of tries from outside leave the lock with its holder."""
    with running(holder(tmp_path)) as (_, said):
        assert said == "locked"
        for _ in range(3):
            with pytest.raises(StoreLockedError):
                StoreLock(tmp_path)


def test_kill_9_frees_the_lock(tmp_path: Path) -> None:
    """A holder that dies without a word leaves nothing to clean up."""
    with running(holder(tmp_path)) as (process, said):
        assert said == "locked"
        process.send_signal(signal.SIGKILL)
        process.wait()
        StoreLock(tmp_path).close()


def test_a_second_lock_in_the_same_process_is_refused(tmp_path: Path) -> None:
    """The system would grant it, and closing it would drop the first: reput itself must keep count."""
    with StoreLock(tmp_path):
        with pytest.raises(StoreLockedError):
            StoreLock(tmp_path)
        with running(holder(tmp_path)) as (_, said):
            assert said.startswith("StoreLockedError")
    StoreLock(tmp_path).close()


@pytest.mark.parametrize("kind", ["directory", "link", "file above"])
def test_what_cannot_be_locked_is_an_error_with_its_path(kind: str, tmp_path: Path) -> None:
    """A directory or a link in the file's place, or a file in the output's: no crash, nothing followed."""
    root = tmp_path / "out"
    if kind == "file above":
        root.write_bytes(b"")
    else:
        root.mkdir()
        (root / "lock").mkdir() if kind == "directory" else (root / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(
        OutputError, match=f"cannot write {root}/lock: .*; the output needs a writable directory"
    ) as caught:
        StoreLock(root)
    assert (caught.value.file, caught.value.advice) == (f"{root}/lock", "the output needs a writable directory")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.broker
def test_java_and_reput_keep_each_other_out(tmp_path: Path, java_holder: list[str]) -> None:
    """G9: the byte that a broker locks is the one that reput locks."""
    command = [*java_holder, str(tmp_path / "lock")]
    with running(command) as (process, said):
        assert said == "locked"
        with pytest.raises(StoreLockedError, match=f"is locked by process {process.pid}: a broker or another reput"):
            StoreLock(tmp_path)
    with StoreLock(tmp_path), running(command) as (_, said):
        assert said == "refused"


@pytest.mark.broker
def test_kill_9_of_java_frees_the_lock(tmp_path: Path, java_holder: list[str]) -> None:
    """As with a dead broker's store."""
    with running([*java_holder, str(tmp_path / "lock")]) as (process, said):
        assert said == "locked"
        process.send_signal(signal.SIGKILL)
        process.wait()
        StoreLock(tmp_path).close()


def test_an_output_that_is_away_may_come_back(tmp_path: Path) -> None:
    """Where its files still exist; what was removed, or has another one in its place, is gone for good."""
    root, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    with StoreLock(root) as lock:
        lock.check_in_place()
        root.rename(elsewhere)
        with pytest.raises(OutputAwayError, match="cannot be reached while reput writes to it"):
            lock.check_in_place()
        root.mkdir()  # a mount point
        with pytest.raises(OutputAwayError, match="cannot be reached while reput writes to it"):
            lock.check_in_place()
        (root / "lock").touch()
        with pytest.raises(OutputError, match="was replaced by another one") as raised:
            lock.check_in_place()
        assert not isinstance(raised.value, MayPassError)
        shutil.rmtree(root)
        elsewhere.rename(root)
        lock.check_in_place()
        shutil.rmtree(root)
        with pytest.raises(OutputError, match="was removed while reput writes to it") as raised:
            lock.check_in_place()
        assert not isinstance(raised.value, MayPassError)
