"""Limits of the shell: one true line that names the ``ulimit``, before anything begins or where it is reached."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.logs import varied_messages
from support.record_writer import write_log

from reput.source.system import limit_reached

GIB = 1 << 30
REPUT = [sys.executable, "-m", "reput.streaming.cli.main"]


def limited(words: list[str], limits: Mapping[int, int]) -> subprocess.CompletedProcess[str]:
    """Run a command that may not go beyond `limits`, soft and hard."""

    def limit() -> None:
        for which, value in limits.items():
            resource.setrlimit(which, (value, value))

    return subprocess.run([*REPUT, *words], capture_output=True, text=True, check=False, timeout=100, preexec_fn=limit)


@pytest.mark.parametrize("command", ["tail", "rebuild", "verify", "query"])
@pytest.mark.parametrize(
    ("which", "value", "words"),
    [
        (resource.RLIMIT_NOFILE, 40, r"ulimit -n is 40, and [\w' ]+ needs \d+ open files; raise it"),
        (resource.RLIMIT_AS, GIB // 2, r"ulimit -v is 524288, and [\w' ]+ needs \d+ \(KiB of address space"),
    ],
)
def test_a_limit_that_is_too_low(command: str, which: int, value: int, words: str, tmp_path: Path) -> None:
    """Said at once, in one line, with nothing made."""
    more = ["--msg-id", "7F0000010000771000000000001193BF"] if command == "query" else []
    output = [] if command == "query" else ["--output", str(tmp_path / "out")]
    done = limited([command, "--store", str(tmp_path), *output, *more], {which: value})
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert re.match(f"reput: {words}", line)
    assert not (tmp_path / "out").exists()


def test_a_soft_limit_is_raised(tmp_path: Path) -> None:
    """A limit that the user may raise without asking is raised."""
    write_log(tmp_path / "store" / "commitlog", varied_messages(10), 1 << 16)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 4096));"
        "from reput.streaming.cli.main import main; main()"
    )
    words = ["rebuild", "--store", str(tmp_path / "store"), "--output", str(tmp_path / "out"), "--master", "local[1]"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "out" / "consumequeue").rglob("0*"))


def test_a_file_that_may_not_be_so_large(tmp_path: Path) -> None:
    """The limit is named, not the disk; index files are the largest."""
    write_log(tmp_path / "store" / "commitlog", varied_messages(10), 1 << 16)
    words = ["rebuild", "--store", str(tmp_path / "store"), "--output", str(tmp_path / "out"), "--master", "local[1]"]
    done = limited(words, {resource.RLIMIT_FSIZE: 1 << 20})
    assert done.returncode == 1
    assert re.search(
        r"^reput: cannot [a-z ]+ \S+: no file may have more than 1048576 bytes \(ulimit -f\); allow larger ones$",
        done.stderr,
        re.MULTILINE,
    ), done.stderr
    assert "Traceback" not in done.stderr


def in_child(action: Callable[[], str]) -> str:
    """Return the result of `action` in a process of its own, which may give up rights."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, action().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_threads_of_a_user() -> None:
    """A user may have no more processes and threads; root may."""
    from reput.source.errors import EnvironmentSetupError
    from reput.source.system import READING, check_limits

    def check() -> str:
        resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))
        os.setuid(54321)
        try:
            check_limits(READING)
        except EnvironmentSetupError as error:
            return f"{error}\n{error.advice}"
        return "started"

    assert in_child(check) == (
        "ulimit -u is 3, and reput needs 8 threads beside what this user runs already; raise it, in the shell or in "
        "the unit or container that starts reput\n"
        "raise it, in the shell or in the unit or container that starts reput"
    )


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EMFILE, r"this process may open no more files \(ulimit -n is \d+\); allow it more"),
        (errno.ENFILE, "the machine has as many open files as it may have"),
        (errno.EFBIG, "the file system takes no file so large"),
        (errno.ENOMEM, "the machine has no memory left"),
    ],
)
def test_a_refusal_of_the_system(number: int, words: str) -> None:
    """The error names each; a full disk is not a limit of this kind."""
    assert re.match(words, "; ".join(filter(None, limit_reached(OSError(number, "x")) or ())))
    assert limit_reached(OSError(errno.ENOSPC, "x")) is None
